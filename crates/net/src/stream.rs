//! Byte streams: connections without greetings and messages, for protocols of others.
//!
//! A stream belongs to the same transport as the connections for messages, so no other thread takes
//! part. It is open at once. Its handler is given all bytes that have arrived, and says how many of
//! them it has used. The rest is offered again, together with later bytes.
//!
//! The limits for messages hold for streams too: unread output, unfinished input, and the bytes
//! that all connections hold together. A stream that only waits may do so for ever.
//!
//! Streams are for clients. If connections run short, they are turned away before servers and
//! coordinators are.

use std::net::SocketAddr;
use std::path::PathBuf;

/// A place where a transport accepts streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamAddress {
    /// A port. Port 0 stands for any free port.
    Tcp(SocketAddr),
    /// A socket in the file system, with these permissions.
    Unix(PathBuf, u32),
}

impl std::fmt::Display for StreamAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StreamAddress::Tcp(address) => address.fmt(f),
            StreamAddress::Unix(path, _) => path.display().fmt(f),
        }
    }
}

/// A stream that has just opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The number that [`Transport::listen_stream`](crate::Transport::listen_stream) returned;
    /// `None` for a stream that this end requested.
    pub listener: Option<u32>,
    /// The peer's address; `None` over a socket of the file system.
    pub peer: Option<SocketAddr>,
}

/// The part of the offered bytes that a handler has used, and its wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Bytes that need not be offered again.
    pub bytes: usize,
    /// The time at which it wants the rest.
    pub then: Then,
}

/// The time at which a handler wants more of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The rest is unfinished: when more bytes have arrived. They must come in time.
    Read,
    /// The rest may be complete: in the next poll, or when the peer has taken enough of the output.
    Again,
    /// When [`Transport::resume`](crate::Transport::resume) is called.
    Wait,
}

impl Taken {
    /// All but an unfinished rest is used.
    #[must_use]
    pub fn read_on(bytes: usize) -> Taken {
        Taken { bytes, then: Then::Read }
    }
}
