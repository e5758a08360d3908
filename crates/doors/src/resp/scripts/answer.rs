//! The value that a script returns, as a reply.

use super::failure::{before_zero, without_ends};
use super::limits::Limits;
use super::values::truncated;
use crate::resp::context::Context;
use crate::resp::stop::{Done, Stop};
use crate::resp::writer::Version;
use mlua::{Lua, Table, Value};
use std::rc::Rc;

/// The greatest depth of a table.
const DEPTH_MAX: usize = 200;

/// Writes a value. `version` is that of replies in the script.
pub(super) fn write(
    context: &mut Context<'_>,
    (lua, limits): (&Lua, &Rc<Limits>),
    value: &Value,
    version: Version,
) -> Done {
    let mut answer = Answer { context, lua, limits, version };
    answer.put(value, 0)
}

struct Answer<'a, 'c> {
    context: &'a mut Context<'c>,
    lua: &'a Lua,
    limits: &'a Rc<Limits>,
    version: Version,
}

/// Returns the error for a value that the interpreter does not give.
fn failed(error: &mlua::Error) -> Stop {
    Stop::error_of([b"ERR ", &super::failure::text_of(error)[..]].concat())
}

/// Returns a number.
fn number_of(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Number(number) => Some(*number),
        _ => None,
    }
}

fn without_breaks(text: &[u8]) -> Vec<u8> {
    let shown = |byte: &u8| if matches!(*byte, b'\r' | b'\n') { b' ' } else { *byte };
    text.iter().map(shown).collect()
}

impl Answer<'_, '_> {
    fn put(&mut self, value: &Value, depth: usize) -> Done {
        self.context.check_reply()?;
        if self.limits.work(self.lua, 1).is_err() {
            return Err(self.limits.finish().unwrap_or(Stop::error("ERR The script was ended")));
        }
        match value {
            Value::String(text) => self.context.reply.string(&text.as_bytes()),
            Value::Boolean(is_true) => match (self.version, is_true) {
                (Version::Three, _) => self.context.reply.boolean(*is_true),
                (Version::Two, true) => self.context.reply.integer(1),
                (Version::Two, false) => self.context.reply.null(),
            },
            Value::Integer(number) => self.context.reply.integer(*number),
            Value::Number(number) => self.context.reply.integer(truncated(*number)),
            Value::Table(table) => return self.table(table, depth),
            _ => self.context.reply.null(),
        }
        Ok(())
    }

    fn field(table: &Table, name: &str) -> Result<Value, Stop> {
        table.raw_get(name).map_err(|error| failed(&error))
    }

    fn table(&mut self, table: &Table, depth: usize) -> Done {
        if depth >= DEPTH_MAX {
            return Err(Stop::error("ERR reached lua stack limit"));
        }
        if let Value::String(_) = Self::field(table, "err")? {
            return write_error(self.context, table);
        }
        if let Value::String(text) = Self::field(table, "ok")? {
            self.context.reply.status(before_zero(&text.as_bytes()));
            return Ok(());
        }
        if let Some(number) = number_of(&Self::field(table, "double")?) {
            self.context.reply.double(number);
            return Ok(());
        }
        if let Value::Table(map) = Self::field(table, "map")? {
            return self.pairs(&map, depth, true);
        }
        if let Value::Table(set) = Self::field(table, "set")? {
            return self.pairs(&set, depth, false);
        }
        if let Value::String(text) = Self::field(table, "big_number")? {
            let digits = without_breaks(&text.as_bytes());
            self.context.reply.big_number(&digits);
            return Ok(());
        }
        if let Value::Table(verbatim) = Self::field(table, "verbatim_string")? {
            let format = Self::field(&verbatim, "format")?;
            let text = Self::field(&verbatim, "string")?;
            if let (Value::String(format), Value::String(text)) = (format, text) {
                let mut three = [b' '; 3];
                for (to, from) in three.iter_mut().zip(format.as_bytes().iter()) {
                    *to = *from;
                }
                self.context.reply.verbatim(three, &text.as_bytes());
                return Ok(());
            }
        }
        self.array(table, depth)
    }

    /// Writes the elements before the first nil.
    fn array(&mut self, table: &Table, depth: usize) -> Done {
        let at = |index: usize| -> Result<Value, Stop> {
            table.raw_get(index as f64).map_err(|error| failed(&error))
        };
        let mut count = 0;
        while !at(count + 1)?.is_nil() {
            count += 1;
        }
        self.context.reply.array(count);
        for index in 1..=count {
            self.put(&at(index)?, depth + 1)?;
        }
        Ok(())
    }

    /// Writes a map, or the keys of a table as a set.
    fn pairs(&mut self, table: &Table, depth: usize, is_map: bool) -> Done {
        let count = table.pairs::<Value, Value>().count();
        match is_map {
            true => self.context.reply.map(count),
            false => self.context.reply.set(count),
        }
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair.map_err(|error| failed(&error))?;
            self.put(&key, depth + 1)?;
            if is_map {
                self.put(&value, depth + 1)?;
            }
        }
        Ok(())
    }
}

/// Writes the error that a table stands for.
fn write_error(context: &mut Context<'_>, table: &Table) -> Done {
    let (text, is_counted) = error_of(table).map_err(|error| failed(&error))?;
    put_error(context, text, is_counted);
    Ok(())
}

/// Writes an error. It is counted unless that was done when a command failed.
pub(super) fn put_error(context: &mut Context<'_>, text: Vec<u8>, is_counted: bool) {
    match is_counted {
        true => context.reply.error(&text),
        false => {
            let error = Stop::error_of(text);
            context.state.write_error(&error, &mut context.reply);
        }
    }
}

/// Returns the text of the error that a table stands for, and whether it was counted.
pub(super) fn error_of(table: &Table) -> mlua::Result<(Vec<u8>, bool)> {
    let text = match table.raw_get("err")? {
        Value::String(text) => without_ends(before_zero(&text.as_bytes())).to_vec(),
        _ => b"ERR unknown error".to_vec(),
    };
    let is_counted = matches!(table.raw_get("ignore_error_stats_update")?, Value::Boolean(true));
    Ok((text, is_counted))
}
