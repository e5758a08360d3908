//! Floors: the simplest ping-pongs and echo servers that this machine can run.
//!
//! An RPC stack is measured beside them in the same run, because the machine's own figures change
//! by a tenth from one hour to the next. They do the work of a short C program: no framing beyond a
//! fixed length, no allocation for a message, no lookups.
//!
//! The server's half runs in a thread on [`SERVER_CORE`]. The client's half runs on the calling
//! thread, which is pinned to [`CLIENT_CORE`] for that time. A child process can also call the
//! `serve` functions and [`echo::EpollEcho`] alone. It must not be started within [`pinned`],
//! because it would inherit the one core and see no other.

pub mod echo;
pub mod latencies;
pub mod load;
pub mod ping_pong;
pub mod ring;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use rustix::event::{EventfdFlags, eventfd};

use thunderhead_load::machine::{pin, pinned};

/// Bytes of a request: the least for a read of a 30-byte key.
pub const REQUEST_BYTES: usize = 30;

/// Bytes of a reply: a 100-byte value and its headers.
pub const REPLY_BYTES: usize = 130;

/// The core of clients and load generators.
pub const CLIENT_CORE: usize = 0;

/// The core of servers.
pub const SERVER_CORE: usize = 1;

/// A client gives up after a server has been silent for this long.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// A server's way of waiting for its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// It polls and keeps its core busy.
    Polling,
    /// It sleeps in the kernel until bytes arrive.
    Blocking,
}

/// A signal for a server to end, whether it polls or sleeps.
#[derive(Debug)]
pub struct Stop {
    raised: AtomicBool,
    /// Readable once raised, so that a sleeping server needs no timeout to notice.
    event: OwnedFd,
}

impl Stop {
    /// Returns a signal that is not raised.
    ///
    /// # Errors
    /// When the process has no file descriptors left.
    pub fn new() -> Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .context("make an event descriptor")?;
        Ok(Self { raised: AtomicBool::new(false), event })
    }

    /// Asks the server to end.
    pub fn raise(&self) {
        self.raised.store(true, Ordering::Release);
        // This fails only if the counter is full, and then the descriptor is readable already.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Whether the server was asked to end.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Acquire)
    }
}

impl AsFd for Stop {
    /// Returns a descriptor that becomes and stays readable once the server is asked to end.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Raises a stop when the client's half ends, also by a panic: otherwise the scope would wait for
/// the server for ever.
struct RaiseOnDrop<'a>(&'a Stop);

impl Drop for RaiseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.raise();
    }
}

/// Runs a server on [`SERVER_CORE`] beside a client on [`CLIENT_CORE`], the calling thread. When
/// the client has ended, the server is asked to end too, and joined.
///
/// # Errors
/// The error of the server or of the client. If both failed, the server's, which is the likelier
/// cause.
pub fn beside<T>(
    serve: impl FnOnce(&Stop) -> Result<()> + Send,
    client: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let stop = Stop::new()?;
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            pin(SERVER_CORE);
            serve(&stop)
        });
        let outcome = {
            let _raise = RaiseOnDrop(&stop);
            pinned(CLIENT_CORE, client)
        };
        server.join().map_err(|_| anyhow!("the server's thread panicked"))?.context("serve")?;
        outcome
    })
}

/// Receives the available bytes. Returns `None` if a non-blocking socket has none yet, 0 if the
/// peer has closed.
pub(crate) fn receive_some(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    use rustix::io::Errno;
    match rustix::net::recv(socket, buffer, rustix::net::RecvFlags::empty()) {
        Ok((bytes, _)) => Ok(Some(bytes)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        // A peer that closes with unread replies resets the connection.
        Err(Errno::CONNRESET) => Ok(Some(0)),
        Err(error) => Err(error.into()),
    }
}

/// Sends as many bytes as the socket takes: none if a non-blocking socket is full.
pub(crate) fn send_some(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    use rustix::io::Errno;
    match rustix::net::send(socket, bytes, rustix::net::SendFlags::NOSIGNAL) {
        Ok(sent) => Ok(sent),
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        Err(error) => Err(error.into()),
    }
}
