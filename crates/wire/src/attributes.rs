//! The attributes that an object may have beside its value: a time at which it expires, and a
//! client's flags.
//!
//! ```text
//!  | bits 1 | [expires 6] | [client flags 4] | [versions behind 3] |      all little-endian
//!  bits:  0-1 kind of the value · 2 expires · 3 client flags · 4 stale · 5 claimed
//!         6 versions behind · 7 cached
//! ```

use crate::ValueKind;

const EXPIRES: u8 = 1 << 2;
const CLIENT_FLAGS: u8 = 1 << 3;
const STALE: u8 = 1 << 4;
const CLAIMED: u8 = 1 << 5;
const BEHIND: u8 = 1 << 6;
const CACHED: u8 = 1 << 7;

/// A time in milliseconds since the beginning of 1970 (UTC), as clients give it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The beginning of 1970. As the time at which an object expires it stands for *never*.
    pub const ZERO: Timestamp = Timestamp(0);

    /// The latest time that fits into its 6 bytes: in the year 10889.
    pub const LATEST: Timestamp = Timestamp((1 << 48) - 1);

    /// The time so many milliseconds later, at most [`Timestamp::LATEST`].
    #[must_use]
    pub fn after(self, milliseconds: u64) -> Timestamp {
        Timestamp(self.0.saturating_add(milliseconds)).min(Timestamp::LATEST)
    }
}

/// The attributes of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attributes {
    /// From this time on the object does not exist; [`Timestamp::ZERO`] for never.
    pub expires: Timestamp,
    /// A number that a client keeps with the object; clients of memcached do.
    pub client_flags: u32,
    /// Its value is out of date, and a client may still want it until there is a newer one.
    pub is_stale: bool,
    /// A client was told to make a newer value; others need not.
    pub is_claimed: bool,
    /// How many versions have changed only attributes, since the value was written; at most
    /// [`Attributes::BEHIND_MAX`]. Clients of memcached do not see these as changes.
    pub versions_behind: u32,
    /// It belongs to a cache: the store counts how often it is read.
    pub is_cached: bool,
}

impl Attributes {
    /// An object without attributes.
    pub const NONE: Attributes = Attributes {
        expires: Timestamp::ZERO,
        client_flags: 0,
        is_stale: false,
        is_claimed: false,
        versions_behind: 0,
        is_cached: false,
    };

    /// The most bytes that attributes take.
    pub const BYTES_MAX: usize = 14;

    /// The highest number of versions behind.
    pub const BEHIND_MAX: u32 = (1 << 24) - 1;

    /// Whether the object has no attributes.
    #[inline]
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Attributes::NONE
    }

    /// Whether an object with these attributes does not exist any more at a time.
    #[inline]
    #[must_use]
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires != Timestamp::ZERO && self.expires <= now
    }

    /// The attributes as bytes, with the kind of the object's value; and the number of the bytes.
    #[must_use]
    pub fn encode(&self, kind: ValueKind) -> ([u8; Attributes::BYTES_MAX], usize) {
        let (mut bytes, mut length) = ([0; Attributes::BYTES_MAX], 1);
        let mut bits = kind.code();
        if self.expires != Timestamp::ZERO {
            bits |= EXPIRES;
            let expires = self.expires.min(Timestamp::LATEST).0.to_le_bytes();
            bytes[length..length + 6].copy_from_slice(&expires[..6]);
            length += 6;
        }
        if self.client_flags != 0 {
            bits |= CLIENT_FLAGS;
            bytes[length..length + 4].copy_from_slice(&self.client_flags.to_le_bytes());
            length += 4;
        }
        if self.versions_behind != 0 {
            bits |= BEHIND;
            let behind = self.versions_behind.min(Attributes::BEHIND_MAX).to_le_bytes();
            bytes[length..length + 3].copy_from_slice(&behind[..3]);
            length += 3;
        }
        if self.is_stale {
            bits |= STALE;
        }
        if self.is_claimed {
            bits |= CLAIMED;
        }
        if self.is_cached {
            bits |= CACHED;
        }
        bytes[0] = bits;
        (bytes, length)
    }

    /// Takes attributes off the front of some bytes: the kind of the value, the attributes, and how
    /// many bytes they took. `None` if there are too few bytes, or a kind that this version does
    /// not know.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<(ValueKind, Attributes, usize)> {
        let bits = *bytes.first()?;
        let kind = ValueKind::of_code(bits & 0b11)?;
        let mut attributes = Attributes {
            is_stale: bits & STALE != 0,
            is_claimed: bits & CLAIMED != 0,
            is_cached: bits & CACHED != 0,
            ..Attributes::NONE
        };
        let mut length = 1;
        if bits & EXPIRES != 0 {
            let mut expires = [0; 8];
            expires[..6].copy_from_slice(bytes.get(length..length + 6)?);
            attributes.expires = Timestamp(u64::from_le_bytes(expires));
            length += 6;
        }
        if bits & CLIENT_FLAGS != 0 {
            let flags = bytes.get(length..length + 4)?;
            attributes.client_flags = u32::from_le_bytes(flags.try_into().ok()?);
            length += 4;
        }
        if bits & BEHIND != 0 {
            let mut behind = [0; 4];
            behind[..3].copy_from_slice(bytes.get(length..length + 3)?);
            attributes.versions_behind = u32::from_le_bytes(behind);
            length += 3;
        }
        Some((kind, attributes, length))
    }
}

/// Attributes as bytes: these take little room and no alignment where there are mostly none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodedAttributes {
    bytes: [u8; Attributes::BYTES_MAX],
    length: u8,
}

impl EncodedAttributes {
    /// None.
    pub const NONE: EncodedAttributes =
        EncodedAttributes { bytes: [0; Attributes::BYTES_MAX], length: 0 };

    /// Encodes attributes.
    #[must_use]
    pub fn of(attributes: &Attributes) -> EncodedAttributes {
        if attributes.is_none() {
            return EncodedAttributes::NONE;
        }
        let (bytes, length) = attributes.encode(ValueKind::Bytes);
        EncodedAttributes { bytes, length: length as u8 }
    }

    /// Whether there are none.
    #[inline]
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.length == 0
    }

    /// The attributes.
    #[must_use]
    pub fn decode(&self) -> Attributes {
        Attributes::decode(&self.bytes)
            .filter(|_| self.length > 0)
            .map_or(Attributes::NONE, |it| it.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bytes_never_change_their_meaning() {
        let all = Attributes {
            expires: Timestamp(0x0605_0403_0201),
            client_flags: 0x0d0c_0b0a,
            is_stale: true,
            is_claimed: true,
            versions_behind: 0x13_1211,
            is_cached: true,
        };
        let (bytes, length) = all.encode(ValueKind::Float);
        let golden = [0b1111_1110, 1, 2, 3, 4, 5, 6, 0x0a, 0x0b, 0x0c, 0x0d, 0x11, 0x12, 0x13];
        assert_eq!((bytes, length), (golden, golden.len()));
        let (bytes, length) = Attributes::NONE.encode(ValueKind::Bytes);
        assert_eq!(&bytes[..length], [0]);
    }

    #[test]
    fn an_unknown_kind_and_too_few_bytes_are_refused() {
        for bytes in [&[][..], &[0x40, 1], &[0x83], &[3], &[4, 0, 0, 0, 0, 0], &[8, 1, 2, 3]] {
            assert_eq!(Attributes::decode(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn a_time_to_live_never_exceeds_the_latest_time_and_zero_is_never() {
        assert_eq!(Timestamp(5).after(7), Timestamp(12));
        assert_eq!(Timestamp(5).after(u64::MAX), Timestamp::LATEST);
        let expires = |at| Attributes { expires: Timestamp(at), ..Attributes::NONE };
        assert!(!expires(0).has_expired(Timestamp::LATEST));
        assert!(!expires(10).has_expired(Timestamp(9)));
        assert!(expires(10).has_expired(Timestamp(10)));
    }

    proptest! {
        #[test]
        fn encoded_attributes_are_decoded(
            expires in 0..1u64 << 48,
            client_flags in prop_oneof![Just(0), any::<u32>()],
            is_stale: bool,
            is_claimed: bool,
            is_cached: bool,
            versions_behind in prop_oneof![Just(0), 0..1u32 << 24],
            kind in 0..3u8,
            rest in proptest::collection::vec(any::<u8>(), 0..9),
        ) {
            let kind = ValueKind::of_code(kind).unwrap();
            let expires = Timestamp(expires);
            let attributes = Attributes {
                expires,
                client_flags,
                is_stale,
                is_claimed,
                versions_behind,
                is_cached,
            };
            prop_assert_eq!(EncodedAttributes::of(&attributes).decode(), attributes);
            prop_assert_eq!(EncodedAttributes::of(&attributes).is_none(), attributes.is_none());
            let (bytes, length) = attributes.encode(kind);
            let all = [&bytes[..length], &rest].concat();
            prop_assert_eq!(Attributes::decode(&all), Some((kind, attributes, length)));
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..22)) {
            if let Some((kind, attributes, length)) = Attributes::decode(&bytes) {
                prop_assert!(length <= bytes.len());
                prop_assert_eq!(attributes.encode(kind).1 <= Attributes::BYTES_MAX, true);
            }
        }
    }
}
