//! Errors that scripts see.
//!
//! An error of a Rust function arrives in Lua as userdata. Wherever a script can meet an error, the
//! prelude turns it into a string or a table with [`convert`].

use mlua::{Error, Lua, Table, Value};
use std::fmt;

/// An error of a function that scripts call.
#[derive(Debug)]
pub(super) enum Failure {
    /// A text, with the place of the call before it.
    Text(Vec<u8>),
    /// An error of a command, or an error in its form: a code, a space, a sentence.
    Reply {
        text: Vec<u8>,
        /// Whether it was counted among the errors of the server already.
        is_counted: bool,
    },
    /// A value that another function of the script raised.
    Value(Value),
    /// The script is ended. No script can go on after it.
    Ended,
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Text(text) | Failure::Reply { text, .. } => {
                formatter.write_str(&String::from_utf8_lossy(text))
            }
            Failure::Value(_) => formatter.write_str("an error of a script"),
            Failure::Ended => formatter.write_str("the script is ended"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        Error::external(failure)
    }
}

/// Returns the error with which a function refuses its arguments. It names the caller's place, as
/// Lua's own functions do.
pub(super) fn refused(lua: &Lua, text: impl AsRef<[u8]>) -> Error {
    let place = lua.inspect_stack(1, |caller| {
        let line = caller.current_line()?;
        Some(format!("{}:{line}: ", caller.source().short_src?))
    });
    let mut message = place.flatten().unwrap_or_default().into_bytes();
    message.extend_from_slice(text.as_ref());
    Failure::Text(message).into()
}

/// Returns the error for a wrong argument.
pub(super) fn bad_argument(lua: &Lua, index: usize, name: &str, why: &str) -> Error {
    refused(lua, format!("bad argument #{index} to '{name}' ({why})"))
}

/// Returns the error for an argument of a wrong type.
pub(super) fn wrong_type(lua: &Lua, index: usize, name: &str, wanted: &str, is: &str) -> Error {
    bad_argument(lua, index, name, &format!("{wanted} expected, got {is}"))
}

/// Returns the failure inside an error, if it has one.
pub(super) fn failure_of(error: &Error) -> Option<&Failure> {
    match error {
        Error::CallbackError { cause, .. } | Error::WithContext { cause, .. } => failure_of(cause),
        error => error.downcast_ref::<Failure>(),
    }
}

/// Returns the text of an error that no function of ours has raised, such as that of full memory.
pub(super) fn text_of(error: &Error) -> Vec<u8> {
    match error {
        Error::CallbackError { cause, .. } | Error::WithContext { cause, .. } => text_of(cause),
        Error::MemoryError(_) => b"not enough memory".to_vec(),
        Error::RuntimeError(text) | Error::SyntaxError { message: text, .. } => {
            text.lines().next().unwrap_or_default().as_bytes().to_vec()
        }
        other => other.to_string().into_bytes(),
    }
}

/// Turns an error into the value that a script sees.
pub(super) fn convert(lua: &Lua, value: Value) -> mlua::Result<Value> {
    let Value::Error(error) = &value else { return Ok(value) };
    match failure_of(error) {
        Some(Failure::Text(text)) => Ok(Value::String(lua.create_string(text)?)),
        Some(Failure::Reply { text, is_counted }) => {
            Ok(Value::Table(error_table(lua, text, *is_counted)?))
        }
        Some(Failure::Value(value)) => Ok(value.clone()),
        Some(Failure::Ended) => Ok(Value::String(lua.create_string("the script is ended")?)),
        None => Ok(Value::String(lua.create_string(text_of(error))?)),
    }
}

/// Returns the table that stands for an error.
pub(super) fn error_table(lua: &Lua, text: &[u8], is_counted: bool) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("err", lua.create_string(text)?)?;
    if is_counted {
        table.raw_set("ignore_error_stats_update", true)?;
    }
    Ok(table)
}

/// Returns the part of a text that C sees: the bytes before a byte 0.
pub(super) fn before_zero(text: &[u8]) -> &[u8] {
    &text[..memchr::memchr(0, text).unwrap_or(text.len())]
}

/// Returns a text without line breaks at its ends.
pub(super) fn without_ends(text: &[u8]) -> &[u8] {
    let is_end = |byte: &u8| matches!(*byte, b'\r' | b'\n');
    let begin = text.iter().position(|byte| !is_end(byte)).unwrap_or(text.len());
    let end = text.iter().rposition(|byte| !is_end(byte)).map_or(begin, |end| end + 1);
    &text[begin..end]
}

/// Adds the code `ERR` to an error's text that has none, in the way of Redis: a text that begins
/// with `-` has a code.
pub(super) fn with_code(text: &[u8]) -> Vec<u8> {
    let text = before_zero(text);
    match text.strip_prefix(b"-").map(without_ends) {
        Some(text) if memchr::memchr(b' ', text).is_some() => text.to_vec(),
        Some(text) => [b"ERR ", text].concat(),
        None => [b"ERR ", without_ends(text)].concat(),
    }
}
