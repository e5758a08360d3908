//! `CLIENT TRACKING`: the server tells clients which of their cached keys have changed.
//!
//! In the usual mode the *table* has the keys that each client has read. A key leaves the table
//! with the messages about its change. In the mode `BCAST` a client names prefixes, and gets the
//! keys of all changes that begin with one of them.
//!
//! Commands note their reads and writes in [`Tracking::ops`], in their order. After the reply,
//! [`State::finish_tracking`] turns the notes into messages. So a command that is executed again,
//! or that fails, sends none.
//!
//! # Promises
//!
//! - A message about a write leaves when the write is durable, behind all replies of its receiver
//!   that may have shown the value before.
//! - A key that is dropped because the table is full counts as changed. The table has at most
//!   `tracking-table-max-keys` keys, and uses at most [`BYTES_MAX`] of memory.
//! - As in Redis, keys have no database: a change in any of them counts.
//! - A command whose notes need too much memory counts as a change of all keys.

use super::client::Client;
use super::command_info::key_places;
use super::commands::{Command, READONLY};
use super::context::{Context, is};
use super::number::integer_of;
use super::parser::Arguments;
use super::server::{ClientId, State};
use super::stop::{self, Done, Stop};
use super::tracking_notes::{Notes, Op};
use super::writer::{Version, Writer};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// The most memory of the table. The store's limit does not count it.
const BYTES_MAX: usize = 256 << 20;

/// The memory for a key of the table and for each of its clients, without the bytes of the key.
const KEY_BYTES: usize = 128;
const ITEM_BYTES: usize = size_of::<ClientId>();

/// The most keys that are dropped at once because there are too many.
const DROPPED_MAX: usize = 1000;

/// The most prefixes of a client, and the most bytes of all of them.
const PREFIXES_MAX: usize = 1000;
const PREFIX_BYTES_MAX: usize = 64 << 10;

/// The channel of messages to a client with version 2 of the protocol.
const CHANNEL: &[u8] = b"__redis__:invalidate";

/// The way in which a client is told about changes.
#[derive(Clone, Debug, Default)]
pub(super) struct Tracked {
    /// The client that gets the messages instead, and its number.
    redirect: Option<(ClientId, u64)>,
    /// Whether that client was found missing.
    is_broken: bool,
    is_broadcast: bool,
    /// Whether only reads behind `CLIENT CACHING yes` count.
    opts_in: bool,
    /// Whether reads behind `CLIENT CACHING no` do not count.
    opts_out: bool,
    /// Whether it is not told about its own changes.
    skips_own: bool,
    prefixes: BTreeSet<Vec<u8>>,
    /// The last `CLIENT CACHING`, which is about the next command.
    caching: Option<bool>,
}

impl Tracked {
    /// Whether the keys of a command that reads are noted.
    fn notes_reads(&self) -> bool {
        !self.is_broadcast
            && (!self.opts_in || self.caching == Some(true))
            && (!self.opts_out || self.caching != Some(false))
    }

    /// Returns the number of the client that gets the messages, or 0.
    fn redirect_number(&self) -> i64 {
        self.redirect.map_or(0, |(_, number)| number as i64)
    }
}

impl Client {
    /// Returns the number of the client that gets its messages, or 0, or -1 if it is not tracked.
    pub(super) fn redirect_number(&self) -> i64 {
        self.tracked.as_ref().map_or(-1, |it| it.redirect_number())
    }

    /// Returns its flags for `CLIENT LIST`.
    pub(super) fn tracking_flags(&self) -> [(char, bool); 3] {
        let has = |is: fn(&Tracked) -> bool| self.tracked.as_deref().is_some_and(is);
        [('t', has(|_| true)), ('R', has(|it| it.is_broken)), ('B', has(|it| it.is_broadcast))]
    }

    /// Ends the effect of `CLIENT CACHING` after the next command.
    #[inline]
    pub(super) fn end_caching(&mut self, command: &Command) {
        if let Some(tracked) = &mut self.tracked
            && self.multi.is_none()
            && !command.name.starts_with("client")
        {
            tracked.caching = None;
        }
    }
}

/// A prefix that clients have named.
#[derive(Debug, Default)]
struct Prefix {
    clients: BTreeSet<ClientId>,
    /// The changed keys, and the clients that have changed them first.
    changed: BTreeMap<Vec<u8>, Option<ClientId>>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Tracking {
    /// The clients that are told about changes.
    clients: BTreeSet<ClientId>,
    /// The keys that clients have read.
    table: BTreeMap<Vec<u8>, Vec<ClientId>>,
    /// The clients of all keys.
    items: usize,
    /// The memory of the table.
    bytes: usize,
    prefixes: BTreeMap<Vec<u8>, Prefix>,
    /// The prefixes with changed keys.
    changed: BTreeSet<Vec<u8>>,
    /// The notes of the present command.
    ops: Notes,
    /// The last key that was dropped because there were too many.
    hand: Vec<u8>,
}

impl Tracking {
    /// Whether a client is told about changes.
    #[inline]
    pub(super) fn is_active(&self) -> bool {
        !self.clients.is_empty()
    }

    /// Returns the numbers of clients, keys, clients of all keys, and prefixes.
    pub(super) fn counts(&self) -> [u64; 4] {
        [self.clients.len(), self.table.len(), self.items, self.prefixes.len()]
            .map(|count| count as u64)
    }

    /// Adds notes.
    pub(super) fn note(&mut self, ops: impl Iterator<Item = Op>) {
        ops.for_each(|op| self.ops.push(op));
    }

    /// Forgets the notes of a command that is executed again.
    pub(super) fn take_back(&mut self) {
        self.ops.clear();
    }

    /// Forgets the changes of a command that has failed. It may have read keys.
    pub(super) fn fail_command(&mut self) {
        self.ops.fail_command();
    }

    /// Tells a client about changes no longer. The table stays, as the client may register again.
    pub(super) fn forget(&mut self, client: &Client) {
        let Some(tracked) = &client.tracked else { return };
        self.clients.remove(&client.id);
        for prefix in &tracked.prefixes {
            if let Some(known) = self.prefixes.get_mut(prefix) {
                known.clients.remove(&client.id);
                if known.clients.is_empty() {
                    self.prefixes.remove(prefix);
                }
            }
        }
    }

    /// Forgets the table and the notes if no client is told about changes.
    #[inline]
    pub(super) fn end_without_clients(&mut self) {
        if self.clients.is_empty() && !(self.table.is_empty() && self.ops.is_empty()) {
            self.clear_table();
            self.ops.clear();
        }
    }

    /// Tells a client about changes.
    pub(super) fn remember(&mut self, client: &Client) {
        let Some(tracked) = &client.tracked else { return };
        self.clients.insert(client.id);
        for prefix in &tracked.prefixes {
            self.prefixes.entry(prefix.clone()).or_default().clients.insert(client.id);
        }
    }

    fn clear_table(&mut self) {
        self.table.clear();
        (self.items, self.bytes) = (0, 0);
    }

    /// Notes for all prefixes of a key that it has changed.
    fn change_prefixes(&mut self, key: &[u8], by: Option<ClientId>) {
        // The prefixes of a key come before it. Of those up to a bound, the last one is looked at:
        // if it is no prefix of the key, all others are prefixes of the part that both have.
        let mut bound = Bound::Included(key);
        while let Some((prefix, known)) =
            self.prefixes.range_mut::<[u8], _>((Bound::Unbounded, bound)).next_back()
        {
            let shared = prefix.iter().zip(key).take_while(|(one, other)| one == other).count();
            let part = key.get(..shared).unwrap_or_default();
            if shared < prefix.len() {
                bound = Bound::Included(part);
                continue;
            }
            if known.changed.is_empty() {
                self.changed.insert(prefix.clone());
            }
            known.changed.entry(key.to_vec()).or_insert(by);
            bound = Bound::Excluded(part);
        }
    }

    /// Notes in the table that a client has read a key.
    fn add(&mut self, client: ClientId, key: Vec<u8>) {
        let bytes = KEY_BYTES + key.len();
        let clients = self.table.entry(key).or_default();
        if clients.is_empty() {
            self.bytes += bytes;
        }
        if let Err(place) = clients.binary_search(&client) {
            clients.insert(place, client);
            self.items += 1;
            self.bytes += ITEM_BYTES;
        }
    }

    /// Takes a key from the table; returns its clients.
    fn take(&mut self, key: &[u8]) -> Vec<ClientId> {
        let Some(clients) = self.table.remove(key) else { return Vec::new() };
        self.items -= clients.len();
        self.bytes -= KEY_BYTES + key.len() + ITEM_BYTES * clients.len();
        clients
    }

    /// Whether the table has too many keys. A most of 0 is no limit.
    fn is_over(&self, keys_max: usize) -> bool {
        self.bytes > BYTES_MAX || (keys_max > 0 && self.table.len() > keys_max)
    }

    /// Returns a key that is to be dropped: the one behind the last one, so that keys take turns.
    fn next_dropped(&mut self) -> Option<Vec<u8>> {
        let behind = (Bound::Excluded(self.hand.as_slice()), Bound::Unbounded);
        let next = self.table.range::<[u8], _>(behind).next();
        let key = next.or_else(|| self.table.first_key_value())?.0.clone();
        self.hand.clone_from(&key);
        Some(key)
    }
}

/// The content of a message.
#[derive(Clone, Copy)]
enum Content<'k> {
    Keys(&'k [&'k [u8]]),
    /// All keys.
    All,
}

impl State {
    /// Whether the table of keys has too many of them.
    pub(super) fn tracks_too_much(&self) -> bool {
        self.tracking.is_over(self.settings.tracked_keys_max)
    }

    /// Sends the messages about the notes of a command, which a client may have sent.
    #[inline]
    pub(super) fn finish_tracking(
        &mut self,
        by: Option<ClientId>,
        messages: &mut Vec<(ClientId, Vec<u8>)>,
    ) {
        if self.tracking.is_active() {
            self.finish_ops(by, messages);
        }
    }

    #[cold]
    fn finish_ops(&mut self, by: Option<ClientId>, messages: &mut Vec<(ClientId, Vec<u8>)>) {
        for op in std::mem::take(&mut self.tracking.ops).into_ops() {
            match op {
                Op::Read(key) => {
                    if let Some(client) = by {
                        self.tracking.add(client, key);
                    }
                }
                Op::Written(key) => self.invalidate(&key, by, messages),
                Op::Gone(key) => self.invalidate(&key, None, messages),
                Op::Flushed | Op::TooMany => {
                    for client in self.tracking.clients.clone() {
                        self.send_invalidation(client, Content::All, messages);
                    }
                    self.tracking.clear_table();
                }
            }
        }
        self.broadcast(messages);
        let most = self.settings.tracked_keys_max;
        for _ in 0..DROPPED_MAX {
            if !self.tracking.is_over(most) {
                break;
            }
            let Some(key) = self.tracking.next_dropped() else { break };
            self.invalidate_in_table(&key, None, messages);
        }
    }

    /// Tells clients that a key has changed.
    fn invalidate(
        &mut self,
        key: &[u8],
        by: Option<ClientId>,
        messages: &mut Vec<(ClientId, Vec<u8>)>,
    ) {
        self.invalidate_in_table(key, by, messages);
        self.tracking.change_prefixes(key, by);
    }

    /// Tells the clients that have read a key.
    fn invalidate_in_table(
        &mut self,
        key: &[u8],
        by: Option<ClientId>,
        messages: &mut Vec<(ClientId, Vec<u8>)>,
    ) {
        for id in self.tracking.take(key) {
            let tracked = self.clients.get(&id).and_then(|client| client.tracked.as_ref());
            let Some(tracked) = tracked.filter(|it| !it.is_broadcast) else { continue };
            if !(tracked.skips_own && by == Some(id)) {
                self.send_invalidation(id, Content::Keys(&[key]), messages);
            }
        }
    }

    /// Tells the clients of each prefix about the changed keys.
    fn broadcast(&mut self, messages: &mut Vec<(ClientId, Vec<u8>)>) {
        let mut all = Vec::new();
        for prefix in std::mem::take(&mut self.tracking.changed) {
            let Some(prefix) = self.tracking.prefixes.get_mut(&prefix) else { continue };
            let clients: Vec<ClientId> = prefix.clients.iter().copied().collect();
            all.push((std::mem::take(&mut prefix.changed), clients));
        }
        for (changed, clients) in &all {
            for id in clients {
                let tracked = self.clients.get(id).and_then(|client| client.tracked.as_ref());
                let skips_own = tracked.is_some_and(|it| it.skips_own);
                let is_told = |by: &Option<ClientId>| !(skips_own && *by == Some(*id));
                let told = changed.iter().filter(|(_, by)| is_told(by));
                let keys: Vec<&[u8]> = told.map(|(key, _)| key.as_slice()).collect();
                if !keys.is_empty() {
                    self.send_invalidation(*id, Content::Keys(&keys), messages);
                }
            }
        }
    }

    /// Sends a message about keys to a client, or to its redirection.
    fn send_invalidation(
        &mut self,
        id: ClientId,
        content: Content<'_>,
        messages: &mut Vec<(ClientId, Vec<u8>)>,
    ) {
        let Some(client) = self.clients.get(&id) else { return };
        let (Some(tracked), version) = (&client.tracked, client.version) else { return };
        let mut bytes = Vec::new();
        let mut to = client;
        if let Some((other, number)) = tracked.redirect {
            match self.clients.get(&other) {
                Some(other) => to = other,
                None => {
                    if version == Version::Three {
                        let mut writer = Writer::new(&mut bytes, version);
                        writer.push(2);
                        writer.string(b"tracking-redir-broken");
                        writer.integer(number as i64);
                        messages.push((id, bytes));
                    }
                    let client = self.clients.get_mut(&id);
                    if let Some(tracked) = client.and_then(|client| client.tracked.as_mut()) {
                        tracked.is_broken = true;
                    }
                    return;
                }
            }
        }
        let mut writer = Writer::new(&mut bytes, to.version);
        match to.version {
            Version::Three => {
                writer.push(2);
                writer.string(b"invalidate");
            }
            Version::Two if to.id != id && to.is_subscriber() => {
                writer.push(3);
                writer.string(b"message");
                writer.string(CHANNEL);
            }
            Version::Two => return,
        }
        match content {
            Content::Keys(keys) => {
                writer.array(keys.len());
                keys.iter().for_each(|key| writer.string(key));
            }
            Content::All => {
                // As in Redis, this has the version of the client that has read the keys.
                writer.set_version(version);
                writer.null();
            }
        }
        messages.push((to.id, bytes));
    }
}

impl Context<'_> {
    /// Notes the reads and writes of a command of the client.
    #[inline]
    pub(super) fn note_tracking(&mut self, command: &Command, arguments: &Arguments<'_>) {
        if self.state.tracking.is_active() {
            self.note_keys(command, arguments);
        }
    }

    #[cold]
    fn note_keys(&mut self, command: &Command, arguments: &Arguments<'_>) {
        self.state.tracking.note(self.objects.overlay.touched.take());
        if !command.has(READONLY) || matches!(command.name, "eval_ro" | "evalsha_ro" | "fcall_ro") {
            return;
        }
        if self.client().tracked.as_ref().is_none_or(|it| !it.notes_reads()) {
            return;
        }
        let words: Vec<&[u8]> = arguments.iter().collect();
        let places = key_places(command, &words).unwrap_or_default();
        let keys = places.iter().filter_map(|(place, _)| words.get(*place));
        self.state.tracking.note(keys.map(|key| Op::Read(key.to_vec())));
    }
}

/// Reads `ON` or `OFF`.
pub(super) fn switch(text: &[u8]) -> Result<bool, Stop> {
    match text {
        it if is(it, "ON") => Ok(true),
        it if is(it, "OFF") => Ok(false),
        _ => Err(stop::SYNTAX),
    }
}

/// Reads the options of `CLIENT TRACKING`.
fn options(context: &Context<'_>, arguments: &Arguments<'_>) -> Result<Tracked, Stop> {
    let mut wanted = Tracked::default();
    let mut given = Vec::new();
    let mut at = 3;
    while let Some(word) = arguments.get(at) {
        match (word, arguments.get(at + 1)) {
            (it, Some(number)) if is(it, "REDIRECT") => {
                if wanted.redirect.is_some() {
                    let text = "ERR A client can only redirect to a single other client";
                    return Err(Stop::error(text));
                }
                let number = integer_of(number).ok_or(stop::NOT_AN_INTEGER)?;
                let clients = context.state.clients.values();
                let found =
                    clients.into_iter().find(|it| it.number as i64 == number).map(|it| it.id);
                let text = "ERR The client ID you want redirect to does not exist";
                wanted.redirect = Some((found.ok_or(Stop::error(text))?, number as u64));
                at += 1;
            }
            (it, _) if is(it, "BCAST") => wanted.is_broadcast = true,
            (it, _) if is(it, "OPTIN") => wanted.opts_in = true,
            (it, _) if is(it, "OPTOUT") => wanted.opts_out = true,
            (it, _) if is(it, "NOLOOP") => wanted.skips_own = true,
            (it, Some(prefix)) if is(it, "PREFIX") => {
                given.push(prefix.to_vec());
                at += 1;
            }
            _ => return Err(stop::SYNTAX),
        }
        at += 1;
    }
    if !switch(&arguments[2])? {
        return Ok(wanted);
    }
    let before = context.state.clients.get(&context.client).and_then(|it| it.tracked.as_ref());
    check(&wanted, &given, before.map(|it| &**it))?;
    if wanted.is_broadcast {
        // The empty prefix stands for all keys.
        let all = given.is_empty().then(Vec::new);
        let kept = before.into_iter().flat_map(|it| it.prefixes.iter().cloned());
        wanted.prefixes = kept.chain(given).chain(all).collect();
    }
    Ok(wanted)
}

/// Checks that options fit together, and to those before.
fn check(wanted: &Tracked, given: &[Vec<u8>], before: Option<&Tracked>) -> Done {
    let error = |text: &'static str| Err(Stop::error(text));
    if !given.is_empty() && !wanted.is_broadcast {
        return error("ERR PREFIX option requires BCAST mode to be enabled");
    }
    if before.is_some_and(|it| it.is_broadcast != wanted.is_broadcast) {
        return error(
            "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and \
             then re-enabling it with a different mode.",
        );
    }
    if wanted.is_broadcast && (wanted.opts_in || wanted.opts_out) {
        return error("ERR OPTIN and OPTOUT are not compatible with BCAST");
    }
    if wanted.opts_in && wanted.opts_out {
        return error("ERR You can't specify both OPTIN mode and OPTOUT mode");
    }
    let switches = |it: &Tracked| wanted.opts_in && it.opts_out || wanted.opts_out && it.opts_in;
    if before.is_some_and(switches) {
        return error(
            "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and \
             then re-enabling it with a different mode.",
        );
    }
    let existing = before.map(|it| &it.prefixes);
    let all = || given.iter().chain(existing.into_iter().flatten());
    if all().count() > PREFIXES_MAX || all().map(Vec::len).sum::<usize>() > PREFIX_BYTES_MAX {
        return error("ERR a client may have at most 1000 prefixes, with 65536 bytes in all");
    }
    let refused = |one: &[u8], which: &str, other: &[u8]| {
        let end = "'. Prefixes for a single client must not overlap.";
        let parts: [&[u8]; 7] = [
            b"ERR Prefix '",
            one,
            b"' overlaps with ",
            which.as_bytes(),
            b" '",
            other,
            end.as_bytes(),
        ];
        Err(Stop::error_of(parts.concat()))
    };
    if let Some(existing) = existing {
        for prefix in given {
            if let Some(other) = overlapping(existing, prefix) {
                return refused(prefix, "an existing prefix", other);
            }
        }
    }
    let mut earlier = BTreeSet::new();
    for prefix in given {
        if let Some(other) = overlapping(&earlier, prefix) {
            return refused(other, "another provided prefix", prefix);
        }
        earlier.insert(prefix.clone());
    }
    Ok(())
}

/// Returns a prefix that overlaps another one. Of the prefixes, only the empty one may overlap
/// others. So a prefix of the other one is the empty one or its neighbour.
fn overlapping<'p>(prefixes: &'p BTreeSet<Vec<u8>>, other: &[u8]) -> Option<&'p Vec<u8>> {
    let first = prefixes.first().filter(|it| it.is_empty());
    let before = prefixes.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(other))).next_back();
    let behind = prefixes.range::<[u8], _>((Bound::Included(other), Bound::Unbounded)).next();
    let before = before.filter(|it| other.starts_with(it));
    first.or(before).or(behind.filter(|it| it.starts_with(other)))
}

pub(super) fn client_tracking(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let is_on = switch(&arguments[2]).is_ok_and(|it| it);
    let wanted = options(context, &arguments)?;
    let Context { state, client, .. } = context;
    if let Some(client) = state.clients.get_mut(client) {
        state.tracking.forget(client);
        client.tracked = is_on.then(|| Box::new(wanted));
        state.tracking.remember(client);
    }
    context.objects.events.listen(context.state.tracking.is_active());
    context.ok();
    Ok(())
}

pub(super) fn client_caching(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let Some(tracked) = &mut context.client().tracked else {
        return Err(Stop::error(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN \
             or OPTOUT mode enabled",
        ));
    };
    let (is_yes, is_allowed, text) = match &arguments[2] {
        it if is(it, "YES") => (
            true,
            tracked.opts_in,
            "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
        ),
        it if is(it, "NO") => (
            false,
            tracked.opts_out,
            "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
        ),
        _ => return Err(stop::SYNTAX),
    };
    if !is_allowed {
        return Err(Stop::error(text));
    }
    tracked.caching = Some(is_yes);
    context.ok();
    Ok(())
}

pub(super) fn client_getredir(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    let number = context.client().redirect_number();
    context.reply.integer(number);
    Ok(())
}

pub(super) fn client_trackinginfo(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    let number = context.client().redirect_number();
    let tracked = context.client().tracked.clone();
    let is_on = tracked.is_some();
    let tracked = tracked.unwrap_or_default();
    let flags = [
        (if is_on { "on" } else { "off" }, true),
        ("bcast", tracked.is_broadcast),
        ("optin", tracked.opts_in),
        ("caching-yes", tracked.opts_in && tracked.caching == Some(true)),
        ("optout", tracked.opts_out),
        ("caching-no", tracked.opts_out && tracked.caching == Some(false)),
        ("noloop", tracked.skips_own),
        ("broken_redirect", tracked.is_broken),
    ];
    let flags = flags.into_iter().filter(|(_, is_set)| *is_set);
    let reply = &mut context.reply;
    reply.map(3);
    reply.string(b"flags");
    reply.set(flags.clone().count());
    flags.for_each(|(flag, _)| reply.string(flag.as_bytes()));
    reply.string(b"redirect");
    reply.integer(number);
    reply.string(b"prefixes");
    reply.array(tracked.prefixes.len());
    tracked.prefixes.iter().for_each(|prefix| reply.string(prefix));
    Ok(())
}
