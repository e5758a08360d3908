//! The storage file's layout: the places of its parts, and the contents of superblock and headers.
//! `docs/format.md` describes every byte, and is checked against [`FORMAT_VERSION`].
//!
//! ```text
//! block 0, 1    superblock, two slots
//! block 2 …     header table: two slots for each frame
//! data_at …     frames, each as long as a segment, rounded up to a block
//! ```
//!
//! Of two slots the one with the higher sequence counts; the next write goes to the other. So a
//! torn write leaves the one before it intact.
//!
//! Nothing here trusts a byte: decoded values are checked before they size or place anything.

use crate::block::{Block, PAYLOAD_BYTES, Payload, UnsealedBlock, crc, seal, unseal};
use crate::limits::{BLOCK_BYTES, CHUNKS_MAX, FRAMES_MAX, SEGMENT_BYTES_MAX};
use std::collections::BTreeMap;
use thunderhead_wire::{ClusterId, Epoch, MasterId, SegmentId, ServerId};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// The version of the storage file's format that this program writes.
pub const FORMAT_VERSION: u16 = 1;

/// The first bytes of a storage file.
const FILE_MAGIC: [u8; 4] = *b"THBK";

/// The feature of files with headers that may be [written with their data](DoubtfulData): a reader
/// without it would take all of them for true.
const FEATURE_ONE_SYNC: u32 = 1;

/// The key that seals superblocks: the file's id is not known before they are read.
const SUPERBLOCK_KEY: u64 = u64::from_le_bytes(*b"THBKSUPR");

/// Data begins at a multiple of this, because disks work best with aligned data.
const DATA_ALIGNMENT: u64 = 1 << 20;

/// The owner of a store: its server and cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster: ClusterId,
    /// The server that the store belongs to.
    pub server: ServerId,
}

/// The number of a frame. The first frame of a file is number 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameNumber(pub u32);

impl FrameNumber {
    /// Returns the number of the frame at an index of a table with an entry for each frame.
    #[must_use]
    pub fn of_index(index: usize) -> FrameNumber {
        FrameNumber(index as u32)
    }

    /// Returns the frame's index in such a table.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl std::fmt::Display for FrameNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The sizes of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a full segment.
    pub segment_bytes: u32,
    /// The number of frames.
    pub frames: u32,
}

impl Geometry {
    /// Whether a store may have these sizes.
    #[must_use]
    pub fn is_possible(self) -> bool {
        (1..=SEGMENT_BYTES_MAX).contains(&self.segment_bytes)
            && (1..=FRAMES_MAX).contains(&self.frames)
    }

    /// Bytes that a frame's data occupies.
    #[must_use]
    pub fn frame_bytes(self) -> usize {
        (self.segment_bytes as usize).next_multiple_of(BLOCK_BYTES)
    }

    /// Bytes of a chunk, which has one checksum.
    #[must_use]
    pub fn chunk_bytes(self) -> usize {
        self.frame_bytes().div_ceil(CHUNKS_MAX).next_multiple_of(BLOCK_BYTES)
    }

    /// Returns the offset of a frame's header slot.
    #[must_use]
    pub fn header_at(self, frame: FrameNumber, slot: Slot) -> u64 {
        (2 + 2 * u64::from(frame.0) + slot as u64) * BLOCK_BYTES as u64
    }

    /// Returns the offset of a frame's data.
    #[must_use]
    pub fn data_at(self, frame: FrameNumber) -> u64 {
        let headers = self.header_at(self.behind_last(), Slot::A);
        headers.next_multiple_of(DATA_ALIGNMENT) + u64::from(frame.0) * self.frame_bytes() as u64
    }

    /// Returns the length of the file.
    #[must_use]
    pub fn file_bytes(self) -> u64 {
        self.data_at(self.behind_last())
    }

    /// Returns the numbers of all frames, in order.
    pub fn frame_numbers(self) -> impl Iterator<Item = FrameNumber> {
        (0..self.frames).map(FrameNumber)
    }

    /// Returns the number of a frame behind the last one. Headers, and data, end where those of
    /// that frame would begin.
    fn behind_last(self) -> FrameNumber {
        FrameNumber(self.frames)
    }
}

/// One of the two places of a block that is never overwritten in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The first.
    A,
    /// The second.
    B,
}

impl Slot {
    /// Both.
    pub const BOTH: [Slot; 2] = [Slot::A, Slot::B];

    /// The other one.
    #[must_use]
    pub fn other(self) -> Slot {
        match self {
            Slot::A => Slot::B,
            Slot::B => Slot::A,
        }
    }
}

/// The contents of a superblock: the file's description of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The file's own id, drawn at random when it was made.
    pub store: u64,
    /// The owner.
    pub identity: Identity,
    /// Its sizes.
    pub geometry: Geometry,
    /// Headers may be written together with their data. Files of earlier builds lack this.
    pub one_sync: bool,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawSuperblock {
    magic: [u8; 4],
    version: U16,
    reserved: U16,
    features: U32,
    segment_bytes: U32,
    frames: U32,
    chunk_bytes: U32,
    store: U64,
    cluster: U64,
    server: U64,
}

/// The reason why a block is not a valid superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSuperblock {
    /// It was not written by this program.
    Foreign,
    /// It was written by another version.
    Version {
        /// The version.
        version: u16,
        /// Features that a reader must know.
        features: u32,
    },
    /// This program wrote it, and it is damaged or torn.
    Damaged,
}

impl Superblock {
    /// Encodes the superblock as a block.
    #[must_use]
    pub fn encode(&self, sequence: u64) -> Block {
        let raw = RawSuperblock {
            magic: FILE_MAGIC,
            version: FORMAT_VERSION.into(),
            reserved: 0.into(),
            features: if self.one_sync { FEATURE_ONE_SYNC } else { 0 }.into(),
            segment_bytes: self.geometry.segment_bytes.into(),
            frames: self.geometry.frames.into(),
            chunk_bytes: (self.geometry.chunk_bytes() as u32).into(),
            store: self.store.into(),
            cluster: self.identity.cluster.0.into(),
            server: self.identity.server.0.into(),
        };
        let mut payload = [0; PAYLOAD_BYTES];
        payload[..size_of::<RawSuperblock>()].copy_from_slice(raw.as_bytes());
        seal(&payload, sequence, SUPERBLOCK_KEY)
    }

    /// Decodes a block. Returns its sequence and the superblock.
    ///
    /// # Errors
    /// If it is not a superblock, or of another version.
    pub fn decode(block: &Block) -> Result<(u64, Superblock), NotSuperblock> {
        // The version is read first: another version may seal in another way.
        let Ok((raw, _)) = RawSuperblock::read_from_prefix(&block.0) else {
            return Err(NotSuperblock::Foreign);
        };
        let unsealed = unseal(block, SUPERBLOCK_KEY);
        if raw.magic != FILE_MAGIC {
            // One flipped byte does not make the file foreign.
            return Err(match unsealed {
                UnsealedBlock::Torn { .. } | UnsealedBlock::Damaged { newest: Some(_) } => {
                    NotSuperblock::Damaged
                }
                _ => NotSuperblock::Foreign,
            });
        }
        let (version, features) = (raw.version.get(), raw.features.get());
        let is_other = version != FORMAT_VERSION || features & !FEATURE_ONE_SYNC != 0;
        let UnsealedBlock::Whole { sequence, payload } = unsealed else {
            let intact = matches!(unsealed, UnsealedBlock::Damaged { newest: None });
            return Err(match intact && is_other {
                true => NotSuperblock::Version { version, features },
                false => NotSuperblock::Damaged,
            });
        };
        if is_other {
            return Err(NotSuperblock::Version { version, features });
        }
        let raw = RawSuperblock::read_from_prefix(&payload[..]);
        let (raw, _) = raw.map_err(|_| NotSuperblock::Damaged)?;
        let geometry =
            Geometry { segment_bytes: raw.segment_bytes.get(), frames: raw.frames.get() };
        if !geometry.is_possible() || geometry.chunk_bytes() != raw.chunk_bytes.get() as usize {
            return Err(NotSuperblock::Damaged);
        }
        let identity =
            Identity { cluster: ClusterId(raw.cluster.get()), server: ServerId(raw.server.get()) };
        let one_sync = features & FEATURE_ONE_SYNC != 0;
        Ok((sequence, Superblock { store: raw.store.get(), identity, geometry, one_sync }))
    }
}

/// Identifies a replica: its master and segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId {
    /// The master whose log it is from.
    pub master: MasterId,
    /// The segment.
    pub segment: SegmentId,
}

impl std::fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.segment, self.master)
    }
}

/// The contents of a frame's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Header {
    /// The frame is free.
    Free,
    /// The frame holds a replica.
    Used(ReplicaHeader),
}

/// A replica, as its frame's header describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaHeader {
    /// The replica's master and segment.
    pub id: ReplicaId,
    /// The segment's epoch.
    pub epoch: Epoch,
    /// It will get no more bytes.
    pub closed: bool,
    /// It counts. False for an unfinished copy in atomic mode.
    pub committed: bool,
    /// Its bytes.
    pub length: u32,
    /// The checksums of its chunks; the last chunk may be partial.
    pub chunks: Vec<u32>,
}

const STATE_FREE: u8 = 1;
const STATE_OPEN: u8 = 2;
const STATE_CLOSED: u8 = 3;
const FLAG_UNCOMMITTED: u8 = 1;
const FLAG_DOUBT: u8 = 2;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawHeader {
    state: u8,
    flags: u8,
    reserved: U16,
    frame: U32,
    master: U64,
    segment: U64,
    epoch: U64,
    length: U32,
    chunks: U32,
    members: U32,
    from: U32,
    proven: U64,
    more: [u8; 40],
    checksums: [U32; CHUNKS_MAX],
}

const _: () = assert!(size_of::<RawHeader>() == 96 + 4 * CHUNKS_MAX);
const _: () = assert!(size_of::<RawHeader>() <= PAYLOAD_BYTES);
const _: () = assert!(size_of::<RawSuperblock>() == 48);

/// The mark of a header that a round of one sync wrote together with its data: that the header is
/// on the disk does not prove that the data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoubtfulData {
    /// The data before this offset was durable before that round.
    pub from: u32,
}

/// One write of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderWrite {
    /// The round.
    pub sequence: u64,
    /// The number of headers that the round writes; 0 if the round counts in any case.
    pub members: u32,
    /// The newest round of one sync that was known to be durable at that time.
    pub proven: u64,
    /// Set if this round has one sync.
    pub doubt: Option<DoubtfulData>,
}

/// The state of a header slot on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// A header.
    Whole {
        /// How it was written.
        writing: HeaderWrite,
        /// The header itself.
        header: Header,
    },
    /// Its last write was not finished.
    Torn {
        /// That write's sequence.
        newest: u64,
    },
    /// It is damaged.
    Damaged {
        /// The newest write of which any sector is intact.
        newest: Option<u64>,
    },
}

fn header_key(store: u64, frame: FrameNumber) -> u64 {
    store ^ u64::from(frame.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Header {
    /// Encodes the header as a block for a frame.
    #[must_use]
    pub fn encode(&self, store: u64, frame: FrameNumber, writing: HeaderWrite) -> Block {
        let mut raw = RawHeader::new_zeroed();
        raw.frame = frame.0.into();
        raw.members = writing.members.into();
        raw.proven = writing.proven.into();
        match self {
            Header::Free => raw.state = STATE_FREE,
            Header::Used(used) => {
                raw.state = if used.closed { STATE_CLOSED } else { STATE_OPEN };
                raw.flags = if used.committed { 0 } else { FLAG_UNCOMMITTED };
                raw.master = used.id.master.0.into();
                raw.segment = used.id.segment.0.into();
                raw.epoch = used.epoch.0.into();
                raw.length = used.length.into();
                raw.chunks = (used.chunks.len() as u32).into();
                for (into, chunk) in raw.checksums.iter_mut().zip(&used.chunks) {
                    *into = (*chunk).into();
                }
            }
        }
        if let Some(DoubtfulData { from }) = writing.doubt {
            raw.flags |= FLAG_DOUBT;
            raw.from = from.into();
        }
        let mut payload: Payload = [0; PAYLOAD_BYTES];
        payload[..size_of::<RawHeader>()].copy_from_slice(raw.as_bytes());
        seal(&payload, writing.sequence, header_key(store, frame))
    }

    /// Decodes a slot of a frame.
    #[must_use]
    pub fn decode(block: &Block, superblock: &Superblock, frame: FrameNumber) -> SlotState {
        match unseal(block, header_key(superblock.store, frame)) {
            UnsealedBlock::Whole { sequence, payload } => {
                match Header::of_payload(&payload, sequence, superblock.geometry, frame) {
                    Some((writing, header)) => SlotState::Whole { writing, header },
                    None => SlotState::Damaged { newest: Some(sequence) },
                }
            }
            UnsealedBlock::Torn { newest } => SlotState::Torn { newest },
            UnsealedBlock::Damaged { newest } => SlotState::Damaged { newest },
        }
    }

    fn of_payload(
        payload: &Payload,
        sequence: u64,
        geometry: Geometry,
        frame: FrameNumber,
    ) -> Option<(HeaderWrite, Header)> {
        let (raw, _) = RawHeader::read_from_prefix(&payload[..]).ok()?;
        if raw.frame.get() != frame.0 || raw.flags & !(FLAG_UNCOMMITTED | FLAG_DOUBT) != 0 {
            return None;
        }
        let doubt = (raw.flags & FLAG_DOUBT != 0).then_some(DoubtfulData { from: raw.from.get() });
        let (members, proven) = (raw.members.get(), raw.proven.get());
        let writing = HeaderWrite { sequence, members, proven, doubt };
        let closed = match raw.state {
            STATE_FREE => return Some((writing, Header::Free)),
            STATE_OPEN => false,
            STATE_CLOSED => true,
            _ => return None,
        };
        let length = raw.length.get();
        let chunks = (length as usize).div_ceil(geometry.chunk_bytes());
        if length > geometry.segment_bytes || raw.chunks.get() as usize != chunks {
            return None;
        }
        let chunks = raw.checksums.get(..chunks)?.iter().map(|crc| crc.get()).collect();
        let id =
            ReplicaId { master: MasterId(raw.master.get()), segment: SegmentId(raw.segment.get()) };
        let committed = raw.flags & FLAG_UNCOMMITTED == 0;
        let epoch = Epoch(raw.epoch.get());
        let used = ReplicaHeader { id, epoch, closed, committed, length, chunks };
        Some((writing, Header::Used(used)))
    }
}

impl ReplicaHeader {
    /// Returns the first chunk that differs from its checksum; `None` if all are intact. The data
    /// may be longer than the replica.
    #[must_use]
    pub fn first_damaged_chunk(&self, data: &[u8], chunk_bytes: usize) -> Option<u32> {
        let Some(data) = data.get(..self.length as usize) else { return Some(0) };
        let differs = data.chunks(chunk_bytes.max(1)).zip(&self.chunks);
        differs.map(|(chunk, sum)| crc(chunk) != *sum).position(|it| it).map(|at| at as u32)
    }
}

/// Decides which rounds count.
///
/// All rounds up to the newest *complete* one count. Every later one is as if it had never begun:
/// the power failed while it was written, and it was never acknowledged. Rounds follow one
/// another, so only the last can be incomplete (or the last few, if syncs failed). No header of
/// the last complete round has been overwritten: the next write of a frame goes to the frame's
/// other slot.
///
/// Of rounds of one sync, only *proven* ones count, because the data of the others may be missing.
/// No round begins before the one before it is durable, and the next headers record that. So at
/// most one round may have been acknowledged without a proof on the disk: the newest complete
/// round, if it has one sync. It is [in doubt](CountedRounds::in_doubt), and the start decides
/// after it has checked the round's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedRounds {
    /// The newest round that is complete.
    pub complete: u64,
    /// The newest round of one sync that is known to be durable.
    pub proven: u64,
    in_doubt: bool,
}

impl CountedRounds {
    /// All rounds count.
    pub const ALL: CountedRounds =
        CountedRounds { complete: u64::MAX, proven: u64::MAX, in_doubt: false };

    /// Decides by the headers in all slots.
    #[must_use]
    pub fn of<'a>(slots: impl Iterator<Item = &'a SlotState>) -> CountedRounds {
        CountedRounds::below(u64::MAX, slots)
    }

    /// The same as if this round and all later ones had never begun.
    fn below<'a>(limit: u64, slots: impl Iterator<Item = &'a SlotState>) -> CountedRounds {
        #[derive(Default)]
        struct Round {
            found: u64,
            members: u64,
            doubt: bool,
        }
        let mut rounds: BTreeMap<u64, Round> = BTreeMap::new();
        let mut damaged_anywhere = 0;
        let mut newest_proven = 0;
        for found in slots {
            match found {
                SlotState::Whole { writing, .. } => {
                    let HeaderWrite { sequence, members, proven, doubt } = writing;
                    let round = rounds.entry(*sequence).or_default();
                    round.found += 1;
                    round.members = u64::from(*members);
                    round.doubt |= doubt.is_some();
                    newest_proven = newest_proven.max(*proven);
                }
                // It was written, even if it was damaged since.
                SlotState::Damaged { newest: Some(newest) } => {
                    rounds.entry(*newest).or_default().found += 1;
                }
                SlotState::Damaged { newest: None } => damaged_anywhere += 1,
                SlotState::Torn { .. } => {}
            }
        }
        let complete = |round: &Round| round.found + damaged_anywhere >= round.members;
        let newest = rounds.range(..limit).rev().find(|(_, round)| complete(round));
        let (complete, doubt) = newest.map_or((0, false), |(at, round)| (*at, round.doubt));
        let in_doubt = doubt && complete > newest_proven;
        CountedRounds { complete, proven: newest_proven, in_doubt }
    }

    /// Returns the newest complete round if it had one sync and is not proven. It counts if all
    /// data of its headers is there.
    #[must_use]
    pub fn in_doubt(&self) -> Option<u64> {
        self.in_doubt.then_some(self.complete)
    }

    /// The decision after all data of the round in doubt was found.
    #[must_use]
    pub fn proven(self) -> CountedRounds {
        CountedRounds { proven: self.complete, in_doubt: false, ..self }
    }

    /// The decision after data of the round in doubt was missing: the round was cut off before it
    /// was acknowledged.
    #[must_use]
    pub fn refuted<'a>(self, slots: impl Iterator<Item = &'a SlotState>) -> CountedRounds {
        CountedRounds::below(self.complete, slots)
    }

    /// Whether a write of a header counts.
    #[must_use]
    pub fn counts(&self, writing: &HeaderWrite) -> bool {
        writing.sequence <= self.complete
            && (writing.doubt.is_none() || writing.sequence <= self.proven)
    }
}

/// The header of a frame that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedHeader {
    /// The slot that holds it.
    pub slot: Slot,
    /// The round that wrote it.
    pub sequence: u64,
    /// The header itself.
    pub header: Header,
}

/// The state of a frame, from its two slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgedFrame {
    /// The header that counts; `None` if it is damaged.
    pub newest: Option<CountedHeader>,
    /// The highest sequence in the two slots.
    pub sequence: u64,
    /// A slot's last write was not finished: the usual trace of a power loss.
    pub torn: bool,
    /// A slot is damaged. With `newest` nothing is lost: it is the older one.
    pub damaged: bool,
}

/// Decides which of two slots counts, given [which rounds do](CountedRounds).
///
/// A write of a round that does not count, torn or not, was never acknowledged, and the other slot
/// holds the former header. A damaged slot must be proven to be the older one; otherwise it may
/// have held the header that counts.
#[must_use]
pub fn judge(slots: [SlotState; 2], counting: &CountedRounds) -> JudgedFrame {
    let mut judged = JudgedFrame { newest: None, sequence: 0, torn: false, damaged: false };
    // A damaged slot of unknown age may be the newer one.
    let mut damaged_newest: Option<u64> = None;
    for (slot, found) in Slot::BOTH.into_iter().zip(slots) {
        let newest = match found {
            SlotState::Whole { writing, header } => {
                let sequence = writing.sequence;
                let is_newer = judged.newest.as_ref().is_none_or(|it| it.sequence < sequence);
                if !counting.counts(&writing) {
                    judged.torn = true;
                } else if is_newer {
                    judged.newest = Some(CountedHeader { slot, sequence, header });
                }
                sequence
            }
            SlotState::Torn { newest } => {
                judged.torn = true;
                newest
            }
            SlotState::Damaged { newest } => {
                judged.damaged = true;
                if newest.is_none_or(|newest| newest <= counting.complete) {
                    damaged_newest = damaged_newest.max(Some(newest.unwrap_or(u64::MAX)));
                }
                newest.unwrap_or(0)
            }
        };
        judged.sequence = judged.sequence.max(newest);
    }
    judged.newest =
        judged.newest.filter(|it| damaged_newest.is_none_or(|other| other < it.sequence));
    judged
}

#[cfg(test)]
mod tests;
