//! When what was written goes to the backups, where that takes them long: a disk's round takes as long for one update
//! as for twenty.
//!
//! Clients that a round has answered send their next updates as soon as they hear of it. If the next round began
//! with the first of these, all others would wait for two rounds; two clients would take turns for ever. So what is
//! to be sent is held until as many wait as did, answered or not, when the round was over: for as long as the
//! shortest rounds take, at most. One client is never held up, and nobody is where answers come fast, or where what
//! waits is so much that it takes the disk long by itself.
//!
//! Where that does not pay (those who were answered do not come again at once), it is not tried the next time, then
//! the next two times, and so on. It pays if the time that those lose who are held up is no more than what those gain
//! who come with them: a round each.

use std::time::Duration;
use thunderhead_runtime::Time;

/// Rounds that are shorter are not worth it.
const ROUND_MIN: Duration = Duration::from_micros(100);

/// The longest that anything is held.
const HOLD_MAX: Duration = Duration::from_millis(1);

/// More than this is not held.
const BYTES_MAX: u32 = 256 << 10;

/// It is tried again after it was left out so often at most, as a power of two.
const MISSES_MAX: u32 = 6;

/// How many answers wait for backups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Awaited {
    /// All of them, those included that are about to be sent.
    pub all: usize,
    /// Of these, those that wait for more than what is durable.
    pub beyond: usize,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// What the shortest rounds take; none has been seen yet.
    least: Option<Duration>,
    /// A round was over, and nobody has looked how many wait.
    is_over: bool,
    awaited: Awaited,
    hold: Option<Hold>,
    /// So often it did not pay, and so often it is still to be left out for that.
    misses: u32,
    left_out: u32,
}

/// Something may be held.
#[derive(Clone, Copy, Debug)]
struct Hold {
    until: Time,
    expected: usize,
    /// When there was something for the first time, and how many waited for it.
    first: Option<(Time, usize)>,
}

impl Gathering {
    /// A round that began then was answered.
    pub(super) fn answered(&mut self, now: Time, sent: Time) {
        let took = now.since(sent);
        // It forgets, for disks change.
        self.least = Some(self.least.map_or(took, |least| took.min(least + least / 64)));
        (self.is_over, self.hold) = (true, None);
    }

    /// So many answers wait now.
    pub(super) fn awaiting(&mut self, now: Time, awaited: Awaited) {
        self.awaited = awaited;
        if !std::mem::take(&mut self.is_over) || awaited.beyond >= awaited.all {
            return;
        }
        let Some(least) = self.least.filter(|least| *least >= ROUND_MIN) else { return };
        if self.left_out > 0 {
            self.left_out -= 1;
            return;
        }
        let until = now + least.min(HOLD_MAX);
        self.hold = Some(Hold { until, expected: awaited.all, first: None });
    }

    /// Until when so many bytes, which could be sent, are held.
    pub(super) fn held(&mut self, now: Time, bytes: u32) -> Option<Time> {
        let hold = self.hold.as_mut()?;
        let waiting = self.awaited.beyond;
        if bytes > BYTES_MAX || waiting >= hold.expected || now >= hold.until {
            return None;
        }
        hold.first.get_or_insert((now, waiting));
        Some(hold.until)
    }

    /// They were sent.
    pub(super) fn sent(&mut self, now: Time) {
        let Some(Hold { first: Some((first, waited)), .. }) = self.hold.take() else { return };
        let gained = self.awaited.beyond.saturating_sub(waited) as u128;
        let lost = waited as u128 * now.since(first).as_nanos();
        if gained * self.least.unwrap_or_default().as_nanos() >= lost {
            self.misses = 0;
        } else {
            self.left_out = 1 << self.misses;
            self.misses = (self.misses + 1).min(MISSES_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Duration = Duration::from_micros(200);

    fn at(micros: u64) -> Time {
        Time(micros * 1000)
    }

    /// After a round of 200 µs that was over at the first millisecond, with so many answers.
    fn after_a_round(all: usize, beyond: usize) -> Gathering {
        let mut gathering = Gathering::default();
        gathering.answered(at(1000), at(800));
        gathering.awaiting(at(1000), Awaited { all, beyond });
        gathering
    }

    #[test]
    fn the_others_are_waited_for_but_not_for_long() {
        let mut gathering = after_a_round(16, 4);
        assert_eq!(gathering.held(at(1000), 500), Some(at(1200)));
        gathering.awaiting(at(1040), Awaited { all: 15, beyond: 15 });
        assert_eq!(gathering.held(at(1040), 2000), Some(at(1200)));
        gathering.awaiting(at(1050), Awaited { all: 16, beyond: 16 });
        assert_eq!(gathering.held(at(1050), 2200), None, "all are there");

        let mut gathering = after_a_round(16, 4);
        assert_eq!(gathering.held(at(1199), 500), Some(at(1200)));
        assert_eq!(gathering.held(at(1200), 500), None, "they do not come");
    }

    #[test]
    fn one_client_is_not_held_up_and_neither_is_anybody_for_whom_a_round_is_short() {
        let mut alone = after_a_round(1, 0);
        alone.awaiting(at(1010), Awaited { all: 1, beyond: 1 });
        assert_eq!(alone.held(at(1010), 100), None);

        let mut fast = Gathering::default();
        fast.answered(at(1000), at(950));
        fast.awaiting(at(1000), Awaited { all: 16, beyond: 4 });
        assert_eq!(fast.held(at(1000), 100), None);

        let mut first = Gathering::default();
        first.awaiting(at(1000), Awaited { all: 16, beyond: 16 });
        assert_eq!(first.held(at(1000), 100), None, "no round is over");
    }

    #[test]
    fn what_takes_long_by_itself_is_not_held() {
        assert_eq!(after_a_round(16, 4).held(at(1000), BYTES_MAX + 1), None);
    }

    #[test]
    fn where_it_does_not_pay_it_is_tried_ever_less_often() {
        let mut gathering = Gathering::default();
        let (mut now, mut held) = (1_000_000, Vec::new());
        for round in 0..200 {
            now += 200;
            gathering.answered(at(now), at(now - 200));
            gathering.awaiting(at(now), Awaited { all: 2, beyond: 1 });
            if let Some(until) = gathering.held(at(now), 100) {
                held.push(round);
                now = until.0 / 1000;
            }
            // Who was answered does not come again.
            gathering.sent(at(now));
        }
        assert_eq!(held, [0, 2, 5, 10, 19, 36, 69, 134, 199]);
    }

    #[test]
    fn two_clients_that_took_turns_come_together() {
        let mut gathering = after_a_round(2, 1);
        assert!(gathering.held(at(1000), 100).is_some());
        gathering.awaiting(at(1020), Awaited { all: 2, beyond: 2 });
        assert_eq!(gathering.held(at(1020), 200), None);
        gathering.sent(at(1020));
        assert_eq!((gathering.misses, gathering.left_out), (0, 0), "it paid");
    }

    #[test]
    fn what_a_round_takes_is_learned_anew() {
        let mut gathering = Gathering::default();
        gathering.answered(at(1000), at(800));
        for _ in 0..200 {
            gathering.answered(at(5000), at(1000));
        }
        assert!(gathering.least > Some(10 * ROUND), "{gathering:?}");
        gathering.answered(at(1000), at(800));
        assert_eq!(gathering.least, Some(ROUND));
    }
}
