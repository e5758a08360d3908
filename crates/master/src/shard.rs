//! The service.

use crate::clients::Clients;
use crate::objects;
use crate::outcome::Outcome;
use crate::parked::{Answer, Parked};
use thunderhead_log::{BATCH, Cursor, Log, Object};
use thunderhead_rpc::{Context, Opcode, ReplyTo, Request, Service};
use thunderhead_wire::operations::{
    EnumerateHead, FoundHead, IDENTITY_BYTES, Identity, ObjectHead, PageHead, PartHead, ReadPart,
    UpdateKind, UpdatePart,
};
use thunderhead_wire::{KeyHash, LogPosition, Status, Version};
use zerocopy::{FromBytes, IntoBytes};

/// Answers that may wait for the log at once.
const PARKED_MAX: usize = 65_536;

/// What a client waits in microseconds before it tries again, if more do.
const BUSY_US: u32 = 1_000;

/// Operations in one message: so many take no longer than a slice.
const PARTS_MAX: usize = 128;

/// What an answer to many reads may hold. Copying more takes longer than a slice.
const MANY_BYTES_MAX: usize = 1 << 20;

/// What a page of an enumeration holds, but for the last of its objects, and how many objects and
/// empty buckets are looked at for it.
const PAGE_BYTES_MAX: usize = 64 << 10;
const PAGE_OBJECTS_MAX: usize = 512;

/// What a shard has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Objects that were asked for.
    pub reads: u64,
    /// Updates, whatever became of them.
    pub updates: u64,
    /// Answers that wait for the log to be durable.
    pub parked: usize,
    /// Outcomes of updates that are remembered.
    pub records: usize,
}

/// A shard of a server: the service that answers for the objects of its tablets.
pub struct Shard {
    log: Log,
    clients: Clients,
    parked: Parked,
    statistics: Statistics,
    /// For answers to many.
    buffer: Vec<u8>,
}

impl Shard {
    /// A shard on a log, with the tablets and records that are in it.
    #[must_use]
    pub fn new(log: Log) -> Shard {
        let (clients, parked) = (Clients::of(&log), Parked::default());
        Shard { log, clients, parked, statistics: Statistics::default(), buffer: Vec::new() }
    }

    /// The log.
    pub fn log(&mut self) -> &mut Log {
        &mut self.log
    }

    /// What it has done so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let (parked, records) = (self.parked.count(), self.clients.records());
        Statistics { parked, records, ..self.statistics }
    }

    fn read(&mut self, context: &mut Context<'_>, body: &[u8], reply_to: ReplyTo) {
        self.statistics.reads += 1;
        let part = ObjectHead::take(body).filter(|(_, _, rest)| rest.is_empty());
        let Some((head, key, Some(condition))) =
            part.map(|(head, key, _)| (head, key, head.condition()))
        else {
            return context.refuse(reply_to, Status::Malformed, 0, &[]);
        };
        let object = match self.log.read(head.table(), key) {
            Ok(object) => object,
            Err(error) => {
                let Outcome { status, hint, .. } = Outcome::of_error(&error);
                return context.refuse(reply_to, status, hint, &[]);
            }
        };
        let version = object.as_ref().map_or(Version::NONE, |object| object.version());
        let number = version.0.to_le_bytes();
        let holds = condition.holds(version);
        let (Some(object), true) = (object, holds) else {
            let status = if holds { Status::NotFound } else { Status::ConditionFailed };
            // That there is nothing may be the effect of a delete that is not durable yet.
            let until = self.log.appended();
            let answer = Answer::new(status, 0, &number);
            return self.answer_at(context, until, reply_to, &answer);
        };
        match self.log.durable_at(&object) {
            None => answer_with(context, reply_to, &number, &object),
            Some(until) => {
                let mut body = number.to_vec();
                object.value().copy_to(&mut body);
                self.parked.park(until, reply_to, Answer::new(Status::Ok, 0, &body));
            }
        }
    }

    /// One update of one message.
    fn update(
        &mut self,
        context: &mut Context<'_>,
        kind: UpdateKind,
        body: &[u8],
        reply_to: ReplyTo,
    ) {
        let taken = Identity::ref_from_prefix(body).ok().and_then(|(identity, rest)| {
            let (head, key, argument) = ObjectHead::take(rest)?;
            Some((*identity, UpdatePart { head, kind, key, argument }))
        });
        let Some((identity, part)) = taken else {
            return context.refuse(reply_to, Status::Malformed, 0, &[]);
        };
        if kind == UpdateKind::Delete && !part.argument.is_empty() {
            return context.refuse(reply_to, Status::Malformed, 0, &[]);
        }
        self.statistics.updates += 1;
        let outcome = objects::update(&mut self.log, &mut self.clients, identity, &part);
        let mut body = [0; 16];
        let mut length = 8;
        body[..8].copy_from_slice(&outcome.version.0.to_le_bytes());
        if let Some(sum) = outcome.sum {
            body[8..].copy_from_slice(&sum);
            length = 16;
        }
        let answer = Answer::new(outcome.status, outcome.hint, &body[..length]);
        self.answer_at(context, self.log.appended(), reply_to, &answer);
    }

    fn read_many(&mut self, context: &mut Context<'_>, body: &[u8], reply_to: ReplyTo) {
        let Some(count) = count(body, ReadPart::take) else {
            return context.refuse(reply_to, Status::Malformed, 0, &[]);
        };
        self.statistics.reads += count as u64;
        let (log, buffer) = (&self.log, &mut self.buffer);
        buffer.clear();
        let mut until = LogPosition::default();
        let mut too_long = false;
        let mut keys = Parts { bytes: body, take: ReadPart::take };
        let mut conditions = keys.clone();
        let mut answer = |_: usize, found: Result<Option<Object<'_>>, _>| {
            let condition = conditions.next().and_then(|part| part.head.condition());
            let (status, version, object) = match (found, condition) {
                (Err(error), _) => (Outcome::of_error(&error).status, Version::NONE, None),
                (Ok(_), None) => (Status::Malformed, Version::NONE, None),
                (Ok(object), Some(condition)) => {
                    let version = object.as_ref().map_or(Version::NONE, |object| object.version());
                    match object {
                        _ if !condition.holds(version) => (Status::ConditionFailed, version, None),
                        None => (Status::NotFound, version, None),
                        Some(object) => (Status::Ok, version, Some(object)),
                    }
                }
            };
            until = until.max(match &object {
                Some(object) => log.durable_at(object).unwrap_or_default(),
                None => log.appended(),
            });
            let bytes = object.as_ref().map_or(0, |object| object.value().len());
            too_long |= buffer.len() + bytes > MANY_BYTES_MAX;
            if !too_long {
                buffer.extend_from_slice(PartHead::new(status.code(), version, bytes).as_bytes());
                if let Some(object) = object {
                    object.value().copy_to(buffer);
                }
            }
        };
        let together = even_batches(count);
        for _ in 0..count.div_ceil(together) {
            let keys = keys.by_ref().take(together);
            log.read_batch(keys.map(|part| (part.head.table(), part.key)), &mut answer);
        }
        if too_long {
            return context.refuse(reply_to, Status::ReplyTooLong, 0, &[]);
        }
        if until <= self.log.durable() {
            context.reply(reply_to, &[&self.buffer]);
        } else {
            self.parked.park(until, reply_to, Answer::new(Status::Ok, 0, &self.buffer));
        }
    }

    fn update_many(&mut self, context: &mut Context<'_>, body: &[u8], reply_to: ReplyTo) {
        let taken = body.split_at_checked(IDENTITY_BYTES).and_then(|(identity, rest)| {
            let count = count(rest, UpdatePart::take)?;
            Some((Identity::read_from_bytes(identity).ok()?, rest, count))
        });
        let Some((identity, parts, count)) = taken else {
            return context.refuse(reply_to, Status::Malformed, 0, &[]);
        };
        self.statistics.updates += count as u64;
        self.buffer.clear();
        let mut expected = Parts { bytes: parts, take: UpdatePart::take };
        let together = even_batches(count);
        for (number, (sequence, part)) in expected.clone().enumerate() {
            if number.is_multiple_of(together) {
                let keys = expected.by_ref().take(together);
                self.log.expect_updates(keys.map(|(_, part)| (part.head.table(), part.key)));
            }
            let identity = identity.with_sequence(sequence);
            let outcome = objects::update(&mut self.log, &mut self.clients, identity, &part);
            outcome.to_part().put(&mut self.buffer);
        }
        let answer = Answer::new(Status::Ok, 0, &self.buffer);
        self.answer_at(context, self.log.appended(), reply_to, &answer);
    }

    fn enumerate(&mut self, context: &mut Context<'_>, body: &[u8], reply_to: ReplyTo) {
        let Some(head) = EnumerateHead::ref_from_bytes(body).ok() else {
            return context.refuse(reply_to, Status::Malformed, 0, &[]);
        };
        let range = head.range();
        let mut tablets = self.log.tablets().map(|(tablet, _)| tablet);
        let Some(tablet) = tablets.find(|it| it.contains(range.table, range.first)) else {
            return context.refuse(reply_to, Status::Moved, 0, &[]);
        };
        drop(tablets);
        let last = tablet.last.min(range.last);
        // One object at least, so that every page gets on.
        let wanted = size_of::<PageHead>() + head.bytes().clamp(1, PAGE_BYTES_MAX);
        let (log, buffer) = (&self.log, &mut self.buffer);
        buffer.clear();
        // The head comes last: it says how far it went.
        buffer.extend_from_slice(PageHead::new(last, None).as_bytes());
        let (mut until, mut looked) = (LogPosition::default(), 0);
        let mut cursor = Some(Cursor::from_bits(head.cursor()));
        while let Some(at) = cursor
            && buffer.len() < wanted
            && looked < PAGE_OBJECTS_MAX
        {
            let mut bucket: Vec<(u64, Vec<u8>, Object<'_>)> = Vec::new();
            let scanned = log.scan(tablet, at, |object| {
                let key = object.key().to_vec();
                bucket.push((KeyHash::of(&key).0.reverse_bits(), key, object));
            });
            // The order of the walk: it can go on between two objects, which may be large.
            bucket.sort_unstable_by_key(|(place, ..)| *place);
            // Also a bucket that is empty takes its time.
            looked += bucket.len() + 1;
            cursor = scanned.unwrap_or_default();
            for (place, key, object) in bucket {
                if buffer.len() >= wanted {
                    cursor = Some(Cursor::from_bits(place));
                    break;
                }
                if range.contains(range.table, KeyHash(place.reverse_bits())) {
                    until = until.max(log.durable_at(&object).unwrap_or_default());
                    let value = object.value();
                    let found = FoundHead::new(object.version(), key.len(), value.len());
                    buffer.extend_from_slice(found.as_bytes());
                    buffer.extend_from_slice(&key);
                    value.copy_to(buffer);
                }
            }
        }
        let page = PageHead::new(last, cursor.map(Cursor::to_bits));
        if let Some(place) = buffer.get_mut(..page.as_bytes().len()) {
            place.copy_from_slice(page.as_bytes());
        }
        self.statistics.reads += 1;
        let answer = Answer::new(Status::Ok, 0, &self.buffer);
        self.answer_at(context, until, reply_to, &answer);
    }

    /// Answers once the log is durable up to a position.
    fn answer_at(
        &mut self,
        context: &mut Context<'_>,
        until: LogPosition,
        reply_to: ReplyTo,
        answer: &Answer,
    ) {
        if until <= self.log.durable() {
            answer.send(context, reply_to);
        } else {
            self.parked.park(until, reply_to, answer.clone());
        }
    }
}

/// Answers with an object, whose value is not copied to do so.
fn answer_with(context: &mut Context<'_>, to: ReplyTo, number: &[u8], object: &Object<'_>) {
    match object.value().as_slice() {
        Some(value) => context.reply(to, &[number, value]),
        None => {
            let parts: Vec<&[u8]> =
                std::iter::once(number).chain(object.value().pieces()).collect();
            context.reply(to, &parts);
        }
    }
}

/// How many there are; `None` where they are malformed or too many.
#[inline]
fn count<'a, T>(
    mut bytes: &'a [u8],
    take: impl Fn(&'a [u8]) -> Option<(T, &'a [u8])>,
) -> Option<usize> {
    let mut count = 0;
    while !bytes.is_empty() {
        bytes = take(bytes)?.1;
        count += 1;
        if count > PARTS_MAX {
            return None;
        }
    }
    Some(count)
}

/// Many, one after the other, as they lie in the message.
#[derive(Clone)]
struct Parts<'a, F> {
    bytes: &'a [u8],
    take: F,
}

impl<'a, T, F: Fn(&'a [u8]) -> Option<(T, &'a [u8])>> Iterator for Parts<'a, F> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        let (part, rest) = (self.take)(self.bytes)?;
        self.bytes = rest;
        Some(part)
    }
}

/// So many go together that no batch of a message is much smaller than the others: the misses of a
/// small one have nobody to overlap with.
fn even_batches(count: usize) -> usize {
    count.div_ceil(count.div_ceil(BATCH).max(1)).max(1)
}

impl Service for Shard {
    #[inline]
    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        let Request { opcode, body, reply_to } = request;
        if self.parked.count() >= PARKED_MAX {
            return context.refuse(reply_to, Status::Busy, BUSY_US, &[]);
        }
        match opcode {
            Opcode::Read => self.read(context, body, reply_to),
            Opcode::Write => self.update(context, UpdateKind::Write, body, reply_to),
            Opcode::Delete => self.update(context, UpdateKind::Delete, body, reply_to),
            Opcode::Increment => self.update(context, UpdateKind::Increment, body, reply_to),
            Opcode::ReadMany => self.read_many(context, body, reply_to),
            Opcode::UpdateMany => self.update_many(context, body, reply_to),
            Opcode::Enumerate => self.enumerate(context, body, reply_to),
            _ => context.refuse(reply_to, Status::UnknownOpcode, 0, &[]),
        }
    }

    fn turn_over(&mut self, context: &mut Context<'_>) {
        self.log.turn();
        self.parked.release(self.log.durable(), context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_batch_of_a_message_is_much_smaller_than_the_others() {
        for (count, each) in [(0, 1), (1, 1), (64, 64), (65, 33), (70, 35), (128, 64)] {
            assert_eq!(even_batches(count), each, "{count}");
        }
    }
}
