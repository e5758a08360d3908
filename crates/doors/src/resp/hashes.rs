//! Commands about hashes.

use super::bounds;
use super::commands::{Command, DENYOOM, FAST, Group, Keys, READONLY, WRITE};
use super::context::{Context, from, is};
use super::events::Kinds;
use super::extended::Extended;
use super::hash::{self, Expiry, Hash};
use super::number::integer_of;
use super::parser::Arguments;
use super::random::{self, Choice};
use super::scan;
use super::stop::{self, Done, Stop, wrong_arity};
use super::store::Kind;
use super::writer::{Version, Writer};

pub(super) const COMMANDS: &[Command] = &[
    Command::new("hset", -4, WRITE | DENYOOM | FAST, hset)
        .keys(&[Keys::one("RW update", 1)])
        .about(Group::Hash, "2.0.0", "Writes fields of a hash; returns how many are new."),
    Command::new("hsetnx", 4, WRITE | DENYOOM | FAST, hsetnx)
        .keys(&[Keys::one("RW insert", 1)])
        .about(Group::Hash, "2.0.0", "Writes a field of a hash if it does not exist."),
    Command::new("hget", 3, READONLY | FAST, hget).keys(&[Keys::one("RO access", 1)]).about(
        Group::Hash,
        "2.0.0",
        "Returns the value of a field.",
    ),
    Command::new("hmget", -3, READONLY | FAST, hmget).keys(&[Keys::one("RO access", 1)]).about(
        Group::Hash,
        "2.0.0",
        "Returns the values of several fields.",
    ),
    Command::new("hmset", -4, WRITE | DENYOOM | FAST, hmset)
        .keys(&[Keys::one("RW update", 1)])
        .about(Group::Hash, "2.0.0", "Writes fields of a hash."),
    Command::new("hdel", -3, WRITE | FAST, hdel).keys(&[Keys::one("RW delete", 1)]).about(
        Group::Hash,
        "2.0.0",
        "Deletes fields of a hash; returns how many there were.",
    ),
    Command::new("hlen", 2, READONLY | FAST, hlen).keys(&[Keys::one("RO", 1)]).about(
        Group::Hash,
        "2.0.0",
        "Returns the number of fields of a hash.",
    ),
    Command::new("hstrlen", 3, READONLY | FAST, hstrlen).keys(&[Keys::one("RO", 1)]).about(
        Group::Hash,
        "3.2.0",
        "Returns the length of the value of a field.",
    ),
    Command::new("hexists", 3, READONLY | FAST, hexists).keys(&[Keys::one("RO", 1)]).about(
        Group::Hash,
        "2.0.0",
        "Tells whether a field exists.",
    ),
    Command::new("hkeys", 2, READONLY, hkeys)
        .keys(&[Keys::one("RO access", 1)])
        .tips(&["nondeterministic_output_order"])
        .about(Group::Hash, "2.0.0", "Returns all fields of a hash."),
    Command::new("hvals", 2, READONLY, hvals)
        .keys(&[Keys::one("RO access", 1)])
        .tips(&["nondeterministic_output_order"])
        .about(Group::Hash, "2.0.0", "Returns all values of a hash."),
    Command::new("hgetall", 2, READONLY, hgetall)
        .keys(&[Keys::one("RO access", 1)])
        .tips(&["nondeterministic_output_order"])
        .about(Group::Hash, "2.0.0", "Returns all fields of a hash, and their values."),
    Command::new("hincrby", 4, WRITE | DENYOOM | FAST, hincrby)
        .keys(&[Keys::one("RW access update", 1)])
        .about(
            Group::Hash,
            "2.0.0",
            "Adds to an integer in a field, which counts as 0 if there is none.",
        ),
    Command::new("hincrbyfloat", 4, WRITE | DENYOOM | FAST, hincrbyfloat)
        .keys(&[Keys::one("RW access update", 1)])
        .about(
            Group::Hash,
            "2.6.0",
            "Adds to a number with a point in a field, which counts as 0 if there is none.",
        ),
    Command::new("hrandfield", -2, READONLY, hrandfield)
        .keys(&[Keys::one("RO access", 1)])
        .tips(&["nondeterministic_output"])
        .about(Group::Hash, "6.2.0", "Returns fields of a hash that are chosen by chance."),
    Command::new("hscan", -3, READONLY, hscan)
        .keys(&[Keys::one("RO access", 1)])
        .tips(&["nondeterministic_output"])
        .about(Group::Hash, "2.8.0", "Returns some fields of a hash, from a cursor on."),
];

/// Writes fields; returns how many are new.
fn put_all(context: &mut Context<'_>, arguments: Arguments<'_>, name: &str) -> Result<i64, Stop> {
    if arguments.len() % 2 == 1 {
        return Err(wrong_arity(name));
    }
    let objects = &mut context.objects;
    let mut hash = Hash::to_write(objects, &arguments[1])?;
    let pairs = || from(arguments, 2).step_by(2).zip(from(arguments, 3).step_by(2));
    for (field, value) in pairs() {
        hash::check(objects, field, value, false)?;
    }
    hash.reserve(pairs().count() as u64);
    let mut new = 0;
    for (field, value) in pairs() {
        new += i64::from(hash.set(objects, field, value, Expiry::Never)?);
    }
    hash.close(objects)?;
    objects.event(Kinds::HASH, "hset", &arguments[1]);
    Ok(new)
}

fn hset(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let new = put_all(context, arguments, "hset")?;
    context.reply.integer(new);
    Ok(())
}

fn hmset(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    put_all(context, arguments, "hmset")?;
    context.ok();
    Ok(())
}

fn hsetnx(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let (field, value) = (&arguments[2], &arguments[3]);
    let objects = &mut context.objects;
    let mut hash = Hash::to_write(objects, &arguments[1])?;
    let is_new = hash.get(objects, field)?.is_none();
    if is_new {
        hash::check(objects, field, value, false)?;
        hash.set(objects, field, value, Expiry::Never)?;
        hash.close(objects)?;
        objects.event(Kinds::HASH, "hset", &arguments[1]);
    }
    context.reply.integer(i64::from(is_new));
    Ok(())
}

fn hget(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let Context { objects, reply, .. } = context;
    hash::look_up(objects, &arguments[1], &arguments[2], |value| match value {
        Some(value) => reply.string(value),
        None => reply.null(),
    })
}

fn hmget(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let hash = Hash::read(&mut context.objects, &arguments[1])?;
    context.reply.array(arguments.len() - 2);
    let Some(mut hash) = hash else {
        from(arguments, 2).for_each(|_| context.reply.null());
        return Ok(());
    };
    for field in from(arguments, 2) {
        match hash.get(&mut context.objects, field)? {
            Some(value) => context.reply.string(&value),
            None => context.reply.null(),
        }
        context.check_reply()?;
    }
    Ok(())
}

fn hdel(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let objects = &mut context.objects;
    let mut removed = 0;
    if let Some(mut hash) = Hash::find(objects, &arguments[1])? {
        for field in from(arguments, 2) {
            removed += i64::from(hash.remove(objects, field)?);
        }
        if removed > 0 {
            objects.event(Kinds::HASH, "hdel", &arguments[1]);
            hash.close(objects)?;
        }
    }
    context.reply.integer(removed);
    Ok(())
}

fn hlen(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let length = hash::length(&mut context.objects, &arguments[1])?;
    context.reply.integer(length as i64);
    Ok(())
}

fn hstrlen(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let length = |value: Option<&[u8]>| value.map_or(0, <[u8]>::len);
    let length = hash::look_up(&mut context.objects, &arguments[1], &arguments[2], length)?;
    context.reply.integer(length as i64);
    Ok(())
}

fn hexists(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let is_there = |value: Option<&[u8]>| value.is_some();
    let is_there = hash::look_up(&mut context.objects, &arguments[1], &arguments[2], is_there)?;
    context.reply.integer(i64::from(is_there));
    Ok(())
}

/// The parts of a hash that a reply shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Fields,
    Values,
    Both,
}

fn show_all(context: &mut Context<'_>, key: &[u8], shown: Shown) -> Done {
    let Context { objects, reply, .. } = context;
    let mut hash = Hash::read(objects, key)?;
    let length = hash.as_mut().map_or(Ok(0), |hash| hash.len(objects))? as usize;
    match shown {
        Shown::Both => reply.map(length),
        Shown::Fields | Shown::Values => reply.array(length),
    }
    let Some(mut hash) = hash else { return Ok(()) };
    hash.visit(objects, |field, value| {
        if shown != Shown::Values {
            reply.string(field);
        }
        if shown != Shown::Fields {
            reply.string(value);
        }
    })
}

fn hkeys(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    show_all(context, &arguments[1], Shown::Fields)
}

fn hvals(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    show_all(context, &arguments[1], Shown::Values)
}

fn hgetall(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    show_all(context, &arguments[1], Shown::Both)
}

fn hincrby(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let (field, delta) = (&arguments[2], bounds::integer(&arguments[3])?);
    let objects = &mut context.objects;
    let mut hash = Hash::to_write(objects, &arguments[1])?;
    let number = match hash.get(objects, field)? {
        Some(text) => integer_of(&text).ok_or(Stop::error("ERR hash value is not an integer"))?,
        None => 0,
    };
    let sum = number.checked_add(delta).ok_or(stop::OVERFLOW)?;
    let text = sum.to_string();
    hash::check(objects, field, text.as_bytes(), false)?;
    hash.set(objects, field, text.as_bytes(), Expiry::AsBefore)?;
    hash.close(objects)?;
    objects.event(Kinds::HASH, "hincrby", &arguments[1]);
    context.reply.integer(sum);
    Ok(())
}

fn hincrbyfloat(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let field = &arguments[2];
    let delta = Extended::of(&arguments[3]).ok_or(stop::NOT_A_FLOAT)?;
    if delta.is_infinite() {
        return Err(Stop::error("ERR value is NaN or Infinity"));
    }
    let objects = &mut context.objects;
    let mut hash = Hash::to_write(objects, &arguments[1])?;
    let number = match hash.get(objects, field)? {
        Some(text) => Extended::of(&text).ok_or(Stop::error("ERR hash value is not a float"))?,
        None => Extended::ZERO,
    };
    let sum = number.plus(delta).and_then(Extended::text);
    let text = sum.ok_or(Stop::error("ERR increment would produce NaN or Infinity"))?;
    hash::check(objects, field, text.as_bytes(), false)?;
    hash.set(objects, field, text.as_bytes(), Expiry::AsBefore)?;
    hash.close(objects)?;
    objects.event(Kinds::HASH, "hincrbyfloat", &arguments[1]);
    context.reply.string(text.as_bytes());
    Ok(())
}

fn hrandfield(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let key = &arguments[1];
    let Some(count) = arguments.get(2) else {
        let Some(mut hash) = Hash::read(&mut context.objects, key)? else {
            context.reply.null();
            return Ok(());
        };
        let choice = Choice::Any(1, hash.len(&mut context.objects)?);
        return choose(context, hash, choice, |reply, field, _| reply.string(field));
    };
    let count = bounds::signed(count)?;
    let has_values = match arguments.get(3) {
        None => false,
        Some(word) if arguments.len() == 4 && is(word, "WITHVALUES") => {
            if count.unsigned_abs() > i64::MAX as u64 / 2 {
                return Err(Stop::error("ERR value is out of range"));
            }
            true
        }
        Some(_) => return Err(stop::SYNTAX),
    };
    let Some(mut hash) = Hash::read(&mut context.objects, key)? else {
        context.reply.array(0);
        return Ok(());
    };
    let choice = Choice::of(count, hash.len(&mut context.objects)?);
    let shown = choice.shown();
    let is_nested = has_values && context.reply.version() == Version::Three;
    match has_values && !is_nested {
        true => context.reply.array(2 * shown),
        false => context.reply.array(shown),
    }
    choose(context, hash, choice, |reply, field, value| {
        if is_nested {
            reply.array(2);
        }
        reply.string(field);
        if has_values {
            reply.string(value);
        }
    })
}

/// Shows the chosen fields of a hash.
fn choose(
    context: &mut Context<'_>,
    mut hash: Hash<'_>,
    choice: Choice,
    show: impl FnMut(&mut Writer<'_>, &[u8], &[u8]),
) -> Done {
    let skipped = hash.expired_places(&mut context.objects)?;
    random::choose(context, &hash.collection, &skipped, choice, show)
}

fn hscan(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    scan::scan(context, arguments, Kind::Hash, hash::FORM)
}
