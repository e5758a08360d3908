//! The answers to requests, written behind those of earlier requests.

use super::Meta;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// An object, as a meta command describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Described {
    /// Bytes of its value.
    pub value_bytes: usize,
    /// The client's flags.
    pub flags: u32,
    /// Its version.
    pub cas: u64,
    /// The seconds until it expires, if it does.
    pub ttl: Option<u32>,
    /// The seconds since it was read or written.
    pub idle: u32,
    /// Whether it was read since it was written.
    pub was_read: bool,
}

/// The marks behind the flags of an object that a meta command read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// `W`: this client may load the object again.
    pub has_won: bool,
    /// `X`: the object is stale.
    pub is_stale: bool,
    /// `Z`: another client was told that it may load the object.
    pub is_awaited: bool,
}

/// The flags of `mg` that describe the object.
pub const OF_GET: &[u8] = b"stcflh";
/// The flags of `ms` that describe the object.
pub const OF_SET: &[u8] = b"c";
/// The flags of `ma` that describe the object.
pub const OF_ARITHMETIC: &[u8] = b"tc";

fn number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Writes an object that a `get` found, with its version if the client wants it. [`end`] ends the
/// answer.
#[inline]
pub fn value(out: &mut Vec<u8>, key: &[u8], flags: u32, value: &[u8], cas: Option<u64>) {
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.push(b' ');
    number(out, u64::from(flags));
    out.push(b' ');
    number(out, value.len() as u64);
    if let Some(cas) = cas {
        out.push(b' ');
        number(out, cas);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Ends the answer to a `get` or `stats`.
pub fn end(out: &mut Vec<u8>) {
    line(out, "END");
}

/// Writes a line: `STORED`, `NOT_FOUND` and so on.
pub fn line(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Writes the new number of an `incr` or `decr`.
pub fn new_number(out: &mut Vec<u8>, value: u64) {
    number(out, value);
    out.extend_from_slice(b"\r\n");
}

/// Writes a figure of `stats`.
pub fn stat(out: &mut Vec<u8>, name: &str, value: impl std::fmt::Display) {
    line(out, &format!("STAT {name} {value}"));
}

/// Writes the answer to a meta command: a code of two letters, the flags that the client wants
/// back, marks, and a value. `describes` lists the flags that describe `object`.
pub fn meta(
    out: &mut Vec<u8>,
    code: [u8; 2],
    meta: &Meta<'_>,
    object: Option<(Described, &[u8])>,
    marks: Marks,
    value: Option<&[u8]>,
) {
    match value {
        Some(value) => {
            out.extend_from_slice(b"VA ");
            number(out, value.len() as u64);
        }
        None => out.extend_from_slice(&code),
    }
    for word in meta.words {
        match word[0] {
            b'O' => {
                out.push(b' ');
                out.extend_from_slice(word);
            }
            b'k' => returned_key(out, meta),
            flag => {
                if let Some((object, describes)) = object
                    && describes.contains(&flag)
                {
                    described(out, flag, &object);
                }
            }
        }
    }
    let Marks { has_won, is_stale, is_awaited } = marks;
    for (is_set, mark) in [(is_awaited, b" Z"), (is_stale, b" X"), (has_won, b" W")] {
        if is_set {
            out.extend_from_slice(mark);
        }
    }
    out.extend_from_slice(b"\r\n");
    if let Some(value) = value {
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
}

/// Writes the description of an object for people.
pub fn debug(out: &mut Vec<u8>, key: &[u8], is_binary: bool, expires: i64, object: &Described) {
    out.extend_from_slice(b"ME ");
    if is_binary {
        out.extend_from_slice(STANDARD.encode(key).as_bytes());
    } else {
        out.extend_from_slice(key);
    }
    let Described { cas, idle, was_read, value_bytes, .. } = object;
    let fetched = if *was_read { "yes" } else { "no" };
    let text =
        format!(" exp={expires} la={idle} cas={cas} fetch={fetched} cls=1 size={value_bytes}");
    line(out, &text);
}

fn returned_key(out: &mut Vec<u8>, meta: &Meta<'_>) {
    out.extend_from_slice(b" k");
    if meta.is_binary {
        out.extend_from_slice(STANDARD.encode(&meta.key).as_bytes());
        out.extend_from_slice(b" b");
    } else {
        out.extend_from_slice(&meta.key);
    }
}

fn described(out: &mut Vec<u8>, flag: u8, object: &Described) {
    out.extend_from_slice(&[b' ', flag]);
    match (flag, object.ttl) {
        (b's', _) => number(out, object.value_bytes as u64),
        (b't', None) => out.extend_from_slice(b"-1"),
        (b't', Some(ttl)) => number(out, u64::from(ttl)),
        (b'c', _) => number(out, object.cas),
        (b'f', _) => number(out, u64::from(object.flags)),
        (b'l', _) => number(out, u64::from(object.idle)),
        _ => out.push(if object.was_read { b'1' } else { b'0' }),
    }
}
