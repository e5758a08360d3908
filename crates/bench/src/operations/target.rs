//! The target of the clients: a shard in this process, or a running cluster.
//!
//! The shard has a core to itself, polls always, and owns a table that takes any key. Its node also
//! answers echo requests, so that the floor of a measurement comes from the same node over the same
//! connection.

use super::generator::To;
use crate::log::subject::{TABLE, index_bytes, memory_for, options_for};
use crate::rpc::floors;
use crate::rpc::subject::{End, Setup, world};
use anyhow::{Context as _, Result, anyhow, ensure};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use thunderhead_load::channel::Channel;
use thunderhead_load::machine::{self, Thread, pinned};
use thunderhead_log::{
    CleanerOptions, CleanerThreads, Log, LogId, NoReplication, Options, TabletRange,
};
use thunderhead_master::Shard;
use thunderhead_net::os::OsTransport;
use thunderhead_rpc::echo::Echo;
use thunderhead_rpc::{CallError, CallId, Context, Node, Opcode, OwnerId, Request, Service};
use thunderhead_runtime::os;
use thunderhead_runtime::polling::Polling;

/// A shard in this process.
#[derive(Clone, Debug)]
pub struct Own {
    /// Bytes of its live entries.
    pub live_bytes: u64,
    /// The number of objects: the index needs room for each.
    pub objects: u64,
    /// Live entries as a share of the memory that segments may use.
    pub utilization: f64,
    /// Cleaner threads; they are pinned to the cores after the shard's, and then to the client's.
    pub cleaners: usize,
    /// Copies of each update on backups, which are servers in this process. With one replica it is
    /// on the shard's own disk.
    pub replicas: u32,
    /// Whether a single replica is on another server instead. Without replicas, servers have no
    /// backups.
    pub is_remote: bool,
    /// Whether an update is acknowledged only when its copies are on disks.
    pub is_synced: bool,
    /// The directory of the files of servers with backups; among the temporary files if `None`.
    pub data: Option<PathBuf>,
    /// How the shard spends idle time.
    pub polling: Polling,
}

impl Own {
    /// Returns a shard for this many objects with values of this size.
    #[must_use]
    pub fn holding(objects: u64, value_bytes: usize, utilization: f64) -> Own {
        let live_bytes = objects * entry_bytes(value_bytes);
        Own {
            live_bytes,
            objects,
            utilization,
            cleaners: 1,
            replicas: 0,
            is_remote: false,
            is_synced: false,
            data: None,
            polling: Polling::Always,
        }
    }

    /// Returns the memory of the shard.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let log_bytes = (self.live_bytes as f64 / self.utilization) as u64;
        let index_bytes = index_bytes(self.objects, log_bytes);
        // The least memory of a log with the smallest segments.
        (log_bytes + index_bytes).max(16 << 20)
    }

    fn options(&self) -> Options {
        // The papers' measurements continue at 90 %, and so do ours: the limit for new data is
        // higher.
        Options { cleaner: CleanerOptions::default(), ..options_for(self.live_bytes) }
    }

    /// Returns the longest value that it accepts.
    #[must_use]
    pub fn value_bytes_max(&self) -> usize {
        self.options().value_bytes_max()
    }

    /// Returns the size of its segments.
    #[must_use]
    pub fn segment_bytes(&self) -> u32 {
        u32::try_from(self.options().segment_bytes).unwrap_or(u32::MAX)
    }

    /// Runs the shard beside the work; with copies, as servers with backups.
    ///
    /// # Errors
    /// When the shard or the work fails.
    pub fn serving<T>(&self, channel: Channel, work: impl FnOnce(To) -> Result<T>) -> Result<T> {
        if self.replicas > 0 {
            return self.in_cluster(channel, |place| work(place.to));
        }
        self.beside(channel, |address| work(address.into()))
    }

    /// Runs the shard beside the work, which is pinned to the client's core. The shard has no
    /// backups.
    ///
    /// # Errors
    /// When the shard or the work fails.
    pub fn beside<T>(
        &self,
        channel: Channel,
        work: impl FnOnce(SocketAddr) -> Result<T>,
    ) -> Result<T> {
        self.watched(channel, |address, _| work(address))
    }

    /// Like [`Own::beside`], for work that reads the processor time of the shard's thread.
    ///
    /// # Errors
    /// When the shard or the work fails.
    pub fn watched<T>(
        &self,
        channel: Channel,
        work: impl FnOnce(SocketAddr, &Thread) -> Result<T>,
    ) -> Result<T> {
        ensure!(self.replicas == 0, "a shard in this process has no backups");
        let (tell, told) = mpsc::channel();
        let stop = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            let server = scope.spawn(move || -> Result<()> {
                machine::pin(floors::SERVER_CORE);
                let (world, _scrap) = world()?;
                let (clock, alarm) = (world.clock.clone(), world.alarm.clone());
                let transport = OsTransport::new(&world, Setup::from(channel).options())?;
                let (service, _cleaners) = self.service()?;
                let mut node = Node::new(world, Box::new(transport), service);
                let address = node.listen((Ipv4Addr::LOCALHOST, 0).into()).context("listen")?;
                tell.send((address, alarm, Thread::own())).ok().context("tell the client")?;
                let stopped = || stop.load(Ordering::Relaxed);
                os::run(&mut node, &clock, self.polling, stopped);
                Ok(())
            });
            // Populating much memory takes a while; a server that fails drops its end.
            let outcome = match told.recv() {
                Ok((address, alarm, thread)) => {
                    let _end = End(stop, alarm);
                    pinned(floors::CLIENT_CORE, || work(address, &thread))
                }
                Err(_) => Err(anyhow!("no server came up")),
            };
            server.join().map_err(|_| anyhow!("the server's thread panicked"))??;
            outcome
        })
    }

    /// Returns the shard with its cleaners.
    pub(crate) fn service(&self) -> Result<(Both, CleanerThreads)> {
        let memory = memory_for(self.memory_bytes(), self.live_bytes)?;
        let replicator = Box::new(NoReplication::default());
        let mut log = Log::new(&memory, LogId(7), self.options(), replicator)
            .context("make a log for the shard")?;
        log.create_tablet(TabletRange::whole(TABLE)).context("create the table")?;
        let pin = |number| machine::pin(floors::SERVER_CORE + 1 + number);
        let cleaners = CleanerThreads::start(&log, self.cleaners, pin);
        Ok((Both { shard: Shard::new(log), echo: Echo::default() }, cleaners))
    }
}

/// Returns the bytes that an object takes in the log.
#[must_use]
pub fn entry_bytes(value_bytes: usize) -> u64 {
    crate::log::subject::entry_bytes(value_bytes)
}

/// A shard that also echoes.
pub(crate) struct Both {
    shard: Shard,
    echo: Echo,
}

impl Service for Both {
    fn start(&mut self, context: &mut Context<'_>) {
        self.shard.start(context);
    }

    #[inline]
    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        if request.opcode == Opcode::Echo {
            return self.echo.request(context, request);
        }
        self.shard.request(context, request);
    }

    fn reply(
        &mut self,
        context: &mut Context<'_>,
        owner: OwnerId,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) {
        self.shard.reply(context, owner, call, outcome);
    }

    fn timer(&mut self, context: &mut Context<'_>, owner: OwnerId) {
        self.shard.timer(context, owner);
    }

    fn turn_over(&mut self, context: &mut Context<'_>) {
        self.shard.turn_over(context);
    }
}
