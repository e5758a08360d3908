//! The decisions of a recovery without any messages, for models of clusters larger than any
//! available one: which backup reads which segment and when, and which master rebuilds which
//! tablets. The model calls the coordinator's own code.

use super::{order, partitions};
use crate::options::Parts;
use crate::survey::Copy;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use thunderhead_wire::control::{Replicas, TabletStatus, Taken};
use thunderhead_wire::{Epoch, KeyHash, SegmentId, ServerId, TableId};

/// A segment with its length and the backups of its replicas.
pub type Placed = (SegmentId, u32, Vec<(ServerId, SocketAddr)>);

/// Returns the order in which segments of a log are read, by the bytes that each backup reads in a
/// second. The first backup of a segment reads it. The log's head is the first element of `log`.
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

/// Divides tablets among so many masters, by the log's statistics. One master rebuilds each part.
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
