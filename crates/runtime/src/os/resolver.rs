//! Resolves names with the machine's resolver, on a thread of its own.

use crate::names::{AddressUpdate, Addresses, Resolve};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The shortest interval between two resolutions, so that a cluster that is down costs its resolver
/// little.
const EVERY: Duration = Duration::from_secs(1);

/// Finds the addresses of a host, given by name or number.
type Lookup = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// A host, by name or number.
#[derive(Debug)]
struct Host {
    name: String,
    port: u16,
    /// The addresses of the last successful lookup.
    addresses: Vec<SocketAddr>,
}

/// Hosts that are looked up together.
struct Hosts {
    hosts: Mutex<Vec<Host>>,
    lookup: Lookup,
}

/// Looks hosts up, but not too often.
struct Resolver {
    hosts: Arc<Hosts>,
    /// The time of the last lookup.
    last: Mutex<Instant>,
}

/// Returns the addresses of hosts, given by name or number. Resolves their names now, which may
/// take seconds, and again at each call of [`Addresses::resolve_again`].
///
/// # Errors
/// If no name has an address: the error of each.
#[allow(clippy::disallowed_methods, reason = "this is the runtime")]
pub fn addresses_of(hosts: Vec<(String, u16)>) -> io::Result<Addresses> {
    let is_named = hosts.iter().any(|(host, _)| host.parse::<std::net::IpAddr>().is_err());
    let hosts = Hosts::new(hosts, |name, port| Ok((name, port).to_socket_addrs()?.collect()));
    let (found, errors) = hosts.look_up();
    if found.is_empty() {
        let errors: Vec<String> = errors.into_iter().map(|error| error.to_string()).collect();
        return Err(io::Error::other(errors.join("; ")));
    }
    if !is_named {
        return Ok(Addresses::fixed(found));
    }
    let resolver = Resolver { hosts: Arc::new(hosts), last: Mutex::new(Instant::now()) };
    Ok(Addresses::resolved(found, Box::new(resolver)))
}

impl Hosts {
    fn new(hosts: Vec<(String, u16)>, lookup: Lookup) -> Hosts {
        let host = |(name, port)| Host { name, port, addresses: Vec::new() };
        Hosts { hosts: Mutex::new(hosts.into_iter().map(host).collect()), lookup }
    }

    /// Looks all hosts up. Returns their addresses and the errors. A host whose lookup fails keeps
    /// its last addresses: the name service may be at fault, and the host alive.
    fn look_up(&self) -> (Vec<SocketAddr>, Vec<io::Error>) {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut found, mut errors) = (Vec::new(), Vec::new());
        for Host { name, port, addresses } in &mut *hosts {
            match (self.lookup)(name, *port) {
                Ok(now) if now.is_empty() => {}
                Ok(now) => *addresses = now,
                Err(error) => {
                    errors.push(io::Error::new(error.kind(), format!("{name}:{port}: {error}")));
                }
            }
            for address in addresses {
                if !found.contains(address) {
                    found.push(*address);
                }
            }
        }
        (found, errors)
    }
}

impl Resolve for Resolver {
    #[allow(clippy::disallowed_methods, reason = "this is the runtime")]
    fn resolve(&self, update: AddressUpdate) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.elapsed() < EVERY {
            return;
        }
        *last = Instant::now();
        let hosts = Arc::clone(&self.hosts);
        // If the machine refuses a thread, the next failure asks again.
        let _ = super::detach("resolver", move || update.tell(hosts.look_up().0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU16, Ordering};

    #[test]
    fn names_and_numbers_are_resolved_and_errors_name_the_host() {
        let hosts = [("localhost", 7), ("127.0.0.1", 8), ("no such host", 9)];
        let hosts = hosts.map(|(host, port)| (host.to_owned(), port));
        let found = addresses_of(hosts.to_vec()).unwrap().list();
        assert!(found.contains(&"127.0.0.1:8".parse().unwrap()), "{found:?}");
        assert!(found.iter().any(|it| it.ip().is_loopback() && it.port() == 7), "{found:?}");
        let error = addresses_of(hosts[2..].to_vec()).unwrap_err();
        assert!(error.to_string().starts_with("no such host:9: "), "{error}");
    }

    #[test]
    fn a_host_whose_lookup_fails_keeps_its_addresses() {
        // The number of lookups.
        static COUNT: AtomicU16 = AtomicU16::new(0);
        let hosts = [("stays", 1), ("fails", 2)].map(|(name, port)| (name.to_owned(), port));
        let hosts = Hosts::new(hosts.to_vec(), |name, port| {
            let at = |last| Ok(vec![SocketAddr::from(([10, 0, 0, last], port))]);
            match (name, COUNT.load(Ordering::Relaxed)) {
                ("stays", 0) => at(1),
                ("stays", _) => at(7),
                (_, 1) => Err(io::ErrorKind::TimedOut.into()),
                (_, 2) => Ok(Vec::new()),
                _ => at(2),
            }
        });
        let expected = [["10.0.0.1:1", "10.0.0.2:2"], ["10.0.0.7:1", "10.0.0.2:2"]];
        for (count, expected) in
            [0, 1, 1, 1].into_iter().enumerate().map(|(n, at)| (n, expected[at]))
        {
            COUNT.store(count as u16, Ordering::Relaxed);
            let (found, errors) = hosts.look_up();
            let expected = expected.map(|it| it.parse::<SocketAddr>().unwrap());
            assert_eq!((found, errors.len()), (expected.to_vec(), usize::from(count == 1)));
        }
    }
}
