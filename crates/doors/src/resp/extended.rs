//! Numbers with a fraction of 64 bits, as `INCRBYFLOAT` adds them.
//!
//! Redis computes with the `long double` of x86: a fraction of 64 bits, and an exponent of 15. Its
//! replies show 17 digits behind the point, so another precision would show other digits. Numbers
//! below the smallest one with a full fraction are kept exactly here; the replies do not show it.

use std::cmp::Ordering;

/// The longest text of a number.
const TEXT_BYTES_MAX: usize = 5 * 1024;

/// The exponents of two that numbers have, for a fraction that is read as an integer.
const EXPONENT_MAX: i64 = 16_383 - 63;
const EXPONENT_MIN: i64 = -16_445 - 63;

/// The digits behind the point of a text, as a power of ten.
const DIGITS: usize = 17;
const SCALE: u128 = 100_000_000_000_000_000;

/// A number: a fraction times a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extended {
    is_negative: bool,
    /// It has its highest bit, unless the number is 0.
    fraction: u64,
    exponent: i64,
    is_infinite: bool,
}

/// A natural number of any size: its digits of 32 bits, the lowest first, without zeros at the end.
#[derive(Clone, Debug, Default)]
struct Natural(Vec<u32>);

impl Natural {
    fn times_plus(&mut self, factor: u32, more: u32) {
        let mut carry = u64::from(more);
        for digit in &mut self.0 {
            carry += u64::from(*digit) * u64::from(factor);
            *digit = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    fn times_ten_to(&mut self, power: u64) {
        for _ in 0..power / 9 {
            self.times_plus(1_000_000_000, 0);
        }
        for _ in 0..power % 9 {
            self.times_plus(10, 0);
        }
    }

    fn bits(&self) -> u64 {
        let last = self.0.last().map_or(0, |digit| 32 - u64::from(digit.leading_zeros()));
        (self.0.len() as u64).saturating_sub(1) * 32 + last
    }

    fn has_bit(&self, bit: u64) -> bool {
        self.0.get((bit / 32) as usize).is_some_and(|digit| digit >> (bit % 32) & 1 == 1)
    }

    fn shifted_left(&self, bits: u64) -> Natural {
        let mut digits = vec![0; (bits / 32) as usize];
        let mut carry = 0;
        for digit in &self.0 {
            carry |= u64::from(*digit) << (bits % 32);
            digits.push(carry as u32);
            carry >>= 32;
        }
        digits.push(carry as u32);
        Natural(digits).trimmed()
    }

    fn trimmed(mut self) -> Natural {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        self
    }

    fn order(&self, other: &Natural) -> Ordering {
        let by_length = self.0.len().cmp(&other.0.len());
        by_length.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }

    fn minus(&mut self, other: &Natural) {
        let mut borrow = 0;
        for (index, digit) in self.0.iter_mut().enumerate() {
            let less = i64::from(other.0.get(index).copied().unwrap_or(0)) + borrow;
            let rest = i64::from(*digit) - less;
            *digit = rest as u32;
            borrow = i64::from(rest < 0);
        }
        *self = std::mem::take(self).trimmed();
    }

    /// Divides by a small number; returns the rest.
    fn divide(&mut self, divisor: u32) -> u32 {
        let mut rest = 0u64;
        for digit in self.0.iter_mut().rev() {
            rest = rest << 32 | u64::from(*digit);
            *digit = (rest / u64::from(divisor)) as u32;
            rest %= u64::from(divisor);
        }
        *self = std::mem::take(self).trimmed();
        rest as u32
    }

    fn text(mut self) -> String {
        let mut groups = Vec::new();
        while !self.0.is_empty() {
            groups.push(self.divide(1_000_000_000));
        }
        let Some(first) = groups.pop() else { return "0".to_owned() };
        let rest = groups.iter().rev().map(|group| format!("{group:09}"));
        first.to_string() + &rest.collect::<String>()
    }
}

impl Extended {
    pub(super) const ZERO: Extended =
        Extended { is_negative: false, fraction: 0, exponent: 0, is_infinite: false };

    /// Reads a number as Redis does: decimal or hexadecimal digits, `inf`, without spaces.
    pub(super) fn of(text: &[u8]) -> Option<Extended> {
        if text.len() >= TEXT_BYTES_MAX {
            return None;
        }
        let (is_negative, text) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            text => (false, text),
        };
        if text.eq_ignore_ascii_case(b"inf") || text.eq_ignore_ascii_case(b"infinity") {
            return Some(Extended { is_negative, is_infinite: true, ..Extended::ZERO });
        }
        let (text, is_hexadecimal) = match text {
            [b'0', b'x' | b'X', rest @ ..] => (rest, true),
            text => (text, false),
        };
        let (radix, mark) = if is_hexadecimal { (16, b'p') } else { (10, b'e') };
        let end = text.iter().position(|byte| byte.eq_ignore_ascii_case(&mark));
        let (digits, exponent) = match end {
            Some(end) => (&text[..end], exponent_of(&text[end + 1..])?),
            None => (text, 0),
        };
        let (mut number, mut behind, mut count, mut has_point) = (Natural::default(), 0, 0, false);
        for byte in digits {
            match char::from(*byte).to_digit(radix) {
                Some(digit) => {
                    number.times_plus(radix, digit);
                    behind += i64::from(has_point);
                    count += 1;
                }
                None if *byte == b'.' && !has_point => has_point = true,
                None => return None,
            }
        }
        if count == 0 {
            return None;
        }
        if number.0.is_empty() {
            return Some(Extended { is_negative, ..Extended::ZERO });
        }
        let rounded = match is_hexadecimal {
            true => Extended::rounded(&number, false, exponent - 4 * behind),
            false => Extended::of_decimal(number, exponent - behind),
        };
        rounded.map(|rounded| Extended { is_negative, ..rounded })
    }

    /// Returns a number times a power of ten.
    fn of_decimal(mut number: Natural, power: i64) -> Option<Extended> {
        // Outside of these powers the number is too large, or as good as 0.
        if power.abs() > 3 * TEXT_BYTES_MAX as i64 {
            return None;
        }
        if power >= 0 {
            number.times_ten_to(power.unsigned_abs());
            return Extended::rounded(&number, false, 0);
        }
        let mut divisor = Natural(vec![1]);
        divisor.times_ten_to(power.unsigned_abs());
        // The quotient gets 66 bits or 67: those of the fraction, and enough to round.
        let shift = 66 + divisor.bits() as i64 - number.bits() as i64;
        let mut rest = number;
        if shift > 0 {
            rest = rest.shifted_left(shift.unsigned_abs());
        } else {
            divisor = divisor.shifted_left(shift.unsigned_abs());
        }
        let mut quotient = 0u128;
        for bit in (0..=66).rev() {
            let part = divisor.shifted_left(bit);
            if rest.order(&part) != Ordering::Less {
                rest.minus(&part);
                quotient |= 1 << bit;
            }
        }
        let quotient = Natural((0..4).map(|digit| (quotient >> (32 * digit)) as u32).collect());
        Extended::rounded(&quotient.trimmed(), !rest.0.is_empty(), -shift)
    }

    /// Returns the nearest number to a natural one, with or without a rest below it, times a power
    /// of two; `None` if it is too large or too small.
    fn rounded(number: &Natural, has_rest: bool, exponent: i64) -> Option<Extended> {
        let bits = number.bits() as i64;
        let dropped = bits - 64;
        let mut fraction = 0u64;
        for bit in (bits - 64..bits).rev() {
            fraction = fraction << 1 | u64::from(bit >= 0 && number.has_bit(bit.unsigned_abs()));
        }
        let mut exponent = exponent.checked_add(dropped)?;
        if dropped > 0 && number.has_bit(dropped.unsigned_abs() - 1) {
            let lower = (0..dropped.unsigned_abs() - 1).any(|bit| number.has_bit(bit));
            if lower || has_rest || fraction & 1 == 1 {
                let (next, overflows) = fraction.overflowing_add(1);
                fraction = if overflows { 1 << 63 } else { next };
                exponent += i64::from(overflows);
            }
        }
        let is_in_range = (EXPONENT_MIN..=EXPONENT_MAX).contains(&exponent);
        is_in_range.then_some(Extended { fraction, exponent, ..Extended::ZERO })
    }

    pub(super) fn is_infinite(self) -> bool {
        self.is_infinite
    }

    /// Returns the sum; `None` if it is infinite, or no number.
    pub(super) fn plus(self, other: Extended) -> Option<Extended> {
        if self.is_infinite || other.is_infinite {
            return None;
        }
        if self.fraction == 0 || other.fraction == 0 {
            let is_negative = self.is_negative && other.is_negative;
            let sum = if self.fraction == 0 { other } else { self };
            return Some(match sum.fraction {
                0 => Extended { is_negative, ..Extended::ZERO },
                _ => sum,
            });
        }
        let size = |it: &Extended| (it.exponent, it.fraction);
        let (large, small) =
            if size(&self) >= size(&other) { (self, other) } else { (other, self) };
        // The larger one has 62 bits behind it: enough, with a mark for bits that are lost.
        let distance = (large.exponent - small.exponent).unsigned_abs();
        let wide = u128::from(large.fraction) << 62;
        let small_wide = u128::from(small.fraction) << 62;
        let (shifted, is_lost) = match u32::try_from(distance).ok().filter(|it| *it < 128) {
            Some(shift) => (small_wide >> shift, small_wide >> shift << shift != small_wide),
            None => (0, true),
        };
        let sum = match large.is_negative == small.is_negative {
            true => wide + shifted,
            false => wide - shifted - u128::from(is_lost),
        };
        if sum == 0 {
            return Some(Extended::ZERO);
        }
        let digits = (0..4).map(|digit| (sum >> (32 * digit)) as u32).collect();
        let sum = Extended::rounded(&Natural(digits).trimmed(), is_lost, large.exponent - 62)?;
        Some(Extended { is_negative: large.is_negative, ..sum })
    }

    /// Returns the number with up to 17 digits behind the point; `None` if it is infinite.
    pub(super) fn text(self) -> Option<String> {
        if self.is_infinite {
            return None;
        }
        let shift = self.exponent.unsigned_abs();
        let (whole, behind) = if self.exponent >= 0 {
            let digits = vec![self.fraction as u32, (self.fraction >> 32) as u32];
            (Natural(digits).trimmed().shifted_left(shift).text(), 0)
        } else if shift > 125 {
            ("0".to_owned(), 0)
        } else {
            let wide = u128::from(self.fraction);
            let (whole, rest) = (wide >> shift, wide & ((1 << shift) - 1));
            let scaled = rest * SCALE;
            let (mut behind, lost) = (scaled >> shift, scaled & ((1 << shift) - 1));
            let half = 1 << (shift - 1);
            behind += u128::from(lost > half || lost == half && behind & 1 == 1);
            ((whole + behind / SCALE).to_string(), behind % SCALE)
        };
        let text = format!("{whole}.{behind:0DIGITS$}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        let sign = if self.is_negative && text != "0" { "-" } else { "" };
        Some(format!("{sign}{text}"))
    }
}

/// Reads an exponent.
fn exponent_of(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        text => (false, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |number: i64, digit: &u8| (number * 10 + i64::from(digit - b'0')).min(1 << 40);
    let number = digits.iter().fold(0, add);
    Some(if is_negative { -number } else { number })
}
