//! Messages between programs: over TCP, over shared memory where both ends share a host, or over a
//! simulated network. What is said in them is the affair of `rpc`.
//!
//! A [`Transport`] belongs to one reactor. It never waits: [`Transport::poll`] takes what has
//! arrived and tells a [`Handler`]; what is sent leaves at the end of the turn, in
//! [`Transport::flush`], together with everything else for the same peer.
//!
//! # What a connection promises
//!
//! - It is greeted: both ends know version, features and cluster of the other before anything else.
//! - Both ends are of one cluster, as far as they know ([`OwnCluster`]).
//! - A message arrives whole and as it was sent, or not at all. Over TCP and shared memory
//!   messages arrive once and in order; **nobody may rely on that**: a datagram transport will
//!   lose, repeat and reorder them, and the simulated one does.
//! - When it is closed, both handlers learn of it at some time, once.
//!
//! It does not promise that what was sent has arrived: only an answer says that.
//!
//! # What a peer can do to us
//!
//! Close its connection, or have it closed. Whatever it sends, or does not send or read, costs at
//! most the memory that [`Limits`] allow, for each connection and for all together, and nobody else
//! notices.

mod budget;
mod cluster;
pub mod os;
mod peer;
mod room;
pub mod shm;
pub mod sim;
mod table;

pub use cluster::OwnCluster;
pub use peer::{Cause, ConnectionId, Counters, Limits, Peer, Via};
pub use thunderhead_wire::frame::Agreement;

use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_runtime::Time;

/// Told what has arrived.
pub trait Handler {
    /// A connection is ready for messages: one that was accepted, or one that was asked for.
    fn opened(&mut self, transport: &mut dyn Transport, connection: ConnectionId) {
        let _ = (transport, connection);
    }

    /// Bytes were taken from the outside, and messages that were among them follow. What the time is
    /// after this is a time at which these messages had been sent.
    fn received(&mut self) {}

    /// A message has arrived.
    fn message(&mut self, transport: &mut dyn Transport, from: ConnectionId, message: &[u8]);

    /// A connection is no more; its id will not be used again. Also told of connections that were
    /// asked for and never opened.
    fn closed(&mut self, transport: &mut dyn Transport, connection: ConnectionId, why: Cause) {
        let _ = (transport, connection, why);
    }
}

/// A way to send messages.
pub trait Transport {
    /// Says to which cluster this end belongs: greetings name it from now on, and connections that were
    /// greeted otherwise are closed; their handler is told with the next poll.
    fn set_cluster(&mut self, cluster: OwnCluster);

    /// The cluster that this end belongs to, as far as it knows.
    fn cluster(&self) -> OwnCluster;

    /// Accepts connections at an address; port 0 stands for any that is free. Returns where.
    ///
    /// # Errors
    /// When the address cannot be had.
    fn listen(&mut self, address: SocketAddr) -> std::io::Result<SocketAddr>;

    /// Tells it what time it is, where it is used without having been polled for a while: what it
    /// does at a time it does by this one or that of the last poll. A poll tells it too.
    fn tell_time(&mut self, now: Time);

    /// Asks for a connection. [`Handler::opened`] or [`Handler::closed`] follows.
    fn connect(&mut self, address: SocketAddr) -> ConnectionId;

    /// Lets leave what was sent before, takes what has arrived, and lets the answers to that leave.
    /// Says whether anything arrived.
    fn poll(&mut self, now: Time, handler: &mut dyn Handler) -> bool;

    /// Sends a message, made of some parts; it leaves with the next flush or poll, or at once when
    /// it is long. A connection that is closed takes it and forgets it. Nothing is sent over one of ours before it
    /// is opened, nor over one that was accepted before something has come: until then it may move to shared
    /// memory, and what is on its way is lost.
    fn send(&mut self, to: ConnectionId, parts: &[&[u8]]);

    /// Lets everything leave that was sent.
    fn flush(&mut self);

    /// Closes a connection, after what was sent on it has left if the peer takes it. The handler
    /// is not told.
    fn close(&mut self, connection: ConnectionId, why: Cause);

    /// Who is at the other end, once the connection is open.
    fn peer(&self, connection: ConnectionId) -> Option<&Peer>;

    /// Bytes that wait for the peer to take them.
    fn waiting_bytes(&self, connection: ConnectionId) -> usize;

    /// Whether so little waits for the peer that one may go on sending. Who does nevertheless only
    /// has more wait, until the connection is closed for it.
    fn takes_more(&self, connection: ConnectionId) -> bool {
        self.waiting_bytes(connection) <= self.limits().waiting_bytes_high
    }

    /// What connections are allowed.
    fn limits(&self) -> &Limits;

    /// Sleeps until something arrives or the reactor's alarm rings, but no longer than this.
    fn sleep(&mut self, at_most: Option<Duration>);

    /// When it wants to be polled though nothing arrives.
    fn deadline(&self) -> Option<Time>;

    /// What it has done.
    fn counters(&self) -> &Counters;
}
