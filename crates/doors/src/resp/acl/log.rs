//! `ACL LOG`: refused commands and passwords, with the newest first.

use crate::resp::context::Context;
use std::collections::VecDeque;

/// The time in which the same refusal is counted, and not noted again, in milliseconds.
const SAME_MS: u64 = 60_000;

/// The newest entries that are compared with a new one.
const COMPARED: usize = 10;

/// The bytes of an object, of a user's name and of a client's line that an entry has. Redis has no
/// such limit. A client that is not authenticated chooses all of them.
const TEXT_BYTES_MAX: usize = 1024;

/// The place of a refused command: a client sent it alone or in a `MULTI`, or a script called it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::resp) enum Circumstance {
    TopLevel,
    Multi,
    Script,
}

impl Circumstance {
    fn name(self) -> &'static str {
        match self {
            Circumstance::TopLevel => "toplevel",
            Circumstance::Multi => "multi",
            Circumstance::Script => "lua",
        }
    }
}

/// The reasons, in the order of their counts in `INFO`.
const REASONS: [&str; 4] = ["auth", "command", "key", "channel"];

#[derive(Debug)]
struct Entry {
    number: u64,
    count: u64,
    reason: usize,
    circumstance: Circumstance,
    object: Vec<u8>,
    user: Vec<u8>,
    client: Vec<u8>,
    created_ms: u64,
    updated_ms: u64,
}

/// A refusal.
#[derive(Debug)]
pub(in crate::resp) struct Refused {
    pub(in crate::resp) reason: &'static str,
    pub(in crate::resp) circumstance: Circumstance,
    pub(in crate::resp) object: Vec<u8>,
    pub(in crate::resp) user: Vec<u8>,
    /// The line of the client in `CLIENT LIST`.
    pub(in crate::resp) client: Vec<u8>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(in crate::resp) struct AclLog {
    entries: VecDeque<Entry>,
    next: u64,
    /// The refusals by their reasons.
    counts: [u64; REASONS.len()],
}

impl AclLog {
    /// Returns the refusals by their reasons: passwords, commands, keys, channels.
    pub(in crate::resp) fn counts(&self) -> [u64; REASONS.len()] {
        self.counts
    }

    /// Forgets all entries.
    pub(in crate::resp) fn reset(&mut self) {
        self.entries.clear();
    }

    /// Notes a refusal.
    pub(in crate::resp) fn note(&mut self, refused: Refused, now_ms: u64, most: usize) {
        let Refused { reason, circumstance, object, user, client } = refused;
        let (object, user, client) = (shortened(object), shortened(user), shortened(client));
        let reason = REASONS.iter().position(|own| *own == reason).unwrap_or(0);
        self.counts[reason] += 1;
        let is_same = |it: &Entry| {
            (it.reason, it.circumstance, &it.object, &it.user)
                == (reason, circumstance, &object, &user)
                && now_ms.saturating_sub(it.updated_ms) <= SAME_MS
        };
        let entry = match self.entries.iter().take(COMPARED).position(is_same) {
            Some(place) => self.entries.remove(place).map(|it| Entry {
                count: it.count + 1,
                updated_ms: now_ms,
                client,
                ..it
            }),
            None => {
                let number = self.next;
                self.next += 1;
                let (created_ms, updated_ms) = (now_ms, now_ms);
                Some(Entry {
                    number,
                    count: 1,
                    reason,
                    circumstance,
                    object,
                    user,
                    client,
                    created_ms,
                    updated_ms,
                })
            }
        };
        if let Some(entry) = entry {
            self.entries.push_front(entry);
        }
        self.entries.truncate(most);
    }
}

/// Returns the begin of a text, without memory for the rest.
fn shortened(mut text: Vec<u8>) -> Vec<u8> {
    text.truncate(TEXT_BYTES_MAX);
    text.shrink_to_fit();
    text
}

/// Replies with the newest entries.
pub(in crate::resp) fn reply(context: &mut Context<'_>, most: usize) {
    let now_ms = context.objects.now();
    let Context { state, reply, .. } = context;
    let entries = &state.acl_log.entries;
    reply.array(most.min(entries.len()));
    for entry in entries.iter().take(most) {
        reply.map(10);
        reply.string(b"count");
        reply.integer(entry.count as i64);
        for (name, text) in [
            ("reason", REASONS[entry.reason].as_bytes()),
            ("context", entry.circumstance.name().as_bytes()),
            ("object", &entry.object),
            ("username", &entry.user),
        ] {
            reply.string(name.as_bytes());
            reply.string(text);
        }
        reply.string(b"age-seconds");
        reply.double(now_ms.saturating_sub(entry.updated_ms) as f64 / 1000.0);
        reply.string(b"client-info");
        reply.string(entry.client.strip_suffix(b"\n").unwrap_or(&entry.client));
        for (name, number) in [
            ("entry-id", entry.number),
            ("timestamp-created", entry.created_ms),
            ("timestamp-last-updated", entry.updated_ms),
        ] {
            reply.string(name.as_bytes());
            reply.integer(number as i64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AclLog, COMPARED, Circumstance, Refused, TEXT_BYTES_MAX};

    #[test]
    fn an_entry_shortens_all_texts_that_a_client_chooses() {
        let mut log = AclLog::default();
        let long = |end: u8| [vec![b'x'; 100_000], vec![end]].concat();
        for number in 0..COMPARED as u8 {
            let (object, user, client) = (long(number), long(number), long(number));
            let (reason, circumstance) = ("auth", Circumstance::TopLevel);
            log.note(Refused { reason, circumstance, object, user, client }, 1, 100);
        }
        // The log compares the shortened texts, which are the same.
        assert_eq!((log.entries.len(), log.entries[0].count), (1, COMPARED as u64));
        let entry = &log.entries[0];
        for text in [&entry.object, &entry.user, &entry.client] {
            assert_eq!((text.len(), text.capacity()), (TEXT_BYTES_MAX, TEXT_BYTES_MAX));
        }
    }
}
