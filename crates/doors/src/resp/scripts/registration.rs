//! `redis.register_function`: the functions of a library while it is loaded.

use super::library::error;
use super::metadata::{BAD_NAME, name_of};
use super::values::general;
use mlua::{Function, Table, Value, Variadic};
use std::collections::BTreeMap;

/// The flags of functions.
const FLAGS: [&str; 5] =
    ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];

/// A function of a library. The table of its library has its code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Registered {
    pub(super) description: Option<Vec<u8>>,
    pub(super) flags: Vec<&'static str>,
}

/// The functions of a library, by their names.
#[derive(Debug, Default)]
pub(super) struct Registration {
    pub(super) functions: BTreeMap<String, Registered>,
}

/// A function as the arguments of a call describe it.
#[derive(Default)]
struct Given {
    name: Option<Vec<u8>>,
    callback: Option<Function>,
    registered: Registered,
}

/// Returns a text, or a number in its place.
fn text_of(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Integer(number) => Some(number.to_string().into_bytes()),
        Value::Number(number) => Some(general(*number, 14).into_bytes()),
        _ => None,
    }
}

impl Given {
    /// Reads the arguments of a call.
    fn of(arguments: &[Value]) -> mlua::Result<Given> {
        match arguments {
            [Value::Table(table)] => Given::of_table(table),
            [_] => Err(error(
                "calling redis.register_function with a single argument is only applicable to Lua \
                 table (representing named arguments).",
            )),
            [name, callback] => {
                let first = "first argument to redis.register_function must be a string";
                let name = text_of(name).ok_or_else(|| error(first))?;
                let Value::Function(callback) = callback else {
                    let text = "second argument to redis.register_function must be a function";
                    return Err(error(text));
                };
                let callback = Some(callback.clone());
                Ok(Given { name: Some(name), callback, ..Given::default() })
            }
            _ => Err(error("wrong number of arguments to redis.register_function")),
        }
    }

    fn of_table(table: &Table) -> mlua::Result<Given> {
        let mut given = Given::default();
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            let key = text_of(&key).ok_or_else(|| {
                error("named argument key given to redis.register_function is not a string")
            })?;
            let wrong = |name: &str, kind: &str| {
                error(&format!("{name} argument given to redis.register_function must be a {kind}"))
            };
            match key.to_ascii_lowercase().as_slice() {
                b"function_name" => {
                    let name = text_of(&value).ok_or_else(|| wrong("function_name", "string"))?;
                    given.name = Some(name);
                }
                b"description" => {
                    let text = text_of(&value).ok_or_else(|| wrong("description", "string"))?;
                    given.registered.description = Some(text);
                }
                b"callback" => {
                    let Value::Function(callback) = value else {
                        return Err(wrong("callback", "function"));
                    };
                    given.callback = Some(callback);
                }
                b"flags" => {
                    let Value::Table(flags) = value else {
                        return Err(error(
                            "flags argument to redis.register_function must be a table \
                             representing function flags",
                        ));
                    };
                    given.registered.flags = flags_of(&flags)?;
                }
                _ => return Err(error("unknown argument given to redis.register_function")),
            }
        }
        Ok(given)
    }
}

/// Reads flags: the elements before the first nil.
fn flags_of(table: &Table) -> mlua::Result<Vec<&'static str>> {
    let mut flags = Vec::new();
    for index in 1.. {
        let value: Value = table.raw_get(index)?;
        if value.is_nil() {
            break;
        }
        let text = text_of(&value).unwrap_or_default();
        let known = FLAGS.into_iter().find(|flag| flag.as_bytes().eq_ignore_ascii_case(&text));
        let flag = known.ok_or_else(|| error("unknown flag given"))?;
        if !flags.contains(&flag) {
            flags.push(flag);
        }
    }
    // Redis shows them in the order of its table.
    flags.sort_by_key(|flag| FLAGS.iter().position(|own| own == flag));
    Ok(flags)
}

impl Registration {
    /// Registers a function. Its code goes into a table.
    pub(super) fn add(
        &mut self,
        arguments: &Variadic<Value>,
        callbacks: &Table,
    ) -> mlua::Result<()> {
        let Given { name, callback, registered } = Given::of(arguments)?;
        let name =
            name.ok_or_else(|| error("redis.register_function must get a function name argument"))?;
        let callback = callback
            .ok_or_else(|| error("redis.register_function must get a callback argument"))?;
        let name = name_of(&name).ok_or_else(|| error(BAD_NAME))?;
        if self.functions.keys().any(|own| own.eq_ignore_ascii_case(name)) {
            return Err(error("Function already exists in the library"));
        }
        callbacks.raw_set(name, callback)?;
        self.functions.insert(name.to_owned(), registered);
        Ok(())
    }
}
