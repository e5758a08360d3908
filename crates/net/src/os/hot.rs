//! The hot connection: a busy connection that every poll reads, without epoll.

use super::OsTransport;
use super::connection::Carrier;
use crate::Handler;
use crate::peer::{Cause, ConnectionId};
use crate::table::Token;

impl OsTransport {
    /// Takes the busiest connection out of epoll. Every poll reads it, so epoll's work at each
    /// arrival would be wasted.
    #[cold]
    pub(super) fn heat(&mut self, busiest: Option<ConnectionId>) {
        let Some(connection) = busiest.and_then(|id| self.connections.get(id)) else { return };
        let is_plain = !connection.waits_for_room && connection.is_read();
        if let (Carrier::Tcp(socket), true) = (&connection.carrier, is_plain) {
            self.poller.remove(socket);
            self.hot = busiest;
        }
    }

    /// Puts the hot connection back into epoll.
    #[cold]
    pub(super) fn cool(&mut self) {
        let Some(id) = self.hot.take() else { return };
        let Some(connection) = self.connections.get(id) else { return };
        if let Carrier::Tcp(socket) = &connection.carrier {
            let token = match connection.stream {
                None => Token::Connection(id).number(),
                Some(_) => Token::Stream(id).number(),
            };
            if self.poller.add(socket, token, true, false).is_err() {
                self.failed.push((id, Cause::Reset));
            }
        }
    }

    /// Reads a connection for messages, or a stream, once; returns whether there was anything.
    #[inline(always)]
    pub(super) fn read_either(&mut self, id: ConnectionId, handler: &mut dyn Handler) -> bool {
        let Some(connection) = self.connections.get(id) else { return false };
        match &connection.stream {
            None => self.read(id, handler),
            Some(_) => connection.is_read() && self.read_stream(id, handler),
        }
    }

    /// Notes the connection from which bytes came, because a busy one becomes hot.
    #[inline(always)]
    pub(super) fn note_arrival(&mut self, id: ConnectionId) {
        self.last = match self.last {
            Some((last, streak)) if last == id => Some((last, streak.saturating_add(1))),
            _ => Some((id, 1)),
        };
    }
}
