//! The server of the protocol: its clients, and the execution of their commands on a store.
//!
//! There is no I/O here: [`Server::step`] takes the bytes of a connection, executes one command or
//! a few (see [`runs`](super::runs)), and returns the bytes to send.
//! ```text
//!  bytes ─► parser ─► table of commands ─► function ─► changes ─► store
//!                                             │                     │
//!                                             └─► reply ◄── all or nothing
//! ```
//!
//! # Promises
//!
//! - A command, or a whole `MULTI`, is done at once: no other command sees a part of it. After
//!   [`Step::NotNow`] nothing of it is left, and it can be executed again.
//! - Clients that wait for elements are served in the order in which they began to wait, before the
//!   next command of another client.
//! - The outcome depends only on the store, on the facts and on the bytes: there is no other clock.

use super::acl::Users;
use super::acl::{AclLog, Circumstance};
use super::blocked::Blocked;
use super::channels::Channels;
use super::client::{Client, Multi, Queued};
use super::cluster::{self, Nodes, Port};
use super::commands::{ADMIN, AT_ONCE, Command, Names};
use super::context::{Context, is};
use super::counts::Counts;
use super::events::{Events, Kinds};
use super::header::{Dropped, Header};
use super::latency::Monitor;
use super::options::{Facts, ServerOptions};
use super::overlay::Overlay;
use super::parser::{Arguments, Limits, Parsed, Parser};
use super::paused::Paused;
use super::runs::Runs;
use super::scripts::{ScriptClock, Scripts};
use super::settings::Settings;
use super::slots::Slots;
use super::slowlog::SlowLog;
use super::stop::{self, Stop, Wait};
use super::store::{Database, Kind, Refusal, Store};
use super::sweep::{Sweeper, Swept};
use super::tracking::Tracking;
use super::transaction::Transaction;
use super::transactions;
use super::watches::Watches;
use super::writer::Writer;
use std::rc::Rc;
use std::sync::Arc;

pub(super) use super::state::State;

/// The name of a connection, chosen by the caller.
pub type ClientId = u64;

/// The progress of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The bytes are no complete command.
    More,
    /// This number of bytes was used.
    Done(usize),
    /// Nothing was done. Call again later, with the same bytes.
    NotNow,
    /// This number of bytes was used, and the client waits. Give no more bytes of this client
    /// until [`Output::woken`] names it.
    Waits(usize),
    /// This number of bytes was used. Send the replies, then close the connection.
    End(usize),
}

/// The effects of a step on connections. The caller empties it.
#[derive(Debug, Default)]
pub struct Output {
    /// Bytes to this client.
    pub replies: Vec<u8>,
    /// Bytes to clients, in their order. They belong behind the replies.
    pub messages: Vec<(ClientId, Vec<u8>)>,
    /// Clients whose connections are to be closed at once.
    pub ended: Vec<ClientId>,
    /// Clients that waited, and whose next commands may be executed.
    pub woken: Vec<ClientId>,
}

/// The most bytes of commands that a client may queue in a `MULTI`.
const QUEUED_BYTES_MAX: usize = 256 << 20;

/// See the module's documentation.
pub struct Server {
    /// A command's arguments lie in its client's parser.
    parsers: Slots<Parser>,
    pub(super) state: State,
    overlay: Overlay,
    events: Events,
    signals: Vec<(Database, Vec<u8>)>,
    runs: Runs,
}

/// The outcome of a command.
enum Outcome {
    Done,
    NotNow,
    /// The client waits. Its command was used if that is true.
    Waits(bool),
    End,
}

/// The lengths of an output, to which it is cut back if a command cannot be done.
#[derive(Clone, Copy)]
pub(super) struct Mark([usize; 4]);

impl Mark {
    pub(super) fn of(output: &Output) -> Mark {
        let Output { replies, messages, ended, woken } = output;
        Mark([replies.len(), messages.len(), ended.len(), woken.len()])
    }

    pub(super) fn restore(self, output: &mut Output) {
        output.replies.truncate(self.0[0]);
        output.messages.truncate(self.0[1]);
        output.ended.truncate(self.0[2]);
        output.woken.truncate(self.0[3]);
    }
}

impl Mark {
    /// Inserts bytes in front of the replies behind it.
    fn insert(self, bytes: &[u8], output: &mut Output) {
        let place = self.0[0].min(output.replies.len());
        output.replies.splice(place..place, bytes.iter().copied());
    }

    /// Drops the replies behind it.
    pub(super) fn drop_reply(self, output: &mut Output) {
        output.replies.truncate(self.0[0]);
    }
}

impl Server {
    /// Returns a server without clients.
    #[must_use]
    pub fn new(options: ServerOptions) -> Server {
        let state = State {
            settings: Settings::new(&options),
            options,
            names: Names::new(),
            clients: Slots::new(),
            blocked: Blocked::default(),
            paused: Paused::default(),
            channels: Channels::default(),
            watches: Watches::default(),
            counts: Counts::default(),
            last_number: 0,
            changes_limits: false,
            monitors: 0,
            seed: 0,
            sweeper: Sweeper::default(),
            scripts: Scripts::default(),
            clock: None,
            slow_log: SlowLog::default(),
            latencies: Monitor::default(),
            tracking: Tracking::default(),
            first_part: None,
            nodes: Arc::new(Nodes::alone()),
            acl_log: AclLog::default(),
        };
        let (parsers, overlay) = (Slots::new(), Overlay::default());
        let runs = Runs::new(&state.names);
        Server { parsers, state, overlay, events: Events::default(), signals: Vec::new(), runs }
    }

    /// Gives scripts a clock, by which their time is limited. Without one, their time is counted.
    /// The clock measures the time of commands, too.
    pub fn set_script_clock(&mut self, clock: ScriptClock) {
        self.state.clock = Some(clock.clone());
        self.state.scripts.set_clock(clock);
    }

    /// Whether scripts have a clock.
    #[must_use]
    pub fn has_script_clock(&self) -> bool {
        self.state.scripts.has_clock()
    }

    /// Returns the number of clients.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.state.clients.len()
    }

    /// Whether an object of a user's database, written now, may be evicted if it expires then.
    /// Pages are never evicted: see [`PAGES`](super::store::PAGES).
    #[must_use]
    pub fn caches(&self, expires: Option<u64>) -> bool {
        self.state.settings.policy.caches(expires)
    }

    /// Begins to serve a connection. `CLIENT LIST` shows the addresses. A time of 0 is an unknown
    /// time: then the connection begins with its first command.
    pub fn opened(&mut self, client: ClientId, peer: &str, local: &str, now_ms: u64) {
        self.parsers.insert(client, Parser::new(Limits::default()));
        self.state.opened(client, peer, local, now_ms);
        self.set_limits(client);
    }

    /// Ends the waiting of a client whose input has ended: no element is for it any more.
    pub fn stops_waiting(&mut self, client: ClientId) {
        if let Some(client) = self.state.clients.get_mut(&client) {
            self.state.blocked.forget(client.waits.take());
        }
    }

    /// Forgets a connection that was closed.
    pub fn closed(&mut self, client: ClientId) {
        self.parsers.remove(&client);
        self.overlay.begun.abandon_of(client);
        self.state.closed(client);
    }

    fn set_limits(&mut self, client: ClientId) {
        let is_stranger = self.state.clients.get(&client).is_some_and(|it| !it.is_authenticated);
        if let Some(parser) = self.parsers.get_mut(&client) {
            let string_bytes_max = self.state.options.argument_bytes_max();
            parser.set_limits(Limits { string_bytes_max, is_stranger });
        }
    }

    /// Executes the next command of a client, or a run of a few, if it has arrived. The bytes begin
    /// behind the bytes that earlier steps have used.
    pub fn step(
        &mut self,
        store: &mut impl Store,
        facts: &Facts,
        client: ClientId,
        bytes: &[u8],
        output: &mut Output,
    ) -> Step {
        self.step_dyn(store, facts, client, bytes, output)
    }

    fn step_dyn(
        &mut self,
        store: &mut dyn Store,
        facts: &Facts,
        client: ClientId,
        bytes: &[u8],
        output: &mut Output,
    ) -> Step {
        self.state.begin_counts();
        let Some(parser) = self.parsers.get_mut(&client) else { return Step::End(0) };
        if self.state.is_waiting(client) {
            return Step::Waits(0);
        }
        if !self.state.settings.users.is_loaded {
            if !self.load_users(store) {
                return Step::NotNow;
            }
            return self.step_dyn(store, facts, client, bytes, output);
        }
        if let Some(limits) = parser.limits_between_commands() {
            let (runs, state) = (&mut self.runs, &mut self.state);
            if let Some(used) = runs.execute(state, store, limits, client, bytes, output) {
                return Step::Done(used);
            }
        }
        let used = match parser.next(bytes) {
            Parsed::More => return Step::More,
            Parsed::Nothing(used) => return Step::Done(used),
            Parsed::Error(text) => {
                self.state.refuse(client, &Stop::error_of([&b"ERR "[..], &text].concat()), output);
                return Step::End(bytes.len());
            }
            Parsed::Command(used) => used,
        };
        let arguments = parser.arguments(bytes);
        if stop::is_of_browser(&arguments[0]) {
            return Step::End(bytes.len());
        }
        let mut run = Run {
            store,
            facts,
            state: &mut self.state,
            overlay: &mut self.overlay,
            events: &mut self.events,
            signals: &mut self.signals,
        };
        // Clients that wait come before the next command of another one.
        if run.state.blocked.has_ready() {
            run.serve_blocked(output);
            if run.state.blocked.has_ready() {
                return Step::NotNow;
            }
        }
        let outcome = run.command(client, arguments, output);
        if run.state.blocked.has_ready() {
            run.serve_blocked(output);
        }
        if std::mem::take(&mut self.state.changes_limits) {
            self.set_limits(client);
        }
        match outcome {
            Outcome::Done => Step::Done(used),
            Outcome::NotNow => Step::NotNow,
            Outcome::Waits(is_used) => Step::Waits(if is_used { used } else { 0 }),
            Outcome::End => Step::End(used),
        }
    }

    pub(super) fn events(&self) -> &Events {
        &self.events
    }

    #[cfg(test)]
    pub(super) fn slow_log(&self) -> &SlowLog {
        &self.state.slow_log
    }

    pub(super) fn events_and_state(&mut self) -> (&mut Events, &mut State) {
        (&mut self.events, &mut self.state)
    }

    /// Forgets the users. The next command reads those of the store, which may be another one.
    pub fn forget_users(&mut self) {
        self.state.settings.users = Users::new(self.state.settings.password.as_deref());
    }

    /// Reads the users of the store, and the clients that it lets in without a password. Returns
    /// whether that is done.
    #[cold]
    fn load_users(&mut self, store: &mut dyn Store) -> bool {
        let Server { state, overlay, events, .. } = self;
        let mut users = state.settings.users.clone();
        let value_bytes_max = state.options.value_bytes_max;
        let mut objects = Transaction::new(store, overlay, events, 0, value_bytes_max, false);
        let password = state.settings.password.as_deref();
        if users.load(&state.names, &mut objects, password).is_err() {
            return false;
        }
        state.settings.users = users;
        let lets_in = state.lets_in_all();
        let ids: Vec<ClientId> = state.clients.values().map(|client| client.id).collect();
        for id in ids {
            if let Some(client) = self.state.clients.get_mut(&id) {
                (client.is_authenticated, client.user) = (lets_in, None);
            }
            self.set_limits(id);
        }
        true
    }

    /// Whether the last step was not done because others wait for memory before it.
    #[must_use]
    pub fn awaits_memory(&self) -> bool {
        self.overlay.begun.lacks_room()
    }

    /// Skips a command that could not be done for too long: the client gets an error. `is_full`
    /// tells whether there was no memory for it.
    pub fn give_up(
        &mut self,
        client: ClientId,
        bytes: &[u8],
        is_full: bool,
        output: &mut Output,
    ) -> Step {
        let mark = Mark::of(output);
        self.overlay.begun.abandon_of(client);
        let Some(parser) = self.parsers.get_mut(&client) else { return Step::End(0) };
        let used = match parser.next(bytes) {
            Parsed::More => return Step::More,
            Parsed::Nothing(used) => return Step::Done(used),
            Parsed::Error(_) => return Step::End(bytes.len()),
            Parsed::Command(used) => used,
        };
        let arguments = parser.arguments(bytes);
        let is_exec = self.state.names.called(&arguments).is_ok_and(|it| it.name == "exec");
        let is_plain = self.state.clients.get(&client).is_none_or(|it| it.port == Port::Plain);
        let text = match (is_full, is_plain) {
            (true, _) => stop::FULL,
            (false, true) => stop::LOADING,
            (false, false) => stop::TRY_AGAIN,
        };
        let error = match is_exec {
            true => transactions::aborted(text),
            false => Stop::error(text),
        };
        if is_exec {
            self.state.end_transaction(client);
        }
        self.state.refuse(client, &error, output);
        self.state.answered(client, mark, output);
        Step::Done(used)
    }

    /// Deletes pages of large collections that are gone. Looks at about `budget` pages. Call it now
    /// and then, such as every 100 ms, and more often if there is more garbage.
    pub fn sweep(&mut self, store: &mut impl Store, budget: usize, output: &mut Output) -> Swept {
        let ServerOptions { databases, value_bytes_max, .. } = self.state.options;
        let Server { state, overlay, events, .. } = self;
        overlay.touched.begin(state.tracking.is_active());
        let parts = (&mut *store as &mut dyn Store, &mut *overlay, &mut *events);
        let mut swept = state.sweeper.sweep(parts, databases, value_bytes_max, budget);
        events.publish(state, &mut output.messages);
        // The fields of a hash have expired.
        state.tracking.note(overlay.touched.take());
        state.finish_tracking(None, &mut output.messages);
        if events.expiries.is_walking() {
            events.expiries.walk(store, databases, budget);
            swept.has_more |= events.expiries.is_walking();
        }
        swept
    }

    /// Whether an object is the header of a large collection: its pages are other objects.
    #[must_use]
    pub fn has_pages(kind: Kind, value: &[u8]) -> bool {
        Header::with_pages(kind, value).is_some()
    }

    /// Notes headers of large collections that the store has evicted: their pages are deleted next.
    pub fn note_evicted(&mut self, headers: Vec<(Database, Kind, Vec<u8>)>) {
        let dropped = headers.iter().filter_map(|(database, kind, value)| {
            Dropped::of(*database, &Header::with_pages(*kind, value)?)
        });
        self.state.sweeper.note(dropped);
    }

    /// Whether pages of collections that are gone wait for [`sweep`](Server::sweep).
    #[must_use]
    pub fn is_freeing(&self) -> bool {
        self.state.sweeper.is_freeing()
    }

    /// Returns the time of the next call of [`on_time`](Server::on_time), in milliseconds since
    /// 1970.
    ///
    /// It is 0 if the store refused to serve a client that waits. Then call a little later.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        let State { blocked, paused, .. } = &self.state;
        let of_tracking = self.state.tracks_too_much().then_some(0);
        let of_events = self.events.expiries.deadline();
        let deadlines = [blocked.deadline(), paused.deadline(), of_events, of_tracking];
        deadlines.into_iter().flatten().min()
    }

    /// Ends the waiting of clients whose time has run out, and serves a client that could not be
    /// served before.
    pub fn on_time(&mut self, store: &mut impl Store, facts: &Facts, output: &mut Output) {
        let mut run = Run {
            store,
            facts,
            state: &mut self.state,
            overlay: &mut self.overlay,
            events: &mut self.events,
            signals: &mut self.signals,
        };
        let now = run.store.now();
        for (database, key) in run.events.expiries.take_due(run.store) {
            run.events.note(Kinds::EXPIRED, "expired", database, &key);
        }
        run.events.publish(run.state, &mut output.messages);
        run.state.finish_tracking(None, &mut output.messages);
        run.state.blocked.expire(now);
        run.serve_blocked(output);
        self.state.time_out(now, output);
        self.state.paused.end_if_due(now, &mut output.woken);
    }
}

/// The execution of commands.
struct Run<'a> {
    store: &'a mut dyn Store,
    facts: &'a Facts,
    state: &'a mut State,
    overlay: &'a mut Overlay,
    events: &'a mut Events,
    signals: &'a mut Vec<(Database, Vec<u8>)>,
}

impl Run<'_> {
    /// Executes a command, or queues it.
    fn command(&mut self, id: ClientId, arguments: Arguments<'_>, output: &mut Output) -> Outcome {
        let now_ms = self.store.now();
        let Some(client) = self.state.clients.get(&id) else { return Outcome::End };
        let circumstance = match client.multi {
            Some(_) => Circumstance::Multi,
            None => Circumstance::TopLevel,
        };
        let permitted = self.state.permitted(client, &arguments).and_then(|command| {
            if let Some(client) = self.state.clients.get_mut(&id) {
                client.last = command.name;
            }
            let when = (circumstance, now_ms);
            let checked = self.state.check_rights(id, command, &arguments, when);
            checked.map(|()| command).map_err(|(_, text)| stop::no_permission(&text))
        });
        let Some(client) = self.state.clients.get_mut(&id) else { return Outcome::End };
        client.active_ms = now_ms;
        if client.opened_ms == 0 {
            client.opened_ms = now_ms;
        }
        let command = match permitted {
            Ok(command) => command,
            Err(error) => {
                if let Some(command) = self.state.names.known(&arguments) {
                    self.state.count_rejected(command);
                }
                let Some(client) = self.state.clients.get_mut(&id) else { return Outcome::End };
                let is_aborted = is(&arguments[0], "EXEC") && !cluster::leads_elsewhere(&error);
                let error = if is_aborted { transactions::aborted_by(error) } else { error };
                match &mut client.multi {
                    // As in Redis, a refused EXEC also ends the watching without a MULTI.
                    _ if is(&arguments[0], "EXEC") => self.state.end_transaction(id),
                    Some(multi) => multi.is_broken = true,
                    None => {}
                }
                let mark = Mark::of(output);
                self.state.refuse(id, &error, output);
                return self.answered(id, mark, output);
            }
        };
        if self.state.delays(id, command, &arguments, now_ms) {
            return Outcome::Waits(false);
        }
        let Some(client) = self.state.clients.get_mut(&id) else { return Outcome::End };
        if let Some(multi) = &mut client.multi
            && !command.has(AT_ONCE)
        {
            let mark = Mark::of(output);
            if multi.bytes > QUEUED_BYTES_MAX {
                *multi = Multi { is_broken: true, ..Multi::default() };
                let error = Stop::error("ERR The commands of this transaction have too many bytes");
                self.state.refuse(id, &error, output);
                return self.answered(id, mark, output);
            }
            multi.push(Queued::new(command, &arguments));
            Writer::new(&mut output.replies, client.version).simple("QUEUED");
            return self.answered(id, mark, output);
        }
        self.execute(id, command, arguments, output)
    }

    fn execute(
        &mut self,
        id: ClientId,
        command: &'static Command,
        arguments: Arguments<'_>,
        output: &mut Output,
    ) -> Outcome {
        let mark = Mark::of(output);
        let (done, ends) = self.call(id, command, arguments, output, true);
        let is_push = done.is_ok() && command.name.ends_with("subscribe");
        let now_ms = self.store.now();
        match done {
            Ok(()) => {}
            Err(Stop::Refused(Refusal::NotNow)) => {
                mark.restore(output);
                self.finish_events(output);
                self.state.finish_tracking(Some(id), &mut output.messages);
                return Outcome::NotNow;
            }
            Err(Stop::Wait(wait)) => {
                mark.restore(output);
                self.state.show(id, command, &arguments, now_ms, &mut output.messages);
                self.finish_events(output);
                let mut queued = Queued::new(command, &arguments);
                wait.replaced.iter().for_each(|(index, text)| queued.replace(*index, text));
                self.wait(id, queued, *wait);
                self.finish_tracking(id, command, mark, output);
                return Outcome::Waits(true);
            }
            Err(error) => {
                mark.restore(output);
                self.state.refuse(id, &error, output);
            }
        }
        self.finish_events(output);
        self.state.show(id, command, &arguments, now_ms, &mut output.messages);
        // `CLIENT REPLY` does not drop push messages.
        let mark = if is_push { Mark::of(output) } else { mark };
        let outcome = self.answered(id, mark, output);
        self.finish_tracking(id, command, mark, output);
        if ends { Outcome::End } else { outcome }
    }

    /// Calls the function of a command. Returns whether the connection ends, too.
    fn call(
        &mut self,
        id: ClientId,
        command: &'static Command,
        arguments: Arguments<'_>,
        output: &mut Output,
        may_wait: bool,
    ) -> (Result<(), Stop>, bool) {
        let Some(client) = self.state.clients.get(&id) else { return (Ok(()), true) };
        let ServerOptions { value_bytes_max, string_bytes_max, .. } = self.state.options;
        let Client { database, version, touches_not, .. } = *client;
        let (is_again, seed) = (client.waits.is_some(), self.state.seed);
        // Other commands do not change settings, and a transaction restores them by itself.
        let settings = command.has(ADMIN).then(|| self.state.settings.clone());
        self.signals.clear();
        self.state.begin_counts();
        let is_tracking = self.state.tracking.is_active();
        self.events.begin_command(self.state.settings.events.sent(), is_tracking);
        self.overlay.touched.begin(is_tracking);
        self.overlay.begun.client = id;
        let before_reply = output.replies.len();
        let (begin, now_ms) = (self.state.time(), self.store.now());
        let mut context = Context {
            before_reply,
            objects: Transaction::new(
                self.store,
                self.overlay,
                self.events,
                database,
                value_bytes_max,
                !touches_not,
            )
            .with_strings_of(string_bytes_max),
            reply: Writer::new(&mut output.replies, version),
            state: self.state,
            facts: self.facts,
            client: id,
            messages: &mut output.messages,
            ended: &mut output.ended,
            woken: &mut output.woken,
            signals: self.signals,
            may_wait,
            is_of_script: false,
            ends: false,
        };
        let mut done = (command.execute)(&mut context, arguments);
        if let Err(Stop::Wait(wait)) = &done
            && wait.is_of_group
            // The first time has made the consumer.
            && !is_again
            && let Err(stop) = context.commit()
        {
            done = Err(stop);
        }
        // Nothing may be removed by a command whose reply cannot be sent.
        let done = done.and_then(|()| context.check_reply()).and_then(|()| context.commit());
        context.note_tracking(command, &arguments);
        let (ends, hits, misses) = (context.ends, context.objects.hits, context.objects.misses);
        let done = self.overlay.gone.settle_failed(done, self.store);
        let is_again = matches!(done, Err(Stop::Refused(Refusal::NotNow)));
        if done.is_err()
            && let Some(settings) = settings
        {
            self.state.settings = settings;
        }
        let garbage = self.overlay.begun.end(done.is_ok(), is_again);
        self.state.sweeper.note(garbage.into_iter());
        if is_again {
            self.state.seed = seed;
            self.state.take_back_notes(self.events);
            self.state.take_back_counts();
            return (done, false);
        }
        self.state.end_parts(id, done.is_ok());
        self.state.counts.hits += hits;
        self.state.counts.misses += misses;
        let has_error = output.replies.get(before_reply) == Some(&b'-');
        match &done {
            // A command that waits is counted when it ends.
            Err(Stop::Wait(_)) => {}
            // Redis finds that memory is full before it executes the command.
            Err(Stop::Refused(Refusal::Full)) => self.state.count_rejected(command),
            done => {
                let took = self.state.took(begin);
                self.state.count(command, done.is_err() || has_error, took);
                self.state.note_slow(id, command, &arguments, (now_ms, took));
            }
        }
        if matches!(done, Err(Stop::Error(_) | Stop::Refused(_) | Stop::Ended(_))) {
            self.state.fail_notes(self.events);
        }
        if done.is_ok() {
            if !self.signals.is_empty() {
                self.state.blocked.ready(self.signals.drain(..));
            }
            self.state.sweeper.note(self.overlay.dropped.drain(..));
            self.state.sweeper.note_due(self.overlay.due.drain(..));
        }
        (done, ends)
    }

    fn finish_events(&mut self, output: &mut Output) {
        self.events.finish_command(self.state, self.store.now(), &mut output.messages);
    }

    /// Sends the messages about the keys that a command has touched.
    #[inline]
    fn finish_tracking(
        &mut self,
        id: ClientId,
        command: &Command,
        mark: Mark,
        output: &mut Output,
    ) {
        if !self.state.tracking.is_active() {
            self.state.tracking.end_without_clients();
            return;
        }
        let first = output.messages.len();
        self.state.finish_tracking(Some(id), &mut output.messages);
        if let Some(client) = self.state.clients.get_mut(&id) {
            client.end_caching(command);
        }
        // As in Redis, a client that empties a database is told before the reply.
        if command.name.starts_with("flush") {
            let own = output.messages.split_off(first);
            for (to, bytes) in own {
                match to == id {
                    true => mark.insert(&bytes, output),
                    false => output.messages.push((to, bytes)),
                }
            }
        }
    }

    fn wait(&mut self, id: ClientId, queued: Queued, wait: Wait) {
        let Some(client) = self.state.clients.get_mut(&id) else { return };
        let (database, blocked) = (client.database, &mut self.state.blocked);
        if wait.is_of_group {
            let now = self.store.now();
            for key in &wait.keys {
                // A store that refuses is asked again at once.
                let found = self.store.find(database, key, false);
                let expires = found.map_or(Some(now), |found| found.and_then(|it| it.expires));
                blocked.set_expiry(database, key, expires);
            }
        }
        client.waits = Some(blocked.begin(id, database, queued, wait));
    }

    fn answered(&mut self, id: ClientId, mark: Mark, output: &mut Output) -> Outcome {
        self.state.answered(id, mark, output);
        Outcome::Done
    }

    /// Ends the waiting of a client, to which the replies behind a mark belong.
    fn end_waiting(&mut self, id: ClientId, order: u64, mark: Mark, output: &mut Output) {
        self.state.blocked.end(order);
        if let Some(client) = self.state.clients.get_mut(&id) {
            client.waits = None;
        }
        self.answered(id, mark, output);
        let reply = output.replies.split_off(mark.0[0]);
        output.messages.push((id, reply));
        output.woken.push(id);
    }

    /// Executes the commands of clients that wait for elements, if there are some now.
    fn serve_blocked(&mut self, output: &mut Output) {
        while let Some((order, waiting, database, key)) = self.state.blocked.next_ready() {
            match self.store.find(database, key, false) {
                Err(_) => return,
                // A consumer learns that its group is gone.
                Ok(_) if waiting.is_of_group => {}
                Ok(Some(found)) if found.kind == waiting.kind => {}
                Ok(_) => {
                    self.state.blocked.pass(order);
                    continue;
                }
            }
            let (id, queued) = (waiting.client, Rc::clone(&waiting.queued));
            // The reply goes to another client than the one whose step this is.
            let mark = Mark::of(output);
            let when = (Circumstance::TopLevel, self.store.now());
            let checked = self.state.check_rights(id, queued.command, &queued.arguments(), when);
            if let Err((_, text)) = checked {
                self.state.count_rejected(queued.command);
                self.state.refuse(id, &stop::no_permission(&text), output);
                self.end_waiting(id, order, mark, output);
                continue;
            }
            let (done, _) = self.call(id, queued.command, queued.arguments(), output, true);
            match done {
                Err(Stop::Refused(Refusal::NotNow)) => return mark.restore(output),
                Err(Stop::Wait(_)) => {
                    mark.restore(output);
                    self.state.tracking.take_back();
                    self.state.blocked.pass(order);
                    continue;
                }
                Err(error) => {
                    mark.restore(output);
                    self.state.refuse(id, &error, output);
                }
                Ok(()) => {}
            }
            self.finish_events(output);
            self.end_waiting(id, order, mark, output);
            self.finish_tracking(id, queued.command, Mark::of(output), output);
        }
    }
}
