//! How often servers are probed, and in which order: the same for servers and for the coordinator.

use std::collections::BTreeSet;
use std::time::Duration;
use thunderhead_runtime::Random;
use thunderhead_wire::ServerId;

/// The shortest check before a verdict; longer if probes have more time.
const CHECK_MIN: Duration = Duration::from_millis(250);

/// The settings of failure detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probing {
    /// How often one server is probed. Zero: never, and no server is declared crashed because of
    /// silence.
    pub interval: Duration,
    /// How long a server may take to answer before it is suspected.
    pub timeout: Duration,
}

impl Default for Probing {
    fn default() -> Self {
        Probing { interval: Duration::from_millis(100), timeout: Duration::from_millis(150) }
    }
}

impl Probing {
    /// No server is probed.
    pub const OFF: Probing = Probing { interval: Duration::ZERO, timeout: Duration::ZERO };

    /// Whether servers are probed.
    #[must_use]
    pub fn is_on(&self) -> bool {
        !self.interval.is_zero()
    }

    /// Returns how long a suspected server has in all before it is declared crashed: at least a
    /// quarter of a second, and twice the time of a probe.
    #[must_use]
    pub fn check(&self) -> Duration {
        CHECK_MIN.max(self.timeout.saturating_mul(2))
    }

    /// Returns the pause before the next probe: the interval, a quarter more or less, so that the
    /// probing servers do not fall into step.
    #[must_use]
    pub fn pause(&self, random: &mut Random) -> Duration {
        self.interval.mul_f64(0.75 + random.fraction() / 2.0)
    }
}

/// The order of probes: random, but each server once before any server a second time. So with few
/// servers the longest time until a certain one is probed has a bound. With many it is as if each
/// were drawn independently.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    /// The remaining servers of this round.
    left: Vec<ServerId>,
}

impl Rounds {
    /// Returns the next server to probe, of the servers that are up.
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
    fn each_present_server_is_probed_once_in_a_round() {
        let mut random = Random::from_seed(7);
        let mut there: BTreeSet<ServerId> = (1..=9).map(ServerId).collect();
        let mut rounds = Rounds::default();
        let mut orders = BTreeSet::new();
        for _ in 0..20 {
            let order: Vec<_> = (0..9).filter_map(|_| rounds.next(&mut random, &there)).collect();
            assert_eq!(order.iter().copied().collect::<BTreeSet<_>>(), there);
            orders.insert(order);
        }
        assert!(orders.len() > 15, "the order differs in each round");
        let first = rounds.next(&mut random, &there).expect("some servers are up");
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
