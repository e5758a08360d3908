//! The coordinator: what a cluster is made of, and who sees to it.
//!
//! It knows the servers, the tables and their tablets, the clients' leases, and what is left of
//! masters that are gone. It is not on the way of any object: while it is away data is served, and
//! only changes wait.
//!
//! ```text
//!   servers, clients ──requests──► Coordinator ──► Reign ──writes, fenced──► metastore
//!                                  (a Service)      │  ▲
//!   shards, backups ◄──TakeTablets, Recover, …── duties └─ the cluster as it is written
//! ```
//!
//! - [`Coordinator`] is a service for an `rpc` node, in either world:
//!   `Node::new(world, transport, Coordinator::new(store, options))`. Any number of them may run
//!   over one metastore; one leads, the others answer *not leader*.
//! - A *reign* (module `reign`) is one leadership. It reads everything, then serves; when it is over
//!   nothing of it is left.
//! - Everything is written before it is told (module `stored` has the layout), each write under the
//!   reign's fence.
//! - What must be told to servers is a *duty* (module `duties`): a task that looks at the cluster and
//!   takes the next step until nothing is left to do. A new leader finds all duties in what is
//!   written; nothing else remembers them.
//!
//! # What is promised
//!
//! - What was answered with *ok* is durable, and holds under every later leader.
//! - Ids of servers, masters, tables and leases are never used twice.
//! - A tablet has one owner. It changes when its master is gone and another one says that it has
//!   rebuilt the tablet; that is written before it is answered. Replicas of a master are freed only
//!   when it is written that none of its tablets is left.
//! - That a lease is over is written before it is said.
//! - Versions of the list of servers and of the map only grow, also from leader to leader: the
//!   fencing token of the leader is their higher part.
//!
//! # What is not
//!
//! - A verdict is no proof: a server that lives may be given up (module `probes` says when). It is
//!   fenced by the backups, and begins a new life.
//! - A server that never comes again stays known until an operator has it forgotten, unless it has no storage.
//! - What a leader sent before it was deposed may arrive later. All messages can be repeated, and
//!   ids are not used twice, so at worst a shard has an empty tablet of a table that was dropped.
//! - The tables are not kept in slices: a request for the map of very many tablets takes as long as
//!   it takes to write them out.
#![forbid(unsafe_code)]

mod cluster;
mod coordinator;
mod desk;
mod duties;
mod formats;
mod leases;
pub mod limits;
mod migrations;
mod options;
mod probes;
mod probing;
mod recoveries;
mod reign;
mod rooms;
mod servers;
mod stored;
mod tables;
mod waiting;

pub use coordinator::{Coordinator, Handle};
pub use options::{Options, Parts};
pub use probing::{Probing, Rounds};
pub use recoveries::model;
