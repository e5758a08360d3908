//! Clients of a store on one thread: connections, each with requests in flight.
//!
//! ```text
//!  source ──▶ flights ──▶ out ──send──▶ server ──recv──▶ input ──▶ record
//!               ▲                                          │
//!               └──────────── again (busy) ◀───────────────┘
//! ```
//!
//! It is the same for every store. A connection sends all that it may in one call, takes all that
//! has arrived in one call, and sends as many requests as were answered. A single polling
//! connection polls its socket; several connections are polled through epoll without blocking;
//! blocking clients sleep until bytes arrive, as the usual clients do.
//!
//! Every answer is parsed and every value checked. A wrong answer ends the run.

use super::protocol::{Act, Answer, Flight, Protocol, Stream};
use crate::rpc::floors::{PATIENCE, Waiting, receive_some, send_some};
use anyhow::{Context as _, Result, bail, ensure};
use rustix::event::{Timespec, epoll};
use std::collections::VecDeque;
use std::fmt;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thunderhead_wire::Sequence;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// On loopback.
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "{address}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The number of clients and their way of waiting.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Connections.
    pub connections: usize,
    /// Requests in flight on each connection.
    pub depth: usize,
    /// The way of waiting for answers.
    pub waiting: Waiting,
}

impl Shape {
    /// Returns the shape of polling clients.
    #[must_use]
    pub fn polling(connections: usize, depth: usize) -> Shape {
        Shape { connections, depth, waiting: Waiting::Polling }
    }
}

/// The source of requests: fills in the objects, and returns the action and the length of values;
/// `None` if there are no more.
pub type Source<'a> = Box<dyn FnMut(&mut Vec<u64>) -> Option<(Act, usize)> + 'a>;

/// Receives each completed request: the number of objects, the latency.
pub type Record<'a> = dyn FnMut(u64, Duration) + 'a;

/// The initial and the largest size of a buffer: no answer is longer.
const INPUT_BYTES: usize = 256 << 10;
const INPUT_BYTES_MAX: usize = 32 << 20;

/// Turns without an answer between two readings of the clock.
const IDLE_TURNS: u32 = 10_000;

/// The longest time for an answer: a server that rewrites its file may need long.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The longest time for which a server may refuse everything because it is busy or full.
const BUSY_MAX: Duration = Duration::from_secs(5);

struct Connection {
    socket: OwnedFd,
    protocol: Box<dyn Protocol>,
    flights: VecDeque<Flight>,
    again: VecDeque<Flight>,
    spare: Vec<Vec<u64>>,
    next_id: u64,
    out: Vec<u8>,
    sent: usize,
    /// The socket did not take all bytes.
    is_stuck: bool,
    input: Vec<u8>,
    /// The range of arrived and unprocessed bytes.
    arrived: std::ops::Range<usize>,
}

/// Clients of a store. See the module's documentation.
pub struct Crowd<'a> {
    shape: Shape,
    source: Source<'a>,
    is_over: bool,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    connections: Vec<Connection>,
    in_flight: usize,
    /// Connections whose socket did not take all bytes.
    stuck: usize,
    now: Instant,
    /// When the last request was completed.
    heard: Instant,
    idle: u32,
    /// Requests for which the server was too busy.
    pub busy: u64,
}

fn connect(address: &Address, protocol: &mut dyn Protocol) -> Result<OwnedFd> {
    let what = || format!("connect to {address}");
    match address {
        Address::Tcp(address) => {
            let mut stream = TcpStream::connect_timeout(address, PATIENCE).with_context(what)?;
            stream.set_nodelay(true).context("send without delay")?;
            stream.set_read_timeout(Some(PATIENCE)).context("limit the time of a read")?;
            protocol.greet(&mut stream as &mut dyn Stream)?;
            stream.set_read_timeout(None).context("limit no read")?;
            Ok(stream.into())
        }
        Address::Unix(path) => {
            let mut stream = UnixStream::connect(path).with_context(what)?;
            protocol.greet(&mut stream as &mut dyn Stream)?;
            Ok(stream.into())
        }
    }
}

impl<'a> Crowd<'a> {
    /// Connects to a server. `make` returns the protocol of each connection.
    ///
    /// # Errors
    /// When the server does not accept connections.
    pub fn new(
        address: &Address,
        make: &dyn Fn() -> Result<Box<dyn Protocol>>,
        shape: Shape,
        source: Source<'a>,
    ) -> Result<Crowd<'a>> {
        ensure!(shape.connections > 0 && shape.depth > 0, "a load needs connections and a depth");
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("make an epoll")?;
        let mut connections = Vec::with_capacity(shape.connections);
        // A single blocking connection sleeps in `recv`.
        let blocks = shape.connections == 1 && shape.waiting == Waiting::Blocking;
        for place in 0..shape.connections {
            let mut protocol = make()?;
            let socket = connect(address, protocol.as_mut())?;
            rustix::io::ioctl_fionbio(&socket, !blocks).context("make a socket not block")?;
            let data = epoll::EventData::new_u64(place as u64);
            epoll::add(&epoll, &socket, data, epoll::EventFlags::IN).context("watch a socket")?;
            connections.push(Connection {
                socket,
                protocol,
                flights: VecDeque::new(),
                again: VecDeque::new(),
                spare: Vec::new(),
                next_id: 1,
                out: Vec::new(),
                sent: 0,
                is_stuck: false,
                input: vec![0; if shape.connections > 16 { 16 << 10 } else { INPUT_BYTES }],
                arrived: 0..0,
            });
        }
        let now = Instant::now();
        let mut crowd = Crowd {
            shape,
            source,
            is_over: false,
            epoll,
            events: Vec::with_capacity(shape.connections),
            connections,
            in_flight: 0,
            stuck: 0,
            now,
            heard: now,
            idle: 0,
            busy: 0,
        };
        (0..shape.connections).try_for_each(|place| crowd.fill(place))?;
        Ok(crowd)
    }

    /// Sends as many requests as the connection may send.
    #[inline]
    fn fill(&mut self, place: usize) -> Result<()> {
        let connection = &mut self.connections[place];
        let mut busy = connection.again.len();
        while connection.flights.len() < self.shape.depth {
            let flight = if busy > 0 {
                busy -= 1;
                connection.again.pop_front()
            } else if self.is_over {
                None
            } else {
                let mut numbers = connection.spare.pop().unwrap_or_default();
                numbers.clear();
                match (self.source)(&mut numbers) {
                    Some((act, value_bytes)) => {
                        self.in_flight += 1;
                        let (id, sent) = (0, self.now);
                        Some(Flight {
                            id,
                            act,
                            numbers,
                            value_bytes,
                            sent,
                            done: 0,
                            sequence: Sequence::NONE,
                        })
                    }
                    None => {
                        self.is_over = true;
                        None
                    }
                }
            };
            let Some(mut flight) = flight else { break };
            flight.id = connection.next_id;
            connection.next_id += 1;
            let oldest = connection.flights.front().map(|it| it.sequence);
            connection.protocol.ask(&mut flight, oldest, &mut connection.out);
            connection.flights.push_back(flight);
        }
        self.send(place)
    }

    #[inline]
    fn send(&mut self, place: usize) -> Result<()> {
        let connection = &mut self.connections[place];
        if connection.out.is_empty() {
            return Ok(());
        }
        let rest = &connection.out[connection.sent..];
        let sent = send_some(&connection.socket, rest).context("send to the server")?;
        let was_stuck = connection.is_stuck;
        connection.is_stuck = sent < rest.len();
        self.stuck = self.stuck + usize::from(connection.is_stuck) - usize::from(was_stuck);
        if connection.is_stuck {
            connection.sent += sent;
        } else {
            connection.out.clear();
            connection.sent = 0;
        }
        Ok(())
    }

    /// Takes arrived answers of a connection, and sends more requests. Returns whether anything had
    /// arrived.
    #[inline]
    fn take(&mut self, place: usize, record: &mut Record<'_>) -> Result<bool> {
        let connection = &mut self.connections[place];
        let Connection { socket, input, arrived, .. } = connection;
        if arrived.start == arrived.end {
            *arrived = 0..0;
        } else if arrived.end == input.len() {
            if arrived.start > input.len() / 2 {
                input.copy_within(arrived.clone(), 0);
                *arrived = 0..arrived.len();
            } else {
                ensure!(input.len() < INPUT_BYTES_MAX, "an answer has no end");
                input.resize(input.len() * 2, 0);
            }
        }
        match receive_some(socket, &mut input[arrived.end..]).context("receive an answer")? {
            None => return Ok(false),
            Some(0) => bail!("the server closed the connection"),
            Some(bytes) => arrived.end += bytes,
        }
        let now = Instant::now();
        self.now = now;
        let Connection { protocol, flights, again, spare, input, arrived, .. } = connection;
        while arrived.start < arrived.end {
            let answer = protocol.answer(flights, &input[arrived.clone()])?;
            let (bytes, place, is_done) = match answer {
                Answer::Partial => break,
                Answer::Aside(bytes) => {
                    arrived.start += bytes;
                    continue;
                }
                Answer::Done { bytes, place } => (bytes, place, true),
                Answer::Again { bytes, place } => (bytes, place, false),
            };
            arrived.start += bytes;
            let flight = if place == 0 { flights.pop_front() } else { flights.remove(place) };
            let Some(flight) = flight else { bail!("an answer without a request") };
            if is_done {
                self.heard = now;
                self.in_flight -= 1;
                record(flight.done + flight.numbers.len() as u64, now - flight.sent);
                spare.push(flight.numbers);
            } else {
                self.busy += 1;
                let time = now - self.heard;
                ensure!(time < BUSY_MAX, "the server has been too busy, or full, for {time:?}");
                again.push_back(flight);
            }
        }
        self.fill(place)?;
        Ok(true)
    }

    /// Takes arrived answers, and sends more requests. Returns whether anything had arrived.
    ///
    /// # Errors
    /// When an answer is wrong, or the server is gone or silent.
    #[inline]
    pub fn turn(&mut self, record: &mut Record<'_>) -> Result<bool> {
        if self.stuck > 0 {
            let mut places = 0..self.connections.len();
            places.try_for_each(|place| match self.connections[place].is_stuck {
                true => self.send(place),
                false => Ok(()),
            })?;
        }
        let mut arrived = false;
        if self.connections.len() == 1 {
            arrived = self.take(0, record)?;
        } else {
            let none = Timespec { tv_sec: 0, tv_nsec: 0 };
            let long = Timespec { tv_sec: 1, tv_nsec: 0 };
            let blocks = self.shape.waiting == Waiting::Blocking;
            let timeout = if blocks { &long } else { &none };
            self.events.clear();
            let space = rustix::buffer::spare_capacity(&mut self.events);
            match epoll::wait(&self.epoll, space, Some(timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).context("wait for answers"),
            }
            for at in 0..self.events.len() {
                let data = self.events[at].data;
                arrived |= self.take(data.u64() as usize, record)?;
            }
        }
        self.idle = if arrived { 0 } else { self.idle + 1 };
        if self.idle >= IDLE_TURNS {
            self.idle = 0;
            self.now = Instant::now();
            let silence = self.now - self.heard;
            ensure!(
                self.in_flight == 0 || silence < SILENCE_MAX,
                "the server has not answered for {silence:?}"
            );
        }
        Ok(arrived)
    }

    /// Stops sending and waits for all requests in flight.
    ///
    /// # Errors
    /// As [`Crowd::turn`].
    pub fn finish(&mut self) -> Result<()> {
        self.is_over = true;
        while self.in_flight > 0 {
            self.turn(&mut |_, _| {})?;
        }
        Ok(())
    }

    /// Sends all requests of the source.
    ///
    /// # Errors
    /// As [`Crowd::turn`].
    pub fn run_out(&mut self, record: &mut Record<'_>) -> Result<()> {
        while !self.is_over || self.in_flight > 0 {
            self.turn(record)?;
        }
        Ok(())
    }

    /// Continues, because the source has requests again.
    ///
    /// # Errors
    /// When they cannot be sent.
    pub fn wake(&mut self) -> Result<()> {
        self.is_over = false;
        self.now = Instant::now();
        (0..self.connections.len()).try_for_each(|place| self.fill(place))
    }

    /// Returns the time of the last answer, or of the last reading of the clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }
}
