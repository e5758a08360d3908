//! One end of a channel: a ring to send in, a ring to receive from, and a doorbell.
//!
//! It promises two streams of bytes, one in each direction. While both ends are busy, neither
//! blocks or calls the kernel. The boundaries of [`Channel::send`] calls are not preserved: records
//! may be split and joined on the way. One thread at a time owns a channel, which may move to
//! another thread.

use super::doorbell::{Doorbell, Events, Until};
use super::error::Corrupt;
use super::layout::{End, Layout};
use super::mapping::{Mapping, RetiredMapping, SealedMemory};
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
    /// Events since the last flush, of which the peer has not been notified.
    untold: Events,
}

impl Channel {
    /// Returns both ends of a channel in one process, for tests and measurements.
    ///
    /// # Errors
    /// If no ring can have this size, or the system refuses memory or sockets.
    pub fn pair(ring_bytes: usize) -> io::Result<(Channel, Channel)> {
        let memory = SealedMemory::create(layout_for(ring_bytes)?)?;
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let server = Channel::new(memory.map()?, one, End::Server);
        Ok((server, Channel::new(memory.map()?, other, End::Client)))
    }

    /// Returns an end, given fresh memory and a non-blocking socket.
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

    /// Whether some pages are not faulted in yet.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        self.mapping.is_bare()
    }

    /// Faults in some pages, for some 15 microseconds. Returns whether more remain.
    pub fn fault_in_some(&mut self) -> bool {
        self.mapping.fault_in_some();
        self.mapping.is_bare()
    }

    /// Closes this end, and returns its memory to be unmapped in pieces. The peer still receives
    /// the bytes that were sent.
    #[must_use]
    pub fn retire(mut self) -> RetiredMapping {
        let is_alone = self.doorbell.check_ended();
        RetiredMapping::new(self.mapping, is_alone)
    }

    /// Returns the size of each of the two rings.
    #[must_use]
    pub fn ring_bytes(&self) -> usize {
        self.mapping.layout().ring_bytes()
    }

    /// Appends the bytes that have arrived to `into`, until there are no more or at least `limit`
    /// bytes have been copied: less than a quarter of the ring beyond it. It may copy fewer, so
    /// that a long `into` need not grow: only 0 says that none are left. One call copies at most
    /// about a ring, so that a peer that never stops sending cannot hold its caller. Returns the
    /// number of bytes copied, 0 if none have arrived. Call [`Channel::flush`] eventually, because
    /// this may have made room.
    ///
    /// Treat every byte as untrusted: any process may be the peer.
    ///
    /// # Errors
    /// If the peer breaks the rules of the ring. Bytes copied before stay in `into`.
    #[inline]
    pub fn receive(&mut self, into: &mut Vec<u8>, limit: usize) -> Result<usize, Corrupt> {
        let (bytes, published) = self.consumer.receive(self.mapping.words(), into, limit)?;
        if published {
            self.untold.add_room();
        }
        Ok(bytes)
    }

    /// Whether bytes have arrived. This costs one load, of a word that stays in this core's cache
    /// until the peer writes there.
    #[inline]
    #[must_use]
    pub fn ready(&self) -> bool {
        self.consumer.ready(self.mapping.words())
    }

    /// Sends as much of the concatenation of `parts` as fits, and returns the number of bytes
    /// taken. A peer that polls sees them at once; a sleeping peer is not woken until
    /// [`Channel::flush`].
    ///
    /// # Errors
    /// If the peer breaks the rules of the ring.
    #[inline]
    pub fn send(&mut self, parts: &[&[u8]]) -> Result<usize, Corrupt> {
        let sent = self.producer.send(self.mapping.words(), parts);
        // Even a send that fails half-way may have sent some bytes.
        if !matches!(sent, Ok(0)) {
            self.untold.add_sent();
        }
        sent
    }

    /// Ends a turn: wakes the peer if it sleeps and waits for the events since the last call, and
    /// zeroes the lines that were received. Call it once for everything that a turn has received
    /// and sent. It costs a fence, which waits until the peer's core has released the lines just
    /// written.
    #[inline]
    pub fn flush(&mut self) {
        if !self.untold.is_empty() {
            fence(Ordering::SeqCst);
            self.tell();
        }
        self.consumer.clear(self.mapping.words());
    }

    /// Wakes the peer if necessary. The caller has executed the fence.
    #[inline]
    fn tell(&mut self) {
        let events = std::mem::take(&mut self.untold);
        self.doorbell.wake(self.mapping.words(), events);
    }

    /// Announces that this end is going to sleep, and notifies the peer of all events so far.
    ///
    /// If this returns true, the caller may block until the socket is readable (or any other event
    /// that it waits for), and must call [`Channel::awake`] before any other use of this end. If
    /// this returns false, the awaited event has happened already, and the caller must not block.
    ///
    /// Wait for room only if a send has taken less than it was given. Otherwise there may be room,
    /// and then this always returns false.
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
            || until.room() && self.producer.check_room(words);
        if stirred {
            self.doorbell.withdraw(words);
        }
        !stirred
    }

    /// Withdraws the announcement of [`Channel::prepare_sleep`], if there is one. `reported` says
    /// that the socket was found readable; then this reads it, which calls the kernel. Returns
    /// whether the peer is known to be gone, as [`Channel::peer_gone`] does.
    pub fn awake(&mut self, reported: bool) -> bool {
        self.doorbell.withdraw(self.mapping.words());
        if reported { self.doorbell.peer_gone() } else { self.doorbell.is_gone() }
    }

    /// Whether the peer has closed its end or died. This asks the socket, without blocking, and
    /// takes the wake-ups out of it. Bytes that the peer sent before can still be received.
    pub fn peer_gone(&mut self) -> bool {
        self.doorbell.peer_gone()
    }

    /// Returns the socket, to be watched for readability, level-triggered. Only wait for it: its
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

/// Returns the layout for rings of this size, or an error if no ring can have it.
pub(super) fn layout_for(ring_bytes: usize) -> io::Result<Layout> {
    Layout::new(ring_bytes).ok_or_else(|| {
        let message = format!(
            "a ring of {ring_bytes} bytes is impossible: it must be a power of two from 4 KiB to \
             64 MiB"
        );
        io::Error::new(io::ErrorKind::InvalidInput, message)
    })
}
