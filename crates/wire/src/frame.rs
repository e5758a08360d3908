//! How messages are cut out of a stream, and how the two ends of a connection greet each other.
//!
//! ```text
//!  frame     ┌────────────────┬─────────────────────────┐
//!            │ head: u32      │ payload                 │   head = kind << 24 | payload bytes
//!            └────────────────┴─────────────────────────┘
//!  kind 0    a message: rpc defines its contents
//!  kind 1    a preface: the first frame in each direction, sent without waiting for the other's
//!  kind 128… receivers that do not know them skip them; unknown kinds below close the connection
//!
//!  preface    0 magic "THUNDER\n"        8 version_min u16     10 version_max u16
//!            12 message_bytes_max u32   16 features u64
//!            24 door [16]               40 token [16]          56 cluster u64
//!            64 (longer ones may come; the first 12 bytes are the same in all versions)
//! ```
//!
//! All numbers are little-endian. Both ends speak the highest version that both know. The features
//! in use are those of both ends. A server that offers shared memory names the *door* at which to
//! knock and the *token* to show there; all zeroes mean that it offers none. *cluster* is the
//! cluster of the sender; 0 means that it does not know its cluster yet. Ends of different clusters
//! do not speak to each other: ids of servers, masters and tables start at 1 in every cluster.

use crate::ClusterId;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a frame's head.
pub const HEAD_BYTES: usize = 4;

/// The longest payload that a frame's head can express.
pub const PAYLOAD_BYTES_MAX: usize = (1 << 24) - 1;

/// A feature: the sender sends and takes long messages. If both ends have it, rings in shared
/// memory between them are long as well.
pub const LONG_MESSAGES: u64 = 1;

/// A feature: the sender is a member of the cluster, a server or a coordinator. A server without
/// room for more clients still accepts members, so that probes and replicas get through.
pub const MEMBER: u64 = 2;

/// The protocol version that this code speaks, and the oldest that it still understands.
pub const VERSIONS: std::ops::RangeInclusive<u16> = 1..=1;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(pub u8);

impl Kind {
    /// A message.
    pub const MESSAGE: Kind = Kind(0);
    /// The greeting.
    pub const PREFACE: Kind = Kind(1);

    /// Whether a receiver that does not know this kind may skip the frame.
    #[must_use]
    pub fn may_be_skipped(self) -> bool {
        self.0 >= 128
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The kind of the frame.
    pub kind: Kind,
    /// Bytes that follow the head.
    pub payload_bytes: usize,
}

impl Head {
    /// The head's bytes.
    #[inline]
    #[must_use]
    pub fn to_bytes(self) -> [u8; HEAD_BYTES] {
        debug_assert!(self.payload_bytes <= PAYLOAD_BYTES_MAX);
        (u32::from(self.kind.0) << 24 | self.payload_bytes as u32).to_le_bytes()
    }

    /// The head at the beginning of some bytes, if they are enough.
    #[inline]
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Head> {
        let head = u32::from_le_bytes(*bytes.first_chunk::<HEAD_BYTES>()?);
        Some(Head { kind: Kind((head >> 24) as u8), payload_bytes: (head & 0xff_ffff) as usize })
    }
}

/// The greeting of each end.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Preface {
    magic: [u8; 8],
    version_min: U16,
    version_max: U16,
    message_bytes_max: U32,
    features: U64,
    door: [u8; 16],
    token: [u8; 16],
    cluster: U64,
}

/// The part of a preface that is the same in all versions.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Start {
    magic: [u8; 8],
    version_min: U16,
    version_max: U16,
}

/// The first bytes of every preface.
pub const MAGIC: [u8; 8] = *b"THUNDER\n";

/// The door at which to knock for shared memory, and the token to show there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The door's name.
    pub door: [u8; 16],
    /// Tells the server to which connection the client belongs.
    pub token: [u8; 16],
}

/// The result of both greetings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The protocol version.
    pub version: u16,
    /// Features that both have.
    pub features: u64,
    /// The longest message that the other end takes.
    pub message_bytes_max: usize,
    /// Shared memory, if the other end offers it.
    pub offer: Option<Offer>,
    /// The cluster of the other end, if that end knew it when it greeted.
    pub cluster: Option<ClusterId>,
}

/// The reason why a greeting is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The bytes are no greeting of this protocol.
    NotOurs,
    /// No version is known to both ends.
    Version {
        /// The oldest version that the other end knows.
        min: u16,
        /// The newest version that it knows.
        max: u16,
    },
}

impl Preface {
    /// The greeting of an end that has these features and takes messages up to a length.
    #[must_use]
    pub fn new(features: u64, message_bytes_max: usize, offer: Option<Offer>) -> Preface {
        let zeroes = Offer { door: [0; 16], token: [0; 16] };
        let Offer { door, token } = offer.unwrap_or(zeroes);
        Preface {
            magic: MAGIC,
            version_min: (*VERSIONS.start()).into(),
            version_max: (*VERSIONS.end()).into(),
            message_bytes_max: (message_bytes_max as u32).into(),
            features: features.into(),
            door,
            token,
            cluster: 0.into(),
        }
    }

    /// The same greeting from an end of this cluster, or from an end that does not know its cluster
    /// yet.
    #[must_use]
    pub fn of_cluster(mut self, cluster: Option<ClusterId>) -> Preface {
        self.cluster = cluster.map_or(0, |cluster| cluster.0).into();
        self
    }

    /// The same greeting from an end that speaks other versions: for tests.
    #[must_use]
    pub fn with_versions(mut self, min: u16, max: u16) -> Preface {
        (self.version_min, self.version_max) = (min.into(), max.into());
        self
    }

    /// The agreement between an end with these features and the sender of this payload.
    ///
    /// # Errors
    /// When the payload is no greeting, or no version is known to both ends. A greeting that is too
    /// short is from another build of these versions.
    pub fn agree(payload: &[u8], features: u64) -> Result<Agreement, Mismatch> {
        let (start, _) = Start::ref_from_prefix(payload).map_err(|_| Mismatch::NotOurs)?;
        if start.magic != MAGIC {
            return Err(Mismatch::NotOurs);
        }
        let (min, max) = (start.version_min.get(), start.version_max.get());
        let version = max.min(*VERSIONS.end());
        if version < min || version < *VERSIONS.start() {
            return Err(Mismatch::Version { min, max });
        }
        let theirs = Preface::ref_from_prefix(payload);
        let (theirs, _) = theirs.map_err(|_| Mismatch::Version { min, max })?;
        let offer = Offer { door: theirs.door, token: theirs.token };
        Ok(Agreement {
            version,
            features: theirs.features.get() & features,
            // No frame can carry more, even if the other end offers it.
            message_bytes_max: (theirs.message_bytes_max.get() as usize).min(PAYLOAD_BYTES_MAX),
            offer: (offer.door != [0; 16]).then_some(offer),
            cluster: Some(ClusterId(theirs.cluster.get())).filter(|it| *it != ClusterId(0)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preface_has_these_bytes() {
        let offer = Offer { door: [0xd0; 16], token: [0x70; 16] };
        let cluster = Some(ClusterId(0x0102_0304_0506_0708));
        let bytes = Preface::new(5, 0x0012_3456, Some(offer)).of_cluster(cluster);
        let mut golden = b"THUNDER\n\x01\0\x01\0\x56\x34\x12\0\x05\0\0\0\0\0\0\0".to_vec();
        golden.extend([0xd0; 16]);
        golden.extend([0x70; 16]);
        golden.extend([8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(bytes.as_bytes(), golden);
        let head = Head { kind: Kind::PREFACE, payload_bytes: golden.len() };
        assert_eq!(head.to_bytes(), [64, 0, 0, 1]);
        assert_eq!(Head::read(&head.to_bytes()), Some(head));
        assert_eq!(Head::read(&[1, 2, 3]), None);
    }

    #[test]
    fn two_ends_agree_on_the_highest_version_and_the_features_of_both() {
        let ours = Preface::new(0b0110, 1000, None);
        let agreed = Preface::agree(ours.as_bytes(), 0b0011);
        let expected = Agreement {
            version: 1,
            features: 0b0010,
            message_bytes_max: 1000,
            offer: None,
            cluster: None,
        };
        assert_eq!(agreed, Ok(expected));
        let of_a_cluster = ours.of_cluster(Some(ClusterId(7)));
        let agreed = Preface::agree(of_a_cluster.as_bytes(), 0).unwrap();
        assert_eq!(agreed.cluster, Some(ClusterId(7)));
        let boastful = Preface::new(0, u32::MAX as usize, None);
        let agreed = Preface::agree(boastful.as_bytes(), 0).unwrap();
        assert_eq!(agreed.message_bytes_max, PAYLOAD_BYTES_MAX);
        let newer = ours.with_versions(1, 9);
        assert_eq!(Preface::agree(newer.as_bytes(), 0).map(|it| it.version), Ok(1));
    }

    #[test]
    fn a_greeting_of_another_length_is_one_of_another_version() {
        let ours = Preface::new(0, 1000, None);
        for (min, max) in [(1, 1), (2, 3), (0, 0)] {
            let theirs = ours.with_versions(min, max);
            let refused = Err(Mismatch::Version { min, max });
            for bytes in [12, 56, 63] {
                assert_eq!(Preface::agree(&theirs.as_bytes()[..bytes], 0), refused, "{bytes}");
            }
            let longer = [theirs.as_bytes(), &[9; 100]].concat();
            assert_eq!(Preface::agree(&longer, 0).is_ok(), (min, max) == (1, 1));
        }
    }

    #[test]
    fn other_bytes_and_greetings_of_other_versions_are_refused() {
        let ours = Preface::new(0, 1000, None);
        for (min, max) in [(2, 9), (0, 0), (9, 2)] {
            let theirs = ours.with_versions(min, max);
            let refused = Err(Mismatch::Version { min, max });
            assert_eq!(Preface::agree(theirs.as_bytes(), 0), refused);
        }
        assert_eq!(Preface::agree(&ours.as_bytes()[..11], 0), Err(Mismatch::NotOurs));
        assert_eq!(Preface::agree(b"GET / HTTP/1.1\r\n", 0), Err(Mismatch::NotOurs));
        let mut other = ours.as_bytes().to_vec();
        other[0] ^= 1;
        assert_eq!(Preface::agree(&other, 0), Err(Mismatch::NotOurs));
    }
}
