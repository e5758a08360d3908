//! Messages between programs: over TCP, over shared memory if both ends share a host, or over a
//! simulated network. The meaning of a message is the concern of `rpc`.
//!
//! A [`Transport`] belongs to one reactor. It never blocks. [`Transport::poll`] takes the bytes
//! that have arrived and calls a [`Handler`]. Sent messages leave at the end of the turn, in
//! [`Transport::flush`], together with all other messages for the same peer.
//!
//! # Promises of a connection
//!
//! - Both ends greet before anything else: each then knows the other's version, features and
//!   cluster.
//! - Both ends belong to one cluster, as far as they know ([`OwnCluster`]).
//! - A message arrives whole and unchanged, or not at all. Over TCP and shared memory messages
//!   arrive once and in order, but **no code may rely on that**: a datagram transport will lose,
//!   duplicate and reorder them, and the simulated transport does so today.
//! - After a connection closes, the handler at each end is told once.
//!
//! A transport also carries byte streams for protocols of others: see [`stream`].
//!
//! It does not promise that a sent message has arrived: only a reply proves that.
//!
//! # Hostile peers
//!
//! A peer can close its connection or get it closed. Its messages, its silence and its unread
//! replies cost at most the memory that [`Limits`] allow, for each connection and for all together.
//! Other connections are not affected.

mod budget;
mod cluster;
pub mod os;
mod peer;
mod room;
pub mod shm;
pub mod sim;
pub mod stream;
mod table;

pub use cluster::OwnCluster;
pub use peer::{Cause, ConnectionId, Counters, ForeignPeer, Limits, Peer, Via};
pub use thunderhead_wire::frame::Agreement;

use std::net::SocketAddr;
use std::time::Duration;
use stream::{Opened, StreamAddress, Taken};
use thunderhead_runtime::Time;

/// Handles the events of a transport.
pub trait Handler {
    /// A connection is ready for messages. It was either accepted or requested by
    /// [`Transport::connect`].
    fn opened(&mut self, transport: &mut dyn Transport, connection: ConnectionId) {
        let _ = (transport, connection);
    }

    /// Bytes have arrived from outside, and the calls for the messages among them follow. A clock
    /// reading after this call is a time by which these messages had been sent.
    fn received(&mut self) {}

    /// A message has arrived.
    fn message(&mut self, transport: &mut dyn Transport, from: ConnectionId, message: &[u8]);

    /// A connection has closed; its id will not be used again. Also called for a requested
    /// connection that never opened.
    fn closed(&mut self, transport: &mut dyn Transport, connection: ConnectionId, why: Cause) {
        let _ = (transport, connection, why);
    }

    /// A stream has opened.
    fn stream_opened(
        &mut self,
        transport: &mut dyn Transport,
        stream: ConnectionId,
        opened: Opened,
    ) {
        let _ = (transport, stream, opened);
    }

    /// A stream has unused bytes: all of them, at least one. Returns how many are used now.
    fn stream_bytes(
        &mut self,
        transport: &mut dyn Transport,
        from: ConnectionId,
        bytes: &[u8],
    ) -> Taken {
        let _ = (transport, from);
        Taken::read_on(bytes.len())
    }

    /// The peer of a stream sends no further bytes, while the handler waits and was not offered all
    /// of them. [`stream_ended`](Handler::stream_ended) follows once it was. It is called at most
    /// once for a stream.
    fn stream_ending(&mut self, transport: &mut dyn Transport, stream: ConnectionId) {
        let _ = (transport, stream);
    }

    /// The peer of a stream sends no further bytes, and all that it sent were offered. It may still
    /// read. By default the stream is closed once it has taken the output. A handler that waits to
    /// send more of it finishes the stream itself, after that.
    fn stream_ended(&mut self, transport: &mut dyn Transport, stream: ConnectionId) {
        transport.finish(stream);
    }

    /// A stream has closed; its id will not be used again. Also called for a requested stream that
    /// never opened.
    fn stream_closed(&mut self, transport: &mut dyn Transport, stream: ConnectionId, why: Cause) {
        let _ = (transport, stream, why);
    }
}

/// A way to send messages.
pub trait Transport {
    /// Sets the cluster that this end belongs to. Greetings name it from now on. Connections that
    /// were greeted differently are closed, and the next poll tells their handler.
    fn set_cluster(&mut self, cluster: OwnCluster);

    /// Returns the cluster that this end belongs to, as far as it knows.
    fn cluster(&self) -> OwnCluster;

    /// Accepts connections at an address and returns the bound address. Port 0 stands for any free
    /// port.
    ///
    /// # Errors
    /// If the address cannot be bound.
    fn listen(&mut self, address: SocketAddr) -> std::io::Result<SocketAddr>;

    /// Accepts byte streams at an address. Returns the address, and a number that
    /// [`Handler::stream_opened`] is given. If there is no room for a stream, it is sent `farewell`
    /// and closed.
    ///
    /// # Errors
    /// If the address cannot be bound.
    fn listen_stream(
        &mut self,
        address: &StreamAddress,
        farewell: &'static [u8],
    ) -> std::io::Result<(StreamAddress, u32)>;

    /// Requests a byte stream. [`Handler::stream_opened`] or [`Handler::stream_closed`] follows.
    fn connect_stream(&mut self, address: SocketAddr) -> ConnectionId;

    /// Sends bytes over a stream, made of several parts. They leave with the next flush or poll, or
    /// at once if they are many. A closed stream discards them.
    fn send_bytes(&mut self, to: ConnectionId, parts: &[&[u8]]);

    /// Offers the bytes of a stream again whose handler wanted to [wait](stream::Then::Wait).
    fn resume(&mut self, stream: ConnectionId);

    /// Takes no more bytes from a stream, and closes it once its peer has taken the output. Then
    /// [`Handler::stream_closed`] is called. Bytes that are sent later are discarded.
    fn finish(&mut self, stream: ConnectionId);

    /// Sends no more bytes over a stream, and tells its peer so once it has taken the output. The
    /// peer may still send. Bytes that are sent later are discarded.
    fn end_output(&mut self, stream: ConnectionId);

    /// Sets the transport's time. A caller needs this only before it uses a transport that has not
    /// been polled for a while: the transport dates its actions by this time or by that of the last
    /// poll.
    fn tell_time(&mut self, now: Time);

    /// Requests a connection. [`Handler::opened`] or [`Handler::closed`] follows.
    fn connect(&mut self, address: SocketAddr) -> ConnectionId;

    /// Flushes earlier messages, takes the bytes that have arrived, and flushes the replies to
    /// them. Returns whether anything arrived.
    fn poll(&mut self, now: Time, handler: &mut dyn Handler) -> bool;

    /// Delivers no further message in the poll that runs. The next poll delivers them, and comes
    /// at once. A handler calls this after costly messages, to keep the turn short.
    fn hold_input(&mut self);

    /// Sends a message, made of several parts. It leaves with the next flush or poll, or at once if
    /// it is long. A closed connection discards it. Nothing may be sent over a requested connection
    /// before it opens, nor over an accepted one before its first message has arrived: until then
    /// the connection may move to shared memory, and bytes in flight on the socket would be lost.
    fn send(&mut self, to: ConnectionId, parts: &[&[u8]]);

    /// Flushes all sent messages.
    fn flush(&mut self);

    /// Closes a connection, after sent messages have left if the peer takes them. The handler is
    /// not told.
    fn close(&mut self, connection: ConnectionId, why: Cause);

    /// Returns the peer, once the connection is open.
    fn peer(&self, connection: ConnectionId) -> Option<&Peer>;

    /// Returns the number of bytes that wait for the peer to take them.
    fn waiting_bytes(&self, connection: ConnectionId) -> usize;

    /// Whether the caller should go on sending. If it sends nevertheless, more bytes wait for the
    /// peer, until the connection is closed for them.
    fn takes_more(&self, connection: ConnectionId) -> bool {
        self.waiting_bytes(connection) <= self.limits().waiting_bytes_high
    }

    /// Returns the limits of this transport's connections.
    fn limits(&self) -> &Limits;

    /// Sleeps until bytes arrive or the reactor's alarm rings, but at most for the given time.
    fn sleep(&mut self, at_most: Option<Duration>);

    /// Returns the time at which the transport must be polled even if nothing arrives.
    fn deadline(&self) -> Option<Time>;

    /// Returns the transport's counters.
    fn counters(&self) -> &Counters;
}
