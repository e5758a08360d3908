//! What is known of a connection and its other end, and what it is allowed.

use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_wire::frame::{Agreement, PAYLOAD_BYTES_MAX};

/// Names a connection of one transport. Never used again.
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

/// What carries a connection.
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
    /// Where it is.
    pub address: SocketAddr,
    /// How messages get there.
    pub via: Via,
    /// What was agreed on when it was greeted.
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
            /// All of them.
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
    /// We wanted it.
    ByUs, "closed on this side";
    /// The peer wanted it, or its program ended.
    ByPeer, "closed by the peer";
    /// The network or the peer's machine broke it.
    Reset, "broken by the network or the peer's machine";
    /// Nobody listens there.
    Refused, "nobody listens at this address";
    /// It was not greeted in time.
    NoGreeting, "the peer did not say hello in time";
    /// What came first was no greeting of ours.
    NotOurs, "the peer does not speak this protocol";
    /// No version of the protocol is known to both.
    Version, "the peer speaks other versions of the protocol: upgrade the older side";
    /// A frame longer than allowed.
    TooLong, "the peer sent a message that is longer than allowed";
    /// Bytes that make no sense.
    Malformed, "the peer sent bytes that make no sense";
    /// A message that never came to its end.
    Unfinished, "the peer began a message and did not finish it in time";
    /// The peer does not read what it is sent.
    NotReading, "the peer does not read what it is sent";
    /// All connections together held more than allowed, and this one held most.
    HoldsMost, "all connections together hold more than allowed, and this one held most; \
        raise the limit or ask for less at once";
    /// More connections than allowed.
    TooMany, "there are more connections than allowed; raise the limit or use fewer clients";
    /// This process or machine has no descriptors or ports for it. The peer was not asked.
    Exhausted, "this process has no descriptors or ports left; raise its limit of open files or use fewer \
        connections";
    /// The other end belongs to another cluster.
    WrongCluster, "the peer belongs to another cluster; check the address, and which cluster is meant";
    /// This end has learned to which cluster it belongs, and must be greeted anew.
    ClusterLearned, "this side has learned to which cluster it belongs; connect again";
}

impl Cause {
    /// Whether this end alone is the reason: such a failure says nothing about the peer.
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

/// What connections are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest message that may come in.
    pub message_bytes_max: usize,
    /// Connections that may be open at once. More clients are turned away.
    pub connections_max: usize,
    /// Connections beyond those that servers and coordinators of the cluster may have. As many again are kept
    /// for connections that this end asks for.
    pub connections_reserved: usize,
    /// Bytes waiting for a peer at which we take no more requests from it.
    pub waiting_bytes_high: usize,
    /// Bytes waiting for a peer at which its connection is closed.
    pub waiting_bytes_max: usize,
    /// Bytes that all connections together may hold: what waits for their peers, and what has come
    /// of messages in part. From half of it on nothing more is taken from those that hold more than
    /// their share; beyond it, those that hold most are closed.
    pub held_bytes_max: usize,
    /// How long a greeting may take.
    pub greeting: Duration,
    /// How long a message that has begun may take until it is whole, whatever its progress.
    pub unfinished: Duration,
    /// How long it may come as slowly as it likes: longer than a network is away for a moment.
    pub unhurried: Duration,
    /// Bytes of it that must have come for each second beyond that.
    pub bytes_per_second_min: usize,
    /// How long a peer may leave what it is sent unread.
    pub not_reading: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            // The largest object is 1 MB; a multi-operation carries several.
            message_bytes_max: 8 << 20,
            connections_max: 16_384,
            // Each shard of each other server has one; and coordinators.
            connections_reserved: 4096,
            waiting_bytes_high: 1 << 20,
            // More than what one request can ask for beyond the mark above.
            waiting_bytes_max: 64 << 20,
            // Some dozens of the longest messages; a small part of what a server's memory is.
            held_bytes_max: 256 << 20,
            greeting: Duration::from_secs(5),
            // The longest message gets through within the time at a few hundred kilobytes a second.
            unfinished: Duration::from_secs(30),
            unhurried: Duration::from_secs(10),
            bytes_per_second_min: 64 << 10,
            not_reading: Duration::from_secs(30),
        }
    }
}

const _: () = assert!(8 << 20 <= PAYLOAD_BYTES_MAX, "a frame can tell the longest message");

/// What a transport has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that came in.
    pub messages_in: u64,
    /// Messages that were sent.
    pub messages_out: u64,
    /// Bytes that came in.
    pub bytes_in: u64,
    /// Bytes that went out.
    pub bytes_out: u64,
    /// Connections that were accepted.
    pub accepted: u64,
    /// Connections that were opened from here.
    pub connected: u64,
    /// Connections that went over to shared memory.
    pub shared_memory: u64,
    /// Connections that are open or being opened.
    pub open: u64,
    /// Bytes that all connections hold: what waits for their peers, and what has come in part.
    pub held_bytes: u64,
    /// How often nothing more was taken from a connection for a while, for what it held.
    pub held_back: u64,
    /// Connections that were closed, by cause.
    closed: [u64; Cause::ALL.len()],
}

impl Counters {
    /// Connections that were closed for a cause.
    #[must_use]
    pub fn closed(&self, why: Cause) -> u64 {
        self.closed[why as usize]
    }

    /// Whether a connection was closed for a cause.
    pub(crate) fn has_closed(&self, why: Cause) -> bool {
        self.closed(why) > 0
    }

    /// Counts a connection that was closed; says whether it is the first for this cause.
    pub(crate) fn count_closed(&mut self, why: Cause) -> bool {
        self.closed[why as usize] += 1;
        self.closed[why as usize] == 1
    }
}
