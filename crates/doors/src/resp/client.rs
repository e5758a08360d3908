//! The state of a client's connection.

use super::acl;
use super::cluster::Port;
use super::commands::Command;
use super::parser::Arguments;
use super::server::ClientId;
use super::store::Database;
use super::tracking::Tracked;
use super::writer::Version;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

/// A command that was read, and is executed later.
#[derive(Clone, Debug)]
pub(super) struct Queued {
    pub(super) command: &'static Command,
    /// The bytes of its arguments, and where each of them is.
    pub(super) bytes: Vec<u8>,
    pub(super) places: Vec<Range<usize>>,
}

/// The commands between `MULTI` and `EXEC`.
#[derive(Clone, Debug, Default)]
pub(super) struct Multi {
    pub(super) queued: Vec<Queued>,
    /// The bytes of the commands and of the table that lists them.
    pub(super) bytes: usize,
    /// A command was wrong: `EXEC` does nothing.
    pub(super) is_broken: bool,
}

impl Multi {
    /// Adds a command.
    pub(super) fn push(&mut self, queued: Queued) {
        self.bytes += queued.bytes.len() + queued.places.len() * size_of::<Range<usize>>();
        self.queued.push(queued);
    }
}

/// The replies that a client gets: see `CLIENT REPLY`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Replies {
    #[default]
    On,
    Off,
    /// The next command has no reply.
    SkipNext,
    /// This command has no reply.
    Skip,
}

/// A connected client.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) id: ClientId,
    pub(super) port: Port,
    /// Its number, as clients see it.
    pub(super) number: u64,
    pub(super) peer: String,
    pub(super) local: String,
    pub(super) opened_ms: u64,
    /// The time of its last command.
    pub(super) active_ms: u64,
    pub(super) version: Version,
    pub(super) database: Database,
    pub(super) is_authenticated: bool,
    /// The name of its user, unless that is `default`.
    pub(super) user: Option<Rc<[u8]>>,
    pub(super) name: Vec<u8>,
    pub(super) lib_name: Vec<u8>,
    pub(super) lib_version: Vec<u8>,
    pub(super) replies: Replies,
    pub(super) multi: Option<Multi>,
    /// The keys that must not change until `EXEC`, with the versions of their objects; `None` if
    /// there was no object.
    pub(super) watched: BTreeMap<(Database, Vec<u8>), Option<u64>>,
    /// Whether one of these keys was written.
    pub(super) is_touched: bool,
    pub(super) channels: BTreeSet<Vec<u8>>,
    pub(super) patterns: BTreeSet<Vec<u8>>,
    pub(super) shard_channels: BTreeSet<Vec<u8>>,
    /// The name of its last command.
    pub(super) last: &'static str,
    /// The order in which it began to wait, if it does.
    pub(super) waits: Option<u64>,
    pub(super) is_monitor: bool,
    pub(super) evicts_not: bool,
    pub(super) touches_not: bool,
    /// How it is told about changes of keys, if it is.
    pub(super) tracked: Option<Box<Tracked>>,
    /// Commands that it has sent.
    pub(super) commands: u64,
    /// The elements that its command has removed in changes that are done, while the command has
    /// more to do. The command may be executed again meanwhile.
    pub(super) removed: u64,
}

impl Client {
    pub(super) fn new(id: ClientId, number: u64, peer: &str, local: &str, now_ms: u64) -> Client {
        Client {
            id,
            port: Port::default(),
            number,
            peer: peer.to_owned(),
            local: local.to_owned(),
            opened_ms: now_ms,
            active_ms: now_ms,
            version: Version::Two,
            database: 0,
            is_authenticated: false,
            user: None,
            name: Vec::new(),
            lib_name: Vec::new(),
            lib_version: Vec::new(),
            replies: Replies::On,
            multi: None,
            watched: BTreeMap::new(),
            is_touched: false,
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
            shard_channels: BTreeSet::new(),
            last: "NULL",
            waits: None,
            is_monitor: false,
            evicts_not: false,
            touches_not: false,
            tracked: None,
            commands: 0,
            removed: 0,
        }
    }

    /// Returns the name of its user.
    pub(super) fn user_name(&self) -> &[u8] {
        self.user.as_deref().unwrap_or(acl::DEFAULT)
    }

    /// Whether the reply to the command that was just executed is dropped.
    pub(super) fn drops_reply(&mut self) -> bool {
        match self.replies {
            Replies::On => false,
            Replies::Off => true,
            Replies::SkipNext => {
                self.replies = Replies::Skip;
                false
            }
            Replies::Skip => {
                self.replies = Replies::On;
                true
            }
        }
    }

    /// Returns the line of `MONITOR` for one of its commands.
    /// `source` is its address, or says that a script has executed the command.
    pub(super) fn monitor_line(
        &self,
        source: &str,
        arguments: &Arguments<'_>,
        now_ms: u64,
    ) -> Vec<u8> {
        let (seconds, rest) = (now_ms / 1000, now_ms % 1000);
        let database = self.database;
        let mut line = format!("+{seconds}.{rest:03}000 [{database} {source}]").into_bytes();
        for argument in arguments.iter() {
            line.extend_from_slice(b" \"");
            for byte in argument {
                match byte {
                    b'\\' | b'"' => line.extend([b'\\', *byte]),
                    b'\n' => line.extend_from_slice(b"\\n"),
                    b'\r' => line.extend_from_slice(b"\\r"),
                    b'\t' => line.extend_from_slice(b"\\t"),
                    7 => line.extend_from_slice(b"\\a"),
                    8 => line.extend_from_slice(b"\\b"),
                    b' '..=b'~' => line.push(*byte),
                    byte => line.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
                }
            }
            line.push(b'"');
        }
        line.extend_from_slice(b"\r\n");
        line
    }

    /// The channels and patterns that it listens to, without those of shards.
    pub(super) fn subscriptions(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    /// Whether it listens to something, and may only send a few commands with version 2.
    pub(super) fn is_subscriber(&self) -> bool {
        self.subscriptions() + self.shard_channels.len() > 0
    }
}

impl Queued {
    /// Copies a command.
    pub(super) fn new(command: &'static Command, arguments: &Arguments<'_>) -> Queued {
        let mut bytes = Vec::with_capacity(arguments.iter().map(<[u8]>::len).sum());
        let mut places = Vec::with_capacity(arguments.len());
        for argument in arguments.iter() {
            let begin = bytes.len();
            bytes.extend_from_slice(argument);
            places.push(begin..bytes.len());
        }
        Queued { command, bytes, places }
    }

    /// Replaces an argument.
    pub(super) fn replace(&mut self, index: usize, text: &[u8]) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(text);
        if let Some(place) = self.places.get_mut(index) {
            *place = begin..self.bytes.len();
        }
    }

    /// Returns its arguments.
    pub(super) fn arguments(&self) -> Arguments<'_> {
        Arguments::new(&self.bytes, &self.places)
    }
}
