//! Coordinators and backups that are made up: they answer what the test has them know.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use thunderhead_log::inspect::SegmentReader;
use thunderhead_log::{Damage, SegmentId, TableId};
use thunderhead_rpc::{Context, Opcode, Request, Service};
use thunderhead_wire::control::{self, CheckLeases, LeasesChecked, Owned, OwnedSince, Recovered};
use thunderhead_wire::replication::{PieceHead, RecoveryHead};
use thunderhead_wire::{MasterId, Status, TabletRange};
use zerocopy::{FromBytes, IntoBytes};

pub(crate) const PORT: u16 = 7100;
pub(crate) const OLD: TableId = TableId(1);
pub(crate) const OTHER: TableId = TableId(2);
pub(crate) const GONE: MasterId = MasterId(3);
pub(crate) const MASTER: MasterId = MasterId(9);
pub(crate) const SECOND: MasterId = MasterId(10);
pub(crate) const KEYS: u64 = 40;

/// What the coordinators know.
#[derive(Default)]
pub(crate) struct Truth {
    pub(crate) leader: Cell<usize>,
    pub(crate) ended: RefCell<BTreeSet<u64>>,
    pub(crate) lease_questions: Cell<u64>,
    pub(crate) recovered: RefCell<Vec<Recovered>>,
    /// What is rebuilt is refused so.
    pub(crate) refuses: Cell<Option<Status>>,
    /// What of it is somebody else's by then.
    pub(crate) not_yours: RefCell<Vec<TabletRange>>,
    /// The version of the map, and the next lease.
    pub(crate) since: Cell<OwnedSince>,
    /// Nothing is answered about leases.
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

/// How the backups behave that are asked for parts of segments.
pub(crate) struct Manners {
    /// Which recovery they know of.
    pub(crate) recovery: Cell<u64>,
    /// How often they are busy before they answer.
    pub(crate) busy: Cell<u64>,
    /// What they were asked for: segment and offset.
    pub(crate) asked: RefCell<Vec<(SegmentId, u32)>>,
}

pub(crate) struct Backup {
    pub(crate) replicas: Replicas,
    pub(crate) manners: Rc<Manners>,
    /// It answers with no more than this at once.
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
                // A segment that is not cut is a valid part of it, but for an end that is torn.
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
