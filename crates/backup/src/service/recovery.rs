//! Replicas of masters that are gone, read ahead and cut by partitions for those who rebuild them.
//!
//! ```text
//!  named ──┐ read: a few at a time       cut: a slice each turn          sent, piece by piece
//!  asked ──┴────────► [ replica ] ─────────────────► [ part | part | … ] ────────► masters
//! ```
//!
//! The segments that a recovery names are read in its order, unasked, as long as there is room for
//! their parts; what is asked for comes before them, whether it was named or not. Until then who asks
//! is told to come again. What was asked for first is cut for all partitions, for what moves one of
//! them to ask here mostly moves all.
//!
//! Where a log is taken back, its closed replicas are not cut: they go as they were read, and what is kept is
//! the memory that they were read into. The shard of the same process is handed that.
//!
//! # What is kept, and for how long
//!
//! A part goes when it was sent to its end and its partition asks for another segment, or for nothing
//! for a while. Who asks for it again gets it cut anew, for itself alone.
//!
//! Parts take so much memory and no more ([`Recoveries::limit`]). Where there is no room for a segment
//! that is asked for, parts go of partitions of which nothing was heard for some time ([`IDLE`]), and of
//! segments that only some of them wanted from here after all. If all are heard of, the slower ones hold up the faster ones, which is right: all are needed in the end.
//! But they may also wait for each other, by way of other backups. So who has waited for long
//! ([`PATIENCE`]) displaces the parts that were cut last: they are needed last.
//!
//! A recovery that nobody has asked for anything for long is forgotten, as is one whose master's
//! replicas are freed.

mod ahead;
mod cutting;

use super::Refused;
use crate::error::{ReadError, Unserved};
use crate::layout::ReplicaId;
use crate::limits::{
    COMING_US, GIVEN_KILOBYTE, PAGE_BYTES_MAX, PARTITIONS_MAX, PARTS_BYTES_MAX, RANGES_MAX,
    RECOVERIES_MAX, SEGMENTS_AHEAD, WHOLE_BYTES_MAX,
};
use crate::reader::{ReadId, ReplicaBytes};
use crate::store::Store;
use cutting::Cutting;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use thunderhead_log::filter::{Part, Partitions};
use thunderhead_rpc::{Context, ReplyTo};
use thunderhead_runtime::Time;
use thunderhead_wire::control::{BeginRecovery, Empty, to_body};
use thunderhead_wire::replication::{PieceHead, RecoveryHead};
use thunderhead_wire::{MasterId, SegmentId, Status};
use zerocopy::{FromBytes, IntoBytes};

/// A part that was sent to its end goes after this time.
const SENT_STAY: Duration = Duration::from_secs(1);

/// A partition that is silent for so long may lose its parts to others.
const IDLE: Duration = Duration::from_secs(2);

/// Who waits for so long displaces others, but not parts that are younger than that.
const PATIENCE: Duration = Duration::from_millis(500);

/// A recovery that nobody asks for anything is forgotten after this time.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// How often is looked for what has stayed too long.
const SWEEP: Duration = Duration::from_millis(500);

/// What a partition gets of a segment.
enum Kept {
    Cut(Part),
    /// The replica as it is.
    Whole(Arc<ReplicaBytes>),
}

impl Kept {
    fn len(&self) -> usize {
        match self {
            Kept::Cut(part) => part.len(),
            Kept::Whole(replica) => replica.bytes().len(),
        }
    }

    fn memory_bytes(&self) -> usize {
        match self {
            Kept::Cut(part) => part.memory_bytes(),
            Kept::Whole(replica) => replica.bytes().len(),
        }
    }

    /// Adds the bytes behind an offset, at most so many.
    fn slices<'a>(&'a self, offset: usize, most: usize, into: &mut Vec<&'a [u8]>) {
        match self {
            Kept::Cut(part) => into.extend(part.slices(offset, most)),
            Kept::Whole(replica) => {
                let behind = replica.bytes().get(offset..).unwrap_or_default();
                into.push(behind.get(..most).unwrap_or(behind));
            }
        }
    }
}

/// What is known of a segment in a recovery. Nothing is kept of one that is not wanted now.
#[derive(Default)]
struct Segment {
    parts: BTreeMap<u32, Kept>,
    /// The how many'th it was to be cut, and when that was.
    cut: Option<(u64, Time)>,
    /// It is being read, or cut.
    under_way: bool,
    /// It was asked for before its time.
    was_demanded: bool,
    /// Who asked for it since; and since when they wait.
    wanted: BTreeSet<u32>,
    since: Option<Time>,
}

/// A partition, as one knows who rebuilds it.
struct Asker {
    asked: Time,
    /// Segments of which it was sent the end.
    sent: Vec<(SegmentId, Time)>,
}

struct Recovery {
    number: u64,
    /// Replicas are not cut.
    whole: bool,
    partitions: Rc<Partitions>,
    named: VecDeque<SegmentId>,
    /// Asked for, and not here.
    demanded: VecDeque<SegmentId>,
    segments: BTreeMap<SegmentId, Segment>,
    /// Segments that were cut at least once.
    known: BTreeSet<SegmentId>,
    /// Segments that cannot be had here.
    refused: BTreeMap<SegmentId, Unserved>,
    askers: Vec<Asker>,
    touched: Time,
}

/// A segment that is read, or was.
struct Job {
    /// Whose recovery it is for: the replica may be of a master whose log that one had taken back.
    of: MasterId,
    id: ReplicaId,
    recovery: u64,
    length: u32,
    /// For these partitions only.
    wanted: Option<BTreeSet<u32>>,
}

/// All recoveries of a backup. See the [module](self).
pub(super) struct Recoveries {
    of: BTreeMap<MasterId, Recovery>,
    reads: BTreeMap<ReadId, Job>,
    cutting: VecDeque<Cutting>,
    /// Whose turn it was to read.
    last: MasterId,
    /// Segments that were cut.
    count: u64,
    /// Parts that nobody wants any more. To give their memory back takes time.
    waste: Vec<Part>,
    held: u64,
    /// Bytes of parts, and of segments that are about to become some.
    limit: u64,
    /// The same for replicas that are not cut and that nobody has asked for yet.
    limit_whole: u64,
    bytes_read: u64,
    swept: Time,
}

impl Recoveries {
    pub(super) fn new(segment_bytes: u32) -> Recoveries {
        let mut recoveries = Recoveries {
            of: BTreeMap::new(),
            reads: BTreeMap::new(),
            cutting: VecDeque::new(),
            last: MasterId(0),
            count: 0,
            waste: Vec::new(),
            held: 0,
            limit: 0,
            limit_whole: 0,
            bytes_read: 0,
            swept: Time(0),
        };
        recoveries.set_limit(PARTS_BYTES_MAX, segment_bytes);
        recoveries
    }

    /// So many bytes, but enough for a few segments.
    pub(super) fn set_limit(&mut self, bytes: u64, segment_bytes: u32) {
        let least = SEGMENTS_AHEAD * u64::from(segment_bytes);
        self.limit = bytes.max(least);
        self.limit_whole = self.limit.min(WHOLE_BYTES_MAX.max(least));
    }

    /// Bytes that were read for recoveries, and bytes of parts that are here.
    pub(super) fn progress(&self) -> (u64, u64) {
        (self.bytes_read, self.held)
    }

    /// Begins a recovery that names no more segments than this backup has frames: who names more does not
    /// mean this backup.
    pub(super) fn begin(
        &mut self,
        context: &mut Context<'_>,
        begin: BeginRecovery,
        frames: u32,
        to: ReplyTo,
    ) {
        let BeginRecovery { recovery, crashed, partitions, segments, whole, .. } = begin;
        let ranges = partitions.iter().map(Vec::len).sum::<usize>();
        let number = partitions.len();
        let possible = (1..=PARTITIONS_MAX).contains(&number) && ranges <= RANGES_MAX;
        let tablets = |of: &Vec<_>| of.iter().map(taken).collect();
        let partitions: Vec<Vec<_>> =
            if possible { partitions.iter().map(tablets).collect() } else { Vec::new() };
        let possible = possible && (!whole || number == 1) && segments.len() <= frames as usize;
        let Some(partitions) = Partitions::new(&partitions).filter(|_| possible) else {
            return context.refuse(to, Status::Malformed, 0, &[]);
        };
        let (now, count) = (context.now(), self.of.len());
        match self.of.get_mut(&crashed) {
            Some(known) if known.number > recovery => {
                let why = Unserved::Superseded { newer: known.number, master: crashed };
                return Refused::because(&why).tell(context, to);
            }
            Some(known) if known.number == recovery => known.touched = now,
            None if count >= RECOVERIES_MAX => {
                return context.refuse(to, Status::Busy, COMING_US, &[]);
            }
            _ => {
                self.forget(crashed);
                let asker = || Asker { asked: now, sent: Vec::new() };
                let begun = Recovery {
                    number: recovery,
                    whole,
                    askers: (0..partitions.count()).map(|_| asker()).collect(),
                    partitions: Rc::new(partitions),
                    named: segments.into(),
                    demanded: VecDeque::new(),
                    segments: BTreeMap::new(),
                    known: BTreeSet::new(),
                    refused: BTreeMap::new(),
                    touched: now,
                };
                self.of.insert(crashed, begun);
            }
        }
        context.reply(to, &[&to_body(&Empty {})]);
    }

    /// A piece of a part is asked for.
    pub(super) fn request(
        &mut self,
        store: &Store,
        context: &mut Context<'_>,
        body: &[u8],
        to: ReplyTo,
    ) {
        let now = context.now();
        let (head, kept) = match self.look(store, now, body) {
            Ok(found) => found,
            Err(refused) => return refused.tell(context, to),
        };
        // One byte at least, so that every piece gets on.
        let most = head.bytes().clamp(1, PAGE_BYTES_MAX) as usize;
        let (offset, length) = (head.offset() as usize, kept.len());
        let piece = PieceHead::new(u32::try_from(length).unwrap_or(u32::MAX));
        let mut parts: Vec<&[u8]> = vec![piece.as_bytes()];
        kept.slices(offset, most, &mut parts);
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        context.reply(to, &parts);
        context.charge(GIVEN_KILOBYTE * (bytes / 1024) as u32);
        if offset.saturating_add(most) >= length {
            self.was_sent(head, now);
        }
    }

    /// The shard of the same process asks for a replica; nothing where it is cut.
    pub(super) fn whole(
        &mut self,
        store: &Store,
        now: Time,
        body: &[u8],
    ) -> Result<Option<Arc<ReplicaBytes>>, Refused> {
        let (head, kept) = self.look(store, now, body)?;
        let Kept::Whole(replica) = kept else { return Ok(None) };
        let replica = Arc::clone(replica);
        self.was_sent(head, now);
        Ok(Some(replica))
    }

    /// A partition has all of a segment.
    fn was_sent(&mut self, head: &RecoveryHead, now: Time) {
        let of = self.of.get_mut(&head.master());
        let asker = of.and_then(|of| of.askers.get_mut(head.partition() as usize));
        if let Some(asker) = asker.filter(|asker| asker.sent.is_empty()) {
            asker.sent.push((head.segment(), now));
        }
    }

    /// What a partition asks for, if it is here; if not, it comes.
    fn look<'b>(
        &mut self,
        store: &Store,
        now: Time,
        body: &'b [u8],
    ) -> Result<(&'b RecoveryHead, &Kept), Refused> {
        let head = RecoveryHead::ref_from_bytes(body);
        let head = head.map_err(|_| Refused::with(Status::Malformed, 0))?;
        let (segment, partition) = (head.segment(), head.partition());
        let known = self.of.get_mut(&head.master());
        let Some(of) = known.filter(|it| it.number == head.recovery()) else {
            let (recovery, master) = (head.recovery(), head.master());
            return Err(Refused::because(&Unserved::UnknownRecovery { recovery, master }));
        };
        let Some(asker) = of.askers.get_mut(partition as usize) else {
            return Err(Refused::with(Status::Malformed, 0));
        };
        (asker.asked, of.touched) = (now, now);
        // It has these, or it would not ask for others.
        let (same, others) =
            std::mem::take(&mut asker.sent).into_iter().partition(|it| it.0 == segment);
        asker.sent = same;
        let others: Vec<(SegmentId, Time)> = others;
        others
            .iter()
            .for_each(|it| drop_part(of, it.0, partition, &mut self.held, &mut self.waste));
        let is_here = of.segments.get(&segment).is_some_and(|it| it.parts.contains_key(&partition));
        if !is_here {
            if let Some(refused) = of.refused.get(&segment) {
                return Err(Refused::because(refused));
            }
            let id = store.resolve_offered(ReplicaId { master: head.master(), segment });
            if store.offered(id).is_none() {
                return Err(Refused::with(Status::NotFound, 0));
            }
            let wanted = of.segments.entry(segment).or_default();
            wanted.wanted.insert(partition);
            wanted.since.get_or_insert(now);
            if !wanted.under_way && !of.demanded.contains(&segment) {
                of.demanded.push_back(segment);
            }
        }
        let kept = of.segments.get(&segment).and_then(|it| it.parts.get(&partition));
        kept.map(|kept| (head, kept)).ok_or(Refused::with(Status::Busy, COMING_US))
    }

    /// A replica was read; gives it back if it was not for this.
    pub(super) fn read(
        &mut self,
        read: ReadId,
        outcome: Result<ReplicaBytes, ReadError>,
        now: Time,
    ) -> Option<Result<ReplicaBytes, ReadError>> {
        let Some(job) = self.reads.remove(&read) else { return Some(outcome) };
        let known = self.of.get(&job.of).filter(|it| it.number == job.recovery);
        match (known, outcome) {
            (Some(of), Ok(bytes)) => {
                self.bytes_read += bytes.bytes().len() as u64;
                if of.whole && bytes.header().closed {
                    self.is_ready(&job, vec![(0, Kept::Whole(Arc::new(bytes)))], now);
                } else {
                    let partitions = Rc::clone(&of.partitions);
                    self.cutting.push_back(Cutting::new(job, bytes, partitions));
                }
            }
            (Some(_), Err(error)) => self.give_up(&job, error.into()),
            (None, _) => {}
        }
        None
    }

    /// What partitions get of a segment is here.
    fn is_ready(&mut self, job: &Job, ready: Vec<(u32, Kept)>, now: Time) {
        let Some(of) = self.of.get_mut(&job.of) else { return };
        self.count += 1;
        of.known.insert(job.id.segment);
        let Segment { parts, cut: when, under_way, wanted, since, .. } =
            of.segments.entry(job.id.segment).or_default();
        (*when, *under_way, *since) = (Some((self.count, now)), false, None);
        wanted.clear();
        for (partition, kept) in ready {
            self.held += kept.memory_bytes() as u64;
            if let Some(before) = parts.insert(partition, kept) {
                throw_away(before, &mut self.held, &mut self.waste);
            }
        }
    }

    /// A segment cannot be had here.
    fn give_up(&mut self, job: &Job, why: Unserved) {
        let known = self.of.get_mut(&job.of).filter(|it| it.number == job.recovery);
        let Some(of) = known else { return };
        tracing::warn!("{} is of no use to recovery {}: {}", job.id, job.recovery, why);
        of.refuse(job.id.segment, why);
    }

    /// A master's replicas are freed, or another recovery begins.
    pub(super) fn forget(&mut self, master: MasterId) {
        let Some(of) = self.of.remove(&master) else { return };
        let parts = of.segments.into_values().flat_map(|it| it.parts.into_values());
        for kept in parts {
            throw_away(kept, &mut self.held, &mut self.waste);
        }
    }

    /// When there is something to do though nobody asks.
    pub(super) fn deadline(&self) -> Option<Time> {
        (!self.of.is_empty()).then_some(self.swept + SWEEP)
    }

    /// Drops what has stayed too long.
    fn sweep(&mut self, store: &Store, now: Time) {
        if now.since(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        store.trim();
        let is_over = |of: &&Recovery| now.since(of.touched) >= FORGOTTEN;
        let over = self.of.iter().filter(|(_, of)| is_over(of)).map(|(master, _)| *master);
        for master in over.collect::<Vec<_>>() {
            // Where a log was taken back nobody frees the replicas, by which else it would be forgotten.
            if self.of.get(&master).is_some_and(|of| !of.whole) {
                tracing::warn!(
                    "nobody asks for anything of {master} any more: its recovery is forgotten"
                );
            }
            self.forget(master);
        }
        let (held, waste) = (&mut self.held, &mut self.waste);
        for of in self.of.values_mut() {
            for partition in 0..of.partitions.count() {
                let Some(asker) = of.askers.get_mut(partition as usize) else { continue };
                let is_old = |it: &(SegmentId, Time)| now.since(it.1) >= SENT_STAY;
                let old: Vec<_> = asker.sent.extract_if(.., |it| is_old(it)).collect();
                old.iter().for_each(|it| drop_part(of, it.0, partition, held, waste));
            }
        }
    }
}

impl Recovery {
    /// A segment is not to be had. What was cut of it before is as good as ever.
    fn refuse(&mut self, segment: SegmentId, why: Unserved) {
        if let Some(known) = self.segments.get_mut(&segment) {
            (known.under_way, known.since) = (false, None);
            known.wanted.clear();
            if known.parts.is_empty() {
                self.segments.remove(&segment);
            }
        }
        self.refused.insert(segment, why);
    }
}

fn taken(it: &thunderhead_wire::control::Taken) -> (thunderhead_wire::TabletRange, SegmentId) {
    (it.range, it.since)
}

/// The memory of parts goes in slices; that of a replica is used again.
fn throw_away(kept: Kept, held: &mut u64, waste: &mut Vec<Part>) {
    *held -= kept.memory_bytes() as u64;
    if let Kept::Cut(part) = kept {
        waste.push(part);
    }
}

/// Drops a part, and with the last one all that is known of the segment.
fn drop_part(
    of: &mut Recovery,
    segment: SegmentId,
    partition: u32,
    held: &mut u64,
    waste: &mut Vec<Part>,
) {
    let Some(known) = of.segments.get_mut(&segment) else { return };
    if let Some(kept) = known.parts.remove(&partition) {
        throw_away(kept, held, waste);
    }
    if known.parts.is_empty() && !known.under_way && known.wanted.is_empty() {
        of.segments.remove(&segment);
    }
}
