//! Copying between private bytes and shared words.
//!
//! This file is separate because long messages spend their time here, and because of its one piece
//! of unsafe code. Shared memory is only read and written a whole word at a time, relaxed: the
//! header's release and acquire order the payload behind it.

use super::super::layout::WORD_BYTES;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

// The first byte becomes the lowest of its word.
const _: () = assert!(cfg!(target_endian = "little"), "only little-endian machines are supported");

/// Writes the bytes of several slices into the words of a ring, one after another.
pub(super) struct RingWriter<'a> {
    words: &'a [AtomicU64],
    /// The index of the next word to be stored.
    next: usize,
    /// Bytes that do not fill a word yet, padded with zeros.
    held: u64,
    held_bytes: usize,
}

impl<'a> RingWriter<'a> {
    /// Returns a writer that begins at a word. The number of words is a power of two.
    #[inline]
    pub(super) fn new(words: &'a [AtomicU64], next: usize) -> RingWriter<'a> {
        RingWriter { words, next, held: 0, held_bytes: 0 }
    }

    /// Writes bytes after the earlier ones; all together at most as many as the ring has.
    #[inline]
    pub(super) fn write(&mut self, mut bytes: &[u8]) {
        if self.held_bytes > 0 {
            let (head, rest) = bytes.split_at(bytes.len().min(WORD_BYTES - self.held_bytes));
            self.held |= few(head) << (8 * self.held_bytes);
            self.held_bytes += head.len();
            if self.held_bytes < WORD_BYTES {
                return;
            }
            self.store_held();
            bytes = rest;
        }
        let (whole, rest) = bytes.as_chunks::<WORD_BYTES>();
        let (run, wrapped) = whole.split_at(whole.len().min(self.words.len() - self.next));
        store_all(&self.words[self.next..], run);
        store_all(self.words, wrapped);
        self.next = (self.next + whole.len()) & (self.words.len() - 1);
        self.held = few(rest);
        self.held_bytes = rest.len();
    }

    /// Writes the last, partly filled word, padded with zeros.
    #[inline]
    pub(super) fn finish(mut self) {
        if self.held_bytes > 0 {
            self.store_held();
        }
    }

    #[inline]
    fn store_held(&mut self) {
        self.words[self.next].store(self.held, Ordering::Relaxed);
        self.next = (self.next + 1) & (self.words.len() - 1);
        self.held = 0;
        self.held_bytes = 0;
    }
}

#[inline]
fn store_all(words: &[AtomicU64], values: &[[u8; WORD_BYTES]]) {
    // By fours, because the loop costs as much as the store.
    let count = words.len().min(values.len());
    let (words, last_words) = words[..count].as_chunks::<4>();
    let (values, last_values) = values[..count].as_chunks::<4>();
    for (words, values) in words.iter().zip(values) {
        for (word, value) in words.iter().zip(values) {
            word.store(u64::from_le_bytes(*value), Ordering::Relaxed);
        }
    }
    for (word, value) in last_words.iter().zip(last_values) {
        word.store(u64::from_le_bytes(*value), Ordering::Relaxed);
    }
}

/// Returns at most seven bytes as the low ones of a word, in at most three loads. Loads may
/// overlap: shared bytes land in the same place.
#[inline]
fn few(bytes: &[u8]) -> u64 {
    let length = bytes.len();
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return u64::from(first) | u64::from(last) << (8 * (length - 4));
    }
    if length == 0 {
        return 0;
    }
    let byte = |at: usize| u64::from(bytes[at]) << (8 * at);
    byte(0) | byte(length / 2) | byte(length - 1)
}

/// A buffer that holds so many bytes and gets another record mostly gets a long message: a producer
/// cuts it into records of some 4 KiB.
const LONG_BYTES: usize = 8000;

/// The length that such a buffer gets. The transport keeps a buffer of this length for the next
/// messages.
const AHEAD_BYTES: usize = 128 << 10;

/// A buffer with so many bytes does not grow in the middle of a read, because growth copies them.
const COPY_BYTES: usize = 48 << 10;

/// Whether `into` has room for a record of so many bytes.
#[inline]
pub(super) fn has_room(into: &Vec<u8>, length: usize) -> bool {
    // The copy of whole words may write up to seven bytes behind the end.
    into.capacity() - into.len() >= length.next_multiple_of(WORD_BYTES)
}

/// Makes room for a record, unless that would copy many bytes. `begins`: the record is the first of
/// a read, so there must be room for it. Returns whether there is.
#[cold]
pub(super) fn make_room(into: &mut Vec<u8>, length: usize, begins: bool) -> bool {
    if !begins && into.len() >= COPY_BYTES {
        return false;
    }
    // If much is there already, the next records get room too, because a buffer that doubles is
    // copied each time.
    let is_long = into.len() >= LONG_BYTES;
    let ahead = if is_long { AHEAD_BYTES.saturating_sub(into.len()) } else { 0 };
    into.reserve(length.next_multiple_of(WORD_BYTES).max(ahead));
    true
}

/// Appends `length` bytes that begin at a word of a ring to `into`, which has room for them. The
/// number of words is a power of two, and they hold at least that many bytes.
#[inline]
pub(super) fn append(words: &[AtomicU64], start: usize, length: usize, into: &mut Vec<u8>) {
    // This copies whole words, so the last may bring up to seven extra bytes. They are written
    // behind the end, where there is room for them.
    let count = length.div_ceil(WORD_BYTES);
    let (slots, _) = into.spare_capacity_mut().as_chunks_mut::<WORD_BYTES>();
    let (run, wrapped) = slots[..count].split_at_mut(count.min(words.len() - start));
    let copied = load_all(&words[start..], run) + load_all(words, wrapped);
    debug_assert_eq!(copied, count);
    assert!(copied * WORD_BYTES >= length, "the ring holds the record");
    // SAFETY: `load_all` has written the first `copied` words behind the end. They lie within the
    // capacity and are at least `length` bytes.
    unsafe { into.set_len(into.len() + length) };
}

/// Loads as many words as there are slots for, and returns their number.
#[inline]
fn load_all(words: &[AtomicU64], slots: &mut [[MaybeUninit<u8>; WORD_BYTES]]) -> usize {
    let count = words.len().min(slots.len());
    let (words, last_words) = words[..count].as_chunks::<4>();
    let (slots, last_slots) = slots[..count].as_chunks_mut::<4>();
    for (words, slots) in words.iter().zip(slots) {
        for (word, slot) in words.iter().zip(slots) {
            slot.write_copy_of_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
    }
    for (word, slot) in last_words.iter().zip(last_slots) {
        slot.write_copy_of_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Takes the first record of a read.
    fn receive(words: &[AtomicU64], start: usize, length: usize, into: &mut Vec<u8>) {
        assert!(has_room(into, length) || make_room(into, length, true));
        append(words, start, length, into);
    }

    #[test]
    fn a_buffer_for_a_long_message_grows_three_times() {
        const RECORD_BYTES: usize = 4088;
        let words: Vec<AtomicU64> = (0..1024).map(AtomicU64::new).collect();
        let (mut into, mut capacities) = (Vec::new(), Vec::new());
        while into.len() + RECORD_BYTES <= AHEAD_BYTES {
            receive(&words, 0, RECORD_BYTES, &mut into);
            capacities.push(into.capacity());
        }
        capacities.dedup();
        assert_eq!(capacities, [RECORD_BYTES, 2 * RECORD_BYTES, AHEAD_BYTES]);
    }

    #[test]
    fn few_bytes_become_the_low_bytes_of_a_word() {
        for length in 0..WORD_BYTES {
            let bytes: Vec<u8> = (1..=length as u8).collect();
            let mut expected = [0; WORD_BYTES];
            expected[..length].copy_from_slice(&bytes);
            assert_eq!(few(&bytes), u64::from_le_bytes(expected), "{length}");
        }
    }

    proptest! {
        #[test]
        fn parts_are_written_as_one_and_read_back_wherever_they_begin(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..12),
            start in 0..64usize,
            before in prop::collection::vec(any::<u8>(), 0..9),
        ) {
            let words: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(u64::MAX)).collect();
            let mut writer = RingWriter::new(&words, start);
            parts.iter().for_each(|part| writer.write(part));
            writer.finish();
            let expected = parts.concat();
            let mut read = before.clone();
            receive(&words, start, expected.len(), &mut read);
            prop_assert_eq!(&read[..before.len()], &before[..]);
            prop_assert_eq!(&read[before.len()..], &expected[..]);
            let touched = expected.len().div_ceil(WORD_BYTES);
            for beyond in touched..64 {
                let word = words[(start + beyond) & 63].load(Ordering::Relaxed);
                prop_assert_eq!(word, u64::MAX);
            }
        }
    }
}
