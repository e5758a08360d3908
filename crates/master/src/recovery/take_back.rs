//! Takes back the log of the shard's own previous generation.
//!
//! It works like any recovery, with these differences ([`Rebuild::adopt`] says why it is correct):
//!
//! - The replicas come whole. The shard adopts all closed segments first, then replays the open
//!   ones. Adopted segments are on their backups already, so it waits for none of them.
//! - When all segments have arrived, a digest names the adopted ones, and the shard waits for it as
//!   for everything else.
//! - When the coordinator has recorded the tablets as this shard's, the shard maintains the
//!   replicas, and the cleaners may have the segments. Not before: until then the former log must
//!   stay complete.
//! - If the shard fails, it drops everything at once. If a digest names the adopted segments
//!   already, the shard tells the coordinator to keep the former master's replicas as long as this
//!   master exists. A recovery of this log would not find it complete without them, though their
//!   entries do not count. The shard reports this whenever it fails to rebuild. Otherwise the
//!   coordinator would not take it for an heir when it fails to rebuild the same log in parts.
//!
//! A shard does so once in a generation, and not with a log of which it has rebuilt a part in
//! another way. The entries that an abandoned attempt has replayed remain in this shard's log. They
//! do not count for tablets that are rebuilt, which count from the beginning of their recovery. But
//! tablets that are taken back count from their position in the former log, so these entries would
//! count again: one version would be in the log twice, and the tombstone that a cleaner leaves for
//! the superfluous copy would kill the other.

use super::failure::Failure;
use crate::clients::Clients;
use crate::replication::AdoptedReplicas;
use thunderhead_log::{Damage, FinishedAdoption, Log, Rebuild, ReplayError};
use thunderhead_wire::SegmentId;
use thunderhead_wire::control::{Recover, Replicas};

/// See the module's documentation.
pub(super) struct TakeBack {
    /// Segments that were open, until the others are done.
    open: Vec<Replicas>,
    replicas: Vec<AdoptedReplicas>,
    /// Closed segments are being adopted.
    pub(super) adopts: bool,
    /// The begun segment: it is completed before another begins.
    pub(super) current: Option<SegmentId>,
    adopted: Option<FinishedAdoption>,
    /// Something of that log was rebuilt here before.
    was_rebuilt: bool,
}

impl TakeBack {
    /// The state for a task that asks to take a log back; the segments to begin with stay in the
    /// task.
    pub(super) fn of(task: &mut Recover, was_rebuilt: bool) -> Option<TakeBack> {
        if !task.take_back {
            return None;
        }
        let segments = std::mem::take(&mut task.segments);
        let (closed, open) = segments.into_iter().partition(|it: &Replicas| it.closed);
        task.segments = closed;
        let replicas = task.segments.iter().map(|it| AdoptedReplicas {
            segment: it.segment,
            epoch: it.epoch,
            servers: it.at.iter().map(|(server, _)| *server).collect(),
        });
        let replicas = replicas.collect();
        Some(TakeBack { open, replicas, adopts: true, current: None, adopted: None, was_rebuilt })
    }

    /// Whether it may be done here.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.was_rebuilt {
            return Err(Failure::RebuiltBefore);
        }
        Ok(())
    }

    /// Returns the segments that follow the closed ones.
    pub(super) fn then(&mut self) -> Option<Vec<Replicas>> {
        self.adopts = false;
        let open = std::mem::take(&mut self.open);
        (!open.is_empty()).then_some(open)
    }

    /// All is here, and named.
    pub(super) fn on_named(&mut self, rebuild: Rebuild) {
        self.adopted = Some(rebuild.into_adopted());
    }

    /// Throws everything away; the tablets go, or are gone.
    pub(super) fn abandon(
        &mut self,
        rebuild: Option<Rebuild>,
        log: &mut Log,
        clients: &mut Clients,
    ) {
        let abandoned = match (rebuild, self.adopted.take()) {
            (Some(rebuild), _) => rebuild.abandon(log),
            (None, Some(adopted)) => adopted.abandon(log),
            (None, None) => return,
        };
        abandoned.records.iter().for_each(|(lease, sequence)| clients.lost(*lease, *sequence));
    }

    /// Returns the places of the adopted replicas: the coordinator has recorded the tablets as this
    /// shard's.
    pub(super) fn take_adopted_replicas(&mut self) -> Vec<AdoptedReplicas> {
        self.adopted = None;
        std::mem::take(&mut self.replicas)
    }
}

/// Whether no copy of a log will do, because it cannot be adopted.
pub(super) fn is_hopeless(error: &ReplayError) -> bool {
    matches!(error, ReplayError::Damaged(Damage::NotAdoptable { .. } | Damage::OtherLog { .. }))
}
