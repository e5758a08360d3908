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

use super::refuse;
use crate::error::{ReadError, Unserved};
use crate::layout::ReplicaId;
use crate::limits::{
    COMING_US, PAGE_BYTES_MAX, PARTITIONS_MAX, PARTS_BYTES_MAX, RANGES_MAX, RECOVERIES_MAX,
    SEGMENTS_AHEAD,
};
use crate::reader::{ReadId, ReplicaBytes};
use crate::store::Store;
use cutting::Cutting;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
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

/// What is known of a segment in a recovery. Nothing is kept of one that is not wanted now.
#[derive(Default)]
struct Segment {
    parts: BTreeMap<u32, Part>,
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
            bytes_read: 0,
            swept: Time(0),
        };
        recoveries.set_limit(PARTS_BYTES_MAX, segment_bytes);
        recoveries
    }

    /// So many bytes, but enough for a few segments.
    pub(super) fn set_limit(&mut self, bytes: u64, segment_bytes: u32) {
        self.limit = bytes.max(SEGMENTS_AHEAD * u64::from(segment_bytes));
    }

    /// Bytes that were read for recoveries, and bytes of parts that are here.
    pub(super) fn progress(&self) -> (u64, u64) {
        (self.bytes_read, self.held)
    }

    pub(super) fn begin(&mut self, context: &mut Context<'_>, begin: BeginRecovery, to: ReplyTo) {
        let BeginRecovery { recovery, crashed, partitions, segments } = begin;
        let ranges = partitions.iter().map(Vec::len).sum::<usize>();
        let number = partitions.len();
        let possible = (1..=PARTITIONS_MAX).contains(&number) && ranges <= RANGES_MAX;
        let tablets = |of: &Vec<_>| of.iter().map(taken).collect();
        let partitions: Vec<Vec<_>> =
            if possible { partitions.iter().map(tablets).collect() } else { Vec::new() };
        let Some(partitions) = Partitions::new(&partitions).filter(|_| possible) else {
            return context.refuse(to, Status::Malformed, 0, &[]);
        };
        let (now, count) = (context.now(), self.of.len());
        match self.of.get_mut(&crashed) {
            Some(known) if known.number > recovery => {
                let why = Unserved::Superseded { newer: known.number, master: crashed };
                return refuse(context, to, &why);
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
        let Ok(head) = RecoveryHead::ref_from_bytes(body) else {
            return context.refuse(to, Status::Malformed, 0, &[]);
        };
        let (now, segment, partition) = (context.now(), head.segment(), head.partition());
        let known = self.of.get_mut(&head.master());
        let Some(of) = known.filter(|it| it.number == head.recovery()) else {
            let (recovery, master) = (head.recovery(), head.master());
            return refuse(context, to, &Unserved::UnknownRecovery { recovery, master });
        };
        let Some(asker) = of.askers.get_mut(partition as usize) else {
            return context.refuse(to, Status::Malformed, 0, &[]);
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
        if let Some(part) = of.segments.get(&segment).and_then(|it| it.parts.get(&partition)) {
            // One byte at least, so that every piece gets on.
            let most = head.bytes().clamp(1, PAGE_BYTES_MAX) as usize;
            let offset = head.offset() as usize;
            let length = PieceHead::new(u32::try_from(part.len()).unwrap_or(u32::MAX));
            let mut parts: Vec<&[u8]> = vec![length.as_bytes()];
            parts.extend(part.slices(offset, most));
            context.reply(to, &parts);
            if offset + most >= part.len()
                && let Some(asker) = of.askers.get_mut(partition as usize)
                && asker.sent.is_empty()
            {
                asker.sent.push((segment, now));
            }
            return;
        }
        if let Some(refused) = of.refused.get(&segment) {
            return refuse(context, to, refused);
        }
        if store.offered(ReplicaId { master: head.master(), segment }).is_none() {
            return context.refuse(to, Status::NotFound, 0, &[]);
        }
        let wanted = of.segments.entry(segment).or_default();
        wanted.wanted.insert(partition);
        wanted.since.get_or_insert(now);
        if !wanted.under_way && !of.demanded.contains(&segment) {
            of.demanded.push_back(segment);
        }
        context.refuse(to, Status::Busy, COMING_US, &[]);
    }

    /// A replica was read; gives it back if it was not for this.
    pub(super) fn read(
        &mut self,
        read: ReadId,
        outcome: Result<ReplicaBytes, ReadError>,
    ) -> Option<Result<ReplicaBytes, ReadError>> {
        let Some(job) = self.reads.remove(&read) else { return Some(outcome) };
        let known = self.of.get(&job.id.master).filter(|it| it.number == job.recovery);
        match (known, outcome) {
            (Some(of), Ok(bytes)) => {
                self.bytes_read += bytes.bytes().len() as u64;
                self.cutting.push_back(Cutting::new(job, bytes, Rc::clone(&of.partitions)));
            }
            (Some(_), Err(error)) => self.give_up(&job, error.into()),
            (None, _) => {}
        }
        None
    }

    /// A segment cannot be had here.
    fn give_up(&mut self, job: &Job, why: Unserved) {
        let known = self.of.get_mut(&job.id.master).filter(|it| it.number == job.recovery);
        let Some(of) = known else { return };
        tracing::warn!("{} is of no use to recovery {}: {}", job.id, job.recovery, why);
        of.refuse(job.id.segment, why);
    }

    /// A master's replicas are freed, or another recovery begins.
    pub(super) fn forget(&mut self, master: MasterId) {
        let Some(of) = self.of.remove(&master) else { return };
        let parts = of.segments.into_values().flat_map(|it| it.parts.into_values());
        for part in parts {
            self.held -= part.memory_bytes() as u64;
            self.waste.push(part);
        }
    }

    /// When there is something to do though nobody asks.
    pub(super) fn deadline(&self) -> Option<Time> {
        (!self.of.is_empty()).then_some(self.swept + SWEEP)
    }

    /// Drops what has stayed too long.
    fn sweep(&mut self, now: Time) {
        if now.since(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        let is_over = |of: &&Recovery| now.since(of.touched) >= FORGOTTEN;
        let over = self.of.iter().filter(|(_, of)| is_over(of)).map(|(master, _)| *master);
        for master in over.collect::<Vec<_>>() {
            tracing::warn!(
                "nobody asks for anything of {master} any more: its recovery is forgotten"
            );
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

/// Drops a part, and with the last one all that is known of the segment.
fn drop_part(
    of: &mut Recovery,
    segment: SegmentId,
    partition: u32,
    held: &mut u64,
    waste: &mut Vec<Part>,
) {
    let Some(known) = of.segments.get_mut(&segment) else { return };
    if let Some(part) = known.parts.remove(&partition) {
        *held -= part.memory_bytes() as u64;
        waste.push(part);
    }
    if known.parts.is_empty() && !known.under_way && known.wanted.is_empty() {
        of.segments.remove(&segment);
    }
}
