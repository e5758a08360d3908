//! Handles a master's messages about its replicas, part by part.

use super::{Asker, Service, WaitingAnswer};
use crate::error::Refusal;
use crate::layout::ReplicaId;
use crate::limits::PARTS_MAX;
use crate::store::{Ack, Ticket};
use thunderhead_wire::replication::{
    ATOMIC, CLOSE, COMMIT, FREE, OPEN, PartAnswer, ReplicaPart, ReplicateHead,
};
use thunderhead_wire::{SegmentId, Status};

/// The remaining parts of a message. The message lies in pieces, and each head is within one
/// piece.
#[derive(Clone)]
struct Parts<'a> {
    piece: &'a [u8],
    behind: &'a [&'a [u8]],
}

/// A part and its bytes.
type Taken<'a> = (&'a ReplicaPart, Bytes<'a>);

/// The bytes of a part, piece by piece.
#[derive(Clone)]
struct Bytes<'a> {
    from: Parts<'a>,
    left: usize,
}

impl<'a> Parts<'a> {
    /// Returns the head of a message and its parts.
    fn of(pieces: &'a [&'a [u8]]) -> Option<(&'a ReplicateHead, Parts<'a>)> {
        let (first, behind) = pieces.split_first()?;
        let (head, piece) = ReplicateHead::take(first)?;
        Some((head, Parts { piece, behind }))
    }

    /// Moves to the next piece at the end of this one.
    fn go_on(&mut self) {
        while let (true, Some((next, behind))) = (self.piece.is_empty(), self.behind.split_first())
        {
            (self.piece, self.behind) = (next, behind);
        }
    }

    fn take(&mut self) -> Option<Taken<'a>> {
        let (part, rest) = ReplicaPart::take(self.piece)?;
        self.piece = rest;
        let mut bytes = Bytes { from: self.clone(), left: part.bytes() };
        let taken = (part, bytes.clone());
        bytes.by_ref().for_each(drop);
        *self = bytes.from;
        (bytes.left == 0 && makes_sense(part)).then_some(taken)
    }
}

impl<'a> Iterator for Bytes<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<Self::Item> {
        self.from.go_on();
        let piece = self.from.piece;
        let (piece, rest) = piece.split_at(self.left.min(piece.len()));
        if piece.is_empty() {
            return None;
        }
        self.from.piece = rest;
        self.left -= piece.len();
        Some(piece)
    }
}

impl<'a> Iterator for Parts<'a> {
    /// `None` if the bytes are malformed.
    type Item = Option<Taken<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.go_on();
        if self.piece.is_empty() {
            return None;
        }
        let taken = self.take();
        if taken.is_none() {
            (self.piece, self.behind) = (&[], &[]);
        }
        Some(taken)
    }
}

fn makes_sense(part: &ReplicaPart) -> bool {
    let freed_alone = !part.wants(FREE)
        || (part.bytes() == 0 && ![OPEN, ATOMIC, COMMIT, CLOSE].iter().any(|it| part.wants(*it)));
    let opened_in_a_way = !part.wants(ATOMIC) || part.wants(OPEN);
    freed_alone && opened_in_a_way && part.segment() != SegmentId::NONE
}

impl Service {
    /// Carries out a message. Returns the answers, or `None` if they wait for the disk.
    pub(super) fn carry_out(
        &mut self,
        pieces: &[&[u8]],
        asker: Asker,
    ) -> Result<Option<Vec<PartAnswer>>, Status> {
        let (head, parts) = Parts::of(pieces).ok_or(Status::Malformed)?;
        // The service checks all parts before it carries out any of them.
        let count = parts.clone().try_fold(0, |count, part| part.map(|_| count + 1));
        let count = count.filter(|count| *count <= PARTS_MAX).ok_or(Status::Malformed)?;
        self.newer = self.newer.max(head.list_version());
        if self.is_deposed(head.master(), head.list_version()) {
            return Err(Status::Deposed);
        }
        self.check_life(head)?;
        let mut answers = Vec::with_capacity(count);
        let mut tickets: Vec<(Ticket, usize)> = Vec::new();
        let mut refused: Vec<(SegmentId, PartAnswer)> = Vec::new();
        for (part, bytes) in parts.flatten() {
            let segment = part.segment();
            if let Some((_, answer)) = refused.iter().find(|(of, _)| *of == segment) {
                answers.push(*answer);
                continue;
            }
            let id = ReplicaId { master: head.master(), segment };
            let id = if part.wants(OPEN) { id } else { self.store.resolve(id) };
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
        self.waiting.push_back(WaitingAnswer { asker, tickets, answers });
        Ok(None)
    }

    /// Carries out one part. Its last ticket covers the whole part, because changes become durable
    /// in order.
    fn part(
        &mut self,
        id: ReplicaId,
        part: &ReplicaPart,
        bytes: Bytes<'_>,
    ) -> Result<Ack, Refusal> {
        let epoch = part.epoch();
        if part.wants(FREE) {
            return self.free(id, part);
        }
        let mut ack = Ack::Now;
        if part.wants(OPEN) {
            match self.open(id, part) {
                Ok(opened) => ack = opened,
                // An earlier delivery of this message opened and closed the replica.
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
        // A part without bytes checks that the replica is here, and raises its epoch.
        let asks = !part.wants(OPEN) && !part.wants(COMMIT) && !part.wants(CLOSE);
        if part.bytes() > 0 || asks {
            match self.store.append_pieces(id, epoch, part.offset(), bytes) {
                Ok(appended) => ack = appended,
                // An earlier delivery of this message closed the replica.
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
        if let Some(current) = self.freed_replicas.epoch(id).filter(|freed| epoch <= *freed) {
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
        self.freed_replicas.freed(id, epoch);
        self.pages.forget_one(id);
        Ok(Ack::Now)
    }
}
