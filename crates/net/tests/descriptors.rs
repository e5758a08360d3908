//! Servers without free descriptors. These tests have their own program, because the limit is the
//! program's.
#![allow(clippy::disallowed_methods, reason = "sockets of other peers take descriptors")]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use thunderhead_net::os::{Options, OsTransport};
use thunderhead_net::{Cause, ConnectionId, Handler, Transport};
use thunderhead_runtime::{Time, os};
use thunderhead_wire::frame::MEMBER;

struct Nobody;

impl Handler for Nobody {
    fn message(&mut self, _: &mut dyn Transport, _: ConnectionId, _: &[u8]) {}
}

/// Runs one test at a time, because the limit is the whole program's.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The events that one end was told.
#[derive(Default)]
struct Told {
    opened: Vec<ConnectionId>,
    closed: Vec<(ConnectionId, Cause)>,
}

impl Handler for Told {
    fn opened(&mut self, _: &mut dyn Transport, connection: ConnectionId) {
        self.opened.push(connection);
    }

    fn message(&mut self, _: &mut dyn Transport, _: ConnectionId, _: &[u8]) {}

    fn closed(&mut self, _: &mut dyn Transport, connection: ConnectionId, why: Cause) {
        self.closed.push((connection, why));
    }
}

fn transport(features: u64) -> OsTransport {
    let options = Options { features, shared_memory: false, ..Options::default() };
    OsTransport::new(&os::world_without_files().unwrap(), options).unwrap()
}

/// A limit on open files that holds until this is dropped, also by an assertion that fails: the
/// other tests of the program have the former limit then.
struct Limited {
    before: Rlimit,
}

impl Limited {
    fn to(count: u64) -> Limited {
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(count), ..before }).unwrap();
        Limited { before }
    }

    /// Allows no descriptor beyond the open ones.
    fn to_those_open() -> Limited {
        // The lowest that is free becomes the first that is not allowed.
        let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        Limited::to(OwnedFd::from(free).as_raw_fd() as u64)
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let restored = setrlimit(Resource::Nofile, self.before);
        assert!(restored.is_ok() || std::thread::panicking(), "{restored:?}");
    }
}

#[test]
fn the_limit_of_open_files_is_restored_after_an_assertion_that_fails() {
    let _alone = alone();
    let before = getrlimit(Resource::Nofile);
    let failed = std::panic::catch_unwind(|| {
        let _limited = Limited::to_those_open();
        assert_ne!(getrlimit(Resource::Nofile), before);
        std::panic::resume_unwind(Box::new("as an assertion does"));
    });
    assert!(failed.is_err());
    assert_eq!(getrlimit(Resource::Nofile), before);
}

#[allow(clippy::disallowed_methods, reason = "a peer that is not this transport")]
fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).unwrap()
}

#[test]
fn a_server_accepts_again_when_descriptors_are_free_again() {
    let _alone = alone();
    for shared_memory in [true, false] {
        let options = Options { shared_memory, ..Options::default() };
        let mut server = OsTransport::new(&os::world_without_files().unwrap(), options).unwrap();
        let address = server.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut now = Time(1);
        server.poll(now, &mut Nobody);
        assert_eq!(server.deadline(), None, "an idle server has no deadline");

        let _waiting = connect(address);
        let limited = Limited::to_those_open();
        for _ in 0..10 {
            now = now + Duration::from_micros(1);
            server.poll(now, &mut Nobody);
        }
        assert_eq!(server.counters().accepted, 0);
        for _ in 0..3 {
            // Nothing else happens; it tries again by itself, but not all the time.
            let at = server.deadline().expect("it plans another try");
            assert!(at > now && at <= now + Duration::from_secs(1), "{at:?} at {now:?}");
            now = at;
            for _ in 0..3 {
                server.poll(now, &mut Nobody);
            }
            assert_eq!(server.counters().accepted, 0);
        }

        drop(limited);
        now = server.deadline().expect("it wants to look again");
        server.poll(now, &mut Nobody);
        server.poll(now, &mut Nobody);
        assert_eq!(server.counters().accepted, 1);
        let _another = connect(address);
        server.poll(now, &mut Nobody);
        assert_eq!(server.counters().accepted, 2, "it listens as before");
    }
}

#[test]
fn a_connection_without_a_descriptor_does_not_blame_the_peer() {
    let _alone = alone();
    let (mut server, mut client) = (transport(0), transport(0));
    let address = server.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let limited = Limited::to_those_open();
    let connection = client.connect(address);
    let mut told = Told::default();
    client.poll(Time(1), &mut told);
    drop(limited);
    assert_eq!(told.closed, [(connection, Cause::Exhausted)]);
    assert!(Cause::Exhausted.is_own());
}

#[test]
fn clients_cannot_take_the_descriptors_that_members_and_the_server_itself_need() {
    const LIMIT: u64 = 256;
    let _alone = alone();
    let _limited = Limited::to(LIMIT);
    let (mut server, mut client, mut member) = (transport(MEMBER), transport(0), transport(MEMBER));
    let (mut at_server, mut at_client, mut at_member) =
        (Told::default(), Told::default(), Told::default());
    let address = server.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut now = Time(1);
    let mut turns = |server: &mut OsTransport, other: &mut OsTransport, told: &mut Told| {
        for _ in 0..30 {
            now = now + Duration::from_micros(10);
            other.poll(now, told);
            server.poll(now, &mut at_server);
        }
    };
    // Clients connect until some are turned away. Their own sockets take descriptors of the same
    // program.
    while at_client.closed.is_empty() {
        client.connect(address);
        turns(&mut server, &mut client, &mut at_client);
    }
    let clients = at_client.opened.len() - at_client.closed.len();
    assert!(clients > 50, "{clients}");
    // Silent peers fill the room for members: a member replaces the oldest of them.
    let _silent: Vec<TcpStream> = (0..20).map(|_| connect(address)).collect();
    turns(&mut server, &mut client, &mut at_client);
    let joined = member.connect(address);
    turns(&mut server, &mut member, &mut at_member);
    assert_eq!((&at_member.opened[..], &at_member.closed[..]), (&[joined][..], &[][..]));
    // The server itself can still connect and open files.
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let own = server.connect(other.local_addr().unwrap());
    turns(&mut server, &mut client, &mut at_client);
    let files: Result<Vec<_>, _> =
        (0..10).map(|_| std::net::UdpSocket::bind("127.0.0.1:0")).collect();
    assert!(files.is_ok(), "{files:?}");
    assert!(at_server.closed.iter().all(|(id, _)| *id != own), "{:?}", at_server.closed);
}
