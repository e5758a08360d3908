//! TCP sockets: non-blocking, without Nagle's delay, closed on exec.

use crate::peer::Cause;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::SocketAddr;
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
    net::socket_with(family, SocketType::STREAM, flags, None)
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

/// Listens; returns the socket and its address.
pub(super) fn listen(address: SocketAddr) -> io::Result<(OwnedFd, SocketAddr)> {
    let socket = socket(address)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
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

/// Returns the socket's own address.
pub(super) fn local(socket: impl AsFd) -> Option<SocketAddr> {
    SocketAddr::try_from(net::getsockname(socket).ok()?).ok()
}

/// Returns the error of a connection attempt, if it failed.
pub(super) fn error(socket: impl AsFd) -> Option<Errno> {
    sockopt::socket_error(socket).map_or_else(Some, Result::err)
}
