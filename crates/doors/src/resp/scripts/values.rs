//! Values that scripts give to functions, and numbers as texts.

use super::failure::wrong_type;
use crate::resp::number::double_text;
use mlua::{FromLua, Lua, Value};

/// The longest string that a function makes for a script.
pub(super) const BYTES_MAX: usize = 32 << 20;

/// An argument of a function that takes any number of them. It holds no reference to the
/// interpreter, which has room for some thousand references only.
#[derive(Clone, Debug)]
pub(super) enum Argument {
    Text(Vec<u8>),
    Number(f64),
    /// A value of another type, which has this name.
    Other(&'static str),
}

impl FromLua for Argument {
    fn from_lua(value: Value, _: &Lua) -> mlua::Result<Self> {
        Ok(match value {
            Value::String(text) => Argument::Text(text.as_bytes().to_vec()),
            Value::Integer(number) => Argument::Number(number as f64),
            Value::Number(number) => Argument::Number(number),
            Value::Nil => Argument::Other("nil"),
            other => Argument::Other(super::text::type_of(&other)),
        })
    }
}

impl Argument {
    /// Returns a number, or a string that can be read as one.
    pub(super) fn number(
        found: Option<&Argument>,
        lua: &Lua,
        index: usize,
        name: &str,
    ) -> mlua::Result<f64> {
        let is = match found {
            Some(Argument::Number(number)) => return Ok(*number),
            Some(Argument::Text(text)) => {
                let value = Value::String(lua.create_string(text)?);
                match lua.coerce_number(value)? {
                    Some(number) => return Ok(number),
                    None => "string",
                }
            }
            Some(Argument::Other(is)) => is,
            None => "no value",
        };
        Err(wrong_type(lua, index, name, "number", is))
    }

    /// Returns a string, or a number in its place.
    pub(super) fn text(
        found: Option<&Argument>,
        lua: &Lua,
        index: usize,
        name: &str,
    ) -> mlua::Result<Vec<u8>> {
        let is = match found {
            Some(Argument::Text(text)) => return Ok(text.clone()),
            Some(Argument::Number(number)) => return Ok(general(*number, 14).into_bytes()),
            Some(Argument::Other(is)) => is,
            None => "no value",
        };
        Err(wrong_type(lua, index, name, "string", is))
    }
}

/// Returns a number's digits, up to so many, as `%g` of C writes them.
pub(super) fn general(number: f64, digits: usize) -> String {
    if number.is_nan() {
        return if number.is_sign_negative() { "-nan" } else { "nan" }.to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let digits = digits.max(1);
    let text = format!("{number:.*e}", digits - 1);
    let (fraction, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let without_zeros = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", without_zeros(fraction), exponent.unsigned_abs());
    }
    let behind = (digits as i32 - 1 - exponent).max(0) as usize;
    without_zeros(&format!("{number:.behind$}"))
}

/// Returns a number as an integer, in the way of the machine's own conversion.
pub(super) fn truncated(number: f64) -> i64 {
    let is_in_range = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number);
    if is_in_range { number as i64 } else { i64::MIN }
}

/// Returns a number in the form in which commands get it.
pub(super) fn argument_text(number: f64) -> String {
    let integer = truncated(number);
    let is_integer = integer as f64 == number && integer > i64::MIN / 2 && integer < i64::MAX / 2;
    if is_integer { integer.to_string() } else { double_text(number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_of_c() {
        for (number, digits, text) in [
            (0.0, 14, "0"),
            (-0.0, 14, "-0"),
            (1.0, 14, "1"),
            (0.1, 17, "0.10000000000000001"),
            (0.1, 14, "0.1"),
            (1e14, 14, "1e+14"),
            (123_456_789_012_345.0, 14, "1.2345678901234e+14"),
            (1e-5, 14, "1e-05"),
            (0.0001, 14, "0.0001"),
            (99.99, 1, "1e+02"),
            (9.5, 1, "1e+01"),
            (f64::INFINITY, 14, "inf"),
            (f64::NEG_INFINITY, 14, "-inf"),
            (1e300, 17, "1.0000000000000001e+300"),
        ] {
            assert_eq!(general(number, digits), text, "{number} {digits}");
        }
    }

    #[test]
    fn numbers_are_truncated_as_the_machine_does() {
        for (number, integer) in [
            (1.9, 1),
            (-1.9, -1),
            (1e19, i64::MIN),
            (f64::NAN, i64::MIN),
            (f64::INFINITY, i64::MIN),
        ] {
            assert_eq!(truncated(number), integer, "{number}");
        }
        for (number, text) in [
            (1.5, "1.5"),
            (0.1, "0.1"),
            (1e18, "1000000000000000000"),
            (1e20, "1e+20"),
            (-3.0, "-3"),
        ] {
            assert_eq!(argument_text(number), text);
        }
    }
}
