//! The memory of a log: one mapping, cut into seglets, with a free list that threads share.
//!
//! Everything that grows with the data is in this memory, segments and index blocks alike, so one
//! number bounds them all. A [`Memory`] belongs to one log, for good.
//!
//! ```text
//!  reference (48 bits) = seglet number × seglet_bytes + offset        seglet numbers start at 1,
//!                                                                     so no reference is 0
//!  mapping:  | seglet 1 | seglet 2 | seglet 3 | … | seglet n |
//!  notes:    | next, account, start, dead, segment … |  32 bytes a seglet, beside the mapping
//! ```
//!
//! A free seglet's `next` is the free list's link; a used one's is the next seglet of its segment.
//! The list is a stack with a tag against reuse between load and swap, so no thread ever waits for
//! another to allocate or to free.
//!
//! **Reserves.** The caller of [`Memory::take`] says how many seglets must stay free. So the
//! cleaner pool, the emergency heads and the room for deletes are kept: the more urgent the
//! purpose, the fewer seglets it leaves ([`Reserves`](crate::append::shared::Reserves)).
//!
//! The memory never decides when a seglet may be reused. The thread that frees one must have waited
//! for quiescence ([`quiescence`]).
//!
//! [`segment`] fills seglets with entries, and [`object`] has the entries as a reader sees them.
//! [`present_segments`] and [`prior_span`] tell which segments other segments still need.

pub(crate) mod object;
pub(crate) mod present_segments;
pub(crate) mod prior_span;
pub(crate) mod quiescence;
pub(crate) mod segment;

use crate::error::OptionsError;
use crate::limits;
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use thunderhead_wire::SegmentId;

/// The usual size of a seglet.
pub const SEGLET_BYTES: usize = 64 * 1024;

/// The place of an entry: its address inside the memory. Never 0.
pub(crate) type Reference = u64;

/// References of 32 bits are below this, in bytes.
pub(crate) const REACH_BYTES: u64 = 1 << 32;

/// A bounded piece of the machine's memory, for one log with its segments, indexes and reserves. It
/// does not grow, and only one log can ever be made in it.
pub struct Memory {
    /// One seglet before the mapping, so that a reference is an offset from here.
    base: *mut u8,
    mapping: NonNull<u8>,
    mapped_bytes: usize,
    seglet_bytes: usize,
    seglet_shift: u32,
    seglets: usize,
    notes: Box<[Note]>,
    /// Tag in the upper half, number of the first free seglet in the lower, 0 for none.
    free: AtomicU64,
    /// Free seglets that no thread has claimed. A thread claims first and pops after.
    available: AtomicUsize,
    /// The highest number of a seglet that was ever taken. Those above it are fresh: the kernel has
    /// given no pages for them, unless the memory was [populated](Memory::populate).
    touched: AtomicUsize,
    /// Seglets that hold index blocks.
    index_seglets: AtomicUsize,
    /// Segments that may have objects of caches, in any state: open, complete or cleaned.
    cached_segments: AtomicUsize,
    /// A log has this memory.
    claimed: AtomicBool,
    /// Treat references as longer than 32 bits, even if they are not.
    has_long_references: bool,
}

/// The state of a seglet.
#[derive(Default)]
struct Note {
    next: AtomicU32,
    /// The first seglet of the segment: where that segment's dead bytes are counted.
    account: AtomicU32,
    /// The offset in the segment of the seglet's first byte.
    start: AtomicU32,
    /// Bytes of the segment that the reactor has marked dead, if this is its first seglet.
    dead: AtomicU32,
    /// The most bytes that tombstones in place of these dead entries may take.
    guarded: AtomicU32,
    /// Bytes of the segment that are never live, and so never die: its header, fillings,
    /// tombstones.
    idle: AtomicU32,
    /// The segment's id.
    segment: AtomicU64,
}

/// The bytes that the reactor has counted as dead in a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeadBytes {
    pub(crate) dead: u32,
    /// The most bytes that tombstones in their place may take.
    pub(crate) guarded: u32,
}

// SAFETY: the mapping belongs to this value until it is dropped, and `base` and `mapping` are plain
// addresses of it. The owners of the seglets govern which thread may read and write which bytes
// (module doc); the fields that threads share are atomics.
unsafe impl Send for Memory {}
// SAFETY: as above; no method hands out a reference to the mapping's bytes on its own.
unsafe impl Sync for Memory {}

impl Memory {
    /// The number of segments that may have objects of caches.
    pub(crate) fn cached_segments(&self) -> usize {
        self.cached_segments.load(Ordering::Acquire)
    }

    /// Counts a segment that may have objects of caches, or that has none any more. A cleaner
    /// queues the objects that it has found before it counts down.
    pub(crate) fn count_cached_segment(&self, is_one_more: bool) {
        match is_one_more {
            true => self.cached_segments.fetch_add(1, Ordering::AcqRel),
            false => self.cached_segments.fetch_sub(1, Ordering::AcqRel),
        };
    }

    /// Maps a memory of at most `bytes`, the notes beside it included, in seglets of the usual
    /// size. No page is touched yet: see [`Memory::populate`].
    ///
    /// # Errors
    /// When `bytes` is too small or too large, or the system refuses the mapping. (A log needs
    /// more than the least memory: at least four segments of its options, see [`Log::new`].)
    ///
    /// [`Log::new`]: crate::Log::new
    pub fn new(bytes: usize) -> Result<Arc<Memory>, OptionsError> {
        Memory::with_seglets(bytes, SEGLET_BYTES)
    }

    /// As [`Memory::new`], with seglets of another size: a power of two of at least 1 KiB.
    ///
    /// # Errors
    /// As [`Memory::new`], or when the seglet size is not a power of two of at least 1 KiB.
    pub fn with_seglets(bytes: usize, seglet_bytes: usize) -> Result<Arc<Memory>, OptionsError> {
        Memory::map(bytes, seglet_bytes, false)
    }

    /// Maps a memory whose indexes are as in a memory of more than 4 GiB: for tests, which have
    /// less.
    ///
    /// # Errors
    /// As [`Memory::with_seglets`].
    #[doc(hidden)]
    pub fn with_long_references(
        bytes: usize,
        seglet_bytes: usize,
    ) -> Result<Arc<Memory>, OptionsError> {
        Memory::map(bytes, seglet_bytes, true)
    }

    fn map(
        bytes: usize,
        seglet_bytes: usize,
        has_long_references: bool,
    ) -> Result<Arc<Memory>, OptionsError> {
        let fail = |message: String| Err(OptionsError(message));
        if !seglet_bytes.is_power_of_two() || !(1024..=1 << 24).contains(&seglet_bytes) {
            return fail(format!(
                "seglet_bytes is {seglet_bytes}; it must be a power of two from 1024 to 16 MiB"
            ));
        }
        let each = seglet_bytes + size_of::<Note>();
        let seglets = bytes / each;
        let (least, most) = (8 * each, (limits::SEGLETS_MAX * each).min(limits::MEMORY_BYTES_MAX));
        if !(least..=most).contains(&bytes) {
            return fail(format!(
                "a memory of {bytes} bytes is impossible; with seglets of {seglet_bytes} bytes it must be {least} to {most}"
            ));
        }
        let mapped_bytes = seglets * seglet_bytes;
        // SAFETY: a new private mapping at an address of the kernel's choice touches no other
        // memory.
        let mapped = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                mapped_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let mapping = match mapped.map(|address| NonNull::new(address.cast::<u8>())) {
            Ok(Some(mapping)) => mapping,
            Ok(None) => return fail("the system mapped memory at address 0".into()),
            Err(error) => {
                return fail(format!("cannot map {mapped_bytes} bytes of memory: {error}"));
            }
        };
        // SAFETY: the range is the mapping just made. Huge pages halve the cost of a random load;
        // if the kernel has none, the call fails and nothing is lost.
        let _ = unsafe { madvise(mapping.as_ptr().cast(), mapped_bytes, Advice::LinuxHugepage) };
        let notes: Box<[Note]> = (0..=seglets).map(|_| Note::default()).collect();
        // Lower addresses first, so that segments written one after another are contiguous.
        for number in 1..seglets {
            notes[number].next.store(number as u32 + 1, Ordering::Relaxed);
        }
        Ok(Arc::new(Memory {
            base: mapping.as_ptr().wrapping_sub(seglet_bytes),
            mapping,
            mapped_bytes,
            seglet_bytes,
            seglet_shift: seglet_bytes.trailing_zeros(),
            seglets,
            notes,
            free: AtomicU64::new(1),
            available: AtomicUsize::new(seglets),
            touched: AtomicUsize::new(0),
            index_seglets: AtomicUsize::new(0),
            cached_segments: AtomicUsize::new(0),
            claimed: AtomicBool::new(false),
            has_long_references,
        }))
    }

    /// Touches every page, so that no later write waits for the kernel to find one. `goes_on` is
    /// called with the bytes done so far, now and then; populating stops when it returns false.
    /// Returns whether all pages were touched. If the kernel cannot do it (before 5.14, or out of
    /// pages), each page comes at its first touch.
    pub fn populate(&self, goes_on: &mut dyn FnMut(usize) -> bool) -> bool {
        const STEP: usize = 64 << 20;
        let mut done = 0;
        while done < self.mapped_bytes {
            let bytes = STEP.min(self.mapped_bytes - done);
            // SAFETY: the range lies in the mapping; populating changes no byte of it.
            let populated = unsafe {
                madvise(self.mapping.as_ptr().add(done).cast(), bytes, Advice::LinuxPopulateWrite)
            };
            done += bytes;
            if populated.is_err() || !goes_on(done) {
                return false;
            }
        }
        true
    }

    /// The bytes of the whole mapping.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.mapped_bytes
    }

    /// Whether references take no more than 32 bits.
    pub(crate) fn has_short_references(&self) -> bool {
        let end = (self.seglets as u64 + 1) << self.seglet_shift;
        end <= REACH_BYTES && !self.has_long_references
    }

    /// Makes this the memory of a log; false when a log already has it.
    pub(crate) fn claim(&self) -> bool {
        !self.claimed.swap(true, Ordering::Relaxed)
    }

    /// Bytes of one seglet.
    #[must_use]
    pub fn seglet_bytes(&self) -> usize {
        self.seglet_bytes
    }

    /// Seglets in all.
    #[must_use]
    pub fn seglets(&self) -> usize {
        self.seglets
    }

    /// Seglets that are free at this moment.
    #[must_use]
    pub fn free_seglets(&self) -> usize {
        self.available.load(Ordering::Relaxed)
    }

    /// Seglets that were never taken. Free seglets that were are taken before these.
    pub(crate) fn fresh_seglets(&self) -> usize {
        self.seglets - self.touched.load(Ordering::Relaxed)
    }

    /// Bytes that index blocks hold.
    #[must_use]
    pub fn index_bytes(&self) -> usize {
        self.index_seglets.load(Ordering::Relaxed) * self.seglet_bytes
    }

    pub(crate) fn index_seglets(&self) -> usize {
        self.index_seglets.load(Ordering::Relaxed)
    }

    pub(crate) fn count_index_seglet(&self, taken: bool) {
        if taken {
            self.index_seglets.fetch_add(1, Ordering::Relaxed);
        } else {
            self.index_seglets.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Takes a free seglet if at least `keep` stay free after it.
    pub(crate) fn take(&self, keep: usize) -> Option<u32> {
        self.available
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |available| {
                (available > keep).then(|| available - 1)
            })
            .ok()?;
        loop {
            let head = self.free.load(Ordering::Acquire);
            let number = head as u32;
            if number == 0 {
                // Another thread is between its claim and its pop or push: the claimed seglet will
                // come.
                crate::sync::spin_loop();
                continue;
            }
            let next = self.note(number).next.load(Ordering::Relaxed);
            let tagged = ((head >> 32).wrapping_add(1) << 32) | u64::from(next);
            if self
                .free
                .compare_exchange_weak(head, tagged, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                if number as usize > self.touched.load(Ordering::Relaxed) {
                    self.touched.fetch_max(number as usize, Ordering::Relaxed);
                }
                return Some(number);
            }
        }
    }

    /// Gives a seglet back. No thread may be able to reach its bytes any more.
    pub(crate) fn give_back(&self, number: u32) {
        debug_assert!(number != 0 && number as usize <= self.seglets);
        loop {
            let head = self.free.load(Ordering::Acquire);
            self.note(number).next.store(head as u32, Ordering::Relaxed);
            let tagged = ((head >> 32).wrapping_add(1) << 32) | u64::from(number);
            if self
                .free
                .compare_exchange_weak(head, tagged, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                break;
            }
        }
        self.available.fetch_add(1, Ordering::Release);
    }

    /// The address behind a reference.
    #[inline(always)]
    pub(crate) fn at(&self, reference: Reference) -> *mut u8 {
        self.base.wrapping_add(reference as usize)
    }

    /// The reference of an address inside the memory.
    #[inline]
    pub(crate) fn reference_of(&self, address: *const u8) -> Reference {
        (address as usize - self.base as usize) as Reference
    }

    /// The reference of a seglet's first byte.
    #[inline(always)]
    pub(crate) fn seglet_start(&self, number: u32) -> Reference {
        u64::from(number) << self.seglet_shift
    }

    /// The seglet that a reference points into.
    #[inline(always)]
    pub(crate) fn seglet_of(&self, reference: Reference) -> u32 {
        (reference >> self.seglet_shift) as u32
    }

    /// Bytes from a reference to the end of its seglet.
    #[inline(always)]
    pub(crate) fn room(&self, reference: Reference) -> usize {
        self.seglet_bytes - (reference as usize & (self.seglet_bytes - 1))
    }

    /// Makes `number` the seglet that follows `previous` in a segment whose first is `account`.
    pub(crate) fn link(
        &self,
        previous: Option<u32>,
        number: u32,
        account: u32,
        start: u32,
        segment: SegmentId,
    ) {
        let note = self.note(number);
        note.segment.store(segment.0, Ordering::Relaxed);
        note.account.store(account, Ordering::Relaxed);
        note.start.store(start, Ordering::Relaxed);
        note.dead.store(0, Ordering::Relaxed);
        note.guarded.store(0, Ordering::Relaxed);
        note.idle.store(0, Ordering::Relaxed);
        if let Some(previous) = previous {
            self.note(previous).next.store(number, Ordering::Relaxed);
        }
    }

    /// The next seglet of the segment. Meaningless for the last one.
    #[inline]
    pub(crate) fn following(&self, number: u32) -> u32 {
        self.note(number).next.load(Ordering::Relaxed)
    }

    /// The offset in its segment of the entry at a reference.
    #[inline]
    pub(crate) fn offset_in_segment(&self, reference: Reference) -> u32 {
        let inside = reference as usize & (self.seglet_bytes - 1);
        self.note(self.seglet_of(reference)).start.load(Ordering::Relaxed) + inside as u32
    }

    /// The segment that a reference points into.
    #[inline]
    pub(crate) fn segment_of(&self, reference: Reference) -> SegmentId {
        SegmentId(self.note(self.seglet_of(reference)).segment.load(Ordering::Relaxed))
    }

    /// Counts bytes of the entry at a reference as dead; a tombstone in its place may take
    /// `guarded` of them. Call it once the entry is marked. Reactor only: plain loads and stores.
    #[inline]
    pub(crate) fn count_dead(&self, reference: Reference, bytes: usize, guarded: usize) {
        let account = self.note(self.seglet_of(reference)).account.load(Ordering::Relaxed);
        let Note { dead, guarded: all, .. } = self.note(account);
        all.store(all.load(Ordering::Relaxed) + guarded as u32, Ordering::Relaxed);
        // Release: a thread that sees the count sees the mark, and the guarded bytes.
        dead.store(dead.load(Ordering::Relaxed) + bytes as u32, Ordering::Release);
    }

    /// The dead bytes of the segment whose first seglet this is.
    pub(crate) fn dead_bytes(&self, account: u32) -> DeadBytes {
        let note = self.note(account);
        let dead = note.dead.load(Ordering::Acquire);
        DeadBytes { dead, guarded: note.guarded.load(Ordering::Relaxed) }
    }

    /// Counts bytes of the segment that a reference points into as idle. Only for the thread that
    /// fills the segment: plain loads and stores.
    pub(crate) fn count_idle(&self, reference: Reference, bytes: usize) {
        let account = self.note(self.seglet_of(reference)).account.load(Ordering::Relaxed);
        let idle = &self.note(account).idle;
        idle.store(idle.load(Ordering::Relaxed) + bytes as u32, Ordering::Relaxed);
    }

    /// The idle bytes of the segment whose first seglet this is.
    pub(crate) fn idle_bytes(&self, account: u32) -> u32 {
        self.note(account).idle.load(Ordering::Relaxed)
    }

    /// Resets the count of idle bytes to an earlier value.
    pub(crate) fn rewind_idle(&self, account: u32, idle: u32) {
        self.note(account).idle.store(idle, Ordering::Relaxed);
    }

    /// Prefetches the note of the seglet that a reference points into.
    #[inline(always)]
    pub(crate) fn prefetch_note(&self, reference: Reference) {
        crate::prefetch::read(std::ptr::from_ref(self.note(self.seglet_of(reference))).cast());
    }

    #[inline(always)]
    fn note(&self, number: u32) -> &Note {
        &self.notes[number as usize]
    }

    /// The pieces of memory, each contiguous, that hold `length` bytes from a reference on.
    #[inline]
    pub(crate) fn pieces(&self, reference: Reference, length: usize) -> Pieces<'_> {
        Pieces { memory: self, reference, length }
    }

    /// Copies bytes to a reference, across seglets if necessary.
    ///
    /// # Safety
    /// The caller owns the bytes written: linked seglets that no other thread reads yet.
    pub(crate) unsafe fn write(&self, reference: Reference, bytes: &[u8]) {
        let mut rest = bytes;
        for (address, length) in self.pieces(reference, bytes.len()) {
            // SAFETY: the piece lies in one seglet of the caller's; `rest` holds that many bytes.
            unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), address, length) };
            rest = &rest[length..];
        }
    }

    /// The reference `distance` bytes further on in the same segment.
    pub(crate) fn advance(&self, reference: Reference, distance: usize) -> Reference {
        let mut reference = reference;
        let mut distance = distance;
        loop {
            let room = self.room(reference);
            if distance < room {
                return reference + distance as u64;
            }
            distance -= room;
            reference = self.seglet_start(self.following(self.seglet_of(reference)));
            if distance == 0 {
                return reference;
            }
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `with_seglets` with this length; nothing borrows it,
        // because every user of it holds an `Arc` of this value.
        let _ = unsafe { munmap(self.mapping.as_ptr().cast(), self.mapped_bytes) };
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory")
            .field("seglets", &self.seglets)
            .field("seglet_bytes", &self.seglet_bytes)
            .field("free", &self.free_seglets())
            .finish()
    }
}

/// The contiguous pieces of a range of log memory; see [`Memory::pieces`]. Seglets that happen to
/// be neighbours come as one piece.
#[derive(Clone)]
pub(crate) struct Pieces<'a> {
    memory: &'a Memory,
    reference: Reference,
    length: usize,
}

impl Iterator for Pieces<'_> {
    type Item = (*mut u8, usize);

    #[inline]
    fn next(&mut self) -> Option<(*mut u8, usize)> {
        if self.length == 0 {
            return None;
        }
        let address = self.memory.at(self.reference);
        let mut piece = self.memory.room(self.reference);
        if piece >= self.length {
            piece = self.length;
            self.length = 0;
            return Some((address, piece));
        }
        let mut seglet = self.memory.seglet_of(self.reference);
        loop {
            let following = self.memory.following(seglet);
            if piece < self.length && following == seglet + 1 {
                piece += self.memory.seglet_bytes.min(self.length - piece);
                seglet = following;
                continue;
            }
            self.length -= piece;
            self.reference = self.memory.seglet_start(following);
            return Some((address, piece));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Arc<Memory> {
        Memory::with_seglets(16 * (1024 + size_of::<Note>()), 1024).unwrap()
    }

    #[test]
    fn a_seglet_is_taken_once_until_it_is_given_back() {
        let memory = memory();
        let mut taken: Vec<u32> = std::iter::from_fn(|| memory.take(0)).collect();
        assert_eq!(taken, (1..=16).collect::<Vec<_>>());
        memory.give_back(taken.pop().unwrap());
        assert_eq!(memory.take(0), Some(16));
        assert_eq!(memory.take(0), None);
    }

    #[test]
    fn seglets_that_must_stay_free_are_not_taken() {
        let memory = memory();
        let taken = std::iter::from_fn(|| memory.take(5)).count();
        assert_eq!((taken, memory.free_seglets()), (11, 5));
    }

    #[test]
    fn bytes_written_across_seglets_come_back_piece_by_piece() {
        let memory = memory();
        for order in [[3, 9, 10], [1, 2, 3]] {
            for (at, number) in order.iter().enumerate() {
                let previous = at.checked_sub(1).map(|before| order[before]);
                memory.link(previous, *number, order[0], at as u32 * 1024, SegmentId(1));
            }
            let bytes: Vec<u8> = (0..2000u32).map(|n| n as u8).collect();
            let start = memory.seglet_start(order[0]) + 1000;
            // SAFETY: the seglets are linked above and no other code uses them.
            unsafe { memory.write(start, &bytes) };
            let mut read = Vec::new();
            for (address, length) in memory.pieces(start, bytes.len()) {
                // SAFETY: the piece was written above.
                read.extend_from_slice(unsafe { std::slice::from_raw_parts(address, length) });
            }
            assert_eq!(read, bytes);
            assert_eq!(memory.offset_in_segment(memory.advance(start, 1500)), 2500);
        }
    }

    #[test]
    fn threads_share_the_free_list_without_losing_a_seglet() {
        let memory = memory();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let Some(number) = memory.take(2) else { continue };
                        memory.give_back(number);
                    }
                });
            }
        });
        assert_eq!(std::iter::from_fn(|| memory.take(0)).count(), 16);
    }

    #[test]
    fn populating_stops_when_told_and_changes_no_byte() {
        let memory = Memory::new(100 << 20).unwrap();
        let number = memory.take(0).unwrap();
        let start = memory.seglet_start(number);
        // SAFETY: the seglet was just taken.
        unsafe { memory.write(start, b"here before") };
        let mut told = Vec::new();
        assert!(!memory.populate(&mut |done| {
            told.push(done);
            false
        }));
        assert_eq!(told, [64 << 20]);
        told.clear();
        assert!(memory.populate(&mut |done| {
            told.push(done);
            true
        }));
        assert_eq!(told, [64 << 20, memory.bytes()]);
        let mut read = [0; 11];
        // SAFETY: these bytes were written above.
        unsafe { std::ptr::copy_nonoverlapping(memory.at(start), read.as_mut_ptr(), 11) };
        assert_eq!(&read, b"here before");
    }

    #[test]
    fn a_memory_that_cannot_work_is_refused_with_a_reason() {
        for (bytes, seglet) in [(1 << 20, 1000), (1 << 20, 512), (4096, 1024), (0, 1024)] {
            let error = Memory::with_seglets(bytes, seglet).unwrap_err();
            assert!(!error.to_string().is_empty());
        }
    }
}
