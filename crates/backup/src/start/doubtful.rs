//! Decides whether the last round of one sync counts: it does if all of its data is on the disk.

use crate::block::{Block, crc};
use crate::layout::{
    CountedRounds, DoubtfulData, FrameNumber, Header, HeaderWrite, ReplicaHeader, SlotState,
    Superblock,
};
use crate::limits::BLOCK_BYTES;
use crate::unreadable_blocks::read_around;
use std::io;
use thunderhead_runtime::files::{FileId, Files};
use zerocopy::IntoBytes;

/// Decides which rounds count. If the headers do not prove that the last round was durable, its
/// data decides.
///
/// Unreadable data does not disprove the round: it may have been acknowledged, and the rest of its
/// data holds. A reader of such a replica finds its data damaged, and uses another replica.
pub(crate) fn counted_rounds(
    files: &mut dyn Files,
    file: FileId,
    superblock: &Superblock,
    headers: &[[SlotState; 2]],
) -> io::Result<CountedRounds> {
    let mut counting = CountedRounds::of(headers.iter().flatten());
    while let Some(round) = counting.in_doubt() {
        let mut is_there = true;
        for replica in in_doubt(headers, round) {
            is_there &= read_doubtful(files, file, superblock, &replica)?.is_some();
        }
        counting = match is_there {
            true => counting.proven(),
            false => counting.refuted(headers.iter().flatten()),
        };
    }
    Ok(counting)
}

/// A replica that a round of one sync wrote together with its header.
pub(super) struct DoubtfulReplica {
    pub(super) frame: FrameNumber,
    pub(super) doubt: DoubtfulData,
    pub(super) used: ReplicaHeader,
}

/// Returns the replicas of a round of one sync.
pub(super) fn in_doubt(
    headers: &[[SlotState; 2]],
    round: u64,
) -> impl Iterator<Item = DoubtfulReplica> + use<'_> {
    headers.iter().enumerate().flat_map(move |(number, slots)| {
        let frame = FrameNumber::of_index(number);
        slots.iter().filter_map(move |found| match found {
            SlotState::Whole {
                writing: HeaderWrite { sequence, doubt: Some(doubt), .. },
                header: Header::Used(used),
            } if *sequence == round => {
                Some(DoubtfulReplica { frame, doubt: *doubt, used: used.clone() })
            }
            _ => None,
        })
    })
}

/// Data of a frame: its offset in the frame, its blocks, and whether the disk can read all of
/// them.
pub(super) struct FrameData {
    pub(super) from: usize,
    pub(super) blocks: Vec<Block>,
    pub(super) is_readable: bool,
}

/// Reads the data of a replica that was written together with its header. `None` if it differs
/// from the header.
pub(super) fn read_doubtful(
    files: &mut dyn Files,
    file: FileId,
    superblock: &Superblock,
    DoubtfulReplica { frame, doubt, used }: &DoubtfulReplica,
) -> io::Result<Option<FrameData>> {
    let chunk_bytes = superblock.geometry.chunk_bytes();
    let first = doubt.from as usize / chunk_bytes;
    let (from, to) = (first * chunk_bytes, used.length as usize);
    if doubt.from as usize >= to {
        return Ok(Some(FrameData { from, blocks: Vec::new(), is_readable: true }));
    }
    let mut blocks = Block::vec(to - from);
    let at = superblock.geometry.data_at(*frame) + from as u64;
    let unreadable = read_around(files, file, at, &mut blocks).map_err(|error| {
        let why = format!("frame {frame} was written last and cannot be read: {error}");
        io::Error::new(error.kind(), why)
    })?;
    let bytes = blocks.as_bytes().get(..to - from).unwrap_or_default();
    let sums = used.chunks.get(first..).unwrap_or_default();
    let chunks = bytes.chunks(chunk_bytes);
    let is_unreadable =
        |chunk: usize| unreadable.iter().any(|block| block * BLOCK_BYTES / chunk_bytes == chunk);
    let is_there = chunks.len() == sums.len()
        && chunks
            .zip(sums)
            .enumerate()
            .all(|(number, (chunk, sum))| crc(chunk) == *sum || is_unreadable(number));
    let is_readable = unreadable.is_empty();
    Ok(is_there.then_some(FrameData { from, blocks, is_readable }))
}
