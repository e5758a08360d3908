//! Writes a value in parts, if the target refuses a `RESTORE` because it changes too much at once.
//!
//! The parts are commands of Redis, such as `RPUSH` and `XADD`. Other clients see the key while it
//! grows. If a part is refused, the key is deleted.
//!
//! Three facts about streams are not kept, because Redis has no commands for them: pending entries
//! whose entries were deleted, and the two times of each consumer.

use super::connection::{Connection, Reply};
use super::{Damaged, Moved};
use crate::exit::Failure;
use std::time::Instant;
use thunderhead_server::rdb::{self, Field, Id, Reader, Stream, StreamGroup, Value};

/// The begin of the error of our servers. A test of the program fails if they say something else.
const TOO_MUCH: &str = "ERR The command changes too much at once";

/// The items and about the bytes of a part, and the commands that are in flight.
const ITEMS_MAX: usize = 1000;
const BYTES_MAX: usize = 256 << 10;

/// The bytes that a payload may unpack.
const UNPACKED_MAX: usize = 1 << 30;

/// The same for a value of very many items.
const TOO_LONG: &str = "ERR string exceeds maximum allowed size";

/// Whether an answer to a `RESTORE` means that the value can only be written in parts. A string has
/// no parts.
pub(super) fn are_wanted(error: &str, payload: &[u8]) -> bool {
    is_too_much(error) || error.starts_with(TOO_LONG) && payload.first() != Some(&0)
}

fn is_too_much(error: &str) -> bool {
    error.starts_with(TOO_MUCH)
}

/// The reason why a value was not written.
enum Stop {
    /// The target refuses a part.
    Refused(String),
    /// The connection failed.
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failed(failure)
    }
}

type Done = Result<(), Stop>;

/// Writes a value in parts, in place of an earlier value. Returns the reason if it is refused.
///
/// # Errors
/// If the connection fails.
pub(super) fn write(
    target: &mut Connection,
    value: &Moved,
    is_absolute: bool,
) -> Result<Option<String>, Failure> {
    let began = Instant::now();
    let decoded = match decode(&value.payload) {
        Ok(decoded) => decoded,
        Err(reason) => return Ok(Some(reason)),
    };
    let mut writer = Writer { target, key: &value.key, flying: 0, bytes: 0, refused: None };
    let done = writer.write(&decoded).and_then(|()| match value.time {
        0 => Ok(()),
        time if is_absolute => writer.call(&[b"PEXPIREAT", &value.key, text(time).as_bytes()]),
        time => {
            let passed = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            let left = text(time.saturating_sub(passed).max(1));
            writer.call(&[b"PEXPIRE", &value.key, left.as_bytes()])
        }
    });
    match done {
        Ok(()) => Ok(None),
        Err(Stop::Failed(failure)) => Err(failure),
        Err(Stop::Refused(reason)) => {
            target.want_ok(&[b"DEL", &value.key])?;
            Ok(Some(reason))
        }
    }
}

fn decode(payload: &[u8]) -> Result<Value, String> {
    let damaged = || "its value is damaged".to_owned();
    let bytes = rdb::unwrap(payload).map_err(|_| damaged())?;
    let mut reader = Reader::new(bytes, UNPACKED_MAX);
    let value = reader.byte().and_then(|kind| Value::read(kind, &mut reader));
    value.map_err(|error| match error {
        Damaged::TooLong => "its value is too long".to_owned(),
        _ => damaged(),
    })
}

fn text(number: u64) -> String {
    number.to_string()
}

fn text_of((ms, sequence): Id) -> String {
    format!("{ms}-{sequence}")
}

/// Returns a text that is read as exactly this score.
fn score(score: f64) -> Vec<u8> {
    match score {
        score if score == 0.0 || score.is_infinite() => format!("{score}").into_bytes(),
        score => format!("{score:e}").into_bytes(),
    }
}

/// Writes one key.
struct Writer<'a> {
    target: &'a mut Connection,
    key: &'a [u8],
    /// The commands in flight, and their bytes.
    flying: usize,
    bytes: usize,
    refused: Option<String>,
}

impl Writer<'_> {
    fn write(&mut self, value: &Value) -> Done {
        let key = self.key;
        self.call(&[b"DEL", key])?;
        match value {
            Value::String(string) => self.call(&[b"SET", key, string]),
            Value::List(elements) => {
                let words: Vec<&[u8]> = elements.iter().map(|it| &**it).collect();
                self.parts(&[b"RPUSH", key], &words, 1)
            }
            Value::Set(members) => {
                let words: Vec<&[u8]> = members.iter().map(|it| &**it).collect();
                self.parts(&[b"SADD", key], &words, 1)
            }
            Value::SortedSet(scored) => {
                let scores: Vec<Vec<u8>> = scored.iter().map(|(_, it)| score(*it)).collect();
                let pairs = scores.iter().zip(scored);
                let words: Vec<&[u8]> =
                    pairs.flat_map(|(score, (member, _))| [&**score, &**member]).collect();
                self.parts(&[b"ZADD", key], &words, 2)
            }
            Value::Hash(fields) => self.hash(fields),
            Value::Stream(stream) => self.stream(stream),
        }
    }

    fn hash(&mut self, fields: &[Field]) -> Done {
        let key = self.key;
        let words: Vec<&[u8]> =
            fields.iter().flat_map(|field| [&*field.name, &*field.value]).collect();
        self.parts(&[b"HSET", key], &words, 2)?;
        let mut expiring: Vec<(u64, &[u8])> =
            fields.iter().filter_map(|field| Some((field.expires?, &*field.name))).collect();
        expiring.sort_unstable();
        for same in expiring.chunk_by(|(one, _), (other, _)| one == other) {
            for part in same.chunks(ITEMS_MAX / 10) {
                let Some((time, _)) = part.first() else { continue };
                let (time, count) = (text(*time), part.len().to_string());
                let (time, count) = (time.as_bytes(), count.as_bytes());
                let mut words: Vec<&[u8]> = vec![b"HPEXPIREAT", key, time, b"FIELDS", count];
                words.extend(part.iter().map(|(_, name)| *name));
                self.send(&words)?;
            }
        }
        self.settle()
    }

    fn stream(&mut self, stream: &Stream) -> Done {
        let key = self.key;
        let last = text_of(stream.last);
        for entry in &stream.entries {
            let id = text_of(entry.id);
            let mut words: Vec<&[u8]> = vec![b"XADD", key, id.as_bytes()];
            words.extend(entry.strings.iter().map(|string| &**string));
            self.send(&words)?;
        }
        if stream.entries.is_empty() {
            // The stream exists, and stays empty.
            self.send(&[b"XADD", key, b"MAXLEN", b"0", last.as_bytes(), b"", b""])?;
        }
        let (added, deleted) = (text(stream.added), text_of(stream.max_deleted));
        let (added, deleted) = (added.as_bytes(), deleted.as_bytes());
        let setting: [&[u8]; 7] =
            [b"XSETID", key, last.as_bytes(), b"ENTRIESADDED", added, b"MAXDELETEDID", deleted];
        self.send(&setting)?;
        stream.groups.iter().try_for_each(|group| self.group(group))?;
        self.settle()
    }

    fn group(&mut self, group: &StreamGroup) -> Done {
        let (key, name) = (self.key, &*group.name);
        let last = text_of(group.last);
        let read = group.entries_read.map_or("-1".to_owned(), text);
        let (last, read) = (last.as_bytes(), read.as_bytes());
        self.send(&[b"XGROUP", b"CREATE", key, name, last, b"ENTRIESREAD", read])?;
        for consumer in &group.consumers {
            self.send(&[b"XGROUP", b"CREATECONSUMER", key, name, &consumer.name])?;
            let same = consumer.pending.chunk_by(|one, other| {
                (one.delivered, one.deliveries) == (other.delivered, other.deliveries)
            });
            for part in same.flat_map(|same| same.chunks(ITEMS_MAX)) {
                let Some(first) = part.first() else { continue };
                let (time, count) = (text(first.delivered), text(first.deliveries));
                let ids: Vec<String> = part.iter().map(|pending| text_of(pending.id)).collect();
                let mut words: Vec<&[u8]> = vec![b"XCLAIM", key, name, &consumer.name, b"0"];
                words.extend(ids.iter().map(|id| id.as_bytes()));
                words.extend([&b"TIME"[..], time.as_bytes(), b"RETRYCOUNT", count.as_bytes()]);
                words.extend([&b"JUSTID"[..], b"FORCE", b"LASTID", last]);
                self.send(&words)?;
            }
        }
        Ok(())
    }

    /// Sends a command for some items of some words each, in parts.
    fn parts(&mut self, head: &[&[u8]], words: &[&[u8]], per_item: usize) -> Done {
        let mut rest = words;
        while !rest.is_empty() {
            let (mut taken, mut bytes) = (0, 0);
            for item in rest.chunks(per_item).take(ITEMS_MAX) {
                bytes += item.iter().map(|word| word.len()).sum::<usize>();
                if taken > 0 && bytes > BYTES_MAX {
                    break;
                }
                taken += item.len();
            }
            let (part, behind) = rest.split_at(taken);
            self.part(head, part, per_item)?;
            rest = behind;
        }
        Ok(())
    }

    /// Sends one part. Halves it if its items lie on so many pages that it changes too much.
    fn part(&mut self, head: &[&[u8]], words: &[&[u8]], per_item: usize) -> Done {
        match self.call(&[head, words].concat()) {
            Err(Stop::Refused(reason)) if is_too_much(&reason) && words.len() > per_item => {
                let half = (words.len() / per_item / 2) * per_item;
                let (one, other) = words.split_at(half);
                self.part(head, one, per_item)?;
                self.part(head, other, per_item)
            }
            done => done,
        }
    }

    fn call(&mut self, words: &[&[u8]]) -> Done {
        match self.target.call(words)? {
            Reply::Error(reason) => Err(Stop::Refused(reason)),
            _ => Ok(()),
        }
    }

    /// Sends a command, and reads the answers when there are many in flight.
    fn send(&mut self, words: &[&[u8]]) -> Done {
        self.target.send(words)?;
        self.flying += 1;
        self.bytes += words.iter().map(|word| word.len()).sum::<usize>();
        if self.flying >= ITEMS_MAX || self.bytes >= BYTES_MAX { self.settle() } else { Ok(()) }
    }

    /// Reads the answers to all commands in flight.
    fn settle(&mut self) -> Done {
        for _ in 0..std::mem::take(&mut self.flying) {
            if let Reply::Error(reason) = self.target.reply()? {
                self.refused.get_or_insert(reason);
            }
        }
        self.bytes = 0;
        self.refused.take().map_or(Ok(()), |reason| Err(Stop::Refused(reason)))
    }
}
