//! The floor: a server that takes commands of Redis's protocol from sockets, counts them, and
//! answers each with the same bytes. A server that does the work of the commands cannot be faster
//! over the same sockets.

use crate::rpc::floors::{Stop, receive_some, send_some};
use anyhow::{Context as _, Result};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;

/// The names of the listener and of the stop among the events.
const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;

/// Bytes that one `recv` takes at most.
const BUFFER_BYTES: usize = 64 << 10;

/// Polls without an event after which the server sleeps, so that it takes no time from the other
/// servers while it has no client.
const IDLE_POLLS: u32 = 2000;

/// The server.
pub(super) struct Bare {
    listener: TcpListener,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    received: Vec<u8>,
    reply: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    /// The bytes of an incomplete command.
    partial: Vec<u8>,
    /// Bytes that the socket did not take yet.
    unsent: Vec<u8>,
    is_open: bool,
}

impl Bare {
    /// Returns a server that gives this reply to each command.
    pub(super) fn new(listener: TcpListener, reply: Vec<u8>) -> Result<Bare> {
        listener.set_nonblocking(true).context("make the listener non-blocking")?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("make an epoll")?;
        let name = epoll::EventData::new_u64(LISTENER);
        epoll::add(&epoll, &listener, name, epoll::EventFlags::IN).context("watch the listener")?;
        let received = vec![0; BUFFER_BYTES];
        Ok(Bare { listener, epoll, connections: Vec::new(), received, reply })
    }

    /// Serves until it is told to stop.
    pub(super) fn serve(mut self, stop: &Stop) -> Result<()> {
        let name = epoll::EventData::new_u64(STOP);
        epoll::add(&self.epoll, stop, name, epoll::EventFlags::IN).context("watch for the end")?;
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let (mut events, mut idle) = (Vec::with_capacity(256), 0);
        loop {
            events.clear();
            let timeout = (idle < IDLE_POLLS).then_some(&at_once);
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).context("wait for commands"),
            }
            idle = if events.is_empty() { idle + 1 } else { 0 };
            for event in &events {
                match event.data.u64() {
                    STOP => return Ok(()),
                    LISTENER => self.accept().context("accept a connection")?,
                    place => self.turn(place)?,
                }
            }
        }
    }

    fn accept(&mut self) -> Result<()> {
        let stream = match self.listener.accept() {
            Ok((stream, _)) => stream,
            // The connection was closed before it was accepted.
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let name = epoll::EventData::new_u64(self.connections.len() as u64);
        epoll::add(&self.epoll, &stream, name, epoll::EventFlags::IN)?;
        let (partial, unsent) = (Vec::new(), Vec::new());
        self.connections.push(Connection { stream, partial, unsent, is_open: true });
        Ok(())
    }

    fn turn(&mut self, place: u64) -> Result<()> {
        let Some(connection) = self.connections.get_mut(place as usize) else { return Ok(()) };
        if !connection.is_open {
            return Ok(());
        }
        let was_stuck = !connection.unsent.is_empty();
        if !was_stuck {
            connection.take(&mut self.received, &self.reply);
        }
        connection.send();
        if !connection.is_open {
            // The client has closed. The connection's place stays, because events name it.
            return epoll::delete(&self.epoll, &connection.stream).context("end a watch");
        }
        let is_stuck = !connection.unsent.is_empty();
        if is_stuck == was_stuck {
            return Ok(());
        }
        let flags = if is_stuck { epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
        epoll::modify(&self.epoll, &connection.stream, epoll::EventData::new_u64(place), flags)
            .context("change the awaited events")
    }
}

impl Connection {
    /// Receives once, and has a reply ready for each complete command.
    fn take(&mut self, received: &mut [u8], reply: &[u8]) {
        let bytes = match receive_some(&self.stream, received) {
            Ok(None) => return,
            Ok(Some(0)) | Err(_) => {
                self.is_open = false;
                return;
            }
            Ok(Some(bytes)) => bytes,
        };
        let joined;
        let mut rest = match self.partial.is_empty() {
            true => &received[..bytes],
            false => {
                self.partial.extend_from_slice(&received[..bytes]);
                joined = std::mem::take(&mut self.partial);
                &joined
            }
        };
        while let Some(end) = command_bytes(rest) {
            self.unsent.extend_from_slice(reply);
            rest = &rest[end..];
        }
        self.partial.extend_from_slice(rest);
    }

    fn send(&mut self) {
        if self.unsent.is_empty() {
            return;
        }
        match send_some(&self.stream, &self.unsent) {
            Ok(sent) => drop(self.unsent.drain(..sent)),
            Err(_) => self.is_open = false,
        }
    }
}

/// Returns the bytes of the first command, if it is complete.
fn command_bytes(bytes: &[u8]) -> Option<usize> {
    let (words, mut at) = number_line(bytes)?;
    for _ in 0..words {
        let (length, head) = number_line(bytes.get(at..)?)?;
        at = at.checked_add(head)?.checked_add(length)?.checked_add(2)?;
    }
    (at <= bytes.len()).then_some(at)
}

/// Returns the number behind the first byte of a line, and the bytes of the line.
fn number_line(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut number: usize = 0;
    for (at, byte) in bytes.iter().enumerate().skip(1) {
        match byte {
            b'0'..=b'9' => {
                number = number.checked_mul(10)?.checked_add(usize::from(byte - b'0'))?;
            }
            _ => return (at + 2 <= bytes.len()).then_some((number, at + 2)),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_ends_where_its_last_word_ends() {
        let command = b"*2\r\n$3\r\nGET\r\n$11\r\nkey:0000000\r\n";
        let more = [command.as_slice(), b"*1\r\n"].concat();
        assert_eq!(command_bytes(&more), Some(command.len()));
        for cut in 0..command.len() {
            assert_eq!(command_bytes(&command[..cut]), None, "cut at {cut}");
        }
        assert_eq!(command_bytes(b"*1\r\n$99999999999999999999999\r\n"), None);
    }
}
