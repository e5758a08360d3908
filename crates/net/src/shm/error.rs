//! What can go wrong between two ends: a peer that breaks the rules of the rings ([`Corrupt`]), and
//! a handover that does not come about ([`HandoverError`]). Both mean that the connection is closed;
//! neither says anything about this process.

use std::io;

/// The peer has written something into the shared memory that no honest peer writes. The channel is
/// of no more use; bytes received before are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Corrupt {
    /// Where a record should begin there is something that is not the header of one.
    #[error("the word {word:#018x} at position {position} of the ring is no record's header")]
    Header {
        /// The position in the stream of records.
        position: u64,
        /// What was found.
        word: u64,
    },
    /// The peer says that it has consumed what it cannot have consumed.
    #[error(
        "the peer says it has consumed up to {claimed}; it had consumed {before} before, and \
         {produced} have been produced"
    )]
    Consumed {
        /// What the peer says.
        claimed: u64,
        /// What it said before.
        before: u64,
        /// How much there is to consume.
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
    /// What the server sent does not begin as a handover does.
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
    /// The server could still shrink the memory, and so kill this process when it touches it.
    #[error("the server's memory is not sealed against changes of its size")]
    NotSealed,
    /// The memory is not as large as the server says.
    #[error("the server's memory has {actual} bytes instead of {expected}")]
    Size {
        /// What follows from the size of the rings.
        expected: usize,
        /// What the file has.
        actual: u64,
    },
    /// The system refused something.
    #[error("the handover failed: {0}")]
    System(#[from] io::Error),
}

impl From<rustix::io::Errno> for HandoverError {
    fn from(error: rustix::io::Errno) -> HandoverError {
        HandoverError::System(error.into())
    }
}
