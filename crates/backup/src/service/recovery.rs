//! Serves recoveries: reads the replicas of crashed masters ahead and cuts them into a part for
//! each partition.
//!
//! ```text
//!  named ──┐ read: a few at a time       cut: a slice each turn          sent, piece by piece
//!  asked ──┴────────► [ replica ] ─────────────────► [ part | part | … ] ────────► masters
//! ```
//!
//! The backup reads the segments that a recovery names in the recovery's order, before they are
//! requested, as long as there is room for their parts. A requested segment comes before these,
//! whether the recovery named it or not. Until its part is ready, a caller is told to retry. The
//! first request for a segment cuts it for all partitions, because the reason that makes one
//! partition ask here mostly makes all of them ask here.
//!
//! If a master takes a log back, the closed replicas of the log are not cut. The backup keeps the
//! memory that they were read into and sends them as they are. It hands that memory to the shard
//! of the same process.
//!
//! # How long parts are kept
//!
//! A part is dropped after its end was sent, once its partition requests another segment or
//! nothing for a while. If that partition requests the part again, the segment is cut again for
//! that partition alone.
//!
//! Parts take a limited amount of memory ([`Recoveries::limit`]). If a requested segment has no
//! room, the backup drops parts of partitions that have been silent for some time ([`IDLE`]), and
//! parts of segments that only some partitions requested from here after all. If no partition is
//! silent, slower ones hold up faster ones. This is right, because the recovery needs all
//! of them in the end. But partitions may also wait for each other by way of other backups. So a
//! segment that partitions have waited for during [`PATIENCE`] displaces the parts that were cut
//! last, which are needed last.
//!
//! A recovery is forgotten after a long time without requests, or when the replicas of its master
//! are freed.

mod cutting;
mod read_ahead;

use super::Refused;
use crate::error::{ReadError, Unserved};
use crate::layout::ReplicaId;
use crate::limits::{
    COMING_US, GIVEN_KILOBYTE, PAGE_BYTES_MAX, PARTITIONS_MAX, PARTS_BYTES_MAX, RANGES_MAX,
    RECOVERIES_MAX, SEGMENTS_AHEAD, WHOLE_BYTES_MAX,
};
use crate::reader::{ReadId, ReplicaBytes};
use crate::store::Store;
use cutting::CuttingJob;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use thunderhead_log::filter::{Part, Partitions, SparePieces};
use thunderhead_rpc::{Context, ReplyTo};
use thunderhead_runtime::Time;
use thunderhead_wire::control::{BeginRecovery, Empty, to_body};
use thunderhead_wire::replication::{PieceHead, RecoveryHead};
use thunderhead_wire::{MasterId, RecoveryId, SegmentId, Status};
use zerocopy::{FromBytes, IntoBytes};

/// A part whose end was sent is dropped after this time.
const SENT_STAY: Duration = Duration::from_secs(1);

/// A partition that is silent for this long may lose its parts to others.
const IDLE: Duration = Duration::from_secs(2);

/// After this long a waiting segment displaces parts that are at least this old.
const PATIENCE: Duration = Duration::from_millis(500);

/// A recovery without requests is forgotten after this time.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// The interval between two searches for parts and recoveries that have stayed too long.
const SWEEP: Duration = Duration::from_millis(500);

/// The part of a segment that a partition gets.
enum KeptData {
    Cut(Part),
    /// All of the replica, not cut.
    Whole(Arc<ReplicaBytes>),
}

impl KeptData {
    fn len(&self) -> usize {
        match self {
            KeptData::Cut(part) => part.len(),
            KeptData::Whole(replica) => replica.bytes().len(),
        }
    }

    fn memory_bytes(&self) -> usize {
        match self {
            KeptData::Cut(part) => part.memory_bytes(),
            KeptData::Whole(replica) => replica.bytes().len(),
        }
    }

    /// Adds at most `most` bytes behind an offset.
    fn slices<'a>(&'a self, offset: usize, most: usize, into: &mut Vec<&'a [u8]>) {
        match self {
            KeptData::Cut(part) => into.extend(part.slices(offset, most)),
            KeptData::Whole(replica) => {
                let behind = replica.bytes().get(offset..).unwrap_or_default();
                into.push(behind.get(..most).unwrap_or(behind));
            }
        }
    }
}

/// The state of a segment in a recovery. A segment without parts, reads or waiting partitions has
/// none.
#[derive(Default)]
struct Segment {
    parts: BTreeMap<u32, KeptData>,
    /// The number of this cut among all cuts, and its time.
    cut: Option<(u64, Time)>,
    /// The segment is being read or cut.
    under_way: bool,
    /// It was requested before it was cut.
    was_demanded: bool,
    /// Partitions that wait for it, and since when.
    wanted: BTreeSet<u32>,
    since: Option<Time>,
}

/// The requests of one partition.
struct Asker {
    asked: Time,
    /// Segments whose end was sent to it.
    sent: Vec<(SegmentId, Time)>,
}

struct Recovery {
    number: RecoveryId,
    /// Replicas are sent whole, not cut.
    whole: bool,
    partitions: Rc<Partitions>,
    named: VecDeque<SegmentId>,
    /// Requested segments that are not ready.
    demanded: VecDeque<SegmentId>,
    segments: BTreeMap<SegmentId, Segment>,
    /// Segments that were cut at least once.
    known: BTreeSet<SegmentId>,
    /// Segments that cannot be served here, with the reason.
    refused: BTreeMap<SegmentId, Unserved>,
    askers: Vec<Asker>,
    touched: Time,
}

/// A segment that is being read or cut.
struct Job {
    /// The master that is recovered. The replica may belong to a former master whose log that
    /// master had taken back.
    of: MasterId,
    id: ReplicaId,
    recovery: RecoveryId,
    length: u32,
    /// The only partitions to cut for; `None` for all.
    wanted: Option<BTreeSet<u32>>,
}

/// All recoveries of a backup. See the [module](self).
pub(super) struct Recoveries {
    of: BTreeMap<MasterId, Recovery>,
    reads: BTreeMap<ReadId, Job>,
    cutting: VecDeque<CuttingJob>,
    /// The master whose recovery read last.
    last: MasterId,
    /// The number of segments that were cut.
    count: u64,
    /// Dropped parts. Their memory is kept or freed in slices, because that takes time.
    waste: Vec<Part>,
    /// Memory of dropped parts, for the next ones.
    spares: SparePieces,
    /// Nothing was cut for a while, so the spares are freed.
    frees_spares: bool,
    /// When a segment last came to be cut.
    last_cut: Time,
    held: u64,
    /// The most bytes of parts, and of segments that are about to become parts.
    limit: u64,
    /// The same limit for whole replicas that were not requested yet.
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
            spares: SparePieces::default(),
            frees_spares: false,
            last_cut: Time(0),
            held: 0,
            limit: 0,
            limit_whole: 0,
            bytes_read: 0,
            swept: Time(0),
        };
        recoveries.set_limit(PARTS_BYTES_MAX, segment_bytes);
        recoveries
    }

    /// Sets the limit in bytes. A few segments always have room.
    pub(super) fn set_limit(&mut self, bytes: u64, segment_bytes: u32) {
        let least = SEGMENTS_AHEAD * u64::from(segment_bytes);
        self.limit = bytes.max(least);
        self.limit_whole = self.limit.min(WHOLE_BYTES_MAX.max(least));
    }

    /// Returns the bytes that were read for recoveries, and the bytes of memory for parts.
    pub(super) fn progress(&self) -> (u64, u64) {
        (self.bytes_read, self.held + self.spares.bytes())
    }

    /// Begins a recovery. Refuses a request with more segments than this backup has frames: it
    /// cannot be meant for this backup.
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

    /// Answers a request for a piece of a part.
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
        // A piece has at least one byte, so that the caller makes progress.
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

    /// Returns a replica for the shard of the same process, or `None` if it is cut.
    pub(super) fn whole(
        &mut self,
        store: &Store,
        now: Time,
        body: &[u8],
    ) -> Result<Option<Arc<ReplicaBytes>>, Refused> {
        let (head, kept) = self.look(store, now, body)?;
        let KeptData::Whole(replica) = kept else { return Ok(None) };
        let replica = Arc::clone(replica);
        self.was_sent(head, now);
        Ok(Some(replica))
    }

    /// Notes that the end of a segment was sent to a partition.
    fn was_sent(&mut self, head: &RecoveryHead, now: Time) {
        let of = self.of.get_mut(&head.master());
        let asker = of.and_then(|of| of.askers.get_mut(head.partition() as usize));
        if let Some(asker) = asker.filter(|asker| asker.sent.is_empty()) {
            asker.sent.push((head.segment(), now));
        }
    }

    /// Returns the part that a partition requests. If it is not ready, queues its segment.
    fn look<'b>(
        &mut self,
        store: &Store,
        now: Time,
        body: &'b [u8],
    ) -> Result<(&'b RecoveryHead, &KeptData), Refused> {
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
        // The partition has these segments, or it would not request others.
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

    /// Takes a replica that was read; returns the outcome if the read was for another component.
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
                    self.keep_parts(&job, vec![(0, KeptData::Whole(Arc::new(bytes)))], now);
                } else {
                    (self.frees_spares, self.last_cut) = (false, now);
                    let partitions = Rc::clone(&of.partitions);
                    self.cutting.push_back(CuttingJob::new(job, bytes, partitions));
                }
            }
            (Some(_), Err(error)) => self.give_up(&job, error.into()),
            (None, _) => {}
        }
        None
    }

    /// Keeps the parts of a segment that was read or cut.
    fn keep_parts(&mut self, job: &Job, ready: Vec<(u32, KeptData)>, now: Time) {
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

    /// Gives up serving a segment.
    fn give_up(&mut self, job: &Job, why: Unserved) {
        let known = self.of.get_mut(&job.of).filter(|it| it.number == job.recovery);
        let Some(of) = known else { return };
        tracing::warn!("{} is of no use to recovery {}: {}", job.id, job.recovery, why);
        of.refuse(job.id.segment, why);
    }

    /// Forgets a recovery: its replicas are freed, or another recovery begins.
    pub(super) fn forget(&mut self, master: MasterId) {
        let Some(of) = self.of.remove(&master) else { return };
        let parts = of.segments.into_values().flat_map(|it| it.parts.into_values());
        for kept in parts {
            throw_away(kept, &mut self.held, &mut self.waste);
        }
    }

    /// Returns the time of the next sweep, which happens without requests.
    pub(super) fn deadline(&self) -> Option<Time> {
        (!self.of.is_empty() || self.spares.bytes() > 0).then_some(self.swept + SWEEP)
    }

    /// Drops parts and recoveries that have stayed too long.
    fn sweep(&mut self, store: &Store, now: Time) {
        if now.since(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        let is_idle = self.cutting.is_empty() && self.reads.is_empty();
        self.frees_spares = is_idle && now.since(self.last_cut) >= SWEEP;
        store.trim();
        let is_over = |of: &&Recovery| now.since(of.touched) >= FORGOTTEN;
        let over = self.of.iter().filter(|(_, of)| is_over(of)).map(|(master, _)| *master);
        for master in over.collect::<Vec<_>>() {
            // After a log was taken back, its replicas are not freed. That would otherwise end the
            // recovery, so this end is expected.
            if self.of.get(&master).is_some_and(|of| !of.whole) {
                tracing::warn!(
                    "no server asks for the replicas of {master} any more: its recovery is forgotten"
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
    /// Marks a segment as unservable. Parts that were cut before stay valid.
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

/// Keeps or frees the memory of parts in slices. The memory of whole replicas is used again.
fn throw_away(kept: KeptData, held: &mut u64, waste: &mut Vec<Part>) {
    *held -= kept.memory_bytes() as u64;
    if let KeptData::Cut(part) = kept {
        waste.push(part);
    }
}

/// Drops a part. With the last part of a segment, drops the segment's state.
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
