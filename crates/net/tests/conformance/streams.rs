//! Byte streams: a server of lines, and clients that send and read bytes.

use super::{Pair, every_transport, every_transport_with, limits};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_net::stream::{Opened, StreamAddress, Taken, Then};
use thunderhead_net::{Cause, ConnectionId, Handler, Limits, OwnCluster, Transport, Via};
use thunderhead_wire::ClusterId;

const FAREWELL: &[u8] = b"full\n";

/// One end of streams.
#[derive(Default)]
struct Lines {
    /// Answers each line: with the same line, or as the line asks.
    serves: bool,
    /// Handles one line in each call.
    is_slow: bool,
    opened: Vec<(ConnectionId, Opened)>,
    received: BTreeMap<ConnectionId, Vec<u8>>,
    /// Streams that end while they wait.
    ending: Vec<ConnectionId>,
    ended: Vec<ConnectionId>,
    closed: Vec<(ConnectionId, Cause)>,
    /// How often bytes were offered.
    offers: usize,
    /// Streams that wait.
    waiting: Vec<ConnectionId>,
    messages: usize,
}

impl Lines {
    fn line(&mut self, transport: &mut dyn Transport, from: ConnectionId, line: &[u8]) -> Then {
        match line {
            b"wait\n" => {
                self.waiting.push(from);
                return Then::Wait;
            }
            // It is ready again before it says that it waits.
            b"soon\n" => {
                transport.resume(from);
                return Then::Wait;
            }
            b"quit\n" => {
                transport.send_bytes(from, &[b"bye\n"]);
                transport.finish(from);
            }
            b"much\n" => transport.send_bytes(from, &[&[b'm'; 100_000]]),
            line => transport.send_bytes(from, &[line]),
        }
        Then::Read
    }
}

impl Handler for Lines {
    fn message(&mut self, _: &mut dyn Transport, _: ConnectionId, _: &[u8]) {
        self.messages += 1;
    }

    fn stream_opened(&mut self, _: &mut dyn Transport, stream: ConnectionId, opened: Opened) {
        self.opened.push((stream, opened));
    }

    fn stream_bytes(
        &mut self,
        transport: &mut dyn Transport,
        from: ConnectionId,
        bytes: &[u8],
    ) -> Taken {
        assert!(!bytes.is_empty());
        self.offers += 1;
        if !self.serves {
            self.received.entry(from).or_default().extend_from_slice(bytes);
            return Taken::read_on(bytes.len());
        }
        let mut used = 0;
        for line in bytes.split_inclusive(|byte| *byte == b'\n').filter(|it| it.ends_with(b"\n")) {
            used += line.len();
            let then = self.line(transport, from, line);
            if then == Then::Wait {
                return Taken { bytes: used, then };
            }
            if self.is_slow || !transport.takes_more(from) {
                return Taken { bytes: used, then: Then::Again };
            }
        }
        Taken::read_on(used)
    }

    fn stream_ending(&mut self, _: &mut dyn Transport, stream: ConnectionId) {
        self.ending.push(stream);
    }

    fn stream_ended(&mut self, transport: &mut dyn Transport, stream: ConnectionId) {
        self.ended.push(stream);
        transport.finish(stream);
    }

    fn stream_closed(&mut self, _: &mut dyn Transport, stream: ConnectionId, why: Cause) {
        self.closed.push((stream, why));
    }
}

/// A server of lines and a client.
struct Streams {
    pair: Pair,
    at_server: Lines,
    at_client: Lines,
    address: SocketAddr,
    listener: u32,
}

impl Streams {
    fn new(mut pair: Pair) -> Streams {
        let any = StreamAddress::Tcp(SocketAddr::new(pair.address.ip(), 0));
        let (address, listener) = pair.server.listen_stream(&any, FAREWELL).unwrap();
        let StreamAddress::Tcp(address) = address else { panic!("a port was asked for") };
        let at_server = Lines { serves: true, ..Lines::default() };
        Streams { pair, at_server, at_client: Lines::default(), address, listener }
    }

    fn serve(&mut self) {
        (self.pair.advance)();
        self.pair.now = self.pair.now + Duration::from_micros(5);
        self.pair.server.poll(self.pair.now, &mut self.at_server);
        self.pair.server.flush();
    }

    fn turn(&mut self) {
        self.serve();
        (self.pair.advance)();
        self.pair.client.poll(self.pair.now, &mut self.at_client);
        self.pair.client.flush();
    }

    fn until(&mut self, goal: &str, holds: impl Fn(&Streams) -> bool) {
        for _ in 0..1_000_000 {
            if holds(self) {
                return;
            }
            self.turn();
        }
        panic!("{}: never {goal}", self.pair.name);
    }

    /// Opens a stream; returns its id at both ends.
    fn open(&mut self) -> (ConnectionId, ConnectionId) {
        let count = self.at_server.opened.len();
        let id = self.pair.client.connect_stream(self.address);
        self.until("opened", |it| {
            it.at_client.opened.iter().any(|(other, _)| *other == id)
                && it.at_server.opened.len() > count
        });
        let (there, opened) = self.at_server.opened[count];
        assert_eq!((opened.listener, opened.peer.is_some()), (Some(self.listener), true));
        (id, there)
    }

    /// Lets time pass in steps that are too short to seem a standstill.
    fn wait_for_sweeps(&mut self, millis: u64) {
        for _ in 0..millis.div_ceil(500) {
            self.pair.now = self.pair.now + Duration::from_millis(500);
            for _ in 0..20 {
                self.turn();
            }
        }
    }

    fn send(&mut self, stream: ConnectionId, bytes: &[u8]) {
        self.pair.client.send_bytes(stream, &[bytes]);
    }

    fn received(&self, stream: ConnectionId) -> &[u8] {
        self.at_client.received.get(&stream).map_or(&[], Vec::as_slice)
    }

    fn is_closed(&self, stream: ConnectionId) -> bool {
        self.at_client.closed.iter().any(|(other, _)| *other == stream)
    }
}

fn lines(count: usize) -> Vec<u8> {
    (0..count).flat_map(|at| format!("{:*>1$}\n", at, 1 + at * 7 % 200).into_bytes()).collect()
}

#[test]
fn bytes_arrive_in_order_and_an_unfinished_line_is_offered_again() {
    for pair in every_transport() {
        for is_slow in [false, true] {
            let mut streams = Streams::new(every_transport_like(&pair));
            streams.at_server.is_slow = is_slow;
            let (id, _) = streams.open();
            let all = lines(2000);
            for piece in all.chunks(1777) {
                streams.send(id, piece);
                streams.turn();
            }
            streams.until("echoed all", |it| it.received(id).len() >= all.len());
            assert_eq!(streams.received(id), all, "{}", pair.name);
        }
    }
}

fn is_simulated(pair: &Pair) -> bool {
    pair.via == Via::Simulated
}

/// Returns a fresh pair of the same kind.
fn every_transport_like(pair: &Pair) -> Pair {
    every_transport().into_iter().find(|it| it.name == pair.name).unwrap()
}

#[test]
fn a_handler_that_waits_is_offered_nothing_until_it_resumes() {
    for pair in every_transport() {
        let mut streams = Streams::new(pair);
        let (id, there) = streams.open();
        streams.send(id, b"one\nwait\ntwo\n");
        streams.until("waits", |it| !it.at_server.waiting.is_empty());
        // Much more than a waiting stream keeps.
        let more = lines(4000);
        streams.send(id, &more);
        let offers = streams.at_server.offers;
        for _ in 0..500 {
            streams.turn();
        }
        let name = streams.pair.name;
        assert_eq!(streams.at_server.offers, offers, "{name}");
        assert_eq!(streams.received(id), b"one\n", "{name}");
        assert!(streams.pair.server.counters().held_bytes < 512 << 10, "{name}");
        streams.pair.server.resume(there);
        let all = [b"one\ntwo\n", more.as_slice()].concat();
        streams.until("answered all", |it| it.received(id).len() >= all.len());
        assert_eq!(streams.received(id), all, "{name}");
    }
}

#[test]
fn a_client_that_does_not_read_is_not_served_further_and_then_gets_all() {
    let limits = Limits { waiting_bytes_high: 200 << 10, ..limits() };
    for pair in every_transport_with(limits) {
        let mut streams = Streams::new(pair);
        let (id, there) = streams.open();
        const ASKED: usize = 200;
        streams.send(id, &b"much\n".repeat(ASKED));
        streams.pair.client.flush();
        for _ in 0..2000 {
            streams.serve();
        }
        let name = streams.pair.name;
        let waiting = streams.pair.server.waiting_bytes(there);
        assert!((200 << 10..400 << 10).contains(&waiting), "{name}: {waiting} bytes wait");
        streams.until("read all", |it| it.received(id).len() >= ASKED * 100_000);
        assert!(streams.received(id).iter().all(|byte| *byte == b'm'), "{name}");
    }
}

#[test]
fn a_finished_stream_closes_after_its_output_and_leaves_later_input_alone() {
    for pair in every_transport() {
        let mut streams = Streams::new(pair);
        let (id, there) = streams.open();
        streams.send(id, b"much\nmuch\nmuch\nquit\nlate\n");
        streams.until("closed", |it| it.is_closed(id));
        let name = streams.pair.name;
        let received = streams.received(id);
        assert_eq!(received.len(), 300_004, "{name}");
        assert!(received.ends_with(b"bye\n"), "{name}");
        assert_eq!(streams.at_client.closed, [(id, Cause::ByPeer)], "{name}");
        streams.until("told", |it| !it.at_server.closed.is_empty());
        assert_eq!(streams.at_server.closed, [(there, Cause::ByUs)], "{name}");
        assert_eq!(streams.pair.server.counters().held_bytes, 0, "{name}");
        assert_eq!(streams.pair.server.counters().open, 0, "{name}");
    }
}

#[test]
fn a_peer_that_closes_is_told_once() {
    for pair in every_transport() {
        let mut streams = Streams::new(pair);
        let (id, there) = streams.open();
        streams.send(id, b"unfinished");
        streams.turn();
        streams.pair.client.close(id, Cause::ByUs);
        streams.until("told", |it| !it.at_server.closed.is_empty());
        let name = streams.pair.name;
        assert_eq!(streams.at_server.ended, [there], "{name}");
        assert_eq!(streams.at_server.closed, [(there, Cause::ByPeer)], "{name}");
        for _ in 0..100 {
            streams.turn();
        }
        assert_eq!(streams.at_server.closed.len(), 1, "{name}");
        assert!(streams.at_client.closed.is_empty(), "{name}: it closed it itself");
    }
}

#[test]
fn a_peer_that_ends_its_output_still_gets_the_answers() {
    for pair in every_transport() {
        let mut streams = Streams::new(pair);
        let (id, there) = streams.open();
        streams.send(id, b"much\nmuch\na\n");
        streams.pair.client.end_output(id);
        streams.send(id, b"late\n");
        streams.pair.client.end_output(id);
        streams.until("closed", |it| it.is_closed(id));
        let name = streams.pair.name;
        let received = streams.received(id);
        assert_eq!(received.len(), 200_002, "{name}");
        assert!(received.ends_with(b"a\n"), "{name}");
        streams.until("told", |it| !it.at_server.closed.is_empty());
        assert_eq!(streams.at_server.ended, [there], "{name}");
        assert_eq!(streams.at_client.ended, [id], "{name}");
        assert_eq!(streams.pair.client.counters().open, 0, "{name}");
        // The end of much output comes after it.
        let (id, there) = streams.open();
        let lines = lines(2000);
        streams.send(id, &lines);
        streams.pair.client.end_output(id);
        streams.until("closed", |it| it.is_closed(id));
        assert_eq!(streams.received(id), lines, "{name}");
        assert_eq!(streams.at_server.ended.last(), Some(&there), "{name}");
    }
}

#[test]
fn a_handler_that_waits_with_input_learns_that_its_peer_has_closed() {
    for pair in every_transport() {
        let mut streams = Streams::new(pair);
        let (id, there) = streams.open();
        streams.send(id, b"one\nwait\ntwo\nwait\nthree\n");
        streams.until("waits", |it| !it.at_server.waiting.is_empty());
        streams.pair.client.close(id, Cause::ByUs);
        streams.until("told", |it| !it.at_server.ending.is_empty());
        let name = streams.pair.name;
        assert!(streams.at_server.ended.is_empty(), "{name}: not all bytes were offered");
        // It is told once. The answers find the connection closed.
        while streams.at_server.closed.is_empty() {
            streams.pair.server.resume(there);
            streams.turn();
        }
        assert_eq!(streams.at_server.ending, [there], "{name}");
        assert!(streams.at_server.ended.len() <= 1, "{name}");
    }
}

#[test]
fn a_line_longer_than_allowed_closes_the_stream() {
    for pair in every_transport() {
        let mut streams = Streams::new(pair);
        let (id, there) = streams.open();
        streams.send(id, &vec![b'x'; (1 << 20) - 1]);
        for _ in 0..500 {
            streams.turn();
        }
        let name = streams.pair.name;
        assert!(!streams.is_closed(id), "{name}");
        streams.send(id, b"xxxx");
        streams.until("closed", |it| it.is_closed(id));
        assert_eq!(streams.at_server.closed, [(there, Cause::TooLong)], "{name}");
        assert_eq!(streams.pair.server.counters().held_bytes, 0, "{name}");
    }
}

#[test]
fn a_short_unfinished_line_may_stay_and_a_long_one_must_be_finished() {
    for pair in every_transport() {
        // The simulated network has no deadline for unfinished bytes.
        if is_simulated(&pair) {
            continue;
        }
        let mut streams = Streams::new(pair);
        let (short, _) = streams.open();
        let (long, there) = streams.open();
        streams.send(short, b"typed by ha");
        streams.send(long, &[b'x'; 10_000]);
        for _ in 0..1000 {
            streams.turn();
        }
        streams.wait_for_sweeps(36_000);
        assert_eq!(streams.at_server.closed, [(there, Cause::Unfinished)]);
        streams.send(short, b"nd\n");
        streams.until("answered", |it| it.received(short) == b"typed by hand\n");
    }
}

#[test]
fn the_time_of_a_line_begins_when_it_is_no_longer_short() {
    for pair in every_transport().into_iter().filter(|pair| !is_simulated(pair)) {
        let mut streams = Streams::new(pair);
        let (id, _) = streams.open();
        streams.send(id, b"begun by hand ");
        streams.wait_for_sweeps(60_000);
        for _ in 0..9 {
            streams.send(id, &[b'x'; 1000]);
            streams.wait_for_sweeps(500);
        }
        assert!(streams.at_server.closed.is_empty());
        streams.send(id, b"\n");
        streams.until("answered", |it| it.received(id).len() == 9015);
    }
}

#[test]
fn a_short_rest_keeps_no_long_buffer() {
    for pair in every_transport().into_iter().filter(|pair| !is_simulated(pair)) {
        let mut streams = Streams::new(pair);
        let (id, _) = streams.open();
        let line = [vec![b'x'; 900_000], b"\nrest".to_vec()].concat();
        streams.send(id, &line);
        streams.until("answered", |it| it.received(id).len() == 900_001);
        let held = streams.pair.server.counters().held_bytes;
        assert!(held < 16 << 10, "{}: {held} bytes are held", streams.pair.name);
        streams.send(id, b"\n");
        streams.until("answered", |it| it.received(id).ends_with(b"\nrest\n"));
    }
}

#[test]
fn a_handler_that_is_ready_again_before_it_waits_is_offered_the_rest() {
    for pair in every_transport() {
        let mut streams = Streams::new(pair);
        let (id, _) = streams.open();
        streams.send(id, b"soon\nsoon\nlast\n");
        streams.until("answered", |it| it.received(id) == b"last\n");
    }
}

#[test]
fn a_stream_can_be_finished_before_it_opens() {
    for pair in every_transport() {
        let mut streams = Streams::new(pair);
        let id = streams.pair.client.connect_stream(streams.address);
        streams.pair.client.finish(id);
        streams.until("closed", |it| it.is_closed(id));
        assert_eq!(streams.at_client.closed, [(id, Cause::ByUs)], "{}", streams.pair.name);
    }
}

#[test]
fn the_end_comes_after_bytes_that_were_to_be_offered_again() {
    for pair in every_transport() {
        let mut streams = Streams::new(pair);
        streams.at_server.is_slow = true;
        let (id, there) = streams.open();
        streams.send(id, &b"much\n".repeat(5));
        streams.turn();
        streams.pair.client.close(id, Cause::ByUs);
        streams.until("told", |it| !it.at_server.closed.is_empty());
        assert!(streams.at_server.ended.len() <= 1, "{}", streams.pair.name);
        let is_reset = streams.at_server.closed[0] == (there, Cause::Reset);
        assert!(is_reset || streams.at_server.offers >= 5, "{}", streams.pair.name);
    }
}

#[test]
fn streams_beyond_the_limit_get_the_farewell() {
    // The client may request some more; the server keeps those for members.
    let limits = Limits { connections_reserved: 2, ..limits() };
    for pair in every_transport_with(limits) {
        let mut streams = Streams::new(pair);
        for _ in 0..4 {
            streams.open();
        }
        let late = streams.pair.client.connect_stream(streams.address);
        streams.until("closed", |it| it.is_closed(late));
        assert_eq!(streams.received(late), FAREWELL, "{}", streams.pair.name);
        assert_eq!(streams.at_server.opened.len(), 4, "{}", streams.pair.name);
        assert_eq!(streams.pair.server.counters().closed(Cause::TooMany), 1);
    }
}

#[test]
fn a_port_without_a_listener_refuses_a_stream() {
    for pair in every_transport() {
        let mut streams = Streams::new(pair);
        let nobody = SocketAddr::new(streams.address.ip(), 1);
        let id = streams.pair.client.connect_stream(nobody);
        streams.until("refused", |it| it.is_closed(id));
        assert_eq!(streams.at_client.closed, [(id, Cause::Refused)], "{}", streams.pair.name);
    }
}

#[test]
fn a_cluster_that_is_learned_closes_no_stream() {
    for pair in every_transport() {
        let mut streams = Streams::new(pair);
        let (id, _) = streams.open();
        let cluster = OwnCluster::Known(ClusterId(7));
        streams.pair.server.set_cluster(cluster);
        streams.send(id, b"still here\n");
        streams.until("answered", |it| it.received(id) == b"still here\n");
        assert!(streams.at_server.closed.is_empty());
    }
}

#[test]
fn messages_go_on_beside_streams() {
    for pair in every_transport() {
        let mut streams = Streams::new(pair);
        let framed = streams.pair.open();
        let (id, _) = streams.open();
        streams.pair.client.send(framed, &[b"a message"]);
        streams.send(id, b"a line\n");
        streams.until("both", |it| it.received(id) == b"a line\n" && it.at_server.messages == 1);
    }
}

#[test]
fn held_input_of_a_stream_comes_in_the_next_poll() {
    struct Holding(Vec<u8>);
    impl Handler for Holding {
        fn message(&mut self, _: &mut dyn Transport, _: ConnectionId, _: &[u8]) {}
        fn stream_bytes(
            &mut self,
            transport: &mut dyn Transport,
            _: ConnectionId,
            bytes: &[u8],
        ) -> Taken {
            transport.hold_input();
            self.0.push(bytes[0]);
            Taken { bytes: 1, then: Then::Again }
        }
    }
    for pair in every_transport() {
        let mut streams = Streams::new(pair);
        let (id, _) = streams.open();
        streams.send(id, b"abcdef");
        streams.pair.client.flush();
        let mut handler = Holding(Vec::new());
        let mut polls = 0;
        while handler.0.len() < 6 {
            (streams.pair.advance)();
            streams.pair.now = streams.pair.now + Duration::from_micros(5);
            let before = handler.0.len();
            streams.pair.server.poll(streams.pair.now, &mut handler);
            assert!(handler.0.len() <= before + 1, "{}", streams.pair.name);
            polls += 1;
            assert!(polls < 1_000_000, "{}", streams.pair.name);
        }
        assert_eq!(handler.0, b"abcdef", "{}", streams.pair.name);
    }
}
