//! Patterns of keys and channels.

/// Whether a text matches a pattern: `*` stands for any bytes, `?` for any byte, `[a-z]` for one of
/// some bytes, and `\` takes the meaning of the next byte. The time is bounded by the product of
/// both lengths.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    if text.is_empty() {
        // Redis looks only at a text that is not empty.
        return pattern.is_empty();
    }
    let (mut at, mut place) = (0, 0);
    // Behind the last star, and the first byte of the text that it does not stand for.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            star = Some((at, place));
            continue;
        }
        if place == text.len() && at == pattern.len() {
            return true;
        }
        let step = pattern.get(at..).zip(text.get(place)).and_then(|(rest, byte)| one(rest, *byte));
        match (step, star) {
            (Some(length), _) => (at, place) = (at + length, place + 1),
            (None, Some((behind, begin))) if begin < text.len() => {
                star = Some((behind, begin + 1));
                (at, place) = (behind, begin + 1);
            }
            (None, _) => return false,
        }
    }
}

/// Returns the length of the first part of a pattern if a byte matches it.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', rest @ ..] => class(rest, byte).map(|length| length + 1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [own, ..] => (*own == byte).then_some(1),
    }
}

/// Returns the length of a list of bytes, up to its bracket, if a byte is in it, or is not.
fn class(pattern: &[u8], byte: u8) -> Option<usize> {
    let is_inverted = pattern.first() == Some(&b'^');
    let mut at = usize::from(is_inverted);
    let mut is_in = false;
    loop {
        let rest = pattern.get(at..).unwrap_or_default();
        at += match rest {
            // A bracket that is missing is taken for one at the end.
            [] => break,
            [b'\\', escaped, ..] => {
                is_in |= *escaped == byte;
                2
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [one, b'-', other, ..] => {
                let (low, high) = (one.min(other), one.max(other));
                is_in |= (low..=high).contains(&&byte);
                3
            }
            [own, ..] => {
                is_in |= *own == byte;
                1
            }
        };
    }
    (is_in != is_inverted).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, wanted) in [
            ("*", "a", true),
            ("", "", true),
            ("**", "", false),
            ("a*c", "abbc", true),
            ("a*c", "abcb", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("h[ae]llo", "hello", true),
            ("h[^e]llo", "hello", false),
            ("h[c-a]llo", "hbllo", true),
            ("h[ab", "hb", true),
            ("[", "a", false),
            ("k[1-", "k1", true),
            ("k\\*", "k*", true),
            ("k\\*", "kk", false),
            ("k\\", "k\\", true),
            ("*a*b*c*", "xxaxxbxxcxx", true),
            ("*a*b*c", "xxaxxbxxcxx", false),
            ("a", "ab", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), wanted, "{pattern} {text}");
        }
        let (stars, text) = ("a*".repeat(1000), "a".repeat(10_000));
        assert!(!matches(format!("{stars}b").as_bytes(), text.as_bytes()), "without explosion");
    }
}
