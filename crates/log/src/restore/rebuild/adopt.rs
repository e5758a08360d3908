//! Adopts a segment of the log's own former generation unchanged, piece by piece. The module
//! `append::adopt` says why that is correct.
//!
//! A segment is read twice. The first pass verifies it before any of it is used: a damaged segment
//! is refused while no reference points into it, and another copy can be taken. Verified bytes are
//! copied at once, while they are in the processor's cache, and the offsets of their entries are
//! noted. When all of the segment is there, the second pass indexes the entries where they lie. It
//! reads only their headers and keys, and verifies no checksum again. It accepts an entry only at a
//! noted offset, even if the bytes have changed since. An entry that is older than a known one is
//! marked dead. Tombstones are remembered where they lie, which costs only a place in an index.

use super::Rebuild;
use crate::append::{Log, Purpose, SegmentInAdoption};
use crate::error::{Damage, Error};
use crate::format::inspect::{Entry, Placed, Record, SegmentReader};
use crate::limits::BATCH;
use crate::memory::Reference;
use crate::memory::object::Located;
use crate::restore::ReplayError;
use std::sync::Arc;
use thunderhead_wire::{KeyHash, LeaseId, SegmentId, Sequence, TableId, TabletRange};

/// The state of an adoption.
#[derive(Default)]
pub(super) struct Adoption {
    /// Whether the rebuild takes back the log's former generation.
    pub(super) takes_back: bool,
    adopting: Option<SegmentInAdoption>,
    /// All of the segment was verified: it is being indexed.
    is_verified: bool,
    /// The offsets of its entries.
    offsets: Vec<u32>,
    /// Adopted completion records, by lease and sequence.
    records: Vec<(LeaseId, Sequence)>,
}

/// Some entries of a segment, and the place of the next one.
struct Piece<'a> {
    entries: Vec<Placed<'a>>,
    until: Option<u32>,
}

fn piece<'a>(
    mut reader: SegmentReader<'a>,
    bytes: &[u8],
    from: u32,
    (entries_max, bytes_max): (usize, usize),
) -> Result<Piece<'a>, Damage> {
    reader.go_on_at(from);
    // Two entries may belong together, and are never parted.
    let most = entries_max.clamp(1, BATCH - 1);
    let enough = (from as usize).saturating_add(bytes_max.max(1));
    let mut entries = Vec::with_capacity(most + 1);
    loop {
        if let Some((offset, record)) = reader.next_object() {
            entries.push((offset, Entry::Object(record)));
        } else {
            let Some(entry) = reader.next() else { return Ok(Piece { entries, until: None }) };
            entries.push(entry?);
        }
        if let Some(at) = reader.place()
            && (entries.len() >= most || at as usize >= enough)
        {
            let is_over = at as usize >= bytes.len();
            return Ok(Piece { entries, until: (!is_over).then_some(at) });
        }
    }
}

impl Rebuild {
    /// Begins to take back tablets of a former log with the same [`LogId`](crate::LogId). Each
    /// comes with the segment from which on its entries counted in that log. As [`Rebuild::begin`],
    /// except that the entries count from the same segments here: adopted entries were born there.
    ///
    /// # Errors
    /// As [`Rebuild::begin`].
    pub fn take_back(
        log: &mut Log,
        tablets: impl IntoIterator<Item = (TabletRange, SegmentId)>,
    ) -> Result<Rebuild, Error> {
        let rebuild = Rebuild::begin(log, tablets)?;
        log.count_tablets_since(&rebuild.tablets);
        log.will_adopt();
        Ok(Rebuild { adoption: Adoption { takes_back: true, ..Adoption::default() }, ..rebuild })
    }

    /// Adopts some entries of a closed segment of the log's former generation: as
    /// [`Rebuild::step`], except that nothing is appended. Adopt all closed segments first, then
    /// replay the open ones with [`Rebuild::step`]. Then call [`Rebuild::finish`] and
    /// [`Log::name_adopted`].
    ///
    /// # Errors
    /// As [`Rebuild::step`]. Damage anywhere in the segment is refused before any of it is used:
    /// adopt another copy, from its beginning. [`Damage::NotAdoptable`] and [`Damage::OtherLog`]
    /// say that no copy is of use here: replay the log instead.
    ///
    /// # Panics
    /// When it is given another log than it began with.
    pub fn adopt(
        &mut self,
        log: &mut Log,
        segment: &[u8],
        from: u32,
        entries: usize,
        bytes: usize,
    ) -> Result<Option<u32>, ReplayError> {
        assert!(Arc::ptr_eq(&self.memory, &log.memory), "a rebuild goes on in the log it began in");
        let result = self.try_adopt(log, segment, from, (entries, bytes));
        log.turn_again();
        self.step_held_to_memory(log, result)
    }

    fn try_adopt(
        &mut self,
        log: &mut Log,
        bytes: &[u8],
        from: u32,
        most: (usize, usize),
    ) -> Result<Option<u32>, ReplayError> {
        let reader = SegmentReader::new(bytes)?;
        let header = *reader.header();
        let id = header.segment;
        let is_other = |adopting: &SegmentInAdoption| adopting.id != id;
        if self.adoption.is_verified {
            if let Some(other) = self.adoption.adopting.as_ref().filter(|it| is_other(it)) {
                // Another segment is half indexed: that one must be finished first.
                return Err(Damage::OtherSegment { found: id, expected: other.id }.into());
            }
            return self.index_piece(log, bytes, from, most);
        }
        if from == 0 {
            log.check_adoptable(&header, bytes)?;
            // No reference points into a segment that was not verified to its end.
            if let Some(begun) = self.adoption.adopting.take() {
                log.give_up_adopting(begun);
            }
            self.adoption.offsets.clear();
            self.adoption.adopting = Some(log.begin_to_adopt(id, bytes.len())?);
        }
        let is_next = |it: &&mut SegmentInAdoption| !is_other(it) && it.copied() == from as usize;
        let Some(adopting) = self.adoption.adopting.as_mut().filter(is_next) else {
            return Err(Damage::OtherSegment { found: id, expected: SegmentId::NONE }.into());
        };
        let looked = piece(reader, bytes, from, most);
        let Ok(Piece { entries, until }) = looked else {
            if let Some(damaged) = self.adoption.adopting.take() {
                log.give_up_adopting(damaged);
            }
            return looked.map(|_| None).map_err(ReplayError::from);
        };
        let end = until.map_or(bytes.len(), |at| at as usize);
        let offsets = &mut self.adoption.offsets;
        let before = offsets.len();
        offsets.extend(entries.iter().map(|(offset, _)| *offset));
        let new = offsets.get(before..).unwrap_or_default();
        let mut tombstone_bytes = 0;
        for (place, (offset, entry)) in entries.iter().enumerate() {
            if matches!(entry, Entry::Tombstone(_)) {
                let behind = new.get(place + 1).map_or(end, |next| *next as usize);
                tombstone_bytes += behind.saturating_sub(*offset as usize);
            }
        }
        log.adopt_bytes(adopting, bytes, end, new, tombstone_bytes);
        self.adoption.is_verified = until.is_none();
        // After the first pass, begin the second at the beginning.
        Ok(until.or(Some(0)))
    }

    /// Indexes some entries of a verified segment.
    fn index_piece(
        &mut self,
        log: &mut Log,
        bytes: &[u8],
        from: u32,
        most: (usize, usize),
    ) -> Result<Option<u32>, ReplayError> {
        let Some(adopting) = self.adoption.adopting.take() else { return Ok(None) };
        let indexed = self.try_index_piece(log, &adopting, bytes, from, most);
        if let Ok(None) = indexed {
            self.adoption.is_verified = false;
            self.report.segments += 1;
            log.adopted(adopting);
        } else {
            self.adoption.adopting = Some(adopting);
        }
        indexed
    }

    fn try_index_piece(
        &mut self,
        log: &mut Log,
        adopting: &SegmentInAdoption,
        bytes: &[u8],
        from: u32,
        most: (usize, usize),
    ) -> Result<Option<u32>, ReplayError> {
        let reader = SegmentReader::once_more(bytes)?;
        let Piece { entries, until } = piece(reader, bytes, from, most)?;
        let noted = self.adoption.offsets.partition_point(|offset| *offset < from);
        let noted = self.adoption.offsets.get(noted..).unwrap_or_default();
        let are_noted = noted.len() >= entries.len()
            && noted.iter().zip(&entries).all(|(noted, (offset, _))| noted == offset);
        if !are_noted || until.is_none() && (noted.len() != entries.len() || !adopting.is_whole()) {
            // These bytes differ from the verified ones.
            return Err(Damage::Torn { offset: from }.into());
        }
        // A chain of linked entries may be longer than a batch.
        for batch in entries.chunks(BATCH) {
            self.adopt_batch(log, adopting, batch)?;
        }
        let end = until.map_or(bytes.len(), |at| at as usize);
        self.report.bytes += end.saturating_sub(from as usize) as u64;
        Ok(until)
    }

    fn adopt_batch(
        &mut self,
        log: &mut Log,
        adopting: &SegmentInAdoption,
        batch: &[Placed<'_>],
    ) -> Result<(), ReplayError> {
        let keys = batch.iter().map(|(_, entry)| match entry {
            Entry::Object(record) | Entry::Tombstone(record) => (record.table, record.key),
            _ => (TableId(0), &[][..]),
        });
        let places = log.prefetch_places(keys);
        for ((offset, entry), place) in batch.iter().zip(places) {
            let Some(at) = adopting.at(log, *offset) else { continue };
            match entry {
                Entry::Object(record) => {
                    let tablet = self.tablet(place.tablet, place.hash, record);
                    self.adopt_object(log, tablet, place.hash, record, at)?;
                }
                Entry::Tombstone(record) => {
                    log.note_safe_version(record.version);
                    if let Some(tablet) = self.tablet(place.tablet, place.hash, record) {
                        self.adopt_tombstone(log, tablet, place.hash, record, at)?;
                    }
                }
                Entry::Completion { lease, sequence, table, key_hash, birth, result } => {
                    self.report.completions += 1;
                    let counts = self.counts(*table, *key_hash, *birth);
                    let is_needed = counts && *sequence >= self.needed_from(*lease);
                    if is_needed && log.adopt_completion(at, *lease, *sequence)? {
                        self.completions.push(*lease, *sequence, result);
                        self.adoption.records.push((*lease, *sequence));
                    } else {
                        self.report.elsewhere += u64::from(!counts);
                        log.dead_on_arrival(at);
                    }
                }
                // Each outcome of a group may be known or not, and may count or not. So the
                // outcomes that count are recorded anew.
                Entry::Completions { .. } => {
                    let before = self.completions.count();
                    let recorded = self.other(log, entry.clone());
                    self.adoption.records.extend(self.completions.behind(before));
                    recorded?;
                    log.dead_on_arrival(at);
                }
                Entry::SafeVersion(version) => {
                    log.note_safe_version(*version);
                    log.dead_on_arrival(at);
                }
                Entry::ClockMark(time) => {
                    log.reach_time(*time);
                    log.dead_on_arrival(at);
                }
                // Nothing in memory needs these.
                Entry::Digest(_) | Entry::Statistics(_) | Entry::Skipped(_) => {
                    log.dead_on_arrival(at);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The tablet of a record, if the record counts in it.
    fn tablet(&self, tablet: Option<u32>, hash: KeyHash, record: &Record<'_>) -> Option<usize> {
        let tablet = tablet.filter(|_| self.counts(record.table, hash, record.birth));
        tablet.map(|tablet| tablet as usize)
    }

    fn adopt_object(
        &mut self,
        log: &mut Log,
        tablet: Option<usize>,
        hash: KeyHash,
        record: &Record<'_>,
        at: Reference,
    ) -> Result<(), Error> {
        self.report.objects += 1;
        let Some(tablet) = tablet else {
            self.report.elsewhere += 1;
            log.dead_on_arrival(at);
            return Ok(());
        };
        let killed = self.remembered.version(log, hash, record.table, record.key);
        let current = log.current_for(Purpose::Replay, tablet, hash, record.key);
        if current.as_ref().is_some_and(|it| it.old.at == at) {
            return Ok(()); // An earlier try of this step was interrupted behind it.
        }
        let is_known = |version| version >= record.version;
        if is_known(killed) || current.as_ref().is_some_and(|it| is_known(it.old.version)) {
            log.dead_on_arrival(at);
            return Ok(());
        }
        // The length comes from the verified copy, not from the bytes given now.
        let bytes = Located::read(&log.memory, at).map_or(0, |located| located.entry_bytes());
        log.point_at(tablet, hash, at, current)?;
        if !record.attributes.is_none() {
            log.note_encoded(&record.attributes, record.version);
        }
        log.alive_on_arrival(tablet, bytes);
        self.report.taken += 1;
        Ok(())
    }

    fn adopt_tombstone(
        &mut self,
        log: &mut Log,
        tablet: usize,
        hash: KeyHash,
        record: &Record<'_>,
        at: Reference,
    ) -> Result<(), Error> {
        self.report.tombstones += 1;
        self.remembered.remember_at(log, hash, record, at)?;
        let current = log.current_for(Purpose::Replay, tablet, hash, record.key);
        if let Some(current) = current.filter(|it| it.old.version <= record.version) {
            log.unpoint(tablet, current);
        }
        Ok(())
    }

    /// Abandons the adoption: drops the tablets, forgets the completion records and throws the
    /// segments away.
    pub fn abandon(self, log: &mut Log) -> AbandonedAdoption {
        let Rebuild { tablets, adoption, remembered, .. } = self;
        drop(remembered);
        tablets.iter().for_each(|(range, _)| _ = log.drop_tablet(*range));
        abandon(log, adoption)
    }

    /// Returns the part that outlives the rebuild: abandon it if the tablets are dropped later.
    #[must_use]
    pub fn into_adopted(self) -> FinishedAdoption {
        FinishedAdoption(self.adoption)
    }
}

/// The segments and records that a [`Rebuild`] has adopted, once it is finished.
pub struct FinishedAdoption(Adoption);

impl FinishedAdoption {
    /// Forgets the completion records and throws the segments away; the caller has dropped the
    /// tablets.
    pub fn abandon(self, log: &mut Log) -> AbandonedAdoption {
        abandon(log, self.0)
    }
}

/// The remains of an abandoned adoption.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AbandonedAdoption {
    /// A digest names adopted segments: their copies must stay as long as this log exists.
    pub keeps: bool,
    /// Lease and sequence of the completion records that were forgotten.
    pub records: Vec<(LeaseId, Sequence)>,
}

fn abandon(log: &mut Log, adoption: Adoption) -> AbandonedAdoption {
    let Adoption { adopting, records, .. } = adoption;
    for (lease, sequence) in &records {
        log.forget_completion(*lease, *sequence);
    }
    // The references in the tablets' indexes are gone with the tablets.
    log.turn_again();
    if let Some(adopting) = adopting {
        log.give_up_adopting(adopting);
    }
    AbandonedAdoption { keeps: log.abandon_adopted(), records }
}
