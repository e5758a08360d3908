//! Combined cleaning: moves the live entries of several segments into survivors. The survivors
//! replace the segments in memory and, once a new digest says so, on the backups.
//!
//! Survivors are sorted by age: entries of about the same age tend to die at about the same time.
//! Each segment is sorted already (a head's entries are of one age, survivors were sorted when they
//! were made), so a merge is enough. Spent segments ([`Segment::is_spent`]) are not scanned.

use super::compact::take_stock;
use super::mover::{Mover, Output};
use super::phase::{Phase, Watch};
use crate::append::candidates::Candidate;
use crate::append::shared::{Pass, Shared};
use crate::format::entry::{self, DEAD, Frame, Kind};
use crate::format::metadata::{SegmentHeader, SegmentKind};
use crate::memory::object::Located;
use crate::memory::quiescence::Reader;
use crate::memory::segment::{Appender, Entries, Room, Segment};
use crate::memory::{Memory, Reference};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The goal of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// The segments hold next to nothing. Their seglets count as free for the balancer now, so that
    /// it does not keep cleaning until the digest frees them.
    Sweep,
    /// Dead entries are to leave memory.
    Combine,
    /// Objects of caches are to leave memory, except objects that were used. Their segments count
    /// as swept.
    Evict,
}

/// The survivors of one pass.
struct Survivors<'a> {
    shared: &'a Shared,
    current: Option<Appender>,
    /// Each with its [`Segment::queued`].
    done: Vec<(Appender, u64)>,
    /// The highest [`Segment::queued`] of the segments that are copied.
    queued: u64,
    stock: Vec<u32>,
}

impl Survivors<'_> {
    fn open(&mut self) {
        let shared = self.shared;
        let id = shared.next_segment_id();
        let stock = std::mem::take(&mut self.stock);
        let capacity = shared.options.segment_bytes;
        let mut appender = Appender::from_stock(&shared.memory, id, capacity, stock)
            .expect("the stock holds a seglet for each survivor");
        let body = SegmentHeader {
            log: shared.log,
            segment: id,
            segment_bytes: capacity as u32,
            seglet_bytes: shared.memory.seglet_bytes() as u32,
            kind: SegmentKind::Survivor,
        }
        .encode();
        let mut header = entry::plain(Kind::SegmentHeader, body.len());
        let at = appender.first();
        appender.write(at, &mut header, [&body, &[]], shared.seal);
        appender.advance_idle(header.entry_bytes);
        self.current = Some(appender);
    }

    fn finish_current(&mut self) {
        if let Some(mut appender) = self.current.take() {
            self.stock = std::mem::take(&mut appender.stock);
            appender.release_spare(&mut self.stock);
            self.done.push((appender, self.queued));
        }
    }
}

impl Output for Survivors<'_> {
    #[inline(always)]
    fn place(&mut self, bytes: usize) -> (&mut Appender, Reference) {
        loop {
            if self.current.is_none() {
                self.open();
            }
            let room = match &mut self.current {
                Some(current) => current.reserve(bytes, usize::MAX),
                None => Room::SegmentFull,
            };
            match (room, &mut self.current) {
                (Room::At(at), Some(_)) => {
                    // Borrowed anew because the borrow checker cannot see through the loop.
                    let current = self.current.as_mut().expect("it was there a line ago");
                    return (current, at);
                }
                (Room::NoMemory, _) => {
                    unreachable!("survivors take no more room than the stock taken for them")
                }
                _ => self.finish_current(),
            }
        }
    }
}

/// A segment that is being merged.
struct Source<'a> {
    entries: Entries<'a>,
    queued: u64,
    next: Option<(Frame, Located)>,
}

impl<'a> Source<'a> {
    /// Moves on to the next entry that has an age; hands others to the mover at once.
    fn advance(&mut self, memory: &'a Memory, mover: &mut Mover<'_>, output: &mut impl Output) {
        for (at, frame) in self.entries.by_ref() {
            if frame.flags & DEAD == 0
                && let Some(located) = Located::of(memory, at, &frame)
            {
                self.next = Some((frame, located));
                return;
            }
            mover.entry(at, &frame, output);
        }
        self.next = None;
    }

    fn age(&self) -> u64 {
        self.next.as_ref().map_or(u64::MAX, |(_, located)| located.fields.birth.0)
    }
}

/// Cleans candidates into survivors and reports the pass to the reactor. Gives the candidates back
/// when there is no memory for the copies.
pub(super) fn combine(
    shared: &Shared,
    reader: &mut Reader,
    place: usize,
    candidates: Vec<Candidate>,
    goal: Goal,
    watch: &mut Watch<'_>,
) -> Result<(), Vec<Candidate>> {
    watch(Phase::TakingMemory);
    let memory = &shared.memory;
    let leaving = candidates.iter().map(|candidate| candidate.segment.id.0);
    let present = Arc::new(shared.present().without(leaving));
    // Checked once: the walk sees every entry that dies from here on, and its memory is taken into
    // account.
    let is_spent = |it: &Candidate| it.segment.is_spent(memory, &present, |_| false);
    let spent: Vec<bool> = candidates.iter().map(is_spent).collect();
    let looked_at = || candidates.iter().zip(&spent).filter(|(_, spent)| !**spent);
    let most = looked_at().map(|(candidate, _)| candidate.bytes_after(memory)).sum();
    let (mut promised, mut seglets) = (0, 0);
    if looked_at().next().is_some() {
        promised = shared.options.survivors_of(most);
        seglets = shared.stock_for(most);
    }
    // A segment that was picked as spent may not be spent any more; it was picked without a check
    // that the backups have room.
    if promised > shared.frames.room() {
        return Err(candidates);
    }
    let Some(stock) = take_stock(shared, seglets) else {
        return Err(candidates);
    };
    shared.frames.promise(promised);
    // See `Ledger::publish_present`: announced before the first id is taken.
    let bound = shared.next_segment.load(Ordering::SeqCst);
    shared.in_flight[place].store(bound, Ordering::SeqCst);
    let drops = shared.sums.drops.load(Ordering::Acquire);
    let mut cleaned: Vec<Segment> =
        candidates.into_iter().map(|candidate| candidate.segment).collect();
    let mut survivors = Survivors { shared, current: None, done: Vec::new(), queued: 0, stock };
    let mut mover = Mover::new(shared, reader, present, watch);
    let evicts = shared.evicts_in_passes();
    if evicts {
        mover.leave_behind(goal == Goal::Evict, most);
    }
    let (mut sources, mut unread) = (Vec::new(), 0);
    for (segment, spent) in cleaned.iter().zip(spent) {
        debug_assert!(!spent || mover.leaves_nothing_of(segment), "{segment:?} is spent");
        if spent {
            unread += 1;
        } else {
            let queued = if goal == Goal::Evict { bound } else { segment.queued };
            sources.push(Source { entries: segment.entries(memory), queued, next: None });
        }
    }
    if evicts {
        copy_in_order(memory, sources, &mut mover, &mut survivors);
    } else {
        merge(memory, sources, &mut mover, &mut survivors);
    }
    mover.finish();
    survivors.finish_current();
    let (moved, residuals, tombstone_bytes) = (mover.moved, mover.residuals, mover.tombstone_bytes);
    let victims = std::mem::take(&mut mover.victims);
    let Survivors { done, stock, .. } = survivors;
    stock.into_iter().for_each(|number| shared.memory.give_back(number));

    let created = shared.next_segment.load(Ordering::Relaxed);
    let count = done.len().max(1);
    let survivors: Vec<Segment> = done
        .into_iter()
        .map(|(appender, queued)| {
            let survivor = appender.close(created, drops, tombstone_bytes / count);
            if evicts { Segment { queued, ..survivor } } else { survivor }
        })
        .collect();
    let victim_bytes = victims.iter().map(|victim| u64::from(victim.bytes)).sum();
    shared.sums.victim_bytes.fetch_add(victim_bytes, Ordering::Relaxed);
    // The survivors have all objects of caches now, and marks of their own.
    cleaned.iter_mut().for_each(|segment| segment.cached = None);
    let sums = &shared.sums;
    let counted: usize = survivors.iter().map(|survivor| survivor.tombstone_bytes).sum();
    sums.tombstone_bytes.fetch_add(counted as i64, Ordering::Relaxed);
    let bytes: usize = survivors.iter().map(|survivor| survivor.length).sum();
    sums.counters.passes.fetch_add(1, Ordering::Relaxed);
    sums.counters.survivor_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    sums.counters.cleaned_segments.fetch_add(cleaned.len() as u64, Ordering::Relaxed);
    sums.counters.spent_segments.fetch_add(unread, Ordering::Relaxed);
    sums.counters.entries_moved.fetch_add(moved, Ordering::Relaxed);
    sums.counters.residuals.fetch_add(residuals, Ordering::Relaxed);
    let mut coming = 0;
    if goal != Goal::Combine {
        coming = cleaned.iter().map(|segment| segment.seglets.len()).sum();
        sums.coming_seglets.fetch_add(coming, Ordering::Relaxed);
    }
    shared.passes.push(Pass { cleaner: place, promised, coming, cleaned, survivors, victims });
    Ok(())
}

/// Hands the entries of all sources to the mover, one source after the other: the survivors of a
/// cache are evicted in the order in which the sources would have been.
fn copy_in_order<'a>(
    memory: &'a Memory,
    mut sources: Vec<Source<'a>>,
    mover: &mut Mover<'_>,
    output: &mut Survivors<'_>,
) {
    sources.sort_by_key(|source| source.queued);
    for mut source in sources {
        output.queued = source.queued;
        source.advance(memory, mover, output);
        while let Some((frame, located)) = source.next {
            mover.keyed(&frame, &located, output);
            source.advance(memory, mover, output);
        }
    }
}

/// Hands the entries of all sources to the mover, oldest first.
fn merge<'a>(
    memory: &'a Memory,
    mut sources: Vec<Source<'a>>,
    mover: &mut Mover<'_>,
    output: &mut Survivors<'_>,
) {
    for source in &mut sources {
        source.advance(memory, mover, output);
    }
    loop {
        let Some(oldest) = (0..sources.len()).min_by_key(|at| sources[*at].age()) else { return };
        let others = sources.iter().enumerate().filter(|(at, _)| *at != oldest);
        let until = others.map(|(_, source)| source.age()).min().unwrap_or(u64::MAX);
        if sources[oldest].next.is_none() {
            return;
        }
        // As long as this source has the oldest entry, the other sources need no look.
        while let Some((frame, located)) = sources[oldest].next {
            if located.fields.birth.0 > until {
                break;
            }
            mover.keyed(&frame, &located, output);
            sources[oldest].advance(memory, mover, output);
        }
    }
}
