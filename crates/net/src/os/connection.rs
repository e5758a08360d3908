//! One connection: its carrier, its partial input, its waiting output.

use super::socket;
use super::stream::StreamState;
use crate::peer::{Limits, Peer, Via};
use crate::shm;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_runtime::Time;
use thunderhead_runtime::buffer_pool::BufferPool;
use thunderhead_wire::ClusterId;
use thunderhead_wire::frame::{HEAD_BYTES, Head, Kind, Offer, Preface};
use zerocopy::IntoBytes;

/// The medium of a connection's bytes.
pub(super) enum Carrier {
    /// Nothing yet.
    None,
    Tcp(OwnedFd),
    Rings(Box<shm::Channel>),
}

/// The progress of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The socket is being connected.
    Connecting,
    /// The peer has not greeted yet.
    Greeting,
    /// Greeted; this end has knocked at the server's door for shared memory.
    Visiting,
    /// Messages may arrive.
    Open,
    /// Its memory is freed. The next poll closes it, because a poll can tell the handler.
    Doomed,
}

/// Why nothing more can be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// The peer has closed.
    Ended,
    /// An error.
    Reset,
    /// Impossible bytes in a ring.
    Corrupt,
}

/// The least room that is made behind a partial message.
const READ_MIN: usize = 512;

/// Bytes of a message that arrive before it gets a longer buffer.
const SPARE_FROM_BYTES: usize = 48 << 10;

/// The unfinished input that a stream may leave unfinished for ever. People type commands too.
pub(super) const SHORT_INPUT_BYTES: usize = 4 << 10;

/// Output buffers larger than this are released when they are empty.
const KEEP_BYTES: usize = 64 << 10;

/// A connection. The fields that most messages touch come first: after a sleep none of them is in
/// the processor's cache.
#[repr(C, align(64))]
pub(super) struct Connection {
    pub(super) carrier: Carrier,
    output: Vec<u8>,
    written: usize,
    pub(super) stage: Stage,
    /// This end requested it; else this end accepted it.
    pub(super) is_ours: bool,
    /// Nothing is taken from the peer until it has taken the bytes that wait for it.
    pub(super) paused: bool,
    /// Its input waits for the next poll, which digests it first.
    pub(super) is_held: bool,
    /// The same until all connections together hold less; it is paused meanwhile.
    pub(super) queued: bool,
    /// It is among the connections that are written to at the end of the turn.
    pub(super) listed: bool,
    /// A message of this turn has gone into its rings. Later ones go together, because each record
    /// is read separately.
    has_sent: bool,
    /// Epoll reports when the socket takes more.
    pub(super) waits_for_room: bool,
    /// A partial message, or several messages that may not be handled yet.
    pub(super) input: Vec<u8>,
    /// When the peer last took waiting bytes, or when they began to wait.
    pub(super) taken: Time,
    /// When the partial message began.
    pub(super) begun: Time,
    pub(super) peer: Option<Peer>,
    pub(super) address: SocketAddr,
    /// The offer made when it was accepted.
    pub(super) offered: Option<Offer>,
    pub(super) visit: Option<Box<shm::Visit>>,
    /// Rings that this end gave to the client and that it has not used yet.
    pub(super) admitted: Option<Box<shm::Channel>>,
    /// The part of the input that counts among all connections' held bytes.
    input_counted: usize,
    /// Clients were turned away when it was accepted, so it must greet as a member of the cluster.
    pub(super) is_provisional: bool,
    /// The time by which it must be open.
    open_by: Time,
    /// The cluster that this end's greeting named.
    pub(super) said: Option<ClusterId>,
    /// Set if it is a byte stream.
    pub(super) stream: Option<StreamState>,
}

impl Connection {
    pub(super) fn connect(address: SocketAddr, open_by: Time) -> Connection {
        Connection {
            carrier: Carrier::None,
            stage: Stage::Connecting,
            address,
            peer: None,
            offered: None,
            visit: None,
            admitted: None,
            is_ours: true,
            input: Vec::new(),
            input_counted: 0,
            output: Vec::new(),
            written: 0,
            paused: false,
            is_held: false,
            queued: false,
            listed: false,
            has_sent: false,
            waits_for_room: false,
            taken: Time(0),
            begun: Time(0),
            is_provisional: false,
            open_by,
            said: None,
            stream: None,
        }
    }

    pub(super) fn accepted(socket: OwnedFd, address: SocketAddr, open_by: Time) -> Connection {
        let mut connection = Connection::connect(address, open_by);
        connection.carrier = Carrier::Tcp(socket);
        connection.stage = Stage::Greeting;
        connection.is_ours = false;
        connection
    }

    pub(super) fn carry_by(&mut self, socket: OwnedFd) {
        self.carrier = Carrier::Tcp(socket);
    }

    pub(super) fn via(&self) -> Via {
        match self.carrier {
            Carrier::Rings(_) => Via::SharedMemory,
            _ => Via::Tcp,
        }
    }

    /// Returns the descriptor that epoll watches for this connection.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.carrier {
            Carrier::None => None,
            Carrier::Tcp(socket) => Some(socket.as_fd()),
            Carrier::Rings(channel) => Some(channel.socket()),
        }
    }

    /// Whether the peer is on this host.
    pub(super) fn is_local(&self) -> bool {
        match &self.carrier {
            Carrier::Tcp(socket) => {
                socket::local(socket).is_some_and(|local| local.ip() == self.address.ip())
            }
            _ => false,
        }
    }

    /// Returns the time at which it will be closed if nothing more happens on it.
    pub(super) fn deadline(&self, limits: &Limits) -> Option<Time> {
        match self.stage {
            Stage::Open => {}
            Stage::Doomed => return None,
            _ => return Some(self.open_by),
        }
        let unread = (self.waiting_bytes() > 0).then(|| self.taken + limits.not_reading);
        let expects_rest = match &self.stream {
            None => !self.input.is_empty(),
            Some(state) => state.expects_rest() && self.input.len() > SHORT_INPUT_BYTES,
        };
        let half = expects_rest && !self.paused;
        let half = half.then(|| {
            // A slowly arriving message must keep a minimum rate, so that holding memory here costs
            // the peer bytes.
            let seconds = self.input.len() / limits.bytes_per_second_min.max(1);
            let earned = limits.unhurried + Duration::from_secs(seconds as u64);
            self.begun + earned.min(limits.unfinished)
        });
        unread.into_iter().chain(half).min()
    }

    /// Whether this end's greeting has left, or is about to.
    pub(super) fn is_greeted_by_us(&self) -> bool {
        !matches!(self.stage, Stage::Connecting | Stage::Doomed) && self.stream.is_none()
    }

    /// Appends this end's greeting to the output, which is empty at this time; returns its bytes.
    pub(super) fn greet(&mut self, preface: &Preface) -> usize {
        let payload = preface.as_bytes();
        let head = Head { kind: Kind::PREFACE, payload_bytes: payload.len() };
        self.output.extend_from_slice(&head.to_bytes());
        self.output.extend_from_slice(payload);
        HEAD_BYTES + payload.len()
    }

    #[inline]
    pub(super) fn waiting_bytes(&self) -> usize {
        self.output.len() - self.written
    }

    /// Returns the bytes of this connection among all connections' held bytes.
    pub(super) fn held_bytes(&self) -> usize {
        self.waiting_bytes() + self.input_counted
    }

    /// Counts the partial input; returns the count before and the count now.
    pub(super) fn count_input(&mut self) -> (usize, usize) {
        // Room is made for the expected bytes, so the capacity counts.
        let now = if self.input.is_empty() { 0 } else { self.input.capacity() };
        (std::mem::replace(&mut self.input_counted, now), now)
    }

    /// Moves the arrived part of a long message into a spare buffer, or makes its buffer longer,
    /// because a buffer that grows in small steps is copied each time. This waits until much has
    /// arrived: the peer's claim of a length alone does not count.
    pub(super) fn lengthen_input(&mut self, pool: &mut BufferPool<Vec<u8>>) {
        let may_grow = (SPARE_FROM_BYTES..2 * SPARE_FROM_BYTES).contains(&self.input.len());
        if may_grow && let Some(head) = Head::read(&self.input) {
            let frame_bytes = HEAD_BYTES + head.payload_bytes;
            if frame_bytes > self.input.capacity() {
                // The read that completes the message may bring the beginning of the next one.
                pool.lengthen(&mut self.input, frame_bytes + super::READ_BYTES);
            }
        }
    }

    /// Closes its rings, if it has some, and returns their memory to be unmapped in pieces.
    pub(super) fn close_rings(&mut self) -> Option<shm::RetiredMapping> {
        if let Some(channel) = self.admitted.take() {
            return Some(channel.retire());
        }
        match std::mem::replace(&mut self.carrier, Carrier::None) {
            Carrier::Rings(channel) => Some(channel.retire()),
            carrier => {
                self.carrier = carrier;
                None
            }
        }
    }

    /// Frees all its memory, and closes its socket or rings.
    pub(super) fn doom(&mut self) {
        self.stage = Stage::Doomed;
        (self.carrier, self.visit, self.admitted) = (Carrier::None, None, None);
        (self.input, self.output) = (Vec::new(), Vec::new());
        (self.input_counted, self.written) = (0, 0);
        (self.paused, self.queued, self.waits_for_room) = (false, false, false);
    }

    /// Whether it is not listed among the connections with bytes to send.
    #[inline]
    pub(super) fn is_idle_output(&self) -> bool {
        self.output.is_empty()
    }

    /// Queues a message. A long message, and the first of a turn that goes into rings, leaves at
    /// once without being copied, if nothing waits before it. Returns the bytes of its frame.
    #[inline]
    pub(super) fn queue(
        &mut self,
        parts: &[&[u8]],
        long: usize,
        pool: &mut BufferPool<Vec<u8>>,
    ) -> usize {
        let payload_bytes: usize = parts.iter().map(|part| part.len()).sum();
        let head = Head { kind: Kind::MESSAGE, payload_bytes }.to_bytes();
        let frame_bytes = HEAD_BYTES + payload_bytes;
        let mut gone = 0;
        if self.stage == Stage::Open {
            if payload_bytes >= long {
                gone = self.write_long(&head, parts, pool);
            } else if let Carrier::Rings(channel) = &mut self.carrier
                && self.output.is_empty()
                && !std::mem::replace(&mut self.has_sent, true)
            {
                gone = into_rings(channel, head, parts);
            }
        }
        let left = frame_bytes.saturating_sub(gone);
        if left == 0 {
            return frame_bytes;
        }
        // Allocate once for the whole rest, otherwise it is copied as the buffer grows.
        if left > KEEP_BYTES && self.output.capacity() <= KEEP_BYTES {
            pool.lengthen(&mut self.output, 0);
        }
        self.output.reserve(left);
        if gone > 0 {
            self.keep_rest(gone, &head, parts);
            return frame_bytes;
        }
        self.output.extend_from_slice(&head);
        for part in parts {
            self.output.extend_from_slice(part);
        }
        frame_bytes
    }

    /// Queues bytes of a stream. Many bytes leave at once without being copied, if nothing waits
    /// before them. Returns their number.
    pub(super) fn queue_bytes(
        &mut self,
        parts: &[&[u8]],
        long: usize,
        pool: &mut BufferPool<Vec<u8>>,
    ) -> usize {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let is_long = self.stage == Stage::Open && bytes >= long;
        let gone = if is_long { self.write_long(&[], parts, pool) } else { 0 };
        let left = bytes - gone;
        if left > KEEP_BYTES && self.output.capacity() <= KEEP_BYTES {
            pool.lengthen(&mut self.output, 0);
        }
        self.output.reserve(left);
        self.keep_rest(gone, &[], parts);
        bytes
    }

    /// Queues the remainder of a message.
    #[cold]
    fn keep_rest(&mut self, gone: usize, head: &[u8], parts: &[&[u8]]) {
        let mut skip = gone;
        for part in std::iter::once(&head).chain(parts) {
            let passed = skip.min(part.len());
            skip -= passed;
            self.output.extend_from_slice(&part[passed..]);
        }
    }

    /// Writes the waiting bytes and then a long message; returns how many bytes of the message have
    /// left.
    #[cold]
    fn write_long(
        &mut self,
        head: &[u8],
        parts: &[&[u8]],
        pool: &mut BufferPool<Vec<u8>>,
    ) -> usize {
        let waiting = self.waiting_bytes();
        let taken = match &mut self.carrier {
            Carrier::None => 0,
            Carrier::Tcp(socket) => {
                let mut slices =
                    vec![IoSlice::new(&self.output[self.written..]), IoSlice::new(head)];
                slices.extend(parts.iter().map(|part| IoSlice::new(part)));
                let mut control = rustix::net::SendAncillaryBuffer::default();
                // The next write meets this error again, and it can report it.
                rustix::net::sendmsg(&*socket, &slices, &mut control, SEND).unwrap_or(0)
            }
            Carrier::Rings(channel) => {
                let mut slices = vec![&self.output[self.written..], head];
                slices.extend(parts);
                let taken = channel.send(&slices).unwrap_or(0);
                channel.flush();
                taken
            }
        };
        let of_waiting = taken.min(waiting);
        self.written += of_waiting;
        self.forget_written(pool);
        taken - of_waiting
    }

    fn forget_written(&mut self, pool: &mut BufferPool<Vec<u8>>) {
        if self.written == self.output.len() {
            self.written = 0;
            if self.output.capacity() > KEEP_BYTES {
                pool.keep(std::mem::take(&mut self.output));
            } else {
                self.output.clear();
            }
        } else if self.written > self.output.len() / 2 && self.written > KEEP_BYTES {
            self.output.drain(..self.written);
            self.written = 0;
        }
    }

    /// Writes waiting bytes as far as the peer takes them; returns their number.
    #[inline(always)]
    pub(super) fn write(&mut self, pool: &mut BufferPool<Vec<u8>>) -> Result<usize, StreamEnd> {
        let waiting = &self.output[self.written..];
        let taken = match &mut self.carrier {
            Carrier::None => 0,
            Carrier::Tcp(_) if waiting.is_empty() || self.stage == Stage::Connecting => 0,
            Carrier::Tcp(socket) => match rustix::net::send(socket, waiting, SEND) {
                Ok(taken) => taken,
                Err(Errno::AGAIN | Errno::INTR) => 0,
                Err(_) => return Err(StreamEnd::Reset),
            },
            Carrier::Rings(channel) => {
                self.has_sent = false;
                let sent = match waiting {
                    [] => Ok(0),
                    waiting => channel.send(&[waiting]),
                };
                // This also ends the reception of this turn.
                channel.flush();
                sent.map_err(|_| StreamEnd::Corrupt)?
            }
        };
        self.written += taken;
        self.forget_written(pool);
        Ok(taken)
    }

    /// Reads arrived bytes: into `scratch` if there is no partial input, else behind that. Returns
    /// their number; 0 if there are none now.
    #[inline(always)]
    pub(super) fn read(&mut self, scratch: &mut Vec<u8>, most: usize) -> Result<usize, StreamEnd> {
        match &mut self.carrier {
            Carrier::None => Ok(0),
            Carrier::Tcp(socket) => {
                let result = if self.input.is_empty() {
                    rustix::net::recv(socket, scratch.as_mut_slice(), RECEIVE)
                        .map(|(count, _)| count)
                } else {
                    make_room(&mut self.input, most);
                    let room = rustix::buffer::spare_capacity(&mut self.input);
                    rustix::net::recv(socket, room, RECEIVE).map(|(_, count)| count)
                };
                match result {
                    Ok(0) => Err(StreamEnd::Ended),
                    Ok(count) => Ok(count),
                    Err(Errno::AGAIN | Errno::INTR) => Ok(0),
                    Err(_) => Err(StreamEnd::Reset),
                }
            }
            Carrier::Rings(channel) => {
                channel.receive(&mut self.input, most).map_err(|_| StreamEnd::Corrupt)
            }
        }
    }
}

impl Connection {
    /// Whether the transport reads its socket when bytes arrive.
    #[inline]
    pub(super) fn is_read(&self) -> bool {
        let is_read = self.stream.as_ref().is_none_or(StreamState::is_read);
        is_read && !self.paused && !self.is_held
    }

    /// Reads arrived bytes of a stream, as [`Connection::read`] does for messages.
    #[inline(always)]
    pub(super) fn read_bytes(
        &mut self,
        scratch: &mut [u8],
        most: usize,
    ) -> Result<usize, StreamEnd> {
        let Carrier::Tcp(socket) = &self.carrier else { return Ok(0) };
        let result = if self.input.is_empty() {
            rustix::net::recv(socket, scratch, RECEIVE).map(|(count, _)| count)
        } else {
            // Room grows with the bytes that have arrived.
            self.input.reserve(self.input.len().clamp(READ_MIN, most));
            let length = self.input.len();
            self.input.resize(length + most.min(self.input.capacity() - length), 0);
            let read = rustix::net::recv(socket, &mut self.input[length..], RECEIVE);
            let count = read.as_ref().map_or(0, |(count, _)| *count);
            self.input.truncate(length + count);
            read.map(|(count, _)| count)
        };
        match result {
            Ok(0) => Err(StreamEnd::Ended),
            Ok(count) => Ok(count),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(_) => Err(StreamEnd::Reset),
        }
    }
}

/// Frames up to this length are assembled before they go into rings, because many small pieces take
/// longer there.
const SHORT_BYTES: usize = 256;

/// The most parts of a longer message that go into rings without being copied first.
const PARTS_MAX: usize = 7;

/// Sends a message into rings; the peer is woken at the end of the turn. Returns how many bytes of
/// it have left. An error of the rings will be met again by the next write, which can report it.
#[inline]
fn into_rings(channel: &mut shm::Channel, head: [u8; HEAD_BYTES], parts: &[&[u8]]) -> usize {
    let mut frame = [0; SHORT_BYTES];
    frame[..HEAD_BYTES].copy_from_slice(&head);
    let mut at = HEAD_BYTES;
    for part in parts {
        let Some(place) = frame.get_mut(at..at + part.len()) else {
            return pieces_into_rings(channel, &head, parts);
        };
        place.copy_from_slice(part);
        at += part.len();
    }
    channel.send(&[&frame[..at]]).unwrap_or(0)
}

/// Sends the parts of a longer message into rings without assembling them first.
fn pieces_into_rings(channel: &mut shm::Channel, head: &[u8], parts: &[&[u8]]) -> usize {
    let mut slices: [&[u8]; PARTS_MAX + 1] = [&[]; _];
    let Some(places) = slices.get_mut(1..=parts.len()) else { return 0 };
    places.copy_from_slice(parts);
    slices[0] = head;
    channel.send(&slices[..=parts.len()]).unwrap_or(0)
}

/// Makes room for the expected bytes, up to `most`: a length that a peer claims takes memory only
/// as its bytes arrive.
fn make_room(input: &mut Vec<u8>, most: usize) {
    let expected = Head::read(input)
        .map_or(0, |head| (HEAD_BYTES + head.payload_bytes).saturating_sub(input.len()));
    input.reserve(expected.clamp(READ_MIN, most));
}

pub(super) const SEND: rustix::net::SendFlags =
    rustix::net::SendFlags::DONTWAIT.union(rustix::net::SendFlags::NOSIGNAL);
const RECEIVE: rustix::net::RecvFlags = rustix::net::RecvFlags::DONTWAIT;
