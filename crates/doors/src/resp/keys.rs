//! Commands about keys with values of any type.

use super::collection;
use super::commands::{
    BLOCKING, Command, DANGEROUS, DENYOOM, FAST, Group, Keys, LOADING, READONLY, STALE, WRITE,
    by_subcommand,
};
use super::connection::{database_at, database_number, database_of};
use super::context::{Context, from, is};
use super::events::Kinds;
use super::expiry::{UnitOfTime, invalid};
use super::glob;
use super::long_string::LongString;
use super::number::integer_of;
use super::parser::Arguments;
use super::settings::Policy;
use super::stop::{self, Done, Stop};
use super::store::{Database, Found, Kind};

pub(super) const COMMANDS: &[Command] = &[
    Command::new("del", -2, WRITE, del)
        .keys(&[Keys::range("RM delete", 1, -1, 1)])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .about(Group::Generic, "1.0.0", "Deletes keys."),
    Command::new("unlink", -2, WRITE | FAST, unlink)
        .keys(&[Keys::range("RM delete", 1, -1, 1)])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .about(Group::Generic, "4.0.0", "Deletes keys; the same as DEL here."),
    Command::new("exists", -2, READONLY | FAST, exists)
        .keys(&[Keys::range("RO", 1, -1, 1)])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .about(Group::Generic, "1.0.0", "Counts the given keys that exist."),
    Command::new("touch", -2, READONLY | FAST, touch)
        .keys(&[Keys::range("RO", 1, -1, 1)])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .about(Group::Generic, "3.2.1", "Counts the given keys that exist, as a use of them."),
    Command::new("type", 2, READONLY | FAST, type_of).keys(&[Keys::one("RO", 1)]).about(
        Group::Generic,
        "1.0.0",
        "Returns the type of a value.",
    ),
    Command::new("rename", 3, WRITE, rename)
        .keys(&[Keys::one("RW access delete", 1), Keys::one("OW update", 2)])
        .about(Group::Generic, "1.0.0", "Gives an object another key."),
    Command::new("renamenx", 3, WRITE | FAST, renamenx)
        .keys(&[Keys::one("RW access delete", 1), Keys::one("OW insert", 2)])
        .about(Group::Generic, "1.0.0", "Gives an object another key, which must not exist."),
    Command::new("copy", -3, WRITE | DENYOOM, copy)
        .keys(&[Keys::one("RO access", 1), Keys::one("OW update", 2)])
        .about(Group::Generic, "6.2.0", "Copies an object to another key."),
    Command::new("move", 3, WRITE | FAST, move_key)
        .keys(&[Keys::one("RW access update", 1)])
        .about(Group::Generic, "1.0.0", "Moves an object to another database."),
    Command::new("randomkey", 1, READONLY, randomkey)
        .tips(&["request_policy:all_shards", "response_policy:special", "nondeterministic_output"])
        .about(Group::Generic, "1.0.0", "Returns any key."),
    Command::new("keys", 2, READONLY | DANGEROUS, keys)
        .tips(&["request_policy:all_shards", "nondeterministic_output_order"])
        .about(Group::Generic, "1.0.0", "Returns all keys that match a pattern."),
    Command::new("scan", -2, READONLY, scan)
        .tips(&["nondeterministic_output", "request_policy:special", "response_policy:special"])
        .about(Group::Generic, "2.8.0", "Visits the keys, some with each call."),
    Command::new("expire", -3, WRITE | FAST, expire).keys(&[Keys::one("RW update", 1)]).about(
        Group::Generic,
        "1.0.0",
        "Sets the time to live in seconds.",
    ),
    Command::new("pexpire", -3, WRITE | FAST, pexpire).keys(&[Keys::one("RW update", 1)]).about(
        Group::Generic,
        "2.6.0",
        "Sets the time to live in milliseconds.",
    ),
    Command::new("expireat", -3, WRITE | FAST, expireat).keys(&[Keys::one("RW update", 1)]).about(
        Group::Generic,
        "1.2.0",
        "Sets the time of expiry in seconds since 1970.",
    ),
    Command::new("pexpireat", -3, WRITE | FAST, pexpireat)
        .keys(&[Keys::one("RW update", 1)])
        .about(Group::Generic, "2.6.0", "Sets the time of expiry in milliseconds since 1970."),
    Command::new("expiretime", 2, READONLY | FAST, expiretime)
        .keys(&[Keys::one("RO access", 1)])
        .about(Group::Generic, "7.0.0", "Returns the time of expiry in seconds since 1970."),
    Command::new("pexpiretime", 2, READONLY | FAST, pexpiretime)
        .keys(&[Keys::one("RO access", 1)])
        .about(Group::Generic, "7.0.0", "Returns the time of expiry in milliseconds since 1970."),
    Command::new("ttl", 2, READONLY | FAST, ttl)
        .keys(&[Keys::one("RO access", 1)])
        .tips(&["nondeterministic_output"])
        .about(Group::Generic, "1.0.0", "Returns the time to live in seconds."),
    Command::new("pttl", 2, READONLY | FAST, pttl)
        .keys(&[Keys::one("RO access", 1)])
        .tips(&["nondeterministic_output"])
        .about(Group::Generic, "2.6.0", "Returns the time to live in milliseconds."),
    Command::new("persist", 2, WRITE | FAST, persist).keys(&[Keys::one("RW update", 1)]).about(
        Group::Generic,
        "2.2.0",
        "Removes the time of expiry.",
    ),
    Command::new("object", -2, 0, by_subcommand)
        .subcommands(&[
            Command::new("object|idletime", 3, READONLY, object_idletime)
                .keys(&[Keys::one("RO", 2)])
                .tips(&["nondeterministic_output"])
                .about(Group::Generic, "2.2.3", "Returns the seconds since a value was used."),
            Command::new("object|freq", 3, READONLY, object_freq)
                .keys(&[Keys::one("RO", 2)])
                .tips(&["nondeterministic_output"])
                .about(Group::Generic, "4.0.0", "Returns how often a value was used."),
            Command::new("object|help", 2, LOADING | STALE, object_help).about(
                Group::Generic,
                "6.2.0",
                "Describes the subcommands.",
            ),
            Command::new("object|encoding", 3, READONLY, object_encoding)
                .keys(&[Keys::one("RO", 2)])
                .tips(&["nondeterministic_output"])
                .about(
                    Group::Generic,
                    "2.2.3",
                    "Returns the name of the form in which Redis would keep a value.",
                ),
            Command::new("object|refcount", 3, READONLY, object_refcount)
                .keys(&[Keys::one("RO", 2)])
                .tips(&["nondeterministic_output"])
                .about(Group::Generic, "2.2.3", "Returns the number of references to a value."),
        ])
        .about(Group::Generic, "2.2.3", "Commands about the form of a value.")
        .categories(""),
    Command::new("flushdb", -1, WRITE | DANGEROUS, flushdb)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .about(Group::Server, "1.0.0", "Deletes all objects of the database.")
        .categories("@keyspace"),
    Command::new("flushall", -1, WRITE | DANGEROUS, flushall)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .about(Group::Server, "1.0.0", "Deletes all objects of all databases.")
        .categories("@keyspace"),
    Command::new("swapdb", 3, WRITE | FAST | DANGEROUS, swapdb)
        .about(Group::Server, "4.0.0", "Exchanges two databases.")
        .categories("@keyspace"),
    Command::new("dbsize", 1, READONLY | FAST, dbsize)
        .tips(&["request_policy:all_shards", "response_policy:agg_sum"])
        .about(Group::Server, "1.0.0", "Returns the number of keys.")
        .categories("@keyspace"),
    Command::new("wait", 3, BLOCKING, wait)
        .tips(&["request_policy:all_shards", "response_policy:agg_min"])
        .about(
            Group::Generic,
            "3.0.0",
            "Returns the number of replicas that have the updates of this client.",
        )
        .categories("@connection"),
    Command::new("waitaof", 4, BLOCKING, waitaof)
        .tips(&["request_policy:all_shards", "response_policy:agg_min"])
        .about(
            Group::Generic,
            "7.2.0",
            "Returns the numbers of copies on disks that have the updates of this client.",
        )
        .categories("@connection"),
];

fn del(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let mut count = 0;
    for key in from(arguments, 1) {
        count += i64::from(context.objects.delete(key)?);
    }
    context.reply.integer(count);
    Ok(())
}

fn unlink(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    del(context, arguments)
}

fn exists(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let mut count = 0;
    for key in from(arguments, 1) {
        count += i64::from(context.objects.read(key)?.is_some());
    }
    context.reply.integer(count);
    Ok(())
}

fn touch(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    exists(context, arguments)
}

fn type_of(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let found = context.objects.look(&arguments[1])?;
    context.reply.simple(found.map_or("none", |found| found.kind.name()));
    Ok(())
}

/// Copies an object; returns its type if it was there.
fn copy_object(
    context: &mut Context<'_>,
    key: &[u8],
    (database, new): (Database, &[u8]),
) -> Result<Option<Kind>, Stop> {
    let Some(found) = context.objects.find(key)? else { return Ok(None) };
    let Found { value, kind, expires, .. } = found;
    if kind == Kind::LongString {
        let long = LongString::of(&found)?;
        let value = context.objects.all_of(&long)?;
        context.objects.put_in(database, new, value, Kind::String, long.expires)?;
        context.signal_in(database, new);
        return Ok(Some(Kind::String));
    }
    let value = value.to_vec();
    let value = collection::copy(&mut context.objects, kind, &value, database, new)?;
    context.objects.put_in(database, new, value, kind, expires)?;
    context.signal_in(database, new);
    Ok(Some(kind))
}

fn rename(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    move_to(context, arguments, false)?;
    context.ok();
    Ok(())
}

fn renamenx(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let is_done = move_to(context, arguments, true)?;
    context.reply.integer(i64::from(is_done));
    Ok(())
}

/// Gives an object another key; returns whether it was done.
fn move_to(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    must_be_new: bool,
) -> Result<bool, Stop> {
    let (key, new) = (&arguments[1], &arguments[2]);
    if context.objects.find(key)?.is_none() {
        return Err(stop::NO_SUCH_KEY);
    }
    if key == new {
        return Ok(!must_be_new);
    }
    if must_be_new && context.objects.find(new)?.is_some() {
        return Ok(false);
    }
    let database = context.objects.database;
    let Some(found) = context.objects.find(key)? else { return Ok(false) };
    let Found { kind, expires, .. } = found;
    let value = found.value.to_vec();
    // The pages of a large collection stay where they are.
    let before = context.objects.take_place(database, new)?;
    context.objects.forget_pages(new)?;
    collection::rename(&mut context.objects, kind, &value, new)?;
    context.objects.put(new, value, kind, expires)?;
    context.signal(new);
    context.objects.remove(key)?;
    let events = &mut context.objects.events;
    events.note(Kinds::GENERIC, "rename_from", database, key);
    events.note(Kinds::GENERIC, "rename_to", database, new);
    events.note_replaced(database, new, before, kind);
    Ok(true)
}

const SAME_OBJECTS: Stop = Stop::error("ERR source and destination objects are the same");

fn copy(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let (key, new) = (&arguments[1], &arguments[2]);
    let mut database = context.objects.database;
    let (mut replaces, mut at) = (false, 3);
    while let Some(word) = arguments.get(at) {
        at += 1;
        if is(word, "REPLACE") {
            replaces = true;
        } else if is(word, "DB")
            && let Some(number) = arguments.get(at)
        {
            database = database_of(context, number, stop::NOT_AN_INTEGER)?;
            at += 1;
        } else {
            return Err(stop::SYNTAX);
        }
    }
    if database == context.objects.database && key == new {
        return Err(SAME_OBJECTS);
    }
    let mut copied = None;
    if context.objects.look(key)?.is_some()
        && (replaces || context.objects.peek_in(database, new)?.is_none())
    {
        let before = context.objects.take_place(database, new)?;
        copied = copy_object(context, key, (database, new))?;
        if let Some(kind) = copied {
            let events = &mut context.objects.events;
            events.note(Kinds::GENERIC, "copy_to", database, new);
            events.note_replaced(database, new, before, kind);
        }
    }
    context.reply.integer(i64::from(copied.is_some()));
    Ok(())
}

fn move_key(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let key = &arguments[1];
    let database = database_of(context, &arguments[2], stop::NOT_AN_INTEGER)?;
    if database == context.objects.database {
        return Err(SAME_OBJECTS);
    }
    let is_done = context.objects.peek_in(database, key)?.is_none()
        && copy_object(context, key, (database, key))?.is_some()
        && context.objects.remove(key)?;
    if is_done {
        context.objects.event(Kinds::GENERIC, "move_from", key);
        context.objects.events.note(Kinds::GENERIC, "move_to", database, key);
    }
    context.reply.integer(i64::from(is_done));
    Ok(())
}

fn randomkey(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    let database = context.objects.database;
    if context.objects.has_changes() && context.objects.objects(database)? == 0 {
        context.reply.null();
        return Ok(());
    }
    let begin = context.state.random() >> 1;
    let choice = context.state.random();
    let mut keys = Vec::new();
    // From somewhere to the end, and then from the beginning.
    for mut cursor in [begin, 0] {
        loop {
            let mut visit = |key: &[u8], _: &Found<'_>| keys.push(key.to_vec());
            cursor = context.objects.walk(cursor, &mut visit)?.next;
            if cursor == 0 || !keys.is_empty() {
                break;
            }
        }
        if !keys.is_empty() {
            break;
        }
    }
    match keys.get((choice % keys.len().max(1) as u64) as usize) {
        Some(key) => context.reply.string(key),
        None => context.reply.null(),
    }
    Ok(())
}

/// Whether a key matches a pattern. A star alone matches the empty key too.
pub(super) fn is_match(pattern: Option<&[u8]>, key: &[u8]) -> bool {
    pattern.is_none_or(|pattern| pattern == b"*" || glob::matches(pattern, key))
}

fn keys(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let pattern = Some(&arguments[1]);
    let (mut names, mut cursor) = (Vec::new(), 0);
    loop {
        let walked = context.objects.walk(cursor, &mut |key, _| {
            if is_match(pattern, key) {
                names.push(key.to_vec());
            }
        })?;
        cursor = walked.next;
        if cursor == 0 {
            break;
        }
    }
    context.reply.array(names.len());
    for name in names {
        context.reply.string(&name);
    }
    Ok(())
}

/// Reads a cursor of `SCAN`.
pub(super) fn cursor_of(text: &[u8]) -> Result<u64, Stop> {
    let trimmed = text.trim_ascii_start();
    let digits = match trimmed {
        [b'+', digits @ ..] => digits,
        // Of the numbers with this sign, Redis takes only zero.
        [b'-', digits @ ..] if digits.iter().all(|digit| *digit == b'0') => digits,
        digits => digits,
    };
    let digits = if digits.iter().all(u8::is_ascii_digit) { digits } else { b"" };
    let cursor = std::str::from_utf8(digits).ok().and_then(|text| text.parse::<u64>().ok());
    cursor.ok_or(Stop::error("ERR invalid cursor"))
}

fn scan(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let mut cursor = cursor_of(&arguments[1])? & (u64::MAX >> 1);
    let (mut pattern, mut kind, mut count, mut at) = (None, None, 10, 2);
    while let (Some(word), Some(value)) = (arguments.get(at), arguments.get(at + 1)) {
        if is(word, "COUNT") {
            count = integer_of(value).ok_or(stop::NOT_AN_INTEGER)?;
            if count < 1 {
                return Err(stop::SYNTAX);
            }
        } else if is(word, "MATCH") {
            pattern = Some(value);
        } else if is(word, "TYPE") {
            kind = Some(value);
        } else {
            break;
        }
        at += 2;
    }
    if at < arguments.len() {
        return Err(stop::SYNTAX);
    }
    let (mut names, mut visited) = (Vec::new(), 0i64);
    loop {
        let walked = context.objects.walk(cursor, &mut |key, found| {
            visited += 1;
            if is_match(pattern, key) && kind.is_none_or(|kind| is(kind, found.kind.name())) {
                names.push(key.to_vec());
            }
        })?;
        cursor = walked.next;
        // Objects that were deleted before in the same transaction take time, too.
        visited = visited.saturating_add_unsigned(walked.skipped);
        if cursor == 0 || visited >= count {
            break;
        }
    }
    context.reply.array(2);
    context.reply.string(cursor.to_string().as_bytes());
    context.reply.array(names.len());
    for name in names {
        context.reply.string(&name);
    }
    Ok(())
}

fn expire(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    set_expiry(context, arguments, UnitOfTime::Seconds, true, "expire")
}

fn pexpire(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    set_expiry(context, arguments, UnitOfTime::Milliseconds, true, "pexpire")
}

fn expireat(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    set_expiry(context, arguments, UnitOfTime::Seconds, false, "expireat")
}

fn pexpireat(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    set_expiry(context, arguments, UnitOfTime::Milliseconds, false, "pexpireat")
}

/// The conditions under which a time of expiry is set.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Conditions {
    is_new: bool,
    is_old: bool,
    is_greater: bool,
    is_less: bool,
}

impl Conditions {
    /// Reads the conditions in some arguments.
    pub(super) fn of<'a>(words: impl Iterator<Item = &'a [u8]>) -> Result<Conditions, Stop> {
        let mut conditions = Conditions::default();
        for word in words {
            let condition = match word {
                it if is(it, "NX") => &mut conditions.is_new,
                it if is(it, "XX") => &mut conditions.is_old,
                it if is(it, "GT") => &mut conditions.is_greater,
                it if is(it, "LT") => &mut conditions.is_less,
                _ => return Err(Stop::error_of([b"ERR Unsupported option ", word].concat())),
            };
            *condition = true;
        }
        let Conditions { is_new, is_old, is_greater, is_less } = conditions;
        if is_new && (is_old || is_greater || is_less) {
            return Err(Stop::error(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if is_greater && is_less {
            return Err(Stop::error("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(conditions)
    }

    /// Whether they allow a new time of expiry in place of another one.
    pub(super) fn allow(self, before: Option<u64>, time: i64) -> bool {
        let before = before.map(|before| i64::try_from(before).unwrap_or(i64::MAX));
        !(self.is_new && before.is_some()
            || self.is_old && before.is_none()
            || self.is_greater && before.is_none_or(|before| time <= before)
            || self.is_less && before.is_some_and(|before| time >= before))
    }
}

fn set_expiry(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    unit: UnitOfTime,
    is_relative: bool,
    name: &str,
) -> Done {
    let key = &arguments[1];
    let conditions = Conditions::of(from(arguments, 3))?;
    let time = integer_of(&arguments[2]).ok_or(stop::NOT_AN_INTEGER)?;
    let factor = if unit == UnitOfTime::Seconds { 1000 } else { 1 };
    let now = context.objects.now() as i64;
    let time = time.checked_mul(factor);
    let time = time.and_then(|time| time.checked_add(if is_relative { now } else { 0 }));
    let time = time.ok_or_else(|| invalid(name))?;
    let Some(found) = context.objects.find(key)? else {
        context.reply.integer(0);
        return Ok(());
    };
    let Found { value, kind, expires, .. } = found;
    if !conditions.allow(expires, time) {
        context.reply.integer(0);
        return Ok(());
    }
    if time <= now {
        context.objects.delete(key)?;
    } else {
        let value = value.to_vec();
        context.objects.put(key, value, kind, Some(time.unsigned_abs()))?;
        context.objects.event(Kinds::GENERIC, "expire", key);
    }
    context.reply.integer(1);
    Ok(())
}

fn persist(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let key = &arguments[1];
    let found = context.objects.find(key)?.filter(|found| found.expires.is_some());
    let is_done = found.is_some();
    if let Some(Found { value, kind, .. }) = found {
        let value = value.to_vec();
        context.objects.put(key, value, kind, None)?;
        context.objects.event(Kinds::GENERIC, "persist", key);
    }
    context.reply.integer(i64::from(is_done));
    Ok(())
}

fn ttl(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    reply_time(context, arguments, UnitOfTime::Seconds, true)
}

fn pttl(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    reply_time(context, arguments, UnitOfTime::Milliseconds, true)
}

fn expiretime(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    reply_time(context, arguments, UnitOfTime::Seconds, false)
}

fn pexpiretime(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    reply_time(context, arguments, UnitOfTime::Milliseconds, false)
}

fn reply_time(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    unit: UnitOfTime,
    is_relative: bool,
) -> Done {
    let now = if is_relative { context.objects.now() } else { 0 };
    let time = match context.objects.look(&arguments[1])?.map(|found| found.expires) {
        None => -2,
        Some(None) => -1,
        Some(Some(expires)) => {
            let time = expires.saturating_sub(now);
            let rounded = time.saturating_add(500) / 1000;
            if unit == UnitOfTime::Seconds { rounded as i64 } else { time as i64 }
        }
    };
    context.reply.integer(time);
    Ok(())
}

/// The longest string, with its key, for which Redis uses the form `embstr`.
const EMBEDDED_BYTES_MAX: usize = 44;

fn object_encoding(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let key = &arguments[2];
    match context.objects.peek(key)? {
        Some(found) => {
            let name = encoding(key, &found);
            context.reply.string(name.as_bytes());
        }
        None => context.reply.null(),
    }
    Ok(())
}

/// Returns the form in which Redis would keep a value.
pub(super) fn encoding(key: &[u8], found: &Found<'_>) -> &'static str {
    let Found { value, kind, .. } = found;
    match kind {
        Kind::String if integer_of(value).is_some() => "int",
        // Sketches are written in place.
        Kind::String if value.starts_with(b"HYLL") => "raw",
        Kind::String if value.len() + key.len() <= EMBEDDED_BYTES_MAX => "embstr",
        Kind::String | Kind::LongString => "raw",
        Kind::List | Kind::Set | Kind::SortedSet | Kind::Hash => {
            collection::encoding_name(*kind, value)
        }
        Kind::Stream => "stream",
    }
}

fn object_refcount(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    match context.objects.peek(&arguments[2])? {
        Some(_) => context.reply.integer(1),
        None => context.reply.null(),
    }
    Ok(())
}

/// Whether the rule of eviction counts uses.
fn counts_uses(context: &Context<'_>) -> bool {
    match context.state.settings.policy {
        Policy::NoEviction => false,
        Policy::AllKeys(name) | Policy::Volatile(name) => name.ends_with("-lfu"),
    }
}

fn object_idletime(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    if context.objects.peek(&arguments[2])?.is_none() {
        context.reply.null();
    } else if counts_uses(context) {
        return Err(Stop::error(
            "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when \
             switching between policies at runtime LRU and LFU data will take some time to adjust.",
        ));
    } else {
        context.reply.integer(0);
    }
    Ok(())
}

fn object_freq(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    if context.objects.peek(&arguments[2])?.is_none() {
        context.reply.null();
    } else if !counts_uses(context) {
        return Err(Stop::error(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please \
             note that when switching between policies at runtime LRU and LFU data will take some \
             time to adjust.",
        ));
    } else {
        context.reply.integer(0);
    }
    Ok(())
}

fn object_help(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    super::help::reply(context, "object");
    Ok(())
}

/// Checks the arguments of a command that deletes databases.
fn check_flush(context: &Context<'_>, arguments: Arguments<'_>) -> Done {
    let is_way = |word: &[u8]| is(word, "ASYNC") || is(word, "SYNC");
    if arguments.len() > 2 || arguments.get(1).is_some_and(|word| !is_way(word)) {
        return Err(stop::SYNTAX);
    }
    match context.state.options.may_flush {
        true => Ok(()),
        false => Err(Stop::error(
            "ERR This door may not delete whole databases. Delete the keys instead.",
        )),
    }
}

/// Deletes a database. Consumers that wait for its streams learn that their groups are gone.
fn clear(context: &mut Context<'_>, database: Database) {
    context.objects.clear(database);
    for key in context.state.blocked.awaited(database) {
        context.signal_in(database, &key);
    }
}

fn flushdb(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    check_flush(context, arguments)?;
    clear(context, context.objects.database);
    context.ok();
    Ok(())
}

fn flushall(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    check_flush(context, arguments)?;
    for database in 0..context.state.options.databases {
        clear(context, database);
    }
    context.ok();
    Ok(())
}

fn swapdb(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    // Both are read before either is compared with the number of databases.
    let first = Stop::error("ERR invalid first DB index");
    let first = database_number(&arguments[1], first)?;
    let second = Stop::error("ERR invalid second DB index");
    let second = database_number(&arguments[2], second)?;
    let (one, other) = (database_at(context, first)?, database_at(context, second)?);
    context.objects.swap(one, other);
    for database in [one, other] {
        for key in context.state.blocked.awaited(database) {
            context.signal_in(database, &key);
        }
    }
    context.ok();
    Ok(())
}

fn dbsize(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    let count = context.objects.objects(context.objects.database)?;
    context.reply.integer(count as i64);
    Ok(())
}

// A reply leaves once the update is durable, so neither of these has anything to wait for.

fn wait(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    integer_of(&arguments[1]).ok_or(stop::NOT_AN_INTEGER)?;
    super::bounds::timeout(&arguments[2], context.objects.now())?;
    context.reply.integer(i64::from(context.state.options.replicas));
    Ok(())
}

fn waitaof(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let local = integer_of(&arguments[1]).ok_or(stop::NOT_AN_INTEGER)?;
    if !(0..=1).contains(&local) {
        return Err(Stop::error("ERR value is out of range, value must between 0 and 1"));
    }
    let replicas = integer_of(&arguments[2]).filter(|count| *count >= 0);
    if replicas.is_none() {
        return Err(Stop::error("ERR value is out of range, must be positive"));
    }
    super::bounds::timeout(&arguments[3], context.objects.now())?;
    let is_kept = context.state.options.is_kept;
    if local == 1 && !is_kept {
        return Err(Stop::error(
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
        ));
    }
    context.reply.array(2);
    context.reply.integer(i64::from(is_kept));
    context.reply.integer(i64::from(context.state.options.replicas));
    Ok(())
}
