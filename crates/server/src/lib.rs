//! A storage server, assembled: shards, a backup, and its place in the cluster.
//!
//! - [`Server`] is one node: a shard, and with the first one of a process the backup and what the
//!   coordinator tells the process. It runs in either world.
//! - [`Life`] is what the nodes of a process share: who they are, who else there is, and that it
//!   is time to end. A server that the cluster has given up ends, and may begin a new life.
//! - [`Running`] is a server on this machine, with a thread for each shard.
//!
//! # The life of a server
//!
//! It asks the coordinator who it is (its storage knows, if it has any), opens its storage, and
//! enlists: from then on its former life is over for everybody, and its shards have new logs. What
//! the former ones had comes back as the coordinator has it recovered, from the frames of this and
//! other backups. Asked to end, it lets no more requests in, waits until what it answered for is
//! durable and on the disk, and ends: its tablets come back when it is started again, or on another
//! server before that. Servers ask each other whether they are there (module `probes`).
#![forbid(unsafe_code)]

mod backup;
mod coordinator;
mod life;
mod local;
mod options;
mod probes;
mod process;
mod server;
mod timers;

pub use coordinator::{RunningCoordinator, Truth};
pub use life::{Ended, Identity, Life};
pub use local::{Local, LocalOptions};
pub use options::{BackupOptions, Options, durability};
pub use process::{Machine, Running};
pub use server::Server;
pub use thunderhead_coordinator::Probing;
