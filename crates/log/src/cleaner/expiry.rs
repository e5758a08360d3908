//! Looks through segments for items that have expired, and queues them for the log's thread, which
//! removes them ([`expired`](crate::append::expired)).
//!
//! A scan reads a whole segment, so it must be worth it. A segment is looked through when its first
//! item expires, and after that not before a sixteenth of it can have expired since, or all that is
//! left. So each segment is scanned some twenty times at most.

use crate::append::candidates::{Candidate, Candidates};
use crate::append::expired::ExpiredItem;
use crate::append::shared::Shared;
use crate::format::entry::{DEAD, Frame, Kind};
use crate::memory::Memory;
use crate::memory::object::Located;
use crate::memory::segment::Segment;
use std::sync::atomic::Ordering;
use thunderhead_wire::{Attributes, Timestamp};

/// The part of a segment that must have expired since the last scan.
const WORTH: usize = 16;

/// Items that may wait for the log's thread. It removes some thousands in a millisecond, so more
/// would only be found again elsewhere.
const WAITING_MAX: usize = 1 << 17;

impl Candidates {
    /// Takes the segment whose next look was due first, if any is due.
    pub(super) fn pick_for_expiry(&mut self, shared: &Shared) -> Option<Candidate> {
        let now = Timestamp(shared.time.load(Ordering::Relaxed));
        let is_full = shared.sums.expiring.load(Ordering::Relaxed) >= WAITING_MAX;
        if now == Timestamp::ZERO || is_full {
            return None;
        }
        let due = |candidate: &Candidate| {
            candidate.segment.expires <= now && candidate.segment.expires != Timestamp::LATEST
        };
        let places = self.list.iter().enumerate().filter(|(_, candidate)| due(candidate));
        let (at, _) = places.min_by_key(|(_, candidate)| candidate.segment.expires)?;
        Some(self.list.swap_remove(at))
    }
}

/// The items of a segment that are not marked dead, with their attributes.
pub(super) fn items<'a>(
    memory: &'a Memory,
    segment: &'a Segment,
) -> impl Iterator<Item = (Located, Attributes)> + 'a {
    let is_alive = |frame: &Frame| frame.flags & DEAD == 0 && Kind::is_item(frame.flags);
    segment.entries(memory).filter(move |(_, frame)| is_alive(frame)).map(|(at, frame)| {
        let item = Located::of_item(memory, at, &frame);
        let (located, extras) = item.expect("an item of ours decodes");
        (located, extras.attributes)
    })
}

/// Queues the items of a segment that have expired, and sets the time of its next look.
pub(super) fn look(shared: &Shared, candidate: &mut Candidate) {
    let now = Timestamp(shared.time.load(Ordering::Relaxed));
    let (mut found, mut later) = (Vec::new(), Vec::new());
    for (located, Attributes { expires, .. }) in items(&shared.memory, &candidate.segment) {
        if expires != Timestamp::ZERO && expires <= now {
            found.push(ExpiredItem::of(&shared.memory, &located));
        } else if expires != Timestamp::ZERO {
            later.push((expires, located.entry_bytes()));
        }
    }
    candidate.segment.expires = next_look(&mut later, candidate.segment.length / WORTH);
    if !found.is_empty() {
        shared.sums.expiring.fetch_add(found.len(), Ordering::Relaxed);
        shared.expired.push(found);
    }
}

/// The time at which so many bytes have expired, or all of them if there are fewer.
fn next_look(later: &mut [(Timestamp, usize)], worth: usize) -> Timestamp {
    later.sort_unstable();
    let mut sum = 0;
    let enough = later.iter().find(|(_, bytes)| {
        sum += bytes;
        sum >= worth
    });
    enough.or(later.last()).map_or(Timestamp::LATEST, |(expires, _)| *expires)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_look_waits_until_a_sixteenth_has_expired_or_all() {
        let at = |time| Timestamp(time);
        let next = |later: &[(u64, usize)], worth| {
            let mut later: Vec<_> = later.iter().map(|(time, bytes)| (at(*time), *bytes)).collect();
            next_look(&mut later, worth)
        };
        assert_eq!(next(&[], 10), Timestamp::LATEST);
        assert_eq!(next(&[(9, 4), (7, 4), (8, 4)], 8), at(8));
        assert_eq!(next(&[(9, 4), (7, 4), (8, 4)], 9), at(9));
        assert_eq!(next(&[(9, 4), (7, 4), (8, 4)], 90), at(9));
    }
}
