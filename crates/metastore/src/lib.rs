//! The coordinator's storage: values under keys, and leases that say which process may change them.
//!
//! One trait, [`Metastore`], and four stores behind it. This crate has no consensus protocol of its
//! own.
//!
//! | store | for | is |
//! | --- | --- | --- |
//! | [`embedded`] | one coordinator | one file |
//! | [`etcd`] | coordinators that stand in for each other | a cluster of etcd |
//! | [`zookeeper`] | the same | an ensemble of ZooKeeper |
//! | [`sim`] | the simulator | a service in virtual time, with faults from a seed |
//!
//! # No waiting
//!
//! A coordinator is a reactor in both worlds, so it never waits. It [submits](Metastore::submit) a
//! [`Request`] and later [polls](Metastore::poll) an [`Event`]. In between it sleeps, and its alarm
//! rings when an event is ready. Workers of the runtime wait for disks and networks (module
//! [`Driven`]); the simulated store answers in virtual time. Every request is answered exactly
//! once. The store executes one client's requests about keys in the order in which the client
//! submits them, and likewise its requests about leases. The two groups are not ordered between
//! each other.
//!
//! # Values
//!
//! [Keys](Key) are UTF-8 paths with a checked length. [Values](limits::VALUE_BYTES_MAX) have up to
//! a million bytes. Each value has a [`Version`]. There are no blind writes: a [`Change`] creates a
//! value where there is none, or replaces or deletes the version that the caller read. Its outcome
//! is one of
//!
//! - [`Answer::Written`]: done, with the new version
//! - [`Answer::Conflict`]: not done, because the key has this version, or no value
//! - [`Answer::Deposed`]: not done, because the writer no longer holds its lease
//! - [`Error::Unavailable`] and most other errors: certainly not done
//! - [`Error::Unknown`]: done, or not done, *or still in flight*. The caller reads back. If the
//!   change is not there, it may still arrive until another change gives the key a new version. So
//!   the caller settles it by writing again: one of the two writes will conflict.
//!
//! Reads are linearizable: they see every change that was answered before the read was sent. A
//! [list](Request::List) comes in pages of bounded size, in the order of the keys' bytes. The pages
//! are read one after the other. A value that does not change in that time appears exactly once. A
//! value that does change may appear in its old or its new state.
//!
//! # Leases
//!
//! A [lease](Request::Acquire) has one holder at a time, and each holder has a higher [`Token`]
//! than the one before. The store grants a lease to another holder only after the time to live has
//! passed since the last request for the lease reached the store. A write that carries a [`Fence`]
//! is done only if the lease is held under its token *in the same transaction*: a deposed leader
//! that does not know that it was deposed cannot write. A [`Keeper`] requests and renews a lease
//! and stops believing in it in time; its documentation says why no two keepers believe at once.
//! Belief serves reads and the outside world. The safety of writes rests on the fence alone.
//!
//! Only the client that acquired a lease renews it. A client that acquires again under the same
//! [holder id](Holder) keeps the lease, under the same token or a newer one.
//!
//! # Watches
//!
//! A [watch](Metastore::watch) reports that some value below a prefix may have changed. It may
//! report without cause, and once for many changes. After a change it always reports as soon as the
//! client can reach the store, even if connections or servers failed in between. The client reads
//! to find the change.
//!
//! # No store promises
//!
//! - Transactions over several keys: put values that must change together into one value.
//! - That a lease is free as soon as its holder crashes: the lease must expire.
//! - Protection from programs that write into the store by other means.
#![forbid(unsafe_code)]

mod driven;
pub mod embedded;
mod error;
pub mod etcd;
mod keeper;
mod key;
pub mod limits;
mod request;
pub mod sim;
mod store;
pub mod zookeeper;

pub use driven::Driven;
pub use error::{Error, OpenError};
pub use keeper::{Keeper, News};
pub use key::{Key, LeaseName, Prefix};
pub use request::{Answer, Change, Entry, Fence, Held, Holder, Page, Request, Token, Version};
pub use store::{Event, Metastore, RequestId, WatchId};
