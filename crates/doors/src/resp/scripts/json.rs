//! The library `cjson`: values as JSON.

mod decode;
mod encode;

use super::failure::{bad_argument, refused, wrong_type};
use super::text::{number_at, type_of};
use super::values::Argument;
use mlua::{LightUserData, Lua, Table, Value, Variadic};
use std::cell::Cell;
use std::rc::Rc;

/// The depth of tables up to which the library goes, whichever limit a script sets. Each level
/// takes some of the thread's stack.
const DEPTH_MAX: i64 = 250;

/// The treatment of numbers that JSON does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Invalid {
    Refused,
    Written,
    Null,
}

/// The settings of the library. A script changes them for itself.
#[derive(Debug)]
pub(super) struct Settings {
    /// Whether an array with large gaps becomes an object.
    converts_sparse: Cell<bool>,
    /// The ratio of the last index to the number of elements from which on it is sparse.
    sparse_ratio: Cell<i64>,
    /// The last index up to which no array is sparse.
    sparse_safe: Cell<i64>,
    encode_depth: Cell<i64>,
    decode_depth: Cell<i64>,
    precision: Cell<i64>,
    keeps_buffer: Cell<bool>,
    encodes_invalid: Cell<Invalid>,
    decodes_invalid: Cell<bool>,
}

impl Settings {
    pub(super) fn new() -> Settings {
        Settings {
            converts_sparse: Cell::new(false),
            sparse_ratio: Cell::new(2),
            sparse_safe: Cell::new(10),
            encode_depth: Cell::new(1000),
            decode_depth: Cell::new(1000),
            precision: Cell::new(14),
            keeps_buffer: Cell::new(true),
            encodes_invalid: Cell::new(Invalid::Refused),
            decodes_invalid: Cell::new(true),
        }
    }

    /// Sets all settings to their usual values.
    pub(super) fn reset(&self) {
        let usual = Settings::new();
        self.converts_sparse.swap(&usual.converts_sparse);
        self.sparse_ratio.swap(&usual.sparse_ratio);
        self.sparse_safe.swap(&usual.sparse_safe);
        self.encode_depth.swap(&usual.encode_depth);
        self.decode_depth.swap(&usual.decode_depth);
        self.precision.swap(&usual.precision);
        self.keeps_buffer.swap(&usual.keeps_buffer);
        self.encodes_invalid.swap(&usual.encodes_invalid);
        self.decodes_invalid.swap(&usual.decodes_invalid);
    }
}

/// The value that stands for null.
fn null() -> Value {
    Value::LightUserData(LightUserData(std::ptr::null_mut()))
}

/// Returns the library with some settings.
pub(super) fn library(lua: &Lua, settings: &Rc<Settings>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let own = Rc::clone(settings);
    let encode = lua.create_function(move |lua, (value, rest): One| {
        if !rest.is_empty() {
            return Err(bad_argument(lua, 1, "encode", "expected 1 argument"));
        }
        lua.create_string(encode::encode(lua, &own, &value)?)
    })?;
    table.raw_set("encode", encode)?;
    let own = Rc::clone(settings);
    let decode = lua.create_function(move |lua, (value, rest): One| {
        if value.is_nil() || !rest.is_empty() {
            return Err(bad_argument(lua, 1, "decode", "expected 1 argument"));
        }
        let text = super::text::string_at(lua, &value, 1, "decode")?;
        decode::decode(lua, &own, &text.as_bytes())
    })?;
    table.raw_set("decode", decode)?;
    add_settings(lua, &table, settings)?;
    let new = lua.create_function(|lua, ()| library(lua, &Rc::new(Settings::new())))?;
    table.raw_set("new", new)?;
    table.raw_set("null", null())?;
    table.raw_set("_NAME", "cjson")?;
    table.raw_set("_VERSION", "2.1.0")?;
    Ok(table)
}

/// One argument, and others that are too many.
type One = (Value, Variadic<Argument>);

fn add_settings(lua: &Lua, table: &Table, settings: &Rc<Settings>) -> mlua::Result<()> {
    let own = Rc::clone(settings);
    let function =
        lua.create_function(move |lua, arguments: (Value, Value, Value, Variadic<Argument>)| {
            let (converts, ratio, safe, rest) = &arguments;
            let name = "encode_sparse_array";
            check_count(lua, rest, 3, name)?;
            Setting { lua, index: 1, name, value: converts }.boolean(&own.converts_sparse)?;
            let most = i64::from(i32::MAX);
            Setting { lua, index: 2, name, value: ratio }.integer(&own.sparse_ratio, 0, most)?;
            Setting { lua, index: 3, name, value: safe }.integer(&own.sparse_safe, 0, most)?;
            let (ratio, safe) = (own.sparse_ratio.get(), own.sparse_safe.get());
            Ok((own.converts_sparse.get(), ratio as f64, safe as f64))
        })?;
    table.raw_set("encode_sparse_array", function)?;
    for (name, most, cell) in [
        ("encode_max_depth", i64::from(i32::MAX), (|it| &it.encode_depth) as Integer),
        ("decode_max_depth", i64::from(i32::MAX), |it| &it.decode_depth),
        ("encode_number_precision", 14, |it| &it.precision),
    ] {
        let own = Rc::clone(settings);
        let function = lua.create_function(move |lua, (value, rest): One| {
            check_count(lua, &rest, 1, name)?;
            let setting = Setting { lua, index: 1, name, value: &value };
            setting.integer(cell(&own), 1, most)?;
            Ok(cell(&own).get() as f64)
        })?;
        table.raw_set(name, function)?;
    }
    let own = Rc::clone(settings);
    let function = lua.create_function(move |lua, (value, rest): One| {
        let name = "encode_keep_buffer";
        check_count(lua, &rest, 1, name)?;
        Setting { lua, index: 1, name, value: &value }.boolean(&own.keeps_buffer)?;
        Ok(own.keeps_buffer.get())
    })?;
    table.raw_set("encode_keep_buffer", function)?;
    let own = Rc::clone(settings);
    let function = lua.create_function(move |lua, (value, rest): One| {
        let name = "encode_invalid_numbers";
        check_count(lua, &rest, 1, name)?;
        let setting = Setting { lua, index: 1, name, value: &value };
        match setting.word(&["off", "on", "null"])? {
            None => {}
            Some(0) => own.encodes_invalid.set(Invalid::Refused),
            Some(1) => own.encodes_invalid.set(Invalid::Written),
            Some(_) => own.encodes_invalid.set(Invalid::Null),
        }
        Ok(match own.encodes_invalid.get() {
            Invalid::Refused => Value::Boolean(false),
            Invalid::Written => Value::Boolean(true),
            Invalid::Null => Value::String(lua.create_string("null")?),
        })
    })?;
    table.raw_set("encode_invalid_numbers", function)?;
    let own = Rc::clone(settings);
    let function = lua.create_function(move |lua, (value, rest): One| {
        let name = "decode_invalid_numbers";
        check_count(lua, &rest, 1, name)?;
        let setting = Setting { lua, index: 1, name, value: &value };
        if let Some(index) = setting.word(&["off", "on"])? {
            own.decodes_invalid.set(index == 1);
        }
        Ok(own.decodes_invalid.get())
    })?;
    table.raw_set("decode_invalid_numbers", function)
}

/// A setting that is an integer.
type Integer = fn(&Settings) -> &Cell<i64>;

fn check_count(lua: &Lua, rest: &Variadic<Argument>, most: usize, name: &str) -> mlua::Result<()> {
    match rest.is_empty() {
        true => Ok(()),
        false => Err(bad_argument(lua, most + 1, name, "found too many arguments")),
    }
}

/// An argument that sets a setting, unless it is nil.
struct Setting<'a> {
    lua: &'a Lua,
    index: usize,
    name: &'static str,
    value: &'a Value,
}

impl Setting<'_> {
    fn boolean(&self, cell: &Cell<bool>) -> mlua::Result<()> {
        match self.value {
            Value::Nil => {}
            Value::Boolean(is_true) => cell.set(*is_true),
            other => {
                let Setting { lua, index, name, .. } = self;
                return Err(wrong_type(lua, *index, name, "boolean", type_of(other)));
            }
        }
        Ok(())
    }

    fn integer(&self, cell: &Cell<i64>, least: i64, most: i64) -> mlua::Result<()> {
        let Setting { lua, index, name, .. } = self;
        let value = self.value;
        if *value == Value::Nil {
            return Ok(());
        }
        let number = super::values::truncated(number_at(lua, value, *index, name)?);
        if !(least..=most).contains(&number) {
            let text = format!("expected integer between {least} and {most}");
            return Err(bad_argument(lua, *index, name, &text));
        }
        cell.set(number);
        Ok(())
    }

    /// Reads one of some words. The first two may be given as false and true.
    fn word(&self, words: &[&str]) -> mlua::Result<Option<usize>> {
        let Setting { lua, index, name, .. } = self;
        let value = self.value;
        match value {
            Value::Nil => return Ok(None),
            Value::Boolean(is_true) => return Ok(Some(usize::from(*is_true))),
            _ => {}
        }
        let text = super::text::string_at(lua, value, *index, name)?;
        let text = text.as_bytes();
        match words.iter().position(|word| word.as_bytes() == &text[..]) {
            Some(place) => Ok(Some(place)),
            None => {
                let text = format!("invalid option '{}'", String::from_utf8_lossy(&text));
                Err(bad_argument(lua, *index, name, &text))
            }
        }
    }
}

/// Returns the error for a value that cannot be written.
fn unwritable(lua: &Lua, kind: &str, why: &str) -> mlua::Error {
    refused(lua, format!("Cannot serialise {kind}: {why}"))
}
