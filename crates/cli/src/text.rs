//! Bytes as text: keys and values are bytes, people and JSON need characters.
//!
//! *Escaped* text is UTF-8. In it a backslash, and each byte that is not part of a visible
//! character, is `\\`, `\n`, `\r`, `\t`, or `\xNN` for one byte. It denotes the bytes exactly, in
//! one line, and is harmless on a terminal.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use std::fmt::Write;
use std::io;

/// Returns bytes as escaped text.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                hidden if is_hidden(hidden) => {
                    let mut buffer = [0; 4];
                    hex_escapes(hidden.encode_utf8(&mut buffer).as_bytes(), &mut text);
                }
                shown => text.push(shown),
            }
        }
        hex_escapes(chunk.invalid(), &mut text);
    }
    text
}

fn hex_escapes(bytes: &[u8], text: &mut String) {
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(text, "\\x{byte:02x}");
    }
}

/// Whether a terminal hides the character or reorders the line because of it.
fn is_hidden(character: char) -> bool {
    character.is_control() || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns the bytes of escaped text.
pub(crate) fn unescape(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let (byte, behind) = escaped_byte(rest)?;
        bytes.push(byte);
        rest = behind;
    }
    Ok(bytes)
}

/// Returns the byte that the text after a backslash denotes, and the rest of the text.
pub(crate) fn escaped_byte(text: &[u8]) -> Result<(u8, &[u8]), String> {
    let (&letter, rest) = text.split_first().ok_or("the text ends with a backslash; write \\\\")?;
    let byte = match letter {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'0' => 0,
        b'\\' | b'"' | b'\'' | b' ' | b'#' => letter,
        b'x' => {
            let digits = rest.get(..2).and_then(|digits| str::from_utf8(digits).ok());
            let byte = digits
                .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
                .and_then(|digits| u8::from_str_radix(digits, 16).ok());
            let byte = byte.ok_or("\\x needs two hexadecimal digits")?;
            return Ok((byte, rest.get(2..).unwrap_or_default()));
        }
        other => {
            let other = char::from(other);
            return Err(format!(
                "\\{other} is not an escape; use one of \\\\ \\n \\r \\t \\0 \\xNN"
            ));
        }
    };
    Ok((byte, rest))
}

/// Returns hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Returns bytes as people read them: text unchanged, anything else escaped.
pub(crate) fn shown(bytes: &[u8]) -> String {
    match str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(|it| is_hidden(it) && it != '\n' && it != '\t') => {
            text.to_owned()
        }
        _ => escape(bytes),
    }
}

/// Puts bytes into a JSON object: under a name if they are text, otherwise in base64 under the name
/// with `_base64`.
pub(crate) fn put_json(object: &mut serde_json::Map<String, Value>, name: &str, bytes: &[u8]) {
    match str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(_) => object.insert(format!("{name}_base64"), BASE64_STANDARD.encode(bytes).into()),
    };
}

/// Up to this number, a floating-point number of 64 bits represents every whole number. JavaScript
/// and many readers of JSON have no other numbers.
const EXACT_MAX: u64 = 1 << 53;

/// Returns JSON in which whole numbers beyond 2⁵³, which a reader may round, are strings. The order
/// of members stays.
pub(crate) fn exact(json: &str) -> String {
    let mut exact = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => string_bytes(rest),
            '-' | '0'..='9' => rest
                .find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E'))
                .unwrap_or(rest.len()),
            other => other.len_utf8(),
        };
        let (token, behind) = rest.split_at(length);
        let whole = token.strip_prefix('-').unwrap_or(token).parse::<u64>();
        if first != '"' && whole.is_ok_and(|number| number > EXACT_MAX) {
            exact.extend(["\"", token, "\""]);
        } else {
            exact.push_str(token);
        }
        rest = behind;
    }
    exact
}

/// Returns the length of the string at the text's beginning, with its quotation marks.
fn string_bytes(text: &str) -> usize {
    let mut is_escaped = true;
    for (at, c) in text.char_indices() {
        match c {
            '"' if !is_escaped => return at + 1,
            '\\' if !is_escaped => is_escaped = true,
            _ => is_escaped = false,
        }
    }
    text.len()
}

/// Returns a whole number as JSON: see [`exact`].
pub(crate) fn json_number(number: u64) -> String {
    exact(&number.to_string())
}

/// Writes a member of a JSON object, as [`put_json`] does.
pub(crate) fn write_json(out: &mut dyn io::Write, name: &str, bytes: &[u8]) -> io::Result<()> {
    match str::from_utf8(bytes) {
        Ok(text) => {
            write!(out, "\"{name}\":")?;
            Ok(serde_json::to_writer(out, text)?)
        }
        Err(_) => write!(out, "\"{name}_base64\":\"{}\"", BASE64_STANDARD.encode(bytes)),
    }
}

/// Returns the bytes of a member in text or base64.
pub(crate) fn of_json(
    name: &str,
    text: Option<String>,
    base64: Option<&str>,
) -> Result<Vec<u8>, String> {
    match (text, base64) {
        (Some(text), None) => Ok(text.into_bytes()),
        (None, Some(base64)) => {
            BASE64_STANDARD.decode(base64).map_err(|_| format!("{name}_base64 is not base64"))
        }
        (Some(_), Some(_)) => Err(format!("it has both {name} and {name}_base64")),
        (None, None) => Err(format!("it has neither {name} nor {name}_base64")),
    }
}

/// Returns a number with its thousands set apart.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a number of bytes for people, with three digits.
pub(crate) fn amount(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut scaled = bytes as f64;
    let mut unit = 0;
    while scaled >= 999.5 && unit + 1 < units.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let name = units.get(unit).copied().unwrap_or_default();
    let digits = if unit == 0 || scaled >= 100.0 { 0 } else { 1 };
    format!("{scaled:.digits$} {name}")
}

/// Returns `1 object`, `2 objects`.
pub(crate) fn plural(number: u64, one: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {one}{s}", count(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn whole_numbers_that_a_reader_may_round_are_strings() {
        let json = r#"{"b":9007199254740993,"a":[9007199254740992,-9007199254740993,1.5e300],"c":"\\\"9007199254740993"}"#;
        let expected = r#"{"b":"9007199254740993","a":[9007199254740992,"-9007199254740993",1.5e300],"c":"\\\"9007199254740993"}"#;
        assert_eq!(exact(json), expected);
        assert_eq!(json_number(u64::MAX), "\"18446744073709551615\"");
        assert_eq!(exact("-9223372036854775808"), "\"-9223372036854775808\"");
    }

    #[test]
    fn visible_text_stays_and_other_bytes_are_escaped() {
        let cases: &[(&[u8], &str)] = &[
            (b"plain", "plain"),
            ("gr\u{fc}n".as_bytes(), "gr\u{fc}n"),
            (b"a\nb\t\\", "a\\nb\\t\\\\"),
            (b"\x00\xff\x1b[2J", "\\x00\\xff\\x1b[2J"),
            ("\u{202e}x".as_bytes(), "\\xe2\\x80\\xaex"),
        ];
        for (bytes, text) in cases {
            assert_eq!(escape(bytes), *text);
        }
        assert_eq!(shown(b"a\nb\\"), "a\nb\\");
        assert_eq!(shown(b"a\nb\x1b"), "a\\nb\\x1b");
    }

    #[test]
    fn unknown_escapes_are_refused() {
        for text in ["\\", "\\q", "\\x1", "\\xg1", "\\x+1"] {
            assert!(unescape(text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!(unescape(b"\\0\\x41").unwrap(), b"\0A");
    }

    #[test]
    fn numbers_are_easy_to_read() {
        let counts = [0, 999, 1000, 1_234_567].map(count);
        assert_eq!(counts, ["0", "999", "1,000", "1,234,567"]);
        let amounts = [0, 999, 1000, 1 << 20, 150 << 20, u64::MAX].map(amount);
        assert_eq!(amounts, ["0 B", "999 B", "1.0 KiB", "1.0 MiB", "150 MiB", "16384 PiB"]);
    }

    proptest! {
        #[test]
        fn escaping_loses_nothing(bytes: Vec<u8>) {
            let text = escape(&bytes);
            prop_assert!(!text.chars().any(char::is_control));
            prop_assert_eq!(unescape(text.as_bytes()).unwrap(), bytes);
        }

        #[test]
        fn json_loses_nothing(bytes: Vec<u8>) {
            let mut line = b"{".to_vec();
            write_json(&mut line, "key", &bytes).unwrap();
            line.push(b'}');
            let written: Value = serde_json::from_slice(&line).unwrap();
            let mut object = serde_json::Map::new();
            put_json(&mut object, "key", &bytes);
            prop_assert_eq!(&written, &Value::Object(object));
            let text = |name: &str| written.get(name).and_then(Value::as_str).map(str::to_owned);
            let base64 = text("key_base64");
            prop_assert_eq!(of_json("key", text("key"), base64.as_deref()).unwrap(), bytes);
        }
    }
}
