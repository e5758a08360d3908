//! Rules about commands, keys and channels.

use crate::resp::commands::{Command, Names, all};
use std::collections::{BTreeMap, BTreeSet};

/// Permissions of a key.
pub(super) const READ: u8 = 1;
pub(super) const WRITE: u8 = 2;

/// The words of a set of commands, with a bit for each place of [`Names`].
const WORDS: usize = Names::PLACES.div_ceil(64);

/// The reader of a user's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// It sees the rules in the form of Redis.
    Client,
    /// The same user is made from its lines.
    Store,
}

/// The reason why a rule is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::resp) enum Wrong {
    Syntax,
    Unknown,
    BehindAllKeys,
    BehindAllChannels,
    NoSuchPassword,
    Hash,
    FirstArgument,
}

impl Wrong {
    /// Returns the sentence that a client sees.
    pub(in crate::resp) fn text(self) -> &'static str {
        match self {
            Wrong::Syntax => "Syntax error",
            Wrong::Unknown => "Unknown command or category name in ACL",
            Wrong::BehindAllKeys => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does \
                 not have any effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            Wrong::BehindAllChannels => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and \
                 does not have any effect. Try 'resetchannels' to start with an empty list of \
                 channels"
            }
            Wrong::NoSuchPassword => {
                "The password you are trying to remove from the user does not exist"
            }
            Wrong::Hash => {
                "The password hash must be exactly 64 characters and contain only lowercase \
                 hexadecimal characters"
            }
            Wrong::FirstArgument => "Allowing first-arg of a subcommand is not supported",
        }
    }
}

/// Rules. A command is allowed if one selector of its user allows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::resp) struct Selector {
    commands: [u64; WORDS],
    /// Whether all commands are allowed, with every argument.
    pub(super) all_commands: bool,
    /// Whether the rules begin with all commands, and not with none.
    begins_with_all: bool,
    /// The rules about commands behind that, as clients see them.
    rules: Vec<Vec<u8>>,
    /// The first arguments with which commands are allowed that are not in the set.
    first_arguments: BTreeMap<usize, BTreeSet<Vec<u8>>>,
    pub(super) all_keys: bool,
    pub(super) keys: Vec<(u8, Vec<u8>)>,
    pub(super) all_channels: bool,
    pub(super) channels: Vec<Vec<u8>>,
}

/// Checks that a text of a rule has no byte that would end the rule. The store keeps rules as words
/// of a line.
fn check_text(text: &[u8]) -> Result<(), Wrong> {
    let is_wrong = |byte: &u8| byte.is_ascii_whitespace() || matches!(*byte, 0 | 0x0b);
    if text.iter().any(is_wrong) { Err(Wrong::Syntax) } else { Ok(()) }
}

impl Selector {
    /// Returns rules that allow nothing.
    pub(super) fn none() -> Selector {
        Selector {
            commands: [0; WORDS],
            all_commands: false,
            begins_with_all: false,
            rules: Vec::new(),
            first_arguments: BTreeMap::new(),
            all_keys: false,
            keys: Vec::new(),
            all_channels: false,
            channels: Vec::new(),
        }
    }

    /// Returns rules that allow everything.
    pub(super) fn everything() -> Selector {
        let mut selector = Selector { all_keys: true, all_channels: true, ..Selector::none() };
        selector.set_all(true);
        selector
    }

    /// Whether everything is allowed.
    #[inline]
    pub(super) fn is_everything(&self) -> bool {
        self.all_commands && self.all_keys && self.all_channels
    }

    fn set_all(&mut self, allows: bool) {
        self.commands = [if allows { u64::MAX } else { 0 }; WORDS];
        (self.all_commands, self.begins_with_all) = (allows, allows);
        self.rules.clear();
        self.first_arguments.clear();
    }

    /// Whether a command is in the set.
    pub(super) fn has(&self, place: usize) -> bool {
        self.commands.get(place / 64).is_some_and(|word| word >> (place % 64) & 1 == 1)
    }

    /// Whether a command that is not in the set is allowed with a first argument.
    pub(super) fn allows_first(&self, place: usize, argument: &[u8]) -> bool {
        let own = self.first_arguments.get(&place);
        own.is_some_and(|own| own.contains(&argument.to_ascii_lowercase()))
    }

    /// Allows or forbids a command with its subcommands.
    fn set(&mut self, names: &Names, command: &'static Command, allows: bool) {
        for command in [command].into_iter().chain(command.subcommands) {
            let place = names.place_of(command);
            if let Some(word) = self.commands.get_mut(place / 64) {
                let bit = 1 << (place % 64);
                *word = if allows { *word | bit } else { *word & !bit };
            }
            self.first_arguments.remove(&place);
        }
    }

    /// Allows or forbids the commands of a category; returns whether it exists.
    fn set_category(&mut self, names: &Names, category: &[u8], allows: bool) -> bool {
        if !super::super::users::is_category(category) {
            return false;
        }
        let is_in = |command: &Command| {
            let own = command.category_names();
            own.iter().any(|own| own.as_bytes()[1..].eq_ignore_ascii_case(category))
        };
        let own = all().flat_map(|command| [command].into_iter().chain(command.subcommands));
        for command in own.filter(|command| is_in(command)) {
            self.set(names, command, allows);
        }
        true
    }

    /// Adds a rule to the rules that clients see. It replaces rules about the same commands.
    fn add_rule(&mut self, name: &[u8], allows: bool) {
        let name = name.to_ascii_lowercase();
        self.rules.retain(|rule| {
            let rest = rule.get(1..).and_then(|rule| rule.strip_prefix(&*name));
            rest.is_none_or(|rest| !rest.is_empty() && !rest.starts_with(b"|"))
        });
        self.rules.push([if allows { b"+" } else { b"-" }, &*name].concat());
        // The rules that were replaced have no effect any more.
        let has_no_minus = self.rules.iter().all(|rule| rule.starts_with(b"+"));
        self.all_commands = self.begins_with_all && has_no_minus;
    }

    /// Applies a rule.
    pub(super) fn apply(&mut self, names: &Names, rule: &[u8]) -> Result<(), Wrong> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            _ if is("allkeys") || rule == b"~*" => {
                self.all_keys = true;
                self.keys.clear();
            }
            _ if is("resetkeys") => {
                self.all_keys = false;
                self.keys.clear();
            }
            _ if is("allchannels") || rule == b"&*" => {
                self.all_channels = true;
                self.channels.clear();
            }
            _ if is("resetchannels") => {
                self.all_channels = false;
                self.channels.clear();
            }
            _ if is("allcommands") || is("+@all") => self.set_all(true),
            _ if is("nocommands") || is("-@all") => self.set_all(false),
            [b'~' | b'%', ..] => return self.add_keys(rule),
            [b'&', pattern @ ..] => {
                if self.all_channels {
                    return Err(Wrong::BehindAllChannels);
                }
                check_text(pattern)?;
                if !self.channels.iter().any(|own| own == pattern) {
                    self.channels.push(pattern.to_vec());
                }
            }
            [sign @ (b'+' | b'-'), b'@', category @ ..] => {
                let allows = *sign == b'+';
                if !self.set_category(names, category, allows) {
                    return Err(Wrong::Unknown);
                }
                self.add_rule(&rule[1..], allows);
            }
            [sign @ (b'+' | b'-'), name @ ..] => {
                let allows = *sign == b'+';
                match names.named(name) {
                    Some(command) => {
                        self.set(names, command, allows);
                        self.add_rule(name, allows);
                    }
                    None if allows => return self.add_first_argument(names, name),
                    None => return Err(Wrong::Unknown),
                }
            }
            _ => return Err(Wrong::Syntax),
        }
        Ok(())
    }

    fn add_keys(&mut self, rule: &[u8]) -> Result<(), Wrong> {
        if self.all_keys {
            return Err(Wrong::BehindAllKeys);
        }
        // As in Redis, a rule without a pattern has an empty one.
        let tilde = memchr::memchr(b'~', rule).unwrap_or(rule.len());
        let (letters, pattern) = (&rule[..tilde], rule.get(tilde + 1..).unwrap_or_default());
        let mut permissions = 0;
        match letters {
            [] => permissions = READ | WRITE,
            [_, letters @ ..] => {
                for letter in letters {
                    permissions |= match letter.to_ascii_uppercase() {
                        b'R' => READ,
                        b'W' => WRITE,
                        _ => return Err(Wrong::Syntax),
                    };
                }
            }
        }
        if permissions == 0 {
            return Err(Wrong::Syntax);
        }
        check_text(pattern)?;
        match self.keys.iter_mut().find(|(_, own)| own == pattern) {
            Some((own, _)) => *own |= permissions,
            None => self.keys.push((permissions, pattern.to_vec())),
        }
        Ok(())
    }

    /// Allows a command with some first argument: `command|argument`.
    fn add_first_argument(&mut self, names: &Names, name: &[u8]) -> Result<(), Wrong> {
        let bar = memchr::memchr(b'|', name).ok_or(Wrong::Unknown)?;
        let (command, argument) = (&name[..bar], &name[bar + 1..]);
        let command = names.command(command).ok_or(Wrong::Unknown)?;
        if !command.subcommands.is_empty() {
            let subcommand = memchr::memchr(b'|', argument).map(|end| &name[..bar + 1 + end]);
            let is_known = subcommand.is_some_and(|name| names.named(name).is_some());
            return Err(if is_known { Wrong::FirstArgument } else { Wrong::Unknown });
        }
        if argument.is_empty() {
            return Err(Wrong::Syntax);
        }
        if argument.contains(&b'|') {
            return Err(Wrong::Unknown);
        }
        check_text(argument)?;
        let own = self.first_arguments.entry(names.place_of(command)).or_default();
        own.insert(argument.to_ascii_lowercase());
        self.add_rule(name, true);
        Ok(())
    }

    /// Returns the rules about commands, for clients.
    pub(in crate::resp) fn commands_text(&self) -> Vec<u8> {
        let mut text = if self.begins_with_all { b"+@all" } else { b"-@all" }.to_vec();
        for rule in &self.rules {
            text.push(b' ');
            text.extend_from_slice(rule);
        }
        text
    }

    /// Returns the patterns of keys, for clients.
    pub(in crate::resp) fn keys_text(&self) -> Vec<u8> {
        self.keys_for(Reader::Client)
    }

    fn keys_for(&self, reader: Reader) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        let pattern = |(permissions, pattern): &(u8, Vec<u8>)| {
            let begin: &[u8] = match *permissions {
                READ => b"%R~",
                WRITE => b"%W~",
                // `~*` is another word for `allkeys`, which also allows keys that are not known.
                _ if reader == Reader::Store && pattern == b"*" => b"%RW~",
                _ => b"~",
            };
            [begin, pattern].concat()
        };
        self.keys.iter().map(pattern).collect::<Vec<_>>().join(&b' ')
    }

    /// Returns the patterns of channels, for clients.
    pub(in crate::resp) fn channels_text(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        let pattern = |pattern: &Vec<u8>| [b"&", pattern.as_slice()].concat();
        self.channels.iter().map(pattern).collect::<Vec<_>>().join(&b' ')
    }

    /// Returns the rules in the form of `ACL LIST`, or that of the store.
    pub(super) fn line(&self, reader: Reader) -> Vec<u8> {
        let mut parts = vec![self.keys_for(reader)];
        if !self.all_channels {
            parts.push(b"resetchannels".to_vec());
        }
        parts.extend([self.channels_text(), self.commands_text()]);
        parts.retain(|part| !part.is_empty());
        parts.join(&b' ')
    }
}
