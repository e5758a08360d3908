//! Completion records: the outcomes of updates, kept until their client has seen them.
//!
//! A server that updates an object for a client logs the outcome with it, under the client's lease
//! and the update's sequence number. When the client asks again, the server finds the answer and
//! does not repeat the effect. The records live in the log like objects: the cleaner moves them, a
//! recovery finds them, and each belongs to the tablet of its key.
//!
//! [`Log::write_completed`] appends record and object so that a recovery sees both or neither: the
//! record is marked as *linked* to the entry behind it, and counts only with that entry. If either
//! finds no place in its index, the head's end has not moved and nothing has happened.
//!
//! The outcomes of several updates of one message are recorded in one entry: see
//! [`groups`](super::groups).
//!
//! **Indexed late.** The records that were appended last are not in the index yet
//! ([`UnindexedRecord`]). Most are forgotten before they are looked up, because their client goes
//! on with its next update. They enter the index when there are too many, and when their head ends:
//! from then on cleaners may look for them in the index. Each has a promise of memory in the index.

use super::Log;
use super::batch::Purpose;
use super::write::{HashedKey, NewVersion, Written};
use crate::error::Error;
use crate::format::entry::{CompletionFields, Kind, LINKED};
use crate::format::outcomes::{OUTCOME_BYTES_MAX, Outcome, Outcomes, SPAN};
use crate::format::varint::Reader;
use crate::index::{Candidate, Cursor, Entries, Index, IndexBlocks};
use crate::limits::BATCH;
use crate::memory::object::Bytes;
use crate::memory::segment;
use crate::memory::{Memory, Reference};
use thunderhead_wire::{
    Condition, KeyHash, LeaseId, LogPosition, Sequence, TableId, TabletRange, Version,
};

/// The most records that may be unindexed. A lookup of a record goes through all of them.
const UNINDEXED_MAX: usize = 32;

/// Names an update of a client, and holds its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion<'a> {
    /// The client's lease.
    pub lease: LeaseId,
    /// The number that the client gave the update.
    pub sequence: Sequence,
    /// The outcome, in the form of the server's answers.
    pub result: &'a [u8],
}

impl Log {
    /// Writes an object if a condition holds, and with it the record of the update.
    ///
    /// # Errors
    /// As [`Log::write_if`], and [`Error::AlreadyCompleted`].
    pub fn write_completed(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &[u8],
        condition: Condition,
        completion: Completion<'_>,
    ) -> Result<Written, Error> {
        let written = self.try_write_completed(table, key, value, condition, completion);
        self.count_mutation();
        written
    }

    fn try_write_completed(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &[u8],
        condition: Condition,
        completion: Completion<'_>,
    ) -> Result<Written, Error> {
        self.check_sizes(key, value)?;
        self.check_completion(completion)?;
        let (Completion { lease, sequence, result }, key) = (completion, HashedKey::of(key));
        self.write_fresh(table, key, value, condition, (lease, sequence), |_| result)
    }

    /// Writes an object and its record, without a lookup: the caller must know that there is no
    /// record of this lease and sequence. `result` makes the outcome from the new version.
    ///
    /// # Errors
    /// As [`Log::write_if`].
    #[inline]
    pub fn write_recorded<R: AsRef<[u8]>>(
        &mut self,
        table: TableId,
        key: HashedKey<'_>,
        value: &[u8],
        condition: Condition,
        (lease, sequence): (LeaseId, Sequence),
        result: impl FnOnce(Version) -> R,
    ) -> Result<Written, Error> {
        debug_assert!(self.completion(lease, sequence).is_none(), "{lease}:{sequence} is done");
        let written = self.write_fresh(table, key, value, condition, (lease, sequence), result);
        self.count_mutation();
        written
    }

    #[inline]
    fn write_fresh<R: AsRef<[u8]>>(
        &mut self,
        table: TableId,
        HashedKey { key, hash }: HashedKey<'_>,
        value: &[u8],
        condition: Condition,
        (lease, sequence): (LeaseId, Sequence),
        result: impl FnOnce(Version) -> R,
    ) -> Result<Written, Error> {
        self.check_sizes(key, value)?;
        let tablet = self.tablets.find(table, hash).ok_or(Error::UnknownTablet { table })?;
        let current = self.current(tablet, hash, key);
        self.check(condition, current.as_ref())?;
        let existing = current.as_ref().map(|current| current.old.version);
        let version = self.version_after(existing)?;
        let result = result(version);
        let completion = Completion { lease, sequence, result: result.as_ref() };
        self.check_sizes(&[0], completion.result)?;
        if self.make_room_in_group(completion.result, Log::grouped_bytes(key.len(), value.len()))? {
            let payload = key.len() + value.len();
            let most = payload + 64 + OUTCOME_BYTES_MAX;
            self.admit_object(tablet, (most, payload), current.as_ref())?;
            let from = self.head.position();
            let new = NewVersion { tablet, table, hash, key, value, version };
            let position = self.put_placed(new, current)?;
            let result = completion.result;
            self.note_outcome(&Outcome { sequence, table, key_hash: hash, result }, from);
            return Ok(Written { version, position });
        }
        let most = key.len() * 2 + value.len() + completion.result.len() + 512;
        self.admit_object(tablet, (most, key.len() + value.len()), current.as_ref())?;
        self.make_room(most, self.shared.reserves.for_writes())?;

        let mark = self.head.appender.mark();
        let record = self.put_completion(table, hash, completion, LINKED)?;
        let new = NewVersion { tablet, table, hash, key, value, version };
        let put = self.put_placed(new, current);
        if put.is_err() {
            self.forget_appended(record);
            self.head.appender.rewind(mark);
        }
        Ok(Written { version, position: put? })
    }

    /// Deletes an object if a condition holds, and with it records the update. Returns the version
    /// that the object had, or `None` when there was no object; that is recorded too.
    ///
    /// # Errors
    /// As [`Log::delete`], and [`Error::AlreadyCompleted`].
    pub fn delete_completed(
        &mut self,
        table: TableId,
        key: &[u8],
        condition: Condition,
        completion: Completion<'_>,
    ) -> Result<Option<Version>, Error> {
        let deleted = self.try_delete_completed(table, key, condition, completion);
        self.count_mutation();
        deleted
    }

    fn try_delete_completed(
        &mut self,
        table: TableId,
        key: &[u8],
        condition: Condition,
        completion: Completion<'_>,
    ) -> Result<Option<Version>, Error> {
        self.check_sizes(key, &[])?;
        self.check_completion(completion)?;
        let hash = KeyHash::of(key);
        let tablet = self.tablets.find(table, hash).ok_or(Error::UnknownTablet { table })?;
        let current = self.current_for(Purpose::Replay, tablet, hash, key);
        let current = current.filter(|it| !self.has_expired(it.old.at));
        self.check(condition, current.as_ref())?;
        if self.make_room_in_group(completion.result, Log::grouped_bytes(key.len(), 0))? {
            let from = self.head.position();
            let deleted = current.map(|current| self.delete_placed(tablet, table, key, &current));
            let Completion { sequence, result, .. } = completion;
            self.note_outcome(&Outcome { sequence, table, key_hash: hash, result }, from);
            return Ok(deleted);
        }
        // A delete always finds room, and so does its record. Then there is enough room for the
        // tombstone too. Appending the tombstone fails for no other reason, so the record is never
        // left alone.
        let most = key.len() + completion.result.len() + 256;
        self.make_room(most, self.shared.reserves.for_deletes())?;
        let flag = if current.is_some() { LINKED } else { 0 };
        self.put_completion(table, hash, completion, flag)?;
        Ok(current.map(|current| self.delete_placed(tablet, table, key, &current)))
    }

    fn check_completion(&self, completion: Completion<'_>) -> Result<(), Error> {
        let Completion { lease, sequence, result } = completion;
        self.check_sizes(&[0], result)?;
        match self.completion(lease, sequence) {
            Some(_) => Err(Error::AlreadyCompleted { lease, sequence }),
            None => Ok(()),
        }
    }

    /// Appends the record of an update that wrote nothing.
    ///
    /// # Errors
    /// [`Error::UnknownTablet`], [`Error::AlreadyCompleted`], or no memory: see [`Error`].
    pub fn complete(
        &mut self,
        table: TableId,
        hash: KeyHash,
        completion: Completion<'_>,
    ) -> Result<LogPosition, Error> {
        let bytes = completion.result.len() + 64;
        let admitted = self.admit_beside(bytes as u64, 0);
        let completed = admitted.and_then(|()| self.complete_admitted(table, hash, completion));
        self.count_mutation();
        completed
    }

    /// Does so however full the memory is, for a replay.
    pub(crate) fn complete_admitted(
        &mut self,
        table: TableId,
        hash: KeyHash,
        completion: Completion<'_>,
    ) -> Result<LogPosition, Error> {
        self.check_completion(completion)?;
        self.tablets.find(table, hash).ok_or(Error::UnknownTablet { table })?;
        if self.make_room_in_group(completion.result, OUTCOME_BYTES_MAX)? {
            let (from, Completion { sequence, result, .. }) = (self.head.position(), completion);
            self.note_outcome(&Outcome { sequence, table, key_hash: hash, result }, from);
            return Ok(from);
        }
        self.make_room(completion.result.len() + 64, self.shared.reserves.for_writes())?;
        self.put_completion(table, hash, completion, 0)?;
        Ok(self.head.position())
    }

    /// Appends a record for which room was made.
    pub(crate) fn put_completion(
        &mut self,
        table: TableId,
        key_hash: KeyHash,
        completion: Completion<'_>,
        flag: u8,
    ) -> Result<AppendedRecord, Error> {
        let Completion { lease, sequence, result } = completion;
        let birth = self.head.born;
        if self.completions.unindexed.len() >= UNINDEXED_MAX {
            self.index_records();
        }
        let fields = CompletionFields { lease, sequence, table, birth, key_hash };
        let mut header = fields.header(result.len());
        header.add_flag(flag);
        let bytes = header.entry_bytes;
        let at = self.head.place(bytes);
        if header.take_in(result) {
            self.head.appender.write_small(at, &mut header, self.seal);
        } else {
            self.head.appender.write(at, &mut header, [result, &[]], self.seal);
        }
        let record = UnindexedRecord { lease, sequence, at };
        let is_unindexed = self.completions.index.promise();
        if is_unindexed {
            self.completions.unindexed.push(record);
        } else {
            // Memory is short, but the insert may need none; nor may the promised ones.
            self.index_records();
            self.index_record(&record)?;
        }
        self.head.appender.advance(bytes);
        self.live_bytes += bytes as u64;
        Ok(AppendedRecord { lease, sequence, bytes, is_unindexed })
    }

    /// Removes a record that was just appended; the head is about to be rewound.
    #[cold]
    fn forget_appended(&mut self, record: AppendedRecord) {
        let AppendedRecord { lease, sequence, bytes, is_unindexed } = record;
        if is_unindexed {
            self.completions.unindexed.pop();
            self.completions.index.redeem();
        } else {
            let removed = self.unlink_completion(lease, sequence);
            debug_assert!(removed.is_some());
        }
        debug_assert_eq!(self.completions.index.promised(), self.completions.unindexed.len());
        self.live_bytes -= bytes as u64;
    }

    fn index_record(&mut self, record: &UnindexedRecord) -> Result<(), Error> {
        let hash = CompletionFields::hash(record.lease, record.sequence);
        let inserted = self.completions.index.insert(hash, record.at, &Records(&self.memory));
        inserted.map_err(|_| Error::CleanerBehind)
    }

    /// Puts every [`UnindexedRecord`] into the index.
    #[inline]
    pub(super) fn index_records(&mut self) {
        if !self.completions.unindexed.is_empty() {
            self.index_all_records();
        }
    }

    #[inline(never)]
    fn index_all_records(&mut self) {
        debug_assert_eq!(self.completions.index.promised(), self.completions.unindexed.len());
        while let Some(record) = self.completions.unindexed.pop() {
            self.completions.index.redeem();
            let entered = self.index_record(&record);
            assert!(entered.is_ok(), "memory for it was promised");
        }
    }

    /// Forgets the unindexed records of the set bits: bit `i` stands for the sequence `base + i`.
    /// Returns the bits of the other records.
    #[inline]
    pub fn forget_unindexed(&mut self, lease: LeaseId, base: Sequence, bits: u64) -> u64 {
        let mut left = bits;
        let mut place = 0;
        while let Some(record) = self.completions.unindexed.get(place) {
            let at = record.sequence.distance_from(base);
            if record.lease != lease || at >= SPAN || left >> at & 1 == 0 {
                place += 1;
                continue;
            }
            left &= !(1 << at);
            let record = self.completions.unindexed.swap_remove(place);
            self.completions.index.redeem();
            self.bury_record(record.at);
        }
        left
    }

    /// Takes in a record at a reference in an adopted segment. False if the log already has another
    /// record of the update.
    pub(crate) fn adopt_completion(
        &mut self,
        at: Reference,
        lease: LeaseId,
        sequence: Sequence,
    ) -> Result<bool, Error> {
        self.index_records();
        let (hash, memory) = (CompletionFields::hash(lease, sequence), &*self.memory);
        let mut known = None;
        self.completions.index.find(hash, |other| {
            let same = is_single(memory, other, lease, sequence);
            known = same.then_some(other);
            same
        });
        if let Some(known) = known {
            return Ok(known == at);
        }
        if self.group_of(lease, sequence).is_some() {
            return Ok(false);
        }
        let inserted = self.completions.index.insert(hash, at, &Records(&self.memory));
        inserted.map_err(|_| Error::CleanerBehind)?;
        self.live_bytes += segment::frame(&self.memory, at).entry_bytes() as u64;
        Ok(true)
    }

    /// Returns the outcome of an update that was completed here and not yet forgotten.
    #[must_use]
    pub fn completion(&self, lease: LeaseId, sequence: Sequence) -> Option<Bytes<'_>> {
        let memory = &*self.memory;
        let mut found = None;
        if let Some(record) = self
            .completions
            .unindexed
            .iter()
            .find(|record| (record.lease, record.sequence) == (lease, sequence))
        {
            each_outcome(memory, record.at, |_, _, result| found = Some(result));
            return found;
        }
        if let Some(at) = self.group_of(lease, sequence) {
            each_outcome(memory, at, |_, outcome, result| {
                if outcome.sequence == sequence {
                    found = Some(result);
                }
            });
            return found;
        }
        self.completions.index.find(CompletionFields::hash(lease, sequence), |at| {
            let same = is_single(memory, at, lease, sequence);
            if same {
                each_outcome(memory, at, |_, _, result| found = Some(result));
            }
            same
        })?;
        found
    }

    /// Visits some records, with lease, sequence and outcome. Returns where to go on, or `None` at
    /// the end. Begin with `Cursor::default()`. Changes between the calls are as with
    /// [`Log::scan`].
    pub fn scan_completions(
        &mut self,
        cursor: Cursor,
        mut visit: impl FnMut(LeaseId, Sequence, Bytes<'_>),
    ) -> Option<Cursor> {
        self.index_records();
        self.scan_outcomes(cursor, |lease, outcome, result| visit(lease, outcome.sequence, result))
    }

    /// Visits the records of part of a table, each with the hash of its key.
    pub fn scan_completions_of(
        &mut self,
        range: TabletRange,
        cursor: Cursor,
        mut visit: impl FnMut(LeaseId, Sequence, KeyHash, Bytes<'_>),
    ) -> Option<Cursor> {
        self.index_records();
        self.scan_outcomes(cursor, |lease, outcome, result| {
            if range.contains(outcome.table, outcome.key_hash) {
                visit(lease, outcome.sequence, outcome.key_hash, result);
            }
        })
    }

    /// Visits the outcomes in some records, except outcomes that were forgotten.
    fn scan_outcomes(
        &self,
        cursor: Cursor,
        mut visit: impl FnMut(LeaseId, Outcome<'_>, Bytes<'_>),
    ) -> Option<Cursor> {
        debug_assert!(self.completions.unindexed.is_empty(), "callers index it before");
        let (memory, groups) = (&*self.memory, &self.groups);
        self.completions.index.scan(cursor, &Records(memory), |at| {
            each_outcome(memory, at, |(lease, first), outcome, result| {
                if first.is_none_or(|first| groups.wants(lease, first, outcome.sequence)) {
                    visit(lease, outcome, result);
                }
            });
        })
    }

    /// Looks at some records and forgets those whose tablet this log does not hold: of dropped
    /// tablets, and of abandoned replays. `forgotten` is called with the lease and sequence of
    /// each. Returns where to go on, or `None` at the end; begin with `Cursor::default()`.
    pub fn forget_homeless_completions(
        &mut self,
        cursor: Cursor,
        mut forgotten: impl FnMut(LeaseId, Sequence),
    ) -> Option<Cursor> {
        self.index_records();
        let tablets = &self.tablets;
        let mut homeless = Vec::new();
        let next = self.scan_outcomes(cursor, |lease, outcome, _| {
            if tablets.find(outcome.table, outcome.key_hash).is_none() {
                homeless.push((lease, outcome.sequence));
            }
        });
        for (lease, sequence) in homeless {
            if self.forget_completion(lease, sequence) {
                forgotten(lease, sequence);
            }
        }
        next
    }

    /// Forgets a record, because its client has the answer or its lease ended. True when there was
    /// one.
    pub fn forget_completion(&mut self, lease: LeaseId, sequence: Sequence) -> bool {
        self.end_noted_group();
        let forgotten = self.forget_unindexed(lease, sequence, 1) == 0
            || self.forget_of_group(lease, sequence, 1) != 0
            || self.forget_single(lease, sequence);
        if forgotten {
            self.count_mutation();
        }
        forgotten
    }

    fn forget_single(&mut self, lease: LeaseId, sequence: Sequence) -> bool {
        let Some(at) = self.unlink_completion(lease, sequence) else { return false };
        self.bury_record(at);
        true
    }

    /// Counts a record as dead that was taken out of the index.
    pub(super) fn bury_record(&mut self, at: Reference) {
        let bytes = segment::frame(&self.memory, at).entry_bytes();
        segment::mark_dead(&self.memory, at);
        self.memory.count_dead(at, bytes, 0);
        self.live_bytes -= bytes as u64;
    }

    /// Forgets any number of records of one client; returns how many there were. Their cache misses
    /// overlap.
    pub fn forget_completions(&mut self, lease: LeaseId, sequences: &[Sequence]) -> usize {
        if sequences.is_empty() {
            return 0;
        }
        self.end_noted_group();
        let mut forgotten = 0;
        let mut singles = [Sequence::NONE; BATCH];
        for batch in sequences.chunks(BATCH) {
            let mut count = 0;
            for sequence in batch {
                if self.forget_unindexed(lease, *sequence, 1) == 0
                    || self.forget_of_group(lease, *sequence, 1) != 0
                {
                    forgotten += 1;
                } else {
                    singles[count] = *sequence;
                    count += 1;
                }
            }
            forgotten += self.forget_singles(lease, &singles[..count]);
        }
        self.count_mutation();
        forgotten
    }

    /// Forgets the records of the set bits: bit `i` stands for the sequence `base + i`. Returns how
    /// many entries of the log that took: fewer than records if some were recorded together.
    pub fn forget_some(&mut self, lease: LeaseId, base: Sequence, bits: u64) -> usize {
        self.end_noted_group();
        let mut left = self.forget_unindexed(lease, base, bits);
        let mut entries = (bits ^ left).count_ones() as usize;
        let mut singles = [Sequence::NONE; u64::BITS as usize];
        let mut count = 0;
        while left != 0 {
            let at = left.trailing_zeros();
            let sequence = base.plus(u64::from(at));
            let of_group = self.forget_of_group(lease, sequence, left >> at) << at;
            if of_group == 0 {
                singles[count] = sequence;
                count += 1;
                left &= left - 1;
            } else {
                left &= !of_group;
                entries += 1;
            }
        }
        entries += self.forget_singles(lease, &singles[..count]);
        self.count_mutation();
        entries
    }

    fn forget_singles(&mut self, lease: LeaseId, sequences: &[Sequence]) -> usize {
        for sequence in sequences {
            let hash = CompletionFields::hash(lease, *sequence);
            if let Candidate::At(at) = self.completions.index.lookup(hash).candidate() {
                crate::prefetch::read(self.memory.at(at));
            }
        }
        let mut forgotten = 0;
        for sequence in sequences {
            forgotten += usize::from(self.forget_single(lease, *sequence));
        }
        forgotten
    }

    fn unlink_completion(&mut self, lease: LeaseId, sequence: Sequence) -> Option<Reference> {
        let memory = &*self.memory;
        let hash = CompletionFields::hash(lease, sequence);
        let found =
            self.completions.index.find(hash, |at| is_single(memory, at, lease, sequence))?;
        Some(self.completions.index.remove(found))
    }
}

/// A record that was just appended.
pub(crate) struct AppendedRecord {
    lease: LeaseId,
    sequence: Sequence,
    bytes: usize,
    is_unindexed: bool,
}

/// The completion records of a log.
pub(super) struct CompletionIndex {
    /// Memory in it is promised to each unindexed record.
    pub(super) index: Index<IndexBlocks>,
    pub(super) unindexed: Vec<UnindexedRecord>,
}

/// A completion record that is in the log and not yet in the index of records.
pub(super) struct UnindexedRecord {
    lease: LeaseId,
    sequence: Sequence,
    at: Reference,
}

/// The entries of the index of completion records.
pub(super) struct Records<'a>(pub(super) &'a Memory);

impl Entries for Records<'_> {
    fn hash(&self, reference: Reference) -> u64 {
        let frame = segment::frame(self.0, reference);
        let body = segment::body_start(self.0, reference, &frame);
        CompletionFields::hash_of(body).expect("the index holds whole records")
    }

    fn prefetch(&self, reference: Reference) {
        crate::prefetch::read(self.0.at(reference));
    }
}

/// Whether the record at a reference, which the index of records holds, is of a kind and begins
/// with this lease and sequence.
#[inline]
fn is_record(
    memory: &Memory,
    at: Reference,
    kind: Kind,
    lease: LeaseId,
    sequence: Sequence,
) -> bool {
    let frame = segment::frame(memory, at);
    let mut reader = Reader::new(segment::body_start(memory, at, &frame));
    Kind::of(frame.flags) == Some(kind)
        && reader.varint() == Some(lease.0)
        && reader.varint() == Some(sequence.0)
}

/// Whether it is the record of one update.
#[inline]
fn is_single(memory: &Memory, at: Reference, lease: LeaseId, sequence: Sequence) -> bool {
    is_record(memory, at, Kind::Completion, lease, sequence)
}

/// Whether it is the record of a group that begins with a sequence.
#[inline]
pub(super) fn is_group(memory: &Memory, at: Reference, lease: LeaseId, first: Sequence) -> bool {
    is_record(memory, at, Kind::Completions, lease, first)
}

/// Visits the outcomes of the record at a reference, each with the record's lease and, for a group,
/// the group's first sequence.
fn each_outcome<'a>(
    memory: &'a Memory,
    at: Reference,
    mut visit: impl FnMut((LeaseId, Option<Sequence>), Outcome<'_>, Bytes<'a>),
) {
    let frame = segment::frame(memory, at);
    let body = Bytes::within(memory, at, frame.body_at, frame.body_bytes);
    let copy;
    let bytes = match body.as_slice() {
        Some(slice) => slice,
        None => {
            copy = body.to_vec();
            &copy
        }
    };
    let part =
        |begins: usize, length: usize| Bytes::within(memory, at, frame.body_at + begins, length);
    if Kind::of(frame.flags) == Some(Kind::Completions) {
        let (fields, mut outcomes) = Outcomes::read(bytes).expect("the index holds whole records");
        let begins = outcomes.begin_behind(bytes);
        while let Some((outcome, result_at)) = outcomes.next_at() {
            let result = part(begins + result_at, outcome.result.len());
            visit((fields.lease, Some(fields.first)), outcome, result);
        }
        return;
    }
    let (fields, begins) = CompletionFields::read(bytes).expect("the index holds whole records");
    let CompletionFields { lease, sequence, table, key_hash, .. } = fields;
    let result = &bytes[begins..];
    let outcome = Outcome { sequence, table, key_hash, result };
    visit((lease, None), outcome, part(begins, result.len()));
}
