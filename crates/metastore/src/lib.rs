//! Where the coordinator keeps its truth: values under keys, and who may change them.
//!
//! One trait, [`Metastore`], and four stores behind it. We write no consensus of our own.
//!
//! | store | for | is |
//! | --- | --- | --- |
//! | [`embedded`] | one coordinator | one file |
//! | [`etcd`] | coordinators that stand in for each other | a cluster of etcd |
//! | [`zookeeper`] | the same | an ensemble of ZooKeeper |
//! | [`sim`] | the simulator | a service in virtual time, with faults from a seed |
//!
//! # Without waiting
//!
//! A coordinator is a reactor, in either world, and never waits. It [submits](Metastore::submit) a
//! [`Request`] and later [polls](Metastore::poll) an [`Event`]; in between it sleeps, and its alarm
//! rings when there is one. What must wait for a disk or a network are workers of the runtime
//! (module [`Driven`]); the simulated store answers by virtual time. Every request is answered just
//! once. Requests about keys are done in the order in which one client submits them, and so are
//! those about leases; between the two there is no order.
//!
//! # Values
//!
//! [Keys](Key) are paths of UTF-8 with a checked length, [values](limits::VALUE_BYTES_MAX) up to a
//! million bytes. Each value has a [`Version`]. There are no blind writes: a [`Change`] creates
//! where there is nothing, or replaces or deletes the version that was read. Its outcome is one of
//!
//! - [`Answer::Written`]: done, with the new version;
//! - [`Answer::Conflict`]: not done, the key has this version, or nothing;
//! - [`Answer::Deposed`]: not done, for the writer does not hold its lease any more;
//! - [`Error::Unavailable`] and most other errors: certainly not done;
//! - [`Error::Unknown`]: done, or not, *or still on its way*. Read back; what is not there may still
//!   come, until something else has changed the key's version. So it is done or given up by
//!   writing again: one of the two will conflict.
//!
//! Reads are linearizable: they see everything that was answered before they were asked. A
//! [list](Request::List) comes in pages, each with a bounded size, in the order of the keys' bytes.
//! Pages are read one after the other: what does not change meanwhile is seen just once, what
//! does may be seen as it was or as it is.
//!
//! # Leases
//!
//! A [lease](Request::Acquire) has one holder at a time, each with a higher [`Token`] than the one
//! before. The store does not give it away before its time to live has passed since the last
//! request for it reached the store. A write that carries a [`Fence`] is done only if the lease is
//! held under its token *in the same transaction*: a leader that was deposed, and does not know it,
//! cannot write. A [`Keeper`] asks, renews, and stops believing in time; its documentation says why
//! no two believe at once. Belief is for reads and for the outside; safety of writes rests on
//! the fence alone.
//!
//! Only the client that acquired a lease renews it. Who acquires again under the same
//! [holder id](Holder) has it still, under the same token or a newer one.
//!
//! # Watches
//!
//! A [watch](Metastore::watch) says that something below a prefix may have changed. It may say so
//! without cause, and once for many changes, but after a change that the client could reach the
//! store to see it does not stay silent, whatever connections and servers did meanwhile. What
//! changed is found by reading.
//!
//! # What is promised by none
//!
//! - Transactions over several keys: put what must change together into one value.
//! - That a lease is free as soon as its holder dies: it runs out.
//! - Protection from who writes into the store by other means.
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
