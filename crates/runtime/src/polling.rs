//! Whether a reactor with nothing to do looks again at once, or sleeps.
//!
//! Waking a thread takes tens of microseconds here, looking again takes a tenth of one and a whole
//! core. The pacer spins for a *budget* after the last work and sleeps then. The budget adapts:
//! when work comes so soon after falling asleep that spinning a little longer would have caught
//! it, the budget goes up to what would have; when it comes later than any budget allows, it is
//! halved. A server under load so never sleeps, one that is asked now and then hardly spins.
//!
//! Plain logic with time as an argument; the os world's loop asks it after each turn.

use crate::time::Time;
use std::time::Duration;

/// How to spend idle time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polling {
    /// Spin, whatever it costs: lowest latency.
    Always,
    /// Spin for an adapting time of at most this, then sleep.
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
            other => Err(format!("{other:?} is none of: always, adaptive, never")),
        }
    }
}

/// Where a reactor's time went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// In turns that did something.
    pub busy: Duration,
    /// In turns that found nothing.
    pub spinning: Duration,
    /// Asleep.
    pub blocked: Duration,
    /// How often it fell asleep.
    pub sleeps: u64,
}

/// The shortest budget: about what falling asleep costs by itself.
const BUDGET_MIN: Duration = Duration::from_micros(4);

/// How long a reactor spins before it lets others have a turn who share its core, and how often it
/// does then: what takes a call of the kernel's time at once is no longer noticed.
const TURNS_OF_OTHERS: Duration = Duration::from_micros(10);

/// Decides between spinning and sleeping, and counts the time.
#[derive(Debug)]
pub struct Pacer {
    polling: Polling,
    budget: Duration,
    /// The end of the last turn that did something.
    last_work: Time,
    /// Up to when the time is counted.
    counted: Time,
    slept: bool,
    /// When others were let have a turn.
    yielded: Time,
    usage: Usage,
}

impl Pacer {
    /// A pacer that begins now.
    #[must_use]
    pub fn new(polling: Polling, now: Time) -> Pacer {
        let budget = match polling {
            Polling::Adaptive(most) => most,
            _ => Duration::ZERO,
        };
        let usage = Usage::default();
        Pacer { polling, budget, last_work: now, counted: now, slept: false, yielded: now, usage }
    }

    /// Turns in a row that may find nothing on one reading of the clock: what arrives meanwhile is
    /// found the sooner.
    #[inline]
    #[must_use]
    pub fn idle_turns(&self) -> u32 {
        if self.polling == Polling::Never { 1 } else { 4 }
    }

    /// A turn has ended; says whether to sleep now.
    #[inline]
    pub fn turn_ended(&mut self, now: Time, did_something: bool) -> bool {
        let took = now.since(self.counted);
        self.counted = now;
        if did_something {
            self.usage.busy += took;
            if self.slept {
                self.slept = false;
                self.adapt(now.since(self.last_work));
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

    /// After a turn that found nothing, and before another: whether threads of ours that have work
    /// may be waiting for this core. Whoever spins where there are fewer cores than threads keeps
    /// those from their work that it waits for itself: the kernel would take the core away only
    /// at one of its ticks, some milliseconds later.
    #[inline]
    pub fn lets_others(&mut self, now: Time) -> bool {
        let lets = now.since(self.last_work.max(self.yielded)) >= TURNS_OF_OTHERS;
        if lets {
            self.yielded = now;
        }
        lets
    }

    /// The reactor has slept since its last turn.
    pub fn slept(&mut self, now: Time) {
        self.usage.blocked += now.since(self.counted);
        self.usage.sleeps += 1;
        self.counted = now;
        self.slept = true;
    }

    /// Work came after a gap that a sleep was part of.
    fn adapt(&mut self, gap: Duration) {
        let Polling::Adaptive(most) = self.polling else { return };
        self.budget = if gap <= most {
            (gap + gap / 2).clamp(BUDGET_MIN.min(most), most)
        } else {
            (self.budget / 2).max(BUDGET_MIN.min(most))
        };
    }

    /// Where the time went so far.
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

    /// Work comes every `gap`; says how much of the time was spent spinning.
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
        assert!(spinning_share(adaptive, us(1000)) < 0.01);
        assert!(spinning_share(Polling::Always, us(1000)) > 0.99);
        assert!(spinning_share(Polling::Never, us(20)) < 0.1);
    }

    #[test]
    fn who_spins_lets_others_have_a_turn_now_and_then() {
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
