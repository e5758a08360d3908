//! A load generator for requests and replies of fixed sizes, over TCP.
//!
//! One thread runs a closed loop: on each connection it sends several requests in one call, waits
//! for as many replies, and sends again. It checks only the number of bytes, so that the server is
//! the bottleneck. The same generator drives the bare echo server and an RPC server.

use std::fmt;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::latencies::Latencies;
use super::{PATIENCE, receive_some, send_some};

/// The most bytes of one `recv`.
const BUFFER_BYTES: usize = 256 << 10;

/// Turns without a completed batch between two readings of the clock.
const TURNS: u32 = 256;

/// Makes a request differ from the others: gets the request's bytes, which keep the changes of an
/// earlier call, and a number that no other request of the load has.
pub type Stamp<'a> = dyn Fn(&mut [u8], u64) + 'a;

/// The requests to send, the server, and the durations.
#[derive(Clone, Copy)]
pub struct Load<'a> {
    /// The server.
    pub address: SocketAddr,
    /// Connections to it.
    pub connections: usize,
    /// Requests in flight on each connection.
    pub depth: usize,
    /// The bytes of a request, the same for all except for changes by `stamp`.
    pub request: &'a [u8],
    /// Bytes of the reply to a request.
    pub reply_bytes: usize,
    /// Called for each request before it is sent, if set.
    pub stamp: Option<&'a Stamp<'a>>,
    /// The time before the measurement, under the same load.
    pub warm_up: Duration,
    /// The time of the measurement.
    pub duration: Duration,
}

impl fmt::Debug for Load<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Load")
            .field("address", &self.address)
            .field("connections", &self.connections)
            .field("depth", &self.depth)
            .field("request_bytes", &self.request.len())
            .field("reply_bytes", &self.reply_bytes)
            .finish_non_exhaustive()
    }
}

/// The results of a load.
#[derive(Clone, Debug)]
pub struct Throughput {
    /// The number of answered requests.
    pub requests: u64,
    /// The time in which they were answered.
    pub duration: Duration,
    /// Times from sending a batch until its last reply arrives: with a depth of 1, those of a
    /// request. They contain the time in which the generator serves other connections.
    pub latencies: Latencies,
}

impl Throughput {
    /// Returns the requests answered per second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.requests as f64 / self.duration.as_secs_f64()
    }
}

/// Connects, calls `prepare` for each connection, and generates a load from the calling thread,
/// which it keeps busy and does not pin: see [`pinned`](thunderhead_load::machine::pinned).
///
/// `prepare` can perform a handshake and try a request, because the generator does not inspect
/// replies. The stream then blocks for at most [`PATIENCE`]; no byte from the server may be left
/// unread.
///
/// # Errors
/// When there is nothing to do, when a connection or its preparation fails, or when the server
/// closes a connection, sends too many bytes, or falls silent.
pub fn generate(
    load: &Load<'_>,
    prepare: &mut dyn FnMut(&mut TcpStream) -> Result<()>,
) -> Result<Throughput> {
    ensure!(load.connections > 0 && load.depth > 0, "a load needs connections and a depth");
    ensure!(!load.request.is_empty() && load.reply_bytes > 0, "messages must not be empty");
    let mut generator = Generator::connect(load, prepare)?;
    generator.now = Instant::now();
    for place in 0..load.connections {
        generator.begin(place)?;
    }
    generator.run_until(Instant::now() + load.warm_up)?;
    generator.latencies.clear();
    let (began, before) = (Instant::now(), generator.received);
    generator.run_until(began + load.duration)?;
    let duration = began.elapsed();
    let requests = (generator.received - before) / load.reply_bytes as u64;
    Ok(Throughput { requests, duration, latencies: generator.latencies })
}

struct Connection {
    stream: TcpStream,
    /// The requests of one batch.
    batch: Vec<u8>,
    /// The bytes of the batch that the socket has taken.
    sent: usize,
    /// Bytes of replies that are still missing.
    awaited: usize,
    began: Instant,
}

struct Generator<'a> {
    load: &'a Load<'a>,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    connections: Vec<Connection>,
    /// Connections whose batch is not wholly sent.
    unsent: usize,
    buffer: Vec<u8>,
    /// Bytes of replies, of all connections.
    received: u64,
    /// Requests, of all connections.
    stamped: u64,
    /// When a batch was last completed, or the clock last read.
    now: Instant,
    latencies: Latencies,
}

impl<'a> Generator<'a> {
    fn connect(
        load: &'a Load<'a>,
        prepare: &mut dyn FnMut(&mut TcpStream) -> Result<()>,
    ) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("make an epoll")?;
        let mut connections = Vec::with_capacity(load.connections);
        for place in 0..load.connections {
            let mut stream =
                TcpStream::connect_timeout(&load.address, PATIENCE).context("connect")?;
            stream.set_nodelay(true).context("send without delay")?;
            stream.set_read_timeout(Some(PATIENCE)).context("limit the time of a read")?;
            stream.set_write_timeout(Some(PATIENCE)).context("limit the time of a write")?;
            prepare(&mut stream).context("prepare a connection")?;
            stream.set_nonblocking(true).context("make a connection non-blocking")?;
            let name = epoll::EventData::new_u64(place as u64);
            epoll::add(&epoll, &stream, name, epoll::EventFlags::IN)
                .context("watch a connection")?;
            connections.push(Connection {
                stream,
                batch: load.request.repeat(load.depth),
                sent: 0,
                awaited: 0,
                began: Instant::now(),
            });
        }
        Ok(Self {
            load,
            epoll,
            events: Vec::with_capacity(load.connections),
            connections,
            unsent: 0,
            buffer: vec![0; BUFFER_BYTES],
            received: 0,
            stamped: 0,
            now: Instant::now(),
            latencies: Latencies::new(),
        })
    }

    /// Runs until a time. Batches are then in flight, and stay so.
    fn run_until(&mut self, end: Instant) -> Result<()> {
        self.now = Instant::now();
        let mut heard = self.now;
        let mut arrived = false;
        let mut turns = 0_u32;
        while self.now < end {
            arrived |= self.turn()?;
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(TURNS) {
                self.now = Instant::now();
                if std::mem::take(&mut arrived) {
                    heard = self.now;
                }
                ensure!(self.now.duration_since(heard) < PATIENCE, "the server fell silent");
            }
        }
        Ok(())
    }

    /// Receives once from each ready connection. Returns whether anything had arrived.
    fn turn(&mut self) -> Result<bool> {
        if self.unsent > 0 {
            self.send_the_rest()?;
        }
        if self.connections.len() == 1 {
            // Asking for readiness would cost as much as receiving.
            return self.receive(0);
        }
        self.events.clear();
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&at_once)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("wait for replies"),
        }
        let mut any = false;
        for event in 0..self.events.len() {
            let place = self.events[event].data;
            any |= self.receive(place.u64() as usize)?;
        }
        Ok(any)
    }

    /// Receives once, and begins the next batch when this one is complete. Returns whether anything
    /// had arrived.
    #[inline]
    fn receive(&mut self, place: usize) -> Result<bool> {
        let connection = &mut self.connections[place];
        let bytes = match receive_some(&connection.stream, &mut self.buffer).context("receive")? {
            None => return Ok(false),
            Some(0) => bail!("the server closed a connection"),
            Some(bytes) => bytes,
        };
        self.received += bytes as u64;
        let Some(awaited) = connection.awaited.checked_sub(bytes) else {
            bail!("the server sent {bytes} bytes instead of {}", connection.awaited);
        };
        connection.awaited = awaited;
        if awaited == 0 {
            ensure!(connection.sent == connection.batch.len(), "the server answered too early");
            self.now = Instant::now();
            self.latencies.record(self.now.duration_since(connection.began));
            self.begin(place)?;
        }
        Ok(true)
    }

    /// Sends the next batch of a connection. It begins when the last one completed, so the clock
    /// need not be read again.
    #[inline]
    fn begin(&mut self, place: usize) -> Result<()> {
        let connection = &mut self.connections[place];
        if let Some(stamp) = self.load.stamp {
            for request in connection.batch.chunks_exact_mut(self.load.request.len()) {
                stamp(request, self.stamped);
                self.stamped += 1;
            }
        }
        connection.began = self.now;
        connection.awaited = self.load.depth * self.load.reply_bytes;
        connection.sent = send_some(&connection.stream, &connection.batch).context("send")?;
        self.unsent += usize::from(connection.sent < connection.batch.len());
        Ok(())
    }

    /// Continues with the batches for which sockets had no room.
    fn send_the_rest(&mut self) -> Result<()> {
        for connection in &mut self.connections {
            let rest = &connection.batch[connection.sent..];
            if rest.is_empty() {
                continue;
            }
            connection.sent += send_some(&connection.stream, rest).context("send")?;
            self.unsent -= usize::from(connection.sent == connection.batch.len());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};

    use super::super::echo::{EpollEcho, echo_throughput};
    use super::super::{REPLY_BYTES, REQUEST_BYTES, Waiting, beside};
    use super::*;

    const SHORT: Duration = Duration::from_millis(30);

    #[test]
    fn every_shape_of_load_is_answered() -> Result<()> {
        for waiting in [Waiting::Polling, Waiting::Blocking] {
            // The last shape does not fit in the sockets at once.
            for (connections, depth) in [(1, 1), (8, 1), (3, 32), (2, 100_000)] {
                let mut duration = SHORT;
                let measured = loop {
                    let measured = echo_throughput(waiting, connections, depth, duration)?;
                    assert!(measured.duration >= duration);
                    if measured.requests > 0 {
                        break measured;
                    }
                    // On a busy machine neither thread may have run.
                    duration *= 2;
                    assert!(duration < PATIENCE, "nothing was answered");
                };
                assert!(measured.per_second() > 0.0);
            }
        }
        Ok(())
    }

    #[test]
    fn connections_are_prepared_and_requests_stamped() -> Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let server = EpollEcho::new(listener, Waiting::Polling)?;
        let stamped = RefCell::new(Vec::new());
        let load = Load {
            address,
            connections: 2,
            depth: 3,
            request: &[1; REQUEST_BYTES],
            reply_bytes: REPLY_BYTES,
            stamp: Some(&|request, number| {
                assert_eq!(request.len(), REQUEST_BYTES);
                stamped.borrow_mut().push(number);
            }),
            warm_up: Duration::ZERO,
            duration: SHORT,
        };
        let mut prepared = 0;
        beside(
            move |stop| server.serve(stop),
            || {
                generate(&load, &mut |stream| {
                    prepared += 1;
                    stream.write_all(&[2; REQUEST_BYTES])?;
                    let mut reply = [0; REPLY_BYTES];
                    stream.read_exact(&mut reply)?;
                    ensure!(reply[..REQUEST_BYTES] == [2; REQUEST_BYTES]);
                    Ok(())
                })
            },
        )?;
        assert_eq!(prepared, 2);
        let stamped = stamped.into_inner();
        assert!(stamped.iter().enumerate().all(|(place, number)| place as u64 == *number));
        Ok(())
    }

    #[test]
    fn a_server_with_wrong_answers_is_detected() -> Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let server = EpollEcho::new(listener, Waiting::Polling)?;
        let load = Load {
            address,
            connections: 1,
            depth: 1,
            request: &[0; REQUEST_BYTES],
            reply_bytes: REPLY_BYTES - 1,
            stamp: None,
            warm_up: Duration::ZERO,
            // The run ends at the first reply.
            duration: PATIENCE,
        };
        let outcome = beside(move |stop| server.serve(stop), || generate(&load, &mut |_| Ok(())));
        assert!(outcome.is_err());
        Ok(())
    }
}
