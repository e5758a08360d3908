//! Floors: the simplest ping-pongs and echo servers that this machine can run.
//!
//! An RPC stack is measured beside them in the same run, because the machine's own figures move by
//! a tenth from one hour to the next. They do what a short C program would: no framing beyond a
//! fixed length, no allocation for a message, nothing looked up.
//!
//! The server's half runs in a thread on [`SERVER_CORE`] and the client's half on the calling
//! thread, kept on [`CLIENT_CORE`] meanwhile. The `serve` functions and [`echo::EpollEcho`] stand
//! alone too, for a child process to call; it must not be started within [`pinned`], because it
//! inherits the one core and sees no other.

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
use rustix::thread::{sched_getaffinity, sched_setaffinity};

use crate::machine::pin;

/// Bytes of a request: what a read of a 30-byte key asks at the least.
pub const REQUEST_BYTES: usize = 30;

/// Bytes of a reply: a 100-byte value and what belongs to it.
pub const REPLY_BYTES: usize = 130;

/// The core that clients and load generators run on.
pub const CLIENT_CORE: usize = 0;

/// The core that servers run on.
pub const SERVER_CORE: usize = 1;

/// A client gives up on a server that has been silent for this long.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How a server waits for its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// It asks again and again and keeps its core busy.
    Polling,
    /// It sleeps in the kernel until something has arrived.
    Blocking,
}

/// Tells a server to end, whether it polls or sleeps.
#[derive(Debug)]
pub struct Stop {
    raised: AtomicBool,
    /// Readable once raised, so that a server which sleeps needs no timeout to notice.
    event: OwnedFd,
}

impl Stop {
    /// Makes one that is not raised.
    ///
    /// # Errors
    /// When the process has no file descriptors left.
    pub fn new() -> Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .context("make an event descriptor")?;
        Ok(Self { raised: AtomicBool::new(false), event })
    }

    /// Tells the server to end.
    pub fn raise(&self) {
        self.raised.store(true, Ordering::Release);
        // It fails only when the counter is full, and then it is readable already.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Whether the server has been told to end.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Acquire)
    }
}

impl AsFd for Stop {
    /// A descriptor that becomes readable, and stays so, when the server is told to end.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Raises a stop when the client's half ends, also where it ends by a panic: the scope that
/// unwinds would wait for the server for ever.
struct RaiseOnDrop<'a>(&'a Stop);

impl Drop for RaiseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.raise();
    }
}

/// Puts back the cores that a thread was allowed, when dropped.
struct Unpin(Option<rustix::thread::CpuSet>);

impl Drop for Unpin {
    fn drop(&mut self) {
        if let Some(set) = &self.0 {
            // Where it is not allowed, pinning was not allowed either.
            let _ = sched_setaffinity(None, set);
        }
    }
}

/// Does some work with the calling thread kept on one core, and gives it its cores back after.
pub fn pinned<T>(core: usize, work: impl FnOnce() -> T) -> T {
    let _unpin = Unpin(sched_getaffinity(None).ok());
    pin(core);
    work()
}

/// Runs a server on [`SERVER_CORE`] beside a client on [`CLIENT_CORE`], the calling thread. When
/// the client has ended, the server is told to, and waited for.
///
/// # Errors
/// Those of the server and of the client. If both failed, the server's, which is the likelier
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

/// Receives what there is. `None` where a non-blocking socket has nothing yet, 0 where the peer
/// is gone.
pub(crate) fn receive_some(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    use rustix::io::Errno;
    match rustix::net::recv(socket, buffer, rustix::net::RecvFlags::empty()) {
        Ok((bytes, _)) => Ok(Some(bytes)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        // Whoever goes away with replies unread resets the connection.
        Err(Errno::CONNRESET) => Ok(Some(0)),
        Err(error) => Err(error.into()),
    }
}

/// Sends what the socket takes, which is nothing where a non-blocking one is full.
pub(crate) fn send_some(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    use rustix::io::Errno;
    match rustix::net::send(socket, bytes, rustix::net::SendFlags::NOSIGNAL) {
        Ok(sent) => Ok(sent),
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        Err(error) => Err(error.into()),
    }
}
