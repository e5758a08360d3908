//! Fake coordinators and backups, which answer from the state that a test gives them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use thunderhead_log::inspect::SegmentReader;
use thunderhead_log::{Damage, SegmentId, TableId};
use thunderhead_rpc::{Context, Opcode, Request, Service};
use thunderhead_wire::control::{self, CheckLeases, LeasesChecked, Owned, OwnedSince, Recovered};
use thunderhead_wire::replication::{PieceHead, RecoveryHead};
use thunderhead_wire::{LeaseId, MasterId, RecoveryId, Status, TabletRange};
use zerocopy::{FromBytes, IntoBytes};

pub(crate) const PORT: u16 = 7100;
pub(crate) const OLD: TableId = TableId(1);
pub(crate) const OTHER: TableId = TableId(2);
pub(crate) const GONE: MasterId = MasterId(3);
pub(crate) const MASTER: MasterId = MasterId(9);
pub(crate) const SECOND: MasterId = MasterId(10);
pub(crate) const KEYS: u64 = 40;

/// The state of the coordinators.
#[derive(Default)]
pub(crate) struct Truth {
    pub(crate) leader: Cell<usize>,
    pub(crate) ended: RefCell<BTreeSet<LeaseId>>,
    pub(crate) lease_questions: Cell<u64>,
    pub(crate) recovered: RefCell<Vec<Recovered>>,
    /// The status with which they refuse reports of rebuilt tablets.
    pub(crate) refuses: Cell<Option<Status>>,
    /// The rebuilt tablets that another master owns by then.
    pub(crate) not_yours: RefCell<Vec<TabletRange>>,
    /// The version of the map, and the next lease.
    pub(crate) since: Cell<OwnedSince>,
    /// Whether questions about leases get no answer.
    pub(crate) is_mute: Cell<bool>,
}

pub(crate) struct Coordinator(pub(crate) usize, pub(crate) Rc<Truth>);

impl Service for Coordinator {
    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        let Request { opcode, body, reply_to } = request;
        let Coordinator(number, truth) = self;
        if truth.leader.get() != *number {
            return context.refuse(reply_to, Status::NotLeader, 0, &[]);
        }
        match opcode {
            Opcode::CheckLeases if truth.is_mute.get() => {}
            Opcode::CheckLeases => {
                truth.lease_questions.set(truth.lease_questions.get() + 1);
                let CheckLeases { leases } = control::of_body(body).unwrap();
                let over = truth.ended.borrow();
                let ended = leases.into_iter().filter(|lease| over.contains(lease)).collect();
                let map_version = truth.since.get().map_version;
                let checked = LeasesChecked { ended, map_version };
                context.reply(reply_to, &[&control::to_body(&checked)]);
            }
            Opcode::Recovered => {
                truth.recovered.borrow_mut().push(control::of_body(body).unwrap());
                if let Some(status) = truth.refuses.get() {
                    return context.refuse(reply_to, status, 0, &[]);
                }
                let not_yours = truth.not_yours.borrow().clone();
                let owned = Owned { since: truth.since.get(), not_yours };
                context.reply(reply_to, &[&control::to_body(&owned)]);
            }
            _ => context.refuse(reply_to, Status::UnknownOpcode, 0, &[]),
        }
    }
}

/// The replicas of one backup.
pub(crate) type Replicas = Rc<RefCell<BTreeMap<SegmentId, Vec<u8>>>>;

/// The behaviour of the backups that are asked for parts of segments.
pub(crate) struct Manners {
    /// The recovery that they know.
    pub(crate) recovery: Cell<RecoveryId>,
    /// How often they are busy before they answer.
    pub(crate) busy: Cell<u64>,
    /// The requests that they got: segment and offset.
    pub(crate) asked: RefCell<Vec<(SegmentId, u32)>>,
}

pub(crate) struct Backup {
    pub(crate) replicas: Replicas,
    pub(crate) manners: Rc<Manners>,
    /// The most bytes of one answer.
    pub(crate) piece: usize,
}

impl Service for Backup {
    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        let Request { opcode, body, reply_to } = request;
        let replicas = self.replicas.borrow();
        match opcode {
            Opcode::RecoveryData => {
                let head = RecoveryHead::ref_from_bytes(body).unwrap();
                let manners = &self.manners;
                manners.asked.borrow_mut().push((head.segment(), head.offset()));
                if manners.busy.get() > 0 {
                    manners.busy.set(manners.busy.get() - 1);
                    return context.refuse(reply_to, Status::Busy, 2000, &[]);
                }
                let known = manners.recovery.get() == head.recovery();
                let Some(bytes) = replicas.get(&head.segment()).filter(|_| known) else {
                    return context.refuse(reply_to, Status::NotFound, 0, &[]);
                };
                // A segment that is not cut is a valid part of itself, except for a torn end.
                let mut entries = SegmentReader::new(bytes).into_iter().flatten();
                let torn = entries.find_map(|entry| match entry {
                    Err(Damage::Torn { offset }) => Some(offset as usize),
                    _ => None,
                });
                let length = torn.unwrap_or(bytes.len());
                let from = (head.offset() as usize).min(length);
                let until = (from + (head.bytes() as usize).min(self.piece)).min(length);
                let piece = PieceHead::new(length as u32);
                context.reply(reply_to, &[piece.as_bytes(), &bytes[from..until]]);
            }
            _ => context.refuse(reply_to, Status::UnknownOpcode, 0, &[]),
        }
    }
}
