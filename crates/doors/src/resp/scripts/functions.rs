//! Functions of libraries: `FUNCTION`, `FCALL`.

use super::libraries::{self, Existing, Libraries};
use super::{FLAGS, Program, READS, WRITES, keys_count, run};
use crate::rdb;
use crate::resp::commands::{
    ALLOW_BUSY, Command, DENYOOM, Group, Keys, LOADING, NOSCRIPT, READONLY, STALE, WRITE,
    by_subcommand,
};
use crate::resp::context::{Context, is};
use crate::resp::glob;
use crate::resp::parser::Arguments;
use crate::resp::scripts::interpreter::Programs;
use crate::resp::stop::{self, Done, Stop};

const ALL_SHARDS: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];

pub(in crate::resp) const COMMANDS: &[Command] = &[
    Command::new("fcall", -3, FLAGS, fcall)
        .keys(&[Keys::counted("RW access update", 2).note(WRITES)])
        .about(Group::Scripting, "7.0.0", "Calls a function of a library."),
    Command::new("fcall_ro", -3, FLAGS | READONLY, fcall_ro)
        .keys(&[Keys::counted("RO access", 2).note(READS)])
        .about(Group::Scripting, "7.0.0", "Calls a function of a library that only reads.")
        .categories("@scripting"),
    Command::new("function", -2, 0, by_subcommand)
        .subcommands(&[
            Command::new("function|stats", 2, NOSCRIPT | ALLOW_BUSY, function_stats)
                .tips(&[
                    "nondeterministic_output",
                    "request_policy:all_shards",
                    "response_policy:special",
                ])
                .about(Group::Scripting, "7.0.0", "Counts the libraries and their functions."),
            Command::new("function|dump", 2, NOSCRIPT, function_dump).about(
                Group::Scripting,
                "7.0.0",
                "Returns all libraries as a payload for RESTORE.",
            ),
            Command::new("function|flush", -2, NOSCRIPT | WRITE, function_flush)
                .tips(ALL_SHARDS)
                .about(Group::Scripting, "7.0.0", "Deletes all libraries.")
                .categories("@scripting"),
            Command::new("function|list", -2, NOSCRIPT, function_list)
                .tips(&["nondeterministic_output_order"])
                .about(Group::Scripting, "7.0.0", "Describes the libraries."),
            Command::new("function|delete", 3, NOSCRIPT | WRITE, function_delete)
                .tips(ALL_SHARDS)
                .about(Group::Scripting, "7.0.0", "Deletes a library and its functions.")
                .categories("@scripting"),
            Command::new("function|restore", -3, NOSCRIPT | WRITE | DENYOOM, function_restore)
                .tips(ALL_SHARDS)
                .about(Group::Scripting, "7.0.0", "Makes the libraries of a payload.")
                .categories("@scripting"),
            Command::new("function|kill", 2, NOSCRIPT | ALLOW_BUSY, function_kill)
                .tips(&["request_policy:all_shards", "response_policy:one_succeeded"])
                .about(
                    Group::Scripting,
                    "7.0.0",
                    "Refused: no other command runs beside a function.",
                ),
            Command::new("function|help", 2, LOADING | STALE, function_help).about(
                Group::Scripting,
                "7.0.0",
                "Describes the subcommands.",
            ),
            Command::new("function|load", -3, NOSCRIPT | WRITE | DENYOOM, function_load)
                .tips(ALL_SHARDS)
                .about(Group::Scripting, "7.0.0", "Makes a library from a program in Lua.")
                .categories("@scripting"),
        ])
        .about(Group::Scripting, "7.0.0", "Commands about libraries of functions.")
        .categories(""),
];

fn fcall(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    call(context, arguments, false)
}

fn fcall_ro(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    call(context, arguments, true)
}

fn call(context: &mut Context<'_>, arguments: Arguments<'_>, is_read_only: bool) -> Done {
    let found = libraries::with(context, |context, libraries, clock| {
        let is_loaded = |it: &Libraries| it.function(&arguments[1]).is_some();
        libraries.load_stored(clock, context.objects.now(), is_loaded)?;
        let Some((library, name)) = libraries.function(&arguments[1]) else {
            return Err(not_found(libraries));
        };
        let only_reads = library.only_reads(name);
        let (callback, name) = (library.callback(name)?, name.to_owned());
        Ok((libraries.interpreter(clock)?, callback, name, only_reads))
    })?;
    let (interpreter, callback, name, only_reads) = found;
    let keys = keys_count(arguments, Stop::error("ERR Bad number of keys provided"))?;
    let program = Program {
        name: &name,
        function: &callback,
        programs: Programs::Libraries,
        has_flags: true,
        only_reads,
    };
    run(context, &interpreter, &program, keys, arguments, is_read_only)
}

/// Returns the error for a function that no loaded library has.
fn not_found(libraries: &Libraries) -> Stop {
    let Some((name, error)) = libraries.failed() else {
        return Stop::error("ERR Function not found");
    };
    let begin = format!("ERR Function not found. The library '{name}' could not be loaded: ");
    let error = error.strip_prefix(b"ERR ").unwrap_or(error);
    Stop::error_of([begin.as_bytes(), error].concat())
}

/// Returns the error for a subcommand with too many arguments. The error shows the name as the
/// client wrote it.
fn wrong_subcommand(arguments: Arguments<'_>) -> Stop {
    let begin = b"ERR unknown subcommand or wrong number of arguments for '";
    Stop::error_of([begin, stop::shown(&arguments[1]), b"'. Try FUNCTION HELP."].concat())
}

fn function_load(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let last = arguments.len() - 1;
    let mut existing = Existing::Kept;
    for at in 2..last {
        if !is(&arguments[at], "REPLACE") {
            let word = stop::shown(&arguments[at]);
            return Err(Stop::error_of([b"ERR Unknown option given: ", word].concat()));
        }
        existing = Existing::Replaced;
    }
    let name = libraries::add(context, &[arguments[last].to_vec()], existing)?;
    context.reply.string(name.as_bytes());
    Ok(())
}

fn function_delete(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    if !libraries::delete(context, &arguments[2])? {
        return Err(Stop::error("ERR Library not found"));
    }
    context.ok();
    Ok(())
}

fn function_flush(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let is_mode = |word: &[u8]| is(word, "SYNC") || is(word, "ASYNC");
    if arguments.len() > 3 {
        return Err(wrong_subcommand(arguments));
    }
    if arguments.get(2).is_some_and(|word| !is_mode(word)) {
        return Err(Stop::error("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
    }
    libraries::delete_all(context)?;
    context.ok();
    Ok(())
}

fn function_list(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let (mut pattern, mut has_code, mut at) = (None, false, 2);
    while let Some(word) = arguments.get(at) {
        at += 1;
        if !has_code && is(word, "WITHCODE") {
            has_code = true;
        } else if pattern.is_none() && is(word, "LIBRARYNAME") {
            let missing = Stop::error("ERR library name argument was not given");
            pattern = Some(arguments.get(at).ok_or(missing)?);
            at += 1;
        } else {
            return Err(Stop::error_of([b"ERR Unknown argument ", stop::shown(word)].concat()));
        }
    }
    libraries::with_loaded(context, |context, libraries, _| {
        list(context, libraries, pattern, has_code);
        context.check_reply()
    })
}

fn list(context: &mut Context<'_>, libraries: &Libraries, pattern: Option<&[u8]>, has_code: bool) {
    let reply = &mut context.reply;
    // Letters of the pattern may be small or capital.
    let pattern = pattern.map(<[u8]>::to_ascii_lowercase);
    let is_shown = |name: &str| {
        let name = name.to_ascii_lowercase();
        pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, name.as_bytes()))
    };
    let shown: Vec<_> = libraries.iter().filter(|(name, _)| is_shown(name)).collect();
    reply.array(shown.len());
    for (name, library) in shown {
        reply.map(if has_code { 4 } else { 3 });
        reply.string(b"library_name");
        reply.string(name.as_bytes());
        reply.string(b"engine");
        reply.string(b"LUA");
        reply.string(b"functions");
        reply.array(library.functions.len());
        for (name, registered) in &library.functions {
            reply.map(3);
            reply.string(b"name");
            reply.string(name.as_bytes());
            reply.string(b"description");
            match &registered.description {
                Some(text) => reply.string(text),
                None => reply.null(),
            }
            reply.string(b"flags");
            reply.set(registered.flags.len());
            registered.flags.iter().for_each(|flag| reply.simple(flag));
        }
        if has_code {
            reply.string(b"library_code");
            reply.string(&library.code);
        }
    }
}

fn function_stats(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    libraries::with_loaded(context, |context, libraries, _| {
        let (libraries, functions) = libraries.counts();
        let reply = &mut context.reply;
        reply.map(2);
        reply.string(b"running_script");
        reply.null();
        reply.string(b"engines");
        reply.map(1);
        reply.string(b"LUA");
        reply.map(2);
        reply.string(b"libraries_count");
        reply.integer(libraries as i64);
        reply.string(b"functions_count");
        reply.integer(functions as i64);
        Ok(())
    })
}

fn function_dump(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    libraries::with(context, |context, libraries, _| {
        let codes = libraries.iter().map(|(_, library)| library.code.as_slice());
        context.reply.string(&rdb::wrap_libraries(codes));
        context.check_reply()
    })
}

fn function_restore(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    if arguments.len() > 4 {
        return Err(wrong_subcommand(arguments));
    }
    let existing = match arguments.get(3) {
        None => Existing::Joined,
        Some(word) if is(word, "APPEND") => Existing::Joined,
        Some(word) if is(word, "REPLACE") => Existing::Replaced,
        Some(word) if is(word, "FLUSH") => Existing::Dropped,
        Some(_) => {
            return Err(Stop::error(
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
            ));
        }
    };
    let payload = rdb::unwrap(&arguments[2])
        .map_err(|_| Stop::error("ERR DUMP payload version or checksum are wrong"))?;
    let codes = rdb::libraries_of(payload);
    let codes = codes.map_err(|_| Stop::error("ERR given type is not a function"))?;
    libraries::add(context, &codes, existing)?;
    context.ok();
    Ok(())
}

fn function_kill(_: &mut Context<'_>, _: Arguments<'_>) -> Done {
    Err(Stop::error("NOTBUSY No scripts in execution right now."))
}

fn function_help(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    crate::resp::help::reply(context, "function");
    Ok(())
}
