//! The shard's memory of clients: leases, acknowledgements and records of their updates.
//!
//! A shard remembers the outcome of an update in a *completion record*, which belongs to the tablet
//! of the key. It forgets the record for one of two reasons. Either the client has the answer (the
//! `first unacknowledged` of a later update tells so), or the coordinator reports that the client's
//! lease is over. For each client the shard keeps that number in memory, and whether the lease is
//! over. So it refuses a copy of the update that arrives late.
//!
//! # A tablet that changes its owner
//!
//! These numbers belong to a shard, not to a tablet. When a tablet changes its owner (by a
//! migration, by a recovery, or because a master takes its log back), its records go with it, but
//! the numbers do not. The numbers may come from updates of other tablets, and a crash loses them.
//! The cleaner may have removed the records long before. So the new owner may know nothing of an
//! update that was done and then forgotten. Two rules keep the new owner from doing such an update
//! again. The coordinator gives each new owner two numbers for them ([`OwnedSince`]), which the log
//! keeps with the tablet. A tablet that was made here has zeroes, for it had no owner before.
//!
//! **1. The map is not older than the ownership.** An update carries the version of the map by
//! which its client chose the shard. The shard refuses the update if that map is older than the
//! ownership. The client gets the status *moved*, fetches a new map and sends the update again.
//!
//! Reason: let a former owner forget the record of update *s* because the client reported, in
//! another update, that it has the answer. From then on the client makes no copy of *s*. The
//! present ownership began later, and only later maps have its version. So each copy of *s* names
//! an older map, however long the network holds it.
//!
//! **2. The lease was open after the ownership began.** The coordinator has confirmed this with a
//! version of the map that is not lower than the ownership's, or the lease was opened since then
//! (numbers of leases grow). Otherwise the shard asks the coordinator first, and the update waits.
//!
//! Reason: let a former owner forget the record of *s* because the lease is over. The lease was
//! over before the present ownership began, and a lease that is over never opens again. A client
//! without an answer may send *s* again with a new map, so rule 1 does not help. Rule 2 refuses it,
//! even if this shard learned earlier that the lease was open.
//!
//! Within one ownership this shard does all the forgetting, so it knows about it: it drops a client
//! from memory only if the client's lease is over, or if the client has acknowledged nothing and
//! has no record here. The shard remembers the newest [`ENDED_MAX`] of the leases that are over.
//! It asks the coordinator about every lease up to the highest lease that it dropped from these.
//!
//! **Rejected alternatives.** Acknowledgements that move with the tablet would have to be durable,
//! for each client and tablet, before the cleaner may remove a record: a new kind of entry, and
//! memory for each pair of client and tablet. Acknowledgements kept for each tablet are lost when a
//! tablet is split. Neither covers leases that are over. The rules above need 8 bytes in a message,
//! two numbers for each tablet, and one comparison.
//!
//! # Leases that this shard has not verified yet
//!
//! By rule 2 the shard does the first update under a lease at once, without the coordinator, if the
//! tablet was made here or came here before the lease was opened. The shard still asks the
//! coordinator in the background. If the coordinator answers that the lease is over or never
//! existed, the shard forgets the records and refuses the lease from then on. That is safe: no
//! other shard had the tablet since the lease was opened, so no other shard can have forgotten a
//! record of that client. (A client that makes up numbers of leases can act for other clients:
//! shards do not verify which client sends a message.)
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
use thunderhead_log::{Cursor, HashedKey, Log};
use thunderhead_runtime::slice::Budget;
use thunderhead_wire::control::OwnedSince;
use thunderhead_wire::operations::Identity;
use thunderhead_wire::{LeaseId, Sequence, Status, TableId, TabletRange};

/// Microseconds that a client waits before it tries again, while the shard asks about its lease.
const LEASE_US: u32 = 500;

/// The same if the shard remembers too much.
const FULL_US: u32 = 20_000;

/// Leases that wait for the next question at once; updates under further leases wait all the same.
const WANTED_MAX: usize = 4096;

/// The maximum number of remembered leases that are over.
const ENDED_MAX: usize = if cfg!(test) { 2 } else { 4096 };

/// The maximum number of records that an update forgets at once. One message makes no more records
/// than this, so a client that sends messages steadily has no more to forget.
const FORGOTTEN_AT_ONCE: usize = 128;

/// The time to forget one record, without the time to find it.
const FORGETTING: Duration = Duration::from_nanos(700);

/// Some sequences are looked for together; that costs as much as so many records do.
const LOOKING: usize = 1;

/// So many words of sequences wait to be forgotten until nothing is asked for; and so many at most.
const UNNEEDED_FEW: usize = 32;
const UNNEEDED_MAX: usize = 64;

/// The clients, by their leases.
#[derive(Default)]
pub(crate) struct Clients {
    clients: BTreeMap<LeaseId, Client>,
    limits: Options,
    /// No coordinator exists to ask, so the shard trusts all leases.
    trusts: bool,
    /// The highest map version at which a tablet came here. At least 1, because 0 marks a lease
    /// that was not checked. If the shard trusts all leases, it is 0.
    newest: u64,
    /// Leases to ask about.
    wanted: BTreeSet<LeaseId>,
    /// Leases that are over and of which nothing is left here; the oldest first.
    ended: (BTreeSet<LeaseId>, VecDeque<LeaseId>),
    /// Leases up to this one may have been dropped from those.
    ended_until: LeaseId,
    /// [`Client::recorded_first`] before the last update that was found to be new.
    before: Sequence,
    /// Leases of clients that acknowledged more answers since the shard last sorted out which of
    /// their records are no longer needed.
    ahead: Vec<LeaseId>,
    /// Records that are no longer needed: a lease, a sequence, and a mask of the 64 sequences from
    /// there on. And clients whose leases are over.
    unneeded: Vec<(LeaseId, Sequence, u64)>,
    ending: Vec<LeaseId>,
    /// Records that are kept.
    records: usize,
}

struct Client {
    /// The client has the answers to all updates before this one.
    first: Sequence,
    /// The first unacknowledged update according to the records. Records of earlier updates are
    /// not needed. The shard does not take these updates for new even if only the records
    /// remain.
    recorded_first: Sequence,
    /// Updates of which the log has a record.
    recorded: Sequences,
    /// The map version at which the lease was open; 0 if the coordinator was not asked, or if the
    /// lease is over.
    open_at: u64,
    /// The lease is over.
    is_over: bool,
    /// Whether this client is in `ahead`.
    is_ahead: bool,
}

/// The shard's knowledge of an update that arrives.
pub(crate) enum DuplicateCheck {
    /// The update was not done, and may be. It counts as recorded from now on. A caller that makes
    /// no record of it must call [`Clients::not_made`].
    New,
    /// The log has a record of it.
    Done,
    /// The update may not be done.
    Refused(Outcome),
}

impl Client {
    fn new(open_at: u64) -> Client {
        Client {
            first: Sequence::NONE,
            recorded_first: Sequence::NONE,
            recorded: Sequences::default(),
            open_at,
            is_over: false,
            is_ahead: false,
        }
    }

    /// Whether an update may be done although the client, or the shard, has as many records as
    /// the limits allow.
    ///
    /// The client's oldest update may always exceed them. The client acknowledges answers only up
    /// to its oldest update without an answer. If that one were refused, no record would ever be
    /// forgotten, and the client would wait until its deadline. This happens when the oldest
    /// update is sent again after a crash, and updates that were sent later are done meanwhile.
    /// Other updates older than the newest record may exceed the client's limit up to twice its
    /// size, so that the client need not fill the gaps one by one.
    #[cold]
    fn may_exceed_limit(&self, sequence: Sequence, records: usize, limits: Options) -> bool {
        let is_gap = self.recorded.last().is_some_and(|last| sequence < last);
        let has_room = self.recorded.len() < limits.records_per_client_max.saturating_mul(2)
            && records < limits.records_max;
        sequence == self.first || (is_gap && has_room)
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

    /// Adds a record that came from another log. Returns the client's first unacknowledged update.
    pub(crate) fn came(&mut self, lease: LeaseId, sequence: Sequence, record: &[u8]) -> Sequence {
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

    /// Notes that this shard owns the tablets made for these ranges: see the module's
    /// documentation.
    pub(crate) fn owned(&mut self, log: &mut Log, ranges: &[TabletRange], since: OwnedSince) {
        let note = [since.map_version, since.next_lease.0];
        for range in ranges {
            log.note_tablet(*range, note);
        }
        self.newest = self.newest.max(since.map_version);
    }

    /// Checks that the parts of a message under a lease may be looked at. Refuses it if the lease
    /// is known to be over.
    pub(crate) fn admit_message(&mut self, lease: LeaseId) -> Result<(), Outcome> {
        if self.ended.0.contains(&lease) {
            return Err(refused(Status::LeaseEnded, 0));
        }
        Ok(())
    }

    /// Checks whether an update was done before, and whether it may be done.
    #[inline]
    pub(crate) fn check_duplicate(
        &mut self,
        log: &mut Log,
        identity: &Identity,
        (table, key): (TableId, HashedKey<'_>),
    ) -> DuplicateCheck {
        let (lease, first) = (identity.lease(), identity.first_unacknowledged());
        let limits = self.limits;
        let Clients { clients, newest, ended_until, wanted, before, ahead, records, .. } = self;
        let Some(client) = clients.get_mut(&lease) else {
            return match self.welcome(log, identity, (table, key)) {
                Ok(()) => self.check_duplicate(log, identity, (table, key)),
                Err(refused) => DuplicateCheck::Refused(refused),
            };
        };
        if identity.sequence() < client.first.max(first) {
            return DuplicateCheck::Refused(refused(Status::Stale, 0));
        }
        if client.recorded.contains(identity.sequence()) {
            return DuplicateCheck::Done;
        }
        client.first = client.first.max(first);
        if client.open_at.min(identity.map_version()) < *newest {
            let doubt = doubt(log, client, *ended_until, identity, (table, key));
            if let Err(refused) = doubt {
                if refused.status == Status::AwaitingLease && wanted.len() < WANTED_MAX {
                    wanted.insert(lease);
                }
                return DuplicateCheck::Refused(refused);
            }
        }
        let is_full = (client.recorded.len() >= limits.records_per_client_max
            || *records >= limits.records_max)
            && !client.may_exceed_limit(identity.sequence(), *records, limits);
        // Where it is full the record that this one makes may free those before.
        if is_full && first <= client.recorded_first {
            if ahead.is_empty() {
                return DuplicateCheck::Refused(refused(Status::Busy, FULL_US));
            }
            self.sort_out(log);
            return self.check_duplicate(log, identity, (table, key));
        }
        *records += usize::from(client.recorded.insert(identity.sequence()));
        *before = client.recorded_first;
        if first > client.recorded_first {
            client.recorded_first = first;
            if !std::mem::replace(&mut client.is_ahead, true) {
                ahead.push(lease);
            }
        }
        DuplicateCheck::New
    }

    /// Notes that the update that was just found to be new got no record.
    #[cold]
    pub(crate) fn not_made(&mut self, identity: &Identity) {
        self.lost(identity.lease(), identity.sequence());
        if let Some(client) = self.clients.get_mut(&identity.lease()) {
            client.recorded_first = self.before;
        }
    }

    /// Finds the records that are no longer needed, for the clients that acknowledged more answers:
    /// all records before the first unacknowledged update. The newest record stays. After a crash
    /// it tells which updates are stragglers. Sorting out and forgetting mostly happen after the
    /// client has its answer.
    #[inline]
    pub(crate) fn sort_out(&mut self, log: &mut Log) {
        while let Some(lease) = self.ahead.pop() {
            self.sort_out_of(log, lease);
        }
    }

    fn sort_out_of(&mut self, log: &mut Log, lease: LeaseId) {
        let Clients { clients, unneeded, records, .. } = self;
        let Some(client) = clients.get_mut(&lease) else { return };
        client.is_ahead = false;
        let last = client.recorded.last().unwrap_or_default();
        let mut left = FORGOTTEN_AT_ONCE;
        client.recorded.take_below(client.recorded_first.min(last), |base, bits| {
            *records -= bits.count_ones() as usize;
            let bits = log.forget_unindexed(lease, base, bits);
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

    /// Adds a lease to the next question to the coordinator.
    pub(crate) fn want(&mut self, lease: LeaseId) {
        if self.wanted.len() < WANTED_MAX {
            self.wanted.insert(lease);
        }
    }

    /// Adds an unknown client, if there is room and its lease allows it.
    #[cold]
    fn welcome(
        &mut self,
        log: &Log,
        identity: &Identity,
        place: (TableId, HashedKey<'_>),
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
            // Also if the lease is taken for an open one.
            self.want(lease);
            doubt(log, &client, self.ended_until, identity, place)?;
        }
        if self.clients.len() >= self.limits.clients_max {
            return Err(refused(Status::Busy, FULL_US));
        }
        self.clients.insert(lease, client);
        Ok(())
    }

    /// Notes that the log has forgotten a record, whose tablet is gone.
    pub(crate) fn lost(&mut self, lease: LeaseId, sequence: Sequence) {
        if let Some(client) = self.clients.get_mut(&lease) {
            self.records -= usize::from(client.recorded.remove(sequence));
        }
    }

    /// Records that are kept.
    pub(crate) fn records(&self) -> usize {
        self.records
    }

    /// Returns the number of known clients.
    pub(crate) fn count(&self) -> usize {
        self.clients.len()
    }

    /// Whether there are leases to ask about at once.
    pub(crate) fn wants_to_ask(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Takes leases to ask about at once.
    pub(crate) fn take_wanted(&mut self, most: usize) -> Vec<LeaseId> {
        // This is so in nearly every turn.
        if self.wanted.is_empty() {
            return Vec::new();
        }
        let leases: Vec<LeaseId> = self.wanted.iter().copied().take(most).collect();
        for lease in &leases {
            self.wanted.remove(lease);
        }
        leases
    }

    /// Returns the known leases after another one. Forgets clients that have done nothing here on
    /// the way.
    pub(crate) fn known_after(&mut self, lease: LeaseId, most: usize) -> Vec<LeaseId> {
        let behind = (Bound::Excluded(lease), Bound::Unbounded);
        let leases: Vec<LeaseId> =
            self.clients.range(behind).map(|(lease, _)| *lease).take(most).collect();
        for lease in &leases {
            // It acknowledged no update, so none can be a straggler.
            let idle = |it: &Client| it.first <= Sequence::FIRST && it.recorded.is_empty();
            if self.clients.get(lease).is_some_and(idle) {
                self.clients.remove(lease);
            }
        }
        leases
    }

    /// Takes the coordinator's answer about some leases: these are over, and the others were open
    /// at this version of the map. `wanted`: updates wait for the answer.
    pub(crate) fn checked(
        &mut self,
        asked: &[LeaseId],
        (ended, map_version): (&BTreeSet<LeaseId>, u64),
        wanted: bool,
    ) {
        let open_at = map_version.max(1);
        for lease in asked {
            // A client that came while the question was in flight need not be asked about again.
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

    fn remember_ended(&mut self, lease: LeaseId) {
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

    /// Whether [`Clients::forget`] has something to do. `is_busy`: clients wait for answers.
    #[inline]
    pub(crate) fn has_unneeded(&self, is_busy: bool) -> bool {
        let few = if is_busy { UNNEEDED_FEW } else { 0 };
        self.unneeded.len() > few || !self.ending.is_empty()
    }

    /// Forgets records that are no longer needed, for a slice.
    pub(crate) fn forget(&mut self, log: &mut Log, budget: &mut Budget) {
        loop {
            let mut took = FORGETTING;
            if let Some((lease, base, bits)) = self.unneeded.pop() {
                // Sixty-four records at once would take longer than a slice.
                let low = bits & u64::from(u32::MAX);
                let some = if low == 0 { bits } else { low };
                if some != bits {
                    self.unneeded.push((lease, base, bits & !some));
                }
                let entries = log.forget_some(lease, base, some);
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

/// The refusal for a new update that may have been done before this shard had the tablet: see the
/// module's documentation. *Awaiting lease* if the coordinator can tell.
#[cold]
fn doubt(
    log: &Log,
    client: &Client,
    ended_until: LeaseId,
    identity: &Identity,
    (table, key): (TableId, HashedKey<'_>),
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
    if was_checked || (lease >= LeaseId(next_lease) && lease > ended_until) {
        return Ok(());
    }
    Err(refused(Status::AwaitingLease, LEASE_US))
}

fn refused(status: Status, hint: u32) -> Outcome {
    Outcome { hint, ..Outcome::refused(status, thunderhead_wire::Version::NONE) }
}
