//! Whose closed replicas are another master's, too.
//!
//! A master that has taken back the log of a former one has segments of which the replicas here are
//! still under the former one's id. They are not written anew, nor are their headers: a backup is
//! told the *lineage* of the master (by the list of servers, and by who recovers one), and looks
//! for a closed replica there that it does not find under the master's own id. Segment ids of a
//! lineage are all different, so what is found is what is meant. It is not kept on the disk: the
//! cluster knows it, and tells it before a master's message can come. Where it is not known a
//! replica is not found, which a master takes as lost, and a recovery waits for.

use crate::layout::ReplicaId;
use crate::limits::LINEAGES_MAX;
use crate::store::{Replica, Store};
use std::collections::BTreeMap;
use thunderhead_wire::MasterId;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Lineages {
    of: BTreeMap<MasterId, Vec<MasterId>>,
    /// Masters in all of them together.
    count: usize,
    /// How many there may be before it is looked which of them are of use.
    limit: usize,
}

impl Default for Lineages {
    fn default() -> Lineages {
        Lineages { of: BTreeMap::new(), count: 0, limit: LINEAGES_MAX }
    }
}

impl Lineages {
    /// Learns a lineage. When there are too many, forgets the lineages of masters without replicas
    /// here.
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

    /// Forgets masters of which there is no replica here. There never will be one: they are gone,
    /// and a backup takes nothing more from them. So no more are left than there are frames.
    fn prune(&mut self, has_replicas: impl Fn(MasterId) -> bool) {
        for known in self.of.values_mut() {
            known.retain(|master| has_replicas(*master));
        }
        self.of.retain(|_, known| !known.is_empty());
        self.count = self.of.values().map(Vec::len).sum();
        // Looking at all of them is worth it again when there are twice as many.
        self.limit = LINEAGES_MAX.max(self.count * 2);
    }

    fn forget(&mut self, master: MasterId) {
        let known = self.of.remove(&master);
        self.count -= known.map_or(0, |known| known.len());
    }
}

impl Store {
    /// Learns whose closed replicas are a master's, too.
    pub fn learn_lineage(&mut self, master: MasterId, lineage: &[MasterId]) {
        let mut lineages = std::mem::take(&mut self.lineages);
        lineages.learn(master, lineage, |master| {
            let before = MasterId(master.0.saturating_sub(1));
            self.masters_after(before, 1) == [master]
        });
        self.lineages = lineages;
    }

    /// A master is done with, and so is its lineage.
    pub fn forget_lineage(&mut self, master: MasterId) {
        self.lineages.forget(master);
    }

    /// Under which id a master writes to what it calls so: its own, where it has begun one, or that
    /// of a master whose log it has.
    #[must_use]
    pub fn resolve(&self, id: ReplicaId) -> ReplicaId {
        if self.replica(id).is_some() { id } else { self.inherited(id).unwrap_or(id) }
    }

    /// Under which id what counts is here. One of its own that is only begun does not count yet:
    /// until then the one of a master whose log it has does.
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

    /// All replicas of a master: its own, and the closed ones of its lineage.
    pub fn replicas_of(&self, master: MasterId) -> impl Iterator<Item = Replica> + '_ {
        let lineage = self.lineages.of.get(&master).map_or(&[][..], Vec::as_slice);
        self.replicas().filter(move |it| {
            let is_own = it.id.master == master;
            let is_inherited = || {
                let own = ReplicaId { master, ..it.id };
                it.closed && lineage.contains(&it.id.master) && self.resolve_offered(own) == it.id
            };
            is_own || is_inherited()
        })
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
        // All that are of use stay, however many they are.
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
