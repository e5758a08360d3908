//! The end of a ring that takes records.

use super::super::error::Corrupt;
use super::super::layout::{End, LINE_BYTES, Layout, WORD_BYTES};
use super::copy::append;
use super::{Ring, payload_max, payload_of, span};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Lines zeroed by a call that finds nothing to receive: few, so that what arrives in the meantime
/// does not wait for long.
const IDLE_LINES: u64 = 8;

/// What the consuming end of a ring keeps to itself. Every call is given the words of the mapping.
pub(in super::super) struct Consumer {
    /// The words of the ring.
    area: Range<usize>,
    /// The word in which this end publishes what it has consumed.
    consumed_word: usize,
    ring_bytes: u64,
    /// The longest payload that is believed.
    payload_max: u64,
    consumed: u64,
    /// Line starts before this position are zero.
    cleared: u64,
    /// What the peer has been told.
    published: u64,
}

impl Consumer {
    /// The consumer of the ring that an end writes, when nothing has been written yet.
    pub(in super::super) fn new(layout: Layout, writer: End) -> Consumer {
        let ring_bytes = layout.ring_bytes() as u64;
        Consumer {
            area: layout.ring_written_by(writer),
            consumed_word: layout.consumed_from(writer),
            ring_bytes,
            payload_max: payload_max(ring_bytes),
            consumed: 0,
            cleared: 0,
            published: 0,
        }
    }

    /// Whether a record is there, or something that pretends to be one.
    #[inline]
    pub(in super::super) fn ready(&self, words: &[AtomicU64]) -> bool {
        let ring = Ring::new(&words[self.area.clone()]);
        ring.word(self.consumed).load(Ordering::Acquire) != 0
    }

    /// Copies records onto the end of `into` until there are no more, or at least `limit` bytes
    /// have been copied. Returns the bytes copied, and whether room was published on the way.
    #[inline]
    pub(in super::super) fn receive(
        &mut self,
        words: &[AtomicU64],
        into: &mut Vec<u8>,
        limit: usize,
    ) -> Result<(usize, bool), Corrupt> {
        let ring = Ring::new(&words[self.area.clone()]);
        let before = into.len();
        let mut published = false;
        while into.len() - before < limit {
            let word = ring.word(self.consumed).load(Ordering::Acquire);
            if word == 0 {
                break;
            }
            let Some(payload) = payload_of(word, self.payload_max) else {
                return Err(Corrupt::Header { position: self.consumed, word });
            };
            let start = ring.index(self.consumed + WORD_BYTES as u64);
            append(ring.words, start, payload as usize, into);
            self.consumed += span(payload);
            if self.consumed - self.published >= self.ring_bytes / 4 {
                published |= self.publish(words);
            }
        }
        // Zeroing takes the lines from the producer, which an answer should not have to wait for.
        // So it is done when there is nothing else to do, or all at once before publishing.
        if into.len() == before && self.cleared < self.consumed {
            self.clear(ring, IDLE_LINES);
        }
        Ok((into.len() - before, published))
    }

    /// Tells the producer how much has been consumed, if it does not know; whether it did not.
    pub(in super::super) fn publish(&mut self, words: &[AtomicU64]) -> bool {
        if self.published == self.consumed {
            return false;
        }
        self.clear(Ring::new(&words[self.area.clone()]), u64::MAX);
        words[self.consumed_word].store(self.consumed, Ordering::Release);
        self.published = self.consumed;
        true
    }

    /// Zeroes the starts of at most so many lines that have been consumed.
    fn clear(&mut self, ring: Ring<'_>, lines: u64) {
        let lines = lines.min((self.consumed - self.cleared) / LINE_BYTES);
        for _ in 0..lines {
            ring.word(self.cleared).store(0, Ordering::Relaxed);
            self.cleared += LINE_BYTES;
        }
    }
}
