//! The keys that change on the source while its keys are copied: its events tell them.

use super::connection::{Address, Connection, Ender, Reply, read_reply};
use crate::exit::Failure;
use std::collections::BTreeSet;
use std::io::BufRead;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The setting that chooses the events, and all events about keys.
const SETTING: &[u8] = b"notify-keyspace-events";
const WANTED: &str = "KA";

/// The most keys that are remembered. If more change, some are lost.
const KEYS_MAX: usize = 10_000_000;

/// A database and a key.
pub(super) type ChangedKey = (u32, Vec<u8>);

#[derive(Debug, Default)]
struct Seen {
    keys: BTreeSet<ChangedKey>,
    /// Whether changes may be missing.
    is_lost: bool,
}

/// A subscription to the events of a source.
pub(super) struct Changes {
    seen: Arc<Mutex<Seen>>,
    ender: Option<Ender>,
    thread: Option<JoinHandle<()>>,
    /// The setting before, which is restored.
    before: Vec<u8>,
}

fn locked(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the database and the key of a channel such as `__keyspace@0__:key`.
fn key_of(channel: &[u8]) -> Option<ChangedKey> {
    let rest = channel.strip_prefix(b"__keyspace@")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = rest.split_at(digits);
    let key = rest.strip_prefix(b"__:")?;
    Some((str::from_utf8(digits).ok()?.parse().ok()?, key.to_vec()))
}

/// Reads events until the connection ends.
fn listen(input: &mut impl BufRead, seen: &Mutex<Seen>) {
    while let Ok(reply) = read_reply(input, 0) {
        let Some(parts) = reply.strings() else { continue };
        let [kind, _, channel, _] = &parts[..] else { continue };
        let changed = if kind == b"pmessage" { key_of(channel) } else { None };
        let mut seen = locked(seen);
        if seen.keys.len() < KEYS_MAX {
            seen.keys.extend(changed);
        } else {
            seen.is_lost = true;
        }
    }
    locked(seen).is_lost = true;
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
        let mut subscriber = Connection::open(address)?;
        if let Reply::Error(text) = subscriber.call(&[b"PSUBSCRIBE", b"__keyspace@*"])? {
            return Ok(Err(text));
        }
        let parts = subscriber.into_parts();
        let (mut input, ender) = match parts {
            Ok(parts) => parts,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let seen = Arc::new(Mutex::new(Seen::default()));
        let shared = Arc::clone(&seen);
        let thread = std::thread::spawn(move || listen(&mut input, &shared));
        Ok(Ok(Changes { seen, ender: Some(ender), thread: Some(thread), before }))
    }

    /// Takes the keys that have changed since the last call; `None` if some may be missing.
    pub(super) fn take(&self) -> Option<BTreeSet<ChangedKey>> {
        let mut seen = locked(&self.seen);
        let keys = std::mem::take(&mut seen.keys);
        if seen.is_lost { None } else { Some(keys) }
    }

    /// Ends the subscription, and restores the setting.
    pub(super) fn end(mut self, source: &mut Connection) -> Result<(), Failure> {
        self.stop();
        source.want_ok(&[b"CONFIG", b"SET", SETTING, &self.before])
    }

    fn stop(&mut self) {
        self.ender = None;
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
        let seen = Mutex::new(Seen::default());
        let text = b"*4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$16\r\n__keyspace@3__:k\r\n$3\r\nset\r\n";
        listen(&mut &[&text[..], text].concat()[..], &seen);
        assert_eq!(locked(&seen).keys.iter().collect::<Vec<_>>(), [&(3, b"k".to_vec())]);
        assert!(locked(&seen).is_lost, "the connection has ended");
    }
}
