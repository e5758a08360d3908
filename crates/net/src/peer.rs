//! A connection's id, its peer, its limits, and the causes for which it closes.

use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_wire::ClusterId;
use thunderhead_wire::frame::{Agreement, PAYLOAD_BYTES_MAX};

/// Names a connection of one transport. Ids are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl std::fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "connection {}.{}", self.slot, self.generation)
    }
}

/// The medium that carries a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// A socket.
    Tcp,
    /// Rings in memory that both ends share.
    SharedMemory,
    /// A simulated network.
    Simulated,
}

/// The other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The peer's address.
    pub address: SocketAddr,
    /// The medium that carries the messages.
    pub via: Via,
    /// The outcome of the greeting.
    pub agreement: Agreement,
}

macro_rules! causes {
    ($($(#[$doc:meta])* $name:ident, $text:literal;)*) => {
        /// Why a connection was closed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Cause {
            $($(#[$doc])* $name,)*
        }

        impl Cause {
            /// All causes.
            pub const ALL: &'static [Cause] = &[$(Cause::$name),*];

            /// A sentence for people.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self {
                    $(Cause::$name => $text,)*
                }
            }
        }
    };
}

causes! {
    /// This end closed it.
    ByUs, "closed on this side";
    /// The peer closed it, or its process ended.
    ByPeer, "closed by the peer";
    /// The network or the peer's machine broke it.
    Reset, "broken by the network or the peer's machine";
    /// No process listens at the address.
    Refused, "no process listens at this address; check the address and that the program runs";
    /// The greeting did not arrive in time.
    NoGreeting, "the peer did not send its greeting in time";
    /// The first bytes were not a greeting of this protocol.
    NotOurs, "the peer does not speak this protocol";
    /// No version of the protocol is known to both ends.
    Version, "the peer speaks other versions of the protocol: upgrade the older side";
    /// The peer sent a frame that is longer than allowed.
    TooLong, "the peer sent a message that is longer than allowed";
    /// The peer sent invalid bytes.
    Malformed, "the peer sent bytes that are not valid in this protocol";
    /// The peer began a message and did not finish it in time.
    Unfinished, "the peer began a message and did not finish it in time";
    /// The peer does not read the bytes that wait for it.
    NotReading, "the peer does not read the messages sent to it";
    /// All connections together held more than allowed, and this one held most.
    HoldsMost, "all connections together hold more than allowed, and this one held most; \
        raise the limit or ask for less at once";
    /// There are more connections than allowed.
    TooMany, "there are more connections than allowed; raise the limit or use fewer clients";
    /// This process or machine has no free descriptors or ports. The peer was not contacted.
    Exhausted, "this process has no descriptors or ports left; raise its limit of open files or use fewer \
        connections";
    /// The other end belongs to another cluster.
    WrongCluster, "the peer belongs to another cluster; check the address and the name of the cluster";
    /// This end has just learned its cluster, and must be greeted again.
    ClusterLearned, "this side has learned to which cluster it belongs; connect again";
}

impl Cause {
    /// Whether this end alone is the reason. Such a failure says nothing about the peer.
    #[must_use]
    pub fn is_own(self) -> bool {
        matches!(self, Cause::ByUs | Cause::TooMany | Cause::Exhausted | Cause::ClusterLearned)
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}

/// The limits of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest message that a peer may send.
    pub message_bytes_max: usize,
    /// The longest part of a stream that its handler may leave unfinished.
    pub stream_bytes_max: usize,
    /// Connections that may be open at once. Further clients are turned away.
    pub connections_max: usize,
    /// Further connections that are reserved for servers and coordinators of the cluster. The same
    /// number again is reserved for connections that this end requests.
    pub connections_reserved: usize,
    /// Bytes waiting for a peer above which no more requests are taken from it.
    pub waiting_bytes_high: usize,
    /// Bytes waiting for a peer above which its connection is closed.
    pub waiting_bytes_max: usize,
    /// Bytes that all connections together may hold: bytes waiting for their peers, and partly
    /// received messages. Above half of it, no more is taken from connections that hold more than
    /// their share. Above all of it, the connections that hold most are closed.
    pub held_bytes_max: usize,
    /// The time that a greeting may take.
    pub greeting: Duration,
    /// The time from a message's first byte to its last, at any speed.
    pub unfinished: Duration,
    /// The time for which a message may arrive at any speed: longer than a short network outage.
    pub unhurried: Duration,
    /// Bytes that must have arrived for each second after that time.
    pub bytes_per_second_min: usize,
    /// The time for which a peer may leave sent bytes unread.
    pub not_reading: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            // The largest object is 1 MB; a multi-operation carries several.
            message_bytes_max: 8 << 20,
            // Redis's clients send strings of 32 MiB, and longer ones get an error in words.
            stream_bytes_max: 80 << 20,
            connections_max: 16_384,
            // Each shard of each other server has one connection, and so does each coordinator.
            connections_reserved: 4096,
            waiting_bytes_high: 1 << 20,
            // More than one request can produce beyond the mark above.
            waiting_bytes_max: 64 << 20,
            // A few dozen of the longest messages; a small part of a server's memory.
            held_bytes_max: 256 << 20,
            greeting: Duration::from_secs(5),
            // The longest message needs a few hundred kilobytes a second to finish in time.
            unfinished: Duration::from_secs(30),
            unhurried: Duration::from_secs(10),
            bytes_per_second_min: 64 << 10,
            not_reading: Duration::from_secs(30),
        }
    }
}

const _: () = assert!(8 << 20 <= PAYLOAD_BYTES_MAX, "a frame can hold the longest message");

/// Counts of a transport's work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages received.
    pub messages_in: u64,
    /// Messages sent.
    pub messages_out: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections that this end requested and that opened.
    pub connected: u64,
    /// Connections that moved to shared memory.
    pub shared_memory: u64,
    /// Connections open or being opened.
    pub open: u64,
    /// Bytes that all connections hold: bytes waiting for peers, and partly received messages.
    pub held_bytes: u64,
    /// How often a connection had to wait because it held too much.
    pub held_back: u64,
    /// The last peer that was refused because it belongs to another cluster.
    pub foreign_peer: Option<ForeignPeer>,
    /// Closed connections, by cause.
    closed: [u64; Cause::ALL.len()],
}

/// A peer of another cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignPeer {
    /// The peer's address.
    pub address: SocketAddr,
    /// The peer's cluster.
    pub cluster: ClusterId,
}

impl ForeignPeer {
    /// Returns a peer as a foreign one, if it was refused for its cluster.
    pub(crate) fn of(
        address: SocketAddr,
        cluster: Option<ClusterId>,
        why: Cause,
    ) -> Option<ForeignPeer> {
        cluster
            .filter(|_| why == Cause::WrongCluster)
            .map(|cluster| ForeignPeer { address, cluster })
    }
}

impl Counters {
    /// Returns the number of connections that were closed for a cause.
    #[must_use]
    pub fn closed(&self, why: Cause) -> u64 {
        self.closed[why as usize]
    }

    /// Whether a connection was closed for a cause.
    pub(crate) fn has_closed(&self, why: Cause) -> bool {
        self.closed(why) > 0
    }

    /// Counts a closed connection; returns whether it is the first for this cause.
    pub(crate) fn count_closed(&mut self, why: Cause) -> bool {
        self.closed[why as usize] += 1;
        self.closed[why as usize] == 1
    }
}
