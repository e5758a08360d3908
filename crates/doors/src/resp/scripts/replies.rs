//! The reply to a command as a value of Lua.

use super::failure::error_table;
use crate::resp::number::integer_of;
use crate::resp::score::number_of;
use mlua::{Lua, Table, Value};

/// Returns the value of a reply that this server has written.
pub(super) fn value_of(lua: &Lua, reply: &[u8]) -> mlua::Result<Value> {
    let mut rest = reply;
    take(lua, &mut rest)
}

/// Takes a line, without its end.
fn line<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let end = memchr::memmem::find(rest, b"\r\n").unwrap_or(rest.len());
    let (line, behind) = rest.split_at(end);
    *rest = behind.get(2..).unwrap_or_default();
    line
}

/// Takes a string, whose length was read.
fn bulk<'a>(rest: &mut &'a [u8], length: i64) -> &'a [u8] {
    let length = usize::try_from(length).unwrap_or(0).min(rest.len());
    let (text, behind) = rest.split_at(length);
    *rest = behind.get(2..).unwrap_or_default();
    text
}

fn text(lua: &Lua, text: &[u8]) -> mlua::Result<Value> {
    lua.create_string(text).map(Value::String)
}

/// Returns a table with one field.
fn single(lua: &Lua, name: &str, value: Value) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    table.raw_set(name, value)?;
    Ok(Value::Table(table))
}

fn take(lua: &Lua, rest: &mut &[u8]) -> mlua::Result<Value> {
    let first = line(rest);
    let (kind, own) = first.split_first().map_or((b'_', &[][..]), |(kind, own)| (*kind, own));
    let number = integer_of(own).unwrap_or(0);
    Ok(match kind {
        b'+' => single(lua, "ok", text(lua, own)?)?,
        b'-' => Value::Table(error_table(lua, own, true)?),
        b':' => Value::Number(number as f64),
        b'$' | b'*' if number < 0 => Value::Boolean(false),
        b'$' => text(lua, bulk(rest, number))?,
        b'*' | b'>' => Value::Table(array(lua, rest, number)?),
        b'%' => single(lua, "map", Value::Table(map(lua, rest, number)?))?,
        b'~' => single(lua, "set", Value::Table(set(lua, rest, number)?))?,
        b'#' => Value::Boolean(own == b"t"),
        b',' => single(lua, "double", Value::Number(number_of(own).unwrap_or(f64::NAN)))?,
        b'(' => single(lua, "big_number", text(lua, own)?)?,
        b'=' => {
            let whole = bulk(rest, number);
            let (format, behind) = whole.split_at_checked(3).unwrap_or((whole, &[]));
            let table = lua.create_table()?;
            table.raw_set("format", text(lua, format)?)?;
            table.raw_set("string", text(lua, behind.get(1..).unwrap_or_default())?)?;
            single(lua, "verbatim_string", Value::Table(table))?
        }
        _ => Value::Nil,
    })
}

fn array(lua: &Lua, rest: &mut &[u8], count: i64) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for index in 1..=count {
        let value = take(lua, rest)?;
        table.raw_set(index as f64, value)?;
    }
    Ok(table)
}

fn map(lua: &Lua, rest: &mut &[u8], count: i64) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for _ in 0..count {
        let key = take(lua, rest)?;
        let value = take(lua, rest)?;
        if !key.is_nil() {
            table.raw_set(key, value)?;
        }
    }
    Ok(table)
}

fn set(lua: &Lua, rest: &mut &[u8], count: i64) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for _ in 0..count {
        let member = take(lua, rest)?;
        if !member.is_nil() {
            table.raw_set(member, true)?;
        }
    }
    Ok(table)
}
