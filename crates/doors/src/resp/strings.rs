//! Commands about strings.

use super::commands::{Command, DENYOOM, FAST, Group, Keys, READONLY, WRITE};
use super::context::{Context, from};
use super::events::Kinds;
use super::expiry::{Options, UnitOfTime, expires_of, is_past};
use super::extended::Extended;
use super::long_string::{LongString, Text};
use super::number::integer_of;
use super::parser::Arguments;
use super::stop::{self, Done, Stop};
use super::store::{Found, Kind, Refusal};
use super::writer::Writer;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("get", 2, READONLY | FAST, get).keys(&[Keys::one("RO access", 1)]).about(
        Group::String,
        "1.0.0",
        "Returns a string.",
    ),
    Command::new("set", -3, WRITE | DENYOOM, set)
        .keys(&[Keys::one("RW access update variable_flags", 1)
            .note("RW and ACCESS due to the optional `GET` argument")])
        .about(Group::String, "1.0.0", "Writes a string in place of any value."),
    Command::new("append", 3, WRITE | DENYOOM | FAST, append)
        .keys(&[Keys::one("RW insert", 1)])
        .about(
            Group::String,
            "2.0.0",
            "Adds bytes to the end of a string, which is made if there is none.",
        ),
    Command::new("decr", 2, WRITE | DENYOOM | FAST, decr)
        .keys(&[Keys::one("RW access update", 1)])
        .about(
            Group::String,
            "1.0.0",
            "Subtracts 1 from an integer, which counts as 0 if there is none.",
        ),
    Command::new("decrby", 3, WRITE | DENYOOM | FAST, decrby)
        .keys(&[Keys::one("RW access update", 1)])
        .about(
            Group::String,
            "1.0.0",
            "Subtracts a number from an integer, which counts as 0 if there is none.",
        ),
    Command::new("getdel", 2, WRITE | FAST, getdel)
        .keys(&[Keys::one("RW access delete", 1)])
        .about(Group::String, "6.2.0", "Returns a string and deletes it."),
    Command::new("getex", -2, WRITE | FAST, getex)
        .keys(&[Keys::one("RW access update", 1).note("RW and UPDATE because it changes the TTL")])
        .about(Group::String, "6.2.0", "Returns a string and changes its time of expiry."),
    Command::new("getrange", 4, READONLY, getrange).keys(&[Keys::one("RO access", 1)]).about(
        Group::String,
        "2.4.0",
        "Returns a part of a string.",
    ),
    Command::new("getset", 3, WRITE | DENYOOM | FAST, getset)
        .keys(&[Keys::one("RW access update", 1)])
        .about(Group::String, "1.0.0", "Writes a string and returns the one before."),
    Command::new("incr", 2, WRITE | DENYOOM | FAST, incr)
        .keys(&[Keys::one("RW access update", 1)])
        .about(Group::String, "1.0.0", "Adds 1 to an integer, which counts as 0 if there is none."),
    Command::new("incrby", 3, WRITE | DENYOOM | FAST, incrby)
        .keys(&[Keys::one("RW access update", 1)])
        .about(
            Group::String,
            "1.0.0",
            "Adds a number to an integer, which counts as 0 if there is none.",
        ),
    Command::new("incrbyfloat", 3, WRITE | DENYOOM | FAST, incrbyfloat)
        .keys(&[Keys::one("RW access update", 1)])
        .about(
            Group::String,
            "2.6.0",
            "Adds to a number with a point, which counts as 0 if there is none.",
        ),
    Command::new("lcs", -3, READONLY, lcs).keys(&[Keys::range("RO access", 1, 1, 1)]).about(
        Group::String,
        "7.0.0",
        "Finds the longest bytes that two strings have in common, in the same order.",
    ),
    Command::new("mget", -2, READONLY | FAST, mget)
        .keys(&[Keys::range("RO access", 1, -1, 1)])
        .tips(&["request_policy:multi_shard"])
        .about(Group::String, "1.0.0", "Returns several strings."),
    Command::new("mset", -3, WRITE | DENYOOM, mset)
        .keys(&[Keys::range("OW update", 1, -1, 2)])
        .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"])
        .about(Group::String, "1.0.1", "Writes several strings at once."),
    Command::new("msetnx", -3, WRITE | DENYOOM, msetnx)
        .keys(&[Keys::range("OW insert", 1, -1, 2)])
        .about(
            Group::String,
            "1.0.1",
            "Writes several strings at once if none of the keys exists.",
        ),
    Command::new("psetex", 4, WRITE | DENYOOM, psetex).keys(&[Keys::one("OW update", 1)]).about(
        Group::String,
        "2.6.0",
        "Writes a string with its time to live in milliseconds.",
    ),
    Command::new("setex", 4, WRITE | DENYOOM, setex).keys(&[Keys::one("OW update", 1)]).about(
        Group::String,
        "2.0.0",
        "Writes a string with its time to live in seconds.",
    ),
    Command::new("setnx", 3, WRITE | DENYOOM | FAST, setnx)
        .keys(&[Keys::one("OW insert", 1)])
        .about(Group::String, "1.0.0", "Writes a string if the key does not exist."),
    Command::new("setrange", 4, WRITE | DENYOOM, setrange)
        .keys(&[Keys::one("RW update", 1)])
        .about(
            Group::String,
            "2.2.0",
            "Overwrites a part of a string, which grows with zero bytes.",
        ),
    Command::new("strlen", 2, READONLY | FAST, strlen).keys(&[Keys::one("RO", 1)]).about(
        Group::String,
        "2.2.0",
        "Returns the length of a string.",
    ),
    Command::new("substr", 4, READONLY, substr).keys(&[Keys::one("RO access", 1)]).about(
        Group::String,
        "1.0.0",
        "Returns a part of a string: an old name of GETRANGE.",
    ),
];

fn get(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let text = context.objects.read_text(&arguments[1])?;
    reply_text(&mut context.reply, text)?.map_or(Ok(()), |long| reply_long(context, &long))
}

/// Replies with a string, but not with a long one, which is returned.
fn reply_text(reply: &mut Writer<'_>, text: Option<Text<'_>>) -> Result<Option<LongString>, Stop> {
    match text {
        None => reply.null(),
        Some(Text::Whole(found)) => reply.string(found.value),
        Some(Text::Long(long)) => return Ok(Some(long)),
    }
    Ok(None)
}

fn reply_long(context: &mut Context<'_>, long: &LongString) -> Done {
    let value = context.objects.all_of(long)?;
    context.reply.string(&value);
    Ok(())
}

/// Writes a string, or deletes it if its time has passed already.
fn put(
    context: &mut Context<'_>,
    key: &[u8],
    value: &[u8],
    expires: Option<u64>,
    keeps: bool,
) -> Done {
    context.objects.note_overwrite(key, Kind::String)?;
    context.objects.put(key, value, Kind::String, expires)?;
    context.objects.event(Kinds::STRING, "set", key);
    if !keeps && expires.is_some() {
        context.objects.event(Kinds::GENERIC, "expire", key);
    }
    if is_past(context, expires) {
        context.objects.remove(key)?;
        context.objects.event(Kinds::EXPIRED, "expired", key);
    }
    Ok(())
}

fn set(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let (key, value) = (&arguments[1], &arguments[2]);
    if arguments.len() == 3 {
        put(context, key, value, None, false)?;
        context.ok();
        return Ok(());
    }
    let options = Options::of_set(arguments)?;
    let expires = options.expires(context, "set")?;
    let found = context.objects.find(key)?;
    let (is_there, before) = (found.is_some(), found.and_then(|found| found.expires));
    if options.gets {
        reply_old(context, key)?;
    }
    if options.is_new && is_there || options.is_old && !is_there {
        if !options.gets {
            context.reply.null();
        }
        return Ok(());
    }
    put(context, key, value, if options.keeps { before } else { expires }, options.keeps)?;
    if !options.gets {
        context.ok();
    }
    Ok(())
}

/// Replies with a string.
fn reply_old(context: &mut Context<'_>, key: &[u8]) -> Done {
    let text = context.objects.read_text(key)?;
    reply_text(&mut context.reply, text)?.map_or(Ok(()), |long| reply_long(context, &long))
}

fn setnx(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let is_new = context.objects.find(&arguments[1])?.is_none();
    if is_new {
        put(context, &arguments[1], &arguments[2], None, false)?;
    }
    context.reply.integer(i64::from(is_new));
    Ok(())
}

fn setex(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    set_with_time(context, arguments, UnitOfTime::Seconds, "setex")
}

fn psetex(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    set_with_time(context, arguments, UnitOfTime::Milliseconds, "psetex")
}

fn set_with_time(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    unit: UnitOfTime,
    name: &str,
) -> Done {
    let expires = expires_of(context, &arguments[2], unit, true, name)?;
    put(context, &arguments[1], &arguments[3], Some(expires), false)?;
    context.ok();
    Ok(())
}

fn getset(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    reply_old(context, &arguments[1])?;
    put(context, &arguments[1], &arguments[2], None, false)
}

fn getdel(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    match context.objects.read_text(&arguments[1])? {
        Some(Text::Whole(found)) => context.reply.string(found.value),
        Some(Text::Long(long)) => reply_long(context, &long)?,
        None => {
            context.reply.null();
            return Ok(());
        }
    }
    context.objects.delete(&arguments[1])?;
    Ok(())
}

fn getex(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let key = &arguments[1];
    let options = Options::of_getex(arguments)?;
    let Some(found) = context.objects.read(key)? else {
        context.reply.null();
        return Ok(());
    };
    let (value, kind, before) = (found.value.to_vec(), found.kind, found.expires);
    let long = match Text::of(found)? {
        Text::Whole(_) => None,
        Text::Long(long) => Some(long),
    };
    let expires = options.expires(context, "getex")?;
    match long {
        None => context.reply.string(&value),
        Some(long) => reply_long(context, &long)?,
    }
    if expires.is_none() && !(options.persists && before.is_some()) {
        return Ok(());
    }
    if is_past(context, expires) {
        context.objects.delete(key)?;
        return Ok(());
    }
    // The pages of a long string stay where they are.
    context.objects.put(key, value, kind, expires)?;
    let name = if expires.is_some() { "expire" } else { "persist" };
    context.objects.event(Kinds::GENERIC, name, key);
    Ok(())
}

fn strlen(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let text = context.objects.read_text(&arguments[1])?;
    let length = text.map_or(0, |text| text.length());
    context.reply.integer(length as i64);
    Ok(())
}

/// Returns a copy of a string, with room for more, and its time of expiry.
fn copied(found: Option<Found<'_>>, more: usize) -> (Vec<u8>, Option<u64>) {
    let Some(found) = found else { return (Vec::with_capacity(more), None) };
    let mut value = Vec::with_capacity(found.value.len() + more);
    value.extend_from_slice(found.value);
    (value, found.expires)
}

fn append(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let (key, more) = (&arguments[1], &arguments[2]);
    let found = match context.objects.find_text(key)? {
        Some(Text::Long(long)) => {
            let end = long.length();
            let length = context.objects.patch(key, long, end, more)?;
            context.objects.event(Kinds::STRING, "append", key);
            context.reply.integer(length as i64);
            return Ok(());
        }
        Some(Text::Whole(found)) => Some(found),
        None => None,
    };
    let (mut value, expires) = copied(found, more.len());
    value.extend_from_slice(more);
    let length = value.len();
    context.objects.put(key, value, Kind::String, expires)?;
    context.objects.event(Kinds::STRING, "append", key);
    context.reply.integer(length as i64);
    Ok(())
}

fn setrange(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let (key, part) = (&arguments[1], &arguments[3]);
    let offset = integer_of(&arguments[2]).ok_or(stop::NOT_AN_INTEGER)?;
    let Ok(offset) = usize::try_from(offset) else {
        return Err(Stop::error("ERR offset is out of range"));
    };
    let most = context.objects.string_bytes_max();
    let found = context.objects.find_text(key)?;
    if part.is_empty() {
        let length = found.map_or(0, |found| found.length());
        context.reply.integer(length as i64);
        return Ok(());
    }
    let end = offset.checked_add(part.len()).filter(|end| *end <= most);
    let end = end.ok_or(Refusal::TooLong)?;
    let found = match found {
        Some(Text::Long(long)) => {
            let length = context.objects.patch(key, long, offset, part)?;
            context.objects.event(Kinds::STRING, "setrange", key);
            context.reply.integer(length as i64);
            return Ok(());
        }
        Some(Text::Whole(found)) => Some(found),
        None => None,
    };
    let (mut value, expires) = copied(found, 0);
    if value.len() < end {
        value.resize(end, 0);
    }
    value[offset..end].copy_from_slice(part);
    let length = value.len();
    context.objects.put(key, value, Kind::String, expires)?;
    context.objects.event(Kinds::STRING, "setrange", key);
    context.reply.integer(length as i64);
    Ok(())
}

/// Returns the part of a string from a byte to another one. Negative places count from the end.
pub(super) fn part(length: usize, begin: i64, end: i64) -> std::ops::Range<usize> {
    let length = length as i64;
    if begin < 0 && end < 0 && begin > end {
        return 0..0;
    }
    let place = |place: i64| if place < 0 { (length + place).max(0) } else { place };
    let (begin, end) = (place(begin), place(end).min(length - 1));
    if begin > end { 0..0 } else { begin as usize..end as usize + 1 }
}

fn getrange(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let begin = integer_of(&arguments[2]).ok_or(stop::NOT_AN_INTEGER)?;
    let end = integer_of(&arguments[3]).ok_or(stop::NOT_AN_INTEGER)?;
    match context.objects.read_text(&arguments[1])? {
        None => context.reply.string(b""),
        Some(Text::Whole(found)) => {
            context.reply.string(&found.value[part(found.value.len(), begin, end)]);
        }
        Some(Text::Long(long)) => {
            let bytes = context.objects.part_of(&long, part(long.length(), begin, end))?;
            context.reply.string(&bytes);
        }
    }
    Ok(())
}

fn substr(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    getrange(context, arguments)
}

fn mget(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let bytes_max = context.before_reply + context.state.options.reply_bytes_max;
    let Context { objects, reply, .. } = context;
    reply.array(arguments.len() - 1);
    objects.read_strings(arguments.strings(1), &mut |value| {
        match value {
            Some(value) => reply.string(value),
            None => reply.null(),
        }
        reply.length() <= bytes_max
    })?;
    context.check_reply()
}

fn mset(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    put_pairs(context, arguments, "mset")?;
    context.ok();
    Ok(())
}

fn msetnx(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    if arguments.len().is_multiple_of(2) {
        return Err(stop::wrong_arity("msetnx"));
    }
    for key in from(arguments, 1).step_by(2) {
        if context.objects.find(key)?.is_some() {
            context.reply.integer(0);
            return Ok(());
        }
    }
    put_pairs(context, arguments, "msetnx")?;
    context.reply.integer(1);
    Ok(())
}

fn put_pairs(context: &mut Context<'_>, arguments: Arguments<'_>, name: &str) -> Done {
    if arguments.len().is_multiple_of(2) {
        return Err(stop::wrong_arity(name));
    }
    let most = context.objects.string_bytes_max();
    let mut values = from(arguments, 2).step_by(2);
    if values.any(|value| value.len() > most) {
        return Err(Refusal::TooLong.into());
    }
    for index in (1..arguments.len()).step_by(2) {
        let (key, value) = (&arguments[index], &arguments[index + 1]);
        put(context, key, value, None, false)?;
    }
    Ok(())
}

fn incr(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    add(context, &arguments[1], 1)
}

fn decr(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    add(context, &arguments[1], -1)
}

fn incrby(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let delta = integer_of(&arguments[2]).ok_or(stop::NOT_AN_INTEGER)?;
    add(context, &arguments[1], delta)
}

fn decrby(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let delta = integer_of(&arguments[2]).ok_or(stop::NOT_AN_INTEGER)?;
    let delta = delta.checked_neg().ok_or(Stop::error("ERR decrement would overflow"))?;
    add(context, &arguments[1], delta)
}

fn add(context: &mut Context<'_>, key: &[u8], delta: i64) -> Done {
    let (number, expires) = match context.objects.find_text(key)? {
        Some(Text::Whole(found)) => {
            (integer_of(found.value).ok_or(stop::NOT_AN_INTEGER)?, found.expires)
        }
        Some(Text::Long(_)) => return Err(stop::NOT_AN_INTEGER),
        None => (0, None),
    };
    let number = number.checked_add(delta).ok_or(stop::OVERFLOW)?;
    let mut text = itoa::Buffer::new();
    context.objects.put(key, text.format(number).as_bytes(), Kind::String, expires)?;
    context.objects.event(Kinds::STRING, "incrby", key);
    context.reply.integer(number);
    Ok(())
}

fn incrbyfloat(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let key = &arguments[1];
    let (number, expires) = match context.objects.find_text(key)? {
        Some(Text::Long(_)) => return Err(stop::NOT_A_FLOAT),
        Some(Text::Whole(found)) => {
            (Extended::of(found.value).ok_or(stop::NOT_A_FLOAT)?, found.expires)
        }
        None => (Extended::ZERO, None),
    };
    let delta = Extended::of(&arguments[2]).ok_or(stop::NOT_A_FLOAT)?;
    let sum = number.plus(delta).and_then(Extended::text);
    let text = sum.ok_or(Stop::error("ERR increment would produce NaN or Infinity"))?;
    context.reply.string(text.as_bytes());
    context.objects.put(key, text.into_bytes(), Kind::String, expires)?;
    context.objects.event(Kinds::STRING, "incrbyfloat", key);
    Ok(())
}

fn lcs(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let not_a_string = || Stop::error("ERR The specified keys must contain string values");
    let mut strings = [Vec::new(), Vec::new()];
    let mut are_strings = true;
    for (string, key) in strings.iter_mut().zip(from(arguments, 1)) {
        match context.objects.read(key)?.map(Text::of) {
            Some(Ok(Text::Whole(found))) => *string = found.value.to_vec(),
            Some(Ok(Text::Long(long))) => *string = context.objects.all_of(&long)?,
            // Both keys are looked up, as a missing one has an event.
            Some(Err(_)) => are_strings = false,
            None => {}
        }
    }
    if !are_strings {
        return Err(not_a_string());
    }
    super::lcs::reply(&mut context.reply, &strings, arguments)
}
