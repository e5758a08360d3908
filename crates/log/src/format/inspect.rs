//! Reads unverified bytes of a segment: from a backup, a file, a network.
//!
//! [`SegmentReader`] yields every entry whose checksum holds and reports every damage that it
//! meets. It never panics, and never allocates by a length that it has read.
//!
//! **After damage** the reader goes on where an entry certainly begins: right behind the damaged
//! entry if that leads to an entry that verifies (or to the end), else at the next seglet boundary
//! where an entry verifies. Small entries never cross a boundary, so one flipped bit loses at most
//! a seglet's worth of them. The reader never takes other bytes for an entry: a checksum is mixed
//! with the log's id, which no client knows, so bytes inside a value do not verify.

mod scan;

pub use scan::Scan;

use super::entry::{
    CompletionFields, DEAD, EXTRA, FRAME_BYTES, Frame, KIND_BITS, Kind, LINKED, ObjectFields, Seal,
};
use super::metadata::{self, Digest, SegmentHeader, TabletStatistics};
use super::outcomes::CHAIN_MAX;
pub use super::outcomes::{Outcome, Outcomes};
use crate::error::Damage;
use std::collections::VecDeque;
use thunderhead_wire::{
    Attributes, EncodedAttributes, KeyHash, LeaseId, SegmentId, Sequence, TableId, Timestamp,
    ValueKind, Version,
};

/// An entry whose checksum holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Entry<'a> {
    /// An object.
    Object(Record<'a>),
    /// A tombstone: all versions of the key up to the record's are dead.
    Tombstone(Record<'a>),
    /// The outcome of an update.
    Completion {
        /// The client's lease.
        lease: LeaseId,
        /// The update's number.
        sequence: Sequence,
        /// The table of the key that was updated.
        table: TableId,
        /// The hash of that key.
        key_hash: KeyHash,
        /// The head segment at the time when the record was first appended.
        birth: SegmentId,
        /// The outcome.
        result: &'a [u8],
    },
    /// The outcomes of several updates of one client.
    Completions {
        /// The client's lease.
        lease: LeaseId,
        /// The head segment at the time when the record was first appended.
        birth: SegmentId,
        /// The outcomes.
        outcomes: Outcomes<'a>,
    },
    /// The segment's header.
    Header(SegmentHeader),
    /// The segments that make up the log.
    Digest(Digest),
    /// A version that no deleted object exceeds.
    SafeVersion(Version),
    /// A time that the log's clock has reached.
    ClockMark(Timestamp),
    /// The contents of each tablet.
    Statistics(Vec<TabletStatistics>),
    /// An entry of no use, or of a newer kind that may be skipped.
    Skipped(u8),
}

/// An object or a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The table.
    pub table: TableId,
    /// The key.
    pub key: &'a [u8],
    /// The object's version; for a tombstone, the newest version that it kills.
    pub version: Version,
    /// The head segment at the time when it was first appended.
    pub birth: SegmentId,
    /// The segment that held the version before; for a tombstone, the segment it guards against.
    pub prior: Option<SegmentId>,
    /// The kind of the value; bytes for a tombstone.
    pub kind: ValueKind,
    /// Its attributes; none for a tombstone.
    pub attributes: EncodedAttributes,
    /// The value; empty for a tombstone.
    pub value: &'a [u8],
}

/// An entry and where it begins in the segment.
pub type Placed<'a> = (u32, Entry<'a>);

/// Walks over the entries of a segment's bytes. See the module's documentation.
pub struct SegmentReader<'a> {
    bytes: &'a [u8],
    header: SegmentHeader,
    seal: Seal,
    at: usize,
    /// Entries that were read together with a linked entry.
    ready: VecDeque<Placed<'a>>,
    /// The checksums were verified before.
    trusts: bool,
}

/// An entry, with its flags and, if it ends a chain of a known length, the number of entries that
/// must be linked to it.
struct Step<'a> {
    placed: Placed<'a>,
    is_linked: bool,
    wants: Option<u64>,
}

impl<'a> SegmentReader<'a> {
    /// Begins to read a segment.
    ///
    /// # Errors
    /// When the bytes do not begin with an intact header of a format that this version knows.
    pub fn new(bytes: &'a [u8]) -> Result<SegmentReader<'a>, Damage> {
        let frame = Frame::decode(bytes, 0).map_err(|_| Damage::NoHeader)?;
        if Kind::of(frame.flags) != Some(Kind::SegmentHeader) {
            return Err(Damage::NoHeader);
        }
        let body = bytes.get(frame.body_at..frame.entry_bytes()).ok_or(Damage::NoHeader)?;
        // The format is checked before the checksum: a newer format may compute another checksum.
        let header = SegmentHeader::decode(body)?;
        let seal = Seal::new(header.log);
        if !verifies(seal, bytes, 0, &frame) {
            return Err(Damage::Checksum { offset: 0 });
        }
        Ok(SegmentReader { bytes, header, seal, at: 0, ready: VecDeque::new(), trusts: false })
    }

    /// Reads bytes that were read to their end before, without damage: their checksums are not
    /// verified again.
    ///
    /// # Errors
    /// As [`SegmentReader::new`].
    pub(crate) fn once_more(bytes: &'a [u8]) -> Result<SegmentReader<'a>, Damage> {
        Ok(SegmentReader { trusts: true, ..SegmentReader::new(bytes)? })
    }

    /// Begins to read the bytes of a certain segment.
    ///
    /// # Errors
    /// As [`SegmentReader::new`], and when the bytes are of another segment.
    pub fn of(segment: SegmentId, bytes: &'a [u8]) -> Result<SegmentReader<'a>, Damage> {
        let reader = SegmentReader::new(bytes)?;
        let found = reader.header.segment;
        if found != segment {
            return Err(Damage::OtherSegment { found, expected: segment });
        }
        Ok(reader)
    }

    /// The segment's header.
    #[must_use]
    pub fn header(&self) -> &SegmentHeader {
        &self.header
    }

    /// Goes on at a place that [`SegmentReader::place`] gave for the same bytes.
    pub fn go_on_at(&mut self, place: u32) {
        self.at = place as usize;
        self.ready.clear();
    }

    /// The place of the next entry; `None` between entries that belong together.
    #[must_use]
    pub fn place(&self) -> Option<u32> {
        if self.ready.is_empty() { u32::try_from(self.at).ok() } else { None }
    }

    /// The frame of a verified entry at a place, or the damage there.
    #[inline(always)]
    fn frame(&self, at: usize) -> Result<Frame, Damage> {
        let offset = at as u32;
        let frame = Frame::decode(&self.bytes[at..], offset)?;
        if frame.entry_bytes() > self.bytes.len() - at {
            return Err(Damage::Torn { offset });
        }
        if !self.trusts && !verifies(self.seal, self.bytes, at, &frame) {
            return Err(Damage::Checksum { offset });
        }
        Ok(frame)
    }

    fn boundary_after(&self, at: usize) -> usize {
        let seglet_bytes = self.header.seglet_bytes as usize;
        (at / seglet_bytes + 1) * seglet_bytes
    }

    /// Moves to the place where reading can go on after damage.
    fn resume_after(&mut self, damaged: usize) {
        if let Ok(frame) = Frame::decode(&self.bytes[damaged..], 0) {
            let behind = damaged + frame.entry_bytes();
            if behind <= self.bytes.len() && self.is_plausible(behind) {
                self.at = behind;
                return;
            }
        }
        let mut at = self.boundary_after(damaged);
        while at < self.bytes.len() && self.frame(at).is_err() {
            at = self.boundary_after(at);
        }
        self.at = at.min(self.bytes.len());
    }

    /// Whether an entry verifies at a place, or a filling or the end is there.
    fn is_plausible(&self, at: usize) -> bool {
        match self.bytes.get(at) {
            None => true,
            Some(0) => self
                .filling_ends(at)
                .is_some_and(|end| end == self.bytes.len() || self.frame(end).is_ok()),
            Some(_) => self.frame(at).is_ok(),
        }
    }

    /// The end of the zero bytes from a place on, if they reach a seglet's end or the segment's.
    fn filling_ends(&self, at: usize) -> Option<usize> {
        let end = self.boundary_after(at).min(self.bytes.len());
        self.bytes[at..end].iter().all(|byte| *byte == 0).then_some(end)
    }

    /// The next entry, if it is an object that is not linked: this reads such objects in fewer
    /// steps. After `None`, call [`Iterator::next`].
    #[inline(always)]
    pub(crate) fn next_object(&mut self) -> Option<(u32, Record<'a>)> {
        let at = self.at;
        let flags = *self.bytes.get(at)?;
        if !self.ready.is_empty() || flags & (KIND_BITS | LINKED) != Kind::Object as u8 {
            return None;
        }
        let frame = self.frame(at).ok()?;
        let behind = at + frame.entry_bytes();
        let record = record(&frame, self.bytes.get(at + frame.body_at..behind)?)?;
        self.at = behind;
        Some((at as u32, record))
    }

    fn step(&mut self) -> Option<Result<Step<'a>, Damage>> {
        loop {
            let at = self.at;
            let offset = at as u32;
            if *self.bytes.get(at)? == 0 {
                match self.filling_ends(at) {
                    Some(end) => self.at = end,
                    None => {
                        self.resume_after(at);
                        return Some(Err(Damage::Checksum { offset }));
                    }
                }
                continue;
            }
            let frame = match self.frame(at) {
                Ok(frame) => frame,
                Err(damage) => {
                    self.resume_after(at);
                    return Some(Err(damage));
                }
            };
            self.at = at + frame.entry_bytes();
            let body = &self.bytes[at + frame.body_at..self.at];
            return Some(decode(&frame, body, offset).map(|(entry, wants)| Step {
                placed: (offset, entry),
                is_linked: frame.flags & LINKED != 0,
                wants,
            }));
        }
    }

    /// Reads on behind a linked entry up to the last of its chain: they count together or not at
    /// all.
    #[cold]
    fn chain(&mut self, first: Placed<'a>) -> Result<Placed<'a>, Damage> {
        let begins = first.0;
        let mut before = VecDeque::new();
        loop {
            // If the chain is torn, or an entry of it is damaged, the entries before do not count.
            let step = self.step().unwrap_or(Err(Damage::Torn { offset: begins }))?;
            let Step { placed, is_linked, wants } = step;
            let offset = placed.0;
            before.push_back(placed);
            let count = before.len() as u64;
            if wants.is_some_and(|wants| is_linked || wants != count) || before.len() >= CHAIN_MAX {
                return Err(Damage::Field { offset, field: "links" });
            }
            if !is_linked {
                self.ready = before;
                return Ok(first);
            }
        }
    }
}

impl<'a> Iterator for SegmentReader<'a> {
    type Item = Result<Placed<'a>, Damage>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if let Some(ready) = self.ready.pop_front() {
            return Some(Ok(ready));
        }
        let step = match self.step()? {
            Ok(step) => step,
            Err(damage) => return Some(Err(damage)),
        };
        if step.is_linked {
            return Some(self.chain(step.placed));
        }
        if step.wants.is_some() {
            // The entries that must be linked to it are missing.
            return Some(Err(Damage::Field { offset: step.placed.0, field: "links" }));
        }
        Some(Ok(step.placed))
    }
}

#[inline]
fn verifies(seal: Seal, bytes: &[u8], at: usize, frame: &Frame) -> bool {
    let (Some(checksum), Some(sealed)) = (
        bytes.get(at + 1..at + FRAME_BYTES),
        bytes.get(at + FRAME_BYTES..at + frame.entry_bytes()),
    ) else {
        return false;
    };
    checksum == seal.of(frame.flags & !DEAD, sealed).to_le_bytes()
        || verifies_unused(seal, frame.flags, sealed, checksum)
}

/// Whether the checksum is that of an item which was read since: a replica may have its count.
#[cold]
#[inline(never)]
fn verifies_unused(seal: Seal, flags: u8, sealed: &[u8], checksum: &[u8]) -> bool {
    Kind::is_item(flags) && checksum == seal.of(super::entry::unused(flags), sealed).to_le_bytes()
}

/// An entry, and the number of entries that must be linked to it, if it counts only with them.
fn decode<'a>(
    frame: &Frame,
    body: &'a [u8],
    offset: u32,
) -> Result<(Entry<'a>, Option<u64>), Damage> {
    let field = |field| Damage::Field { offset, field };
    let Some(kind) = Kind::of(frame.flags) else {
        let kind = frame.flags & KIND_BITS;
        if Kind::may_be_skipped(frame.flags) {
            return Ok((Entry::Skipped(kind), None));
        }
        return Err(Damage::UnknownKind { offset, kind });
    };
    let mut wants = None;
    let entry = match kind {
        Kind::Object => Entry::Object(record(frame, body).ok_or(field("object"))?),
        Kind::Integer | Kind::Float => {
            let mut record = record(frame, body).ok_or(field("number"))?;
            record.kind = Kind::value_kind(frame.flags);
            if !record.kind.has_size(record.value.len()) {
                return Err(field("number"));
            }
            Entry::Object(record)
        }
        Kind::Item => {
            let mut record = record(frame, body).ok_or(field("item"))?;
            let decoded = Attributes::decode(record.value).ok_or(field("attributes"))?;
            let (kind, attributes, bytes) = decoded;
            (record.kind, record.attributes) = (kind, EncodedAttributes::of(&attributes));
            record.value = record.value.get(bytes..).unwrap_or_default();
            if !kind.has_size(record.value.len()) {
                return Err(field("number"));
            }
            Entry::Object(record)
        }
        Kind::Tombstone => {
            let mut record = record(frame, body).ok_or(field("tombstone"))?;
            record.value = &[]; // The remains of an object that became a tombstone in place.
            Entry::Tombstone(record)
        }
        Kind::Completion => {
            let (fields, begins) =
                CompletionFields::read(body).ok_or(field("completion record"))?;
            Entry::Completion {
                lease: fields.lease,
                sequence: fields.sequence,
                table: fields.table,
                key_hash: fields.key_hash,
                birth: fields.birth,
                result: &body[begins..],
            }
        }
        Kind::Completions => {
            let (fields, outcomes) = Outcomes::read(body).ok_or(field("completion records"))?;
            wants = (frame.flags & EXTRA != 0).then_some(fields.effects);
            Entry::Completions { lease: fields.lease, birth: fields.birth, outcomes }
        }
        Kind::SegmentHeader => Entry::Header(SegmentHeader::decode(body)?),
        Kind::Digest => Entry::Digest(metadata::decode_digest(body).ok_or(field("digest"))?),
        Kind::SafeVersion => {
            let version = metadata::decode_safe_version(body);
            let version = version.filter(|version| *version <= Version::HIGHEST);
            Entry::SafeVersion(version.ok_or(field("safe version"))?)
        }
        Kind::ClockMark => {
            let ends_chain = frame.flags & EXTRA != 0;
            let decoded = metadata::decode_clock_mark(body, ends_chain);
            let (time, entries) = decoded.ok_or(field("clock mark"))?;
            wants = entries;
            Entry::ClockMark(time)
        }
        Kind::TabletStatistics => {
            Entry::Statistics(metadata::decode_statistics(body).ok_or(field("tablet statistics"))?)
        }
        Kind::Void => Entry::Skipped(kind as u8),
    };
    Ok((entry, wants))
}

#[inline(always)]
fn record<'a>(frame: &Frame, body: &'a [u8]) -> Option<Record<'a>> {
    let (fields, key_at, key_bytes) = ObjectFields::read_keyed(frame.flags, body)?;
    let behind_key = key_at.checked_add(key_bytes)?;
    let key = body.get(key_at..behind_key)?;
    let ObjectFields { table, version, birth, prior } = fields;
    // Values are stored as they came; keys have limits that a damaged length would exceed.
    let versions = Version::NONE.next()..=Version::HIGHEST;
    if key.is_empty() || key.len() > crate::limits::KEY_BYTES_MAX || !versions.contains(&version) {
        return None;
    }
    let (kind, attributes) = (ValueKind::Bytes, EncodedAttributes::NONE);
    let value = &body[behind_key..];
    Some(Record { table, key, version, birth, prior, kind, attributes, value })
}
