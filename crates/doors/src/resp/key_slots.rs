//! The slots of keys, as in a cluster of Redis, and the parts into which they are divided.
//!
//! The slot of a key is the remainder of its checksum. A key with a *hash tag*, such as
//! `{user}:name`, has the slot of the tag alone. So keys with the same tag are in one slot.
//!
//! The slots are divided into *parts*: ranges of nearly the same length, in the order of the slots.

use std::ops::RangeInclusive;

/// The number of slots.
pub const SLOTS: u16 = 16_384;

/// The most parts.
pub const PARTS_MAX: u32 = 64;

/// The polynomial of the checksum (CRC-16/XMODEM).
const POLYNOMIAL: u16 = 0x1021;

const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let mut sum = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 0x8000 == 0 { sum << 1 } else { sum << 1 ^ POLYNOMIAL };
            bit += 1;
        }
        table[byte] = sum;
        byte += 1;
    }
    table
};

/// Returns the slot of a key.
#[must_use]
pub fn slot_of(key: &[u8]) -> u16 {
    let sum = tag_of(key)
        .unwrap_or(key)
        .iter()
        .fold(0, |sum: u16, byte| sum << 8 ^ TABLE[usize::from(sum >> 8 ^ u16::from(*byte))]);
    sum % SLOTS
}

/// Returns the hash tag of a key: the bytes between its first `{` and the next `}`. An empty one
/// does not count.
fn tag_of(key: &[u8]) -> Option<&[u8]> {
    let behind = key.get(memchr::memchr(b'{', key)? + 1..)?;
    behind.get(..memchr::memchr(b'}', behind)?).filter(|tag| !tag.is_empty())
}

/// Returns the slot of all keys that a pattern of `SORT` can name, if it is the same for all. `*`
/// stands for an element.
pub(super) fn slot_of_pattern(pattern: &[u8]) -> Option<u16> {
    match memchr::memchr(b'*', pattern) {
        None => Some(slot_of(pattern)),
        // An element before the end of the tag could change the tag.
        Some(star) => tag_of(pattern.get(..star)?).map(slot_of),
    }
}

/// The number of parts, from 1 to [`PARTS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts(u32);

impl Parts {
    /// All slots in one part.
    pub const ONE: Parts = Parts(1);

    /// Returns so many parts, if there can be so many.
    #[must_use]
    pub fn new(count: u32) -> Option<Parts> {
        (1..=PARTS_MAX).contains(&count).then_some(Parts(count))
    }

    /// Returns the number of parts.
    #[must_use]
    pub fn count(self) -> u32 {
        self.0
    }

    /// Returns the slots of a part.
    #[must_use]
    pub fn slots(self, part: u32) -> RangeInclusive<u16> {
        let first = |part: u32| part.min(self.0) * u32::from(SLOTS) / self.0;
        first(part) as u16..=(first(part + 1).max(1) - 1) as u16
    }

    /// Returns the part of a slot.
    #[must_use]
    pub fn part_of(self, slot: u16) -> u32 {
        ((u32::from(slot.min(SLOTS - 1)) + 1) * self.0 - 1) / u32::from(SLOTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_slot_of_its_checksum() {
        // The check value of CRC-16/XMODEM, and examples of the specification of Redis Cluster.
        assert_eq!(slot_of(b"123456789"), 0x31c3);
        assert_eq!((slot_of(b""), slot_of(b"foo"), slot_of(b"bar")), (0, 12182, 5061));
    }

    #[test]
    fn keys_with_the_same_hash_tag_have_one_slot() {
        let same =
            [&b"{user1000}.following"[..], b"{user1000}.followers", b"user1000", b"a{user1000}{b}"];
        assert!(same.iter().all(|key| slot_of(key) == slot_of(b"user1000")));
        // The tag ends at the first closing brace; an empty tag does not count.
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
        assert_eq!(tag_of(b"foo{}{bar}"), None);
        assert_eq!(tag_of(b"foo{bar"), None);
    }

    #[test]
    fn a_pattern_has_a_slot_if_all_its_keys_have_it() {
        assert_eq!(slot_of_pattern(b"fixed"), Some(slot_of(b"fixed")));
        assert_eq!(slot_of_pattern(b"{a}:*->f"), Some(slot_of(b"a")));
        for pattern in [&b"a:*"[..], b"*{a}", b"{a*}", b"*"] {
            assert_eq!(slot_of_pattern(pattern), None);
        }
    }

    #[test]
    fn parts_divide_the_slots_evenly_and_in_order() {
        for count in 1..=PARTS_MAX {
            let parts = Parts::new(count).unwrap();
            let mut next = 0;
            for part in 0..count {
                let slots = parts.slots(part);
                assert_eq!(u32::from(*slots.start()), next);
                assert!(slots.clone().all(|slot| parts.part_of(slot) == part), "{part} of {count}");
                let length = slots.len() as u32;
                assert!(length.abs_diff(u32::from(SLOTS) / count) <= 1);
                next += length;
            }
            assert_eq!(next, u32::from(SLOTS));
        }
        assert_eq!((Parts::new(0), Parts::new(PARTS_MAX + 1)), (None, None));
    }
}
