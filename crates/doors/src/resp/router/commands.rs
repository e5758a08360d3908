//! The commands of a client on their way to the parts.

use super::super::commands::Command;
use super::super::context::is;
use super::super::key_slots::slot_of;
use super::super::keys::cursor_of;
use super::super::parser::Arguments;
use super::elements::Elements;
use super::replies::{Entry, Shown, Stage, Subscription, Then};
use super::routes::{CROSS_PART, KeyParts, Merge, NOT_IN_MULTI, Way, parts_of, way_of};
use super::session::{Change, write_command};
use super::{Barrier, DefaultUser, Effects, NAMES, Router};

/// The bytes of a cursor of `SCAN` that name the part. The lowest bits of the cursor of a part are
/// zero, as long as it has fewer than 2⁵⁶ keys.
const CURSOR_PART: u64 = 63;

/// The most bytes of commands without keys that another part can still get.
const QUEUED_BYTES_MAX: usize = 1 << 20;

/// The word that ends the replies to a command about subscriptions: see [`Subscription`]. The
/// router also asks with it whether the client needs a password.
pub(super) const PING: &[u8] = b"*2\r\n$4\r\nPING\r\n$3\r\nend\r\n";

/// Returns the cursor for the client behind one of a part. `part_count` is the number of parts.
pub(super) fn next_cursor(part: u32, part_count: u32, next: u64) -> u64 {
    match next {
        0 if part + 1 < part_count => u64::from(part) + 1,
        0 => 0,
        // A cursor that begins too early visits some keys twice, which is allowed.
        next => (next & !CURSOR_PART).max(CURSOR_PART + 1) | u64::from(part),
    }
}

/// The bytes of a command, and the bytes behind it.
type Own<'a> = (&'a [u8], &'a [u8]);

impl Router {
    /// Sends a command to its parts, or answers it. Returns `false` if it must wait.
    pub(super) fn command(
        &mut self,
        arguments: &Arguments<'_>,
        own: Own<'_>,
        effects: &mut Effects,
    ) -> bool {
        let (bytes, behind) = own;
        let Ok(command) = NAMES.called(arguments) else {
            return match arguments.get(0).is_some_and(|word| is(word, "EXEC")) {
                true => self.execute(bytes, effects),
                false => self.without_keys(bytes, effects),
            };
        };
        let way = way_of(command, arguments);
        let is_reset = command.name == "reset";
        let is_about_channels = matches!(way, Way::Subscribe | Way::Unsubscribe | Way::Quit);
        if self.is_subscriber && !is_about_channels && !is_reset {
            // It is refused there, unless it is a PING.
            return self.send_to(0, bytes, Then::Nothing, effects);
        }
        if self.multi.is_some() && way != Way::Quit && !is_reset {
            return self.in_multi(command, arguments, (way, bytes), effects);
        }
        let all: Vec<u32> = match way {
            Way::All(_) | Way::Subscribe => (0..self.parts.count()).collect(),
            // Part 0 is the last: see [`Subscription`].
            Way::Unsubscribe if self.listens => (0..self.parts.count()).rev().collect(),
            _ => vec![0],
        };
        match way {
            Way::Keys => self.by_keys(command, arguments, (bytes, Then::Nothing), effects),
            Way::Blocks => self.by_keys(command, arguments, (bytes, Then::Blocks), effects),
            Way::Divided(merge) => self.divide(command, arguments, (merge, bytes), effects),
            Way::All(merge) => self.send_to_all(&all, merge, bytes, effects),
            Way::Scan => self.scan(arguments, bytes, effects),
            Way::Late => {
                let is_behind = self.legs.iter().skip(1).any(|leg| leg.pending > 0);
                !is_behind && self.send_to(0, bytes, Then::Nothing, effects)
            }
            Way::Session => self.change(command, arguments, bytes, effects),
            Way::Replies => self.show_replies(arguments, bytes, effects),
            Way::Subscribe | Way::Unsubscribe => {
                self.subscribe(all, way == Way::Subscribe, bytes, effects)
            }
            // In a transaction of part 0, the question for the user would be a command of it.
            Way::Multi if self.default_user == DefaultUser::Unknown => false,
            Way::Multi => self.begin(bytes, behind, effects),
            Way::Watch => self.watch(command, arguments, bytes, effects),
            Way::Exec => self.execute(bytes, effects),
            Way::Unwatch | Way::Discard => {
                let then = if way == Way::Unwatch { Then::Unwatches } else { Then::Nothing };
                self.send_to(self.watched.unwrap_or(0), bytes, then, effects)
            }
            Way::Quit => {
                self.entries.push_back(Entry::Own(b"+OK\r\n".to_vec()));
                self.end_behind_replies();
                true
            }
            Way::Refused(text) => self.refuse(text),
        }
    }

    /// Sends a command to one part.
    pub(super) fn send_to(
        &mut self,
        part: u32,
        bytes: &[u8],
        then: Then,
        effects: &mut Effects,
    ) -> bool {
        if !self.prepare(part, effects) {
            return false;
        }
        self.expect(part, bytes, then, effects);
        true
    }

    /// Sends a command to a part that is ready.
    pub(super) fn expect(&mut self, part: u32, bytes: &[u8], then: Then, effects: &mut Effects) {
        self.barrier = match &then {
            Then::Blocks => Barrier::Blocks,
            Then::Change(_) | Then::Begins | Then::Rebinds => Barrier::Short,
            Then::Watches | Then::Unwatches | Then::Executes | Then::Discards => Barrier::Short,
            _ => self.barrier,
        };
        effects.send(part, bytes);
        self.count_pending(&[part]);
        let blocks = then == Then::Blocks;
        self.entries.push_back(Entry::One { part, then, is_error: false });
        if blocks && self.has_last {
            self.end_blocked(effects);
        }
    }

    pub(super) fn count_pending(&mut self, parts: &[u32]) {
        for part in parts {
            if let Some(leg) = self.legs.get_mut(*part as usize) {
                leg.pending += 1;
            }
        }
    }

    /// Refuses a command.
    pub(super) fn refuse(&mut self, text: &str) -> bool {
        self.answer_with(text.as_bytes());
        if let Some(multi) = &mut self.multi {
            multi.is_broken = true;
        }
        true
    }

    /// Sends a command without known keys: to part 0, or to that of the transaction.
    pub(super) fn without_keys(&mut self, bytes: &[u8], effects: &mut Effects) -> bool {
        let part = self.multi.as_ref().map_or(0, |multi| multi.part);
        if self.multi.as_ref().is_some_and(|multi| multi.is_lost) {
            return self.refuse(NOT_IN_MULTI);
        }
        let is_sent = self.send_to(part, bytes, Then::Nothing, effects);
        if is_sent && let Some(multi) = self.multi.as_mut().filter(|multi| !multi.is_bound) {
            multi.queued.extend_from_slice(bytes);
            multi.count += 1;
            multi.is_bound = multi.queued.len() > QUEUED_BYTES_MAX;
        }
        is_sent
    }

    fn by_keys(
        &mut self,
        command: &'static Command,
        arguments: &Arguments<'_>,
        (bytes, then): (&[u8], Then),
        effects: &mut Effects,
    ) -> bool {
        match parts_of(self.parts, command, arguments) {
            KeyParts::None => self.send_to(0, bytes, then, effects),
            KeyParts::One(part) => self.send_to(part, bytes, then, effects),
            KeyParts::Several => self.refuse(CROSS_PART),
        }
    }

    /// Sends a command to each part with the keys of that part. All its arguments are keys.
    fn divide(
        &mut self,
        command: &'static Command,
        arguments: &Arguments<'_>,
        (merge, bytes): (Merge, &[u8]),
        effects: &mut Effects,
    ) -> bool {
        if parts_of(self.parts, command, arguments) != KeyParts::Several {
            return self.by_keys(command, arguments, (bytes, Then::Nothing), effects);
        }
        let mut order: Vec<(u32, u64)> = Vec::new();
        let mut of_parts: Vec<Vec<&[u8]>> = vec![Vec::new(); self.legs.len()];
        for key in arguments.iter().skip(1) {
            let part = self.parts.part_of(slot_of(key));
            if let Some(keys) = of_parts.get_mut(part as usize) {
                keys.push(key);
            }
            match order.last_mut() {
                Some((last, count)) if *last == part => *count += 1,
                _ => order.push((part, 1)),
            }
        }
        let used = (0..).zip(&of_parts).filter(|(_, keys)| !keys.is_empty());
        let parts: Vec<u32> = used.map(|(part, _)| part).collect();
        if !self.prepare_all(&parts, effects) {
            return false;
        }
        for (part, keys) in (0..).zip(&mut of_parts).filter(|(_, keys)| !keys.is_empty()) {
            keys.insert(0, arguments.get(0).unwrap_or_default());
            let mut divided = Vec::new();
            write_command(&mut divided, keys.iter().copied());
            effects.send(part, &divided);
        }
        self.count_pending(&parts);
        self.entries.push_back(match merge {
            Merge::Elements => Entry::Elements(Elements::new(parts, Some(order))),
            _ => Entry::Merged { merge, replies: vec![None; parts.len()], parts },
        });
        true
    }

    fn send_to_all(
        &mut self,
        all: &[u32],
        merge: Merge,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> bool {
        if !self.prepare_all(all, effects) {
            return false;
        }
        all.iter().for_each(|part| effects.send(*part, bytes));
        self.count_pending(all);
        let parts = all.to_vec();
        self.entries.push_back(match merge {
            Merge::Joined => Entry::Elements(Elements::new(parts, None)),
            _ => Entry::Merged { merge, replies: vec![None; parts.len()], parts },
        });
        true
    }

    /// Sends a `SCAN` to the part that its cursor names.
    fn scan(&mut self, arguments: &Arguments<'_>, bytes: &[u8], effects: &mut Effects) -> bool {
        let Some(Ok(cursor)) = arguments.get(1).map(cursor_of) else {
            return self.send_to(0, bytes, Then::Nothing, effects);
        };
        let part = ((cursor & CURSOR_PART) as u32).min(self.parts.count() - 1);
        if !self.prepare(part, effects) {
            return false;
        }
        let cursor = (cursor & !CURSOR_PART).to_string();
        let words: Vec<&[u8]> = arguments.iter().collect();
        let words = words.iter().enumerate();
        let words: Vec<&[u8]> =
            words.map(|(place, word)| if place == 1 { cursor.as_bytes() } else { word }).collect();
        let mut own = Vec::new();
        write_command(&mut own, words);
        effects.send(part, &own);
        self.count_pending(&[part]);
        self.entries.push_back(Entry::Scan { part, stage: Stage::Begin });
        true
    }

    /// Sends a command that changes the client's state.
    fn change(
        &mut self,
        command: &'static Command,
        arguments: &Arguments<'_>,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> bool {
        let Some(change) = Change::of(command.name, arguments) else {
            return self.send_to(0, bytes, Then::Nothing, effects);
        };
        if self.listens && change.changes_version(&self.session) {
            return self.refuse("ERR The version of the protocol cannot be changed after SUBSCRIBE on the plain port if the keys have several parts");
        }
        if change == Change::Reset && !self.entries.is_empty() {
            return false;
        }
        self.send_to(0, bytes, Then::Change(Box::new(change)), effects)
    }

    /// Sends a `CLIENT REPLY`. The parts answer to all commands, and the router drops replies.
    fn show_replies(
        &mut self,
        arguments: &Arguments<'_>,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> bool {
        let shown = match arguments.get(2).map(<[u8]>::to_ascii_lowercase).as_deref() {
            Some(b"on") => Shown::All,
            Some(b"off") => Shown::None,
            Some(b"skip") => Shown::NotNext,
            _ => return self.send_to(0, bytes, Then::Nothing, effects),
        };
        let mut on = Vec::new();
        write_command(&mut on, [&b"CLIENT"[..], b"REPLY", b"ON"]);
        self.send_to(0, &on, Then::Shows(shown), effects)
    }

    /// Sends a command about subscriptions to some parts, when all earlier replies have left.
    fn subscribe(
        &mut self,
        parts: Vec<u32>,
        begins: bool,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> bool {
        if !self.prepare_all(&parts, effects) || !self.entries.is_empty() {
            return false;
        }
        for part in &parts {
            effects.send(*part, bytes);
            effects.send(*part, PING);
        }
        self.count_pending(&parts);
        self.barrier = Barrier::Short;
        self.entries.push_back(Entry::Subscription(Subscription::new(parts, begins)));
        true
    }
}
