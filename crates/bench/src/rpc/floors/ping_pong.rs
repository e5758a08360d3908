//! One request and one reply at a time over a socket.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, poll};

use super::echo::EpollEcho;
use super::latencies::Latencies;
use super::{PATIENCE, REPLY_BYTES, REQUEST_BYTES, Stop, Waiting, beside, receive_some, send_some};

/// A measurement ends after this time, even if more round trips were requested.
const LIMIT: Duration = Duration::from_secs(60);

/// Polls without a result between two checks whether to give up.
const POLLS: u32 = 1024;

/// Measures round trips over TCP on the loopback interface; both sides poll `recv` on a
/// non-blocking socket.
///
/// # Errors
/// When a socket fails or the server falls silent.
pub fn ping_pong_tcp(rounds: u64) -> Result<Latencies> {
    over_tcp(rounds, Waiting::Polling, Duration::ZERO)
}

/// Measures round trips over TCP with a server that sleeps in `recv`. The client polls, and keeps
/// its core busy for `pause` before each request, so that the server has gone to sleep. This is the
/// latency of occasional requests to a common server. The pause is not counted.
///
/// # Errors
/// When a socket fails or the server falls silent.
pub fn ping_pong_tcp_blocking_server(rounds: u64, pause: Duration) -> Result<Latencies> {
    over_tcp(rounds, Waiting::Blocking, pause)
}

/// Measures round trips over TCP with an [`EpollEcho`] that sleeps, and a client like that of
/// [`ping_pong_tcp_blocking_server`]. A server that sleeps in `recv` can have only one connection;
/// a server of many sleeps in `epoll_wait` and has to receive after that returns.
///
/// # Errors
/// When a socket fails or the server falls silent.
pub fn ping_pong_tcp_blocking_echo(rounds: u64, pause: Duration) -> Result<Latencies> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listen on loopback")?;
    let address = listener.local_addr().context("ask for the listener's address")?;
    let server = EpollEcho::new(listener, Waiting::Blocking)?;
    beside(|stop| server.serve(stop), || call_tcp(address, rounds, pause))
}

/// Measures round trips over a pair of Unix stream sockets; both sides poll `recv` on a
/// non-blocking socket.
///
/// # Errors
/// When a socket fails or the server falls silent.
pub fn ping_pong_unix(rounds: u64) -> Result<Latencies> {
    over_unix(rounds, Waiting::Polling, Duration::ZERO)
}

/// Measures round trips over a pair of Unix stream sockets with a server that sleeps in `recv`, and
/// a client like that of [`ping_pong_tcp_blocking_server`].
///
/// # Errors
/// When a socket fails or the server falls silent.
pub fn ping_pong_unix_blocking_server(rounds: u64, pause: Duration) -> Result<Latencies> {
    over_unix(rounds, Waiting::Blocking, pause)
}

fn over_unix(rounds: u64, waiting: Waiting, pause: Duration) -> Result<Latencies> {
    let (near, far) = UnixStream::pair().context("make a pair of Unix sockets")?;
    beside(
        move |stop| serve_connection(&far, waiting, stop),
        // The closure owns its end: the server ends when that end is closed.
        move || ping_pong_client(&near, rounds, pause),
    )
}

fn over_tcp(rounds: u64, waiting: Waiting, pause: Duration) -> Result<Latencies> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listen on loopback")?;
    let address = listener.local_addr().context("ask for the listener's address")?;
    beside(|stop| serve_ping_pong(&listener, waiting, stop), || call_tcp(address, rounds, pause))
}

fn call_tcp(address: SocketAddr, rounds: u64, pause: Duration) -> Result<Latencies> {
    let connection = TcpStream::connect_timeout(&address, PATIENCE).context("connect")?;
    connection.set_nodelay(true).context("send without delay")?;
    ping_pong_client(&connection, rounds, pause)
}

/// Accepts one connection, from a TCP or Unix listener, and serves it like [`serve_connection`].
/// Returns without a connection when asked to end.
///
/// # Errors
/// When a socket fails.
pub fn serve_ping_pong(listener: &impl AsFd, waiting: Waiting, stop: &Stop) -> Result<()> {
    match accept(listener, stop).context("accept a connection")? {
        Some(connection) => serve_connection(&connection, waiting, stop),
        None => Ok(()),
    }
}

/// Answers each request of [`REQUEST_BYTES`] with [`REPLY_BYTES`] that begin with it, until the
/// client closes the connection or, if the server polls, until it is asked to end. A blocking
/// server sleeps in `recv` and notices only the close.
///
/// # Errors
/// When the socket fails.
pub fn serve_connection(connection: &impl AsFd, waiting: Waiting, stop: &Stop) -> Result<()> {
    rustix::io::ioctl_fionbio(connection, waiting == Waiting::Polling)
        .context("set whether the socket blocks")?;
    let mut request = [0; REQUEST_BYTES];
    let mut reply = [0; REPLY_BYTES];
    while receive(connection, &mut request, || stop.is_raised())? {
        reply[..REQUEST_BYTES].copy_from_slice(&request);
        send(connection, &reply)?;
    }
    Ok(())
}

/// Measures round trips from the client's side of a connection, polling, after a warm-up of a tenth
/// as many. Before each it keeps its core busy for `pause`, which is not counted. It stops early
/// after a minute. Each latency contains one reading of the clock, about 20 ns.
///
/// # Errors
/// When the socket fails or the server falls silent.
pub fn ping_pong_client(connection: &impl AsFd, rounds: u64, pause: Duration) -> Result<Latencies> {
    rustix::io::ioctl_fionbio(connection, true).context("make the socket non-blocking")?;
    let mut latencies = Latencies::new();
    let mut request = [0; REQUEST_BYTES];
    let mut reply = [0; REPLY_BYTES];
    let warm_up = (rounds / 10).min(10_000);
    let began = Instant::now();
    for round in 0..warm_up + rounds {
        request[..8].copy_from_slice(&round.to_le_bytes());
        let sent = busy_for(pause);
        send(connection, &request)?;
        let whole = receive(connection, &mut reply, || sent.elapsed() > PATIENCE)?;
        let latency = sent.elapsed();
        ensure!(whole, "the server closed the connection or fell silent");
        ensure!(reply[..REQUEST_BYTES] == request, "the server sent a wrong reply");
        if round >= warm_up {
            latencies.record(latency);
        }
        if sent.duration_since(began) > LIMIT {
            break;
        }
    }
    ensure!(rounds == 0 || latencies.count() > 0, "the server is too slow to be measured");
    Ok(latencies)
}

/// Keeps the core busy for a time and returns the end of it.
fn busy_for(pause: Duration) -> Instant {
    let began = Instant::now();
    let mut now = began;
    while now.duration_since(began) < pause {
        std::hint::spin_loop();
        now = Instant::now();
    }
    now
}

/// Waits for a connection. Returns `None` when asked to end.
fn accept(listener: &impl AsFd, stop: &Stop) -> Result<Option<OwnedFd>> {
    let mut events = [PollFd::new(listener, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
    rustix::io::retry_on_intr(|| poll(&mut events, None)).context("wait for a connection")?;
    if stop.is_raised() {
        return Ok(None);
    }
    let connection = rustix::net::accept(listener)?;
    // A Unix socket has no such option and sends at once anyway.
    let _ = rustix::net::sockopt::set_tcp_nodelay(&connection, true);
    Ok(Some(connection))
}

/// Fills a buffer. Returns false if the peer has closed or, on a non-blocking socket, if `give_up`
/// returns true, which is checked at intervals.
fn receive(socket: &impl AsFd, buffer: &mut [u8], give_up: impl Fn() -> bool) -> Result<bool> {
    let mut filled = 0;
    let mut fruitless = 0_u32;
    while filled < buffer.len() {
        match receive_some(socket, &mut buffer[filled..]).context("receive")? {
            Some(0) => return Ok(false),
            Some(bytes) => filled += bytes,
            None => {
                fruitless += 1;
                if fruitless.is_multiple_of(POLLS) && give_up() {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}

/// Sends a message in one call: with one message in flight at a time, a socket has room for it.
fn send(socket: &impl AsFd, message: &[u8]) -> Result<()> {
    let sent = send_some(socket, message).context("send")?;
    ensure!(sent == message.len(), "the socket took only {sent} of {} bytes", message.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_trip_is_counted_once() -> Result<()> {
        assert_eq!(ping_pong_tcp(200)?.count(), 200);
        assert_eq!(ping_pong_unix(200)?.count(), 200);
        let pause = Duration::from_micros(200);
        assert_eq!(ping_pong_tcp_blocking_server(20, pause)?.count(), 20);
        assert_eq!(ping_pong_tcp_blocking_echo(20, pause)?.count(), 20);
        Ok(())
    }

    #[test]
    fn a_server_without_clients_can_be_stopped() -> Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        beside(|stop| serve_ping_pong(&listener, Waiting::Blocking, stop), || Ok(()))
    }
}
