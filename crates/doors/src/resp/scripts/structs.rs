//! The library `struct`: values as the bytes of C's types.

use super::failure::{bad_argument, refused};
use super::text::{number_at, string_at};
use super::values::{Argument, BYTES_MAX};
use mlua::{IntoLua, Lua, Table, Value, Variadic};

/// The longest integer, in bytes.
const INTEGER_BYTES_MAX: usize = 32;

/// The usual limit of alignment.
const ALIGNMENT: usize = 8;

/// The most values that one call returns.
const VALUES_MAX: usize = 4000;

/// Returns the library.
pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("pack", lua.create_function(pack)?)?;
    table.raw_set("unpack", lua.create_function(unpack)?)?;
    table.raw_set("size", lua.create_function(size)?)?;
    Ok(table)
}

/// A value that was read.
#[derive(Debug)]
enum Read {
    Number(f64),
    Text(Vec<u8>),
}

impl IntoLua for Read {
    fn into_lua(self, lua: &Lua) -> mlua::Result<Value> {
        match self {
            Read::Number(number) => Ok(Value::Number(number)),
            Read::Text(text) => lua.create_string(text).map(Value::String),
        }
    }
}

/// The reason why a format is wrong.
enum Wrong {
    Overflow,
    TooLong(usize),
    Alignment(usize),
    Option(u8),
}

impl Wrong {
    fn error(self, lua: &Lua, name: &str) -> mlua::Error {
        match self {
            Wrong::Overflow => refused(lua, "integral size overflow"),
            Wrong::TooLong(size) => {
                let most = INTEGER_BYTES_MAX;
                refused(lua, format!("integral size {size} is larger than limit of {most}"))
            }
            Wrong::Alignment(size) => refused(lua, format!("alignment {size} is not a power of 2")),
            Wrong::Option(option) => {
                let text = [b"invalid format option '", &[option][..], b"'"].concat();
                bad_argument(lua, 1, name, &String::from_utf8_lossy(&text))
            }
        }
    }
}

/// A format that is read.
struct Format<'a> {
    rest: &'a [u8],
    is_big: bool,
    alignment: usize,
}

impl<'a> Format<'a> {
    fn new(text: &'a [u8]) -> Format<'a> {
        let end = memchr::memchr(0, text).unwrap_or(text.len());
        Format { rest: &text[..end], is_big: cfg!(target_endian = "big"), alignment: 1 }
    }

    fn number(&mut self, usual: usize) -> Result<usize, Wrong> {
        let mut number: Option<i32> = None;
        while let [digit @ b'0'..=b'9', rest @ ..] = self.rest {
            let before = number.unwrap_or(0);
            let longer = before.checked_mul(10);
            let longer = longer.and_then(|it| it.checked_add(i32::from(digit - b'0')));
            number = Some(longer.ok_or(Wrong::Overflow)?);
            self.rest = rest;
        }
        Ok(number.map_or(usual, |number| number as usize))
    }

    /// Returns the next option, with the size of its value.
    fn next(&mut self) -> Result<Option<(u8, usize)>, Wrong> {
        let [option, rest @ ..] = self.rest else { return Ok(None) };
        self.rest = rest;
        let size = match option {
            b'b' | b'B' | b'x' => 1,
            b'h' | b'H' => 2,
            b'f' => 4,
            b'l' | b'L' | b'T' | b'd' => 8,
            b'c' => self.number(1)?,
            b'i' | b'I' => {
                let size = self.number(4)?;
                if size > INTEGER_BYTES_MAX {
                    return Err(Wrong::TooLong(size));
                }
                size
            }
            _ => 0,
        };
        Ok(Some((*option, size)))
    }

    /// Returns the bytes to skip before a value.
    fn padding(&self, at: usize, option: u8, size: usize) -> usize {
        if size == 0 || option == b'c' {
            return 0;
        }
        let size = size.min(self.alignment);
        if size == 0 {
            return 0;
        }
        (size - (at & (size - 1))) & (size - 1)
    }

    /// Applies an option that has no value.
    fn control(&mut self, option: u8) -> Result<(), Wrong> {
        match option {
            b' ' => {}
            b'>' => self.is_big = true,
            b'<' => self.is_big = false,
            b'!' => {
                let size = self.number(ALIGNMENT)?;
                if !size.is_power_of_two() {
                    return Err(Wrong::Alignment(size));
                }
                self.alignment = size;
            }
            option => return Err(Wrong::Option(option)),
        }
        Ok(())
    }

    /// Brings bytes that begin with the lowest one into the order of the format, or back.
    fn ordered(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        if self.is_big {
            bytes.reverse();
        }
        bytes
    }
}

/// Reads a number to pack.
fn number_of(lua: &Lua, given: Option<&Argument>, index: usize) -> mlua::Result<f64> {
    let given = given.unwrap_or(&Argument::Other("nil"));
    Argument::number(Some(given), lua, index, "pack")
}

fn pack(lua: &Lua, arguments: Variadic<Argument>) -> mlua::Result<mlua::String> {
    let name = "pack";
    let text = Argument::text(arguments.first(), lua, 1, name)?;
    let mut format = Format::new(&text);
    let (mut out, mut at) = (Vec::new(), 1);
    while let Some((option, size)) = format.next().map_err(|it| it.error(lua, name))? {
        let padding = format.padding(out.len(), option, size);
        out.resize(out.len() + padding, 0);
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let number = number_of(lua, arguments.get(at), at + 1)?;
                at += 1;
                let value = match number < 0.0 {
                    true => super::values::truncated(number).cast_unsigned(),
                    false => number as u64,
                };
                let mut bytes = value.to_le_bytes().to_vec();
                bytes.resize(size, 0);
                out.extend(format.ordered(bytes));
            }
            b'x' => out.push(0),
            b'f' | b'd' => {
                let number = number_of(lua, arguments.get(at), at + 1)?;
                at += 1;
                let bytes = match option {
                    b'f' => (number as f32).to_le_bytes().to_vec(),
                    _ => number.to_le_bytes().to_vec(),
                };
                out.extend(format.ordered(bytes));
            }
            b'c' | b's' => {
                let text = Argument::text(arguments.get(at), lua, at + 1, name)?;
                at += 1;
                let length = if size == 0 { text.len() } else { size };
                let Some(text) = text.get(..length) else {
                    return Err(bad_argument(lua, at + 1, name, "string too short"));
                };
                out.extend_from_slice(text);
                if option == b's' {
                    out.push(0);
                }
            }
            option => format.control(option).map_err(|it| it.error(lua, name))?,
        }
        if out.len() > BYTES_MAX {
            return Err(refused(lua, "not enough memory"));
        }
    }
    lua.create_string(out)
}

/// Returns an integer of some bytes, the lowest of which comes first.
fn integer_of(bytes: &[u8], is_signed: bool) -> f64 {
    let mut value = 0u64;
    for (index, byte) in bytes.iter().enumerate().take(8) {
        value |= u64::from(*byte) << (8 * index);
    }
    if !is_signed {
        return value as f64;
    }
    let bits = 8 * bytes.len();
    if (1..64).contains(&bits) && value >> (bits - 1) & 1 == 1 {
        value |= u64::MAX << (bits - 1);
    }
    value.cast_signed() as f64
}

fn unpack(lua: &Lua, (text, data, from): (Value, Value, Value)) -> mlua::Result<Variadic<Read>> {
    let name = "unpack";
    let text = string_at(lua, &text, 1, name)?;
    let text = text.as_bytes();
    let data = string_at(lua, &data, 2, name)?;
    let data = data.as_bytes();
    let from = match from {
        Value::Nil => 1.0,
        from => number_at(lua, &from, 3, name)?.trunc(),
    };
    if from < 0.0 {
        return Err(bad_argument(lua, 2, name, "data string too short"));
    }
    if from < 1.0 {
        return Err(bad_argument(lua, 3, name, "offset must be 1 or greater"));
    }
    let mut at = (from as usize).saturating_sub(1);
    let mut format = Format::new(&text);
    let mut values = Vec::new();
    let short = || bad_argument(lua, 2, name, "data string too short");
    while let Some((option, size)) = format.next().map_err(|it| it.error(lua, name))? {
        at = at.saturating_add(format.padding(at, option, size));
        let end = at.checked_add(size).filter(|end| *end <= data.len()).ok_or_else(short)?;
        if values.len() >= VALUES_MAX {
            return Err(refused(lua, "stack overflow (too many results)"));
        }
        let mut next = end;
        let bytes = || format.ordered(data[at..end].to_vec());
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let value = integer_of(&bytes(), option.is_ascii_lowercase());
                values.push(Read::Number(value));
            }
            b'x' => {}
            b'f' => {
                let bytes = <[u8; 4]>::try_from(bytes()).unwrap_or_default();
                values.push(Read::Number(f64::from(f32::from_le_bytes(bytes))));
            }
            b'd' => {
                let bytes = <[u8; 8]>::try_from(bytes()).unwrap_or_default();
                values.push(Read::Number(f64::from_le_bytes(bytes)));
            }
            b'c' => {
                if size == 0 {
                    let Some(Read::Number(length)) = values.pop() else {
                        return Err(refused(lua, "format 'c0' needs a previous size"));
                    };
                    let is_valid = length >= 0.0 && length <= data.len() as f64;
                    let length = if is_valid { length as usize } else { return Err(short()) };
                    next = at.checked_add(length).ok_or_else(short)?;
                }
                let text = data.get(at..next).ok_or_else(short)?;
                values.push(Read::Text(text.to_vec()));
            }
            b's' => {
                let Some(length) = memchr::memchr(0, &data[at..]) else {
                    return Err(refused(lua, "unfinished string in data"));
                };
                values.push(Read::Text(data[at..at + length].to_vec()));
                next = at + length + 1;
            }
            option => format.control(option).map_err(|it| it.error(lua, name))?,
        }
        at = next;
    }
    values.push(Read::Number((at + 1) as f64));
    Ok(Variadic::from(values))
}

fn size(lua: &Lua, text: Value) -> mlua::Result<f64> {
    let name = "size";
    let text = string_at(lua, &text, 1, name)?;
    let text = text.as_bytes();
    let mut format = Format::new(&text);
    let mut at = 0usize;
    while let Some((option, size)) = format.next().map_err(|it| it.error(lua, name))? {
        at = at.saturating_add(format.padding(at, option, size));
        if option == b's' {
            return Err(bad_argument(lua, 1, name, "option 's' has no fixed size"));
        }
        if option == b'c' && size == 0 {
            return Err(bad_argument(lua, 1, name, "option 'c0' has no fixed size"));
        }
        if !option.is_ascii_alphanumeric() {
            format.control(option).map_err(|it| it.error(lua, name))?;
        }
        at = at.saturating_add(size);
    }
    Ok(at as f64)
}
