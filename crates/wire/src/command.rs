//! The header of each command from a coordinator to a server: the leadership of the sender.
//!
//! ```text
//!   0 cluster u64     8 token u64     16 the message
//! ```
//!
//! Such a message may be delayed for longer than the leadership of its sender lasts. The token is
//! that of the leadership, and grows with each leadership. A server that knows of a newer
//! leadership refuses messages of an older one ([`Status::OldLeader`](crate::Status::OldLeader)),
//! and messages of another cluster.

use crate::ClusterId;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first bytes of a coordinator's command.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct CommandHeader {
    cluster: U64,
    token: U64,
}

impl CommandHeader {
    /// The header for the commands of a cluster's coordinator under this token.
    #[must_use]
    pub fn new(cluster: ClusterId, token: u64) -> CommandHeader {
        CommandHeader { cluster: cluster.0.into(), token: token.into() }
    }

    /// The body of a command: this header, then the message.
    #[must_use]
    pub fn command(&self, message: &[u8]) -> Vec<u8> {
        [self.as_bytes(), message].concat()
    }

    /// The header and the message in the body of a command.
    #[must_use]
    pub fn split(body: &[u8]) -> Option<(CommandHeader, &[u8])> {
        let (header, message) = CommandHeader::read_from_prefix(body).ok()?;
        Some((header, message))
    }

    /// The cluster.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        ClusterId(self.cluster.get())
    }

    /// The token: a later leadership has a higher one.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.token.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_begins_with_these_bytes() {
        let header = CommandHeader::new(ClusterId(0x0102_0304_0506_0708), 9);
        let golden = [8, 7, 6, 5, 4, 3, 2, 1, 9, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(header.as_bytes(), golden);
        let body = header.command(b"{}");
        assert_eq!(CommandHeader::split(&body), Some((header, b"{}".as_slice())));
        assert_eq!(CommandHeader::split(&body[..15]), None);
    }
}
