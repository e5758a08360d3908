//! A scripted backup: it gives recovering masters the segments that the test has put on it, whole
//! and not cut into parts.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use thunderhead_log::Damage;
use thunderhead_log::inspect::SegmentReader;
use thunderhead_rpc::{Context, Opcode, Request, Service};
use thunderhead_wire::replication::{PieceHead, RecoveryHead};
use thunderhead_wire::{MasterId, RecoveryId, SegmentId, Status};
use zerocopy::{FromBytes, IntoBytes};

/// The state and the behaviour that the backups of a test share.
#[derive(Default)]
pub struct BackupState {
    /// The only recovery that the backups know; `None`: they know every recovery.
    pub recovery: Option<RecoveryId>,
    /// How many requests they refuse as busy before they answer.
    pub busy: u64,
    /// The requests that they got: segment and offset.
    pub asked: Vec<(SegmentId, u32)>,
    replicas: BTreeMap<(usize, MasterId), BTreeMap<SegmentId, Vec<u8>>>,
}

impl BackupState {
    /// Returns the replicas that a backup has of a master's segments.
    pub fn replicas(
        &mut self,
        backup: usize,
        master: MasterId,
    ) -> &mut BTreeMap<SegmentId, Vec<u8>> {
        self.replicas.entry((backup, master)).or_default()
    }

    /// Whether a backup has a replica of a master's segment.
    #[must_use]
    pub fn has(&self, backup: usize, master: MasterId, segment: SegmentId) -> bool {
        self.replicas.get(&(backup, master)).is_some_and(|it| it.contains_key(&segment))
    }
}

/// A backup without a disk.
pub struct ScriptedBackup {
    /// Which of the backups it is.
    pub number: usize,
    /// The state of all backups.
    pub state: Rc<RefCell<BackupState>>,
    /// The most bytes of one answer.
    pub piece_bytes_max: usize,
}

impl Service for ScriptedBackup {
    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        let Request { opcode, body, reply_to } = request;
        if opcode != Opcode::RecoveryData {
            return context.refuse(reply_to, Status::UnknownOpcode, 0, &[]);
        }
        let Ok(head) = RecoveryHead::ref_from_bytes(body) else {
            return context.refuse(reply_to, Status::Malformed, 0, &[]);
        };
        let state = &mut *self.state.borrow_mut();
        state.asked.push((head.segment(), head.offset()));
        if state.busy > 0 {
            state.busy -= 1;
            return context.refuse(reply_to, Status::Busy, 2000, &[]);
        }
        let is_known = state.recovery.is_none_or(|it| it == head.recovery());
        let bytes = state.replicas(self.number, head.master()).get(&head.segment());
        let Some(bytes) = bytes.filter(|_| is_known) else {
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
        let until = (from + (head.bytes() as usize).min(self.piece_bytes_max)).min(length);
        let piece = PieceHead::new(length as u32);
        context.reply(reply_to, &[piece.as_bytes(), &bytes[from..until]]);
    }
}
