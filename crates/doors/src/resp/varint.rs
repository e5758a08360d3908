//! Numbers of variable length: seven bits a byte, the lowest first.

/// Appends a number.
pub(super) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Writes a number over some bytes; returns the place behind it. There must be room.
#[inline]
pub(super) fn write_at(bytes: &mut [u8], mut at: usize, mut number: u64) -> usize {
    while number >= 0x80 {
        bytes[at] = number as u8 | 0x80;
        number >>= 7;
        at += 1;
    }
    bytes[at] = number as u8;
    at + 1
}

/// Takes a number from the begin of some bytes; `None` if there is none.
#[inline]
pub(super) fn take(bytes: &mut &[u8]) -> Option<u64> {
    // Nearly all are short.
    if let Some((&byte, rest)) = bytes.split_first()
        && byte < 0x80
    {
        *bytes = rest;
        return Some(u64::from(byte));
    }
    take_long(bytes)
}

fn take_long(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for place in 0..10 {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            // The tenth byte has one bit.
            return (place < 9 || *byte <= 1).then_some(number);
        }
    }
    None
}

/// Returns the bytes that a number takes.
#[inline]
pub(super) fn length(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_written() {
        for shift in 0..64 {
            for number in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                put(&mut bytes, number);
                assert_eq!(bytes.len(), length(number));
                let mut again = vec![0xff; bytes.len()];
                assert_eq!(write_at(&mut again, 0, number), bytes.len());
                assert_eq!(again, bytes);
                let mut rest = &*bytes;
                assert_eq!(take(&mut rest), Some(number));
                assert_eq!(rest, b"");
                assert_eq!(take(&mut &bytes[..bytes.len() - 1]), None);
            }
        }
        assert_eq!(take(&mut &[0xff; 10][..]), None);
        assert_eq!(take(&mut &[0x80; 20][..]), None);
    }
}
