//! Rebuilds tablets from segments, whole or torn, in any order. Recovery is made of this. What it
//! promises is with [`Replay`]; this is how.
//!
//! Every record is compared with what is known of its key so far, and the newest wins:
//!
//! - an object is taken in if no object and no tombstone of its version or a later one is known;
//! - a tombstone kills what it must and is remembered until the end, for the object that it kills
//!   may come later.
//!
//! What is taken in is appended to the new log as any write is, with its own version, so the new
//! log's records name the new log's segments and its tombstones are complete (an object that is
//! taken in and killed afterwards gets a tombstone there). Replaying a segment twice, or after an
//! error replaying it again, changes nothing.
//!
//! Tombstones that are only remembered live in seglets and an index of their own, not in the log,
//! and are gone when the replay is finished or dropped.
//!
//! A tablet gives the position at which its former master took it over; entries born earlier are
//! of a former life of the tablet and are passed over.

use crate::blocks::IndexBlocks;
use crate::entry::ObjectFields;
use crate::error::{Damage, Error};
use crate::index::Index;
use crate::inspect::{Entry, Record, SegmentReader};
use crate::limits::BATCH;
use crate::log::{Completion, Keys, Log, NewVersion, Purpose};
use crate::memory::Reference;
use crate::metadata::SegmentHeader;
use crate::object::Located;
use crate::segment::{Appender, Room};
use std::sync::Arc;
use thunderhead_wire::{Condition, KeyHash, LogId, SegmentId, TableId, TabletRange, Version};

/// Rebuilds tablets in a log from the segments of another one, whole or torn, in any order.
///
/// # What it promises
///
/// Of each key the newest version counts, be it an object or a tombstone, in whichever order the
/// segments come. So after all of them the tablets hold what they held when the last durable byte
/// was appended, under the same versions, and nothing that was deleted. Replaying a segment twice,
/// or again after an error, changes nothing. Entries that fail their checksum are reported and
/// passed over, and never taken for something else. What is rebuilt is appended to the new log as
/// any write is, with tombstones where they are needed, so the new log stands on its own once it is
/// durable up to [`Log::appended`] after [`Replay::finish`].
///
/// A tablet gives the segment at which its former owner took it over ([`Log::tablets`]); entries
/// born earlier belong to a former life of it and are passed over.
///
/// # What the caller must see to
///
/// **That the segments are complete.** A replay cannot miss what it was never shown. The segments
/// that belong to a log are those that the last digest of its newest open head names
/// (`docs/format.md`), and all of them must be there:
///
/// - Read the copies with [`SegmentReader`]. The newest open head is the one with the highest id
///   among the segments whose header says [`SegmentKind::Head`] or [`SegmentKind::EmergencyHead`],
///   that hold a digest and that were not closed; whether a segment was closed is for the
///   [`Replicator`](crate::Replicator) to remember. Its last [`Entry::Digest`] lists the ids.
/// - Each of them must be among the copies, with all the bytes that were durable: a closed one with
///   the length that `closed` told. Only the open head may end in the midst of an entry
///   ([`Damage::Torn`]): that one was not durable.
/// - Use another copy of a segment that is refused or that [`Report::damage`] names. Segments that
///   the digest does not name must stay out.
///
/// **That an unfinished replay is not used.** The tablets live in the log from [`Replay::new`] on,
/// and stay, half filled, when the replay is dropped before its end. To give up, drop the `Replay`
/// and then its tablets ([`Log::drop_tablet`]). Completion records that came with them stay; a new
/// replay finds and keeps them, and where there will be none they are to be forgotten one by one
/// ([`Log::forget_completion`]). Where the log was made for the replay, drop it as a whole.
///
/// [`SegmentReader`]: crate::inspect::SegmentReader
/// [`Entry::Digest`]: crate::inspect::Entry::Digest
/// [`SegmentKind::Head`]: crate::SegmentKind::Head
/// [`SegmentKind::EmergencyHead`]: crate::SegmentKind::EmergencyHead
pub struct Replay<'a> {
    log: &'a mut Log,
    tablets: Vec<(TabletRange, SegmentId)>,
    /// The log that the segments belong to.
    from: Option<LogId>,
    remembered: Remembered,
    report: Report,
}

/// What a replay has seen and done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Segments read.
    pub segments: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Objects met.
    pub objects: u64,
    /// Tombstones met.
    pub tombstones: u64,
    /// Completion records met.
    pub completions: u64,
    /// Entries that belong to no tablet that is being rebuilt.
    pub elsewhere: u64,
    /// Objects taken in; some may have been killed or replaced later.
    pub taken: u64,
    /// What was damaged, with the segment that it was in.
    pub damage: Vec<(SegmentId, Damage)>,
}

/// Why a segment could not be replayed to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The segment as a whole is unusable; use another replica.
    #[error("the segment cannot be used: {0}")]
    Damaged(#[from] Damage),
    /// The new log cannot go on. With [`Error::CleanerBehind`] it has no room at this moment:
    /// replay the segment again once the cleaners have run. With [`Error::MemoryFull`] its memory
    /// is too small for what is alive, and trying again does not help.
    #[error("the log that is being rebuilt cannot go on: {0}")]
    Log(#[from] Error),
}

impl<'a> Replay<'a> {
    /// Begins to rebuild tablets in a log where they do not live yet. Each comes with the
    /// segment from which on its entries count. From now on the tablets live there, however the
    /// replay ends: to give it up, drop them.
    ///
    /// # Errors
    /// When one of the tablets already lives there, or there is no memory.
    pub fn new(
        log: &'a mut Log,
        tablets: impl IntoIterator<Item = (TabletRange, SegmentId)>,
    ) -> Result<Replay<'a>, Error> {
        let tablets: Vec<(TabletRange, SegmentId)> = tablets.into_iter().collect();
        for (number, (range, _)) in tablets.iter().enumerate() {
            if let Err(error) = log.create_tablet(*range) {
                for (range, _) in &tablets[..number] {
                    log.drop_tablet(*range);
                }
                return Err(error);
            }
        }
        match Remembered::new(log) {
            Ok(remembered) => {
                Ok(Replay { log, tablets, from: None, remembered, report: Report::default() })
            }
            Err(error) => {
                for (range, _) in &tablets {
                    log.drop_tablet(*range);
                }
                log.turn();
                Err(error)
            }
        }
    }

    /// Replays one segment.
    ///
    /// Damage inside the segment is reported in [`Report::damage`]; everything that is intact is
    /// used.
    ///
    /// # Errors
    /// When the segment has no usable header, belongs to another log than the ones before, or
    /// holds what this version must understand and does not: nothing that was rebuilt may be used
    /// in the last case. When an entry is too long for the new log's segments. When the log is
    /// out of memory at this moment ([`Error::CleanerBehind`]); the same segment may then be
    /// replayed again. Or when its memory is too small ([`Error::MemoryFull`]).
    pub fn segment(&mut self, bytes: &[u8]) -> Result<(), ReplayError> {
        let result = self.try_segment(bytes);
        self.log.turn();
        match result {
            // What is replayed passes by the limit for writes, so this is where it is held to one.
            Err(ReplayError::Log(Error::CleanerBehind)) => {
                Err(self.log.no_memory(self.remembered.taken_bytes()).into())
            }
            other => other,
        }
    }

    fn try_segment(&mut self, bytes: &[u8]) -> Result<(), ReplayError> {
        let reader = SegmentReader::new(bytes)?;
        let SegmentHeader { segment, log: found, .. } = *reader.header();
        let expected = *self.from.get_or_insert(found);
        if found != expected {
            return Err(Damage::OtherLog { found, expected }.into());
        }
        self.report.segments += 1;
        self.report.bytes += bytes.len() as u64;
        let mut batch: Vec<(Record<'_>, bool)> = Vec::with_capacity(BATCH);
        for entry in reader {
            match entry {
                Ok((_, Entry::Object(record))) => batch.push((record, true)),
                Ok((_, Entry::Tombstone(record))) => batch.push((record, false)),
                Ok((_, other)) => self.other(other)?,
                Err(damage @ Damage::UnknownKind { .. }) => return Err(damage.into()),
                Err(damage) => self.report.damage.push((segment, damage)),
            }
            if batch.len() == BATCH {
                self.batch(&batch)?;
                batch.clear();
            }
        }
        self.batch(&batch)?;
        Ok(())
    }

    /// Ends the replay: what it learnt of versions that must not come again is logged. The old
    /// segments may go once the log is durable up to [`Log::appended`].
    ///
    /// # Errors
    /// [`Error::CleanerBehind`]: try again shortly.
    pub fn finish(&mut self) -> Result<Report, Error> {
        let logged = self.log.log_safe_version();
        self.log.turn();
        logged.map(|_| self.report.clone())
    }

    fn batch(&mut self, batch: &[(Record<'_>, bool)]) -> Result<(), Error> {
        let keys = batch.iter().map(|(record, _)| (record.table, record.key));
        let places = self.log.approach(keys, Purpose::Update);
        for ((record, is_object), place) in batch.iter().zip(places) {
            let hash = place.hash;
            let counts = self.counts(record.table, hash, record.birth);
            match (place.tablet, counts, is_object) {
                (Some(tablet), true, true) => self.object(tablet as usize, hash, record)?,
                (Some(tablet), true, false) => self.tombstone(tablet as usize, hash, record)?,
                _ => self.report.elsewhere += 1,
            }
        }
        self.log.turn();
        Ok(())
    }

    /// Whether an entry belongs to a tablet that is being rebuilt, and to its present life.
    fn counts(&self, table: TableId, hash: KeyHash, birth: SegmentId) -> bool {
        self.tablets.iter().any(|(range, since)| range.contains(table, hash) && birth >= *since)
    }

    fn object(&mut self, tablet: usize, hash: KeyHash, record: &Record<'_>) -> Result<(), Error> {
        self.report.objects += 1;
        let killed = self.remembered.version(self.log, hash, record.table, record.key);
        if record.version <= killed {
            return Ok(());
        }
        let current = self.log.current(tablet, hash, record.key);
        if current.as_ref().is_some_and(|it| it.entry.fields.version >= record.version) {
            return Ok(());
        }
        let Record { table, key, value, version, .. } = *record;
        self.log.check_sizes(key, value)?;
        let new = NewVersion { tablet, table, hash, key, value, version };
        self.log.put_admitted(new, current)?;
        self.report.taken += 1;
        Ok(())
    }

    fn tombstone(
        &mut self,
        tablet: usize,
        hash: KeyHash,
        record: &Record<'_>,
    ) -> Result<(), Error> {
        self.report.tombstones += 1;
        self.log.check_sizes(record.key, &[])?;
        self.log.note_safe_version(record.version);
        self.remembered.remember(self.log, hash, record)?;
        let current = self.log.current(tablet, hash, record.key);
        if current.is_some_and(|it| it.entry.fields.version <= record.version) {
            self.log.delete_in(tablet, record.table, hash, record.key, Condition::Always)?;
        }
        Ok(())
    }

    fn other(&mut self, entry: Entry<'_>) -> Result<(), Error> {
        match entry {
            Entry::SafeVersion(version) => self.log.note_safe_version(version),
            Entry::Completion { lease, sequence, table, key_hash, birth, result } => {
                self.report.completions += 1;
                if !self.counts(table, key_hash, birth) {
                    self.report.elsewhere += 1;
                } else if self.log.completion(lease, sequence).is_none() {
                    let completion = Completion { lease, sequence, result };
                    self.log.complete_admitted(table, key_hash, completion)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The newest tombstone of each key that had one, outside the log.
struct Remembered {
    index: Index<IndexBlocks>,
    full: Vec<Appender>,
    current: Option<Appender>,
    segment_bytes: usize,
}

impl Remembered {
    fn new(log: &Log) -> Result<Remembered, Error> {
        let index = log.new_index().ok_or_else(|| log.no_memory(0))?;
        let segment_bytes = log.options().segment_bytes;
        Ok(Remembered { index, full: Vec::new(), current: None, segment_bytes })
    }

    /// Bytes of its tombstones' seglets, which no cleaner frees.
    fn taken_bytes(&self) -> u64 {
        let appenders = self.full.iter().chain(&self.current);
        appenders.map(|appender| appender.taken_bytes() as u64).sum()
    }

    /// The version up to which a key is known to be dead.
    #[inline]
    fn version(&self, log: &Log, hash: KeyHash, table: TableId, key: &[u8]) -> Version {
        if self.index.len() == 0 {
            return Version::NONE;
        }
        let mut version = Version::NONE;
        self.index.find(hash.0, |at| {
            let entry = Located::read(&log.memory, at)
                .filter(|entry| entry.fields.table == table && entry.has_key(&log.memory, key));
            version = entry.map_or(version, |entry| entry.fields.version);
            entry.is_some()
        });
        version
    }

    fn remember(&mut self, log: &mut Log, hash: KeyHash, record: &Record<'_>) -> Result<(), Error> {
        if self.version(log, hash, record.table, record.key) >= record.version {
            return Ok(());
        }
        let Record { table, version, birth, key, .. } = *record;
        let mut header = ObjectFields { table, version, birth, prior: None }.tombstone(key.len());
        let bytes = header.entry_bytes;
        let at = self.place(log, bytes)?;
        let memory = Arc::clone(&log.memory);
        let Some(current) = &mut self.current else { return Err(Error::CleanerBehind) };
        current.write(at, &mut header, [key, &[]], log.shared.seal);
        let found = self.index.find(hash.0, |at| {
            Located::read(&memory, at)
                .is_some_and(|entry| entry.fields.table == table && entry.has_key(&memory, key))
        });
        match found {
            Some(found) => {
                self.index.replace(found, at);
            }
            None => {
                self.index.insert(hash.0, at, &Keys(&memory)).map_err(|_| Error::CleanerBehind)?
            }
        }
        current.advance(bytes);
        Ok(())
    }

    fn place(&mut self, log: &Log, bytes: usize) -> Result<Reference, Error> {
        let keep = log.shared.reserves.for_writes();
        loop {
            let Some(current) = &mut self.current else {
                let new = Appender::open(&log.memory, SegmentId::NONE, self.segment_bytes, keep);
                self.current = Some(new.ok_or(Error::CleanerBehind)?);
                continue;
            };
            match current.reserve(bytes, keep) {
                Room::At(at) => return Ok(at),
                Room::SegmentFull => self.full.extend(self.current.take()),
                Room::NoMemory => return Err(Error::CleanerBehind),
            }
        }
    }
}

impl Drop for Remembered {
    fn drop(&mut self) {
        for appender in self.full.drain(..).chain(self.current.take()) {
            appender.abandon();
        }
    }
}
