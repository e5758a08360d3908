//! The sequences of a client's updates, and up to where it has all answers.
//!
//! A client has one lease at a time, but may have updates under way under one that it had before: what
//! was sent under a lease is only ever sent again under the same. So sequences are counted for each.

use std::collections::{BTreeMap, BTreeSet};
use thunderhead_wire::operations::Identity;

/// Which update of which lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sequence {
    pub(crate) lease: u64,
    pub(crate) number: u64,
}

/// Hands out sequences.
#[derive(Debug, Default)]
pub(crate) struct Identities {
    /// The lease that new updates come under.
    lease: Option<u64>,
    next: u64,
    /// Those whose updates have not ended, by lease.
    open: BTreeMap<u64, BTreeSet<u64>>,
}

impl Identities {
    /// From now on updates come under this lease, that nobody has used yet; or they wait for one.
    pub(crate) fn use_lease(&mut self, lease: Option<u64>) {
        (self.lease, self.next) = (lease, 1);
    }

    /// The lease that new updates come under.
    pub(crate) fn lease(&self) -> Option<u64> {
        self.lease
    }

    /// The sequence of a new update, if there is a lease.
    pub(crate) fn take(&mut self) -> Option<Sequence> {
        let (lease, number) = (self.lease?, self.next);
        self.next += 1;
        self.open.entry(lease).or_default().insert(number);
        Some(Sequence { lease, number })
    }

    /// The update has ended: nobody will ask for its answer again.
    pub(crate) fn ended(&mut self, sequence: Sequence) {
        if let Some(open) = self.open.get_mut(&sequence.lease) {
            open.remove(&sequence.number);
            if open.is_empty() {
                self.open.remove(&sequence.lease);
            }
        }
    }

    /// What an update says of itself.
    pub(crate) fn identity(&self, sequence: Sequence) -> Identity {
        let Sequence { lease, number } = sequence;
        let first = self.open.get(&lease).and_then(BTreeSet::first).copied();
        Identity::new(lease, number, first.unwrap_or(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_acknowledged_is_what_came_before_the_oldest_open_update() {
        let mut identities = Identities::default();
        assert_eq!(identities.take(), None, "there is no lease");
        identities.use_lease(Some(7));
        let [a, b, c] = std::array::from_fn(|_| identities.take().unwrap());
        assert_eq!([a, b, c].map(|it| (it.lease, it.number)), [(7, 1), (7, 2), (7, 3)]);
        let first = |it: &Identities, of| it.identity(of).first_unacknowledged();
        identities.ended(b);
        assert_eq!(first(&identities, c), 1);
        identities.ended(a);
        assert_eq!(first(&identities, c), 3);
        // Another lease counts anew, and the former one is not forgotten while it is in use.
        identities.use_lease(Some(9));
        let d = identities.take().unwrap();
        assert_eq!((d.lease, d.number, first(&identities, d)), (9, 1, 1));
        assert_eq!(first(&identities, c), 3);
        identities.ended(c);
        identities.ended(d);
        assert!(identities.open.is_empty());
    }
}
