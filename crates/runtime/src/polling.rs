//! Decides whether an idle reactor polls again at once or sleeps.
//!
//! Waking a thread takes tens of microseconds here. A poll takes a tenth of one, and a whole core.
//! The pacer spins for a *budget* after the last work and then sleeps. The budget adapts. If work
//! comes so soon after the reactor fell asleep that a little more spinning would have caught it,
//! the budget rises to that length. If work comes later than any budget allows, the budget is
//! halved. So a server under load never sleeps, and a rarely used one hardly spins.
//!
//! Plain logic with time as an argument; the os world's loop asks it after each turn.

use crate::time::Time;
use std::time::Duration;

/// The way to spend idle time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polling {
    /// Always spin: lowest latency.
    Always,
    /// Spin for an adaptive time of at most this, then sleep.
    Adaptive(Duration),
    /// Sleep at once: lowest power.
    Never,
}

impl Default for Polling {
    fn default() -> Self {
        Polling::Adaptive(Duration::from_micros(100))
    }
}

impl std::str::FromStr for Polling {
    type Err = String;

    fn from_str(text: &str) -> Result<Polling, String> {
        match text {
            "always" => Ok(Polling::Always),
            "adaptive" => Ok(Polling::default()),
            "never" => Ok(Polling::Never),
            other => Err(format!("{other:?} is not one of: always, adaptive, never")),
        }
    }
}

/// The use of a reactor's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time in turns that did some work.
    pub busy: Duration,
    /// Time in turns without work.
    pub spinning: Duration,
    /// Time asleep.
    pub blocked: Duration,
    /// How often it fell asleep.
    pub sleeps: u64,
}

/// The shortest budget: about the cost of falling asleep.
const BUDGET_MIN: Duration = Duration::from_micros(4);

/// How long a thread takes to wake up, about. Work that wakes a reactor came that long before.
const WAKING: Duration = Duration::from_micros(25);

/// How long a reactor spins before it yields its core, and how often it yields after that. At this
/// rate the cost of the kernel calls is not noticeable.
const TURNS_OF_OTHERS: Duration = Duration::from_micros(10);

/// Decides between spinning and sleeping, and counts the time.
#[derive(Debug)]
pub struct Pacer {
    polling: Polling,
    budget: Duration,
    /// The end of the last turn that did some work.
    last_work: Time,
    /// The time up to which `usage` counts.
    counted: Time,
    /// The end of the last sleep, until a turn does some work.
    woke: Option<Time>,
    /// Whether a gap that is a little longer than the longest budget may be a shorter one and the
    /// time to wake up.
    is_hopeful: bool,
    /// The time of the last yield.
    yielded: Time,
    usage: Usage,
}

impl Pacer {
    /// Returns a pacer that begins now.
    #[must_use]
    pub fn new(polling: Polling, now: Time) -> Pacer {
        let budget = match polling {
            Polling::Adaptive(most) => most,
            _ => Duration::ZERO,
        };
        let usage = Usage::default();
        Pacer {
            polling,
            budget,
            last_work: now,
            counted: now,
            woke: None,
            is_hopeful: true,
            yielded: now,
            usage,
        }
    }

    /// Returns the number of consecutive idle turns for one reading of the clock. More turns find
    /// new work sooner.
    #[inline]
    #[must_use]
    pub fn idle_turns(&self) -> u32 {
        if self.polling == Polling::Never { 1 } else { 4 }
    }

    /// Counts a turn that has ended. Returns whether to sleep now.
    #[inline]
    pub fn turn_ended(&mut self, now: Time, did_something: bool) -> bool {
        let (began, took) = (self.counted, now.since(self.counted));
        self.counted = now;
        if did_something {
            self.usage.busy += took;
            if let Some(woke) = self.woke.take() {
                // The turn that does the work may be long, and is no part of the gap before it.
                let gap_end = if woke == began { woke } else { now };
                self.adapt(gap_end.since(self.last_work));
            }
            self.last_work = now;
            return false;
        }
        self.usage.spinning += took;
        match self.polling {
            Polling::Always => false,
            Polling::Never => true,
            Polling::Adaptive(_) => now.since(self.last_work) >= self.budget,
        }
    }

    /// Whether to yield the core now, between two turns without work: another thread of this
    /// process may be waiting for it. With fewer cores than threads, a spinning reactor keeps those
    /// threads from the very work that it waits for. The kernel would take the core away only at
    /// one of its ticks, some milliseconds later.
    #[inline]
    pub fn lets_others(&mut self, now: Time) -> bool {
        let lets = now.since(self.last_work.max(self.yielded)) >= TURNS_OF_OTHERS;
        if lets {
            self.yielded = now;
        }
        lets
    }

    /// Counts the sleep since the last turn.
    pub fn slept(&mut self, now: Time) {
        self.usage.blocked += now.since(self.counted);
        self.usage.sleeps += 1;
        self.counted = now;
        self.woke = Some(now);
    }

    /// Adapts the budget after a gap that included a sleep.
    fn adapt(&mut self, gap: Duration) {
        let Polling::Adaptive(most) = self.polling else { return };
        let is_near = most < gap && gap <= most + WAKING;
        // If it spun as long as it may, the work did come later than that. It hopes again when the
        // gaps change.
        self.is_hopeful = if is_near { self.is_hopeful && self.budget < most } else { true };
        self.budget = if gap <= most || (is_near && self.is_hopeful) {
            (gap + gap / 2).clamp(BUDGET_MIN.min(most), most)
        } else {
            (self.budget / 2).max(BUDGET_MIN.min(most))
        };
    }

    /// Returns the use of the time so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(count: u64) -> Duration {
        Duration::from_micros(count)
    }

    /// Simulates work that comes every `gap`. Returns the share of the time spent spinning.
    fn spinning_share(polling: Polling, gap: Duration) -> f64 {
        let mut now = Time(0);
        let mut pacer = Pacer::new(polling, now);
        for _ in 0..1000 {
            let next = now + gap;
            while now < next {
                now = now + us(1);
                if pacer.turn_ended(now, false) {
                    now = now.max(next);
                    pacer.slept(now);
                }
            }
            now = now + us(1);
            pacer.turn_ended(now, true);
        }
        let Usage { busy, spinning, blocked, .. } = pacer.usage();
        assert_eq!(busy + spinning + blocked, now.since(Time(0)), "no time is lost");
        spinning.as_secs_f64() / now.since(Time(0)).as_secs_f64()
    }

    #[test]
    fn a_reactor_spins_while_work_comes_often_and_sleeps_when_it_does_not() {
        let adaptive = Polling::Adaptive(us(50));
        assert!(spinning_share(adaptive, us(20)) > 0.9);
        for too_long in [51, 52, 60, 70, 75, 76, 80] {
            let share = spinning_share(adaptive, us(too_long));
            assert!(share < 0.1, "{share} of gaps of {too_long} us, which it cannot catch");
        }
        assert!(spinning_share(adaptive, us(1000)) < 0.01);
        assert!(spinning_share(Polling::Always, us(1000)) > 0.99);
        assert!(spinning_share(Polling::Never, us(20)) < 0.1);
    }

    #[test]
    fn a_spinning_reactor_yields_at_intervals() {
        let mut pacer = Pacer::new(Polling::Always, Time(0));
        let lets = |pacer: &mut Pacer, at| {
            pacer.turn_ended(Time(0) + us(at), false);
            pacer.lets_others(Time(0) + us(at))
        };
        let all: Vec<u64> = (1..=45).filter(|at| lets(&mut pacer, *at)).collect();
        assert_eq!(all, [10, 20, 30, 40]);
        pacer.turn_ended(Time(0) + us(46), true);
        assert!(!lets(&mut pacer, 51) && lets(&mut pacer, 56), "not right after some work");
    }

    #[test]
    fn a_long_turn_and_a_slow_wake_do_not_make_a_gap_look_longer() {
        let mut pacer = Pacer::new(Polling::Adaptive(us(100)), Time(0));
        let mut now = Time(0);
        // A long break makes the reactor sleep. Then work comes 90 us after the last.
        for gap in [5000, 5000, 5000, 90] {
            now = now + us(gap) + us(20);
            pacer.slept(now);
            now = now + us(60);
            pacer.turn_ended(now, true);
        }
        assert!(!pacer.turn_ended(now + us(90), false), "it spins for 90 us again");
    }

    #[test]
    fn a_reactor_that_has_learnt_to_sleep_learns_to_spin_again() {
        let mut pacer = Pacer::new(Polling::Adaptive(us(50)), Time(0));
        let mut now = Time(0);
        for gap in [1000, 1000, 1000, 1000, 1000, 30, 30] {
            now = now + us(gap);
            pacer.slept(now);
            pacer.turn_ended(now, true);
        }
        assert!(!pacer.turn_ended(now + us(30), false), "it spins for more than 30 us again");
    }
}
