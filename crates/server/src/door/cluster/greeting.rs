//! The greeting with which a door opens a stream to the owner's door, and the answers to it.
//!
//! It is one line of text. Any program may send one, so nothing in it is believed without a check.
//! The password itself is in no line.

use sha1::{Digest, Sha1};
use std::net::SocketAddr;
use thunderhead_wire::TableId;

/// The longest greeting of another door, and the longest answer to one.
pub(super) const GREETING_BYTES_MAX: usize = 250;

/// The first words of a greeting, with its version: for a client of the plain port, and for one of
/// a cluster port.
const GREETING: &str = "THUNDERHEAD DOOR 1";
const CLUSTER_GREETING: &str = "THUNDERHEAD CLUSTER DOOR 1";

/// The answer to a greeting.
pub(super) const READY: &[u8] = b"READY\n";

/// The answer to a greeting of a door with another password. Its client gets it.
pub(super) const OTHER_PASSWORD: &[u8] =
    b"-ERR the servers of this cluster have different passwords for \
Redis's clients: set server.redis_password alike\r\n";

/// The first line of another door, without the digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) cluster: u64,
    pub(super) table: TableId,
    /// The address of its client.
    pub(super) peer: Option<SocketAddr>,
    /// Whether its client uses a cluster port.
    pub(super) is_of_cluster: bool,
}

impl Greeting {
    /// Returns the line of a door with a password.
    pub(super) fn line(&self, password: Option<&[u8]>) -> String {
        let peer = self.peer.map_or_else(|| "-".to_owned(), |peer| peer.to_string());
        let words = if self.is_of_cluster { CLUSTER_GREETING } else { GREETING };
        let text = format!("{words} {} {} {peer}", self.cluster, self.table.0);
        let digest = digest_of(password, &text);
        format!("{text} {digest}\n")
    }
}

/// A greeting as it has arrived. Nothing in it is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Received<'a> {
    pub(super) greeting: Greeting,
    /// The line before the digest.
    text: &'a str,
    digest: &'a str,
}

impl Received<'_> {
    pub(super) fn read(line: &str) -> Option<Received<'_>> {
        let (text, digest) = line.rsplit_once(' ')?;
        let of_cluster = text.strip_prefix(CLUSTER_GREETING);
        let rest = of_cluster.or_else(|| text.strip_prefix(GREETING))?;
        let mut words = rest.strip_prefix(' ')?.split(' ');
        let cluster = words.next()?.parse().ok()?;
        let table = TableId(words.next()?.parse().ok()?);
        let peer = match words.next()? {
            "-" => None,
            peer => Some(peer.parse().ok()?),
        };
        let is_of_cluster = of_cluster.is_some();
        let greeting = Greeting { cluster, table, peer, is_of_cluster };
        words.next().is_none().then_some(Received { greeting, text, digest })
    }

    /// Whether the other door has the same password, or none like this one.
    pub(super) fn has_password(&self, own: Option<&[u8]>) -> bool {
        let (own, given) = (digest_of(own, self.text), self.digest);
        // The time does not depend on the place of a difference.
        let bytes = own.bytes().zip(given.bytes());
        let differences = bytes.fold(0, |all, (own, given)| all | (own ^ given));
        own.len() == given.len() && differences == 0
    }
}

/// Returns the digest of a line with the password as its key (HMAC with SHA-1), so that the
/// password itself does not leave the server. `-` stands for no password.
fn digest_of(password: Option<&[u8]>, line: &str) -> String {
    const BLOCK: usize = 64;
    let Some(password) = password else { return "-".to_owned() };
    let short = Sha1::digest(password);
    let key = if password.len() > BLOCK { short.as_slice() } else { password };
    let padded = |pad: u8| {
        let mut block = [pad; BLOCK];
        block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        block
    };
    let inner = Sha1::new().chain_update(padded(0x36)).chain_update(line).finalize();
    let outer = Sha1::new().chain_update(padded(0x5c)).chain_update(inner).finalize();
    outer.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of the owner's door that do not accept a greeting.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal<'a> {
    /// An error for the client, with its end of line.
    Whole(&'a [u8]),
    /// The begin of an error.
    More,
    /// They are no error.
    None,
}

pub(super) fn refusal(bytes: &[u8]) -> Refusal<'_> {
    let end = bytes.iter().take(GREETING_BYTES_MAX).position(|byte| *byte == b'\n');
    match end.and_then(|end| bytes.get(..=end)) {
        _ if !bytes.starts_with(b"-") => Refusal::None,
        Some(line) => Refusal::Whole(line),
        None if bytes.len() < GREETING_BYTES_MAX => Refusal::More,
        None => Refusal::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::door::Protocol;
    use crate::door::redis::Redis;

    #[test]
    fn a_greeting_names_the_cluster_the_table_and_the_client() {
        let read = |rest: &str| Received::read(&format!("{GREETING}{rest}")).map(|it| it.greeting);
        let peer = "10.0.0.1:5".parse().ok();
        let greeting = Greeting { cluster: 7, table: TableId(3), peer, is_of_cluster: false };
        let of_cluster = Greeting { is_of_cluster: true, ..greeting.clone() };
        let line = of_cluster.line(None);
        assert_eq!(Received::read(line.trim_end()).map(|it| it.greeting), Some(of_cluster));
        assert_eq!(read(" 7 3 10.0.0.1:5 -"), Some(greeting.clone()));
        assert_eq!(read(" 7 3 - ab"), Some(Greeting { peer: None, ..greeting }));
        let wrong = ["", " 7", " 7 3", " 7 3 -", " 7 3 x -", " 7 3 - - -", " -7 3 - -", "7 3 - -"];
        for wrong in wrong.into_iter().chain([" 7  3 - -"]) {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
        assert_eq!(Received::read("PING"), None);
        let longest = Greeting {
            cluster: u64::MAX,
            table: TableId(u64::MAX),
            peer: "[1111:2222:3333:4444:5555:6666:7777:8888%4294967295]:65535".parse().ok(),
            is_of_cluster: true,
        };
        assert!(longest.line(Some(b"secret")).len() < GREETING_BYTES_MAX);
    }

    #[test]
    fn doors_find_that_their_passwords_differ() {
        let passwords = [None, Some(b"".as_slice()), Some(b"-"), Some(b"secret"), Some(b"Secret")];
        let (cluster, table) = (7, TableId(3));
        let greeting = Greeting { cluster, table, peer: None, is_of_cluster: false };
        for given in passwords {
            let line = greeting.line(given);
            assert!(!line.contains("ecret"), "{line}");
            let received = Received::read(line.trim_end()).unwrap();
            assert_eq!(received.greeting, greeting);
            for own in passwords {
                assert_eq!(received.has_password(own), own == given, "{own:?} {given:?}");
            }
        }
        // The second and the sixth example of RFC 2202.
        let digest = digest_of(Some(b"Jefe"), "what do ya want for nothing?");
        assert_eq!(digest, "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
        let line = "Test Using Larger Than Block-Size Key - Hash Key First";
        let digest = digest_of(Some(&[0xaa; 80]), line);
        assert_eq!(digest, "aa4ae5e15272d00e95705637ce8a3b55ed402112");
    }

    #[test]
    fn an_error_of_the_owners_door_goes_to_the_client_as_a_whole() {
        for error in [OTHER_PASSWORD, Redis::FAREWELL] {
            assert_eq!(refusal(error), Refusal::Whole(error));
            assert_eq!(refusal(&error[..error.len() - 1]), Refusal::More);
        }
        assert_eq!(refusal(b"HTTP/1.1 400\r\n"), Refusal::None);
        assert_eq!(refusal(&[b'-'; GREETING_BYTES_MAX]), Refusal::None);
    }
}
