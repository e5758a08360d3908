//! Commands about the times at which fields of hashes expire.

use super::commands::{Command, DENYOOM, FAST, Group, Keys, READONLY, WRITE};
use super::context::{Context, from, is};
use super::events::Kinds;
use super::expiry::{UnitOfTime, invalid, time_word};
use super::hash::{self, Expiry, Hash, TIME_MAX};
use super::keys::Conditions;
use super::number::integer_of;
use super::parser::Arguments;
use super::stop::{self, Done, Stop, wrong_arity};
use UnitOfTime::{Milliseconds, Seconds};

const READ: &[Keys] = &[Keys::one("RO access", 1)];
const UPDATE: &[Keys] = &[Keys::one("RW update", 1)];

pub(super) const COMMANDS: &[Command] = &[
    Command::new("hexpire", -6, WRITE | FAST, hexpire).keys(UPDATE).about(
        Group::Hash,
        "7.4.0",
        "Sets the seconds after which fields of a hash expire.",
    ),
    Command::new("hpexpire", -6, WRITE | FAST, hpexpire).keys(UPDATE).about(
        Group::Hash,
        "7.4.0",
        "Sets the milliseconds after which fields of a hash expire.",
    ),
    Command::new("hexpireat", -6, WRITE | FAST, hexpireat).keys(UPDATE).about(
        Group::Hash,
        "7.4.0",
        "Sets the time at which fields of a hash expire, in seconds since 1970.",
    ),
    Command::new("hpexpireat", -6, WRITE | FAST, hpexpireat).keys(UPDATE).about(
        Group::Hash,
        "7.4.0",
        "Sets the time at which fields of a hash expire, in milliseconds since 1970.",
    ),
    Command::new("httl", -5, READONLY | FAST, httl)
        .keys(READ)
        .tips(&["nondeterministic_output"])
        .about(Group::Hash, "7.4.0", "Returns the seconds until fields of a hash expire."),
    Command::new("hpttl", -5, READONLY | FAST, hpttl)
        .keys(READ)
        .tips(&["nondeterministic_output"])
        .about(Group::Hash, "7.4.0", "Returns the milliseconds until fields of a hash expire."),
    Command::new("hexpiretime", -5, READONLY | FAST, hexpiretime).keys(READ).about(
        Group::Hash,
        "7.4.0",
        "Returns the times at which fields of a hash expire, in seconds since 1970.",
    ),
    Command::new("hpexpiretime", -5, READONLY | FAST, hpexpiretime).keys(READ).about(
        Group::Hash,
        "7.4.0",
        "Returns the times at which fields of a hash expire, in milliseconds since 1970.",
    ),
    Command::new("hpersist", -5, WRITE | FAST, hpersist).keys(UPDATE).about(
        Group::Hash,
        "7.4.0",
        "Keeps fields of a hash from expiring.",
    ),
    Command::new("hgetdel", -5, WRITE | FAST, hgetdel)
        .keys(&[Keys::one("RW access delete", 1)])
        .about(Group::Hash, "8.0.0", "Returns the values of fields and deletes the fields."),
    Command::new("hgetex", -5, WRITE | FAST, hgetex)
        .keys(&[Keys::one("RW access update", 1).note("RW and UPDATE because it changes the TTL")])
        .about(Group::Hash, "8.0.0", "Returns the values of fields and changes when they expire."),
    Command::new("hsetex", -6, WRITE | DENYOOM | FAST, hsetex).keys(UPDATE).about(
        Group::Hash,
        "8.0.0",
        "Writes fields of a hash, with the time at which they expire.",
    ),
];

const FIELDS_MISSING: Stop =
    Stop::error("ERR Mandatory argument FIELDS is missing or not at the right position");
const WRONG_COUNT: Stop =
    Stop::error("ERR The `numfields` parameter must match the number of arguments");
const NOT_POSITIVE: Stop = Stop::error("ERR Number of fields must be a positive integer");

/// Reads `FIELDS`, the number of fields and the fields, which are the last arguments.
fn fields_of<'a>(
    arguments: Arguments<'a>,
    at: usize,
    not_positive: Stop,
) -> Result<impl Iterator<Item = &'a [u8]> + Clone, Stop> {
    if !arguments.get(at).is_some_and(|word| is(word, "FIELDS")) {
        return Err(FIELDS_MISSING);
    }
    let count = arguments.get(at + 1).and_then(integer_of).filter(|count| *count > 0);
    let count = count.ok_or(not_positive)?;
    match usize::try_from(count) == Ok(arguments.len().saturating_sub(at + 2)) {
        true => Ok(from(arguments, at + 2)),
        false => Err(WRONG_COUNT),
    }
}

/// Reads a time of expiry, which may have passed. It counts from now, or from 1970.
fn time_of(
    context: &Context<'_>,
    text: &[u8],
    unit: UnitOfTime,
    is_relative: bool,
    name: &str,
) -> Result<u64, Stop> {
    let time = integer_of(text).ok_or(stop::NOT_AN_INTEGER)?;
    let time =
        u64::try_from(time).map_err(|_| Stop::error("ERR invalid expire time, must be >= 0"))?;
    let factor = if unit == Seconds { 1000 } else { 1 };
    let begin = if is_relative { context.objects.now() } else { 0 };
    let time = time.checked_mul(factor).and_then(|time| time.checked_add(begin));
    time.filter(|time| *time <= TIME_MAX).ok_or_else(|| invalid(name))
}

fn hexpire(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    expire(context, arguments, Seconds, true, "hexpire")
}

fn hpexpire(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    expire(context, arguments, Milliseconds, true, "hpexpire")
}

fn hexpireat(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    expire(context, arguments, Seconds, false, "hexpireat")
}

fn hpexpireat(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    expire(context, arguments, Milliseconds, false, "hpexpireat")
}

/// The replies about a field that is not there, whose time stays, that gets a time, and that is
/// deleted as its time has passed.
const ABSENT: i64 = -2;
const UNCHANGED: i64 = 0;
const CHANGED: i64 = 1;
const DELETED: i64 = 2;

fn expire(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    unit: UnitOfTime,
    is_relative: bool,
    name: &str,
) -> Done {
    let found = Hash::find(&mut context.objects, &arguments[1])?;
    let time = time_of(context, &arguments[2], unit, is_relative, name)?;
    let conditions = match arguments.get(3) {
        Some(word) if !is(word, "FIELDS") => Conditions::of([word].into_iter()).ok(),
        _ => None,
    };
    let at = if conditions.is_some() { 4 } else { 3 };
    let not_positive = Stop::error("ERR Parameter `numFields` should be greater than 0");
    let fields = fields_of(arguments, at, not_positive)?;
    let conditions = conditions.unwrap_or_default();
    let is_past = time <= context.objects.now();
    let mut replies = Vec::new();
    match found {
        None => replies.extend(fields.map(|_| ABSENT)),
        Some(mut hash) => {
            let objects = &mut context.objects;
            for field in fields.clone() {
                hash::check(objects, field, &[], true)?;
            }
            for field in fields {
                replies.push(match hash.time(objects, field)? {
                    None => ABSENT,
                    Some(before) if !conditions.allow(before, time as i64) => UNCHANGED,
                    Some(_) if is_past => {
                        hash.remove(objects, field)?;
                        DELETED
                    }
                    Some(_) => {
                        hash.set_time(objects, field, Some(time))?;
                        CHANGED
                    }
                });
            }
            let has = |wanted| replies.contains(&wanted);
            if has(DELETED) {
                objects.event(Kinds::HASH, "hdel", &arguments[1]);
            } else if has(CHANGED) {
                objects.event(Kinds::HASH, "hexpire", &arguments[1]);
            }
            if has(CHANGED) || has(DELETED) {
                hash.close(objects)?;
            }
        }
    }
    context.reply.array(replies.len());
    replies.into_iter().for_each(|reply| context.reply.integer(reply));
    Ok(())
}

fn httl(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    reply_times(context, arguments, Seconds, true)
}

fn hpttl(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    reply_times(context, arguments, Milliseconds, true)
}

fn hexpiretime(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    reply_times(context, arguments, Seconds, false)
}

fn hpexpiretime(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    reply_times(context, arguments, Milliseconds, false)
}

/// The reply about a field that does not expire.
const STAYS: i64 = -1;

fn reply_times(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    unit: UnitOfTime,
    is_relative: bool,
) -> Done {
    let Context { objects, reply, .. } = context;
    let mut hash = Hash::read(objects, &arguments[1])?;
    let fields = fields_of(arguments, 2, NOT_POSITIVE)?;
    let begin = if is_relative { objects.now() } else { 0 };
    reply.array(fields.clone().count());
    for field in fields {
        let time = match &mut hash {
            Some(hash) => hash.time(objects, field)?,
            None => None,
        };
        let Some(time) = time else {
            reply.integer(ABSENT);
            continue;
        };
        let shown = time.map(|time| match unit {
            Seconds => time.saturating_sub(begin).div_ceil(1000),
            Milliseconds => time.saturating_sub(begin),
        });
        reply.integer(shown.map_or(STAYS, |time| time as i64));
    }
    Ok(())
}

fn hpersist(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let Context { objects, reply, .. } = context;
    let mut found = Hash::find(objects, &arguments[1])?;
    let fields = fields_of(arguments, 2, NOT_POSITIVE)?;
    reply.array(fields.clone().count());
    let mut is_changed = false;
    for field in fields {
        let answer = match &mut found {
            None => ABSENT,
            Some(hash) => match hash.time(objects, field)? {
                None => ABSENT,
                Some(None) => STAYS,
                Some(Some(_)) => {
                    hash.set_time(objects, field, None)?;
                    CHANGED
                }
            },
        };
        is_changed |= answer == CHANGED;
        reply.integer(answer);
    }
    if let Some(hash) = found.filter(|_| is_changed) {
        hash.close(objects)?;
        objects.event(Kinds::HASH, "hpersist", &arguments[1]);
    }
    Ok(())
}

fn hgetdel(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let mut found = Hash::find(&mut context.objects, &arguments[1])?;
    let fields = fields_of(arguments, 2, NOT_POSITIVE)?;
    // Nothing may be deleted by a command whose reply is too long.
    let values = values_of(context, &mut found, fields.clone())?;
    if let Some(mut hash) = found.filter(|_| values.iter().any(Option::is_some)) {
        let objects = &mut context.objects;
        for field in fields.clone() {
            hash.remove(objects, field)?;
        }
        objects.event(Kinds::HASH, "hdel", &arguments[1]);
        hash.close(objects)?;
    }
    // A field that is named twice is gone the second time.
    let named: Vec<&[u8]> = fields.collect();
    let mut seen = std::collections::BTreeSet::new();
    context.reply.array(values.len());
    for (field, value) in named.into_iter().zip(values) {
        match value.filter(|_| seen.insert(field)) {
            Some(value) => context.reply.string(&value),
            None => context.reply.null(),
        }
    }
    Ok(())
}

/// Returns the values of fields.
fn values_of<'a>(
    context: &mut Context<'_>,
    found: &mut Option<Hash<'_>>,
    fields: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<Option<Vec<u8>>>, Stop> {
    let most = context.state.options.reply_bytes_max;
    let (mut values, mut bytes) = (Vec::new(), 0);
    for field in fields {
        let value = match found {
            Some(hash) => hash.get(&mut context.objects, field)?,
            None => None,
        };
        bytes += value.as_ref().map_or(0, Vec::len);
        if bytes > most {
            return Err(Stop::error("ERR The reply is too long. Ask for less at a time."));
        }
        values.push(value);
    }
    Ok(values)
}

fn hgetex(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let mut found = Hash::find(&mut context.objects, &arguments[1])?;
    let word = &arguments[2];
    let (expiry, at) = match time_word(word) {
        Some((_, unit, is_relative)) => {
            let time = time_of(context, &arguments[3], unit, is_relative, "hgetex")?;
            (Expiry::At(time), 4)
        }
        None if is(word, "PERSIST") => (Expiry::Never, 3),
        None => (Expiry::AsBefore, 2),
    };
    if arguments.len() < at + 2 {
        return Err(wrong_arity("hgetex"));
    }
    let fields = fields_of(arguments, at, NOT_POSITIVE)?;
    let objects = &mut context.objects;
    if matches!(expiry, Expiry::At(_)) {
        for field in fields.clone() {
            hash::check(objects, field, &[], true)?;
        }
    }
    let now = objects.now();
    let values = values_of(context, &mut found, fields.clone())?;
    let objects = &mut context.objects;
    let mut is_changed = false;
    let mut gone = std::collections::BTreeSet::new();
    context.reply.array(values.len());
    for (field, value) in fields.zip(values) {
        let (Some(hash), Some(value), false) = (&mut found, value, gone.contains(field)) else {
            context.reply.null();
            continue;
        };
        context.reply.string(&value);
        let time = match expiry {
            Expiry::AsBefore => continue,
            Expiry::Never => None,
            Expiry::At(time) => Some(time),
        };
        if time.is_some_and(|time| time <= now) {
            hash.remove(objects, field)?;
            gone.insert(field);
            is_changed = true;
        } else if hash.time(objects, field)? != Some(time) {
            hash.set_time(objects, field, time)?;
            is_changed = true;
        }
    }
    if let Some(hash) = found.filter(|_| is_changed) {
        let name = match expiry {
            _ if !gone.is_empty() => "hdel",
            Expiry::At(_) => "hexpire",
            Expiry::Never | Expiry::AsBefore => "hpersist",
        };
        objects.event(Kinds::HASH, name, &arguments[1]);
        hash.close(objects)?;
    }
    Ok(())
}

/// The condition of `HSETEX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// No field may exist.
    AllNew,
    /// All fields must exist.
    AllOld,
}

/// The options of `HSETEX`, with the index of the first field.
struct SetOptions {
    wanted: Option<Wanted>,
    expiry: Expiry,
    first: usize,
}

impl SetOptions {
    fn of(context: &Context<'_>, arguments: Arguments<'_>) -> Result<SetOptions, Stop> {
        let (mut wanted, mut expiry, mut first) = (None, None, None);
        let mut at = 2;
        while let Some(word) = arguments.get(at) {
            at += 1;
            let condition = match () {
                () if is(word, "FNX") => Some(Wanted::AllNew),
                () if is(word, "FXX") => Some(Wanted::AllOld),
                () => None,
            };
            if condition.is_some() {
                if wanted.is_some() {
                    let text = "ERR Only one of FXX or FNX arguments can be specified";
                    return Err(Stop::error(text));
                }
                wanted = condition;
                continue;
            }
            let time_word = time_word(word);
            if time_word.is_some() || is(word, "KEEPTTL") {
                if expiry.is_some() {
                    return Err(Stop::error(
                        "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
                    ));
                }
                expiry = Some(match (time_word, arguments.get(at)) {
                    (None, _) => Expiry::AsBefore,
                    (Some(_), None) => return Err(wrong_arity("hsetex")),
                    (Some((_, unit, is_relative)), Some(time)) => {
                        at += 1;
                        Expiry::At(time_of(context, time, unit, is_relative, "hsetex")?)
                    }
                });
                continue;
            }
            if !is(word, "FIELDS") {
                return Err(Stop::error_of([b"ERR unknown argument: ", word].concat()));
            }
            let Some(count) = arguments.get(at) else { return Err(wrong_arity("hsetex")) };
            let count = integer_of(count).and_then(|count| i32::try_from(count).ok());
            let count = count.and_then(|count| usize::try_from(count).ok());
            let count = count.filter(|count| *count > 0);
            let count = count.ok_or(Stop::error("ERR invalid number of fields"))?;
            at += 1;
            if count.checked_mul(2) != Some(arguments.len() - at) {
                return Err(wrong_arity("hsetex"));
            }
            first = Some(at);
            break;
        }
        let first = first.ok_or_else(|| wrong_arity("hsetex"))?;
        Ok(SetOptions { wanted, expiry: expiry.unwrap_or(Expiry::Never), first })
    }
}

fn hsetex(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let SetOptions { wanted, expiry, first } = SetOptions::of(context, arguments)?;
    let pairs = || from(arguments, first).step_by(2).zip(from(arguments, first + 1).step_by(2));
    let objects = &mut context.objects;
    let mut hash = Hash::to_write(objects, &arguments[1])?;
    for (field, value) in pairs() {
        hash::check(objects, field, value, matches!(expiry, Expiry::At(_)))?;
        let is_there = wanted.is_some() && hash.get(objects, field)?.is_some();
        if wanted.is_some_and(|wanted| (wanted == Wanted::AllOld) != is_there) {
            context.reply.integer(UNCHANGED);
            return Ok(());
        }
    }
    hash.reserve(pairs().count() as u64);
    let now = objects.now();
    let is_past = matches!(expiry, Expiry::At(time) if time <= now);
    for (field, value) in pairs() {
        match is_past {
            true => drop(hash.remove(objects, field)?),
            false => drop(hash.set(objects, field, value, expiry)?),
        }
    }
    hash.close_after_set(objects, expiry, is_past)?;
    context.reply.integer(CHANGED);
    Ok(())
}
