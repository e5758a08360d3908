//! The search for the leading coordinator.
//!
//! There may be several coordinators, and one of them leads. A caller does not know which, so it
//! assumes one: the coordinator that answered last. If that one does not lead, or does not answer,
//! the caller goes on to the next of the list. Several requests may be in flight to one
//! coordinator. Only the first failure among them changes the assumption; otherwise the others
//! would pass over coordinators that were not asked. When a request has been to all coordinators,
//! their names should be resolved again, because they may be elsewhere.
//!
//! This is plain logic. The caller decides which errors mean that another coordinator leads, and
//! how long to wait between attempts.

use std::net::SocketAddr;
use thunderhead_runtime::names::{Addresses, KnownAddresses};

/// The coordinators of a cluster, and the assumed leader.
#[derive(Clone, Debug)]
pub struct LeaderSearch {
    coordinators: KnownAddresses,
    /// The index of the assumed leader. It is in the list, unless the list is empty.
    assumed: usize,
}

impl LeaderSearch {
    /// Returns a search among these coordinators, which assumes that the first one leads.
    #[must_use]
    pub fn new(coordinators: impl Into<Addresses>) -> LeaderSearch {
        LeaderSearch { coordinators: KnownAddresses::of(coordinators.into()), assumed: 0 }
    }

    /// Returns the number of known coordinators.
    #[must_use]
    pub fn count(&self) -> usize {
        self.coordinators.list().len()
    }

    /// Returns the index of the assumed leader.
    #[must_use]
    pub fn assumed(&self) -> usize {
        self.assumed
    }

    /// Returns the address of the assumed leader; `None` if no coordinator is known.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.coordinators.list().get(self.assumed).copied()
    }

    /// Assumes that the coordinator with this index leads. An index beyond the list begins again at
    /// its front.
    pub fn assume(&mut self, index: usize) {
        self.assumed = index % self.count().max(1);
    }

    /// Notes that a coordinator does not lead: assumes the next one, unless another request has
    /// changed the assumption already.
    pub fn pass_over(&mut self, coordinator: usize) {
        if coordinator == self.assumed {
            self.assume(coordinator + 1);
        }
    }

    /// Whether a request has been to all coordinators, once or several times. So many in a row did
    /// not answer as the leader.
    #[must_use]
    pub fn is_round(&self, tried: usize) -> bool {
        tried.is_multiple_of(self.count().max(1))
    }

    /// Takes the addresses that were found meanwhile. Returns whether they differ. The index of the
    /// assumed leader stays, as far as the list has it.
    pub fn refresh(&mut self) -> bool {
        let has_changed = self.coordinators.refresh();
        if has_changed {
            self.assume(self.assumed);
        }
        has_changed
    }

    /// Has the coordinators' names resolved again: see [`Addresses::resolve_again`].
    pub fn resolve_again(&self) {
        self.coordinators.resolve_again();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use thunderhead_runtime::names::{AddressUpdate, Resolve};

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    #[test]
    fn requests_that_failed_together_pass_over_one_coordinator() {
        let mut search = LeaderSearch::new([at(1), at(2), at(3)]);
        assert_eq!((search.assumed(), search.address()), (0, Some(at(1))));
        search.pass_over(0);
        search.pass_over(0);
        assert_eq!(search.address(), Some(at(2)));
        search.pass_over(1);
        search.pass_over(2);
        assert_eq!(search.address(), Some(at(1)), "the first follows the last");
        let rounds: Vec<usize> = (1..8).filter(|tried| search.is_round(*tried)).collect();
        assert_eq!(rounds, [3, 6]);
    }

    #[test]
    fn a_search_without_coordinators_finds_none() {
        let mut search = LeaderSearch::new([]);
        search.pass_over(0);
        search.assume(7);
        assert_eq!((search.count(), search.assumed(), search.address()), (0, 0, None));
        assert!(search.is_round(1));
    }

    /// Finds these addresses.
    struct Found(Arc<Mutex<Vec<SocketAddr>>>);

    impl Resolve for Found {
        fn resolve(&self, update: AddressUpdate) {
            update.tell(self.0.lock().unwrap().clone());
        }
    }

    #[test]
    fn an_assumed_leader_is_in_the_list_after_the_list_has_changed() {
        let found = Arc::new(Mutex::new(vec![at(4), at(5)]));
        let resolver = Box::new(Found(Arc::clone(&found)));
        let mut search =
            LeaderSearch::new(Addresses::resolved(vec![at(1), at(2), at(3)], resolver));
        search.assume(2);
        assert!(!search.refresh());
        search.resolve_again();
        assert_eq!(search.address(), Some(at(3)), "until it takes the new addresses");
        assert!(search.refresh());
        assert_eq!((search.count(), search.address()), (2, Some(at(4))));
    }
}
