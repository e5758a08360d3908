//! Writes JSON.

use super::super::failure::refused;
use super::super::text::type_of;
use super::super::values::{BYTES_MAX, general};
use super::{DEPTH_MAX, Invalid, Settings, unwritable};
use mlua::{Lua, Table, Value};

/// Returns the text of a value.
pub(super) fn encode(lua: &Lua, settings: &Settings, value: &Value) -> mlua::Result<Vec<u8>> {
    let mut encoder = Encoder { lua, settings, out: Vec::new() };
    encoder.put(value, 0)?;
    Ok(encoder.out)
}

struct Encoder<'a> {
    lua: &'a Lua,
    settings: &'a Settings,
    out: Vec<u8>,
}

impl Encoder<'_> {
    fn put(&mut self, value: &Value, depth: i64) -> mlua::Result<()> {
        if self.out.len() > BYTES_MAX {
            return Err(refused(self.lua, "not enough memory"));
        }
        match value {
            Value::Nil => self.out.extend_from_slice(b"null"),
            Value::LightUserData(null) if null.0.is_null() => self.out.extend_from_slice(b"null"),
            Value::Boolean(true) => self.out.extend_from_slice(b"true"),
            Value::Boolean(false) => self.out.extend_from_slice(b"false"),
            Value::Integer(number) => self.put_number(*number as f64)?,
            Value::Number(number) => self.put_number(*number)?,
            Value::String(text) => self.put_text(&text.as_bytes()),
            Value::Table(table) => self.put_table(table, depth + 1)?,
            other => return Err(unwritable(self.lua, type_of(other), "type not supported")),
        }
        Ok(())
    }

    fn put_number(&mut self, number: f64) -> mlua::Result<()> {
        if !number.is_finite() {
            match self.settings.encodes_invalid.get() {
                Invalid::Refused => {
                    return Err(unwritable(self.lua, "number", "must not be NaN or Inf"));
                }
                Invalid::Written if number.is_nan() => {
                    self.out.extend_from_slice(b"nan");
                    return Ok(());
                }
                Invalid::Written => {}
                Invalid::Null => {
                    self.out.extend_from_slice(b"null");
                    return Ok(());
                }
            }
        }
        let digits = self.settings.precision.get().clamp(1, 17) as usize;
        self.out.extend_from_slice(general(number, digits).as_bytes());
        Ok(())
    }

    fn put_text(&mut self, text: &[u8]) {
        self.out.push(b'"');
        for byte in text {
            match *byte {
                byte @ (b'"' | b'\\' | b'/') => self.out.extend([b'\\', byte]),
                8 => self.out.extend_from_slice(b"\\b"),
                9 => self.out.extend_from_slice(b"\\t"),
                10 => self.out.extend_from_slice(b"\\n"),
                12 => self.out.extend_from_slice(b"\\f"),
                13 => self.out.extend_from_slice(b"\\r"),
                byte @ (0..32 | 127) => {
                    self.out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                }
                byte => self.out.push(byte),
            }
        }
        self.out.push(b'"');
    }

    fn put_table(&mut self, table: &Table, depth: i64) -> mlua::Result<()> {
        if depth > self.settings.encode_depth.get() || depth > DEPTH_MAX {
            let text = format!("Cannot serialise, excessive nesting ({depth})");
            return Err(refused(self.lua, text));
        }
        match self.array_length(table)? {
            Some(length) if length > 0.0 => self.put_array(table, length, depth),
            _ => self.put_object(table, depth),
        }
    }

    /// Returns the last index of a table that is an array.
    fn array_length(&self, table: &Table) -> mlua::Result<Option<f64>> {
        let (mut last, mut count) = (0.0f64, 0.0);
        for pair in table.pairs::<Value, Value>() {
            let (key, _) = pair?;
            let key = match key {
                Value::Integer(key) => key as f64,
                Value::Number(key) => key,
                _ => return Ok(None),
            };
            if key < 1.0 || key.fract() != 0.0 {
                return Ok(None);
            }
            last = last.max(key);
            count += 1.0;
        }
        let Settings { sparse_ratio, sparse_safe, converts_sparse, .. } = self.settings;
        let ratio = sparse_ratio.get() as f64;
        let is_sparse = ratio > 0.0 && last > count * ratio && last > sparse_safe.get() as f64;
        if !is_sparse {
            return Ok(Some(last));
        }
        match converts_sparse.get() {
            true => Ok(None),
            false => Err(unwritable(self.lua, "table", "excessively sparse array")),
        }
    }

    fn put_array(&mut self, table: &Table, length: f64, depth: i64) -> mlua::Result<()> {
        self.out.push(b'[');
        let mut index = 1.0;
        while index <= length {
            if index > 1.0 {
                self.out.push(b',');
            }
            let value: Value = table.raw_get(index)?;
            self.put(&value, depth)?;
            index += 1.0;
        }
        self.out.push(b']');
        Ok(())
    }

    fn put_object(&mut self, table: &Table, depth: i64) -> mlua::Result<()> {
        self.out.push(b'{');
        let mut is_first = true;
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            if !std::mem::take(&mut is_first) {
                self.out.push(b',');
            }
            match key {
                Value::Integer(_) | Value::Number(_) => {
                    self.out.push(b'"');
                    self.put(&key, depth)?;
                    self.out.push(b'"');
                }
                Value::String(text) => self.put_text(&text.as_bytes()),
                other => {
                    let why = "table key must be a number or string";
                    return Err(unwritable(self.lua, type_of(&other), why));
                }
            }
            self.out.push(b':');
            self.put(&value, depth)?;
        }
        self.out.push(b'}');
        Ok(())
    }
}
