//! Cuts a segment into partitions: what belongs to each of several who rebuild parts of one log.
//!
//! A [`Part`] is a segment, too. [`Rebuild`](crate::Rebuild) makes of it what it makes of the whole
//! segment when it is given the partition's tablets: it begins with the segment's header, and has
//! behind it the entries of the partition, byte for byte, so that their checksums hold wherever they
//! lie, every safe version, and of digests what they say of survivors that none of them names. Entries
//! that count only together stay together: of a record of several outcomes each partition gets its own,
//! made anew, behind those of the linked entries that it gets. What no replay needs is left out: the
//! segments that digests name, statistics, bytes without meaning, the filling between seglets, and
//! entries that belong to nobody or to a former life of a tablet.
//!
//! **Damage.** Nothing is cut out of a damaged segment: another copy of it has everything. Only the end
//! of one that was open may be missing in the midst of an entry; then the parts hold what is before.
//!
//! **In steps.** A [`Filter`] looks at so many entries and writes so many bytes at a time, and a large
//! entry is copied in several steps. A part grows by pieces of memory that never move.

mod part;

pub use part::Part;

use crate::entry::Frame;
use crate::error::Damage;
use crate::inspect::{Entry, SegmentReader};
use crate::metadata;
use crate::outcomes::{self, Outcome, Outcomes};
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use thunderhead_wire::{KeyHash, LogId, SegmentId, TableId, TabletRange};

/// Who gets which tablets.
#[derive(Clone, Debug)]
pub struct Partitions {
    count: u32,
    /// By table and first hash; no two of them overlap.
    ranges: Vec<Owned>,
}

#[derive(Clone, Copy, Debug)]
struct Owned {
    range: TabletRange,
    since: SegmentId,
    partition: u32,
}

impl Partitions {
    /// Partitions, each with its tablets and with the segment from which on the entries of each count.
    /// `None` where two tablets overlap, or one has no hashes.
    #[must_use]
    pub fn new(partitions: &[Vec<(TabletRange, SegmentId)>]) -> Option<Partitions> {
        let mut ranges: Vec<Owned> = Vec::new();
        for (partition, tablets) in (0u32..).zip(partitions) {
            let owned = |&(range, since)| Owned { range, since, partition };
            ranges.extend(tablets.iter().map(owned));
        }
        ranges.sort_unstable_by_key(|it| (it.range.table, it.range.first));
        let is_empty = |it: &Owned| it.range.first > it.range.last;
        let overlap = |pair: &[Owned]| matches!(pair, [a, b] if a.range.overlaps(&b.range));
        let possible = !ranges.iter().any(is_empty) && !ranges.windows(2).any(overlap);
        let count = u32::try_from(partitions.len()).ok()?;
        possible.then_some(Partitions { count, ranges })
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whose an entry is.
    #[inline]
    fn owner(&self, table: TableId, hash: KeyHash, birth: SegmentId) -> Option<u32> {
        let behind =
            self.ranges.partition_point(|it| (it.range.table, it.range.first) <= (table, hash));
        let it = self.ranges.get(behind.checked_sub(1)?)?;
        (it.range.contains(table, hash) && birth >= it.since).then_some(it.partition)
    }
}

/// Who gets an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    Nobody,
    One(u32),
    /// All from this one on.
    From(u32),
}

/// What goes into a part.
#[derive(Clone, Debug)]
enum Piece {
    /// Bytes of the segment.
    Old(Range<usize>),
    /// An entry that was made for a part, or what is left of it.
    New(Vec<u8>),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Piece::Old(range) => range.len(),
            Piece::New(made) => made.len(),
        }
    }

    /// Its bytes, up to so many.
    fn front<'a>(&'a self, bytes: &'a [u8], most: usize) -> &'a [u8] {
        let all = match self {
            Piece::Old(range) => bytes.get(range.clone()).unwrap_or_default(),
            Piece::New(made) => made,
        };
        all.get(..most).unwrap_or(all)
    }

    /// What is behind so many bytes of it.
    fn behind(self, count: usize) -> Piece {
        match self {
            Piece::Old(range) => Piece::Old(range.start + count..range.end),
            Piece::New(made) => Piece::New(made.get(count..).unwrap_or_default().to_vec()),
        }
    }
}

/// What a step has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Entries that were looked at.
    pub entries: usize,
    /// Bytes that were read, and those that were written.
    pub bytes: usize,
    /// There is more to do.
    pub more: bool,
}

/// A segment on its way into parts. See the [module](self).
pub struct Filter {
    segment: SegmentId,
    at: u32,
    at_end: bool,
    parts: Vec<Part>,
    /// Which of them are wanted; all, if nothing is said.
    wanted: Option<BTreeSet<u32>>,
    /// What is to be copied before anything more is looked at.
    copies: VecDeque<(Piece, To)>,
    torn: Option<Damage>,
}

/// A segment that was cut.
#[derive(Clone, Debug)]
pub struct Cut {
    /// The parts, by partition. Of those that were not wanted there is nothing, not even a header.
    pub parts: Vec<Part>,
    /// How the segment's end is damaged, where it is: only one that was open may be used then.
    pub torn: Option<Damage>,
}

impl Filter {
    /// Begins to cut a segment; for these partitions only, if some are named.
    #[must_use]
    pub fn new(
        segment: SegmentId,
        partitions: &Partitions,
        wanted: Option<BTreeSet<u32>>,
    ) -> Filter {
        Filter {
            segment,
            at: 0,
            at_end: false,
            parts: (0..partitions.count).map(|_| Part::default()).collect(),
            wanted,
            copies: VecDeque::new(),
            torn: None,
        }
    }

    /// Looks at so many entries, and reads and writes so many bytes, or little more: an entry is
    /// verified as a whole. The bytes and the partitions are the same every time.
    ///
    /// # Errors
    /// When the segment is damaged otherwise than at its end, or has what this version does not know
    /// and must not pass over. What was cut is of no use then.
    pub fn step(
        &mut self,
        partitions: &Partitions,
        bytes: &[u8],
        entries: usize,
        most: usize,
    ) -> Result<Progress, Damage> {
        let mut done = Progress { entries: 0, bytes: 0, more: true };
        let mut reader = SegmentReader::of(self.segment, bytes)?;
        self.write(bytes, most, &mut done);
        if !self.copies.is_empty() || self.at_end {
            done.more = !self.copies.is_empty();
            return Ok(done);
        }
        reader.go_on_at(self.at);
        let log = reader.header().log;
        // Those before the last of several that belong together.
        let mut chain: Vec<(Range<usize>, To)> = Vec::new();
        loop {
            let Some(entry) = reader.next() else {
                self.at_end = true;
                break;
            };
            done.entries += 1;
            if let Some(damage) = &self.torn {
                // It was not the end.
                return Err(damage.clone());
            }
            match entry {
                Ok((offset, entry)) => {
                    let at = offset as usize;
                    let frame = Frame::decode(bytes.get(at..).unwrap_or_default(), offset)?;
                    let range = at..at + frame.entry_bytes();
                    done.bytes += range.len();
                    let to = whose(partitions, &entry, at);
                    if reader.place().is_none() {
                        chain.push((range, to));
                    } else if let Entry::Completions { lease, birth, outcomes } = entry {
                        let chain = std::mem::take(&mut chain);
                        let record = Record { log, lease, birth, range };
                        self.deal(bytes, chain, &record, outcomes, partitions, (most, &mut done));
                    } else if let Entry::Digest(digest) = entry {
                        let made = metadata::digest_of_none(log, &digest.unnamed);
                        self.copy(bytes, Piece::New(made), To::From(0), most, &mut done);
                    } else if chain.is_empty() {
                        self.copy(bytes, Piece::Old(range), to, most, &mut done);
                    } else {
                        chain.push((range, to));
                        let mut owners: Vec<To> = Vec::with_capacity(2);
                        for (_, to) in &chain {
                            if !owners.contains(to) {
                                owners.push(*to);
                            }
                        }
                        for to in owners {
                            for (range, _) in &chain {
                                self.copy(bytes, Piece::Old(range.clone()), to, most, &mut done);
                            }
                        }
                        chain.clear();
                    }
                }
                Err(damage @ Damage::Torn { .. }) => self.torn = Some(damage),
                Err(damage) => return Err(damage),
            }
            if let Some(at) = reader.place()
                && (done.entries >= entries || done.bytes >= most || !self.copies.is_empty())
            {
                self.at = at;
                self.at_end = at as usize >= bytes.len();
                break;
            }
        }
        done.more = !self.at_end || !self.copies.is_empty();
        Ok(done)
    }

    /// What came of it, when there is no more to do.
    #[must_use]
    pub fn finish(self) -> Cut {
        Cut { parts: self.parts, torn: self.torn }
    }

    fn is_wanted(&self, partition: u32) -> bool {
        self.wanted.as_ref().is_none_or(|wanted| wanted.contains(&partition))
    }

    /// Gives each partition those of the linked entries that are its own, and behind them a record of
    /// its own outcomes.
    fn deal(
        &mut self,
        bytes: &[u8],
        chain: Vec<(Range<usize>, To)>,
        record: &Record,
        outcomes: Outcomes<'_>,
        partitions: &Partitions,
        (most, done): (usize, &mut Progress),
    ) {
        let Record { log, lease, birth, range } = record;
        let mut owners: Vec<(u32, Vec<Outcome<'_>>)> = Vec::new();
        let mut all = 0;
        for outcome in outcomes {
            all += 1;
            let Some(owner) = partitions.owner(outcome.table, outcome.key_hash, *birth) else {
                continue;
            };
            match owners.iter_mut().find(|(other, _)| *other == owner) {
                Some((_, its)) => its.push(outcome),
                None => owners.push((owner, vec![outcome])),
            }
        }
        for (owner, its) in owners {
            if !self.is_wanted(owner) {
                continue;
            }
            let mut effects = 0;
            for (range, _) in chain.iter().filter(|(_, to)| *to == To::One(owner)) {
                effects += 1;
                self.copy(bytes, Piece::Old(range.clone()), To::One(owner), most, done);
            }
            let piece = if its.len() == all && effects == chain.len() {
                Piece::Old(range.clone())
            } else {
                Piece::New(outcomes::made_of(*log, *lease, *birth, effects as u64, &its))
            };
            self.copy(bytes, piece, To::One(owner), most, done);
        }
    }

    #[inline]
    fn copy(&mut self, bytes: &[u8], piece: Piece, to: To, most: usize, done: &mut Progress) {
        match to {
            To::Nobody => {}
            To::One(partition) if !self.is_wanted(partition) => {}
            // What is common: it has room in this step.
            To::One(partition) if self.copies.is_empty() && done.bytes + piece.len() <= most => {
                if let Some(part) = self.parts.get_mut(partition as usize) {
                    part.push(piece.front(bytes, usize::MAX));
                }
                done.bytes += piece.len();
            }
            _ => self.copies.push_back((piece, to)),
        }
    }

    /// Copies what is left to copy, as far as that goes; a bit of it always.
    fn write(&mut self, bytes: &[u8], most: usize, done: &mut Progress) {
        while done.bytes < most.max(1) {
            let Some((piece, to)) = self.copies.pop_front() else { return };
            match to {
                To::Nobody => {}
                To::One(partition) => {
                    let count = piece.len().min((most - done.bytes).max(1));
                    if let Some(part) = self.parts.get_mut(partition as usize) {
                        part.push(piece.front(bytes, count));
                    }
                    done.bytes += count;
                    if count < piece.len() {
                        self.copies.push_front((piece.behind(count), to));
                    }
                }
                To::From(partition) => {
                    let is_wanted = self.is_wanted(partition);
                    if let Some(part) = self.parts.get_mut(partition as usize) {
                        if is_wanted {
                            part.push(piece.front(bytes, usize::MAX));
                        }
                        // Memory is asked for, mostly, which takes longer than the bytes.
                        done.bytes += piece.len() + 256;
                        self.copies.push_front((piece, To::From(partition + 1)));
                    }
                }
            }
        }
    }
}

/// A record of several outcomes and where it is.
struct Record {
    log: LogId,
    lease: u64,
    birth: SegmentId,
    range: Range<usize>,
}

/// Whose an entry at a place is.
#[inline]
fn whose(partitions: &Partitions, entry: &Entry<'_>, at: usize) -> To {
    let owner = match entry {
        Entry::Object(it) | Entry::Tombstone(it) => {
            partitions.owner(it.table, KeyHash::of(it.key), it.birth)
        }
        Entry::Completion { table, key_hash, birth, .. } => {
            partitions.owner(*table, *key_hash, *birth)
        }
        Entry::Header(_) if at == 0 => return To::From(0),
        Entry::SafeVersion(_) => return To::From(0),
        Entry::Header(_) | Entry::Digest(_) | Entry::Statistics(_) | Entry::Skipped(_) => None,
        // Each of its outcomes may be somebody else's.
        Entry::Completions { .. } => None,
    };
    owner.map_or(To::Nobody, To::One)
}
