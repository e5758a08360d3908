//! Reads replicas page by page. A replica is read and verified as a whole, once. Its pages come
//! from memory as long as it is among the few most recently used ones.

use crate::error::{ReadError, Refusal};
use crate::layout::ReplicaId;
use crate::limits::{BUSY_US, CACHED_MAX, PAGE_BYTES_MAX};
use crate::reader::{ReadId, ReplicaBytes};
use crate::store::Store;
use std::collections::{BTreeMap, VecDeque};
use thunderhead_rpc::{Context, ReplyTo};
use thunderhead_wire::replication::{PieceHead, ReadHead};
use thunderhead_wire::{MasterId, Status};
use zerocopy::{FromBytes, IntoBytes};

/// A requested page.
#[derive(Clone, Copy)]
struct WantedPage {
    reply_to: ReplyTo,
    offset: u32,
    bytes: u32,
}

/// Pages that may wait for one replica; further callers are told to retry.
const WANTED_MAX: usize = 256;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Pages {
    /// The most recently used replica is last.
    cached: VecDeque<ReplicaBytes>,
    under_way: BTreeMap<ReadId, (ReplicaId, Vec<WantedPage>)>,
}

impl Pages {
    pub(super) fn request(
        &mut self,
        store: &mut Store,
        context: &mut Context<'_>,
        body: &[u8],
        reply_to: ReplyTo,
    ) {
        let Ok(head) = ReadHead::ref_from_bytes(body) else {
            return context.refuse(reply_to, Status::Malformed, 0, &[]);
        };
        let id = ReplicaId { master: head.master(), segment: head.segment() };
        let wanted = WantedPage { reply_to, offset: head.offset(), bytes: head.bytes() };
        let known = store.offered(id);
        if let Some(at) = self.cached.iter().position(|it| it.id() == id) {
            // The replica may have been extended, or freed and begun again, since it was read.
            let header = self.cached[at].header();
            let is_current = known.is_some_and(|it| {
                (it.epoch, it.length, it.closed) == (header.epoch, header.length, header.closed)
            });
            let cached = self.cached.remove(at);
            if let Some(cached) = cached.filter(|_| is_current) {
                answer(context, wanted, &cached);
                return self.cached.push_back(cached);
            }
        }
        if let Some((_, waiting)) = self.under_way.values_mut().find(|(of, _)| *of == id) {
            if waiting.len() >= WANTED_MAX {
                return context.refuse(reply_to, Status::Busy, BUSY_US, &[]);
            }
            return waiting.push(wanted);
        }
        match store.read(id) {
            Ok(read) => {
                self.under_way.insert(read, (id, vec![wanted]));
            }
            Err(Refusal::NotFound(_)) => context.refuse(reply_to, Status::NotFound, 0, &[]),
            Err(Refusal::Overloaded) => context.refuse(reply_to, Status::Busy, BUSY_US, &[]),
            Err(refusal) => {
                let code = u64::from(refusal.code()).to_le_bytes();
                context.refuse(reply_to, Status::Refused, 0, &[&code]);
            }
        }
    }

    /// Answers the waiting pages of a replica that was read.
    pub(super) fn read(
        &mut self,
        context: &mut Context<'_>,
        read: ReadId,
        outcome: Result<ReplicaBytes, ReadError>,
    ) {
        let Some((_, waiting)) = self.under_way.remove(&read) else { return };
        match outcome {
            Ok(bytes) => {
                waiting.into_iter().for_each(|wanted| answer(context, wanted, &bytes));
                self.cached.push_back(bytes);
                while self.cached.len() > CACHED_MAX {
                    self.cached.pop_front();
                }
            }
            Err(error) => {
                let status = match error {
                    ReadError::Gone => Status::NotFound,
                    _ => Status::Refused,
                };
                for WantedPage { reply_to, .. } in waiting {
                    context.refuse(reply_to, status, 0, &[]);
                }
            }
        }
    }

    pub(super) fn forget(&mut self, master: MasterId) {
        self.cached.retain(|it| it.id().master != master);
    }

    pub(super) fn forget_one(&mut self, id: ReplicaId) {
        self.cached.retain(|it| it.id() != id);
    }
}

fn answer(context: &mut Context<'_>, wanted: WantedPage, replica: &ReplicaBytes) {
    let WantedPage { reply_to, offset, bytes } = wanted;
    let whole = replica.bytes();
    // A page has at least one byte, so that the caller makes progress.
    let bytes = bytes.clamp(1, PAGE_BYTES_MAX) as usize;
    let page = whole.get(offset as usize..).unwrap_or_default();
    let page = page.get(..bytes).unwrap_or(page);
    let head = PieceHead::new(whole.len() as u32);
    context.reply(reply_to, &[head.as_bytes(), page]);
}
