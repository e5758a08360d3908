//! The commands that a script executes.

use super::failure::{Failure, error_table};
use super::interpreter::Interpreter;
use super::library::{error as error_in_place, named_command};
use super::replies;
use super::values::{Argument, argument_text};
use crate::resp::acl::Circumstance;
use crate::resp::cluster::NOT_LOCAL;
use crate::resp::commands::{Command, NOSCRIPT};
use crate::resp::context::Context;
use crate::resp::parser::Arguments;
use crate::resp::stop::Stop;
use crate::resp::store::Refusal;
use crate::resp::writer::Version;
use mlua::{Lua, Value};
use std::ops::Range;

/// The execution of commands for a script.
pub(super) struct Caller<'a, 'c> {
    pub(super) context: &'a mut Context<'c>,
    pub(super) interpreter: &'a Interpreter,
    pub(super) only_reads: bool,
}

impl Caller<'_, '_> {
    /// Executes a command.
    ///
    /// # Errors
    /// If the command fails and `raises` is true, or if the script is ended.
    pub(super) fn call(
        &mut self,
        lua: &Lua,
        given: &[Argument],
        raises: bool,
    ) -> mlua::Result<Value> {
        if self.interpreter.limits.is_ended() {
            return Err(Failure::Ended.into());
        }
        let failed = |text: &str| {
            let text = [b"ERR ", text.as_bytes()].concat();
            match raises {
                true => Err(Failure::Reply { text, is_counted: true }.into()),
                false => error_table(lua, &text, true).map(Value::Table),
            }
        };
        let (bytes, places) = match arguments_of(given) {
            Ok(arguments) => arguments,
            Err(text) if raises => return Err(error_in_place(text)),
            Err(text) => {
                let text = [b"ERR ", text.as_bytes()].concat();
                return error_table(lua, &text, false).map(Value::Table);
            }
        };
        let arguments = Arguments::new(&bytes, &places);
        let command = match self.permitted(&arguments) {
            Ok(command) => command,
            Err(text) => {
                if let Some(command) = self.context.state.names.known(&arguments) {
                    self.context.state.count_rejected(command);
                }
                self.context.state.count_error(b"ERR");
                return failed(text);
            }
        };
        let when = (Circumstance::Script, self.context.objects.now());
        let id = self.context.client;
        if let Err((_, text)) = self.context.state.check_rights(id, command, &arguments, when) {
            self.context.state.count_rejected(command);
            self.context.state.count_error(b"ERR");
            return failed(&format!("ACL failure in script: {}", String::from_utf8_lossy(&text)));
        }
        let reply = self.execute(lua, command, arguments)?;
        match reply.strip_prefix(b"-") {
            Some(text) if raises => {
                let text = text.strip_suffix(b"\r\n").unwrap_or(text).to_vec();
                Err(Failure::Reply { text, is_counted: true }.into())
            }
            _ => replies::value_of(lua, &reply),
        }
    }

    /// Whether the user may execute a command: `redis.acl_check_cmd`.
    ///
    /// # Errors
    /// If there is no such command.
    pub(super) fn may_call(&self, given: &[Argument]) -> mlua::Result<bool> {
        let state = &*self.context.state;
        let queued = named_command(&state.names, given)?;
        let arguments = queued.arguments();
        let words: Vec<&[u8]> = arguments.iter().collect();
        let name = state.clients.get(&self.context.client).and_then(|it| it.user.as_deref());
        let user = state.settings.users.of(name);
        Ok(user.is_some_and(|user| user.check(&state.names, queued.command, &words).is_ok()))
    }

    /// Returns the command that is called, if a script may execute it.
    fn permitted(&self, arguments: &Arguments<'_>) -> Result<&'static Command, &'static str> {
        let names = &self.context.state.names;
        let Some(command) = names.known(arguments) else {
            return Err("Unknown Redis command called from script");
        };
        if !command.takes(arguments.len()) {
            return Err("Wrong number of args calling Redis command from script");
        }
        if command.has(NOSCRIPT) {
            return Err("This Redis command is not allowed from script");
        }
        if self.only_reads && command.may_write() {
            return Err("Write commands are not allowed from read-only scripts.");
        }
        if !self.context.state.has_keys(command, arguments) {
            return Err(NOT_LOCAL);
        }
        Ok(command)
    }

    /// Executes a command; returns the bytes of its reply.
    fn execute(
        &mut self,
        lua: &Lua,
        command: &'static Command,
        arguments: Arguments<'_>,
    ) -> mlua::Result<Vec<u8>> {
        let Caller { context, interpreter, .. } = self;
        let (length, version) = (context.reply.length(), context.reply.version());
        let (signals, messages) = (context.signals.len(), context.messages.len());
        context.reply.set_version(interpreter.version.get());
        let begin = context.state.time();
        let done = (command.execute)(context, arguments).and_then(|()| context.check_reply());
        let took = context.state.took(begin);
        let now_ms = context.objects.now();
        let is_failed = matches!(done, Err(Stop::Error(_) | Stop::Refused(Refusal::TooLong)));
        context.state.count(command, is_failed, took);
        let mut end = None;
        match done {
            Ok(()) => {}
            Err(error @ (Stop::Error(_) | Stop::Refused(Refusal::TooLong))) => {
                context.reply.truncate(length);
                context.signals.truncate(signals);
                context.messages.truncate(messages);
                context.objects.events.fail_command();
                context.state.write_error(&error, &mut context.reply);
            }
            Err(Stop::Wait(wait)) => {
                context.reply.truncate(length);
                if wait.is_array { context.reply.null_array() } else { context.reply.null() }
            }
            Err(stop) => end = Some(stop),
        }
        let reply = context.reply.split_off(length);
        context.reply.set_version(version);
        if let Some(stop) = end {
            return Err(interpreter.limits.end(lua, stop));
        }
        context.note_tracking(command, &arguments);
        context.publish_events();
        context.state.show_call(context.client, command, &arguments, now_ms, context.messages);
        Ok(reply)
    }
}

/// The bytes of arguments, and the place of each.
type Bytes = (Vec<u8>, Vec<Range<usize>>);

/// Returns the arguments of a command as the client would send them.
fn arguments_of(given: &[Argument]) -> Result<Bytes, &'static str> {
    if given.is_empty() {
        return Err("Please specify at least one argument for this redis lib call");
    }
    let (mut bytes, mut places) = (Vec::new(), Vec::with_capacity(given.len()));
    for argument in given {
        let begin = bytes.len();
        match argument {
            Argument::Text(text) => bytes.extend_from_slice(text),
            Argument::Number(number) => bytes.extend_from_slice(argument_text(*number).as_bytes()),
            Argument::Other(_) => {
                return Err("Lua redis lib command arguments must be strings or integers");
            }
        }
        places.push(begin..bytes.len());
    }
    Ok((bytes, places))
}

/// Keeps the client as it was before a script.
pub(super) struct Kept {
    database: crate::resp::store::Database,
    of_client: crate::resp::store::Database,
    version: Version,
    may_wait: bool,
}

impl Kept {
    pub(super) fn of(context: &mut Context<'_>) -> Kept {
        let may_wait = std::mem::replace(&mut context.may_wait, false);
        context.is_of_script = true;
        Kept {
            database: context.objects.database,
            of_client: context.client().database,
            version: context.reply.version(),
            may_wait,
        }
    }

    pub(super) fn restore(self, context: &mut Context<'_>) {
        context.objects.database = self.database;
        context.client().database = self.of_client;
        context.reply.set_version(self.version);
        context.may_wait = self.may_wait;
        context.is_of_script = false;
    }
}
