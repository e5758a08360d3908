//! The offsets of everything in the mapping that two ends share.
//!
//! This is the only file that knows an offset. It is separate because both ends, the handover and
//! the hostile peer of the tests must agree on it. When anything here or in a record's header
//! changes, [`VERSION`] changes with it, and ends of different versions refuse each other.
//!
//! ```text
//!  byte 0      128      256      384           4096                 4096 + ring bytes
//!  | consumed | consumed | sleep  | sleep  | … | ring to the client | ring to the server |
//!  | by the   | by the   | of the | of the |   | (server writes,    | (client writes,    |
//!  | client   | server   | server | client |   |  client reads)     |  server reads)     |
//! ```
//!
//! The four words of the first page have two cache lines each. Processors fetch lines in pairs, so
//! a neighbour that the other end writes would take the line away.

use std::ops::Range;

/// The version of this layout and of the records in the rings.
pub(crate) const VERSION: u32 = 1;

/// The usual size of each of the two rings. Small enough that both stay in a core's second-level
/// cache, large enough that a burst of small frames or half a large value does not fill it.
pub const RING_BYTES_DEFAULT: usize = 128 * 1024;

/// The smallest ring: a page, so that the rings begin on pages of their own.
pub const RING_BYTES_MIN: usize = 4096;

/// The largest ring that an end makes or accepts. It bounds the memory that a peer can make this
/// end map.
pub const RING_BYTES_MAX: usize = 64 << 20;

/// A cache line, to which records are aligned.
pub(super) const LINE_BYTES: u64 = 64;

/// Bytes of a word, the unit of every access.
pub(super) const WORD_BYTES: usize = size_of::<u64>();

/// Words of a cache line.
pub(super) const LINE_WORDS: usize = LINE_BYTES as usize / WORD_BYTES;

/// The first page: positions and flags.
const CONTROL_BYTES: usize = 4096;

/// The distance between two words of the first page.
const APART_WORDS: usize = 128 / WORD_BYTES;

/// One of the two ends of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The end that made the memory.
    Server,
    /// The end that received the memory.
    Client,
}

impl End {
    /// Returns the opposite end.
    pub(super) fn peer(self) -> End {
        match self {
            End::Server => End::Client,
            End::Client => End::Server,
        }
    }

    fn number(self) -> usize {
        match self {
            End::Server => 0,
            End::Client => 1,
        }
    }
}

/// A mapping's layout. It exists only for valid sizes of the rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    ring_bytes: usize,
}

impl Layout {
    /// Returns the layout for rings of this size, or `None` if it is not a power of two within the
    /// limits.
    pub(super) fn new(ring_bytes: usize) -> Option<Layout> {
        let fits = (RING_BYTES_MIN..=RING_BYTES_MAX).contains(&ring_bytes);
        (fits && ring_bytes.is_power_of_two()).then_some(Layout { ring_bytes })
    }

    /// Bytes of each of the two rings.
    pub(super) fn ring_bytes(self) -> usize {
        self.ring_bytes
    }

    /// Bytes of the whole mapping.
    pub(super) fn mapped_bytes(self) -> usize {
        CONTROL_BYTES + 2 * self.ring_bytes
    }

    /// The words of the ring that an end writes.
    pub(super) fn ring_written_by(self, writer: End) -> Range<usize> {
        let words = self.ring_bytes / WORD_BYTES;
        let start = CONTROL_BYTES / WORD_BYTES + writer.number() * words;
        start..start + words
    }

    /// The word in which the reader of the ring that `writer` writes publishes its consumed
    /// position.
    pub(super) fn consumed_from(self, writer: End) -> usize {
        writer.number() * APART_WORDS
    }

    /// The word in which an end announces that it sleeps.
    pub(super) fn sleep_of(self, end: End) -> usize {
        (2 + end.number()) * APART_WORDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_powers_of_two_within_the_limits_are_ring_sizes() {
        for good in [4096, 8192, RING_BYTES_DEFAULT, RING_BYTES_MAX] {
            assert!(Layout::new(good).is_some(), "{good}");
        }
        for bad in [0, 1, 64, 2048, 4095, 4097, 12288, 2 * RING_BYTES_MAX, usize::MAX] {
            assert!(Layout::new(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn nothing_overlaps_and_the_rings_end_with_the_mapping() {
        let layout = Layout::new(RING_BYTES_MIN).unwrap();
        let mut words = Vec::new();
        for end in [End::Server, End::Client] {
            words.extend([layout.consumed_from(end), layout.sleep_of(end)]);
            words.extend(layout.ring_written_by(end));
        }
        words.sort_unstable();
        assert!(words.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(words.last(), Some(&(layout.mapped_bytes() / WORD_BYTES - 1)));
    }
}
