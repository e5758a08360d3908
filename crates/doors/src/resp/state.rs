//! The state of the server that commands see: its clients, their waits, and the settings.

use super::acl::{AclLog, Circumstance, Denied, Refused};
use super::blocked::Blocked;
use super::channels::Channels;
use super::client::Client;
use super::cluster::Nodes;
use super::commands::{Command, NO_AUTH, NO_MULTI, NOT_QUEUED, Names, OF_SUBSCRIBERS};
use super::counts::Counts;
use super::latency::Monitor;
use super::options::ServerOptions;
use super::parser::Arguments;
use super::paused::Paused;
use super::scripts::{ScriptClock, Scripts};
use super::server::{ClientId, Mark, Output};
use super::settings::Settings;
use super::slots::Slots;
use super::slowlog::SlowLog;
use super::stop::{self, Stop};
use super::store::{Database, Refusal};
use super::sweep::Sweeper;
use super::tracking::Tracking;
use super::watches::Watches;
use super::writer::{Version, Writer};
use std::sync::Arc;

/// The state of the server that commands see.
pub(super) struct State {
    pub(super) options: ServerOptions,
    pub(super) names: Names,
    pub(super) clients: Slots<Client>,
    pub(super) blocked: Blocked,
    pub(super) paused: Paused,
    pub(super) channels: Channels,
    pub(super) watches: Watches,
    pub(super) settings: Settings,
    pub(super) counts: Counts,
    /// The number of the last client.
    pub(super) last_number: u64,
    /// Whether a client has given its password, or is a stranger again.
    pub(super) changes_limits: bool,
    pub(super) monitors: usize,
    /// The state of the random numbers.
    pub(super) seed: u64,
    /// The search for pages of collections that are gone.
    pub(super) sweeper: Sweeper,
    pub(super) scripts: Scripts,
    /// The clock that measures the time of commands.
    pub(super) clock: Option<ScriptClock>,
    pub(super) slow_log: SlowLog,
    pub(super) latencies: Monitor,
    pub(super) tracking: Tracking,
    /// The list from which the present command has removed elements in the store.
    pub(super) first_part: Option<(Database, Vec<u8>)>,
    pub(super) nodes: Arc<Nodes>,
    pub(super) acl_log: AclLog,
}

impl State {
    /// Returns the next number of a fixed sequence that looks random (splitmix64).
    pub(super) fn random(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.seed ^ self.seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(super) fn opened(&mut self, id: ClientId, peer: &str, local: &str, now_ms: u64) {
        self.last_number += 1;
        self.counts.connections += 1;
        let client = Client::new(id, self.last_number, peer, local, now_ms);
        let client = Client { is_authenticated: self.lets_in_all(), ..client };
        self.clients.insert(id, client);
    }

    /// Whether a client need not give a password.
    pub(super) fn lets_in_all(&self) -> bool {
        let default = self.settings.users.default_user();
        default.is_on && default.is_open
    }

    /// Checks whether a client's user may execute a command. A refusal is noted.
    ///
    /// # Errors
    /// The reason, and its sentence.
    #[inline]
    pub(super) fn check_rights(
        &mut self,
        id: ClientId,
        command: &'static Command,
        arguments: &Arguments<'_>,
        (circumstance, now_ms): (Circumstance, u64),
    ) -> Result<(), (Denied, Vec<u8>)> {
        let name = self.clients.get(&id).and_then(|client| client.user.as_deref());
        match self.settings.users.of(name) {
            Some(user) if user.may_everything() => Ok(()),
            _ => self.check_rules(id, command, arguments, (circumstance, now_ms)),
        }
    }

    #[cold]
    fn check_rules(
        &mut self,
        id: ClientId,
        command: &'static Command,
        arguments: &Arguments<'_>,
        (circumstance, now_ms): (Circumstance, u64),
    ) -> Result<(), (Denied, Vec<u8>)> {
        let Some(client) = self.clients.get(&id) else { return Ok(()) };
        let Some(user) = self.settings.users.of(client.user.as_deref()) else {
            // The user was deleted, and the connection ends.
            return Err((Denied::Command, b"The user does not exist any more".to_vec()));
        };
        let words: Vec<&[u8]> = arguments.iter().collect();
        let Err(denied) = user.check(&self.names, command, &words) else { return Ok(()) };
        let text = denied.text(user, command);
        let (reason, object) = match denied {
            Denied::Command => ("command", command.name.as_bytes().to_vec()),
            Denied::Key(place) => ("key", words.get(place).unwrap_or(&&b""[..]).to_vec()),
            Denied::Channel(place) => ("channel", words.get(place).unwrap_or(&&b""[..]).to_vec()),
        };
        let user = user.name.clone();
        let client = super::clients::line(client, now_ms);
        let refused = Refused { reason, circumstance, object, user, client };
        self.acl_log.note(refused, now_ms, self.settings.acl_entries_max());
        Err((denied, text))
    }

    /// Notes a refusal of a command of a client: its object, and the name of the user.
    pub(super) fn note_refused(
        &mut self,
        id: ClientId,
        reason: &'static str,
        (object, user): (Vec<u8>, Vec<u8>),
        now_ms: u64,
    ) {
        let client = self.clients.get(&id).map(|client| super::clients::line(client, now_ms));
        let (circumstance, client) = (Circumstance::TopLevel, client.unwrap_or_default());
        let refused = Refused { reason, circumstance, object, user, client };
        self.acl_log.note(refused, now_ms, self.settings.acl_entries_max());
    }

    /// Drops a reply that the client does not want.
    pub(super) fn answered(&mut self, id: ClientId, mark: Mark, output: &mut Output) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.commands += 1;
            if client.drops_reply() {
                mark.drop_reply(output);
            }
        }
    }

    pub(super) fn closed(&mut self, id: ClientId) {
        self.unwatch(id);
        let Some(mut client) = self.clients.remove(&id) else { return };
        self.channels.forget(&mut client);
        self.tracking.forget(&client);
        self.tracking.end_without_clients();
        self.blocked.forget(client.waits);
        self.paused.forget(id);
        self.monitors -= usize::from(client.is_monitor);
    }

    pub(super) fn is_waiting(&self, id: ClientId) -> bool {
        self.clients.get(&id).is_some_and(|client| client.waits.is_some())
    }

    /// Takes back the changes of a client by the commands of a transaction.
    pub(super) fn restore(&mut self, mut client: Client) {
        if let Some(mut changed) = self.clients.remove(&client.id) {
            self.channels.forget(&mut changed);
            self.tracking.forget(&changed);
            self.monitors -= usize::from(changed.is_monitor);
        }
        self.channels.remember(&mut client);
        self.tracking.remember(&client);
        for (database, key) in client.watched.keys() {
            self.watches.add(client.id, *database, key);
        }
        self.monitors += usize::from(client.is_monitor);
        self.clients.insert(client.id, client);
    }

    /// Writes an error to a client.
    pub(super) fn refuse(&mut self, id: ClientId, error: &Stop, output: &mut Output) {
        let version = self.clients.get_mut(&id).map_or(Version::Two, |client| {
            client.removed = 0;
            client.version
        });
        self.write_error(error, &mut Writer::new(&mut output.replies, version));
    }

    /// Writes the error for a command that is not done.
    pub(super) fn write_error(&mut self, stop: &Stop, reply: &mut Writer<'_>) {
        let text = match stop {
            Stop::Error(text) | Stop::Ended(text) => &**text,
            Stop::Refused(Refusal::Full) => stop::FULL.as_bytes(),
            Stop::Refused(Refusal::TooLong) => stop::TOO_LONG.as_bytes(),
            Stop::Refused(Refusal::TooMuch) => stop::TOO_MUCH.as_bytes(),
            Stop::Refused(Refusal::NotNow) | Stop::Wait(_) => stop::LOADING.as_bytes(),
        };
        let end = memchr::memchr(b' ', text).unwrap_or(text.len());
        self.count_error(&text[..end]);
        reply.error(text);
    }

    /// Ends the waiting of clients whose time has run out.
    pub(super) fn time_out(&mut self, now_ms: u64, output: &mut Output) {
        while let Some(client) = self.blocked.late(now_ms) {
            self.unblock(client, None, &mut output.messages, &mut output.woken);
        }
    }

    /// Ends the waiting of a client, with an error or as if its time had run out. Returns whether
    /// it waited.
    pub(super) fn unblock(
        &mut self,
        id: ClientId,
        error: Option<&str>,
        messages: &mut Vec<(ClientId, Vec<u8>)>,
        woken: &mut Vec<ClientId>,
    ) -> bool {
        let Some(client) = self.clients.get_mut(&id) else { return false };
        let order = client.waits.take();
        let Some(waiting) = order.and_then(|order| self.blocked.end(order)) else { return false };
        let mut reply = Vec::new();
        let mut writer = Writer::new(&mut reply, client.version);
        match error {
            Some(error) => writer.error(error.as_bytes()),
            None => writer.null_array(),
        }
        if client.drops_reply() {
            reply.clear();
        }
        messages.push((id, reply));
        woken.push(id);
        self.count_ended(waiting.queued.command, error);
        true
    }

    /// Finds the command that is called, and whether the client may call it now.
    pub(super) fn permitted(
        &self,
        client: &Client,
        arguments: &Arguments<'_>,
    ) -> Result<&'static Command, Stop> {
        let command = self.names.called(arguments)?;
        if !client.is_authenticated && !command.has(NO_AUTH) {
            return Err(Stop::error(stop::NO_AUTH));
        }
        if client.version == Version::Two && !command.has(OF_SUBSCRIBERS) && client.is_subscriber()
        {
            return Err(Stop::error_of(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
                 RESET are allowed in this context",
                command.name
            )));
        }
        if client.multi.is_some() && command.has(NO_MULTI | NOT_QUEUED) {
            return Err(Stop::error("ERR Command not allowed inside a transaction"));
        }
        self.check_slots(client, command, arguments)?;
        Ok(command)
    }
}
