//! Addresses of peers that are known by name, such as coordinators.
//!
//! A name may get another address later: a container starts elsewhere, a machine is replaced. A
//! caller that gets no answer from any of these peers has their names resolved again and goes on
//! with the new addresses. Resolving may take seconds, so it never happens on a reactor's thread
//! ([`Resolve`]).

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Resolves names.
pub trait Resolve: Send + Sync {
    /// Resolves the names, on another thread if that takes time, and hands over the addresses. Does
    /// nothing if the names have no address at present or were resolved a moment ago.
    fn resolve(&self, update: AddressUpdate);
}

/// The addresses of some peers. Clones share them.
#[derive(Clone)]
pub struct Addresses(Arc<Shared>);

struct Shared {
    list: Mutex<Vec<SocketAddr>>,
    /// Grows with each change of the list.
    version: AtomicU64,
    resolver: Option<Box<dyn Resolve>>,
    is_resolving: AtomicBool,
}

impl Addresses {
    /// Returns addresses that never change.
    #[must_use]
    pub fn fixed(list: Vec<SocketAddr>) -> Addresses {
        Addresses::with(list, None)
    }

    /// Returns the present addresses of some names, with the resolver that finds later ones.
    #[must_use]
    pub fn resolved(list: Vec<SocketAddr>, resolver: Box<dyn Resolve>) -> Addresses {
        Addresses::with(list, Some(resolver))
    }

    fn with(list: Vec<SocketAddr>, resolver: Option<Box<dyn Resolve>>) -> Addresses {
        let (version, is_resolving) = (AtomicU64::new(0), AtomicBool::new(false));
        Addresses(Arc::new(Shared { list: Mutex::new(list), version, resolver, is_resolving }))
    }

    /// Returns the addresses.
    #[must_use]
    pub fn list(&self) -> Vec<SocketAddr> {
        self.0.list.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has the names resolved again, unless a resolution is in progress.
    pub fn resolve_again(&self) {
        let Some(resolver) = &self.0.resolver else { return };
        if !self.0.is_resolving.swap(true, Ordering::AcqRel) {
            resolver.resolve(AddressUpdate(Arc::clone(&self.0)));
        }
    }
}

impl fmt::Debug for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list().fmt(f)
    }
}

impl PartialEq for Addresses {
    fn eq(&self, other: &Addresses) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.list() == other.list()
    }
}

impl Eq for Addresses {}

impl From<Vec<SocketAddr>> for Addresses {
    fn from(list: Vec<SocketAddr>) -> Addresses {
        Addresses::fixed(list)
    }
}

impl<const N: usize> From<[SocketAddr; N]> for Addresses {
    fn from(list: [SocketAddr; N]) -> Addresses {
        Addresses::fixed(list.into())
    }
}

impl From<&[SocketAddr]> for Addresses {
    fn from(list: &[SocketAddr]) -> Addresses {
        Addresses::fixed(list.to_vec())
    }
}

/// Takes the addresses that a resolver finds. If it is dropped without any, the list stays as it
/// is.
pub struct AddressUpdate(Arc<Shared>);

impl AddressUpdate {
    /// Replaces the list, unless the names have no address.
    pub fn tell(self, addresses: Vec<SocketAddr>) {
        let mut list = self.0.list.lock().unwrap_or_else(PoisonError::into_inner);
        if !addresses.is_empty() && *list != addresses {
            *list = addresses;
            self.0.version.fetch_add(1, Ordering::Release);
        }
    }
}

impl Drop for AddressUpdate {
    fn drop(&mut self) {
        self.0.is_resolving.store(false, Ordering::Release);
    }
}

/// A copy of [`Addresses`] that its owner reads without a lock.
#[derive(Clone, Debug)]
pub struct KnownAddresses {
    source: Addresses,
    version: u64,
    list: Vec<SocketAddr>,
}

impl KnownAddresses {
    /// Returns a copy of some addresses.
    #[must_use]
    pub fn of(source: Addresses) -> KnownAddresses {
        // In this order, addresses that arrive in between are copied twice, not missed.
        let version = source.0.version.load(Ordering::Acquire);
        KnownAddresses { list: source.list(), version, source }
    }

    /// Returns the addresses as of the last [`KnownAddresses::refresh`].
    #[must_use]
    pub fn list(&self) -> &[SocketAddr] {
        &self.list
    }

    /// Takes addresses that were found in the meantime. Returns whether they differ.
    pub fn refresh(&mut self) -> bool {
        let version = self.source.0.version.load(Ordering::Acquire);
        let has_changed = version != self.version;
        if has_changed {
            (self.version, self.list) = (version, self.source.list());
        }
        has_changed
    }

    /// Has the names resolved again: see [`Addresses::resolve_again`].
    pub fn resolve_again(&self) {
        self.source.resolve_again();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    /// Passes each request for a resolution to the test.
    struct Asked(Mutex<mpsc::Sender<AddressUpdate>>);

    impl Resolve for Asked {
        fn resolve(&self, update: AddressUpdate) {
            self.0.lock().unwrap().send(update).unwrap();
        }
    }

    #[test]
    fn names_are_resolved_once_at_a_time_and_copies_follow() {
        let (asked, asks) = mpsc::channel();
        let addresses = Addresses::resolved(vec![at(1)], Box::new(Asked(Mutex::new(asked))));
        let mut known = KnownAddresses::of(addresses.clone());
        known.resolve_again();
        known.resolve_again();
        let update = asks.try_recv().unwrap();
        assert!(asks.try_recv().is_err(), "one resolution is in progress already");
        update.tell(vec![at(2), at(3)]);
        assert_eq!(known.list(), [at(1)]);
        assert!(known.refresh());
        assert_eq!(known.list(), [at(2), at(3)]);
        assert!(!known.refresh());

        // Names without an address at present change nothing.
        addresses.resolve_again();
        asks.try_recv().unwrap().tell(Vec::new());
        addresses.resolve_again();
        drop(asks.try_recv().unwrap());
        assert!(!known.refresh());
        addresses.resolve_again();
        assert!(asks.try_recv().is_ok());
    }

    #[test]
    fn fixed_addresses_stay() {
        let addresses = Addresses::from([at(1)]);
        addresses.resolve_again();
        assert_eq!(addresses, Addresses::from(vec![at(1)]));
    }
}
