//! Cuts a segment into parts, one for each of several recovery masters that rebuild one log.
//!
//! A [`Part`] is a segment, too. Given the partition's tablets, [`Rebuild`](crate::Rebuild)
//! rebuilds the same from a part as from the whole segment. A part begins with the segment's
//! header. Behind it are the entries of the partition, byte for byte, so that their checksums hold
//! at any place. It also has every safe version and clock mark, and the unnamed survivors that
//! digests list.
//! Entries that count only together stay together: each partition gets its own outcomes of a record
//! of several, in a new record behind the linked entries that it gets. Entries that no replay needs
//! are left out: the segments that digests name, statistics, void entries, the filling between
//! seglets, and entries that belong to no partition or to a former stay of a tablet.
//!
//! **Damage.** A damaged segment is not cut: another copy of it has everything. Only the last entry
//! of an open segment may be incomplete; then the parts hold the entries before it.
//!
//! **In steps.** A [`Filter`] limits the entries that it reads and the bytes that it writes in a
//! step, and copies a large entry in several steps. A part grows by pieces of memory that never
//! move.

mod part;

pub use part::{Part, SparePieces};

use super::entry::Frame;
use super::inspect::{Entry, SegmentReader};
use super::metadata;
use super::outcomes::{self, Outcome, Outcomes};
use crate::error::Damage;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use thunderhead_wire::{KeyHash, LeaseId, LogId, SegmentId, TableId, TabletRange};

/// The owners of tablets: which partition gets which.
#[derive(Clone, Debug)]
pub struct Partitions {
    count: u32,
    /// By table and first hash; no two of them overlap.
    ranges: Vec<OwnedRange>,
}

#[derive(Clone, Copy, Debug)]
struct OwnedRange {
    range: TabletRange,
    since: SegmentId,
    partition: u32,
}

impl Partitions {
    /// Creates partitions, each from its tablets and the segment from which on the entries of each
    /// count. `None` if two tablets overlap, or a tablet has no hashes.
    #[must_use]
    pub fn new(partitions: &[Vec<(TabletRange, SegmentId)>]) -> Option<Partitions> {
        let mut ranges: Vec<OwnedRange> = Vec::new();
        for (partition, tablets) in (0u32..).zip(partitions) {
            let owned = |&(range, since)| OwnedRange { range, since, partition };
            ranges.extend(tablets.iter().map(owned));
        }
        ranges.sort_unstable_by_key(|it| (it.range.table, it.range.first));
        let is_empty = |it: &OwnedRange| it.range.first > it.range.last;
        let overlap = |pair: &[OwnedRange]| matches!(pair, [a, b] if a.range.overlaps(&b.range));
        let possible = !ranges.iter().any(is_empty) && !ranges.windows(2).any(overlap);
        let count = u32::try_from(partitions.len()).ok()?;
        possible.then_some(Partitions { count, ranges })
    }

    /// The number of partitions.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The partition to which an entry belongs.
    #[inline]
    fn owner(&self, table: TableId, hash: KeyHash, birth: SegmentId) -> Option<u32> {
        let behind =
            self.ranges.partition_point(|it| (it.range.table, it.range.first) <= (table, hash));
        let it = self.ranges.get(behind.checked_sub(1)?)?;
        (it.range.contains(table, hash) && birth >= it.since).then_some(it.partition)
    }
}

/// The receivers of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receivers {
    Nobody,
    One(u32),
    /// All partitions from this one on.
    From(u32),
}

/// Bytes that go into a part.
#[derive(Clone, Debug)]
enum Piece {
    /// Bytes of the segment.
    Old(Range<usize>),
    /// An entry that was made for a part, or the rest of it.
    New(Vec<u8>),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Piece::Old(range) => range.len(),
            Piece::New(made) => made.len(),
        }
    }

    /// Its first bytes, up to `most`.
    fn front<'a>(&'a self, bytes: &'a [u8], most: usize) -> &'a [u8] {
        let all = match self {
            Piece::Old(range) => bytes.get(range.clone()).unwrap_or_default(),
            Piece::New(made) => made,
        };
        all.get(..most).unwrap_or(all)
    }

    /// The rest behind its first `count` bytes.
    fn behind(self, count: usize) -> Piece {
        match self {
            Piece::Old(range) => Piece::Old(range.start + count..range.end),
            Piece::New(made) => Piece::New(made.get(count..).unwrap_or_default().to_vec()),
        }
    }
}

/// The work that a step has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Entries that were read.
    pub entries: usize,
    /// Bytes that were read, and bytes that were written.
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
    spares: SparePieces,
    /// The wanted partitions; all, if none are named.
    wanted: Option<BTreeSet<u32>>,
    /// Copies to make before more entries are read.
    copies: VecDeque<(Piece, Receivers)>,
    torn: Option<Damage>,
}

/// A segment that was cut.
#[derive(Clone, Debug)]
pub struct Cut {
    /// The parts, by partition. The part of an unwanted partition has no bytes, not even a header.
    pub parts: Vec<Part>,
    /// The damage at the segment's end, if there is any: then only an open segment may be used.
    pub torn: Option<Damage>,
}

impl Filter {
    /// Begins to cut a segment; for the `wanted` partitions only, if they are named.
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
            spares: SparePieces::default(),
            wanted,
            copies: VecDeque::new(),
            torn: None,
        }
    }

    /// Exchanges the pieces of memory that the next steps take before new memory.
    pub fn swap_spares(&mut self, spares: &mut SparePieces) {
        std::mem::swap(&mut self.spares, spares);
    }

    /// Reads up to `entries` entries, and reads and writes up to `most` bytes, or little more: an
    /// entry is verified as a whole. Give it the same bytes and the same partitions every time.
    ///
    /// # Errors
    /// When the segment is damaged elsewhere than at its end, or has an entry that this version
    /// does not know and must not skip. Then the parts are of no use.
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
        // The entries of a linked chain before its last one.
        let mut chain: Vec<(Range<usize>, Receivers)> = Vec::new();
        loop {
            let Some(entry) = reader.next() else {
                self.at_end = true;
                break;
            };
            done.entries += 1;
            if let Some(damage) = &self.torn {
                // The damage was not at the end.
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
                        self.copy(bytes, Piece::New(made), Receivers::From(0), most, &mut done);
                    } else if chain.is_empty() {
                        self.copy(bytes, Piece::Old(range), to, most, &mut done);
                    } else {
                        chain.push((range, to));
                        let mut owners: Vec<Receivers> = Vec::with_capacity(2);
                        for (_, to) in &chain {
                            if !owners.contains(to) {
                                owners.push(*to);
                            }
                        }
                        // Each partition gets a chain that ends with a clock mark.
                        if owners.contains(&Receivers::From(0)) {
                            owners = vec![Receivers::From(0)];
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

    /// The result, once there is no more to do.
    #[must_use]
    pub fn finish(self) -> Cut {
        Cut { parts: self.parts, torn: self.torn }
    }

    fn is_wanted(&self, partition: u32) -> bool {
        self.wanted.as_ref().is_none_or(|wanted| wanted.contains(&partition))
    }

    /// Gives each partition its own linked entries, and behind them a record of its own outcomes.
    fn deal(
        &mut self,
        bytes: &[u8],
        chain: Vec<(Range<usize>, Receivers)>,
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
            for (range, _) in chain.iter().filter(|(_, to)| *to == Receivers::One(owner)) {
                effects += 1;
                self.copy(bytes, Piece::Old(range.clone()), Receivers::One(owner), most, done);
            }
            let piece = if its.len() == all && effects == chain.len() {
                Piece::Old(range.clone())
            } else {
                Piece::New(outcomes::made_of(*log, *lease, *birth, effects as u64, &its))
            };
            self.copy(bytes, piece, Receivers::One(owner), most, done);
        }
    }

    #[inline]
    fn copy(
        &mut self,
        bytes: &[u8],
        piece: Piece,
        to: Receivers,
        most: usize,
        done: &mut Progress,
    ) {
        match to {
            Receivers::Nobody => {}
            Receivers::One(partition) if !self.is_wanted(partition) => {}
            // The common case: the piece has room in this step.
            Receivers::One(partition)
                if self.copies.is_empty() && done.bytes + piece.len() <= most =>
            {
                if let Some(part) = self.parts.get_mut(partition as usize) {
                    part.push(piece.front(bytes, usize::MAX), &mut self.spares);
                }
                done.bytes += piece.len();
            }
            _ => self.copies.push_back((piece, to)),
        }
    }

    /// Makes the remaining copies, as far as the step allows; always at least one byte.
    fn write(&mut self, bytes: &[u8], most: usize, done: &mut Progress) {
        while done.bytes < most.max(1) {
            let Some((piece, to)) = self.copies.pop_front() else { return };
            match to {
                Receivers::Nobody => {}
                Receivers::One(partition) => {
                    let count = piece.len().min((most - done.bytes).max(1));
                    if let Some(part) = self.parts.get_mut(partition as usize) {
                        part.push(piece.front(bytes, count), &mut self.spares);
                    }
                    done.bytes += count;
                    if count < piece.len() {
                        self.copies.push_front((piece.behind(count), to));
                    }
                }
                Receivers::From(partition) => {
                    let is_wanted = self.is_wanted(partition);
                    if let Some(part) = self.parts.get_mut(partition as usize) {
                        if is_wanted {
                            part.push(piece.front(bytes, usize::MAX), &mut self.spares);
                        }
                        // Mostly the step allocates memory, which takes longer than copying the
                        // bytes.
                        done.bytes += piece.len() + 256;
                        self.copies.push_front((piece, Receivers::From(partition + 1)));
                    }
                }
            }
        }
    }
}

/// A record of several outcomes and its place.
struct Record {
    log: LogId,
    lease: LeaseId,
    birth: SegmentId,
    range: Range<usize>,
}

/// The receivers of an entry at a place.
#[inline]
fn whose(partitions: &Partitions, entry: &Entry<'_>, at: usize) -> Receivers {
    let owner = match entry {
        Entry::Object(it) | Entry::Tombstone(it) => {
            partitions.owner(it.table, KeyHash::of(it.key), it.birth)
        }
        Entry::Completion { table, key_hash, birth, .. } => {
            partitions.owner(*table, *key_hash, *birth)
        }
        Entry::Header(_) if at == 0 => return Receivers::From(0),
        Entry::SafeVersion(_) | Entry::ClockMark(_) => return Receivers::From(0),
        Entry::Header(_) | Entry::Digest(_) | Entry::Statistics(_) | Entry::Skipped(_) => None,
        // Each of its outcomes may belong to another partition.
        Entry::Completions { .. } => None,
    };
    owner.map_or(Receivers::Nobody, Receivers::One)
}
