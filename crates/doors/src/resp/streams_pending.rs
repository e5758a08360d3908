//! `XPENDING`, `XCLAIM` and `XAUTOCLAIM`: pending entries, and their change to another consumer.

use super::bounds::integer;
use super::commands::{Command, FAST, Group as Family, Keys, READONLY, WRITE};
use super::context::{Context, is};
use super::number::integer_of;
use super::parser::Arguments;
use super::stop::{self, Done, Stop};
use super::stream::{Stream, reply, reply_id};
use super::stream_groups::{Consumer, Group, Pending, check_name};
use super::stream_id::StreamId;
use super::transaction::Transaction;
use std::collections::BTreeMap;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("xpending", -3, READONLY, xpending)
        .keys(&[Keys::one("RO access", 1)])
        .tips(&["nondeterministic_output"])
        .about(Family::Stream, "5.0.0", "Returns the pending entries of a group, or counts them."),
    Command::new("xclaim", -6, WRITE | FAST, xclaim)
        .keys(&[Keys::one("RW update", 1)])
        .tips(&["nondeterministic_output"])
        .about(Family::Stream, "5.0.0", "Gives pending entries to another consumer."),
    Command::new("xautoclaim", -6, WRITE | FAST, xautoclaim)
        .keys(&[Keys::one("RW delete", 1)])
        .tips(&["nondeterministic_output"])
        .about(
            Family::Stream,
            "6.2.0",
            "Gives entries that have been pending for long to another consumer.",
        ),
];

/// Returns the error for a stream or a group that does not exist.
fn no_group(key: &[u8], group: &[u8]) -> Stop {
    let (key, group) = (stop::shown(key), stop::shown(group));
    let parts = [b"NOGROUP No such key '", key, b"' or consumer group '", group, &b"'"[..]];
    Stop::error_of(parts.concat())
}

/// Returns a stream and its group, which must exist.
fn group_of(
    objects: &mut Transaction<'_>,
    found: Option<Stream<'_>>,
    arguments: Arguments<'_>,
) -> Result<Group, Stop> {
    let group = match found {
        Some(mut stream) => stream.group(objects, &arguments[2])?,
        None => None,
    };
    group.ok_or_else(|| no_group(&arguments[1], &arguments[2]))
}

/// Returns the milliseconds since the last delivery of a pending entry.
fn idle(pending: &Pending, now: u64) -> u64 {
    now.saturating_sub(pending.delivered)
}

/// A range of pending entries.
struct Range<'a> {
    begin: StreamId,
    end: StreamId,
    count: u64,
    /// The shortest time since the last delivery.
    idle: u64,
    consumer: Option<&'a [u8]>,
}

impl<'a> Range<'a> {
    fn of(arguments: Arguments<'a>) -> Result<Range<'a>, Stop> {
        if !(6..=9).contains(&arguments.len()) {
            return Err(stop::SYNTAX);
        }
        let (mut at, mut idle) = (3, 0);
        if is(&arguments[3], "IDLE") {
            idle = u64::try_from(integer(&arguments[4])?).unwrap_or(0);
            if arguments.len() < 8 {
                return Err(stop::SYNTAX);
            }
            at = 5;
        }
        let count = u64::try_from(integer(&arguments[at + 2])?).unwrap_or(0);
        let begin = StreamId::begin(&arguments[at])?;
        let end = StreamId::end(&arguments[at + 1])?;
        Ok(Range { begin, end, count, idle, consumer: arguments.get(at + 3) })
    }
}

fn xpending(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let range = match arguments.len() {
        3 => None,
        _ => Some(Range::of(arguments)?),
    };
    let objects = &mut context.objects;
    let Some(mut stream) = Stream::read(objects, &arguments[1])? else {
        return Err(no_group(&arguments[1], &arguments[2]));
    };
    let group = stream.group(objects, &arguments[2])?;
    let group = group.ok_or_else(|| no_group(&arguments[1], &arguments[2]))?;
    match range {
        Some(range) => pending_range(context, &mut stream, &group, &range),
        None => pending_summary(context, &mut stream, &group),
    }
}

fn pending_summary(context: &mut Context<'_>, stream: &mut Stream<'_>, group: &Group) -> Done {
    let Context { objects, reply, .. } = context;
    let count = stream.pending_count(objects, group)?;
    reply.array(4);
    reply.integer(count as i64);
    if count == 0 {
        reply.null();
        reply.null();
        reply.null_array();
        return Ok(());
    }
    let (first, last) = stream.pending_ends(objects, group)?;
    reply_id(reply, first);
    reply_id(reply, last);
    let mut consumers = Vec::new();
    for (name, consumer) in stream.consumers(objects, group)? {
        let count = stream.owned_count(objects, group, consumer.number)?;
        if count > 0 {
            consumers.push((name, count));
        }
    }
    reply.array(consumers.len());
    for (name, count) in consumers {
        reply.array(2);
        reply.string(&name);
        reply.string(count.to_string().as_bytes());
    }
    Ok(())
}

fn pending_range(
    context: &mut Context<'_>,
    stream: &mut Stream<'_>,
    group: &Group,
    range: &Range<'_>,
) -> Done {
    let Context { objects, reply, .. } = context;
    let now = objects.now();
    let mut found: Vec<(StreamId, Pending)> = Vec::new();
    let mut take = |id: StreamId, pending: &Pending| {
        if id > range.end || found.len() as u64 == range.count {
            return false;
        }
        if idle(pending, now) >= range.idle {
            found.push((id, *pending));
        }
        true
    };
    if let Some(name) = range.consumer {
        let Some(consumer) = stream.consumer(objects, group, name)? else {
            reply.array(0);
            return Ok(());
        };
        let most = if range.idle == 0 { range.count } else { u64::MAX };
        for id in stream.owned(objects, group, consumer.number, range.begin, most)? {
            if let Some(pending) = stream.pending(objects, group, id)?
                && !take(id, &pending)
            {
                break;
            }
        }
    } else {
        stream.visit_pending(objects, group, range.begin, take)?;
    }
    let mut names = BTreeMap::new();
    reply.array(found.len());
    for (id, pending) in found {
        let name = match names.get(&pending.consumer) {
            Some(name) => name,
            None => {
                let name = stream.consumer_name(objects, group, pending.consumer)?;
                names.entry(pending.consumer).or_insert(name)
            }
        };
        reply.array(4);
        reply_id(reply, id);
        reply.string(name);
        reply.integer(idle(&pending, now) as i64);
        reply.integer(pending.deliveries as i64);
    }
    Ok(())
}

/// The options of `XCLAIM`.
#[derive(Default)]
struct Claim {
    ids: Vec<StreamId>,
    /// The shortest time since the last delivery.
    idle: u64,
    delivered: Option<i64>,
    deliveries: Option<u64>,
    /// Whether an entry becomes pending that is not.
    is_forced: bool,
    only_ids: bool,
    last: StreamId,
}

impl Claim {
    fn of(arguments: Arguments<'_>, now: u64) -> Result<Claim, Stop> {
        let mut claim = Claim { idle: idle_of(arguments, "XCLAIM")?, ..Claim::default() };
        let mut at = 5;
        while let Some(Ok(id)) = arguments.get(at).map(|text| StreamId::parse(text, 0)) {
            claim.ids.push(id);
            at += 1;
        }
        while let Some(word) = arguments.get(at) {
            let number = |text: &[u8], option: &str| {
                integer_of(text).ok_or_else(|| {
                    Stop::error_of(format!("ERR Invalid {option} option argument for XCLAIM"))
                })
            };
            at += match (word, arguments.get(at + 1)) {
                (it, _) if is(it, "FORCE") => {
                    claim.is_forced = true;
                    1
                }
                (it, _) if is(it, "JUSTID") => {
                    claim.only_ids = true;
                    1
                }
                (it, Some(value)) if is(it, "IDLE") => {
                    let now = i64::try_from(now).unwrap_or(i64::MAX);
                    claim.delivered = Some(now.wrapping_sub(number(value, "IDLE")?));
                    2
                }
                (it, Some(value)) if is(it, "TIME") => {
                    claim.delivered = Some(number(value, "TIME")?);
                    2
                }
                (it, Some(value)) if is(it, "RETRYCOUNT") => {
                    claim.deliveries = u64::try_from(number(value, "RETRYCOUNT")?).ok();
                    2
                }
                (it, Some(value)) if is(it, "LASTID") => {
                    claim.last = StreamId::parse(value, 0)?;
                    2
                }
                _ => {
                    return Err(Stop::error_of(
                        [b"ERR Unrecognized XCLAIM option '", stop::shown(word), b"'"].concat(),
                    ));
                }
            };
        }
        Ok(claim)
    }
}

/// Reads the shortest time since the last delivery.
fn idle_of(arguments: Arguments<'_>, name: &str) -> Result<u64, Stop> {
    let idle = integer_of(&arguments[4])
        .ok_or_else(|| Stop::error_of(format!("ERR Invalid min-idle-time argument for {name}")))?;
    Ok(u64::try_from(idle).unwrap_or(0))
}

/// Writes the entry of a claimed id, or only the id.
fn claimed(
    stream: &mut Stream<'_>,
    objects: &mut Transaction<'_>,
    ids: &[StreamId],
    only_ids: bool,
    (writer, bytes_max): (&mut super::writer::Writer<'_>, usize),
) -> Done {
    let begin = writer.length();
    writer.array(ids.len());
    for id in ids {
        if writer.length() - begin > bytes_max {
            return Err(stop::REPLY_TOO_LONG);
        }
        match only_ids {
            true => reply_id(writer, *id),
            false => {
                let bytes = stream.entry(objects, *id)?.ok_or(stop::DAMAGED)?;
                reply(writer, *id, &bytes)?;
            }
        }
    }
    Ok(())
}

fn xclaim(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let bytes_max = context.state.options.reply_bytes_max;
    let Context { objects, reply, .. } = context;
    let now = objects.now();
    let found = Stream::read(objects, &arguments[1])?;
    let mut group = group_of(objects, found, arguments)?;
    let claim = Claim::of(arguments, now)?;
    check_name(objects, &arguments[3])?;
    let Some(mut stream) = Stream::find(objects, &arguments[1])? else { return Ok(()) };
    if claim.last > group.last {
        group.last = claim.last;
        stream.put_group(objects, &arguments[2], &group)?;
    }
    // A time that makes no sense is now: clients compute it from clocks of their own.
    let delivered = claim.delivered.and_then(|time| u64::try_from(time).ok());
    let delivered = delivered.filter(|time| *time <= now).unwrap_or(now);
    let mut consumer = stream.seen(objects, &group, &arguments[3])?;
    let mut ids = Vec::new();
    for id in claim.ids {
        let before = stream.pending(objects, &group, id)?;
        if stream.entry(objects, id)?.is_none() {
            stream.remove_pending(objects, &group, id)?;
            continue;
        }
        let deliveries = match &before {
            Some(before) if idle(before, now) < claim.idle => continue,
            Some(before) => before.deliveries,
            None if claim.is_forced => 1,
            None => continue,
        };
        let deliveries = match claim.deliveries {
            Some(deliveries) => deliveries,
            None => deliveries.saturating_add(u64::from(!claim.only_ids)),
        };
        let pending = Pending { consumer: consumer.number, delivered, deliveries };
        stream.put_pending(objects, &group, id, before.as_ref(), &pending)?;
        consumer.active = Some(now);
        ids.push(id);
    }
    stream.put_consumer(objects, &group, &arguments[3], &consumer)?;
    claimed(&mut stream, objects, &ids, claim.only_ids, (reply, bytes_max))?;
    stream.save(objects)
}

/// The options of `XAUTOCLAIM`.
struct AutoClaim {
    idle: u64,
    begin: StreamId,
    count: u64,
    only_ids: bool,
}

/// The number of entries that `XAUTOCLAIM` returns by default. For each of them it looks at ten.
const COUNT: u64 = 100;
const ATTEMPTS: u64 = 10;

impl AutoClaim {
    fn of(arguments: Arguments<'_>) -> Result<AutoClaim, Stop> {
        let idle = idle_of(arguments, "XAUTOCLAIM")?;
        let begin = StreamId::begin(&arguments[5])?;
        let mut claim = AutoClaim { idle, begin, count: COUNT, only_ids: false };
        let mut at = 6;
        while let Some(word) = arguments.get(at) {
            match arguments.get(at + 1) {
                Some(value) if is(word, "COUNT") => {
                    const MOST: i64 = i64::MAX / 16;
                    let count = integer_of(value).filter(|count| (1..=MOST).contains(count));
                    let count = count.ok_or(Stop::error("ERR COUNT must be > 0"))?;
                    claim.count = count.unsigned_abs();
                    at += 1;
                }
                _ if is(word, "JUSTID") => claim.only_ids = true,
                _ => return Err(stop::SYNTAX),
            }
            at += 1;
        }
        Ok(claim)
    }
}

fn xautoclaim(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let bytes_max = context.state.options.reply_bytes_max;
    let claim = match AutoClaim::of(arguments) {
        Ok(claim) => claim,
        Err(stop) => {
            // Redis looks up the key first, so there is an event if it is missing.
            context.objects.read(&arguments[1])?;
            return Err(stop);
        }
    };
    let Context { objects, reply, .. } = context;
    let now = objects.now();
    let found = Stream::read(objects, &arguments[1])?;
    let group = group_of(objects, found, arguments)?;
    check_name(objects, &arguments[3])?;
    let Some(mut stream) = Stream::find(objects, &arguments[1])? else { return Ok(()) };
    let mut consumer = stream.seen(objects, &group, &arguments[3])?;
    let attempts = claim.count.saturating_mul(ATTEMPTS);
    let (mut ids, mut deleted, mut next) = (Vec::new(), Vec::new(), None);
    let (mut looked_at, mut begin) = (0, Some(claim.begin));
    // Some at a time: a group may have many pending entries.
    'search: while let Some(id) = begin {
        let mut batch = Vec::new();
        stream.visit_pending(objects, &group, id, |id, pending| {
            batch.push((id, *pending));
            batch.len() as u64 <= COUNT
        })?;
        begin = batch.last().and_then(|(id, _)| id.next());
        for (id, before) in batch {
            if looked_at == attempts || (ids.len() + deleted.len()) as u64 == claim.count {
                next = Some(id);
                break 'search;
            }
            looked_at += 1;
            if stream.entry(objects, id)?.is_none() {
                stream.remove_pending(objects, &group, id)?;
                deleted.push(id);
            } else if idle(&before, now) >= claim.idle {
                let deliveries = before.deliveries.saturating_add(u64::from(!claim.only_ids));
                let pending = Pending { consumer: consumer.number, delivered: now, deliveries };
                stream.put_pending(objects, &group, id, Some(&before), &pending)?;
                ids.push(id);
            }
        }
    }
    if !ids.is_empty() {
        consumer = Consumer { active: Some(now), ..consumer };
    }
    stream.put_consumer(objects, &group, &arguments[3], &consumer)?;
    reply.array(3);
    reply_id(reply, next.unwrap_or_default());
    claimed(&mut stream, objects, &ids, claim.only_ids, (reply, bytes_max))?;
    reply.array(deleted.len());
    deleted.into_iter().for_each(|id| reply_id(reply, id));
    stream.save(objects)
}
