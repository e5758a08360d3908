//! Reading around blocks that the disk cannot read.
//!
//! A disk with a few bad sectors is still a store: their contents are lost here, and other backups
//! have them. A disk or a cable that fails now and then is different. It may read at the next
//! start a block that it cannot read now. Then this start would have judged by too little: a power
//! loss may have cut off a round with unreadable headers, and this start would take it for
//! complete, the next one for incomplete. So a block counts as unreadable only if repeated reads
//! of it fail while another block can be read. Otherwise the start fails, and may be tried again.

use crate::block::Block;
use crate::layout::Slot;
use crate::limits::{BLOCK_BYTES, READ_ATTEMPTS, UNREADABLE_MAX};
use std::io;
use thunderhead_runtime::files::{FileId, Files};
use zerocopy::IntoBytes;

/// Reads blocks of a store and returns the numbers of unreadable ones. These are filled with
/// zeroes, as a damaged block may be. Blocks behind the end of the file are zeroes too.
///
/// # Errors
/// If the disk fails in another way than by a few unreadable blocks.
pub(crate) fn read_around(
    files: &mut dyn Files,
    file: FileId,
    at: u64,
    blocks: &mut [Block],
) -> io::Result<Vec<usize>> {
    blocks.fill(Block::ZERO);
    let Err(error) = files.read_at(file, at, blocks.as_mut_bytes()) else { return Ok(Vec::new()) };
    let mut unreadable = Vec::new();
    for (number, block) in blocks.iter_mut().enumerate() {
        let at = at + (number * BLOCK_BYTES) as u64;
        *block = Block::ZERO;
        if !read_or_give_up(files, file, at, block)? {
            unreadable.push(number);
        }
        if unreadable.len() > UNREADABLE_MAX {
            return Err(error);
        }
    }
    Ok(unreadable)
}

/// Reads a block; false if it stays unreadable.
fn read_or_give_up(
    files: &mut dyn Files,
    file: FileId,
    at: u64,
    block: &mut Block,
) -> io::Result<bool> {
    let Err(error) = files.read_at(file, at, block.as_mut_bytes()) else { return Ok(true) };
    let mut other = Block::ZERO;
    // One of the superblocks can be read, or the store would not be open.
    let superblocks = Slot::BOTH.map(|slot| slot as u64 * BLOCK_BYTES as u64);
    let is_good = |it: &u64| files.read_at(file, *it, other.as_mut_bytes()).is_ok();
    let Some(good) = superblocks.into_iter().find(is_good) else { return Err(error) };
    for _ in 0..READ_ATTEMPTS {
        files.read_at(file, good, other.as_mut_bytes())?;
        if files.read_at(file, at, block.as_mut_bytes()).is_ok() {
            return Ok(true);
        }
    }
    *block = Block::ZERO;
    tracing::warn!("the disk cannot read {BLOCK_BYTES} bytes of the storage at {at}: {error}");
    Ok(false)
}
