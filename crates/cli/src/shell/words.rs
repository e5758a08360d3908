//! Splits a line into words: blanks separate words, quotes join them.
//!
//! Text between `'` and `'` is unchanged. Elsewhere a backslash begins an escape, as in [escaped
//! text](crate::text), so the output of `scan` can stand between `"` and `"`.

use crate::text::escaped_byte;

/// Returns the words of a line. A word that begins with `#` begins a comment.
pub(crate) fn split(line: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote: Option<u8> = None;
    let mut rest = line;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match (quote, byte) {
            (Some(open), byte) if byte == open => quote = None,
            (Some(b'\''), byte) => word.get_or_insert_default().push(byte),
            (_, b'\\') => {
                let (byte, behind) = escaped_byte(rest)?;
                word.get_or_insert_default().push(byte);
                rest = behind;
            }
            (Some(_), byte) => word.get_or_insert_default().push(byte),
            (None, b'\'' | b'"') => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            (None, b' ' | b'\t' | b'\r' | b'\n') => words.extend(word.take()),
            (None, b'#') if word.is_none() => break,
            (None, byte) => word.get_or_insert_default().push(byte),
        }
    }
    if let Some(open) = quote {
        return Err(format!("a quote is open: end it with {}", char::from(open)));
    }
    words.extend(word);
    Ok(words)
}

/// Returns a word in quotes if it needs them.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./:@+,=%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("\"{}\"", crate::text::escape(word.as_bytes()).replace('"', "\\\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::escape;
    use proptest::prelude::*;

    #[test]
    fn blanks_separate_and_quotes_join() {
        let cases: &[(&str, &[&[u8]])] = &[
            ("", &[]),
            ("  # nothing", &[]),
            ("get t  k\n", &[b"get", b"t", b"k"]),
            ("a#b #c", &[b"a#b"]),
            ("'a \\n' \"b\\x00\\\"\"", &[b"a \\n", b"b\x00\""]),
            ("a' 'b \\  ''", &[b"a b", b" ", b""]),
        ];
        for (line, expected) in cases {
            assert_eq!(split(line.as_bytes()).unwrap(), *expected, "{line}");
        }
        for line in ["'a", "\"a", "\\", "a\\q"] {
            assert!(split(line.as_bytes()).is_err(), "{line}");
        }
    }

    proptest! {
        #[test]
        fn escaped_text_in_quotes_is_one_word(bytes: Vec<u8>) {
            let line = format!("put t \"{}\"", escape(&bytes).replace('"', "\\\""));
            prop_assert_eq!(split(line.as_bytes()).unwrap().pop().unwrap(), bytes);
        }

        #[test]
        fn a_quoted_word_reads_back(word: String) {
            prop_assert_eq!(split(quoted(&word).as_bytes()).unwrap(), [word.into_bytes()]);
        }
    }
}
