//! Answers of memcached: where each ends, and the parts that are left to the server.

use std::collections::HashMap;

/// Returns the bytes of the first part of an answer: a line, with the value that it announces.
pub(super) fn length(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|two| two == b"\r\n")?;
    let words: Vec<&[u8]> = bytes[..line].split(|byte| *byte == b' ').collect();
    let said = match words[..] {
        [b"VALUE", _, _, length, ..] | [b"VA", length, ..] => number(length),
        _ => return Some(line + 2),
    };
    let Some(said) = said.and_then(|said| usize::try_from(said).ok()) else {
        return Some(line + 2);
    };
    let end = said.checked_add(line + 4)?;
    (bytes.len() >= end).then_some(end)
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The versions of objects that a server has shown.
#[derive(Debug, Default)]
pub(super) struct Versions {
    places: HashMap<u64, usize>,
    /// The version of the last object that was shown.
    pub(super) last: Option<u64>,
}

impl Versions {
    /// Returns the place of a version among all, by the order in which they were shown.
    fn place(&mut self, version: u64) -> usize {
        self.last = Some(version);
        let next = self.places.len();
        *self.places.entry(version).or_insert(next)
    }
}

/// An answer without the parts that are left to the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Normal {
    bytes: Vec<u8>,
    /// Times, in seconds. They may differ by one.
    times: Vec<i64>,
}

impl Normal {
    pub(super) fn agrees(&self, other: &Normal) -> bool {
        let near = |(one, other): (&i64, &i64)| match (*one < 0, *other < 0) {
            (false, false) => one.abs_diff(*other) <= 1,
            _ => one == other,
        };
        self.bytes == other.bytes
            && self.times.len() == other.times.len()
            && self.times.iter().zip(&other.times).all(near)
    }
}

/// Replaces versions by their order, and takes out times.
pub(super) fn normal(part: &[u8], versions: &mut Versions) -> Normal {
    let mut times = Vec::new();
    let end = part.windows(2).position(|two| two == b"\r\n").unwrap_or(part.len());
    let words: Vec<&[u8]> = part[..end].split(|byte| *byte == b' ').collect();
    let mut bytes = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let flag = |letter: u8| word.strip_prefix(&[letter]).and_then(number);
        let is_meta = matches!(words[0], b"VA" | b"HD" | b"EN" | b"NS" | b"NF" | b"EX");
        let version = match words[0] {
            b"VALUE" if at == 4 => number(word),
            _ if is_meta && at > 0 => flag(b'c'),
            _ => None,
        };
        let time = if is_meta && at > 0 { flag(b't').or_else(|| flag(b'l')) } else { None };
        // It describes the inside of the server.
        if words[0] == b"ME" && at > 1 {
            break;
        }
        if at > 0 {
            bytes.push(b' ');
        }
        if let Some(version) = version {
            bytes.extend_from_slice(format!("#{}", versions.place(version)).as_bytes());
        } else if let Some(time) = time {
            bytes.extend_from_slice(&[word[0], b'#']);
            times.push(i64::try_from(time).unwrap_or(i64::MAX));
        } else {
            bytes.extend_from_slice(word);
        }
    }
    bytes.extend_from_slice(&part[end..]);
    Normal { bytes, times }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_found_whole_or_not_at_all_wherever_it_is_cut() {
        for whole in [
            &b"STORED\r\n"[..],
            b"VALUE a 0 4\r\n\r\n\r\n\r\n",
            b"VALUE a 0 1 77\r\nx\r\n",
            b"VA 3 c5 Oxyz\r\nEN\r\r\n",
            b"HD c7\r\n",
            b"\r\n",
        ] {
            for end in 0..whole.len() {
                assert_eq!(length(&whole[..end]), None, "{:?}", whole.escape_ascii());
            }
            assert_eq!(length(&[whole, b"END\r\n"].concat()), Some(whole.len()));
        }
        // No length sizes memory or overflows.
        assert_eq!(length(b"VA 18446744073709551615\r\nx\r\n"), None);
    }

    #[test]
    fn versions_are_compared_by_their_order() {
        let texts = |parts: &[&str]| {
            let mut versions = Versions::default();
            parts
                .iter()
                .map(|part| normal(part.as_bytes(), &mut versions).bytes)
                .collect::<Vec<_>>()
        };
        let one = texts(&["VALUE a 0 1 77\r\nx\r\n", "HD c80\r\n", "HD c77 Oc80\r\n"]);
        assert_eq!(one, texts(&["VALUE a 0 1 5\r\nx\r\n", "HD c6\r\n", "HD c5 Oc80\r\n"]));
        assert_ne!(one, texts(&["VALUE a 0 1 5\r\nx\r\n", "HD c6\r\n", "HD c6 Oc80\r\n"]));
    }

    #[test]
    fn times_agree_within_a_second() {
        let agree = |one: &str, other: &str| {
            let part = |text: &str| normal(text.as_bytes(), &mut Versions::default());
            part(one).agrees(&part(other))
        };
        assert!(agree("HD t100 s5\r\n", "HD t99 s5\r\n"));
        assert!(!agree("HD t100 s5\r\n", "HD t98 s5\r\n"));
        assert!(!agree("HD t-1\r\n", "HD t0\r\n"));
        assert!(!agree("HD s5\r\n", "HD s4\r\n"));
        assert!(agree("ME a exp=5 size=3\r\n", "ME a la=1\r\n"));
        assert!(!agree("ME a exp=5\r\n", "ME b exp=5\r\n"));
    }
}
