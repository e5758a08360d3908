//! The open leases of clients, and when each ends without a renewal. The module `leases` writes
//! their begins and ends.

use crate::limits::{BUSY_HINT, ENDINGS_MAX};
use crate::refusal::Refusal;
use crate::waiting::{Lock, Signal};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use thunderhead_runtime::Time;
use thunderhead_wire::{LeaseId, Status};

/// The number of random bits in a lease's number.
pub(crate) const RANDOM_BITS: u32 = 24;

/// The open leases.
#[derive(Default)]
pub(crate) struct Leases {
    pub(crate) open: RefCell<BTreeMap<LeaseId, Lease>>,
    /// The time at which each lease ends without a renewal.
    pub(crate) due: RefCell<BTreeSet<(Time, LeaseId)>>,
    /// The counts that are set aside for this leadership.
    pub(crate) counts: Cell<(u64, u64)>,
    pub(crate) extending: Lock,
    pub(crate) added: Signal,
}

pub(crate) struct Lease {
    pub(crate) until: Time,
    /// Its end is being written.
    pub(crate) ending: bool,
}

impl Leases {
    /// Takes over the leases that a new leader finds.
    pub(crate) fn load(&self, next: u64, leases: Vec<LeaseId>, until: Time) {
        self.counts.set((next, next));
        leases.into_iter().for_each(|lease| self.add(lease, until));
    }

    /// Returns a number such that all leases so far have lower ones.
    pub(crate) fn next(&self) -> LeaseId {
        LeaseId(self.counts.get().0 << RANDOM_BITS)
    }

    /// Returns the number of open leases.
    pub(crate) fn count(&self) -> u64 {
        self.open.borrow().len() as u64
    }

    pub(crate) fn add(&self, lease: LeaseId, until: Time) {
        self.open.borrow_mut().insert(lease, Lease { until, ending: false });
        self.due.borrow_mut().insert((until, lease));
        self.added.raise();
    }

    /// Extends a lease until a time, if it is open.
    pub(crate) fn extend(&self, lease: LeaseId, until: Time) -> Result<(), Refusal> {
        let mut open = self.open.borrow_mut();
        let known = open.get_mut(&lease).ok_or(Status::LeaseEnded)?;
        if known.ending {
            // It will be known in a moment whether the lease is over.
            return Err(Refusal { status: Status::Busy, hint: BUSY_HINT });
        }
        let mut due = self.due.borrow_mut();
        due.remove(&(known.until, lease));
        known.until = until;
        due.insert((until, lease));
        Ok(())
    }

    /// Returns the leases that are over.
    pub(crate) fn ended(&self, leases: &[LeaseId]) -> Vec<LeaseId> {
        let open = self.open.borrow();
        leases.iter().copied().filter(|lease| !open.contains_key(lease)).collect()
    }

    pub(crate) fn due_at(&self, now: Time) -> Vec<LeaseId> {
        let due = self.due.borrow();
        let due = due.iter().take_while(|(until, _)| *until <= now);
        due.take(ENDINGS_MAX).map(|(_, lease)| *lease).collect()
    }
}
