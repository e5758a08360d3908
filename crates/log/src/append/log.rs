//! The log itself: tables in memory, reached through an index, appended to and cleaned.
//!
//! A [`Log`] belongs to one thread, the shard's reactor: it can be sent to another thread but never
//! shared. That thread alone reads, writes and deletes. [`Cleaner`](crate::Cleaner)s move entries
//! and free memory beside it; each runs on a thread of its own, or is stepped in between.
//!
//! Objects that a read returns borrow the log. So at every call that takes `&mut self` no reference
//! into the memory is alive. Once in a while such a call takes a *turn* (see [`Log`]): only then
//! may unlinked memory be reused.

use super::HashedKey;
use super::batch::Purpose;
use super::candidates::Candidate;
use super::clock::Clock;
use super::completions::CompletionIndex;
use super::eviction::Eviction;
use super::expired::Expiring;
use super::groups::Groups;
use super::handover::Handovers;
use super::heads::Head;
use super::items::Form;
use super::ledger::Ledger;
use super::replicator::Replicator;
use super::shared::{LiveLimits, Shared, TabletMap, TabletView};
use super::side_log::MainHead;
use super::table_limits::LimitedTables;
use super::tablets::{Tablet, Tablets};
use crate::error::{Error, OptionsError};
use crate::format::entry::Seal;
use crate::format::metadata::TabletStatistics;
use crate::index::{Cursor, Entries, Index, IndexBlocks};
use crate::limits::DROPPED_MAX;
use crate::memory::object::{Located, Object};
use crate::memory::{Memory, Reference};
use crate::options::Options;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thunderhead_wire::{KeyHash, LogId, LogPosition, SegmentId, TableId, TabletRange, Version};

/// The state of limits that are to be counted at the next turn.
pub(super) const LIMITS_UNKNOWN: (usize, bool) = (usize::MAX, false);

/// A key-value store's memory: see the [crate's documentation](crate) for an example.
///
/// # Turns
///
/// A write is in memory at once, for every read that follows. The log hands it to the
/// [`Replicator`] at the end of a *turn*, in one piece with everything that was written since the
/// last turn (sooner only when a segment is full or memory is short). A turn also learns how far
/// the copies are durable, takes finished cleaning passes into the log and lets the cleaners reuse
/// memory that was unlinked.
///
/// A turn ends
/// - when [`Log::turn`] is called: a server does so after each round of requests;
/// - by itself after every 64 writes and deletes, and after every [`BATCH`](crate::BATCH)
///   operations of [`Log::write_batch`];
/// - when the log is dropped, for the last time. (Not in a thread that panics: the panic may have
///   left an operation half done. Nor does the drop wait until the last bytes are durable.)
///
/// So the last writes of an idle log are in no copy until the program calls `turn`.
///
/// # Durability
///
/// A write is safe once [`Log::durable`] has reached the position that it returned
/// ([`Written::position`](crate::Written::position)): not when the call returns, and with most
/// replicators not when the turn ends either. Answer a client no sooner.
///
/// ```
/// # use thunderhead_log::*;
/// # fn serve(log: &mut Log, users: TableId) -> Result<(), Error> {
/// let written = log.write(users, b"alice", b"hello")?;
/// // … the other requests of this round …
/// log.turn();
/// // Now, or after one of the next turns:
/// if log.durable() >= written.position {
///     // Answer.
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Waiting
///
/// No call blocks. When memory is short a write returns [`Error::CleanerBehind`]; try it again
/// after the cleaners have run. [`Error::MemoryFull`] is final.
pub struct Log {
    pub(crate) memory: Arc<Memory>,
    pub(crate) shared: Arc<Shared>,
    pub(super) id: LogId,
    /// The id of the log's first segment.
    pub(super) first: SegmentId,
    pub(super) seal: Seal,
    pub(super) head: Head,
    pub(super) ledger: Ledger,
    pub(crate) tablets: Tablets,
    pub(super) blocks: IndexBlocks,
    pub(super) completions: CompletionIndex,
    pub(super) groups: Groups,
    /// The form of written objects: bytes without attributes, except in [`Log::of_kind`] and
    /// [`Log::with_attributes`].
    pub(super) form: Form,
    pub(super) clock: Clock,
    /// The log has or had items that expire.
    pub(super) keeps_time: bool,
    /// Items that are to be removed because they have expired.
    pub(super) expiring: Expiring,
    pub(super) eviction: Eviction,
    pub(super) replicator: Box<dyn Replicator>,
    pub(super) safe_version: Version,
    /// The safe version that the log's last record of it has. Each later delete logs its own
    /// version.
    pub(super) logged_safe_version: Version,
    /// The end of the last tombstone that took a key out of the index.
    pub(super) removed: LogPosition,
    pub(super) live_bytes: u64,
    /// The most that writes may make of `live_bytes`; refreshed at every turn.
    pub(super) limits: LiveLimits,
    /// The same for the usual way of a write, or zeros as long as a tablet has a maximum.
    pub(super) admission: LiveLimits,
    pub(super) limited: LimitedTables,
    /// The number of seglets that the indexes held when the limits were computed, and whether
    /// cleaners evicted segments; [`LIMITS_UNKNOWN`] if something else has changed.
    pub(super) limits_with: (usize, bool),
    pub(super) mutations: u32,
    pub(super) dropped: DroppedTables,
    /// Segments that the cleaners are kept away from.
    pub(super) pinned: Vec<Candidate>,
    /// The log's own head while entries go to a side segment.
    pub(super) main_head: Option<MainHead>,
    pub(super) handovers: Handovers,
}

impl Log {
    /// Starts an empty log in a memory. The memory belongs to this log from then on, for good:
    /// another log needs a memory of its own. `id` tells this log's segments from all others; draw
    /// it at random.
    ///
    /// # Errors
    /// When the options cannot work with this memory, or a log was started in it before.
    pub fn new(
        memory: &Arc<Memory>,
        id: LogId,
        options: Options,
        replicator: Box<dyn Replicator>,
    ) -> Result<Log, OptionsError> {
        Log::beginning_at(SegmentId(1), memory, id, options, replicator)
    }

    /// Starts an empty log whose segment ids begin at `first`. Such a log may have the id of a
    /// former log and adopt its segments unchanged ([`Rebuild::adopt`](crate::Rebuild::adopt)), if
    /// these have lower ids.
    ///
    /// # Errors
    /// As [`Log::new`].
    pub fn beginning_at(
        first: SegmentId,
        memory: &Arc<Memory>,
        id: LogId,
        options: Options,
        replicator: Box<dyn Replicator>,
    ) -> Result<Log, OptionsError> {
        options.check(memory.seglet_bytes(), memory.seglets())?;
        let shared = Arc::new(Shared::new(Arc::clone(memory), id, options));
        shared.check_digest()?;
        shared.check_room()?;
        let first = first.max(SegmentId(1));
        shared.next_segment.store(first.0, Ordering::SeqCst);
        if !memory.claim() {
            return Err(OptionsError(
                "the memory belongs to a log already, and does so for good; make another".into(),
            ));
        }
        let no_memory = || OptionsError("the memory has no free seglets for another log".into());
        let blocks = IndexBlocks::new(Arc::clone(memory), shared.reserves.for_writes());
        let completions = new_index(&shared, &blocks).ok_or_else(no_memory)?;
        let seal = shared.seal;
        let mut replicator = replicator;
        let mut ledger = Ledger::default();
        let head =
            Head::first(&shared, id, seal, &mut ledger, &mut *replicator).ok_or_else(no_memory)?;
        let mut log = Log {
            memory: Arc::clone(memory),
            shared,
            id,
            first,
            seal,
            head,
            ledger,
            tablets: Tablets::default(),
            blocks,
            completions: CompletionIndex { index: completions, unindexed: Vec::new() },
            groups: Groups::default(),
            form: Form::default(),
            clock: Clock::default(),
            keeps_time: false,
            expiring: Expiring::default(),
            eviction: Eviction::default(),
            replicator,
            safe_version: Version::NONE,
            logged_safe_version: Version::NONE,
            removed: LogPosition::default(),
            live_bytes: 0,
            limits: LiveLimits::default(),
            admission: LiveLimits::default(),
            limited: LimitedTables::default(),
            limits_with: LIMITS_UNKNOWN,
            mutations: 0,
            dropped: DroppedTables::default(),
            pinned: Vec::new(),
            main_head: None,
            handovers: Handovers::default(),
        };
        log.publish_tablets();
        log.turn();
        Ok(log)
    }

    /// The log's id.
    #[must_use]
    pub fn id(&self) -> LogId {
        self.id
    }

    /// The options that the log was made with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// Creates an empty tablet in this log. From the start its index costs an eighth of a seglet (8
    /// KiB with seglets of the usual size), and some hundred bytes outside the memory. That is
    /// nothing for a table and too much for each of a million users: give those a prefix of their
    /// keys instead.
    ///
    /// # Errors
    /// [`Error::RangeReversed`] when no hash is in the range. [`Error::TabletExists`] when it
    /// overlaps a tablet of this log. [`Error::MemoryFull`] when its index would leave too little
    /// room for the live entries and one object of full length. [`Error::CleanerBehind`] when there
    /// is no memory for its index at this moment.
    pub fn create_tablet(&mut self, range: TabletRange) -> Result<(), Error> {
        if range.first > range.last {
            return Err(Error::RangeReversed(range));
        }
        if let Some(other) = self.tablets.overlapping(range) {
            return Err(Error::TabletExists(other));
        }
        if self.tablets.is_being_cleared(range) {
            self.turn_again();
            return Err(Error::CleanerBehind);
        }
        let index = self.new_index();
        // Checked with the index taken: the cleaners must get by with the remaining memory.
        let limit_bytes = self.shared.limits().writes;
        if !self.has_room_for_tablet(limit_bytes) {
            drop(index);
            self.turn_again();
            return Err(Error::MemoryFull { live_bytes: self.live_bytes, limit_bytes });
        }
        let Some(index) = index else {
            self.turn_again(); // So that the next try may succeed.
            return Err(Error::CleanerBehind);
        };
        // Entries of an earlier stay of the tablet in this log must not count in this one. Their
        // births are at most the head at the time of the drop, so that head must end first.
        if self.dropped.has(range.table) && !self.roll(self.shared.reserves.for_writes()) {
            self.turn_again();
            return Err(Error::CleanerBehind);
        }
        let since = self.head.id();
        self.tablets.insert(Tablet::new(range, index, since));
        self.publish_tablets();
        Ok(())
    }

    /// Creates those of some tablets that this log does not have, or none of them.
    ///
    /// # Errors
    /// As [`Log::create_tablet`], except that a tablet of exactly this range may be there.
    pub fn create_tablets(&mut self, ranges: &[TabletRange]) -> Result<(), Error> {
        let mut created = Vec::new();
        for range in ranges {
            match self.create_tablet(*range) {
                Ok(()) => created.push(*range),
                Err(Error::TabletExists(other)) if other == *range => {}
                Err(error) => {
                    // Nothing was written there, so later entries of these tablets cannot be
                    // confused with earlier ones.
                    created.into_iter().for_each(|range| drop(self.tablets.remove(range)));
                    self.publish_tablets();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Whether an object of full length still fits: a tablet without that room is of no use. In a
    /// cache whose cleaners evict segments, older objects make that room.
    fn has_room_for_tablet(&self, limit_bytes: u64) -> bool {
        self.makes_room_in_passes()
            || limit_bytes >= self.live_bytes + self.shared.options.entry_bytes_max()
    }

    /// Whether cleaners evict segments, and have some with objects of caches.
    fn makes_room_in_passes(&self) -> bool {
        self.shared.evicts_in_passes() && self.may_evict()
    }

    /// The bytes of live entries that still fit; 0 if no tablet can be created.
    #[must_use]
    pub fn room_bytes(&self) -> u64 {
        let limit_bytes = self.shared.limits().writes;
        let room = limit_bytes.saturating_sub(self.live_bytes);
        let room = if self.makes_room_in_passes() { room.max(limit_bytes / 32) } else { room };
        if self.has_room_for_tablet(limit_bytes) { room } else { 0 }
    }

    /// Drops a tablet and all its objects, without reading any of them. Returns whether the log had
    /// the tablet.
    pub fn drop_tablet(&mut self, range: TabletRange) -> bool {
        let Some(tablet) = self.tablets.remove(range) else {
            let is_piece = |tablet: &&Tablet| tablet.pieces().any(|piece| piece == range);
            return self.tablets.list.iter().any(|it| is_piece(&it)) && self.cut_tablet(range);
        };
        self.on_tablet_dropped(&tablet);
        true
    }

    fn on_tablet_dropped(&mut self, tablet: &Tablet) {
        self.live_bytes -= tablet.live_bytes;
        self.dropped.note(tablet.range.table);
        self.publish_tablets();
        // After the tablets: a cleaner that sees this count sees the tablets without this one.
        self.shared.sums.drops.fetch_add(1, Ordering::Release);
    }

    /// Drops part of a tablet and all its objects. From now on no read finds them.
    /// [`Log::clear_some`] removes the entries that remain; until it has, no tablet can be created
    /// in that range. The remaining part of the tablet appears to callers as one or more tablets.
    /// Returns whether the log had any part of the range.
    pub fn cut_tablet(&mut self, range: TabletRange) -> bool {
        let mut has_cut = false;
        let mut at = 0;
        while let Some(tablet) = self.tablets.list.get_mut(at) {
            if !tablet.range.overlaps(&range) {
                at += 1;
                continue;
            }
            if let Some(only) = tablet.only_piece()
                && range.first <= only.first
                && only.last <= range.last
            {
                has_cut |= self.drop_tablet(only);
                continue;
            }
            has_cut |= tablet.cut(range);
            if tablet.pieces().next().is_none() {
                // The tablet had several pieces, and all of them were in the range.
                let tablet = self.tablets.list.remove(at);
                self.on_tablet_dropped(&tablet);
                continue;
            }
            at += 1;
        }
        has_cut
    }

    /// Keeps two numbers with the tablet that was made for a range, for the log's user. They are in
    /// no segment and go with the tablet; those of a new tablet are 0. False if no tablet was made
    /// for exactly this range.
    pub fn note_tablet(&mut self, range: TabletRange, note: [u64; 2]) -> bool {
        let list = &mut self.tablets.list;
        let from = list.partition_point(|tablet| tablet.range < range);
        let mut noted = false;
        for tablet in list.iter_mut().skip(from).take_while(|tablet| tablet.range == range) {
            (tablet.note, noted) = (note, true);
        }
        noted
    }

    /// Returns the numbers that are kept with a key's tablet; `None` if there is no such tablet.
    #[must_use]
    pub fn tablet_note(&self, table: TableId, key: HashedKey<'_>) -> Option<[u64; 2]> {
        let tablet = self.tablets.find(table, key.hash)?;
        Some(self.tablets.list.get(tablet)?.note)
    }

    /// Whether [`Log::clear_some`] has something to do.
    #[must_use]
    pub fn has_to_clear(&self) -> bool {
        self.tablets.list.iter().any(|tablet| tablet.clearing.is_some())
    }

    /// Removes some entries that cut parts of tablets have left in an index, at most one bucket of
    /// them. True while entries remain.
    pub fn clear_some(&mut self) -> bool {
        let holed = self.tablets.list.iter().position(|tablet| tablet.clearing.is_some());
        let Some(at) = holed else { return false };
        let memory = Arc::clone(&self.memory);
        let tablet = &self.tablets.list[at];
        let mut gone: Vec<Vec<u8>> = Vec::new();
        let next =
            tablet.index.scan(tablet.clearing.unwrap_or_default(), &Keys(&memory), |found| {
                if let Some(located) = Located::read(&memory, found)
                    && tablet.is_hole(KeyHash(hash_of(&memory, found)))
                {
                    gone.push(located.key(&memory).to_vec());
                }
            });
        for key in gone {
            if let Some(current) = self.current_for(Purpose::Replay, at, KeyHash::of(&key), &key) {
                let reference = self.tablets.list[at].index.remove(current.found);
                self.bury(at, reference, &current.old);
                self.count_mutation();
            }
        }
        let tablet = &mut self.tablets.list[at];
        tablet.clearing = next;
        if next.is_none() {
            tablet.cleared.clone_from(&tablet.holes);
            self.dropped.note(tablet.range.table);
            self.publish_tablets();
            self.shared.sums.drops.fetch_add(1, Ordering::Release);
        }
        self.has_to_clear()
    }

    /// The tablets of this log, each with the position from which entries count as its own. Give
    /// these to [`Replay`](crate::Replay) to rebuild them.
    pub fn tablets(&self) -> impl Iterator<Item = (TabletRange, SegmentId)> + '_ {
        let list = self.tablets.list.iter();
        list.flat_map(|tablet| tablet.pieces().map(|piece| (piece, tablet.since)))
    }

    /// Objects and bytes of each tablet. The remains of a cut tablet are counted as a whole, at its
    /// first piece.
    pub fn statistics(&self) -> impl Iterator<Item = TabletStatistics> + '_ {
        self.tablets.list.iter().flat_map(|tablet| {
            tablet.pieces().enumerate().map(|(number, piece)| {
                let (objects, bytes) = match number {
                    0 => (tablet.index.len() as u64, tablet.live_bytes),
                    _ => (0, 0),
                };
                TabletStatistics { tablet: piece, objects, bytes }
            })
        })
    }

    /// The reason why an operation that passes by the limit for writes finds no memory. The
    /// cleaners are behind, unless live data and `besides`, which they cannot free either, exceed
    /// the amount with which they are sure to make progress.
    pub(crate) fn no_memory(&self, besides: u64) -> Error {
        let limit_bytes = self.shared.limits().safe.saturating_sub(besides);
        if self.live_bytes > limit_bytes {
            return Error::MemoryFull { live_bytes: self.live_bytes, limit_bytes };
        }
        Error::CleanerBehind
    }

    /// An empty index in this log's memory.
    pub(crate) fn new_index(&self) -> Option<Index<IndexBlocks>> {
        new_index(&self.shared, &self.blocks)
    }

    pub(super) fn publish_tablets(&mut self) {
        let views = self.tablets.list.iter().flat_map(|tablet| {
            let view =
                |range| TabletView { range, since: tablet.since, index: tablet.index.view() };
            tablet.published().map(view)
        });
        let mut tablets: Vec<TabletView> = views.collect();
        tablets.sort_unstable_by_key(|view| view.range);
        let completions = Some(self.completions.index.view());
        self.shared.publish_tablets(TabletMap { tablets, completions });
        self.share_limits();
    }

    /// Visits some objects of a tablet, or of part of one. Returns where to go on, or `None` at the
    /// end. Begin with `Cursor::default()`.
    ///
    /// However the tablet changes between the calls, an object that exists from the first call to
    /// the last is visited exactly once. Items that have expired are not visited.
    ///
    /// # Errors
    /// [`Error::UnknownTablet`] when this log does not hold the tablet.
    pub fn scan<'log>(
        &'log self,
        range: TabletRange,
        cursor: Cursor,
        mut visit: impl FnMut(Object<'log>),
    ) -> Result<Option<Cursor>, Error> {
        let mut tablets = self.tablets.list.iter();
        let tablet = tablets.find(|tablet| tablet.piece_around(range).is_some());
        let tablet = tablet.ok_or(Error::UnknownTablet { table: range.table })?;
        let memory = &*self.memory;
        let is_all = tablet.range == range;
        Ok(tablet.index.scan(cursor, &Keys(memory), |at| {
            if let Some(located) = self.shown(at)
                && (is_all || range.contains(range.table, KeyHash(hash_of(memory, at))))
            {
                visit(Object { memory, located });
            }
        }))
    }

    /// The end of the stream of heads.
    #[must_use]
    pub fn appended(&self) -> LogPosition {
        self.head.position()
    }

    /// How far the stream of heads is known to be durable, as of the last turn. A write is safe
    /// once this has reached its position.
    #[must_use]
    pub fn durable(&self) -> LogPosition {
        self.ledger.durable()
    }

    /// A version that no deleted object exceeds.
    #[must_use]
    pub fn safe_version(&self) -> Version {
        self.safe_version
    }

    /// Raises the safe version: new objects get higher ones. A tablet that comes from another log
    /// brings that log's safe version along. Keep the former log until this one is durable up to
    /// the returned position.
    ///
    /// At [`Version::HIGHEST`] no version is left for new objects: writes of keys that do not
    /// exist are refused from then on.
    ///
    /// # Errors
    /// [`Error::VersionTooHigh`], or [`Error::CleanerBehind`].
    pub fn raise_safe_version(&mut self, version: Version) -> Result<LogPosition, Error> {
        if version > Version::HIGHEST {
            return Err(Error::VersionTooHigh { version });
        }
        self.note_safe_version(version);
        self.log_safe_version()
    }

    /// Raises the safe version without logging it yet.
    pub(crate) fn note_safe_version(&mut self, version: Version) {
        self.safe_version = self.safe_version.max(version);
    }

    /// The amounts that the log holds and the work that its cleaners have done.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let sums = &self.shared.sums;
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        Usage {
            log_bytes: self.shared.log_bytes(),
            live_bytes: self.live_bytes,
            live_limit: self.limits.writes.max(self.limits.cache),
            index_bytes: self.memory.index_bytes() as u64,
            free_bytes: (self.memory.free_seglets() * self.memory.seglet_bytes()) as u64,
            tombstone_bytes: sums.tombstone_bytes.load(Ordering::Relaxed).max(0) as u64,
            disk_bytes: load(&sums.disk_bytes),
            segments: self.ledger.segments(),
            compactions: load(&sums.counters.compactions),
            compaction_bytes: load(&sums.counters.compaction_bytes),
            compactions_freed: load(&sums.counters.compactions_freed),
            passes: load(&sums.counters.passes),
            passes_received: self.ledger.progress.received,
            passes_named: self.ledger.progress.named,
            passes_freed: self.ledger.progress.freed,
            survivor_bytes: load(&sums.counters.survivor_bytes),
            cleaned_segments: load(&sums.counters.cleaned_segments),
            spent_segments: load(&sums.counters.spent_segments),
            entries_moved: load(&sums.counters.entries_moved),
            residuals: load(&sums.counters.residuals),
            rescans: load(&sums.counters.rescans),
            expired: self.expiring.removed,
            evicted: self.eviction.evicted,
        }
    }
}

impl Drop for Log {
    /// Takes a last turn, so that the replicator has everything that was appended.
    fn drop(&mut self) {
        // A panic may have left an operation half done, which must get into no copy.
        if !std::thread::panicking() {
            self.turn();
        }
    }
}

/// Tables that were dropped, in whole or in part, while the present head was open. A tablet of such
/// a table may be created again only in a later head. So the next head empties the list.
#[derive(Default)]
pub(super) struct DroppedTables {
    tables: BTreeSet<TableId>,
    /// More tables were dropped than the list holds, so any table may be one of them.
    any: bool,
}

impl DroppedTables {
    fn note(&mut self, table: TableId) {
        self.tables.insert(table);
        if self.tables.len() > DROPPED_MAX {
            self.tables.clear();
            self.any = true;
        }
    }

    fn has(&self, table: TableId) -> bool {
        self.any || self.tables.contains(&table)
    }

    pub(super) fn clear(&mut self) {
        self.tables.clear();
        self.any = false;
    }
}

/// A snapshot of sums and counters; see [`Log::usage`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Memory that segments may use: all except that of the indexes.
    pub log_bytes: u64,
    /// Bytes of live entries: objects and completion records.
    pub live_bytes: u64,
    /// The most that writes may make of `live_bytes`.
    pub live_limit: u64,
    /// Memory that indexes hold.
    pub index_bytes: u64,
    /// Memory in free seglets, reserves included.
    pub free_bytes: u64,
    /// Bytes of tombstones in memory.
    pub tombstone_bytes: u64,
    /// Bytes of the log on backups.
    pub disk_bytes: u64,
    /// Segments of the log.
    pub segments: usize,
    /// Segments compacted in memory.
    pub compactions: u64,
    /// Bytes that compaction copied.
    pub compaction_bytes: u64,
    /// Compactions whose segment's former memory is free.
    pub compactions_freed: u64,
    /// Passes of combined cleaning.
    pub passes: u64,
    /// Passes that the log's own thread has received.
    pub passes_received: u64,
    /// Passes that a digest has taken into the log.
    pub passes_named: u64,
    /// Passes whose cleaned segments' memory is free, because that digest is durable.
    pub passes_freed: u64,
    /// Bytes that combined cleaning wrote to backups.
    pub survivor_bytes: u64,
    /// Segments that combined cleaning took out of the log.
    pub cleaned_segments: u64,
    /// Cleaned segments that left unread: nothing in them was alive or guarded against anything.
    pub spent_segments: u64,
    /// Live entries that cleaners moved.
    pub entries_moved: u64,
    /// Tombstones that cleaners left in place of dead objects.
    pub residuals: u64,
    /// Segments that were scanned only to count the live entries.
    pub rescans: u64,
    /// Items that were removed because they had expired.
    pub expired: u64,
    /// Objects of caches that were removed to make room.
    pub evicted: u64,
}

/// The entries of an index of objects.
pub(crate) struct Keys<'a>(pub(crate) &'a Memory);

impl Entries for Keys<'_> {
    #[inline]
    fn hash(&self, reference: Reference) -> u64 {
        hash_of(self.0, reference)
    }

    #[inline]
    fn prefetch(&self, reference: Reference) {
        crate::prefetch::read(self.0.at(reference));
    }
}

/// The hash of the key of the entry at a reference, which is in an index of objects.
#[inline]
pub(crate) fn hash_of(memory: &Memory, at: Reference) -> u64 {
    let entry = Located::read(memory, at).expect("an index of objects refers to entries with keys");
    let key = entry.key(memory);
    match key.as_slice() {
        Some(slice) => KeyHash::of(slice).0,
        None => KeyHash::of(&key.to_vec()).0,
    }
}

fn new_index(shared: &Shared, blocks: &IndexBlocks) -> Option<Index<IndexBlocks>> {
    let buckets = IndexBlocks::block_buckets(&shared.memory);
    let readers = Arc::clone(&shared.readers);
    Index::new(blocks.clone(), readers, buckets, shared.memory.has_short_references())
}

#[cfg(all(test, not(loom)))]
mod tests;
