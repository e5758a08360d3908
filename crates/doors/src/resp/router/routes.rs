//! The way of each command: to the part of its keys, to part 0, to several parts, or nowhere.

use super::super::command_info::visit_keys;
use super::super::commands::{BLOCKING, Command};
use super::super::key_slots::{Parts, slot_of};
use super::super::parser::Arguments;

/// The way of a command outside a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// To the part of its keys, or to part 0 without keys.
    Keys,
    /// The same. The client's later commands wait for its reply.
    Blocks,
    /// To the parts of its keys, each with the keys of that part.
    Divided(Merge),
    /// To all parts.
    All(Merge),
    /// To one part after another.
    Scan,
    /// To part 0, when all earlier commands are done.
    Late,
    /// It changes the state of the connection.
    Session,
    /// `CLIENT REPLY`.
    Replies,
    /// To all parts: their messages go to the client.
    Subscribe,
    Unsubscribe,
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
    Quit,
    /// Refused, with this text.
    Refused(&'static str),
}

/// The way in which the replies of several parts become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Merge {
    /// The sum of integers.
    Sum,
    /// The elements of `MGET`, in the order of the keys.
    Elements,
    /// The elements of all arrays.
    Joined,
    /// The first reply, if all parts succeed.
    First,
    /// The first reply that is no error.
    Any,
    /// The least integer of each place.
    Least,
    /// One of the replies that are not null.
    Pick,
}

const NO_SWAP: &str = "ERR SWAPDB cannot be done at once in several parts of the keys (server.redis_parts). Use one part, or names of keys in place of databases";
const NO_MONITOR: &str = "ERR MONITOR is not supported on the plain port if the keys have several parts: use the cluster port of each part";
const NO_TRACKING: &str = "ERR CLIENT TRACKING is not supported on the plain port if the keys have several parts: use the cluster port";
const NO_UNBLOCK: &str = "ERR CLIENT UNBLOCK is not supported on the plain port if the keys have several parts: use the cluster port of the part in which the client waits";
const NO_SHARD_CHANNELS: &str = "ERR Channels of shards are not supported on the plain port if the keys have several parts: use SUBSCRIBE and PUBLISH, or the cluster port";

/// The error for keys in several parts.
pub(super) const CROSS_PART: &str = "CROSSSLOT The keys of this command are in different parts, which cannot change together. Give the keys the same {tag}, such as {user1}:a and {user1}:b";

/// The same in a transaction.
pub(super) const CROSS_PART_MULTI: &str = "CROSSSLOT This key is in another part than the first key of the transaction or of WATCH, and parts cannot change together. Give the keys the same {tag}, such as {user1}:a and {user1}:b";

/// The error for a command in a transaction that concerns more than its part.
pub(super) const NOT_IN_MULTI: &str = "ERR This command is not allowed inside a transaction if the keys have several parts: it concerns the connection or all parts, and a transaction is in one part";

/// Returns the way of a command.
pub(super) fn way_of(command: &Command, arguments: &Arguments<'_>) -> Way {
    use super::super::context::is;
    let has = |place: usize, word: &str| arguments.get(place).is_some_and(|it| is(it, word));
    match command.name {
        "mget" => Way::Divided(Merge::Elements),
        "del" | "unlink" | "exists" | "touch" => Way::Divided(Merge::Sum),
        "dbsize" | "slowlog|len" => Way::All(Merge::Sum),
        "keys" | "slowlog|get" => Way::All(Merge::Joined),
        "acl|log" if has(2, "RESET") => Way::All(Merge::First),
        "acl|log" => Way::All(Merge::Joined),
        "randomkey" => Way::All(Merge::Pick),
        "flushdb" | "flushall" | "script|load" | "script|flush" | "function|load"
        | "function|delete" | "function|flush" | "function|restore" | "config|set"
        | "config|resetstat" | "acl|setuser" | "acl|deluser" | "slowlog|reset" | "client|pause"
        | "client|unpause" | "memory|purge" => Way::All(Merge::First),
        "script|kill" | "function|kill" => Way::All(Merge::Any),
        "script|exists" => Way::All(Merge::Least),
        "scan" => Way::Scan,
        "publish" => Way::Late,
        "client|reply" => Way::Replies,
        "subscribe" | "psubscribe" => Way::Subscribe,
        "unsubscribe" | "punsubscribe" => Way::Unsubscribe,
        "multi" => Way::Multi,
        "exec" => Way::Exec,
        "discard" => Way::Discard,
        "watch" => Way::Watch,
        "unwatch" => Way::Unwatch,
        "quit" => Way::Quit,
        "swapdb" => Way::Refused(NO_SWAP),
        "monitor" => Way::Refused(NO_MONITOR),
        "client|tracking" if !has(2, "OFF") => Way::Refused(NO_TRACKING),
        "client|unblock" => Way::Refused(NO_UNBLOCK),
        "ssubscribe" | "sunsubscribe" | "spublish" => Way::Refused(NO_SHARD_CHANNELS),
        name if super::session::is_change(name) => Way::Session,
        _ if command.has(BLOCKING) => Way::Blocks,
        _ => Way::Keys,
    }
}

/// The parts of the keys of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyParts {
    /// It has no keys, or they are not known because its arguments are wrong.
    None,
    One(u32),
    Several,
}

pub(super) fn parts_of(
    parts: Parts,
    command: &'static Command,
    arguments: &Arguments<'_>,
) -> KeyParts {
    let mut found = KeyParts::None;
    let mut add = |key: &[u8]| {
        let part = parts.part_of(slot_of(key));
        found = match found {
            KeyParts::None => KeyParts::One(part),
            KeyParts::One(first) if first == part => return,
            _ => KeyParts::Several,
        };
    };
    match visit_keys(command, arguments, &mut add) {
        Ok(()) => found,
        Err(_) => KeyParts::None,
    }
}
