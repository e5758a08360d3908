//! Commands about the entries of a stream. The files `streams_*.rs` have the other commands about
//! streams.

use super::bounds::integer;
use super::commands::{Command, DENYOOM, FAST, Group, Keys, READONLY, WRITE};
use super::context::{Context, from, is};
use super::events::Kinds;
use super::parser::Arguments;
use super::stop::{self, Done, Stop};
use super::stream::{self, Stream, reply_id};
use super::stream_id::{INVALID, NewId, StreamId};
use super::streams_trimming::{Options, trim};

const READ: &[Keys] = &[Keys::one("RO access", 1)];
const UPDATE: &[Keys] = &[Keys::one("RW update", 1)];
const DELETE: &[Keys] = &[Keys::one("RW delete", 1)];

pub(super) const COMMANDS: &[Command] = &[
    Command::new("xadd", -5, WRITE | DENYOOM | FAST, xadd)
        .keys(&[Keys::one("RW update", 1)
            .note("UPDATE instead of INSERT because of the optional trimming feature")])
        .tips(&["nondeterministic_output"])
        .about(
            Group::Stream,
            "5.0.0",
            "Adds an entry to a stream, which is made if there is none.",
        ),
    Command::new("xlen", 2, READONLY | FAST, xlen).keys(&[Keys::one("RO", 1)]).about(
        Group::Stream,
        "5.0.0",
        "Returns the number of entries of a stream.",
    ),
    Command::new("xrange", -4, READONLY, xrange).keys(READ).about(
        Group::Stream,
        "5.0.0",
        "Returns the entries in a range of ids.",
    ),
    Command::new("xrevrange", -4, READONLY, xrevrange).keys(READ).about(
        Group::Stream,
        "5.0.0",
        "Returns the entries in a range of ids, backwards.",
    ),
    Command::new("xdel", -3, WRITE | FAST, xdel).keys(DELETE).about(
        Group::Stream,
        "5.0.0",
        "Deletes entries of a stream.",
    ),
    Command::new("xtrim", -4, WRITE, xtrim).keys(DELETE).tips(&["nondeterministic_output"]).about(
        Group::Stream,
        "5.0.0",
        "Deletes the oldest entries of a stream.",
    ),
    Command::new("xsetid", -3, WRITE | DENYOOM | FAST, xsetid).keys(UPDATE).about(
        Group::Stream,
        "5.0.0",
        "Sets the last id of a stream, and other facts about its history.",
    ),
];

const EXHAUSTED: Stop =
    Stop::error("ERR The stream has exhausted the last possible ID, unable to add more items");

fn xadd(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let key = &arguments[1];
    let options = Options::of(arguments, true)?;
    let first = options.end + 1;
    let strings = arguments.len().saturating_sub(first);
    if strings < 2 || !strings.is_multiple_of(2) {
        return Err(stop::wrong_arity("xadd"));
    }
    let id = options.id.ok_or(INVALID)?;
    if id == NewId::Explicit(StreamId::MIN) {
        return Err(Stop::error("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let now = context.objects.now();
    let objects = &mut context.objects;
    let mut stream = match Stream::find(objects, key)? {
        Some(stream) => stream,
        None if options.must_exist => {
            context.reply.null();
            return Ok(());
        }
        None => Stream::new(objects, key),
    };
    if stream.state.last == StreamId::MAX {
        return Err(EXHAUSTED);
    }
    let id = id.behind(stream.state.last, now).ok_or(Stop::error(
        "ERR The ID specified in XADD is equal or smaller than the target stream top item",
    ))?;
    let bytes = stream::encode(from(arguments, first));
    Stream::check(objects, &bytes)?;
    stream.add(objects, id, &bytes)?;
    let trimmed = trim(&mut stream, objects, &options)?;
    stream.save(objects)?;
    objects.event(Kinds::STREAM, "xadd", key);
    if trimmed > 0 {
        objects.event(Kinds::STREAM, "xtrim", key);
    }
    reply_id(&mut context.reply, id);
    context.signal(key);
    Ok(())
}

fn xlen(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let stream = Stream::read(&mut context.objects, &arguments[1])?;
    let length = stream.map_or(Ok(0), |mut stream| stream.len())?;
    context.reply.integer(length as i64);
    Ok(())
}

fn range(context: &mut Context<'_>, arguments: Arguments<'_>, is_reverse: bool) -> Done {
    let (begin, end) = match is_reverse {
        false => (&arguments[2], &arguments[3]),
        true => (&arguments[3], &arguments[2]),
    };
    let (begin, end) = (StreamId::begin(begin)?, StreamId::end(end)?);
    let mut count = None;
    let mut at = 4;
    while let Some(option) = arguments.get(at) {
        match arguments.get(at + 1) {
            Some(value) if is(option, "COUNT") => {
                count = Some(u64::try_from(integer(value)?).unwrap_or(0));
            }
            _ => return Err(stop::SYNTAX),
        }
        at += 2;
    }
    let Context { objects, reply, .. } = context;
    let Some(mut stream) = Stream::read(objects, &arguments[1])? else {
        reply.array(0);
        return Ok(());
    };
    let count = count.unwrap_or(u64::MAX);
    if count == 0 {
        reply.null_array();
        return Ok(());
    }
    let places = stream.places(objects, begin, end)?;
    let count = count.min(places.end - places.start);
    let places = match is_reverse {
        false => places.start..places.start + count,
        true => places.end - count..places.end,
    };
    reply.array(count as usize);
    stream.visit(objects, places, is_reverse, |id, bytes| stream::reply(reply, id, bytes))
}

fn xrange(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    range(context, arguments, false)
}

fn xrevrange(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    range(context, arguments, true)
}

fn xdel(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let objects = &mut context.objects;
    let Some(mut stream) = Stream::find(objects, &arguments[1])? else {
        context.reply.integer(0);
        return Ok(());
    };
    let ids = from(arguments, 2).map(|text| StreamId::parse(text, 0));
    let ids = ids.collect::<Result<Vec<_>, _>>()?;
    let mut deleted = 0;
    for id in ids {
        deleted += i64::from(stream.remove(objects, id)?);
    }
    if deleted > 0 {
        stream.save(objects)?;
        objects.event(Kinds::STREAM, "xdel", &arguments[1]);
    }
    context.reply.integer(deleted);
    Ok(())
}

fn xtrim(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let options = Options::of(arguments, false)?;
    let objects = &mut context.objects;
    let Some(mut stream) = Stream::find(objects, &arguments[1])? else {
        context.reply.integer(0);
        return Ok(());
    };
    let deleted = trim(&mut stream, objects, &options)?;
    if deleted > 0 {
        stream.save(objects)?;
        objects.event(Kinds::STREAM, "xtrim", &arguments[1]);
    }
    context.reply.integer(deleted as i64);
    Ok(())
}

fn xsetid(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let id = StreamId::parse(&arguments[2], 0)?;
    let (mut added, mut max_deleted) = (None, StreamId::MIN);
    let mut at = 3;
    while let Some(option) = arguments.get(at) {
        match arguments.get(at + 1) {
            Some(value) if is(option, "ENTRIESADDED") => {
                let negative = Stop::error("ERR entries_added must be positive");
                added = Some(u64::try_from(integer(value)?).map_err(|_| negative)?);
            }
            Some(value) if is(option, "MAXDELETEDID") => {
                max_deleted = StreamId::parse(value, 0)?;
                if id < max_deleted {
                    return Err(Stop::error(
                        "ERR The ID specified in XSETID is smaller than the provided \
                         max_deleted_entry_id",
                    ));
                }
            }
            _ => return Err(stop::SYNTAX),
        }
        at += 2;
    }
    let objects = &mut context.objects;
    let mut stream = Stream::find(objects, &arguments[1])?.ok_or(stop::NO_SUCH_KEY)?;
    if id < stream.state.max_deleted {
        return Err(Stop::error(
            "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
        ));
    }
    if let Some(top) = stream.top(objects)? {
        if id < top {
            return Err(Stop::error(
                "ERR The ID specified in XSETID is smaller than the target stream top item",
            ));
        }
        if added.is_some_and(|added| stream.len().is_ok_and(|length| added < length)) {
            return Err(Stop::error(
                "ERR The entries_added specified in XSETID is smaller than the target stream \
                 length",
            ));
        }
    }
    let state = &mut stream.state;
    state.last = id;
    state.added = added.unwrap_or(state.added);
    if max_deleted != StreamId::MIN {
        state.max_deleted = max_deleted;
    }
    stream.save(objects)?;
    objects.event(Kinds::STREAM, "xsetid", &arguments[1]);
    context.ok();
    Ok(())
}
