//! Addresses to connect to, by name or number.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// A host, by name or IP address, and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// A host name or an IP address, without the brackets around an IPv6 address.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Address {
    /// Resolves the host to its present addresses. It asks the machine's resolver, which may take a
    /// while, so a reactor's thread must not call it.
    ///
    /// # Errors
    /// The name has no address, or no resolver answers.
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        Ok((self.host.as_str(), self.port).to_socket_addrs()?.collect())
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let text = text.trim();
        let Some((host, port)) = text.rsplit_once(':') else {
            return Err(format!("{text:?} has no port; write HOST:PORT"));
        };
        let port = match port.parse() {
            Ok(0) | Err(_) => return Err(format!("{port:?} is not a port; use 1 to 65535")),
            Ok(port) => port,
        };
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(inner) if inner.parse::<std::net::Ipv6Addr>().is_ok() => inner,
            Some(inner) => return Err(format!("{inner:?} is not an IPv6 address")),
            None => check_host(host)?,
        };
        Ok(Address { host: host.to_owned(), port })
    }
}

/// Checks a host name or an IPv4 address.
fn check_host(host: &str) -> Result<&str, String> {
    if host.contains(':') {
        return Err(format!("put an IPv6 address into brackets: [{host}]:PORT"));
    }
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    match !host.is_empty() && host.len() <= 253 && host.chars().all(is_good) {
        true => Ok(host),
        false => Err(format!("{host:?} is neither a host name nor an IP address")),
    }
}

/// Parses a host without a port.
pub(crate) fn parse_host(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.parse::<std::net::Ipv6Addr>().is_ok() {
        return Ok(text.to_owned());
    }
    if text.contains(':') {
        return Err(format!(
            "{text:?}: give the host without a port; the ports are those of server.listen"
        ));
    }
    check_host(text).map(str::to_owned)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for text in ["localhost:7070", "10.0.0.1:1", "[::1]:7070", "a-b.example:65535"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in
            ["", "localhost", "localhost:", ":1", "a:0", "a:70000", "::1:5", "[x]:5", "a b:5"]
        {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
