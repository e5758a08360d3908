//! What is known of the clients whose updates are remembered here.
//!
//! Each client has a lease from the coordinator. The first update under a lease waits until the
//! coordinator has said that it lasts ([`crate::leases`] asks); from then on the client is known,
//! until the coordinator says that the lease is over. Then its records are forgotten, a few a turn,
//! and what still comes under the lease is refused.
//!
//! A client that came with records, from a log that was replayed, is known but not checked: what was
//! done is answered from the records, what is new waits for the coordinator.
//!
//! A shard without coordinators trusts all leases.

use crate::options::Options;
use crate::outcome::Outcome;
use crate::sequences::Sequences;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::time::Duration;
use thunderhead_log::{Cursor, Log};
use thunderhead_runtime::slice::Budget;
use thunderhead_wire::Status;
use thunderhead_wire::operations::Identity;

/// What a client waits in microseconds before it tries again, while its lease is asked about.
const LEASE_US: u32 = 500;

/// The same where too much is remembered.
const FULL_US: u32 = 20_000;

/// Leases that wait to be asked about at once; updates under more of them wait all the same.
const WANTED_MAX: usize = 4096;

/// Leases of which it is remembered that they are over. For others it is asked again.
const ENDED_MAX: usize = 4096;

/// Records that an update forgets at once: as many as a message can have made, so that a client that
/// goes on steadily has no more. Together it takes them less than half a slice.
const FORGOTTEN_AT_ONCE: usize = 128;

/// What it takes to forget a record, beside what it takes to look for some.
const FORGETTING: Duration = Duration::from_nanos(700);

/// Some sequences are looked for together; that costs as much as so many records do.
const LOOKING: usize = 1;

/// So many words of sequences wait to be forgotten until nothing is asked for; and so many at most.
const UNNEEDED_FEW: usize = 32;
const UNNEEDED_MAX: usize = 64;

/// The clients, by their leases.
#[derive(Default)]
pub(crate) struct Clients {
    clients: BTreeMap<u64, Client>,
    limits: Options,
    /// There is nobody to ask.
    trusts: bool,
    /// Leases to ask about.
    wanted: BTreeSet<u64>,
    /// Leases that are over and of which nothing is left here; the oldest first.
    ended: (BTreeSet<u64>, VecDeque<u64>),
    /// What [`Client::recorded_first`] was before the last update that was met as new.
    before: u64,
    /// Leases of clients that said that they have more answers since it was last looked which of their
    /// records nobody needs.
    ahead: Vec<u64>,
    /// Records that nobody needs: a lease, a sequence, and which of the 64 from there on. And clients
    /// whose leases are over.
    unneeded: Vec<(u64, u64, u64)>,
    ending: Vec<u64>,
    /// Records that are kept.
    records: usize,
}

struct Client {
    /// The client has the answers to all updates before this one.
    first: u64,
    /// Which update that was as the records say. Those of earlier ones are not needed, and nobody will take
    /// their updates for new, even if all that is left are the records.
    recorded_first: u64,
    /// Updates of which the log has a record.
    recorded: Sequences,
    standing: Standing,
    /// It is among those who are ahead.
    is_ahead: bool,
}

/// What is known of an update when it comes.
pub(crate) enum Met {
    /// It was not done, and may be. It counts as recorded from now on: who makes no record of it says so
    /// ([`Clients::not_made`]).
    New,
    /// The log has a record of it.
    Done,
    /// It may not be done.
    Refused(Outcome),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Came with records.
    Unchecked,
    Lasts,
    Over,
}

impl Client {
    fn new(standing: Standing) -> Client {
        Client {
            first: 0,
            recorded_first: 0,
            recorded: Sequences::default(),
            standing,
            is_ahead: false,
        }
    }
}

impl Clients {
    /// The clients of whose updates a log has records.
    pub(crate) fn of(log: &mut Log, limits: Options, trusts: bool) -> Clients {
        let mut clients = Clients { limits, trusts, ..Clients::default() };
        let mut cursor = Some(Cursor::default());
        while let Some(at) = cursor {
            cursor = log.scan_completions(at, |lease, sequence, record| {
                clients.came(lease, sequence, &record.to_vec());
            });
        }
        clients
    }

    /// A record came from another log. Returns from which update on its client may not have the answer.
    pub(crate) fn came(&mut self, lease: u64, sequence: u64, record: &[u8]) -> u64 {
        let standing = if self.trusts { Standing::Lasts } else { Standing::Unchecked };
        let client = self.clients.entry(lease).or_insert_with(|| Client::new(standing));
        self.records += usize::from(client.recorded.insert(sequence));
        if let Some((first, _)) = Outcome::of_record(record) {
            client.first = client.first.max(first);
            client.recorded_first = client.recorded_first.max(first);
        }
        client.first
    }

    /// Whether a message under a lease may be looked at, in parts: false where nothing is known of
    /// the lease, or it is over.
    pub(crate) fn admit_message(&mut self, lease: u64) -> Result<(), Outcome> {
        if lease == 0 || self.trusts || self.clients.contains_key(&lease) {
            return Ok(());
        }
        Err(unknown(&mut self.wanted, &self.ended.0, lease))
    }

    /// Meets an update: whether it was done before, and whether it may be done.
    #[inline]
    pub(crate) fn meet(&mut self, log: &mut Log, identity: Identity) -> Met {
        let (lease, first) = (identity.lease(), identity.first_unacknowledged());
        let limits = self.limits;
        let Clients { clients, wanted, before, ahead, records, .. } = self;
        let Some(client) = clients.get_mut(&lease) else {
            return match self.welcome(identity) {
                Ok(()) => self.meet(log, identity),
                Err(refused) => Met::Refused(refused),
            };
        };
        if identity.sequence() < client.first.max(first) {
            return Met::Refused(refused(Status::Stale, 0));
        }
        if client.recorded.contains(identity.sequence()) {
            return Met::Done;
        }
        client.first = client.first.max(first);
        let is_full = client.recorded.len() >= limits.records_per_client_max
            || *records >= limits.records_max;
        match client.standing {
            // Where it is full: the record that this one makes frees those before.
            Standing::Lasts if !is_full || first > client.recorded_first => {
                *records += usize::from(client.recorded.insert(identity.sequence()));
                *before = client.recorded_first;
                if first > client.recorded_first {
                    client.recorded_first = first;
                    if !std::mem::replace(&mut client.is_ahead, true) {
                        ahead.push(lease);
                    }
                }
                Met::New
            }
            Standing::Lasts if self.ahead.is_empty() => {
                Met::Refused(refused(Status::Busy, FULL_US))
            }
            Standing::Lasts => {
                self.sort_out(log);
                self.meet(log, identity)
            }
            Standing::Over => Met::Refused(refused(Status::LeaseEnded, 0)),
            Standing::Unchecked => {
                if wanted.len() < WANTED_MAX {
                    wanted.insert(lease);
                }
                Met::Refused(refused(Status::AwaitingLease, LEASE_US))
            }
        }
    }

    /// No record was made of the update that was just met as new.
    #[cold]
    pub(crate) fn not_made(&mut self, identity: Identity) {
        self.lost(identity.lease(), identity.sequence());
        if let Some(client) = self.clients.get_mut(&identity.lease()) {
            client.recorded_first = self.before;
        }
    }

    /// Sorts out which records nobody needs, of clients that have got more answers: all before those that
    /// they may still ask for. The record that says so stays, and from it is known, after a crash, which
    /// updates are stragglers. This and the forgetting are mostly done when who asks has its answer.
    #[inline]
    pub(crate) fn sort_out(&mut self, log: &mut Log) {
        while let Some(lease) = self.ahead.pop() {
            self.sort_out_of(log, lease);
        }
    }

    fn sort_out_of(&mut self, log: &mut Log, lease: u64) {
        let Clients { clients, unneeded, records, .. } = self;
        let Some(client) = clients.get_mut(&lease) else { return };
        client.is_ahead = false;
        let last = client.recorded.last().unwrap_or_default();
        let mut left = FORGOTTEN_AT_ONCE;
        client.recorded.take_below(client.recorded_first.min(last), |base, bits| {
            *records -= bits.count_ones() as usize;
            let bits = log.forget_late(lease, base, bits);
            if bits == 0 {
                return;
            }
            let count = unneeded.len();
            match unneeded.last_mut() {
                Some((it, from, others)) if (*it, *from) == (lease, base) => *others |= bits,
                _ if count < UNNEEDED_MAX || left == 0 => unneeded.push((lease, base, bits)),
                _ => {
                    let entries = log.forget_some(lease, base, bits);
                    left = left.saturating_sub(entries + LOOKING);
                }
            }
        });
    }

    /// Takes a client in that is not known, if it may be.
    #[cold]
    fn welcome(&mut self, identity: Identity) -> Result<(), Outcome> {
        let lease = identity.lease();
        if identity.sequence() < identity.first_unacknowledged() {
            return Err(refused(Status::Stale, 0));
        }
        if !self.trusts {
            return Err(unknown(&mut self.wanted, &self.ended.0, lease));
        }
        if self.clients.len() >= self.limits.clients_max {
            return Err(refused(Status::Busy, FULL_US));
        }
        self.clients.insert(lease, Client::new(Standing::Lasts));
        Ok(())
    }

    /// The log has forgotten a record, whose tablet is gone.
    pub(crate) fn lost(&mut self, lease: u64, sequence: u64) {
        if let Some(client) = self.clients.get_mut(&lease) {
            self.records -= usize::from(client.recorded.remove(sequence));
        }
    }

    /// Records that are kept.
    pub(crate) fn records(&self) -> usize {
        self.records
    }

    /// Clients that are known.
    pub(crate) fn count(&self) -> usize {
        self.clients.len()
    }

    /// Whether there are leases to ask about at once.
    pub(crate) fn wants_to_ask(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Takes leases to ask about at once.
    pub(crate) fn take_wanted(&mut self, most: usize) -> Vec<u64> {
        let leases: Vec<u64> = self.wanted.iter().copied().take(most).collect();
        for lease in &leases {
            self.wanted.remove(lease);
        }
        leases
    }

    /// Leases that are known and behind another one. Those of clients that have done nothing here are
    /// forgotten on the way.
    pub(crate) fn known_after(&mut self, lease: u64, most: usize) -> Vec<u64> {
        let behind = (Bound::Excluded(lease), Bound::Unbounded);
        let leases: Vec<u64> =
            self.clients.range(behind).map(|(lease, _)| *lease).take(most).collect();
        for lease in &leases {
            // Nothing of it was acknowledged, so nothing can be a straggler.
            let idle = |it: &Client| it.first <= 1 && it.recorded.is_empty();
            if self.clients.get(lease).is_some_and(idle) {
                self.clients.remove(lease);
            }
        }
        leases
    }

    /// The coordinator has said of some leases which of them are over. `wanted`: because updates wait.
    pub(crate) fn checked(&mut self, asked: &[u64], ended: &BTreeSet<u64>, wanted: bool) {
        for lease in asked {
            // Whoever came while it was asked about need not ask again.
            self.wanted.remove(lease);
            let has_room = self.clients.len() < self.limits.clients_max;
            let known = self.clients.get_mut(lease);
            match (known, ended.contains(lease)) {
                (Some(client), false) if client.standing == Standing::Over => {}
                (Some(client), false) => client.standing = Standing::Lasts,
                (Some(client), true) if client.standing == Standing::Over => {}
                (Some(client), true) => {
                    client.standing = Standing::Over;
                    self.ending.push(*lease);
                }
                // If there is no room, the client asks again.
                (None, false) if wanted && has_room => {
                    self.clients.insert(*lease, Client::new(Standing::Lasts));
                }
                (None, false) => {}
                (None, true) => self.remember_ended(*lease),
            }
        }
    }

    fn remember_ended(&mut self, lease: u64) {
        let (ended, order) = &mut self.ended;
        if ended.insert(lease) {
            order.push_back(lease);
        }
        while order.len() > ENDED_MAX {
            let Some(oldest) = order.pop_front() else { break };
            ended.remove(&oldest);
        }
    }

    /// Whether [`Clients::forget`] has something to do. `is_busy`: that others wait for.
    #[inline]
    pub(crate) fn has_unneeded(&self, is_busy: bool) -> bool {
        let few = if is_busy { UNNEEDED_FEW } else { 0 };
        self.unneeded.len() > few || !self.ending.is_empty()
    }

    /// Forgets records that nobody needs, for a slice.
    pub(crate) fn forget(&mut self, log: &mut Log, budget: &mut Budget) {
        loop {
            let mut took = FORGETTING;
            if let Some((lease, base, bits)) = self.unneeded.pop() {
                let entries = log.forget_some(lease, base, bits);
                took = FORGETTING.saturating_mul((entries + LOOKING) as u32);
            } else if let Some(lease) = self.ending.last().copied() {
                let client = self.clients.get_mut(&lease);
                if let Some(sequence) = client.and_then(|client| client.recorded.pop_first()) {
                    log.forget_completion(lease, sequence);
                    self.records -= 1;
                } else {
                    self.clients.remove(&lease);
                    self.ending.pop();
                    self.remember_ended(lease);
                }
            } else {
                return;
            }
            if !budget.spend(took) {
                return;
            }
        }
    }
}

/// What an update under a lease of which nothing is known is told.
fn unknown(wanted: &mut BTreeSet<u64>, ended: &BTreeSet<u64>, lease: u64) -> Outcome {
    if ended.contains(&lease) {
        return refused(Status::LeaseEnded, 0);
    }
    if wanted.len() < WANTED_MAX {
        wanted.insert(lease);
    }
    refused(Status::AwaitingLease, LEASE_US)
}

fn refused(status: Status, hint: u32) -> Outcome {
    Outcome { hint, ..Outcome::refused(status, thunderhead_wire::Version::NONE) }
}
