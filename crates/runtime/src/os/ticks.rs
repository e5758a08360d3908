//! The machine's clock, read from the processor's counter. That takes a third of the time of asking
//! the kernel's page, and a reactor that spins reads the clock a dozen million times a second.
//!
//! The counter is used only if the kernel itself keeps time by it, so that it runs evenly and alike
//! on all cores. It is anchored to the kernel's clock again every few milliseconds. The rate is
//! taken over all the time since the program began. So its error is no more than the error of the
//! rate in one such interval, well below a microsecond. Time never goes back.

use crate::time::Time;
use std::cell::Cell;
use std::fs;
use std::sync::OnceLock;
use std::time::Instant;

/// Ticks after which the kernel is asked again: some milliseconds.
const ANCHOR_TICKS: u64 = 1 << 23;

/// Nanoseconds before the first rate counts. In less time, the delay between reading the two clocks
/// is too large an error.
const RATE_AFTER_NS: u64 = 1_000_000;

/// A clock that counts from its origin.
#[derive(Clone, Debug)]
pub struct OsClock {
    origin: Instant,
    /// The counter and the time when the clock was made; none if the counter is not used.
    first: Option<(u64, u64)>,
    /// The last anchor: the counter, and the time.
    anchor: Cell<(u64, u64)>,
    /// Nanoseconds in 2^32 ticks; 0 while that is unknown.
    rate: Cell<u64>,
}

impl OsClock {
    pub(crate) fn since(origin: Instant) -> OsClock {
        let first = is_trusted().then(ticks).map(|now| (now, origin.elapsed().as_nanos() as u64));
        OsClock { origin, first, anchor: Cell::new(first.unwrap_or_default()), rate: Cell::new(0) }
    }

    /// Returns the moment from which it counts.
    #[must_use]
    pub fn origin(&self) -> Instant {
        self.origin
    }

    #[inline]
    pub(crate) fn now(&self) -> Time {
        if self.first.is_some() {
            let (anchor, at) = self.anchor.get();
            let passed = ticks().wrapping_sub(anchor);
            let rate = self.rate.get();
            if passed < ANCHOR_TICKS && rate != 0 {
                return Time(at + ((passed * rate) >> 32));
            }
        }
        self.anchored()
    }

    #[cold]
    fn anchored(&self) -> Time {
        let real = self.origin.elapsed().as_nanos() as u64;
        let Some((first, began)) = self.first else { return Time(real) };
        let now = ticks();
        let (anchor, at) = self.anchor.get();
        // The latest time that this clock may have returned. If the counter went back, it is
        // unknown.
        let said = match now.checked_sub(anchor) {
            Some(passed) if passed < 2 * ANCHOR_TICKS => at + ((passed * self.rate.get()) >> 32),
            _ => at,
        };
        let time = real.max(said);
        self.anchor.set((now, time));
        let ticks = u128::from(now.saturating_sub(first));
        let passed = real.saturating_sub(began);
        if passed >= RATE_AFTER_NS && ticks > 0 {
            let rate = (u128::from(passed) << 32) / ticks;
            // A rate that no processor has means that the counter cannot be trusted.
            let is_possible = (1 << 26..1 << 36).contains(&rate);
            self.rate.set(if is_possible { rate as u64 } else { 0 });
        }
        Time(time)
    }
}

/// Whether the kernel keeps its own time by the counter.
fn is_trusted() -> bool {
    static TRUSTED: OnceLock<bool> = OnceLock::new();
    const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let has_counter = cfg!(target_arch = "x86_64");
    *TRUSTED.get_or_init(|| {
        has_counter && fs::read_to_string(SOURCE).is_ok_and(|source| source.trim() == "tsc")
    })
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[allow(unsafe_code)]
fn ticks() -> u64 {
    // SAFETY: every processor of this architecture has the instruction. A kernel that forbade it to
    // programs would not let them keep time by it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[test]
    fn it_agrees_with_the_kernel_and_never_goes_back() {
        let Clock::Os(clock) = Clock::os() else { panic!("a machine's clock") };
        let mut last = Time(0);
        let mut most = 0;
        while last < Time(30_000_000) {
            let before = clock.origin.elapsed().as_nanos() as u64;
            let now = clock.now();
            let after = clock.origin.elapsed().as_nanos() as u64;
            assert!(now >= last, "{now:?} after {last:?}");
            // Any time may pass between the two readings of the kernel's clock.
            let off = before.saturating_sub(now.0).max(now.0.saturating_sub(after));
            most = most.max(off);
            last = now;
        }
        assert!(most < 1_000_000, "{most} ns from the kernel's clock");
    }

    #[test]
    fn a_counter_that_jumps_is_ignored() {
        let Clock::Os(clock) = Clock::os() else { panic!("a machine's clock") };
        let before = clock.now();
        for anchor in [0, u64::MAX, u64::MAX / 2] {
            clock.rate.set(u64::MAX >> 30);
            clock.anchor.set((anchor, before.0));
            let now = clock.now();
            assert!(now >= before && now.0 < before.0 + 60_000_000_000, "{now:?}");
        }
    }
}
