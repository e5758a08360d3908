//! Tests from inside: whether a transport could sleep, and which events wake it.

use super::*;
use crate::shm::Channel;
use std::io::Write;
use std::net::TcpStream;
use thunderhead_runtime::os;
use thunderhead_wire::frame::{HEAD_BYTES, Head, Kind, Preface};
use zerocopy::IntoBytes;

#[derive(Default)]
struct Echo {
    answered: usize,
    closed: Vec<Cause>,
    /// Connections to close when a message comes.
    closes: Vec<ConnectionId>,
}

impl Handler for Echo {
    fn message(&mut self, transport: &mut dyn Transport, from: ConnectionId, message: &[u8]) {
        self.answered += 1;
        transport.send(from, &[message]);
        for id in std::mem::take(&mut self.closes) {
            transport.close(id, Cause::ByUs);
        }
    }

    fn closed(&mut self, _: &mut dyn Transport, _: ConnectionId, why: Cause) {
        self.closed.push(why);
    }
}

const HIGH: usize = 64 << 10;

fn server() -> (OsTransport, SocketAddr) {
    let limits = Limits { waiting_bytes_high: HIGH, ..Limits::default() };
    let options = Options { limits, ..Options::default() };
    let world = os::world_without_files().unwrap();
    let mut server = OsTransport::new(&world, options).unwrap();
    let address = server.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    (server, address)
}

/// Returns a client's socket, accepted, that has not greeted.
fn visitor(server: &mut OsTransport, address: SocketAddr) -> (TcpStream, ConnectionId) {
    let before = server.counters.accepted;
    #[allow(clippy::disallowed_methods, reason = "a peer that is not this transport")]
    let stream = TcpStream::connect(address).unwrap();
    while server.counters.accepted == before {
        server.poll(server.now, &mut Echo::default());
    }
    let newest = server.connections.iter().map(|(id, _)| id).max();
    (stream, newest.unwrap())
}

/// Returns a client's socket that has greeted.
fn guest(server: &mut OsTransport, address: SocketAddr) -> (TcpStream, ConnectionId) {
    let (mut stream, id) = visitor(server, address);
    let preface = Preface::new(0, 1 << 20, None);
    let head = Head { kind: Kind::PREFACE, payload_bytes: preface.as_bytes().len() };
    stream.write_all(&[&head.to_bytes(), preface.as_bytes()].concat()).unwrap();
    while server.connections.get(id).unwrap().stage != Stage::Open {
        server.poll(server.now, &mut Echo::default());
    }
    (stream, id)
}

/// Polls at a fixed time until an event has happened, because the kernel needs time to deliver.
fn poll_until(
    server: &mut OsTransport,
    now: Time,
    handler: &mut Echo,
    mut happened: impl FnMut(&Echo) -> bool,
) {
    for _ in 0..10_000_000 {
        server.poll(now, handler);
        if happened(handler) {
            return;
        }
    }
    panic!("the event is never found");
}

/// Gives a client rings that the test controls.
fn with_rings(server: &mut OsTransport, address: SocketAddr) -> (Channel, ConnectionId) {
    let (_stream, id) = visitor(server, address);
    // This skips the token at the door.
    let (here, there) = Channel::pair(server.options.ring_bytes).unwrap();
    server.connections.get_mut(id).unwrap().stage = Stage::Open;
    server.move_to_rings(id, here);
    (there, id)
}

fn server_and_ring() -> (OsTransport, Channel, Echo) {
    let (mut server, address) = server();
    let (channel, _) = with_rings(&mut server, address);
    (server, channel, Echo::default())
}

/// Returns a client's message with `length` bytes of payload.
fn message(length: usize) -> Vec<u8> {
    let head = Head { kind: Kind::MESSAGE, payload_bytes: length }.to_bytes();
    [head.as_slice(), &vec![7; length]].concat()
}

#[test]
fn an_attempt_that_is_connected_to_itself_is_refused() {
    let (mut transport, _) = server();
    let (own, address) = socket::connected_to_itself();
    let id = transport.connections.insert(Connection::connect(address, Time(1_000_000_000)));
    transport.counters.open += 1;
    transport.poller.add(&own, table::Token::Connection(id).number(), true, true).unwrap();
    transport.connections.get_mut(id).unwrap().carry_by(own);
    let mut handler = Echo::default();
    poll_until(&mut transport, Time(1), &mut handler, |it| !it.closed.is_empty());
    assert_eq!(handler.closed, [Cause::Refused]);
}

#[test]
fn a_server_sleeps_while_its_peer_leaves_a_ring_full_and_wakes_when_there_is_room() {
    let (mut server, mut client, mut handler) = server_and_ring();
    let one = message(1000);
    let (mut now, mut sent) = (Time(1), 0);
    // The client keeps sending requests and takes no replies, until the server takes no more.
    for _ in 0..10_000 {
        if client.send(&[&one]).unwrap() == one.len() {
            sent += 1;
        } else {
            break;
        }
        client.flush();
        now = now + Duration::from_micros(1);
        server.poll(now, &mut handler);
        server.flush();
    }
    let id = server.rings[0];
    assert!(server.connections.get(id).unwrap().paused);
    assert!(handler.answered < sent, "the later requests stay in the ring");
    let before = handler.answered;

    // It may sleep repeatedly, although its ring holds requests.
    for _ in 0..3 {
        assert!(server.rings_may_sleep());
        assert_eq!(server.poller.look(), [], "nothing wakes it");
        server.rings_are_awake();
        server.poll(now, &mut handler);
        server.flush();
    }
    assert_eq!(handler.answered, before);

    // The client takes the replies while the server sleeps: that wakes it.
    assert!(server.rings_may_sleep());
    let mut taken = Vec::new();
    client.receive(&mut taken, usize::MAX).unwrap();
    client.flush();
    assert_eq!(server.poller.look().len(), 1, "room in the ring wakes it");
    server.rings_are_awake();
    for _ in 0..100 {
        now = now + Duration::from_micros(100);
        server.poll(now, &mut handler);
        server.flush();
        client.receive(&mut taken, usize::MAX).unwrap();
        client.flush();
    }
    assert!(handler.answered >= sent, "it goes on");
    assert_eq!(handler.closed, []);
    assert!(taken.len() >= sent * one.len());
}

#[test]
fn a_server_sleeps_while_a_message_in_a_ring_is_queued_and_wakes_when_the_peer_goes() {
    let (mut server, mut client, mut handler) = server_and_ring();
    let mut now = Time(1);
    let mut turns = |server: &mut OsTransport, handler: &mut Echo| {
        for _ in 0..3 {
            now = now + Duration::from_micros(100);
            server.poll(now, handler);
            server.flush();
        }
    };
    // Simulates another connection that holds much.
    server.connections.insert(Connection::connect("10.0.0.1:1".parse().unwrap(), Time::NEVER));
    server.counters.held_bytes += 200 << 20;
    server.enforce_budget(server.rings[0]);
    let long = message(1 << 20);
    assert!(client.send(&[&long]).unwrap() > 0);
    client.flush();
    turns(&mut server, &mut handler);
    assert_eq!(server.queued, [server.rings[0]]);
    for _ in 0..3 {
        assert!(!server.may_ease() && server.rings_may_sleep());
        assert_eq!(server.poller.look(), [], "nothing wakes it");
        server.rings_are_awake();
        turns(&mut server, &mut handler);
    }
    assert!(server.rings_may_sleep());
    drop(client);
    assert_eq!(server.poller.look().len(), 1, "its end does");
    server.rings_are_awake();
    turns(&mut server, &mut handler);
    assert_eq!(handler.closed, [Cause::ByPeer]);
    assert!(server.queued.is_empty());
    assert_eq!(server.counters.held_bytes, 200 << 20, "its bytes are freed");
}

#[test]
fn the_first_message_of_a_turn_leaves_at_once_and_all_shapes_arrive_in_order() {
    let (mut server, mut client, mut handler) = server_and_ring();
    let id = server.rings[0];
    let byte = |at: usize| (at * 31 % 251) as u8;
    // Short messages, messages of many parts, messages too long to be assembled first, and more
    // than a ring holds.
    let lengths = [0, 1, 30, 130, 247, 248, 249, 300, 5_000, 31_000, 8, 60_000, 100_000, 7];
    let parts = [1, 2, 3, 7, 8, 20];
    let (mut expected, mut taken) = (Vec::new(), Vec::new());
    for (length, parts) in lengths.iter().zip(parts.iter().cycle()) {
        let payload: Vec<u8> = (0..*length).map(byte).collect();
        let pieces: Vec<&[u8]> = payload.chunks(length.div_ceil(*parts).max(1)).collect();
        server.send(id, &pieces);
        expected.extend_from_slice(&message(*length)[..HEAD_BYTES]);
        expected.extend_from_slice(&payload);
        client.receive(&mut taken, usize::MAX).unwrap();
        if *length < LONG_BYTES {
            let is_first = expected.len() == HEAD_BYTES + length;
            assert_eq!(
                taken.len() == expected.len(),
                is_first,
                "only the first leaves before the flush"
            );
        }
        if expected.len() < 2_000 {
            // The next turn: its first message leaves at once as well.
            server.flush();
            client.receive(&mut taken, usize::MAX).unwrap();
            assert_eq!(taken, expected);
            server.send(id, &[&payload]);
            client.receive(&mut taken, usize::MAX).unwrap();
            expected.extend_from_slice(&message(*length)[..HEAD_BYTES]);
            expected.extend_from_slice(&payload);
            assert_eq!(taken, expected);
        }
    }
    assert!(server.waiting_bytes(id) > 0, "the ring is full");
    let mut now = Time(1);
    while taken.len() < expected.len() {
        client.flush();
        now = now + Duration::from_micros(1);
        assert!(now < Time(1_000_000), "the rest does not come");
        server.poll(now, &mut handler);
        client.receive(&mut taken, usize::MAX).unwrap();
    }
    assert_eq!(taken, expected);
    assert_eq!((server.waiting_bytes(id), server.counters.held_bytes), (0, 0));
}

#[test]
fn a_silent_peer_is_closed_after_a_stall_by_a_reactor_that_only_wakes_for_deadlines() {
    let (mut server, address) = server();
    let (_stream, _) = visitor(&mut server, address);
    let mut handler = Echo::default();
    // The server stood still for a while, in which the peer's greeting would have gone unread.
    let mut now = Time(1) + Duration::from_secs(100);
    server.poll(now, &mut handler);
    assert_eq!(handler.closed, []);
    for _ in 0..3 {
        // No sleep ends at exactly its deadline.
        now = server.deadline().map_or(now, |at| at + Duration::from_millis(1));
        let busy = server.poll(now, &mut handler);
        assert_eq!(busy, !handler.closed.is_empty(), "the poll that closes it reports work");
        if busy {
            break;
        }
    }
    assert_eq!(handler.closed, [Cause::NoGreeting]);
    assert_eq!(server.deadline(), None);
}

#[test]
fn a_silent_peer_is_closed_while_others_keep_every_turn_busy() {
    for rings in [false, true] {
        let (mut server, address) = server();
        let (_silent, _) = visitor(&mut server, address);
        let one = message(30);
        let mut ask: Box<dyn FnMut()> = if rings {
            let (mut channel, _) = with_rings(&mut server, address);
            let mut taken = Vec::new();
            Box::new(move || {
                channel.receive(&mut taken, usize::MAX).unwrap();
                taken.clear();
                assert_eq!(channel.send(&[&one]).unwrap(), one.len());
                channel.flush();
            })
        } else {
            let (mut stream, _) = guest(&mut server, address);
            Box::new(move || stream.write_all(&one).unwrap())
        };
        // It is late already, and the others send before a short cut expires.
        let (mut now, mut handler) = (server.now + Duration::from_secs(5), Echo::default());
        while handler.closed.is_empty() {
            ask();
            now = now + Duration::from_micros(15);
            assert!(now < Time(1) + Duration::from_secs(10), "deadlines are never checked");
            let before = handler.answered;
            poll_until(&mut server, now, &mut handler, |it| {
                it.answered > before || !it.closed.is_empty()
            });
        }
        assert_eq!(handler.closed, [Cause::NoGreeting]);
        assert!(handler.answered > 100);
    }
}

#[test]
fn a_handler_may_close_any_connection_while_it_handles_a_message() {
    let three = [message(30), message(40), message(50)].concat();
    for rings in [false, true] {
        let (mut server, address) = server();
        let (other_channel, other) = with_rings(&mut server, address);
        let mut send: Box<dyn FnMut()>;
        let id = if rings {
            let (mut channel, id) = with_rings(&mut server, address);
            let three = three.clone();
            send = Box::new(move || {
                assert_eq!(channel.send(&[&three]).unwrap(), three.len());
                channel.flush();
            });
            id
        } else {
            let (mut stream, id) = guest(&mut server, address);
            let three = three.clone();
            send = Box::new(move || stream.write_all(&three).unwrap());
            id
        };
        let (mut now, mut handler) = (Time(1), Echo::default());
        handler.closes = vec![other, id];
        send();
        while handler.answered == 0 {
            now = now + Duration::from_micros(100);
            server.poll(now, &mut handler);
        }
        for _ in 0..100 {
            now = now + Duration::from_micros(100);
            server.poll(now, &mut handler);
            server.flush();
        }
        assert_eq!(handler.answered, 1, "the later messages of a closed connection are dropped");
        assert_eq!((server.connections.count(), server.counters.open), (0, 0));
        assert_eq!((server.counters.held_bytes, server.rings.len()), (0, 0));
        drop(other_channel);
    }
}

#[test]
fn silent_rings_do_not_delay_a_socket() {
    let (mut server, address) = server();
    let (mut streams, mut handler) = (Vec::new(), Echo::default());
    for _ in 0..2 {
        streams.push(guest(&mut server, address).0);
    }
    let (_channel, _) = with_rings(&mut server, address);
    let mut now = server.now + Duration::from_millis(1);
    server.poll(now, &mut handler);
    for round in 1..100 {
        for stream in &mut streams {
            stream.write_all(&message(30)).unwrap();
        }
        now = now + Duration::from_micros(1);
        poll_until(&mut server, now, &mut handler, |it| it.answered == 2 * round);
    }
}

#[test]
fn a_closed_hot_connection_does_not_delay_a_socket() {
    let (mut server, address) = server();
    let mut handler = Echo::default();
    let (mut other, _) = guest(&mut server, address);
    let (mut busiest, _) = guest(&mut server, address);
    let mut now = server.now + Duration::from_millis(1);
    for round in 1..100 {
        busiest.write_all(&message(30)).unwrap();
        now = now + Duration::from_micros(1);
        poll_until(&mut server, now, &mut handler, |it| it.answered == round);
    }
    assert!(server.hot.is_some());
    drop(busiest);
    poll_until(&mut server, now, &mut handler, |it| !it.closed.is_empty());
    other.write_all(&message(30)).unwrap();
    poll_until(&mut server, now, &mut handler, |it| it.answered == 100);
}

/// Waits at once, and keeps the bytes of the last offer.
#[derive(Default)]
struct Waits {
    stream: Option<ConnectionId>,
    offered: Vec<u8>,
    ended: usize,
}

impl Handler for Waits {
    fn message(&mut self, _: &mut dyn Transport, _: ConnectionId, _: &[u8]) {}

    fn stream_bytes(
        &mut self,
        _: &mut dyn Transport,
        from: ConnectionId,
        bytes: &[u8],
    ) -> crate::stream::Taken {
        (self.stream, self.offered) = (Some(from), bytes.to_vec());
        crate::stream::Taken { bytes: 0, then: crate::stream::Then::Wait }
    }

    fn stream_ended(&mut self, _: &mut dyn Transport, _: ConnectionId) {
        self.ended += 1;
    }
}

#[test]
fn a_peer_that_hangs_up_while_its_input_waits_keeps_no_reactor_awake() {
    // Epoll reports that a peer of a local socket has hung up as long as it has the socket.
    for sent in [b"x".repeat(10), b"x".repeat(2 * READ_BYTES)] {
        let path = std::env::temp_dir().join(format!("thunderhead-hung-up-{}", std::process::id()));
        let (mut server, _) = server();
        let address = StreamAddress::Unix(path.clone(), 0o600);
        server.listen_stream(&address, b"").unwrap();
        #[allow(clippy::disallowed_methods, reason = "a peer that is not this transport")]
        let mut client = std::os::unix::net::UnixStream::connect(&path).unwrap();
        client.set_nonblocking(true).unwrap();
        let mut handler = Waits::default();
        let mut rest = sent.as_slice();
        while !rest.is_empty() || handler.stream.is_none() {
            rest = &rest[client.write(rest).unwrap_or(0)..];
            server.poll(server.now, &mut handler);
            if server.connections.iter().any(|(_, it)| it.input_is_full()) {
                break;
            }
        }
        drop(client);
        for _ in 0..100 {
            server.poll(server.now, &mut handler);
        }
        let mut ready = Vec::new();
        server.poller.look();
        server.poller.swap_ready(&mut ready);
        assert!(ready.is_empty(), "{ready:?}");
        server.resume(handler.stream.unwrap());
        server.poll(server.now, &mut handler);
        assert!(handler.offered.len() >= sent.len().min(READ_BYTES));
    }
}

#[test]
fn an_event_from_before_a_pause_does_not_end_the_wait_for_room() {
    let (mut server, _) = server();
    let address = StreamAddress::Tcp("127.0.0.1:0".parse().unwrap());
    let (StreamAddress::Tcp(address), _) = server.listen_stream(&address, b"").unwrap() else {
        panic!("it listens elsewhere")
    };
    #[allow(clippy::disallowed_methods, reason = "a peer that is not this transport")]
    let mut client = TcpStream::connect(address).unwrap();
    client.set_nonblocking(true).unwrap();
    client.write_all(b"x").unwrap();
    let mut handler = Waits::default();
    while handler.stream.is_none() {
        server.poll(server.now, &mut handler);
    }
    let stream = handler.stream.unwrap();
    // The client does not read, so the stream is paused and waits for room.
    let output = vec![b'y'; 1 << 20];
    let mut sent = 0;
    while server.connections.get(stream).is_some_and(|it| !it.waits_for_room) {
        server.send_bytes(stream, &[&output]);
        sent += output.len();
        server.poll(server.now, &mut handler);
    }
    server.pause(stream);
    let ready = os::Ready { token: 0, readable: true, writable: false };
    server.on_stream_event(stream, ready, &mut handler);
    // The client reads, and epoll alone says that there is room.
    let (mut read, mut buffer) = (0, vec![0; 1 << 16]);
    for _ in 0..1_000_000 {
        match std::io::Read::read(&mut client, &mut buffer) {
            Ok(count) => read += count,
            Err(_) => drop(server.poll(server.now, &mut handler)),
        }
        if read == sent {
            return;
        }
    }
    panic!("{read} of {sent} bytes arrive");
}
