//! The end of a ring that appends records.

use super::super::error::Corrupt;
use super::super::layout::{End, LINE_BYTES, Layout, WORD_BYTES};
use super::copy::RingWriter;
use super::{Ring, header, produced_payload, span};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// The private state of a ring's producing end. Every call is given the words of the mapping.
pub(in super::super) struct Producer {
    /// The words of the ring.
    area: Range<usize>,
    /// The word in which the peer publishes its consumed position.
    consumed_word: usize,
    ring_bytes: u64,
    /// The longest payload of a record.
    payload_max: u64,
    produced: u64,
    /// The peer's consumed position when the shared word was last read.
    consumed: u64,
}

impl Producer {
    /// Returns the producer of the ring that `end` writes, before its first record.
    pub(in super::super) fn new(layout: Layout, end: End) -> Producer {
        let ring_bytes = layout.ring_bytes() as u64;
        Producer {
            area: layout.ring_written_by(end),
            consumed_word: layout.consumed_from(end),
            ring_bytes,
            payload_max: produced_payload(ring_bytes),
            produced: 0,
            consumed: 0,
        }
    }

    /// Appends as much of the concatenation of `parts` as fits, and returns the number of bytes
    /// taken.
    pub(in super::super) fn send(
        &mut self,
        words: &[AtomicU64],
        parts: &[&[u8]],
    ) -> Result<usize, Corrupt> {
        let total = parts.iter().fold(0, |sum: usize, part| sum.saturating_add(part.len()));
        let whole = total as u64;
        if (1..=self.payload_max).contains(&whole) && self.room(words, span(whole))? >= span(whole)
        {
            self.append(words, whole, |writer| parts.iter().for_each(|part| writer.write(part)));
            return Ok(total);
        }
        let mut source = Source { parts: parts.iter(), rest: &[] };
        let mut sent = 0;
        while sent < total {
            let wanted = ((total - sent) as u64).min(self.payload_max);
            let room = self.room(words, span(wanted))?;
            if room == 0 {
                break;
            }
            let payload = wanted.min(room - WORD_BYTES as u64);
            self.append(words, payload, |writer| source.write(payload as usize, writer));
            sent += payload as usize;
        }
        Ok(sent)
    }

    /// Whether anything can be sent now. A lying peer counts as room, because the next send detects
    /// the lie.
    pub(in super::super) fn check_room(&mut self, words: &[AtomicU64]) -> bool {
        !matches!(self.room(words, LINE_BYTES), Ok(0))
    }

    /// Returns the room in the ring. The shared word is read only if the known room is not
    /// `enough`.
    #[inline]
    fn room(&mut self, words: &[AtomicU64], enough: u64) -> Result<u64, Corrupt> {
        let known = self.ring_bytes - (self.produced - self.consumed);
        if known >= enough {
            return Ok(known);
        }
        let claimed = words[self.consumed_word].load(Ordering::Acquire);
        let (before, produced) = (self.consumed, self.produced);
        if !(before..=produced).contains(&claimed) || !claimed.is_multiple_of(LINE_BYTES) {
            return Err(Corrupt::Consumed { claimed, before, produced });
        }
        self.consumed = claimed;
        Ok(self.ring_bytes - (produced - claimed))
    }

    /// Writes one record, for which there is room; `fill` writes the payload.
    #[inline]
    fn append(
        &mut self,
        words: &[AtomicU64],
        payload: u64,
        fill: impl FnOnce(&mut RingWriter<'_>),
    ) {
        let ring = Ring::new(&words[self.area.clone()]);
        let mut writer = RingWriter::new(ring.words, ring.index(self.produced + WORD_BYTES as u64));
        fill(&mut writer);
        writer.finish();
        ring.word(self.produced).store(header(payload), Ordering::Release);
        self.produced += span(payload);
    }
}

/// The bytes of several slices, taken piece by piece.
struct Source<'a> {
    parts: std::slice::Iter<'a, &'a [u8]>,
    rest: &'a [u8],
}

impl<'a> Source<'a> {
    /// Writes the next `left` bytes.
    fn write(&mut self, mut left: usize, writer: &mut RingWriter<'_>) {
        while left > 0 {
            let piece = self.take(left);
            left -= piece.len();
            writer.write(piece);
        }
    }

    /// Returns the next bytes, at least one and at most `limit`. At least one byte must remain.
    #[inline]
    fn take(&mut self, limit: usize) -> &'a [u8] {
        while self.rest.is_empty() {
            self.rest = self.parts.next().expect("no more is taken than the parts hold");
        }
        let (piece, rest) = self.rest.split_at(limit.min(self.rest.len()));
        self.rest = rest;
        piece
    }
}
