//! The parts that the tests of several crates share. Only tests depend on this crate. "The testkit"
//! in `docs/testing.md` shows how to use it.
//!
//! - [`Cluster`]: the hosts of a simulated cluster, and the vocabulary of its tests.
//! - [`User`]: asks coordinators and a shard.
//! - [`Worker`]: a user that works at random, and whose [`History`] is judged.
//! - [`Weighted`]: a table from which faults are drawn.
//! - [`ScriptedCoordinator`]: answers clients and servers from a state that the test sets.
//! - [`ScriptedBackup`]: gives recovering masters the replicas that the test has put on it.
//!
//! Scripted parts follow the protocol as far as tests need it, and keep no promise beyond a test:
//! they have no disk, no fences and no unfinished work. The real roles are never in this crate, so
//! that the tests of one role do not depend on the other roles.
#![forbid(unsafe_code)]

mod backup;
mod cluster;
mod coordinator;
mod user;
mod weighted;
mod worker;

use std::net::SocketAddr;
use thunderhead_rpc::{Node, Service};
use thunderhead_runtime::Process;
use thunderhead_simulator::Boot;

pub use backup::{BackupState, ScriptedBackup};
pub use cluster::{Cluster, Links, Machine, Place};
pub use coordinator::{CoordinatorState, Ownership, ScriptedCoordinator, Time};
pub use user::{User, update};
pub use weighted::Weighted;
pub use worker::{History, Worker, Workload};

/// The port at which [`serve`] listens.
pub const PORT: u16 = 7100;

/// Returns the process of a host that serves at [`PORT`].
#[must_use]
pub fn serve(boot: Boot, service: impl Service + 'static) -> Box<dyn Process> {
    let at = SocketAddr::new(boot.address, PORT);
    let mut node = Node::new(boot.world, boot.transport, service);
    node.listen(at).unwrap_or_else(|error| panic!("{at}: {error}"));
    Box::new(node)
}
