//! Connections that move to shared memory, with ends that stop during the handover or break the
//! rules afterwards.

use rustix::net::{Shutdown, shutdown};
use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::rc::Rc;
use std::time::Duration;
use thunderhead_net::os::{Options, OsTransport};
use thunderhead_net::shm::{Answer, Channel, Visit};
use thunderhead_net::{Cause, ConnectionId, Handler, Transport, Via};
use thunderhead_runtime::{Time, os};
use thunderhead_wire::frame::{HEAD_BYTES, Head, Kind, LONG_MESSAGES, Preface};
use zerocopy::IntoBytes;

/// The events that one end was told, and its action for each message.
#[derive(Default)]
struct Heard {
    opened: Vec<ConnectionId>,
    closed: Vec<Cause>,
    messages: Vec<Vec<u8>>,
    and_then: Option<Box<dyn FnMut()>>,
}

impl Handler for Heard {
    fn opened(&mut self, _: &mut dyn Transport, connection: ConnectionId) {
        self.opened.push(connection);
    }

    fn message(&mut self, transport: &mut dyn Transport, from: ConnectionId, message: &[u8]) {
        self.messages.push(message.to_vec());
        if message.starts_with(b"echo") {
            transport.send(from, &[&message[4..]]);
        }
        if let Some(then) = &mut self.and_then {
            then();
        }
    }

    fn closed(&mut self, _: &mut dyn Transport, _: ConnectionId, why: Cause) {
        self.closed.push(why);
    }
}

struct End {
    transport: OsTransport,
    heard: Heard,
}

impl End {
    fn new() -> End {
        End::with(Options::default())
    }

    fn with(options: Options) -> End {
        let world = os::world_without_files().unwrap();
        let transport = OsTransport::new(&world, options).unwrap();
        End { transport, heard: Heard::default() }
    }

    fn server() -> (End, SocketAddr) {
        let mut end = End::new();
        let address = end.transport.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        (end, address)
    }

    fn turn(&mut self, now: Time) {
        self.transport.poll(now, &mut self.heard);
        self.transport.flush();
    }

    fn via(&self, connection: ConnectionId) -> Via {
        self.transport.peer(connection).unwrap().via
    }
}

const TURN: Duration = Duration::from_micros(50);

#[test]
fn a_client_that_stops_during_the_handover_continues_in_shared_memory() {
    // It stops after this many turns, for this long, while the server continues.
    for turns in 0..12 {
        for pause in [Duration::from_millis(300), Duration::from_secs(3600)] {
            let (mut server, address) = End::server();
            let mut client = End::new();
            let mut now = Time(1);
            let connection = client.transport.connect(address);
            for _ in 0..turns {
                now = now + TURN;
                client.turn(now);
                server.turn(now);
            }
            let parts = if turns < 3 { 1 } else { 100 };
            for _ in 0..parts {
                now = now + pause / parts;
                (0..10).for_each(|_| server.turn(now));
            }
            for _ in 0..10_000 {
                if !client.heard.messages.is_empty() || !client.heard.closed.is_empty() {
                    break;
                }
                now = now + TURN;
                if client.heard.opened.len() == 1 {
                    client.transport.send(connection, &[b"echo", b"hello"]);
                    client.heard.opened.push(connection);
                }
                client.turn(now);
                server.turn(now);
            }
            let context = format!("after {turns} turns for {pause:?}");
            if client.heard.closed.is_empty() {
                assert_eq!(client.heard.messages, [b"hello"], "{context}");
                assert_eq!(client.via(connection), Via::SharedMemory, "{context}");
                assert_eq!(server.via(server.heard.opened[0]), Via::SharedMemory, "{context}");
            } else {
                // The server had no greeting yet and did not wait for an hour.
                assert_eq!(server.heard.closed, [Cause::NoGreeting], "{context}");
                assert!(turns < 3 && pause > Duration::from_secs(5), "{context}");
            }
        }
    }
}

/// Returns a client, controlled by the test, that got as far as the rings.
fn ring_peer(server: &mut End, address: SocketAddr, now: &mut Time) -> (TcpStream, Channel) {
    ring_peer_with(0, server, address, now)
}

fn ring_peer_with(
    features: u64,
    server: &mut End,
    address: SocketAddr,
    now: &mut Time,
) -> (TcpStream, Channel) {
    #[allow(clippy::disallowed_methods, reason = "a peer that is not this transport")]
    let mut stream = TcpStream::connect(address).unwrap();
    let preface = Preface::new(features, 1000, None);
    stream.write_all(&frame(Kind::PREFACE, preface.as_bytes())).unwrap();
    let open = server.heard.opened.len();
    while server.heard.opened.len() == open {
        *now = *now + TURN;
        server.turn(*now);
    }
    let mut greeting = vec![0; HEAD_BYTES + Preface::new(0, 0, None).as_bytes().len()];
    stream.read_exact(&mut greeting).unwrap();
    let offer = Preface::agree(&greeting[HEAD_BYTES..], 0).unwrap().offer.unwrap();
    let mut visit = Visit::knock(&offer.door, offer.token).unwrap();
    loop {
        *now = *now + TURN;
        server.turn(*now);
        match visit.answer().unwrap() {
            Answer::Pending(again) => visit = again,
            Answer::Admitted(channel) => return (stream, channel),
        }
    }
}

#[test]
fn rings_are_long_if_both_ends_have_long_messages() {
    let options = Options::default();
    let (short, long) = (options.ring_bytes, options.long_ring_bytes);
    assert!(short < long);
    for (ours, theirs, expected) in [
        (0, 0, short),
        (LONG_MESSAGES, 0, short),
        (0, LONG_MESSAGES, short),
        (LONG_MESSAGES, LONG_MESSAGES, long),
    ] {
        let mut server = End::with(Options { features: ours, ..options });
        let address = server.transport.listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let (_stream, channel) = ring_peer_with(theirs, &mut server, address, &mut Time(1));
        assert_eq!(channel.ring_bytes(), expected, "{ours} {theirs}");
    }
}

fn frame(kind: Kind, payload: &[u8]) -> Vec<u8> {
    [&Head { kind, payload_bytes: payload.len() }.to_bytes(), payload].concat()
}

#[test]
fn a_peer_that_has_filled_a_long_ring_and_is_gone_is_heard_to_the_end() {
    let mut server = End::with(Options { features: LONG_MESSAGES, ..Options::default() });
    let address = server.transport.listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let mut now = Time(1);
    let (_stream, mut channel) = ring_peer_with(LONG_MESSAGES, &mut server, address, &mut now);
    // Frames that fill the buffer of the connection at places where it would have to grow.
    let sent = frame(Kind::MESSAGE, &[7; 100 << 10]);
    (0..10).for_each(|_| assert_eq!(channel.send(&[&sent]), Ok(sent.len())));
    channel.flush();
    shutdown(channel.socket(), Shutdown::Both).unwrap();
    while server.heard.closed.is_empty() {
        now = now + TURN;
        server.turn(now);
    }
    assert_eq!((server.heard.messages.len(), &server.heard.closed[..]), (10, &[Cause::ByPeer][..]));
}

#[test]
fn a_closed_peer_that_keeps_filling_its_ring_delays_no_other_connection() {
    let (mut server, address) = End::server();
    let mut now = Time(1);
    let (_stream, mut channel) = ring_peer(&mut server, address, &mut now);
    let sent = frame(Kind::MESSAGE, &[7; 100]);
    channel.send(&[&sent]).unwrap();
    channel.flush();
    while server.heard.messages.is_empty() {
        now = now + TURN;
        server.turn(now);
    }
    assert_eq!(server.via(server.heard.opened[0]), Via::SharedMemory);
    let mut good = End::new();
    let connection = good.transport.connect(address);
    while good.heard.opened.is_empty() {
        now = now + TURN;
        good.turn(now);
        server.turn(now);
    }

    // It closes its socket. For each message taken from its ring it puts in two more.
    channel.send(&[&sent]).unwrap();
    shutdown(channel.socket(), Shutdown::Both).unwrap();
    let channel = Rc::new(RefCell::new(channel));
    let (again, more) = (Rc::clone(&channel), sent.clone());
    server.heard.and_then = Some(Box::new(move || {
        let _ = again.borrow_mut().send(&[&more, &more]);
    }));
    server.heard.messages.clear();
    for _ in 0..100 {
        now = now + TURN;
        server.turn(now);
    }
    assert_eq!(server.heard.closed, [Cause::ByPeer]);
    let taken = server.heard.messages.len() * sent.len();
    assert!(taken <= 64 * (128 << 10), "{taken} bytes were taken from a closed peer");
    server.heard.and_then = None;
    good.transport.send(connection, &[b"echo", b"unaffected"]);
    for _ in 0..100 {
        now = now + TURN;
        good.turn(now);
        server.turn(now);
    }
    assert_eq!(good.heard.messages, [b"unaffected"]);
}
