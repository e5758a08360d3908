//! Clients of a server on a store in memory, for the tests of each family of commands.

use super::{ClientId, Facts, Memory, Output, ScriptClock, Server, ServerOptions, Step};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The time at which tests begin.
pub(super) const BEGIN_MS: u64 = 1_800_000_000_000;

/// A server with clients, the first of which is 1. They connect by their first command.
pub(super) struct Door {
    pub(super) server: Server,
    pub(super) store: Memory,
    clients: BTreeSet<ClientId>,
    /// Bytes that were sent to clients that did not ask in this step.
    messages: BTreeMap<ClientId, Vec<u8>>,
    /// Bytes of clients that wait.
    pending: BTreeMap<ClientId, Vec<u8>>,
}

impl Door {
    pub(super) fn new() -> Door {
        Door::with(ServerOptions::default())
    }

    pub(super) fn with(options: ServerOptions) -> Door {
        Door {
            server: Server::new(options),
            store: Memory::new(BEGIN_MS),
            clients: BTreeSet::new(),
            messages: BTreeMap::new(),
            pending: BTreeMap::new(),
        }
    }

    /// Returns the replies to some lines of the first client, with `|` in place of the ends of
    /// lines.
    pub(super) fn said(&mut self, lines: &str) -> String {
        self.said_to(1, lines)
    }

    /// Returns the replies to some lines of a client, and the messages to it before them.
    pub(super) fn said_to(&mut self, client: ClientId, lines: &str) -> String {
        let mut bytes = lines.replace('\n', "\r\n").into_bytes();
        bytes.extend_from_slice(b"\r\n");
        text_of(&self.replies(client, &bytes))
    }

    /// Returns the replies to some bytes of a client, and the messages to it before them.
    pub(super) fn replies(&mut self, client: ClientId, bytes: &[u8]) -> Vec<u8> {
        let mut pending = bytes.to_vec();
        self.replies_to(client, &mut pending)
    }

    /// Returns the replies to some bytes of a client, and takes the bytes that were used.
    pub(super) fn replies_to(&mut self, client: ClientId, bytes: &mut Vec<u8>) -> Vec<u8> {
        if self.clients.insert(client) {
            let peer = format!("127.0.0.1:{}", 50_000 + client);
            self.server.opened(client, &peer, "127.0.0.1:6379", self.store.now_ms);
        }
        let mut replies = self.messages.remove(&client).unwrap_or_default();
        let mut at = 0;
        while at < bytes.len() {
            let mut output = Output::default();
            let facts = Facts::default();
            let (server, store) = (&mut self.server, &mut self.store);
            let step = server.step(store, &facts, client, &bytes[at..], &mut output);
            replies.extend_from_slice(&output.replies);
            let own = self.take(output, client);
            replies.extend_from_slice(&own);
            match step {
                Step::Done(used) => at += used,
                Step::NotNow => {
                    assert_eq!(own, b"", "a command that cannot be done has no effects");
                }
                Step::Waits(used) => {
                    self.pending.insert(client, bytes.split_off(at + used));
                    bytes.clear();
                    return replies;
                }
                Step::More => break,
                Step::End(_) => {
                    self.close(client);
                    replies.extend_from_slice(b"(end)");
                    return replies;
                }
            }
        }
        bytes.drain(..at);
        replies
    }

    /// Takes the effects of a step on other clients; returns the messages to this one.
    fn take(&mut self, output: Output, client: ClientId) -> Vec<u8> {
        for (to, bytes) in output.messages {
            self.messages.entry(to).or_default().extend(bytes);
        }
        for ended in output.ended {
            self.close(ended);
        }
        let own = self.messages.remove(&client).unwrap_or_default();
        for woken in output.woken {
            let bytes = self.pending.remove(&woken).unwrap_or_default();
            if !bytes.is_empty() {
                let replies = self.replies(woken, &bytes);
                self.messages.entry(woken).or_default().extend(replies);
            }
        }
        own
    }

    /// Lets each command take so many microseconds from now on. The clock is read before and after
    /// it.
    pub(super) fn measure(&mut self, microseconds: u64) {
        let passed = Cell::new(Duration::ZERO);
        self.server.set_script_clock(ScriptClock::new(move || {
            passed.set(passed.get() + Duration::from_micros(microseconds));
            passed.get()
        }));
    }

    /// Returns the messages to a client.
    pub(super) fn heard(&mut self, client: ClientId) -> String {
        text_of(&self.messages.remove(&client).unwrap_or_default())
    }

    /// Moves the clock.
    pub(super) fn pass(&mut self, milliseconds: u64) {
        self.store.now_ms += milliseconds;
        let mut output = Output::default();
        self.server.on_time(&mut self.store, &Facts::default(), &mut output);
        let own = self.take(output, 0);
        assert_eq!(own, b"");
    }

    pub(super) fn close(&mut self, client: ClientId) {
        self.server.closed(client);
        self.clients.remove(&client);
        self.pending.remove(&client);
    }

    /// Checks the replies to lines of the first client.
    #[track_caller]
    pub(super) fn expect(&mut self, table: &[(&str, &str)]) {
        for (line, reply) in table {
            assert_eq!(self.said(line), *reply, "{line}");
        }
    }
}

pub(super) fn text_of(bytes: &[u8]) -> String {
    let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    text.replace("\r\n", "|")
}
