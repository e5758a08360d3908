//! The surroundings of a command that is executed.

use super::client::Client;
use super::options::Facts;
use super::parser::Arguments;
use super::server::{ClientId, State};
use super::stop::{self, Done};
use super::store::{Database, Kind};
use super::transaction::Transaction;
use super::writer::Writer;
use std::collections::BTreeSet;

/// The surroundings of a command.
pub(super) struct Context<'a> {
    /// The objects, with the changes of this command.
    pub(super) objects: Transaction<'a>,
    /// The reply to the client.
    pub(super) reply: Writer<'a>,
    /// The bytes in front of the reply.
    pub(super) before_reply: usize,
    /// The clients, channels and settings.
    pub(super) state: &'a mut State,
    pub(super) facts: &'a Facts,
    pub(super) client: ClientId,
    /// Bytes to other clients.
    pub(super) messages: &'a mut Vec<(ClientId, Vec<u8>)>,
    /// Clients whose connections end.
    pub(super) ended: &'a mut Vec<ClientId>,
    /// Clients that wait, and are to go on.
    pub(super) woken: &'a mut Vec<ClientId>,
    /// Keys that got new elements.
    pub(super) signals: &'a mut Vec<(Database, Vec<u8>)>,
    /// Whether the command may wait. Otherwise it replies at once.
    pub(super) may_wait: bool,
    /// Whether a script executes the command.
    pub(super) is_of_script: bool,
    /// Whether the connection ends after the reply.
    pub(super) ends: bool,
}

impl Context<'_> {
    /// Tells that a key of the command's database got new elements. Clients that wait for it are
    /// served after the command.
    pub(super) fn signal(&mut self, key: &[u8]) {
        self.signal_in(self.objects.database, key);
    }

    /// Tells that a key of a database got new elements.
    pub(super) fn signal_in(&mut self, database: Database, key: &[u8]) {
        if self.state.blocked.is_awaited(database, key) {
            self.signals.push((database, key.to_vec()));
        }
    }

    /// Publishes the events of a command that is done.
    pub(super) fn publish_events(&mut self) {
        self.objects.events.publish(self.state, self.messages);
    }

    /// Gives all changes to the store, and marks the clients that watch one of the keys.
    ///
    /// # Errors
    /// If the store does none of them.
    pub(super) fn commit(&mut self) -> Done {
        if self.state.blocked.has_consumers() {
            let (blocked, signals) = (&mut self.state.blocked, &mut *self.signals);
            self.objects.visit_states(|database, key, found| match found {
                _ if !blocked.is_awaited(database, key) => {}
                Some(found) if found.kind == Kind::Stream => {
                    blocked.set_expiry(database, key, found.expires);
                }
                _ => signals.push((database, key.to_vec())),
            });
        }
        let mut touched = BTreeSet::new();
        if !self.state.watches.is_empty() {
            let watches = &self.state.watches;
            self.objects.visit_changed(|database, key| touched.extend(watches.of(database, key)));
        }
        self.objects.commit()?;
        for client in touched {
            if let Some(client) = self.state.clients.get_mut(&client) {
                client.is_touched = true;
            }
        }
        Ok(())
    }

    /// Returns the client that has sent the command.
    pub(super) fn client(&mut self) -> &mut Client {
        self.state.clients.get_mut(&self.client).expect("a client is connected while it is served")
    }

    /// Checks that the reply is not too long: the same object may be named many times.
    pub(super) fn check_reply(&self) -> Done {
        match self.reply.length() - self.before_reply <= self.state.options.reply_bytes_max {
            true => Ok(()),
            false => Err(stop::REPLY_TOO_LONG),
        }
    }

    /// Writes the reply to a command that has nothing else to say.
    pub(super) fn ok(&mut self) {
        self.reply.simple("OK");
    }
}

/// Whether an argument is a word, in capital or small letters.
#[inline]
pub(super) fn is(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}

/// Returns the arguments from an index on.
pub(super) fn from<'a>(
    arguments: Arguments<'a>,
    index: usize,
) -> impl Iterator<Item = &'a [u8]> + Clone {
    (index..arguments.len()).filter_map(move |index| arguments.get(index))
}
