//! What is decided of a recovery without asking anybody, for models of clusters that nobody has: who
//! reads which segment and when, and who rebuilds what. It is what the coordinator does, not
//! something like it.

use super::copies::Copy;
use super::{order, partitions};
use crate::options::Parts;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use thunderhead_wire::control::{Replicas, TabletStatus, Taken};
use thunderhead_wire::{Epoch, KeyHash, SegmentId, ServerId, TableId};

/// A segment with its bytes and who has its replicas.
pub type Placed = (SegmentId, u32, Vec<(ServerId, SocketAddr)>);

/// The order in which segments of a log are read, by how many bytes a second each backup reads; the
/// first that is named for a segment reads it. The log's head is the first of `log`.
#[must_use]
pub fn reading_order(log: &[Placed], speeds: &BTreeMap<ServerId, u64>) -> Vec<Replicas> {
    let segments = log.iter().map(|(segment, length, at)| {
        let copies = at.iter().map(|(server, address)| {
            let (server, address, length) = (*server, *address, *length);
            Copy { server, address, length, closed: true, epoch: Epoch::default() }
        });
        (*segment, copies.collect())
    });
    let segments: Vec<(SegmentId, Vec<Copy>)> = segments.collect();
    order::order(&segments, speeds, false).segments
}

/// Tablets divided among so many masters, by what the log's statistics say; each part is rebuilt by
/// one.
#[must_use]
pub fn divided(
    tablets: &[Taken],
    statistics: &[TabletStatus],
    log_bytes: u64,
    masters: usize,
) -> Vec<Vec<Taken>> {
    let before = partitions::loads(tablets, statistics, log_bytes);
    let target = partitions::target(&before, masters, Parts::default());
    let tablets = cut(tablets, &partitions::cuts(tablets, &before, target));
    let loads = partitions::loads(&tablets, statistics, log_bytes);
    partitions::pack(&tablets, &loads, target).into_iter().map(|(_, part)| part).collect()
}

/// Cuts tablets as the coordinator cuts them in its tables.
fn cut(tablets: &[Taken], cuts: &[(TableId, KeyHash)]) -> Vec<Taken> {
    let mut tablets = tablets.to_vec();
    for (table, at) in cuts {
        let is_cut = |it: &Taken| it.range.contains(*table, *at) && it.range.first < *at;
        let Some(number) = tablets.iter().position(is_cut) else { continue };
        let Some(first) = tablets.get_mut(number) else { continue };
        let mut second = *first;
        first.range.last = KeyHash(at.0 - 1);
        second.range.first = *at;
        tablets.insert(number + 1, second);
    }
    tablets
}
