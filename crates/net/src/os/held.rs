//! Connections that wait: their input is held until the next poll, or they are paused until their
//! peers take their replies.

use super::OsTransport;
use crate::{ConnectionId, Handler};

impl OsTransport {
    /// Tells the handler of failed connections, and continues with connections that may go on
    /// again.
    #[cold]
    pub(super) fn go_on(&mut self, handler: &mut dyn Handler) {
        for (id, why) in std::mem::take(&mut self.failed) {
            self.fail(id, why, handler);
        }
        let mut resumed = std::mem::take(&mut self.resumed).into_iter();
        while !self.holds_input
            && let Some(id) = resumed.next()
        {
            if let Some(connection) = self.connections.get_mut(id) {
                connection.is_held = false;
            }
            self.digest_input(id, handler);
        }
        // The connections that waited longest come first in the next poll.
        self.resumed.splice(..0, resumed);
    }

    /// Keeps the rest of a connection's input for the next poll. It is not read until then, or its
    /// input would grow.
    #[cold]
    pub(super) fn hold(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id)
            && !std::mem::replace(&mut connection.is_held, true)
        {
            self.resumed.push(id);
        }
    }

    pub(super) fn pause(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id)
            && !connection.paused
        {
            connection.paused = true;
            self.counters.held_back += 1;
            self.watch(id);
            self.write(id);
        }
    }
}
