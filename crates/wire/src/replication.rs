//! The bodies of messages between masters and backups about replicas, as views of the bytes as they
//! came.
//!
//! ```text
//!  replicate      replicate head, (replica part, bytes)*         answer: (part answer)*
//!  replicate head 0 master u64   8 list_version u64   16 server u64   24 generation u64
//!  replica part   0 segment u64   8 epoch u64   16 offset u32   20 bytes u32   24 length u32
//!                 28 flags u8   29 (zero) [3]
//!  part answer    0 refusal u16   2 (zero) [2]   4 length u32
//!
//!  read replica   0 master u64   8 segment u64   16 offset u32   20 bytes u32
//!                                                    answer: 0 length u32   4 (zero) [4], bytes
//!  recovery data  0 master u64   8 recovery u64   16 segment u64   24 partition u32
//!                 28 offset u32   32 bytes u32   36 (zero) [4]
//!                                                    answer: as of read replica
//! ```
//!
//! The part of a replica that belongs to a partition is a segment, too: the segment's header, then
//! the unchanged entries of that partition, and all safe versions. Its length may differ between
//! replicas of an open segment, so a reader that goes on with another replica begins at its
//! beginning. A backup that has not come so far yet answers that it is busy.
//!
//! The parts of one message are done in order. Within a part, the flags are carried out in this
//! order: open, append the bytes at the offset, commit, close with this length; or free, alone.
//! Repeating a part changes nothing. `list_version` is the version of the master's list of servers:
//! a backup with an older list may ask for it. `server` and `generation` name the generation of the
//! backup for which the message is meant: its address may belong to another server by now, and a
//! delayed message must not change the replicas of a later generation. A message without parts asks
//! whether the backup still takes this master's replicas, and is answered at once, without a body:
//! the master's read lease depends on it ([`READ_LEASE`](crate::control::READ_LEASE)).
//!
//! The answer to a part that was done has refusal 0 and the replica's length. Otherwise it has the
//! backup's number for the reason, and the length that the backup has of the replica. Parts behind
//! a refused one of the same segment are not done.

use crate::{Epoch, Generation, MasterId, RecoveryId, SegmentId, ServerId};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Begins the replica.
pub const OPEN: u8 = 1;
/// With [`OPEN`]: the replica does not count until it is committed or closed.
pub const ATOMIC: u8 = 2;
/// The replica counts from now on.
pub const COMMIT: u8 = 4;
/// The replica has `length` bytes and gets no more.
pub const CLOSE: u8 = 8;
/// Frees the replica.
pub const FREE: u8 = 16;

/// The master whose replicas are meant, and the backup.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ReplicateHead {
    master: U64,
    list_version: U64,
    server: U64,
    generation: U64,
}

impl ReplicateHead {
    /// The head of a message from a master to a server in one of its generations.
    #[must_use]
    pub fn new(
        master: MasterId,
        list_version: u64,
        (server, generation): (ServerId, Generation),
    ) -> ReplicateHead {
        ReplicateHead {
            master: master.0.into(),
            list_version: list_version.into(),
            server: server.0.into(),
            generation: generation.0.into(),
        }
    }

    /// Takes a head off the front.
    #[must_use]
    pub fn take(bytes: &[u8]) -> Option<(&ReplicateHead, &[u8])> {
        ReplicateHead::ref_from_prefix(bytes).ok()
    }

    /// The master.
    #[must_use]
    pub fn master(&self) -> MasterId {
        MasterId(self.master.get())
    }

    /// The version of the master's list of servers.
    #[must_use]
    pub fn list_version(&self) -> u64 {
        self.list_version.get()
    }

    /// The server for which the message is meant, and its generation.
    #[must_use]
    pub fn life(&self) -> (ServerId, Generation) {
        (ServerId(self.server.get()), Generation(self.generation.get()))
    }
}

/// The operations on one replica.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ReplicaPart {
    segment: U64,
    epoch: U64,
    offset: U32,
    bytes: U32,
    length: U32,
    flags: u8,
    zero: [u8; 3],
}

impl ReplicaPart {
    /// A part with so many bytes behind it. `length` matters if the replica is closed.
    #[must_use]
    pub fn new(
        segment: SegmentId,
        epoch: Epoch,
        offset: u32,
        bytes: u32,
        length: u32,
        flags: u8,
    ) -> ReplicaPart {
        ReplicaPart {
            segment: segment.0.into(),
            epoch: epoch.0.into(),
            offset: offset.into(),
            bytes: bytes.into(),
            length: length.into(),
            flags,
            zero: [0; 3],
        }
    }

    /// Takes a part off the front; its bytes come next.
    #[must_use]
    pub fn take(bytes: &[u8]) -> Option<(&ReplicaPart, &[u8])> {
        ReplicaPart::ref_from_prefix(bytes).ok()
    }

    /// The number of bytes behind the part.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.get() as usize
    }

    /// The segment.
    #[must_use]
    pub fn segment(&self) -> SegmentId {
        SegmentId(self.segment.get())
    }

    /// Its epoch.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.get())
    }

    /// The offset of the bytes in the segment.
    #[must_use]
    pub fn offset(&self) -> u32 {
        self.offset.get()
    }

    /// The length with which the replica is closed.
    #[must_use]
    pub fn length(&self) -> u32 {
        self.length.get()
    }

    /// Whether a flag is set.
    #[must_use]
    pub fn wants(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The result of a [`ReplicaPart`].
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct PartAnswer {
    refusal: U16,
    zero: [u8; 2],
    length: U32,
}

impl PartAnswer {
    /// An answer.
    #[must_use]
    pub fn new(refusal: u16, length: u32) -> PartAnswer {
        PartAnswer { refusal: refusal.into(), zero: [0; 2], length: length.into() }
    }

    /// All answers of a body; `None` if it is no list of answers.
    #[must_use]
    pub fn all_of(body: &[u8]) -> Option<&[PartAnswer]> {
        <[PartAnswer]>::ref_from_bytes(body).ok()
    }

    /// The reason of the refusal; 0 for none.
    #[must_use]
    pub fn refusal(&self) -> u16 {
        self.refusal.get()
    }

    /// The length that the backup has of the replica.
    #[must_use]
    pub fn length(&self) -> u32 {
        self.length.get()
    }
}

/// The piece of a replica to read.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ReadHead {
    master: U64,
    segment: U64,
    offset: U32,
    bytes: U32,
}

impl ReadHead {
    /// A piece.
    #[must_use]
    pub fn new(master: MasterId, segment: SegmentId, offset: u32, bytes: u32) -> ReadHead {
        ReadHead {
            master: master.0.into(),
            segment: segment.0.into(),
            offset: offset.into(),
            bytes: bytes.into(),
        }
    }

    /// The master.
    #[must_use]
    pub fn master(&self) -> MasterId {
        MasterId(self.master.get())
    }

    /// The segment.
    #[must_use]
    pub fn segment(&self) -> SegmentId {
        SegmentId(self.segment.get())
    }

    /// The offset at which the piece begins.
    #[must_use]
    pub fn offset(&self) -> u32 {
        self.offset.get()
    }

    /// The most bytes to return; a backup may answer with fewer, but not with none before the end.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        self.bytes.get()
    }
}

/// The piece to read of a partition's part of a replica.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RecoveryHead {
    master: U64,
    recovery: U64,
    segment: U64,
    partition: U32,
    offset: U32,
    bytes: U32,
    zero: [u8; 4],
}

impl RecoveryHead {
    /// A piece: the bytes behind `offset`, but at most so many.
    #[must_use]
    pub fn new(
        master: MasterId,
        (recovery, partition): (RecoveryId, u32),
        segment: SegmentId,
        offset: u32,
        bytes: u32,
    ) -> RecoveryHead {
        RecoveryHead {
            master: master.0.into(),
            recovery: recovery.0.into(),
            segment: segment.0.into(),
            partition: partition.into(),
            offset: offset.into(),
            bytes: bytes.into(),
            zero: [0; 4],
        }
    }

    /// The crashed master.
    #[must_use]
    pub fn master(&self) -> MasterId {
        MasterId(self.master.get())
    }

    /// The recovery's number.
    #[must_use]
    pub fn recovery(&self) -> RecoveryId {
        RecoveryId(self.recovery.get())
    }

    /// The partition in that recovery.
    #[must_use]
    pub fn partition(&self) -> u32 {
        self.partition.get()
    }

    /// The segment.
    #[must_use]
    pub fn segment(&self) -> SegmentId {
        SegmentId(self.segment.get())
    }

    /// The offset at which the piece begins.
    #[must_use]
    pub fn offset(&self) -> u32 {
        self.offset.get()
    }

    /// The most bytes to return; a backup may answer with fewer, but not with none before the end.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        self.bytes.get()
    }
}

/// The first bytes of a piece of a replica.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct PieceHead {
    length: U32,
    zero: [u8; 4],
}

impl PieceHead {
    /// A head, for a replica of so many bytes.
    #[must_use]
    pub fn new(length: u32) -> PieceHead {
        PieceHead { length: length.into(), zero: [0; 4] }
    }

    /// The length of the whole replica.
    #[must_use]
    pub fn length(&self) -> u32 {
        self.length.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layouts_are_those_of_the_protocol() {
        let head = ReplicateHead::new(MasterId(0x0102), 3, (ServerId(4), Generation(5)));
        let golden = [
            2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0,
            0, 0, 0,
        ];
        assert_eq!(head.as_bytes(), golden);
        let part = ReplicaPart::new(SegmentId(1), Epoch(2), 3, 4, 5, OPEN | CLOSE);
        let golden = [
            1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 9,
            0, 0, 0,
        ];
        assert_eq!(part.as_bytes(), golden);
        assert_eq!(PartAnswer::new(5, 6).as_bytes(), [5, 0, 0, 0, 6, 0, 0, 0]);
        let read = ReadHead::new(MasterId(1), SegmentId(2), 3, 4);
        let golden = [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0];
        assert_eq!(read.as_bytes(), golden);
        let data = RecoveryHead::new(MasterId(1), (RecoveryId(2), 5), SegmentId(3), 6, 7);
        let golden = [
            1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 6,
            0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(data.as_bytes(), golden);
        assert_eq!(PieceHead::new(7).as_bytes(), [7, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_part_is_taken_and_its_bytes_are_left() {
        let part = ReplicaPart::new(SegmentId(1), Epoch(0), 0, 4, 0, 0);
        let mut bytes = part.as_bytes().to_vec();
        assert_eq!(ReplicaPart::take(&bytes[1..]), None);
        bytes.extend_from_slice(&[1, 2, 3]);
        let (taken, rest) = ReplicaPart::take(&bytes).unwrap();
        assert_eq!((*taken, taken.bytes(), rest), (part, 4, &[1, 2, 3][..]));
    }
}
