//! `COMMAND`: the table of commands, for clients.

use super::commands::{
    ADMIN, BLOCKING, Begin, Command, DANGEROUS, FAST, FLAG_NAMES, Find, Group, Keys, LOADING,
    NO_MANDATORY_KEYS, PUBSUB, READONLY, STALE, WRITE, all, by_subcommand, named,
};
use super::context::{Context, from, is};
use super::glob;
use super::number::integer_of;
use super::parser::Arguments;
use super::stop::{self, Done, Stop};
use super::writer::Writer;
use std::ops::Range;

pub(super) const COMMANDS: &[Command] = &[Command::new("command", -1, LOADING | STALE, command)
    .tips(&["nondeterministic_output_order"])
    .subcommands(&[
        Command::new("command|getkeysandflags", -3, LOADING | STALE, command_getkeysandflags)
            .about(Group::Server, "7.0.0", "Returns the keys of a command, with their use.")
            .categories("@connection"),
        Command::new("command|help", 2, LOADING | STALE, command_help)
            .about(Group::Server, "5.0.0", "Describes the subcommands.")
            .categories("@connection"),
        Command::new("command|docs", -2, LOADING | STALE, command_docs)
            .tips(&["nondeterministic_output_order"])
            .about(Group::Server, "7.0.0", "Returns the documentation of commands.")
            .categories("@connection"),
        Command::new("command|getkeys", -3, LOADING | STALE, command_getkeys)
            .about(Group::Server, "2.8.13", "Returns the keys of a command.")
            .categories("@connection"),
        Command::new("command|list", -2, LOADING | STALE, command_list)
            .tips(&["nondeterministic_output_order"])
            .about(Group::Server, "7.0.0", "Returns the names of commands.")
            .categories("@connection"),
        Command::new("command|count", 2, LOADING | STALE, command_count)
            .about(Group::Server, "2.8.13", "Returns the number of commands.")
            .categories("@connection"),
        Command::new("command|info", -2, LOADING | STALE, command_info)
            .tips(&["nondeterministic_output_order"])
            .about(Group::Server, "2.8.13", "Describes commands.")
            .categories("@connection"),
    ])
    .about(Group::Server, "2.8.13", "Describes all commands.")
    .categories("@connection")];

impl Command {
    /// Returns the names of its categories, in the order of Redis.
    pub(super) fn category_names(&self) -> Vec<&'static str> {
        let mut names: Vec<&str> = self.categories.split_whitespace().collect();
        for (flags, name) in [
            (WRITE, "@write"),
            (READONLY, "@read"),
            (ADMIN, "@admin"),
            (ADMIN | DANGEROUS, "@dangerous"),
            (PUBSUB, "@pubsub"),
            (FAST, "@fast"),
            (BLOCKING, "@blocking"),
        ] {
            if self.has(flags) {
                names.push(name);
            }
        }
        if names.contains(&"@scripting") {
            // Reading is not the point of such a command.
            names.retain(|name| *name != "@read");
        }
        if !self.has(FAST) {
            names.push("@slow");
        }
        names.sort_by_key(|name| ORDER.iter().position(|own| own == name));
        names
    }
}

/// The order of categories.
const ORDER: [&str; 21] = [
    "@keyspace",
    "@read",
    "@write",
    "@set",
    "@sortedset",
    "@list",
    "@hash",
    "@string",
    "@bitmap",
    "@hyperloglog",
    "@geo",
    "@stream",
    "@pubsub",
    "@admin",
    "@fast",
    "@slow",
    "@blocking",
    "@dangerous",
    "@connection",
    "@transaction",
    "@scripting",
];

fn command(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    if arguments.len() == 1 {
        context.reply.array(all().count());
        for command in all() {
            reply_info(&mut context.reply, command);
        }
        return Ok(());
    }
    by_subcommand(context, arguments)
}

fn command_count(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    context.reply.integer(all().count() as i64);
    Ok(())
}

fn command_info(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    if arguments.len() == 2 {
        context.reply.array(all().count());
        for command in all() {
            reply_info(&mut context.reply, command);
        }
        return Ok(());
    }
    context.reply.array(arguments.len() - 2);
    for name in from(arguments, 2) {
        match context.state.names.named(name) {
            Some(command) => reply_info(&mut context.reply, command),
            None => context.reply.null(),
        }
    }
    Ok(())
}

fn reply_info(reply: &mut Writer<'_>, command: &Command) {
    reply.array(10);
    reply.string(command.name.as_bytes());
    reply.integer(i64::from(command.arity));
    let flags = FLAG_NAMES.iter().filter(|(flag, _)| command.has(*flag));
    reply.set(flags.clone().count());
    for (_, name) in flags {
        reply.simple(name);
    }
    for place in old_places(command) {
        reply.integer(place);
    }
    let categories = command.category_names();
    reply.set(categories.len());
    for name in categories {
        reply.simple(name);
    }
    reply.set(command.tips.len());
    for tip in command.tips {
        reply.string(tip.as_bytes());
    }
    reply.set(command.keys.len());
    for keys in command.keys {
        reply_keys(reply, keys);
    }
    match command.subcommands {
        [] => reply.set(0),
        several => reply.array(several.len()),
    }
    for subcommand in command.subcommands {
        reply_info(reply, subcommand);
    }
}

/// Returns the first key, the last key and their distance, in the old form of Redis: all ranges as
/// one, if they touch.
fn old_places(command: &Command) -> [i64; 3] {
    let mut places: Option<[i64; 3]> = None;
    for keys in command.keys {
        let (Begin::Index(first), Find::Range(last, step, 0)) = (keys.begin, keys.find) else {
            continue;
        };
        let first = first as i64;
        let last = if last < 0 { last } else { first + last };
        let step = step as i64;
        places = match places {
            None => Some([first, last, step]),
            Some([begin, end, own]) if end >= 0 && first == end + 1 && own == step => {
                Some([begin, last, own])
            }
            other => other,
        };
    }
    places.unwrap_or_default()
}

fn reply_keys(reply: &mut Writer<'_>, keys: &Keys) {
    let has_notes = !keys.notes.is_empty();
    reply.map(3 + usize::from(has_notes));
    if has_notes {
        reply.string(b"notes");
        reply.string(keys.notes.as_bytes());
    }
    reply.string(b"flags");
    let flags = keys.flags.split_whitespace();
    reply.set(flags.clone().count());
    for flag in flags {
        reply.simple(flag);
    }
    reply.string(b"begin_search");
    reply.map(2);
    reply.string(b"type");
    match keys.begin {
        Begin::Index(index) => reply_spec(reply, "index", &[("index", index as i64)]),
        Begin::Keyword(word, from) => {
            reply.string(b"keyword");
            reply.string(b"spec");
            reply.map(2);
            reply.string(b"keyword");
            reply.string(word.as_bytes());
            reply.string(b"startfrom");
            reply.integer(from);
        }
        Begin::Unknown => reply_spec(reply, "unknown", &[]),
    }
    reply.string(b"find_keys");
    reply.map(2);
    reply.string(b"type");
    match keys.find {
        Find::Range(last, step, limit) => {
            let numbers = [("lastkey", last), ("keystep", step as i64), ("limit", limit as i64)];
            reply_spec(reply, "range", &numbers);
        }
        Find::Count(at, first, step) => {
            let numbers =
                [("keynumidx", at as i64), ("firstkey", first as i64), ("keystep", step as i64)];
            reply_spec(reply, "keynum", &numbers);
        }
        Find::Unknown => reply_spec(reply, "unknown", &[]),
    }
}

fn reply_spec(reply: &mut Writer<'_>, name: &str, numbers: &[(&str, i64)]) {
    reply.string(name.as_bytes());
    reply.string(b"spec");
    reply.map(numbers.len());
    for (name, number) in numbers {
        reply.string(name.as_bytes());
        reply.integer(*number);
    }
}

fn command_docs(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let commands: Vec<&Command> = match arguments.len() {
        2 => all().collect(),
        _ => from(arguments, 2).filter_map(|name| context.state.names.named(name)).collect(),
    };
    reply_docs(&mut context.reply, &commands);
    Ok(())
}

fn reply_docs(reply: &mut Writer<'_>, commands: &[&Command]) {
    reply.map(commands.len());
    for command in commands {
        let has_subcommands = !command.subcommands.is_empty();
        reply.string(command.name.as_bytes());
        reply.map(3 + usize::from(has_subcommands));
        for (name, text) in [
            ("summary", command.summary),
            ("since", command.since),
            ("group", command.group.name()),
        ] {
            reply.string(name.as_bytes());
            reply.string(text.as_bytes());
        }
        if has_subcommands {
            reply.string(b"subcommands");
            reply_docs(reply, &command.subcommands.iter().collect::<Vec<_>>());
        }
    }
}

/// Replies with the names of some commands and subcommands.
pub(super) fn reply_names(context: &mut Context<'_>, is_shown: impl Fn(&Command) -> bool) {
    let own = all().flat_map(|command| [command].into_iter().chain(command.subcommands));
    let names: Vec<&str> = own.filter(|it| is_shown(it)).map(|command| command.name).collect();
    context.reply.array(names.len());
    for name in names {
        context.reply.string(name.as_bytes());
    }
}

fn command_list(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let filter = match (arguments.get(2), arguments.get(3), arguments.get(4)) {
        (None, _, _) => None,
        (Some(word), Some(kind), Some(value)) if is(word, "FILTERBY") && arguments.len() == 5 => {
            Some((kind, value))
        }
        _ => return Err(stop::SYNTAX),
    };
    match filter {
        None => reply_names(context, |_| true),
        Some((kind, _)) if is(kind, "MODULE") => reply_names(context, |_| false),
        Some((kind, name)) if is(kind, "ACLCAT") => reply_names(context, |command| {
            command.category_names().iter().any(|own| is(name, &own[1..]))
        }),
        Some((kind, pattern)) if is(kind, "PATTERN") => {
            let pattern = pattern.to_ascii_lowercase();
            reply_names(context, |command| glob::matches(&pattern, command.name.as_bytes()));
        }
        Some(_) => return Err(stop::SYNTAX),
    }
    Ok(())
}

/// Returns the places of keys among the words of a command, with their use.
///
/// # Errors
/// If the command is unknown or wrong, or has no keys.
fn keys_of(context: &Context<'_>, words: &[&[u8]]) -> Result<Vec<(usize, &'static str)>, Stop> {
    let invalid = Stop::error("ERR Invalid command specified");
    let command = words.first().and_then(|name| context.state.names.command(name));
    let command = command.and_then(|command| named(command, words.get(1).copied()));
    key_places(command.ok_or(invalid)?, words)
}

/// Returns the places of keys among the words of a command, with their use.
///
/// # Errors
/// If the command has no keys, or the words make no sense.
pub(super) fn key_places(
    command: &Command,
    words: &[&[u8]],
) -> Result<Vec<(usize, &'static str)>, Stop> {
    if command.keys.is_empty() {
        return Err(Stop::error("ERR The command has no key arguments"));
    }
    let wanted = command.arity.unsigned_abs() as usize;
    let is_wrong = if command.arity < 0 { words.len() < wanted } else { words.len() != wanted };
    if is_wrong {
        return Err(Stop::error("ERR Invalid number of arguments specified for command"));
    }
    places_of(command, words).ok_or(NO_KEYS_FOUND)
}

/// Whether the words of a BITFIELD do nothing but read. Words that make no sense might write.
fn only_reads_fields(words: &[&[u8]]) -> bool {
    let mut rest = words.get(2..).unwrap_or_default();
    while let [word, behind @ ..] = rest {
        let count = match word {
            word if is(word, "GET") => 2,
            word if is(word, "OVERFLOW") => 1,
            _ => return false,
        };
        let Some(behind) = behind.get(count..) else { return false };
        rest = behind;
    }
    true
}

/// The error for arguments among which the keys cannot be found.
const NO_KEYS_FOUND: Stop = Stop::error("ERR Invalid arguments specified for command");

/// Returns the places of keys among the words of a command, with their use; `None` if the arguments
/// make no sense.
fn places_of(command: &Command, words: &[&[u8]]) -> Option<Vec<(usize, &'static str)>> {
    // A value of an option of these commands may look like the word in front of a key, so only the
    // options in their order tell the keys. The table's descriptions are for clients.
    match command.name {
        "georadius" => return Some(radius_keys(words, 6)),
        "georadiusbymember" => return Some(radius_keys(words, 5)),
        "xread" | "xreadgroup" => {
            let flags = command.keys.first()?.flags;
            return Some(stream_keys(words)?.map(|place| (place, flags)).collect());
        }
        _ => {}
    }
    let mut places = Vec::new();
    for keys in command.keys {
        let found = find(keys, words);
        // A script may have no keys.
        let found = found.or_else(|| command.has(NO_MANDATORY_KEYS).then(Vec::new));
        let found = found?;
        let gets = words.iter().skip(3).any(|word| is(word, "GET"));
        let flags = match command.name {
            "set" if gets => "RW access update",
            "set" => "OW update",
            "bitfield" if only_reads_fields(words) => "RO access",
            _ => keys.flags,
        };
        places.extend(found.into_iter().map(|place| (place, flags)));
    }
    if command.name == "sort" {
        places.extend(sort_destination(words).map(|place| (place, "OW update")));
    }
    if command.name == "migrate" {
        // The argument for one key is empty if the keys are behind KEYS. Otherwise only it counts.
        match words.get(3).is_some_and(|key| key.is_empty()) {
            true => places.retain(|(place, _)| *place > 3),
            false => places.truncate(1),
        }
        if places.is_empty() {
            return None;
        }
    }
    Some(places)
}

/// Visits the keys of a command.
///
/// # Errors
/// If the arguments make no sense, so that the keys are not known.
pub(super) fn visit_keys(
    command: &'static Command,
    arguments: &Arguments<'_>,
    visit: &mut dyn FnMut(&[u8]),
) -> Done {
    if let [Keys { begin: Begin::Index(first), find: Find::Range(last, step, 0), .. }] =
        command.keys
    {
        let last = match *last {
            0.. => Some(first + *last as usize),
            _ => arguments.len().checked_sub(last.unsigned_abs() as usize),
        };
        let last = last.filter(|last| *last < arguments.len()).ok_or(NO_KEYS_FOUND)?;
        let places = (*first..=last).step_by(*step);
        places.filter_map(|place| arguments.get(place)).for_each(visit);
        return Ok(());
    }
    if command.keys.is_empty() {
        return Ok(());
    }
    let words: Vec<&[u8]> = arguments.iter().collect();
    let places = places_of(command, &words).ok_or(NO_KEYS_FOUND)?;
    places.iter().filter_map(|(place, _)| words.get(*place)).for_each(|key| visit(key));
    Ok(())
}

/// Returns the places of the keys of `GEORADIUS` or `GEORADIUSBYMEMBER`, whose options begin at a
/// place. The last `STORE` or `STOREDIST` counts.
fn radius_keys(words: &[&[u8]], options: usize) -> Vec<(usize, &'static str)> {
    let (mut stored, mut place) = (None, options);
    while let Some(word) = words.get(place) {
        let has_key = is(word, "STORE") || is(word, "STOREDIST");
        if has_key && place + 1 < words.len() {
            stored = Some((place + 1, "OW update"));
        }
        place += if has_key || is(word, "COUNT") { 2 } else { 1 };
    }
    [(1, "RO access")].into_iter().chain(stored).collect()
}

/// Returns the places of the keys of `XREAD` or `XREADGROUP`: the first half of the words behind
/// `STREAMS`. Returns `None` if the arguments make no sense.
fn stream_keys(words: &[&[u8]]) -> Option<Range<usize>> {
    let mut place = 1;
    loop {
        place += match words.get(place)? {
            it if is(it, "BLOCK") || is(it, "COUNT") => 2,
            it if is(it, "GROUP") => 3,
            it if is(it, "NOACK") => 1,
            it if is(it, "STREAMS") => break,
            _ => return None,
        };
    }
    // An id is missing if the number of words is odd. As in Redis, the last word is no key then.
    let count = (words.len() - place - 1) / 2;
    (count > 0).then(|| place + 1..place + 1 + count)
}

/// Returns the place of the key behind `STORE`, which may be anywhere among the options of `SORT`.
fn sort_destination(words: &[&[u8]]) -> Option<usize> {
    let (mut found, mut place) = (None, 2);
    while let Some(word) = words.get(place) {
        place += match word {
            it if is(it, "LIMIT") => 3,
            it if is(it, "GET") || is(it, "BY") => 2,
            it if is(it, "STORE") && place + 1 < words.len() => {
                found = Some(place + 1);
                2
            }
            _ => 1,
        };
    }
    found
}

/// Returns the places of keys; `None` if the arguments make no sense.
fn find(keys: &Keys, words: &[&[u8]]) -> Option<Vec<usize>> {
    let first = match keys.begin {
        Begin::Index(index) => index,
        Begin::Keyword(word, start) => {
            let is_word = |place: &usize| is(words[*place], word);
            let distance = start.unsigned_abs() as usize;
            let place = match start {
                0.. => (distance..words.len()).find(is_word),
                _ => (0..(words.len() + 1).saturating_sub(distance)).rev().find(is_word),
            };
            match place {
                Some(place) => place + 1,
                None => return Some(Vec::new()),
            }
        }
        Begin::Unknown => return Some(Vec::new()),
    };
    match keys.find {
        Find::Range(last, step, limit) => {
            let last = match last {
                0.. => first + last as usize,
                _ if limit > 1 => first + words.len().checked_sub(first)? / limit - 1,
                _ => words.len().checked_sub(last.unsigned_abs() as usize)?,
            };
            (last < words.len()).then(|| (first..=last).step_by(step).collect())
        }
        Find::Count(at, begin, step) => {
            let count = integer_of(words.get(first + at)?)?;
            let count = usize::try_from(count).ok().filter(|count| *count > 0)?;
            let begin = first + begin;
            let end = begin.checked_add(count.checked_mul(step)?)?;
            (end <= words.len()).then(|| (begin..end).step_by(step).collect())
        }
        Find::Unknown => Some(Vec::new()),
    }
}

fn command_getkeys(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let words: Vec<&[u8]> = from(arguments, 2).collect();
    let places = keys_of(context, &words)?;
    context.reply.array(places.len());
    for (place, _) in places {
        context.reply.string(words[place]);
    }
    Ok(())
}

/// Words among the flags of keys that are about the description, and not about the keys.
const HINTS: [&str; 2] = ["incomplete", "variable_flags"];

fn command_getkeysandflags(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let words: Vec<&[u8]> = from(arguments, 2).collect();
    let places = keys_of(context, &words)?;
    context.reply.array(places.len());
    for (place, flags) in places {
        context.reply.array(2);
        context.reply.string(words[place]);
        let flags = flags.split_whitespace().filter(|flag| !HINTS.contains(flag));
        context.reply.set(flags.clone().count());
        for flag in flags {
            context.reply.simple(flag);
        }
    }
    Ok(())
}

fn command_help(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    super::help::reply(context, "command");
    Ok(())
}
