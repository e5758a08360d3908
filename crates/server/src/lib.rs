//! A storage server: its shards, its backup, and its membership of the cluster.
//!
//! - [`Server`] is one node: a shard. The first node of a process also has the backup, and receives
//!   the coordinator's messages to the process. A node runs in either world.
//! - [`GenerationState`] is the state that the nodes of a process share during one generation: the
//!   server's identity, the list of servers, and whether the generation is to end. If the cluster
//!   declares the server crashed, the generation ends, and the server may begin the next one.
//! - [`RunningServer`] is a server on this machine, with a thread for each shard.
//!
//! # From start to end
//!
//! 1. The server registers: the coordinator confirms the id in its storage, or gives it a new one.
//! 2. It opens its storage and enlists. That ends its previous generation for the whole cluster,
//!    and its shards begin new logs. The coordinator has the previous logs recovered from the
//!    replicas of this and other backups.
//! 3. It serves. Servers probe each other (module `probes`).
//! 4. When it is asked to end, it accepts no more requests, waits until all that it acknowledged is
//!    durable and on its disk, and ends. Its tablets are recovered when it restarts, or on other
//!    servers before that.
#![forbid(unsafe_code)]

mod backup;
mod coordinator;
mod door;
mod followed;
mod generation;
mod local;
mod options;
mod owner;
mod probes;
mod process;
mod server;

pub use coordinator::{MetastoreLocation, RunningCoordinator};
pub use door::cluster::{Announce, CATALOG_TABLE, ClusterOptions, catalog_table};
pub use door::memcached::{Limits as DoorLimits, Options as MemcachedOptions, TableBehind};
pub use door::redis::{
    CATALOG_KEY, Databases, KeyParts, Options as RedisOptions, TableWork, TakeOver,
};
pub use door::{DoorOptions, DoorProtocol};
pub use generation::{Ended, GenerationState, Identity};
pub use local::{LocalCluster, LocalOptions};
pub use options::{BackupOptions, Options, durability};
pub use process::{Machine, RunningServer};
pub use server::Server;
pub use thunderhead_coordinator::Probing;
pub use thunderhead_doors::rdb;
pub use thunderhead_doors::resp::{
    Parts, ServerOptions as RedisServerOptions, commands_by_group as redis_commands,
};
