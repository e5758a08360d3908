//! Segments that the log has adopted, with the replicas that they have.
//!
//! A shard that takes back the log of its previous generation has segments that it never sent to a
//! backup. Their replicas stay in their places, and are this master's from the moment that it owns
//! the tablets: backups find them under the former master's id (they know the lineage). So no bytes
//! are sent. If there are too few replicas, the shard makes them again from memory like lost ones.
//! They are freed when the log frees the segments.

use super::segment::{Segment, Slot};
use super::{Replication, State};
use thunderhead_log::SegmentKind;
use thunderhead_wire::{Epoch, SegmentId, ServerId};

/// The closed replicas of an adopted segment: the servers that have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdoptedReplicas {
    pub(crate) segment: SegmentId,
    /// The highest of their epochs.
    pub(crate) epoch: Epoch,
    pub(crate) servers: Vec<ServerId>,
}

impl Replication {
    /// Sees to the replicas of segments from now on, which are so long in memory.
    pub(crate) fn adopt(&mut self, replicas: Vec<(AdoptedReplicas, u32)>) {
        let mut state = self.shared.state();
        for (adopted, length) in replicas {
            state.adopt(adopted, length);
        }
    }
}

impl State {
    fn adopt(&mut self, adopted: AdoptedReplicas, length: u32) {
        let AdoptedReplicas { segment: id, epoch, servers } = adopted;
        let mut segment = Segment::new(id, SegmentKind::Survivor, self.settings.replicas);
        (segment.length, segment.base, segment.durable_length) = (length, length, length);
        (segment.is_closed, segment.is_whole, segment.is_adopted) = (true, true, true);
        segment.epoch = epoch;
        let mut servers = servers.into_iter();
        for number in 0..segment.slots.len() {
            // A server that is no longer known has no replica to give.
            let known = servers.by_ref().find_map(|server| {
                let is_known = self.servers.is_known(server);
                is_known.then(|| (server, self.servers.get(server).is_some()))
            });
            let token = self.number();
            let Some(slot) = segment.slots.get_mut(number) else { break };
            match known {
                Some((server, is_up)) => {
                    *slot = Slot {
                        server: Some(server),
                        token,
                        begun_at: epoch,
                        epoch,
                        was_sent: true,
                        is_opened: true,
                        is_committed: true,
                        is_closed: true,
                        acked: length,
                        is_away: !is_up,
                        ..Slot::default()
                    };
                    if number == 0 {
                        self.servers.count_primary(server, 1);
                    }
                }
                // The replica to be made is not the first of its segment.
                None => slot.is_atomic = true,
            }
        }
        if segment.is_short() {
            // Its epoch is above all that there are.
            segment.epoch = Epoch(epoch.0 + 1);
            self.to_mend.insert(id);
        }
        if !segment.slots.is_empty() {
            self.risk.assess(id, Some(&segment));
            self.segments.insert(id, segment);
        }
    }
}
