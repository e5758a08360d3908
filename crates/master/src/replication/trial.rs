//! Placement by itself, for models: it chooses the servers for the replicas of a log, without a log
//! and without backups. It runs the same code as masters.

use super::segment::Segment;
use super::{Replication, Settings};
use thunderhead_log::SegmentKind;
use thunderhead_runtime::Random;
use thunderhead_wire::control::ServerList;
use thunderhead_wire::{SegmentId, ServerId};

/// Places segments one after the other, and remembers the replicas of each server.
pub struct PlacementTrial {
    replication: Replication,
    last: u64,
}

impl PlacementTrial {
    /// The placement of one master's segments among these servers.
    #[must_use]
    pub fn new(settings: Settings, random: Random, servers: &ServerList) -> PlacementTrial {
        let (mut replication, _) = Replication::new(settings, random);
        replication.learn(servers);
        PlacementTrial { replication, last: 0 }
    }

    /// The servers that get the next segment's replicas, the primary one first. Fewer than there
    /// should be where there are not servers enough.
    pub fn place(&mut self) -> Vec<ServerId> {
        let mut state = self.replication.shared.state();
        self.last += 1;
        let id = SegmentId(self.last);
        let segment = Segment::new(id, SegmentKind::Head, state.settings.replicas);
        state.segments.insert(id, segment);
        state.place(id);
        let placed = state.segments.remove(&id);
        placed.map_or_else(Vec::new, |it| it.slots.iter().filter_map(|slot| slot.server).collect())
    }
}
