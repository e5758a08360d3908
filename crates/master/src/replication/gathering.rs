//! Delays messages to slow backups, so that more updates share a round. A disk's round takes as
//! long for one update as for twenty.
//!
//! Clients send their next updates as soon as a round has answered the previous ones. If the next
//! round began with the first of these updates, all other clients would wait for two rounds, and
//! two clients would alternate for ever. So the shard holds the bytes to be sent until as many
//! answers wait as did at the end of the round, answered or not, or until no update has come for a
//! while. A hold lasts at most as long as the shortest rounds take. A single waiting answer is
//! never held. Nothing is held if answers come fast, or if the waiting bytes alone take the disk
//! long.
//!
//! If a hold does not pay (the answered clients do not send again at once), the shard leaves out
//! the next hold, then the next two, then four, and so on. Held updates lose the time of the hold.
//! Updates that come during the hold gain the rest of a round: without it they would have waited
//! for the end of the first update's round, and then for one of their own.
//!
//! The gain, with two synced copies on a machine with two cores, medians of five runs each: 1.6
//! times as many writes from two clients (10.3 beside 6.5 K/s), 1.4 times as many from sixteen
//! (56.5 beside 40.7 K/s). `thunderhead-bench write --replicas 2 --synced --clients 2 --depth 1`
//! measures it, and the same with `--without gathering`.

use super::MESSAGE_BYTES;
use std::time::Duration;
use thunderhead_runtime::Time;
use thunderhead_runtime::optimizations::Optimization;

/// Rounds that are shorter are not worth it.
const ROUND_MIN: Duration = Duration::from_micros(100);

/// The longest hold.
const HOLD_MAX: Duration = Duration::from_millis(1);

/// A hold ends when no update has come for this part of the longest hold.
const PATIENCE: u32 = 4;

/// More than this is not held: it fills a message.
const BYTES_MAX: u32 = MESSAGE_BYTES;

/// The binary logarithm of the most holds that are left out in a row.
const MISSES_MAX: u32 = 6;

/// How many answers wait for backups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AwaitedAnswers {
    /// All of them, including the answers that are durable and about to be sent.
    pub all: usize,
    /// The number that wait beyond the durable position.
    pub beyond: usize,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// The duration of the last round and of the shortest ones, or `None` before the first.
    rounds: Option<(Duration, Duration)>,
    /// A round is over, and the number of waiting answers was not read since.
    is_over: bool,
    awaited: AwaitedAnswers,
    hold: Option<Hold>,
    /// How often in a row a hold did not pay, and how many holds remain to be left out for that.
    misses: u32,
    left_out: u32,
    /// A measurement has turned it off.
    is_off: bool,
}

/// A hold that may delay messages.
#[derive(Clone, Copy, Debug)]
struct Hold {
    until: Time,
    expected: usize,
    /// The hold ends when no update has come for this long.
    patience: Duration,
    /// The time of the first update after the round, and how many answers waited then.
    first: Option<(Time, usize)>,
    /// The time of the latest update, and how many answers waited then.
    last: (Time, usize),
}

impl Gathering {
    pub(super) fn new() -> Gathering {
        Gathering { is_off: !Optimization::Gathering.is_on(), ..Gathering::default() }
    }

    /// Takes the answer to a round that began at `sent` and advanced the durable position.
    pub(super) fn answered(&mut self, now: Time, sent: Time) {
        let took = now.since(sent);
        // Old durations lose weight, because the speed of a disk changes.
        let longer = |least: Duration| least + (least / 64).max(Duration::from_micros(1));
        let least = self.rounds.map_or(took, |(_, least)| took.min(longer(least)));
        self.rounds = Some((took, least));
        self.is_over = true;
    }

    /// Learns how many answers wait now.
    pub(super) fn awaiting(&mut self, now: Time, awaited: AwaitedAnswers) {
        self.awaited = awaited;
        if let Some(Hold { first, last, .. }) = &mut self.hold {
            // Another backup may have brought some of them their answers, so these clients may send
            // again.
            last.1 = last.1.min(awaited.beyond);
            if let Some((_, waited)) = first {
                *waited = (*waited).min(awaited.beyond);
            }
        }
        if !std::mem::take(&mut self.is_over) {
            return;
        }
        // With several backups one may end its last round while bytes are held for another.
        if self.hold.is_some_and(|hold| hold.first.is_some()) {
            return;
        }
        self.hold = None;
        let Some((_, least)) = self.rounds.filter(|(_, least)| *least >= ROUND_MIN) else { return };
        if awaited.beyond >= awaited.all || self.is_off {
            return;
        }
        if self.left_out > 0 {
            self.left_out -= 1;
            return;
        }
        let most = least.min(HOLD_MAX);
        self.hold = Some(Hold {
            until: now + most,
            expected: awaited.all,
            patience: most / PATIENCE,
            first: None,
            last: (now, awaited.beyond),
        });
    }

    /// Returns the time until which this many bytes are held instead of sent.
    pub(super) fn held(&mut self, now: Time, bytes: u32) -> Option<Time> {
        let hold = self.hold.as_mut()?;
        let waiting = self.awaited.beyond;
        if waiting > hold.last.1 {
            hold.last = (now, waiting);
        }
        let until = hold.until.min(hold.last.0 + hold.patience);
        if bytes > BYTES_MAX || waiting >= hold.expected || now >= until {
            return None;
        }
        hold.first.get_or_insert((now, waiting));
        Some(until)
    }

    /// Notes that the bytes were sent for another reason: a segment was full, for example.
    pub(super) fn let_go(&mut self) {
        self.hold = None;
    }

    /// Notes that the bytes were sent.
    pub(super) fn sent(&mut self, now: Time) {
        let Some(Hold { first: Some((first, waited)), .. }) = self.hold.take() else { return };
        if waited == 0 {
            return; // Nobody asked for it.
        }
        let held = now.since(first);
        let round = self.rounds.map_or(Duration::ZERO, |(took, _)| took);
        let came = self.awaited.beyond.saturating_sub(waited) as u128;
        if came * round.saturating_sub(held).as_nanos() >= waited as u128 * held.as_nanos() {
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
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;
    use thunderhead_runtime::Random;

    const ROUND: Duration = Duration::from_micros(200);

    fn at(micros: u64) -> Time {
        Time(micros * 1000)
    }

    /// After a round of 200 µs that was over at the first millisecond, with so many answers.
    fn after_a_round(all: usize, beyond: usize) -> Gathering {
        let mut gathering = Gathering::default();
        gathering.answered(at(1000), at(800));
        gathering.awaiting(at(1000), AwaitedAnswers { all, beyond });
        gathering
    }

    #[test]
    fn the_others_are_waited_for_but_not_for_long() {
        let mut gathering = after_a_round(16, 4);
        assert_eq!(gathering.held(at(1000), 500), Some(at(1050)));
        gathering.awaiting(at(1040), AwaitedAnswers { all: 15, beyond: 15 });
        assert_eq!(gathering.held(at(1040), 2000), Some(at(1090)));
        gathering.awaiting(at(1050), AwaitedAnswers { all: 16, beyond: 16 });
        assert_eq!(gathering.held(at(1050), 2200), None, "all are there");

        let mut gathering = after_a_round(16, 4);
        assert_eq!(gathering.held(at(1049), 500), Some(at(1050)));
        assert_eq!(gathering.held(at(1050), 500), None, "they do not come");

        let mut gathering = after_a_round(16, 4);
        for came in 0..8 {
            let now = at(1000 + 25 * came);
            gathering.awaiting(now, AwaitedAnswers { all: 16, beyond: 4 + came as usize });
            assert!(gathering.held(now, 500).is_some());
        }
        assert_eq!(gathering.held(at(1200), 500), None, "they take too long");
    }

    #[test]
    fn one_client_is_not_held_up_and_neither_is_anybody_for_whom_a_round_is_short() {
        let mut alone = after_a_round(1, 0);
        alone.awaiting(at(1010), AwaitedAnswers { all: 1, beyond: 1 });
        assert_eq!(alone.held(at(1010), 100), None);

        let mut fast = Gathering::default();
        fast.answered(at(1000), at(950));
        fast.awaiting(at(1000), AwaitedAnswers { all: 16, beyond: 4 });
        assert_eq!(fast.held(at(1000), 100), None);

        let mut first = Gathering::default();
        first.awaiting(at(1000), AwaitedAnswers { all: 16, beyond: 16 });
        assert_eq!(first.held(at(1000), 100), None, "no round is over");
    }

    #[test]
    fn bytes_that_take_a_round_by_themselves_are_not_held() {
        assert_eq!(after_a_round(16, 4).held(at(1000), BYTES_MAX + 1), None);
    }

    #[test]
    fn holds_that_do_not_pay_are_tried_ever_less_often() {
        let mut gathering = Gathering::default();
        let (mut now, mut held) = (1_000_000, Vec::new());
        for round in 0..200 {
            now += 200;
            gathering.answered(at(now), at(now - 200));
            gathering.awaiting(at(now), AwaitedAnswers { all: 2, beyond: 1 });
            if let Some(until) = gathering.held(at(now), 100) {
                held.push(round);
                now = until.0 / 1000;
            }
            // Answered clients do not send again.
            gathering.sent(at(now));
        }
        assert_eq!(held, [0, 2, 5, 10, 19, 36, 69, 134, 199]);
    }

    #[test]
    fn two_clients_that_took_turns_come_together() {
        let mut gathering = after_a_round(2, 1);
        assert!(gathering.held(at(1000), 100).is_some());
        gathering.awaiting(at(1020), AwaitedAnswers { all: 2, beyond: 2 });
        assert_eq!(gathering.held(at(1020), 200), None);
        gathering.sent(at(1020));
        assert_eq!((gathering.misses, gathering.left_out), (0, 0), "it paid");
    }

    #[test]
    fn an_answer_of_another_backup_does_not_prolong_a_hold() {
        let mut gathering = after_a_round(16, 4);
        assert_eq!(gathering.held(at(1000), 500), Some(at(1050)));
        gathering.answered(at(1040), at(840));
        gathering.awaiting(at(1040), AwaitedAnswers { all: 8, beyond: 4 });
        assert_eq!(gathering.held(at(1040), 500), Some(at(1050)));
        assert_eq!(gathering.held(at(1050), 500), None);
        gathering.sent(at(1050));
        assert_eq!(gathering.left_out, 1, "no update came, and four were held up");
    }

    #[test]
    fn an_update_of_a_client_answered_during_the_hold_counts_as_an_arrival() {
        let mut gathering = after_a_round(16, 10);
        assert!(gathering.held(at(1000), 500).is_some());
        gathering.awaiting(at(1020), AwaitedAnswers { all: 10, beyond: 2 });
        gathering.awaiting(at(1040), AwaitedAnswers { all: 10, beyond: 10 });
        assert_eq!(gathering.held(at(1040), 700), Some(at(1090)));
        gathering.sent(at(1090));
        assert_eq!((gathering.misses, gathering.left_out), (0, 0), "eight came, two were held up");
    }

    #[test]
    fn bytes_sent_for_another_reason_do_not_count_as_a_miss() {
        let mut gathering = after_a_round(16, 4);
        assert!(gathering.held(at(1000), 500).is_some());
        gathering.let_go();
        gathering.answered(at(2000), at(1800));
        gathering.awaiting(at(2000), AwaitedAnswers { all: 16, beyond: 4 });
        assert_eq!(gathering.held(at(2000), 500), Some(at(2050)), "the next round is as any");
    }

    #[test]
    fn bytes_without_waiting_answers_do_not_count_as_a_miss() {
        let mut gathering = after_a_round(16, 0);
        gathering.misses = 3;
        assert!(gathering.held(at(1000), 500).is_some());
        gathering.sent(at(1200));
        assert_eq!((gathering.misses, gathering.left_out), (3, 0));
    }

    #[test]
    fn the_duration_of_a_round_is_learned_anew() {
        let mut gathering = Gathering::default();
        gathering.answered(at(1000), at(1000));
        for _ in 0..600 {
            gathering.answered(at(5000), at(1000));
        }
        assert!(gathering.rounds.unwrap().1 > 10 * ROUND, "{gathering:?}");
        gathering.answered(at(1000), at(800));
        assert_eq!(gathering.rounds.unwrap().1, ROUND);
    }

    /// The next arrivals, with their times.
    type Arrivals<'a> = &'a mut dyn FnMut(&mut BinaryHeap<Reverse<u64>>, Time);

    /// Simulates updates that come to a backup whose rounds have a fixed duration for any
    /// size. Returns the average duration of an update. `answered` is called for each.
    fn simulated(
        is_used: bool,
        mut coming: BinaryHeap<Reverse<u64>>,
        next: Arrivals<'_>,
    ) -> Duration {
        let mut gathering = Gathering::default();
        let (mut waiting, mut under_way): (Vec<Time>, Vec<Time>) = (Vec::new(), Vec::new());
        let (mut sent, mut took, mut count) = (Time(0), Duration::ZERO, 0);
        for micros in 0..400_000 {
            let now = at(micros);
            while coming.peek().is_some_and(|it| at(it.0) <= now) {
                coming.pop();
                waiting.push(now);
            }
            let is_over = !under_way.is_empty() && now.since(sent) >= ROUND;
            if is_over {
                gathering.answered(now, sent);
            }
            if is_used {
                let all = waiting.len() + under_way.len();
                let beyond = if is_over { waiting.len() } else { all };
                gathering.awaiting(now, AwaitedAnswers { all, beyond });
            }
            if is_over {
                for came in under_way.drain(..) {
                    took += now.since(came);
                    count += 1;
                    next(&mut coming, now);
                }
            }
            let may = under_way.is_empty() && !waiting.is_empty();
            if may && gathering.held(now, 500).is_none() {
                gathering.sent(now);
                std::mem::swap(&mut waiting, &mut under_way);
                sent = now;
            }
        }
        took / count
    }

    #[test]
    fn clients_that_come_again_wait_for_less_and_those_that_come_when_they_like_for_no_more() {
        // The part of the clients that send again at once; the others do something else first.
        for (at_once, clients) in [(1.0, 2), (1.0, 4), (1.0, 16), (0.8, 16), (0.25, 16), (0.25, 4)]
        {
            let mean = |is_used| {
                let mut random = Random::from_seed(clients);
                let coming = (0..clients).map(|client| Reverse(client * 7)).collect();
                let mut again = |coming: &mut BinaryHeap<Reverse<u64>>, now: Time| {
                    let most = if random.chance(at_once) { 40 } else { 2000 };
                    coming.push(Reverse(now.0 / 1000 + random.within(10..most)));
                };
                simulated(is_used, coming, &mut again)
            };
            let (without, with) = (mean(false), mean(true));
            let allowed = if at_once < 0.5 { without * 21 / 20 } else { without * 4 / 5 };
            assert!(with < allowed, "{clients}, {at_once}: {with:?}, it was {without:?}");
        }
        for a_round in [1, 2, 4, 8, 16, 64] {
            let mut random = Random::from_seed(a_round);
            let count = 2000 * a_round;
            let coming: BinaryHeap<_> =
                (0..count).map(|_| Reverse(random.below(400_000))).collect();
            let mean = |is_used| simulated(is_used, coming.clone(), &mut |_, _| {});
            let (without, with) = (mean(false), mean(true));
            assert!(with < without * 21 / 20, "{a_round}: {with:?}, it was {without:?}");
        }
    }
}
