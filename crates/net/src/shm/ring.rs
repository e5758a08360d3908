//! A ring: the records in flight from one end to the other.
//!
//! The [`Producer`] appends records, the [`Consumer`] takes them; each is used by one thread at a
//! time, in its own process. Positions count the bytes of the ring ever used, headers and padding
//! included; they are multiples of a cache line and never wrap in practice (at 100 GB/s, 64 bits
//! last for five years). A position's place in the ring is its remainder.
//!
//! ```text
//!   cleared ≤ ······ consumed ··················· produced
//!      |  read, not  |  records on their way        |  zero at the start of every line
//!      |  yet zeroed |                              |
//!   published ≤ cleared        (all four within one ring: produced - published ≤ ring bytes)
//!
//!   a record:   | header | payload, 56 bytes | payload, 64 bytes | payload | padding |
//!               ^ line                       ^ line              ^ line              ^ next record
//! ```
//!
//! **One line per message.** A header is a marker and the payload's length. It is never 0, and the
//! producer stores it last, with release. The consumer polls the word in which the next header will
//! appear, with acquire. The cache line that brings the header also brings the first 56 bytes of
//! the payload, and the producer shares no other position.
//!
//! **No stale header.** The word that a consumer polls is 0 until a header is stored there, for
//! three reasons. Fresh memory is zero. A producer writes no line start but that of its record. A
//! consumer zeroes all line starts that it has consumed before it publishes `consumed`, with
//! release. The producer reads `consumed` with acquire before it writes there again, so the zeros
//! are older than anything of the next lap. A consumer never meets lines that it has not zeroed
//! yet, because they are less than half a ring behind it: a quarter, after which it publishes, and
//! one record.
//!
//! **Room is published rarely.** The consumer publishes `consumed` after each quarter of the ring,
//! and before it sleeps. The producer reads it only when its own copy says that the ring is full.
//! That is enough. If a producer sees less than a line of room, it counts a whole ring as
//! outstanding. Less than a quarter of that is consumed and unpublished, so more than three
//! quarters remain to be consumed, and consuming them makes the consumer publish.
//!
//! **A hostile peer** may change any word at any time. All accesses are atomic, each word is read
//! once and judged as read, and every index is reduced to the ring. So the peer can make this end
//! read rubbish or get [`Corrupt`](super::Corrupt), and no more. It cannot prolong a call either: a
//! record has at least one byte, and a call copies no more bytes than a ring has.

mod consumer;
mod copy;
mod producer;

pub(super) use consumer::Consumer;
pub(super) use producer::Producer;

use super::layout::{LINE_BYTES, WORD_BYTES};
use std::sync::atomic::AtomicU64;

/// The upper half of every header.
const MARKER: u64 = 0x7d3a_51c6;

/// The words of a ring, by position.
#[derive(Clone, Copy)]
struct Ring<'a> {
    /// A power of two of words.
    words: &'a [AtomicU64],
}

impl<'a> Ring<'a> {
    fn new(words: &'a [AtomicU64]) -> Ring<'a> {
        debug_assert!(words.len().is_power_of_two());
        Ring { words }
    }

    /// The index of the word at a position.
    #[inline]
    fn index(self, position: u64) -> usize {
        (position as usize / WORD_BYTES) & (self.words.len() - 1)
    }

    /// The word at a position.
    #[inline]
    fn word(self, position: u64) -> &'a AtomicU64 {
        &self.words[self.index(position)]
    }
}

/// The longest record that a producer makes, header included. A longer message becomes several
/// records, so that the consumer copies one while the producer writes the next. With records of 4
/// KiB, a round trip of 16 KB was fastest, by a quarter.
const RECORD_BYTES: u64 = 4096;

/// The longest payload that a consumer accepts. With its header it takes a quarter of the ring.
fn believed_payload(ring_bytes: u64) -> u64 {
    ring_bytes / 4 - WORD_BYTES as u64
}

/// The longest payload that a producer writes.
fn produced_payload(ring_bytes: u64) -> u64 {
    believed_payload(ring_bytes).min(RECORD_BYTES - WORD_BYTES as u64)
}

/// The bytes of the ring that a record takes.
#[inline]
fn span(payload: u64) -> u64 {
    (payload + WORD_BYTES as u64).next_multiple_of(LINE_BYTES)
}

/// The header of a record.
#[inline]
pub(super) fn header(payload: u64) -> u64 {
    (MARKER << 32) | payload
}

/// Returns the payload's length if the word is a valid header.
#[inline]
fn payload_of(word: u64, believed: u64) -> Option<u64> {
    let payload = word & u64::from(u32::MAX);
    (word >> 32 == MARKER && (1..=believed).contains(&payload)).then_some(payload)
}
