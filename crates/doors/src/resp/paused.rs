//! `CLIENT PAUSE`: commands that are delayed for some time.

use super::server::ClientId;
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
