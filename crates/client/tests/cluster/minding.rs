//! A shard that checks leases by the state of scripted coordinators, instead of by questions.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use thunderhead_master::Shard;
use thunderhead_rpc::{CallError, CallId, Context, Opcode, OwnerId, Request, Service};
use thunderhead_testkit::{CoordinatorState, Time};
use thunderhead_wire::{LeaseId, Sequence, Status};

/// How long a shard relies on the last report of a lease, in nanoseconds.
const BELIEVES: u64 = 150_000_000;

/// A shard that refuses updates under ended leases, and discards their completion records.
pub(crate) struct Minding {
    shard: Shard,
    coordinators: Rc<RefCell<CoordinatorState>>,
    time: Time,
    /// When it last heard that each lease is open.
    heard: BTreeMap<LeaseId, u64>,
}

impl Minding {
    pub(crate) fn new(
        shard: Shard,
        coordinators: Rc<RefCell<CoordinatorState>>,
        time: Time,
    ) -> Minding {
        Minding { shard, coordinators, time, heard: BTreeMap::new() }
    }

    /// Whether a lease has ended. Forgets its completion records then.
    fn ends(&mut self, lease: LeaseId) -> bool {
        let now = (self.time)();
        if self.heard.get(&lease).is_some_and(|heard| now - heard < BELIEVES) {
            return false;
        }
        let mut coordinators = self.coordinators.borrow_mut();
        coordinators.sweep(now);
        if !coordinators.leases.contains_key(&lease) {
            self.heard.remove(&lease);
            for sequence in (1..200).map(Sequence) {
                self.shard.log().forget_completion(lease, sequence);
            }
            return true;
        }
        self.heard.insert(lease, now);
        false
    }
}

impl Service for Minding {
    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        use Opcode::{Delete, Increment, UpdateMany, Write};
        if [Write, Delete, Increment, UpdateMany].contains(&request.opcode)
            && let Some(lease) = request.body.first_chunk()
            && self.ends(LeaseId(u64::from_le_bytes(*lease)))
        {
            return context.refuse(request.reply_to, Status::LeaseEnded, 0, &[]);
        }
        self.shard.request(context, request);
    }

    fn reply(
        &mut self,
        context: &mut Context<'_>,
        owner: OwnerId,
        call: CallId,
        to: Result<&[u8], CallError>,
    ) {
        Service::reply(&mut self.shard, context, owner, call, to);
    }

    fn timer(&mut self, context: &mut Context<'_>, owner: OwnerId) {
        Service::timer(&mut self.shard, context, owner);
    }

    fn turn_over(&mut self, context: &mut Context<'_>) {
        Service::turn_over(&mut self.shard, context);
    }
}
