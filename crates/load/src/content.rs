//! Keys and values of the workloads. A value names its object, so that every read is a check.
//!
//! ```text
//!  key     0 number u64   8 'k' [22]
//!  value   0 stamp u64    8 seal u64   16 filler …   (end - 8) seal u64
//! ```
//!
//! The *stamp* is the version that the writer gave it. The *seal* is a checksum over the key's
//! number, the stamp and the length. It is at both ends, to detect a value of another key, of
//! another length, or mixed from two others. Values below 24 bytes repeat the seal (without a
//! stamp) as often as it fits.

use zerocopy::IntoBytes;

/// Bytes of a key, as in the papers' and the peers' measurements.
pub const KEY_BYTES: usize = 30;

/// Returns the key of an object.
#[inline]
#[must_use]
pub fn key(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [b'k'; KEY_BYTES];
    key[..8].copy_from_slice(&number.to_le_bytes());
    key
}

/// Values of at least this length have a stamp and two seals.
pub const STAMPED_BYTES: usize = 24;

/// The first number of the objects that are incremented; no other workload uses them.
pub const NUMBERS: u64 = 1 << 60;

#[inline]
fn seal(number: u64, stamp: u64, bytes: usize) -> u64 {
    let mixed = (number ^ stamp.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29 ^ bytes as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Fills in the value of an object in a buffer that held another value of the same length: writes
/// only the differences.
#[inline]
pub fn fill(value: &mut [u8], number: u64, stamp: u64) {
    let bytes = value.len();
    if bytes < STAMPED_BYTES {
        let seal = seal(number, 0, bytes).to_le_bytes();
        value.iter_mut().zip(seal.iter().cycle()).for_each(|(byte, from)| *byte = *from);
        return;
    }
    let seal = seal(number, stamp, bytes).to_le_bytes();
    value[..8].copy_from_slice(&stamp.to_le_bytes());
    value[8..16].copy_from_slice(&seal);
    value[bytes - 8..].copy_from_slice(&seal);
}

/// Whether a value was written for this object.
#[inline]
#[must_use]
pub fn is_right(value: &[u8], number: u64) -> bool {
    let bytes = value.len();
    if bytes < STAMPED_BYTES {
        let seal = seal(number, 0, bytes).to_le_bytes();
        return value.iter().zip(seal.iter().cycle()).all(|(byte, from)| byte == from);
    }
    let (Some((stamp, rest)), Some(last)) =
        (value.split_first_chunk::<8>(), value.last_chunk::<8>())
    else {
        return false;
    };
    let seal = seal(number, u64::from_le_bytes(*stamp), bytes);
    rest[..8] == *seal.as_bytes() && *last == *seal.as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_valid_only_for_its_key_and_length() {
        for bytes in [0, 1, 8, 23, 24, 25, 100, 4096] {
            let mut value = vec![7; bytes];
            fill(&mut value, 5, 9);
            assert!(is_right(&value, 5), "{bytes}");
            if bytes >= 8 {
                assert!(!is_right(&value, 6), "{bytes}");
                assert!(!is_right(&value[..bytes - 1], 5), "{bytes}");
            }
        }
        // The beginning of one version and the end of another.
        let (mut old, mut new) = (vec![7; 100], vec![7; 100]);
        fill(&mut old, 5, 1);
        fill(&mut new, 5, 2);
        old[..50].copy_from_slice(&new[..50]);
        assert!(!is_right(&old, 5));
    }
}
