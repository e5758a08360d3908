//! Waits for descriptors: epoll, level-triggered, with the reactor's alarm among them.

use crate::alarm::Alarm;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// What is the matter with a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// What it was registered with.
    pub token: u64,
    /// There is something to read, or its end or an error to be found by reading.
    pub readable: bool,
    /// It takes more.
    pub writable: bool,
}

/// A set of descriptors to wait for.
pub struct Poller {
    epoll: OwnedFd,
    alarm: Alarm,
    events: Vec<epoll::Event>,
    ready: Vec<Ready>,
    /// The alarm's bell was among what was ready.
    rung: bool,
}

/// The alarm's token.
const ALARM: u64 = u64::MAX;

/// Descriptors that one call tells of.
const EVENTS: usize = 512;

impl Poller {
    /// A poller that also wakes when the alarm rings.
    ///
    /// # Errors
    /// When the kernel has no more descriptors.
    pub fn new(alarm: Alarm) -> io::Result<Poller> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        if let Some(bell) = alarm.bell() {
            epoll::add(&epoll, bell, epoll::EventData::new_u64(ALARM), epoll::EventFlags::IN)?;
        }
        let events = Vec::with_capacity(EVENTS);
        Ok(Poller { epoll, alarm, events, ready: Vec::with_capacity(EVENTS), rung: false })
    }

    /// The alarm it was made with.
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

    /// Adds a descriptor. It leaves the set when it is closed.
    ///
    /// # Errors
    /// As the kernel has them.
    pub fn add(&self, fd: impl AsFd, token: u64, read: bool, write: bool) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token);
        Ok(epoll::add(&self.epoll, fd, data, Poller::flags(read, write))?)
    }

    /// Changes what a descriptor is waited for.
    ///
    /// # Errors
    /// As the kernel has them.
    pub fn change(&self, fd: impl AsFd, token: u64, read: bool, write: bool) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token);
        Ok(epoll::modify(&self.epoll, fd, data, Poller::flags(read, write))?)
    }

    /// Takes a descriptor out.
    pub fn remove(&self, fd: impl AsFd) {
        // It may not have been in the set, or be closed already: then it is out.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Looks what is ready, without waiting.
    #[inline(always)]
    pub fn look(&mut self) -> &[Ready] {
        self.wait(Some(Duration::ZERO))
    }

    /// Sleeps until something is ready or the alarm rings, at most so long.
    pub fn sleep(&mut self, at_most: Option<Duration>) -> &[Ready] {
        if self.alarm.go_to_sleep() {
            self.wait(at_most);
            self.alarm.wake_up(self.rung);
        } else {
            self.ready.clear();
        }
        &self.ready
    }

    #[inline(always)]
    fn wait(&mut self, at_most: Option<Duration>) -> &[Ready] {
        self.events.clear();
        self.ready.clear();
        self.rung = false;
        let timeout = at_most.map(|time| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        // An interrupted call is as good as one that found nothing.
        let _ = epoll::wait(&self.epoll, spare_capacity(&mut self.events), timeout.as_ref());
        for event in &self.events {
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
