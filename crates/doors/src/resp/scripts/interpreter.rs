//! An interpreter of a server's scripts, and its sandbox.
//!
//! One interpreter executes all scripts, and another one all functions of libraries. Scripts share
//! nothing: their globals are read-only, and a prelude in Lua hides all functions that could change
//! another script's world, or the machine's. Only the local variables of a library live as long as
//! the library.

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

/// The programs that an interpreter executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Programs {
    Scripts,
    Libraries,
}

impl Programs {
    /// Returns their name in errors.
    fn chunk(self) -> &'static str {
        match self {
            Programs::Scripts => "@user_script",
            Programs::Libraries => "@user_function",
        }
    }
}

/// The functions of the table `redis` that libraries do not have, and the entries that a library
/// has while it is loaded, with `register_function`.
const NOT_IN_LIBRARIES: [&str; 3] = ["breakpoint", "debug", "replicate_commands"];
const WHILE_LOADING: [&str; 7] = [
    "log",
    "LOG_DEBUG",
    "LOG_VERBOSE",
    "LOG_NOTICE",
    "LOG_WARNING",
    "REDIS_VERSION",
    "REDIS_VERSION_NUM",
];

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
    programs: Programs,
    /// The functions of Redis while a library is loaded.
    loading: Table,
    switch: Function,
    bind: Function,
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
    /// Tells whether the user may execute a command.
    pub(super) check: Function,
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
    pub(super) fn new(clock: &ScriptClock, programs: Programs) -> mlua::Result<Interpreter> {
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
        let loading = lua.create_table()?;
        for name in WHILE_LOADING {
            loading.raw_set(name, redis.raw_get::<Value>(name)?)?;
        }

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
        if programs == Programs::Libraries {
            for name in NOT_IN_LIBRARIES {
                redis.raw_set(name, Value::Nil)?;
            }
            host.raw_set("loading", &loading)?;
        }
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
        let (front, globals, tidy, switch, bind): (Table, Table, Function, Function, Function) =
            prelude.call(host)?;
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
            programs,
            loading,
            switch,
            bind,
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
            let source = self.programs.chunk().trim_start_matches('@');
            return Err(format!("{source}:1: unexpected symbol near 'char(27)'").into_bytes());
        }
        let chunk = self.programs.chunk();
        let compiled = compile(&self.lua, script, chunk, &self.environment);
        compiled.and_then(|it| self.compiled.keep(it)).map_err(|error| text_of(&error))
    }

    /// Collects garbage if a further script that stays may not have memory otherwise.
    pub(super) fn make_room(&self) -> mlua::Result<()> {
        match self.lua.used_memory() > LOADED_BYTES_MAX {
            true => self.collect(),
            false => Ok(()),
        }
    }

    /// Whether there is memory for a further script that stays.
    pub(super) fn has_memory(&self) -> mlua::Result<bool> {
        self.make_room()?;
        Ok(self.lua.used_memory() <= LOADED_BYTES_MAX)
    }

    /// Collects garbage.
    pub(super) fn collect(&self) -> mlua::Result<()> {
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
        self.begin(calls, (time, seed))?;
        self.globals.raw_set("KEYS", self.list(keys)?)?;
        self.globals.raw_set("ARGV", self.list(arguments)?)?;
        self.execute(script)
    }

    /// Executes a function of a library.
    pub(super) fn call(
        &self,
        function: &Function,
        (keys, arguments): (&[&[u8]], &[&[u8]]),
        calls: &Calls,
        (time, seed): (Duration, u64),
    ) -> mlua::Result<Outcome> {
        self.begin(calls, (time, seed))?;
        let (keys, arguments) = (self.list(keys)?, self.list(arguments)?);
        self.execute(&self.bind.call((function, keys, arguments))?)
    }

    /// Executes the text of a library, which calls a function to register each of its functions.
    pub(super) fn load(
        &self,
        library: &Function,
        register: &Function,
        time: Duration,
    ) -> mlua::Result<Outcome> {
        self.loading.raw_set("register_function", register)?;
        self.switch.call::<()>(true)?;
        self.limits.begin(&self.lua, time)?;
        let outcome = self.execute(library);
        self.lua.remove_global_hook();
        self.switch.call::<()>(false)?;
        self.loading.raw_set("register_function", Value::Nil)?;
        outcome
    }

    fn begin(&self, calls: &Calls, (time, seed): (Duration, u64)) -> mlua::Result<()> {
        self.version.set(Version::Two);
        self.random.seed(seed as i32);
        self.json.reset();
        self.redis.raw_set("call", &calls.call)?;
        self.redis.raw_set("pcall", &calls.pcall)?;
        self.redis.raw_set("acl_check_cmd", &calls.check)?;
        self.limits.begin(&self.lua, time)
    }

    fn execute(&self, program: &Function) -> mlua::Result<Outcome> {
        let result = self.protected.call((program, &self.handler));
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
