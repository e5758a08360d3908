//! The door for memcached's clients: one table, on which requests are executed.
//!
//! `flush_all` replaces the table by a new one: see [`TableBehind`].

mod statistics;
mod table;

pub use table::TableBehind;

use super::{Next, Protocol, World};
use statistics::{Counts, Shown, VERSION};
use std::sync::Arc;
use std::time::Duration;
use table::Store;
use thunderhead_doors::memcached::store::{Executed, execute};
use thunderhead_doors::memcached::{self, reply};
use thunderhead_doors::memcached::{Expiry, Exptime, Parsed, Parser, Request, Run};
use thunderhead_master::{DoorError, Shard};
use thunderhead_net::ConnectionId;
use thunderhead_net::stream::Opened;
use thunderhead_runtime::Time;
use thunderhead_wire::Status;

/// The pause between two looks whether the time of a later `flush_all` has come.
const FLUSH_PAUSE: Duration = Duration::from_millis(100);

/// The cost of a request, beside that of its updates.
const REQUEST: Duration = Duration::from_nanos(300);

/// The options of a door for memcached's clients.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its limits.
    pub limits: Limits,
    /// The table that it serves.
    pub table: Arc<TableBehind>,
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

/// The state of a connection.
pub(crate) struct Session {
    parser: Parser,
    /// Keys of the present `get` that were answered before.
    answered: usize,
    /// The flush that the present request waits for.
    flush: Option<u64>,
}

/// See the module's documentation.
pub(crate) struct Memcached {
    options: Options,
    counts: Counts,
    began: Option<Time>,
    /// The second of a `flush_all` that is to happen later.
    flushes_at: Option<u64>,
    buffer: Vec<u8>,
}

impl Protocol for Memcached {
    type Session = Session;

    const FAREWELL: &'static [u8] = b"ERROR Too many open connections\r\n";

    const PATIENCE: Duration = Duration::from_secs(2);

    fn connections_max(&self) -> usize {
        self.options.limits.connections
    }

    fn begin(&mut self, now: Time) {
        self.began = Some(now);
    }

    fn opened(&mut self, _: Time, _: ConnectionId, _: &Opened) -> Session {
        self.counts.connections += 1;
        let limits = memcached::Limits {
            value_bytes_max: self.options.limits.value_bytes,
            ..memcached::Limits::default()
        };
        Session { parser: Parser::new(limits), answered: 0, flush: None }
    }

    fn closed(&mut self, _: ConnectionId, _: Session) {}

    fn execute(
        &mut self,
        world: &mut World<'_, '_>,
        (_, session): (ConnectionId, &mut Session),
        bytes: &[u8],
    ) -> Next {
        let (request, taken) = match session.parser.next(bytes) {
            Parsed::More => return Next::More,
            Parsed::Refused(answer, taken) => {
                self.counts.count_refused(answer);
                world.out.extend_from_slice(answer);
                return Next::Done(taken);
            }
            Parsed::Discarded(taken) => return Next::Done(taken),
            Parsed::Close => return Next::End(bytes.len()),
            Parsed::Request(request, taken) => (request, taken),
        };
        world.context.charge(REQUEST);
        if let Request::MetaGet(meta) = &request
            && let Some(run) = Run::of(meta, bytes)
            && let Some(next) = self.run(world, run)
        {
            return next;
        }
        let next = self.request(world, session, (&request, taken));
        if let Next::Done(_) = next {
            session.answered = 0;
        }
        next
    }

    fn give_up(
        &mut self,
        world: &mut World<'_, '_>,
        (_, session): (ConnectionId, &mut Session),
        bytes: &[u8],
        status: Status,
    ) -> Next {
        session.answered = 0;
        let Parsed::Request(request, taken) = session.parser.next(bytes) else {
            return Next::End(bytes.len());
        };
        if !request.wants_no_answer() {
            reply::line(world.out, &format!("SERVER_ERROR try again later: {status}"));
        }
        Next::Done(taken)
    }

    fn count_bytes(&mut self, read: usize, written: usize) {
        self.counts.bytes_read += read as u64;
        self.counts.bytes_written += written as u64;
    }

    fn count_yield(&mut self) {
        self.counts.yields += 1;
    }

    fn pause(&self, _: Time) -> Option<Duration> {
        self.flushes_at.map(|_| FLUSH_PAUSE)
    }

    fn on_time(&mut self, world: &mut World<'_, '_>) {
        let now = world.shard.as_ref().map_or(0, |shard| shard.time().0 / 1000);
        if self.flushes_at.is_some_and(|at| at <= now) {
            self.flushes_at = None;
            self.options.table.want_flush();
        }
    }
}

impl Memcached {
    pub(crate) fn new(options: &Options) -> Memcached {
        Memcached {
            options: options.clone(),
            counts: Counts::default(),
            began: None,
            flushes_at: None,
            buffer: Vec::new(),
        }
    }

    fn request(
        &mut self,
        world: &mut World<'_, '_>,
        session: &mut Session,
        (request, taken): (&Request<'_>, usize),
    ) -> Next {
        if let Request::FlushAll { delay, no_reply } = request {
            return self.flush(world, session, (*delay, *no_reply), taken);
        }
        if let Some(next) = self.without_objects(world, (request, taken)) {
            return next;
        }
        let (Some(shard), Some(table)) = (world.shard.as_deref_mut(), self.options.table.table())
        else {
            return Next::Blocked(Status::Busy);
        };
        let objects = match shard.door(world.context, table, self.options.limits.evicts) {
            Ok(objects) => objects,
            Err(DoorError::NotNow(status)) => return Next::Blocked(status),
            Err(DoorError::Log(_)) => return Next::Blocked(Status::Busy),
        };
        let mut store = Store::new(objects, &mut self.buffer);
        let before = world.out.len();
        let request = match request {
            // The keys before were answered already.
            Request::Get { keys, with_cas, touch } if session.answered > 0 => {
                let mut keys = *keys;
                keys.by_ref().take(session.answered).for_each(drop);
                Request::Get { keys, with_cas: *with_cas, touch: *touch }
            }
            other => other.clone(),
        };
        let executed = execute(&mut store, &request, world.out);
        let Store { objects, blocked, has_updated, found, missed, .. } = store;
        let (cost, until) = (objects.cost(), objects.until());
        world.context.charge(cost);
        world.until = world.until.max(until);
        // The touches of a `gat` may be repeated.
        if let Some(status) = blocked
            && (!has_updated || matches!(request, Request::Get { .. }))
        {
            world.out.truncate(before);
            return Next::Blocked(status);
        }
        let mut next = Next::Done(taken);
        if let (Executed::Unfinished(Request::Get { keys: left, .. }), Request::Get { keys, .. }) =
            (executed, &request)
        {
            session.answered += keys.count() - left.count();
            next = Next::Later;
        }
        let answer = world.out.get(before..).unwrap_or_default();
        self.counts.count(&request, (found, missed, has_updated), answer);
        next
    }

    /// Executes a run of requests; `None` if the first of them has to be executed by itself.
    fn run(&mut self, world: &mut World<'_, '_>, run: Run<'_>) -> Option<Next> {
        let (shard, table) = (world.shard.as_deref_mut()?, self.options.table.table()?);
        let objects = shard.door(world.context, table, self.options.limits.evicts).ok()?;
        let mut store = Store::new(objects, &mut self.buffer);
        let before = world.out.len();
        let done = run.execute(&mut store, world.out);
        let Store { objects, blocked, .. } = store;
        let (cost, until) = (objects.cost(), objects.until());
        world.context.charge(cost);
        if blocked.is_some() || done.bytes == 0 {
            world.out.truncate(before);
            return None;
        }
        world.until = world.until.max(until);
        self.counts.count_read(done.found, done.missed);
        Some(Next::Done(done.bytes))
    }

    /// Executes a request that concerns no objects; `None` for any other.
    fn without_objects(
        &mut self,
        world: &mut World<'_, '_>,
        (request, taken): (&Request<'_>, usize),
    ) -> Option<Next> {
        let out = &mut *world.out;
        match request {
            Request::Version => reply::line(out, &format!("VERSION {VERSION}")),
            Request::Quit => return Some(Next::End(taken)),
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
                } else if !self.statistics(world, &words) {
                    reply::line(world.out, "ERROR");
                }
            }
            _ => return None,
        }
        Some(Next::Done(taken))
    }

    fn statistics(&self, world: &mut World<'_, '_>, words: &[&[u8]]) -> bool {
        let table = self.options.table.table();
        let shard = world.shard.as_deref();
        let objects = shard.zip(table).map_or(0, |(shard, table)| shard.objects_of(table));
        let now = world.context.now();
        let shown = Shown {
            counts: &self.counts,
            limits: &self.options.limits,
            usage: shard.map(Shard::usage).unwrap_or_default(),
            objects,
            connections: world.connections,
            seconds: shard.map_or(0, |shard| shard.time().0 / 1000),
            uptime: self.began.map_or(0, |began| now.since(began).as_secs()),
        };
        statistics::write(&shown, words, world.out)
    }

    /// Executes `flush_all`.
    fn flush(
        &mut self,
        world: &mut World<'_, '_>,
        session: &mut Session,
        (delay, no_reply): (Exptime, bool),
        taken: usize,
    ) -> Next {
        let Some(shard) = &world.shard else { return Next::Blocked(Status::Busy) };
        if !self.options.limits.may_flush {
            if !no_reply {
                reply::line(world.out, "CLIENT_ERROR flush_all not allowed");
            }
            return Next::Done(taken);
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
                return Next::Works;
            }
            session.flush = None;
            self.flushes_at = None;
        }
        self.counts.flush += 1;
        if !no_reply {
            reply::line(world.out, "OK");
        }
        Next::Done(taken)
    }
}
