//! The sequences of a client's updates, and up to where it has all answers.

use std::collections::BTreeSet;
use thunderhead_wire::operations::Identity;

/// Hands out sequences.
#[derive(Debug)]
pub(crate) struct Identities {
    lease: u64,
    next: u64,
    /// Those whose updates have not ended.
    open: BTreeSet<u64>,
}

impl Identities {
    /// Those of a lease that nobody has used yet.
    pub(crate) fn of(lease: u64) -> Identities {
        Identities { lease, next: 1, open: BTreeSet::new() }
    }

    pub(crate) fn take(&mut self) -> u64 {
        let sequence = self.next;
        self.next += 1;
        self.open.insert(sequence);
        sequence
    }

    /// The update has ended: nobody will ask for its answer again.
    pub(crate) fn ended(&mut self, sequence: u64) {
        self.open.remove(&sequence);
    }

    /// What an update says of itself.
    pub(crate) fn identity(&self, sequence: u64) -> Identity {
        let first = self.open.first().copied().unwrap_or(self.next);
        Identity::new(self.lease, sequence, first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_acknowledged_is_what_came_before_the_oldest_open_update() {
        let mut identities = Identities::of(7);
        let sequences = [identities.take(), identities.take(), identities.take()];
        assert_eq!(sequences, [1, 2, 3]);
        let first = |it: &Identities| it.identity(3).first_unacknowledged();
        identities.ended(2);
        assert_eq!(first(&identities), 1);
        identities.ended(1);
        assert_eq!(first(&identities), 3);
        identities.ended(3);
        assert_eq!(first(&identities), 4);
    }
}
