//! Byte streams in the simulated network.
//!
//! A stream is delivered in order even where messages are datagrams. The pieces in which its bytes
//! arrive are drawn from the seed, because a network may cut and join them anywhere.

use super::transport::SimTransport;
use super::{PacketContent, Wire};
use crate::peer::{Cause, ConnectionId};
use crate::room::Room;
use crate::stream::{Opened, StreamAddress, Taken, Then};
use crate::{Handler, Transport};
use std::net::{IpAddr, SocketAddr};
use thunderhead_wire::frame::Kind;

/// The input of a waiting stream above which no more is taken from its peer.
const FULL_BYTES: usize = 64 << 10;

/// The pieces into which sent bytes are cut, at most.
const PIECES: u64 = 3;

/// The part of a connection that only a stream has.
#[derive(Default)]
pub(super) struct StreamState {
    pub(super) is_open: bool,
    /// Bytes that were not used yet.
    pub(super) input: Vec<u8>,
    /// The input is to be offered again although nothing has arrived.
    is_owed: bool,
    /// Nothing is offered before the handler calls `resume`.
    waits: bool,
    /// The handler is being offered bytes, and called `resume` meanwhile.
    is_offered: bool,
    is_resumed: bool,
    has_ended: bool,
    /// The handler knows that, though it waits and some bytes are still to be offered.
    knows_last: bool,
    /// The handler knows that, and has been offered all bytes.
    knows_end: bool,
    pub(super) is_finishing: bool,
    /// The peer gets no further bytes.
    ends_output: bool,
}

impl StreamState {
    fn takes_output(&self) -> bool {
        self.is_open && !self.is_finishing && !self.ends_output
    }

    /// Whether its input can be offered and was not.
    fn is_owed(&self) -> bool {
        self.is_owed && !self.waits && !self.is_finishing
    }
}

impl SimTransport {
    pub(super) fn begin_listening(
        &mut self,
        address: &StreamAddress,
        farewell: &'static [u8],
    ) -> std::io::Result<(StreamAddress, u32)> {
        let StreamAddress::Tcp(address) = address else {
            return Err(std::io::ErrorKind::Unsupported.into());
        };
        let address = self.listen(*address)?;
        let number = self.stream_listeners.len() as u32;
        self.stream_listeners.push((address.port(), farewell));
        Ok((StreamAddress::Tcp(address), number))
    }

    pub(super) fn request_stream(&mut self, address: SocketAddr) -> ConnectionId {
        let id = self.connect(address);
        if let Some(connection) = self.connections.get_mut(id) {
            connection.stream = Some(StreamState::default());
            self.network.0.borrow_mut().byte_streams.insert(connection.wire);
        }
        id
    }

    /// Accepts a stream, or turns it away.
    pub(super) fn accept_stream(
        &mut self,
        wire: Wire,
        from: IpAddr,
        port: u16,
        handler: &mut dyn Handler,
    ) {
        let listeners = &self.stream_listeners;
        let Some(listener) = listeners.iter().position(|(other, _)| *other == port) else {
            let reset = PacketContent::Reset { refused: true };
            self.network.0.borrow_mut().send(wire, self.host, from, reset, None);
            return;
        };
        let farewell = listeners[listener].1;
        let room = Room::for_connections(self.connections.count(), &self.limits);
        let address = SocketAddr::new(from, 0);
        let id = self.add(wire, address);
        self.counters.accepted += 1;
        if let Some(connection) = self.connections.get_mut(id) {
            // The request to open was the first packet of the stream.
            connection.expected = 1;
            connection.stream = Some(StreamState { is_open: true, ..StreamState::default() });
        }
        // It tells the peer that the stream is open.
        self.put(id, PacketContent::Frame { kind: Kind::PREFACE, payload: Vec::new() });
        if room < Room::Everyone {
            self.cut_and_put(id, farewell);
            return self.close(id, Cause::TooMany);
        }
        let opened = Opened { listener: Some(listener as u32), peer: Some(address) };
        handler.stream_opened(self, id, opened);
    }

    pub(super) fn put_bytes(&mut self, to: ConnectionId, parts: &[&[u8]]) {
        let was_idle = self.waiting_bytes(to) == 0;
        let Some(connection) = self.connections.get_mut(to).filter(|it| !it.doomed) else { return };
        if !connection.stream.as_ref().is_some_and(StreamState::takes_output) {
            return;
        }
        if was_idle {
            connection.taken = (self.now, 0);
        }
        let bytes = parts.concat();
        self.counters.bytes_out += bytes.len() as u64;
        self.timed.insert(to);
        self.cut_and_put(to, &bytes);
        if self.waiting_bytes(to) > self.limits.waiting_bytes_max {
            self.doom(to, Cause::NotReading);
        }
        self.limit_held();
    }

    /// Sends bytes in several pieces.
    pub(super) fn cut_and_put(&mut self, id: ConnectionId, bytes: &[u8]) {
        let mut rest = bytes;
        for _ in 1..PIECES {
            let cut = self.network.0.borrow_mut().random.below(rest.len() as u64 + 1) as usize;
            let (piece, behind) = rest.split_at(cut);
            if !piece.is_empty() {
                let payload = piece.to_vec();
                self.put(id, PacketContent::Frame { kind: Kind::MESSAGE, payload });
            }
            rest = behind;
        }
        if !rest.is_empty() {
            let payload = rest.to_vec();
            self.put(id, PacketContent::Frame { kind: Kind::MESSAGE, payload });
        }
    }

    /// Handles an arrival on a stream.
    pub(super) fn stream_frame(
        &mut self,
        id: ConnectionId,
        kind: Kind,
        payload: &[u8],
        handler: &mut dyn Handler,
    ) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let remote = connection.remote;
        let Some(state) = &mut connection.stream else { return };
        if state.is_finishing {
            return;
        }
        if kind == Kind::PREFACE {
            if !std::mem::replace(&mut state.is_open, true) {
                handler.stream_opened(self, id, Opened { listener: None, peer: Some(remote) });
            }
            return;
        }
        state.input.extend_from_slice(payload);
        state.is_owed = true;
        self.counters.bytes_in += payload.len() as u64;
        handler.received();
        self.offer_owed(id, handler);
    }

    /// Offers the input of a stream, if something about it is new.
    pub(super) fn offer_owed(&mut self, id: ConnectionId, handler: &mut dyn Handler) {
        let Some(connection) = self.connections.get_mut(id).filter(|it| !it.doomed) else { return };
        let Some(state) = &mut connection.stream else { return };
        if !state.is_owed || state.waits || state.is_finishing || state.input.is_empty() {
            return;
        }
        if self.holds_back(id) {
            return;
        }
        if self.holds_input {
            return self.resume_later(id);
        }
        let Some(state) = self.connections.get_mut(id).and_then(|it| it.stream.as_mut()) else {
            return;
        };
        (state.is_owed, state.is_offered, state.is_resumed) = (false, true, false);
        let mut input = std::mem::take(&mut state.input);
        let Taken { bytes, then } = handler.stream_bytes(self, id, &input);
        input.drain(..bytes.min(input.len()));
        let Some(connection) = self.connections.get_mut(id).filter(|it| !it.doomed) else { return };
        let Some(state) = &mut connection.stream else { return };
        let length = input.len();
        (state.input, state.is_offered) = (input, false);
        let then = if then == Then::Wait && state.is_resumed { Then::Again } else { then };
        match then {
            Then::Again if length > 0 => {
                state.is_owed = true;
                self.resume_later(id);
            }
            Then::Again => {}
            Then::Read if length > self.limits.stream_bytes_max => self.doom(id, Cause::TooLong),
            Then::Read => {}
            Then::Wait => state.waits = true,
        }
        self.limit_held();
        self.tell_end(id, handler);
    }

    /// Whether nothing is taken from a stream's peer before its input is used. The peer's further
    /// bytes, or its end, come after that.
    pub(super) fn keeps_stream(&self, id: ConnectionId) -> bool {
        let stream = self.connections.get(id).and_then(|it| it.stream.as_ref());
        stream.is_some_and(|it| it.is_owed() || it.waits && it.input.len() >= FULL_BYTES)
    }

    fn resume_later(&mut self, id: ConnectionId) {
        if !self.resumed.contains(&id) {
            self.resumed.push(id);
        }
    }

    /// Handles the end of a stream's input.
    pub(super) fn end_stream(&mut self, id: ConnectionId, handler: &mut dyn Handler) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let Some(state) = &mut connection.stream else { return };
        state.has_ended = true;
        self.tell_end(id, handler);
    }

    /// Tells the handler the end of a stream's input, once all that came before was offered. A
    /// handler that waits learns before that no further bytes come.
    fn tell_end(&mut self, id: ConnectionId, handler: &mut dyn Handler) {
        let Some(connection) = self.connections.get_mut(id).filter(|it| !it.doomed) else { return };
        let Some(state) = &mut connection.stream else { return };
        if !state.has_ended || state.knows_end || state.is_owed() {
            return;
        }
        if !state.waits || state.input.is_empty() {
            state.knows_end = true;
            handler.stream_ended(self, id);
        } else if !std::mem::replace(&mut state.knows_last, true) {
            handler.stream_ending(self, id);
        }
    }

    pub(super) fn end_wait(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let Some(state) = &mut connection.stream else { return };
        state.is_resumed |= state.is_offered;
        if std::mem::take(&mut state.waits) && !state.input.is_empty() {
            state.is_owed = true;
            self.resume_later(id);
        }
    }

    pub(super) fn finish_stream(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let Some(state) = &mut connection.stream else { return };
        if !std::mem::replace(&mut state.is_finishing, true) {
            state.input = Vec::new();
            self.finishing.push(id);
        }
    }

    /// Ends the output of a stream. The end follows the earlier bytes.
    pub(super) fn end_stream_output(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id).filter(|it| !it.doomed) else { return };
        let Some(state) = &mut connection.stream else { return };
        if !state.is_open {
            return self.finish_stream(id);
        }
        if !std::mem::replace(&mut state.ends_output, true) && !state.is_finishing {
            self.put(id, PacketContent::Close);
        }
    }

    /// Closes the streams whose peers have taken all output; returns whether there were any.
    pub(super) fn close_finished(&mut self, handler: &mut dyn Handler) -> bool {
        let mut busy = false;
        for id in std::mem::take(&mut self.finishing) {
            let connection = self.connections.get(id);
            let Some(state) = connection.and_then(|it| it.stream.as_ref()) else { continue };
            if self.waiting_bytes(id) > 0 {
                self.finishing.push(id);
                continue;
            }
            busy = true;
            let why = if state.has_ended { Cause::ByPeer } else { Cause::ByUs };
            self.refuse(id, why, handler);
            self.limit_held();
        }
        busy
    }
}
