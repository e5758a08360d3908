//! The bytes of a segment that some replica may not have yet, in blocks of one size.
//!
//! A segment has up to 8 MiB, and the log brings a piece of it in a turn. One buffer for all of it
//! would double as it grows, and copy up to half of the segment in one turn. Returning such a
//! buffer takes the kernel as long. A block is never moved: a turn copies only the bytes that the
//! log brings. Blocks that no segment needs any more are kept for other segments, and go back to
//! the allocator a few at a time.

use std::collections::VecDeque;
use std::time::Duration;
use thunderhead_runtime::Time;

/// Bytes of a block. A message to a backup consists of a few.
pub(super) const BLOCK_BYTES: usize = 64 << 10;

/// Blocks that are kept while nothing is to be put into them: 128 MiB.
const SPARES_MAX: usize = 2048;

/// Blocks that go back to the allocator in a turn: 128 pages.
const FREED_MAX: usize = 8;

/// How often it is looked how many are needed, and how often some go while too many are kept.
const TIDY_EVERY: Duration = Duration::from_millis(100);
const FREE_EVERY: Duration = Duration::from_millis(1);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// All but the last are full.
    blocks: VecDeque<Vec<u8>>,
    /// Bytes at the beginning of the first block that are forgotten.
    forgotten: usize,
    length: usize,
}

impl Blocks {
    /// Appends bytes.
    pub(super) fn append(&mut self, mut bytes: &[u8], spares: &mut SpareBlocks) {
        while !bytes.is_empty() {
            let last = self.blocks.back_mut().filter(|block| block.len() < BLOCK_BYTES);
            let Some(block) = last else {
                let mut block = spares.take();
                // Only that of a short segment grows.
                if !self.blocks.is_empty() {
                    block.reserve_exact(BLOCK_BYTES);
                }
                self.blocks.push_back(block);
                continue;
            };
            let (part, rest) = bytes.split_at(bytes.len().min(BLOCK_BYTES - block.len()));
            block.extend_from_slice(part);
            self.length += part.len();
            bytes = rest;
        }
    }

    /// Forgets the first bytes.
    pub(super) fn forget(&mut self, count: usize, spares: &mut SpareBlocks) {
        let count = count.min(self.length);
        (self.forgotten, self.length) = (self.forgotten + count, self.length - count);
        while self.forgotten >= BLOCK_BYTES
            && let Some(block) = self.blocks.pop_front()
        {
            self.forgotten -= BLOCK_BYTES;
            spares.keep(block);
        }
    }

    /// Forgets all bytes.
    pub(super) fn clear(&mut self, spares: &mut SpareBlocks) {
        self.blocks.drain(..).for_each(|block| spares.keep(block));
        (self.forgotten, self.length) = (0, 0);
    }

    /// Returns the bytes between two positions, counted from the first byte that is kept. `None` if
    /// some of them are not here.
    pub(super) fn pieces(&self, from: usize, end: usize) -> Option<impl Iterator<Item = &[u8]>> {
        if from > end || end > self.length {
            return None;
        }
        let (from, end) = (self.forgotten + from, self.forgotten + end);
        let first = from / BLOCK_BYTES;
        let count = end.div_ceil(BLOCK_BYTES).saturating_sub(first);
        let blocks = self.blocks.iter().enumerate().skip(first).take(count);
        Some(blocks.map(move |(number, block)| {
            let begins = number * BLOCK_BYTES;
            let last = (end - begins).min(block.len());
            block.get(from.saturating_sub(begins)..last).unwrap_or_default()
        }))
    }
}

/// Blocks that no segment needs, kept for new segments.
#[derive(Debug, Default)]
pub(super) struct SpareBlocks {
    resting: VecDeque<Vec<u8>>,
    /// The fewest that rested since it was looked how many are needed.
    fewest: usize,
    /// Blocks that are to go.
    surplus: usize,
    look_at: Time,
}

impl SpareBlocks {
    fn take(&mut self) -> Vec<u8> {
        let block = self.resting.pop_back().unwrap_or_default();
        self.fewest = self.fewest.min(self.resting.len());
        block
    }

    /// A short one belonged to a short segment; such are not worth it.
    fn keep(&mut self, mut block: Vec<u8>) {
        if block.capacity() >= BLOCK_BYTES {
            block.clear();
            self.resting.push_back(block);
        }
    }

    /// Frees some of the blocks that were not used for a while. Returns when to call it again, if
    /// at all.
    pub(super) fn tidy(&mut self, now: Time) -> Option<Time> {
        if self.resting.is_empty() {
            return None;
        }
        if now >= self.look_at {
            let unneeded = self.fewest.div_ceil(2);
            self.surplus = unneeded.max(self.resting.len().saturating_sub(SPARES_MAX));
            self.fewest = self.resting.len();
            self.look_at = now + TIDY_EVERY;
        }
        let gone = self.surplus.min(self.resting.len()).min(FREED_MAX);
        self.resting.drain(..gone);
        self.fewest = self.fewest.min(self.resting.len());
        self.surplus = (self.surplus - gone).min(self.resting.len());
        Some(if self.surplus > 0 { now + FREE_EVERY } else { self.look_at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thunderhead_runtime::Random;

    #[test]
    fn blocks_hold_what_was_appended_and_not_forgotten() {
        let mut random = Random::from_seed(7);
        let (mut blocks, mut spares) = (Blocks::default(), SpareBlocks::default());
        let mut model: VecDeque<u8> = VecDeque::new();
        for step in 0..2_000 {
            match random.below(3) {
                0 => {
                    let length = random.below(150_000) as usize;
                    let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + step) as u8).collect();
                    blocks.append(&bytes, &mut spares);
                    model.extend(&bytes);
                }
                1 => {
                    let count = random.below(150_000) as usize;
                    blocks.forget(count, &mut spares);
                    model.drain(..count.min(model.len()));
                }
                _ if random.chance(0.05) => {
                    blocks.clear(&mut spares);
                    model.clear();
                }
                _ => {
                    let end = random.below(model.len() as u64 + 1) as usize;
                    let from = random.below(end as u64 + 1) as usize;
                    let found: Vec<u8> =
                        blocks.pieces(from, end).unwrap().flatten().copied().collect();
                    assert!(found.iter().eq(model.range(from..end)), "{from}..{end}");
                    assert!(blocks.pieces(from, model.len() + 1).is_none());
                }
            }
            assert_eq!(blocks.length, model.len());
        }
    }

    #[test]
    fn bytes_that_are_here_are_not_moved_as_more_come() {
        let (mut blocks, mut spares) = (Blocks::default(), SpareBlocks::default());
        let mut places: Vec<*const u8> = Vec::new();
        let mut moved = 0;
        for _ in 0..64 {
            blocks.append(&[7; 128 << 10], &mut spares);
            let full = blocks.blocks.iter().filter(|block| block.len() == BLOCK_BYTES);
            let now: Vec<*const u8> = full.map(|block| block.as_ptr()).collect();
            moved += places.iter().zip(&now).filter(|(before, after)| before != after).count();
            places = now;
        }
        assert_eq!((places.len(), moved), ((8 << 20) / BLOCK_BYTES, 0));
    }

    #[test]
    fn spare_blocks_are_used_again_and_go_a_few_at_a_time() {
        let (mut blocks, mut spares) = (Blocks::default(), SpareBlocks::default());
        let segment = vec![7; 8 << 20];
        blocks.append(&segment, &mut spares);
        blocks.clear(&mut spares);
        let all = segment.len() / BLOCK_BYTES;
        assert_eq!(spares.resting.len(), all);
        let mut now = Time(1);
        let at = spares.tidy(now);
        blocks.append(&segment, &mut spares);
        assert!(spares.resting.is_empty(), "they are used again");
        blocks.clear(&mut spares);
        // The blocks are not needed any more: each call frees half of them.
        let mut wake = at;
        while let Some(at) = wake {
            now = at;
            let before = spares.resting.len();
            wake = spares.tidy(now);
            assert!(before - spares.resting.len() <= FREED_MAX, "a few at a time");
        }
        assert!(spares.resting.is_empty() && now < Time(0) + Duration::from_secs(5));
    }
}
