//! Connections that wait: their input is held until the next poll, or they are paused until their
//! peers take their replies.

use super::OsTransport;
use crate::{ConnectionId, Handler};

/// The origins of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Connections whose input was held.
    Resumed,
    Rings,
    /// Everything that epoll reports.
    Sockets,
}

impl Source {
    /// Returns the source that comes after this one.
    fn next(self) -> Source {
        match self {
            Source::Resumed => Source::Rings,
            Source::Rings => Source::Sockets,
            Source::Sockets => Source::Resumed,
        }
    }
}

impl OsTransport {
    /// Ends a poll in which a handler has held the input.
    #[cold]
    pub(super) fn held_at(&mut self, source: Source) -> bool {
        self.held_at = Some(source);
        true
    }

    /// Takes messages after a poll whose handler has held the input at some source. The sources
    /// behind that one come first. Otherwise a source with much input would keep the others from
    /// being asked, and their output would wait with them.
    #[cold]
    pub(super) fn turn_after(&mut self, mut source: Source, handler: &mut dyn Handler) -> bool {
        for _ in 0..3 {
            source = source.next();
            match source {
                Source::Resumed => self.go_on(handler),
                Source::Rings => {
                    self.poll_rings(handler);
                }
                Source::Sockets => {
                    self.look(handler);
                    if let Some(id) = self.hot.filter(|_| !self.holds_input) {
                        self.read_either(id, handler);
                    }
                }
            }
            if self.holds_input {
                return self.held_at(source);
            }
        }
        true
    }

    /// Ends a walk over the rings at a place whose handler has held the input. The rings before it
    /// are written to, and the next poll begins with them.
    #[cold]
    pub(super) fn held_in_rings(&mut self, at: usize) {
        let at = at.min(self.rings.len());
        for place in 0..at {
            let Some(id) = self.rings.get(place).copied() else { break };
            if self.connections.get(id).is_some_and(|it| it.waiting_bytes() > 0) {
                self.write(id);
            }
        }
        let at = at.min(self.rings.len());
        self.rings.rotate_left(at);
    }

    /// Tells the handler of failed connections, and continues with connections that may go on
    /// again.
    #[cold]
    pub(super) fn go_on(&mut self, handler: &mut dyn Handler) {
        for (id, why) in std::mem::take(&mut self.failed) {
            if self.connections.get(id).is_some_and(|connection| connection.is_held) {
                // Its messages had arrived before, and come first.
                self.failed.push((id, why));
            } else {
                self.fail(id, why, handler);
            }
        }
        let mut resumed = std::mem::take(&mut self.resumed).into_iter();
        while !self.holds_input
            && let Some(id) = resumed.next()
        {
            let Some(connection) = self.connections.get_mut(id) else { continue };
            connection.is_held = false;
            if connection.stream.is_some() {
                self.offer_input(id, handler);
            } else {
                self.digest_input(id, handler);
            }
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
