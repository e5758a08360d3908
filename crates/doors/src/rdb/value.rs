//! A value of one key, and its forms.

use super::packed::{Items, integers, listpack, ziplist, zipmap};
use super::reader::{put_length, put_string};
use super::stream::{Form, Stream};
use super::{Damaged, Reader, VERSION, VERSION_EXPIRING, VERSION_STREAM};
use std::collections::HashSet;

/// A field of a hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// The time at which it expires, in milliseconds since 1970, if it does.
    pub expires: Option<u64>,
}

/// A value of one key. A collection has at least one item. Its items are different, unless it is a
/// list.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Bytes.
    String(Vec<u8>),
    /// Elements, in their order.
    List(Vec<Vec<u8>>),
    /// Members.
    Set(Vec<Vec<u8>>),
    /// Members with their scores, none of which is NaN.
    SortedSet(Vec<(Vec<u8>, f64)>),
    /// Fields.
    Hash(Vec<Field>),
    /// Entries, and groups of consumers. It may have none.
    Stream(Stream),
}

/// The numbers of the forms.
mod form {
    pub(super) const STRING: u8 = 0;
    pub(super) const LIST: u8 = 1;
    pub(super) const SET: u8 = 2;
    pub(super) const SORTED_SET_TEXT: u8 = 3;
    pub(super) const HASH: u8 = 4;
    pub(super) const SORTED_SET: u8 = 5;
    pub(super) const HASH_ZIPMAP: u8 = 9;
    pub(super) const LIST_ZIPLIST: u8 = 10;
    pub(super) const SET_INTEGERS: u8 = 11;
    pub(super) const SORTED_SET_ZIPLIST: u8 = 12;
    pub(super) const HASH_ZIPLIST: u8 = 13;
    pub(super) const LIST_ZIPLISTS: u8 = 14;
    pub(super) const STREAM: u8 = 15;
    pub(super) const HASH_LISTPACK: u8 = 16;
    pub(super) const SORTED_SET_LISTPACK: u8 = 17;
    pub(super) const LIST_LISTPACKS: u8 = 18;
    pub(super) const STREAM_2: u8 = 19;
    pub(super) const SET_LISTPACK: u8 = 20;
    pub(super) const STREAM_3: u8 = 21;
    pub(super) const HASH_TIMES_OLD: u8 = 22;
    pub(super) const HASH_LISTPACK_TIMES_OLD: u8 = 23;
    pub(super) const HASH_TIMES: u8 = 24;
    pub(super) const HASH_LISTPACK_TIMES: u8 = 25;
}

/// The latest time at which a field may expire in Redis.
const TIME_MAX: u64 = (1 << 48) - 2;

/// Reads several strings.
fn strings(reader: &mut Reader<'_>, per_item: usize) -> Result<Vec<Vec<u8>>, Damaged> {
    let count = reader.count()?.checked_mul(per_item).ok_or(Damaged::Format)?;
    let mut strings = Vec::new();
    for _ in 0..count {
        strings.push(reader.string()?);
    }
    Ok(strings)
}

/// Reads a string that is a packed collection.
fn packed(
    reader: &mut Reader<'_>,
    items: fn(&[u8], &mut Reader<'_>) -> Items,
) -> Result<Vec<Vec<u8>>, Damaged> {
    let bytes = reader.string()?;
    items(&bytes, reader)
}

/// Makes fields of names and values in turn.
fn fields(items: Vec<Vec<u8>>) -> Result<Vec<Field>, Damaged> {
    let mut fields = Vec::new();
    let mut items = items.into_iter();
    while let Some(name) = items.next() {
        let value = items.next().ok_or(Damaged::Format)?;
        fields.push(Field { name, value, expires: None });
    }
    Ok(fields)
}

/// Makes fields of names, values and times in turn. The time 0 stands for none.
fn expiring_fields(items: Vec<Vec<u8>>) -> Result<Vec<Field>, Damaged> {
    let mut fields = Vec::new();
    let mut items = items.into_iter();
    while let Some(name) = items.next() {
        let (value, time) = (items.next(), items.next());
        let (value, time) = value.zip(time).ok_or(Damaged::Format)?;
        let time = crate::resp::integer_of(&time).and_then(|time| u64::try_from(time).ok());
        fields.push(Field { name, value, expires: expires(time.ok_or(Damaged::Format)?)? });
    }
    Ok(fields)
}

fn expires(time: u64) -> Result<Option<u64>, Damaged> {
    if time > TIME_MAX { Err(Damaged::Format) } else { Ok((time != 0).then_some(time)) }
}

/// Reads fields with times before them, which count from the least one.
fn timed_fields(reader: &mut Reader<'_>, begin: Option<u64>) -> Result<Vec<Field>, Damaged> {
    let count = reader.count()?;
    let mut fields = Vec::new();
    for _ in 0..count {
        let time = match (reader.length()?, begin) {
            (0, _) => 0,
            (time, None) => time,
            (time, Some(begin)) => begin.checked_add(time - 1).ok_or(Damaged::Format)?,
        };
        let (name, value) = (reader.string()?, reader.string()?);
        fields.push(Field { name, value, expires: expires(time)? });
    }
    Ok(fields)
}

/// Makes members with scores of members and texts of scores in turn.
fn scored(items: Vec<Vec<u8>>) -> Result<Vec<(Vec<u8>, f64)>, Damaged> {
    let mut scored = Vec::new();
    let mut items = items.into_iter();
    while let Some(member) = items.next() {
        let score = items.next().ok_or(Damaged::Format)?;
        let score = str::from_utf8(&score).ok().and_then(|text| text.parse::<f64>().ok());
        scored.push((member, score.ok_or(Damaged::Format)?));
    }
    Ok(scored)
}

/// Reads the parts of a list, each of which is a string.
fn list(reader: &mut Reader<'_>, has_forms: bool) -> Result<Vec<Vec<u8>>, Damaged> {
    /// The form of a part that is one long element, and of a packed part.
    const PLAIN: u64 = 1;
    const PACKED: u64 = 2;
    let count = reader.count()?;
    let mut elements = Vec::new();
    for _ in 0..count {
        let form = if has_forms { reader.length()? } else { PACKED };
        match (form, has_forms) {
            (PLAIN, _) => elements.push(reader.string()?),
            (PACKED, true) => elements.append(&mut packed(reader, listpack)?),
            (PACKED, false) => elements.append(&mut packed(reader, ziplist)?),
            _ => return Err(Damaged::Format),
        }
    }
    Ok(elements)
}

impl Value {
    /// Reads a value of a type, which is a byte before the key or before the value.
    ///
    /// # Errors
    /// If the bytes are damaged, or are longer than the reader may unpack.
    pub fn read(kind: u8, reader: &mut Reader<'_>) -> Result<Value, Damaged> {
        let value = match kind {
            form::STRING => Value::String(reader.string()?),
            form::LIST => Value::List(strings(reader, 1)?),
            form::LIST_ZIPLIST => Value::List(packed(reader, ziplist)?),
            form::LIST_ZIPLISTS => Value::List(list(reader, false)?),
            form::LIST_LISTPACKS => Value::List(list(reader, true)?),
            form::SET => Value::Set(strings(reader, 1)?),
            form::SET_INTEGERS => Value::Set(packed(reader, integers)?),
            form::SET_LISTPACK => Value::Set(packed(reader, listpack)?),
            form::SORTED_SET | form::SORTED_SET_TEXT => {
                let count = reader.count()?;
                let mut scored = Vec::new();
                for _ in 0..count {
                    let member = reader.string()?;
                    let score = match kind {
                        form::SORTED_SET => reader.double()?,
                        _ => reader.double_text()?,
                    };
                    scored.push((member, score));
                }
                Value::SortedSet(scored)
            }
            form::SORTED_SET_ZIPLIST => Value::SortedSet(scored(packed(reader, ziplist)?)?),
            form::SORTED_SET_LISTPACK => Value::SortedSet(scored(packed(reader, listpack)?)?),
            form::HASH => Value::Hash(fields(strings(reader, 2)?)?),
            form::HASH_ZIPMAP => Value::Hash(fields(packed(reader, zipmap)?)?),
            form::HASH_ZIPLIST => Value::Hash(fields(packed(reader, ziplist)?)?),
            form::HASH_LISTPACK => Value::Hash(fields(packed(reader, listpack)?)?),
            form::HASH_TIMES_OLD => Value::Hash(timed_fields(reader, None)?),
            form::HASH_TIMES => {
                let begin = reader.time()?;
                Value::Hash(timed_fields(reader, Some(begin))?)
            }
            form::HASH_LISTPACK_TIMES_OLD => {
                Value::Hash(expiring_fields(packed(reader, listpack)?)?)
            }
            form::HASH_LISTPACK_TIMES => {
                let _begin = reader.time()?;
                Value::Hash(expiring_fields(packed(reader, listpack)?)?)
            }
            form::STREAM => Value::Stream(Stream::read(Form::First, reader)?),
            form::STREAM_2 => Value::Stream(Stream::read(Form::Second, reader)?),
            form::STREAM_3 => Value::Stream(Stream::read(Form::Third, reader)?),
            other => return Err(Damaged::Unsupported(other)),
        };
        if value.is_possible() { Ok(value) } else { Err(Damaged::Format) }
    }

    /// Whether a type is that of streams.
    #[must_use]
    pub fn is_type_of_streams(kind: u8) -> bool {
        matches!(kind, form::STREAM | form::STREAM_2 | form::STREAM_3)
    }

    /// Skips a value of a type. Finds its end, also if its items contradict each other or are too
    /// long to be unpacked.
    ///
    /// # Errors
    /// If the bytes end too early, or the end cannot be found.
    pub(super) fn skip(kind: u8, reader: &mut Reader<'_>) -> Result<(), Damaged> {
        match kind {
            form::STRING
            | form::LIST_ZIPLIST
            | form::SET_INTEGERS
            | form::SET_LISTPACK
            | form::SORTED_SET_ZIPLIST
            | form::SORTED_SET_LISTPACK
            | form::HASH_ZIPMAP
            | form::HASH_ZIPLIST
            | form::HASH_LISTPACK
            | form::HASH_LISTPACK_TIMES_OLD => reader.skip_string()?,
            form::HASH_LISTPACK_TIMES => {
                reader.time()?;
                reader.skip_string()?;
            }
            form::LIST | form::SET | form::LIST_ZIPLISTS => {
                let count = reader.count()?;
                reader.skip_strings(count)?;
            }
            form::HASH => {
                for _ in 0..reader.count()? {
                    reader.skip_strings(2)?;
                }
            }
            form::LIST_LISTPACKS => {
                for _ in 0..reader.count()? {
                    reader.length()?;
                    reader.skip_string()?;
                }
            }
            form::SORTED_SET => {
                for _ in 0..reader.count()? {
                    reader.skip_string()?;
                    reader.double()?;
                }
            }
            form::SORTED_SET_TEXT => {
                for _ in 0..reader.count()? {
                    reader.skip_string()?;
                    reader.skip_double_text()?;
                }
            }
            form::HASH_TIMES_OLD | form::HASH_TIMES => {
                if kind == form::HASH_TIMES {
                    reader.time()?;
                }
                for _ in 0..reader.count()? {
                    reader.length()?;
                    reader.skip_strings(2)?;
                }
            }
            form::STREAM => Stream::skip(Form::First, reader)?,
            form::STREAM_2 => Stream::skip(Form::Second, reader)?,
            form::STREAM_3 => Stream::skip(Form::Third, reader)?,
            other => return Err(Damaged::Unsupported(other)),
        }
        Ok(())
    }

    /// Whether a collection has items, and all are different.
    fn is_possible(&self) -> bool {
        fn differ<'a>(items: impl Iterator<Item = &'a Vec<u8>>, count: usize) -> bool {
            count > 0 && items.collect::<HashSet<_>>().len() == count
        }
        match self {
            Value::String(_) | Value::Stream(_) => true,
            Value::List(elements) => !elements.is_empty(),
            Value::Set(members) => differ(members.iter(), members.len()),
            Value::SortedSet(scored) => {
                differ(scored.iter().map(|(member, _)| member), scored.len())
                    && scored.iter().all(|(_, score)| !score.is_nan())
            }
            Value::Hash(fields) => differ(fields.iter().map(|field| &field.name), fields.len()),
        }
    }

    /// Returns the version of the format that has the form in which [`Value::write`] writes it.
    pub(super) fn version(&self) -> u16 {
        match self {
            Value::Hash(fields) if fields.iter().any(|field| field.expires.is_some()) => {
                VERSION_EXPIRING
            }
            Value::Stream(_) => VERSION_STREAM,
            _ => VERSION,
        }
    }

    /// Appends the type and the value.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Value::String(string) => {
                out.push(form::STRING);
                put_string(out, string);
            }
            Value::List(strings) | Value::Set(strings) => {
                let is_list = matches!(self, Value::List(_));
                out.push(if is_list { form::LIST } else { form::SET });
                put_length(out, strings.len() as u64);
                strings.iter().for_each(|string| put_string(out, string));
            }
            Value::SortedSet(scored) => {
                out.push(form::SORTED_SET);
                put_length(out, scored.len() as u64);
                for (member, score) in scored {
                    put_string(out, member);
                    out.extend_from_slice(&score.to_le_bytes());
                }
            }
            Value::Stream(stream) => {
                out.push(form::STREAM_3);
                stream.write(out);
            }
            Value::Hash(fields) => {
                let begin = fields.iter().filter_map(|field| field.expires).min();
                out.push(if begin.is_some() { form::HASH_TIMES } else { form::HASH });
                if let Some(begin) = begin {
                    out.extend_from_slice(&begin.to_le_bytes());
                }
                put_length(out, fields.len() as u64);
                for field in fields {
                    if let Some(begin) = begin {
                        let time = field.expires.map_or(0, |time| time - begin + 1);
                        put_length(out, time);
                    }
                    put_string(out, &field.name);
                    put_string(out, &field.value);
                }
            }
        }
    }
}
