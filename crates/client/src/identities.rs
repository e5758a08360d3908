//! The sequences of a client's updates, and the client's first unacknowledged sequence.
//!
//! A client has one lease at a time, but updates may be in flight under a former lease: an update
//! that was sent under a lease is only ever sent again under the same one. So sequences are counted
//! for each lease.

use std::collections::{BTreeMap, BTreeSet};
use thunderhead_wire::operations::Identity;
use thunderhead_wire::{LeaseId, Sequence};

/// The lease of an update and its sequence in that lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UpdateId {
    pub(crate) lease: LeaseId,
    pub(crate) sequence: Sequence,
}

/// Assigns sequences.
#[derive(Debug, Default)]
pub(crate) struct Identities {
    /// The lease for new updates.
    lease: Option<LeaseId>,
    next: Sequence,
    /// The sequences of updates that have not ended, by lease.
    open: BTreeMap<LeaseId, BTreeSet<Sequence>>,
}

impl Identities {
    /// Uses this unused lease for new updates. `None`: new updates wait for a lease.
    pub(crate) fn use_lease(&mut self, lease: Option<LeaseId>) {
        (self.lease, self.next) = (lease, Sequence::FIRST);
        self.open.retain(|_, open| !open.is_empty());
    }

    /// Returns the lease for new updates.
    pub(crate) fn lease(&self) -> Option<LeaseId> {
        self.lease
    }

    /// Returns the id of a new update, if there is a lease.
    pub(crate) fn take(&mut self) -> Option<UpdateId> {
        let (lease, sequence) = (self.lease?, self.next);
        self.next = sequence.next();
        self.open.entry(lease).or_default().insert(sequence);
        Some(UpdateId { lease, sequence })
    }

    /// Notes that the update has ended: the client will not send it again.
    pub(crate) fn ended(&mut self, update: UpdateId) {
        if let Some(open) = self.open.get_mut(&update.lease) {
            open.remove(&update.sequence);
            // The set of the present lease stays, because the next update would allocate it again.
            if open.is_empty() && self.lease != Some(update.lease) {
                self.open.remove(&update.lease);
            }
        }
    }

    /// Returns the identity that an update carries.
    pub(crate) fn identity(&self, update: UpdateId) -> Identity {
        let UpdateId { lease, sequence } = update;
        let first = self.open.get(&lease).and_then(BTreeSet::first).copied();
        Identity::new(lease, sequence, first.unwrap_or(sequence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_unacknowledged_sequence_is_that_of_the_oldest_open_update() {
        let mut identities = Identities::default();
        assert_eq!(identities.take(), None, "there is no lease");
        identities.use_lease(Some(LeaseId(7)));
        let [a, b, c] = std::array::from_fn(|_| identities.take().unwrap());
        assert_eq!(
            [a, b, c].map(|it| (it.lease, it.sequence)),
            [1, 2, 3].map(|number| (LeaseId(7), Sequence(number)))
        );
        let first = |it: &Identities, of| it.identity(of).first_unacknowledged().0;
        identities.ended(b);
        assert_eq!(first(&identities, c), 1);
        identities.ended(a);
        assert_eq!(first(&identities, c), 3);
        // A new lease starts counting again. The former one is kept while it has open updates.
        identities.use_lease(Some(LeaseId(9)));
        let d = identities.take().unwrap();
        assert_eq!((d.lease, d.sequence.0, first(&identities, d)), (LeaseId(9), 1, 1));
        assert_eq!(first(&identities, c), 3);
        identities.ended(c);
        identities.ended(d);
        assert_eq!(identities.open.keys().collect::<Vec<_>>(), [&LeaseId(9)]);
        identities.use_lease(None);
        assert!(identities.open.is_empty());
    }
}
