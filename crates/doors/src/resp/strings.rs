//! Commands about strings.

use super::commands::{Command, DENYOOM, FAST, Group, Keys, READONLY, WRITE};
use super::context::Context;
use super::parser::Arguments;
use super::stop::{self, Done};
use super::store::Kind;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("get", 2, READONLY | FAST, get).keys(&[Keys::one("RO access", 1)]).about(
        Group::String,
        "1.0.0",
        "Returns a string.",
    ),
    Command::new("set", -3, WRITE | DENYOOM, set)
        .keys(&[Keys::one("RW access update variable_flags", 1)
            .note("RW and ACCESS due to the optional `GET` argument")])
        .about(Group::String, "1.0.0", "Writes a string in place of any value."),
    Command::new("append", 3, WRITE | DENYOOM | FAST, append)
        .keys(&[Keys::one("RW insert", 1)])
        .about(
            Group::String,
            "2.0.0",
            "Adds bytes to the end of a string, which is made if there is none.",
        ),
];

fn get(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    match context.objects.read_kind(&arguments[1], Kind::String)? {
        Some(found) => context.reply.string(found.value),
        None => context.reply.null(),
    }
    Ok(())
}

fn set(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    if arguments.len() > 3 {
        return Err(stop::SYNTAX);
    }
    context.objects.put(&arguments[1], &arguments[2], Kind::String, None)?;
    context.ok();
    Ok(())
}

fn append(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let key = &arguments[1];
    let (mut value, expires) = match context.objects.find_kind(key, Kind::String)? {
        Some(found) => (found.value.to_vec(), found.expires),
        None => (Vec::new(), None),
    };
    value.extend_from_slice(&arguments[2]);
    let length = value.len();
    context.objects.put(key, value, Kind::String, expires)?;
    context.reply.integer(length as i64);
    Ok(())
}
