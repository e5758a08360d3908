//! Divides the tablets of a crashed master among recovery masters.
//!
//! A partition has the tablets that one master rebuilds in about a second or two: no more than
//! [`Parts::bytes`], where objects count by the time of their replay. There are at least as many
//! partitions as masters that can take part, as long as each has [`Parts::least`] to do. Tablets
//! larger than a partition are cut by hashes, which are uniform. Small tablets are packed together.
//!
//! The sizes of tablets come from the log's statistics. Tablets without statistics are small, if
//! there are any statistics at all. Otherwise the log's bytes are spread evenly.
//!
//! If the crashed server has restarted, its own shards are preferred: only tablets beyond one
//! partition go elsewhere. If there is no other server, tablets are not divided, because one place
//! rebuilds them all anyway.

use crate::limits::TABLETS_MAX;
use crate::options::Parts;
use thunderhead_wire::control::{TabletStatus, Taken};
use thunderhead_wire::{KeyHash, TableId, TabletRange};

/// One object takes as long as so many bytes.
const OBJECT_BYTES: u64 = 178;

/// The most tablets of a partition, so that its record and its messages stay short.
const PART_TABLETS: usize = 256;

/// Returns the work for a tablet, in bytes.
fn load(bytes: u64, objects: u64) -> u64 {
    bytes.max(objects.saturating_mul(OBJECT_BYTES))
}

fn hashes(range: &TabletRange) -> u128 {
    u128::from(range.last.0.saturating_sub(range.first.0)) + 1
}

/// Returns a share of a quantity, in proportion to a part of some hashes.
fn share(of: u64, part: u128, whole: u128) -> u64 {
    // Both are at most 2^64, so 32 bits of them suffice, and the product does not overflow.
    let (part, whole) = (part >> 16, (whole >> 16).max(1));
    u64::try_from((u128::from(of) * part / whole).min(u128::from(u64::MAX))).unwrap_or(u64::MAX)
}

/// Returns the work for each tablet, by the statistics of a log of so many bytes.
pub(crate) fn loads(tablets: &[Taken], statistics: &[TabletStatus], log_bytes: u64) -> Vec<u64> {
    if statistics.is_empty() {
        let all: u128 = tablets.iter().map(|it| hashes(&it.range) >> 16).sum();
        let of = |it: &Taken| share(log_bytes, hashes(&it.range), all << 16);
        return tablets.iter().map(of).collect();
    }
    let of = |taken: &Taken| sum_of_shares(taken, statistics, |it| load(it.bytes, it.objects));
    tablets.iter().map(of).collect()
}

/// Returns the size of each tablet, by the statistics; nothing for tablets without statistics.
pub(crate) fn expected(tablets: &[Taken], statistics: &[TabletStatus]) -> Vec<TabletStatus> {
    let of = |taken: &Taken| TabletStatus {
        range: taken.range,
        objects: sum_of_shares(taken, statistics, |it| it.objects),
        bytes: sum_of_shares(taken, statistics, |it| it.bytes),
    };
    tablets.iter().map(of).filter(|it| it.objects > 0).collect()
}

/// Returns a tablet's share of a quantity in the statistics, which is spread evenly over each
/// range.
fn sum_of_shares(
    taken: &Taken,
    statistics: &[TabletStatus],
    what: impl Fn(&TabletStatus) -> u64,
) -> u64 {
    let range = &taken.range;
    let there = statistics.iter().filter(|it| it.range.overlaps(range));
    there.fold(0u64, |sum, it| {
        let first = it.range.first.max(range.first);
        let last = it.range.last.min(range.last);
        let both = hashes(&TabletRange { table: range.table, first, last });
        sum.saturating_add(share(what(it), both, hashes(&it.range)))
    })
}

/// Returns the size of a partition, if so many masters take part.
pub(crate) fn target(loads: &[u64], masters: usize, parts: Parts) -> u64 {
    let all = loads.iter().fold(0u64, |sum, it| sum.saturating_add(*it));
    let by_bytes = all.div_ceil(parts.bytes.max(1));
    let by_masters = (all / parts.least.max(1)).min(masters as u64);
    all.div_ceil(by_bytes.max(by_masters).max(1)).max(1)
}

/// Returns the hashes at which tablets must be cut so that none is larger than a partition.
pub(crate) fn cuts(tablets: &[Taken], loads: &[u64], target: u64) -> Vec<(TableId, KeyHash)> {
    let mut cuts = Vec::new();
    for (taken, load) in tablets.iter().zip(loads) {
        let TabletRange { table, first, .. } = taken.range;
        // A slightly larger tablet is not cut.
        if *load <= target.saturating_add(target / 8) {
            continue;
        }
        let pieces = u128::from(load.div_ceil(target.max(1)).min(TABLETS_MAX as u64));
        let step = hashes(&taken.range) / pieces;
        if step == 0 {
            continue;
        }
        for piece in 1..pieces {
            let at = u128::from(first.0) + step * piece;
            cuts.push((table, KeyHash(u64::try_from(at).unwrap_or(u64::MAX))));
        }
    }
    cuts
}

/// Packs tablets into partitions of about the target size, the largest partition first.
pub(crate) fn pack(tablets: &[Taken], loads: &[u64], target: u64) -> Vec<(u64, Vec<Taken>)> {
    let mut order: Vec<(u64, Taken)> = loads.iter().copied().zip(tablets.iter().copied()).collect();
    order.sort_by_key(|(load, it)| (std::cmp::Reverse(*load), it.range.table, it.range.first));
    let all = loads.iter().fold(0u64, |sum, it| sum.saturating_add(*it));
    let count = usize::try_from(all.div_ceil(target.max(1))).unwrap_or(usize::MAX);
    let count = count.clamp(1, tablets.len().max(1));
    let most = target.saturating_add(target / 8);
    let mut parts: Vec<(u64, Vec<Taken>)> = vec![(0, Vec::new()); count];
    for (load, taken) in order {
        let least =
            parts.iter_mut().filter(|(_, it)| it.len() < PART_TABLETS).min_by_key(|it| it.0);
        match least {
            Some((sum, part)) if part.is_empty() || sum.saturating_add(load) <= most => {
                *sum = sum.saturating_add(load);
                part.push(taken);
            }
            _ => parts.push((load, vec![taken])),
        }
    }
    parts.retain(|(_, part)| !part.is_empty());
    parts.sort_by_key(|(sum, _)| std::cmp::Reverse(*sum));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use thunderhead_runtime::Random;
    use thunderhead_wire::SegmentId;

    const PARTS: Parts = Parts { least: 32 << 20, bytes: 512 << 20 };

    fn taken(table: u64, first: u64, last: u64) -> Taken {
        let range =
            TabletRange { table: TableId(table), first: KeyHash(first), last: KeyHash(last) };
        Taken { range, since: SegmentId::NONE }
    }

    fn status(taken: &Taken, bytes: u64) -> TabletStatus {
        TabletStatus { range: taken.range, objects: bytes / 1000, bytes }
    }

    fn divided(tablets: &[Taken], statistics: &[TabletStatus], masters: usize) -> Vec<Vec<Taken>> {
        crate::model::divided(tablets, statistics, 1 << 20, masters)
    }

    #[test]
    fn small_tablets_stay_whole_and_large_ones_go_to_all_masters() {
        let tablet = taken(1, 0, u64::MAX);
        let parts = |bytes, masters| divided(&[tablet], &[status(&tablet, bytes)], masters).len();
        assert_eq!(parts(0, 9), 1);
        assert_eq!(parts(PARTS.least * 2 - 1, 9), 1);
        assert_eq!(parts(PARTS.least * 4, 9), 4);
        assert_eq!(parts(PARTS.least * 40, 9), 9);
        assert_eq!(parts(PARTS.bytes, 1), 1);
        assert_eq!(parts(PARTS.bytes * 5, 1), 5);
        assert_eq!(divided(&[tablet], &[], 9).len(), 1, "a log of a megabyte");
        let many: Vec<_> = (0..1000).map(|table| taken(table, 0, u64::MAX)).collect();
        let parts = divided(&many, &[], 9);
        assert!(parts.iter().all(|it| it.len() <= PART_TABLETS) && parts.len() == 4);
        // Objects count too.
        let small = TabletStatus { range: tablet.range, objects: 9_000_000, bytes: 1 };
        assert_eq!(divided(&[tablet], &[small], 1).len(), 3);
    }

    #[test]
    fn the_expected_size_of_a_part_is_its_share() {
        let half = taken(1, 0, u64::MAX / 2);
        let all = TabletStatus { range: TabletRange::whole(TableId(1)), objects: 1000, bytes: 64 };
        let found = expected(&[half, taken(2, 0, 9)], &[all]);
        assert_eq!(found, [TabletStatus { range: half.range, objects: 500, bytes: 32 }]);
    }

    #[test]
    fn partitions_have_every_hash_once_and_a_bounded_size() {
        for seed in 0..500 {
            let mut random = Random::from_seed(seed);
            let mut tablets = Vec::new();
            for table in 0..random.within(1..20) {
                let mut at = 0u64;
                loop {
                    let last = at.saturating_add(random.magnitude(1..u64::MAX));
                    tablets.push(taken(table, at, last));
                    if last == u64::MAX || random.chance(0.4) {
                        break;
                    }
                    at = last + 1;
                }
            }
            let mut statistics = Vec::new();
            for tablet in &tablets {
                if random.chance(0.9) {
                    statistics.push(status(tablet, random.magnitude(1..4 << 30)));
                }
            }
            let masters = random.within(1..12) as usize;
            let before = loads(&tablets, &statistics, 1 << 30);
            let parts = divided(&tablets, &statistics, masters);
            let target = target(&before, masters, PARTS);
            assert!(target <= PARTS.bytes.max(1), "seed {seed}");
            let all: u64 = before.iter().sum();
            let fewest = (all / PARTS.least).min(masters as u64).max(1);
            // Hashes of a very narrow range cannot be cut as finely.
            let are_wide = tablets.iter().all(|it| hashes(&it.range) > 1 << 40);
            if are_wide && !statistics.is_empty() {
                assert!(parts.len() as u64 >= fewest, "seed {seed}: {} < {fewest}", parts.len());
                for part in &parts {
                    let sum: u64 = loads(part, &statistics, 0).iter().sum();
                    assert!(sum <= PARTS.bytes + PARTS.bytes / 4, "seed {seed}: {sum}");
                }
            }
            let mut there: Vec<TabletRange> = parts.concat().iter().map(|it| it.range).collect();
            there.sort_by_key(|it| (it.table, it.first));
            let mut joined: Vec<TabletRange> = Vec::new();
            for range in there {
                match joined.last_mut() {
                    Some(old)
                        if old.table == range.table
                            && old.last.0.checked_add(1) == Some(range.first.0) =>
                    {
                        old.last = range.last;
                    }
                    _ => joined.push(range),
                }
            }
            let mut expected: Vec<TabletRange> = Vec::new();
            for tablet in &tablets {
                match expected.last_mut() {
                    Some(old) if old.table == tablet.range.table => old.last = tablet.range.last,
                    _ => expected.push(tablet.range),
                }
            }
            assert_eq!(joined, expected, "seed {seed}");
        }
    }
}
