//! The backup of a server: its service, and direct calls to it by the shard of the same node, which
//! do not use the network.

use thunderhead_backup::Store;
use thunderhead_backup::service::{Local, Refused, Service};
use thunderhead_backup::start::StartReport;
use thunderhead_master::{LocalAnswer, LocalBackup, LocalReplica};
use thunderhead_rpc::{CallError, Context};
use thunderhead_runtime::Time;

/// A server's backup.
pub(crate) struct Backup {
    pub(crate) service: Service,
    read_bytes_per_second: u64,
}

impl Backup {
    pub(crate) fn new(store: Store, opened: StartReport) -> Backup {
        let read_bytes_per_second = opened.read_bytes_per_second.unwrap_or_default();
        let service = Service::new(store, read_bytes_per_second);
        Backup { service, read_bytes_per_second }
    }

    pub(crate) fn read_bytes_per_second(&self) -> u64 {
        self.read_bytes_per_second
    }

    /// Whether the disk has refused all remaining replicas, so that waiting for it is useless.
    pub(crate) fn is_refused(&self) -> bool {
        self.service.is_refused()
    }

    /// Returns the number of replicas whose present state is not on the disk.
    pub(crate) fn unwritten(&mut self) -> usize {
        self.service.store().unwritten()
    }

    /// Accepts nothing more, and releases the shared memory once everything is on the disk. Returns
    /// whether that is done. If the memory cannot be released, the next generation finds it and
    /// releases it.
    pub(crate) fn leave(&mut self, context: &mut Context<'_>) -> bool {
        self.service.close();
        let memories = context.world().memories.as_mut();
        self.service.store().leave(memories).unwrap_or(true)
    }
}

impl LocalBackup for Backup {
    fn replicate(&mut self, body: &[&[u8]]) -> LocalAnswer {
        match self.service.local(body) {
            Local::Now(answer) => LocalAnswer::Now(answer),
            Local::Later(number) => LocalAnswer::Later(number),
        }
    }

    fn done(&mut self) -> Option<(u64, Vec<u8>)> {
        self.service.local_done()
    }

    fn replica(&mut self, now: Time, body: &[u8]) -> LocalReplica {
        match self.service.local_replica(now, body) {
            Ok(Some(replica)) => LocalReplica::Here(replica),
            Ok(None) => LocalReplica::ByMessage,
            Err(Refused { status, hint, detail }) => {
                LocalReplica::Refused(CallError::Refused { status, hint, detail })
            }
        }
    }
}
