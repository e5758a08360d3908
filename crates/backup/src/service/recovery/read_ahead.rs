//! Chooses the next segment to read, and the parts to drop for it.

use super::{IDLE, Job, PATIENCE, Recoveries, Recovery, Segment, drop_part};
use crate::error::Refusal;
use crate::layout::ReplicaId;
use crate::limits::RECOVERY_READS_MAX;
use crate::store::Store;
use std::ops::Bound::{Excluded, Unbounded};
use thunderhead_runtime::Time;
use thunderhead_wire::{MasterId, SegmentId};

/// The next segment to read.
struct NextSegment {
    segment: SegmentId,
    is_demanded: bool,
    /// Partitions have waited for it during [`PATIENCE`].
    is_urgent: bool,
}

/// The store has enough reads under way.
struct Overloaded;

impl Recoveries {
    /// Begins reads of the next segments, as long as there is room.
    pub(in crate::service) fn read_ahead(&mut self, store: &mut Store, now: Time) {
        // Recoveries take turns.
        let behind = self.of.range((Excluded(self.last), Unbounded));
        let masters = behind.chain(self.of.range(..=self.last)).map(|(master, _)| *master);
        for master in masters.collect::<Vec<_>>() {
            while self.reads.len() + self.cutting.len() < RECOVERY_READS_MAX {
                match self.read_next(store, master, now) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(Overloaded) => return,
                }
            }
        }
    }

    /// Begins to read the next segment of a master; false if there is none, or no room.
    fn read_next(
        &mut self,
        store: &mut Store,
        master: MasterId,
        now: Time,
    ) -> Result<bool, Overloaded> {
        loop {
            let Some(of) = self.of.get_mut(&master) else { return Ok(false) };
            let Some(next) = of.next(now) else { return Ok(false) };
            let id = store.resolve_offered(ReplicaId { master, segment: next.segment });
            let length = store.offered(id).map_or(0, |it| it.length);
            let limit = if of.whole { self.limit_whole } else { self.limit };
            if !next.is_demanded && !self.has_room_within(limit, length) {
                return Ok(false);
            }
            if !self.has_room(length) {
                self.make_room(length, next.is_urgent, now);
                if !self.has_room(length) {
                    return Ok(false);
                }
            }
            let read = store.read(id);
            if matches!(read, Err(Refusal::Overloaded)) {
                return Err(Overloaded);
            }
            let Some(of) = self.of.get_mut(&master) else { return Ok(false) };
            of.take(&next);
            match read {
                Ok(read) => {
                    let segment = of.segments.entry(next.segment).or_default();
                    (segment.under_way, segment.was_demanded) = (true, next.is_demanded);
                    let asked = std::mem::take(&mut segment.wanted);
                    let wanted = of.known.contains(&next.segment).then_some(asked);
                    self.last = master;
                    let job = Job { of: master, id, recovery: of.number, length, wanted };
                    self.reads.insert(read, job);
                    return Ok(true);
                }
                Err(refusal) => {
                    of.refuse(next.segment, refusal.into());
                }
            }
        }
    }

    /// Whether there is room for the parts of a segment. One segment always has room.
    fn has_room(&self, length: u32) -> bool {
        self.has_room_within(self.limit, length)
    }

    fn has_room_within(&self, limit: u64, length: u32) -> bool {
        let coming = self.reads.values().chain(self.cutting.iter().map(|it| &it.job));
        let taken = self.held + coming.map(|job| u64::from(job.length)).sum::<u64>();
        taken == 0 || taken + u64::from(length) <= limit
    }

    /// Drops parts to make room for a requested segment.
    fn make_room(&mut self, length: u32, is_urgent: bool, now: Time) {
        // First, parts of partitions that have been silent for some time.
        for master in self.of.keys().copied().collect::<Vec<_>>() {
            let Some(of) = self.of.get(&master) else { continue };
            let is_idle =
                |it: &usize| of.askers.get(*it).is_some_and(|it| now.since(it.asked) >= IDLE);
            let idle: Vec<u32> =
                (0..of.askers.len()).filter(is_idle).map(|partition| partition as u32).collect();
            let segments: Vec<SegmentId> = of.segments.keys().copied().collect();
            for (segment, partition) in
                segments.iter().flat_map(|segment| idle.iter().map(move |it| (*segment, *it)))
            {
                if self.has_room(length) {
                    return;
                }
                self.drop_one(master, segment, partition);
            }
        }
        // Then parts of segments that some partition requested from here, and others perhaps do
        // not.
        let old = |it: &&Segment| {
            it.was_demanded && it.cut.is_some_and(|(_, at)| now.since(at) >= PATIENCE)
        };
        for master in self.of.keys().copied().collect::<Vec<_>>() {
            let Some(of) = self.of.get(&master) else { continue };
            let old: Vec<SegmentId> =
                of.segments.iter().filter(|(_, it)| old(it)).map(|(segment, _)| *segment).collect();
            for segment in old {
                if self.has_room(length) {
                    return;
                }
                self.drop_parts(master, segment);
            }
        }
        // Last, the most recently cut parts of all recoveries.
        while is_urgent && !self.has_room(length) {
            let cut = |(master, of): (&MasterId, &Recovery)| {
                let master = *master;
                let ready = of.segments.iter().filter_map(|(segment, it)| {
                    let (number, at) = it.cut.filter(|_| !it.parts.is_empty())?;
                    (now.since(at) >= PATIENCE).then_some((number, *segment))
                });
                ready.max().map(|(number, segment)| (number, master, segment))
            };
            let Some((_, master, segment)) = self.of.iter().filter_map(cut).max() else { return };
            self.drop_parts(master, segment);
        }
    }

    fn drop_parts(&mut self, master: MasterId, segment: SegmentId) {
        let known = self.of.get(&master).and_then(|of| of.segments.get(&segment));
        let parts: Vec<u32> = known.map_or(Vec::new(), |it| it.parts.keys().copied().collect());
        parts.iter().for_each(|partition| self.drop_one(master, segment, *partition));
    }

    fn drop_one(&mut self, master: MasterId, segment: SegmentId, partition: u32) {
        if let Some(of) = self.of.get_mut(&master) {
            drop_part(of, segment, partition, &mut self.held, &mut self.waste);
        }
    }
}

impl Recovery {
    /// Chooses the next segment to read: requested ones come first.
    fn next(&mut self, now: Time) -> Option<NextSegment> {
        if let Some(segment) = self.demanded.front() {
            let since = self.segments.get(segment).and_then(|it| it.since);
            let is_urgent = since.is_some_and(|since| now.since(since) >= PATIENCE);
            return Some(NextSegment { segment: *segment, is_demanded: true, is_urgent });
        }
        while let Some(segment) = self.named.front().copied() {
            let is_under_way = self.segments.get(&segment).is_some_and(|it| it.under_way);
            if !is_under_way && !self.known.contains(&segment) {
                return Some(NextSegment { segment, is_demanded: false, is_urgent: false });
            }
            self.named.pop_front();
        }
        None
    }

    fn take(&mut self, next: &NextSegment) {
        if next.is_demanded {
            self.demanded.pop_front()
        } else {
            self.named.pop_front()
        };
    }
}
