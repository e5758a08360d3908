//! The scores of sorted sets, and ranges of them, as Redis reads them.

use super::stop::{self, Stop};

/// Reads a score. Redis refuses a finite number that would become infinite, and another number
/// that would become 0.
pub(super) fn score_of(text: &[u8]) -> Option<f64> {
    let number = number_of(text)?;
    let digits = str::from_utf8(text).ok()?.trim_start_matches(['+', '-']);
    let is_word = digits.starts_with(['i', 'I']);
    let is_lost = (number.is_infinite() && !is_word) || (number == 0.0 && !is_zero(digits));
    (!number.is_nan() && !is_lost).then_some(number)
}

/// Reads a number with a point, or in hexadecimal digits.
pub(super) fn number_of(text: &[u8]) -> Option<f64> {
    let text = str::from_utf8(text).ok()?;
    match hexadecimal(text) {
        Some(number) => number,
        None => text.parse::<f64>().ok(),
    }
}

/// Reads a score, or refuses it.
pub(super) fn score(text: &[u8]) -> Result<f64, Stop> {
    score_of(text).ok_or(stop::NOT_A_FLOAT)
}

/// Whether all digits before an exponent are zeros.
fn is_zero(digits: &str) -> bool {
    let (digits, exponent) = match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        Some(digits) => (digits, ['p', 'P']),
        None => (digits, ['e', 'E']),
    };
    let end = digits.find(exponent).unwrap_or(digits.len());
    digits[..end].chars().all(|digit| matches!(digit, '0' | '.'))
}

/// The most digits of a hexadecimal number that are read. More have no effect on a double.
const HEXADECIMAL_DIGITS_MAX: i32 = 30;

/// Reads a hexadecimal number such as `0x1.8p3`; `None` if the text does not begin like one.
fn hexadecimal(text: &str) -> Option<Option<f64>> {
    let (is_negative, text) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let text = text.strip_prefix("0x").or(text.strip_prefix("0X"))?;
    let (digits, exponent) = match text.split_once(['p', 'P']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()),
        None => (text, Some(0)),
    };
    let Some(mut exponent) = exponent else { return Some(None) };
    let (mut fraction, mut count, mut has_point, mut has_digit) = (0u128, 0, false, false);
    for digit in digits.chars() {
        match digit.to_digit(16) {
            Some(digit) => {
                has_digit = true;
                if count < HEXADECIMAL_DIGITS_MAX {
                    fraction = fraction << 4 | u128::from(digit);
                    count += i32::from(fraction > 0);
                    exponent = exponent.saturating_sub(if has_point { 4 } else { 0 });
                } else {
                    exponent = exponent.saturating_add(if has_point { 0 } else { 4 });
                }
            }
            None if digit == '.' && !has_point => has_point = true,
            None => return Some(None),
        }
    }
    if !has_digit {
        return Some(None);
    }
    let mut number = fraction as f64;
    while exponent > 0 && number.is_finite() && number != 0.0 {
        let step = exponent.min(1000);
        number *= 2f64.powi(step);
        exponent -= step;
    }
    while exponent < 0 && number != 0.0 {
        let step = exponent.max(-1000);
        number *= 2f64.powi(step);
        exponent -= step;
    }
    Some(Some(if is_negative { -number } else { number }))
}

/// A place between two members of a sorted set.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cut {
    /// Before all members.
    Begin,
    /// Behind all members.
    End,
    /// Before the members with this score, or with a higher one.
    Score(f64),
    /// Before a member, or a greater one. Mostly all members have the same score.
    Member(Vec<u8>),
}

/// The members between two cuts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cuts {
    pub(super) begin: Cut,
    pub(super) end: Cut,
}

impl Cuts {
    /// Reads a range of scores.
    pub(super) fn of_scores(min: &[u8], max: &[u8]) -> Result<Cuts, Stop> {
        Ok(Cuts { begin: score_cut(min, false)?, end: score_cut(max, true)? })
    }

    /// Reads a range of members.
    pub(super) fn of_members(min: &[u8], max: &[u8]) -> Result<Cuts, Stop> {
        Ok(Cuts { begin: member_cut(min, false)?, end: member_cut(max, true)? })
    }
}

/// Reads the least or the greatest score of a range.
fn score_cut(text: &[u8], is_max: bool) -> Result<Cut, Stop> {
    // Redis reads the text up to its end in C.
    let text = &text[..memchr::memchr(0, text).unwrap_or(text.len())];
    let (is_open, text) = match text {
        [b'(', text @ ..] => (true, text),
        text => (false, text),
    };
    let number = match text {
        b"" => Some(0.0),
        text => str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok()),
    };
    let number = number.filter(|number| !number.is_nan());
    let score = number.ok_or(Stop::error("ERR min or max is not a float"))? + 0.0;
    Ok(match is_open == is_max {
        true => Cut::Score(score),
        false if score == f64::INFINITY => Cut::End,
        false => Cut::Score(score.next_up() + 0.0),
    })
}

/// Reads the least or the greatest member of a range.
fn member_cut(text: &[u8], is_max: bool) -> Result<Cut, Stop> {
    match text {
        b"-" => Ok(Cut::Begin),
        b"+" => Ok(Cut::End),
        [mark @ (b'[' | b'('), member @ ..] => {
            let mut member = member.to_vec();
            if (*mark == b'(') != is_max {
                // This is the next string.
                member.push(0);
            }
            Ok(Cut::Member(member))
        }
        _ => Err(Stop::error("ERR min or max not valid string range item")),
    }
}
