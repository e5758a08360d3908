//! Quantities with their units as text: `8GiB`, `100ms`.

use std::time::Duration;

/// Largest first, so that printing finds the largest unit that is exact.
const BYTES: &[(&str, u64)] = &[
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

const TIMES: &[(&str, u64)] = &[
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Parses a number of bytes: `8GiB`, `1.5MiB`, `4096B`.
///
/// # Errors
/// A description of the problem, for people.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    parse(text, BYTES, "8GiB, 512MiB or 4096B")
}

/// Parses a length of time: `100ms`, `1.5s`, `5m`.
///
/// # Errors
/// A description of the problem, for people.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    parse(text, TIMES, "100ms, 10s or 5m").map(Duration::from_nanos)
}

/// Formats bytes in the largest unit that is exact. [`parse_bytes`] reads the result.
#[must_use]
pub fn bytes_text(bytes: u64) -> String {
    text(bytes, BYTES, "B")
}

/// Formats a length of time in the largest unit that is exact. [`parse_duration`] reads the result.
#[must_use]
pub fn duration_text(time: Duration) -> String {
    text(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), TIMES, "s")
}

fn text(amount: u64, units: &[(&str, u64)], of_zero: &str) -> String {
    let exact = units.iter().find(|(_, size)| amount != 0 && amount.is_multiple_of(*size));
    match exact {
        Some((unit, size)) => format!("{}{unit}", amount / size),
        None => format!("0{of_zero}"),
    }
}

fn parse(text: &str, units: &[(&str, u64)], examples: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim();
    if number.is_empty() {
        return Err(format!("it must be a number with a unit, such as {examples}"));
    }
    if unit.is_empty() {
        return Err(format!("add a unit, as in {examples}"));
    }
    let Some((_, size)) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) else {
        let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
        return Err(format!("{unit:?} is not a unit; use one of: {}", names.join(", ")));
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let too_much = || "it is too large".to_owned();
    let malformed = || format!("{number:?} is not a number");
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(malformed());
    }
    let whole: u64 = match whole {
        "" => 0,
        digits => digits.parse().map_err(|_| too_much())?,
    };
    let part = match fraction {
        "" => 0,
        digits if digits.len() > 18 => return Err(malformed()),
        digits => {
            let numerator: u128 = digits.parse().map_err(|_| malformed())?;
            let scale = 10_u128.pow(u32::try_from(digits.len()).unwrap_or(18));
            let part = numerator * u128::from(*size);
            if !part.is_multiple_of(scale) {
                return Err(format!("{number}{unit} is not a whole number of the smallest unit"));
            }
            u64::try_from(part / scale).map_err(|_| too_much())?
        }
    };
    whole.checked_mul(*size).and_then(|it| it.checked_add(part)).ok_or_else(too_much)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_units() {
        let cases = [
            ("8GiB", Ok(8 << 30)),
            ("1.5 KiB", Ok(1536)),
            ("2gb", Ok(2_000_000_000)),
            ("0B", Ok(0)),
            (".5KB", Ok(500)),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_bytes(text), expected, "{text}");
        }
        for text in ["", "8", "GiB", "8 parsecs", "1.2.3KiB", ".KiB", "99999999999TiB", "0.3B"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        assert_eq!(parse_duration("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert!(parse_duration("5").unwrap_err().contains("unit"));
        assert!(parse_duration("-5s").is_err());
    }

    #[test]
    fn quantities_are_printed_in_the_largest_exact_unit() {
        let cases = [(0, "0B"), (8 << 30, "8GiB"), (1536, "1536B"), (3 << 10, "3KiB")];
        for (bytes, text) in cases {
            assert_eq!(bytes_text(bytes), text);
        }
        assert_eq!(duration_text(Duration::from_secs(90)), "90s");
        assert_eq!(duration_text(Duration::from_secs(300)), "5m");
        assert_eq!(duration_text(Duration::ZERO), "0s");
    }
}
