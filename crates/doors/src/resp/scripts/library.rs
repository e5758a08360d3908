//! The library `redis`, without the functions that execute commands.

use super::failure::{Failure, error_table, with_code};
use super::values::{Argument, truncated};
use crate::resp::client::Queued;
use crate::resp::commands::Names;
use crate::resp::connection::REDIS_VERSION;
use crate::resp::number::integer_of;
use crate::resp::parser::Arguments;
use crate::resp::writer::Version;
use mlua::{Lua, Table, Variadic};
use sha1::{Digest, Sha1};
use std::cell::Cell;
use std::rc::Rc;

/// The version that `REDIS_VERSION_NUM` shows: a byte for each part.
const REDIS_VERSION_NUMBER: i64 = 0x0007_0404;

/// The levels of `redis.log`.
const LEVELS: [(&str, i64); 4] =
    [("LOG_DEBUG", 0), ("LOG_VERBOSE", 1), ("LOG_NOTICE", 2), ("LOG_WARNING", 3)];

/// The ways of replication, which have no meaning here.
const REPLICATION: [(&str, i64); 5] =
    [("REPL_NONE", 0), ("REPL_AOF", 1), ("REPL_SLAVE", 2), ("REPL_REPLICA", 2), ("REPL_ALL", 3)];

type Given = Variadic<Argument>;

/// Returns the digest of some bytes in hexadecimal digits.
pub(super) fn digest(bytes: &[u8]) -> String {
    Sha1::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the error that a function of the library raises.
pub(super) fn error(text: &str) -> mlua::Error {
    let text = [b"ERR ", text.as_bytes()].concat();
    Failure::Reply { text, is_counted: false }.into()
}

/// Returns an argument's text: a string, or a number.
fn text_of(argument: &Argument) -> Option<Vec<u8>> {
    match argument {
        Argument::Text(text) => Some(text.clone()),
        Argument::Number(number) => Some(super::values::general(*number, 14).into_bytes()),
        Argument::Other(_) => None,
    }
}

/// Returns the library.
pub(super) fn library(lua: &Lua, version: &Rc<Cell<Version>>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("sha1hex", lua.create_function(|_, given: Given| sha1hex(&given))?)?;
    let reply = |lua: &Lua, given: Given| single(lua, &given, "err");
    table.raw_set("error_reply", lua.create_function(reply)?)?;
    let reply = |lua: &Lua, given: Given| single(lua, &given, "ok");
    table.raw_set("status_reply", lua.create_function(reply)?)?;
    table.raw_set("log", lua.create_function(|_, given: Given| log(&given))?)?;
    let own = Rc::clone(version);
    let set = lua.create_function(move |_, given: Given| {
        let [given] = &given[..] else {
            return Err(error("redis.setresp() requires one argument."));
        };
        let number = match given {
            Argument::Number(number) => truncated(*number),
            Argument::Text(text) => integer_of(text).unwrap_or(0),
            Argument::Other(_) => 0,
        };
        own.set(match number {
            2 => Version::Two,
            3 => Version::Three,
            _ => return Err(error("RESP version must be 2 or 3.")),
        });
        Ok(())
    })?;
    table.raw_set("setresp", set)?;
    table.raw_set("set_repl", lua.create_function(|_, given: Given| set_repl(&given))?)?;
    table.raw_set("replicate_commands", lua.create_function(|_, _: Given| Ok(true))?)?;
    table.raw_set("breakpoint", lua.create_function(|_, _: Given| Ok(false))?)?;
    table.raw_set("debug", lua.create_function(|_, _: Given| Ok(()))?)?;
    table.raw_set("REDIS_VERSION", REDIS_VERSION)?;
    table.raw_set("REDIS_VERSION_NUM", REDIS_VERSION_NUMBER)?;
    for (name, number) in LEVELS.into_iter().chain(REPLICATION) {
        table.raw_set(name, number)?;
    }
    Ok(table)
}

fn sha1hex(given: &Given) -> mlua::Result<String> {
    match &given[..] {
        [given] => Ok(digest(&text_of(given).unwrap_or_default())),
        _ => Err(error("wrong number of arguments")),
    }
}

/// Returns a table with one field, which stands for a reply.
fn single(lua: &Lua, given: &Given, field: &str) -> mlua::Result<Table> {
    let [Argument::Text(text)] = &given[..] else {
        return error_table(lua, b"ERR wrong number or type of arguments", false);
    };
    if field == "err" {
        let text = if text.starts_with(b"-") { text.clone() } else { [b"-", &text[..]].concat() };
        return error_table(lua, &with_code(&text), false);
    }
    let table = lua.create_table()?;
    table.raw_set(field, lua.create_string(text)?)?;
    Ok(table)
}

/// Checks the arguments of a line for the log. Scripts have no log here.
fn log(given: &Given) -> mlua::Result<()> {
    let [level, _, ..] = &given[..] else {
        return Err(error("redis.log() requires two arguments or more."));
    };
    let Argument::Number(level) = level else {
        return Err(error("First argument must be a number (log level)."));
    };
    let known = LEVELS.iter().any(|(_, own)| *own == *level as i64);
    if known { Ok(()) } else { Err(error("Invalid log level.")) }
}

fn set_repl(given: &Given) -> mlua::Result<()> {
    let [given] = &given[..] else {
        return Err(error("redis.set_repl() requires one argument."));
    };
    match given {
        Argument::Number(flags) if !(0..=3).contains(&(*flags as i64)) => Err(error(
            "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
        )),
        _ => Ok(()),
    }
}

/// Returns the command whose rights a script asks for.
pub(super) fn named_command(names: &Names, given: &[Argument]) -> mlua::Result<Queued> {
    if given.is_empty() {
        return Err(error("Please specify at least one argument for this redis lib call"));
    }
    let words: Option<Vec<Vec<u8>>> = given.iter().map(text_of).collect();
    let Some(words) = words else {
        return Err(error("Lua redis lib command arguments must be strings or integers"));
    };
    let (mut bytes, mut places) = (Vec::new(), Vec::new());
    for word in &words {
        places.push(bytes.len()..bytes.len() + word.len());
        bytes.extend_from_slice(word);
    }
    let arguments = Arguments::new(&bytes, &places);
    match names.known(&arguments) {
        Some(command) if command.takes(places.len()) => Ok(Queued::new(command, &arguments)),
        Some(_) => Err(error("Wrong number of args calling Redis command from script")),
        None => Err(error("Invalid command passed to redis.acl_check_cmd()")),
    }
}
