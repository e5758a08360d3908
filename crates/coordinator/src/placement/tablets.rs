//! Decides which masters get the tablets of a new table, and tablets that no master has taken yet.

use super::rooms::Room;
use crate::cluster::Cluster;
use crate::limits::TABLETS_MAX;
use crate::stored::{ShardRecord, TabletRecord};
use std::collections::BTreeMap;
use thunderhead_wire::{KeyHash, MasterId, SegmentId};

impl Cluster {
    /// Returns the masters for new tablets, the best first. Masters with the fewest tablets come
    /// first, and one of each server before a second one of any.
    pub(crate) fn by_load(&self) -> Vec<MasterId> {
        let mut order = Vec::new();
        for server in self.servers() {
            let of = |shard: &ShardRecord| self.tablets_count(shard.master);
            let all: usize = server.shards.iter().map(of).sum();
            let mut shards: Vec<_> = server.shards.iter().map(|it| (of(it), it.master)).collect();
            shards.sort_unstable();
            // Each further shard of a server counts as if the ones before it had got their tablet
            // already.
            let ranked = shards.into_iter().enumerate();
            order.extend(ranked.map(|(rank, (has, master))| (has, all + rank, master)));
        }
        order.sort_unstable();
        order.into_iter().map(|(_, _, master)| master).collect()
    }

    /// Returns the masters for new tablets, the best first. Masters that report that they have no
    /// room are left out, and masters that have not answered come last.
    pub(crate) fn with_room(&self, rooms: &BTreeMap<MasterId, Room>) -> Vec<MasterId> {
        let mut masters = self.by_load();
        masters.retain(|master| rooms.get(master).is_none_or(|room| room.bytes > 0));
        // The order stays otherwise.
        masters.sort_by_key(|master| !rooms.contains_key(master));
        masters
    }

    /// Returns the tablets of a new table on the first `span` masters, or none if there are no
    /// masters.
    pub(crate) fn spread(&self, span: u32, masters: Vec<MasterId>) -> Vec<TabletRecord> {
        let count = (span as usize).clamp(1, TABLETS_MAX).min(masters.len());
        let bound = |number: usize| {
            let hashes = (u128::from(u64::MAX) + 1) * number as u128 / count.max(1) as u128;
            hashes as u64
        };
        let tablets = masters.into_iter().take(count).enumerate();
        tablets
            .map(|(number, master)| TabletRecord {
                first: KeyHash(bound(number)),
                // One less than the next tablet's first hash. The last tablet ends with the highest
                // hash.
                last: KeyHash(bound(number + 1).wrapping_sub(1)),
                master,
                since: SegmentId::NONE,
                taken: false,
                migrating: None,
            })
            .collect()
    }
}
