//! Tests of whole channels. Each test uses an end as its owner would.

mod hostile;
mod processes;
mod sleeping;
mod streams;

use super::channel::Channel;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;

/// Pseudo-random numbers that are the same in every run.
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// Waits until a socket is readable. Returns false after a time that no wake-up needs.
pub(super) fn readable(socket: BorrowedFd<'_>) -> bool {
    readable_within(socket, 30_000)
}

pub(super) fn readable_within(socket: BorrowedFd<'_>, milliseconds: i64) -> bool {
    let timeout =
        Timespec { tv_sec: milliseconds / 1000, tv_nsec: milliseconds % 1000 * 1_000_000 };
    let mut sockets = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
    poll(&mut sockets, Some(&timeout)).expect("polling a socket works") == 1
}

/// Fills `bytes` with the pattern from a position on.
pub(super) fn pattern(position: usize, bytes: &mut Vec<u8>, count: usize) {
    bytes.clear();
    bytes.extend((position..position + count).map(pattern_byte));
}

/// Returns a byte that depends on more than the lowest bits of its position, so that a stream
/// shifted by any number of lines or laps is detected.
pub(super) fn pattern_byte(position: usize) -> u8 {
    let mixed = (position as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as u8
}

/// Sends all bytes, for an end whose peer has room.
fn send_all(channel: &mut Channel, bytes: &[u8]) {
    assert_eq!(channel.send(&[bytes]), Ok(bytes.len()));
}

/// Returns all arrived bytes.
fn received(channel: &mut Channel) -> Vec<u8> {
    let mut bytes = Vec::new();
    while channel.receive(&mut bytes, usize::MAX).expect("the peer is honest") > 0 {}
    bytes
}
