//! A server that has no descriptors left. Alone in its program, for the limit is the program's.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;
use thunderhead_net::os::{Options, OsTransport};
use thunderhead_net::{ConnectionId, Handler, Transport};
use thunderhead_runtime::{Time, os};

struct Nobody;

impl Handler for Nobody {
    fn message(&mut self, _: &mut dyn Transport, _: ConnectionId, _: &[u8]) {}
}

/// Allows no descriptor beyond those that are open; returns what was allowed before.
fn allow_no_more() -> Rlimit {
    let before = getrlimit(Resource::Nofile);
    // The lowest that is free becomes the first that is not allowed.
    let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let first = OwnedFd::from(free).as_raw_fd() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(first), ..before }).unwrap();
    before
}

#[allow(clippy::disallowed_methods, reason = "a peer that is none of ours")]
fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).unwrap()
}

#[test]
fn a_server_without_descriptors_hears_again_when_there_are_some() {
    for shared_memory in [true, false] {
        let directory =
            std::env::temp_dir().join(format!("thunderhead-fds-{}", std::process::id()));
        let options = Options { shared_memory, ..Options::default() };
        let mut server = OsTransport::new(&os::world(&directory).unwrap(), options).unwrap();
        // Nothing is written there.
        let _ = std::fs::remove_dir(&directory);
        let address = server.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut now = Time(1);
        server.poll(now, &mut Nobody);
        assert_eq!(server.deadline(), None, "an idle server sleeps for as long as it likes");

        let _waiting = connect(address);
        let before = allow_no_more();
        for _ in 0..10 {
            now = now + Duration::from_micros(1);
            server.poll(now, &mut Nobody);
        }
        assert_eq!(server.counters().accepted, 0);
        for _ in 0..3 {
            // Nothing else happens; it looks again by itself, and not all the time.
            let at = server.deadline().expect("it wants to look again");
            assert!(at > now && at <= now + Duration::from_secs(1), "{at:?} at {now:?}");
            now = at;
            for _ in 0..3 {
                server.poll(now, &mut Nobody);
            }
            assert_eq!(server.counters().accepted, 0);
        }

        setrlimit(Resource::Nofile, before).unwrap();
        now = server.deadline().expect("it wants to look again");
        server.poll(now, &mut Nobody);
        server.poll(now, &mut Nobody);
        assert_eq!(server.counters().accepted, 1);
        let _another = connect(address);
        server.poll(now, &mut Nobody);
        assert_eq!(server.counters().accepted, 2, "it listens as before");
    }
}
