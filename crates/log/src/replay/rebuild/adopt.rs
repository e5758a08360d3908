//! A segment of the log's own former life is taken in as it is, piece by piece. The module `log::adopt`
//! says why that is right.
//!
//! A segment is looked through before anything of it is used: what is damaged is refused while nothing
//! refers to it yet, and another copy can be taken. Then its bytes are copied, and its entries indexed
//! where they lie. What lost against something newer is marked dead; tombstones are remembered where
//! they are, which costs no more than a place in an index.

use super::Rebuild;
use crate::error::{Damage, Error};
use crate::inspect::{Entry, Record, SegmentReader};
use crate::limits::BATCH;
use crate::log::{Adopting, Log, Purpose};
use crate::memory::Reference;
use crate::object::Located;
use crate::replay::ReplayError;
use std::sync::Arc;
use thunderhead_wire::{KeyHash, SegmentId, TableId, TabletRange};

/// What is adopted.
#[derive(Default)]
pub(super) struct Adoption {
    /// The segment that was looked through last.
    verified: Option<SegmentId>,
    adopting: Option<Adopting>,
    /// Completion records that were adopted, by lease and sequence.
    records: Vec<(u64, u64)>,
}

/// Some entries of a segment, and where the next one is.
struct Piece<'a> {
    entries: Vec<(u32, Entry<'a>)>,
    until: Option<u32>,
}

fn piece(
    bytes: &[u8],
    from: u32,
    (entries_max, bytes_max): (usize, usize),
) -> Result<Piece<'_>, Damage> {
    let mut reader = SegmentReader::new(bytes)?;
    reader.go_on_at(from);
    // Two entries may belong together, and are never parted.
    let most = entries_max.clamp(1, BATCH - 1);
    let enough = (from as usize).saturating_add(bytes_max.max(1));
    let mut entries = Vec::with_capacity(most + 1);
    loop {
        let Some(entry) = reader.next() else { return Ok(Piece { entries, until: None }) };
        entries.push(entry?);
        if let Some(at) = reader.place()
            && (entries.len() >= most || at as usize >= enough)
        {
            let is_over = at as usize >= bytes.len();
            return Ok(Piece { entries, until: (!is_over).then_some(at) });
        }
    }
}

impl Rebuild {
    /// Begins to take back tablets of a former log with the same [`LogId`](crate::LogId), in which they
    /// counted from these segments on. As [`Rebuild::begin`], but that they do so here, too: what is
    /// adopted was born there.
    ///
    /// # Errors
    /// As [`Rebuild::begin`].
    pub fn take_back(
        log: &mut Log,
        tablets: impl IntoIterator<Item = (TabletRange, SegmentId)>,
    ) -> Result<Rebuild, Error> {
        let rebuild = Rebuild::begin(log, tablets)?;
        log.count_tablets_since(&rebuild.tablets);
        Ok(rebuild)
    }

    /// Adopts some of a closed segment of the log's former life: as [`Rebuild::step`], but that nothing
    /// is appended. All closed segments come before those that were open, which are replayed by
    /// [`Rebuild::step`]. Then [`Rebuild::finish`], and [`Log::name_adopted`].
    ///
    /// # Errors
    /// As [`Rebuild::step`]. Damage is refused before anything of the segment is used, wherever it is:
    /// use another copy, from its beginning. [`Damage::NotAdoptable`] and [`Damage::OtherLog`] say that
    /// no copy is of use here: the log has to be replayed.
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
        log.turn();
        self.step_held_to_memory(log, result)
    }

    fn try_adopt(
        &mut self,
        log: &mut Log,
        bytes: &[u8],
        from: u32,
        most: (usize, usize),
    ) -> Result<Option<u32>, ReplayError> {
        let header = *SegmentReader::new(bytes)?.header();
        let id = header.segment;
        if self.adoption.verified != Some(id) {
            if from == 0 {
                log.check_adoptable(&header, bytes)?;
            }
            let Piece { until, .. } = piece(bytes, from, most)?;
            if until.is_none() {
                self.adoption.verified = Some(id);
            }
            // From the beginning once more when all of it was looked through.
            return Ok(until.or(Some(0)));
        }
        let mut adopting = match self.adoption.adopting.take() {
            Some(adopting) if adopting.id == id => adopting,
            Some(other) => {
                // Another one is half indexed: that must come to its end first.
                let expected = other.id;
                self.adoption.adopting = Some(other);
                return Err(Damage::OtherSegment { found: id, expected }.into());
            }
            None => log.begin_to_adopt(id, bytes.len())?,
        };
        let done = self.adopt_piece(log, &mut adopting, bytes, from, most);
        match &done {
            Ok(None) if adopting.is_whole() => {
                self.adoption.verified = None;
                self.report.segments += 1;
                log.adopted(adopting);
            }
            _ => self.adoption.adopting = Some(adopting),
        }
        done
    }

    fn adopt_piece(
        &mut self,
        log: &mut Log,
        adopting: &mut Adopting,
        bytes: &[u8],
        from: u32,
        most: (usize, usize),
    ) -> Result<Option<u32>, ReplayError> {
        let Piece { entries, until } = piece(bytes, from, most)?;
        let end = until.map_or(bytes.len(), |at| at as usize);
        let offsets: Vec<u32> = entries.iter().map(|(offset, _)| *offset).collect();
        let mut tombstone_bytes = 0;
        for (place, (offset, entry)) in entries.iter().enumerate() {
            if matches!(entry, Entry::Tombstone(_)) {
                let behind = offsets.get(place + 1).map_or(end, |next| *next as usize);
                tombstone_bytes += behind.saturating_sub(*offset as usize);
            }
        }
        log.adopt_bytes(adopting, bytes, end, &offsets, tombstone_bytes);
        // What belongs together may be more than a batch.
        for batch in entries.chunks(BATCH) {
            self.adopt_batch(log, adopting, batch)?;
        }
        self.report.bytes += end.saturating_sub(from as usize) as u64;
        Ok(until)
    }

    fn adopt_batch(
        &mut self,
        log: &mut Log,
        adopting: &Adopting,
        batch: &[(u32, Entry<'_>)],
    ) -> Result<(), ReplayError> {
        let keys = batch.iter().map(|(_, entry)| match entry {
            Entry::Object(record) | Entry::Tombstone(record) => (record.table, record.key),
            _ => (TableId(0), &[][..]),
        });
        let places = log.approach(keys, Purpose::Update);
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
                Entry::Completion { lease, sequence, table, key_hash, birth, .. } => {
                    self.report.completions += 1;
                    let counts = self.counts(*table, *key_hash, *birth);
                    if counts && log.adopt_completion(at, *lease, *sequence)? {
                        self.completions.push((*lease, *sequence));
                        self.adoption.records.push((*lease, *sequence));
                    } else {
                        self.report.elsewhere += u64::from(!counts);
                        log.dead_on_arrival(at);
                    }
                }
                // Which of them are known, and whether they count, differs from one to the next: those
                // that count are recorded anew.
                Entry::Completions { .. } => {
                    let before = self.completions.len();
                    let recorded = self.other(log, entry.clone());
                    self.adoption
                        .records
                        .extend(self.completions.get(before..).unwrap_or_default());
                    recorded?;
                    log.dead_on_arrival(at);
                }
                Entry::SafeVersion(version) => {
                    log.note_safe_version(*version);
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

    /// The tablet of a record, if it counts.
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
        let current = log.current(tablet, hash, record.key);
        if current.as_ref().is_some_and(|it| it.entry.at == at) {
            return Ok(()); // This step was interrupted behind it.
        }
        let is_known = |version| version >= record.version;
        if is_known(killed) || current.as_ref().is_some_and(|it| is_known(it.entry.fields.version))
        {
            log.dead_on_arrival(at);
            return Ok(());
        }
        let bytes = Located::read(&log.memory, at).map_or(0, |located| located.entry_bytes());
        log.point_at(tablet, hash, at, current)?;
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
        let current = log.current(tablet, hash, record.key);
        if let Some(current) = current.filter(|it| it.entry.fields.version <= record.version) {
            log.unpoint(tablet, current);
        }
        Ok(())
    }

    /// Gives up what was taken back: drops the tablets, forgets the records and throws the segments
    /// away.
    pub fn abandon(self, log: &mut Log) -> Abandoned {
        let Rebuild { tablets, adoption, remembered, .. } = self;
        drop(remembered);
        tablets.iter().for_each(|(range, _)| _ = log.drop_tablet(*range));
        abandon(log, adoption)
    }

    /// What must be given up together with the tablets, for whoever ends the rebuild before.
    #[must_use]
    pub fn into_adopted(self) -> Adopted {
        Adopted(self.adoption)
    }
}

/// What a [`Rebuild`] has adopted, once it is finished.
pub struct Adopted(Adoption);

impl Adopted {
    /// Forgets the records and throws the segments away; the tablets were dropped before.
    pub fn abandon(self, log: &mut Log) -> Abandoned {
        abandon(log, self.0)
    }
}

/// What was left of something that was given up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Abandoned {
    /// A digest names segments that were adopted: their copies must stay for as long as this log does.
    pub keeps: bool,
    /// Lease and sequence of the completion records that were forgotten.
    pub records: Vec<(u64, u64)>,
}

fn abandon(log: &mut Log, adoption: Adoption) -> Abandoned {
    let Adoption { adopting, records, .. } = adoption;
    for (lease, sequence) in &records {
        log.forget_completion(*lease, *sequence);
    }
    // References in the index of the tablets are gone with them.
    log.turn();
    if let Some(adopting) = adopting {
        log.give_up_adopting(adopting);
    }
    Abandoned { keeps: log.abandon_adopted(), records }
}
