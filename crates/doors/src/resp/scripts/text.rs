//! The functions of the library `string` that Lua's own code could execute for too long, or with
//! too much memory.

use super::failure::{Failure, bad_argument, refused, wrong_type};
use super::limits::Limits;
use super::patterns::{Capture, Matcher, Trouble, is_special, used};
use super::values::BYTES_MAX;
use mlua::{Function, Lua, Table, Value, Variadic};
use std::ops::Range;
use std::rc::Rc;

/// Returns the functions. `protected` is Lua's own `pcall`.
pub(super) fn functions(
    lua: &Lua,
    limits: &Rc<Limits>,
    protected: &Function,
) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let own = Rc::clone(limits);
    let find = lua
        .create_function(move |lua, arguments: Arguments| search(lua, &own, &arguments, "find"))?;
    let own = Rc::clone(limits);
    let matching = lua
        .create_function(move |lua, arguments: Arguments| search(lua, &own, &arguments, "match"))?;
    table.raw_set("find", find)?;
    table.raw_set("match", matching)?;
    for name in ["gmatch", "gfind"] {
        let own = Rc::clone(limits);
        let iterate = lua.create_function(move |lua, (subject, pattern): (Value, Value)| {
            all_matches(lua, &own, (&subject, &pattern), name)
        })?;
        table.raw_set(name, iterate)?;
    }
    let (own, protected) = (Rc::clone(limits), protected.clone());
    let replace = lua.create_function(move |lua, arguments: Arguments| {
        replace(lua, &own, &protected, &arguments)
    })?;
    table.raw_set("gsub", replace)?;
    table.raw_set("rep", lua.create_function(repeat)?)?;
    Ok(table)
}

type Arguments = (Value, Value, Value, Value);

/// Reads an argument that is a string, or a number in its place.
pub(super) fn string_at(
    lua: &Lua,
    value: &Value,
    index: usize,
    name: &str,
) -> mlua::Result<mlua::String> {
    match lua.coerce_string(value.clone())? {
        Some(text) => Ok(text),
        None => Err(wrong_type(lua, index, name, "string", type_of(value))),
    }
}

/// Reads an argument that is a number, or a string in its place.
pub(super) fn number_at(lua: &Lua, value: &Value, index: usize, name: &str) -> mlua::Result<f64> {
    match lua.coerce_number(value.clone())? {
        Some(number) => Ok(number),
        None => Err(wrong_type(lua, index, name, "number", type_of(value))),
    }
}

/// Returns the name of a value's type, for errors.
pub(super) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Nil => "no value",
        Value::Boolean(_) => "boolean",
        Value::LightUserData(_) | Value::UserData(_) | Value::Error(_) | Value::Other(_) => {
            "userdata"
        }
        Value::Integer(_) | Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Table(_) => "table",
        Value::Function(_) => "function",
        Value::Thread(_) => "thread",
    }
}

fn error_of(lua: &Lua, trouble: Trouble) -> mlua::Error {
    match trouble {
        Trouble::Pattern(text) => refused(lua, text),
        Trouble::Ended(error) => error,
    }
}

/// Returns the values of captures.
fn values_of(lua: &Lua, subject: &[u8], captures: &[Capture]) -> mlua::Result<Vec<Value>> {
    captures.iter().map(|capture| value_of(lua, subject, *capture)).collect()
}

fn value_of(lua: &Lua, subject: &[u8], capture: Capture) -> mlua::Result<Value> {
    Ok(match capture {
        Capture::Position(at) | Capture::Open(at) => Value::Number((at + 1) as f64),
        Capture::Text(begin, end) => {
            let text = subject.get(begin..end).unwrap_or_default();
            Value::String(lua.create_string(text)?)
        }
    })
}

fn search(
    lua: &Lua,
    limits: &Rc<Limits>,
    (subject, pattern, from, is_plain): &Arguments,
    name: &'static str,
) -> mlua::Result<Variadic<Value>> {
    let subject = string_at(lua, subject, 1, name)?;
    let pattern = string_at(lua, pattern, 2, name)?;
    let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
    let from = match from {
        Value::Nil => 1.0,
        from => number_at(lua, from, 3, name)?.trunc(),
    };
    let from = if from < 0.0 { from + subject.len() as f64 } else { from - 1.0 };
    let from = (from.max(0.0) as usize).min(subject.len());
    let is_find = name == "find";
    let is_plain = !matches!(is_plain, Value::Nil | Value::Boolean(false));
    if is_find && (is_plain || !is_special(&pattern)) {
        limits.work(lua, (subject.len() / 64) as u32)?;
        let found = memchr::memmem::find(&subject[from..], &pattern);
        return Ok(match found {
            Some(at) => {
                let begin = (from + at + 1) as f64;
                let end = (from + at + pattern.len()) as f64;
                Variadic::from(vec![Value::Number(begin), Value::Number(end)])
            }
            None => Variadic::from(vec![Value::Nil]),
        });
    }
    let work = |steps| limits.work(lua, steps);
    let mut matcher = Matcher::new(&subject, &pattern, &work);
    let is_anchored = pattern.first() == Some(&b'^');
    let found = matcher.search(from, is_anchored).map_err(|trouble| error_of(lua, trouble))?;
    let Some(found) = found else { return Ok(Variadic::from(vec![Value::Nil])) };
    let captures = if is_find { matcher.own_captures() } else { matcher.captures(&found) };
    let captures = captures.map_err(|trouble| error_of(lua, trouble))?;
    let mut values = Vec::new();
    if is_find {
        values.push(Value::Number((found.start + 1) as f64));
        values.push(Value::Number(found.end as f64));
    }
    values.extend(values_of(lua, &subject, &captures)?);
    Ok(Variadic::from(values))
}

fn all_matches(
    lua: &Lua,
    limits: &Rc<Limits>,
    (subject, pattern): (&Value, &Value),
    name: &'static str,
) -> mlua::Result<Function> {
    let subject = string_at(lua, subject, 1, name)?;
    let pattern = string_at(lua, pattern, 2, name)?;
    let limits = Rc::clone(limits);
    let mut from = 0;
    // The strings stay alive as upvalues would: the function refers to them.
    lua.create_function_mut(move |lua, ()| {
        let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
        let work = |steps| limits.work(lua, steps);
        let mut matcher = Matcher::new(&subject, &pattern, &work);
        let found = matcher.search(from, false).map_err(|trouble| error_of(lua, trouble))?;
        let Some(found) = found else {
            from = subject.len() + 1;
            return Ok(Variadic::from(vec![Value::Nil]));
        };
        from = found.end + usize::from(found.is_empty());
        let captures = matcher.captures(&found).map_err(|trouble| error_of(lua, trouble))?;
        Ok(Variadic::from(values_of(lua, &subject, &captures)?))
    })
}

fn replace(
    lua: &Lua,
    limits: &Rc<Limits>,
    protected: &Function,
    (subject, pattern, by, most): &Arguments,
) -> mlua::Result<(mlua::String, f64)> {
    let name = "gsub";
    let subject = string_at(lua, subject, 1, name)?;
    let pattern = string_at(lua, pattern, 2, name)?;
    let by = match by {
        Value::Integer(_) | Value::Number(_) => Value::String(string_at(lua, by, 3, name)?),
        Value::String(_) | Value::Table(_) | Value::Function(_) => by.clone(),
        _ => return Err(bad_argument(lua, 3, name, "string/function/table expected")),
    };
    let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
    let most = match most {
        Value::Nil => subject.len() as f64 + 1.0,
        most => number_at(lua, most, 4, name)?,
    };
    let work = |steps| limits.work(lua, steps);
    let mut matcher = Matcher::new(&subject, &pattern, &work);
    let is_anchored = used(&pattern).first() == Some(&b'^');
    let (mut out, mut at, mut count) = (Vec::new(), 0, 0.0);
    while count < most.trunc() {
        let end = matcher.matches(at, usize::from(is_anchored));
        let end = end.map_err(|trouble| error_of(lua, trouble))?;
        if let Some(end) = end {
            count += 1.0;
            let found = Replaced { lua, subject: &subject, whole: at..end };
            found.add(&matcher, protected, &by, &mut out)?;
        }
        match end {
            Some(end) if end > at => at = end,
            _ => match subject.get(at) {
                Some(byte) => {
                    out.push(*byte);
                    at += 1;
                }
                None => break,
            },
        }
        if out.len() > BYTES_MAX {
            return Err(refused(lua, "not enough memory"));
        }
        if is_anchored {
            break;
        }
    }
    out.extend_from_slice(subject.get(at..).unwrap_or_default());
    Ok((lua.create_string(&out)?, count))
}

/// A match that is replaced.
struct Replaced<'a> {
    lua: &'a Lua,
    subject: &'a [u8],
    whole: Range<usize>,
}

impl Replaced<'_> {
    fn add(
        &self,
        matcher: &Matcher<'_>,
        protected: &Function,
        by: &Value,
        out: &mut Vec<u8>,
    ) -> mlua::Result<()> {
        let Replaced { lua, subject, whole } = self;
        let fails = |trouble| error_of(lua, trouble);
        let value = match by {
            Value::String(text) => return self.add_text(matcher, &text.as_bytes(), out),
            Value::Table(table) => {
                let capture = matcher.capture(0, whole).map_err(fails)?;
                table.get(value_of(lua, subject, capture)?)?
            }
            Value::Function(function) => {
                let captures = matcher.captures(whole).map_err(fails)?;
                let mut arguments = vec![Value::Function(function.clone())];
                arguments.extend(values_of(lua, subject, &captures)?);
                // An error must stay the value that it is.
                let (is_done, value): (bool, Value) = protected.call(Variadic::from(arguments))?;
                match (is_done, value) {
                    (true, value) => value,
                    (false, Value::Error(error)) => return Err(*error),
                    (false, value) => return Err(Failure::Value(value).into()),
                }
            }
            _ => Value::Nil,
        };
        match value {
            Value::Nil | Value::Boolean(false) => out.extend_from_slice(&subject[whole.clone()]),
            Value::String(text) => out.extend_from_slice(&text.as_bytes()),
            Value::Integer(_) | Value::Number(_) => {
                let text = lua.coerce_string(value)?;
                if let Some(text) = text {
                    out.extend_from_slice(&text.as_bytes());
                }
            }
            other => {
                let text = format!("invalid replacement value (a {})", type_of(&other));
                return Err(refused(lua, text));
            }
        }
        Ok(())
    }

    fn add_text(&self, matcher: &Matcher<'_>, text: &[u8], out: &mut Vec<u8>) -> mlua::Result<()> {
        let Replaced { lua, subject, whole } = self;
        let mut bytes = text.iter();
        while let Some(byte) = bytes.next() {
            match byte {
                b'%' => match bytes.next() {
                    None => out.push(0),
                    Some(b'0') => out.extend_from_slice(&subject[whole.clone()]),
                    Some(digit @ b'1'..=b'9') => {
                        let capture = matcher.capture(usize::from(digit - b'1'), whole);
                        match capture.map_err(|trouble| error_of(lua, trouble))? {
                            Capture::Text(begin, end) => {
                                out.extend_from_slice(&subject[begin..end]);
                            }
                            Capture::Position(at) | Capture::Open(at) => {
                                out.extend_from_slice((at + 1).to_string().as_bytes());
                            }
                        }
                    }
                    Some(byte) => out.push(*byte),
                },
                byte => out.push(*byte),
            }
        }
        Ok(())
    }
}

fn repeat(lua: &Lua, (text, count): (Value, Value)) -> mlua::Result<mlua::String> {
    let text = string_at(lua, &text, 1, "rep")?;
    let count = number_at(lua, &count, 2, "rep")?.max(0.0);
    let text = text.as_bytes();
    if text.is_empty() {
        return lua.create_string("");
    }
    if count * text.len() as f64 > BYTES_MAX as f64 {
        return Err(Failure::Text(b"not enough memory".to_vec()).into());
    }
    lua.create_string(text.repeat(count as usize))
}
