//! The log of the shard's own former life is taken back.
//!
//! It goes like any rebuilding, with these differences ([`Rebuild::adopt`] says why it is right):
//!
//! - The replicas come whole. Closed segments are adopted, all of them before those that were open,
//!   which are replayed. What is adopted is on its backups already, so it waits for none.
//! - When all is here a digest names the adopted segments, and is waited for with everything else.
//! - When the coordinator has written that the tablets are this shard's, it sees to the replicas, and the
//!   cleaners may have the segments. Not before: until then the former log must stay complete.
//! - What is given up is thrown away at once. Where a digest names it already the coordinator is told to
//!   keep the former master's replicas as long as this one is there: a recovery of this log would not
//!   find it complete without them, though nothing in them counts. It is told so whenever something cannot
//!   be rebuilt, or it would take this one for no heir when that fails to rebuild the same in parts.
//!
//! A shard does so once in its life, and not with a log of which it has rebuilt something in another
//! way. What an attempt that was given up has replayed lies in this shard's log. To tablets that are
//! rebuilt it does not count: they count from where their rebuilding began. But tablets that are taken
//! back count from where they did in the former log, so it would count again: one version would be here
//! twice, and what a cleaner leaves behind for the one that is superfluous kills the other.

use crate::clients::Clients;
use crate::replication::Home;
use thunderhead_log::{Adopted, Damage, Log, Rebuild, ReplayError};
use thunderhead_wire::SegmentId;
use thunderhead_wire::control::{Recover, Replicas};

/// See the module's documentation.
pub(super) struct TakeBack {
    /// Segments that were open, until the others are done.
    open: Vec<Replicas>,
    homes: Vec<Home>,
    /// Closed segments are being adopted.
    pub(super) adopts: bool,
    /// The one that was begun: it comes to its end before another one.
    pub(super) current: Option<SegmentId>,
    adopted: Option<Adopted>,
    /// Something of that log was rebuilt here before.
    was_rebuilt: bool,
}

impl TakeBack {
    /// Of a task that says so; what it is to begin with stays in the task.
    pub(super) fn of(task: &mut Recover, was_rebuilt: bool) -> Option<TakeBack> {
        if !task.take_back {
            return None;
        }
        let segments = std::mem::take(&mut task.segments);
        let (closed, open) = segments.into_iter().partition(|it: &Replicas| it.closed);
        task.segments = closed;
        let homes = task.segments.iter().map(|it| Home {
            segment: it.segment,
            epoch: it.epoch,
            servers: it.at.iter().map(|(server, _)| *server).collect(),
        });
        let homes = homes.collect();
        Some(TakeBack { open, homes, adopts: true, current: None, adopted: None, was_rebuilt })
    }

    /// Whether it may be done here.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.was_rebuilt {
            return Err(
                "some of it was rebuilt by this shard before, so all of it has to be".into()
            );
        }
        Ok(())
    }

    /// What comes after the closed segments.
    pub(super) fn then(&mut self) -> Option<Vec<Replicas>> {
        self.adopts = false;
        let open = std::mem::take(&mut self.open);
        (!open.is_empty()).then_some(open)
    }

    /// All is here, and named.
    pub(super) fn is_named(&mut self, rebuild: Rebuild) {
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

    /// The tablets are written as this shard's: where the replicas are of what was adopted.
    pub(super) fn take_homes(&mut self) -> Vec<Home> {
        self.adopted = None;
        std::mem::take(&mut self.homes)
    }
}

/// Whether no copy of a log will do, because it cannot be adopted.
pub(super) fn is_hopeless(error: &ReplayError) -> bool {
    matches!(error, ReplayError::Damaged(Damage::NotAdoptable { .. } | Damage::OtherLog { .. }))
}
