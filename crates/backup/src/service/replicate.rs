//! What a master wants done with its replicas, part by part.

use super::{Asker, Service, Waiting};
use crate::error::Refusal;
use crate::layout::ReplicaId;
use crate::limits::PARTS_MAX;
use crate::store::{Ack, Ticket};
use thunderhead_wire::replication::{
    ATOMIC, CLOSE, COMMIT, FREE, OPEN, PartAnswer, ReplicaPart, ReplicateHead,
};
use thunderhead_wire::{SegmentId, Status};

/// Parts of a message with what belongs to each; an error where the bytes make no sense.
struct Parts<'a>(&'a [u8]);

impl<'a> Iterator for Parts<'a> {
    type Item = Option<(&'a ReplicaPart, &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let taken = ReplicaPart::take(self.0);
        self.0 = taken.map_or(&[], |(.., rest)| rest);
        Some(taken.filter(|(part, bytes, _)| makes_sense(part, bytes)).map(|(p, b, _)| (p, b)))
    }
}

fn makes_sense(part: &ReplicaPart, bytes: &[u8]) -> bool {
    let freed_alone = !part.wants(FREE)
        || (bytes.is_empty() && ![OPEN, ATOMIC, COMMIT, CLOSE].iter().any(|it| part.wants(*it)));
    let opened_in_a_way = !part.wants(ATOMIC) || part.wants(OPEN);
    freed_alone && opened_in_a_way && part.segment() != SegmentId::NONE
}

impl Service {
    /// Does what a message wants. The answers, or nothing when they wait for the disk.
    pub(super) fn carry_out(
        &mut self,
        body: &[u8],
        asker: Asker,
    ) -> Result<Option<Vec<PartAnswer>>, Status> {
        let (head, rest) = ReplicateHead::take(body).ok_or(Status::Malformed)?;
        // All of it is looked at before any of it is done.
        let count = Parts(rest).try_fold(0, |count, part| part.map(|_| count + 1));
        let count = count.filter(|count| *count <= PARTS_MAX).ok_or(Status::Malformed)?;
        if self.is_deposed(head.master(), head.list_version()) {
            return Err(Status::Deposed);
        }
        self.check_life(head)?;
        let mut answers = Vec::with_capacity(count);
        let mut tickets: Vec<(Ticket, usize)> = Vec::new();
        let mut refused: Vec<(SegmentId, PartAnswer)> = Vec::new();
        for (part, bytes) in Parts(rest).flatten() {
            let segment = part.segment();
            if let Some((_, answer)) = refused.iter().find(|(of, _)| *of == segment) {
                answers.push(*answer);
                continue;
            }
            let id = ReplicaId { master: head.master(), segment };
            let done = self.part(id, part, bytes);
            let length = self.store.replica(id).map_or(0, |replica| replica.length);
            let answer = PartAnswer::new(done.as_ref().map_or_else(Refusal::code, |_| 0), length);
            match done {
                Ok(Ack::When(ticket)) => tickets.push((ticket, answers.len())),
                Ok(Ack::Now) => {}
                Err(_) => refused.push((segment, answer)),
            }
            answers.push(answer);
        }
        if tickets.is_empty() {
            return Ok(Some(answers));
        }
        self.waiting.push_back(Waiting { asker, tickets, answers });
        Ok(None)
    }

    /// Does one part. The last ticket is that of all: what is durable is so in order.
    fn part(&mut self, id: ReplicaId, part: &ReplicaPart, bytes: &[u8]) -> Result<Ack, Refusal> {
        let epoch = part.epoch();
        if part.wants(FREE) {
            return self.free(id, part);
        }
        let mut ack = Ack::Now;
        if part.wants(OPEN) {
            match self.open(id, part) {
                Ok(opened) => ack = opened,
                // It was opened and closed by this very message before.
                Err(Refusal::Exists(_)) if part.wants(CLOSE) => {
                    let is_it = self.store.replica(id).is_some_and(|it| it.epoch == epoch);
                    return match self.store.close(id, epoch, part.length()) {
                        Ok(closed) if is_it => Ok(closed),
                        _ => Err(Refusal::Exists(id)),
                    };
                }
                Err(refusal) => return Err(refusal),
            }
        }
        // Without bytes it asks whether the replica is there, and raises its epoch.
        let asks = !part.wants(OPEN) && !part.wants(COMMIT) && !part.wants(CLOSE);
        if !bytes.is_empty() || asks {
            match self.store.append(id, epoch, part.offset(), bytes) {
                Ok(appended) => ack = appended,
                // The same message came before, and closed it.
                Err(Refusal::Closed { length, .. })
                    if part.wants(CLOSE) && part.length() == length => {}
                Err(refusal) => return Err(refusal),
            }
        }
        if part.wants(COMMIT) {
            ack = self.store.commit(id, epoch)?;
        }
        if part.wants(CLOSE) {
            ack = self.store.close(id, epoch, part.length())?;
        }
        Ok(ack)
    }

    fn open(&mut self, id: ReplicaId, part: &ReplicaPart) -> Result<Ack, Refusal> {
        let epoch = part.epoch();
        if let Some(current) = self.graves.epoch(id).filter(|freed| epoch <= *freed) {
            return Err(Refusal::StaleEpoch { id, current });
        }
        let atomic = part.wants(ATOMIC);
        let known = self.store.replica(id).filter(|replica| !replica.closed);
        if let Some(current) = known.map(|it| it.epoch).filter(|it| epoch < *it) {
            return Err(Refusal::StaleEpoch { id, current });
        }
        self.store.open(id, epoch, atomic)
    }

    fn free(&mut self, id: ReplicaId, part: &ReplicaPart) -> Result<Ack, Refusal> {
        let epoch = part.epoch();
        if let Some(current) = self.store.replica(id).map(|it| it.epoch).filter(|it| *it > epoch) {
            return Err(Refusal::StaleEpoch { id, current });
        }
        self.store.free(id);
        self.graves.freed(id, epoch);
        self.pages.forget_one(id);
        Ok(Ack::Now)
    }
}
