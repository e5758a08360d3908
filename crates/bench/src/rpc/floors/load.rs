//! A load generator for requests and replies of fixed sizes, over TCP.
//!
//! One thread, a closed loop: on each connection it sends some requests in one call, waits for as
//! many replies, and sends again. It looks at nothing but the number of bytes, so that the server
//! is what limits; the same generator drives the bare echo server and an RPC server.

use std::fmt;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::latencies::Latencies;
use super::{PATIENCE, receive_some, send_some};

/// Bytes that one `recv` takes at most.
const BUFFER_BYTES: usize = 256 << 10;

/// Turns between two looks at the clock where no batch is completed.
const TURNS: u32 = 256;

/// Makes a request differ from the others: it gets the request's bytes, which hold what an earlier
/// call left in them, and a number that no other request of the load has.
pub type Stamp<'a> = dyn Fn(&mut [u8], u64) + 'a;

/// What to send, where, and for how long.
#[derive(Clone, Copy)]
pub struct Load<'a> {
    /// The server.
    pub address: SocketAddr,
    /// Connections to it.
    pub connections: usize,
    /// Requests in flight on each connection.
    pub depth: usize,
    /// The bytes of a request, the same for all but for what `stamp` changes.
    pub request: &'a [u8],
    /// Bytes of the reply to a request.
    pub reply_bytes: usize,
    /// Called for each request before it is sent, if there is one.
    pub stamp: Option<&'a Stamp<'a>>,
    /// Time before the measurement, under the same load.
    pub warm_up: Duration,
    /// Time of the measurement.
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

/// What a load has measured.
#[derive(Clone, Debug)]
pub struct Throughput {
    /// Requests answered.
    pub requests: u64,
    /// The time in which they were.
    pub duration: Duration,
    /// Time from sending a batch until its last reply is there: with a depth of 1, that of a
    /// request. It contains the waiting while the generator attends to other connections.
    pub latencies: Latencies,
}

impl Throughput {
    /// Requests answered per second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.requests as f64 / self.duration.as_secs_f64()
    }
}

/// Connects, calls `prepare` for each connection, and generates a load from the calling thread,
/// which it keeps busy and does not pin: see [`super::pinned`].
///
/// `prepare` can shake hands, and try a request: the generator does not look into replies. The
/// stream blocks for at most [`PATIENCE`] then; nothing that the server sends may be left unread.
///
/// # Errors
/// When there is nothing to do, when a connection or its preparation fails, or when the server
/// closes a connection, sends more than was asked for, or falls silent.
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
    /// How much of the batch the socket has taken.
    sent: usize,
    /// Bytes of replies that are still to come.
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
    /// When a batch was last completed, or the clock last looked at.
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

    /// Runs until a time. Batches are then under way, and stay so.
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

    /// Receives once from each connection that is ready. Whether anything had arrived.
    fn turn(&mut self) -> Result<bool> {
        if self.unsent > 0 {
            self.send_the_rest()?;
        }
        if self.connections.len() == 1 {
            // Asking whether it is ready costs as much as asking for what it has.
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

    /// Receives once, and begins the next batch when this one is complete. Whether anything had
    /// arrived.
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
            bail!("the server sent {bytes} bytes where {} were to come", connection.awaited);
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

    /// Sends the next batch of a connection. The time of the last completed one is its beginning:
    /// the clock need not be read again.
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

    /// Goes on with the batches that sockets had no room for.
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
            // The last does not fit in the sockets at once.
            for (connections, depth) in [(1, 1), (8, 1), (3, 32), (2, 100_000)] {
                let mut duration = SHORT;
                let measured = loop {
                    let measured = echo_throughput(waiting, connections, depth, duration)?;
                    assert!(measured.duration >= duration);
                    if measured.requests > 0 {
                        break measured;
                    }
                    // On a busy machine neither thread may have had its turn.
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
    fn a_server_that_answers_something_else_is_noticed() -> Result<()> {
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
            // It ends at the first reply.
            duration: PATIENCE,
        };
        let outcome = beside(move |stop| server.serve(stop), || generate(&load, &mut |_| Ok(())));
        assert!(outcome.is_err());
        Ok(())
    }
}
