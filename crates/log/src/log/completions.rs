//! Completion records: the outcomes of updates, kept until their client has seen them.
//!
//! A server that updates an object for a client logs the outcome with it, under the client's
//! lease and the update's sequence number. When the client asks again, the answer is found and
//! the effect not repeated. The records live in the log like objects do: the cleaner moves them,
//! a recovery finds them, and they belong to the tablet of the key that they are about.
//!
//! [`Log::write_completed`] appends record and object so that a recovery sees both or neither:
//! the record is marked as *linked* to the entry behind it, and counts only with that one. When
//! either finds no place in its index, the head's end has not moved and nothing has happened.

use super::Log;
use super::write::{NewVersion, Written, check};
use crate::entry::{CompletionFields, LINKED};
use crate::error::Error;
use crate::index::{Candidate, Cursor, Entries};
use crate::limits::BATCH;
use crate::memory::{Memory, Reference};
use crate::object::Bytes;
use crate::segment;
use thunderhead_wire::{Condition, KeyHash, LogPosition, TableId, TabletRange, Version};

/// Names an update of a client, and holds its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion<'a> {
    /// The client's lease.
    pub lease: u64,
    /// The number that the client gave the update.
    pub sequence: u64,
    /// The outcome, in whatever form the server answers with.
    pub result: &'a [u8],
}

impl Log {
    /// Writes an object if a condition holds, and with it the record that it was done.
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
        let Completion { lease, sequence, result } = completion;
        self.write_fresh(table, key, value, condition, (lease, sequence), |_| result)
    }

    /// The same for a caller who knows that there is no record of this lease and sequence, so that
    /// nobody looks for it; and whose outcome needs the new version, which `result` is told.
    ///
    /// # Errors
    /// As [`Log::write_if`].
    #[inline]
    pub fn write_recorded<R: AsRef<[u8]>>(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &[u8],
        condition: Condition,
        (lease, sequence): (u64, u64),
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
        key: &[u8],
        value: &[u8],
        condition: Condition,
        (lease, sequence): (u64, u64),
        result: impl FnOnce(Version) -> R,
    ) -> Result<Written, Error> {
        self.check_sizes(key, value)?;
        let hash = KeyHash::of(key);
        let tablet = self.tablets.find(table, hash).ok_or(Error::UnknownTablet { table })?;
        let current = self.current(tablet, hash, key);
        let existing = current.as_ref().map(|current| current.entry.fields.version);
        check(condition, existing.unwrap_or(Version::NONE))?;
        let version = self.version_after(existing)?;
        let result = result(version);
        let completion = Completion { lease, sequence, result: result.as_ref() };
        self.check_sizes(&[0], completion.result)?;
        let most = key.len() * 2 + value.len() + completion.result.len() + 512;
        let old_bytes = current.as_ref().map_or(0, |current| current.entry.entry_bytes());
        self.admit(most as u64, old_bytes as u64)?;
        self.make_room(most, self.shared.reserves.for_writes())?;

        let mark = self.head.appender.mark();
        let record = self.put_completion(table, hash, completion, LINKED)?;
        let new = NewVersion { tablet, table, hash, key, value, version };
        let put = self.put_placed(new, current);
        if put.is_err() {
            self.forget_completion_at(record);
            self.head.appender.rewind(mark);
        }
        Ok(Written { version, position: put? })
    }

    /// Deletes an object if a condition holds, and with it records that it was done. Returns the
    /// version it had, or `None` when there was none; that is recorded too.
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
        let current = self.current(tablet, hash, key);
        let existing = current.as_ref().map(|current| current.entry.fields.version);
        check(condition, existing.unwrap_or(Version::NONE))?;
        // A delete always finds room, and so does what says that it was done. There is then enough
        // for the tombstone too, which fails for no other reason and so never leaves the record
        // alone.
        let most = key.len() + completion.result.len() + 256;
        self.make_room(most, self.shared.reserves.for_deletes())?;
        let flag = if existing.is_some() { LINKED } else { 0 };
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
        let admitted = self.admit(bytes as u64, 0);
        let completed = admitted.and_then(|()| self.complete_admitted(table, hash, completion));
        self.count_mutation();
        completed
    }

    /// The same however full the memory is, for a replay.
    pub(crate) fn complete_admitted(
        &mut self,
        table: TableId,
        hash: KeyHash,
        completion: Completion<'_>,
    ) -> Result<LogPosition, Error> {
        self.check_completion(completion)?;
        self.tablets.find(table, hash).ok_or(Error::UnknownTablet { table })?;
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
    ) -> Result<Record, Error> {
        let Completion { lease, sequence, result } = completion;
        let birth = self.head.id();
        let fields = CompletionFields { lease, sequence, table, birth, key_hash };
        let mut header = fields.header(result.len());
        header.add_flag(flag);
        let bytes = header.entry_bytes;
        let at = self.head.place(bytes);
        self.head.appender.write(at, &mut header, [result, &[]], self.seal);
        self.completions
            .insert(fields.index_hash(), at, &Records(&self.memory))
            .map_err(|_| Error::CleanerBehind)?;
        self.head.appender.advance(bytes);
        self.live_bytes += bytes as u64;
        Ok(Record { lease, sequence, bytes })
    }

    /// Takes in the record that lies at a reference, in a segment that is adopted. False where there
    /// is another one of this update.
    pub(crate) fn adopt_completion(&mut self, at: Reference) -> Result<bool, Error> {
        let frame = segment::frame(&self.memory, at);
        let (fields, _) = completion_at(&self.memory, at);
        let hash = CompletionFields::hash(fields.lease, fields.sequence);
        let mut known = None;
        let memory = &*self.memory;
        self.completions.find(hash, |at| {
            let (other, _) = completion_at(memory, at);
            let same = (other.lease, other.sequence) == (fields.lease, fields.sequence);
            known = same.then_some(at);
            same
        });
        if let Some(known) = known {
            return Ok(known == at);
        }
        let inserted = self.completions.insert(fields.index_hash(), at, &Records(&self.memory));
        inserted.map_err(|_| Error::CleanerBehind)?;
        self.live_bytes += frame.entry_bytes() as u64;
        Ok(true)
    }

    /// Takes a record that was just appended out of the index; the head is about to be rewound.
    fn forget_completion_at(&mut self, record: Record) {
        let Record { lease, sequence, bytes } = record;
        let removed = self.unlink_completion(lease, sequence);
        debug_assert!(removed.is_some());
        self.live_bytes -= bytes as u64;
    }

    /// The outcome of an update, if it was completed here and not yet forgotten.
    #[must_use]
    pub fn completion(&self, lease: u64, sequence: u64) -> Option<Bytes<'_>> {
        let memory = &*self.memory;
        let mut found = None;
        self.completions.find(CompletionFields::hash(lease, sequence), |at| {
            let (fields, result) = completion_at(memory, at);
            let same = fields.lease == lease && fields.sequence == sequence;
            found = same.then_some(result);
            same
        })?;
        found
    }

    /// Visits some records, with lease, sequence and outcome, and returns where to go on, or `None`
    /// at the end. Begin with `Cursor::default()`. As [`Log::scan`] does for objects.
    pub fn scan_completions(
        &self,
        cursor: Cursor,
        mut visit: impl FnMut(u64, u64, Bytes<'_>),
    ) -> Option<Cursor> {
        let memory = &*self.memory;
        self.completions.scan(cursor, &Records(memory), |at| {
            let (fields, result) = completion_at(memory, at);
            visit(fields.lease, fields.sequence, result);
        })
    }

    /// The same for those of part of a table, with the hash of the key that each is about.
    pub fn scan_completions_of(
        &self,
        range: TabletRange,
        cursor: Cursor,
        mut visit: impl FnMut(u64, u64, KeyHash, Bytes<'_>),
    ) -> Option<Cursor> {
        let memory = &*self.memory;
        self.completions.scan(cursor, &Records(memory), |at| {
            let (fields, result) = completion_at(memory, at);
            if range.contains(fields.table, fields.key_hash) {
                visit(fields.lease, fields.sequence, fields.key_hash, result);
            }
        })
    }

    /// Looks at some records and forgets those of tablets that do not live here: of dropped ones, and
    /// of a replay that was given up. `forgotten` is told their lease and sequence. Returns where to
    /// go on, or `None` at the end; begin with `Cursor::default()`.
    pub fn forget_homeless_completions(
        &mut self,
        cursor: Cursor,
        mut forgotten: impl FnMut(u64, u64),
    ) -> Option<Cursor> {
        let (memory, tablets) = (&*self.memory, &self.tablets);
        let mut homeless = Vec::new();
        let next = self.completions.scan(cursor, &Records(memory), |at| {
            let (fields, _) = completion_at(memory, at);
            if tablets.find(fields.table, fields.key_hash).is_none() {
                homeless.push((fields.lease, fields.sequence));
            }
        });
        for (lease, sequence) in homeless {
            if self.forget_completion(lease, sequence) {
                forgotten(lease, sequence);
            }
        }
        next
    }

    /// Forgets a record: its client has the answer, or is gone. True when there was one.
    pub fn forget_completion(&mut self, lease: u64, sequence: u64) -> bool {
        let Some(at) = self.unlink_completion(lease, sequence) else { return false };
        let bytes = segment::frame(&self.memory, at).entry_bytes();
        segment::mark_dead(&self.memory, at);
        self.memory.count_dead(at, bytes, 0);
        self.live_bytes -= bytes as u64;
        self.count_mutation();
        true
    }

    /// Forgets records of one client, any number of them; says how many there were. Their misses
    /// overlap.
    pub fn forget_completions(&mut self, lease: u64, sequences: &[u64]) -> usize {
        let mut forgotten = 0;
        for batch in sequences.chunks(BATCH) {
            for sequence in batch {
                let hash = CompletionFields::hash(lease, *sequence);
                if let Candidate::At(at) = self.completions.candidate(hash) {
                    crate::prefetch::read(self.memory.at(at));
                }
            }
            for sequence in batch {
                forgotten += usize::from(self.forget_completion(lease, *sequence));
            }
        }
        forgotten
    }

    fn unlink_completion(&mut self, lease: u64, sequence: u64) -> Option<Reference> {
        let memory = &*self.memory;
        let found = self.completions.find(CompletionFields::hash(lease, sequence), |at| {
            let (fields, _) = completion_at(memory, at);
            fields.lease == lease && fields.sequence == sequence
        })?;
        Some(self.completions.remove(found))
    }
}

/// A record that was appended.
pub(crate) struct Record {
    lease: u64,
    sequence: u64,
    bytes: usize,
}

/// The entries of the index of completion records.
struct Records<'a>(&'a Memory);

impl Entries for Records<'_> {
    fn hash(&self, reference: Reference) -> u64 {
        completion_at(self.0, reference).0.index_hash()
    }

    fn prefetch(&self, reference: Reference) {
        crate::prefetch::read(self.0.at(reference));
    }
}

/// The completion record at a reference, which the index of records holds.
fn completion_at(memory: &Memory, at: Reference) -> (CompletionFields, Bytes<'_>) {
    let frame = segment::frame(memory, at);
    let body = segment::body_start(memory, at, &frame);
    let (fields, begins) = CompletionFields::read(body).expect("the index holds whole records");
    let length = frame.body_bytes - begins;
    (fields, Bytes::within(memory, at, frame.body_at + begins, length))
}
