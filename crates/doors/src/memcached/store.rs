//! The store behind a door, and the execution of requests on it.

use super::number::u64_of;
use super::reply::{self, Described, Marks};
use super::{Expiry, Exptime, Keys, Meta, Mode, Request, Store};

/// The properties of an object beside its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The client's flags.
    pub flags: u32,
    /// The second since 1970 in which it expires, if it does.
    pub expires: Option<u64>,
    /// It is to be loaded again.
    pub is_stale: bool,
    /// A client was told that it may load the object again.
    pub is_awaited: bool,
}

/// An object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object<'a> {
    /// Its value.
    pub value: &'a [u8],
    /// Its other properties.
    pub attributes: Attributes,
    /// Its version.
    pub cas: u64,
    /// The seconds since it was read or written.
    pub idle: u32,
    /// Whether it was read since it was written.
    pub was_read: bool,
}

/// The reason why an object cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is too large.
    TooLarge,
    /// There is no memory for it.
    Full,
}

/// A store of objects. An object that has expired is not there.
pub trait Objects {
    /// Returns an object. If the access counts, the object was read from now on.
    fn find(&mut self, key: &[u8], counts: bool) -> Option<Object<'_>>;

    /// Looks for several objects, and calls `show` for each, in the order of their keys, until it
    /// returns `false`. The access to an object for which it returned `true` counts if `counts`.
    fn find_each(
        &mut self,
        keys: &[&[u8]],
        counts: bool,
        show: &mut dyn FnMut(Option<Object<'_>>) -> bool,
    );

    /// Writes an object whose value consists of two parts; returns its version.
    ///
    /// # Errors
    /// If the object is not written.
    fn put(
        &mut self,
        key: &[u8],
        value: [&[u8]; 2],
        attributes: Attributes,
    ) -> Result<u64, Refusal>;

    /// Changes the properties of an object. Its version stays unless `is_new_version`.
    fn set_attributes(&mut self, key: &[u8], attributes: Attributes, is_new_version: bool);

    /// Removes an object; returns whether it was there.
    fn remove(&mut self, key: &[u8]) -> bool;

    /// Removes all objects that are older than a second since 1970, when that second comes.
    fn remove_all(&mut self, at: u64);

    /// Returns the present second since 1970.
    fn now(&self) -> u64;
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    Stored(u64),
    NotStored,
    Exists,
    NotFound,
    Refused(Refusal),
}

/// The outcome of an addition.
enum Added {
    Number(u64),
    NotFound,
    NotANumber,
    Exists,
    Refused,
}

const NOT_A_NUMBER: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value";
const NO_MEMORY: &str = "SERVER_ERROR out of memory storing object";
const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";

/// The progress of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Executed<'a> {
    /// It is done.
    Done,
    /// The answer is long. This request goes on with it, once the client has taken some of it.
    Unfinished(Request<'a>),
    /// It concerns the server or the connection. The door does it itself.
    Other,
}

/// Bytes of answers, and keys, after which a `get` is interrupted. Its line can name an object many
/// times.
const ANSWER_BYTES: usize = 256 << 10;
const ANSWER_KEYS: usize = 1024;

/// The most keys of a `get` that are looked for together.
const KEYS_TOGETHER: usize = 64;

/// Executes requests that concern objects.
pub fn execute<'a>(
    store: &mut impl Objects,
    request: &Request<'a>,
    out: &mut Vec<u8>,
) -> Executed<'a> {
    match request {
        Request::Get { keys, with_cas, touch } => {
            return get(store, *keys, *with_cas, *touch, out);
        }
        Request::Store(request) => {
            let written = write_classic(store, request);
            if !request.no_reply {
                reply::line(out, line_of(written));
            }
        }
        Request::Delete { key, no_reply } => {
            let line = if store.remove(key) { "DELETED" } else { "NOT_FOUND" };
            answer(out, line, *no_reply);
        }
        Request::Arithmetic { key, delta, is_decrement, no_reply } => {
            match add(store, key, *delta, *is_decrement, None) {
                Added::Number(number) if !no_reply => reply::new_number(out, number),
                Added::NotFound => answer(out, "NOT_FOUND", *no_reply),
                Added::NotANumber => answer(out, NOT_A_NUMBER, *no_reply),
                Added::Refused => answer(out, "SERVER_ERROR out of memory", *no_reply),
                Added::Number(_) | Added::Exists => {}
            }
        }
        Request::Touch { key, exptime, no_reply } => {
            let is_there = touch(store, key, *exptime);
            answer(out, if is_there { "TOUCHED" } else { "NOT_FOUND" }, *no_reply);
        }
        Request::FlushAll { delay, no_reply } => {
            let at = match delay.expiry() {
                Expiry::In(seconds) => store.now() + u64::from(seconds),
                Expiry::At(second) => u64::from(second),
                Expiry::Never | Expiry::Past => store.now(),
            };
            store.remove_all(at);
            answer(out, "OK", *no_reply);
        }
        Request::MetaGet(meta) => meta_get(store, meta, out),
        Request::MetaSet(meta, value) => meta_set(store, meta, value, out),
        Request::MetaDelete(meta) => meta_delete(store, meta, out),
        Request::MetaArithmetic(meta) => meta_arithmetic(store, meta, out),
        Request::MetaNoop => reply::line(out, "MN"),
        Request::MetaDebug(key, is_binary) => meta_debug(store, key, *is_binary, out),
        Request::Stats(_)
        | Request::Verbosity { .. }
        | Request::MemoryLimit { .. }
        | Request::Version
        | Request::Quit
        | Request::Shutdown => return Executed::Other,
    }
    Executed::Done
}

fn answer(out: &mut Vec<u8>, line: &str, no_reply: bool) {
    if !no_reply {
        reply::line(out, line);
    }
}

/// Returns the second in which an object expires: the present one if it expires at once.
fn expires(now: u64, time: Exptime) -> Option<u64> {
    match time.expiry() {
        Expiry::Never => None,
        Expiry::Past => Some(now),
        Expiry::In(seconds) => Some(now + u64::from(seconds)),
        Expiry::At(second) => Some(u64::from(second)),
    }
}

fn get<'a>(
    store: &mut impl Objects,
    mut keys: Keys<'a>,
    with_cas: bool,
    time: Option<Exptime>,
    out: &mut Vec<u8>,
) -> Executed<'a> {
    let before = out.len();
    let mut count = 0;
    // A touch may remove an object for which the same line asks again.
    let at_a_time = if time.is_some() { 1 } else { KEYS_TOGETHER };
    loop {
        let (mut together, mut length) = ([&[][..]; KEYS_TOGETHER], 0);
        for (place, key) in together.iter_mut().zip(keys).take(at_a_time) {
            *place = key;
            length += 1;
        }
        let together = &together[..length];
        if together.is_empty() {
            reply::end(out);
            return Executed::Done;
        }
        let mut found = [false; KEYS_TOGETHER];
        let mut shown = 0;
        store.find_each(together, true, &mut |object| {
            // An object has an answer in any case, so that the request goes on.
            if shown > 0 && out.len() - before > ANSWER_BYTES {
                return false;
            }
            if let Some(object) = object {
                let cas = with_cas.then_some(object.cas);
                let key = together[shown];
                reply::value(out, key, object.attributes.flags, object.value, cas);
                found[shown] = true;
            }
            shown += 1;
            true
        });
        if let Some(time) = time {
            for (key, _) in together.iter().zip(found).filter(|(_, found)| *found) {
                touch(store, key, time);
            }
        }
        if shown == 0 {
            // The store keeps the reason why it could not read.
            return Executed::Done;
        }
        keys.by_ref().take(shown).for_each(drop);
        count += shown;
        if out.len() - before > ANSWER_BYTES || count >= ANSWER_KEYS {
            return Executed::Unfinished(Request::Get { keys, with_cas, touch: time });
        }
    }
}

fn touch(store: &mut impl Objects, key: &[u8], time: Exptime) -> bool {
    let now = store.now();
    let Some(Object { attributes, .. }) = store.find(key, true) else { return false };
    store.set_attributes(key, Attributes { expires: expires(now, time), ..attributes }, false);
    true
}

fn write_classic(store: &mut impl Objects, request: &Store<'_>) -> Written {
    let Store { mode, key, flags, exptime, cas, value, .. } = *request;
    let attributes =
        Attributes { flags, expires: expires(store.now(), exptime), ..Attributes::default() };
    write(store, mode, key, value, attributes, cas, false)
}

/// Writes an object if its mode and its version permit.
fn write(
    store: &mut impl Objects,
    mode: Mode,
    key: &[u8],
    value: &[u8],
    attributes: Attributes,
    cas: Option<u64>,
    may_be_stale: bool,
) -> Written {
    // Version 0 stands for any version, except in `cas`, where no object has it.
    let wanted = cas.filter(|cas| *cas != 0);
    let is_cas = cas.is_some() && matches!(mode, Mode::Set | Mode::Replace);
    let found = store.find(key, mode == Mode::Add);
    let Some(old) = found else {
        return match mode {
            _ if is_cas => Written::NotFound,
            Mode::Set | Mode::Add => put(store, key, [value, b""], attributes),
            Mode::Replace | Mode::Append | Mode::Prepend => Written::NotStored,
        };
    };
    let is_match = wanted == Some(old.cas);
    let (old_attributes, old_cas) = (old.attributes, old.cas);
    match mode {
        Mode::Add => Written::NotStored,
        Mode::Set | Mode::Replace if !is_cas || is_match => {
            put(store, key, [value, b""], attributes)
        }
        Mode::Set | Mode::Replace if may_be_stale && wanted.is_some_and(|cas| cas < old_cas) => {
            let Attributes { expires, is_awaited, .. } = old_attributes;
            let attributes = Attributes { expires, is_awaited, is_stale: true, ..attributes };
            put(store, key, [value, b""], attributes)
        }
        Mode::Set | Mode::Replace => Written::Exists,
        Mode::Append | Mode::Prepend if wanted.is_some() && !is_match => Written::Exists,
        Mode::Append | Mode::Prepend => {
            let before = old.value.to_vec();
            let kept = Attributes {
                flags: old_attributes.flags,
                expires: old_attributes.expires,
                ..Attributes::default()
            };
            let parts = match mode {
                Mode::Append => [before.as_slice(), value],
                _ => [value, before.as_slice()],
            };
            match put(store, key, parts, kept) {
                // Memcached does not say why.
                Written::Refused(_) => Written::NotStored,
                written => written,
            }
        }
    }
}

fn put(store: &mut impl Objects, key: &[u8], value: [&[u8]; 2], attributes: Attributes) -> Written {
    match store.put(key, value, attributes) {
        Ok(cas) => Written::Stored(cas),
        Err(refusal) => Written::Refused(refusal),
    }
}

fn line_of(written: Written) -> &'static str {
    match written {
        Written::Stored(_) => "STORED",
        Written::NotStored => "NOT_STORED",
        Written::Exists => "EXISTS",
        Written::NotFound => "NOT_FOUND",
        Written::Refused(Refusal::TooLarge) => TOO_LARGE,
        Written::Refused(Refusal::Full) => NO_MEMORY,
    }
}

/// Adds to a number. A shorter number is padded with spaces, as memcached does.
fn add(
    store: &mut impl Objects,
    key: &[u8],
    delta: u64,
    is_decrement: bool,
    cas: Option<u64>,
) -> Added {
    let Some(object) = store.find(key, false) else { return Added::NotFound };
    let Object { value, attributes, cas: own, .. } = object;
    if value.is_empty() {
        return Added::NotANumber;
    }
    if cas.is_some_and(|cas| cas != 0 && cas != own) {
        return Added::Exists;
    }
    let Some(number) = leading_number(value) else { return Added::NotANumber };
    let number = match is_decrement {
        true => number.saturating_sub(delta),
        false => number.wrapping_add(delta),
    };
    let before = value.len();
    let text = number.to_string();
    let padding = " ".repeat(before.saturating_sub(text.len()));
    let Attributes { flags, expires, .. } = attributes;
    let attributes = match text.len() > before {
        // A longer number is a new object.
        true => Attributes { flags, expires, ..Attributes::default() },
        false => attributes,
    };
    match store.put(key, [text.as_bytes(), padding.as_bytes()], attributes) {
        Ok(_) => Added::Number(number),
        Err(_) => Added::Refused,
    }
}

/// Reads the number at the beginning of a value. White space may follow, and then anything.
fn leading_number(value: &[u8]) -> Option<u64> {
    let begin = value.iter().position(|byte| !byte.is_ascii_whitespace())?;
    let rest = &value[begin..];
    let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
    u64_of(&rest[..end])
}

pub(super) fn described(object: &Object<'_>, now: u64) -> Described {
    let left = |second: u64| u32::try_from(second.saturating_sub(now)).unwrap_or(u32::MAX);
    Described {
        value_bytes: object.value.len(),
        flags: object.attributes.flags,
        cas: object.cas,
        ttl: object.attributes.expires.map(left),
        idle: object.idle,
        was_read: object.was_read,
    }
}

/// The effect of an access with flags, which take effect in their order.
struct Access {
    attributes: Attributes,
    shown: Described,
    /// Whether the remaining time is short enough to load the object again.
    is_short: bool,
}

impl Access {
    fn new(meta: &Meta<'_>, object: &Object<'_>, is_created: bool, now: u64) -> Access {
        let mut access = Access {
            attributes: object.attributes,
            shown: described(object, now),
            is_short: false,
        };
        for word in meta.words {
            match word[0] {
                b'T' => access.set_time(meta.exptime, now),
                b'N' if is_created => access.set_time(meta.vivify, now),
                b'R' => {
                    let limit = meta.recache.and_then(|time| expires(now, time)).unwrap_or(0);
                    access.is_short = access.attributes.expires.is_some_and(|it| it < limit);
                }
                b't' => {
                    let attributes = access.attributes;
                    access.shown.ttl = described(&Object { attributes, ..*object }, now).ttl;
                }
                _ => {}
            }
        }
        access
    }

    fn set_time(&mut self, time: Option<Exptime>, now: u64) {
        self.attributes.expires = time.and_then(|time| expires(now, time));
    }
}

fn meta_get(store: &mut impl Objects, meta: &Meta<'_>, out: &mut Vec<u8>) {
    let now = store.now();
    let key = &*meta.key;
    let is_created = meta.vivify.is_some() && store.find(key, false).is_none();
    if is_created {
        // If there is no memory, the object is not there.
        let _ = store.put(key, [b"", b""], Attributes::default());
    }
    let Some(object) = store.find(key, false) else {
        if !meta.is_quiet {
            reply::meta(out, *b"EN", meta, None, Marks::default(), None);
        }
        return;
    };
    let old = object.attributes;
    let Access { mut attributes, shown, is_short } = Access::new(meta, &object, is_created, now);
    let may_load = is_created || is_short && !old.is_awaited;
    let marks = Marks {
        is_awaited: old.is_awaited,
        is_stale: old.is_stale,
        has_won: may_load || old.is_stale && !old.is_awaited,
    };
    attributes.is_awaited |= marks.has_won;
    let value = meta.wants_value.then_some(object.value);
    reply::meta(out, *b"HD", meta, Some((shown, reply::OF_GET)), marks, value);
    if attributes != old {
        store.set_attributes(key, attributes, false);
    }
    if !meta.leaves_access {
        store.find(key, true);
    }
}

fn meta_set(store: &mut impl Objects, meta: &Meta<'_>, value: &[u8], out: &mut Vec<u8>) {
    let time = meta.exptime.unwrap_or(Exptime(0));
    let attributes = Attributes {
        flags: meta.flags,
        expires: expires(store.now(), time),
        ..Attributes::default()
    };
    let key = &*meta.key;
    let written = write(store, meta.mode, key, value, attributes, meta.cas, meta.makes_stale);
    let (code, cas) = match written {
        Written::Stored(_) if meta.is_quiet => return,
        Written::Stored(cas) => (*b"HD", cas),
        Written::NotStored => (*b"NS", 0),
        Written::Exists => (*b"EX", 0),
        Written::NotFound => (*b"NF", 0),
        Written::Refused(_) => return reply::line(out, line_of(written)),
    };
    let described = Described { cas, ..Described::default() };
    reply::meta(out, code, meta, Some((described, reply::OF_SET)), Marks::default(), None);
}

fn meta_delete(store: &mut impl Objects, meta: &Meta<'_>, out: &mut Vec<u8>) {
    let now = store.now();
    let key = &*meta.key;
    let found = store.find(key, false).map(|object| (object.attributes, object.cas));
    let code = match found {
        None => *b"NF",
        Some((_, cas)) if meta.cas.is_some_and(|wanted| wanted != cas) => *b"EX",
        Some((attributes, _)) => {
            if meta.makes_stale {
                let expires = meta.exptime.map_or(attributes.expires, |time| expires(now, time));
                let attributes =
                    Attributes { expires, is_stale: true, is_awaited: false, ..attributes };
                store.set_attributes(key, attributes, true);
            } else {
                store.remove(key);
            }
            if meta.is_quiet {
                return;
            }
            *b"HD"
        }
    };
    reply::meta(out, code, meta, None, Marks::default(), None);
}

fn meta_arithmetic(store: &mut impl Objects, meta: &Meta<'_>, out: &mut Vec<u8>) {
    let now = store.now();
    let key = &*meta.key;
    let (number, is_created);
    match add(store, key, meta.delta, meta.is_decrement, meta.cas) {
        Added::Number(sum) => {
            if meta.is_quiet {
                if let Some(time) = meta.exptime {
                    touch(store, key, time);
                }
                return;
            }
            (number, is_created) = (sum, false);
        }
        Added::NotANumber => return reply::line(out, NOT_A_NUMBER),
        Added::Refused => return reply::line(out, "SERVER_ERROR out of memory"),
        Added::Exists => {
            return reply::meta(out, *b"EX", meta, None, Marks::default(), None);
        }
        Added::NotFound => match meta.vivify {
            None => return reply::meta(out, *b"NF", meta, None, Marks::default(), None),
            Some(_) => {
                let text = meta.initial.to_string();
                if store.put(key, [text.as_bytes(), b""], Attributes::default()).is_err() {
                    return reply::line(out, "SERVER_ERROR Out of memory allocating new item");
                }
                (number, is_created) = (meta.initial, true);
            }
        },
    }
    // It can have expired meanwhile.
    let Some(object) = store.find(key, false) else {
        return reply::meta(out, *b"NF", meta, None, Marks::default(), None);
    };
    let old = object.attributes;
    let Access { attributes, shown, .. } = Access::new(meta, &object, is_created, now);
    let text = number.to_string();
    let value = meta.wants_value.then_some(text.as_bytes());
    let described = Some((shown, reply::OF_ARITHMETIC));
    reply::meta(out, *b"HD", meta, described, Marks::default(), value);
    if attributes != old {
        store.set_attributes(key, attributes, false);
    }
}

fn meta_debug(store: &mut impl Objects, key: &[u8], is_binary: bool, out: &mut Vec<u8>) {
    let now = store.now();
    let Some(object) = store.find(key, false) else { return reply::line(out, "EN") };
    let expires = match object.attributes.expires {
        // Memcached shows how long ago it expired, which is a negative number before.
        Some(second) => now as i64 - second as i64,
        None => -1,
    };
    reply::debug(out, key, is_binary, expires, &described(&object, now));
}
