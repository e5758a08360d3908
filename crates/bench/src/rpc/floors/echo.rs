//! A bare echo server for many TCP connections, on epoll.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::load::{Load, Throughput, generate};
use super::{REPLY_BYTES, REQUEST_BYTES, Stop, Waiting, beside, receive_some, send_some};

/// The most bytes of one `recv`.
const BUFFER_BYTES: usize = 64 << 10;

/// The most replies for one `recv`: the first request may have begun before it.
const MOST_REPLIES: usize = BUFFER_BYTES / REQUEST_BYTES + 1;

/// The listener's id in epoll; the id of a connection is its place.
const LISTENER: u64 = u64::MAX;

/// The stop signal's id in epoll.
const STOP: u64 = u64::MAX - 1;

/// Measures requests a second of the bare server: connections with requests in flight on each, over
/// some time, after a warm-up of a tenth of that.
///
/// # Errors
/// When a socket fails or the server falls silent.
pub fn echo_throughput(
    waiting: Waiting,
    connections: usize,
    depth: usize,
    duration: Duration,
) -> Result<Throughput> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listen on loopback")?;
    let address = listener.local_addr().context("ask for the listener's address")?;
    let server = EpollEcho::new(listener, waiting)?;
    let load = Load {
        address,
        connections,
        depth,
        request: &[0; REQUEST_BYTES],
        reply_bytes: REPLY_BYTES,
        stamp: None,
        warm_up: duration / 10,
        duration,
    };
    beside(move |stop| server.serve(stop), || generate(&load, &mut |_| Ok(())))
}

/// A bare echo server. It waits for ready connections, level-triggered, receives once from each,
/// and answers all complete requests in one `send`, with [`REPLY_BYTES`] for each
/// [`REQUEST_BYTES`]. A reply begins with its request.
#[derive(Debug)]
pub struct EpollEcho {
    listener: TcpListener,
    waiting: Waiting,
    epoll: OwnedFd,
    connections: Vec<Option<Connection>>,
    received: Vec<u8>,
    /// Replies to one read. Only the head of each is ever written: the rest is the same for all.
    replies: Vec<u8>,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    /// A partial request.
    partial: Vec<u8>,
    /// Replies for which the socket had no room. While there are any, nothing is received.
    unsent: Vec<u8>,
}

/// The next step of a connection after it was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Wait for more requests.
    Receive,
    /// Wait for room for replies.
    Send,
    /// The client has closed.
    Close,
}

impl EpollEcho {
    /// Returns a server for a listener.
    ///
    /// # Errors
    /// When the process has no file descriptors left.
    pub fn new(listener: TcpListener, waiting: Waiting) -> Result<Self> {
        listener.set_nonblocking(true).context("make the listener non-blocking")?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("make an epoll")?;
        let name = epoll::EventData::new_u64(LISTENER);
        epoll::add(&epoll, &listener, name, epoll::EventFlags::IN).context("watch the listener")?;
        Ok(Self {
            listener,
            waiting,
            epoll,
            connections: Vec::new(),
            received: vec![0; BUFFER_BYTES],
            replies: vec![0; MOST_REPLIES * REPLY_BYTES],
        })
    }

    /// Serves until told to stop.
    ///
    /// # Errors
    /// When waiting or accepting fails. A connection that fails is closed, as if its client had
    /// closed it.
    pub fn serve(mut self, stop: &Stop) -> Result<()> {
        let name = epoll::EventData::new_u64(STOP);
        epoll::add(&self.epoll, stop, name, epoll::EventFlags::IN).context("watch for the end")?;
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timeout = match self.waiting {
            Waiting::Polling => Some(&at_once),
            Waiting::Blocking => None,
        };
        let mut events = Vec::with_capacity(256);
        loop {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).context("wait for requests"),
            }
            for event in &events {
                let name = event.data;
                match name.u64() {
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
        let place = self.connections.iter().position(Option::is_none).unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let name = epoll::EventData::new_u64(place as u64);
        epoll::add(&self.epoll, &stream, name, epoll::EventFlags::IN)?;
        let partial = Vec::with_capacity(REQUEST_BYTES);
        self.connections[place] = Some(Connection { stream, partial, unsent: Vec::new() });
        Ok(())
    }

    /// Serves a ready connection.
    #[inline]
    fn turn(&mut self, place: u64) -> Result<()> {
        let slot = &mut self.connections[place as usize];
        let Some(connection) = slot else { return Ok(()) };
        let was_sending = !connection.unsent.is_empty();
        let next = if was_sending {
            connection.flush()
        } else {
            connection.answer(&mut self.received, &mut self.replies)
        };
        let name = epoll::EventData::new_u64(place);
        let flags = match next {
            Next::Receive if was_sending => epoll::EventFlags::IN,
            Next::Send if !was_sending => epoll::EventFlags::OUT,
            Next::Receive | Next::Send => return Ok(()),
            Next::Close => {
                // Closing also ends the watch.
                *slot = None;
                return Ok(());
            }
        };
        epoll::modify(&self.epoll, &connection.stream, name, flags)
            .context("change the awaited events")
    }
}

impl Connection {
    /// Receives once and answers all complete requests.
    #[inline]
    fn answer(&mut self, received: &mut [u8], replies: &mut [u8]) -> Next {
        let bytes = match receive_some(&self.stream, received) {
            Ok(Some(0)) | Err(_) => return Next::Close,
            Ok(None) => return Next::Receive,
            Ok(Some(bytes)) => bytes,
        };
        let mut rest = &received[..bytes];
        let mut heads = replies.chunks_exact_mut(REPLY_BYTES);
        let mut count = 0;
        let mut reply = |request: &[u8]| {
            if let Some(head) = heads.next() {
                head[..REQUEST_BYTES].copy_from_slice(request);
                count += 1;
            }
        };
        if !self.partial.is_empty() {
            let missing = (REQUEST_BYTES - self.partial.len()).min(rest.len());
            self.partial.extend_from_slice(&rest[..missing]);
            rest = &rest[missing..];
            if self.partial.len() == REQUEST_BYTES {
                reply(&self.partial);
                self.partial.clear();
            }
        }
        let requests = rest.chunks_exact(REQUEST_BYTES);
        self.partial.extend_from_slice(requests.remainder());
        requests.for_each(&mut reply);
        self.send(&replies[..count * REPLY_BYTES])
    }

    /// Sends replies, and keeps those for which there is no room.
    #[inline]
    fn send(&mut self, replies: &[u8]) -> Next {
        if replies.is_empty() {
            return Next::Receive;
        }
        match send_some(&self.stream, replies) {
            Ok(sent) if sent == replies.len() => Next::Receive,
            Ok(sent) => {
                self.unsent.extend_from_slice(&replies[sent..]);
                Next::Send
            }
            Err(_) => Next::Close,
        }
    }

    /// Sends kept replies.
    fn flush(&mut self) -> Next {
        match send_some(&self.stream, &self.unsent) {
            Ok(sent) => {
                self.unsent.drain(..sent);
                if self.unsent.is_empty() { Next::Receive } else { Next::Send }
            }
            Err(_) => Next::Close,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::Shutdown;

    use super::super::PATIENCE;
    use super::*;

    /// Sends requests in pieces of a size and reads the replies only afterwards.
    fn send_in_pieces(waiting: Waiting, requests: usize, piece: usize) -> Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let server = EpollEcho::new(listener, waiting)?;
        let sent: Vec<u8> = (0..requests * REQUEST_BYTES).map(|byte| (byte % 251) as u8).collect();
        beside(
            move |stop| server.serve(stop),
            || {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                let mut replies = Vec::with_capacity(requests * REPLY_BYTES);
                std::thread::scope(|scope| -> Result<()> {
                    let writer = scope.spawn(|| -> Result<()> {
                        for bytes in sent.chunks(piece) {
                            (&stream).write_all(bytes)?;
                        }
                        Ok(())
                    });
                    // With many requests, the server runs out of room meanwhile.
                    std::thread::sleep(Duration::from_millis(50));
                    replies.resize(requests * REPLY_BYTES, 0);
                    (&stream).read_exact(&mut replies)?;
                    writer.join().expect("the writer does not panic")
                })?;
                stream.shutdown(Shutdown::Both)?;
                let requests = sent.chunks_exact(REQUEST_BYTES);
                for (request, reply) in requests.zip(replies.chunks_exact(REPLY_BYTES)) {
                    assert_eq!(request, &reply[..REQUEST_BYTES]);
                    assert!(reply[REQUEST_BYTES..].iter().all(|byte| *byte == 0));
                }
                Ok(())
            },
        )
    }

    #[test]
    fn requests_in_pieces_are_answered_in_order() -> Result<()> {
        for waiting in [Waiting::Polling, Waiting::Blocking] {
            send_in_pieces(waiting, 20, 7)?;
            send_in_pieces(waiting, 20, 31)?;
        }
        Ok(())
    }

    #[test]
    fn replies_without_room_are_sent_later() -> Result<()> {
        send_in_pieces(Waiting::Blocking, 300_000, 1 << 16)
    }
}
