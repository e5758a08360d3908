//! Buffers for fetched bytes, for all recoveries of a shard.
//!
//! A buffer holds a partition's part of a segment: 8 MiB and more. Returning one to the kernel
//! takes some tenths of a millisecond. So buffers are used again, and once no recovery runs they
//! are freed piecewise, one piece a turn.

/// Buffers that rest at once.
const SPARES_MAX: usize = 16;

/// Bytes that are given back in a turn.
const PIECE_BYTES: usize = 256 << 10;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Buffers {
    resting: Vec<Vec<u8>>,
    /// Buffers to be freed.
    going: Vec<Vec<u8>>,
}

impl Buffers {
    pub(super) fn is_empty(&self) -> bool {
        self.resting.is_empty() && self.going.is_empty()
    }

    /// Returns a buffer; its content is arbitrary.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.resting.pop().or_else(|| self.going.pop()).unwrap_or_default()
    }

    /// Keeps a buffer that is not used any more.
    pub(super) fn keep(&mut self, buffer: Vec<u8>) {
        let to = if self.resting.len() < SPARES_MAX { &mut self.resting } else { &mut self.going };
        if buffer.capacity() > 0 {
            to.push(buffer);
        }
    }

    /// Gives a piece of those back that are to go: all, where `none_is_needed`.
    pub(super) fn give_back(&mut self, none_is_needed: bool) {
        if none_is_needed {
            self.going.append(&mut self.resting);
        }
        let Some(last) = self.going.last_mut() else { return };
        last.clear();
        last.shrink_to(last.capacity().saturating_sub(PIECE_BYTES));
        if last.capacity() == 0 {
            self.going.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again_and_go_a_piece_at_a_time() {
        let mut buffers = Buffers::default();
        let bytes = |buffers: &Buffers| -> usize {
            buffers.resting.iter().chain(&buffers.going).map(Vec::capacity).sum()
        };
        for _ in 0..SPARES_MAX + 2 {
            buffers.keep(Vec::with_capacity(1 << 20));
        }
        buffers.keep(Vec::new());
        assert_eq!((buffers.resting.len(), buffers.going.len()), (SPARES_MAX, 2));
        assert!(buffers.take().capacity() >= 1 << 20);
        let before = bytes(&buffers);
        (0..20).for_each(|_| buffers.give_back(false));
        assert!(before - bytes(&buffers) >= 2 << 20, "more of them than are needed");
        assert_eq!(buffers.resting.len(), SPARES_MAX - 1);
        while !buffers.is_empty() {
            let before = bytes(&buffers);
            buffers.give_back(true);
            assert!(before - bytes(&buffers) <= 2 * PIECE_BYTES);
        }
    }
}
