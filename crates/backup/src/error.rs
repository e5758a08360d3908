//! The crate's errors: a call that is [refused](Refusal), a store that cannot be
//! [opened](OpenError), a replica that cannot be [read](ReadError) or is [not served](Unserved).

use crate::layout::{Geometry, Identity, ReplicaId};
use std::io;
use thunderhead_runtime::lasting::WrongOwner;
use thunderhead_wire::{Epoch, MasterId, RecoveryId};

/// The reason why a call was refused. A refused call changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Every frame is in use.
    #[error("every frame of this backup is in use; choose another backup")]
    Full,
    /// Too much waits for the disk, or too many reads are under way.
    #[error("this backup is behind with its disk; choose another, or try again shortly")]
    Overloaded,
    /// There is no such replica here.
    #[error("there is no replica of {0} here")]
    NotFound(ReplicaId),
    /// The replica was closed, or has another length than the call says.
    #[error("the replica of {id} is closed at {length} bytes")]
    Closed {
        /// The replica.
        id: ReplicaId,
        /// Its bytes.
        length: u32,
    },
    /// Bytes between the replica's end and the offset of the call are missing.
    #[error("the replica of {id} has {length} bytes; the next bytes begin there")]
    Gap {
        /// The replica.
        id: ReplicaId,
        /// Its bytes.
        length: u32,
    },
    /// The bytes do not fit into a segment.
    #[error("the bytes of {id} would end at {end}; a segment has {limit}")]
    TooLong {
        /// The replica.
        id: ReplicaId,
        /// Where they would end.
        end: u64,
        /// The most that is allowed.
        limit: u32,
    },
    /// The segment has gone on to a later epoch.
    #[error("{id} is at {current}; the call is of an earlier epoch")]
    StaleEpoch {
        /// The replica.
        id: ReplicaId,
        /// The epoch of the replica.
        current: Epoch,
    },
    /// Repeated bytes differ from those of the first call.
    #[error("bytes of {0} were sent again and differ: the sender is broken")]
    Differs(ReplicaId),
    /// The replica gets no more bytes: it is from before this backup was started, its disk failed,
    /// or another replica needed its buffer.
    #[error(
        "{0} was open when this backup was restarted, or its disk failed, or another replica needed its buffer; \
         replicate it again"
    )]
    Interrupted(ReplicaId),
    /// The replica exists and is closed.
    #[error("there is a closed replica of {0} here")]
    Exists(ReplicaId),
}

impl Refusal {
    /// A stable number for logs and wires; never reused for another meaning.
    #[must_use]
    pub fn code(&self) -> u16 {
        match self {
            Refusal::Full => 1,
            Refusal::Overloaded => 2,
            Refusal::NotFound(_) => 3,
            Refusal::Closed { .. } => 4,
            Refusal::Gap { .. } => 5,
            Refusal::TooLong { .. } => 6,
            Refusal::StaleEpoch { .. } => 7,
            Refusal::Differs(_) => 8,
            Refusal::Interrupted(_) => 9,
            // 10 was "lost to a disk error".
            Refusal::Exists(_) => 11,
        }
    }

    /// Whether the same call may succeed here a moment later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Refusal::Overloaded)
    }
}

/// The reason why a store cannot be opened. The file is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The options are not possible.
    #[error("{0}")]
    Options(String),
    /// Another process has the store.
    #[error("another process uses this backup storage; stop it first, or give this one another")]
    InUse,
    /// Another process has mapped the buffers of the store.
    #[error(
        "another process has the buffers of this storage: it runs with a copy of this directory, or with a link to \
         its storage; stop that process first"
    )]
    CopyInUse,
    /// The file is not a backup's.
    #[error("the file is no backup storage: move it away, or give another directory")]
    Foreign,
    /// Another version wrote the file.
    #[error(
        "the storage has format {version} with features {features:#x}; this version reads {known}"
    )]
    Version {
        /// Its version.
        version: u16,
        /// Its features.
        features: u32,
        /// The version known here.
        known: u16,
    },
    /// Both superblocks are damaged.
    #[error(
        "both copies of the storage's superblock are damaged; `thunderhead backup check` reports more"
    )]
    Damaged,
    /// The file is shorter than its superblock says.
    #[error("the storage has {actual} bytes and should have {expected}: it was cut short")]
    Size {
        /// The size that the superblock gives.
        expected: u64,
        /// The size of the file.
        actual: u64,
    },
    /// The store belongs to another server or cluster.
    #[error(
        "the storage belongs to {} of {}, not to {} of {}",
        actual.server, actual.cluster, expected.server, expected.cluster
    )]
    Identity {
        /// The identity of the process that opened it.
        expected: Identity,
        /// The identity in the superblock.
        actual: Identity,
    },
    /// The store has other sizes.
    #[error(
        "the storage has {} frames of {} bytes; the options say {} of {}",
        actual.frames, actual.segment_bytes, expected.frames, expected.segment_bytes
    )]
    Geometry {
        /// The sizes in the options.
        expected: Geometry,
        /// The sizes in the superblock.
        actual: Geometry,
    },
    /// There is no room for the file.
    #[error("the disk has no room for {bytes} bytes of backup storage")]
    NoRoom {
        /// The size of the file.
        bytes: u64,
    },
    /// There is no memory for the buffers.
    #[error(
        "there is no shared memory for the buffers, {} MiB: {error}; make more room there, or put the buffers elsewhere \
         (the setting `buffer_directory`)",
        bytes.div_ceil(1 << 20)
    )]
    NoMemory {
        /// The size of the buffers.
        bytes: usize,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The shared memory for the buffers belongs to another process or must not be used.
    #[error("the shared memory for the buffers cannot be used: {0}")]
    Untrusted(io::Error),
    /// The buffers and the storage belong to the same user, and this process to another one.
    #[error(
        "{0}; the storage belongs to user {user}, too: run this as that user. Do not remove {path}: it may hold \
         replicas that are not on the disk",
        user = .0.user, path = .0.path
    )]
    OtherUser(WrongOwner),
    /// The buffers belong to a user that owns neither the storage nor this process.
    #[error(
        "the shared memory for the buffers cannot be trusted: {0}, and the storage to neither; if no server of yours has \
         left it there, remove it"
    )]
    Forged(WrongOwner),
    /// The configured buffer directory has changed, and a killed process left replicas in the
    /// former one.
    #[error(
        "replicas that are not on the disk are in {left}, and the buffers are to be in {wanted}: start the server once more \
         with {left} (the setting `buffer_directory`) and end it in order, which takes them to the disk"
    )]
    LeftElsewhere {
        /// The former buffer directory, which has the replicas.
        left: String,
        /// The buffer directory that is configured now.
        wanted: String,
    },
    /// The configured buffer directory has changed, and the former one cannot be read.
    #[error(
        "the buffers were in {left} and are to be in {wanted} (the setting `buffer_directory`), but what a killed process may \
         have left there cannot be looked at: {error}; bring it back, or remove the file {file} in the data directory if it \
         is gone for good"
    )]
    Unseen {
        /// The former buffer directory.
        left: String,
        /// The buffer directory that is configured now.
        wanted: String,
        /// The file that records the former directory.
        file: String,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The disk failed.
    #[error("the storage cannot be read or written: {0}")]
    Io(#[from] io::Error),
}

impl OpenError {
    /// A stable number for logs; never reused for another meaning.
    #[must_use]
    pub fn code(&self) -> u16 {
        match self {
            OpenError::Options(_) => 1,
            OpenError::InUse => 2,
            OpenError::Foreign => 3,
            OpenError::Version { .. } => 4,
            OpenError::Damaged => 5,
            OpenError::Size { .. } => 6,
            OpenError::Identity { .. } => 7,
            OpenError::Geometry { .. } => 8,
            OpenError::NoRoom { .. } => 9,
            OpenError::NoMemory { .. } => 10,
            OpenError::Io(_) => 11,
            OpenError::CopyInUse => 12,
            OpenError::Untrusted(_) | OpenError::Forged(_) => 13,
            OpenError::OtherUser(_) => 14,
            OpenError::LeftElsewhere { .. } => 15,
            OpenError::Unseen { .. } => 16,
        }
    }
}

/// The reason why a replica could not be read. None of it is served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The frame holds another replica by now.
    #[error("the replica is gone")]
    Gone,
    /// The header of the frame is damaged.
    #[error("the header of the frame is damaged")]
    Header,
    /// A chunk differs from its checksum.
    #[error("chunk {chunk} is damaged")]
    Chunk {
        /// The chunk.
        chunk: u32,
    },
    /// The disk failed.
    #[error("the disk failed: {0}")]
    Io(io::ErrorKind),
}

/// The reason why a replica is not scanned or cut for a recovery. The caller gets the number; the
/// sentence is for the backup's own log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unserved {
    /// The store refused to read it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Reading it failed.
    #[error("{0}; another replica of the segment has its contents")]
    Unread(#[from] ReadError),
    /// Its bytes are as they were sent, but are not a valid segment.
    #[error("{0}; another replica of the segment may be better")]
    Damaged(thunderhead_log::Damage),
    /// A recovery that this backup does not know.
    #[error(
        "this backup does not know recovery {recovery} of {master}: the recovery was forgotten, or the backup was restarted"
    )]
    UnknownRecovery {
        /// The recovery.
        recovery: RecoveryId,
        /// The crashed master.
        master: MasterId,
    },
    /// A newer recovery of the same master has begun.
    #[error("recovery {newer} of {master} has begun since; this one is over")]
    Superseded {
        /// The newer recovery.
        newer: RecoveryId,
        /// The crashed master.
        master: MasterId,
    },
}

impl Unserved {
    /// A stable number for logs and wires; never reused for another meaning. Below 32 they are
    /// those of [`Refusal::code`].
    #[must_use]
    pub fn code(&self) -> u16 {
        match self {
            Unserved::Refused(refusal) => refusal.code(),
            Unserved::Unread(ReadError::Gone) => 32,
            Unserved::Unread(ReadError::Header) => 33,
            Unserved::Unread(ReadError::Chunk { .. }) => 34,
            Unserved::Unread(ReadError::Io(_)) => 35,
            Unserved::Damaged(_) => 36,
            Unserved::UnknownRecovery { .. } => 37,
            Unserved::Superseded { .. } => 38,
        }
    }
}
