//! `CLIENT PAUSE`: commands that are delayed for some time.

use super::commands::Command;
use super::parser::Arguments;
use super::scripts::Scripts;
use super::server::{ClientId, State};
use std::collections::BTreeSet;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Paused {
    /// The end of the delay, in milliseconds since 1970, and whether only writes are delayed.
    until: Option<(u64, bool)>,
    clients: BTreeSet<ClientId>,
}

impl Paused {
    /// Begins a delay, or makes it longer and stricter.
    pub(super) fn begin(&mut self, until: u64, only_writes: bool) {
        self.until = Some(match self.until {
            Some((before, only)) => (until.max(before), only_writes && only),
            None => (until, only_writes),
        });
    }

    /// Ends the delay.
    pub(super) fn end(&mut self, woken: &mut Vec<ClientId>) {
        self.until = None;
        woken.extend(std::mem::take(&mut self.clients));
    }

    /// Ends the delay if it is over.
    pub(super) fn end_if_due(&mut self, now_ms: u64, woken: &mut Vec<ClientId>) {
        if self.until.is_some_and(|(until, _)| until <= now_ms) {
            self.end(woken);
        }
    }

    /// Returns the number of clients with a delayed command.
    pub(super) fn len(&self) -> usize {
        self.clients.len()
    }

    /// Whether no command is delayed.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.until.is_none()
    }

    /// Whether a command is delayed. Then its client is remembered.
    #[inline]
    pub(super) fn delay(&mut self, client: ClientId, is_write: bool, now_ms: u64) -> bool {
        let Some((until, only_writes)) = self.until else { return false };
        let delays = until > now_ms && (is_write || !only_writes);
        if delays {
            self.clients.insert(client);
        }
        delays
    }

    /// Returns the end of the delay.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.until.map(|(until, _)| until)
    }

    /// Forgets a client.
    pub(super) fn forget(&mut self, client: ClientId) {
        self.clients.remove(&client);
    }
}

impl State {
    /// Whether a command of a client is delayed. Then the client is remembered.
    #[inline]
    pub(super) fn delays(
        &mut self,
        id: ClientId,
        command: &Command,
        arguments: &Arguments<'_>,
        now_ms: u64,
    ) -> bool {
        if self.paused.is_idle() {
            return false;
        }
        let scripts = &self.scripts;
        let is_write = match self.clients.get(&id).and_then(|client| client.multi.as_ref()) {
            Some(multi) if command.name == "exec" => {
                multi.queued.iter().any(|it| is_write(scripts, it.command, &it.arguments()))
            }
            Some(_) => false,
            None => is_write(scripts, command, arguments),
        };
        self.paused.delay(id, is_write, now_ms)
    }
}

/// Whether a command may write. A script or a function may say that it only reads.
fn is_write(scripts: &Scripts, command: &Command, arguments: &Arguments<'_>) -> bool {
    match command.name {
        "eval" => !Scripts::only_reads(&arguments[1]),
        "fcall" => !scripts.function_only_reads(&arguments[1]),
        "evalsha" => !scripts.known_only_reads(&arguments[1]),
        _ => command.may_write(),
    }
}
