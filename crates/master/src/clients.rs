//! What is known of the clients whose updates are remembered here.
//!
//! A shard remembers the outcome of an update in a *record*, which belongs to the tablet of the key. It forgets the
//! record for two reasons: the client has the answer (`first unacknowledged` of a later update says so), or the
//! coordinator says that the client's lease is over. In memory it keeps for each client that number, and that a lease is
//! over. So a copy of the update that arrives late is refused.
//!
//! # A tablet that changes its owner
//!
//! These numbers are a shard's, not a tablet's. When a tablet moves (a migration, a recovery, a master that takes
//! back its log), its records go with it, but the numbers do not. They may come from updates of other tablets,
//! and a crash ends them; the cleaner may have removed the records long before. So the new owner may know nothing
//! of an update that was done and forgotten. Two rules keep it from doing such an update again. The coordinator gives
//! each new owner two numbers for them ([`OwnedSince`]), which the log keeps with the tablet. A tablet that was made
//! here has zeroes, for it had no owner before.
//!
//! **1. The map is not older than the ownership.** An update says by which map its client chose the shard. It is not
//! done if the map is older than the ownership: the client is told *moved*, gets a new map and asks again.
//!
//! Why that is enough: let a former owner forget the record of update *s* because the client had said, in another
//! update, that it has the answer. From then on the client makes no copy of *s*. The present ownership began
//! later, and only later maps have its version. So each copy of *s* names an older map, however long the
//! network holds it.
//!
//! **2. The lease was open after the ownership began.** The coordinator has said so with a version of the map that is
//! not lower than the ownership's, or the lease was opened since then (numbers of leases grow). Otherwise the shard
//! asks first, and the update waits.
//!
//! Why that is enough: let a former owner forget the record of *s* because the lease is over. It was over before the
//! present ownership began, and a lease that is over stays so. A client that has no answer may send *s* again with a
//! new map, so that rule 1 does not help. It is refused by rule 2, though this shard may have heard earlier that the
//! lease is open.
//!
//! Within one ownership the shard itself forgets, and so it knows: a client is only dropped from memory when its
//! lease is over, or when it has acknowledged nothing and has no record here. Of leases that are over the newest
//! [`ENDED_MAX`] are remembered; of all leases up to the highest that was dropped from these the coordinator is asked.
//!
//! **Other ways that were not taken.** Acknowledgements that travel with the tablet would have to be durable, for each
//! client and tablet, before the cleaner may remove a record: a new kind of entry, and memory for each pair of client and
//! tablet. Acknowledgements kept for each tablet alone are lost when a tablet is split. Both say nothing of leases
//! that are over. The rules above need 8 bytes in a message, two numbers for each tablet, and one comparison.
//!
//! # Leases that nobody knows yet
//!
//! By rule 2 the first update under a lease is done at once, without the coordinator, if the tablet was made here or came
//! here before the lease was opened. The coordinator is asked all the same, in the background. Where it says that the
//! lease is over, or never was, the records are forgotten, and the lease is refused from then on. That is safe: no
//! other shard had the tablet since the lease was opened, so no other shard can have forgotten anything of it.
//! (A client that makes up numbers of leases can speak for other clients; shards do not verify who speaks.)
//!
//! A shard without coordinators trusts all leases.

#[cfg(test)]
mod tests;

use crate::options::Options;
use crate::outcome::Outcome;
use crate::sequences::Sequences;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::time::Duration;
use thunderhead_log::{Cursor, Hashed, Log};
use thunderhead_runtime::slice::Budget;
use thunderhead_wire::control::OwnedSince;
use thunderhead_wire::operations::Identity;
use thunderhead_wire::{Status, TableId, TabletRange};

/// What a client waits in microseconds before it tries again, while its lease is asked about.
const LEASE_US: u32 = 500;

/// The same where too much is remembered.
const FULL_US: u32 = 20_000;

/// Leases that wait to be asked about at once; updates under more of them wait all the same.
const WANTED_MAX: usize = 4096;

/// Leases of which it is remembered that they are over.
const ENDED_MAX: usize = if cfg!(test) { 2 } else { 4096 };

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
    /// The highest version of the map that one of the tablets came here with; at least 1, for 0 is a lease that was not
    /// checked. Where all leases are trusted it is 0.
    newest: u64,
    /// Leases to ask about.
    wanted: BTreeSet<u64>,
    /// Leases that are over and of which nothing is left here; the oldest first.
    ended: (BTreeSet<u64>, VecDeque<u64>),
    /// Leases up to this one may have been dropped from those.
    ended_until: u64,
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
    /// The lease was open when the map had this version; 0 where the coordinator was not asked, or it is over.
    open_at: u64,
    /// The lease is over.
    is_over: bool,
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

impl Client {
    fn new(open_at: u64) -> Client {
        Client {
            first: 0,
            recorded_first: 0,
            recorded: Sequences::default(),
            open_at,
            is_over: false,
            is_ahead: false,
        }
    }
}

impl Clients {
    /// The clients of whose updates a log has records.
    pub(crate) fn of(log: &mut Log, limits: Options, trusts: bool) -> Clients {
        let newest = u64::from(!trusts);
        let mut clients = Clients { limits, trusts, newest, ..Clients::default() };
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
        let Clients { clients, ended, ending, .. } = self;
        let client = clients.entry(lease).or_insert_with(|| {
            let is_over = ended.0.contains(&lease);
            ending.extend(is_over.then_some(lease));
            Client { is_over, ..Client::new(0) }
        });
        self.records += usize::from(client.recorded.insert(sequence));
        if let Some((first, _)) = Outcome::of_record(record) {
            client.first = client.first.max(first);
            client.recorded_first = client.recorded_first.max(first);
        }
        client.first
    }

    /// Tablets that were made for these ranges are this shard's from now on: see the module's documentation.
    pub(crate) fn owned(&mut self, log: &mut Log, ranges: &[TabletRange], since: OwnedSince) {
        let note = [since.map_version, since.next_lease];
        for range in ranges {
            log.note_tablet(*range, note);
        }
        self.newest = self.newest.max(since.map_version);
    }

    /// Whether a message under a lease may be looked at, in parts: not if the lease is known to be over.
    pub(crate) fn admit_message(&mut self, lease: u64) -> Result<(), Outcome> {
        if self.ended.0.contains(&lease) {
            return Err(refused(Status::LeaseEnded, 0));
        }
        Ok(())
    }

    /// Meets an update: whether it was done before, and whether it may be done.
    #[inline]
    pub(crate) fn meet(
        &mut self,
        log: &mut Log,
        identity: &Identity,
        (table, key): (TableId, Hashed<'_>),
    ) -> Met {
        let (lease, first) = (identity.lease(), identity.first_unacknowledged());
        let limits = self.limits;
        let Clients { clients, newest, ended_until, wanted, before, ahead, records, .. } = self;
        let Some(client) = clients.get_mut(&lease) else {
            return match self.welcome(log, identity, (table, key)) {
                Ok(()) => self.meet(log, identity, (table, key)),
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
        if client.open_at.min(identity.map_version()) < *newest {
            let doubt = doubt(log, client, *ended_until, identity, (table, key));
            if let Err(refused) = doubt {
                if refused.status == Status::AwaitingLease && wanted.len() < WANTED_MAX {
                    wanted.insert(lease);
                }
                return Met::Refused(refused);
            }
        }
        let is_full = client.recorded.len() >= limits.records_per_client_max
            || *records >= limits.records_max;
        // Where it is full the record that this one makes may free those before.
        if is_full && first <= client.recorded_first {
            if ahead.is_empty() {
                return Met::Refused(refused(Status::Busy, FULL_US));
            }
            self.sort_out(log);
            return self.meet(log, identity, (table, key));
        }
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

    /// No record was made of the update that was just met as new.
    #[cold]
    pub(crate) fn not_made(&mut self, identity: &Identity) {
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

    /// Has the coordinator asked about a lease.
    pub(crate) fn want(&mut self, lease: u64) {
        if self.wanted.len() < WANTED_MAX {
            self.wanted.insert(lease);
        }
    }

    /// Takes a client in that is not known, if it may be.
    #[cold]
    fn welcome(
        &mut self,
        log: &Log,
        identity: &Identity,
        place: (TableId, Hashed<'_>),
    ) -> Result<(), Outcome> {
        let lease = identity.lease();
        if identity.sequence() < identity.first_unacknowledged() {
            return Err(refused(Status::Stale, 0));
        }
        if self.ended.0.contains(&lease) {
            return Err(refused(Status::LeaseEnded, 0));
        }
        let client = Client::new(0);
        if !self.trusts {
            // Also where it is taken for one that is open.
            self.want(lease);
            doubt(log, &client, self.ended_until, identity, place)?;
        }
        if self.clients.len() >= self.limits.clients_max {
            return Err(refused(Status::Busy, FULL_US));
        }
        self.clients.insert(lease, client);
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

    /// The coordinator has said of some leases which of them are over; the others were open when the map had the
    /// version. `wanted`: because updates wait.
    pub(crate) fn checked(
        &mut self,
        asked: &[u64],
        (ended, map_version): (&BTreeSet<u64>, u64),
        wanted: bool,
    ) {
        let open_at = map_version.max(1);
        for lease in asked {
            // Whoever came while it was asked about need not ask again.
            self.wanted.remove(lease);
            let has_room = self.clients.len() < self.limits.clients_max;
            let known = self.clients.get_mut(lease);
            match (known, ended.contains(lease)) {
                (Some(client), _) if client.is_over => {}
                (Some(client), false) => client.open_at = client.open_at.max(open_at),
                (Some(client), true) => {
                    (client.is_over, client.open_at) = (true, 0);
                    self.ending.push(*lease);
                }
                // If there is no room, the client asks again.
                (None, false) if wanted && has_room => {
                    self.clients.insert(*lease, Client::new(open_at));
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
            self.ended_until = self.ended_until.max(oldest);
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

/// The refusal for a new update that may have been done before this shard had the tablet: see the module's
/// documentation. *Awaiting lease* where the coordinator can tell.
#[cold]
fn doubt(
    log: &Log,
    client: &Client,
    ended_until: u64,
    identity: &Identity,
    (table, key): (TableId, Hashed<'_>),
) -> Result<(), Outcome> {
    if client.is_over {
        return Err(refused(Status::LeaseEnded, 0));
    }
    let Some([map_version, next_lease]) = log.tablet_note(table, key) else {
        return Err(refused(Status::Moved, 0));
    };
    if identity.map_version() < map_version {
        return Err(refused(Status::Moved, 0));
    }
    let was_checked = client.open_at != 0 && client.open_at >= map_version;
    let lease = identity.lease();
    if was_checked || (lease >= next_lease && lease > ended_until) {
        return Ok(());
    }
    Err(refused(Status::AwaitingLease, LEASE_US))
}

fn refused(status: Status, hint: u32) -> Outcome {
    Outcome { hint, ..Outcome::refused(status, thunderhead_wire::Version::NONE) }
}
