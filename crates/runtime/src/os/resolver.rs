//! Resolves names by the machine's resolver, on a thread of its own.

use crate::names::{Addresses, Found, Resolve};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Names are resolved no more often than this, so that a cluster that is down does not cost its resolver much.
const EVERY: Duration = Duration::from_secs(1);

/// Hosts, by name or number, and their ports.
struct Hosts {
    hosts: Vec<(String, u16)>,
    /// When they were resolved last.
    last: Mutex<Instant>,
}

/// The addresses that hosts, given by name or number, stand for. Their names are resolved now, which may take
/// seconds, and again when [`Addresses::resolve_again`] is called.
///
/// # Errors
/// When no name stands for an address: the error of each.
#[allow(clippy::disallowed_methods, reason = "this is the runtime")]
pub fn addresses_of(hosts: Vec<(String, u16)>) -> io::Result<Addresses> {
    let (found, errors) = resolve(&hosts);
    if found.is_empty() {
        let errors: Vec<String> = errors.into_iter().map(|error| error.to_string()).collect();
        return Err(io::Error::other(errors.join("; ")));
    }
    let is_named = hosts.iter().any(|(host, _)| host.parse::<std::net::IpAddr>().is_err());
    if !is_named {
        return Ok(Addresses::fixed(found));
    }
    Ok(Addresses::resolved(found, Box::new(Hosts { hosts, last: Mutex::new(Instant::now()) })))
}

fn resolve(hosts: &[(String, u16)]) -> (Vec<SocketAddr>, Vec<io::Error>) {
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    for (host, port) in hosts {
        match (host.as_str(), *port).to_socket_addrs() {
            Ok(addresses) => {
                for address in addresses {
                    if !found.contains(&address) {
                        found.push(address);
                    }
                }
            }
            Err(error) => {
                errors.push(io::Error::new(error.kind(), format!("{host}:{port}: {error}")));
            }
        }
    }
    (found, errors)
}

impl Resolve for Hosts {
    #[allow(clippy::disallowed_methods, reason = "this is the runtime")]
    fn resolve(&self, found: Found) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.elapsed() < EVERY {
            return;
        }
        *last = Instant::now();
        let hosts = self.hosts.clone();
        // Where no thread can be had the next failure asks again.
        let _ = super::detach("resolver", move || found.tell(resolve(&hosts).0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
