//! The door for Redis's clients: databases are tables of the shard.

mod databases;
mod key_parts;
mod store;
mod strays;

pub use databases::{CATALOG_KEY, Databases, TableWork, TakeOver};
pub use key_parts::KeyParts;
pub(super) use strays::Strays;

use super::{Next, Protocol, World};
use databases::Tables;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use store::{Absent, Caches, Store, has_pages};
use thunderhead_doors::resp::{
    ClientId, Facts, Nodes, Output, Port, ScriptClock, Server, ServerOptions, Settings, Step, Swept,
};
use thunderhead_net::ConnectionId;
use thunderhead_net::stream::Opened;
use thunderhead_runtime::Time;
use thunderhead_wire::{LogPosition, MasterId, Status, TableId};

/// The cost of a command, beside that of its updates.
const COMMAND: Duration = Duration::from_nanos(300);

/// The age from which on the facts for `INFO` are gathered anew.
const FACTS_AGE: Duration = Duration::from_millis(500);

/// The pauses between two looks for pages of collections that are gone: usually, and while there
/// are more of them.
const SWEEP_PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(1));

/// The pages that are looked at, at most, in one look.
const SWEPT_PAGES: usize = 100;

/// The same while a collection waits for it: nothing is evicted meanwhile, so writes may wait.
const FREED_PAGES: usize = 500;

/// The options of a door for Redis's clients.
#[derive(Clone, Debug)]
pub struct Options {
    /// The properties that its clients see.
    pub server: ServerOptions,
    /// The tables behind its databases.
    pub databases: Arc<Databases>,
    /// The settings that clients have changed, for the next generation of the server.
    pub settings: Arc<Mutex<Option<Settings>>>,
}

/// See the module's documentation.
pub(crate) struct Redis {
    server: Server,
    options: Options,
    tables: Tables,
    /// The connections of clients.
    connections: BTreeMap<ClientId, ConnectionId>,
    last_client: ClientId,
    output: Output,
    facts: Facts,
    /// The time at which the facts are gathered anew.
    facts_until: Time,
    began: Time,
    /// The time of the next look for useless pages, if there are any pages.
    sweeps_at: Option<Time>,
    /// A time, and the same time in milliseconds since 1970.
    clock: (Time, u64),
    /// A key as the log has it, and a value.
    buffers: (Vec<u8>, Vec<u8>),
    /// The number of its part, and the evicted objects of other parts that are in this shard.
    of_part: Option<OfPart>,
}

/// The number of a part of the keys, and the evicted objects that its door shares with others.
type OfPart = (u32, Rc<RefCell<Strays>>);

impl Protocol for Redis {
    type Session = ClientId;

    const FAREWELL: &'static [u8] = b"-ERR max number of clients reached\r\n";

    const PATIENCE: Duration = Duration::from_secs(2);

    fn connections_max(&self) -> usize {
        self.options.server.clients_max
    }

    fn begin(&mut self, now: Time) {
        self.began = now;
        // The log of this generation tells the tables.
        self.tables = Tables::default();
    }

    fn opened(&mut self, now: Time, connection: ConnectionId, opened: &Opened) -> ClientId {
        self.last_client += 1;
        let client = self.last_client;
        self.connections.insert(client, connection);
        let peer = opened.peer.map_or_else(|| "/:0".to_owned(), |peer| peer.to_string());
        let local = format!("127.0.0.1:{}", self.options.server.port);
        // The shard tells the time. Before it serves, the time is unknown.
        let now = if self.clock.1 == 0 { 0 } else { self.milliseconds(now) };
        self.server.opened(client, &peer, &local, now);
        self.facts.connections += 1;
        client
    }

    fn ended(&mut self, client: &ClientId) {
        self.server.stops_waiting(*client);
    }

    fn closed(&mut self, _: ConnectionId, client: ClientId) {
        self.connections.remove(&client);
        self.server.closed(client);
    }

    fn execute(
        &mut self,
        world: &mut World<'_, '_>,
        (_, client): (ConnectionId, &mut ClientId),
        bytes: &[u8],
    ) -> Next {
        world.context.charge(COMMAND);
        let client = *client;
        self.begin_output(world);
        let (step, blocked) = self.with_store(world, |server, store, facts, output| match store {
            Ok(store) => server.step(store, facts, client, bytes, output),
            Err(absent) => server.step(absent, facts, client, bytes, output),
        });
        self.next(world, step, blocked)
    }

    fn give_up(
        &mut self,
        world: &mut World<'_, '_>,
        (_, client): (ConnectionId, &mut ClientId),
        bytes: &[u8],
        status: Status,
    ) -> Next {
        tracing::warn!(%status, "a command could not be done for too long");
        let is_full = status == Status::AwaitingMemory;
        self.begin_output(world);
        let step = self.server.give_up(*client, bytes, is_full, &mut self.output);
        self.next(world, step, Status::Busy)
    }

    fn count_bytes(&mut self, read: usize, written: usize) {
        self.facts.received_bytes += read as u64;
        self.facts.sent_bytes += written as u64;
    }

    fn on_durable(&mut self, durable: LogPosition) {
        self.tables.on_durable(durable, &self.options.databases);
    }

    fn waits_for_log(&self) -> bool {
        self.tables.waits_for_log()
    }

    fn pause(&self, now: Time) -> Option<Duration> {
        let of_clients = self.server.deadline().map(|deadline| {
            Duration::from_millis(deadline.saturating_sub(self.milliseconds(now)).max(1))
        });
        let of_pages = self.sweeps_at.map(|at| at.since(now));
        of_clients.into_iter().chain(of_pages).min()
    }

    fn on_time(&mut self, world: &mut World<'_, '_>) {
        self.begin_output(world);
        self.with_store(world, |server, store, facts, output| match store {
            Ok(store) => server.on_time(store, facts, output),
            Err(absent) => server.on_time(absent, facts, output),
        });
        self.affect(world);
        if self.sweeps_at.is_some_and(|at| at <= world.context.now()) {
            self.begin_output(world);
            let (swept, _) = self.with_store(world, |server, store, _, output| match store {
                Ok(store) if server.is_freeing() => server.sweep(store, FREED_PAGES, output),
                Ok(store) => server.sweep(store, SWEPT_PAGES, output),
                Err(_) => Swept::default(),
            });
            self.affect(world);
            let (usual, hurried) = SWEEP_PAUSES;
            let pause = if swept.has_more { hurried } else { usual };
            self.sweeps_at = Some(world.context.now() + pause);
        }
    }
}

/// The next generation goes on with the settings of its clients.
impl Drop for Redis {
    fn drop(&mut self) {
        let mut kept = self.options.settings.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = Some(self.server.settings());
    }
}

impl Redis {
    pub(crate) fn new(options: &Options) -> Redis {
        let facts = Facts { process: std::process::id(), ..Facts::default() };
        let mut server = Server::new(options.server.clone());
        let kept = options.settings.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(settings) = kept {
            server.take_settings(settings);
        }
        Redis {
            server,
            options: options.clone(),
            tables: Tables::default(),
            connections: BTreeMap::new(),
            last_client: 0,
            output: Output::default(),
            facts,
            facts_until: Time::default(),
            began: Time::default(),
            sweeps_at: None,
            clock: (Time::default(), 0),
            buffers: (Vec::new(), Vec::new()),
            of_part: None,
        }
    }

    /// Sets the number of its part, and the place for evicted objects of other parts.
    pub(super) fn set_strays(&mut self, part: u32, strays: Rc<RefCell<Strays>>) {
        self.of_part = Some((part, strays));
    }

    /// Whether the log notes evicted keys: it does so for all parts that share the shard.
    fn notes_evicted_keys(&self) -> bool {
        let tells = self.server.tells_evicted();
        let of_part = self.of_part.as_ref();
        of_part.map_or(tells, |(part, strays)| strays.borrow_mut().set_tells(*part, tells))
    }

    /// Looks for useless pages soon.
    pub(super) fn sweep_at(&mut self, now: Time) {
        self.sweeps_at = Some(now);
    }

    /// Sets the port of a client that has just connected.
    pub(super) fn set_port(&mut self, client: ClientId, port: Port) {
        self.server.set_port(client, port);
    }

    /// Takes the nodes of the cluster.
    pub(super) fn set_nodes(&mut self, nodes: Nodes) {
        self.server.set_nodes(nodes);
    }

    /// Takes over the databases with a shard that owns their tables from now on. Nothing that was
    /// known of them before holds.
    pub(super) fn take_over(&mut self, catalog: TableId, master: MasterId) {
        self.tables = Tables::default();
        self.options.databases.take_over(catalog, master);
        self.server.forget_users();
    }

    fn milliseconds(&self, now: Time) -> u64 {
        let (at, milliseconds) = self.clock;
        milliseconds + now.since(at).as_millis() as u64
    }

    /// Runs `act` with the store, or with an absent one if the shard does not serve. Returns the
    /// reason for which an operation was blocked, too.
    fn with_store<T>(
        &mut self,
        world: &mut World<'_, '_>,
        act: impl FnOnce(&mut Server, Result<&mut Store<'_, '_>, &mut Absent>, &Facts, &mut Output) -> T,
    ) -> (T, Status) {
        let now = world.context.now();
        self.gather_facts(world, now);
        let expiring = self.server.caches(Some(0));
        let caches = Caches { expiring, lasting: self.server.caches(None) };
        if !self.server.has_script_clock() {
            let clock = world.context.clock();
            let read = move || clock.now().since(Time::default());
            self.server.set_script_clock(ScriptClock::new(read));
        }
        let catalog = self.options.databases.catalog();
        let mut why = Status::Busy;
        let door = match (world.shard.as_deref_mut(), catalog) {
            (Some(shard), Some(catalog)) => {
                self.clock = (now, shard.time().0);
                let door = shard.door(world.context, catalog, expiring);
                door.inspect_err(|error| why = error.status()).ok()
            }
            _ => None,
        };
        let Some(mut door) = door else {
            let mut absent = Absent { now: self.milliseconds(now) };
            let Redis { server, output, facts, .. } = self;
            return (act(server, Err(&mut absent), facts, output), why);
        };
        let is_freeing = self.server.is_freeing();
        door.keep_evicted(has_pages, is_freeing);
        door.note_evicted_keys(self.notes_evicted_keys());
        let time = self.clock.1;
        let Redis { server, options, tables, output, facts, buffers, of_part, .. } = self;
        let mut store =
            Store::new((door, time), tables, &options.databases, buffers, (caches, is_freeing));
        let result = act(server, Ok(&mut store), facts, output);
        if let Some((part, strays)) = of_part {
            // A client may want to be told from now on, and another door may be the next one.
            strays.borrow_mut().set_tells(*part, server.tells_evicted());
        }
        let of_part = of_part.as_ref();
        let (evicted, keys) = (store.evicted(of_part), store.evicted_keys(of_part));
        let (cost, until, blocked) = store.end();
        if !keys.is_empty() {
            server.tell_evicted(keys, output);
        }
        if !evicted.is_empty() {
            server.note_evicted(evicted);
            self.sweeps_at = Some(now);
        }
        world.context.charge(cost);
        world.until = world.until.max(until);
        if server.is_freeing() {
            // Writes may wait for this memory.
            let soon = now + SWEEP_PAUSES.1;
            self.sweeps_at = Some(self.sweeps_at.map_or(soon, |at| at.min(soon)));
        }
        let has_work = self.tables.have_pages() || self.server.looks_for_expiries();
        if self.sweeps_at.is_none() && has_work {
            self.sweeps_at = Some(now + SWEEP_PAUSES.0);
        }
        (result, blocked)
    }

    /// Takes the effects of a step.
    fn next(&mut self, world: &mut World<'_, '_>, step: Step, blocked: Status) -> Next {
        self.affect(world);
        match step {
            Step::More => Next::More,
            Step::Done(used) => Next::Done(used),
            Step::NotNow if self.server.awaits_memory() => Next::Blocked(Status::AwaitingMemory),
            Step::NotNow => Next::Blocked(blocked),
            Step::Waits(used) => Next::Waits(used),
            Step::End(used) => Next::End(used),
        }
    }

    /// Lets replies go straight behind the earlier ones of the connection.
    fn begin_output(&mut self, world: &mut World<'_, '_>) {
        std::mem::swap(world.out, &mut self.output.replies);
    }

    /// Takes the effects on connections, after [`Redis::begin_output`].
    fn affect(&mut self, world: &mut World<'_, '_>) {
        let Redis { output, connections, .. } = self;
        std::mem::swap(world.out, &mut output.replies);
        let Output { messages, ended, woken, .. } = output;
        if messages.is_empty() && ended.is_empty() && woken.is_empty() {
            return;
        }
        let of = |client: ClientId| connections.get(&client).copied();
        let others = &mut *world.others;
        let messages = messages.drain(..);
        others.messages.extend(messages.filter_map(|(to, bytes)| Some((of(to)?, bytes))));
        others.ended.extend(ended.drain(..).filter_map(of));
        others.woken.extend(woken.drain(..).filter_map(of));
    }

    fn gather_facts(&mut self, world: &World<'_, '_>, now: Time) {
        if now < self.facts_until {
            return;
        }
        self.facts_until = now + FACTS_AGE;
        let Some(shard) = world.shard.as_deref() else { return };
        let usage = shard.usage();
        let facts = &mut self.facts;
        facts.used_memory = usage.live_bytes + usage.index_bytes;
        facts.used_memory_peak = facts.used_memory_peak.max(facts.used_memory);
        facts.resident_memory = usage.log_bytes + usage.index_bytes - usage.free_bytes;
        facts.machine_memory = usage.log_bytes + usage.index_bytes;
        facts.uptime_seconds = now.since(self.began).as_secs();
        (facts.evicted, facts.expired) = (usage.evicted, usage.expired);
    }
}
