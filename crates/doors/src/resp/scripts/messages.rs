//! The library `cmsgpack`: values in the format MessagePack.

use super::failure::{Failure, bad_argument, refused};
use super::text::{number_at, string_at};
use super::values::{BYTES_MAX, truncated};
use mlua::{FromLua, Lua, Table, Value, Variadic};

/// The depth from which on tables are packed as nil.
const PACKED_DEPTH_MAX: usize = 16;

/// The greatest depth of tables that are unpacked.
const DEPTH_MAX: usize = 200;

/// The most values that one call returns.
const VALUES_MAX: usize = 4000;

/// Returns the library.
pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("pack", lua.create_function(pack)?)?;
    let all = |lua: &Lua, text: Value| unpack(lua, &text, "unpack", None, 0);
    table.raw_set("unpack", lua.create_function(all)?)?;
    let one = |lua: &Lua, (text, from): (Value, Value)| {
        let from = optional(lua, &from, 2, "unpack_one")?;
        unpack(lua, &text, "unpack_one", Some(1), from)
    };
    table.raw_set("unpack_one", lua.create_function(one)?)?;
    let some = |lua: &Lua, (text, most, from): (Value, Value, Value)| {
        let most = truncated(number_at(lua, &most, 2, "unpack_limit")?);
        let from = optional(lua, &from, 3, "unpack_limit")?;
        unpack(lua, &text, "unpack_limit", Some(most), from)
    };
    table.raw_set("unpack_limit", lua.create_function(some)?)?;
    for (name, text) in [
        ("_NAME", "cmsgpack"),
        ("_VERSION", "lua-cmsgpack 0.4.0"),
        ("_COPYRIGHT", "Copyright (C) the authors of Thunderhead"),
        ("_DESCRIPTION", "MessagePack C implementation for Lua"),
    ] {
        table.raw_set(name, text)?;
    }
    Ok(table)
}

fn optional(lua: &Lua, value: &Value, index: usize, name: &str) -> mlua::Result<i64> {
    match value {
        Value::Nil => Ok(0),
        value => number_at(lua, value, index, name).map(truncated),
    }
}

/// The bytes of a value.
struct Packed(Vec<u8>);

impl FromLua for Packed {
    fn from_lua(value: Value, lua: &Lua) -> mlua::Result<Self> {
        let mut out = Vec::new();
        put(lua, &value, 0, &mut out)?;
        Ok(Packed(out))
    }
}

fn pack(lua: &Lua, values: Variadic<Packed>) -> mlua::Result<mlua::String> {
    if values.is_empty() {
        return Err(bad_argument(lua, 0, "pack", "MessagePack pack needs input."));
    }
    let mut out = Vec::new();
    for Packed(bytes) in values {
        out.extend(bytes);
        if out.len() > BYTES_MAX {
            return Err(refused(lua, "not enough memory"));
        }
    }
    lua.create_string(out)
}

/// Writes a length after the code that belongs to its size.
fn put_length(length: usize, codes: [(usize, u8, usize); 4], out: &mut Vec<u8>) {
    for (most, code, bytes) in codes {
        if length <= most {
            match bytes {
                0 => out.push(code | length as u8),
                1 => out.extend([code, length as u8]),
                2 => {
                    out.push(code);
                    out.extend((length as u16).to_be_bytes());
                }
                _ => {
                    out.push(code);
                    out.extend((length as u32).to_be_bytes());
                }
            }
            return;
        }
    }
}

fn put_text(text: &[u8], out: &mut Vec<u8>) {
    let codes = [(31, 0xa0, 0), (0xff, 0xd9, 1), (0xffff, 0xda, 2), (u32::MAX as usize, 0xdb, 4)];
    put_length(text.len(), codes, out);
    out.extend_from_slice(text);
}

fn put_integer(number: i64, out: &mut Vec<u8>) {
    match number {
        -32..=127 => out.push(number as u8),
        128..=0xff => out.extend([0xcc, number as u8]),
        0x100..=0xffff => {
            out.push(0xcd);
            out.extend((number as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(0xce);
            out.extend((number as u32).to_be_bytes());
        }
        0x1_0000_0000.. => {
            out.push(0xcf);
            out.extend(number.to_be_bytes());
        }
        -128..=-33 => out.extend([0xd0, number as u8]),
        -32_768..=-129 => {
            out.push(0xd1);
            out.extend((number as i16).to_be_bytes());
        }
        -2_147_483_648..=-32_769 => {
            out.push(0xd2);
            out.extend((number as i32).to_be_bytes());
        }
        _ => {
            out.push(0xd3);
            out.extend(number.to_be_bytes());
        }
    }
}

fn put_number(number: f64, out: &mut Vec<u8>) {
    let integer = truncated(number);
    if number.is_finite() && integer as f64 == number {
        return put_integer(integer, out);
    }
    let short = number as f32;
    if f64::from(short) == number {
        out.push(0xca);
        out.extend(short.to_be_bytes());
    } else {
        out.push(0xcb);
        out.extend(number.to_be_bytes());
    }
}

fn put(lua: &Lua, value: &Value, depth: usize, out: &mut Vec<u8>) -> mlua::Result<()> {
    if out.len() > BYTES_MAX {
        return Err(refused(lua, "not enough memory"));
    }
    match value {
        Value::Boolean(is_true) => out.push(if *is_true { 0xc3 } else { 0xc2 }),
        Value::Integer(number) => put_number(*number as f64, out),
        Value::Number(number) => put_number(*number, out),
        Value::String(text) => put_text(&text.as_bytes(), out),
        Value::Table(table) if depth < PACKED_DEPTH_MAX => put_table(lua, table, depth, out)?,
        _ => out.push(0xc0),
    }
    Ok(())
}

fn put_table(lua: &Lua, table: &Table, depth: usize, out: &mut Vec<u8>) -> mlua::Result<()> {
    let (mut count, mut last, mut is_array) = (0usize, 0.0f64, true);
    for pair in table.pairs::<Value, Value>() {
        let (key, _) = pair?;
        count += 1;
        let key = match key {
            Value::Integer(key) => key as f64,
            Value::Number(key) => key,
            _ => 0.0,
        };
        is_array &= key > 0.0 && key.fract() == 0.0;
        last = last.max(key);
    }
    if is_array && last == count as f64 {
        let codes = [(15, 0x90, 0), (0, 0, 1), (0xffff, 0xdc, 2), (u32::MAX as usize, 0xdd, 4)];
        put_length(count, codes, out);
        for index in 1..=count {
            put(lua, &table.raw_get::<Value>(index)?, depth + 1, out)?;
        }
        return Ok(());
    }
    let codes = [(15, 0x80, 0), (0, 0, 1), (0xffff, 0xde, 2), (u32::MAX as usize, 0xdf, 4)];
    put_length(count, codes, out);
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        put(lua, &key, depth + 1, out)?;
        put(lua, &value, depth + 1, out)?;
    }
    Ok(())
}

/// The reason why bytes cannot be read.
enum Trouble {
    /// They end too soon.
    End,
    /// They are of no known form.
    Form,
    TooDeep,
    Lua(mlua::Error),
}

impl From<mlua::Error> for Trouble {
    fn from(error: mlua::Error) -> Trouble {
        Trouble::Lua(error)
    }
}

fn unpack(
    lua: &Lua,
    text: &Value,
    name: &str,
    most: Option<i64>,
    from: i64,
) -> mlua::Result<Variadic<Value>> {
    let text = string_at(lua, text, 1, name)?;
    let text = text.as_bytes();
    let length = text.len();
    if from < 0 || most.is_some_and(|most| most < 0) {
        let text =
            format!("Invalid request to unpack with offset of {from} and limit of {length}.");
        return Err(refused(lua, text));
    }
    let Some(mut rest) = usize::try_from(from).ok().and_then(|from| text.get(from..)) else {
        let text = format!("Start offset {from} greater than input length {length}.");
        return Err(refused(lua, text));
    };
    // A limit of 0 without an offset is no limit.
    let is_all = most.unwrap_or(0) == 0 && from == 0;
    let most = if is_all { i64::MAX } else { most.unwrap_or(0) };
    let mut values = Vec::new();
    while !rest.is_empty() && (values.len() as i64) < most {
        if values.len() >= VALUES_MAX {
            let text = "stack overflow (too many return values at once; use unpack_one or \
                        unpack_limit instead.)";
            return Err(refused(lua, text));
        }
        let value = take(lua, &mut rest, 0).map_err(|trouble| match trouble {
            Trouble::End => refused(lua, "Missing bytes in input."),
            Trouble::Form => refused(lua, "Bad data format in input."),
            Trouble::TooDeep => refused(lua, "Too many nested tables in input."),
            Trouble::Lua(error) => error,
        })?;
        values.push(value);
    }
    if !is_all {
        let next = if rest.is_empty() { -1.0 } else { (length - rest.len()) as f64 };
        values.insert(0, Value::Number(next));
    }
    Ok(Variadic::from(values))
}

fn take_bytes<'a>(rest: &mut &'a [u8], count: usize) -> Result<&'a [u8], Trouble> {
    let (bytes, behind) = rest.split_at_checked(count).ok_or(Trouble::End)?;
    *rest = behind;
    Ok(bytes)
}

/// Reads an integer without a sign.
fn take_unsigned(rest: &mut &[u8], count: usize) -> Result<u64, Trouble> {
    let bytes = take_bytes(rest, count)?;
    Ok(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Reads an integer with a sign.
fn take_signed(rest: &mut &[u8], count: usize) -> Result<i64, Trouble> {
    let unused = 64 - 8 * count as u32;
    Ok((take_unsigned(rest, count)? << unused).cast_signed() >> unused)
}

fn take(lua: &Lua, rest: &mut &[u8], depth: usize) -> Result<Value, Trouble> {
    if depth > DEPTH_MAX {
        return Err(Trouble::TooDeep);
    }
    let code = take_bytes(rest, 1)?[0];
    let number = |number: f64| Ok(Value::Number(number));
    match code {
        0x00..=0x7f => number(f64::from(code)),
        0xe0..=0xff => number(f64::from(code.cast_signed())),
        0xc0 => Ok(Value::Nil),
        0xc2 | 0xc3 => Ok(Value::Boolean(code == 0xc3)),
        // Redis reads the longest ones with a sign.
        0xcc..=0xcf => number(take_unsigned(rest, 1 << (code - 0xcc))?.cast_signed() as f64),
        0xd0..=0xd3 => number(take_signed(rest, 1 << (code - 0xd0))? as f64),
        0xca => number(f64::from(f32::from_bits(take_unsigned(rest, 4)? as u32))),
        0xcb => number(f64::from_bits(take_unsigned(rest, 8)?)),
        0xa0..=0xbf => take_text(lua, rest, usize::from(code & 31)),
        0xd9..=0xdb => {
            let length = take_unsigned(rest, 1 << (code - 0xd9))?;
            take_text(lua, rest, length as usize)
        }
        0x90..=0x9f => take_array(lua, rest, u64::from(code & 15), depth),
        0xdc | 0xdd => {
            let count = take_unsigned(rest, if code == 0xdc { 2 } else { 4 })?;
            take_array(lua, rest, count, depth)
        }
        0x80..=0x8f => take_map(lua, rest, u64::from(code & 15), depth),
        0xde | 0xdf => {
            let count = take_unsigned(rest, if code == 0xde { 2 } else { 4 })?;
            take_map(lua, rest, count, depth)
        }
        _ => Err(Trouble::Form),
    }
}

fn take_text(lua: &Lua, rest: &mut &[u8], length: usize) -> Result<Value, Trouble> {
    let text = take_bytes(rest, length)?;
    Ok(Value::String(lua.create_string(text)?))
}

fn take_array(lua: &Lua, rest: &mut &[u8], count: u64, depth: usize) -> Result<Value, Trouble> {
    let table = lua.create_table()?;
    for index in 1..=count {
        let value = take(lua, rest, depth + 1)?;
        table.raw_set(index as f64, value)?;
    }
    Ok(Value::Table(table))
}

fn take_map(lua: &Lua, rest: &mut &[u8], count: u64, depth: usize) -> Result<Value, Trouble> {
    let table = lua.create_table()?;
    for _ in 0..count {
        let key = take(lua, rest, depth + 1)?;
        let value = take(lua, rest, depth + 1)?;
        match key {
            Value::Nil => return Err(bad_key("table index is nil")),
            Value::Number(key) if key.is_nan() => return Err(bad_key("table index is NaN")),
            key => table.raw_set(key, value)?,
        }
    }
    Ok(Value::Table(table))
}

fn bad_key(text: &str) -> Trouble {
    Trouble::Lua(Failure::Text(text.as_bytes().to_vec()).into())
}
