//! The table of commands: dispatch, numbers of arguments, permissions and `COMMAND` follow from it.
//!
//! # How to add a family of commands
//!
//! 1. Make a file for it, such as `hashes.rs`, with a `pub(super) const COMMANDS: &[Command]`.
//!    Each command names its function: `fn hget(context: &mut Context<'_>, arguments:
//!    Arguments<'_>) -> Done`. Add the list to [`FAMILIES`].
//! 2. The function reads objects with `context.objects.read_kind(key, Kind::Hash)` if it only reads
//!    and with `find_kind` if it also writes. Both answer `WRONGTYPE` by themselves.
//! 3. It writes with `context.objects.put` or `remove`, and its reply with `context.reply`. It
//!    returns an error as `Err(Stop)` *before* it changes anything: the texts are in `stop.rs`.
//!    Part of a reply may have been written; it is dropped. The number of arguments was checked
//!    already.
//! 4. If a key got elements for which other clients may wait, it calls `context.signal(key)`.
//! 5. A command that waits returns [`Stop::Wait`](super::stop::Stop) if it finds nothing. The
//!    server executes it again when one of its keys was signalled. In a `MULTI` such a command
//!    does not wait: it gets the reply for an expired timeout at once.
//! 6. Redis shows the flags, keys, group and version with `COMMAND INFO` and `COMMAND DOCS`. The
//!    summary is in our own words.

use super::context::Context;
use super::parser::Arguments;
use super::stop::{Done, Stop, wrong_arity};
use std::collections::BTreeMap;

/// The lists of commands.
static FAMILIES: &[&[Command]] = &[
    super::administration::COMMANDS,
    super::bits::COMMANDS,
    super::channels::COMMANDS,
    super::clients::COMMANDS,
    super::cluster::COMMANDS,
    super::command_info::COMMANDS,
    super::connection::COMMANDS,
    super::dumps::COMMANDS,
    super::geo::COMMANDS,
    super::hashes::COMMANDS,
    super::hashes_expiring::COMMANDS,
    super::hyperloglog::COMMANDS,
    super::info::COMMANDS,
    super::keys::COMMANDS,
    super::latency::COMMANDS,
    super::refused::COMMANDS,
    super::scripts::COMMANDS,
    super::scripts::OF_FUNCTIONS,
    super::sets::COMMANDS,
    super::sets_algebra::COMMANDS,
    super::slowlog::COMMANDS,
    super::lists::COMMANDS,
    super::lists_moving::COMMANDS,
    super::sort::COMMANDS,
    super::sorted_sets::COMMANDS,
    super::sorted_sets_algebra::COMMANDS,
    super::sorted_sets_pops::COMMANDS,
    super::sorted_sets_ranges::COMMANDS,
    super::sorted_sets_scan::COMMANDS,
    super::streams::COMMANDS,
    super::streams_deleting::COMMANDS,
    super::streams_groups::COMMANDS,
    super::streams_info::COMMANDS,
    super::streams_pending::COMMANDS,
    super::streams_reading::COMMANDS,
    super::strings::COMMANDS,
    super::transactions::COMMANDS,
    super::users::COMMANDS,
    #[cfg(test)]
    super::server_tests::COMMANDS,
];

/// A set of properties of a command.
pub(super) type Flags = u32;

pub(super) const WRITE: Flags = 1;
pub(super) const READONLY: Flags = 1 << 1;
pub(super) const DENYOOM: Flags = 1 << 2;
pub(super) const MODULE: Flags = 1 << 3;
pub(super) const ADMIN: Flags = 1 << 4;
pub(super) const PUBSUB: Flags = 1 << 5;
pub(super) const NOSCRIPT: Flags = 1 << 6;
pub(super) const BLOCKING: Flags = 1 << 7;
pub(super) const LOADING: Flags = 1 << 8;
pub(super) const STALE: Flags = 1 << 9;
pub(super) const SKIP_MONITOR: Flags = 1 << 10;
pub(super) const SKIP_SLOWLOG: Flags = 1 << 11;
pub(super) const ASKING: Flags = 1 << 12;
pub(super) const FAST: Flags = 1 << 13;
pub(super) const NO_AUTH: Flags = 1 << 14;
pub(super) const MAY_REPLICATE: Flags = 1 << 15;
pub(super) const NO_MANDATORY_KEYS: Flags = 1 << 16;
pub(super) const NO_MULTI: Flags = 1 << 17;
pub(super) const MOVABLE_KEYS: Flags = 1 << 18;
pub(super) const ALLOW_BUSY: Flags = 1 << 19;
pub(super) const NO_ASYNC_LOADING: Flags = 1 << 20;
/// Not a property that clients see: the command belongs to the category `@dangerous`.
pub(super) const DANGEROUS: Flags = 1 << 21;
/// Not a property that clients see: the command is executed at once in a `MULTI`.
pub(super) const AT_ONCE: Flags = 1 << 22;
/// Not a property that clients see: a subscriber may send it with version 2 of the protocol.
pub(super) const OF_SUBSCRIBERS: Flags = 1 << 23;

/// Not a property that clients see: the command has effects on other clients that cannot be taken
/// back, so it is refused in a `MULTI`.
pub(super) const NOT_QUEUED: Flags = 1 << 24;

/// The names of the properties that clients see, in the order of Redis.
pub(super) const FLAG_NAMES: &[(Flags, &str)] = &[
    (WRITE, "write"),
    (READONLY, "readonly"),
    (DENYOOM, "denyoom"),
    (MODULE, "module"),
    (ADMIN, "admin"),
    (PUBSUB, "pubsub"),
    (NOSCRIPT, "noscript"),
    (BLOCKING, "blocking"),
    (LOADING, "loading"),
    (STALE, "stale"),
    (SKIP_MONITOR, "skip_monitor"),
    (SKIP_SLOWLOG, "skip_slowlog"),
    (ASKING, "asking"),
    (FAST, "fast"),
    (NO_AUTH, "no_auth"),
    (MAY_REPLICATE, "may_replicate"),
    (NO_MANDATORY_KEYS, "no_mandatory_keys"),
    (NO_ASYNC_LOADING, "no_async_loading"),
    (NO_MULTI, "no_multi"),
    (MOVABLE_KEYS, "movablekeys"),
    (ALLOW_BUSY, "allow_busy"),
];

/// The group of a command: its name in `COMMAND DOCS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    Bitmap,
    Connection,
    Generic,
    Geo,
    Hash,
    HyperLogLog,
    List,
    PubSub,
    Server,
    Set,
    SortedSet,
    Stream,
    String,
    Transactions,
    Cluster,
    Scripting,
}

impl Group {
    pub(super) fn name(self) -> &'static str {
        match self {
            Group::Bitmap => "bitmap",
            Group::Connection => "connection",
            Group::Generic => "generic",
            Group::Geo => "geo",
            Group::Hash => "hash",
            Group::HyperLogLog => "hyperloglog",
            Group::List => "list",
            Group::PubSub => "pubsub",
            Group::Server => "server",
            Group::Set => "set",
            Group::SortedSet => "sorted-set",
            Group::Stream => "stream",
            Group::String => "string",
            Group::Transactions => "transactions",
            Group::Cluster => "cluster",
            Group::Scripting => "scripting",
        }
    }

    /// Returns the category of its commands, or an empty text.
    const fn category(self) -> &'static str {
        match self {
            Group::Bitmap => "@bitmap",
            Group::Connection => "@connection",
            Group::Generic => "@keyspace",
            Group::Geo => "@geo",
            Group::Hash => "@hash",
            Group::HyperLogLog => "@hyperloglog",
            Group::List => "@list",
            Group::Set => "@set",
            Group::SortedSet => "@sortedset",
            Group::Stream => "@stream",
            Group::String => "@string",
            Group::Transactions => "@transaction",
            Group::Scripting => "@scripting",
            Group::PubSub | Group::Server | Group::Cluster => "",
        }
    }
}

/// The place where a search for keys begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// An argument.
    Index(usize),
    /// The argument behind a word, which is looked for from an argument on, or backwards from the
    /// end if it is negative.
    Keyword(&'static str, i64),
    /// Only the command itself knows.
    Unknown,
}

/// The places of keys, from the first one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Find {
    /// The last one, counted from the first one, or backwards from the end if it is negative; the
    /// distance of two keys; and the part of the arguments that they may be, such as 2 for a half.
    Range(i64, usize, usize),
    /// An argument has their number: the places of the number and of the first key, counted from
    /// the beginning, and the distance of two keys.
    Count(usize, usize, usize),
    /// Only the command itself knows.
    Unknown,
}

/// Some keys of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    /// The use of the keys, in words of Redis with spaces between them.
    pub(super) flags: &'static str,
    pub(super) begin: Begin,
    pub(super) find: Find,
    pub(super) notes: &'static str,
}

impl Keys {
    /// Returns a description of one key.
    pub(super) const fn one(flags: &'static str, index: usize) -> Keys {
        Keys::range(flags, index, 0, 1)
    }

    /// Returns a description of keys from an argument on: see [`Find::Range`].
    pub(super) const fn range(flags: &'static str, index: usize, last: i64, step: usize) -> Keys {
        Keys { flags, begin: Begin::Index(index), find: Find::Range(last, step, 0), notes: "" }
    }

    /// Returns a description of keys behind their number, which is an argument.
    pub(super) const fn counted(flags: &'static str, index: usize) -> Keys {
        Keys { flags, begin: Begin::Index(index), find: Find::Count(0, 1, 1), notes: "" }
    }

    /// Returns a description of all keys behind a word: see [`Begin::Keyword`].
    pub(super) const fn behind(flags: &'static str, word: &'static str, from: i64) -> Keys {
        let begin = Begin::Keyword(word, from);
        Keys { flags, begin, find: Find::Range(-1, 1, 0), notes: "" }
    }

    /// Returns a description of keys that only the command itself can find.
    pub(super) const fn unknown(flags: &'static str) -> Keys {
        Keys { flags, begin: Begin::Unknown, find: Find::Unknown, notes: "" }
    }

    /// Adds a remark.
    pub(super) const fn note(mut self, notes: &'static str) -> Keys {
        self.notes = notes;
        self
    }
}

/// The function of a command.
pub(super) type Execute = fn(&mut Context<'_>, Arguments<'_>) -> Done;

/// A command.
#[derive(Debug)]
pub(super) struct Command {
    /// Its name, in small letters. A subcommand's has its command before it: `config|get`.
    pub(super) name: &'static str,
    /// The number of arguments with the name, or the least number if it is negative.
    pub(super) arity: i32,
    pub(super) flags: Flags,
    pub(super) keys: &'static [Keys],
    pub(super) group: Group,
    pub(super) since: &'static str,
    pub(super) summary: &'static str,
    /// Its categories that do not follow from its flags, with spaces between them.
    pub(super) categories: &'static str,
    pub(super) subcommands: &'static [Command],
    /// Hints for clients of a cluster.
    pub(super) tips: &'static [&'static str],
    pub(super) execute: Execute,
}

impl Command {
    pub(super) const fn new(
        name: &'static str,
        arity: i32,
        flags: Flags,
        execute: Execute,
    ) -> Command {
        Command {
            name,
            arity,
            flags,
            keys: &[],
            group: Group::Generic,
            since: "1.0.0",
            summary: "",
            categories: "@keyspace",
            subcommands: &[],
            tips: &[],
            execute,
        }
    }

    /// Sets the places of its keys.
    pub(super) const fn keys(mut self, keys: &'static [Keys]) -> Command {
        self.keys = keys;
        self
    }

    /// Sets its documentation.
    pub(super) const fn about(
        mut self,
        group: Group,
        since: &'static str,
        summary: &'static str,
    ) -> Command {
        (self.group, self.since, self.summary) = (group, since, summary);
        self.categories = group.category();
        self
    }

    /// Sets its categories, if they are not that of its group.
    pub(super) const fn categories(mut self, categories: &'static str) -> Command {
        self.categories = categories;
        self
    }

    /// Sets its subcommands. They are executed instead of it.
    pub(super) const fn subcommands(mut self, subcommands: &'static [Command]) -> Command {
        self.subcommands = subcommands;
        self
    }

    /// Sets the hints for clients of a cluster.
    pub(super) const fn tips(mut self, tips: &'static [&'static str]) -> Command {
        self.tips = tips;
        self
    }

    /// Whether it has one of these properties.
    #[inline]
    pub(super) fn has(&self, flags: Flags) -> bool {
        self.flags & flags != 0
    }

    /// Whether it may write: also a script may. As in Redis, this includes the commands that the
    /// replicas of Redis receive although they change no object.
    pub(super) fn may_write(&self) -> bool {
        self.has(WRITE)
            || matches!(
                self.name,
                "eval" | "evalsha" | "fcall" | "pfcount" | "publish" | "spublish"
            )
    }

    /// Whether it takes so many arguments, with its name.
    pub(super) fn takes(&self, count: usize) -> bool {
        let wanted = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { count >= wanted } else { count == wanted }
    }
}

/// The function of commands that have subcommands: it is never called.
pub(super) fn by_subcommand(_: &mut Context<'_>, _: Arguments<'_>) -> Done {
    Err(super::stop::SYNTAX)
}

/// The number of places in the table of names: a power of two, much more than names.
const PLACES: usize = 1024;

/// The longest name.
const NAME_BYTES_MAX: usize = 32;

/// The commands by their names.
#[derive(Debug)]
pub(super) struct Names {
    places: Vec<Option<&'static Command>>,
}

/// Returns the place of a name.
fn place(name: &[u8]) -> usize {
    let mix = |hash: u32, byte: &u8| {
        (hash ^ u32::from(byte.to_ascii_lowercase())).wrapping_mul(0x0100_0193)
    };
    let hash = name.iter().fold(0x811c_9dc5, mix);
    (hash ^ hash >> 15) as usize % PLACES
}

impl Names {
    /// The number of places.
    pub(super) const PLACES: usize = PLACES;

    pub(super) fn new() -> Names {
        let mut places = vec![None; PLACES];
        for command in all().flat_map(|command| [command].into_iter().chain(command.subcommands)) {
            let mut place = place(command.name.as_bytes());
            while places[place].is_some() {
                place = (place + 1) % PLACES;
            }
            places[place] = Some(command);
        }
        Names { places }
    }

    /// Returns a command.
    #[inline]
    pub(super) fn command(&self, name: &[u8]) -> Option<&'static Command> {
        self.named(name).filter(|command| !command.name.contains('|'))
    }

    /// Returns a command, or a subcommand by its whole name.
    pub(super) fn named(&self, name: &[u8]) -> Option<&'static Command> {
        if name.len() > NAME_BYTES_MAX {
            return None;
        }
        let mut place = place(name);
        while let Some(command) = self.places[place] {
            if command.name.as_bytes().eq_ignore_ascii_case(name) {
                return Some(command);
            }
            place = (place + 1) % PLACES;
        }
        None
    }

    /// Returns the place of a command, which is its number in lists of counts.
    #[inline]
    pub(super) fn place_of(&self, command: &'static Command) -> usize {
        let mut place = place(command.name.as_bytes());
        while self.places[place].is_some_and(|it| it.name != command.name) {
            place = (place + 1) % PLACES;
        }
        place
    }

    /// Returns the command of a place, if there is one.
    pub(super) fn at(&self, place: usize) -> Option<&'static Command> {
        self.places.get(place).copied().flatten()
    }

    /// Returns the command, or its subcommand, that some arguments name. Their number may be wrong.
    pub(super) fn known(&self, arguments: &Arguments<'_>) -> Option<&'static Command> {
        let command = self.command(&arguments[0])?;
        match arguments.get(1) {
            Some(name) if !command.subcommands.is_empty() => subcommand(command, name),
            _ => Some(command),
        }
    }

    /// Returns the command, or its subcommand, that some arguments call.
    ///
    /// # Errors
    /// If there is none, or if the number of arguments is wrong.
    #[inline]
    pub(super) fn called(&self, arguments: &Arguments<'_>) -> Result<&'static Command, Stop> {
        let Some(mut command) = self.command(&arguments[0]) else {
            return Err(unknown(arguments));
        };
        if !command.subcommands.is_empty()
            && let Some(name) = arguments.get(1)
        {
            let Some(found) = subcommand(command, name) else {
                return Err(unknown_subcommand(command, name));
            };
            command = found;
        }
        if !command.takes(arguments.len()) {
            return Err(wrong_arity(command.name));
        }
        Ok(command)
    }
}

/// Returns all commands, without their subcommands.
pub(super) fn all() -> impl Iterator<Item = &'static Command> {
    FAMILIES.iter().copied().flatten()
}

/// Returns the names of all commands by their group, for the documents. A command with subcommands
/// is named with each of them.
#[must_use]
pub fn commands_by_group() -> BTreeMap<&'static str, Vec<String>> {
    let mut groups: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for command in all() {
        let names = groups.entry(command.group.name()).or_default();
        let shown = |command: &Command| command.name.replace('|', " ").to_uppercase();
        match command.subcommands {
            [] => names.push(shown(command)),
            several => names.extend(several.iter().map(shown)),
        }
    }
    groups.values_mut().for_each(|names| names.sort_unstable());
    groups
}

/// Returns a subcommand.
pub(super) fn subcommand(command: &'static Command, name: &[u8]) -> Option<&'static Command> {
    command.subcommands.iter().find(|it| {
        it.name.split_once('|').is_some_and(|(_, own)| own.as_bytes().eq_ignore_ascii_case(name))
    })
}

/// Returns the subcommand that the word behind a command names, or the command itself if it has no
/// subcommands or no word is behind it; `None` for another word.
pub(super) fn named(command: &'static Command, word: Option<&[u8]>) -> Option<&'static Command> {
    match word {
        Some(word) if !command.subcommands.is_empty() => subcommand(command, word),
        _ => Some(command),
    }
}

/// The bytes of a name, and of all arguments, that an error shows.
const SHOWN_BYTES_MAX: usize = 128;

fn unknown(arguments: &Arguments<'_>) -> Stop {
    let shown = |text: &[u8], most: usize| {
        let end = memchr::memchr(0, text).unwrap_or(text.len());
        text[..end.min(most)].to_vec()
    };
    let mut text = b"ERR unknown command '".to_vec();
    text.extend(shown(&arguments[0], SHOWN_BYTES_MAX));
    text.extend_from_slice(b"', with args beginning with: ");
    let begin = text.len();
    for argument in arguments.iter().skip(1) {
        let bytes = text.len() - begin;
        if bytes >= SHOWN_BYTES_MAX {
            break;
        }
        text.push(b'\'');
        text.extend(shown(argument, SHOWN_BYTES_MAX - bytes));
        text.extend_from_slice(b"' ");
    }
    Stop::error_of(text)
}

fn unknown_subcommand(command: &Command, name: &[u8]) -> Stop {
    let end = memchr::memchr(0, name).unwrap_or(name.len());
    let mut text = b"ERR unknown subcommand '".to_vec();
    text.extend_from_slice(&name[..end.min(SHOWN_BYTES_MAX)]);
    text.extend_from_slice(b"'. Try ");
    text.extend_from_slice(command.name.to_ascii_uppercase().as_bytes());
    text.extend_from_slice(b" HELP.");
    Stop::error_of(text)
}
