//! The ports of the doors of a cluster: for other doors, and for clients that know the slots of
//! keys.
//!
//! Each part of the keys is a node for such clients. So each shard of a server has a cluster port
//! for each part:
//!
//! ```text
//!            part 0   part 1   part 2
//!  shard 0    7000     7001     7002      server.redis_cluster = IP:7000
//!  shard 1    7003     7004     7005
//! ```

use crate::door::Protocol;
use crate::door::redis::{KeyParts, Redis};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use thunderhead_net::stream::StreamAddress;
use thunderhead_rpc::{Node, Service};
use thunderhead_wire::membership::ClusterPort;

/// The address under which clients reach the cluster ports, if it is not that of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announce {
    /// A name or an IP address.
    pub host: String,
    /// The first port, if the ports have other numbers for clients.
    pub port: Option<u16>,
}

/// The options of the doors of a cluster.
#[derive(Clone, Debug, Default)]
pub struct ClusterOptions {
    /// The parts of the keys.
    pub parts: Arc<KeyParts>,
    /// The first cluster port, if the server has such ports.
    pub listen: Option<SocketAddr>,
    /// The address under which clients reach the cluster ports.
    pub announce: Option<Announce>,
    /// The places where it listens indeed, by the number of the port.
    pub listens: Arc<Mutex<BTreeMap<u32, SocketAddr>>>,
}

/// The ports of a shard's door.
#[derive(Clone, Debug)]
pub(crate) struct Ports {
    /// The address for other doors, and the number of its listener.
    pub(crate) inside: (SocketAddr, u32),
    /// The cluster port of each part, and the number of its listener.
    pub(crate) of_parts: Vec<(ClusterPort, u32)>,
}

/// Returns the port that lies so many ports behind another one. Port 0 stands for any free port.
fn behind(first: u16, number: u32) -> io::Result<u16> {
    let port = if first == 0 { Some(0) } else { u32::from(first).checked_add(number) };
    let port = port.and_then(|port| u16::try_from(port).ok());
    port.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "there are too few ports"))
}

impl ClusterOptions {
    /// Returns the options of a further server in this process.
    pub(crate) fn of_further_server(&self, number: u32, shards: u32) -> ClusterOptions {
        let number = number * shards * self.parts.wanted().count();
        // A port above the highest one is refused when the server listens.
        let moved = |port: u16| behind(port, number).unwrap_or(u16::MAX);
        let listen = self.listen.map(|at| SocketAddr::new(at.ip(), moved(at.port())));
        let announce = self
            .announce
            .as_ref()
            .map(|it| Announce { host: it.host.clone(), port: it.port.map(moved) });
        ClusterOptions { parts: Arc::clone(&self.parts), listen, announce, listens: Arc::default() }
    }

    /// Begins to listen at the cluster ports of a shard, if the server has any. `ip` is the
    /// server's address.
    pub(crate) fn listen<S: Service>(
        &self,
        node: &mut Node<S>,
        shard: usize,
        ip: IpAddr,
    ) -> io::Result<Vec<(ClusterPort, u32)>> {
        let Some(at) = self.listen else { return Ok(Vec::new()) };
        let parts = self.parts.wanted().count();
        let first = shard as u32 * parts;
        (first..first + parts).map(|number| self.listen_at(node, (at, ip), number)).collect()
    }

    fn listen_at<S: Service>(
        &self,
        node: &mut Node<S>,
        (first, ip): (SocketAddr, IpAddr),
        number: u32,
    ) -> io::Result<(ClusterPort, u32)> {
        let mut listens = self.listens.lock().unwrap_or_else(PoisonError::into_inner);
        // A later generation of the server listens at the same ports.
        let at = match listens.get(&number) {
            Some(at) => *at,
            None => SocketAddr::new(first.ip(), behind(first.port(), number)?),
        };
        let failed = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot listen at the cluster port {at}: {error}"))
        };
        let found = node.listen_stream(&StreamAddress::Tcp(at), Redis::FAREWELL).map_err(failed)?;
        let (StreamAddress::Tcp(address), listener) = found else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        listens.insert(number, address);
        let own_ip = if address.ip().is_unspecified() { ip } else { address.ip() };
        let host = self.announce.as_ref().map_or_else(|| own_ip.to_string(), |it| it.host.clone());
        let port = match self.announce.as_ref().and_then(|it| it.port) {
            Some(port) => behind(port, number)?,
            None => address.port(),
        };
        Ok((ClusterPort { host, port }, listener))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thunderhead_doors::resp::Parts;

    #[test]
    fn further_servers_of_a_process_have_the_next_ports() {
        let options = ClusterOptions {
            parts: Arc::new(KeyParts::new(Parts::new(3).unwrap())),
            listen: Some("127.0.0.1:7000".parse().unwrap()),
            announce: Some(Announce { host: "example.org".to_owned(), port: Some(9000) }),
            ..ClusterOptions::default()
        };
        let second = options.of_further_server(1, 2);
        assert_eq!(second.listen, Some("127.0.0.1:7006".parse().unwrap()));
        assert_eq!(second.announce.unwrap().port, Some(9006));
        assert_eq!((behind(0, 5).ok(), behind(65_535, 1).ok()), (Some(0), None));
    }
}
