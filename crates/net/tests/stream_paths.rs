//! Byte streams over sockets of the file system.

#![allow(clippy::disallowed_methods, reason = "the peers are not this transport")]

use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use thunderhead_net::os::{Options, OsTransport};
use thunderhead_net::stream::{Opened, StreamAddress, Taken};
use thunderhead_net::{Cause, ConnectionId, Handler, Transport};
use thunderhead_runtime::{Time, os};

/// Sends bytes back.
#[derive(Default)]
struct Echo {
    opened: Vec<Opened>,
    closed: Vec<Cause>,
}

impl Handler for Echo {
    fn message(&mut self, _: &mut dyn Transport, _: ConnectionId, _: &[u8]) {}

    fn stream_opened(&mut self, _: &mut dyn Transport, _: ConnectionId, opened: Opened) {
        self.opened.push(opened);
    }

    fn stream_bytes(
        &mut self,
        transport: &mut dyn Transport,
        from: ConnectionId,
        bytes: &[u8],
    ) -> Taken {
        transport.send_bytes(from, &[bytes]);
        Taken::read_on(bytes.len())
    }

    fn stream_closed(&mut self, _: &mut dyn Transport, _: ConnectionId, why: Cause) {
        self.closed.push(why);
    }
}

fn transport() -> OsTransport {
    let options = Options { shared_memory: false, ..Options::default() };
    OsTransport::new(&os::world_without_files().unwrap(), options).unwrap()
}

fn listen(transport: &mut OsTransport, path: &Path) -> std::io::Result<StreamAddress> {
    let address = StreamAddress::Unix(path.to_owned(), 0o600);
    transport.listen_stream(&address, b"full\n").map(|(address, _)| address)
}

/// A path in a directory of this test, which is removed at its end.
struct Scrap(PathBuf);

impl Scrap {
    fn new(name: &str) -> Scrap {
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scrap(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }
}

impl Drop for Scrap {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_path_serves_streams_and_goes_with_its_transport() {
    let scrap = Scrap::new("thunderhead-stream-path");
    let path = scrap.socket();
    let mut server = transport();
    let address = listen(&mut server, &path).unwrap();
    assert_eq!(address, StreamAddress::Unix(path.clone(), 0o600));
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let mut client = UnixStream::connect(&path).unwrap();
    client.set_nonblocking(true).unwrap();
    client.write_all(b"over a path").unwrap();
    let mut handler = Echo::default();
    let mut received = Vec::new();
    while received.len() < 11 {
        server.poll(Time(1), &mut handler);
        let mut buffer = [0; 64];
        if let Ok(count) = client.read(&mut buffer) {
            received.extend_from_slice(&buffer[..count]);
        }
    }
    assert_eq!(received, b"over a path");
    assert!(handler.opened.len() == 1 && handler.opened[0].peer.is_none());
    drop(client);
    while handler.closed.is_empty() {
        server.poll(Time(2), &mut handler);
    }
    assert_eq!(handler.closed, [Cause::ByPeer]);
    drop(server);
    assert!(!path.exists());
}

#[test]
fn a_socket_that_was_left_behind_is_replaced() {
    let scrap = Scrap::new("thunderhead-stream-left");
    let path = scrap.socket();
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    listen(&mut transport(), &path).unwrap();
}

#[test]
fn a_path_in_use_and_a_file_that_is_no_socket_are_refused() {
    let scrap = Scrap::new("thunderhead-stream-used");
    let path = scrap.socket();
    let mut first = transport();
    listen(&mut first, &path).unwrap();
    let error = listen(&mut transport(), &path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    UnixStream::connect(&path).expect("the first still listens");
    drop(first);
    std::fs::write(&path, "precious").unwrap();
    let error = listen(&mut transport(), &path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    let missing = scrap.0.join("missing/socket");
    assert_eq!(listen(&mut transport(), &missing).unwrap_err().kind(), ErrorKind::NotFound);
    let long = scrap.0.join("x".repeat(200));
    listen(&mut transport(), &long).expect_err("no socket can have so long a path");
}
