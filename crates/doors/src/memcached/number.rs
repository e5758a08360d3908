//! Decimal numbers in requests.

/// Returns the digits of a number without the white space that memcached allows around them, and
/// whether it is negative.
fn digits(word: &[u8]) -> Option<(&[u8], bool)> {
    let word = word.trim_ascii();
    match word.split_first()? {
        (b'-', digits) => Some((digits, true)),
        (b'+', digits) => Some((digits, false)),
        _ => Some((word, false)),
    }
}

/// Reads a number that is not negative.
pub(super) fn u64_of(word: &[u8]) -> Option<u64> {
    let (digits, is_negative) = digits(word)?;
    if digits.is_empty() {
        return None;
    }
    let mut number = 0u64;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    (!is_negative || number == 0).then_some(number)
}

pub(super) fn u32_of(word: &[u8]) -> Option<u32> {
    u32::try_from(u64_of(word)?).ok()
}

pub(super) fn i32_of(word: &[u8]) -> Option<i32> {
    let (digits, is_negative) = digits(word)?;
    if digits.first().is_none_or(|first| !first.is_ascii_digit()) {
        return None;
    }
    let number = i64::try_from(u64_of(digits)?).ok()?;
    i32::try_from(if is_negative { -number } else { number }).ok()
}
