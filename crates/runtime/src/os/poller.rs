//! Waits for descriptors: epoll, level-triggered, with the reactor's alarm among them.
//!
//! epoll counts its time-outs in whole milliseconds, and rounds them up so that no caller wakes too
//! early again and again. For a short sleep that would be most of its length. `epoll_pwait2` (from
//! Linux 5.11) is exact, but older kernels refuse it, and so do sandboxes that do not know it. An
//! epoll is itself a descriptor that can be waited for. So `poll`, which is exact to the nanosecond
//! on all kernels, does a short wait, and epoll then only lists the ready descriptors.

use super::return_stack::expect_returns;
use crate::alarm::Alarm;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// The state of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The token of its registration.
    pub token: u64,
    /// Reading returns data, the end or an error.
    pub readable: bool,
    /// It accepts more data.
    pub writable: bool,
}

/// A set of descriptors to wait for.
pub struct Poller {
    epoll: OwnedFd,
    alarm: Alarm,
    ready: Vec<Ready>,
    /// The alarm's bell was ready.
    rung: bool,
}

/// The alarm's token.
const ALARM: u64 = u64::MAX;

/// The number of descriptors that one call reports.
const EVENTS: usize = 512;

/// Waits up to this are exact, at the price of a second call. For a longer one, one more
/// millisecond is little.
const EXACT_UP_TO: Duration = Duration::from_millis(10);

/// The longest wait with an end. Older kernels refuse more milliseconds than an i32 holds, and a
/// caller would call again and again. One wake-up a day costs nothing.
const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);

impl Poller {
    /// Returns a poller that also wakes when the alarm rings.
    ///
    /// # Errors
    /// If the kernel has no more descriptors.
    pub fn new(alarm: Alarm) -> io::Result<Poller> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        if let Some(bell) = alarm.bell() {
            epoll::add(&epoll, bell, epoll::EventData::new_u64(ALARM), epoll::EventFlags::IN)?;
        }
        // Loads its state now, and not during the first sleep.
        expect_returns();
        Ok(Poller { epoll, alarm, ready: Vec::with_capacity(EVENTS), rung: false })
    }

    /// Returns the alarm with which it was made.
    #[must_use]
    pub fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    fn flags(read: bool, write: bool) -> epoll::EventFlags {
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, read);
        flags.set(epoll::EventFlags::OUT, write);
        flags
    }

    /// Adds a descriptor. A descriptor leaves the set when it is closed.
    ///
    /// # Errors
    /// The kernel's.
    pub fn add(&self, fd: impl AsFd, token: u64, read: bool, write: bool) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token);
        Ok(epoll::add(&self.epoll, fd, data, Poller::flags(read, write))?)
    }

    /// Changes the events for which a descriptor is watched.
    ///
    /// # Errors
    /// The kernel's.
    pub fn change(&self, fd: impl AsFd, token: u64, read: bool, write: bool) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token);
        Ok(epoll::modify(&self.epoll, fd, data, Poller::flags(read, write))?)
    }

    /// Takes a descriptor out.
    pub fn remove(&self, fd: impl AsFd) {
        // It may not be in the set, or be closed already: then it is out.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Returns the ready descriptors, without waiting.
    #[inline(always)]
    pub fn look(&mut self) -> &[Ready] {
        self.wait(Some(Duration::ZERO))
    }

    /// Takes the last list of ready descriptors, in exchange for a list that may be overwritten.
    #[inline]
    pub fn swap_ready(&mut self, ready: &mut Vec<Ready>) {
        std::mem::swap(&mut self.ready, ready);
    }

    /// Returns the last list of ready descriptors.
    #[must_use]
    pub fn ready(&self) -> &[Ready] {
        &self.ready
    }

    /// Sleeps until a descriptor is ready or the alarm rings, at most so long. Returns whether it
    /// looked for ready descriptors: it does not if the alarm had rung already.
    pub fn sleep(&mut self, at_most: Option<Duration>) -> bool {
        let may = self.alarm.go_to_sleep();
        if may {
            match at_most {
                Some(short) if short <= EXACT_UP_TO && !short.is_zero() => {
                    let epoll = &mut [PollFd::new(&self.epoll, PollFlags::IN)];
                    // An interrupted call counts as one without ready descriptors.
                    let _ = poll(epoll, Some(&timespec(short)));
                    self.wait(Some(Duration::ZERO));
                }
                _ => {
                    self.wait(at_most);
                }
            }
            self.alarm.wake_up(self.rung);
            // A caller waits for the work of this wake-up.
            expect_returns();
        } else {
            self.ready.clear();
        }
        may
    }

    #[inline(always)]
    fn wait(&mut self, at_most: Option<Duration>) -> &[Ready] {
        self.ready.clear();
        self.rung = false;
        let timeout = at_most.map(timespec);
        // The kernel's events stay on the stack: their type cannot move to another thread, and a
        // poller can.
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS];
        // An interrupted call counts as one without ready descriptors.
        let told = epoll::wait(&self.epoll, &mut events, timeout.as_ref());
        let events = told.map(|(events, _)| events).unwrap_or_default();
        for event in events {
            let (token, flags) = (event.data.u64(), event.flags);
            if token == ALARM {
                self.rung = true;
                continue;
            }
            let ended = epoll::EventFlags::HUP | epoll::EventFlags::ERR | epoll::EventFlags::RDHUP;
            self.ready.push(Ready {
                token,
                readable: flags.intersects(epoll::EventFlags::IN | ended),
                writable: flags.intersects(epoll::EventFlags::OUT | ended),
            });
        }
        &self.ready
    }
}

#[inline]
fn timespec(time: Duration) -> Timespec {
    let time = time.min(WAIT_MAX);
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use rustix::event::{EventfdFlags, eventfd};

    #[test]
    fn a_short_sleep_is_never_shorter_and_not_rounded_up_to_milliseconds() {
        let mut poller = Poller::new(Alarm::os().unwrap()).unwrap();
        let clock = Clock::os();
        let wanted = Duration::from_micros(100);
        // The machine may be busy: it is enough that some sleeps are short.
        let mut shortest = Duration::MAX;
        for _ in 0..1000 {
            let before = clock.now();
            assert!(poller.sleep(Some(wanted)) && poller.ready().is_empty());
            let slept = clock.now().since(before);
            assert!(slept >= wanted, "{slept:?}: a process with a deadline would spin");
            shortest = shortest.min(slept);
            if shortest < Duration::from_millis(1) {
                return;
            }
        }
        panic!("the shortest sleep was {shortest:?}");
    }

    #[test]
    fn a_ready_descriptor_or_the_alarm_ends_a_sleep_of_any_length() {
        let alarm = Alarm::os().unwrap();
        let mut poller = Poller::new(alarm.clone()).unwrap();
        let readable = eventfd(1, EventfdFlags::empty()).unwrap();
        poller.add(&readable, 7, true, false).unwrap();
        let hour = Duration::from_secs(3600);
        let ready = [Ready { token: 7, readable: true, writable: false }];
        for at_most in [Duration::ZERO, Duration::from_nanos(1), EXACT_UP_TO, hour, Duration::MAX] {
            assert!(poller.sleep(Some(at_most)));
            assert_eq!(poller.ready(), ready, "{at_most:?}");
        }
        assert!(poller.sleep(None));
        assert_eq!(poller.ready(), ready);
        alarm.ring();
        assert!(!poller.sleep(None), "there is work already");
        assert_eq!(poller.ready(), []);
    }
}
