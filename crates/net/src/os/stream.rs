//! Byte streams over sockets: see [`crate::stream`].
//!
//! A stream is a [`Connection`] that is open from the beginning and has a [`StreamState`]. Writing,
//! pausing, the budget and the deadlines are those of all connections. Reading is separate: epoll
//! names a stream with a token of its own, so that no message pays for streams.

use super::connection::{Connection, SHORT_INPUT_BYTES, Stage, StreamEnd};
use super::{OsTransport, READ_BYTES, socket};
use crate::Handler;
use crate::peer::{Cause, ConnectionId};
use crate::stream::{Opened, StreamAddress, Taken, Then};
use crate::table::Token;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use thunderhead_runtime::os::Ready;

/// The part of a connection that only a stream has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StreamState {
    /// Nothing is offered to the handler before it calls `resume`.
    pub(super) waits: bool,
    /// The handler is being offered bytes.
    is_offered: bool,
    /// The handler called `resume` meanwhile.
    is_resumed: bool,
    /// The handler needs more bytes to go on.
    needs_more: bool,
    /// Its input is long and not used yet, so it is not read.
    is_full: bool,
    /// Its unfinished input is long enough that it must be finished in time.
    is_long: bool,
    /// The peer sends no further bytes.
    has_ended: bool,
    /// The handler knows that, though it waits and some bytes are still to be offered.
    knows_last: bool,
    /// The handler knows that, and has been offered all bytes.
    knows_end: bool,
    /// It is closed once its output is taken.
    is_finishing: bool,
    /// The peer gets no further bytes, and is told so once it has taken the output.
    ends_output: bool,
    /// The peer was told.
    has_shut: bool,
    /// Epoll does not have its socket.
    pub(super) is_unwatched: bool,
}

impl StreamState {
    /// Whether its socket is read when bytes arrive.
    pub(super) fn is_read(&self) -> bool {
        !self.is_full && !self.has_ended && !self.is_finishing
    }

    /// Whether its peer may get further bytes.
    pub(super) fn takes_output(&self) -> bool {
        !self.is_finishing && !self.ends_output
    }

    /// Whether an unfinished input is the peer's fault.
    pub(super) fn expects_rest(&self) -> bool {
        self.is_read() && !self.waits
    }
}

#[cfg(test)]
impl Connection {
    pub(super) fn input_is_full(&self) -> bool {
        self.stream.as_ref().is_some_and(|state| state.is_full)
    }
}

/// A socket that accepts connections.
pub(super) struct Listener {
    pub(super) socket: OwnedFd,
    pub(super) streams: Option<StreamListener>,
}

/// The part of a listener that only streams need.
pub(super) struct StreamListener {
    farewell: &'static [u8],
    /// The file of its socket. It is removed with the listener.
    path: Option<PathBuf>,
}

impl Listener {
    pub(super) fn for_messages(socket: OwnedFd) -> Listener {
        Listener { socket, streams: None }
    }

    fn for_streams(
        address: &StreamAddress,
        farewell: &'static [u8],
    ) -> io::Result<(Listener, StreamAddress)> {
        match address {
            StreamAddress::Tcp(address) => {
                let (socket, address) = socket::listen(*address)?;
                let streams = Some(StreamListener { farewell, path: None });
                Ok((Listener { socket, streams }, StreamAddress::Tcp(address)))
            }
            StreamAddress::Unix(path, mode) => {
                let socket = listen_at_path(path, *mode)?;
                let streams = Some(StreamListener { farewell, path: Some(path.clone()) });
                Ok((Listener { socket, streams }, address.clone()))
            }
        }
    }

    /// Accepts one connection, if one waits; returns its address, if it has one.
    pub(super) fn accept(&self) -> Result<Option<(OwnedFd, Option<SocketAddr>)>, Errno> {
        if self.streams.as_ref().is_some_and(|streams| streams.path.is_some()) {
            return Ok(socket::accept_unix(&self.socket)?.map(|socket| (socket, None)));
        }
        Ok(socket::accept(&self.socket)?.map(|(socket, address)| (socket, Some(address))))
    }
}

impl Drop for StreamListener {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            remove_file(path);
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "the file is a socket of this transport")]
fn remove_file(path: &Path) {
    let _ = std::fs::remove_file(path);
}

/// Listens at a path. A socket that a process has left behind there is replaced.
fn listen_at_path(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    match socket::listen_unix(path, mode) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && socket::is_left_behind(path) => {
            remove_file(path);
            socket::listen_unix(path, mode)
        }
        other => other,
    }
}

/// How often a socket is read before it is closed, and the bytes of each time.
const UNREAD_TRIES: u32 = 16;
const UNREAD_BYTES: usize = 16 << 10;

/// Stands for the address of a peer without one.
const NO_ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl OsTransport {
    pub(super) fn begin_listening(
        &mut self,
        address: &StreamAddress,
        farewell: &'static [u8],
    ) -> io::Result<(StreamAddress, u32)> {
        let (listener, address) = Listener::for_streams(address, farewell)?;
        let number = self.listeners.len() as u32;
        self.poller.add(&listener.socket, Token::Listener(number).number(), true, false)?;
        self.listeners.push(listener);
        Ok((address, number))
    }

    /// Requests a stream.
    pub(super) fn request_stream(&mut self, address: SocketAddr) -> ConnectionId {
        let mut connection = Connection::connect(address, self.now + self.options.limits.greeting);
        connection.stream = Some(StreamState::default());
        self.request(connection, Token::Stream)
    }

    /// Sends the farewell over a stream for which there is no room.
    pub(super) fn turn_away(&self, listener: u32, socket: &OwnedFd) {
        let listener = self.listeners.get(listener as usize);
        if let Some(streams) = listener.and_then(|listener| listener.streams.as_ref()) {
            let _ = rustix::net::send(socket, streams.farewell, super::connection::SEND);
        }
    }

    /// Opens an accepted stream.
    pub(super) fn on_stream_accepted(
        &mut self,
        listener: u32,
        socket: OwnedFd,
        peer: Option<SocketAddr>,
        handler: &mut dyn Handler,
    ) {
        let address = peer.unwrap_or(NO_ADDRESS);
        let mut connection = Connection::accepted(socket, address, self.now);
        connection.stage = Stage::Open;
        connection.stream = Some(StreamState::default());
        let id = self.connections.insert(connection);
        self.counters.open += 1;
        self.counters.accepted += 1;
        let token = Token::Stream(id).number();
        let fd = self.connections.get(id).and_then(Connection::fd);
        if fd.is_none_or(|fd| self.poller.add(fd, token, true, false).is_err()) {
            // The handler does not know it yet.
            self.drop_connection(id, Cause::Exhausted);
            return;
        }
        handler.stream_opened(self, id, Opened { listener: Some(listener), peer });
    }

    /// Handles an event of a stream's socket.
    pub(super) fn on_stream_event(
        &mut self,
        id: ConnectionId,
        event: Ready,
        handler: &mut dyn Handler,
    ) -> bool {
        let Some(connection) = self.connections.get(id) else { return false };
        if connection.stage == Stage::Connecting {
            if event.writable {
                self.on_stream_connected(id, handler);
            }
            return true;
        }
        let is_watched = self.watches_stream(id);
        let Some(connection) = self.connections.get(id) else { return false };
        if event.readable && !is_watched {
            // It is not read, so a read would not find an error or the end of the connection.
            let error = connection.fd().and_then(socket::error);
            if error.is_none() && connection.waits_for_room {
                // The event may be older than the pause, so the peer need not have hung up. Only
                // epoll reports room for the output, so the socket stays there. If the peer has
                // hung up, the write fails.
                self.write(id);
                return false;
            }
            return self.on_hung_up(id, error.is_some(), handler);
        }
        let is_held = connection.is_held;
        if event.writable && connection.waits_for_room {
            self.write(id);
        }
        event.readable && !is_held && self.read_stream(id, handler)
    }

    /// Handles an event of a stream that is not read: its peer has hung up.
    fn on_hung_up(&mut self, id: ConnectionId, is_broken: bool, handler: &mut dyn Handler) -> bool {
        let Some(connection) = self.connections.get_mut(id) else { return false };
        let Some(state) = &mut connection.stream else { return false };
        if is_broken || state.has_ended || state.is_finishing {
            self.fail(id, if is_broken { Cause::Reset } else { Cause::ByPeer }, handler);
            return true;
        }
        // Its bytes are read later, and then its end. Until then epoll would report it again and
        // again.
        state.is_unwatched = true;
        if let Some(fd) = connection.fd() {
            self.poller.remove(fd);
        }
        false
    }

    fn on_stream_connected(&mut self, id: ConnectionId, handler: &mut dyn Handler) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let Some(error) = connection.fd().map(socket::attempt_error) else { return };
        if let Some(error) = error {
            return self.fail(id, socket::cause(error), handler);
        }
        connection.stage = Stage::Open;
        let peer = Some(connection.address);
        self.counters.connected += 1;
        self.watch(id);
        handler.stream_opened(self, id, Opened { listener: None, peer });
    }

    /// Gives a stream back to epoll, unless it would report only the end that is to be read later.
    pub(super) fn watch_stream_again(&mut self, id: ConnectionId, read: bool, write: bool) {
        let Some(connection) = self.connections.get_mut(id).filter(|_| read || write) else {
            return;
        };
        if let Some(state) = &mut connection.stream {
            state.is_unwatched = false;
        }
        let token = Token::Stream(id).number();
        let fd = connection.fd();
        if fd.is_none_or(|fd| self.poller.add(fd, token, read, write).is_err()) {
            self.failed.push((id, Cause::Reset));
        }
    }

    /// Whether epoll reports when bytes arrive on a stream.
    fn watches_stream(&self, id: ConnectionId) -> bool {
        self.connections.get(id).is_some_and(|connection| {
            let state = connection.stream.as_ref();
            state.is_some_and(StreamState::is_read) && !connection.paused
        })
    }

    /// Reads a stream once; returns whether there was anything. The poll inlines it: see
    /// [`turn`](super::turn).
    #[inline(always)]
    pub(super) fn read_stream(&mut self, id: ConnectionId, handler: &mut dyn Handler) -> bool {
        let Some(connection) = self.connections.get_mut(id) else { return false };
        self.entered = true;
        let in_scratch = connection.input.is_empty();
        if in_scratch {
            // The unfinished part of a command begins with these bytes.
            connection.begun = self.now;
        }
        match connection.read_bytes(&mut self.scratch, READ_BYTES) {
            Ok(0) => return false,
            Ok(count) => self.on_bytes(id, count, in_scratch, handler),
            Err(end) => self.on_no_bytes(id, end, handler),
        }
        true
    }

    /// Handles bytes that were read, into the scratch or behind the unfinished input.
    #[inline(never)]
    fn on_bytes(
        &mut self,
        id: ConnectionId,
        count: usize,
        in_scratch: bool,
        handler: &mut dyn Handler,
    ) {
        self.counters.bytes_in += count as u64;
        self.note_arrival(id);
        handler.received();
        if in_scratch {
            let scratch = std::mem::take(&mut self.scratch);
            self.offer_scratch(id, &scratch[..count], handler);
            self.scratch = scratch;
        } else {
            self.offer_input(id, handler);
        }
    }

    #[cold]
    fn on_no_bytes(&mut self, id: ConnectionId, end: StreamEnd, handler: &mut dyn Handler) {
        match end {
            StreamEnd::Ended => self.on_stream_ended(id, handler),
            end => self.fail(id, end.into(), handler),
        }
    }

    /// Offers bytes that no unfinished input precedes, and keeps the rest.
    fn offer_scratch(&mut self, id: ConnectionId, bytes: &[u8], handler: &mut dyn Handler) {
        if let Some(used) = self.offer(id, bytes, handler)
            && used < bytes.len()
            && let Some(connection) = self.connections.get_mut(id)
        {
            connection.input.extend_from_slice(&bytes[used..]);
            self.on_rest(id);
        }
    }

    /// Handles the end of a stream's input. Its peer may still read.
    fn on_stream_ended(&mut self, id: ConnectionId, handler: &mut dyn Handler) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if let Some(state) = &mut connection.stream {
            state.has_ended = true;
        }
        self.watch(id);
        self.tell_end(id, handler);
    }

    /// Tells the handler the end of a stream's input, once all that came before was offered. A
    /// handler that waits learns before that no further bytes come.
    fn tell_end(&mut self, id: ConnectionId, handler: &mut dyn Handler) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let has_input = !connection.input.is_empty();
        let is_offered_soon = has_input && connection.paused || connection.is_held;
        let Some(state) = &mut connection.stream else { return };
        if !state.has_ended || state.knows_end || is_offered_soon {
            return;
        }
        if !state.waits || !has_input {
            state.knows_end = true;
            handler.stream_ended(self, id);
        } else if !std::mem::replace(&mut state.knows_last, true) {
            handler.stream_ending(self, id);
        }
    }

    /// Offers a stream's input, which may have grown.
    pub(super) fn offer_input(&mut self, id: ConnectionId, handler: &mut dyn Handler) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let mut input = std::mem::take(&mut connection.input);
        let used = self.offer(id, &input, handler);
        let (Some(used), Some(connection)) = (used, self.connections.get_mut(id)) else { return };
        if used > 0 {
            connection.begun = self.now;
        }
        let rest = input.len() - used;
        if rest == 0 {
            let (counted, _) = connection.count_input();
            self.counters.held_bytes -= counted as u64;
            self.buffer_pool.keep(input);
        } else if rest <= SHORT_INPUT_BYTES && input.capacity() > 2 * READ_BYTES {
            // A short rest may stay for ever, so it must not keep a long buffer.
            connection.input.extend_from_slice(&input[used..]);
            self.buffer_pool.keep(input);
        } else {
            input.drain(..used);
            connection.input = input;
        }
        self.on_rest(id);
        self.tell_end(id, handler);
    }

    /// Offers bytes to the handler. Returns the number of bytes used, or `None` if the stream has
    /// closed.
    fn offer(
        &mut self,
        id: ConnectionId,
        bytes: &[u8],
        handler: &mut dyn Handler,
    ) -> Option<usize> {
        let connection = self.connections.get_mut(id)?;
        let state = connection.stream.as_mut()?;
        if state.is_finishing {
            return Some(bytes.len());
        }
        if state.waits || connection.stage == Stage::Doomed || bytes.is_empty() {
            return Some(0);
        }
        state.needs_more = false;
        if self.holds_input {
            self.hold(id);
            return Some(0);
        }
        if self.has_much_output(id) {
            self.pause(id);
            return Some(0);
        }
        if let Some(state) = self.connections.get_mut(id).and_then(|it| it.stream.as_mut()) {
            (state.is_offered, state.is_resumed) = (true, false);
        }
        let Taken { bytes: used, then } = handler.stream_bytes(self, id, bytes);
        let used = used.min(bytes.len());
        let state = self.connections.get_mut(id)?.stream.as_mut()?;
        state.is_offered = false;
        // A handler that was ready again before it returned does not wait.
        let then = if then == Then::Wait && state.is_resumed { Then::Again } else { then };
        state.waits = then == Then::Wait;
        state.needs_more = then == Then::Read;
        if then == Then::Again && used < bytes.len() {
            if self.has_much_output(id) {
                self.pause(id);
            } else {
                self.hold(id);
            }
        }
        Some(used)
    }

    /// Whether no more is taken from a stream before its peer has taken output. As with messages,
    /// only the serving end holds back, or two ends could wait for each other.
    fn has_much_output(&self, id: ConnectionId) -> bool {
        self.connections
            .get(id)
            .is_some_and(|it| it.waiting_bytes() > self.waiting_bytes_high && !it.is_ours)
    }

    /// Accounts for input that is kept.
    fn on_rest(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if connection.stage == Stage::Doomed {
            // It was doomed while its bytes were handled.
            connection.doom();
            return;
        }
        let (before, after) = connection.count_input();
        self.counters.held_bytes += after as u64;
        self.counters.held_bytes -= before as u64;
        let length = connection.input.len();
        let Some(state) = &mut connection.stream else { return };
        let was_long = std::mem::replace(&mut state.is_long, length > SHORT_INPUT_BYTES);
        if state.is_long && !was_long {
            // Until now it was allowed to stay unfinished.
            connection.begun = self.now;
        }
        if length > 0 {
            self.timed.insert(id);
        }
        let was_full = state.is_full;
        state.is_full = !state.needs_more
            && if was_full { length >= READ_BYTES / 2 } else { length >= READ_BYTES };
        if state.needs_more && length > self.options.limits.stream_bytes_max {
            self.doom(id, Cause::TooLong);
        } else if was_full != state.is_full {
            self.watch(id);
        }
        if self.counters.held_bytes > self.held_bytes_mark {
            self.enforce_budget(id);
        }
    }

    /// Ends the wait of a stream's handler.
    pub(super) fn end_wait(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let Some(state) = &mut connection.stream else { return };
        state.is_resumed |= state.is_offered;
        if !std::mem::take(&mut state.waits) {
            return;
        }
        // The time of the wait does not count against the peer.
        connection.begun = self.now;
        if !connection.input.is_empty() {
            self.hold(id);
        }
    }

    /// Closes a stream once its output is taken.
    pub(super) fn finish_stream(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let stage = connection.stage;
        let Some(state) = &mut connection.stream else { return };
        if std::mem::replace(&mut state.is_finishing, true) {
            return;
        }
        if stage != Stage::Open {
            return self.doom(id, Cause::ByUs);
        }
        (connection.paused, connection.begun) = (false, self.now);
        self.watch(id);
        self.write(id);
        self.close_finished(id);
    }

    /// Ends the output of a stream.
    pub(super) fn end_stream_output(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let is_open = connection.stage == Stage::Open;
        let Some(state) = &mut connection.stream else { return };
        if !is_open {
            return self.finish_stream(id);
        }
        state.ends_output = true;
        self.write(id);
        self.shut_output(id);
    }

    /// Tells the peer of a stream that the output has ended, once the peer has taken it.
    pub(super) fn shut_output(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let is_taken = connection.waiting_bytes() == 0;
        let Some(state) = &mut connection.stream else { return };
        if !state.ends_output || !is_taken || std::mem::replace(&mut state.has_shut, true) {
            return;
        }
        if let Some(fd) = connection.fd() {
            socket::end_output(fd);
        }
    }

    /// Closes a stream that was waiting only for its output to be taken, if that has happened.
    pub(super) fn close_finished(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let Some(StreamState { has_ended, is_finishing: true, .. }) = connection.stream else {
            return;
        };
        if connection.waiting_bytes() > 0 {
            return;
        }
        // A socket that is closed with unread bytes resets the connection, and the peer can lose
        // the last of the output.
        connection.input.clear();
        let mut unread = [0; UNREAD_BYTES];
        for _ in 0..UNREAD_TRIES {
            if !connection.read_bytes(&mut unread, UNREAD_BYTES).is_ok_and(|count| count > 0) {
                break;
            }
        }
        self.doom(id, if has_ended { Cause::ByPeer } else { Cause::ByUs });
    }
}
