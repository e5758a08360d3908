//! The observations of all clients of the door, and the rules that no register has: money, queues,
//! objects that expire, messages.

use super::super::user::Key;
use std::collections::{BTreeMap, BTreeSet};
use thunderhead_simulator::linearizability::Operation;

/// The accounts, and the money in each of them at the beginning.
pub(super) const ACCOUNTS: u64 = 6;
pub(super) const MONEY: u64 = 1000;

/// A number of a user: of an object, a queue's item or a channel.
pub(super) type Number = (u64, u64);

/// The time of a call and of its answer, by the clock of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) called: u64,
    pub(super) answered: u64,
}

/// An item of the queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Item {
    /// The push, if it was answered.
    pushed: Option<Span>,
    pops: Vec<Span>,
}

/// An object that is written once, and expires.
#[derive(Clone, Debug, Default)]
pub(super) struct Expiring {
    /// The answered write, and the time of expiry by the server's clock.
    written: Option<(Span, u64)>,
    /// For each read the time by the server's clock, if it was asked for, and whether there was an
    /// object.
    reads: Vec<(Span, Option<u64>, bool)>,
}

/// The observations of all clients.
#[derive(Default)]
pub(super) struct Records {
    /// The operations for the judge of registers.
    pub(super) history: Vec<Operation<Key>>,
    pub(super) failures: Vec<String>,
    /// The counts of events.
    pub(super) counts: BTreeMap<&'static str, u64>,
    pub(super) items: BTreeMap<Number, Item>,
    /// Pops without an answer: each may have taken an item.
    pub(super) lost_pops: u64,
    pub(super) expiring: BTreeMap<Number, Expiring>,
    /// The published messages that were acknowledged.
    published: BTreeSet<(Number, u64)>,
    /// Two messages of a channel that a subscriber received one after the other.
    neighbours: Vec<(Number, u64, u64)>,
    /// The numbers of each user's objects that it alone writes.
    pub(super) own: BTreeMap<(u64, u64), u64>,
    /// The clients that have not ended.
    pub(super) working: u64,
}

impl Records {
    pub(super) fn count(&mut self, event: &'static str) {
        *self.counts.entry(event).or_default() += 1;
    }

    pub(super) fn fail(&mut self, why: String) {
        self.failures.push(why);
    }

    pub(super) fn sees_money(&mut self, accounts: &[Option<u64>]) {
        let sum: Option<u64> = accounts.iter().copied().sum();
        if sum != Some(ACCOUNTS * MONEY) {
            self.fail(format!("a transfer was done in part: {accounts:?}"));
        }
        self.count("sums");
    }

    pub(super) fn pushed(&mut self, item: Number, span: Span) {
        self.items.entry(item).or_default().pushed = Some(span);
    }

    pub(super) fn popped(&mut self, item: Number, span: Span) {
        self.count("pops");
        match self.items.get_mut(&item) {
            Some(known) => known.pops.push(span),
            None => self.fail(format!("no client has pushed {item:?}")),
        }
    }

    pub(super) fn published(&mut self, channel: Number, message: u64) {
        self.published.insert((channel, message));
    }

    pub(super) fn received(&mut self, channel: Number, before: u64, message: u64) {
        self.count("messages");
        self.neighbours.push((channel, before, message));
    }

    pub(super) fn wrote_expiring(&mut self, number: Number, span: Span, expires: u64) {
        self.expiring.entry(number).or_default().written = Some((span, expires));
    }

    pub(super) fn read_expiring(
        &mut self,
        number: Number,
        span: Span,
        time: Option<u64>,
        is_there: bool,
    ) {
        self.count(if is_there { "reads before expiry" } else { "reads of expired" });
        self.expiring.entry(number).or_default().reads.push((span, time, is_there));
    }

    /// Checks the rules at the end. `remaining` are the items in the queue.
    pub(super) fn check(&mut self, remaining: &[Number]) {
        self.check_queue(remaining);
        self.check_expiring();
        let mut failures = Vec::new();
        for (channel, before, message) in &self.neighbours {
            if before >= message {
                failures.push(format!("{message} came after {before} on channel {channel:?}"));
            }
            let missed =
                (before + 1..*message).find(|it| self.published.contains(&(*channel, *it)));
            if let Some(missed) = missed {
                failures.push(format!("a subscriber of {channel:?} has missed message {missed}"));
            }
        }
        self.failures.append(&mut failures);
    }

    fn check_queue(&mut self, remaining: &[Number]) {
        let mut failures = Vec::new();
        let mut lost = 0;
        let mut earlier: Option<(Number, &Item)> = None;
        for (number, item) in &self.items {
            let left = remaining.iter().filter(|it| *it == number).count();
            if item.pops.len() + left > 1 {
                failures.push(format!("item {number:?} was pushed once, and is there twice"));
            }
            if item.pushed.is_some() && item.pops.is_empty() && left == 0 {
                lost += 1;
            }
            if let Some((before, other)) = earlier
                && before.0 == number.0
                && let (Some(first), Some(second)) = (other.pushed, item.pushed)
                && first.answered < second.called
                && let (Some(first), Some(second)) = (other.pops.first(), item.pops.first())
                && second.answered < first.called
            {
                failures.push(format!("item {number:?} left the queue before {before:?}"));
            }
            if item.pushed.is_some() {
                earlier = Some((*number, item));
            }
        }
        if lost > self.lost_pops {
            failures.push(format!(
                "{lost} acknowledged items are lost, and only {} pops had no answer",
                self.lost_pops
            ));
        }
        self.failures.append(&mut failures);
    }

    fn check_expiring(&mut self) {
        let mut failures = Vec::new();
        for (number, it) in &self.expiring {
            for (span, time, is_there) in &it.reads {
                let Some((written, expires)) = it.written else { break };
                match time {
                    Some(time) if *is_there && *time >= expires => {
                        failures
                            .push(format!("{number:?} expired at {expires}, was there at {time}"));
                    }
                    Some(time)
                        if !is_there && *time < expires && written.answered < span.called =>
                    {
                        failures.push(format!("{number:?} was gone at {time}, before {expires}"));
                    }
                    _ => {}
                }
            }
            let first_seen =
                it.reads.iter().filter(|read| read.2).map(|read| read.0.answered).min();
            let is_written = it.written.map(|(span, _)| span.answered);
            let Some(from) = first_seen.into_iter().chain(is_written).min() else { continue };
            let gone = it.reads.iter().filter(|read| !read.2 && read.0.called > from);
            let Some(gone) = gone.map(|read| read.0.answered).min() else { continue };
            if it.reads.iter().any(|read| read.2 && read.0.called > gone) {
                failures.push(format!("{number:?} was gone, and is there again"));
            }
        }
        self.failures.append(&mut failures);
    }
}
