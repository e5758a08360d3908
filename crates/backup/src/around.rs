//! Reading around blocks that the disk cannot read.
//!
//! A disk with a few bad sectors is still a store: what is in them is lost here, and other backups have it. A disk or
//! a cable that fails now and then is another matter. What it cannot read now it may read at the next start, and then
//! this start has judged by too little: a round whose headers cannot be read may have been cut off by a loss of power,
//! and would be taken for complete now and for incomplete then. So a block counts as unreadable only if it cannot be
//! read again and again, while another block can. Else the start fails, and may be tried again.

use crate::block::Block;
use crate::layout::Slot;
use crate::limits::{BLOCK_BYTES, READ_ATTEMPTS, UNREADABLE_MAX};
use std::io;
use thunderhead_runtime::files::{FileId, Files};
use zerocopy::IntoBytes;

/// Reads blocks of a store; says which of them the disk cannot read. These are zeroes then, which is what
/// a damaged block may be. Blocks behind the end of the file are zeroes too.
///
/// # Errors
/// When the disk fails in another way than that some blocks cannot be read.
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
