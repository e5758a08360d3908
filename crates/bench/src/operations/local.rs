//! A cluster in this process, for measurements with backups.
//!
//! It has as many servers as necessary, each with one shard, and a coordinator. Their files are in
//! a directory of their own that is removed at the end. All their threads, including those of disks
//! and cleaners, share one core; the client has the other one. One core for four servers makes each
//! hop of a replicated write more expensive than on separate machines: the result is the cost of
//! all of it together.

use super::generator::To;
use super::target::Own;
use crate::log::subject::TABLE;
use crate::rpc::floors::{CLIENT_CORE, SERVER_CORE};
use crate::rpc::subject::Setup;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use thunderhead_client::{Client, Options as ClientOptions};
use thunderhead_load::channel::Channel;
use thunderhead_load::machine::{Thread, pinned};
use thunderhead_runtime::polling::Polling;
use thunderhead_server::{BackupOptions, LocalCluster, LocalOptions, Probing};
use thunderhead_wire::control::Settings;

/// The longest time for a cluster to come up: opening storage may write all of it.
const PATIENCE: Duration = Duration::from_secs(120);

/// The interval at which the cluster is checked.
const LOOK: Duration = Duration::from_millis(20);

/// Replicas that are open or not yet on the disk, at a backup.
const BUFFERS: u32 = 24;

/// Spare frames of a backup, beyond those for the table's log: for heads of all servers, and for
/// survivors written before other frames are free.
const FRAMES_SPARE: u64 = 48;

/// A running cluster with its table.
pub struct Place {
    /// The shard that has the table, and the coordinator.
    pub to: To,
    /// The threads of the servers' reactors, for their processor time; the master's is first.
    threads: Vec<Thread>,
}

impl Place {
    /// Returns the processor time so far of each server's reactor, the master's first.
    ///
    /// # Errors
    /// When the kernel does not report it.
    pub fn processor(&self) -> Result<Vec<Duration>> {
        ensure!(!self.threads.is_empty(), "the servers' threads cannot be told apart");
        self.threads.iter().map(Thread::processor).collect()
    }
}

/// A directory that is removed with its content.
struct Files(PathBuf);

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the threads of this process that are reactors of shards, the oldest first.
fn reactors() -> Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc/self/task").context("look at this process's threads")? {
        let path = entry?.path();
        let number = path.file_name().and_then(|it| it.to_str()).and_then(|it| it.parse().ok());
        let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
        if let (Some(number), "shard-0") = (number, name.trim()) {
            found.push((number, path.join("schedstat")));
        }
    }
    found.sort();
    Ok(found)
}

impl Own {
    fn cluster(&self, channel: Channel, directory: PathBuf) -> LocalOptions {
        let net = Setup::from(channel).options();
        let servers = match (self.replicas, self.is_remote) {
            (1, false) => 1,
            (replicas, _) => replicas + 1,
        };
        // A spinning server would take the core from the working ones.
        let polling = match (self.polling, servers) {
            (_, 2..) => Polling::Never,
            (Polling::Always, _) => Polling::default(),
            (other, _) => other,
        };
        let memory_bytes = self.memory_bytes().max(64 << 20);
        // One server has the table. Each backup has at most one copy of its log, which may grow to
        // twice the memory, and during a rebuild a new one beside it. The other servers' logs are
        // empty.
        let segment_bytes = self.segment_bytes();
        let disk_bytes = memory_bytes * 3 + FRAMES_SPARE * u64::from(segment_bytes);
        LocalOptions {
            door: None,
            in_memory: false,
            directory,
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            servers,
            shards: 1,
            cleaners: self.cleaners.max(1),
            memory_bytes: memory_bytes as usize,
            // As in a server that has run for a while.
            populate: true,
            backup: (self.replicas > 0).then_some(BackupOptions {
                buffers: Some(BUFFERS),
                disk_bytes: Some(disk_bytes),
                ..BackupOptions::default()
            }),
            probing: Probing::default(),
            settings: Settings {
                replicas: self.replicas,
                min_replicas: self.replicas.max(1),
                durability: if self.is_synced { "synced" } else { "replicated" }.into(),
                segment_bytes,
                self_backup: self.replicas == 1 && !self.is_remote,
            },
            polling,
            net,
        }
    }

    /// Runs a cluster of these servers beside the work, which is pinned to the client's core.
    ///
    /// # Errors
    /// When either fails.
    pub fn in_cluster<T>(
        &self,
        channel: Channel,
        work: impl FnOnce(&Place) -> Result<T>,
    ) -> Result<T> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("thunderhead-bench-{}-{number}", std::process::id());
        let files = Files(self.data.clone().unwrap_or_else(std::env::temp_dir).join(name));
        std::fs::create_dir_all(&files.0)
            .with_context(|| format!("make the directory {}", files.0.display()))?;
        let options = self.cluster(channel, files.0.clone());
        let before = reactors()?;
        // Threads inherit the core of the thread that starts them.
        let local =
            pinned(SERVER_CORE, || LocalCluster::start(&options)).context("start a cluster")?;
        let place = up(&local, &before);
        let outcome = place.and_then(|place| pinned(CLIENT_CORE, || work(&place)));
        if let Some(ended) = local.ended() {
            local.leave();
            let _ = local.join();
            return Err(outcome.err().unwrap_or_else(|| anyhow!("a server ended")))
                .with_context(|| format!("of the cluster in this process: {ended}"));
        }
        local.leave();
        let _ = local.join();
        drop(files);
        outcome
    }
}

/// Waits until the cluster is up, and creates the table.
fn up(local: &LocalCluster, before: &[(u64, PathBuf)]) -> Result<Place> {
    let coordinator = local.coordinator();
    let options = ClientOptions::new([coordinator]).deadline(Some(PATIENCE));
    let mut client = Client::connect(&options).context("reach the coordinator")?;
    let end = Instant::now() + PATIENCE;
    while local.servers().iter().any(|it| it.generation().identity().is_none()) {
        ensure!(local.ended().is_none(), "a server ended before it served");
        ensure!(Instant::now() < end, "the servers did not come up within {PATIENCE:?}");
        std::thread::sleep(LOOK);
    }
    let table = client.create_table("bench", 1).context("make the table")?;
    ensure!(table == TABLE, "the first table of a cluster is {table}");
    let shard = shard_of(&mut client, end)?;
    let now = reactors()?.into_iter().filter(|it| !before.contains(it));
    let mut threads: Vec<Thread> = now.map(|(_, path)| Thread::of(path)).collect();
    let is_master =
        |it: &thunderhead_server::RunningServer| it.generation().addresses().contains(&shard);
    let master = local.servers().iter().position(is_master);
    let master = master.context("no server has the table's address")?;
    if threads.len() == local.servers().len() {
        threads.swap(0, master);
    } else {
        // Another cluster in this process came up at the same time.
        threads.clear();
    }
    Ok(Place { to: To { shard, coordinator: Some(coordinator) }, threads })
}

/// Returns the address of the only tablet of the first table, once it is served.
///
/// # Errors
/// When no server serves it in time.
pub(crate) fn shard_of(client: &mut Client, end: Instant) -> Result<SocketAddr> {
    loop {
        let map = client.map().context("ask where the table is")?;
        let tablet = map.tables.first().and_then(|it| it.tablets.first());
        match tablet.and_then(|it| it.address) {
            Some(address) => return Ok(address),
            None if Instant::now() >= end => bail!("no server serves the table after {PATIENCE:?}"),
            None => std::thread::sleep(LOOK),
        }
    }
}
