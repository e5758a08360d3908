//! The router of the plain port: it makes several parts of the keys look like one server.
//!
//! A client of the plain port knows nothing of slots. If the keys have several parts, its door has
//! a router for the connection. The router reads the commands, sends each to its part over a *leg*,
//! which is a stream to the owner's door, and puts the replies in the order of the commands:
//!
//! ```text
//!             commands                     ┌── leg ──► part 0
//!  client ──► parser ──► way of a command ─┼── leg ──► part 1
//!    ▲                        │            └── leg ──► part 2
//!    │                        ▼                          │
//!    └──── replies ◄──── queue of entries ◄── frames ◄───┘
//! ```
//!
//! There is no I/O here. The door gives the router the bytes of the client and of the legs, and
//! carries out its [`Effects`].
//!
//! # Promises
//!
//! - Replies leave in the order of the commands. The commands of one part are executed in their
//!   order. Commands of different parts in a pipeline may be executed in any order, except that a
//!   `PUBLISH` is executed after all commands before it.
//! - The first entry of the queue alone takes bytes of replies. The bytes of other legs stay where
//!   they are, so a slow part or a client that does not read costs no memory here. Only small
//!   replies are kept until those of all parts are there.
//! - A command is sent when all its parts can be reached, and the legs know the client's state. So
//!   a command for which a part is missing has changed nothing.
//! - A transaction, and a script, is in one part. A command that would change several parts
//!   together is refused.
//!
//! # No promises
//!
//! A command to all parts, such as `FLUSHALL`, is not done at once: another client may see its
//! effect in one part and not yet in another. If a part fails meanwhile, the others have done it.

mod commands;
mod elements;
mod frames;
mod merging;
mod replies;
mod routes;
#[cfg(test)]
mod routing_tests;
mod session;
mod transactions;

use super::commands::Names;
use super::key_slots::Parts;
use super::options::ServerOptions;
use super::parser::{Limits, Parsed, Parser};
use super::stop;
use super::writer::{Version, Writer};
use frames::Frames;
use replies::{Entry, Passing, Shown, Then};
use session::Session;
use std::collections::VecDeque;
use std::sync::LazyLock;

/// The most entries of a connection: then no further command is read.
const ENTRIES_MAX: usize = 4096;

/// The bytes of commands that are read in one turn, at least.
const TURN_BYTES: usize = 64 << 10;

/// The commands that are read in one turn.
const TURN_COMMANDS: usize = 512;

/// The table of all commands.
static NAMES: LazyLock<Names> = LazyLock::new(Names::new);

/// The effects of some bytes on connections. The caller empties it.
#[derive(Debug, Default)]
pub struct Effects {
    /// Bytes to the client.
    pub replies: Vec<u8>,
    /// Bytes to parts.
    pub sends: Vec<(u32, Vec<u8>)>,
    /// Parts to which a leg is to be opened. [`Router::opened`] tells that one is open.
    pub opens: Vec<u32>,
    /// Parts whose leg is to be closed.
    pub closes: Vec<u32>,
    /// Parts whose leg gets no more bytes: the part answers to the earlier ones.
    pub ends_inputs: Vec<u32>,
    /// Parts whose bytes are to be offered again.
    pub resumes: Vec<u32>,
    /// Whether the bytes of the client are to be offered again.
    pub resumes_client: bool,
    /// Whether no more bytes go to the parts: they answer, and close the legs.
    pub ends_legs: bool,
    /// Whether the connection ends when the client has taken the replies.
    pub ends: bool,
}

impl Effects {
    fn send(&mut self, part: u32, bytes: &[u8]) {
        match self.sends.iter_mut().find(|(to, _)| *to == part) {
            Some((_, sent)) => sent.extend_from_slice(bytes),
            None => self.sends.push((part, bytes.to_vec())),
        }
    }
}

/// The time at which the router wants more of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// When more bytes have arrived.
    Read,
    /// Soon, after other connections.
    Again,
    /// When the effects say so.
    Wait,
}

/// The bytes of a leg are not of the protocol, or the parts do not agree. The client's connection
/// must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

impl From<frames::Malformed> for Broken {
    fn from(_: frames::Malformed) -> Broken {
        Broken
    }
}

/// The state of a leg.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Closed,
    Opening,
    /// The part learns the client's state. So many replies are missing.
    Learning(usize),
    Ready,
}

/// The stream to a part.
#[derive(Debug, Default)]
struct Leg {
    phase: Phase,
    /// The client's state as the part knows it, and the number of that state.
    session: Session,
    generation: u64,
    frames: Frames,
    /// The bytes of a reply that is kept until it is whole.
    kept: Vec<u8>,
    /// The commands without a whole reply.
    pending: usize,
    /// Whether its bytes wait for their turn.
    waits: bool,
    /// Whether the part gets no more bytes. The leg is closed behind the last reply.
    has_ended: bool,
}

/// A transaction.
#[derive(Debug)]
struct Multi {
    /// The part that queues the commands.
    part: u32,
    /// Whether a key has chosen the part. Until then the transaction may go to another part.
    is_bound: bool,
    /// The commands without keys so far, and their number. Another part gets them, too.
    queued: Vec<u8>,
    count: usize,
    /// `EXEC` does nothing, for a reason that the part does not know.
    is_broken: bool,
    /// The part has refused to begin: it has no transaction.
    is_lost: bool,
}

/// The user `default`, as part 0 knows it: all connections begin as this user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DefaultUser {
    Unknown,
    Asked,
    NeedsPassword,
    NeedsNone,
}

/// The command for whose reply later commands wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Barrier {
    None,
    /// Its reply comes soon.
    Short,
    /// It may wait for elements.
    Blocks,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Router {
    parts: Parts,
    parser: Parser,
    string_bytes_max: usize,
    default_user: DefaultUser,
    /// The client's state, and its number.
    session: Session,
    generation: u64,
    legs: Vec<Leg>,
    entries: VecDeque<Entry>,
    /// A message, or a reply about subscriptions, of which only a part has arrived.
    passing: Option<Passing>,
    /// Whether the client has got only a part of a reply.
    is_within: bool,
    shown: Shown,
    /// Whether the client gets no reply to the present command.
    is_muted: bool,
    barrier: Barrier,
    /// Whether bytes of the client wait for a leg, a reply, or room.
    is_stalled: bool,
    multi: Option<Multi>,
    /// The part of the watched keys.
    watched: Option<u32>,
    /// Whether the client may listen to channels, so that all legs have state.
    listens: bool,
    /// Whether it listens with version 2 of the protocol, and may send few commands.
    is_subscriber: bool,
    /// No further commands are read.
    is_ending: bool,
    /// The client's last bytes are here.
    has_last: bool,
    seed: u64,
}

impl Router {
    /// Returns a router for a new connection.
    #[must_use]
    pub fn new(parts: Parts, options: &ServerOptions, seed: u64) -> Router {
        Router {
            parts,
            parser: Parser::default(),
            string_bytes_max: options.argument_bytes_max(),
            default_user: DefaultUser::Unknown,
            session: Session::default(),
            generation: 0,
            legs: (0..parts.count()).map(|_| Leg::default()).collect(),
            entries: VecDeque::new(),
            passing: None,
            is_within: false,
            shown: Shown::All,
            is_muted: false,
            barrier: Barrier::None,
            is_stalled: false,
            multi: None,
            watched: None,
            listens: false,
            is_subscriber: false,
            is_ending: false,
            has_last: false,
            seed,
        }
    }

    fn limits(&self) -> Limits {
        Limits { string_bytes_max: self.string_bytes_max, is_stranger: self.is_stranger() }
    }

    /// Whether the client may have to give a password first.
    fn is_stranger(&self) -> bool {
        self.default_user != DefaultUser::NeedsNone && self.session.login.is_none()
    }

    /// Opens the leg to part 0, which stands for the connection, and asks there whether the user
    /// `default` needs a password. The client's first commands do not wait for the answer.
    fn ask_for_default_user(&mut self, effects: &mut Effects) {
        let is_time = self.barrier == Barrier::None && self.multi.is_none() && !self.is_ending;
        if self.default_user == DefaultUser::Unknown && is_time && self.prepare(0, effects) {
            self.default_user = DefaultUser::Asked;
            self.expect(0, commands::PING, Then::Asks, effects);
        }
    }

    /// Takes bytes of the client. Returns the number that it has used.
    pub fn take_commands(&mut self, bytes: &[u8], effects: &mut Effects) -> (usize, Wish) {
        let mut parser = std::mem::take(&mut self.parser);
        // The user may have changed since the last command.
        parser.set_limits(self.limits());
        let taken = self.read(&mut parser, bytes, effects);
        self.parser = parser;
        self.answer_own(effects);
        taken
    }

    fn read(&mut self, parser: &mut Parser, bytes: &[u8], effects: &mut Effects) -> (usize, Wish) {
        let (mut used, mut count) = (0, 0);
        self.is_stalled = false;
        self.ask_for_default_user(effects);
        loop {
            if self.is_ending {
                return (bytes.len(), Wish::Read);
            }
            if self.barrier != Barrier::None || self.entries.len() >= ENTRIES_MAX {
                self.is_stalled = true;
                return (used, Wish::Wait);
            }
            if used >= TURN_BYTES || count >= TURN_COMMANDS {
                return (used, Wish::Again);
            }
            let rest = bytes.get(used..).unwrap_or_default();
            match parser.next(rest) {
                Parsed::More => return (used, Wish::Read),
                Parsed::Nothing(length) => used += length,
                Parsed::Error(_) if self.is_stranger() && !self.knows_default_user() => {
                    // Its limits are those of a stranger until the answer has come.
                    self.is_stalled = true;
                    return (used, Wish::Wait);
                }
                Parsed::Error(text) => {
                    self.answer_with(&[&b"ERR "[..], &text].concat());
                    self.end_behind_replies();
                }
                Parsed::Command(length) => {
                    let (Some(own), Some(behind)) = (rest.get(..length), rest.get(length..)) else {
                        return (used, Wish::Read);
                    };
                    let arguments = parser.arguments(rest);
                    if arguments.get(0).is_some_and(stop::is_of_browser) {
                        self.end_behind_replies();
                    } else if !self.command(&arguments, (own, behind), effects) {
                        self.is_stalled = true;
                        return (used, Wish::Wait);
                    }
                    used += length;
                }
            }
            count += 1;
        }
    }

    fn knows_default_user(&self) -> bool {
        !matches!(self.default_user, DefaultUser::Unknown | DefaultUser::Asked)
    }

    /// Answers a command with an error.
    fn answer_with(&mut self, error: &[u8]) {
        let mut bytes = Vec::new();
        Writer::new(&mut bytes, Version::Two).error(error);
        self.entries.push_back(Entry::Own(bytes));
    }

    /// Reads no further command, and ends the connection behind the replies to the earlier ones.
    fn end_behind_replies(&mut self) {
        self.is_ending = true;
        self.entries.push_back(Entry::End);
    }

    /// Prepares a part for a command; returns whether it is ready. Otherwise its leg is opened, or
    /// learns the client's state.
    fn prepare(&mut self, part: u32, effects: &mut Effects) -> bool {
        let generation = self.generation;
        let Some(leg) = self.legs.get_mut(part as usize) else { return false };
        match leg.phase {
            Phase::Closed => {
                leg.phase = Phase::Opening;
                effects.opens.push(part);
                false
            }
            Phase::Opening | Phase::Learning(_) => false,
            Phase::Ready if leg.generation == generation => true,
            // The replies to its commands come first.
            Phase::Ready if leg.pending > 0 => false,
            Phase::Ready => self.teach(part, effects),
        }
    }

    /// Prepares some parts for a command; returns whether all are ready.
    fn prepare_all(&mut self, parts: &[u32], effects: &mut Effects) -> bool {
        let mut are_ready = true;
        for part in parts {
            are_ready &= self.prepare(*part, effects);
        }
        are_ready
    }

    /// Sends the client's state to a part; returns whether the part knows it already.
    fn teach(&mut self, part: u32, effects: &mut Effects) -> bool {
        let Some(leg) = self.legs.get_mut(part as usize) else { return false };
        let (commands, count) = self.session.commands_from(&leg.session);
        (leg.session, leg.generation) = (self.session.clone(), self.generation);
        leg.phase = if count == 0 { Phase::Ready } else { Phase::Learning(count) };
        if count > 0 {
            effects.send(part, &commands);
        }
        count == 0
    }

    /// Takes the news that the leg to a part is open.
    pub fn opened(&mut self, part: u32, effects: &mut Effects) {
        if self.legs.get(part as usize).is_some_and(|leg| leg.phase == Phase::Opening)
            && self.teach(part, effects)
        {
            self.resume_client(effects);
        }
    }

    /// Takes the news that the leg to a part cannot be opened. The client gets an error, which is a
    /// whole reply, behind the replies to earlier commands. Then its connection ends.
    pub fn failed(&mut self, part: u32, error: &[u8], effects: &mut Effects) {
        if let Some(leg) = self.legs.get_mut(part as usize) {
            *leg = Leg::default();
        }
        if !self.is_ending {
            self.entries.push_back(Entry::Own(error.to_vec()));
            self.end_behind_replies();
            self.answer_own(effects);
            // Its unread commands are dropped.
            self.resume_client(effects);
        }
    }

    /// Takes the news that an open leg was closed. Returns whether the client's connection must be
    /// closed, because a command or a state of the connection may be lost.
    ///
    /// The leg to part 0 stands for the connection: `CLIENT KILL` closes it.
    #[must_use]
    pub fn lost(&mut self, part: u32) -> bool {
        let Some(leg) = self.legs.get_mut(part as usize) else { return true };
        let leg = std::mem::take(leg);
        let is_idle = leg.pending == 0 && leg.phase == Phase::Ready && leg.frames.is_between();
        let of_multi = self.multi.as_ref().map(|multi| multi.part);
        let is_needed =
            part == 0 || self.listens || self.watched == Some(part) || of_multi == Some(part);
        !is_idle || is_needed && !self.is_ending
    }

    /// Takes the end of the client's bytes. The replies to its commands still leave.
    pub fn input_ended(&mut self, effects: &mut Effects) {
        if !self.is_ending {
            self.end_behind_replies();
        }
        effects.ends_legs = true;
        self.answer_own(effects);
    }

    /// Takes the news that the client's last bytes are here, and that some of them wait. A client
    /// that waits for elements would get them after it is gone.
    pub fn input_ending(&mut self, effects: &mut Effects) {
        self.has_last = true;
        if self.barrier == Barrier::Blocks {
            self.end_blocked(effects);
        }
    }

    /// Tells the part of the blocking command that no more bytes come. The part closes the leg if
    /// the command waits, and then the connection ends. Otherwise it answers, and the router goes
    /// on with the commands behind it, over a new leg.
    fn end_blocked(&mut self, effects: &mut Effects) {
        let part = self.entries.iter().rev().find_map(|entry| match entry {
            Entry::One { part, then: Then::Blocks, .. } => Some(*part),
            _ => None,
        });
        let Some(part) = part else { return };
        if self.listens || self.watched == Some(part) {
            // A new leg would not have the state of this one. So the unread commands are dropped.
            self.input_ended(effects);
            self.resume_client(effects);
        } else if let Some(leg) = self.legs.get_mut(part as usize) {
            leg.has_ended = true;
            effects.ends_inputs.push(part);
        }
    }

    fn resume_client(&mut self, effects: &mut Effects) {
        effects.resumes_client |= std::mem::take(&mut self.is_stalled);
    }
}
