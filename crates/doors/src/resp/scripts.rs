//! Scripts: `EVAL`, `EVALSHA`, `SCRIPT`. The file `functions.rs` has the functions of libraries.
//!
//! A script is executed in one turn. It reads and writes through the overlay of its command, so its
//! writes are one list of changes: a crash leaves all or nothing of a script.
//!
//! ```text
//!  EVAL ─► cache ─► interpreter ─► redis.call ─► table of commands ─► overlay
//!                        │                              │
//!                        └── answer ◄───────────────────┴─ reply
//! ```
//!
//! # Promises
//!
//! - A script that fails keeps its writes, as in Redis. The server *ends* a script at the limit of
//!   time, or if the store refuses its changes. Then none of its writes is done, and it may be
//!   executed again.
//! - No script ends the process, keeps the thread for much longer than `busy-reply-threshold`, or
//!   changes anything that the next script sees, except through the store.

mod answer;
mod bits;
mod cache;
mod calls;
mod compiled;
mod failure;
mod functions;
#[cfg(test)]
mod functions_tests;
mod interpreter;
mod json;
mod libraries;
mod library;
mod limits;
mod messages;
mod metadata;
mod patterns;
mod random;
mod registration;
mod replies;
mod shebang;
mod structs;
#[cfg(test)]
mod tests;
mod text;
mod values;

pub use limits::ScriptClock;

use super::commands::{
    ALLOW_BUSY, Command, Group, Keys, LOADING, MOVABLE_KEYS, NO_MANDATORY_KEYS, NOSCRIPT, READONLY,
    SKIP_MONITOR, STALE, by_subcommand,
};
use super::context::{Context, from, is};
use super::number::integer_of;
use super::parser::Arguments;
use super::stop::{self, Done, Stop};
use cache::{Cache, Script};
use calls::{Caller, Kept};
use interpreter::{Calls, Interpreter, Outcome, Programs};
use libraries::Libraries;
use mlua::{Function, Lua, Value, Variadic};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use values::Argument;

const FLAGS: u32 = NOSCRIPT | STALE | SKIP_MONITOR | NO_MANDATORY_KEYS | MOVABLE_KEYS;

const WRITES: &str =
    "We cannot tell how the keys will be used so we assume the worst, RW and UPDATE";
const READS: &str =
    "We cannot tell how the keys will be used so we assume the worst, RO and ACCESS";

pub(super) use functions::COMMANDS as OF_FUNCTIONS;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("eval", -3, FLAGS, eval)
        .keys(&[Keys::counted("RW access update", 2).note(WRITES)])
        .about(Group::Scripting, "2.6.0", "Executes a script in Lua."),
    Command::new("evalsha", -3, FLAGS, evalsha)
        .keys(&[Keys::counted("RW access update", 2)])
        .about(Group::Scripting, "2.6.0", "Executes a script that the server knows."),
    Command::new("eval_ro", -3, FLAGS | READONLY, eval_ro)
        .keys(&[Keys::counted("RO access", 2).note(READS)])
        .about(Group::Scripting, "7.0.0", "Executes a script in Lua that only reads.")
        .categories("@scripting"),
    Command::new("evalsha_ro", -3, FLAGS | READONLY, evalsha_ro)
        .keys(&[Keys::counted("RO access", 2)])
        .about(Group::Scripting, "7.0.0", "Executes a script that the server knows and only reads.")
        .categories("@scripting"),
    Command::new("script", -2, 0, by_subcommand)
        .subcommands(&[
            Command::new("script|load", 3, NOSCRIPT | STALE, script_load)
                .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
                .about(Group::Scripting, "2.6.0", "Makes a script known, and returns its digest."),
            Command::new("script|exists", -3, NOSCRIPT, script_exists)
                .tips(&["request_policy:all_shards", "response_policy:agg_logical_and"])
                .about(Group::Scripting, "2.6.0", "Returns whether the server knows some scripts."),
            Command::new("script|kill", 2, NOSCRIPT | ALLOW_BUSY, script_kill)
                .tips(&["request_policy:all_shards", "response_policy:one_succeeded"])
                .about(
                    Group::Scripting,
                    "2.6.0",
                    "Refused: no other command runs beside a script.",
                ),
            Command::new("script|flush", -2, NOSCRIPT, script_flush)
                .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
                .about(Group::Scripting, "2.6.0", "Forgets all scripts."),
            Command::new("script|help", 2, LOADING | STALE, script_help).about(
                Group::Scripting,
                "5.0.0",
                "Describes the subcommands.",
            ),
            Command::new("script|debug", 3, NOSCRIPT, script_debug).about(
                Group::Scripting,
                "3.2.0",
                "Refused: there is no debugger.",
            ),
        ])
        .about(Group::Scripting, "2.6.0", "Commands about known scripts.")
        .categories(""),
];

/// The longest time of a script, also if the setting has no limit.
const TIME_MS_MAX: i64 = 60_000;

/// The scripts of a server.
#[derive(Debug, Default)]
pub(super) struct Scripts {
    clock: Option<ScriptClock>,
    /// It is made for the first script.
    interpreter: Option<Rc<Interpreter>>,
    cache: Cache,
    libraries: Libraries,
}

/// A program that a client calls.
struct Program<'p> {
    /// The digest of a script, or the name of a function.
    name: &'p str,
    function: &'p Function,
    programs: Programs,
    /// Whether the program has flags. A program without flags may do everything.
    has_flags: bool,
    only_reads: bool,
}

impl Scripts {
    pub(super) fn set_clock(&mut self, clock: ScriptClock) {
        *self = Scripts { clock: Some(clock), ..Scripts::default() };
    }

    pub(super) fn has_clock(&self) -> bool {
        self.clock.is_some()
    }

    fn interpreter(&mut self) -> Result<Rc<Interpreter>, Stop> {
        if let Some(interpreter) = &self.interpreter {
            return Ok(Rc::clone(interpreter));
        }
        let clock = self.clock.get_or_insert_with(ScriptClock::of_readings);
        let made = Interpreter::new(clock, Programs::Scripts).map(Rc::new);
        let made = made.map_err(|error| internal(&error))?;
        Ok(Rc::clone(self.interpreter.insert(made)))
    }

    /// Returns the clock of scripts, which is made if there is none.
    fn clock(&mut self) -> ScriptClock {
        self.clock.get_or_insert_with(ScriptClock::of_readings).clone()
    }

    /// Forgets all scripts.
    fn flush(&mut self) {
        (self.interpreter, self.cache) = (None, Cache::default());
    }

    /// Returns a script by its text.
    fn script(&mut self, text: &[u8]) -> Result<(Rc<Script>, bool), Stop> {
        let digest = library::digest(text);
        if let Some(script) = self.cache.find(&digest) {
            return Ok((script, true));
        }
        let refused = |text: Vec<u8>| Stop::error_of([b"ERR ", &text[..]].concat());
        let (properties, line) = shebang::read(text).map_err(refused)?;
        let compiled = self.interpreter()?.compile(&text[line..]);
        let program = compiled.map_err(|text| {
            refused([b"Error compiling script (new function): ", &text[..]].concat())
        })?;
        Ok((Rc::new(Script::new(digest, program, properties, text.len())), false))
    }

    /// Whether the first line of a script says that it only reads.
    pub(super) fn only_reads(text: &[u8]) -> bool {
        shebang::read(text).is_ok_and(|(properties, _)| properties.only_reads)
    }

    /// Whether the first line of a known script says that it only reads.
    pub(super) fn known_only_reads(&self, digest: &[u8]) -> bool {
        let digest = String::from_utf8_lossy(digest).to_ascii_lowercase();
        self.cache.properties(&digest).is_some_and(|it| it.only_reads)
    }

    /// Whether a function says that it only reads. A function that is not in memory yet may write.
    pub(super) fn function_only_reads(&self, name: &[u8]) -> bool {
        self.libraries.function(name).is_some_and(|(library, name)| library.only_reads(name))
    }

    /// Returns the number of known scripts, and the memory of the interpreter.
    pub(super) fn use_of_memory(&self) -> (usize, usize) {
        let bytes = self.interpreter.as_ref().map_or(0, |it| it.lua().used_memory());
        (self.cache.len(), bytes)
    }
}

/// Returns the error for a failure that is not the script's.
fn internal(error: &mlua::Error) -> Stop {
    Stop::error_of([b"ERR ", &failure::text_of(error)[..]].concat())
}

fn eval(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    eval_text(context, arguments, false)
}

fn eval_ro(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    eval_text(context, arguments, true)
}

fn evalsha(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    eval_digest(context, arguments, false)
}

fn evalsha_ro(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    eval_digest(context, arguments, true)
}

fn eval_text(context: &mut Context<'_>, arguments: Arguments<'_>, only_reads: bool) -> Done {
    let keys = keys_count(arguments, stop::NOT_AN_INTEGER)?;
    let (script, is_known) = context.state.scripts.script(&arguments[1])?;
    if !is_known {
        context.state.scripts.cache.bring(&script);
    }
    run_script(context, &script, keys, arguments, only_reads)
}

fn eval_digest(context: &mut Context<'_>, arguments: Arguments<'_>, only_reads: bool) -> Done {
    let digest = String::from_utf8_lossy(&arguments[1]).to_ascii_lowercase();
    let found = context.state.scripts.cache.find(&digest).filter(|_| digest.len() == 40);
    if digest.len() != 40 {
        return Err(NO_SCRIPT);
    }
    let keys = keys_count(arguments, stop::NOT_AN_INTEGER)?;
    let script = found.ok_or(NO_SCRIPT)?;
    run_script(context, &script, keys, arguments, only_reads)
}

fn run_script(
    context: &mut Context<'_>,
    script: &Script,
    keys: usize,
    arguments: Arguments<'_>,
    is_read_only: bool,
) -> Done {
    let function = script.program.function().map_err(|error| internal(&error))?;
    let program = Program {
        name: &script.digest,
        function: &function,
        programs: Programs::Scripts,
        has_flags: script.properties.has_line,
        only_reads: script.properties.only_reads,
    };
    let interpreter = context.state.scripts.interpreter()?;
    run(context, &interpreter, &program, keys, arguments, is_read_only)
}

const NO_SCRIPT: Stop = Stop::error("NOSCRIPT No matching script. Please use EVAL.");

/// Reads the number of keys. `not_a_number` is the error for an argument of another form.
fn keys_count(arguments: Arguments<'_>, not_a_number: Stop) -> Result<usize, Stop> {
    let count = integer_of(&arguments[2]).ok_or(not_a_number)?;
    let most = arguments.len() as i64 - 3;
    match count {
        _ if count > most => {
            Err(Stop::error("ERR Number of keys can't be greater than number of args"))
        }
        ..0 => Err(Stop::error("ERR Number of keys can't be negative")),
        count => Ok(count as usize),
    }
}

fn run(
    context: &mut Context<'_>,
    interpreter: &Interpreter,
    program: &Program<'_>,
    keys: usize,
    arguments: Arguments<'_>,
    is_read_only: bool,
) -> Done {
    if is_read_only && program.has_flags && !program.only_reads {
        let text = "ERR Can not execute a script with write flag using *_ro command.";
        return Err(Stop::error(text));
    }
    let now_ms = context.objects.now();
    context.state.show_script(context.client, &arguments, now_ms, context.messages);
    let time = Duration::from_millis(match context.state.settings.script_ms() {
        milliseconds @ 1..=TIME_MS_MAX => milliseconds as u64,
        _ => TIME_MS_MAX as u64,
    });
    let seed = context.state.random();
    let given: Vec<&[u8]> = from(arguments, 3).collect();
    let given = given.split_at(keys.min(given.len()));
    let kept = Kept::of(context);
    let caller = RefCell::new(Caller {
        context,
        interpreter,
        only_reads: is_read_only || program.only_reads,
    });
    let outcome = interpreter.lua().scope(|scope| {
        let function = |raises| {
            let caller = &caller;
            scope.create_function(move |lua: &Lua, given: Variadic<Argument>| {
                let mut caller = caller.try_borrow_mut().map_err(mlua::Error::external)?;
                caller.call(lua, &given, raises)
            })
        };
        let check = |_: &Lua, given: Variadic<Argument>| {
            caller.try_borrow().map_err(mlua::Error::external)?.may_call(&given)
        };
        let check = scope.create_function(check)?;
        let calls = Calls { call: function(true)?, pcall: function(false)?, check };
        match program.programs {
            Programs::Scripts => interpreter.run(program.function, given, &calls, (time, seed)),
            Programs::Libraries => interpreter.call(program.function, given, &calls, (time, seed)),
        }
    });
    let context = caller.into_inner().context;
    kept.restore(context);
    let done = match outcome {
        Ok(Outcome::Value(value)) => {
            let version = interpreter.version.get();
            let machine = (interpreter.lua(), &interpreter.limits);
            let length = context.reply.length();
            match answer::write(context, machine, &value, version) {
                // The script's writes are done nevertheless.
                Err(Stop::Error(text)) => {
                    context.reply.truncate(length);
                    answer::put_error(context, text.into_owned(), false);
                    Ok(())
                }
                done => done,
            }
        }
        Ok(Outcome::Error(error)) => {
            fail(context, program.name, &error);
            Ok(())
        }
        Ok(Outcome::Ended(stop)) => Err(stop),
        Err(error) => {
            let text = failure::text_of(&error);
            answer::put_error(context, [b"ERR ", &text[..]].concat(), false);
            Ok(())
        }
    };
    if interpreter.finish().is_err() {
        // Memory is so short that nothing works any more: the next script gets a new interpreter.
        match program.programs {
            Programs::Scripts => context.state.scripts.flush(),
            Programs::Libraries => context.state.scripts.libraries = Libraries::default(),
        }
    }
    done
}

/// Writes the error of a script.
fn fail(context: &mut Context<'_>, name: &str, error: &Value) {
    let Value::Table(table) = error else {
        let shown = match error {
            Value::String(text) => text.as_bytes().to_vec(),
            _ => b"execution failure".to_vec(),
        };
        let begin = format!("ERR Error running script {name}, ");
        return answer::put_error(context, [begin.as_bytes(), &shown].concat(), false);
    };
    let (mut text, is_counted) = answer::error_of(table).unwrap_or_default();
    let source: Option<Value> = table.raw_get("source").ok();
    let line: Option<i64> = table.raw_get("line").ok();
    if let (Some(Value::String(source)), Some(line)) = (source, line) {
        let place = format!(" script: {name}, on ");
        text.extend_from_slice(place.as_bytes());
        text.extend_from_slice(&source.as_bytes());
        text.extend_from_slice(format!(":{line}.").as_bytes());
    }
    answer::put_error(context, text, is_counted);
}

fn script_load(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let scripts = &mut context.state.scripts;
    let (script, _) = scripts.script(&arguments[2])?;
    let has_memory = scripts.interpreter()?.has_memory().map_err(|error| internal(&error))?;
    if !has_memory || !scripts.cache.has_room(arguments[2].len()) {
        return Err(Stop::error("ERR There are too many loaded scripts. Use SCRIPT FLUSH."));
    }
    scripts.cache.load(&script);
    context.reply.string(script.digest.as_bytes());
    Ok(())
}

fn script_exists(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    context.reply.array(arguments.len() - 2);
    for digest in from(arguments, 2) {
        let digest = String::from_utf8_lossy(digest);
        let is_known = context.state.scripts.cache.knows(&digest.to_ascii_lowercase());
        context.reply.integer(i64::from(is_known));
    }
    Ok(())
}

fn script_flush(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let is_mode = |word: &[u8]| is(word, "SYNC") || is(word, "ASYNC");
    if arguments.len() > 3 || arguments.get(2).is_some_and(|word| !is_mode(word)) {
        return Err(Stop::error("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
    }
    context.state.scripts.flush();
    context.ok();
    Ok(())
}

fn script_kill(_: &mut Context<'_>, _: Arguments<'_>) -> Done {
    Err(Stop::error("NOTBUSY No scripts in execution right now."))
}

fn script_debug(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let mode = &arguments[2];
    match mode {
        mode if is(mode, "NO") => {
            context.ok();
            Ok(())
        }
        mode if is(mode, "YES") || is(mode, "SYNC") => {
            Err(Stop::error("ERR There is no debugger for scripts"))
        }
        _ => Err(Stop::error("ERR Use SCRIPT DEBUG YES/SYNC/NO")),
    }
}

fn script_help(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    super::help::reply(context, "script");
    Ok(())
}
