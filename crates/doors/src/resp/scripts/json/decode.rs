//! Reads JSON.

use super::super::failure::refused;
use super::{DEPTH_MAX, Settings, null};
use crate::resp::score::number_of;
use mlua::{Lua, Value};

/// Reads a text that is one value.
pub(super) fn decode(lua: &Lua, settings: &Settings, text: &[u8]) -> mlua::Result<Value> {
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err(refused(lua, "JSON parser does not support UTF-16 or UTF-32"));
    }
    let mut decoder = Decoder { lua, settings, text, at: 0, begin: 0 };
    let token = decoder.next();
    let value = decoder.value(token, 0)?;
    match decoder.next() {
        Token::End => Ok(value),
        other => Err(decoder.unexpected("the end", &other)),
    }
}

/// A piece of a text.
#[derive(Debug, PartialEq)]
enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    Text(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Error(&'static str),
}

impl Token {
    /// Returns its name in errors.
    fn name(&self) -> &'static str {
        match self {
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::Text(_) => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Boolean(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::End => "T_END",
            Token::Error(text) => text,
        }
    }
}

struct Decoder<'a> {
    lua: &'a Lua,
    settings: &'a Settings,
    text: &'a [u8],
    at: usize,
    /// The place of the last token.
    begin: usize,
}

impl Decoder<'_> {
    fn unexpected(&self, wanted: &str, found: &Token) -> mlua::Error {
        let (name, place) = (found.name(), self.begin + 1);
        let text = format!("Expected {wanted} but found {name} at character {place}");
        refused(self.lua, text)
    }

    fn value(&mut self, token: Token, depth: i64) -> mlua::Result<Value> {
        match token {
            Token::Text(text) => self.lua.create_string(text).map(Value::String),
            Token::Number(number) => Ok(Value::Number(number)),
            Token::Boolean(is_true) => Ok(Value::Boolean(is_true)),
            Token::Null => Ok(null()),
            Token::ObjectBegin => self.object(depth + 1),
            Token::ArrayBegin => self.array(depth + 1),
            other => Err(self.unexpected("value", &other)),
        }
    }

    fn check_depth(&self, depth: i64) -> mlua::Result<()> {
        if depth <= self.settings.decode_depth.get() && depth <= DEPTH_MAX {
            return Ok(());
        }
        let text =
            format!("Found too many nested data structures ({depth}) at character {}", self.at);
        Err(refused(self.lua, text))
    }

    fn object(&mut self, depth: i64) -> mlua::Result<Value> {
        self.check_depth(depth)?;
        let table = self.lua.create_table()?;
        let mut token = self.next();
        if token == Token::ObjectEnd {
            return Ok(Value::Table(table));
        }
        loop {
            let Token::Text(key) = token else {
                return Err(self.unexpected("object key string", &token));
            };
            let key = self.lua.create_string(key)?;
            match self.next() {
                Token::Colon => {}
                other => return Err(self.unexpected("colon", &other)),
            }
            let token_of_value = self.next();
            let value = self.value(token_of_value, depth)?;
            table.raw_set(key, value)?;
            match self.next() {
                Token::ObjectEnd => return Ok(Value::Table(table)),
                Token::Comma => token = self.next(),
                other => return Err(self.unexpected("comma or object end", &other)),
            }
        }
    }

    fn array(&mut self, depth: i64) -> mlua::Result<Value> {
        self.check_depth(depth)?;
        let table = self.lua.create_table()?;
        let mut token = self.next();
        if token == Token::ArrayEnd {
            return Ok(Value::Table(table));
        }
        let mut index = 1.0;
        loop {
            let value = self.value(token, depth)?;
            table.raw_set(index, value)?;
            index += 1.0;
            match self.next() {
                Token::ArrayEnd => return Ok(Value::Table(table)),
                Token::Comma => token = self.next(),
                other => return Err(self.unexpected("comma or array end", &other)),
            }
        }
    }

    fn byte(&self, at: usize) -> u8 {
        // A text ends with a byte 0, as it does in C.
        self.text.get(at).copied().unwrap_or(0)
    }

    fn next(&mut self) -> Token {
        while matches!(self.byte(self.at), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        self.begin = self.at;
        let single = match self.byte(self.at) {
            0 => return Token::End,
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b':' => Token::Colon,
            b',' => Token::Comma,
            b'"' => return self.string(),
            _ => return self.word(),
        };
        self.at += 1;
        single
    }

    fn word(&mut self) -> Token {
        let first = self.byte(self.at);
        let is_invalid = self.is_invalid_number();
        let takes_invalid = self.settings.decodes_invalid.get();
        if first == b'-' || first.is_ascii_digit() {
            if is_invalid && !takes_invalid {
                return Token::Error("invalid number");
            }
            return self.number();
        }
        for (word, token) in [
            (&b"true"[..], Token::Boolean(true)),
            (b"false", Token::Boolean(false)),
            (b"null", Token::Null),
        ] {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return token;
            }
        }
        let may_be_number = matches!(first, b'+' | b'i' | b'I' | b'n' | b'N');
        if may_be_number && takes_invalid && is_invalid {
            return self.number();
        }
        Token::Error("invalid token")
    }

    /// Whether a number begins here that JSON does not have.
    fn is_invalid_number(&self) -> bool {
        let mut at = self.at;
        match self.byte(at) {
            b'+' => return true,
            b'-' => at += 1,
            _ => {}
        }
        match self.byte(at) {
            b'0' => {
                let next = self.byte(at + 1);
                next | 0x20 == b'x' || next.is_ascii_digit()
            }
            0..=b'9' => false,
            _ => {
                let word = self.text.get(at..at + 3).unwrap_or_default();
                word.eq_ignore_ascii_case(b"inf") || word.eq_ignore_ascii_case(b"nan")
            }
        }
    }

    /// Reads a number as `strtod` of C does: the longest text that is one.
    fn number(&mut self) -> Token {
        let length = number_length(&self.text[self.at..]);
        let text = &self.text[self.at..self.at + length];
        match number_of(text) {
            Some(number) if length > 0 => {
                self.at += length;
                Token::Number(number)
            }
            _ => Token::Error("invalid number"),
        }
    }

    fn string(&mut self) -> Token {
        self.at += 1;
        let mut text = Vec::new();
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let is_plain = |byte: &&u8| !matches!(**byte, b'"' | b'\\' | 0);
            let plain = rest.iter().take_while(is_plain).count();
            text.extend_from_slice(&rest[..plain]);
            self.at += plain;
            match self.byte(self.at) {
                b'"' => {
                    self.at += 1;
                    return Token::Text(text);
                }
                b'\\' => {
                    let escaped = match self.byte(self.at + 1) {
                        byte @ (b'"' | b'\\' | b'/') => byte,
                        b'b' => 8,
                        b't' => b'\t',
                        b'n' => b'\n',
                        b'f' => 12,
                        b'r' => b'\r',
                        b'u' => match self.unicode() {
                            Some((character, length)) => {
                                self.at += length;
                                text.extend(utf8(character));
                                continue;
                            }
                            None => {
                                self.begin = self.at;
                                return Token::Error("invalid unicode escape code");
                            }
                        },
                        _ => {
                            self.begin = self.at;
                            return Token::Error("invalid escape code");
                        }
                    };
                    text.push(escaped);
                    self.at += 2;
                }
                _ => {
                    self.begin = self.at;
                    return Token::Error("unexpected end of string");
                }
            }
        }
    }

    fn four_digits(&self, at: usize) -> Option<u32> {
        let digits = self.text.get(at..at + 4)?;
        let is_digits = digits.iter().all(u8::is_ascii_hexdigit);
        let digits = str::from_utf8(digits).ok().filter(|_| is_digits)?;
        u32::from_str_radix(digits, 16).ok()
    }

    /// Reads an escaped character. Returns the length of its text, too.
    fn unicode(&self) -> Option<(u32, usize)> {
        let first = self.four_digits(self.at + 2)?;
        if first & 0xf800 != 0xd800 {
            return Some((first, 6));
        }
        let has_second = self.byte(self.at + 6) == b'\\' && self.byte(self.at + 7) == b'u';
        if first & 0x400 != 0 || !has_second {
            return None;
        }
        let second = self.four_digits(self.at + 8)?;
        let character = ((first & 0x3ff) << 10 | second & 0x3ff) + 0x1_0000;
        (second & 0xfc00 == 0xdc00).then_some((character, 12))
    }
}

/// Returns the bytes of a character.
fn utf8(character: u32) -> Vec<u8> {
    let character = char::from_u32(character).unwrap_or(char::REPLACEMENT_CHARACTER);
    character.encode_utf8(&mut [0; 4]).as_bytes().to_vec()
}

/// Returns the length of the number at the beginning of a text, or 0.
fn number_length(text: &[u8]) -> usize {
    let sign = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let rest = &text[sign..];
    for word in [&b"infinity"[..], b"inf", b"nan"] {
        if rest.get(..word.len()).is_some_and(|text| text.eq_ignore_ascii_case(word)) {
            return sign + word.len();
        }
    }
    if let [b'0', b'x' | b'X', digits @ ..] = rest {
        let length = digits_length(digits, u8::is_ascii_hexdigit, b"pP");
        return if length == 0 { sign + 1 } else { sign + 2 + length };
    }
    match digits_length(rest, u8::is_ascii_digit, b"eE") {
        0 => 0,
        length => sign + length,
    }
}

/// Returns the length of digits with a point and an exponent.
fn digits_length(text: &[u8], is_digit: fn(&u8) -> bool, exponents: &[u8]) -> usize {
    let count = |text: &[u8], is_digit: fn(&u8) -> bool| {
        text.iter().take_while(|byte| is_digit(byte)).count()
    };
    let before = count(text, is_digit);
    let mut length = before;
    let mut digits = before;
    if text.get(length) == Some(&b'.') {
        let behind = count(&text[length + 1..], is_digit);
        digits += behind;
        length += 1 + behind;
    }
    if digits == 0 {
        return 0;
    }
    if text.get(length).is_some_and(|byte| exponents.contains(byte)) {
        let sign = usize::from(matches!(text.get(length + 1), Some(b'-' | b'+')));
        let exponent = count(text.get(length + 1 + sign..).unwrap_or_default(), u8::is_ascii_digit);
        if exponent > 0 {
            length += 1 + sign + exponent;
        }
    }
    length
}

#[cfg(test)]
mod tests {
    use super::number_length;

    #[test]
    fn a_number_is_as_long_as_it_can_be() {
        for (text, length) in [
            ("", 0),
            ("-", 0),
            ("1", 1),
            ("-1.5e3,", 6),
            ("1e", 1),
            ("1e+", 1),
            (".5", 2),
            ("5.", 2),
            (".", 0),
            ("0x1F", 4),
            ("0xg", 1),
            ("-inf", 4),
            ("Infinity", 8),
            ("nan1", 3),
            ("12a", 2),
        ] {
            assert_eq!(number_length(text.as_bytes()), length, "{text}");
        }
    }
}
