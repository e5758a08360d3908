//! `SLOWLOG`: the commands that took long, with the newest first.
//!
//! A transaction has an entry for each of its slow commands, and a script one for itself. A command
//! that waits has an entry when its waiting has ended, for the time of its execution. Commands of a
//! [run](super::runs) have no entries: a run is only used if the settings ask for slower commands.
//!
//! # Promises
//!
//! - The entries use at most [`BYTES_MAX`] of memory: long arguments are shortened, and the oldest
//!   entries are dropped. The entries of a transaction use as much again until its end.
//! - Passwords and rules of users are not in the log.

use super::client::Queued;
use super::commands::{ADMIN, Command, Group, LOADING, SKIP_SLOWLOG, STALE, by_subcommand};
use super::context::{Context, is};
use super::number::integer_of;
use super::parser::Arguments;
use super::server::{ClientId, State};
use super::stop::{Done, Stop};
use std::collections::VecDeque;
use std::time::Duration;

pub(super) const COMMANDS: &[Command] = &[Command::new("slowlog", -2, 0, by_subcommand)
    .subcommands(&[
        Command::new("slowlog|reset", 2, ADMIN | LOADING | STALE, slowlog_reset)
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
            .about(Group::Server, "2.2.12", "Forgets all entries."),
        Command::new("slowlog|help", 2, LOADING | STALE, slowlog_help).about(
            Group::Server,
            "6.2.0",
            "Describes the subcommands.",
        ),
        Command::new("slowlog|len", 2, ADMIN | LOADING | STALE, slowlog_len)
            .tips(&[
                "request_policy:all_nodes",
                "response_policy:agg_sum",
                "nondeterministic_output",
            ])
            .about(Group::Server, "2.2.12", "Returns the number of entries."),
        Command::new("slowlog|get", -2, ADMIN | LOADING | STALE, slowlog_get)
            .tips(&["request_policy:all_nodes", "nondeterministic_output"])
            .about(Group::Server, "2.2.12", "Returns the newest entries."),
    ])
    .about(Group::Server, "2.2.12", "Commands about commands that took long.")];

/// The most arguments of an entry. The last one tells the number of the others.
const ARGUMENTS_MAX: usize = 32;

/// The bytes of an argument that an entry has.
const ARGUMENT_BYTES_MAX: usize = 128;

/// The bytes of a client's name that an entry has. Redis has no such limit.
const NAME_BYTES_MAX: usize = 1024;

/// The most memory of all entries.
const BYTES_MAX: usize = 16 << 20;

/// The memory of an entry and of each of its arguments, beside their bytes.
const ENTRY_BYTES: usize = size_of::<Entry>();
const ARGUMENT_BYTES: usize = size_of::<Vec<u8>>() + 16;

/// The entries that `SLOWLOG GET` returns if it does not name a number.
const SHOWN: usize = 10;

/// The text in the place of a secret.
const REDACTED: &[u8] = b"(redacted)";

/// A command that took long.
#[derive(Debug)]
struct Entry {
    number: u64,
    /// The time of its end, in seconds since 1970.
    time: u64,
    microseconds: u64,
    arguments: Vec<Vec<u8>>,
    peer: String,
    name: Vec<u8>,
}

impl Entry {
    fn bytes(&self) -> usize {
        let arguments = self.arguments.iter().map(|it| it.len() + ARGUMENT_BYTES);
        ENTRY_BYTES + arguments.sum::<usize>() + self.peer.len() + self.name.len()
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct SlowLog {
    /// The newest is the first.
    entries: VecDeque<Entry>,
    bytes: usize,
    /// The number of the next entry.
    next: u64,
    /// The entries of the present command, which may be executed again.
    present: VecDeque<Entry>,
    present_bytes: usize,
    /// The entries of the present command that were dropped.
    present_dropped: u64,
}

impl SlowLog {
    /// Takes the entries of the present command, so that nothing takes them back.
    #[inline]
    pub(super) fn keep(&mut self, most: usize) {
        if !self.present.is_empty() {
            self.keep_all(most);
        }
    }

    #[cold]
    fn keep_all(&mut self, most: usize) {
        self.next += self.present_dropped;
        (self.present_bytes, self.present_dropped) = (0, 0);
        for mut entry in std::mem::take(&mut self.present) {
            entry.number = self.next;
            self.next += 1;
            self.bytes += entry.bytes();
            self.entries.push_front(entry);
        }
        while (self.entries.len() > most || self.bytes > BYTES_MAX)
            && let Some(entry) = self.entries.pop_back()
        {
            self.bytes -= entry.bytes();
        }
    }

    /// Adds an entry of the present command. A transaction may have very many.
    fn push(&mut self, entry: Entry, most: usize) {
        self.present_bytes += entry.bytes();
        self.present.push_back(entry);
        // The last one stays: without it, nothing would count the dropped ones.
        while (self.present.len() > most.max(1) || self.present_bytes > BYTES_MAX)
            && let Some(entry) = self.present.pop_front()
        {
            self.present_bytes -= entry.bytes();
            self.present_dropped += 1;
        }
    }

    /// Forgets the entries of the present command, which is executed again.
    pub(super) fn take_back(&mut self) {
        self.present.clear();
        (self.present_bytes, self.present_dropped) = (0, 0);
    }

    fn reset(&mut self) {
        self.entries.clear();
        self.bytes = 0;
    }
}

impl State {
    /// Notes a command that took a time, if that is long. The latency monitor sees the time, too.
    #[inline]
    pub(super) fn note_slow(
        &mut self,
        id: ClientId,
        command: &Command,
        arguments: &Arguments<'_>,
        (now_ms, took): (u64, Option<Duration>),
    ) {
        let Some(took) = took else { return };
        self.monitor_latency(command, took, now_ms);
        let least = self.settings.slower_than_us;
        if least >= 0 && took.as_micros() as i128 >= i128::from(least) {
            self.push_slow(id, command, arguments, (now_ms, took));
        }
    }

    #[cold]
    fn push_slow(
        &mut self,
        id: ClientId,
        command: &Command,
        arguments: &Arguments<'_>,
        (now_ms, took): (u64, Duration),
    ) {
        let Some(client) = self.clients.get(&id).filter(|_| !command.has(SKIP_SLOWLOG)) else {
            return;
        };
        let name = client.name.get(..NAME_BYTES_MAX).unwrap_or(&client.name).to_vec();
        let entry = Entry {
            number: 0,
            time: now_ms / 1000,
            microseconds: took.as_micros() as u64,
            arguments: shortened(command, arguments),
            peer: client.peer.clone(),
            name,
        };
        self.slow_log.push(entry, self.settings.slow_entries_max);
    }
}

/// Returns the arguments of a command as an entry has them.
fn shortened(command: &Command, arguments: &Arguments<'_>) -> Vec<Vec<u8>> {
    let count = arguments.len();
    let shown = if count > ARGUMENTS_MAX { ARGUMENTS_MAX - 1 } else { count };
    let argument = |(index, text): (usize, &[u8])| match text.get(..ARGUMENT_BYTES_MAX) {
        _ if is_secret(command, arguments, index) => REDACTED.to_vec(),
        Some(begin) if text.len() > ARGUMENT_BYTES_MAX => {
            let rest = format!("... ({} more bytes)", text.len() - ARGUMENT_BYTES_MAX);
            [begin, rest.as_bytes()].concat()
        }
        _ => text.to_vec(),
    };
    let mut all: Vec<Vec<u8>> = arguments.iter().take(shown).enumerate().map(argument).collect();
    if shown < count {
        all.push(format!("... ({} more arguments)", count - shown).into_bytes());
    }
    all
}

/// The settings whose values are secret.
const SECRET_SETTINGS: [&str; 5] =
    ["masterauth", "masteruser", "requirepass", "tls-client-key-file-pass", "tls-key-file-pass"];

/// Whether an argument of a command is a secret, such as a password.
fn is_secret(command: &Command, arguments: &Arguments<'_>, index: usize) -> bool {
    // Whether one of the arguments before it is a word that begins at some place.
    let behind = |distance: usize, word: &str, first: usize| {
        let before = index.checked_sub(distance).filter(|at| *at >= first);
        before.and_then(|at| arguments.get(at)).is_some_and(|text| is(text, word))
    };
    match command.name {
        "auth" => index > 0,
        "acl|setuser" | "acl|getuser" | "acl|deluser" => index > 1,
        "hello" => behind(1, "AUTH", 2) || behind(2, "AUTH", 2),
        "migrate" => behind(1, "AUTH", 6) || behind(1, "AUTH2", 6) || behind(2, "AUTH2", 6),
        "config|set" => {
            let is_value = index % 2 == 1;
            is_value && SECRET_SETTINGS.iter().any(|name| behind(1, name, 2))
        }
        _ => false,
    }
}

/// Returns a command without its secrets, if it has some.
pub(super) fn without_secrets(
    command: &'static Command,
    arguments: &Arguments<'_>,
) -> Option<Queued> {
    if !matches!(command.name, "auth" | "hello" | "migrate") {
        return None;
    }
    let mut queued = Queued::new(command, arguments);
    for index in (0..arguments.len()).filter(|index| is_secret(command, arguments, *index)) {
        queued.replace(index, REDACTED);
    }
    Some(queued)
}

fn slowlog_get(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    if arguments.len() > 3 {
        let begin = b"ERR unknown subcommand or wrong number of arguments for '";
        let text = [&begin[..], &arguments[1], b"'. Try SLOWLOG HELP."].concat();
        return Err(Stop::error_of(text));
    }
    let wanted = match arguments.get(2).map(integer_of) {
        None => SHOWN,
        Some(Some(-1)) => usize::MAX,
        Some(count) => count
            .and_then(|count| usize::try_from(count).ok())
            .ok_or(Stop::error("ERR count should be greater than or equal to -1"))?,
    };
    let Context { state, reply, .. } = context;
    state.slow_log.keep(state.settings.slow_entries_max);
    let entries = &state.slow_log.entries;
    reply.array(wanted.min(entries.len()));
    for entry in entries.iter().take(wanted) {
        reply.array(6);
        reply.integer(entry.number as i64);
        reply.integer(entry.time as i64);
        reply.integer(entry.microseconds as i64);
        reply.array(entry.arguments.len());
        entry.arguments.iter().for_each(|argument| reply.string(argument));
        reply.string(entry.peer.as_bytes());
        reply.string(&entry.name);
    }
    Ok(())
}

fn slowlog_len(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    let state = &mut *context.state;
    state.slow_log.keep(state.settings.slow_entries_max);
    let count = state.slow_log.entries.len();
    context.reply.integer(count as i64);
    Ok(())
}

fn slowlog_reset(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    let state = &mut *context.state;
    state.slow_log.keep(state.settings.slow_entries_max);
    state.slow_log.reset();
    context.ok();
    Ok(())
}

fn slowlog_help(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    super::help::reply(context, "slowlog");
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::resp::testing::Door;

    #[test]
    fn a_slow_command_has_an_entry_with_its_client() {
        let mut door = Door::new();
        door.measure(700);
        door.expect(&[
            ("config set slowlog-log-slower-than 700", "+OK|"),
            ("client setname me", "+OK|"),
            ("slowlog reset", "+OK|"),
            ("set a 1", "+OK|"),
            (
                "slowlog get 1",
                "*1|*6|:3|:1800000000|:700|*3|$3|set|$1|a|$1|1|$15|127.0.0.1:50001|$2|me|",
            ),
            ("config set slowlog-log-slower-than 701", "+OK|"),
            ("slowlog reset", "+OK|"),
            ("get a", "$1|1|"),
            ("slowlog len", ":0|"),
            ("config set slowlog-log-slower-than -1", "+OK|"),
            ("slowlog get", "*0|"),
            (
                "slowlog get 1 2",
                "-ERR unknown subcommand or wrong number of arguments for 'get'. \
              Try SLOWLOG HELP.|",
            ),
            ("slowlog get -2", "-ERR count should be greater than or equal to -1|"),
        ]);
    }

    #[test]
    fn the_log_has_as_many_entries_as_the_setting_says() {
        let mut door = Door::new();
        door.measure(1);
        door.said("config set slowlog-log-slower-than 0 slowlog-max-len 3");
        for _ in 0..5 {
            door.said("ping");
        }
        assert_eq!(door.said("slowlog len"), ":3|");
        assert!(door.said("slowlog get -1").starts_with("*3|"));
        assert!(door.said("slowlog get 2").starts_with("*2|"));
        door.said("config set slowlog-max-len 0");
        door.said("ping");
        assert_eq!(door.said("slowlog len"), ":0|");
    }

    #[test]
    fn long_commands_are_shortened() {
        let mut door = Door::new();
        door.measure(1);
        door.said("config set slowlog-log-slower-than 0");
        let many: Vec<String> = (3..34).map(|number| number.to_string()).collect();
        door.said(&format!("sadd s {}", many.join(" ")));
        let shown = door.said("slowlog get 1");
        assert!(shown.contains("*32|$4|sadd|$1|s|$1|3|"), "{shown}");
        assert!(shown.contains("$2|31|$22|... (2 more arguments)|"), "{shown}");
        door.said(&format!("sadd s foo {}", "A".repeat(129)));
        let shown = door.said("slowlog get 1");
        assert!(shown.contains(&format!("|{}... (1 more bytes)|", "A".repeat(128))), "{shown}");
    }

    #[test]
    fn long_names_do_not_fill_the_memory() {
        let mut door = Door::new();
        door.measure(1);
        door.said("config set slowlog-log-slower-than 0 slowlog-max-len 1000000");
        door.said(&format!("client setname {}", "n".repeat(10_000)));
        let long: Vec<String> = (0..31).map(|_| "A".repeat(128)).collect();
        let line = format!("sadd {}", long.join(" "));
        for _ in 0..5000 {
            door.said(&line);
        }
        let log = &door.server.slow_log();
        assert!(log.bytes <= super::BYTES_MAX && log.entries.len() > 1000);
        let sum: usize = log.entries.iter().map(super::Entry::bytes).sum();
        assert_eq!(sum, log.bytes);
    }

    #[test]
    fn secrets_are_neither_logged_nor_shown() {
        let mut door = Door::new();
        door.measure(1);
        door.said_to(2, "monitor");
        door.said("config set slowlog-log-slower-than 0");
        door.said("slowlog reset");
        for line in [
            "auth hidden",
            "auth default hidden",
            "hello 2 auth default hidden setname me",
            "config set slowlog-max-len 100 requirepass hidden",
            "acl setuser hidden >hidden",
            "acl getuser hidden",
            "acl deluser hidden",
        ] {
            door.said(line);
        }
        let log = door.said("slowlog get -1");
        assert!(!log.contains("hidden") && log.contains("(redacted)"), "{log}");
        assert!(log.contains("slowlog-max-len|$3|100|$11|requirepass|$10|(redacted)|"), "{log}");
        let seen = door.heard(2);
        assert!(!seen.contains("hidden") && seen.contains("\"auth\" \"(redacted)\""), "{seen}");
    }

    #[test]
    fn a_transaction_has_entries_for_its_commands() {
        let mut door = Door::new();
        door.measure(5);
        door.said("config set slowlog-log-slower-than 0");
        door.said("multi\nset a 1\nget a\nexec");
        let log = door.said("slowlog get");
        assert!(!log.contains("exec") && log.contains("*2|$3|get|$1|a|"), "{log}");
    }

    #[test]
    fn the_entries_of_a_transaction_have_limits() {
        let mut door = Door::new();
        door.measure(1);
        door.said("config set slowlog-log-slower-than 0 slowlog-max-len 1000000");
        let long: Vec<String> = (0..31).map(|_| "A".repeat(128)).collect();
        let line = format!("sadd {}", long.join(" "));
        door.said(&format!("multi\n{}exec", format!("{line}\n").repeat(5000)));
        let log = &door.server.slow_log();
        assert!(log.present_bytes <= super::BYTES_MAX && log.present.len() > 1000);
        let sum: usize = log.present.iter().map(super::Entry::bytes).sum();
        assert_eq!(
            (sum, log.present.len() as u64 + log.present_dropped),
            (log.present_bytes, 5000)
        );
        // The setting limits them, too, and each of them has a number.
        door.said("config set slowlog-max-len 3\nslowlog reset");
        let first = door.server.slow_log().next;
        door.said(&format!("multi\n{}exec", "ping\n".repeat(100)));
        assert_eq!(door.server.slow_log().present.len(), 3);
        let newest = format!("*3|*6|:{}|", first + 101);
        let log = door.said("slowlog get -1");
        assert!(log.starts_with(&newest), "{newest} {log}");
    }

    #[test]
    fn a_command_that_is_executed_again_has_one_entry() {
        let mut door = Door::new();
        door.measure(5);
        door.said("config set slowlog-log-slower-than 0");
        door.said("multi\nset a 1\nincr b");
        door.store.refuses_after = Some(1);
        door.said("exec");
        let log = door.said("slowlog get");
        assert_eq!(log.matches("|$4|incr|").count(), 1, "{log}");
    }

    #[test]
    fn a_waiting_command_has_its_entry_at_the_end() {
        let mut door = Door::new();
        door.measure(5);
        door.said("config set slowlog-log-slower-than 0");
        door.said_to(2, "blpop l 0");
        assert!(!door.said("slowlog get").contains("blpop"));
        door.said("rpush l a");
        assert!(door.said("slowlog get").contains("blpop"));
    }
}
