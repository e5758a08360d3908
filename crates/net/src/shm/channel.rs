//! One end of a channel: a ring to send in, a ring to receive from, and a doorbell.
//!
//! It promises two streams of bytes, one each way, whose ends neither wait nor call the kernel as
//! long as both are busy. Where a [`Channel::send`] ended is not kept: records may be split and
//! joined on the way. A channel is owned by one thread at a time, and may be moved to another.

use super::doorbell::{Doorbell, Events, Until};
use super::error::Corrupt;
use super::layout::{End, Layout};
use super::mapping::{Mapping, SealedMemory};
use super::ring::{Consumer, Producer};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::io;
use std::sync::atomic::{Ordering, fence};

/// One end of a channel of bytes between two processes. See [the module](super).
pub struct Channel {
    mapping: Mapping,
    doorbell: Doorbell,
    producer: Producer,
    consumer: Consumer,
    /// What has happened since the peer was last looked at.
    untold: Events,
}

impl Channel {
    /// Two ends in one process, for tests and measurements.
    ///
    /// # Errors
    /// When the size is none that a ring can have, or the system refuses memory or sockets.
    pub fn pair(ring_bytes: usize) -> io::Result<(Channel, Channel)> {
        let memory = SealedMemory::create(layout_for(ring_bytes)?)?;
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let server = Channel::new(memory.map()?, one, End::Server);
        Ok((server, Channel::new(memory.map()?, other, End::Client)))
    }

    /// An end, given fresh memory and a non-blocking socket.
    pub(super) fn new(mapping: Mapping, socket: OwnedFd, end: End) -> Channel {
        let layout = mapping.layout();
        Channel {
            doorbell: Doorbell::new(socket, layout.sleep_of(end), layout.sleep_of(end.peer())),
            producer: Producer::new(layout, end),
            consumer: Consumer::new(layout, end.peer()),
            untold: Events::default(),
            mapping,
        }
    }

    /// Bytes of each of the two rings.
    #[must_use]
    pub fn ring_bytes(&self) -> usize {
        self.mapping.layout().ring_bytes()
    }

    /// Copies what has arrived onto the end of `into`, until there is no more or at least `limit`
    /// bytes have been copied: less than a quarter of the ring beyond it. One call copies no more
    /// than about a ring, so that a peer that never stops sending cannot hold its caller. Returns
    /// the bytes copied, 0 when nothing has arrived. Call [`Channel::flush`] sooner or later, for room may be made.
    ///
    /// Every byte is to be judged as coming from the peer, who may be anybody.
    ///
    /// # Errors
    /// When the peer breaks the rules of the ring. What was copied before stays in `into`.
    #[inline]
    pub fn receive(&mut self, into: &mut Vec<u8>, limit: usize) -> Result<usize, Corrupt> {
        let (bytes, published) = self.consumer.receive(self.mapping.words(), into, limit)?;
        if published {
            self.untold.add_room();
        }
        Ok(bytes)
    }

    /// Whether there is something to receive. It costs one load, of a word that stays in this
    /// core's cache until the peer writes there.
    #[inline]
    #[must_use]
    pub fn ready(&self) -> bool {
        self.consumer.ready(self.mapping.words())
    }

    /// Sends as much of the concatenation of `parts` as there is room for, and returns the bytes
    /// taken. A peer that polls sees them at once; one that sleeps is not woken until
    /// [`Channel::flush`].
    ///
    /// # Errors
    /// When the peer breaks the rules of the ring.
    #[inline]
    pub fn send(&mut self, parts: &[&[u8]]) -> Result<usize, Corrupt> {
        let sent = self.producer.send(self.mapping.words(), parts);
        // Even a send that fails half-way may have sent something.
        if !matches!(sent, Ok(0)) {
            self.untold.add_sent();
        }
        sent
    }

    /// Ends a turn: wakes the peer if it sleeps and waits for what has happened since the last
    /// call, and tidies up behind what was received. To be called once for all that a turn has
    /// received and sent, for it costs a fence, which waits until the peer's core has given up the
    /// lines just written.
    #[inline]
    pub fn flush(&mut self) {
        if !self.untold.is_empty() {
            fence(Ordering::SeqCst);
            self.tell();
        }
        self.consumer.clear(self.mapping.words());
    }

    /// Wakes the peer if need be. A fence lies before.
    #[inline]
    fn tell(&mut self) {
        let events = std::mem::take(&mut self.untold);
        self.doorbell.wake(self.mapping.words(), events);
    }

    /// Announces that this end is going to sleep, and tells the peer whatever it has not been told.
    ///
    /// When true comes back, the caller may block until the socket is readable (or anything else it
    /// waits for happens), and calls [`Channel::awake`] before it does anything else with this end.
    /// When false comes back, what it waits for is there already, and it must not block.
    ///
    /// To wait for room is sensible only if a send has taken less than it was given: there may be
    /// room otherwise, and then this always returns false.
    #[must_use]
    pub fn prepare_sleep(&mut self, until: Until) -> bool {
        let words = self.mapping.words();
        if self.consumer.publish(words) {
            self.untold.add_room();
        }
        self.doorbell.announce(words, until);
        self.tell();
        let words = self.mapping.words();
        let stirred = until.arrival() && self.consumer.ready(words)
            || until.room() && self.producer.has_room(words);
        if stirred {
            self.doorbell.withdraw(words);
        }
        !stirred
    }

    /// Takes the announcement of [`Channel::prepare_sleep`] back; without effect if there is none.
    /// `reported` says that the socket was found readable: then it is read, which is a call of the
    /// kernel. Returns whether the peer is known to be gone, as [`Channel::peer_gone`] does.
    pub fn awake(&mut self, reported: bool) -> bool {
        self.doorbell.withdraw(self.mapping.words());
        if reported { self.doorbell.peer_gone() } else { self.doorbell.is_gone() }
    }

    /// Whether the peer has closed its end or died. It asks the socket, without waiting, and takes
    /// the wake-ups out of it. What the peer had sent before can still be received.
    pub fn peer_gone(&mut self) -> bool {
        self.doorbell.peer_gone()
    }

    /// The socket, to be watched for being readable, level-triggered. Only to be waited for: its
    /// bytes belong to the channel.
    #[must_use]
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.doorbell.socket()
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket()
    }
}

/// The layout for rings of this size, or the error for a size that no ring can have.
pub(super) fn layout_for(ring_bytes: usize) -> io::Result<Layout> {
    Layout::new(ring_bytes).ok_or_else(|| {
        let message = format!(
            "a ring of {ring_bytes} bytes is impossible: it must be a power of two from 4 KiB to \
             64 MiB"
        );
        io::Error::new(io::ErrorKind::InvalidInput, message)
    })
}
