//! Decides which backup reads which segment, and in which order.
//!
//! Each segment is read in advance by one backup. The choice lets all disks finish at the same
//! time: each segment in turn goes to the backup that would finish it first. Masters get the
//! segments in the order in which they will be read, so that all backups work for them at once, and
//! masters fetch segments that are ready. The other replicas follow, in case the first one fails.
//!
//! The head comes first, because it names the log. Replicas of an open segment stay in the order of
//! the survey. Open replicas that equal closed ones come after them. A log that
//! is taken back is not read from those, because the new log needs closed replicas.

use crate::survey::Copy;
use std::collections::BTreeMap;
use thunderhead_wire::control::Replicas;
use thunderhead_wire::{SegmentId, ServerId};

/// The assumed bytes a second of a backup that does not know its speed.
const SPEED: u64 = 100 << 20;

/// The cost of opening one more segment, in bytes.
const OVERHEAD: u64 = 64 << 10;

/// The order for all readers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// For masters.
    pub(crate) segments: Vec<Replicas>,
    /// For each backup with any replica.
    pub(crate) reads: BTreeMap<ServerId, Vec<SegmentId>>,
}

/// Decides the order, by the speed of the backups.
pub(crate) fn order(
    log: &[(SegmentId, Vec<Copy>)],
    speeds: &BTreeMap<ServerId, u64>,
    take_back: bool,
) -> Order {
    let mut busy: BTreeMap<ServerId, u64> = BTreeMap::new();
    let mut read: Vec<(bool, u64, Replicas)> = Vec::with_capacity(log.len());
    let mut reads: BTreeMap<ServerId, Vec<SegmentId>> = BTreeMap::new();
    for (number, (segment, copies)) in log.iter().enumerate() {
        let done_by = |copy: &Copy| {
            let speed = speeds.get(&copy.server).copied().filter(|it| *it > 0).unwrap_or(SPEED);
            let nanos = u128::from(u64::from(copy.length) + OVERHEAD) * 1_000_000_000;
            let nanos = u64::try_from(nanos / u128::from(speed)).unwrap_or(u64::MAX);
            busy.get(&copy.server).copied().unwrap_or(0).saturating_add(nanos)
        };
        let closed = copies.iter().take_while(|copy| copy.closed).count();
        let is_closed = closed > 0;
        let candidates = closed.max(1);
        let copies = match take_back && is_closed {
            true => copies.get(..closed).unwrap_or_default(),
            false => copies,
        };
        let best = copies.iter().enumerate().take(candidates);
        let Some((done, first)) = best.map(|(at, copy)| (done_by(copy), at)).min() else {
            continue;
        };
        let mut copies = copies.to_vec();
        if let Some(sorted) = copies.get_mut(..=first) {
            sorted.rotate_right(1);
        }
        if let Some(first) = copies.first() {
            busy.insert(first.server, done);
            reads.entry(first.server).or_default().push(*segment);
        }
        for copy in &copies {
            reads.entry(copy.server).or_default();
        }
        let at = copies.iter().map(|copy| (copy.server, copy.address)).collect();
        let epoch = copies.iter().map(|copy| copy.epoch).max().unwrap_or_default();
        let replicas = Replicas { segment: *segment, at, closed: is_closed, epoch };
        read.push((number > 0, done, replicas));
    }
    read.sort_by_key(|(later, done, _)| (*later, *done));
    Order { segments: read.into_iter().map(|(_, _, replicas)| replicas).collect(), reads }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thunderhead_runtime::Random;
    use thunderhead_wire::Epoch;

    #[test]
    fn equal_open_replicas_come_last_and_are_not_used_for_taking_back() {
        let copy = |server: u8, closed| {
            let address = ([10, 0, 0, server], 1).into();
            let (server, epoch) = (ServerId(server.into()), Epoch::default());
            Copy { server, address, length: 8, closed, epoch }
        };
        let log = [(SegmentId(1), vec![copy(1, true), copy(3, true), copy(2, false)])];
        let speeds = BTreeMap::from([(ServerId(2), SPEED * 9), (ServerId(3), SPEED * 2)]);
        for (take_back, expected) in [(false, &[3, 1, 2][..]), (true, &[3, 1])] {
            let order = order(&log, &speeds, take_back);
            let at: Vec<_> = order.segments[0].at.iter().map(|(server, _)| server.0).collect();
            assert_eq!(at, expected);
            assert!(order.segments[0].closed);
            assert_eq!(order.reads.len(), expected.len());
        }
    }

    #[test]
    fn all_disks_finish_at_about_the_same_time_and_read_every_segment() {
        for seed in 0..200 {
            let mut random = Random::from_seed(seed);
            let backups = random.within(2..9);
            let speeds: BTreeMap<_, _> =
                (1..=backups).map(|id| (ServerId(id), random.within(1..4) * SPEED)).collect();
            let count = random.within(1..400);
            let mut segments = Vec::new();
            for id in (1..=count).rev() {
                let mut servers: Vec<u64> = (1..=backups).collect();
                let copies = (0..random.within(1..4).min(backups)).map(|_| {
                    let server = servers.remove(random.below(servers.len() as u64) as usize);
                    let address = ([10, 0, 0, server as u8], 1).into();
                    let (length, closed) = (8 << 20, id != count);
                    let epoch = Epoch::default();
                    Copy { server: ServerId(server), address, length, closed, epoch }
                });
                segments.push((SegmentId(id), copies.collect::<Vec<_>>()));
            }
            let order = order(&segments, &speeds, false);
            assert_eq!(order.segments[0].segment, SegmentId(count), "the head is the first");
            assert_eq!(order.segments[0].at[0].0, segments[0].1[0].server, "as surveyed");
            let mut all: Vec<_> = order.segments.iter().map(|it| it.segment).collect();
            all.sort_unstable();
            assert_eq!(all, (1..=count).map(SegmentId).collect::<Vec<_>>());
            for (segment, copies) in &segments {
                let given = order.segments.iter().find(|it| it.segment == *segment).unwrap();
                assert_eq!(given.at.len(), copies.len());
                assert!(copies.iter().all(|it| given.at.contains(&(it.server, it.address))));
                // Only the first backup of a segment reads it.
                for (server, reads) in &order.reads {
                    assert_eq!(reads.contains(segment), *server == given.at[0].0);
                }
            }
            // Each backup reads in the order in which masters ask.
            let place = |id: &SegmentId| order.segments.iter().position(|it| it.segment == *id);
            for reads in order.reads.values() {
                assert!(reads.windows(2).all(|pair| place(&pair[0]) < place(&pair[1])));
            }
            let time = |(server, reads): (&ServerId, &Vec<SegmentId>)| {
                reads.len() as f64 / (speeds[server] / SPEED) as f64
            };
            let longest = order.reads.iter().map(time).fold(0.0, f64::max);
            let all: u64 = order.reads.keys().map(|it| speeds[it] / SPEED).sum();
            if count > 200 && backups > 3 {
                let fair = count as f64 / all as f64;
                assert!(longest < fair * 1.6 + 2.0, "seed {seed}: {longest}, and {fair} is fair");
            }
        }
    }
}
