//! Keeps all connections together within their budget of bytes: see [`crate::budget`] for the
//! rules.
//!
//! A message that arrives whole and leaves whole never comes here: it is only added to the held
//! bytes and subtracted again.

use super::connection::Stage;
use super::{OsTransport, READ_BYTES, SPARE_BYTES_MAX};
use crate::budget::{half, largest_holders, share};
use crate::peer::{Cause, ConnectionId};
use thunderhead_wire::frame::{HEAD_BYTES, Head};

impl OsTransport {
    fn half(&self) -> u64 {
        half(self.options.limits.held_bytes_max) as u64
    }

    /// Enforces the limits: one connection exceeds its own, or all together reached a mark.
    #[cold]
    pub(super) fn enforce_budget(&mut self, id: ConnectionId) {
        let limits = self.options.limits;
        let waiting = self.connections.get(id).map_or(0, |it| it.waiting_bytes());
        if waiting > limits.waiting_bytes_max {
            self.doom(id, Cause::NotReading);
        }
        if self.counters.held_bytes > self.half() {
            self.tight = true;
            self.held_bytes_mark = limits.held_bytes_max as u64;
            let count = self.connections.count();
            self.waiting_bytes_high =
                share(limits.held_bytes_max, count, limits.waiting_bytes_high);
        }
        if self.counters.held_bytes > limits.held_bytes_max as u64 {
            let holders = self.connections.iter().map(|(id, it)| (it.held_bytes(), id));
            for id in largest_holders(limits.held_bytes_max, holders) {
                self.doom(id, Cause::HoldsMost);
            }
        }
    }

    /// Frees the memory of a connection now; the next poll tells the handler.
    pub(super) fn doom(&mut self, id: ConnectionId, why: Cause) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if connection.stage != Stage::Doomed {
            self.counters.held_bytes -= connection.held_bytes() as u64;
            self.retired.extend(connection.close_rings());
            connection.doom();
            if self.hot == Some(id) {
                self.hot = None;
            }
            self.failed.push((id, why));
        }
    }

    /// Accounts for a partial message that is kept, `behind` other messages or alone.
    #[cold]
    pub(super) fn on_partial_input(&mut self, id: ConnectionId, behind: bool) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if connection.stage == Stage::Doomed {
            // The connection was doomed while its messages were handled.
            connection.doom();
            return;
        }
        self.timed.insert(id);
        let frame_bytes =
            Head::read(&connection.input).map_or(0, |head| HEAD_BYTES + head.payload_bytes);
        let is_long = frame_bytes > READ_BYTES;
        // A length that a peer claims takes memory only as its bytes arrive.
        let (length, capacity) = (connection.input.len(), connection.input.capacity());
        let outgrows = (capacity..=SPARE_BYTES_MAX).contains(&frame_bytes);
        if outgrows && length >= READ_BYTES && capacity <= 2 * READ_BYTES {
            self.buffer_pool.lengthen(&mut connection.input, frame_bytes + READ_BYTES);
        }
        let (before, after) = connection.count_input();
        self.counters.held_bytes += after as u64;
        self.counters.held_bytes -= before as u64;
        let begins = behind || before == 0;
        // As with waiting bytes, only the serving end holds back.
        let may_wait = connection.stage == Stage::Open && !connection.is_ours;
        let waits = self.tight && begins && is_long && may_wait && !connection.paused;
        if self.counters.held_bytes > self.held_bytes_mark {
            self.enforce_budget(id);
        }
        if waits {
            self.queue(id);
        }
    }

    /// Postpones a long message until less is held.
    fn queue(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if connection.stage == Stage::Open {
            connection.queued = true;
            self.queued.push_back(id);
            self.pause(id);
        }
    }

    /// Whether less is held again although the tight marks still apply.
    pub(super) fn may_ease(&self) -> bool {
        self.tight && self.counters.held_bytes <= self.half()
    }

    /// Returns to the usual marks when less is held, and lets waiting connections continue: one
    /// with each poll, to see how much it adds.
    #[cold]
    pub(super) fn ease(&mut self) {
        if !self.may_ease() {
            return;
        }
        self.waiting_bytes_high = self.options.limits.waiting_bytes_high;
        self.held_bytes_mark = self.half();
        while let Some(id) = self.queued.pop_front() {
            let now = self.now;
            let Some(connection) = self.connections.get_mut(id) else { continue };
            if connection.queued {
                (connection.queued, connection.paused) = (false, false);
                // The time in the queue does not count against its deadline.
                connection.begun = now;
                self.resumed.push(id);
                self.watch(id);
                break;
            }
        }
        self.tight = !self.queued.is_empty();
    }
}
