//! Sockets, mostly of TCP: non-blocking, without Nagle's delay, closed on exec.

use crate::peer::Cause;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// Connections that may be pending before they are accepted.
const BACKLOG: i32 = 4096;

/// How long sent bytes may stay unacknowledged, or a peer may leave its window closed, before the
/// kernel gives up: longer than this transport waits itself, because it can name the cause.
const SILENT_MS: u32 = 45_000;

fn socket(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    // Without this option on both sockets, the kernel keeps the port of a connection from every
    // listener, even for a minute after the connection. A server that restarts could then not
    // listen at its port.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    Ok(socket)
}

/// Sets the options of every connection; an option that the kernel refuses is left out.
fn tune(socket: impl AsFd, peer: SocketAddr) {
    let socket = socket.as_fd();
    let _ = sockopt::set_tcp_nodelay(socket, true);
    // Detects half-open connections, whose peer has vanished.
    let _ = sockopt::set_socket_keepalive(socket, true);
    let _ = sockopt::set_tcp_keepidle(socket, Duration::from_secs(30));
    let _ = sockopt::set_tcp_keepintvl(socket, Duration::from_secs(10));
    let _ = sockopt::set_tcp_user_timeout(socket, SILENT_MS);
    if peer.ip().is_loopback() {
        // Nothing is ever congested on loopback. If the machine's default measures and paces (BBR),
        // that costs a thirtieth of a round trip.
        let _ = sockopt::set_tcp_congestion(socket, "reno");
    }
}

/// Tells the peer that no further bytes follow. If the connection has failed, a read finds that.
pub(super) fn end_output(socket: impl AsFd) {
    let _ = net::shutdown(socket, net::Shutdown::Write);
}

/// Listens; returns the socket and its address.
pub(super) fn listen(address: SocketAddr) -> io::Result<(OwnedFd, SocketAddr)> {
    let socket = socket(address)?;
    if address.is_ipv6() {
        // An IPv6 address means IPv6 only. To listen on both, listen twice.
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    net::bind(&socket, &address)?;
    net::listen(&socket, BACKLOG)?;
    let address = local(&socket).ok_or_else(|| io::Error::other("the socket has no address"))?;
    Ok((socket, address))
}

/// Begins to connect.
pub(super) fn connect(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let socket = socket(address)?;
    tune(&socket, address);
    match net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// Returns the cause for which a requested connection failed. Only the peer's machine can refuse.
/// If this machine has no descriptors, ports or memory for it, the peer is not to blame.
pub(super) fn cause(error: Errno) -> Cause {
    match error {
        Errno::CONNREFUSED => Cause::Refused,
        Errno::MFILE
        | Errno::NFILE
        | Errno::NOBUFS
        | Errno::NOMEM
        | Errno::ADDRNOTAVAIL
        | Errno::AGAIN => Cause::Exhausted,
        _ => Cause::Reset,
    }
}

/// Accepts one connection, if one waits.
pub(super) fn accept(listener: &OwnedFd) -> Result<Option<(OwnedFd, SocketAddr)>, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    match net::acceptfrom_with(listener, flags) {
        Ok((socket, address)) => {
            let address = address.and_then(|address| SocketAddr::try_from(address).ok());
            Ok(address.map(|address| {
                tune(&socket, address);
                (socket, address)
            }))
        }
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Listens at a path with these permissions.
pub(super) fn listen_unix(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    // No process can connect before the socket listens.
    rustix::fs::chmod(path, rustix::fs::Mode::from_raw_mode(mode))?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Whether a path is a socket at which no process listens any more.
pub(super) fn is_left_behind(path: &Path) -> bool {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let Ok(address) = SocketAddrUnix::new(path) else { return false };
    net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .and_then(|socket| net::connect(&socket, &address))
        .is_err_and(|error| error == Errno::CONNREFUSED)
        && rustix::fs::lstat(path)
            .is_ok_and(|it| rustix::fs::FileType::from_raw_mode(it.st_mode).is_socket())
}

/// Accepts one connection at a listener of the file system, if one waits.
pub(super) fn accept_unix(listener: &OwnedFd) -> Result<Option<OwnedFd>, Errno> {
    match net::accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
        Ok(socket) => Ok(Some(socket)),
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the socket's own address.
pub(super) fn local(socket: impl AsFd) -> Option<SocketAddr> {
    SocketAddr::try_from(net::getsockname(socket).ok()?).ok()
}

/// Returns the error that the kernel holds for a socket, if there is one.
pub(super) fn error(socket: impl AsFd) -> Option<Errno> {
    sockopt::socket_error(socket).map_or_else(Some, Result::err)
}

/// Returns the error of a connection attempt, if it failed.
///
/// If no program listens at a port of this machine, the kernel can choose that same port for the
/// attempt: the socket is then connected to itself. Such an attempt counts as refused.
pub(super) fn attempt_error(socket: impl AsFd) -> Option<Errno> {
    let socket = socket.as_fd();
    let to_itself = || is_connected_to_itself(socket).then_some(Errno::CONNREFUSED);
    error(socket).or_else(to_itself)
}

fn is_connected_to_itself(socket: impl AsFd) -> bool {
    let socket = socket.as_fd();
    let peer = net::getpeername(socket).ok().flatten();
    peer.and_then(|peer| SocketAddr::try_from(peer).ok())
        .is_some_and(|it| local(socket) == Some(it))
}

/// Returns a socket that is connected to itself.
#[cfg(test)]
pub(super) fn connected_to_itself() -> (OwnedFd, SocketAddr) {
    use rustix::event::{PollFd, PollFlags, poll};
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let own = socket(any).unwrap();
    net::bind(&own, &any).unwrap();
    let address = local(&own).unwrap();
    assert_eq!(net::connect(&own, &address), Err(Errno::INPROGRESS));
    poll(&mut [PollFd::new(&own, PollFlags::OUT)], None).unwrap();
    (own, address)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: &str = "127.0.0.1:0";

    /// Connects to a listener, and waits until it has accepted.
    fn pair(listener: &OwnedFd, address: SocketAddr) -> (OwnedFd, OwnedFd) {
        let client = connect(address).unwrap();
        loop {
            if let Some((server, _)) = accept(listener).unwrap() {
                return (client, server);
            }
        }
    }

    #[test]
    fn a_server_can_listen_at_a_port_that_a_connection_uses_or_used() {
        let (listener, address) = listen(FREE.parse().unwrap()).unwrap();
        let (client, server) = pair(&listener, address);
        let port = local(&client).unwrap();
        drop(listen(port).expect("while it is connected"));
        // The side that closes first keeps the port for a minute.
        drop(client);
        drop(server);
        listen(port).expect("when it has closed");
    }

    #[test]
    fn a_socket_that_is_connected_to_itself_is_refused() {
        let (own, _) = connected_to_itself();
        assert_eq!(attempt_error(&own), Some(Errno::CONNREFUSED));

        let (listener, address) = listen(FREE.parse().unwrap()).unwrap();
        let (client, _server) = pair(&listener, address);
        assert_eq!(attempt_error(&client), None);
    }
}
