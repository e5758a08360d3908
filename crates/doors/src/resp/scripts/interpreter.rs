//! The interpreter of a server's scripts, and its sandbox.
//!
//! One interpreter executes all scripts. They share nothing: their globals are read-only, and a
//! prelude in Lua hides all functions that could change another script's world, or the machine's.

use super::compiled::{Compiled, Program};
use super::failure::{convert, failure_of, refused, text_of};
use super::limits::{Limits, ScriptClock};
use super::{bits, json, library, messages, random, structs, text};
use crate::resp::stop::Stop;
use crate::resp::writer::Version;
use mlua::{ChunkMode, Function, Lua, LuaOptions, StdLib, Table, Value, Variadic};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// The most memory that scripts and their values use.
const MEMORY_BYTES_MAX: usize = 64 << 20;

/// The growth of the memory after which garbage is collected.
const GROWTH_BYTES_MAX: usize = MEMORY_BYTES_MAX / 4;

/// The most memory in which further scripts are loaded. The rest is for their values.
const LOADED_BYTES_MAX: usize = MEMORY_BYTES_MAX / 2;

/// The first byte of compiled code, which is refused.
const BYTECODE: u8 = 0x1b;

/// The name of scripts in errors.
const CHUNK: &str = "@user_script";

/// The name of the prelude in errors.
const PRELUDE: &str = "=prelude";

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Interpreter {
    lua: Lua,
    compiled: Rc<Compiled>,
    /// The memory after the last collection of garbage.
    collected_bytes: Cell<usize>,
    environment: Table,
    globals: Table,
    /// The functions of Redis, behind the read-only table.
    redis: Table,
    /// Lua's own `xpcall`.
    protected: Function,
    handler: Function,
    tidy: Function,
    pub(super) limits: Rc<Limits>,
    /// The version of replies that a script asked for.
    pub(super) version: Rc<Cell<Version>>,
    random: Rc<random::State>,
    json: Rc<json::Settings>,
}

/// The functions that a script calls to execute commands.
pub(super) struct Calls {
    pub(super) call: Function,
    pub(super) pcall: Function,
}

/// The outcome of a script.
pub(super) enum Outcome {
    Value(Value),
    /// The script raised an error.
    Error(Value),
    /// The script was ended.
    Ended(Stop),
}

impl Interpreter {
    pub(super) fn new(clock: &ScriptClock) -> mlua::Result<Interpreter> {
        let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        let limits = Rc::new(Limits::new(clock.clone()));
        let own = lua.globals();
        let protected: Function = own.raw_get("xpcall")?;
        let pcall: Function = own.raw_get("pcall")?;
        let handler = lua.create_function(on_error)?;
        let version = Rc::new(Cell::new(Version::Two));
        let random = Rc::new(random::State::default());
        let json = Rc::new(json::Settings::new());
        let redis = library::library(&lua, &version)?;

        let host = lua.create_table()?;
        host.raw_set("convert", lua.create_function(convert)?)?;
        host.raw_set("handler", &handler)?;
        host.raw_set("string", text::functions(&lua, &limits, &pcall)?)?;
        host.raw_set("math", random::functions(&lua, &random)?)?;
        let os = lua.create_table()?;
        let passed = Rc::clone(&limits);
        let clock = lua.create_function(move |_, ()| Ok(passed.elapsed().as_secs_f64()))?;
        os.raw_set("clock", clock)?;
        let own_libraries = lua.create_table()?;
        own_libraries.raw_set("redis", &redis)?;
        own_libraries.raw_set("os", os)?;
        own_libraries.raw_set("bit", bits::library(&lua)?)?;
        own_libraries.raw_set("cjson", json::library(&lua, &json)?)?;
        own_libraries.raw_set("cmsgpack", messages::library(&lua)?)?;
        own_libraries.raw_set("struct", structs::library(&lua)?)?;
        host.raw_set("libraries", own_libraries)?;
        // The environment is known when the prelude is done.
        let environment: Rc<Cell<Option<Table>>> = Rc::default();
        let known = Rc::clone(&environment);
        let load = lua.create_function(move |lua, (text, name): (Value, Value)| {
            let environment = known.take();
            known.set(environment.clone());
            load_string(lua, environment, &text, &name)
        })?;
        host.raw_set("loadstring", load)?;

        let prelude = lua.load(include_str!("prelude.lua")).set_name(PRELUDE);
        let (front, globals, tidy): (Table, Table, Function) = prelude.call(host)?;
        environment.set(Some(front.clone()));
        lua.set_memory_limit(MEMORY_BYTES_MAX)?;
        Ok(Interpreter {
            compiled: Rc::new(Compiled::new(&lua)?),
            collected_bytes: Cell::new(0),
            lua,
            environment: front,
            globals,
            redis,
            protected,
            handler,
            tidy,
            limits,
            version,
            random,
            json,
        })
    }

    pub(super) fn lua(&self) -> &Lua {
        &self.lua
    }

    /// Compiles a script.
    ///
    /// # Errors
    /// The reason.
    pub(super) fn compile(&self, script: &[u8]) -> Result<Program, Vec<u8>> {
        if script.first() == Some(&BYTECODE) {
            return Err(b"user_script:1: unexpected symbol near 'char(27)'".to_vec());
        }
        let compiled = compile(&self.lua, script, CHUNK, &self.environment);
        compiled.and_then(|it| self.compiled.keep(it)).map_err(|error| text_of(&error))
    }

    /// Whether there is memory for a further script that stays.
    pub(super) fn has_memory(&self) -> mlua::Result<bool> {
        if self.lua.used_memory() > LOADED_BYTES_MAX {
            self.collect()?;
        }
        Ok(self.lua.used_memory() <= LOADED_BYTES_MAX)
    }

    fn collect(&self) -> mlua::Result<()> {
        self.lua.gc_collect()?;
        self.collected_bytes.set(self.lua.used_memory());
        Ok(())
    }

    /// Executes a script.
    pub(super) fn run(
        &self,
        script: &Function,
        (keys, arguments): (&[&[u8]], &[&[u8]]),
        calls: &Calls,
        (time, seed): (Duration, u64),
    ) -> mlua::Result<Outcome> {
        self.version.set(Version::Two);
        self.random.seed(seed as i32);
        self.json.reset();
        self.limits.begin(&self.lua, time)?;
        self.redis.raw_set("call", &calls.call)?;
        self.redis.raw_set("pcall", &calls.pcall)?;
        self.globals.raw_set("KEYS", self.list(keys)?)?;
        self.globals.raw_set("ARGV", self.list(arguments)?)?;
        let result = self.protected.call((script, &self.handler));
        if let Some(reason) = self.limits.finish() {
            return Ok(Outcome::Ended(reason));
        }
        let (is_done, value): (bool, Value) = result?;
        Ok(if is_done { Outcome::Value(value) } else { Outcome::Error(value) })
    }

    /// Removes the leftovers of a script.
    pub(super) fn finish(&self) -> mlua::Result<()> {
        self.lua.remove_global_hook();
        self.globals.raw_set("KEYS", Value::Nil)?;
        self.globals.raw_set("ARGV", Value::Nil)?;
        self.tidy.call::<()>(())?;
        // Loaded scripts are no garbage: they must not cause a collection after each script.
        if self.lua.used_memory() > self.collected_bytes.get() + GROWTH_BYTES_MAX {
            self.collect()?;
        }
        Ok(())
    }

    fn list(&self, texts: &[&[u8]]) -> mlua::Result<Table> {
        let table = self.lua.create_table_with_capacity(texts.len(), 0)?;
        for (index, text) in texts.iter().enumerate() {
            table.raw_set(index + 1, self.lua.create_string(text)?)?;
        }
        Ok(table)
    }
}

fn compile(lua: &Lua, text: &[u8], name: &str, environment: &Table) -> mlua::Result<Function> {
    let chunk = lua.load(text).set_name(name).set_mode(ChunkMode::Text);
    chunk.set_environment(environment.clone()).into_function()
}

/// Compiles a text for a script: returns a function, or nil and the reason.
fn load_string(
    lua: &Lua,
    environment: Option<Table>,
    text: &Value,
    name: &Value,
) -> mlua::Result<Variadic<Value>> {
    let text = text::string_at(lua, text, 1, "loadstring")?;
    let text = text.as_bytes();
    let name = match name {
        Value::Nil => String::from_utf8_lossy(&text).into_owned(),
        name => text::string_at(lua, name, 2, "loadstring")?.to_string_lossy(),
    };
    let Some(environment) = environment else {
        return Err(refused(lua, "this cannot be called yet"));
    };
    let reason = match text.first() {
        Some(&BYTECODE) => b"attempt to load chunk with wrong mode".to_vec(),
        _ => match compile(lua, &text, &name, &environment) {
            Ok(function) => return Ok(Variadic::from(vec![Value::Function(function)])),
            Err(error) => text_of(&error),
        },
    };
    let reason = Value::String(lua.create_string(reason)?);
    Ok(Variadic::from(vec![Value::Nil, reason]))
}

/// Returns the source and the line of the part of the script that raised an error.
fn place(lua: &Lua) -> Option<(String, Option<usize>)> {
    // Level 0 is the handler. Functions that are not of the script are skipped.
    for level in 1..64 {
        let found = lua.inspect_stack(level, |frame| {
            let source = frame.source();
            let name = source.source.unwrap_or_default().into_owned();
            // A function that calls another one as its last act leaves only a trace.
            let is_skipped = matches!(source.what, "C" | "tail") || name == PRELUDE;
            (is_skipped, name, frame.current_line())
        });
        let (is_skipped, name, line) = found?;
        if !is_skipped {
            return Some((name, line));
        }
    }
    None
}

/// Handles an error of a script: returns a table with its text and its place.
fn on_error(lua: &Lua, error: Value) -> mlua::Result<Value> {
    let error = match &error {
        Value::Error(inner) => match failure_of(inner) {
            Some(_) => convert(lua, error)?,
            None => Value::String(lua.create_string(text_of(inner))?),
        },
        _ => error,
    };
    let table = match error {
        Value::Table(table) => table,
        other => {
            let text = match &other {
                Value::String(text) => text.as_bytes().to_vec(),
                other => other.to_string()?.into_bytes(),
            };
            let table = lua.create_table()?;
            table.raw_set("err", lua.create_string([b"ERR ", &text[..]].concat())?)?;
            table
        }
    };
    if let Some((source, line)) = place(lua) {
        table.raw_set("source", source)?;
        table.raw_set("line", line.map_or(-1, |line| line as i64))?;
    }
    Ok(Value::Table(table))
}
