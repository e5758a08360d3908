//! Commands that a person types: words with quotes, on one line.

use std::ops::Range;

/// Splits a line into words, which are appended to `text` without their quotes. Returns `None` if
/// the quotes do not match.
pub(super) fn split(line: &[u8], text: &mut Vec<u8>, words: &mut Vec<Range<usize>>) -> Option<()> {
    // Redis sees a text that ends with a zero byte.
    let end = memchr::memchr(0, line).unwrap_or(line.len());
    let mut rest = &line[..end];
    loop {
        rest = rest.trim_ascii_start_of_c();
        if rest.is_empty() {
            return Some(());
        }
        let begin = text.len();
        rest = word(rest, text)?;
        words.push(begin..text.len());
    }
}

/// Takes a word from the beginning of a line; returns the rest.
fn word<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [b'"', inner @ ..] => return quoted(inner, text),
            [b'\'', inner @ ..] => return single_quoted(inner, text),
            [] => return Some(rest),
            [b' ' | b'\n' | b'\r' | b'\t', ..] => return Some(rest),
            [byte, behind @ ..] => {
                text.push(*byte);
                behind
            }
        };
    }
}

/// A closing quote ends the word: a space must follow.
fn closed(rest: &[u8]) -> Option<&[u8]> {
    rest.first().is_none_or(|byte| is_space(*byte)).then_some(rest)
}

fn quoted<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [b'"', behind @ ..] => return closed(behind),
            [b'\\', b'x', high, low, behind @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                text.push(hex(*high) << 4 | hex(*low));
                behind
            }
            [b'\\', letter, behind @ ..] => {
                text.push(match letter {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                behind
            }
            [byte, behind @ ..] => {
                text.push(*byte);
                behind
            }
            [] => return None,
        };
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [b'\\', b'\'', behind @ ..] => {
                text.push(b'\'');
                behind
            }
            [b'\'', behind @ ..] => return closed(behind),
            [byte, behind @ ..] => {
                text.push(*byte);
                behind
            }
            [] => return None,
        };
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        digit => digit.to_ascii_lowercase() - b'a' + 10,
    }
}

/// Whether C counts a byte as white space.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

trait TrimStart {
    fn trim_ascii_start_of_c(&self) -> &Self;
}

impl TrimStart for [u8] {
    fn trim_ascii_start_of_c(&self) -> &[u8] {
        let begin = self.iter().position(|byte| !is_space(*byte)).unwrap_or(self.len());
        &self[begin..]
    }
}
