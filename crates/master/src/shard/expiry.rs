//! Answers about objects that may have expired, and the removal of expired objects.

use super::{Shard, refuse_for};
use crate::owner::Owner;
use crate::parked::Answer;
use crate::refusal::Refusal;
use std::time::Duration;
use thunderhead_log::{Attributes, Error, HashedKey};
use thunderhead_rpc::{Context, Opcode, ReplyTo};
use thunderhead_wire::operations::{ObjectHead, UpdateKind, UpdatePart};
use thunderhead_wire::{LogPosition, Status, TableId, TimeToLive, Version};

/// How often the cleaners look for expired objects: the memory of objects that expire together is
/// free soon after.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The cost of removing a batch of expired objects.
const REMOVAL: Duration = Duration::from_micros(20);

impl Shard {
    /// Answers a read that finds no object, once the reason for its absence is durable.
    #[inline(never)]
    pub(super) fn answer_absent(
        &mut self,
        context: &mut Context<'_>,
        reply_to: ReplyTo,
        status: Status,
    ) {
        let until = match self.expired_until() {
            Ok(until) => until,
            Err(error) => return refuse_for(context, reply_to, &error),
        };
        let answer = Answer::new(status, 0, &Version::NONE.0.to_le_bytes());
        self.answer_at(context, until, reply_to, answer);
    }

    /// Gives the objects of the next writes the attributes of their table.
    #[cold]
    #[inline(never)]
    pub(super) fn apply_options(&mut self, table: TableId) {
        if let Some(attributes) = self.control.options.attributes(table, &self.log) {
            self.log.set_attributes(attributes);
        }
    }

    /// Ends [`Shard::apply_options`].
    #[cold]
    #[inline(never)]
    pub(super) fn lift_options(&mut self, context: &mut Context<'_>) {
        if self.log.writes_items() {
            self.cleaning.is_urgent |= self.log.attributes().is_cached && self.log.wants_victims();
            self.log.set_attributes(Attributes::NONE);
            self.watch_expiry(context);
        }
    }

    /// Evicts objects before so many are written in one group, if memory is short and a table here
    /// is a cache.
    #[cold]
    #[inline(never)]
    pub(super) fn make_room_in_caches(&mut self, objects: usize) {
        if self.control.options.has_caches() {
            self.log.make_room_in_caches(objects);
        }
    }

    /// Evicts objects of a cache with a maximum, before an update makes it larger. Ends the open
    /// group, if it evicts any.
    #[cold]
    #[inline(never)]
    pub(super) fn make_room_in_table(&mut self, part: &UpdatePart<'_>, key: HashedKey<'_>) {
        let (table, bytes) = (part.head.table(), part.key.len() + part.argument.len());
        if part.kind != UpdateKind::Delete
            && self.log.wants_room_in_tablet(table, key, bytes)
            && self.control.refusal_of_update(table, part.key).is_none()
        {
            self.log.make_room_in_tablet(table, key, bytes);
        }
    }

    /// Does an update that decides when an object expires.
    pub(super) fn update_expiring(
        &mut self,
        context: &mut Context<'_>,
        opcode: Opcode,
        body: &[u8],
        reply_to: ReplyTo,
    ) {
        let kind = match opcode {
            Opcode::SetExpiry => UpdateKind::SetExpiry,
            _ => UpdateKind::WriteExpiring,
        };
        self.update(context, kind, body, reply_to);
        self.watch_expiry(context);
    }

    /// Answers how long an object still lives, as a read answers.
    pub(super) fn read_expiry(
        &mut self,
        context: &mut Context<'_>,
        body: &[u8],
        reply_to: ReplyTo,
    ) {
        self.statistics.reads += 1;
        let part = ObjectHead::take(body).filter(|(_, _, rest)| rest.is_empty());
        let Some((head, key, Some(condition))) =
            part.map(|(head, key, _)| (head, key, head.condition()))
        else {
            return context.refuse(reply_to, Status::Malformed, 0, &[]);
        };
        let closed = self.control.closed(head.table(), key);
        if let Some(Refusal { status, hint_us }) = closed.or_else(|| self.lapsed(context)) {
            return context.refuse(reply_to, status, hint_us, &[]);
        }
        let object = match self.log.read(head.table(), key) {
            Ok(object) => object,
            Err(error) => return refuse_for(context, reply_to, &error),
        };
        let version = object.as_ref().map_or(Version::NONE, |object| object.version());
        let Some(object) = object else {
            let holds = condition.holds(version);
            let status = if holds { Status::NotFound } else { Status::ConditionFailed };
            return self.answer_absent(context, reply_to, status);
        };
        let until = self.log.durable_at(&object);
        if !condition.holds(version) {
            return self.answer_without(context, reply_to, version, until);
        }
        let left = TimeToLive::left(object.attributes().expires, self.log.time());
        let body = [version.0.to_le_bytes(), left.code().to_le_bytes()].concat();
        let answer = Answer::new(Status::Ok, 0, &body);
        self.answer_at(context, until.unwrap_or_default(), reply_to, answer);
    }

    /// Returns the position at which an answer may say that objects are absent.
    pub(super) fn expired_until(&mut self) -> Result<LogPosition, Error> {
        self.log.settle_clock()?;
        Ok(self.log.deletes_durable_at().unwrap_or_default())
    }

    /// Sees to it that expired objects are removed, if the log may have any.
    #[inline]
    pub(super) fn watch_expiry(&mut self, context: &mut Context<'_>) {
        if !self.watches_expiry && self.log.keeps_time() {
            self.watches_expiry = true;
            context.set_timer(context.now() + LOOK_EVERY, Owner::Expiry);
        }
    }

    /// Removes the expired objects that the cleaners have found, a slice at a time, and wakes the
    /// cleaners to find more.
    pub(super) fn on_expiry_timer(&mut self, context: &mut Context<'_>) {
        let mut budget = context.slice();
        let mut more = self.log.tick();
        while more && budget.spend(REMOVAL) {
            more = self.log.tick();
        }
        context.count_work(budget.spent());
        self.cleaning.ring();
        if more {
            context.set_timer(context.now(), Owner::Expiry);
            context.alarm().ring();
        } else {
            context.set_timer(context.now() + LOOK_EVERY, Owner::Expiry);
        }
    }
}
