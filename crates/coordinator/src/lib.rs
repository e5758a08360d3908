//! The coordinator: knows the members of a cluster, and repairs the cluster after failures.
//!
//! It knows the servers, the tables and their tablets, the clients' leases, and the former masters
//! with their remaining tablets and replicas. It is on no data path: while it is down, data is
//! served and only changes wait.
//!
//! ```text
//!   servers, clients ──requests──► Coordinator ──► Leadership ──writes, fenced──► metastore
//!                                  (a Service)        │  ▲
//!   shards, backups ◄──TakeTablets, Recover, …─── tasks  └─ the cluster as it is written
//! ```
//!
//! - [`Coordinator`] is a service for an `rpc` node, in either world:
//!   `Node::new(world, transport, Coordinator::new(store, options))`. Any number of them may run
//!   over one metastore; one leads, the others answer *not leader*.
//! - A `Leadership` (module `leadership`) is the state of one leadership. It reads the whole
//!   record, then serves. When the leadership ends, this state is dropped as a whole.
//! - The coordinator writes every change to the metastore before it answers or sends it (module
//!   `stored` has the layout). Each write carries the fence of the leadership.
//! - A *task* (module `tasks`) looks at the cluster and takes the next step until none remains, for
//!   example until all servers know a change. A new leader finds all tasks in the recorded state,
//!   which alone remembers them.
//!
//! # Layers
//!
//! A module uses only modules of lower rows. A topic that needs the work of a higher row asks for a
//! task by its name, and `tasks` does the work of each name.
//!
//! ```text
//!   coordinator                             decodes requests, begins and ends leaderships
//!   tasks                                   does the work of each named task
//!   servers, migrations                     topics
//!   recoveries, tables, probes, later_state
//!   placement, verdicts, formats, leases
//!   leadership                              the update lock, writes, messages, names of tasks
//!   knowledge, shared                       state of one leadership, state of the process
//!   cluster, survey, refusal                the recorded state, the search for a log
//!   stored, options, limits, waiting, …     records, settings, primitives
//! ```
//!
//! # Promises
//!
//! - A change that was answered with *ok* is durable, and holds under every later leader.
//! - Ids of servers, masters, tables and leases are never used twice.
//! - A tablet has one owner. The owner changes when its master has crashed and another master
//!   reports that it has rebuilt the tablet. The coordinator writes that before it answers. It
//!   frees a master's replicas only after it has written that no tablet of the master remains.
//! - The coordinator writes that a lease is over before it tells any server.
//! - The versions of the server list and of the map only grow, also from leader to leader: the
//!   leader's fencing token is their higher part.
//!
//! # No promises
//!
//! - A verdict is no proof: the coordinator may declare a live server crashed (module `probes` says
//!   when). The backups fence the server, and it begins a new generation.
//! - A server that never restarts stays known until an operator makes the cluster forget it, unless
//!   it has no storage.
//! - A message that a leader sent before it was deposed may arrive later. All messages can be
//!   repeated, and ids are not used twice. So at worst a shard has an empty tablet of a dropped
//!   table.
//! - The tables are not handled in slices: a request for the map of very many tablets takes as long
//!   as the map takes to write.
#![forbid(unsafe_code)]

mod cluster;
mod coordinator;
mod formats;
mod knowledge;
mod later_state;
mod leadership;
mod leases;
pub mod limits;
mod metastore_client;
mod migrations;
mod options;
mod placement;
mod probes;
mod probing;
mod recoveries;
mod refusal;
mod servers;
mod shared;
mod stored;
mod survey;
mod tables;
mod tasks;
mod verdicts;
mod waiting;

pub use coordinator::{Coordinator, Handle};
pub use options::{Options, Parts};
pub use placement::model;
pub use probing::{Probing, Rounds};
