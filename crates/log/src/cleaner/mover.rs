//! Moves entries out of a segment that is being cleaned, and drops the useless ones.
//!
//! For each entry (see [`crate::design::tombstones`] for why this is correct):
//!
//! | entry | action |
//! | --- | --- |
//! | object, not marked dead, of a tablet in this log | copied, index updated; void if it refuses |
//! | dead object whose `prior` segment stays in the durable log | a residual tombstone is left |
//! | other dead object, or object of no tablet in this log | dropped |
//! | tombstone | kept until the segment it guards against is out of the durable log |
//! | completion record, also of several updates | as an object without `prior` |
//! | digest, safe version, statistics, void | dropped: every head has newer ones |
//!
//! The index is updated in batches, so that the cache misses of a batch overlap. Between the copy
//! and the update, the reactor may replace or delete the object; then the index refuses. No reader
//! has seen the copy and no replicator has it, so it is changed in place: into a residual tombstone
//! when one is needed, else into a void entry. Either has the size of the copy, so cleaning never
//! takes more room than it finds.

use super::phase::{Phase, Watch};
use crate::append::expired::ExpiredItem;
use crate::append::shared::{Shared, TabletMap};
use crate::append::victims::Victim;
use crate::format::entry::{
    self, CompletionFields, EXTRA, Frame, KIND_BITS, Kind, LINKED, ObjectFields, Seal, USES,
};
use crate::memory::object::Located;
use crate::memory::present_segments::PresentSegments;
use crate::memory::quiescence::{Guard, Reader};
use crate::memory::segment::{self, Appender, Segment};
use crate::memory::{Memory, Reference};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thunderhead_wire::{KeyHash, Timestamp};

/// The number of index updates in one batch.
const BATCH: usize = 32;

/// Bytes that are moved before the cleaner yields its core: some tens of microseconds. If a shard
/// shares its core with its cleaners, the kernel would otherwise keep it waiting for milliseconds.
/// The cleaner does not yield while writers are blocked on memory: the shard could only refuse them
/// in its turns, and they would wait longer.
const TURN_BYTES: usize = 128 << 10;

/// The index of completion records, in place of a tablet's number.
const COMPLETIONS: usize = usize::MAX;

/// The destination of moved entries.
pub(super) trait Output {
    /// The segment that has room for an entry of `bytes`, and where it goes.
    fn place(&mut self, bytes: usize) -> (&mut Appender, Reference);
}

/// An entry that was copied and is not yet updated in the index.
#[derive(Clone, Copy, Default)]
struct Move {
    hash: u64,
    from: Reference,
    to: Reference,
    bytes: usize,
    tablet: usize,
}

/// The objects of caches that are left behind.
#[derive(Clone, Copy, Default)]
struct Leaves {
    /// Objects that have expired.
    expired: bool,
    /// Objects that were not used. A used one loses a use.
    unused: bool,
    /// The time by which objects expire.
    now: Timestamp,
    /// The most bytes of objects that there are.
    most: usize,
    /// Bytes of used objects that may still be copied.
    used_bytes: usize,
    /// Bytes of used objects that were copied.
    copied: usize,
}

/// See the module's documentation.
pub(super) struct Mover<'a> {
    shared: &'a Shared,
    guard: Guard<'a>,
    tablets: Arc<TabletMap>,
    present: Arc<PresentSegments>,
    moves: [Move; BATCH],
    pending: usize,
    /// Bytes of tombstones written to the output.
    pub(super) tombstone_bytes: usize,
    pub(super) moved: u64,
    pub(super) residuals: u64,
    /// Objects that are left behind to make room.
    pub(super) victims: Vec<Victim>,
    leaves: Leaves,
    /// Bytes moved since the cleaner last yielded.
    turn: usize,
    /// Called once a batch, which costs next to nothing.
    watch: &'a mut Watch<'a>,
}

/// The part of a segment's size up to which used objects are copied in any case.
const FEW_OBJECTS: usize = 8;

impl<'a> Mover<'a> {
    /// Begins to move entries of segments that were picked before this call. `present` are the
    /// segments against which entries in the output must guard: the segments of the durable log,
    /// without the segments that leave it by the same digest that brings the output in.
    pub(super) fn new(
        shared: &'a Shared,
        reader: &'a mut Reader,
        present: Arc<PresentSegments>,
        watch: &'a mut Watch<'a>,
    ) -> Mover<'a> {
        watch(Phase::Copying);
        Mover {
            shared,
            guard: reader.enter(),
            tablets: shared.tablets(),
            present,
            moves: [Move::default(); BATCH],
            pending: 0,
            tombstone_bytes: 0,
            moved: 0,
            residuals: 0,
            victims: Vec::new(),
            leaves: Leaves::default(),
            turn: 0,
            watch,
        }
    }

    /// Leaves expired objects of caches behind, and unused ones if objects are to be evicted. There
    /// are at most so many bytes to copy. While writers wait for memory, half of that are copied at
    /// most, so that the pass frees some. A segment with few objects frees little in any case, so
    /// all of its used objects may stay. But if many such segments follow one another, nothing
    /// would become free.
    pub(super) fn leave_behind(&mut self, evicts: bool, most: usize) {
        let (sums, segment_bytes) = (&self.shared.sums, self.shared.options.segment_bytes);
        let now = Timestamp(self.shared.time.load(Ordering::Relaxed));
        let is_short = sums.is_short.load(Ordering::Relaxed) || self.shared.is_full();
        let has_spared_much = sums.spared_bytes.load(Ordering::Relaxed) > segment_bytes as u64;
        let few = if has_spared_much { 0 } else { segment_bytes / FEW_OBJECTS };
        let used_bytes = if is_short { few.max(most / 2) } else { usize::MAX };
        self.leaves = Leaves { expired: true, unused: evicts, now, most, used_bytes, copied: 0 };
    }

    /// Counts the bytes that a pass did not free although writers wait for memory.
    fn count_spared_bytes(&self) {
        let Leaves { unused, most, used_bytes, copied, .. } = self.leaves;
        let spared = &self.shared.sums.spared_bytes;
        if unused && (used_bytes == usize::MAX || copied <= most / 2) {
            spared.store(0, Ordering::Relaxed);
        } else if unused {
            spared.fetch_add(copied as u64, Ordering::Relaxed);
        }
    }

    /// Leaves an item behind, if it is to make room; false if it is to be copied.
    #[cold]
    #[inline(never)]
    fn leaves_behind(&mut self, frame: &Frame, located: &Located, hash: KeyHash) -> bool {
        let item = Located::of_item(&self.shared.memory, located.at, frame);
        let Some((_, extras)) = item.filter(|(_, extras)| extras.attributes.is_cached) else {
            return false;
        };
        let bytes = frame.entry_bytes();
        let has_expired = extras.attributes.has_expired(self.leaves.now);
        if !has_expired {
            let is_used = frame.flags & USES != 0 && bytes <= self.leaves.used_bytes;
            if is_used && self.leaves.used_bytes != usize::MAX {
                self.leaves.used_bytes -= bytes;
                self.leaves.copied += bytes;
            }
            if is_used || !self.leaves.unused {
                return false;
            }
        }
        let item = ExpiredItem { table: located.fields.table, hash, at: located.at };
        self.victims.push(Victim { item, bytes: bytes as u32, has_expired });
        true
    }

    /// Whether cleaning would leave nothing of a segment, judged by its entries.
    pub(super) fn leaves_nothing_of(&self, segment: &Segment) -> bool {
        let memory = &*self.shared.memory;
        segment.entries(memory).all(|(at, frame)| {
            let is_dead = frame.flags & entry::DEAD != 0;
            let guards = Located::of(memory, at, &frame)
                .and_then(|located| located.fields.prior)
                .is_some_and(|prior| !self.present.is_gone(prior));
            match Kind::of(frame.flags) {
                Some(Kind::Object | Kind::Integer | Kind::Float | Kind::Item) => is_dead && !guards,
                Some(Kind::Tombstone) => !guards,
                Some(Kind::Completion | Kind::Completions) => is_dead,
                _ => true,
            }
        })
    }

    /// Moves or drops the entry at a reference.
    #[inline]
    pub(super) fn entry(&mut self, at: Reference, frame: &Frame, output: &mut impl Output) {
        let memory = &*self.shared.memory;
        match Kind::of(frame.flags) {
            Some(Kind::Object | Kind::Tombstone | Kind::Integer | Kind::Float | Kind::Item) => {
                let located = Located::of(memory, at, frame).expect("an entry of ours decodes");
                self.keyed(frame, &located, output);
            }
            Some(Kind::Completion | Kind::Completions) if frame.flags & entry::DEAD == 0 => {
                let body = segment::body_start(memory, at, frame);
                let hash = CompletionFields::hash_of(body).expect("a record of ours decodes");
                self.relocate(at, frame, hash, COMPLETIONS, output);
            }
            _ => {}
        }
    }

    /// Moves or drops an object or a tombstone.
    #[inline]
    pub(super) fn keyed(&mut self, frame: &Frame, located: &Located, output: &mut impl Output) {
        let memory = &*self.shared.memory;
        let fields = &located.fields;
        if Kind::of(frame.flags) == Some(Kind::Tombstone) {
            if fields.prior.is_some_and(|prior| !self.present.is_gone(prior)) {
                let bytes = frame.entry_bytes();
                let (appender, to) = output.place(bytes);
                appender.copy(to, located.at, bytes);
                appender.prior_span.add(fields.prior);
                appender.advance_idle(bytes);
                part(memory, to, frame);
                self.tombstone_bytes += bytes;
            }
            return;
        }
        if frame.flags & entry::DEAD != 0 {
            self.leave_residual(located, output);
            return;
        }
        let key = located.key(memory);
        let hash = match key.as_slice() {
            Some(slice) => KeyHash::of(slice),
            None => KeyHash::of(&key.to_vec()),
        };
        if let Some(tablet) = self.tablets.find(fields.table, hash, fields.birth) {
            if self.leaves.expired
                && Kind::is_item(frame.flags)
                && self.leaves_behind(frame, located, hash)
            {
                return;
            }
            self.tablets.tablets[tablet].index.prefetch(&self.guard, hash.0);
            // A segment that is gone now never comes back. A segment that leaves with this pass is
            // gone before the copy may leave.
            let guarded = fields.prior.filter(|prior| !self.present.is_gone(*prior));
            self.relocate(located.at, frame, hash.0, tablet, output).prior_span.add(guarded);
        }
    }

    /// Copies an entry; returns the appender that it was copied to.
    #[inline]
    fn relocate<'o>(
        &mut self,
        from: Reference,
        frame: &Frame,
        hash: u64,
        tablet: usize,
        output: &'o mut impl Output,
    ) -> &'o mut Appender {
        let bytes = frame.entry_bytes();
        let (appender, to) = output.place(bytes);
        appender.copy(to, from, bytes);
        appender.advance(bytes);
        if is_special(frame.flags) {
            finish_special(&self.shared.memory, to, frame, appender, self.leaves.unused);
        }
        self.moves[self.pending] = Move { hash, from, to, bytes, tablet };
        self.pending += 1;
        if self.pending == BATCH {
            self.tell_index();
            (self.watch)(Phase::Copying);
        }
        self.turn += bytes;
        if self.turn >= TURN_BYTES {
            self.turn = 0;
            if !self.shared.sums.is_short.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        }
        appender
    }

    /// Updates the index for the remaining copies. Call it before the output is handed on.
    pub(super) fn finish(&mut self) {
        self.count_spared_bytes();
        self.tell_index();
        (self.watch)(Phase::HandingOn);
    }

    /// Updates the index for everything copied so far.
    fn tell_index(&mut self) {
        (self.watch)(Phase::Telling { entries: self.pending });
        let tablets = &*self.tablets;
        let index = |moved: &Move| match moved.tablet {
            COMPLETIONS => tablets.completions.as_ref(),
            tablet => Some(&tablets.tablets[tablet].index),
        };
        let mut refused = [0; BATCH];
        let mut refusals = 0;
        for (at, moved) in self.moves[..self.pending].iter().enumerate() {
            let told = index(moved)
                .is_some_and(|index| index.relocate(&self.guard, moved.hash, moved.from, moved.to));
            if !told {
                refused[refusals] = at;
                refusals += 1;
            }
        }
        self.moved += (self.pending - refusals) as u64;
        for at in &refused[..refusals] {
            let Move { to, bytes, .. } = self.moves[*at];
            self.neutralize(to, bytes);
        }
        self.pending = 0;
        self.guard.renew();
    }

    /// Makes a copy that the index refused harmless, in place.
    #[cold]
    fn neutralize(&mut self, to: Reference, bytes: usize) {
        let memory = &*self.shared.memory;
        let frame = segment::frame(memory, to);
        let guarded = Located::of(memory, to, &frame).is_some_and(|located| {
            located.fields.prior.is_some_and(|prior| !self.present.is_gone(prior))
        });
        let kind = if guarded { Kind::Tombstone } else { Kind::Void };
        if guarded {
            self.tombstone_bytes += bytes;
            self.residuals += 1;
        }
        let flags = frame.flags & !KIND_BITS & EXTRA | kind as u8;
        // Either way the reactor will not count it as dead.
        memory.count_idle(to, bytes);
        reseal(self.shared, memory, to, flags, bytes);
    }

    /// Leaves a tombstone in place of a dead object if an older version may still be replayed.
    #[inline]
    fn leave_residual(&mut self, dead: &Located, output: &mut impl Output) {
        let needed = dead.fields.prior.is_some_and(|prior| !self.present.is_gone(prior));
        if needed {
            self.write_residual(dead, output);
        }
    }

    fn write_residual(&mut self, dead: &Located, output: &mut impl Output) {
        let memory = &*self.shared.memory;
        let key = dead.key(memory);
        let copy;
        let key = match key.as_slice() {
            Some(slice) => slice,
            None => {
                copy = key.to_vec();
                &copy
            }
        };
        // The tombstone kills the dead object's own version too, which changes nothing.
        let fields: ObjectFields = dead.fields;
        let mut header = fields.tombstone(key.len());
        let bytes = header.entry_bytes;
        let (appender, to) = output.place(bytes);
        appender.write(to, &mut header, [key, &[]], self.shared.seal);
        appender.prior_span.add(fields.prior);
        appender.advance_idle(bytes);
        self.tombstone_bytes += bytes;
        self.residuals += 1;
    }
}

/// Tells useless entries from others without a lookup in the index.
pub(super) struct Sieve<'a> {
    memory: &'a Memory,
    tablets: Arc<TabletMap>,
    present: Arc<PresentSegments>,
}

impl Sieve<'_> {
    pub(super) fn new(shared: &Shared) -> Sieve<'_> {
        Sieve { memory: &shared.memory, tablets: shared.tablets(), present: shared.present() }
    }

    /// Whether an entry that is not marked dead is useless.
    pub(super) fn is_useless(&self, at: Reference, frame: &Frame) -> bool {
        let keyed = || Located::of(self.memory, at, frame).map(|located| located.fields);
        match Kind::of(frame.flags) {
            Some(Kind::Object | Kind::Integer | Kind::Float | Kind::Item) => {
                keyed().is_none_or(|fields| {
                    let hash = KeyHash(crate::append::hash_of(self.memory, at));
                    self.tablets.find(fields.table, hash, fields.birth).is_none()
                })
            }
            Some(Kind::Tombstone) => keyed()
                .is_none_or(|fields| fields.prior.is_none_or(|prior| self.present.is_gone(prior))),
            Some(Kind::Completion | Kind::Completions | Kind::SegmentHeader) => false,
            _ => true,
        }
    }
}

/// Whether more is to be done with the copy of an entry with these flags than with most.
#[inline]
fn is_special(flags: u8) -> bool {
    const USUAL: u32 = 1 << Kind::Object as u8
        | 1 << Kind::Integer as u8
        | 1 << Kind::Float as u8
        | 1 << Kind::Completion as u8;
    flags & LINKED != 0 || USUAL >> (flags & KIND_BITS) & 1 == 0
}

/// Clears the links of a copied entry, and notes the attributes of an item. Takes one of its uses
/// if objects are evicted.
#[cold]
fn finish_special(
    memory: &Memory,
    to: Reference,
    frame: &Frame,
    appender: &mut Appender,
    takes_use: bool,
) {
    part(memory, to, frame);
    if let Some((_, extras)) = Located::of_item(memory, to, frame) {
        appender.note_item(&extras.attributes);
        if takes_use && extras.attributes.is_cached {
            segment::take_use(memory, to);
        }
    }
}

/// Clears the links of a copied entry, so that it counts alone. The entries to which it was linked
/// are complete by now.
#[inline]
fn part(memory: &Memory, to: Reference, frame: &Frame) {
    let of_several = if Kind::of(frame.flags) == Some(Kind::Completions) { EXTRA } else { 0 };
    let links = frame.flags & (LINKED | of_several);
    if links == 0 {
        return;
    }
    let old = frame.flags & !entry::DEAD;
    let new = old & !links;
    // SAFETY: the copy was written by this cleaner, its header in one piece, and no other thread
    // reads or writes it before the segment is handed on.
    unsafe {
        let checksum = memory.at(to).add(1).cast::<[u8; 4]>();
        let carried = Seal::carried_over(u32::from_le_bytes(*checksum), old, new);
        *checksum = carried.to_le_bytes();
        *memory.at(to) = new;
    }
}

/// Changes the flags of an entry that only this cleaner can see, and seals it anew.
fn reseal(shared: &Shared, memory: &Memory, at: Reference, flags: u8, bytes: usize) {
    let behind_checksum = memory.pieces(at, bytes).enumerate().map(|(number, piece)| {
        let (address, length) = piece;
        let skip = if number == 0 { entry::FRAME_BYTES } else { 0 };
        // SAFETY: the copy was written by this cleaner, its header in the first piece, and no other
        // thread reads or writes it before the segment is handed on.
        unsafe { std::slice::from_raw_parts(address.add(skip).cast_const(), length - skip) }
    });
    let checksum = shared.seal.of_pieces(flags, behind_checksum).to_le_bytes();
    // SAFETY: as above.
    unsafe {
        *memory.at(at) = flags;
        std::ptr::copy_nonoverlapping(checksum.as_ptr(), memory.at(at).add(1), 4);
    }
}
