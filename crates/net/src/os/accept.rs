//! Accepts connections as long as there is room ([`Room`]), and only those of members when room is
//! short.

use super::OsTransport;
use super::connection::{Connection, Stage};
use crate::Handler;
use crate::peer::{Cause, ConnectionId};
use crate::room::Room;
use crate::table::Token;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;
use std::net::SocketAddr;
use thunderhead_runtime::os::descriptor_limit;

/// The connections that one turn accepts, at a listener and at the door.
pub(super) const ACCEPTS: usize = 64;

impl OsTransport {
    /// Accepts the connections that wait at a listener.
    #[cold]
    pub(super) fn accept(&mut self, number: usize, handler: &mut dyn Handler) {
        let limit = descriptor_limit();
        for _ in 0..ACCEPTS {
            let Some(listener) = self.listeners.get(number) else { return };
            let is_stream = listener.streams.is_some();
            let (socket, address) = match listener.accept() {
                Ok(Some(accepted)) => accepted,
                Ok(None) => return,
                // The waiting connection has closed already.
                Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO) => continue,
                Err(error) => {
                    // Usually descriptors have run out. The open connections are served on; the
                    // next sweep tries to accept again.
                    if !std::mem::replace(&mut self.warned, true) {
                        tracing::warn!("cannot accept connections, will try again: {error}");
                    }
                    self.poller.remove(&listener.socket);
                    self.not_listening = true;
                    return;
                }
            };
            let room = room_for(&socket, limit)
                .min(Room::for_connections(self.connections.count(), &self.options.limits));
            if room < Room::Everyone && !self.counters.has_closed(Cause::TooMany) {
                let connections = self.counters.open;
                tracing::warn!(connections, limit, "no room for more clients: {}", Cause::TooMany);
            }
            // Streams are clients.
            let is_refused = if is_stream {
                room < Room::Everyone
            } else {
                room == Room::Own && !self.replace_provisional()
            };
            if is_refused {
                self.counters.count_closed(Cause::TooMany);
                self.turn_away(number as u32, &socket);
            } else if is_stream {
                self.on_stream_accepted(number as u32, socket, address, handler);
            } else if let Some(address) = address {
                self.on_accepted(socket, address, room < Room::Everyone);
            }
        }
    }

    /// Greets an accepted connection.
    fn on_accepted(&mut self, socket: OwnedFd, address: SocketAddr, is_provisional: bool) {
        let open_by = self.now + self.options.limits.greeting;
        let id = self.connections.insert(Connection::accepted(socket, address, open_by));
        self.timed.insert(id);
        self.counters.open += 1;
        self.counters.accepted += 1;
        let offer = self.doorway.as_mut().and_then(|doorway| doorway.offer(id));
        let preface = self.preface(offer);
        let Some(connection) = self.connections.get_mut(id) else { return };
        (connection.offered, connection.said) = (offer, self.options.cluster.known());
        connection.is_provisional = is_provisional;
        self.counters.held_bytes += connection.greet(&preface) as u64;
        let token = Token::Connection(id).number();
        let added = connection.fd().map(|fd| self.poller.add(fd, token, true, false));
        if !matches!(added, Some(Ok(()))) {
            self.failed.push((id, Cause::Reset));
        }
        self.unsent.push(id);
        if is_provisional {
            self.forget_settled();
            self.provisional.push_back(id);
        }
    }

    /// Closes the oldest provisional connection that has not greeted yet, for a newer one. Returns
    /// whether there was one. Otherwise silent connections could keep members out.
    fn replace_provisional(&mut self) -> bool {
        self.forget_settled();
        let Some(oldest) = self.provisional.pop_front() else { return false };
        // The handler does not know it yet.
        self.drop_connection(oldest, Cause::TooMany).is_some()
    }

    /// Removes the front provisional connections that have greeted or are closed.
    fn forget_settled(&mut self) {
        let waits = |connections: &crate::table::Table<Connection>, id: ConnectionId| {
            connections.get(id).is_some_and(|connection| connection.stage == Stage::Greeting)
        };
        while self.provisional.front().is_some_and(|id| !waits(&self.connections, *id)) {
            self.provisional.pop_front();
        }
    }
}

/// Returns the kind of peer that may have a socket, by the number of its descriptor.
pub(super) fn room_for(socket: impl AsFd, limit: u64) -> Room {
    Room::at(socket.as_fd().as_raw_fd().unsigned_abs().into(), limit)
}
