//! Cuts requests out of bytes.

use super::line::{Keys, Words};
use super::meta::{Command, Meta, Mode};
use super::number::{i32_of, u32_of, u64_of};
use super::{Exptime, KEY_BYTES_MAX, Request, Store};

const END: &[u8] = b"END\r\n";
const ERROR: &[u8] = b"ERROR\r\n";
const BAD_FORMAT: &[u8] = b"CLIENT_ERROR bad command line format\r\n";
const BAD_DATA: &[u8] = b"CLIENT_ERROR bad data chunk\r\n";
const BAD_TIME: &[u8] = b"CLIENT_ERROR invalid exptime argument\r\n";
const BAD_DELTA: &[u8] = b"CLIENT_ERROR invalid numeric delta argument\r\n";
const BAD_DELETE: &[u8] =
    b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";
const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";

/// The longest line of a command other than a `get`. Memcached closes the connection too if so many
/// bytes arrive without the end of the line.
const LINE_BYTES_MAX: usize = 2048;

/// The first byte of a request of the binary protocol.
const BINARY: u8 = 0x80;

/// The limits of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest value.
    pub value_bytes_max: usize,
    /// The longest line of a `get`, which may have many keys.
    pub get_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { value_bytes_max: 1 << 20, get_bytes_max: 1 << 20 }
    }
}

/// The bytes of a connection, as far as they were understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// The request is unfinished.
    More,
    /// A request, and the number of its bytes.
    Request(Request<'a>, usize),
    /// A wrong request: the answer, which can be empty, and the number of its bytes.
    Refused(&'static [u8], usize),
    /// The number of bytes that belong to a refused request.
    Discarded(usize),
    /// The connection must be closed.
    Close,
}

/// Cuts requests out of the bytes of one connection.
#[derive(Clone, Debug)]
pub struct Parser {
    limits: Limits,
    /// Bytes of the unfinished request without the end of its line.
    scanned: usize,
    /// Bytes of a refused value that have not arrived yet.
    discards: usize,
    /// Whether the first byte has arrived, which tells the protocols apart.
    has_begun: bool,
}

/// A line that is understood.
enum Line<'a> {
    Request(Request<'a>),
    /// A value of this length follows.
    Value(usize, ValueFor<'a>),
    /// A value of this length follows, but the line is wrong.
    RefusedValue(usize, &'static [u8]),
    Refused(&'static [u8]),
    Close,
}

/// The command to which a value belongs.
enum ValueFor<'a> {
    Store(Store<'a>),
    Meta(Meta<'a>),
}

impl Parser {
    /// Returns a parser for a new connection.
    #[must_use]
    pub fn new(limits: Limits) -> Parser {
        Parser { limits, scanned: 0, discards: 0, has_begun: false }
    }

    /// Reads the first request of some bytes. They begin behind the request, the refusal or the
    /// discarded bytes that the last call returned. After [`Parsed::More`] they are the same bytes
    /// with further ones.
    pub fn next<'a>(&mut self, bytes: &'a [u8]) -> Parsed<'a> {
        if self.discards > 0 && !bytes.is_empty() {
            let discarded = self.discards.min(bytes.len());
            self.discards -= discarded;
            return Parsed::Discarded(discarded);
        }
        if !self.has_begun && bytes.first() == Some(&BINARY) {
            return Parsed::Close;
        }
        self.has_begun |= !bytes.is_empty();
        let scanned = self.scanned.min(bytes.len());
        let Some(found) = memchr::memchr(b'\n', &bytes[scanned..]) else {
            self.scanned = bytes.len();
            return if self.may_go_on(bytes) { Parsed::More } else { Parsed::Close };
        };
        // The line is read again when the value has arrived, but its end is not searched again.
        self.scanned = scanned + found;
        let line = &bytes[..self.scanned];
        if !self.may_go_on(line) {
            return Parsed::Close;
        }
        let end = line.len() + 1;
        let parsed = match read_line(line.strip_suffix(b"\r").unwrap_or(line)) {
            Line::Request(request) => Parsed::Request(request, end),
            Line::Value(length, command) if length > self.limits.value_bytes_max => {
                self.discards = length + 2;
                let no_reply = matches!(command, ValueFor::Store(Store { no_reply: true, .. }));
                Parsed::Refused(if no_reply { b"" } else { TOO_LARGE }, end)
            }
            Line::Value(length, command) => match bytes.get(end..end + length + 2) {
                Some(value) => with_value(command, value, end),
                None => return Parsed::More,
            },
            Line::RefusedValue(length, answer) => {
                self.discards = length + 2;
                Parsed::Refused(answer, end)
            }
            Line::Refused(answer) => Parsed::Refused(answer, end),
            Line::Close => Parsed::Close,
        };
        self.scanned = 0;
        parsed
    }

    /// Whether a line, or its beginning, is not too long.
    fn may_go_on(&self, line: &[u8]) -> bool {
        if line.len() <= LINE_BYTES_MAX {
            return true;
        }
        let is_get = ["get", "gets", "gat", "gats"]
            .iter()
            .any(|name| Words::of(&line[..LINE_BYTES_MAX]).peek() == Some(name.as_bytes()));
        is_get && line.len() <= self.limits.get_bytes_max
    }
}

/// Completes a request with its value, behind which two bytes end the line.
fn with_value<'a>(command: ValueFor<'a>, value: &'a [u8], end: usize) -> Parsed<'a> {
    let bytes = end + value.len();
    match (command, value.strip_suffix(b"\r\n")) {
        (ValueFor::Store(store), Some(value)) => {
            Parsed::Request(Request::Store(Store { value, ..store }), bytes)
        }
        (ValueFor::Meta(meta), Some(value)) => {
            Parsed::Request(Request::MetaSet(meta, value), bytes)
        }
        (ValueFor::Store(Store { no_reply: true, .. }), None) => Parsed::Refused(b"", bytes),
        (_, None) => Parsed::Refused(BAD_DATA, bytes),
    }
}

fn read_line(line: &[u8]) -> Line<'_> {
    if memchr::memchr(0, line).is_some() {
        return Line::Refused(BAD_FORMAT);
    }
    let mut words = Words::of(line);
    let Some(name) = words.next() else { return Line::Refused(ERROR) };
    match name {
        b"get" | b"bget" => get(words, false, None),
        b"gets" => get(words, true, None),
        b"gat" => get_and_touch(words, false),
        b"gats" => get_and_touch(words, true),
        b"set" => store(words, Mode::Set, false),
        b"add" => store(words, Mode::Add, false),
        b"replace" => store(words, Mode::Replace, false),
        b"append" => store(words, Mode::Append, false),
        b"prepend" => store(words, Mode::Prepend, false),
        b"cas" => store(words, Mode::Set, true),
        b"delete" => delete(words),
        b"incr" => arithmetic(words, false),
        b"decr" => arithmetic(words, true),
        b"touch" => touch(words),
        b"mg" => meta(words, Command::Get),
        b"ms" => meta_set(words),
        b"md" => meta(words, Command::Delete),
        b"ma" => meta(words, Command::Arithmetic),
        b"mn" => Line::Request(Request::MetaNoop),
        b"me" => meta_debug(words),
        b"stats" => Line::Request(Request::Stats(words)),
        b"version" => Line::Request(Request::Version),
        b"quit" => Line::Request(Request::Quit),
        b"shutdown" => Line::Request(Request::Shutdown),
        b"flush_all" => flush_all(words),
        b"verbosity" => verbosity(words),
        b"cache_memlimit" => memory_limit(words),
        // A browser was led here. The headers that follow must not become commands.
        _ if words.last().is_some_and(|word| word.starts_with(b"HTTP/")) => Line::Close,
        _ => Line::Refused(ERROR),
    }
}

/// Returns the answer to a wrong request, which a client that wants no answer does not get.
fn refused<'a>(answer: &'static [u8], no_reply: bool) -> Line<'a> {
    Line::Refused(if no_reply { b"" } else { answer })
}

fn is_no_reply(word: Option<&[u8]>) -> bool {
    word == Some(b"noreply")
}

fn is_key(key: &[u8]) -> bool {
    key.len() <= KEY_BYTES_MAX
}

fn get(words: Words<'_>, with_cas: bool, touch: Option<Exptime>) -> Line<'_> {
    if words.peek().is_none() {
        return Line::Refused(ERROR);
    }
    match Keys::of(words) {
        Some(keys) => Line::Request(Request::Get { keys, with_cas, touch }),
        None => Line::Refused(BAD_FORMAT),
    }
}

fn get_and_touch(mut words: Words<'_>, with_cas: bool) -> Line<'_> {
    let Some(time) = words.next() else { return Line::Refused(ERROR) };
    match i32_of(time) {
        // Memcached finds none of no keys.
        Some(_) if words.peek().is_none() => Line::Refused(END),
        Some(time) => get(words, with_cas, Some(Exptime(time))),
        None => Line::Refused(BAD_TIME),
    }
}

fn store(words: Words<'_>, mode: Mode, is_cas: bool) -> Line<'_> {
    let ([Some(key), Some(flags), Some(time), Some(length), fifth, sixth], has_more) = words.take()
    else {
        return Line::Refused(ERROR);
    };
    let (cas, last) = if is_cas { (fifth, sixth) } else { (None, fifth) };
    let has_too_many = has_more || !is_cas && sixth.is_some();
    if has_too_many || is_cas && cas.is_none() {
        return Line::Refused(ERROR);
    }
    let no_reply = is_no_reply(last.or(cas).or(Some(length)));
    let (Some(flags), Some(time), Some(length)) = (u32_of(flags), i32_of(time), i32_of(length))
    else {
        return refused(BAD_FORMAT, no_reply);
    };
    let cas = match cas.map(u64_of) {
        Some(None) => return refused(BAD_FORMAT, no_reply),
        cas => cas.flatten(),
    };
    match usize::try_from(length) {
        Ok(length) if is_key(key) && length <= (i32::MAX - 2) as usize => {
            let exptime = Exptime(time);
            let store = Store { mode, key, flags, exptime, cas, value: &[], no_reply };
            Line::Value(length, ValueFor::Store(store))
        }
        _ => refused(BAD_FORMAT, no_reply),
    }
}

fn delete(words: Words<'_>) -> Line<'_> {
    let ([Some(key), second, third], false) = words.take() else { return Line::Refused(ERROR) };
    // Once a client could name a time during which the key was locked: 0 is still allowed.
    let no_reply = match (second, third) {
        (None, _) | (Some(b"0"), None) => false,
        (Some(b"noreply"), None) | (Some(b"0"), Some(b"noreply")) => true,
        _ => return refused(BAD_DELETE, is_no_reply(third.or(second))),
    };
    if !is_key(key) {
        return refused(BAD_FORMAT, no_reply);
    }
    Line::Request(Request::Delete { key, no_reply })
}

fn arithmetic(words: Words<'_>, is_decrement: bool) -> Line<'_> {
    let ([Some(key), Some(delta), last], false) = words.take() else {
        return Line::Refused(ERROR);
    };
    // Memcached looks at the last word, whichever it is.
    let no_reply = is_no_reply(last.or(Some(delta)));
    if !is_key(key) {
        return refused(BAD_FORMAT, no_reply);
    }
    match u64_of(delta) {
        Some(delta) => Line::Request(Request::Arithmetic { key, delta, is_decrement, no_reply }),
        None => refused(BAD_DELTA, no_reply),
    }
}

fn touch(words: Words<'_>) -> Line<'_> {
    let ([Some(key), Some(time), last], false) = words.take() else {
        return Line::Refused(ERROR);
    };
    let no_reply = is_no_reply(last.or(Some(time)));
    if !is_key(key) {
        return refused(BAD_FORMAT, no_reply);
    }
    match i32_of(time) {
        Some(time) => Line::Request(Request::Touch { key, exptime: Exptime(time), no_reply }),
        None => refused(BAD_TIME, no_reply),
    }
}

fn flush_all(words: Words<'_>) -> Line<'_> {
    let ([first, second], false) = words.take() else { return Line::Refused(ERROR) };
    let no_reply = is_no_reply(first) || is_no_reply(second);
    let delay = first.filter(|word| *word != b"noreply").map(i32_of);
    match delay {
        Some(None) => refused(BAD_TIME, no_reply),
        delay => {
            let delay = Exptime(delay.flatten().unwrap_or(0));
            Line::Request(Request::FlushAll { delay, no_reply })
        }
    }
}

fn verbosity(words: Words<'_>) -> Line<'_> {
    let ([Some(level), last], false) = words.take() else { return Line::Refused(ERROR) };
    let no_reply = is_no_reply(Some(level)) || is_no_reply(last);
    match u32_of(level) {
        Some(_) => Line::Request(Request::Verbosity { no_reply }),
        None => refused(BAD_FORMAT, no_reply),
    }
}

fn memory_limit(words: Words<'_>) -> Line<'_> {
    let ([Some(limit), last], false) = words.take() else { return Line::Refused(ERROR) };
    let no_reply = is_no_reply(last);
    match u32_of(limit) {
        Some(megabytes) => Line::Request(Request::MemoryLimit { megabytes, no_reply }),
        None => refused(ERROR, no_reply),
    }
}

fn meta(mut words: Words<'_>, command: Command) -> Line<'_> {
    let Some(key) = words.next() else { return Line::Refused(ERROR) };
    if !is_key(key) {
        return Line::Refused(BAD_FORMAT);
    }
    match Meta::read(command, key, words) {
        Ok(meta) => Line::Request(match command {
            Command::Get | Command::Set => Request::MetaGet(meta),
            Command::Delete => Request::MetaDelete(meta),
            Command::Arithmetic => Request::MetaArithmetic(meta),
        }),
        Err(answer) => Line::Refused(answer),
    }
}

fn meta_set(mut words: Words<'_>) -> Line<'_> {
    let Some(key) = words.next() else { return Line::Refused(ERROR) };
    let length = words.next().and_then(i32_of).and_then(|length| usize::try_from(length).ok());
    let Some(length) = length.filter(|length| is_key(key) && *length <= (i32::MAX - 2) as usize)
    else {
        return Line::Refused(BAD_FORMAT);
    };
    match Meta::read(Command::Set, key, words) {
        Ok(meta) => Line::Value(length, ValueFor::Meta(meta)),
        Err(answer) => Line::RefusedValue(length, answer),
    }
}

fn meta_debug(words: Words<'_>) -> Line<'_> {
    let ([Some(key), flag], _) = words.take() else { return Line::Refused(BAD_FORMAT) };
    let is_binary = flag == Some(b"b");
    let flags = if is_binary { Words::of(b"b") } else { Words::of(b"") };
    if !is_key(key) {
        return Line::Refused(BAD_FORMAT);
    }
    match Meta::read(Command::Get, key, flags) {
        Ok(meta) => Line::Request(Request::MetaDebug(meta.key, is_binary)),
        Err(_) => Line::Refused(BAD_FORMAT),
    }
}
