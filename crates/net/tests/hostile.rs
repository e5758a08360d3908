//! Peers that break the rules, over plain sockets: each is closed for the right cause and counted,
//! and other connections are not affected.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use thunderhead_net::os::{Options, OsTransport};
use thunderhead_net::{Cause, ConnectionId, Handler, Limits, Transport};
use thunderhead_runtime::{Time, os};
use thunderhead_wire::frame::{Head, Kind, Preface};
use zerocopy::IntoBytes;

#[derive(Default)]
struct Heard {
    closed: Vec<Cause>,
    messages: Vec<Vec<u8>>,
}

impl Handler for Heard {
    fn message(&mut self, transport: &mut dyn Transport, from: ConnectionId, message: &[u8]) {
        self.messages.push(message.to_vec());
        transport.send(from, &[message]);
    }

    fn closed(&mut self, _: &mut dyn Transport, _: ConnectionId, why: Cause) {
        self.closed.push(why);
    }
}

struct Server {
    transport: OsTransport,
    heard: Heard,
    address: SocketAddr,
    now: Time,
}

impl Server {
    fn new() -> Server {
        let limits =
            Limits { message_bytes_max: 1000, bytes_per_second_min: 20, ..Limits::default() };
        let options = Options { limits, ..Options::default() };
        let mut transport = OsTransport::new(&os::world_without_files().unwrap(), options).unwrap();
        let address = transport.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        Server { transport, heard: Heard::default(), address, now: Time(1) }
    }

    #[allow(clippy::disallowed_methods, reason = "a peer that is not this transport")]
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.now = self.now + Duration::from_micros(1);
            self.transport.poll(self.now, &mut self.heard);
            self.transport.flush();
        }
    }

    /// Lets `seconds` go by, with turns in the last two of them.
    fn later(&mut self, seconds: u64) {
        for part in [seconds * 1000 - 1800, 900, 900] {
            self.now = self.now + Duration::from_millis(part);
            self.turns(40);
        }
    }

    /// Lets a second go by, with turns in it, so that this process does not count as stopped.
    fn a_second_later(&mut self) {
        for _ in 0..5 {
            self.now = self.now + Duration::from_millis(200);
            self.turns(40);
        }
    }

    fn until_closed(&mut self) -> Cause {
        for _ in 0..1_000_000 {
            if let Some(why) = self.heard.closed.pop() {
                assert!(self.heard.closed.is_empty());
                assert!(self.transport.counters().closed(why) > 0);
                return why;
            }
            self.turns(1);
        }
        panic!("never closed");
    }

    /// Checks that a peer that keeps to the rules is still served.
    fn check_unaffected(&mut self, stream: &mut TcpStream) {
        self.heard.messages.clear();
        stream.write_all(&frame(Kind::MESSAGE, b"hello")).unwrap();
        for _ in 0..1_000_000 {
            self.turns(1);
            if self.heard.messages == [b"hello".to_vec()] {
                return;
            }
        }
        panic!("a good peer is not served");
    }
}

fn frame(kind: Kind, payload: &[u8]) -> Vec<u8> {
    [&Head { kind, payload_bytes: payload.len() }.to_bytes(), payload].concat()
}

fn preface() -> Vec<u8> {
    frame(Kind::PREFACE, Preface::new(0, 1000, None).as_bytes())
}

#[test]
fn invalid_bytes_close_only_their_own_connection() {
    let mut server = Server::new();
    let mut good = server.connect();
    good.write_all(&preface()).unwrap();
    let too_long = Head { kind: Kind::MESSAGE, payload_bytes: 1001 }.to_bytes().to_vec();
    let longest = Head { kind: Kind::MESSAGE, payload_bytes: (1 << 24) - 1 }.to_bytes().to_vec();
    let old = Preface::new(0, 1000, None).with_versions(90, 99);
    let greeted = |rest: &[u8]| [preface(), rest.to_vec()].concat();
    let cases: Vec<(&str, Vec<u8>, Cause)> = vec![
        ("text", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), Cause::NotOurs),
        ("zeroes", vec![0; 100], Cause::NotOurs),
        ("ones", vec![0xff; 100], Cause::NotOurs),
        ("a message before the greeting", frame(Kind::MESSAGE, b"hello"), Cause::NotOurs),
        ("a greeting that is too short", frame(Kind::PREFACE, b"THUNDER\n"), Cause::NotOurs),
        (
            "a greeting of another build",
            frame(Kind::PREFACE, &old.as_bytes()[..56]),
            Cause::Version,
        ),
        ("another magic", frame(Kind::PREFACE, &[1; 64]), Cause::NotOurs),
        ("other versions", frame(Kind::PREFACE, old.as_bytes()), Cause::Version),
        ("a greeting twice", greeted(&preface()), Cause::Malformed),
        ("an unknown kind", greeted(&frame(Kind(77), b"?")), Cause::Malformed),
        ("a long message", greeted(&too_long), Cause::TooLong),
        ("a very long message", greeted(&longest), Cause::TooLong),
    ];
    for (name, bytes, expected) in cases {
        let mut stream = server.connect();
        stream.write_all(&bytes).unwrap();
        assert_eq!(server.until_closed(), expected, "{name}");
        server.check_unaffected(&mut good);
        // A peer with other versions can read ours in the greeting.
        stream.set_nonblocking(false).unwrap();
        let mut seen = Vec::new();
        let _ = stream.read_to_end(&mut seen);
        assert!(seen.is_empty() || seen.starts_with(&[64, 0, 0, 1]), "{name}");
    }
}

#[test]
fn skippable_frames_and_empty_messages_are_accepted() {
    let mut server = Server::new();
    let mut stream = server.connect();
    let bytes = [preface(), frame(Kind(200), b"from the future"), frame(Kind::MESSAGE, b"")];
    stream.write_all(&bytes.concat()).unwrap();
    server.check_unaffected_by_empty();
    server.check_unaffected(&mut stream);
}

impl Server {
    fn check_unaffected_by_empty(&mut self) {
        for _ in 0..1_000_000 {
            self.turns(1);
            if self.heard.messages == [Vec::<u8>::new()] {
                return;
            }
        }
        panic!("an empty message does not arrive");
    }
}

#[test]
fn a_peer_that_is_silent_or_does_not_finish_is_closed_in_time() {
    let mut server = Server::new();
    let mut good = server.connect();
    good.write_all(&preface()).unwrap();
    server.check_unaffected(&mut good);
    let _silent = server.connect();
    let mut slow = server.connect();
    slow.write_all(&preface()[..20]).unwrap();
    let mut half = server.connect();
    half.write_all(&preface()).unwrap();
    half.write_all(&frame(Kind::MESSAGE, &[1; 500])[..100]).unwrap();
    server.turns(100);
    assert_eq!(server.heard.closed, []);
    server.later(6);
    assert_eq!(server.heard.closed, [Cause::NoGreeting, Cause::NoGreeting]);
    server.heard.closed.clear();
    server.later(25);
    assert_eq!(server.heard.closed, [Cause::Unfinished]);
    server.check_unaffected(&mut good);
    assert_eq!(server.transport.counters().open, 1);
}

#[test]
fn a_peer_that_sends_single_bytes_slowly_is_closed() {
    let mut server = Server::new();
    let mut slow = server.connect();
    slow.write_all(&preface()).unwrap();
    slow.write_all(&frame(Kind::MESSAGE, &[1; 500])[..10]).unwrap();
    server.turns(1000);
    for _ in 0..9 {
        server.a_second_later();
        slow.write_all(&[1]).unwrap();
    }
    assert_eq!(server.heard.closed, []);
    server.a_second_later();
    server.a_second_later();
    assert_eq!(server.heard.closed, [Cause::Unfinished], "its time at any speed is over");
}

#[test]
fn a_peer_at_the_minimum_rate_stays_until_the_limit_for_a_message() {
    // The rate in bytes a second, and the second at which it is closed.
    for (rate, closed) in [(1, 10), (10, 20), (19, 30), (40, 30)] {
        let mut server = Server::new();
        let mut slow = server.connect();
        slow.write_all(&preface()).unwrap();
        slow.write_all(&Head { kind: Kind::MESSAGE, payload_bytes: 1000 }.to_bytes()).unwrap();
        // All but the last byte of a message, which never comes.
        let mut left = 999;
        for second in 0..35 {
            let now = rate.min(left);
            left -= now;
            let _ = slow.write_all(&vec![1; now]);
            server.a_second_later();
            // In seconds beyond the minimum: one for a byte, one for the turns in between.
            let is_closed = server.heard.closed == [Cause::Unfinished];
            assert!(is_closed || second <= closed + 1, "{rate}: open after {second} seconds");
            assert!(!is_closed || second >= closed - 2, "{rate}: closed after {second} seconds");
        }
    }
    let mut server = Server::new();
    let mut steady = server.connect();
    steady.write_all(&preface()).unwrap();
    for part in frame(Kind::MESSAGE, &[7; 1000]).chunks(50) {
        server.a_second_later();
        steady.write_all(part).unwrap();
    }
    server.a_second_later();
    assert_eq!(server.heard.messages, [vec![7; 1000]], "it came in twenty seconds");
    server.check_unaffected(&mut steady);
}

#[test]
fn a_message_sent_byte_by_byte_arrives() {
    let mut server = Server::new();
    let mut stream = server.connect();
    for byte in [preface(), frame(Kind::MESSAGE, b"slowly")].concat() {
        stream.write_all(&[byte]).unwrap();
        server.turns(3);
    }
    for _ in 0..1_000_000 {
        server.turns(1);
        if !server.heard.messages.is_empty() {
            break;
        }
    }
    assert_eq!(server.heard.messages, [b"slowly"]);
    server.check_unaffected(&mut stream);
}

#[test]
fn half_open_connections_are_closed_when_the_peer_is_gone() {
    let mut server = Server::new();
    let mut stream = server.connect();
    stream.write_all(&preface()).unwrap();
    server.turns(100);
    drop(stream);
    assert!([Cause::ByPeer, Cause::Reset].contains(&server.until_closed()));
    assert_eq!(server.transport.counters().open, 0);
}
