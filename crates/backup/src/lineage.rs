//! Whose closed replicas are another master's, too.
//!
//! A master that has taken back the log of a former one has segments of which the replicas here are
//! still under the former one's id. They are not written anew, nor are their headers: a backup is told
//! the *lineage* of the master (by the list of servers, and by who recovers one), and looks for a closed
//! replica there that it does not find under the master's own id. Segment ids of a lineage are all
//! different, so what is found is what is meant. It is not kept on the disk: the cluster knows it, and
//! tells it before a master's message can come. Where it is not known a replica is not found, which a
//! master takes as lost, and a recovery waits for.

use crate::layout::ReplicaId;
use crate::store::{Replica, Store};
use std::collections::BTreeMap;
use thunderhead_wire::MasterId;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Lineages(BTreeMap<MasterId, Vec<MasterId>>);

impl Store {
    /// Learns whose closed replicas are a master's, too.
    pub fn learn_lineage(&mut self, master: MasterId, lineage: &[MasterId]) {
        if !lineage.is_empty() {
            let known = self.lineages.0.entry(master).or_default();
            known.extend(lineage.iter().filter(|it| **it != master));
            known.sort_unstable();
            known.dedup();
        }
    }

    /// A master is done with, and so is its lineage.
    pub fn forget_lineage(&mut self, master: MasterId) {
        self.lineages.0.remove(&master);
    }

    /// Under which id a master writes to what it calls so: its own, where it has begun one, or that
    /// of a master whose log it has.
    #[must_use]
    pub fn resolve(&self, id: ReplicaId) -> ReplicaId {
        if self.replica(id).is_some() { id } else { self.inherited(id).unwrap_or(id) }
    }

    /// Under which id what counts is here. One of its own that is only begun does not count yet: until
    /// then the one of a master whose log it has does.
    #[must_use]
    pub fn resolve_offered(&self, id: ReplicaId) -> ReplicaId {
        if self.offered(id).is_some() { id } else { self.inherited(id).unwrap_or(id) }
    }

    fn inherited(&self, id: ReplicaId) -> Option<ReplicaId> {
        let lineage = self.lineages.0.get(&id.master)?;
        let others = lineage.iter().map(|master| ReplicaId { master: *master, ..id });
        let mut closed = others.filter(|id| self.offered(*id).is_some_and(|it| it.closed));
        closed.next()
    }

    /// All replicas of a master: its own, and the closed ones of its lineage.
    pub fn replicas_of(&self, master: MasterId) -> impl Iterator<Item = Replica> + '_ {
        let lineage = self.lineages.0.get(&master).map_or(&[][..], Vec::as_slice);
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
