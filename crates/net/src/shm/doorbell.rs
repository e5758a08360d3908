//! Sleeping and waking: each end's word in the shared memory, and the socket between the ends.
//!
//! An idle end announces in its word the events that it waits for, and may then block on the
//! socket. An end that has sent bytes or made room reads the other's word. If the word is not 0,
//! the end swaps 0 in and sends one byte. While both ends are busy, neither calls the kernel.
//!
//! ```text
//!   the end that goes to sleep                 the end that has sent, or made room
//!   1  store the awaited event in its word     1  store the header, or `consumed`
//!   2  fence                                   2  fence
//!   3  look at the ring: header, room          3  load the sleeper's word; if it says so,
//!   4  nothing: block on the socket            4  swap 0 into it, and if it still was not 0
//!                                              5  send a byte
//! ```
//!
//! **No wake-up is lost.** Both fences are sequentially consistent, so one comes first. If the
//! sleeper's fence is first, the other end's load at 3 sees the announcement or a later value of
//! that word. If the other end's fence is first, the sleeper's look at 3 sees the header or the new
//! position, and the sleeper does not block. So if the sleeper blocks although its event has
//! happened, the other end has seen its word, and there are three cases:
//!
//! - The word names the event. Then the swap finds it non-zero, a byte is sent, and the socket is
//!   readable.
//! - The word is 0 because the other end took the announcement for an earlier event. Then it has
//!   sent the byte for that event. The sleeper has not read it, because it reads bytes only between
//!   sleeps.
//! - The word is 0 because the sleeper withdrew its announcement. Then it is awake, and looks again
//!   before its next sleep.
//!
//! The byte itself cannot get lost. If the socket takes no more, it holds unread bytes and is
//! readable. If sending fails otherwise, the peer counts as gone, and closing the socket wakes it.
//! A byte is superfluous if the sleeper noticed the event by itself; it costs one empty turn.
//!
//! **Room is made in time.** A sleeper that waits for room sees less than a line of it. By the
//! argument in [`super::ring`], the peer publishes before it has consumed everything. It also
//! publishes, and reads the sleeper's word, before it goes to sleep itself.
//!
//! **A hostile peer** may write either word and send any bytes. So it can keep this end asleep to
//! its own disadvantage, and wake it needlessly. The bytes read in one call are limited. The kernel
//! closes file descriptors that are sent along, because this end provides no space for them.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use thunderhead_runtime::os::expect_returns;

/// The events for which an end sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Bytes from the peer.
    Arrival,
    /// Room for bytes to the peer, when a [`send`](super::Channel::send) has taken less than all.
    Room,
    /// Bytes or room, whichever comes first.
    Either,
    /// Neither: only the peer's departure ends the wait.
    Gone,
}

impl Until {
    /// Whether bytes from the peer end the wait.
    pub(super) fn arrival(self) -> bool {
        matches!(self, Until::Arrival | Until::Either)
    }

    /// Whether room ends the wait.
    pub(super) fn room(self) -> bool {
        matches!(self, Until::Room | Until::Either)
    }
}

/// Events for which the peer may wait. The bits are those of a sleeper's word.
#[derive(Clone, Copy, Default)]
pub(super) struct Events(u64);

impl Events {
    const SENT: u64 = 1;
    const ROOM: u64 = 2;

    /// Returns the events that end a wait.
    fn ending(until: Until) -> Events {
        let mut events = Events::default();
        if until.arrival() {
            events.add_sent();
        }
        if until.room() {
            events.add_room();
        }
        events
    }

    /// Adds that bytes were sent.
    #[inline]
    pub(super) fn add_sent(&mut self) {
        self.0 |= Events::SENT;
    }

    /// Adds that room was made.
    #[inline]
    pub(super) fn add_room(&mut self) {
        self.0 |= Events::ROOM;
    }

    /// Whether there is no event.
    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Bytes read by one call that empties the socket: far more than an honest peer sends.
const DRAINED_READS: usize = 8;

/// One end's side of sleeping and waking.
pub(super) struct Doorbell {
    socket: OwnedFd,
    own_word: usize,
    peer_word: usize,
    /// This end's word holds an announcement, unless the peer has taken it.
    announced: bool,
    /// The peer has closed the socket, or it broke.
    gone: bool,
}

impl Doorbell {
    /// Returns the doorbell for a non-blocking socket and the two ends' words.
    pub(super) fn new(socket: OwnedFd, own_word: usize, peer_word: usize) -> Doorbell {
        Doorbell { socket, own_word, peer_word, announced: false, gone: false }
    }

    /// Returns the socket, to wait for.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Announces that this end goes to sleep, unless the look at the rings that must follow finds
    /// an event. Contains the fence, which also serves a [`Doorbell::wake`] directly after it.
    pub(super) fn announce(&mut self, words: &[AtomicU64], until: Until) {
        words[self.own_word].store(Events::ending(until).0, Ordering::Relaxed);
        self.announced = true;
        fence(Ordering::SeqCst);
    }

    /// Withdraws the announcement.
    #[inline]
    pub(super) fn withdraw(&mut self, words: &[AtomicU64]) {
        if self.announced {
            self.announced = false;
            words[self.own_word].store(0, Ordering::Relaxed);
        }
    }

    /// Wakes the peer if it waits for one of these events. The caller must execute a sequentially
    /// consistent fence between the event and this call.
    #[inline]
    pub(super) fn wake(&mut self, words: &[AtomicU64], events: Events) {
        let word = &words[self.peer_word];
        if word.load(Ordering::Relaxed) & events.0 != 0 && word.swap(0, Ordering::Relaxed) != 0 {
            self.send_byte();
        }
    }

    #[cold]
    fn send_byte(&mut self) {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::io::retry_on_intr(|| send(&self.socket, &[0], flags)) {
            // A full socket is readable on the other side: a byte is already in flight.
            Ok(_) | Err(Errno::AGAIN) => {}
            // Nothing would wake the peer now, so this end must be closed, which does.
            Err(_) => self.gone = true,
        }
        expect_returns();
    }

    /// Whether the peer is known to be gone, without asking the socket.
    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Returns true if the peer has closed its socket. An error is no proof of that.
    pub(super) fn check_ended(&mut self) -> bool {
        let mut bytes = [0; 64];
        for _ in 0..DRAINED_READS {
            match rustix::io::retry_on_intr(|| recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT))
            {
                Ok((count, _)) if count > 0 => {}
                other => return other.is_ok(),
            }
        }
        false
    }

    /// Whether the peer has closed its socket. Reads the bytes that have come, so that the socket
    /// is no longer readable. A sleeping end only peeks, because these bytes are its wake-up.
    pub(super) fn peer_gone(&mut self) -> bool {
        let flags = RecvFlags::DONTWAIT;
        let flags = if self.announced { flags | RecvFlags::PEEK } else { flags };
        let reads = if self.announced { 1 } else { DRAINED_READS };
        let mut bytes = [0; 64];
        for _ in 0..reads {
            if self.gone {
                break;
            }
            match rustix::io::retry_on_intr(|| recv(&self.socket, &mut bytes, flags)) {
                Ok((0, _)) => self.gone = true,
                Ok(_) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => self.gone = true,
            }
        }
        self.gone
    }
}
