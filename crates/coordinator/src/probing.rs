//! How often servers are asked whether they are there, and in which order: the same for those who
//! ask each other and for the coordinator.

use std::collections::BTreeSet;
use std::time::Duration;
use thunderhead_runtime::Random;
use thunderhead_wire::ServerId;

/// How long a server has at least before it is given up; more where answers have more time.
const CHECK_MIN: Duration = Duration::from_millis(250);

/// How it is found out that servers are not there any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probing {
    /// How often one server is asked. Zero: never, and nobody is ever given up unasked.
    pub interval: Duration,
    /// How long it has for its answer before it is suspected.
    pub timeout: Duration,
}

impl Default for Probing {
    fn default() -> Self {
        Probing { interval: Duration::from_millis(100), timeout: Duration::from_millis(150) }
    }
}

impl Probing {
    /// Nobody is asked.
    pub const OFF: Probing = Probing { interval: Duration::ZERO, timeout: Duration::ZERO };

    /// Whether anybody is asked.
    #[must_use]
    pub fn is_on(&self) -> bool {
        !self.interval.is_zero()
    }

    /// How long a server that is suspected has in all before it is given up: at least a quarter of a
    /// second, and two answers' time.
    #[must_use]
    pub fn check(&self) -> Duration {
        CHECK_MIN.max(self.timeout.saturating_mul(2))
    }

    /// How long to wait before the next one is asked: a quarter more or less, so that those who ask do
    /// not fall into step.
    #[must_use]
    pub fn pause(&self, random: &mut Random) -> Duration {
        self.interval.mul_f64(0.75 + random.fraction() / 2.0)
    }
}

/// The order in which servers are asked: at random, but each once before any a second time. So with
/// few servers the longest time until a certain one is asked has a bound, and with many it is as if
/// each were drawn by itself.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    /// Who is left in this round.
    left: Vec<ServerId>,
}

impl Rounds {
    /// Who is asked next, of those that are there.
    pub fn next(&mut self, random: &mut Random, there: &BTreeSet<ServerId>) -> Option<ServerId> {
        self.left.retain(|server| there.contains(server));
        if self.left.is_empty() {
            self.left.extend(there);
        }
        if self.left.is_empty() {
            return None;
        }
        let number = random.below(self.left.len() as u64) as usize;
        Some(self.left.swap_remove(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_asked_once_in_a_round_and_who_is_gone_is_not() {
        let mut random = Random::from_seed(7);
        let mut there: BTreeSet<ServerId> = (1..=9).map(ServerId).collect();
        let mut rounds = Rounds::default();
        let mut orders = BTreeSet::new();
        for _ in 0..20 {
            let order: Vec<_> = (0..9).filter_map(|_| rounds.next(&mut random, &there)).collect();
            assert_eq!(order.iter().copied().collect::<BTreeSet<_>>(), there);
            orders.insert(order);
        }
        assert!(orders.len() > 15, "the order is another one each time");
        let first = rounds.next(&mut random, &there).expect("there are some");
        there.retain(|it| *it == first || *it == ServerId(10));
        assert_eq!(rounds.next(&mut random, &BTreeSet::new()), None);
        there.insert(ServerId(10));
        let both: BTreeSet<_> = (0..2).filter_map(|_| rounds.next(&mut random, &there)).collect();
        assert_eq!(both, there);
    }

    #[test]
    fn pauses_are_about_the_interval() {
        let mut random = Random::from_seed(7);
        let probing = Probing::default();
        assert!(probing.is_on() && !Probing::OFF.is_on());
        let pauses: Vec<_> = (0..100).map(|_| probing.pause(&mut random)).collect();
        let bounds = Duration::from_millis(75)..=Duration::from_millis(125);
        assert!(pauses.iter().all(|pause| bounds.contains(pause)));
        assert!(pauses.iter().max() > pauses.iter().min());
    }
}
