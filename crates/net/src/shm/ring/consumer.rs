//! The end of a ring that consumes records.

use super::super::error::Corrupt;
use super::super::layout::{End, LINE_BYTES, Layout, WORD_BYTES};
use super::copy::{append, has_room, make_room};
use super::{Ring, believed_payload, payload_of, span};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// The private state of a ring's consuming end. Every call is given the words of the mapping.
pub(in super::super) struct Consumer {
    /// The words of the ring.
    area: Range<usize>,
    /// The word in which this end publishes its consumed position.
    consumed_word: usize,
    ring_bytes: u64,
    /// The longest payload that is accepted.
    payload_max: u64,
    consumed: u64,
    /// Line starts before this position are zero.
    cleared: u64,
    /// The consumed position that the peer knows.
    published: u64,
}

impl Consumer {
    /// Returns the consumer of the ring that `writer` writes, before its first record.
    pub(in super::super) fn new(layout: Layout, writer: End) -> Consumer {
        let ring_bytes = layout.ring_bytes() as u64;
        Consumer {
            area: layout.ring_written_by(writer),
            consumed_word: layout.consumed_from(writer),
            ring_bytes,
            payload_max: believed_payload(ring_bytes),
            consumed: 0,
            cleared: 0,
            published: 0,
        }
    }

    /// Whether a record is there, or bytes that pretend to be one.
    #[inline]
    pub(in super::super) fn ready(&self, words: &[AtomicU64]) -> bool {
        let ring = Ring::new(&words[self.area.clone()]);
        ring.word(self.consumed).load(Ordering::Acquire) != 0
    }

    /// Appends records to `into` until there are no more, or until it has copied `limit` bytes or
    /// as many as the ring has. It also stops before a record that makes a long `into` grow: the
    /// growth would copy the bytes that are there, and the caller may have used them by the next
    /// call. Returns the number of bytes copied, and whether the consumed position was published.
    #[inline]
    pub(in super::super) fn receive(
        &mut self,
        words: &[AtomicU64],
        into: &mut Vec<u8>,
        limit: usize,
    ) -> Result<(usize, bool), Corrupt> {
        let ring = Ring::new(&words[self.area.clone()]);
        let limit = limit.min(self.ring_bytes as usize);
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
            let length = payload as usize;
            if !has_room(into, length) && !make_room(into, length, into.len() == before) {
                break;
            }
            let start = ring.index(self.consumed + WORD_BYTES as u64);
            append(ring.words, start, length, into);
            self.consumed += span(payload);
            if self.consumed - self.published >= self.ring_bytes / 4 {
                published |= self.publish(words);
            }
        }
        Ok((into.len() - before, published))
    }

    /// Publishes the consumed position if the producer does not know it. Returns whether it did.
    pub(in super::super) fn publish(&mut self, words: &[AtomicU64]) -> bool {
        if self.published == self.consumed {
            return false;
        }
        self.clear(words);
        words[self.consumed_word].store(self.consumed, Ordering::Release);
        self.published = self.consumed;
        true
    }

    /// Zeroes the starts of the consumed lines. This takes the lines away from the producer, so the
    /// best time is when a reply has already been sent.
    #[inline]
    pub(in super::super) fn clear(&mut self, words: &[AtomicU64]) {
        let ring = Ring::new(&words[self.area.clone()]);
        while self.cleared < self.consumed {
            ring.word(self.cleared).store(0, Ordering::Relaxed);
            self.cleared += LINE_BYTES;
        }
    }
}
