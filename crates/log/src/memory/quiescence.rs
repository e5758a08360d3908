//! Quiescence: when unlinked memory may be reused, because no thread can still be reading it.
//!
//! There are two kinds of readers, and each kind's unlinked memory has its own domain.
//!
//! **[`Turns`]: the reactor reads, cleaners unlink.** The reactor holds references into the log
//! only within a turn, and publishes a number when a turn ends. A cleaner moves the index away from
//! old memory, then takes a [`Stamp`]: the number at that time. Once a higher number is published,
//! the memory is free.
//!
//! Why: at the end of a turn the reactor stores the new number and executes a sequentially
//! consistent fence before it loads anything in the new turn. The cleaner executes such a fence
//! between its unlinking and its load of the number. One of the two fences comes first. If the
//! cleaner's does, all loads of the reactor's new turn see the unlinking. If the reactor's does,
//! the cleaner loads at least the new number, so the memory waits for a turn that begins later
//! still. Acquire on the higher number, against its release, also means that every read of the
//! reactor's turn before happens before the memory is written again.
//!
//! **[`Readers`]: cleaners read index memory, the reactor unlinks.** A cleaner announces the epoch
//! at which it entered and withdraws it when it leaves. The reactor unlinks a block, advances the
//! epoch and takes that as the stamp; the block is free once every announced epoch is at least
//! the stamp. The fences play the same parts.

use crate::sync::{AtomicU64, Ordering, fence};
use std::sync::Arc;

/// A point in time after which some memory cannot be reached by new readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp(u64);

/// Keeps a value on a cache line of its own, so that threads do not disturb each other.
#[repr(align(128))]
struct Padded<T>(T);

/// The turns of one reactor. See the module's documentation.
pub(crate) struct Turns {
    turn: Padded<AtomicU64>,
}

impl Turns {
    pub(crate) fn new() -> Turns {
        Turns { turn: Padded(AtomicU64::new(0)) }
    }

    /// Ends a turn. Reactor only: it holds no reference into the log now.
    #[inline]
    pub(crate) fn publish(&self) {
        let turn = self.turn.0.load(Ordering::Relaxed);
        self.turn.0.store(turn + 1, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Called by a cleaner after it has unlinked memory.
    pub(crate) fn stamp(&self) -> Stamp {
        fence(Ordering::SeqCst);
        Stamp(self.turn.0.load(Ordering::Relaxed))
    }

    /// Whether memory unlinked before the stamp may be used again.
    pub(crate) fn passed(&self, stamp: Stamp) -> bool {
        self.turn.0.load(Ordering::Acquire) > stamp.0
    }
}

/// Places for readers: more than a log has cleaners.
#[cfg(not(loom))]
const PLACES: usize = 2 * crate::limits::CLEANERS_MAX;
#[cfg(loom)]
const PLACES: usize = 2;

/// The place is free.
const FREE: u64 = u64::MAX;
/// The place is taken and its reader is outside.
const OUTSIDE: u64 = u64::MAX - 1;

/// The cleaners that may be inside index memory. See the module's documentation.
pub(crate) struct Readers {
    epoch: Padded<AtomicU64>,
    places: Vec<Padded<AtomicU64>>,
}

impl Readers {
    pub(crate) fn new() -> Readers {
        Readers {
            epoch: Padded(AtomicU64::new(1)),
            places: (0..PLACES).map(|_| Padded(AtomicU64::new(FREE))).collect(),
        }
    }

    /// Takes a place for a reader, if one is free.
    pub(crate) fn register(self: &Arc<Self>) -> Option<Reader> {
        let place = self.places.iter().position(|place| {
            place.0.compare_exchange(FREE, OUTSIDE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })?;
        Some(Reader { readers: Arc::clone(self), place })
    }

    /// Called by the reactor after it has unlinked memory.
    pub(crate) fn stamp(&self) -> Stamp {
        fence(Ordering::SeqCst);
        let epoch = self.epoch.0.load(Ordering::Relaxed) + 1;
        self.epoch.0.store(epoch, Ordering::Release);
        fence(Ordering::SeqCst);
        Stamp(epoch)
    }

    /// Whether every reader that was inside at the stamp has left.
    pub(crate) fn passed(&self, stamp: Stamp) -> bool {
        self.places.iter().all(|place| place.0.load(Ordering::Acquire) >= stamp.0)
    }
}

/// A place among the readers.
pub(crate) struct Reader {
    readers: Arc<Readers>,
    place: usize,
}

impl Reader {
    /// Enters index memory, until the guard is dropped. Meant for a batch of operations: a reader
    /// that stays inside keeps memory from being reused.
    pub(crate) fn enter(&mut self) -> Guard<'_> {
        let place = &self.readers.places[self.place].0;
        let guard = Guard { place, epoch: &self.readers.epoch.0 };
        guard.announce();
        guard
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.readers.places[self.place].0.store(FREE, Ordering::Release);
    }
}

/// Proof that a reader is inside.
pub(crate) struct Guard<'a> {
    place: &'a AtomicU64,
    epoch: &'a AtomicU64,
}

impl Guard<'_> {
    fn announce(&self) {
        // An older epoch than the current one only makes the reactor wait a little longer.
        // Release: a thread that sees this epoch also sees that all earlier visits have ended.
        self.place.store(self.epoch.load(Ordering::Acquire), Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Leaves and enters again: references from before must not be used any more.
    pub(crate) fn renew(&mut self) {
        self.place.store(OUTSIDE, Ordering::Release);
        self.announce();
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.place.store(OUTSIDE, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn memory_waits_for_the_turn_after_its_stamp() {
        let turns = Turns::new();
        turns.publish();
        let stamp = turns.stamp();
        assert!(!turns.passed(stamp));
        turns.publish();
        assert!(turns.passed(stamp));
    }

    #[test]
    fn memory_waits_for_readers_that_were_inside() {
        let readers = Arc::new(Readers::new());
        let mut early = readers.register().unwrap();
        let mut late = readers.register().unwrap();
        let inside = early.enter();
        let stamp = readers.stamp();
        let after = late.enter();
        assert!(!readers.passed(stamp));
        drop(inside);
        assert!(readers.passed(stamp), "the later reader cannot reach the memory");
        drop(after);
    }

    #[test]
    fn places_are_given_back() {
        let readers = Arc::new(Readers::new());
        let all: Vec<_> = std::iter::from_fn(|| readers.register()).collect();
        assert_eq!(all.len(), PLACES);
        drop(all);
        assert!(readers.register().is_some());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc as LoomArc;
    use loom::sync::atomic::AtomicUsize;

    /// The reactor reads memory through a slot; a cleaner moves the slot and reuses the memory.
    #[test]
    fn loom_a_reactor_never_reads_memory_that_was_reused() {
        loom::model(|| {
            let turns = LoomArc::new(Turns::new());
            let slot = LoomArc::new(AtomicUsize::new(0));
            let cells =
                LoomArc::new([loom::cell::UnsafeCell::new(7), loom::cell::UnsafeCell::new(7)]);
            let cleaner = {
                let (turns, slot, cells) = (turns.clone(), slot.clone(), cells.clone());
                loom::thread::spawn(move || {
                    slot.store(1, Ordering::Release);
                    let stamp = turns.stamp();
                    for _ in 0..2 {
                        if turns.passed(stamp) {
                            // SAFETY: the model checks exactly this: no thread reads the cell now.
                            cells[0].with_mut(|cell| unsafe { *cell = 9 });
                            return;
                        }
                        loom::thread::yield_now();
                    }
                })
            };
            for _ in 0..2 {
                let at = slot.load(Ordering::Acquire);
                // SAFETY: as above.
                cells[at].with(|cell| unsafe { assert_eq!(*cell, 7) });
                turns.publish();
            }
            cleaner.join().unwrap();
        });
    }

    /// A cleaner reads a block through a pointer; the reactor unlinks the block and reuses it.
    #[test]
    fn loom_a_cleaner_never_reads_an_index_block_that_was_reused() {
        loom::model(|| {
            let readers = std::sync::Arc::new(Readers::new());
            let slot = LoomArc::new(AtomicUsize::new(0));
            let cells =
                LoomArc::new([loom::cell::UnsafeCell::new(7), loom::cell::UnsafeCell::new(7)]);
            let mut reader = readers.register().unwrap();
            let cleaner = {
                let (slot, cells) = (slot.clone(), cells.clone());
                loom::thread::spawn(move || {
                    for _ in 0..2 {
                        let guard = reader.enter();
                        let at = slot.load(Ordering::Acquire);
                        // SAFETY: the model checks exactly this: no thread writes the cell now.
                        cells[at].with(|cell| unsafe { assert_eq!(*cell, 7) });
                        drop(guard);
                    }
                })
            };
            slot.store(1, Ordering::Release);
            let stamp = readers.stamp();
            for _ in 0..2 {
                if readers.passed(stamp) {
                    // SAFETY: as above.
                    cells[0].with_mut(|cell| unsafe { *cell = 9 });
                    break;
                }
                loom::thread::yield_now();
            }
            cleaner.join().unwrap();
        });
    }
}
