//! Our own echo server, on a core of its own beside its client.

use super::floors;
use super::floors::latencies::Latencies;
use anyhow::{Context, Result, anyhow, ensure};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use thunderhead_load::channel::Channel;
use thunderhead_load::machine;
use thunderhead_net::os::{Options, OsTransport};
use thunderhead_net::{Limits, Transport};
use thunderhead_rpc::echo::Echo;
use thunderhead_rpc::{Caller, Node, Opcode};
use thunderhead_runtime::alarm::Alarm;
use thunderhead_runtime::polling::{Polling, Usage};
use thunderhead_runtime::{World, os};
use thunderhead_wire::frame::{HEAD_BYTES, Head, Kind, Preface};
use thunderhead_wire::message::{MESSAGE_HEAD_BYTES, MessageHead};
use zerocopy::IntoBytes;

/// Bytes of a whole request on a socket.
pub const REQUEST_FRAME_BYTES: usize = HEAD_BYTES + MESSAGE_HEAD_BYTES + floors::REQUEST_BYTES;

/// Bytes of a whole reply.
pub const REPLY_FRAME_BYTES: usize = HEAD_BYTES + MESSAGE_HEAD_BYTES + floors::REPLY_BYTES;

/// A server's work during a measurement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Served {
    /// The use of its reactor's time.
    pub usage: Usage,
    /// Processor time of its thread.
    pub processor: Duration,
    /// Requests it answered.
    pub answered: u64,
}

/// The setup of a server.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Whether clients may use shared memory.
    pub shared_memory: bool,
    /// The use of idle time.
    pub polling: Polling,
}

impl Setup {
    /// Returns the setup of a server on TCP alone.
    #[must_use]
    pub fn tcp(polling: Polling) -> Setup {
        Setup { shared_memory: false, polling }
    }

    pub(crate) fn options(self) -> Options {
        let limits = Limits { connections_max: 20_000, ..Limits::default() };
        Options { shared_memory: self.shared_memory, limits, ..Options::default() }
    }
}

/// Nodes and callers of a measured channel always poll.
impl From<Channel> for Setup {
    fn from(channel: Channel) -> Setup {
        Setup { shared_memory: channel == Channel::Shm, polling: Polling::Always }
    }
}

/// Returns a world whose files are not used.
pub(crate) fn world() -> Result<(World, Scrap)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("thunderhead-bench-{}-{number}", std::process::id());
    let scrap = Scrap(std::env::temp_dir().join(name));
    Ok((os::world(&scrap.0).context("make a directory for temporary files")?, scrap))
}

/// A directory that is removed when the value is dropped.
pub(crate) struct Scrap(PathBuf);

impl Drop for Scrap {
    fn drop(&mut self) {
        // No file was put there.
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Runs an echo server beside a client, each on a core of its own.
///
/// # Errors
/// When the server or the client fails.
pub fn beside<T>(
    setup: Setup,
    client: impl FnOnce(SocketAddr) -> Result<T>,
) -> Result<(T, Served)> {
    let (tell, told) = mpsc::channel();
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let server = scope.spawn(move || -> Result<Served> {
            machine::pin(floors::SERVER_CORE);
            let (world, _scrap) = world()?;
            let (clock, alarm) = (world.clock.clone(), world.alarm.clone());
            let transport = OsTransport::new(&world, setup.options())?;
            let mut node = Node::new(world, Box::new(transport), Echo::default());
            let address = node.listen((Ipv4Addr::LOCALHOST, 0).into()).context("listen")?;
            tell.send((address, alarm)).ok().context("tell the client")?;
            let began = machine::thread_time();
            let stopped = || stop.load(Ordering::Relaxed);
            let usage = os::run(&mut node, &clock, setup.polling, stopped);
            let processor = machine::thread_time() - began;
            Ok(Served { usage, processor, answered: node.service().answered })
        });
        let outcome = match told.recv_timeout(floors::PATIENCE) {
            Ok((address, alarm)) => {
                let end = End(stop, alarm);
                let outcome = machine::pinned(floors::CLIENT_CORE, || client(address));
                drop(end);
                outcome
            }
            Err(_) => Err(anyhow!("no server came up")),
        };
        let served = server.join().map_err(|_| anyhow!("the server's thread panicked"))??;
        Ok((outcome?, served))
    })
}

/// Ends the server when dropped, also if the client panics.
pub(crate) struct End<'a>(pub(crate) &'a AtomicBool, pub(crate) Alarm);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.ring();
    }
}

/// Returns a caller for such a server.
///
/// # Errors
/// When the kernel has no descriptors.
pub fn caller(setup: impl Into<Setup>) -> Result<Caller> {
    let (setup, (world, _scrap)) = (setup.into(), world()?);
    let transport: Box<dyn Transport + Send> = Box::new(OsTransport::new(&world, setup.options())?);
    Ok(Caller::new(&world, transport, setup.polling))
}

/// Returns the body of a request for [`floors::REPLY_BYTES`].
#[must_use]
pub fn body() -> [u8; floors::REQUEST_BYTES] {
    let mut body = [7; floors::REQUEST_BYTES];
    body[..4].copy_from_slice(&(floors::REPLY_BYTES as u32).to_le_bytes());
    body
}

/// Measures round trips of a polling client, one at a time, with an uncounted pause before each.
///
/// # Errors
/// When a call fails.
pub fn round_trips(
    address: SocketAddr,
    shared_memory: bool,
    rounds: u64,
    pause: Duration,
) -> Result<Latencies> {
    let mut caller = caller(Setup { shared_memory, polling: Polling::Always })?;
    let (body, timeout) = (body(), Some(floors::PATIENCE));
    let mut latencies = Latencies::new();
    let warm_up = (rounds / 10).min(10_000);
    // Over shared memory each latency is the mean of several, as in the floor, because reading the
    // clock would matter there. Not if the server must sleep before each.
    let together = if shared_memory && pause.is_zero() { 16 } else { 1 };
    for round in 0..(warm_up + rounds) / together {
        let pausing = Instant::now();
        while pausing.elapsed() < pause {
            std::hint::spin_loop();
        }
        let sent = Instant::now();
        for _ in 0..together {
            let bytes = caller.call(address, Opcode::Echo, &[&body], timeout, <[u8]>::len)?;
            ensure!(bytes == floors::REPLY_BYTES, "the server sent a wrong reply");
        }
        let latency = sent.elapsed() / together as u32;
        if round >= warm_up / together {
            latencies.record(latency);
        }
    }
    Ok(latencies)
}

/// Measures requests a second of one client that keeps several in flight.
///
/// # Errors
/// When a call fails.
pub fn in_flight(
    address: SocketAddr,
    shared_memory: bool,
    depth: usize,
    duration: Duration,
) -> Result<f64> {
    let mut caller = caller(Setup { shared_memory, polling: Polling::Always })?;
    let (body, timeout) = (body(), Some(floors::PATIENCE));
    caller.call(address, Opcode::Echo, &[&body], timeout, |_| ())?;
    for _ in 0..depth {
        caller.begin(address, Opcode::Echo, &[&body], timeout)?;
    }
    let (mut done, mut failed) = (0u64, None);
    let began = Instant::now();
    let mut counted_from = None;
    loop {
        let before = done;
        caller.poll(&mut |_, outcome| match outcome {
            Ok(_) => done += 1,
            Err(error) => failed = Some(error),
        });
        if let Some(error) = failed {
            return Err(error.into());
        }
        for _ in before..done {
            caller.begin(address, Opcode::Echo, &[&body], timeout)?;
        }
        if before == done {
            continue;
        }
        let now = began.elapsed();
        match counted_from {
            None if now > duration / 10 => counted_from = Some((now, done)),
            Some((from, at)) if now - from > duration => {
                return Ok((done - at) as f64 / (now - from).as_secs_f64());
            }
            _ => {}
        }
    }
}

/// Returns the bytes of a request, for generators without knowledge of the protocol.
#[must_use]
pub fn request_frame() -> Vec<u8> {
    let body = body();
    let head = MessageHead::request(1, Opcode::Echo.code(), 0);
    let payload_bytes = MESSAGE_HEAD_BYTES + body.len();
    let mut frame = Head { kind: Kind::MESSAGE, payload_bytes }.to_bytes().to_vec();
    frame.extend_from_slice(head.as_bytes());
    frame.extend_from_slice(&body);
    frame
}

/// Greets a server over a plain socket.
///
/// # Errors
/// When the server does not greet back.
pub fn greet(stream: &mut TcpStream) -> Result<()> {
    let preface = Preface::new(0, 1 << 20, None);
    let payload = preface.as_bytes();
    let head = Head { kind: Kind::PREFACE, payload_bytes: payload.len() };
    stream.write_all(&[&head.to_bytes(), payload].concat())?;
    let mut theirs = vec![0; HEAD_BYTES + payload.len()];
    stream.read_exact(&mut theirs)?;
    Ok(())
}
