//! Keyspace events: messages to subscribers about the keys that commands change.
//!
//! A command notes its events with [`Transaction::event`](super::transaction::Transaction::event),
//! in the order of Redis. The server publishes them after the command, so a command that fails or
//! is refused has none. The setting `notify-keyspace-events` chooses the kinds; usually there are
//! none, and then a command pays for one comparison.
//!
//! # Promises
//!
//! - The messages leave with the replies of their command: once its changes are durable.
//! - A key that expires has one event `expired`: see [`Expiries`].

use super::channels;
use super::expiries::Expiries;
use super::server::{ClientId, Output, Server, State};
use super::store::{Database, Kind};
use super::tracking_notes::Op;

/// A set of kinds of events, and of channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kinds(u32);

impl Kinds {
    pub(super) const NONE: Kinds = Kinds(0);
    /// A key is gone without a command.
    const GONE: Kinds = Kinds(Kinds::EXPIRED.0 | Kinds::EVICTED.0);
    pub(super) const ANY: Kinds = Kinds(u32::MAX);
    pub(super) const GENERIC: Kinds = Kinds(1);
    pub(super) const STRING: Kinds = Kinds(1 << 1);
    pub(super) const LIST: Kinds = Kinds(1 << 2);
    pub(super) const SET: Kinds = Kinds(1 << 3);
    pub(super) const HASH: Kinds = Kinds(1 << 4);
    pub(super) const SORTED_SET: Kinds = Kinds(1 << 5);
    pub(super) const EXPIRED: Kinds = Kinds(1 << 6);
    pub(super) const EVICTED: Kinds = Kinds(1 << 7);
    pub(super) const STREAM: Kinds = Kinds(1 << 8);
    /// Events of modules, which do not exist here.
    const MODULE: Kinds = Kinds(1 << 9);
    /// A key that did not exist is written.
    pub(super) const NEW: Kinds = Kinds(1 << 10);
    /// A whole value is replaced.
    pub(super) const OVERWRITTEN: Kinds = Kinds(1 << 11);
    /// A value is replaced by a value of another type.
    pub(super) const TYPE_CHANGED: Kinds = Kinds(1 << 12);
    /// The channels whose names contain the keys.
    const OF_KEYS: Kinds = Kinds(1 << 13);
    /// The channels whose names contain the events.
    const OF_EVENTS: Kinds = Kinds(1 << 14);
    /// A command looks for a key that does not exist.
    pub(super) const MISSED: Kinds = Kinds(1 << 15);

    /// The kinds that the letter `A` stands for.
    const ALL: Kinds = Kinds(Kinds::NEW.0 - 1);

    /// The letters of kinds, in the order in which Redis shows them.
    const LETTERS: [(u8, Kinds); 16] = [
        (b'g', Kinds::GENERIC),
        (b'$', Kinds::STRING),
        (b'l', Kinds::LIST),
        (b's', Kinds::SET),
        (b'h', Kinds::HASH),
        (b'z', Kinds::SORTED_SET),
        (b'x', Kinds::EXPIRED),
        (b'e', Kinds::EVICTED),
        (b't', Kinds::STREAM),
        (b'd', Kinds::MODULE),
        (b'n', Kinds::NEW),
        (b'o', Kinds::OVERWRITTEN),
        (b'c', Kinds::TYPE_CHANGED),
        (b'K', Kinds::OF_KEYS),
        (b'E', Kinds::OF_EVENTS),
        (b'm', Kinds::MISSED),
    ];

    /// Reads letters; `None` if there is an unknown one.
    pub(super) fn parse(letters: &[u8]) -> Option<Kinds> {
        let kind = |letter: &u8| match letter {
            b'A' => Some(Kinds::ALL),
            letter => Kinds::LETTERS.iter().find(|(own, _)| own == letter).map(|(_, kind)| *kind),
        };
        letters.iter().try_fold(Kinds::NONE, |kinds, letter| Some(kinds.and(kind(letter)?)))
    }

    /// Returns the letters. As in Redis, `A` hides some that it does not stand for.
    pub(super) fn letters(self) -> Vec<u8> {
        let is_all = self.0 & Kinds::ALL.0 == Kinds::ALL.0;
        let is_shown = |kind: &Kinds| self.has(*kind) && (!is_all || kind.0 >= Kinds::OF_KEYS.0);
        let letters = Kinds::LETTERS.iter().filter(|(_, kind)| is_shown(kind));
        is_all.then_some(b'A').into_iter().chain(letters.map(|(letter, _)| *letter)).collect()
    }

    /// Returns the kinds of both sets.
    pub(super) const fn and(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }

    /// Whether one of some kinds is in the set.
    #[inline]
    pub(super) const fn has(self, kinds: Kinds) -> bool {
        self.0 & kinds.0 != 0
    }

    /// Returns the set, or the empty one if no channel would get the events.
    pub(super) fn sent(self) -> Kinds {
        if self.has(Kinds::OF_KEYS.and(Kinds::OF_EVENTS)) { self } else { Kinds::NONE }
    }
}

/// An event.
#[derive(Debug, PartialEq, Eq)]
struct Event {
    kind: Kinds,
    name: &'static str,
    database: Database,
    key: Vec<u8>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Events {
    kinds: Kinds,
    /// Whether clients are told about changes of keys: keys that are gone count, too.
    listens: bool,
    /// The events of the present command that are not published yet.
    list: Vec<Event>,
    /// The keys of `expired` events that are published, but perhaps taken back.
    told: Vec<(Database, Vec<u8>)>,
    /// The times of keys. They are kept only if there are events for them.
    pub(super) expiries: Expiries,
}

impl Events {
    /// Begins a command. The settings want some kinds of events.
    #[inline]
    pub(super) fn begin_command(&mut self, kinds: Kinds, listens: bool) {
        if self.kinds != kinds || self.listens != listens {
            self.change_kinds(kinds, listens);
        }
        self.take_back(0);
    }

    /// Begins or ends to note keys that are gone, for clients that are told about changes.
    pub(super) fn listen(&mut self, listens: bool) {
        self.change_kinds(self.kinds, listens);
    }

    #[cold]
    fn change_kinds(&mut self, kinds: Kinds, listens: bool) {
        let had = self.wants(Kinds::EXPIRED);
        (self.kinds, self.listens) = (kinds, listens);
        match self.wants(Kinds::EXPIRED) {
            true if had => {}
            true => self.expiries.begin(),
            false => self.expiries = Expiries::default(),
        }
    }

    /// Whether events of one of some kinds are wanted.
    #[inline]
    pub(super) fn wants(&self, kinds: Kinds) -> bool {
        self.kinds.has(kinds) || self.listens && kinds.has(Kinds::GONE)
    }

    /// Returns the number of events that are not published.
    pub(super) fn count(&self) -> usize {
        self.list.len()
    }

    /// Forgets all but so many events that are not published.
    #[inline]
    pub(super) fn take_back(&mut self, count: usize) {
        self.list.truncate(count);
        self.told.clear();
    }

    /// Notes an event.
    #[inline]
    pub(super) fn note(&mut self, kind: Kinds, name: &'static str, database: Database, key: &[u8]) {
        if self.wants(kind) {
            self.list.push(Event { kind, name, database, key: key.to_vec() });
        }
    }

    /// Notes that a value of a type has replaced another one, if there was one.
    pub(super) fn note_replaced(
        &mut self,
        database: Database,
        key: &[u8],
        before: Option<Kind>,
        kind: Kind,
    ) {
        let Some(before) = before else { return };
        self.note(Kinds::OVERWRITTEN, "overwritten", database, key);
        if before.name() != kind.name() {
            self.note(Kinds::TYPE_CHANGED, "type_changed", database, key);
        }
    }

    /// Notes that a command does not find a key, which may have expired.
    #[inline]
    pub(super) fn note_absent(&mut self, database: Database, key: &[u8], now: u64) {
        if self.wants(Kinds::EXPIRED) {
            self.note_if_due(database, key, now);
        }
    }

    #[cold]
    fn note_if_due(&mut self, database: Database, key: &[u8], now: u64) {
        if self.expiries.is_due(database, key, now)
            && !self.told.iter().any(|(one, other)| *one == database && other == key)
        {
            self.told.push((database, key.to_vec()));
            self.note(Kinds::EXPIRED, "expired", database, key);
        }
    }

    /// Forgets the events of a command that failed, without those of its reads.
    pub(super) fn fail_command(&mut self) {
        self.list.retain(|event| event.kind.has(Kinds::MISSED.and(Kinds::EXPIRED)));
    }

    /// Publishes the noted events.
    #[inline]
    pub(super) fn publish(&mut self, state: &mut State, messages: &mut Vec<(ClientId, Vec<u8>)>) {
        if !self.list.is_empty() {
            self.publish_all(state, messages);
        }
    }

    #[cold]
    fn publish_all(&mut self, state: &mut State, messages: &mut Vec<(ClientId, Vec<u8>)>) {
        for event in self.list.drain(..) {
            if self.listens && event.kind.has(Kinds::GONE) {
                state.tracking.note([Op::Gone(event.key.clone())].into_iter());
            }
            if self.kinds.has(event.kind) {
                publish(self.kinds, &event, state, messages);
            }
        }
    }

    /// Publishes the noted events of a command whose changes are done.
    #[inline]
    pub(super) fn finish_command(
        &mut self,
        state: &mut State,
        now: u64,
        messages: &mut Vec<(ClientId, Vec<u8>)>,
    ) {
        self.publish(state, messages);
        for (database, key) in self.told.drain(..) {
            if self.expiries.is_due(database, &key, now) {
                self.expiries.set(database, &key, None);
            }
        }
    }
}

impl Server {
    /// Whether [`tell_evicted`](Server::tell_evicted) wants the keys of evicted objects.
    #[must_use]
    pub fn tells_evicted(&self) -> bool {
        // An evicted key does not expire later.
        self.events().wants(Kinds::EVICTED.and(Kinds::EXPIRED))
    }

    /// Tells clients that the store has evicted objects.
    pub fn tell_evicted(&mut self, keys: Vec<(Database, Vec<u8>)>, output: &mut Output) {
        let (events, state) = self.events_and_state();
        for (database, key) in keys {
            events.expiries.set(database, &key, None);
            events.note(Kinds::EVICTED, "evicted", database, &key);
        }
        events.publish(state, &mut output.messages);
        state.finish_tracking(None, &mut output.messages);
    }
}

/// Publishes an event to the channel of its key, and to that of its name.
fn publish(kinds: Kinds, event: &Event, state: &State, messages: &mut Vec<(ClientId, Vec<u8>)>) {
    let Event { name, database, key, .. } = event;
    if state.channels.counts() == (0, 0) {
        return;
    }
    if kinds.has(Kinds::OF_KEYS) {
        let channel = [format!("__keyspace@{database}__:").as_bytes(), key].concat();
        channels::send_to_listeners(state, messages, &channel, name.as_bytes());
    }
    if kinds.has(Kinds::OF_EVENTS) {
        let channel = format!("__keyevent@{database}__:{name}");
        channels::send_to_listeners(state, messages, channel.as_bytes(), key);
    }
}
