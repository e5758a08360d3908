//! The delays with which a simulated machine gives its threads the processor.

use std::time::Duration;
use thunderhead_runtime::Random;

/// The shortest delay of a thread.
const SHORTEST: Duration = Duration::from_micros(10);

/// The longest usual delay.
const LONG: Duration = Duration::from_millis(50);

/// The longest delay.
const LONGEST: Duration = Duration::from_secs(1);

/// The probability that a delay may be that long.
const LONGEST_CHANCE: f64 = 0.02;

/// The scheduling of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scheduling {
    /// The probability that a thread is delayed at each of three points: before a turn or a
    /// worker's step, so that timers fire late and messages stay unread; in a turn before it takes
    /// the arrived messages, so that it handles them with a much older reading of the clock; and at
    /// the end of a turn, so that its messages leave long after that reading.
    pub hiccups: f64,
}

impl Scheduling {
    /// Draws the delay of a thread now; usually zero.
    pub(crate) fn hiccup(self, random: &mut Random) -> Duration {
        if self.hiccups <= 0.0 || !random.chance(self.hiccups) {
            return Duration::ZERO;
        }
        let longest = if random.chance(LONGEST_CHANCE) { LONGEST } else { LONG };
        let range = SHORTEST.as_nanos() as u64..longest.as_nanos() as u64;
        Duration::from_nanos(random.magnitude(range))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hiccups_are_of_every_magnitude_and_seldom_long() {
        let mut random = Random::from_seed(1);
        let scheduling = Scheduling { hiccups: 0.5 };
        let held: Vec<Duration> = (0..100_000).map(|_| scheduling.hiccup(&mut random)).collect();
        let count = |from: Duration, to: Duration| {
            held.iter().filter(|held| (from..to).contains(held)).count()
        };
        assert!((45_000..55_000).contains(&count(Duration::ZERO, SHORTEST)));
        for power in 1..4 {
            let from = SHORTEST * 10_u32.pow(power - 1);
            assert!((10_000..16_000).contains(&count(from, from * 10)), "from {from:?}");
        }
        assert!((50..500).contains(&count(Duration::from_millis(100), LONGEST)));
        assert_eq!(Scheduling::default().hiccup(&mut random), Duration::ZERO);
    }
}
