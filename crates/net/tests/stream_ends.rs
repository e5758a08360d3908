//! The end of a stream whose peer is any program: it closes one direction, or leaves bytes unread.

#![allow(clippy::disallowed_methods, reason = "the peers are not this transport")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use thunderhead_net::os::{Options, OsTransport};
use thunderhead_net::stream::{Opened, StreamAddress, Taken, Then};
use thunderhead_net::{Cause, ConnectionId, Handler, Transport};
use thunderhead_runtime::{Time, os};

/// Answers each line, waits at `wait`, and ends the stream at `quit`.
#[derive(Default)]
struct Lines {
    stream: Option<ConnectionId>,
    waits: bool,
    ended: usize,
    closed: Vec<Cause>,
}

impl Handler for Lines {
    fn message(&mut self, _: &mut dyn Transport, _: ConnectionId, _: &[u8]) {}

    fn stream_opened(&mut self, _: &mut dyn Transport, stream: ConnectionId, _: Opened) {
        self.stream = Some(stream);
    }

    fn stream_bytes(
        &mut self,
        transport: &mut dyn Transport,
        from: ConnectionId,
        bytes: &[u8],
    ) -> Taken {
        assert_eq!(self.ended, 0, "bytes after the end");
        let mut used = 0;
        for line in bytes.split_inclusive(|byte| *byte == b'\n').filter(|it| it.ends_with(b"\n")) {
            used += line.len();
            match line {
                b"wait\n" => {
                    self.waits = true;
                    return Taken { bytes: used, then: Then::Wait };
                }
                b"quit\n" => {
                    transport.send_bytes(from, &[b"bye\n"]);
                    transport.finish(from);
                    return Taken::read_on(used);
                }
                line => transport.send_bytes(from, &[line]),
            }
        }
        Taken::read_on(used)
    }

    fn stream_ended(&mut self, transport: &mut dyn Transport, stream: ConnectionId) {
        self.ended += 1;
        transport.finish(stream);
    }

    fn stream_closed(&mut self, _: &mut dyn Transport, _: ConnectionId, why: Cause) {
        self.closed.push(why);
    }
}

fn server() -> (OsTransport, SocketAddr) {
    let options = Options { shared_memory: false, ..Options::default() };
    let mut server = OsTransport::new(&os::world_without_files().unwrap(), options).unwrap();
    let any = StreamAddress::Tcp("127.0.0.1:0".parse().unwrap());
    let (address, _) = server.listen_stream(&any, b"full\n").unwrap();
    let StreamAddress::Tcp(address) = address else { panic!("a port was asked for") };
    (server, address)
}

/// Polls until a condition holds, because the kernel needs time to deliver.
fn until(server: &mut OsTransport, lines: &mut Lines, mut holds: impl FnMut(&Lines) -> bool) {
    for _ in 0..10_000_000 {
        if holds(lines) {
            return;
        }
        server.poll(Time(1), lines);
    }
    panic!("it never happened");
}

/// Reads all that the server sends until it closes.
fn read_to_end(server: &mut OsTransport, lines: &mut Lines, client: &mut TcpStream) -> Vec<u8> {
    client.set_nonblocking(true).unwrap();
    let (mut all, mut buffer) = (Vec::new(), [0; 1 << 16]);
    loop {
        server.poll(Time(1), lines);
        match client.read(&mut buffer) {
            Ok(0) => return all,
            Ok(count) => all.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error} after {} bytes", all.len()),
        }
    }
}

#[test]
fn a_peer_that_closes_its_direction_gets_all_answers() {
    let (mut server, address) = server();
    let mut lines = Lines::default();
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"one\nwait\ntwo\nwait\nthree\n").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    for _ in 0..2 {
        until(&mut server, &mut lines, |it| it.waits);
        // The end arrives while the handler waits and has lines before it.
        for _ in 0..1000 {
            server.poll(Time(1), &mut lines);
        }
        assert_eq!((lines.ended, lines.closed.len()), (0, 0));
        lines.waits = false;
        server.resume(lines.stream.unwrap());
    }
    assert_eq!(read_to_end(&mut server, &mut lines, &mut client), b"one\ntwo\nthree\n");
    until(&mut server, &mut lines, |it| !it.closed.is_empty());
    assert_eq!((lines.ended, lines.closed.as_slice()), (1, [Cause::ByPeer].as_slice()));
}

#[test]
fn the_last_answer_is_not_lost_when_bytes_are_left_unread() {
    let (mut server, address) = server();
    for behind in [0, 10, 60_000, 200_000] {
        let mut lines = Lines::default();
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(&[b"quit\n", vec![b'x'; behind].as_slice()].concat()).unwrap();
        assert_eq!(read_to_end(&mut server, &mut lines, &mut client), b"bye\n", "{behind}");
        until(&mut server, &mut lines, |it| !it.closed.is_empty());
        assert_eq!(lines.closed, [Cause::ByUs]);
    }
}
