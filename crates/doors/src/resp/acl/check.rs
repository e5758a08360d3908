//! Decides whether a user may execute a command.

use super::selector::{READ, Selector, WRITE};
use super::user::User;
use crate::resp::command_info::key_places;
use crate::resp::commands::{Command, NO_AUTH, Names};
use crate::resp::glob;

/// The reason why a command is not allowed. If several selectors refuse it, the last one in this
/// order counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::resp) enum Denied {
    Command,
    /// The place of a key among the arguments.
    Key(usize),
    /// The place of a channel among the arguments.
    Channel(usize),
}

impl Denied {
    /// Returns the sentence that a client sees.
    pub(in crate::resp) fn text(self, user: &User, command: &Command) -> Vec<u8> {
        match self {
            Denied::Command => {
                let end = format!(" has no permissions to run the '{}' command", command.name);
                [b"User ", user.name.as_slice(), end.as_bytes()].concat()
            }
            Denied::Key(_) => b"No permissions to access a key".to_vec(),
            Denied::Channel(_) => b"No permissions to access a channel".to_vec(),
        }
    }

    /// Returns a sentence with the key or the channel.
    pub(in crate::resp) fn long_text(
        self,
        user: &User,
        command: &Command,
        words: &[&[u8]],
    ) -> Vec<u8> {
        let (place, kind) = match self {
            Denied::Command => return self.text(user, command),
            Denied::Key(place) => (place, "key"),
            Denied::Channel(place) => (place, "channel"),
        };
        let word = words.get(place).copied().unwrap_or_default();
        let middle = b" has no permissions to access the '";
        [b"User ", user.name.as_slice(), middle, word, b"' ", kind.as_bytes()].concat()
    }
}

/// Returns the channels of a command, and whether they are patterns.
fn channels(command: &Command, count: usize) -> (std::ops::Range<usize>, bool) {
    match command.name {
        "subscribe" | "ssubscribe" => (1..count, false),
        "psubscribe" => (1..count, true),
        "publish" | "spublish" => (1..2.min(count), false),
        _ => (0..0, false),
    }
}

/// Returns the permissions that a command needs for a key.
fn permissions(flags: &str) -> u8 {
    let word = |flag| match flag {
        "access" => READ,
        "insert" | "delete" | "update" => WRITE,
        _ => 0,
    };
    flags.split_whitespace().map(word).fold(0, |all, one| all | one)
}

impl Selector {
    fn check(
        &self,
        names: &Names,
        command: &'static Command,
        words: &[&[u8]],
    ) -> Result<(), Denied> {
        let place = names.place_of(command);
        if !self.all_commands
            && !command.has(NO_AUTH)
            && !self.has(place)
            && !words.get(1).is_some_and(|word| self.allows_first(place, word))
        {
            return Err(Denied::Command);
        }
        if !self.all_keys && !command.keys.is_empty() {
            // Without known keys, none of them is known to be allowed. No argument is one then.
            let places = key_places(command, words).map_err(|_| Denied::Key(words.len()))?;
            for (place, flags) in places {
                if flags.contains("not_key") {
                    continue;
                }
                let key = words.get(place).copied().unwrap_or_default();
                if !self.allows_key(key, permissions(flags)) {
                    return Err(Denied::Key(place));
                }
            }
        }
        let (places, is_pattern) = channels(command, words.len());
        for place in places {
            let channel = words.get(place).copied().unwrap_or_default();
            if !self.allows_channel(channel, is_pattern) {
                return Err(Denied::Channel(place));
            }
        }
        Ok(())
    }

    fn allows_key(&self, key: &[u8], wanted: u8) -> bool {
        let mut keys = self.keys.iter();
        self.all_keys
            || keys.any(|(own, pattern)| own & wanted == wanted && glob::matches(pattern, key))
    }

    fn allows_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        let matches = |own: &Vec<u8>| match is_pattern {
            true => own == channel,
            false => glob::matches(own, channel),
        };
        self.all_channels || self.channels.iter().any(matches)
    }

    /// Whether it allows to read each key.
    fn reads_all(&self) -> bool {
        let is_all = |(own, pattern): &(u8, Vec<u8>)| own & READ != 0 && pattern == b"*";
        self.all_keys || self.keys.iter().any(is_all)
    }
}

impl User {
    /// Whether the user may do everything.
    #[inline]
    pub(in crate::resp) fn may_everything(&self) -> bool {
        self.root.is_everything()
    }

    fn all_selectors(&self) -> impl Iterator<Item = &Selector> {
        [&self.root].into_iter().chain(&self.selectors)
    }

    /// Checks whether the user may execute a command.
    pub(in crate::resp) fn check(
        &self,
        names: &Names,
        command: &'static Command,
        words: &[&[u8]],
    ) -> Result<(), Denied> {
        let mut denied = Denied::Command;
        for selector in self.all_selectors() {
            match selector.check(names, command, words) {
                Ok(()) => return Ok(()),
                Err(reason) => denied = denied.max(reason),
            }
        }
        Err(denied)
    }

    /// Whether the user may execute a command, and read each key with it.
    pub(in crate::resp) fn reads_all_with(
        &self,
        names: &Names,
        command: &'static Command,
        words: &[&[u8]],
    ) -> bool {
        let allows = |it: &Selector| it.check(names, command, words).is_ok() && it.reads_all();
        self.all_selectors().any(allows)
    }

    /// Whether the user may listen to a channel or to a pattern.
    pub(in crate::resp) fn may_listen(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.all_selectors().any(|it| it.allows_channel(channel, is_pattern))
    }
}
