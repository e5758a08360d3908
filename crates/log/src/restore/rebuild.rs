//! A replay piece by piece, while the log serves.

mod adopt;

pub use adopt::{AbandonedAdoption, FinishedAdoption};

use super::rebuild_limit::RebuildLimit;
use super::remembered_tombstones::RememberedTombstones;
use super::{ReplayError, Report};
use crate::append::{Completion, Log, NewVersion, Purpose, SideLog, TakeIn};
use crate::error::{Damage, Error};
use crate::format::inspect::{Entry, Record, SegmentReader};
use crate::format::metadata::SegmentHeader;
use crate::limits::BATCH;
use crate::memory::Memory;
use std::collections::BTreeMap;
use std::sync::Arc;
use thunderhead_wire::{
    Attributes, EncodedAttributes, KeyHash, LeaseId, LogId, SegmentId, Sequence, TableId,
    TabletRange, Timestamp, ValueKind, Version,
};

/// The least bytes of an object, with its place in the index.
const OBJECT_BYTES_MIN: u64 = 48;

/// An entry of a tablet that migrates here from a live log: see [`Rebuild::take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming<'a> {
    /// An object.
    Object {
        /// Its key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// The kind of its value.
        kind: ValueKind,
        /// Its attributes.
        attributes: Attributes,
        /// Its version.
        version: Version,
    },
    /// There is no object with this key, or only one with a later version.
    Tombstone {
        /// The key.
        key: &'a [u8],
        /// No object of this version or an earlier one exists.
        version: Version,
    },
    /// An update was completed.
    Completion {
        /// The hash of the key that it was about.
        key_hash: KeyHash,
        /// The lease and number of the update, and its outcome.
        completion: Completion<'a>,
    },
    /// No object that was deleted had a higher version.
    SafeVersion(Version),
    /// The clock of the log that it comes from has reached this time.
    Clock(Timestamp),
}

/// Completion records that were taken in, with their results, so that no lookup is needed.
#[derive(Clone, Debug, Default)]
pub struct ArrivedRecords {
    /// Lease, sequence, and where the result ends.
    records: Vec<(LeaseId, Sequence, usize)>,
    results: Vec<u8>,
}

impl ArrivedRecords {
    fn push(&mut self, lease: LeaseId, sequence: Sequence, result: &[u8]) {
        self.results.extend_from_slice(result);
        self.records.push((lease, sequence, self.results.len()));
    }

    /// The number of records.
    fn count(&self) -> usize {
        self.records.len()
    }

    /// Lease and sequence of the records behind the first `first` ones.
    fn behind(&self, first: usize) -> impl Iterator<Item = (LeaseId, Sequence)> {
        let behind = self.records.get(first..).unwrap_or_default();
        behind.iter().map(|(lease, sequence, _)| (*lease, *sequence))
    }

    /// Lease, sequence and result of each.
    pub fn iter(&self) -> impl Iterator<Item = (LeaseId, Sequence, &[u8])> {
        let mut begins = 0;
        self.records.iter().map(move |(lease, sequence, ends)| {
            let result = self.results.get(begins..*ends).unwrap_or_default();
            begins = *ends;
            (*lease, *sequence, result)
        })
    }
}

/// Rebuilds tablets piece by piece, while the log serves other requests. It does the same as
/// [`Replay`](crate::Replay), with the same promises and the same duties, for callers that must not
/// be busy for long.
///
/// It does not hold the log: each step is given it. It must be the same log every time. Between two
/// steps the log may be read, written, turned and cleaned as usual. Do not use the tablets that are
/// being rebuilt.
///
/// ```
/// # use thunderhead_log::*;
/// # fn rebuild(log: &mut Log, segments: &[Vec<u8>], users: TabletRange) -> Result<(), ReplayError> {
/// let mut rebuild = Rebuild::begin(log, [(users, SegmentId::NONE)])?;
/// for segment in segments {
///     let mut at = Some(0);
///     while let Some(from) = at {
///         at = rebuild.step(log, segment, from, 32, 16 << 10)?;
///         // … other requests …
///     }
/// }
/// rebuild.finish(log)?;
/// # Ok(())
/// # }
/// ```
pub struct Rebuild {
    /// The memory of the log in which it rebuilds; remembered tombstones are there.
    memory: Arc<Memory>,
    /// In order.
    tablets: Vec<(TabletRange, SegmentId)>,
    /// The log that the segments belong to.
    from: Option<LogId>,
    remembered: RememberedTombstones,
    report: Report,
    /// Completion records that were taken in since [`Rebuild::take_completions`] was last called.
    completions: ArrivedRecords,
    /// For each client, its first update whose answer it may not have.
    acknowledged: BTreeMap<LeaseId, Sequence>,
    adoption: adopt::Adoption,
    /// The side segments for replayed entries, if these do not go to the head.
    side_log: Option<SideLog>,
    _rebuilding: RebuildLimit,
}

impl Rebuild {
    /// Begins to rebuild tablets in a log that does not hold them yet. Each comes with the segment
    /// from which on its entries count. From now on the log holds the tablets, however the replay
    /// ends: to abandon it, drop them.
    ///
    /// # Errors
    /// When the log already holds one of the tablets, or there is no memory.
    pub fn begin(
        log: &mut Log,
        tablets: impl IntoIterator<Item = (TabletRange, SegmentId)>,
    ) -> Result<Rebuild, Error> {
        let mut tablets: Vec<(TabletRange, SegmentId)> = tablets.into_iter().collect();
        tablets.sort_unstable();
        for (number, (range, _)) in tablets.iter().enumerate() {
            if let Err(error) = log.create_tablet(*range) {
                for (range, _) in &tablets[..number] {
                    log.drop_tablet(*range);
                }
                return Err(error);
            }
        }
        match RememberedTombstones::new(log) {
            Ok(remembered) => Ok(Rebuild {
                memory: Arc::clone(&log.memory),
                tablets,
                from: None,
                remembered,
                report: Report::default(),
                completions: ArrivedRecords::default(),
                acknowledged: BTreeMap::new(),
                adoption: adopt::Adoption::default(),
                side_log: None,
                _rebuilding: RebuildLimit::begin(&log.shared),
            }),
            Err(error) => {
                for (range, _) in &tablets {
                    log.drop_tablet(*range);
                }
                log.turn_again();
                Err(error)
            }
        }
    }

    /// Begins to rebuild tablets in side segments, which become part of the log all together, at
    /// the end: see [`Rebuild::take_in`]. To abandon it, drop the tablets, and then call
    /// [`Rebuild::give_up`].
    ///
    /// # Errors
    /// As [`Rebuild::begin`].
    pub fn begin_in_side_log(
        log: &mut Log,
        tablets: impl IntoIterator<Item = (TabletRange, SegmentId)>,
    ) -> Result<Rebuild, Error> {
        let rebuild = Rebuild::begin(log, tablets)?;
        Ok(Rebuild { side_log: Some(SideLog::default()), ..rebuild })
    }

    /// Takes the side segments into the log, after the last [`Rebuild::step`] and before
    /// [`Rebuild::finish`]. Call it until it returns `Done`, with turns in between. Then everything
    /// is durable when the log is durable up to [`Log::appended`].
    ///
    /// # Panics
    /// When it is given another log than it began with.
    pub fn take_in(&mut self, log: &mut Log) -> TakeIn {
        assert!(Arc::ptr_eq(&self.memory, &log.memory), "a rebuild goes on in the log it began in");
        self.side_log.as_mut().map_or(TakeIn::Done, |side_log| log.take_in(side_log))
    }

    /// Frees the side segments; the caller has dropped the tablets.
    pub fn give_up(self, log: &mut Log) {
        if let Some(side_log) = self.side_log {
            log.abandon_side_log(side_log);
        }
    }

    /// Makes room in a tablet's index for so many objects, before the first of them is taken in.
    /// Then the index need not grow meanwhile. Does a little at a time; returns true while there is
    /// more to do. The number may be wrong.
    /// # Panics
    /// When it is given another log than it began with.
    pub fn make_room(&self, log: &mut Log, range: TabletRange, objects: u64) -> bool {
        assert!(Arc::ptr_eq(&self.memory, &log.memory), "a rebuild goes on in the log it began in");
        // No more objects than there could be memory for.
        let possible = log.usage().free_bytes / OBJECT_BYTES_MIN;
        let tablet = log.tablets.find(range.table, range.first);
        let expected = usize::try_from(objects.min(possible)).unwrap_or(usize::MAX);
        tablet.is_some_and(|at| log.tablets.list[at].index.make_room(expected))
    }

    /// Replays some entries of a segment, from a place that a step before returned, 0 at first.
    /// Stops behind so many entries or bytes, whichever comes first, but not before one entry; a
    /// step takes at most [`BATCH`] entries. Returns where to go on; `None` at the end.
    ///
    /// # Errors
    /// As [`Replay::segment`](crate::Replay::segment). After an error that says to try again, pass
    /// the same place again.
    ///
    /// # Panics
    /// When it is given another log than it began with.
    pub fn step(
        &mut self,
        log: &mut Log,
        segment: &[u8],
        from: u32,
        entries: usize,
        bytes: usize,
    ) -> Result<Option<u32>, ReplayError> {
        assert!(Arc::ptr_eq(&self.memory, &log.memory), "a rebuild goes on in the log it began in");
        let result = self.try_step(log, segment, from, (entries, bytes));
        if result.is_err() {
            log.turn_again();
        }
        self.step_held_to_memory(log, result)
    }

    /// Replayed entries pass by the limit for writes. This turns the error into
    /// [`Error::MemoryFull`] when the log holds too much.
    fn held_to_memory(&self, log: &Log, error: Error) -> Error {
        match error {
            Error::CleanerBehind => log.no_memory(self.remembered.taken_bytes()),
            other => other,
        }
    }

    fn step_held_to_memory<T>(
        &self,
        log: &Log,
        result: Result<T, ReplayError>,
    ) -> Result<T, ReplayError> {
        result.map_err(|error| match error {
            ReplayError::Log(error) => self.held_to_memory(log, error).into(),
            other => other,
        })
    }

    /// Takes in entries of a table that are in no segment, at most [`BATCH`]: the entries of a
    /// tablet that migrates here while its log lives. They count as born after every `since`.
    /// Otherwise it is as [`Rebuild::step`]: their order does not matter, and taking an entry twice
    /// changes nothing.
    ///
    /// # Errors
    /// When the log is out of memory, for the moment or for good, or an entry is too long for it.
    ///
    /// # Panics
    /// When it is given another log than it began with.
    pub fn take(
        &mut self,
        log: &mut Log,
        table: TableId,
        entries: &[Incoming<'_>],
    ) -> Result<(), Error> {
        assert!(Arc::ptr_eq(&self.memory, &log.memory), "a rebuild goes on in the log it began in");
        let taken = self.try_take(log, table, entries);
        if taken.is_err() {
            log.turn_again();
        }
        taken.map_err(|error| self.held_to_memory(log, error))
    }

    fn try_take(
        &mut self,
        log: &mut Log,
        table: TableId,
        entries: &[Incoming<'_>],
    ) -> Result<(), Error> {
        let birth = SegmentId(u64::MAX);
        let mut batch: Vec<(Record<'_>, bool)> = Vec::with_capacity(entries.len().min(BATCH));
        let record = |key, value, (kind, attributes), version| {
            let prior = None;
            Record { table, key, version, birth, prior, kind, attributes, value }
        };
        let none = (ValueKind::Bytes, EncodedAttributes::NONE);
        for entry in entries.iter().take(BATCH) {
            match *entry {
                Incoming::Object { key, value, kind, attributes, version } => {
                    let form = (kind, EncodedAttributes::of(&attributes));
                    batch.push((record(key, value, form, version), true));
                }
                Incoming::Tombstone { key, version } => {
                    batch.push((record(key, &[][..], none, version), false));
                }
                Incoming::Completion { key_hash, completion } => {
                    let Completion { lease, sequence, result } = completion;
                    let entry =
                        Entry::Completion { lease, sequence, table, key_hash, birth, result };
                    self.other(log, entry)?;
                }
                Incoming::SafeVersion(version) => log.note_safe_version(version),
                Incoming::Clock(time) => log.reach_time(time),
            }
        }
        self.batch(log, &batch)
    }

    fn try_step(
        &mut self,
        log: &mut Log,
        bytes: &[u8],
        from: u32,
        most: (usize, usize),
    ) -> Result<Option<u32>, ReplayError> {
        let mut reader = SegmentReader::new(bytes)?;
        let SegmentHeader { segment, log: found, .. } = *reader.header();
        let expected = *self.from.get_or_insert(found);
        if found != expected {
            return Err(Damage::OtherLog { found, expected }.into());
        }
        reader.go_on_at(from);
        // Entries that belong together are never parted.
        let entries = most.0.clamp(1, BATCH);
        let enough = (from as usize).saturating_add(most.1.max(1));
        let mut batch: Vec<(Record<'_>, bool)> = Vec::with_capacity(BATCH);
        let (mut count, mut damaged) = (0, Vec::new());
        let behind = loop {
            if batch.len() == BATCH {
                self.batch(log, &batch)?;
                batch.clear();
            }
            count += 1;
            if let Some((_, record)) = reader.next_object() {
                batch.push((record, true));
            } else {
                let Some(entry) = reader.next() else { break None };
                match entry {
                    Ok((_, Entry::Object(record))) => batch.push((record, true)),
                    Ok((_, Entry::Tombstone(record))) => batch.push((record, false)),
                    Ok((_, Entry::Digest(digest))) => {
                        if self.adoption.takes_back {
                            log.met_former_digest(segment, &digest);
                        }
                    }
                    Ok((_, other)) => self.other(log, other)?,
                    Err(damage @ Damage::UnknownKind { .. }) => return Err(damage.into()),
                    Err(damage) => damaged.push((segment, damage)),
                }
            }
            if let Some(at) = reader.place()
                && (count >= entries || at as usize >= enough)
            {
                break Some(at);
            }
        };
        self.batch(log, &batch)?;
        // Only once it is certain that this piece will not be read again.
        self.report.damage.append(&mut damaged);
        self.report.segments += u64::from(behind.is_none());
        let behind_bytes = behind.map_or(bytes.len(), |at| at as usize);
        self.report.bytes += behind_bytes.saturating_sub(from as usize) as u64;
        Ok(behind)
    }

    /// Ends the replay and logs its safe version, so that no deleted version is used again. The old
    /// segments may be freed once the log is durable up to [`Log::appended`].
    ///
    /// # Errors
    /// [`Error::CleanerBehind`]: try again shortly.
    pub fn finish(&mut self, log: &mut Log) -> Result<Report, Error> {
        for (range, _) in &self.tablets {
            if let Some(at) = log.tablets.find(range.table, range.first) {
                log.tablets.list[at].index.end_room();
            }
        }
        let logged = log.log_safe_version().and_then(|_| log.settle_clock());
        log.turn_again();
        logged.map(|()| self.report.clone())
    }

    /// The work that it has done so far.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Notes that a client has the answers of all its updates before `first`. Records of those
    /// updates that are still to come are not taken in, because they would be forgotten at once.
    pub fn acknowledged(&mut self, lease: LeaseId, first: Sequence) {
        let known = self.acknowledged.entry(lease).or_default();
        *known = first.max(*known);
    }

    /// The first update of a client whose record is needed.
    fn needed_from(&self, lease: LeaseId) -> Sequence {
        self.acknowledged.get(&lease).copied().unwrap_or_default()
    }

    /// Returns the completion records that were taken in since the last call.
    pub fn take_completions(&mut self) -> ArrivedRecords {
        std::mem::take(&mut self.completions)
    }

    fn batch(&mut self, log: &mut Log, batch: &[(Record<'_>, bool)]) -> Result<(), Error> {
        if batch.is_empty() {
            log.turn_again();
            return Ok(());
        }
        let Some(mut side_log) = self.side_log.take() else {
            self.append(log, batch)?;
            log.turn_again();
            return Ok(());
        };
        let appended = log.in_side_log(&mut side_log, |log| self.append(log, batch));
        if let Err(Error::CleanerBehind) = appended {
            log.make_haste();
        }
        self.side_log = Some(side_log);
        log.turn_again();
        appended
    }

    fn append(&mut self, log: &mut Log, batch: &[(Record<'_>, bool)]) -> Result<(), Error> {
        let keys = batch.iter().map(|(record, _)| (record.table, record.key));
        let places = log.prefetch_places(keys);
        for ((record, is_object), place) in batch.iter().zip(places) {
            let hash = place.hash;
            let counts = self.counts(record.table, hash, record.birth);
            match (place.tablet, counts, is_object) {
                (Some(tablet), true, true) => self.object(log, tablet as usize, hash, record)?,
                (Some(tablet), true, false) => {
                    self.tombstone(log, tablet as usize, hash, record)?
                }
                _ => self.report.elsewhere += 1,
            }
        }
        Ok(())
    }

    /// Whether an entry belongs to a tablet that is being rebuilt, and to its present stay in the
    /// log.
    #[inline]
    fn counts(&self, table: TableId, hash: KeyHash, birth: SegmentId) -> bool {
        let is_in =
            |(range, since): &(TabletRange, _)| range.contains(table, hash) && birth >= *since;
        // A search costs more than a look at the only tablet.
        if let [only] = self.tablets.as_slice() {
            return is_in(only);
        }
        let is_before = |(range, _): &(TabletRange, _)| (range.table, range.first) <= (table, hash);
        let at = self.tablets.partition_point(is_before).checked_sub(1);
        at.and_then(|at| self.tablets.get(at)).is_some_and(is_in)
    }

    fn object(
        &mut self,
        log: &mut Log,
        tablet: usize,
        hash: KeyHash,
        record: &Record<'_>,
    ) -> Result<(), Error> {
        self.report.objects += 1;
        let killed = self.remembered.version(log, hash, record.table, record.key);
        if record.version <= killed {
            return Ok(());
        }
        let current = log.current_for(Purpose::Replay, tablet, hash, record.key);
        if current.as_ref().is_some_and(|it| it.old.version >= record.version) {
            return Ok(());
        }
        let Record { table, key, value, version, kind, attributes, .. } = *record;
        log.check_sizes(key, value)?;
        let new = NewVersion { tablet, table, hash, key, value, version };
        if kind == ValueKind::Bytes && attributes.is_none() {
            log.put_admitted(new, current)?;
        } else {
            log.put_of_form(kind, &attributes, new, current)?;
        }
        self.report.taken += 1;
        Ok(())
    }

    fn tombstone(
        &mut self,
        log: &mut Log,
        tablet: usize,
        hash: KeyHash,
        record: &Record<'_>,
    ) -> Result<(), Error> {
        self.report.tombstones += 1;
        log.check_sizes(record.key, &[])?;
        log.note_safe_version(record.version);
        self.remembered.remember(log, hash, record)?;
        let current = log.current_for(Purpose::Replay, tablet, hash, record.key);
        if let Some(current) = current.filter(|it| it.old.version <= record.version) {
            log.delete_in(tablet, record.table, record.key, &current)?;
        }
        Ok(())
    }

    fn other(&mut self, log: &mut Log, entry: Entry<'_>) -> Result<(), Error> {
        match entry {
            Entry::SafeVersion(version) => log.note_safe_version(version),
            Entry::ClockMark(time) => log.reach_time(time),
            Entry::Completion { lease, sequence, table, key_hash, birth, result } => {
                self.report.completions += 1;
                if !self.counts(table, key_hash, birth) {
                    self.report.elsewhere += 1;
                } else if sequence >= self.needed_from(lease)
                    && log.completion(lease, sequence).is_none()
                {
                    let completion = Completion { lease, sequence, result };
                    log.complete_admitted(table, key_hash, completion)?;
                    self.completions.push(lease, sequence, result);
                }
            }
            Entry::Completions { lease, birth, outcomes } => {
                let (mut new, needed_from) = (Vec::new(), self.needed_from(lease));
                for outcome in outcomes {
                    self.report.completions += 1;
                    if outcome.sequence < needed_from {
                        continue;
                    }
                    if !self.counts(outcome.table, outcome.key_hash, birth) {
                        self.report.elsewhere += 1;
                    } else if log.completion(lease, outcome.sequence).is_none() {
                        new.push(outcome);
                    }
                }
                let (completions, mut results) = (&mut self.completions, new.iter());
                // They are recorded in their order, up to the first for which there is no room.
                log.complete_many(lease, &new, |sequence| {
                    let result = results.next().map_or(&[][..], |outcome| outcome.result);
                    completions.push(lease, sequence, result);
                })?;
            }
            _ => {}
        }
        Ok(())
    }
}
