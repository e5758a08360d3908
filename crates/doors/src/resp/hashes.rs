//! Commands about hashes.

use super::bounds;
use super::collection::{self, Collection, LARGE};
use super::commands::{Command, DENYOOM, FAST, Group, Keys, READONLY, WRITE};
use super::context::{Context, from, is};
use super::extended::Extended;
use super::number::integer_of;
use super::parser::Arguments;
use super::random::{self, Choice};
use super::scan;
use super::stop::{self, Done, Stop, wrong_arity};
use super::store::Kind;
use super::transaction::Transaction;
use super::tree::Form;
use super::writer::Version;

const FORM: Form = Form::HASH;

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

/// The most fields, and the longest field or value, of a hash that Redis keeps as a list.
const LISTED_FIELDS_MAX: u64 = 512;
const LISTED_BYTES_MAX: usize = 64;

/// Writes a field; returns whether it is new.
fn put(
    objects: &mut Transaction<'_>,
    hash: &mut Collection<'_>,
    field: &[u8],
    value: &[u8],
) -> Result<bool, Stop> {
    let is_new = hash.tree().set(objects, field, value)?;
    if hash.encoding != LARGE
        && (field.len().max(value.len()) > LISTED_BYTES_MAX
            || is_new && hash.len()? > LISTED_FIELDS_MAX)
    {
        hash.encoding = LARGE;
    }
    Ok(is_new)
}

fn to_write<'k>(objects: &mut Transaction<'_>, key: &'k [u8]) -> Result<Collection<'k>, Stop> {
    Collection::to_write(objects, key, Kind::Hash, &[FORM])
}

fn to_read<'k>(
    objects: &mut Transaction<'_>,
    key: &'k [u8],
) -> Result<Option<Collection<'k>>, Stop> {
    Collection::to_read(objects, key, Kind::Hash, &[FORM])
}

/// Writes fields; returns how many are new.
fn put_all(context: &mut Context<'_>, arguments: Arguments<'_>, name: &str) -> Result<i64, Stop> {
    if arguments.len() % 2 == 1 {
        return Err(wrong_arity(name));
    }
    let objects = &mut context.objects;
    let mut hash = to_write(objects, &arguments[1])?;
    let pairs = || from(arguments, 2).step_by(2).zip(from(arguments, 3).step_by(2));
    for (field, value) in pairs() {
        FORM.check(objects, field, value)?;
    }
    // Redis does not look whether fields are named twice.
    if pairs().count() as u64 > LISTED_FIELDS_MAX {
        hash.encoding = LARGE;
    }
    let mut new = 0;
    for (field, value) in pairs() {
        new += i64::from(put(objects, &mut hash, field, value)?);
    }
    hash.close(objects)?;
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
    let mut hash = to_write(objects, &arguments[1])?;
    let is_new = hash.tree().get(objects, field)?.is_none();
    if is_new {
        FORM.check(objects, field, value)?;
        put(objects, &mut hash, field, value)?;
        hash.close(objects)?;
    }
    context.reply.integer(i64::from(is_new));
    Ok(())
}

fn hget(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let Context { objects, reply, .. } = context;
    let of = (Kind::Hash, FORM);
    collection::look_up(objects, &arguments[1], of, &arguments[2], |value| match value {
        Some(value) => reply.string(value),
        None => reply.null(),
    })
}

fn hmget(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let hash = to_read(&mut context.objects, &arguments[1])?;
    context.reply.array(arguments.len() - 2);
    let Some(mut hash) = hash else {
        from(arguments, 2).for_each(|_| context.reply.null());
        return Ok(());
    };
    for field in from(arguments, 2) {
        match hash.tree().get(&mut context.objects, field)? {
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
    if let Some(mut hash) = Collection::find(objects, &arguments[1], Kind::Hash, &[FORM])? {
        for field in from(arguments, 2) {
            removed += i64::from(hash.tree().remove(objects, field)?);
        }
        if removed > 0 {
            hash.close(objects)?;
        }
    }
    context.reply.integer(removed);
    Ok(())
}

fn hlen(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let length = collection::length(&mut context.objects, &arguments[1], Kind::Hash, FORM)?;
    context.reply.integer(length as i64);
    Ok(())
}

fn hstrlen(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let of = (Kind::Hash, FORM);
    let length = |value: Option<&[u8]>| value.map_or(0, <[u8]>::len);
    let length =
        collection::look_up(&mut context.objects, &arguments[1], of, &arguments[2], length)?;
    context.reply.integer(length as i64);
    Ok(())
}

fn hexists(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let of = (Kind::Hash, FORM);
    let is_there = |value: Option<&[u8]>| value.is_some();
    let is_there =
        collection::look_up(&mut context.objects, &arguments[1], of, &arguments[2], is_there)?;
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
    let hash = to_read(objects, key)?;
    let length = hash.as_ref().map_or(Ok(0), Collection::len)? as usize;
    match shown {
        Shown::Both => reply.map(length),
        Shown::Fields | Shown::Values => reply.array(length),
    }
    let Some(hash) = hash else { return Ok(()) };
    let mut items = hash.cursor(objects, 0)?;
    while let Some((field, value)) = items.next(objects)? {
        if shown != Shown::Values {
            reply.string(field);
        }
        if shown != Shown::Fields {
            reply.string(value);
        }
    }
    Ok(())
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
    let mut hash = to_write(objects, &arguments[1])?;
    let number = match hash.tree().get(objects, field)? {
        Some(text) => integer_of(&text).ok_or(Stop::error("ERR hash value is not an integer"))?,
        None => 0,
    };
    let sum = number.checked_add(delta).ok_or(stop::OVERFLOW)?;
    let text = sum.to_string();
    FORM.check(objects, field, text.as_bytes())?;
    put(objects, &mut hash, field, text.as_bytes())?;
    hash.close(objects)?;
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
    let mut hash = to_write(objects, &arguments[1])?;
    let number = match hash.tree().get(objects, field)? {
        Some(text) => Extended::of(&text).ok_or(Stop::error("ERR hash value is not a float"))?,
        None => Extended::ZERO,
    };
    let sum = number.plus(delta).and_then(Extended::text);
    let text = sum.ok_or(Stop::error("ERR increment would produce NaN or Infinity"))?;
    FORM.check(objects, field, text.as_bytes())?;
    put(objects, &mut hash, field, text.as_bytes())?;
    hash.close(objects)?;
    context.reply.string(text.as_bytes());
    Ok(())
}

fn hrandfield(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let key = &arguments[1];
    let Some(count) = arguments.get(2) else {
        let Some(hash) = to_read(&mut context.objects, key)? else {
            context.reply.null();
            return Ok(());
        };
        let place = random::below(context.state, hash.len()?);
        let Context { objects, reply, .. } = context;
        match hash.cursor(objects, place)?.next(objects)? {
            Some((field, _)) => reply.string(field),
            None => reply.null(),
        }
        return Ok(());
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
    let Some(hash) = to_read(&mut context.objects, key)? else {
        context.reply.array(0);
        return Ok(());
    };
    let choice = Choice::of(count, hash.len()?);
    let shown = choice.shown();
    let is_nested = has_values && context.reply.version() == Version::Three;
    match has_values && !is_nested {
        true => context.reply.array(2 * shown),
        false => context.reply.array(shown),
    }
    random::choose(context, &hash, choice, |reply, field, value| {
        if is_nested {
            reply.array(2);
        }
        reply.string(field);
        if has_values {
            reply.string(value);
        }
    })
}

fn hscan(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    scan::scan(context, arguments, Kind::Hash, FORM)
}
