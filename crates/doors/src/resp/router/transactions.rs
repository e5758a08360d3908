//! The transactions of a client, each in one part.
//!
//! A part may refuse each command about transactions: perhaps the user has no right to send it. So
//! the replies tell the router whether a transaction has begun or ended, and whether keys are
//! watched. Only `EXEC` ends a transaction in any case: a refused one does so too, as in Redis. So
//! the router ends transactions of its own accord with `EXEC`, and a wrong command in front of it.

use super::super::commands::Command;
use super::super::parser::{Arguments, Parsed, Parser};
use super::replies::{Entry, Progress, Then, keep};
use super::routes::{CROSS_PART, CROSS_PART_MULTI, KeyParts, NOT_IN_MULTI, Way, parts_of};
use super::session::write_command;
use super::{Barrier, Broken, Effects, Multi, NAMES, Router};

/// A command that a part refuses for all users. Then `EXEC` does nothing.
const WRONG: &[u8] = b"*1\r\n$3\r\nGET\r\n";

impl Router {
    pub(super) fn watch(
        &mut self,
        command: &'static Command,
        arguments: &Arguments<'_>,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> bool {
        let part = match parts_of(self.parts, command, arguments) {
            KeyParts::None => return self.send_to(0, bytes, Then::Nothing, effects),
            KeyParts::Several => return self.refuse(CROSS_PART),
            KeyParts::One(part) => part,
        };
        if self.watched.is_some_and(|watched| watched != part) {
            return self.refuse(CROSS_PART_MULTI);
        }
        self.send_to(part, bytes, Then::Watches, effects)
    }

    /// Begins a transaction: in the part of the watched keys, or of the first key if that has
    /// arrived.
    pub(super) fn begin(&mut self, bytes: &[u8], behind: &[u8], effects: &mut Effects) -> bool {
        let part = self.watched.or_else(|| self.part_of_first(behind)).unwrap_or(0);
        self.send_to(part, bytes, Then::Begins, effects)
    }

    /// Returns the part of the first command in some bytes.
    fn part_of_first(&self, bytes: &[u8]) -> Option<u32> {
        let mut parser = Parser::new(self.limits());
        let Parsed::Command(_) = parser.next(bytes) else { return None };
        let arguments = parser.arguments(bytes);
        match parts_of(self.parts, NAMES.called(&arguments).ok()?, &arguments) {
            KeyParts::One(part) => Some(part),
            KeyParts::None | KeyParts::Several => None,
        }
    }

    /// Takes the answer to a `MULTI` of the client.
    pub(super) fn begun(&mut self, part: u32) {
        let is_bound = self.watched.is_some();
        let (queued, count) = (Vec::new(), 0);
        let multi = Multi { part, is_bound, queued, count, is_broken: false, is_lost: false };
        self.multi = Some(multi);
    }

    /// Handles a command of a transaction.
    pub(super) fn in_multi(
        &mut self,
        command: &'static Command,
        arguments: &Arguments<'_>,
        (way, bytes): (Way, &[u8]),
        effects: &mut Effects,
    ) -> bool {
        let Some(multi) = &self.multi else { return true };
        let (part, is_bound) = (multi.part, multi.is_bound);
        match way {
            Way::Exec | Way::Discard => return self.end_multi(way == Way::Exec, bytes, effects),
            Way::Refused(text) => return self.refuse(text),
            _ if multi.is_lost => return self.refuse(NOT_IN_MULTI),
            // The part refuses them, and they are not queued.
            Way::Multi | Way::Watch => return self.send_to(part, bytes, Then::Nothing, effects),
            Way::All(_)
            | Way::Scan
            | Way::Session
            | Way::Replies
            | Way::Subscribe
            | Way::Unsubscribe => return self.refuse(NOT_IN_MULTI),
            _ => {}
        }
        match parts_of(self.parts, command, arguments) {
            KeyParts::None => self.without_keys(bytes, effects),
            KeyParts::Several => self.refuse(CROSS_PART_MULTI),
            KeyParts::One(of_key) if of_key != part && is_bound => self.refuse(CROSS_PART_MULTI),
            KeyParts::One(of_key) if of_key != part => {
                self.rebind(of_key, effects);
                false
            }
            KeyParts::One(_) => {
                let is_sent = self.send_to(part, bytes, Then::Nothing, effects);
                if is_sent && let Some(multi) = &mut self.multi {
                    multi.is_bound = true;
                    multi.queued = Vec::new();
                }
                is_sent
            }
        }
    }

    /// Begins the transaction in another part, if that is ready. The next command waits for it.
    fn rebind(&mut self, part: u32, effects: &mut Effects) {
        let Some(multi) = &self.multi else { return };
        let before = multi.part;
        if !self.prepare(part, effects) {
            return;
        }
        let word = |word: &[u8]| {
            let mut command = Vec::new();
            write_command(&mut command, [word]);
            command
        };
        self.expect(before, WRONG, Then::Breaks, effects);
        self.expect(before, &word(b"EXEC"), Then::Aborts, effects);
        self.expect(part, &word(b"MULTI"), Then::Rebinds, effects);
        if let Some(multi) = &mut self.multi {
            multi.part = part;
        }
    }

    /// Takes the answer to a `MULTI` of [`Router::rebind`].
    pub(super) fn rebound(&mut self, is_error: bool, effects: &mut Effects) {
        let Some(multi) = &mut self.multi else { return };
        if is_error {
            (multi.is_broken, multi.is_lost) = (true, true);
            return;
        }
        multi.is_bound = true;
        let (part, count) = (multi.part, multi.count);
        let queued = std::mem::take(&mut multi.queued);
        if count > 0 {
            effects.send(part, &queued);
        }
        for _ in 0..count {
            self.count_pending(&[part]);
            self.entries.push_back(Entry::One { part, then: Then::Dropped, is_error: false });
        }
    }

    /// Sends an `EXEC`, which may have wrong arguments. It then ends a transaction, too.
    pub(super) fn execute(&mut self, bytes: &[u8], effects: &mut Effects) -> bool {
        match self.multi.is_some() {
            true => self.end_multi(true, bytes, effects),
            false => self.send_to(self.watched.unwrap_or(0), bytes, Then::Executes, effects),
        }
    }

    /// Ends a transaction with `EXEC` or `DISCARD`.
    fn end_multi(&mut self, executes: bool, bytes: &[u8], effects: &mut Effects) -> bool {
        let Some(multi) = &self.multi else { return true };
        let (part, is_broken, is_lost) = (multi.part, multi.is_broken, multi.is_lost);
        if is_lost {
            let aborted = b"-EXECABORT Transaction discarded because of previous errors.\r\n";
            let reply = if executes { aborted.to_vec() } else { b"+OK\r\n".to_vec() };
            self.entries.push_back(Entry::Own(reply));
        } else if !self.prepare(part, effects) {
            return false;
        } else if !executes {
            self.expect(part, bytes, Then::Discards, effects);
            return true;
        } else {
            if is_broken {
                self.expect(part, WRONG, Then::Breaks, effects);
            }
            self.expect(part, bytes, Then::Nothing, effects);
        }
        (self.multi, self.watched) = (None, None);
        true
    }

    /// Takes bytes of a short reply that tells the state of a transaction.
    ///
    /// # Errors
    /// If a transaction did not end. Later commands would be queued and never executed.
    pub(super) fn take_state(
        &mut self,
        part: u32,
        then: &Then,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Result<Progress, Broken> {
        let leg = self.legs.get_mut(part as usize).ok_or(Broken)?;
        let (used, reply) = keep(leg, bytes)?;
        let Some(reply) = reply else { return Ok(Progress::Used(used)) };
        self.end_pending(&[part]);
        let is_error = reply.first() == Some(&b'-');
        let is_aborted = reply.starts_with(b"-EXECABORT ");
        match then {
            Then::Breaks | Then::Aborts => {
                let is_right = if *then == Then::Aborts { is_aborted } else { is_error };
                return if is_right { Ok(Progress::Done(used)) } else { Err(Broken) };
            }
            Then::Watches if !is_error => self.watched = Some(part),
            Then::Unwatches if !is_error => self.watched = None,
            // A refused EXEC ends the watching even without MULTI.
            Then::Executes if is_aborted => self.watched = None,
            Then::Discards if !is_error => (self.multi, self.watched) = (None, None),
            _ => {}
        }
        self.barrier = Barrier::None;
        self.begin_reply();
        self.show(&reply, effects);
        self.end_reply();
        Ok(Progress::Done(used))
    }
}
