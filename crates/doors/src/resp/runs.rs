//! Runs: commands `GET`, or commands `SET`, of one client that follow one another.
//!
//! A client that pipelines sends many of them at a time. They are read without the parser, and the
//! store does the whole run at once: its cache misses overlap, and no work is repeated that is the
//! same for all of them.
//!
//! # Promises
//!
//! - The replies, the objects and the counts are those of the same commands one by one. A test
//!   compares both.
//! - A run ends before any other command, so no command of the client sees a part of a run.
//! - A client in an unusual state has no runs: in a `MULTI`, as a subscriber, without replies,
//!   and so on. A command in an unusual form is never part of a run.
//!   [`Server::step`](super::Server::step) executes such commands one by one.

use super::client::Replies;
use super::commands::{Command, Names};
use super::events::Kinds;
use super::key_slots::slot_of;
use super::parser::{Limits, string};
use super::server::{ClientId, Output, State};
use super::store::{Kind, Store, Strings};
use super::writer::Writer;
use std::ops::{Range, RangeInclusive};

/// The most commands of a run. Other clients wait meanwhile.
const COMMANDS_MAX: usize = 64;

/// The longest key of a run: longer ones would be copied together.
const KEY_BYTES_MAX: usize = 1024;

/// The bytes of replies after which a run ends.
const REPLY_BYTES: usize = 256 << 10;

/// The least time of a slow command, in microseconds, with which there are runs.
const SLOW_US: i64 = 1000;

/// The bytes of a reply beside the value.
const FRAME_BYTES: usize = 32;

const GET: ([u8; 8], [u8; 8]) = (*b"*2\r\n$3\r\n", *b"\r\nget\r\n$");
const SET: ([u8; 8], [u8; 8]) = (*b"*3\r\n$3\r\n", *b"\r\nset\r\n$");

/// The bytes of the common beginning of a command, up to the length of its key.
const HEAD_BYTES: usize = 14;

/// The bits by which capital letters differ from small ones, in the second word of the beginning.
const LETTERS: u64 = u64::from_le_bytes([0, 0, 0x20, 0x20, 0x20, 0, 0, 0]);

/// The command of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Get,
    Set,
}

impl Word {
    /// Returns the command with which some bytes begin.
    #[inline]
    fn of(bytes: &[u8]) -> Option<Word> {
        let head: &[u8; HEAD_BYTES] = bytes.first_chunk()?;
        let first = u64::from_le_bytes(*head.first_chunk()?);
        let second = u64::from_le_bytes(*head.last_chunk()?) | LETTERS;
        let is = |(one, other): ([u8; 8], [u8; 8])| {
            first == u64::from_le_bytes(one) && second == u64::from_le_bytes(other)
        };
        match () {
            () if is(GET) => Some(Word::Get),
            () if is(SET) => Some(Word::Set),
            () => None,
        }
    }
}

impl Word {
    /// Returns the kinds of events for which a command is executed by itself. An expired key has
    /// its event in time without the command that looks for the key.
    fn events(self) -> Kinds {
        match self {
            Word::Get => Kinds::MISSED,
            Word::Set => Kinds::ANY,
        }
    }
}

/// Runs, and the memory that they use again.
#[derive(Debug)]
pub(super) struct Runs {
    /// The commands, and their places in lists of counts.
    get: Option<(&'static Command, usize)>,
    set: Option<(&'static Command, usize)>,
    /// The places of the keys, or of the keys and the values.
    places: Vec<Range<usize>>,
}

impl Runs {
    pub(super) fn new(names: &Names) -> Runs {
        let named = |name| names.command(name).map(|it| (it, names.place_of(it)));
        Runs { get: named(b"get"), set: named(b"set"), places: Vec::new() }
    }

    /// Reads a run at the beginning of some bytes. It has only keys of `slots`, if they are given.
    fn read(
        &mut self,
        word: Word,
        bytes: &[u8],
        (string_bytes_max, value_bytes_max): (usize, usize),
        slots: Option<&RangeInclusive<u16>>,
    ) {
        let key_bytes_max = KEY_BYTES_MAX.min(string_bytes_max);
        let value_bytes_max = value_bytes_max.min(string_bytes_max);
        self.places.clear();
        let mut at = 0;
        for _ in 0..COMMANDS_MAX {
            let Some(rest) = bytes.get(at..).filter(|rest| Word::of(rest) == Some(word)) else {
                break;
            };
            let place = |place: Range<usize>| at + place.start..at + place.end;
            let Some(key) = string(rest, HEAD_BYTES, key_bytes_max) else { break };
            if let (Some(slots), Some(key)) = (slots, rest.get(key.clone()))
                && !slots.contains(&slot_of(key))
            {
                break;
            }
            let mut end = key.end + 2;
            if word == Word::Set {
                if rest.get(end) != Some(&b'$') {
                    break;
                }
                let Some(value) = string(rest, end + 1, value_bytes_max) else { break };
                end = value.end + 2;
                self.places.extend([place(key), place(value)]);
            } else {
                self.places.push(place(key));
            }
            at += end;
        }
    }

    /// Executes a run at the beginning of some bytes; returns the number of bytes that it used, or
    /// `None` if there is no run.
    pub(super) fn execute(
        &mut self,
        state: &mut State,
        store: &mut dyn Store,
        limits: Limits,
        client: ClientId,
        bytes: &[u8],
        output: &mut Output,
    ) -> Option<usize> {
        let word = Word::of(bytes)?;
        let of_client = state.clients.get(&client)?;
        let user = state.settings.users.of(of_client.user.as_deref());
        let is_usual = of_client.is_authenticated
            && user.is_some_and(|user| user.may_everything())
            && of_client.multi.is_none()
            && of_client.replies == Replies::On
            && !of_client.is_subscriber()
            && state.monitors == 0
            && state.paused.is_idle()
            && !state.blocked.has_ready()
            && !state.settings.events.sent().has(word.events())
            // A run is too short for the slow log, unless that has nearly all commands.
            && !(0..SLOW_US).contains(&state.settings.slower_than_us)
            // Clients that watch keys, and consumers that wait, are told of writes.
            && (word == Word::Get
                || (state.watches.is_empty() && !state.blocked.has_consumers()))
            // So are clients of their own reads, and of all writes.
            && (of_client.tracked.is_none() && (word == Word::Get || !state.tracking.is_active()))
            && state.options.value_bytes_max + FRAME_BYTES <= state.options.reply_bytes_max;
        if !is_usual {
            return None;
        }
        let (database, counts) = (of_client.database, !of_client.touches_not);
        let slots = state.slots_of_runs(of_client)?;
        let slots = Some(&slots).filter(|_| !state.has_all_slots());
        let mut reply = Writer::new(&mut output.replies, of_client.version);
        let longest = (limits.string_bytes_max, state.options.value_bytes_max);
        self.read(word, bytes, longest, slots);
        let strings = Strings::new(bytes, &self.places);
        if strings.is_empty() {
            return None;
        }
        let begin = state.time();
        let ((command, place), count) = match word {
            Word::Get => {
                let before = reply.length();
                let (mut hits, mut misses) = (0, 0);
                let all = store.find_each(database, strings, counts, &mut |found| {
                    match found {
                        // An error is the next command's reply.
                        Some(found) if found.kind != Kind::String => return false,
                        _ if reply.length() - before > REPLY_BYTES => return false,
                        Some(found) => {
                            reply.string(found.value);
                            hits += 1;
                        }
                        None => {
                            reply.null();
                            misses += 1;
                        }
                    }
                    true
                });
                if all.is_err() {
                    reply.truncate(before);
                    return None;
                }
                state.counts.hits += hits;
                state.counts.misses += misses;
                (self.get?, (hits + misses) as usize)
            }
            Word::Set => {
                let count = store.put_each(database, strings);
                for _ in 0..count {
                    reply.simple("OK");
                }
                (self.set?, count)
            }
        };
        let each = if word == Word::Get { 1 } else { 2 };
        // The last string of the last command that is done.
        let last = self.places.get((each * count).checked_sub(1)?)?;
        state.count_calls(place, count as u64);
        let now_ms = store.now();
        if let Some(took) = state.took(begin) {
            state.count_time(place, count as u64, Some(took));
            state.monitor_latency(command, took / count as u32, now_ms);
        }
        let of_client = state.clients.get_mut(&client)?;
        of_client.active_ms = now_ms;
        of_client.last = command.name;
        of_client.commands += count as u64;
        Some(last.end + 2)
    }
}
