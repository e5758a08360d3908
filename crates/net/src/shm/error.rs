//! The failures between two ends: a peer that breaks the rules of the rings ([`Corrupt`]), and a
//! handover that fails ([`HandoverError`]). In both cases the connection is closed. Neither is a
//! fault of this process.

use std::io;

/// The peer has written a value into the shared memory that no honest peer writes. The channel is
/// unusable from now on; bytes received before are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Corrupt {
    /// A record should begin here, but the word is not a record's header.
    #[error("the word {word:#018x} at position {position} of the ring is no record's header")]
    Header {
        /// The position in the stream of records.
        position: u64,
        /// The word found there.
        word: u64,
    },
    /// The peer claims to have consumed more than was produced, or less than before.
    #[error(
        "the peer says it has consumed up to {claimed}; it had consumed {before} before, and \
         {produced} have been produced"
    )]
    Consumed {
        /// The position that the peer claims.
        claimed: u64,
        /// The position that it claimed before.
        before: u64,
        /// The position up to which records were produced.
        produced: u64,
    },
}

/// Why a handover failed. The socket is to be closed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandoverError {
    /// The other side closed the socket early. To a client this is how a server refuses it.
    #[error("the other side closed the socket before the handover was complete")]
    Closed,
    /// The server's first bytes are not those of a handover.
    #[error("the other side does not speak the handover of shared memory")]
    Foreign,
    /// The server lays out the memory in another way.
    #[error("the server's layout of shared memory has version {theirs}; this is version {ours}")]
    Version {
        /// The server's.
        theirs: u32,
        /// This end's.
        ours: u32,
    },
    /// The server offers rings of a size that this end does not accept.
    #[error("the server offers rings of {0} bytes: not a power of two from 4 KiB to 64 MiB")]
    RingBytes(u64),
    /// The server's message came without a file descriptor.
    #[error("the server sent no file descriptor")]
    NoDescriptor,
    /// The server could still shrink the memory, which would kill this process when it touches the
    /// memory.
    #[error("the server's memory is not sealed against changes of its size")]
    NotSealed,
    /// The memory is not as large as the server says.
    #[error("the server's memory has {actual} bytes instead of {expected}")]
    Size {
        /// The size that the layout for these rings needs.
        expected: usize,
        /// The size of the file.
        actual: u64,
    },
    /// The operating system refused a step.
    #[error("the handover failed: {0}")]
    System(#[from] io::Error),
}

impl From<rustix::io::Errno> for HandoverError {
    fn from(error: rustix::io::Errno) -> HandoverError {
        HandoverError::System(error.into())
    }
}
