//! The service.

mod control;
mod door;
mod expiry;
mod parts;

pub use door::{DoorError, DoorTable};

use crate::cleaning::Cleaning;
use crate::clients::Clients;
use crate::coordinator_client::CoordinatorClient;
use crate::leases::Leases;
use crate::objects;
use crate::options::Options;
use crate::outcome::Outcome;
use crate::owner::Owner;
use crate::parked::{Answer, Parked};
use crate::refusal::Refusal;
use crate::replication::{LocalBackup, Replication, ReplicationDriver};
use control::Control;
use parts::{Parts, count, even_batches};
use thunderhead_log::{Cursor, Error, ExpectedUpdates, HashedKey, Log, Object};
use thunderhead_rpc::{
    CallError, CallId, Component, Context, Opcode, OwnerId, ReplyTo, Request, Service,
};
use thunderhead_runtime::Time;
use thunderhead_runtime::names::Addresses;
use thunderhead_runtime::workers::Workers;
use thunderhead_wire::control::READ_LEASE;
use thunderhead_wire::operations::{
    EnumerateHead, FoundHead, IDENTITY_BYTES, Identity, ObjectHead, PageHead, PartHead, ReadPart,
    UpdateKind, UpdatePart,
};
use thunderhead_wire::{
    Condition, KeyHash, LeaseId, LogPosition, MasterId, ServerId, Status, TabletRange, Version,
};
use zerocopy::{FromBytes, IntoBytes};

/// The maximum number of answers that wait for the log.
const PARKED_MAX: usize = 65_536;

/// The maximum bytes of parked long answers: reads of entries that are not durable. While backups
/// do not answer, each retry of a read parks another answer.
const PARKED_BYTES_MAX: usize = 64 << 20;

/// Microseconds that a client waits before it tries again, if there are more requests.
const BUSY_US: u32 = 1_000;

/// The maximum bytes of an answer to many reads. Copying more takes longer than a slice.
const MANY_BYTES_MAX: usize = 1 << 20;

/// The maximum bytes of a page of an enumeration, without the last of its objects, and the maximum
/// number of objects and of empty buckets that are looked at for it.
const PAGE_BYTES_MAX: usize = 64 << 10;
const PAGE_OBJECTS_MAX: usize = 512;

/// The work that a shard has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Objects in requests to read.
    pub reads: u64,
    /// Updates with any outcome.
    pub updates: u64,
    /// Answers that wait for the log to be durable.
    pub parked: usize,
    /// Remembered outcomes of updates.
    pub records: usize,
    /// Known clients.
    pub clients: usize,
}

/// A shard of a server: the service that answers for the objects of its tablets.
///
/// It is a component of a node, which may have others. It serves the operations of
/// [`Component::Shard`] and [`Component::ShardControl`]. The owners of its calls and timers belong
/// to [`Component::Shard`].
pub struct Shard {
    pub(crate) log: Log,
    pub(crate) clients: Clients,
    parked: Parked,
    statistics: Statistics,
    /// A buffer for answers to requests for many objects.
    buffer: Vec<u8>,
    pub(crate) options: Options,
    /// Its id in its cluster, if it is in one.
    pub(crate) master: Option<MasterId>,
    /// There is no coordinator to ask about leases, so the shard trusts all.
    pub(crate) trusts: bool,
    pub(crate) coordinator: CoordinatorClient,
    pub(crate) leases: Leases,
    pub(crate) control: Control,
    pub(crate) cleaning: Cleaning,
    has_begun: bool,
    /// A timer runs that refuses the answers that wait for too long.
    watches_parked: bool,
    /// A timer runs that removes the objects that have expired.
    watches_expiry: bool,
    /// An update was requested in this turn.
    pub(crate) has_updated: bool,
    /// The manager of the log's replicas, unless the log has its own.
    pub(crate) replication: Option<ReplicationDriver>,
}

impl Shard {
    /// Returns a shard on a log, with the tablets and records that are in it. It is in no cluster:
    /// it trusts all leases, and its caller manages its tablets.
    #[must_use]
    pub fn new(log: Log) -> Shard {
        Shard::with(log, None, Addresses::fixed(Vec::new()), Options::default())
    }

    /// A shard of a cluster, whose coordinators are at these addresses.
    #[must_use]
    pub fn in_cluster(
        log: Log,
        master: MasterId,
        coordinators: impl Into<Addresses>,
        options: Options,
    ) -> Shard {
        Shard::with(log, Some(master), coordinators.into(), options)
    }

    fn with(
        mut log: Log,
        master: Option<MasterId>,
        coordinators: Addresses,
        options: Options,
    ) -> Shard {
        let trusts = master.is_none();
        Shard {
            clients: Clients::of(&mut log, options, trusts),
            log,
            parked: Parked::default(),
            statistics: Statistics::default(),
            buffer: Vec::new(),
            options,
            master,
            trusts,
            coordinator: CoordinatorClient::new(coordinators, Owner::Coordinator),
            leases: Leases::default(),
            control: Control::default(),
            cleaning: Cleaning::default(),
            has_begun: false,
            watches_parked: false,
            watches_expiry: false,
            has_updated: false,
            replication: None,
        }
    }

    /// Replaces the addresses of the coordinators.
    pub fn set_coordinators(&mut self, coordinators: impl Into<Addresses>) {
        self.coordinator.set_coordinators(coordinators);
    }

    /// Starts cleaners beside the reactor, as workers of the node's world. Returns how many there
    /// are now: no more than a log can have.
    ///
    /// # Errors
    /// The world cannot start a further thread.
    pub fn start_cleaners(
        &mut self,
        workers: &mut dyn Workers,
        count: usize,
    ) -> std::io::Result<usize> {
        self.cleaning.start(&self.log, workers, count)
    }

    /// The same, on a log whose replicator belongs to this manager. `own` is the server
    /// that it is part of.
    #[must_use]
    pub fn replicated(self, replication: Replication, own: ServerId) -> Shard {
        Shard { replication: Some(ReplicationDriver::new(replication, own)), ..self }
    }

    /// Returns a shard in no cluster that is [`replicated`](Shard::replicated); one of the
    /// coordinators leads.
    #[must_use]
    pub fn with_replication(
        log: Log,
        replication: Replication,
        own: ServerId,
        coordinators: impl Into<Addresses>,
    ) -> Shard {
        let mut shard = Shard::new(log).replicated(replication, own);
        shard.set_coordinators(coordinators);
        shard
    }

    /// Returns the manager of the log's replicas.
    pub fn replication(&mut self) -> Option<&mut Replication> {
        self.replication.as_mut().map(|driver| &mut driver.replication)
    }

    /// Whether a backup has reported that this master was declared crashed.
    #[must_use]
    pub fn is_deposed(&self) -> bool {
        self.replication.as_ref().is_some_and(|driver| driver.status.is_deposed)
    }

    /// The log.
    pub fn log(&mut self) -> &mut Log {
        &mut self.log
    }

    /// Returns the work that it has done so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let (parked, records) = (self.parked.count(), self.clients.records());
        let clients = self.clients.count();
        Statistics { parked, records, clients, ..self.statistics }
    }

    fn read(&mut self, context: &mut Context<'_>, body: &[u8], reply_to: ReplyTo) {
        self.statistics.reads += 1;
        let part = ObjectHead::take(body).filter(|(_, _, rest)| rest.is_empty());
        let Some((head, key, Some(condition))) =
            part.map(|(head, key, _)| (head, key, head.condition()))
        else {
            return context.refuse(reply_to, Status::Malformed, 0, &[]);
        };
        // Its place in the index is on its way while all else is looked at.
        let expected = self.log.expect_read(head.table(), key);
        let is_plain = self.control.is_plain();
        let closed = if is_plain { None } else { self.control.closed(head.table(), key) };
        if let Some(Refusal { status, hint_us }) = closed.or_else(|| self.lapsed(context)) {
            return context.refuse(reply_to, status, hint_us, &[]);
        }
        let object = match expected {
            Ok(expected) => expected.read(),
            Err(error) => return refuse_for(context, reply_to, &error),
        };
        let version = object.as_ref().map_or(Version::NONE, |object| object.version());
        let holds = condition == Condition::Always || condition.holds(version);
        let object = match object {
            Some(object) if holds => object,
            Some(object) => {
                let until = self.log.durable_at(&object);
                return self.answer_without(context, reply_to, version, until);
            }
            None if holds => return self.answer_absent(context, reply_to, Status::NotFound),
            None => return self.answer_absent(context, reply_to, Status::ConditionFailed),
        };
        if !is_plain {
            object.count_use();
        }
        let number = version.0.to_le_bytes();
        match self.log.durable_at(&object) {
            None => answer_with(context, reply_to, &number, &object),
            Some(until) => {
                let answer = copied(&number, &object);
                self.parked.park(until, reply_to, answer);
            }
        }
    }

    /// Answers a read whose condition the object does not meet.
    #[inline(never)]
    fn answer_without(
        &mut self,
        context: &mut Context<'_>,
        reply_to: ReplyTo,
        version: Version,
        until: Option<LogPosition>,
    ) {
        let answer = Answer::new(Status::ConditionFailed, 0, &version.0.to_le_bytes());
        self.answer_at(context, until.unwrap_or_default(), reply_to, answer);
    }

    /// The refusal for a read whose read lease has expired, or `None`. The module
    /// `replication::lease` gives the reason.
    #[inline]
    fn lapsed(&self, context: &mut Context<'_>) -> Option<Refusal> {
        let until =
            self.replication.as_ref().map_or(Time::NEVER, |driver| driver.status.reads_until);
        if until == Time::NEVER {
            return None;
        }
        let now = context.now_or_later();
        (now >= until).then(|| lapsed_since(until, now))
    }

    /// One update of one message.
    fn update(
        &mut self,
        context: &mut Context<'_>,
        kind: UpdateKind,
        body: &[u8],
        reply_to: ReplyTo,
    ) {
        let taken = Identity::ref_from_prefix(body).ok().and_then(|(identity, rest)| {
            let (head, key, argument) = ObjectHead::take(rest)?;
            Some((identity, UpdatePart { head, kind, key, argument }))
        });
        let Some((identity, part)) = taken else {
            return context.refuse(reply_to, Status::Malformed, 0, &[]);
        };
        if kind == UpdateKind::Delete && !part.argument.is_empty() {
            return context.refuse(reply_to, Status::Malformed, 0, &[]);
        }
        self.statistics.updates += 1;
        self.has_updated = true;
        // Its place in the index is on its way while all else is looked at.
        let key = self.log.expect_update(part.head.table(), part.key);
        if !self.control.is_plain() {
            self.make_room_in_table(&part, key);
        }
        let outcome = self.update_one(context, identity, &part, key);
        let answer = Answer::of_update(&outcome);
        self.answer_at(context, self.log.appended(), reply_to, answer);
    }

    /// Does one update. An update that appends nothing (its condition fails, or there is no object
    /// to delete) only shows the present state and does not wait for backups: that is a read, and
    /// needs the lease.
    #[inline]
    fn update_one(
        &mut self,
        context: &mut Context<'_>,
        identity: &Identity,
        part: &UpdatePart<'_>,
        key: HashedKey<'_>,
    ) -> Outcome {
        let before = (self.log.appended(), self.log.grouped());
        let is_special = !self.control.is_plain();
        if is_special
            && let Some(Refusal { status, hint_us }) =
                self.control.refusal_of_update(part.head.table(), part.key)
        {
            return Outcome { hint: hint_us, ..Outcome::refused(status, Version::NONE) };
        }
        if is_special {
            self.apply_options(part.head.table());
        }
        let outcome = objects::update(&mut self.log, &mut self.clients, identity, part, key);
        if is_special {
            self.lift_options(context);
            let cost = self.control.migrations.note(*identity, part.head.table(), part.key);
            context.charge(cost);
        }
        self.cleaning.is_urgent |= outcome.status == Status::AwaitingMemory;
        if (self.log.appended(), self.log.grouped()) == before
            && outcome.depends_on_object()
            && let Some(Refusal { status, hint_us }) = self.lapsed(context)
        {
            return Outcome { hint: hint_us, ..Outcome::refused(status, Version::NONE) };
        }
        outcome
    }

    fn read_many(&mut self, context: &mut Context<'_>, body: &[u8], reply_to: ReplyTo) {
        let Some(count) = count(body, ReadPart::take) else {
            return context.refuse(reply_to, Status::Malformed, 0, &[]);
        };
        if let Some(Refusal { status, hint_us }) = self.lapsed(context) {
            return context.refuse(reply_to, status, hint_us, &[]);
        }
        self.statistics.reads += count as u64;
        let (log, buffer, control) = (&self.log, &mut self.buffer, &self.control);
        let counts_uses = control.options.count() > 0;
        buffer.clear();
        let mut until = LogPosition::default();
        let mut too_long = false;
        let keys = Parts { bytes: body, take: ReadPart::take };
        let mut read = keys.clone();
        let answer = |_: usize, found: Result<Option<Object<'_>>, _>| {
            let part = read.next();
            let condition = part.as_ref().and_then(|part| part.head.condition());
            let closed = part.as_ref();
            let closed = closed.and_then(|part| control.closed(part.head.table(), part.key));
            if let Ok(found) = &found
                && let Some(shown) = shown_at(log, found.as_ref())
            {
                until = until.max(shown);
            }
            let (status, version, object) = match (found, condition) {
                _ if let Some(refusal) = closed => (refusal.status, Version::NONE, None),
                (Err(error), _) => (Outcome::of_error(&error).status, Version::NONE, None),
                (Ok(_), None) => (Status::Malformed, Version::NONE, None),
                (Ok(object), Some(condition)) => {
                    let version = object.as_ref().map_or(Version::NONE, |object| object.version());
                    match object {
                        _ if !condition.holds(version) => (Status::ConditionFailed, version, None),
                        None => (Status::NotFound, version, None),
                        Some(object) => {
                            if counts_uses {
                                object.count_use();
                            }
                            (Status::Ok, version, Some(object))
                        }
                    }
                }
            };
            let bytes = object.as_ref().map_or(0, |object| object.value().len());
            too_long |= buffer.len() + bytes > MANY_BYTES_MAX;
            if !too_long {
                buffer.extend_from_slice(PartHead::new(status.code(), version, bytes).as_bytes());
                if let Some(object) = object {
                    object.value().copy_to(buffer);
                }
            }
        };
        log.read_batch(keys.map(|part| (part.head.table(), part.key)), answer);
        if too_long {
            return context.refuse(reply_to, Status::ReplyTooLong, 0, &[]);
        }
        if self.log.has_found_expired() {
            match self.expired_until() {
                Ok(expired) => until = until.max(expired),
                Err(error) => return refuse_for(context, reply_to, &error),
            }
        }
        if until <= self.log.durable() {
            context.reply(reply_to, &[&self.buffer]);
        } else {
            self.parked.park(until, reply_to, Answer::new(Status::Ok, 0, &self.buffer));
        }
    }

    fn update_many(&mut self, context: &mut Context<'_>, body: &[u8], reply_to: ReplyTo) {
        let taken = body.split_at_checked(IDENTITY_BYTES).and_then(|(identity, rest)| {
            let count = count(rest, UpdatePart::take)?;
            Some((Identity::read_from_bytes(identity).ok()?, rest, count))
        });
        let Some((identity, parts, count)) = taken else {
            return context.refuse(reply_to, Status::Malformed, 0, &[]);
        };
        if let Err(refused) = self.clients.admit_message(identity.lease()) {
            return context.refuse(reply_to, refused.status, refused.hint, &[]);
        }
        self.statistics.updates += count as u64;
        self.has_updated = true;
        self.buffer.clear();
        let mut coming = Parts { bytes: parts, take: UpdatePart::take };
        let mut keys = ExpectedUpdates::default();
        let together = even_batches(count);
        // The log needs this many bytes for the outcomes of the remaining updates.
        let bytes_of =
            |part: &UpdatePart<'_>| Log::grouped_bytes(part.key.len(), part.argument.len());
        let mut bytes = 0;
        for (sequence, part) in coming.clone() {
            let key = keys.next().or_else(|| {
                bytes = 0;
                keys = self.log.expect_updates(coming.by_ref().take(together).map(|(_, part)| {
                    bytes += bytes_of(&part);
                    (part.head.table(), part.key)
                }));
                keys.next()
            });
            let key = key.unwrap_or_else(|| HashedKey::of(part.key));
            let its_bytes = bytes_of(&part);
            if !self.control.is_plain() {
                self.make_room_in_table(&part, key);
            }
            if identity.lease() != LeaseId::NONE && !self.log.group_takes(sequence, its_bytes) {
                if !self.control.is_plain() {
                    self.make_room_in_caches(together);
                }
                self.log.begin_group(identity.lease(), sequence, bytes);
            }
            bytes = bytes.saturating_sub(its_bytes);
            let identity = identity.with_sequence(sequence);
            let outcome = self.update_one(context, &identity, &part, key);
            outcome.put_part(&mut self.buffer);
        }
        self.log.end_group();
        self.watch_expiry(context);
        let answer = Answer::new(Status::Ok, 0, &self.buffer);
        self.answer_at(context, self.log.appended(), reply_to, answer);
    }

    fn enumerate(&mut self, context: &mut Context<'_>, body: &[u8], reply_to: ReplyTo) {
        let Some(head) = EnumerateHead::ref_from_bytes(body).ok() else {
            return context.refuse(reply_to, Status::Malformed, 0, &[]);
        };
        let range = head.range();
        let closed = self.control.closed_hash(range.table, range.first);
        if let Some(Refusal { status, hint_us }) = closed.or_else(|| self.lapsed(context)) {
            return context.refuse(reply_to, status, hint_us, &[]);
        }
        let tablets = self.log.tablets().map(|(tablet, _)| tablet);
        let mut tablets = tablets.filter(|tablet| !self.control.hides_tablet(*tablet));
        let Some(tablet) = tablets.find(|it| it.contains(range.table, range.first)) else {
            return context.refuse(reply_to, Status::Moved, 0, &[]);
        };
        drop(tablets);
        // A tablet that is about to move is not shown.
        let range = TabletRange { last: self.control.migrations.open_until(range), ..range };
        let last = tablet.last.min(range.last);
        // One object at least, so that every page makes progress.
        let wanted = size_of::<PageHead>() + head.bytes().clamp(1, PAGE_BYTES_MAX);
        let (log, buffer) = (&self.log, &mut self.buffer);
        buffer.clear();
        // The head comes last: it contains how far the page went.
        buffer.extend_from_slice(PageHead::new(last, None).as_bytes());
        let (mut until, mut looked) = (shown_at(log, None).unwrap_or_default(), 0);
        let mut cursor = Some(Cursor::from_bits(head.cursor()));
        while let Some(at) = cursor
            && buffer.len() < wanted
            && looked < PAGE_OBJECTS_MAX
        {
            let mut bucket: Vec<(u64, Vec<u8>, Object<'_>)> = Vec::new();
            let scanned = log.scan(tablet, at, |object| {
                let key = object.key().to_vec();
                bucket.push((KeyHash::of(&key).0.reverse_bits(), key, object));
            });
            // The order of the walk: it can go on between two objects, which may be large.
            bucket.sort_unstable_by_key(|(place, ..)| *place);
            // Also a bucket that is empty takes its time.
            looked += bucket.len() + 1;
            cursor = scanned.unwrap_or_default();
            for (place, key, object) in bucket {
                if buffer.len() >= wanted {
                    cursor = Some(Cursor::from_bits(place));
                    break;
                }
                if range.contains(range.table, KeyHash(place.reverse_bits())) {
                    until = until.max(log.durable_at(&object).unwrap_or_default());
                    let value = object.value();
                    let (key_bytes, bytes) = (key.len(), value.len());
                    let found = FoundHead::new(object.version(), object.kind(), key_bytes, bytes);
                    buffer.extend_from_slice(found.as_bytes());
                    buffer.extend_from_slice(&key);
                    value.copy_to(buffer);
                }
            }
        }
        let page = PageHead::new(last, cursor.map(Cursor::to_bits));
        if let Some(place) = buffer.get_mut(..page.as_bytes().len()) {
            place.copy_from_slice(page.as_bytes());
        }
        self.statistics.reads += 1;
        if self.log.has_found_expired() {
            match self.expired_until() {
                Ok(expired) => until = until.max(expired),
                Err(error) => return refuse_for(context, reply_to, &error),
            }
        }
        let answer = Answer::new(Status::Ok, 0, &self.buffer);
        self.answer_at(context, until, reply_to, answer);
    }

    /// Answers once the log is durable up to a position.
    #[inline]
    pub(crate) fn answer_at(
        &mut self,
        context: &mut Context<'_>,
        until: LogPosition,
        reply_to: ReplyTo,
        answer: Answer,
    ) {
        if until <= self.log.durable() {
            answer.send(context, reply_to);
        } else {
            self.parked.park(until, reply_to, answer);
        }
    }
}

/// The position at which a read may show an object, or its absence; `None` when it may at once. An
/// absence may be the effect of a delete that is not durable yet.
#[inline]
fn shown_at(log: &Log, object: Option<&Object<'_>>) -> Option<LogPosition> {
    match object {
        Some(object) => log.durable_at(object),
        None => log.deletes_durable_at(),
    }
}

/// The refusal for a lease that was over at a time. After a while other masters may have the
/// tablets, so the client should fetch a new map.
#[cold]
fn lapsed_since(until: Time, now: Time) -> Refusal {
    let is_long = until > Time(0) && now >= until + READ_LEASE;
    if is_long {
        Status::Moved.into()
    } else {
        Refusal::with_hint(Status::AwaitingReplicas, BUSY_US)
    }
}

/// Answers with an object, whose value is not copied to do so.
#[inline]
fn answer_with(context: &mut Context<'_>, to: ReplyTo, number: &[u8], object: &Object<'_>) {
    match object.value().as_slice() {
        Some(value) => context.reply(to, &[number, value]),
        None => answer_in_pieces(context, to, number, object),
    }
}

/// The same for an object that does not lie in one piece.
#[cold]
fn answer_in_pieces(context: &mut Context<'_>, to: ReplyTo, number: &[u8], object: &Object<'_>) {
    let parts: Vec<&[u8]> = std::iter::once(number).chain(object.value().pieces()).collect();
    context.reply(to, &parts);
}

/// The answer with an object, for later.
#[cold]
fn copied(number: &[u8], object: &Object<'_>) -> Answer {
    let mut body = number.to_vec();
    object.value().copy_to(&mut body);
    Answer::new(Status::Ok, 0, &body)
}

/// Answers with the reason for an error of the log.
#[cold]
fn refuse_for(context: &mut Context<'_>, reply_to: ReplyTo, error: &Error) {
    let Outcome { status, hint, .. } = Outcome::of_error(error);
    context.refuse(reply_to, status, hint, &[]);
}

/// The interface for a node that composes components.
impl Shard {
    /// A request for [`Component::Shard`] or [`Component::ShardControl`].
    #[inline]
    pub fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        let Request { opcode, body, reply_to } = request;
        let is_full = self.parked.count() >= PARKED_MAX || self.parked.bytes() >= PARKED_BYTES_MAX;
        // The most frequent request takes the shortest way.
        if opcode == Opcode::Read && !is_full {
            return self.read(context, body, reply_to);
        }
        if opcode.component() == Component::ShardControl {
            return self.control(context, request);
        }
        if is_full {
            // All these answers wait for backups: further requests could not be answered sooner.
            return context.refuse(reply_to, Status::AwaitingReplicas, BUSY_US, &[]);
        }
        match opcode {
            Opcode::Read => self.read(context, body, reply_to),
            Opcode::Write => self.update(context, UpdateKind::Write, body, reply_to),
            Opcode::Delete => self.update(context, UpdateKind::Delete, body, reply_to),
            Opcode::Increment => self.update(context, UpdateKind::Increment, body, reply_to),
            Opcode::WriteNumber => self.update(context, UpdateKind::WriteNumber, body, reply_to),
            Opcode::WriteExpiring | Opcode::SetExpiry => {
                self.update_expiring(context, opcode, body, reply_to);
            }
            Opcode::ReadExpiry => self.read_expiry(context, body, reply_to),
            Opcode::ReadMany => self.read_many(context, body, reply_to),
            Opcode::UpdateMany => self.update_many(context, body, reply_to),
            Opcode::Enumerate => self.enumerate(context, body, reply_to),
            _ => context.refuse(reply_to, Status::UnknownOpcode, 0, &[]),
        }
    }

    /// Takes the outcome of a call that an owner of [`Component::Shard`] made.
    pub fn reply(
        &mut self,
        context: &mut Context<'_>,
        owner: OwnerId,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) {
        match Owner::of(owner) {
            Some(Owner::Replication) => {
                if let Some(driver) = &mut self.replication {
                    driver.reply(context.now(), call, outcome);
                }
            }
            Some(Owner::Migration) => self.control.migrations.reply(context, call, outcome),
            Some(Owner::Recovery) => self.control.on_fetch_reply(context, call, outcome),
            Some(Owner::Coordinator) => self.on_coordinator_reply(context, call, outcome),
            // They make no calls.
            Some(Owner::Leases | Owner::Work | Owner::Parked | Owner::Expiry) | None => {}
        }
    }

    /// Handles an expired timer of an owner of [`Component::Shard`].
    pub fn timer(&mut self, context: &mut Context<'_>, owner: OwnerId) {
        match Owner::of(owner) {
            Some(Owner::Replication) => {
                if let Some(driver) = &mut self.replication {
                    driver.on_timer();
                }
            }
            Some(Owner::Coordinator) => self.coordinator.on_timer(context),
            Some(Owner::Leases) => self.on_leases_timer(context),
            Some(Owner::Work) => self.control.on_timer(),
            Some(Owner::Parked) => self.on_parked_timer(context),
            Some(Owner::Expiry) => self.on_expiry_timer(context),
            // They set no timers of their own.
            Some(Owner::Recovery | Owner::Migration) | None => {}
        }
    }

    /// Ends a turn: all requests that had arrived are handled.
    pub fn turn_over(&mut self, context: &mut Context<'_>) {
        self.turn_over_with(context, None);
    }

    /// Ends a turn: sends the appended entries to the backups, first to the one of the same
    /// process, and sends the answers that are durable.
    pub fn turn_over_with(
        &mut self,
        context: &mut Context<'_>,
        mut local: Option<&mut dyn LocalBackup>,
    ) {
        if !self.has_begun {
            self.has_begun = true;
            if !self.trusts {
                context.set_timer(context.now() + self.options.check_leases_every, Owner::Leases);
            }
        }
        let own = self.replication.as_ref().map(ReplicationDriver::own);
        let beside = own.zip(local.as_mut().map(|it| &mut **it as &mut dyn LocalBackup));
        self.control_turn_over(context, beside);
        self.log.turn();
        if self.log.has_to_hand_over() {
            // Each turn passes on a piece of it.
            context.alarm().ring();
        }
        if let Some(driver) = &mut self.replication {
            driver.run(context, &mut self.log, &mut self.coordinator, &self.parked, local);
        }
        self.parked.release(self.log.durable(), context);
        if self.parked.count() > 0 {
            self.watch_parked(context);
        }
        self.cleaning.turn_over(&self.log);
    }

    /// Sets the timer for answers that wait for backups.
    fn watch_parked(&mut self, context: &mut Context<'_>) {
        if !self.watches_parked && self.replication.is_some() {
            self.watches_parked = true;
            context.set_timer(context.now() + self.options.parked_patience, Owner::Parked);
        }
    }

    /// Refuses the answers that have waited for backups since the last call, so that their clients
    /// learn the reason.
    pub(crate) fn on_parked_timer(&mut self, context: &mut Context<'_>) {
        self.watches_parked = self.parked.refuse_overdue(context);
        if self.watches_parked {
            context.set_timer(context.now(), Owner::Parked);
            context.alarm().ring();
        }
    }
}

/// A node with a shard and nothing else.
impl Service for Shard {
    #[inline]
    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        Shard::request(self, context, request);
    }

    fn reply(
        &mut self,
        context: &mut Context<'_>,
        owner: OwnerId,
        call: CallId,
        outcome: Result<&[u8], CallError>,
    ) {
        Shard::reply(self, context, owner, call, outcome);
    }

    fn timer(&mut self, context: &mut Context<'_>, owner: OwnerId) {
        Shard::timer(self, context, owner);
    }

    fn turn_over(&mut self, context: &mut Context<'_>) {
        Shard::turn_over(self, context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_batch_of_a_message_is_much_smaller_than_the_others() {
        for (count, each) in [(0, 1), (1, 1), (64, 64), (65, 33), (70, 35), (128, 64)] {
            assert_eq!(even_batches(count), each, "{count}");
        }
    }
}
