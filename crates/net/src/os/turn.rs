//! The work of a poll: find events, read, cut messages out of the bytes, handle them, send the
//! replies.
//!
//! # One frame
//!
//! During a system call the processor loses its predictions of where the active functions return
//! to, because the kernel overwrites them. The first return after a system call then takes longer
//! than the call itself ([`expect_returns`]). So all functions that call the kernel repeatedly are
//! inlined here into one function, [`OsTransport::poll`], which receives and sends without
//! returning in between. Functions that are called after a system call and return to here are not
//! affected. Before the poll itself returns, it restores the prediction. `thunderhead-bench rpc
//! latency` shows the difference: both together are a third of a round trip.
//!
//! [`OsTransport::poll`]: crate::Transport::poll
//! [`expect_returns`]: thunderhead_runtime::os::expect_returns

use super::connection::{Carrier, Stage, StreamEnd};
use super::held_input::Source;
use super::stream::Listener;
use super::{
    LEADS_FOR, LOOK_EVERY, LOOK_SLACK, LOOK_SOON, Options, OsTransport, READ_BYTES, STREAK, SWEEP,
    socket,
};
use crate::cluster::{GreetingVerdict, tell_refused};
use crate::peer::{Cause, ConnectionId, ForeignPeer, Peer, Via};
use crate::shm;
use crate::table::Token;
use crate::{Handler, OwnCluster, Transport};
use std::time::Duration;
use thunderhead_runtime::os::Ready;
use thunderhead_wire::frame::{HEAD_BYTES, Head, Kind, LONG_MESSAGES, MEMBER, Mismatch, Preface};

/// The longest greeting that is accepted.
const GREETING_BYTES_MAX: usize = 1024;

/// The reads of the hot connection in one turn: a few microseconds.
const HOT_TRIES: u32 = 12;

/// The pauses between two such reads: a quarter of a microsecond. A read locks the socket, and a
/// sender that finds it locked leaves its work to this thread.
const HOT_PAUSES: u32 = 10;

/// The looks at rings in one turn: a fraction of a microsecond.
const RING_TRIES: u32 = 8;

impl From<StreamEnd> for Cause {
    fn from(end: StreamEnd) -> Cause {
        match end {
            StreamEnd::Ended => Cause::ByPeer,
            StreamEnd::Reset => Cause::Reset,
            StreamEnd::Corrupt => Cause::Malformed,
        }
    }
}

impl OsTransport {
    #[inline(always)]
    pub(super) fn turn(&mut self, handler: &mut dyn Handler) -> bool {
        if self.tight {
            self.ease();
        }
        if let Some(source) = self.held_at.take() {
            return self.turn_after(source, handler);
        }
        let mut busy = !self.failed.is_empty() || !self.resumed.is_empty();
        if busy {
            self.go_on(handler);
            if self.holds_input {
                return self.held_at(Source::Resumed);
            }
        }
        if !self.rings.is_empty() && self.watch_rings(handler) {
            self.leads_until = self.now + LEADS_FOR;
            busy = true;
            if self.holds_input {
                return self.held_at(Source::Rings);
            }
        }
        let busiest = self.last.filter(|(_, streak)| *streak >= STREAK).map(|(id, _)| id);
        if self.hot != busiest {
            self.cool();
            self.heat(busiest);
        }
        // Directly after a send no reply can have arrived yet: the best time to ask epoll.
        let patience = if std::mem::take(&mut self.sent) { Duration::ZERO } else { LOOK_SLACK };
        let leads = self.now < self.leads_until && (self.hot.is_some() || !self.rings.is_empty());
        let is_due = self.woke || !leads || self.now >= self.next_look + patience;
        if is_due {
            let found = self.look(handler);
            self.next_look = self.now + if found { LOOK_SOON } else { LOOK_EVERY };
            busy |= found;
            if self.holds_input {
                return self.held_at(Source::Sockets);
            }
        }
        if let Some(id) = self.hot {
            // Reading again at once finds a reply sooner than a whole further turn.
            let tries = if self.rings.is_empty() && !busy { HOT_TRIES } else { 1 };
            for _ in 0..tries {
                if self.read_either(id, handler) {
                    self.leads_until = self.now + LEADS_FOR;
                    busy = true;
                    break;
                }
                for _ in 0..HOT_PAUSES {
                    std::hint::spin_loop();
                }
            }
            if self.holds_input {
                return self.held_at(Source::Sockets);
            }
        }
        busy
    }

    /// Polls the rings; if they are few, more than once.
    #[inline]
    fn watch_rings(&mut self, handler: &mut dyn Handler) -> bool {
        let tries = if self.rings.len() <= 2 { RING_TRIES } else { 1 };
        for _ in 0..tries {
            if self.poll_rings(handler) {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    /// Faults in some pages of new rings. All pages of long rings would take a millisecond.
    #[cold]
    pub(super) fn fault_in_some(&mut self) {
        let Some(id) = self.bare.last().copied() else { return };
        let connection = self.connections.get_mut(id);
        let is_bare = connection.is_some_and(|connection| match &mut connection.carrier {
            Carrier::Rings(channel) => channel.fault_in_some(),
            Carrier::Tcp(_) | Carrier::None => false,
        });
        if !is_bare {
            self.bare.pop();
        }
    }

    #[inline(always)]
    pub(super) fn poll_rings(&mut self, handler: &mut dyn Handler) -> bool {
        let mut busy = false;
        for at in (0..self.rings.len()).rev() {
            // The handler may close connections during the walk.
            let Some(id) = self.rings.get(at).copied() else { continue };
            let Some(connection) = self.connections.get(id) else { continue };
            let Carrier::Rings(channel) = &connection.carrier else { continue };
            let (ready, waits) = (channel.ready(), connection.waiting_bytes() > 0);
            if waits {
                self.write(id);
            }
            if ready {
                busy |= self.read(id, handler);
                if self.holds_input {
                    self.held_in_rings(at);
                    return true;
                }
            }
        }
        busy
    }

    /// Asks epoll, unless its last report is still unread.
    #[inline(always)]
    pub(super) fn look(&mut self, handler: &mut dyn Handler) -> bool {
        let mut ready = std::mem::take(&mut self.ready);
        if !std::mem::take(&mut self.woke) {
            self.poller.look();
            self.entered = true;
            self.poller.swap_ready(&mut ready);
        }
        let mut busy = false;
        let mut handled = 0;
        for event in &ready {
            if self.holds_input {
                break;
            }
            busy |= self.on_event(*event, handler);
            handled += 1;
        }
        ready.drain(..handled);
        // The next poll handles the remaining events, before it asks epoll again.
        self.woke = !ready.is_empty();
        self.looked = ready.is_empty();
        self.ready = ready;
        busy
    }

    #[inline(always)]
    fn on_event(&mut self, event: Ready, handler: &mut dyn Handler) -> bool {
        let token = Token::of(event.token, &self.connections);
        let Some(Token::Connection(id)) = token else {
            if let Some(Token::Stream(id)) = token
                && event.readable
                && !event.writable
            {
                let connection = self.connections.get(id);
                let is_usual = connection.is_some_and(|it| it.stage == Stage::Open && it.is_read());
                if is_usual {
                    return self.read_stream(id, handler);
                }
            }
            return token.is_some_and(|token| self.on_other_event(token, event, handler));
        };
        let Some(connection) = self.connections.get(id) else { return false };
        let is_plain = matches!(connection.carrier, Carrier::Tcp(_));
        if !is_plain || connection.stage == Stage::Connecting || event.writable {
            return self.on_uncommon_event(id, event, handler);
        }
        event.readable && self.read(id, handler)
    }

    /// Handles an event of a descriptor other than a connection for messages.
    #[inline(never)]
    fn on_other_event(&mut self, token: Token, event: Ready, handler: &mut dyn Handler) -> bool {
        match token {
            Token::Stream(id) => return self.on_stream_event(id, event, handler),
            Token::Connection(_) => return false,
            Token::Listener(number) => self.accept(number as usize, handler),
            Token::Door => {
                let until = self.now + self.options.limits.greeting;
                if let Some(doorway) = &mut self.doorway {
                    self.not_listening |= !doorway.accept(&self.poller, until);
                }
            }
            Token::Knock(number) => self.admit(number),
            Token::Visit(id) => self.on_visit(id, handler),
        }
        true
    }

    /// Handles an event other than plain readability of a socket.
    #[inline(never)]
    fn on_uncommon_event(
        &mut self,
        id: ConnectionId,
        event: Ready,
        handler: &mut dyn Handler,
    ) -> bool {
        let Some(connection) = self.connections.get_mut(id) else { return false };
        if connection.stage == Stage::Connecting {
            if event.writable {
                self.on_connected(id, handler);
            }
            return true;
        }
        if let Carrier::Rings(channel) = &mut connection.carrier {
            if event.readable && channel.peer_gone() {
                // The bytes that it sent before still count: at most one ring. A read may end
                // early, before its long buffer grows, but not twice in a row.
                let most = channel.ring_bytes();
                let until = self.counters.bytes_in + most as u64;
                for _ in 0..2 * most.div_ceil(READ_BYTES) + 2 {
                    if self.counters.bytes_in >= until || !self.read(id, handler) {
                        break;
                    }
                }
                if self.connections.get(id).is_some_and(|connection| connection.is_held) {
                    // Its messages come first. The next look finds the peer gone again.
                    return true;
                }
                self.fail(id, Cause::ByPeer, handler);
                return true;
            }
            return false;
        }
        if connection.paused
            && event.readable
            && connection.fd().is_some_and(|fd| socket::error(fd).is_some())
        {
            // A paused connection is not read, so a read would not find the error.
            self.fail(id, Cause::Reset, handler);
            return true;
        }
        if event.writable && connection.waits_for_room {
            self.write(id);
        }
        event.readable && self.read(id, handler)
    }

    fn on_connected(&mut self, id: ConnectionId, handler: &mut dyn Handler) {
        let (preface, said) = (self.preface(None), self.options.cluster.known());
        let Some(connection) = self.connections.get_mut(id) else { return };
        let Some(error) = connection.fd().map(socket::attempt_error) else { return };
        match error {
            None => {
                (connection.stage, connection.said) = (Stage::Greeting, said);
                self.counters.held_bytes += connection.greet(&preface) as u64;
                self.counters.connected += 1;
                connection.listed = true;
                self.unsent.push(id);
                self.watch(id);
            }
            Some(error) => self.fail(id, socket::cause(error), handler),
        }
    }

    pub(super) fn preface(&self, offer: Option<thunderhead_wire::frame::Offer>) -> Preface {
        let Options { features, limits, cluster, .. } = self.options;
        Preface::new(features, limits.message_bytes_max, offer).of_cluster(cluster.known())
    }

    /// Handles a token presented at the door: if it is good, hands over the rings.
    fn admit(&mut self, number: u32) {
        let Some(doorway) = &mut self.doorway else { return };
        let Some((id, knock)) = doorway.redeem_token(number, &self.poller) else { return };
        let Some(connection) = self.connections.get_mut(id) else { return };
        // No bytes may be in flight over the socket in either direction.
        let quiet = connection.waiting_bytes() == 0 && connection.input.is_empty();
        if connection.stage != Stage::Open || !quiet {
            return;
        }
        let are_long = connection
            .peer
            .as_ref()
            .is_some_and(|peer| peer.agreement.features & LONG_MESSAGES != 0);
        let Options { ring_bytes, long_ring_bytes, .. } = self.options;
        let ring_bytes = if are_long { long_ring_bytes } else { ring_bytes };
        let admission = knock.admit_with_version(ring_bytes, self.layout_version);
        let Ok(mut channel) = admission else { return };
        if !channel.prepare_sleep(shm::Until::Arrival) {
            return self.move_to_rings(id, channel);
        }
        // The client may still stay on the socket if it cannot use the rings. So this end moves
        // when the client's first message comes through the ring, which wakes this end.
        let token = Token::Visit(id).number();
        if self.poller.add(channel.socket(), token, true, false).is_ok() {
            connection.admitted = Some(Box::new(channel));
        }
    }

    /// Handles a client that was given rings: it has used them, or disconnected from them.
    fn on_admitted(&mut self, id: ConnectionId, mut channel: Box<shm::Channel>) {
        let gone = channel.awake(true);
        if channel.ready() {
            self.poller.remove(channel.socket());
            self.move_to_rings(id, *channel);
        } else if !gone
            && channel.prepare_sleep(shm::Until::Arrival)
            && let Some(connection) = self.connections.get_mut(id)
        {
            connection.admitted = Some(channel);
        }
    }

    /// Handles news of a visit at a server's door.
    fn on_visit(&mut self, id: ConnectionId, handler: &mut dyn Handler) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if let Some(channel) = connection.admitted.take() {
            return self.on_admitted(id, channel);
        }
        let Some(visit) = connection.visit.take() else { return };
        match visit.answer() {
            Ok(shm::Answer::Pending(visit)) => {
                connection.visit = Some(Box::new(visit));
                return;
            }
            Ok(shm::Answer::Admitted(channel)) => {
                // The channel uses the visit's socket.
                self.poller.remove(channel.socket());
                self.move_to_rings(id, channel);
            }
            Err(error) => tracing::debug!("no shared memory with this server: {error}"),
        }
        self.open(id, handler);
    }

    pub(super) fn move_to_rings(&mut self, id: ConnectionId, mut channel: shm::Channel) {
        if self.hot == Some(id) {
            self.hot = None;
        }
        channel.awake(false);
        let Some(connection) = self.connections.get_mut(id) else { return };
        if let Some(fd) = connection.fd() {
            self.poller.remove(fd);
        }
        let token = Token::Connection(id).number();
        if self.poller.add(channel.socket(), token, true, false).is_err() {
            self.failed.push((id, Cause::Reset));
            return;
        }
        if channel.is_bare() {
            self.bare.push(id);
        }
        connection.carrier = Carrier::Rings(Box::new(channel));
        self.counters.shared_memory += 1;
        if let Some(peer) = &mut connection.peer {
            peer.via = Via::SharedMemory;
        }
        self.rings.push(id);
    }

    fn open(&mut self, id: ConnectionId, handler: &mut dyn Handler) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.stage = Stage::Open;
        if !connection.input.is_empty() {
            // These bytes came together with the greeting, and have waited for this.
            self.resumed.push(id);
        }
        self.watch(id);
        handler.opened(self, id);
    }

    /// Tells epoll the events to watch on a socket.
    pub(super) fn watch(&mut self, id: ConnectionId) {
        if self.hot == Some(id) {
            self.cool();
            self.last = None;
        }
        let Some(connection) = self.connections.get(id) else { return };
        if let (Carrier::Tcp(_), Some(fd)) = (&connection.carrier, connection.fd()) {
            let (reads, token) = match &connection.stream {
                None => (connection.stage != Stage::Visiting, Token::Connection(id).number()),
                Some(state) => (state.is_read(), Token::Stream(id).number()),
            };
            let (read, write) = (!connection.paused && reads, connection.waits_for_room);
            if connection.stream.as_ref().is_some_and(|state| state.is_unwatched) {
                return self.watch_stream_again(id, read, write);
            }
            if self.poller.change(fd, token, read, write).is_err() {
                self.failed.push((id, Cause::Reset));
            }
        }
    }

    /// Writes the waiting bytes of a connection.
    #[inline(always)]
    pub(super) fn write(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.listed = false;
        self.entered |= matches!(connection.carrier, Carrier::Tcp(_));
        match connection.write(&mut self.buffer_pool) {
            Ok(taken) => {
                if taken > 0 {
                    self.sent = true;
                    self.counters.held_bytes -= taken as u64;
                    connection.taken = self.now;
                }
                let holds_back = connection.waits_for_room || connection.paused;
                if connection.waiting_bytes() > 0 || holds_back {
                    self.on_partial_write(id);
                }
            }
            Err(broken) => self.failed.push((id, broken.into())),
        }
    }

    /// Updates pause and epoll's interest after a write, as bytes wait on the connection or did.
    #[cold]
    fn on_partial_write(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let waiting = connection.waiting_bytes();
        if waiting > 0 {
            self.timed.insert(id);
        }
        let resumes =
            connection.paused && !connection.queued && waiting < self.waiting_bytes_high / 2;
        if resumes {
            connection.paused = false;
            // This end did not read during the pause, so the peer's time begins now.
            connection.begun = self.now;
            self.resumed.push(id);
        }
        let waits = waiting > 0 && connection.stage != Stage::Connecting;
        if waits != connection.waits_for_room || resumes {
            connection.waits_for_room = waits;
            self.watch(id);
        }
        self.shut_output(id);
        self.close_finished(id);
    }

    /// Reads a connection once; returns whether there was anything.
    #[inline(always)]
    pub(super) fn read(&mut self, id: ConnectionId, handler: &mut dyn Handler) -> bool {
        let Some(connection) = self.connections.get_mut(id) else { return false };
        if connection.paused || connection.is_held || connection.stage == Stage::Visiting {
            return false;
        }
        let is_tcp = matches!(connection.carrier, Carrier::Tcp(_));
        let in_scratch = is_tcp && connection.input.is_empty();
        self.entered |= is_tcp;
        match connection.read(&mut self.scratch, READ_BYTES) {
            Ok(0) => return false,
            Ok(count) => self.on_received(id, count, in_scratch, handler),
            Err(end) => self.on_stream_end(id, end, handler),
        }
        true
    }

    #[cold]
    fn on_stream_end(&mut self, id: ConnectionId, end: StreamEnd, handler: &mut dyn Handler) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if end == StreamEnd::Ended
            && let Some(channel) = connection.admitted.take()
        {
            // The client has moved to the rings and closed the socket afterwards.
            self.poller.remove(channel.socket());
            return self.move_to_rings(id, *channel);
        }
        self.fail(id, end.into(), handler);
    }

    /// Handles `count` bytes that were read, into the scratch or behind the partial input.
    fn on_received(
        &mut self,
        id: ConnectionId,
        count: usize,
        in_scratch: bool,
        handler: &mut dyn Handler,
    ) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if connection.input.is_empty() || !in_scratch && connection.input.len() == count {
            // One or more messages begin; the time for their completion runs from now.
            connection.begun = self.now;
        }
        self.counters.bytes_in += count as u64;
        handler.received();
        if !in_scratch {
            if matches!(connection.carrier, Carrier::Rings(_)) {
                // The ring is cleared at the end of the turn, after replies have left.
                if !std::mem::replace(&mut connection.listed, true) {
                    self.unsent.push(id);
                }
            }
            return self.digest_input(id, handler);
        }
        let scratch = std::mem::take(&mut self.scratch);
        let bytes = &scratch[..count];
        if let Some(used) = self.digest(id, bytes, handler)
            && used < bytes.len()
            && let Some(connection) = self.connections.get_mut(id)
        {
            connection.input.extend_from_slice(&bytes[used..]);
            connection.lengthen_input(&mut self.buffer_pool);
            self.on_partial_input(id, used > 0);
        }
        self.scratch = scratch;
    }

    /// Continues with bytes that were read before.
    pub(super) fn digest_input(&mut self, id: ConnectionId, handler: &mut dyn Handler) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let mut input = std::mem::take(&mut connection.input);
        let used = self.digest(id, &input, handler);
        let (Some(used), Some(connection)) = (used, self.connections.get_mut(id)) else { return };
        if used < input.len() {
            if used > 0 {
                connection.begun = self.now;
            }
            input.drain(..used);
            connection.input = input;
            connection.lengthen_input(&mut self.buffer_pool);
            self.on_partial_input(id, used > 0);
            return;
        }
        let (counted, _) = connection.count_input();
        self.counters.held_bytes -= counted as u64;
        if input.capacity() <= 2 * READ_BYTES && matches!(connection.carrier, Carrier::Rings(_)) {
            // Every read of rings goes into this buffer; a socket uses it only for partial
            // messages.
            input.clear();
            connection.input = input;
        } else {
            self.buffer_pool.keep(input);
        }
    }

    /// Cuts frames out of bytes and handles them. Returns the number of bytes used, or `None` if
    /// the connection has closed.
    #[inline]
    fn digest(
        &mut self,
        id: ConnectionId,
        bytes: &[u8],
        handler: &mut dyn Handler,
    ) -> Option<usize> {
        let mut at = 0;
        while let Some(head) = Head::read(&bytes[at..]) {
            if self.holds_input {
                self.hold(id);
                break;
            }
            let connection = self.connections.get(id)?;
            // Only the serving end holds back. If a caller with much to send stopped reading
            // replies, and its server did the same, they would wait for each other.
            let held_back = connection.waiting_bytes() > self.waiting_bytes_high;
            if held_back && !connection.is_ours {
                self.pause(id);
                break;
            }
            // Bytes behind a greeting are handled later.
            if matches!(connection.stage, Stage::Visiting | Stage::Doomed) {
                break;
            }
            let is_open = connection.stage == Stage::Open;
            let is_tcp = matches!(connection.carrier, Carrier::Tcp(_));
            if let Some(why) = self.objection(head, is_open) {
                self.fail(id, why, handler);
                return None;
            }
            let end = at + HEAD_BYTES + head.payload_bytes;
            let Some(payload) = bytes.get(at + HEAD_BYTES..end) else { break };
            at = end;
            if head.kind == Kind::MESSAGE {
                self.counters.messages_in += 1;
                if is_tcp {
                    self.note_arrival(id);
                }
                handler.message(self, id, payload);
            } else if head.kind == Kind::PREFACE {
                self.on_greeted(id, payload, handler);
            }
        }
        self.connections.get(id).map(|_| at)
    }

    /// Returns the cause to refuse a frame, judging by its head and the connection's stage.
    #[inline]
    fn objection(&self, head: Head, is_open: bool) -> Option<Cause> {
        let Head { kind, payload_bytes } = head;
        if is_open {
            if payload_bytes > self.options.limits.message_bytes_max {
                return Some(Cause::TooLong);
            }
            return (kind != Kind::MESSAGE && !kind.may_be_skipped()).then_some(Cause::Malformed);
        }
        (kind != Kind::PREFACE || payload_bytes > GREETING_BYTES_MAX).then_some(Cause::NotOurs)
    }

    fn on_greeted(&mut self, id: ConnectionId, payload: &[u8], handler: &mut dyn Handler) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let agreement = match Preface::agree(payload, self.options.features) {
            Ok(agreement) => agreement,
            Err(Mismatch::NotOurs) => return self.fail(id, Cause::NotOurs, handler),
            Err(Mismatch::Version { .. }) => {
                // This end's greeting tells the peer our versions.
                self.write(id);
                return self.fail(id, Cause::Version, handler);
            }
        };
        if connection.is_provisional && agreement.features & MEMBER == 0 {
            return self.fail(id, Cause::TooMany, handler);
        }
        let (address, via) = (connection.address, connection.via());
        connection.peer = Some(Peer { address, via, agreement });
        match self.options.cluster.judge(connection.said, agreement.cluster) {
            GreetingVerdict::Welcome => {}
            GreetingVerdict::Learned(cluster) => self.set_cluster(OwnCluster::Known(cluster)),
            GreetingVerdict::Refused(why) => {
                if why == Cause::WrongCluster && self.counters.closed(why) == 0 {
                    tell_refused(address, self.options.cluster.known(), agreement.cluster);
                }
                let foreign_peer = ForeignPeer::of(address, agreement.cluster, why);
                self.counters.foreign_peer = foreign_peer.or(self.counters.foreign_peer);
                // This end's greeting tells the peer our cluster.
                self.write(id);
                return self.fail(id, why, handler);
            }
        }
        let Some(connection) = self.connections.get_mut(id) else { return };
        if let Some(offer) = agreement.offer
            && self.options.shared_memory
            && connection.is_ours
            && connection.is_local()
            && let Ok(visit) = shm::Visit::knock(&offer.door, offer.token)
            && self.poller.add(visit.fd(), Token::Visit(id).number(), true, false).is_ok()
        {
            connection.visit = Some(Box::new(visit));
            connection.stage = Stage::Visiting;
            // The server closes the socket after the handover; that is not the end of the
            // connection.
            self.watch(id);
            return;
        }
        self.open(id, handler);
    }

    /// Closes overdue connections; returns whether there were any.
    #[cold]
    pub(super) fn sweep(&mut self, handler: &mut dyn Handler) -> bool {
        (self.forgave, self.next_sweep) = (false, self.now + SWEEP);
        self.buffer_pool.tidy();
        if let Some(doorway) = &mut self.doorway {
            doorway.sweep(self.now);
        }
        if std::mem::take(&mut self.not_listening) {
            for (number, Listener { socket, .. }) in self.listeners.iter().enumerate() {
                // Listeners were removed when descriptors ran out; the others are in epoll already.
                let token = Token::Listener(number as u32).number();
                let _ = self.poller.add(socket, token, true, false);
            }
            if let Some(doorway) = &self.doorway {
                doorway.listen_again(&self.poller);
            }
        }
        let limits = self.options.limits;
        let (connections, now) = (&self.connections, self.now);
        let mut late: Vec<(ConnectionId, Stage)> = Vec::new();
        self.timed.retain(|id| {
            let Some(connection) = connections.get(*id) else { return false };
            let deadline = connection.deadline(&limits);
            if deadline.is_some_and(|by| by <= now) {
                late.push((*id, connection.stage));
            }
            deadline.is_some()
        });
        let busy = !late.is_empty();
        for (id, stage) in late {
            let waiting = self.waiting_bytes(id);
            match stage {
                Stage::Connecting => self.fail(id, Cause::Reset, handler),
                Stage::Greeting => self.fail(id, Cause::NoGreeting, handler),
                Stage::Visiting => self.give_up_visit(id, handler),
                Stage::Doomed => {}
                Stage::Open if waiting > 0 => self.fail(id, Cause::NotReading, handler),
                Stage::Open => self.fail(id, Cause::Unfinished, handler),
            }
        }
        busy
    }

    /// Stays on the socket, because the server does not answer at its door.
    fn give_up_visit(&mut self, id: ConnectionId, handler: &mut dyn Handler) {
        let visit = self.connections.get_mut(id).and_then(|connection| connection.visit.take());
        if let Some(visit) = visit {
            self.poller.remove(visit.fd());
        }
        self.open(id, handler);
    }

    /// Whether all connections over shared memory allow this thread to sleep.
    pub(super) fn rings_may_sleep(&mut self) -> bool {
        let rings = &self.rings;
        rings.iter().all(|id| match self.connections.get_mut(*id) {
            Some(connection) => {
                let waits = connection.waiting_bytes() > 0;
                match &mut connection.carrier {
                    Carrier::Rings(channel) => {
                        let until = match (connection.paused, waits) {
                            // Arrived bytes stay where they are.
                            (true, true) => shm::Until::Room,
                            (true, false) => shm::Until::Gone,
                            (false, true) => shm::Until::Either,
                            (false, false) => shm::Until::Arrival,
                        };
                        channel.prepare_sleep(until)
                    }
                    _ => true,
                }
            }
            None => true,
        })
    }

    pub(super) fn rings_are_awake(&mut self) {
        for id in &self.rings {
            if let Some(connection) = self.connections.get_mut(*id)
                && let Carrier::Rings(channel) = &mut connection.carrier
                && channel.awake(false)
            {
                self.failed.push((*id, Cause::ByPeer));
            }
        }
    }
}
