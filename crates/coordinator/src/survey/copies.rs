//! The known replicas of segments, and the rules by which they count.
//!
//! A closed replica is whole and counts. An open replica counts if its epoch is at least the
//! coordinator's epoch for its segment: a replica with an older epoch missed later acknowledged
//! updates. An open replica that counts holds all acknowledged entries of its segment, at any
//! length, unless its backup has lost its memory since. The [`survey`](super) uses only the
//! longest ones, because of that loss. Epochs are remembered only from a lowest segment on (the
//! floor).
//! No open replica of an older segment counts: it may have missed entries, and the log went on long
//! ago.
//!
//! If a closed replica of a segment is known, open ones are used last, and only if they are equal
//! to it. A head is closed on one backup after the other, once all of them have all of it. So an
//! open replica of the same length, whose epoch counts and is not below that of a closed one, has
//! the same bytes. (Closed replicas that were made later, from memory that may have been compacted
//! by then, have higher epochs than all that stayed open.) Without this rule a master that crashes
//! between two closings would leave only one readable replica, and that one may be damaged.
//!
//! The last digest of the newest open head names the log. If an older head is open somewhere and
//! its epoch counts, then its backup never acknowledged its closing, so no later entry was
//! acknowledged either. So it is safe to take the newest head that is found, and to wait for silent
//! backups only because of missing segments. (The survey waits for them a little all the same.)

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use thunderhead_wire::control::ReplicaInfo;
use thunderhead_wire::{Epoch, SegmentId, ServerId};

/// A replica that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    pub(crate) server: ServerId,
    pub(crate) address: SocketAddr,
    pub(crate) length: u32,
    pub(crate) closed: bool,
    pub(crate) epoch: Epoch,
}

/// All known replicas that count.
pub(super) struct Copies {
    floor: SegmentId,
    epochs: BTreeMap<SegmentId, Epoch>,
    segments: BTreeMap<SegmentId, Vec<Copy>>,
}

impl Copies {
    pub(super) fn new(epochs: &[(SegmentId, Epoch)], floor: SegmentId) -> Copies {
        let mut highest: BTreeMap<SegmentId, Epoch> = BTreeMap::new();
        for (segment, epoch) in epochs {
            let entry = highest.entry(*segment).or_default();
            *entry = (*entry).max(*epoch);
        }
        Copies { floor, epochs: highest, segments: BTreeMap::new() }
    }

    /// Adds a backup's replicas.
    pub(super) fn add(&mut self, server: ServerId, address: SocketAddr, replicas: &[ReplicaInfo]) {
        for replica in replicas {
            let ReplicaInfo { segment, epoch, length, closed } = *replica;
            let current = self.epochs.get(&segment).copied().unwrap_or_default();
            let is_current = segment >= self.floor && epoch >= current;
            if closed || is_current {
                let copies = self.segments.entry(segment).or_default();
                copies.push(Copy { server, address, length, closed, epoch });
            }
        }
    }

    /// Returns the usable replicas of a segment, the best first.
    pub(super) fn of(&self, segment: SegmentId) -> Vec<Copy> {
        let mut copies = self.segments.get(&segment).cloned().unwrap_or_default();
        let closed = copies.iter().filter(|copy| copy.closed);
        let closed: Vec<(u32, Epoch)> = closed.map(|copy| (copy.length, copy.epoch)).collect();
        let is_same = |copy: &Copy| {
            closed.iter().any(|(length, epoch)| *length == copy.length && *epoch <= copy.epoch)
        };
        copies.retain(|copy| copy.closed || closed.is_empty() || is_same(copy));
        copies.sort_by_key(|copy| (!copy.closed, std::cmp::Reverse(copy.length), copy.server));
        copies
    }

    /// Returns the segments of which all known replicas are open, the newest first.
    pub(super) fn open(&self) -> impl Iterator<Item = SegmentId> + '_ {
        self.segments.keys().rev().copied().filter(|id| self.is_open(*id))
    }

    /// Whether all known replicas of a segment are open.
    pub(super) fn is_open(&self, segment: SegmentId) -> bool {
        self.segments.get(&segment).is_some_and(|it| it.iter().all(|copy| !copy.closed))
    }

    /// Returns the segments without any replica.
    pub(super) fn missing(&self, segments: &[SegmentId]) -> BTreeSet<SegmentId> {
        segments.iter().copied().filter(|id| !self.segments.contains_key(id)).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(segment: u64, epoch: u64, length: u32, closed: bool) -> ReplicaInfo {
        ReplicaInfo { segment: SegmentId(segment), epoch: Epoch(epoch), length, closed }
    }

    #[test]
    fn only_replicas_that_count_are_used_and_the_best_first() {
        let mut copies =
            Copies::new(&[(SegmentId(3), Epoch(2)), (SegmentId(3), Epoch(1))], SegmentId(3));
        let at = |number| SocketAddr::from(([10, 0, 0, number], 1));
        copies.add(ServerId(1), at(1), &[replica(1, 0, 90, true), replica(3, 1, 70, false)]);
        copies.add(ServerId(2), at(2), &[replica(1, 0, 40, false), replica(3, 2, 50, false)]);
        copies.add(ServerId(3), at(3), &[replica(2, 0, 90, true), replica(3, 3, 60, false)]);
        let servers =
            |id| copies.of(SegmentId(id)).iter().map(|it| it.server.0).collect::<Vec<_>>();
        assert_eq!(servers(1), [1]);
        assert_eq!(servers(3), [3, 2]);
        assert_eq!(copies.open().collect::<Vec<_>>(), [SegmentId(3)]);
        copies.add(ServerId(4), at(4), &[replica(0, 5, 90, false), replica(2, 5, 90, false)]);
        let named = [0, 1, 2, 3].map(SegmentId);
        assert_eq!(copies.missing(&named).len(), 1, "open ones below the floor do not count");
        let missing = copies.missing(&[SegmentId(1), SegmentId(9)]);
        assert_eq!(missing.into_iter().collect::<Vec<_>>(), [SegmentId(9)]);
    }

    /// A master crashed after it had closed a head on one of its backups.
    #[test]
    fn an_open_replica_equal_to_a_closed_one_is_used_after_it() {
        let servers = |epochs: &[(SegmentId, Epoch)], others: &[ReplicaInfo]| {
            let mut copies = Copies::new(epochs, SegmentId(1));
            for (number, replica) in (1..).zip(others) {
                copies.add(ServerId(number), ([10, 0, 0, 1], 1).into(), &[*replica]);
            }
            copies.of(SegmentId(1)).iter().map(|it| it.server.0).collect::<Vec<_>>()
        };
        let (open, closed) = (replica(1, 1, 90, false), replica(1, 1, 90, true));
        assert_eq!(servers(&[], &[open, closed, open]), [2, 1, 3]);
        // Its epoch was raised together with other open replicas, before the head was to be closed.
        assert_eq!(servers(&[], &[open, replica(1, 0, 90, true)]), [2, 1]);
        let raised = [(SegmentId(1), Epoch(2))];
        assert_eq!(servers(&raised, &[open, closed]), [2], "it missed entries");
        // The closed one may have been made later, from compacted memory.
        assert_eq!(servers(&[], &[open, replica(1, 2, 90, true)]), [2]);
        assert_eq!(servers(&[], &[open, replica(1, 1, 91, true)]), [2]);
        assert_eq!(servers(&[], &[open, replica(1, 1, 80, true)]), [2]);
    }
}
