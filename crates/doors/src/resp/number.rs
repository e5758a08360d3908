//! Numbers, as Redis reads and writes them.

use super::digits::digits;

/// Reads an integer as Redis does: no spaces, no `+`, and no zeros before other digits.
#[must_use]
pub fn integer_of(text: &[u8]) -> Option<i64> {
    let (digits, is_negative) = match text {
        [b'-', digits @ ..] => (digits, true),
        digits => (digits, false),
    };
    match digits {
        b"0" => return (!is_negative).then_some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    let mut number = 0i64;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // The smallest number has no positive counterpart, so negative numbers are built as such.
        let digit = i64::from(digit);
        number = number.checked_mul(10)?.checked_add(if is_negative { -digit } else { digit })?;
    }
    Some(number)
}

/// The zeros that may follow the digits of a number, and the digits that may follow a point, before
/// the number is written with an exponent.
const PLAIN: i32 = 7;

/// Whole numbers up to this size are written with all their digits.
const WHOLE_MAX: f64 = (i64::MAX / 2) as f64;

/// Returns a short text that is read as the same number, with the digits and in the form of Redis.
#[must_use]
pub fn double_text(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if number.abs() <= WHOLE_MAX && number.fract() == 0.0 {
        let is_negative_zero = number == 0.0 && number.is_sign_negative();
        return if is_negative_zero { "-0".to_owned() } else { (number as i64).to_string() };
    }
    let sign = if number.is_sign_negative() { "-" } else { "" };
    // The number is its digits times ten to the power of this.
    let (digits, power) = digits(number.abs());
    let count = digits.len() as i32;
    let exponent = power + count - 1;
    let digits: String = digits.iter().map(|digit| char::from(b'0' + digit)).collect();
    let text = if power >= 0 && exponent < count + PLAIN {
        digits + &"0".repeat(power.unsigned_abs() as usize)
    } else if power < 0 && (power > -PLAIN || exponent.abs() < 4) {
        match count + power {
            before @ 1.. => {
                let (before, behind) = digits.split_at(before as usize);
                format!("{before}.{behind}")
            }
            zeros => format!("0.{}{digits}", "0".repeat(zeros.unsigned_abs() as usize)),
        }
    } else {
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        let exponent_sign = if exponent < 0 { '-' } else { '+' };
        format!("{first}{point}{rest}e{exponent_sign}{}", exponent.unsigned_abs())
    };
    format!("{sign}{text}")
}
