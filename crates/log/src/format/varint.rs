//! Variable-length integers: seven bits a byte, least significant first; the top bit of a byte says
//! that another byte follows. At most ten bytes; longer or overflowing forms are refused.

/// Bytes that a value takes.
#[inline]
pub(crate) fn length(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    // Exact for 1 to 64 bits: a ninth is a hair less than a seventh of 9/7.
    (bits * 9 + 64) / 64
}

/// Writes a value to the front of `bytes`, which is long enough, and returns its length.
#[inline]
pub(crate) fn write(bytes: &mut [u8], mut value: u64) -> usize {
    let mut at = 0;
    while value >= 0x80 {
        bytes[at] = value as u8 | 0x80;
        value >>= 7;
        at += 1;
    }
    bytes[at] = value as u8;
    at + 1
}

/// The bytes of a value below 2^14 as a number, the first byte lowest, and how many bits they have
/// beyond eight. No comparison is used that a processor would have to predict.
#[inline(always)]
pub(crate) fn of_two_bytes(value: u64) -> (u64, u32) {
    debug_assert!(value < 0x4000);
    let is_long = u64::from(value >= 0x80);
    let code = value & 0x7f | is_long << 7 | (value << 1) & 0x7f00;
    (code, is_long as u32 * 8)
}

/// Folds the sign into the lowest bit, so that small differences of either sign stay small.
#[inline]
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Undoes [`zigzag`].
#[inline]
pub(crate) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Reads fields one after another from bytes that may end at any point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    /// The number of bytes read so far.
    #[inline]
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// The bytes that are not read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let first = *self.bytes.get(self.at)?;
        self.at += 1;
        if first < 0x80 {
            return Some(u64::from(first));
        }
        self.longer(u64::from(first & 0x7f))
    }

    #[inline]
    fn longer(&mut self, mut value: u64) -> Option<u64> {
        let mut shift = 7;
        loop {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            if shift == 63 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
            shift += 7;
            if shift > 63 {
                return None;
            }
        }
    }

    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_exact_and_reads_back() {
        for bits in 0..64 {
            for value in [1u64 << bits, (1u64 << bits) - 1, (1u64 << bits) + 1, u64::MAX] {
                let mut bytes = [0; 10];
                let written = write(&mut bytes, value);
                assert_eq!(written, length(value), "{value}");
                let mut reader = Reader::new(&bytes[..written]);
                assert_eq!(reader.varint(), Some(value));
                assert!(reader.is_empty());
                assert_eq!(Reader::new(&bytes[..written - 1]).varint(), None);
            }
        }
    }

    #[test]
    fn two_bytes_are_as_any_others() {
        for value in 0..0x4000u64 {
            let mut bytes = [0; 10];
            let written = write(&mut bytes, value);
            let (code, more) = of_two_bytes(value);
            assert_eq!(written, 1 + more as usize / 8);
            assert_eq!(code, u64::from(bytes[0]) | u64::from(bytes[1]) << 8, "{value}");
        }
    }

    #[test]
    fn zigzag_keeps_small_differences_small() {
        for (value, code) in [(0, 0), (-1, 1), (1, 2), (-2, 3), (i64::MIN, u64::MAX)] {
            assert_eq!(zigzag(value), code);
            assert_eq!(unzigzag(code), value);
        }
    }

    #[test]
    fn a_number_of_more_than_64_bits_is_refused() {
        assert_eq!(Reader::new(&[0xff; 11]).varint(), None);
        let mut two_to_the_64 = [0x80u8; 10];
        two_to_the_64[9] = 2;
        assert_eq!(Reader::new(&two_to_the_64).varint(), None);
    }
}
