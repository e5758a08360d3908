//! `DUMP` and `RESTORE`: values in the form of Redis's files.

use super::collection::Collection;
use super::commands::{Command, DANGEROUS, DENYOOM, Group, Keys, READONLY, WRITE};
use super::context::{Context, is};
use super::dumps_streams;
use super::events::Kinds;
use super::hash::{self, Expiry, Hash};
use super::list::{self, List};
use super::number::integer_of;
use super::parser::Arguments;
use super::set::{self, Set};
use super::sorted_set::{self, SortedSet};
use super::stop::{self, Done, Stop};
use super::store::{Kind, Refusal};
use crate::rdb::{self, Damaged, Field, Reader, Value};
use std::rc::Rc;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("dump", 2, READONLY, dump)
        .keys(&[Keys::one("RO access", 1)])
        .tips(&["nondeterministic_output"])
        .about(Group::Generic, "2.6.0", "Returns a value in the form of Redis's files."),
    Command::new("restore", -4, WRITE | DENYOOM | DANGEROUS, restore)
        .keys(&[Keys::one("OW update", 1)])
        .about(Group::Generic, "2.6.0", "Writes a value that DUMP has returned."),
];

/// The bytes that a payload may unpack. A longer value would not be one change of the store.
const UNPACKED_MAX: usize = 64 << 20;

fn dump(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let key = &arguments[1];
    let Some(kind) = context.objects.read(key)?.map(|found| found.kind) else {
        context.reply.null();
        return Ok(());
    };
    let most = context.state.options.reply_bytes_max;
    let value = read(context, key, kind, most)?;
    context.reply.string(&value.payload());
    Ok(())
}

/// Returns the number of bytes of a value in the form of `DUMP`, without its type, the version and
/// the checksum.
pub(super) fn value_bytes(context: &mut Context<'_>, key: &[u8]) -> Result<usize, Stop> {
    const AROUND_BYTES: usize = 1 + 2 + 8;
    let Some(kind) = context.objects.read(key)?.map(|found| found.kind) else { return Ok(0) };
    let most = context.state.options.reply_bytes_max;
    Ok(read(context, key, kind, most)?.payload().len().saturating_sub(AROUND_BYTES))
}

/// The room for a value that is read.
pub(super) struct Room {
    /// The bytes of its payload.
    bytes: usize,
    /// The bytes of memory.
    memory: usize,
}

impl Room {
    /// The memory of a string beside its bytes: its place, and the head of its allocation.
    const STRING: usize = size_of::<Vec<u8>>() + 16;
    /// The memory for each byte of a payload. It is enough for elements of a few bytes.
    const FACTOR: usize = 4;

    fn for_payload(bytes: usize) -> Room {
        Room { bytes, memory: bytes.saturating_mul(Room::FACTOR) }
    }

    /// Takes the room for some strings with so many bytes together.
    ///
    /// # Errors
    /// If there is no room for them: the reply would be too long.
    pub(super) fn take(&mut self, strings: usize, bytes: usize) -> Result<(), Stop> {
        let memory = strings.saturating_mul(Room::STRING).saturating_add(bytes);
        // The payload has at least one byte for the length of a string.
        let bytes = bytes.saturating_add(strings);
        self.memory = self.memory.checked_sub(memory).ok_or(stop::REPLY_TOO_LONG)?;
        self.bytes = self.bytes.checked_sub(bytes).ok_or(stop::REPLY_TOO_LONG)?;
        Ok(())
    }

    /// Takes the memory for a number of structures that take some bytes of the payload, too.
    pub(super) fn take_each(&mut self, count: usize, memory: usize) -> Result<(), Stop> {
        let memory = count.saturating_mul(memory);
        self.memory = self.memory.checked_sub(memory).ok_or(stop::REPLY_TOO_LONG)?;
        Ok(())
    }

    /// Returns the number of structures for which there is memory.
    pub(super) fn left(&self, memory: usize) -> usize {
        self.memory / memory.max(1)
    }
}

/// Reads a value whose payload has about so many bytes at most.
fn read(context: &mut Context<'_>, key: &[u8], kind: Kind, most: usize) -> Result<Value, Stop> {
    let objects = &mut context.objects;
    let mut room = Room::for_payload(most);
    let mut taken = Ok(());
    let value = match kind {
        Kind::String | Kind::LongString => Value::String(objects.find_copy(key)?.0),
        Kind::List => {
            let list = List::find(objects, key)?.ok_or(stop::DAMAGED)?;
            let mut elements = Vec::new();
            list.visit(objects, 0..list.len(), false, |element| {
                taken = room.take(1, element.len());
                if taken.is_ok() {
                    elements.push(element.to_vec());
                }
                taken.is_ok()
            })?;
            Value::List(elements)
        }
        Kind::Set => {
            let found = Collection::find(objects, key, Kind::Set, &[set::FORM])?;
            let collection = found.ok_or(stop::DAMAGED)?;
            let mut items = collection.cursor(objects, 0)?;
            let mut members = Vec::new();
            while let Some((member, _)) = items.next(objects)? {
                room.take(1, member.len())?;
                members.push(member.to_vec());
            }
            Value::Set(members)
        }
        Kind::SortedSet => {
            let set = SortedSet::find(objects, key)?.ok_or(stop::DAMAGED)?;
            let mut scored = Vec::new();
            set.visit(objects, 0..set.len(), false, |score, member| {
                taken = room.take(1, member.len() + 8);
                if taken.is_ok() {
                    scored.push((member.to_vec(), score));
                }
                taken.is_ok()
            })?;
            Value::SortedSet(scored)
        }
        Kind::Hash => {
            let mut hash = Hash::find(objects, key)?.ok_or(stop::DAMAGED)?;
            let mut pairs = Vec::new();
            hash.visit(objects, |name, value| {
                if taken.is_ok() {
                    taken = room.take(2, name.len() + value.len());
                }
                if taken.is_ok() {
                    pairs.push((name.to_vec(), value.to_vec()));
                }
            })?;
            std::mem::replace(&mut taken, Ok(()))?;
            let mut fields = Vec::new();
            for (name, value) in pairs {
                let expires = hash.time(objects, &name)?.flatten();
                fields.push(Field { name, value, expires });
            }
            Value::Hash(fields)
        }
        Kind::Stream => Value::Stream(dumps_streams::read(objects, key, &mut room)?),
    };
    taken.map(|()| value)
}

/// The options of `RESTORE`.
#[derive(Clone, Copy, Debug, Default)]
struct Options {
    replaces: bool,
    is_absolute: bool,
}

impl Options {
    /// Reads the options. Those about the use of a key are checked, and have no effect.
    fn of(arguments: Arguments<'_>) -> Result<Options, Stop> {
        let mut options = Options::default();
        let (mut has_idle, mut has_frequency) = (false, false);
        let mut at = 4;
        while let Some(word) = arguments.get(at) {
            at += 1;
            let number = arguments.get(at);
            if is(word, "REPLACE") {
                options.replaces = true;
            } else if is(word, "ABSTTL") {
                options.is_absolute = true;
            } else if let (true, Some(number)) = (is(word, "IDLETIME") && !has_frequency, number) {
                if integer_of(number).ok_or(stop::NOT_AN_INTEGER)? < 0 {
                    return Err(Stop::error("ERR Invalid IDLETIME value, must be >= 0"));
                }
                has_idle = true;
                at += 1;
            } else if let (true, Some(number)) = (is(word, "FREQ") && !has_idle, number) {
                if !(0..=255).contains(&integer_of(number).ok_or(stop::NOT_AN_INTEGER)?) {
                    let text = "ERR Invalid FREQ value, must be >= 0 and <= 255";
                    return Err(Stop::error(text));
                }
                has_frequency = true;
                at += 1;
            } else {
                return Err(stop::SYNTAX);
            }
        }
        Ok(options)
    }
}

fn restore(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    const BAD_FORMAT: Stop = Stop::error("ERR Bad data format");
    let key = &arguments[1];
    let options = Options::of(arguments)?;
    if !options.replaces && context.objects.find(key)?.is_some() {
        return Err(Stop::error("BUSYKEY Target key name already exists."));
    }
    let time = integer_of(&arguments[2]).ok_or(stop::NOT_AN_INTEGER)?;
    let time =
        u64::try_from(time).map_err(|_| Stop::error("ERR Invalid TTL value, must be >= 0"))?;
    let payload = rdb::unwrap(&arguments[3])
        .map_err(|_| Stop::error("ERR DUMP payload version or checksum are wrong"))?;
    let mut reader = Reader::new(payload, UNPACKED_MAX);
    let value = reader.byte().and_then(|kind| Value::read(kind, &mut reader));
    let value = match value {
        Ok(value) if reader.rest().is_empty() => value,
        Err(Damaged::TooLong) => return Err(Refusal::TooLong.into()),
        Ok(_) | Err(_) => return Err(BAD_FORMAT),
    };
    let now = context.objects.now();
    let begin = if options.is_absolute { 0 } else { now };
    // A sum that does not fit wraps around in Redis: it is a time in the past.
    let sum = i64::try_from(time.saturating_add(begin)).map_or(0, |sum| sum as u64);
    let expires = (time != 0).then_some(sum);
    check(context, &value)?;
    let kind = match &value {
        Value::String(_) => Kind::String,
        Value::List(_) => Kind::List,
        Value::Set(_) => Kind::Set,
        Value::SortedSet(_) => Kind::SortedSet,
        Value::Hash(_) => Kind::Hash,
        Value::Stream(_) => Kind::Stream,
    };
    let before = context.objects.peek(key)?.map(|found| found.kind);
    context.objects.remove(key)?;
    if expires.is_none_or(|expires| expires > now) {
        write(context, key, value, expires)?;
        let database = context.objects.database;
        context.objects.event(Kinds::GENERIC, "restore", key);
        context.objects.events.note_replaced(database, key, before, kind);
        context.signal(key);
    } else if before.is_some() {
        context.objects.event(Kinds::GENERIC, "del", key);
    }
    context.ok();
    Ok(())
}

/// Checks that a value fits into the store.
fn check(context: &Context<'_>, value: &Value) -> Done {
    let objects = &context.objects;
    match value {
        Value::String(string) if string.len() > objects.string_bytes_max() => {
            Err(Refusal::TooLong.into())
        }
        Value::String(_) => Ok(()),
        Value::List(elements) => list::check(objects, elements.iter().map(|it| &**it)),
        Value::Set(members) => {
            members.iter().try_for_each(|member| set::FORM.check(objects, member, &[]))
        }
        Value::SortedSet(scored) => {
            sorted_set::check(objects, scored.iter().map(|(member, _)| &**member))
        }
        Value::Hash(fields) => fields.iter().try_for_each(|field| {
            hash::check(objects, &field.name, &field.value, field.expires.is_some())
        }),
        Value::Stream(stream) => dumps_streams::check(objects, stream),
    }
}

/// Writes a value under a key that does not exist.
fn write(context: &mut Context<'_>, key: &[u8], value: Value, expires: Option<u64>) -> Done {
    let objects = &mut context.objects;
    match value {
        Value::String(string) => objects.put(key, string, Kind::String, expires),
        Value::List(elements) => {
            let mut list = List::new(objects, key);
            for element in &elements {
                list.push(objects, list::End::Right, element)?;
            }
            list.save_until(objects, expires)
        }
        Value::Set(members) => {
            let members: Vec<Rc<[u8]>> = members.into_iter().map(Rc::from).collect();
            let Some(first) = members.first() else { return Ok(()) };
            let mut set = Set::new(objects, key, first, members.len() as u64);
            set.fill(objects, &members)?;
            set.collection.expires = expires;
            set.collection.close(objects)?;
            Ok(())
        }
        Value::SortedSet(scored) => {
            let mut members: Vec<(f64, Vec<u8>)> =
                scored.into_iter().map(|(member, score)| (score + 0.0, member)).collect();
            members
                .sort_by(|one, other| one.0.total_cmp(&other.0).then_with(|| one.1.cmp(&other.1)));
            let mut set = SortedSet::new(objects, key);
            set.fill(objects, &members)?;
            set.save_until(objects, expires)
        }
        Value::Stream(stream) => dumps_streams::write(objects, key, &stream, expires),
        Value::Hash(fields) => {
            let now = objects.now();
            let mut hash = Hash::new(objects, key);
            hash.reserve(fields.len() as u64);
            for Field { name, value, expires } in &fields {
                let expiry = match expires {
                    Some(time) if *time <= now => continue,
                    Some(time) => Expiry::At(*time),
                    None => Expiry::Never,
                };
                hash.set(objects, name, value, expiry)?;
            }
            hash.collection.expires = expires;
            hash.close(objects)?;
            Ok(())
        }
    }
}
