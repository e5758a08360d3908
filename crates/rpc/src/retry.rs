//! The rules for calls that failed, all in one place.
//!
//! - *Moved*: refresh the tablet map, then try the new server; the first time at once.
//! - *Busy, no space*: wait as long as the server asks, and a random time more, so that clients
//!   that were refused together do not return together.
//! - *Waits for its backups*: the same, and after two attempts refresh the tablet map.
//! - *Congested*: wait a little. This holds for every operation, because it was not sent.
//! - *Connection broken or never made*: try again, waiting longer each time.
//! - Any other error is final.
//!
//! No attempt begins after the deadline. An operation that must not be repeated is not sent again
//! once it may have been carried out. This is plain logic, with time and randomness as arguments.

use crate::calls::CallError;
use crate::opcode::Repeat;
use std::time::Duration;
use thunderhead_runtime::backoff::Backoff;
use thunderhead_runtime::{Random, Time};
use thunderhead_wire::{Next, Status};

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Send the request again at this time; if `refresh`, after refreshing the tablet map.
    Again {
        /// The time.
        at: Time,
        /// Whether to refresh the tablet map first.
        refresh: bool,
    },
    /// Report the error.
    GiveUp,
}

/// The history of one operation's attempts.
#[derive(Clone, Debug)]
pub struct Retry {
    repeat: Repeat,
    deadline: Time,
    failures: u32,
}

/// The waits after failures.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(500));

impl Retry {
    /// Returns the history of an operation that has not been tried yet.
    #[must_use]
    pub fn new(repeat: Repeat, deadline: Time) -> Retry {
        Retry { repeat, deadline, failures: 0 }
    }

    /// Decides the next step after an error.
    pub fn decide(&mut self, error: CallError, now: Time, random: &mut Random) -> Decision {
        let first = self.failures == 0;
        self.failures += 1;
        let (wait, refresh) = match error {
            CallError::Refused { status, hint, .. } => match status.next() {
                Next::Refresh => (if first { Duration::ZERO } else { self.backoff(random) }, true),
                Next::Wait => {
                    let asked = Duration::from_micros(u64::from(hint));
                    // A master that was declared crashed waits for backups for ever: another master
                    // may have the tablet.
                    let refresh = status == Status::AwaitingReplicas && self.failures > 2;
                    (asked + self.backoff(random), refresh)
                }
                Next::Take | Next::GiveUp => return Decision::GiveUp,
            },
            // The request was never sent; the server is the right one.
            CallError::Congested => (self.backoff(random), false),
            CallError::Unreachable(_) => (self.backoff(random), true),
            CallError::Broken | CallError::Late if self.repeat == Repeat::Never => {
                return Decision::GiveUp;
            }
            CallError::Broken | CallError::Late => (self.backoff(random), true),
            CallError::UnknownStatus(_) | CallError::TooLong => return Decision::GiveUp,
        };
        let at = now + wait;
        if at >= self.deadline { Decision::GiveUp } else { Decision::Again { at, refresh } }
    }

    /// Returns a random wait whose limit doubles with every failure.
    fn backoff(&self, random: &mut Random) -> Duration {
        BACKOFF.random_wait(self.failures - 1, random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thunderhead_net::Cause;

    const NOW: Time = Time(1_000_000_000);

    fn decide(repeat: Repeat, errors: &[CallError]) -> Decision {
        let mut retry = Retry::new(repeat, NOW + Duration::from_secs(10));
        let mut random = Random::from_seed(1);
        let mut last = Decision::GiveUp;
        for error in errors {
            last = retry.decide(*error, NOW, &mut random);
        }
        last
    }

    #[test]
    fn every_failure_has_its_rule() {
        let moved = CallError::Refused { status: Status::Moved, hint: 0, detail: 0 };
        assert_eq!(decide(Repeat::Never, &[moved]), Decision::Again { at: NOW, refresh: true });
        let busy = CallError::Refused { status: Status::Busy, hint: 300, detail: 0 };
        let Decision::Again { at, refresh: false } = decide(Repeat::Never, &[busy]) else {
            panic!("a refused operation can be sent again, even if it may not be repeated")
        };
        assert!(at > NOW + Duration::from_micros(300));
        let failed = CallError::Refused { status: Status::ConditionFailed, hint: 0, detail: 0 };
        for error in [failed, CallError::TooLong, CallError::UnknownStatus(999)] {
            assert_eq!(decide(Repeat::Safe, &[error]), Decision::GiveUp);
        }
        for error in [CallError::Broken, CallError::Late] {
            assert_eq!(decide(Repeat::Never, &[error]), Decision::GiveUp);
            let again = |repeat| matches!(decide(repeat, &[error]), Decision::Again { .. });
            assert!(again(Repeat::Safe) && again(Repeat::Identified));
        }
        let again = decide(Repeat::Never, &[CallError::Congested]);
        assert!(matches!(again, Decision::Again { refresh: false, .. }), "it was never sent");
        let unreachable = CallError::Unreachable(Cause::Refused);
        let again = decide(Repeat::Never, &[unreachable]);
        assert!(matches!(again, Decision::Again { refresh: true, .. }), "it was never sent");
    }

    #[test]
    fn waits_grow_but_never_beyond_a_limit_or_the_deadline() {
        let errors = [CallError::Broken; 40];
        let Decision::Again { at, .. } = decide(Repeat::Safe, &errors) else { panic!() };
        assert!(at.since(NOW) <= BACKOFF.longest());
        let mut retry = Retry::new(Repeat::Safe, NOW + Duration::from_micros(1));
        let busy = CallError::Refused { status: Status::Busy, hint: 5, detail: 0 };
        assert_eq!(retry.decide(busy, NOW, &mut Random::from_seed(1)), Decision::GiveUp);
    }
}
