//! Recently freed replicas and their epochs, so that a delayed message does not begin one of them
//! again. They are kept in memory, because connections do not outlast the process. A few thousand
//! are enough, because no message is in flight for longer than that many frees.

use crate::layout::ReplicaId;
use crate::limits::FREED_REPLICAS_MAX;
use std::collections::{BTreeMap, VecDeque};
use thunderhead_wire::{Epoch, MasterId};

/// See the module's documentation.
#[derive(Default)]
pub(super) struct FreedReplicas {
    epochs: BTreeMap<ReplicaId, Epoch>,
    order: VecDeque<ReplicaId>,
}

impl FreedReplicas {
    pub(super) fn freed(&mut self, id: ReplicaId, epoch: Epoch) {
        match self.epochs.get_mut(&id) {
            Some(known) => *known = epoch.max(*known),
            None => {
                self.epochs.insert(id, epoch);
                self.order.push_back(id);
            }
        }
        while self.order.len() > FREED_REPLICAS_MAX {
            let oldest = self.order.pop_front();
            oldest.map(|id| self.epochs.remove(&id));
        }
    }

    /// Returns the epoch up to which the replica was freed.
    pub(super) fn epoch(&self, id: ReplicaId) -> Option<Epoch> {
        self.epochs.get(&id).copied()
    }

    pub(super) fn forget(&mut self, master: MasterId) {
        self.order.retain(|id| id.master != master);
        self.epochs.retain(|id, _| id.master != master);
    }
}
