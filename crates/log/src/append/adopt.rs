//! Adoption: takes in the segments that the shard's former generation wrote, unchanged.
//!
//! A server that restarts has the replicas of its former log. Appending all of it to a new log
//! would write it to all backups anew. Instead, the new log *adopts* the segments: their bytes go
//! into its memory under **the same segment ids**, and the index points at the entries where they
//! lie. No copies are made, because the replicas are the copies.
//!
//! # Why adoption is correct
//!
//! The two logs become one. Both have the same [`LogId`](crate::LogId), so an entry that a cleaner
//! moves keeps its checksum. Ids of the new log begin above all ids of the former one
//! ([`Log::beginning_at`]), so an id means one segment, and ages stay in order. Entries name
//! segments by their ids, so every guard of the former log remains one:
//! [`design::tombstones`](crate::design::tombstones) holds for the whole as it held for the former
//! log, of which nothing was left out:
//!
//! - All closed segments that the former log's last digest names are adopted first, in any order.
//!   Their superseded and deleted entries are marked dead as if they had died here.
//! - The former log's open segment (its head) is then replayed as in any recovery: its entries are
//!   appended to the new head. So its records name the present segments of the versions that they
//!   replace. The head comes last: no entry older than a head is newer than the head's entries, and
//!   a tombstone for an adopted object is written again.
//! - Adopted ids count as present from the moment the segments are there, before any entry can name
//!   them.
//! - Ids of survivors that the former log's digests never named also count as present. A guard may
//!   name such a survivor, and its dead version is in the segment from which the survivor was made
//!   ([`UnnamedSurvivors`](crate::UnnamedSurvivors)). The newest open head lists the ranges of
//!   these ids; it also has the digest that made the former log complete. They count as long as a
//!   segment of a former generation is part of this log. If no open head lists them, all ids count.
//! - Only then a digest names the adopted segments ([`Log::name_adopted`]). Until that digest is
//!   durable, this log is complete without them, and the former log is complete without this one.
//! - The cleaners get the adopted segments last ([`Log::release_adopted`]), once no recovery can
//!   need the former log any more: before that, none of its copies may be freed.
//!
//! # The segments that a log refuses
//!
//! A log refuses segments of another log id, of other sizes, with ids that are not below its own,
//! or more segments than fit beside its reserves. The former log may have been compacted in memory.
//! Its copies are not, so they may be too large although their live entries are not. Then the
//! former log has to be replayed.

use super::Log;
use super::shared::Reserves;
use super::write::ExistingEntry;
use crate::error::{Damage, Error};
use crate::format::metadata::{Digest, SegmentHeader};
use crate::memory::Reference;
use crate::memory::prior_span::PriorSpan;
use crate::memory::segment::{self, CacheMark, Segment};
use std::sync::atomic::Ordering;
use thunderhead_wire::{KeyHash, LogPosition, SegmentId, TabletRange, Timestamp};

/// A segment that is being adopted: its memory, and how much of it is filled.
pub(crate) struct SegmentInAdoption {
    pub(crate) id: SegmentId,
    seglets: Vec<u32>,
    length: usize,
    /// Bytes that were copied so far.
    copied: usize,
    tombstone_bytes: usize,
}

impl SegmentInAdoption {
    /// The reference of the entry at an offset.
    pub(crate) fn at(&self, log: &Log, offset: u32) -> Option<Reference> {
        let seglet_bytes = log.memory.seglet_bytes();
        let seglet = self.seglets.get(offset as usize / seglet_bytes)?;
        Some(log.memory.seglet_start(*seglet) + u64::from(offset) % seglet_bytes as u64)
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.copied == self.length
    }

    /// Bytes that were copied so far.
    pub(crate) fn copied(&self) -> usize {
        self.copied
    }
}

impl Log {
    /// Refuses a segment that cannot be adopted, with the reason.
    pub(crate) fn check_adoptable(
        &self,
        header: &SegmentHeader,
        bytes: &[u8],
    ) -> Result<(), Damage> {
        if header.log != self.id {
            return Err(Damage::OtherLog { found: header.log, expected: self.id });
        }
        let fits = header.segment_bytes as usize <= self.shared.options.segment_bytes
            && header.seglet_bytes as usize == self.memory.seglet_bytes()
            && bytes.len() <= self.shared.options.segment_bytes;
        if fits && header.segment < self.first && !self.ledger.has_adopted(header.segment) {
            return Ok(());
        }
        Err(Damage::NotAdoptable { segment: header.segment })
    }

    /// Takes memory for a segment to adopt, without filling it yet.
    pub(crate) fn begin_to_adopt(
        &mut self,
        id: SegmentId,
        length: usize,
    ) -> Result<SegmentInAdoption, Error> {
        let most = Reserves::segments_max(&self.memory, &self.shared.options);
        if self.ledger.segments() + self.ledger.adopted().count() + 2 > most {
            return Err(self.no_memory(u64::MAX));
        }
        let count = length.div_ceil(self.memory.seglet_bytes()).max(1);
        // Keeps room for a head too, or the log could not go on.
        let head = self.shared.options.segment_bytes / self.memory.seglet_bytes();
        let keep = self.shared.reserves.for_writes() + head;
        let mut seglets: Vec<u32> = Vec::with_capacity(count);
        for place in 0..count {
            let Some(number) = self.memory.take(keep) else {
                seglets.iter().for_each(|number| self.memory.give_back(*number));
                return Err(Error::CleanerBehind);
            };
            let first = seglets.first().copied().unwrap_or(number);
            let start = (place * self.memory.seglet_bytes()) as u32;
            self.memory.link(seglets.last().copied(), number, first, start, id);
            seglets.push(number);
        }
        Ok(SegmentInAdoption { id, seglets, length, copied: 0, tombstone_bytes: 0 })
    }

    /// Copies the bytes of a segment up to an offset. `entries` are the offsets of the entries that
    /// begin in the new bytes, and `tombstone_bytes` is the length of the tombstones among them.
    pub(crate) fn adopt_bytes(
        &mut self,
        adopting: &mut SegmentInAdoption,
        bytes: &[u8],
        until: usize,
        entries: &[u32],
        tombstone_bytes: usize,
    ) {
        let until = until.min(adopting.length);
        let from = adopting.copied;
        let new = bytes.get(from..until).filter(|new| !new.is_empty());
        let at = u32::try_from(from).ok().and_then(|from| adopting.at(self, from));
        let (Some(new), Some(to)) = (new, at) else { return };
        // SAFETY: `length` bytes of linked seglets belong to this segment alone; no thread reads
        // beyond `copied`.
        unsafe { self.memory.write(to, new) };
        for offset in entries.iter().filter(|offset| **offset as usize >= from) {
            if let Some(entry) = adopting.at(self, *offset) {
                // Entries that were dead when the copy was made are found dead anew.
                segment::mark_alive(&self.memory, entry);
            }
        }
        adopting.copied = until;
        adopting.tombstone_bytes += tombstone_bytes;
    }

    /// Enters an adopted segment into the ledger: all its bytes are there.
    pub(crate) fn adopted(&mut self, adopting: SegmentInAdoption) {
        let SegmentInAdoption { id, seglets, length, tombstone_bytes, .. } = adopting;
        let drops = self.shared.sums.drops.load(Ordering::Relaxed);
        let disk_bytes = length;
        let created = id.0;
        let prior_span = PriorSpan::ANY;
        // Its items were not looked at, so cleaners are to look soon.
        let (expires, cached) = (Timestamp::ZERO, Some(CacheMark::new(&self.memory)));
        let segment = Segment {
            id,
            seglets,
            length,
            disk_bytes,
            tombstone_bytes,
            created,
            drops,
            prior_span,
            expires,
            cached,
            queued: created,
        };
        self.shared.sums.tombstone_bytes.fetch_add(tombstone_bytes as i64, Ordering::Relaxed);
        self.count_disk(disk_bytes as i64);
        self.ledger.adopt(segment);
        // Cleaners must know of it before any entry names it.
        self.ledger.publish_present_now(&self.shared);
    }

    /// Gives back the memory of a segment that is not adopted after all; no reference points into
    /// it.
    pub(crate) fn give_up_adopting(&mut self, adopting: SegmentInAdoption) {
        adopting.seglets.into_iter().for_each(|number| self.memory.give_back(number));
    }

    /// Sets the position from which a returned tablet's entries count to that of the former log.
    pub(crate) fn count_tablets_since(&mut self, tablets: &[(TabletRange, SegmentId)]) {
        for (range, since) in tablets {
            for tablet in self.tablets.list.iter_mut().filter(|it| it.range == *range) {
                tablet.since = *since;
            }
        }
        self.publish_tablets();
    }

    /// Marks an entry of an adopted segment dead, unless it is already.
    pub(crate) fn dead_on_arrival(&mut self, at: Reference) {
        if segment::flags(&self.memory, at) & crate::format::entry::DEAD != 0 {
            return;
        }
        let frame = segment::frame(&self.memory, at);
        let located = crate::memory::object::Located::of(&self.memory, at, &frame);
        let guarded = located.map_or(0, |located| located.guarded_bytes());
        segment::mark_dead(&self.memory, at);
        self.memory.count_dead(at, frame.entry_bytes(), guarded);
    }

    /// Counts an adopted object as live.
    pub(crate) fn alive_on_arrival(&mut self, tablet: usize, bytes: usize) {
        self.live_bytes += bytes as u64;
        self.tablets.list[tablet].live_bytes += bytes as u64;
    }

    /// Points an index at an adopted object; the entry it pointed at before is dead.
    pub(crate) fn point_at(
        &mut self,
        tablet: usize,
        hash: KeyHash,
        at: Reference,
        current: Option<ExistingEntry>,
    ) -> Result<(), Error> {
        let Some(current) = current else { return self.insert(tablet, hash, at) };
        let old = self.tablets.list[tablet].index.replace(current.found, at);
        self.bury(tablet, old, &current.old);
        Ok(())
    }

    /// Removes an object that an adopted tombstone kills. No new tombstone is needed.
    pub(crate) fn unpoint(&mut self, tablet: usize, current: ExistingEntry) {
        let at = self.tablets.list[tablet].index.remove(current.found);
        self.bury(tablet, at, &current.old);
    }

    /// Names the adopted segments in a digest: once that digest is durable, this log is complete
    /// with them. Returns the position up to which the log must be durable for that.
    ///
    /// # Errors
    /// [`Error::CleanerBehind`]: try again shortly.
    pub fn name_adopted(&mut self) -> Result<LogPosition, Error> {
        self.ledger.name_adopted(self.first);
        // Cleaners get the adopted segments later, and must know by then which ids may be present.
        self.ledger.publish_present_now(&self.shared);
        let keep = self.shared.reserves.for_writes();
        if !self.renew_digest(keep) && !self.roll(keep) {
            self.ledger.unname_adopted();
            self.turn_again();
            return Err(Error::CleanerBehind);
        }
        self.turn_again();
        Ok(self.head.position())
    }

    /// Prepares the ledger: segments of a former generation will be adopted.
    pub(crate) fn will_adopt(&mut self) {
        self.ledger.will_adopt(self.first);
    }

    /// Notes a digest in an open segment of a former generation.
    pub(crate) fn met_former_digest(&mut self, segment: SegmentId, digest: &Digest) {
        self.ledger.learn_unnamed(segment, &digest.unnamed, self.first);
    }

    /// The adopted segments that are not released, with their lengths.
    pub fn adopted_segments(&self) -> impl Iterator<Item = (SegmentId, u32)> + '_ {
        self.ledger.adopted().map(|segment| (segment.id, segment.length as u32))
    }

    /// Lets the cleaners work on the adopted segments: no recovery needs the former log any more.
    pub fn release_adopted(&mut self) {
        for segment in self.ledger.release_adopted() {
            self.shared.closed.push(segment);
        }
    }

    /// Throws away the adopted segments. The caller has dropped their tablets and forgotten their
    /// completion records. Returns whether a digest names the segments: it goes on doing so, and
    /// their copies must stay as long as this log exists.
    pub fn abandon_adopted(&mut self) -> bool {
        let (segments, is_named) = self.ledger.abandon_adopted();
        for segment in segments {
            self.count_disk(-(segment.disk_bytes as i64));
            self.free(segment);
        }
        is_named
    }

    /// Segments of former logs that a recovery of this one might read: adopted segments that are
    /// not cleaned, or whose copies are not free yet. Their number never grows again.
    pub fn inherited_segments(&self) -> impl Iterator<Item = SegmentId> + '_ {
        self.ledger.ids().filter(|id| *id < self.first)
    }

    /// The id of the first segment of this log; adopted segments have lower ids.
    #[must_use]
    pub fn first_segment(&self) -> SegmentId {
        self.first
    }
}
