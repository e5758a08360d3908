//! Finds the digest and other facts of a log in an open replica: reads it, scans it in slices, and
//! answers.

use super::Refused;
use crate::error::{ReadError, Unserved};
use crate::layout::ReplicaId;
use crate::limits::{BUSY_US, HEADS_MAX};
use crate::reader::{ReadId, ReplicaBytes};
use crate::store::Store;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use thunderhead_log::inspect::Scan;
use thunderhead_rpc::{Context, ReplyTo};
use thunderhead_runtime::slice::Budget;
use thunderhead_wire::Status;
use thunderhead_wire::control::{Head, HeadOf, TabletStatus, to_body};

/// The cost of one step of scanning a segment.
const SCANNING: Duration = Duration::from_micros(10);

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Heads {
    reads: BTreeMap<ReadId, ReplyTo>,
    scans: VecDeque<(ReplyTo, ReplicaBytes, Scan)>,
}

impl Heads {
    pub(super) fn request(
        &mut self,
        store: &mut Store,
        context: &mut Context<'_>,
        HeadOf { master, segment }: HeadOf,
        reply_to: ReplyTo,
    ) {
        if self.reads.len() + self.scans.len() >= HEADS_MAX {
            return context.refuse(reply_to, Status::Busy, BUSY_US, &[]);
        }
        match store.read(ReplicaId { master, segment }) {
            Ok(read) => {
                self.reads.insert(read, reply_to);
            }
            Err(refusal) => Refused::because(&refusal.into()).tell(context, reply_to),
        }
    }

    /// Takes a replica that was read; returns the outcome if the read was for another component.
    pub(super) fn read(
        &mut self,
        context: &mut Context<'_>,
        read: ReadId,
        outcome: Result<ReplicaBytes, ReadError>,
    ) -> Option<Result<ReplicaBytes, ReadError>> {
        let Some(reply_to) = self.reads.remove(&read) else { return Some(outcome) };
        match outcome {
            Ok(bytes) => self.scans.push_back((reply_to, bytes, Scan::default())),
            Err(error) => Refused::because(&error.into()).tell(context, reply_to),
        }
        None
    }

    pub(super) fn is_idle(&self) -> bool {
        self.scans.is_empty()
    }

    /// Scans replicas, within the budget.
    pub(super) fn work(&mut self, context: &mut Context<'_>, budget: &mut Budget) {
        while let Some((reply_to, replica, scan)) = self.scans.front_mut() {
            let more = scan.step(replica.id().segment, replica.bytes());
            let more_time = budget.spend(SCANNING);
            if !more {
                let (reply_to, id, scan) = (*reply_to, replica.id(), std::mem::take(scan));
                self.scans.pop_front();
                tell(context, reply_to, id, scan);
            }
            if !more_time {
                return;
            }
        }
    }
}

fn tell(context: &mut Context<'_>, reply_to: ReplyTo, id: ReplicaId, scan: Scan) {
    let torn = match scan.damage {
        Some(damage) if !scan.is_torn => {
            tracing::warn!("the replica of {id} is of no use as a head: {damage}");
            return Refused::because(&Unserved::Damaged(damage)).tell(context, reply_to);
        }
        damage => damage.map(|damage| damage.to_string()),
    };
    let statistics = scan.statistics.iter().map(|it| TabletStatus {
        range: it.tablet,
        objects: it.objects,
        bytes: it.bytes,
    });
    let head = Head { digest: scan.digest, statistics: statistics.collect(), torn };
    context.reply(reply_to, &[&to_body(&head)]);
}
