//! Lineages: the former masters whose closed replicas a master owns, too.
//!
//! A master that has taken back the log of a former one has segments with replicas here under the
//! former master's id. Neither the replicas nor their headers are written again. The backup learns
//! the *lineage* of the master (from the server list and from recoveries). If it does not find a
//! closed replica under the master's own id, it looks under the ids of the lineage. Segment ids of
//! a lineage are all different, so the id determines the replica. Lineages are not kept on the
//! disk: the cluster knows them, and tells them before a master's message can arrive. Without its
//! lineage a replica is not found; a master then takes the replica as lost, and a recovery waits
//! for it.

use crate::layout::ReplicaId;
use crate::limits::LINEAGES_MAX;
use crate::store::{Replica, Store};
use std::collections::{BTreeMap, BTreeSet};
use thunderhead_wire::MasterId;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Lineages {
    of: BTreeMap<MasterId, Vec<MasterId>>,
    /// The number of masters in all lineages.
    count: usize,
    /// The number of masters at which the next pruning begins.
    limit: usize,
}

impl Default for Lineages {
    fn default() -> Lineages {
        Lineages { of: BTreeMap::new(), count: 0, limit: LINEAGES_MAX }
    }
}

impl Lineages {
    /// Learns a lineage. If there are too many, forgets masters without replicas here.
    fn learn(
        &mut self,
        master: MasterId,
        lineage: &[MasterId],
        has_replicas: impl Fn(MasterId) -> bool,
    ) {
        if lineage.is_empty() {
            return;
        }
        let known = self.of.entry(master).or_default();
        let before = known.len();
        known.extend(lineage.iter().filter(|it| **it != master));
        known.sort_unstable();
        known.dedup();
        self.count += known.len() - before;
        if self.count > self.limit {
            self.prune(has_replicas);
        }
    }

    /// Forgets masters without a replica here. They never get one again, because they are gone and
    /// a backup refuses them. So at most as many masters remain as there are frames.
    fn prune(&mut self, has_replicas: impl Fn(MasterId) -> bool) {
        for known in self.of.values_mut() {
            known.retain(|master| has_replicas(*master));
        }
        self.of.retain(|_, known| !known.is_empty());
        self.count = self.of.values().map(Vec::len).sum();
        // The next pruning is worth its cost when there are twice as many masters.
        self.limit = LINEAGES_MAX.max(self.count * 2);
    }

    fn forget(&mut self, master: MasterId) {
        let known = self.of.remove(&master);
        self.count -= known.map_or(0, |known| known.len());
    }
}

impl Store {
    /// Learns the former masters whose closed replicas a master owns, too.
    pub fn learn_lineage(&mut self, master: MasterId, lineage: &[MasterId]) {
        let mut lineages = std::mem::take(&mut self.lineages);
        lineages.learn(master, lineage, |master| {
            let before = MasterId(master.0.saturating_sub(1));
            self.masters_after(before, 1) == [master]
        });
        self.lineages = lineages;
    }

    /// Forgets the lineage of a master.
    pub fn forget_lineage(&mut self, master: MasterId) {
        self.lineages.forget(master);
    }

    /// Returns the id of the replica that a master's message means: the master's own, if it has
    /// begun one, or that of a master of its lineage.
    #[must_use]
    pub fn resolve(&self, id: ReplicaId) -> ReplicaId {
        if self.replica(id).is_some() { id } else { self.inherited(id).unwrap_or(id) }
    }

    /// Returns the id of the replica that counts. If the master's own replica does not count yet,
    /// it is the replica of a master of its lineage.
    #[must_use]
    pub fn resolve_offered(&self, id: ReplicaId) -> ReplicaId {
        if self.offered(id).is_some() { id } else { self.inherited(id).unwrap_or(id) }
    }

    fn inherited(&self, id: ReplicaId) -> Option<ReplicaId> {
        let lineage = self.lineages.of.get(&id.master)?;
        let others = lineage.iter().map(|master| ReplicaId { master: *master, ..id });
        let mut closed = others.filter(|id| self.offered(*id).is_some_and(|it| it.closed));
        closed.next()
    }

    /// Returns all replicas of a master: its own, and the closed ones of its lineage.
    pub fn replicas_of(&self, master: MasterId) -> impl Iterator<Item = Replica> + '_ {
        let lineage = self.lineages.of.get(&master).map_or(&[][..], Vec::as_slice);
        let own = self.ids_of(master).filter_map(|id| self.offered(id));
        let former = lineage.iter().flat_map(|former| self.ids_of(*former));
        let closed = former.filter_map(|id| self.offered(id)).filter(|it| it.closed);
        // `inherited` finds the first closed replica of a segment, too.
        let mut known = BTreeSet::new();
        let inherited = closed.filter(move |it| {
            let is_own = self.offered(ReplicaId { master, ..it.id }).is_some();
            !is_own && known.insert(it.id.segment)
        });
        own.chain(inherited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lineages_are_bounded_by_the_masters_that_have_replicas_here() {
        let mut lineages = Lineages::default();
        let has_replicas = |master: MasterId| master.0 < 20;
        for number in 0..10_000 {
            let (own, former) = (MasterId(2 * number + 1), MasterId(2 * number));
            lineages.learn(own, &[former, own], has_replicas);
            lineages.learn(own, &[former], has_replicas);
            assert!(lineages.count <= LINEAGES_MAX);
            assert_eq!(lineages.of.values().map(Vec::len).sum::<usize>(), lineages.count);
        }
        lineages.prune(has_replicas);
        assert_eq!((lineages.of.len(), lineages.count, lineages.limit), (10, 10, LINEAGES_MAX));
        // All masters with replicas stay, however many they are.
        for number in 0..10_000 {
            lineages.learn(MasterId(100_000), &[MasterId(number)], |_| true);
        }
        assert_eq!((lineages.of.len(), lineages.count), (11, 10_010));
        lineages.forget(MasterId(100_000));
        lineages.forget(MasterId(1));
        lineages.forget(MasterId(77_777));
        assert_eq!((lineages.of.len(), lineages.count), (9, 9));
    }
}
