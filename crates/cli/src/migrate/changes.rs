//! The keys that change on the source while its keys are copied: its events tell them.

use super::connection::{ANSWER_PATIENCE, Address, Connection, Reply, SendingHalf, read_reply};
use crate::exit::Failure;
use std::collections::BTreeSet;
use std::io::BufRead;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The setting that chooses the events, and all events about keys.
const SETTING: &[u8] = b"notify-keyspace-events";
const WANTED: &str = "KA";

/// The most keys that are remembered. If more change, some are lost.
pub(super) const KEYS_MAX: usize = 10_000_000;

/// A database and a key.
pub(super) type ChangedKey = (u32, Vec<u8>);

/// The event of a command that has found no key. Our own `DUMP` and `PTTL` have it.
const MISS: &[u8] = b"keymiss";

/// The begin of the tokens that the source returns.
const TOKEN: &str = "thunderhead-import-";

#[derive(Debug, Default)]
struct Seen {
    keys: BTreeSet<ChangedKey>,
    /// The last token that has returned.
    token: u64,
    /// Whether changes may be missing.
    is_lost: bool,
}

/// The events that the listening thread has heard.
#[derive(Debug, Default)]
struct Heard {
    seen: Mutex<Seen>,
    /// A token has returned, or changes are lost.
    progress: Condvar,
}

/// A subscription to the events of a source.
pub(super) struct Changes {
    heard: Arc<Heard>,
    sender: Option<SendingHalf>,
    thread: Option<JoinHandle<()>>,
    /// The number of the last token that was sent.
    token: u64,
    /// The setting before, which is restored.
    before: Vec<u8>,
}

impl Heard {
    fn locked(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lose(&self) {
        self.locked().is_lost = true;
        self.progress.notify_all();
    }
}

/// Returns the database and the key of a channel such as `__keyspace@0__:key`.
fn key_of(channel: &[u8]) -> Option<ChangedKey> {
    let rest = channel.strip_prefix(b"__keyspace@")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = rest.split_at(digits);
    let key = rest.strip_prefix(b"__:")?;
    Some((str::from_utf8(digits).ok()?.parse().ok()?, key.to_vec()))
}

/// Returns the number of a token.
fn number_of(token: &[u8]) -> Option<u64> {
    str::from_utf8(token).ok()?.strip_prefix(TOKEN)?.parse().ok()
}

/// Reads events until the connection ends.
fn listen(input: &mut impl BufRead, heard: &Heard) {
    while let Ok(reply) = read_reply(input, 0) {
        if matches!(reply, Reply::Error(_)) {
            // The source does not return the token.
            heard.lose();
        }
        let Some(parts) = reply.strings() else { continue };
        let mut seen = heard.locked();
        match &parts[..] {
            [kind, _, channel, event] if kind == b"pmessage" && event != MISS => {
                if seen.keys.len() < KEYS_MAX {
                    seen.keys.extend(key_of(channel));
                } else {
                    seen.is_lost = true;
                }
            }
            [kind, token] if kind == b"pong" => {
                seen.token = number_of(token).unwrap_or(seen.token);
                heard.progress.notify_all();
            }
            _ => {}
        }
    }
    heard.lose();
}

impl Changes {
    /// Subscribes. Returns `None`, with the reason for people, if the source does not allow it.
    pub(super) fn subscribe(
        source: &mut Connection,
        address: &Address,
    ) -> Result<Result<Changes, String>, Failure> {
        let found = source.call(&[b"CONFIG", b"GET", SETTING])?;
        let pair = found.strings().and_then(|parts| <[Vec<u8>; 2]>::try_from(parts).ok());
        let Some([_, before]) = pair else {
            return Ok(Err("it does not tell which events it sends".to_owned()));
        };
        let wanted = [&before, WANTED.as_bytes()].concat();
        if let Reply::Error(text) = source.call(&[b"CONFIG", b"SET", SETTING, &wanted])? {
            return Ok(Err(text));
        }
        let changes = Changes::listening(address, before.clone());
        if !matches!(changes, Ok(Ok(_))) {
            let restored = source.want_ok(&[b"CONFIG", b"SET", SETTING, &before]);
            // If both fail, the first failure is the reason.
            changes.as_ref().map_or(Ok(()), |_| restored)?;
        }
        changes
    }

    /// Subscribes to events that the source sends.
    fn listening(address: &Address, before: Vec<u8>) -> Result<Result<Changes, String>, Failure> {
        let mut subscriber = Connection::open(address)?;
        if let Reply::Error(text) = subscriber.call(&[b"PSUBSCRIBE", b"__keyspace@*"])? {
            return Ok(Err(text));
        }
        let (mut input, sender) = match subscriber.into_halves() {
            Ok(halves) => halves,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let heard = Arc::new(Heard::default());
        let shared = Arc::clone(&heard);
        let thread = std::thread::spawn(move || listen(&mut input, &shared));
        let (sender, thread) = (Some(sender), Some(thread));
        Ok(Ok(Changes { heard, sender, thread, token: 0, before }))
    }

    /// Takes the keys that have changed since the last call, by commands that the source has
    /// executed before this one; `None` if some may be missing.
    pub(super) fn take(&mut self) -> Option<BTreeSet<ChangedKey>> {
        self.token += 1;
        let token = format!("{TOKEN}{}", self.token);
        // The source answers a PING on this connection behind the events of all earlier commands.
        // If our own server has several parts, one of them answers. The command before goes to all
        // parts, and changes nothing: the PING follows when each has answered it.
        let (unsubscribe, ping) =
            ([b"PUNSUBSCRIBE", token.as_bytes()], [b"PING", token.as_bytes()]);
        self.sender.as_mut()?.send(&[&unsubscribe, &ping]).ok()?;
        let wanted = self.token;
        let waits = |seen: &mut Seen| seen.token < wanted && !seen.is_lost;
        let seen = self.heard.locked();
        let waited = self.heard.progress.wait_timeout_while(seen, ANSWER_PATIENCE, waits);
        let (mut seen, _) = waited.unwrap_or_else(PoisonError::into_inner);
        seen.is_lost |= seen.token < wanted;
        let keys = std::mem::take(&mut seen.keys);
        if seen.is_lost { None } else { Some(keys) }
    }

    /// Ends the subscription, and restores the setting.
    pub(super) fn end(mut self, source: &mut Connection) -> Result<(), Failure> {
        self.stop();
        source.want_ok(&[b"CONFIG", b"SET", SETTING, &self.before])
    }

    fn stop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_name_databases_and_keys() {
        assert_eq!(key_of(b"__keyspace@12__:a:b"), Some((12, b"a:b".to_vec())));
        assert_eq!(key_of(b"__keyspace@0__:"), Some((0, Vec::new())));
        for wrong in [&b"__keyevent@0__:del"[..], b"__keyspace@__:a", b"__keyspace@x__:a", b""] {
            assert_eq!(key_of(wrong), None);
        }
        let heard = Heard::default();
        let text = b"*4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$16\r\n__keyspace@3__:k\r\n$3\r\nset\r\n";
        listen(&mut &[&text[..], text].concat()[..], &heard);
        assert_eq!(heard.locked().keys.iter().collect::<Vec<_>>(), [&(3, b"k".to_vec())]);
        assert!(heard.locked().is_lost, "the connection has ended");
    }

    #[test]
    fn a_missed_key_has_not_changed() {
        let heard = Heard::default();
        let text =
            b"*4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$16\r\n__keyspace@3__:k\r\n$7\r\nkeymiss\r\n";
        listen(&mut &text[..], &heard);
        assert!(heard.locked().keys.is_empty());
    }
}
