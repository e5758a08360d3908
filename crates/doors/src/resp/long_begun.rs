//! Long strings that have been begun: some of their pages are in the store, and no header is.
//!
//! A command writes the pages of a long string before its list of changes. A store whose cleaners
//! are behind refuses a page with `NotNow`, and the server executes the command again some
//! milliseconds later. The second attempt continues with the page that the store refused. Otherwise
//! each attempt would leave pages of its own, and these would take the memory for which the next
//! attempt waits.
//!
//! No header names the pages of these strings, so the sweeper would delete them as garbage. It asks
//! this list first. A string belongs to the client of its last attempt: the server abandons it when
//! the client's command ends in another way, or when the client is gone. The time between two
//! attempts says nothing: each attempt compares all pages that were written, so an attempt of each
//! of many clients takes seconds. Only after ten seconds the server abandons a string in any case.

use super::header::Dropped;
use super::server::ClientId;
use super::store::Database;

/// The most strings that are kept when another one begins. Each takes memory for which others wait.
/// If more clients write long strings while memory is short, the others begin when
/// a string is complete. If they took the place of a string, its next attempt would do the same to
/// them, and none would ever be complete.
const KEPT_MAX: usize = 256;

/// The time after which a string is abandoned. The server executes a refused command again within
/// milliseconds, and for a few seconds at most.
const KEPT_MS: u64 = 10_000;

/// A string that has been begun.
#[derive(Debug)]
pub(super) struct One {
    /// The client of the last attempt.
    pub(super) client: ClientId,
    /// The database of the store.
    pub(super) database: Database,
    pub(super) key: Vec<u8>,
    /// The digest of the whole string. Several clients may write different strings under a key.
    pub(super) digest: u128,
    /// The id of its pages, whose owner record exists.
    pub(super) id: u64,
    /// The number of its pages.
    pub(super) pages: u64,
    /// The pages that are in the store.
    pub(super) written: u64,
    /// The time of the last attempt.
    pub(super) touched_ms: u64,
}

impl One {
    fn dropped(&self) -> Dropped {
        Dropped { database: self.database, id: self.id, next: self.pages + 1 }
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Begun {
    /// The client of the command that is being executed.
    pub(super) client: ClientId,
    /// Strings of commands that will be executed again.
    kept: Vec<One>,
    /// Strings of the command that is being executed.
    used: Vec<One>,
    /// Strings that no command will continue.
    abandoned: Vec<Dropped>,
    /// Whether the command had to wait for a place.
    lacks_room: bool,
}

impl Begun {
    /// Begins a command.
    pub(super) fn begin(&mut self) {
        self.kept.append(&mut self.used);
        self.lacks_room = false;
    }

    /// Takes the string with this key and digest, if there is one. Other strings with this key are
    /// those of clients that write at the same time.
    pub(super) fn take(&mut self, database: Database, key: &[u8], digest: u128) -> Option<One> {
        let is_it = |one: &One| one.digest == digest && one.database == database && one.key == key;
        let place = self.kept.iter().position(is_it)?;
        Some(One { client: self.client, ..self.kept.swap_remove(place) })
    }

    /// Finds out whether a string may begin.
    pub(super) fn find_room(&mut self) -> bool {
        self.lacks_room = self.kept.len() >= KEPT_MAX;
        !self.lacks_room
    }

    /// Whether the last command waits for a place: the strings that have one wait for memory.
    pub(super) fn lacks_room(&self) -> bool {
        self.lacks_room
    }

    /// Puts a string of the command here.
    pub(super) fn put(&mut self, one: One) {
        self.used.push(one);
    }

    /// Abandons a string.
    pub(super) fn abandon(&mut self, one: One) {
        self.abandoned.push(one.dropped());
    }

    /// Abandons the strings of a client whose command is not executed again.
    pub(super) fn abandon_of(&mut self, client: ClientId) {
        let own = self.kept.extract_if(.., |one| one.client == client);
        self.abandoned.extend(own.map(|one| one.dropped()));
    }

    /// Abandons the strings of all commands that will be executed again, because databases are
    /// cleared or exchanged: their pages are elsewhere then, and a new table counts ids anew.
    pub(super) fn abandon_all(&mut self) {
        self.abandoned.extend(self.kept.drain(..).map(|one| one.dropped()));
    }

    /// Ends a command. Returns the strings whose pages are garbage now.
    pub(super) fn end(&mut self, is_done: bool, is_again: bool) -> Vec<Dropped> {
        match () {
            // Their headers are in the store.
            () if is_done => self.used.clear(),
            () if is_again => self.kept.append(&mut self.used),
            () => self.abandoned.extend(self.used.drain(..).map(|one| one.dropped())),
        }
        if !is_again && !self.kept.is_empty() {
            self.abandon_of(self.client);
        }
        std::mem::take(&mut self.abandoned)
    }

    /// Whether pages belong to a string that has been begun.
    pub(super) fn has(&self, database: Database, id: u64) -> bool {
        self.kept.iter().any(|one| one.database == database && one.id == id)
    }

    /// Returns the strings that no command will continue, and forgets them.
    pub(super) fn take_abandoned(&mut self, now_ms: u64) -> Vec<Dropped> {
        let is_old = |one: &mut One| one.touched_ms.saturating_add(KEPT_MS) <= now_ms;
        let old = self.kept.extract_if(.., is_old);
        self.abandoned.extend(old.map(|one| one.dropped()));
        std::mem::take(&mut self.abandoned)
    }
}
