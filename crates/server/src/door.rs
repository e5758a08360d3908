//! The door for memcached's clients: its connections, and the answers that wait for the log.
//!
//! The door belongs to one node and serves one table, whose objects are all in the node's shard. No
//! other thread takes part: a request is executed on the log where its bytes lie.
//!
//! ```text
//!  bytes ─► parser ─► request ─► executed on the shard ─► answer ─┬─ durable ─────► stream
//!              ▲                        │                         └─ not yet: queue ──┘
//!              └── again later ◄── not served now
//! ```
//!
//! - **Several requests of a connection** are executed in a row, and their answers leave together,
//!   once the log is durable up to the last of them.
//! - **A request that cannot be done now** (its tablet recovers, the cleaners are behind) is
//!   executed again a little later. If that goes on for too long, the client gets an error.
//! - **`flush_all`** makes the table anew: see [`TableBehind`].

mod statistics;
mod table;

pub use table::TableBehind;

use crate::owner::Owner;
use statistics::{Counts, Shown, VERSION};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use table::Store;
use thunderhead_doors::memcached::store::{Executed, execute};
use thunderhead_doors::memcached::{self, reply};
use thunderhead_doors::memcached::{Expiry, Exptime, Parsed, Parser, Request};
use thunderhead_master::{DoorError, Shard};
use thunderhead_net::ConnectionId;
use thunderhead_net::stream::{StreamAddress, Taken, Then};
use thunderhead_rpc::{Context, Node, Service};
use thunderhead_runtime::Time;
use thunderhead_wire::{LogPosition, Status};

/// The answer to a connection for which there is no room.
const FAREWELL: &[u8] = b"ERROR Too many open connections\r\n";

/// The bytes of answers that may wait for the log on one connection. Then no further request of it
/// is executed.
const WAITING_MAX: usize = 256 << 10;

/// The pause before a request that could not be done is executed again.
const PAUSE: Duration = Duration::from_millis(5);

/// The pause between two looks whether the time of a later `flush_all` has come.
const FLUSH_PAUSE: Duration = Duration::from_millis(100);

/// How long a request is executed again before the client gets an error.
const PATIENCE: Duration = Duration::from_secs(2);

/// The cost of a request, beside that of its updates.
const REQUEST: Duration = Duration::from_nanos(300);

/// The options of a door.
#[derive(Clone, Debug)]
pub struct DoorOptions {
    /// The places where it listens.
    pub listen: Vec<StreamAddress>,
    /// Its limits.
    pub limits: Limits,
    /// The table that it serves.
    pub table: Arc<TableBehind>,
    /// The places where it listens indeed, once it does: with the chosen ports.
    pub listens: Arc<OnceLock<Vec<StreamAddress>>>,
}

impl DoorOptions {
    /// Begins to listen.
    pub(crate) fn listen<S: Service>(&self, node: &mut Node<S>) -> io::Result<()> {
        let mut listens = Vec::new();
        // A later generation of the server listens at the same ports.
        for at in self.listens.get().unwrap_or(&self.listen) {
            let (address, _) = node.listen_stream(at, FAREWELL).map_err(|error| {
                io::Error::new(error.kind(), format!("cannot listen at {at}: {error}"))
            })?;
            listens.push(address);
        }
        let _ = self.listens.set(listens);
        Ok(())
    }
}

/// The limits of a door, which `stats settings` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The memory for objects.
    pub memory_bytes: u64,
    /// The longest value.
    pub value_bytes: usize,
    /// Connections at a time.
    pub connections: usize,
    /// Whether `flush_all` is allowed.
    pub may_flush: bool,
    /// Whether objects make room for newer ones when memory is full. Otherwise writes are refused.
    pub evicts: bool,
}

/// A connection.
struct Session {
    parser: Parser,
    /// Answers that wait until the log is durable up to a position.
    waiting: VecDeque<(LogPosition, Vec<u8>)>,
    waiting_bytes: usize,
    /// The position up to which the log must be durable before the next answer leaves: the client
    /// may take it for the answer to earlier requests that had none.
    until: LogPosition,
    /// Keys of the present `get` that were answered before.
    answered: usize,
    /// The first try of the present request, if it could not be done.
    blocked_since: Option<Time>,
    /// The flush that the present request waits for.
    flush: Option<u64>,
    /// No further bytes are taken: the stream ends when all answers have left.
    is_ending: bool,
}

impl Session {
    fn is_full(&self) -> bool {
        self.waiting_bytes >= WAITING_MAX
    }
}

/// The outcome of a request.
enum Next {
    /// The next request may be executed.
    On,
    /// The answer is long, and goes on when the client has taken some of it.
    Later,
    /// It could not be done.
    Blocked(Status),
    /// It waits for a flush.
    Flushes,
    /// The connection ends.
    End,
}

/// See the module's documentation.
pub(crate) struct Door {
    options: Arc<DoorOptions>,
    sessions: BTreeMap<ConnectionId, Session>,
    /// Connections with answers that wait for the log.
    waiting: Vec<ConnectionId>,
    /// Connections whose request is executed again when the timer runs out.
    paused: Vec<ConnectionId>,
    counts: Counts,
    began: Option<Time>,
    /// The second of a `flush_all` that is to happen later.
    flushes_at: Option<u64>,
    /// The time at which the next timer runs out.
    timer_at: Time,
    out: Vec<u8>,
    buffer: Vec<u8>,
}

impl Door {
    pub(crate) fn new(options: Arc<DoorOptions>) -> Door {
        Door {
            options,
            sessions: BTreeMap::new(),
            waiting: Vec::new(),
            paused: Vec::new(),
            counts: Counts::default(),
            began: None,
            flushes_at: None,
            timer_at: Time::NEVER,
            out: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// Begins to serve, at the start of a generation.
    pub(crate) fn begin(&mut self, now: Time) {
        self.began = Some(now);
    }

    pub(crate) fn opened(&mut self, context: &mut Context<'_>, stream: ConnectionId) {
        if self.sessions.len() >= self.options.limits.connections {
            context.send_bytes(stream, &[FAREWELL]);
            return context.finish_stream(stream);
        }
        self.counts.connections += 1;
        let limits = memcached::Limits {
            value_bytes_max: self.options.limits.value_bytes,
            ..memcached::Limits::default()
        };
        let session = Session {
            parser: Parser::new(limits),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            until: LogPosition::default(),
            answered: 0,
            blocked_since: None,
            flush: None,
            is_ending: false,
        };
        self.sessions.insert(stream, session);
    }

    pub(crate) fn closed(&mut self, stream: ConnectionId) {
        self.sessions.remove(&stream);
    }

    /// Handles the end of a client's input: the answers still leave.
    pub(crate) fn ended(&mut self, context: &mut Context<'_>, stream: ConnectionId) {
        if let Some(session) = self.sessions.get_mut(&stream) {
            session.is_ending = true;
            if session.waiting.is_empty() {
                context.finish_stream(stream);
            }
        }
    }

    /// Executes the requests in the bytes of a connection.
    pub(crate) fn bytes(
        &mut self,
        context: &mut Context<'_>,
        mut shard: Option<&mut Shard>,
        from: ConnectionId,
        bytes: &[u8],
    ) -> Taken {
        let Some(mut session) = self.sessions.remove(&from) else {
            return Taken::read_on(bytes.len());
        };
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        let mut used = 0;
        let then = loop {
            if session.is_ending {
                used = bytes.len();
                break Then::Read;
            }
            if session.is_full() {
                break Then::Wait;
            }
            if used > 0 && !context.may_go_on(from) || out.len() >= WAITING_MAX {
                self.counts.yields += 1;
                break Then::Again;
            }
            let rest = bytes.get(used..).unwrap_or_default();
            let request = match session.parser.next(rest) {
                Parsed::More => break Then::Read,
                Parsed::Refused(answer, taken) => {
                    self.counts.count_refused(answer);
                    out.extend_from_slice(answer);
                    used += taken;
                    continue;
                }
                Parsed::Discarded(taken) => {
                    used += taken;
                    continue;
                }
                Parsed::Close => {
                    session.is_ending = true;
                    continue;
                }
                Parsed::Request(request, taken) => (request, taken),
            };
            let (request, taken) = request;
            context.charge(REQUEST);
            let shard = shard.as_deref_mut();
            match self.request(context, shard, &mut session, &request, &mut out) {
                Next::On => {
                    used += taken;
                    (session.answered, session.blocked_since) = (0, None);
                }
                Next::Later => break Then::Again,
                Next::Flushes => {
                    self.paused.push(from);
                    break Then::Wait;
                }
                Next::Blocked(status) => {
                    let since = *session.blocked_since.get_or_insert(context.now());
                    if context.now() < since + PATIENCE {
                        self.paused.push(from);
                        break Then::Wait;
                    }
                    if !request.wants_no_answer() {
                        let error = format!("SERVER_ERROR try again later: {status}");
                        reply::line(&mut out, &error);
                    }
                    // The next requests fail at once, as long as the cause lasts.
                    used += taken;
                    session.answered = 0;
                }
                Next::End => {
                    session.is_ending = true;
                    used += taken;
                }
            }
        };
        self.counts.bytes_read += used as u64;
        let durable = shard.map_or(LogPosition::default(), |shard| shard.durable());
        self.answer(context, (from, &mut session), durable, &out);
        if session.is_ending && session.waiting.is_empty() {
            context.finish_stream(from);
        }
        self.out = out;
        self.sessions.insert(from, session);
        self.set_timer(context);
        Taken { bytes: used, then }
    }

    /// Sends answers, or queues them until they are durable.
    fn answer(
        &mut self,
        context: &mut Context<'_>,
        (to, session): (ConnectionId, &mut Session),
        durable: LogPosition,
        out: &[u8],
    ) {
        if out.is_empty() {
            return;
        }
        self.counts.bytes_written += out.len() as u64;
        let until = session.until;
        if session.waiting.is_empty() && until <= durable {
            return context.send_bytes(to, &[out]);
        }
        if session.waiting.is_empty() {
            self.waiting.push(to);
        }
        session.waiting_bytes += out.len();
        session.waiting.push_back((until, out.to_vec()));
    }

    /// Executes a request.
    fn request(
        &mut self,
        context: &mut Context<'_>,
        shard: Option<&mut Shard>,
        session: &mut Session,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Next {
        if let Request::FlushAll { delay, no_reply } = request {
            return self.flush(session, shard, *delay, *no_reply, out);
        }
        if let Some(next) = self.without_objects(context, shard.as_deref(), request, out) {
            return next;
        }
        let (Some(shard), Some(table)) = (shard, self.options.table.table()) else {
            return Next::Blocked(Status::Busy);
        };
        let objects = match shard.door(context, table, self.options.limits.evicts) {
            Ok(objects) => objects,
            Err(DoorError::NotNow(status)) => return Next::Blocked(status),
            Err(DoorError::Log(_)) => return Next::Blocked(Status::Busy),
        };
        let mut store = Store {
            objects,
            buffer: &mut self.buffer,
            blocked: None,
            has_updated: false,
            found: 0,
            missed: 0,
        };
        let before = out.len();
        let mut next = Next::On;
        let request = match request {
            // The keys before were answered already.
            Request::Get { keys, with_cas, touch } if session.answered > 0 => {
                let mut keys = *keys;
                keys.by_ref().take(session.answered).for_each(drop);
                Request::Get { keys, with_cas: *with_cas, touch: *touch }
            }
            other => other.clone(),
        };
        let executed = execute(&mut store, &request, out);
        let Store { objects, blocked, has_updated, found, missed, .. } = store;
        context.charge(objects.cost());
        session.until = session.until.max(objects.until());
        // The touches of a `gat` may be repeated.
        if let Some(status) = blocked
            && (!has_updated || matches!(request, Request::Get { .. }))
        {
            out.truncate(before);
            return Next::Blocked(status);
        }
        if let (Executed::Unfinished(Request::Get { keys: left, .. }), Request::Get { keys, .. }) =
            (executed, &request)
        {
            session.answered += keys.count() - left.count();
            next = Next::Later;
        }
        let answer = out.get(before..).unwrap_or_default();
        self.counts.count(&request, (found, missed, has_updated), answer);
        next
    }

    /// Executes a request that concerns no objects; `None` for any other.
    fn without_objects(
        &mut self,
        context: &mut Context<'_>,
        shard: Option<&Shard>,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Next> {
        match request {
            Request::Version => reply::line(out, &format!("VERSION {VERSION}")),
            Request::Quit => return Some(Next::End),
            Request::Verbosity { no_reply } => {
                if !no_reply {
                    reply::line(out, "OK");
                }
            }
            Request::MemoryLimit { no_reply, .. } => {
                if !no_reply {
                    reply::line(out, "SERVER_ERROR start the server again to change its memory");
                }
            }
            Request::Shutdown => reply::line(out, "ERROR: shutdown not enabled"),
            Request::Stats(words) => {
                let words: Vec<&[u8]> = words.collect();
                if words.first() == Some(&&b"reset"[..]) {
                    self.counts = Counts::default();
                    reply::line(out, "RESET");
                } else if !self.statistics(context, shard, &words, out) {
                    reply::line(out, "ERROR");
                }
            }
            _ => return None,
        }
        Some(Next::On)
    }

    fn statistics(
        &self,
        context: &Context<'_>,
        shard: Option<&Shard>,
        words: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> bool {
        let table = self.options.table.table();
        let objects = shard.zip(table).map_or(0, |(shard, table)| shard.objects_of(table));
        let shown = Shown {
            counts: &self.counts,
            limits: &self.options.limits,
            usage: shard.map(Shard::usage).unwrap_or_default(),
            objects,
            // That of the asking client is at work and not in the list.
            connections: self.sessions.len() + 1,
            seconds: shard.map_or(0, |shard| shard.time().0 / 1000),
            uptime: self.began.map_or(0, |began| context.now().since(began).as_secs()),
        };
        statistics::write(&shown, words, out)
    }

    /// Executes `flush_all`.
    fn flush(
        &mut self,
        session: &mut Session,
        shard: Option<&mut Shard>,
        delay: Exptime,
        no_reply: bool,
        out: &mut Vec<u8>,
    ) -> Next {
        let Some(shard) = shard else { return Next::Blocked(Status::Busy) };
        if !self.options.limits.may_flush {
            if !no_reply {
                reply::line(out, "CLIENT_ERROR flush_all not allowed");
            }
            return Next::On;
        }
        let now = shard.time().0 / 1000;
        let at = match delay.expiry() {
            Expiry::In(seconds) => now + u64::from(seconds),
            Expiry::At(second) => u64::from(second),
            Expiry::Never | Expiry::Past => now,
        };
        if at > now {
            self.flushes_at = Some(at);
        } else {
            let table = &self.options.table;
            let number = *session.flush.get_or_insert_with(|| table.want_flush());
            if !table.is_flushed(number) {
                return Next::Flushes;
            }
            session.flush = None;
            self.flushes_at = None;
        }
        self.counts.flush += 1;
        if !no_reply {
            reply::line(out, "OK");
        }
        Next::On
    }

    /// Whether the door has work at the end of this turn.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Sends the answers that are durable now.
    pub(crate) fn turn_over(&mut self, context: &mut Context<'_>, durable: LogPosition) {
        let Door { sessions, waiting, .. } = self;
        waiting.retain(|stream| {
            let Some(session) = sessions.get_mut(stream) else { return false };
            let was_full = session.is_full();
            while session.waiting.front().is_some_and(|(until, _)| *until <= durable)
                && let Some((_, answer)) = session.waiting.pop_front()
            {
                session.waiting_bytes -= answer.len();
                context.send_bytes(*stream, &[&answer]);
            }
            if was_full && !session.is_full() {
                context.resume_stream(*stream);
            }
            if session.waiting.is_empty() && session.is_ending {
                context.finish_stream(*stream);
            }
            !session.waiting.is_empty()
        });
    }

    /// Sets a timer, if there is anything to do later.
    fn set_timer(&mut self, context: &mut Context<'_>) {
        let pause = match (self.paused.is_empty(), self.flushes_at) {
            (true, None) => return,
            (true, Some(_)) => FLUSH_PAUSE,
            (false, _) => PAUSE,
        };
        let at = context.now() + pause;
        if at < self.timer_at {
            self.timer_at = at;
            context.set_timer(at, Owner::Door);
        }
    }

    /// Lets paused requests be executed again, and flushes when the time for that has come.
    pub(crate) fn on_timer(&mut self, context: &mut Context<'_>, shard: Option<&Shard>) {
        if context.now() < self.timer_at {
            return; // An earlier one came first, and has set the next.
        }
        self.timer_at = Time::NEVER;
        for stream in std::mem::take(&mut self.paused) {
            context.resume_stream(stream);
        }
        let now = shard.map_or(0, |shard| shard.time().0 / 1000);
        if self.flushes_at.is_some_and(|at| at <= now) {
            self.flushes_at = None;
            self.options.table.want_flush();
        }
        self.set_timer(context);
    }
}
