//! How the tablets of a master that is gone are divided among those that rebuild them.
//!
//! A partition holds what one master rebuilds in about a second or two: no more than [`Parts::bytes`],
//! where objects count for as much as replaying them takes. There are at least as many as there are
//! masters that can take part, as long as each has [`Parts::least`] to do. Tablets that are larger than a
//! partition are cut by hashes, which are uniform; small ones are put together.
//!
//! What tablets hold is what the log's statistics say. What they do not mention is small, if they
//! mention anything; else the log's bytes are spread evenly.
//!
//! Where the server that is gone has come again its own shards are preferred: only what is too much
//! for one partition goes elsewhere. Where there is no other server nothing is divided, for all of it
//! is rebuilt at one place whatever it is cut into.

use crate::limits::TABLETS_MAX;
use crate::options::Parts;
use thunderhead_wire::control::{TabletStatus, Taken};
use thunderhead_wire::{KeyHash, TableId, TabletRange};

/// An object takes as long as so many bytes.
const OBJECT_BYTES: u64 = 178;

/// Tablets of a partition: what is written of it, and told, stays short.
const PART_TABLETS: usize = 256;

/// How much there is to do for a tablet, in bytes.
fn load(bytes: u64, objects: u64) -> u64 {
    bytes.max(objects.saturating_mul(OBJECT_BYTES))
}

fn hashes(range: &TabletRange) -> u128 {
    u128::from(range.last.0.saturating_sub(range.first.0)) + 1
}

/// A part of something as large as a part of some hashes.
fn share(of: u64, part: u128, whole: u128) -> u64 {
    // Both are at most 2^64, so 32 bits of them suffice, and nothing overflows.
    let (part, whole) = (part >> 16, (whole >> 16).max(1));
    u64::try_from((u128::from(of) * part / whole).min(u128::from(u64::MAX))).unwrap_or(u64::MAX)
}

/// How much there is to do for each tablet, by the statistics of a log of so many bytes.
pub(super) fn loads(tablets: &[Taken], statistics: &[TabletStatus], log_bytes: u64) -> Vec<u64> {
    if statistics.is_empty() {
        let all: u128 = tablets.iter().map(|it| hashes(&it.range) >> 16).sum();
        let of = |it: &Taken| share(log_bytes, hashes(&it.range), all << 16);
        return tablets.iter().map(of).collect();
    }
    let of = |taken: &Taken| sum_of_shares(taken, statistics, |it| load(it.bytes, it.objects));
    tablets.iter().map(of).collect()
}

/// How much there is of each tablet, by the statistics; nothing of what these do not mention.
pub(super) fn expected(tablets: &[Taken], statistics: &[TabletStatus]) -> Vec<TabletStatus> {
    let of = |taken: &Taken| TabletStatus {
        range: taken.range,
        objects: sum_of_shares(taken, statistics, |it| it.objects),
        bytes: sum_of_shares(taken, statistics, |it| it.bytes),
    };
    tablets.iter().map(of).filter(|it| it.objects > 0).collect()
}

/// What a tablet has of something that statistics say of ranges, which is spread evenly in each.
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

/// How much a partition is to have where so many masters take part.
pub(super) fn target(loads: &[u64], masters: usize, parts: Parts) -> u64 {
    let all = loads.iter().fold(0u64, |sum, it| sum.saturating_add(*it));
    let by_bytes = all.div_ceil(parts.bytes.max(1));
    let by_masters = (all / parts.least.max(1)).min(masters as u64);
    all.div_ceil(by_bytes.max(by_masters).max(1)).max(1)
}

/// Where tablets are to be cut so that none is larger than a partition is to be.
pub(super) fn cuts(tablets: &[Taken], loads: &[u64], target: u64) -> Vec<(TableId, KeyHash)> {
    let mut cuts = Vec::new();
    for (taken, load) in tablets.iter().zip(loads) {
        let TabletRange { table, first, .. } = taken.range;
        // A little more than it is to be is no reason.
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

/// Puts tablets together, into partitions of about so much each, the largest partition first.
pub(super) fn pack(tablets: &[Taken], loads: &[u64], target: u64) -> Vec<(u64, Vec<Taken>)> {
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
    fn little_is_not_divided_and_much_goes_to_all() {
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
        // Objects count, too.
        let small = TabletStatus { range: tablet.range, objects: 9_000_000, bytes: 1 };
        assert_eq!(divided(&[tablet], &[small], 1).len(), 3);
    }

    #[test]
    fn what_is_expected_of_parts_is_their_share() {
        let half = taken(1, 0, u64::MAX / 2);
        let all = TabletStatus { range: TabletRange::whole(TableId(1)), objects: 1000, bytes: 64 };
        let found = expected(&[half, taken(2, 0, 9)], &[all]);
        assert_eq!(found, [TabletStatus { range: half.range, objects: 500, bytes: 32 }]);
    }

    #[test]
    fn partitions_hold_everything_once_and_none_too_much() {
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
            // Hashes of a range that is very narrow cannot be cut as finely.
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
