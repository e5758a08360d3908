//! Segments in memory: how a segment is filled, and how its entries are walked.
//!
//! ```text
//!  segment:  | header | digest … | entry | entry | 0 0 0 | entry that crosses … | entry |
//!            |<------------ seglet ------------------->|<----------- seglet ---------->|
//! ```
//!
//! The bytes of a segment are the same in memory and on a backup. An entry of at most
//! `straddle_bytes` never crosses a seglet: when it does not fit, zero bytes fill the seglet and
//! the entry goes to the next. A larger entry may cross, but its header never does, so that a
//! reader always finds the small fields in one piece. Zero bytes are thus either such a filling or
//! the end.
//!
//! An [`Appender`] has one owner: the reactor for a head, a cleaner for survivors. A [`Segment`]
//! never changes any more, except for dead bits.

use super::present_segments::PresentSegments;
use super::prior_span::PriorSpan;
use super::{Memory, Reference};
use crate::format::entry::{FRAME_BYTES, Frame, Header, Seal, USES};
use crate::limits::HEADER_BYTES_MAX;
use crate::sync::{AtomicU8, Ordering};
use std::sync::Arc;
use thunderhead_wire::{Attributes, SegmentId, Timestamp};

/// The longest entry that never crosses a seglet of this size: at a 256th of it, the filling
/// costs under a fifth of a percent of memory on average.
pub(crate) fn straddle_bytes(seglet_bytes: usize) -> usize {
    (seglet_bytes / 256).max(HEADER_BYTES_MAX)
}

/// Marks a segment that may have objects of caches. The memory counts the marks: with none, nothing
/// can be evicted. The mark stays with the segment from its first such object on, while the segment
/// is open, waits to be durable, is cleaned or waits to be freed. A cleaner that finds no such
/// object drops the mark.
#[derive(Debug)]
pub(crate) struct CacheMark(Arc<Memory>);

impl CacheMark {
    pub(crate) fn new(memory: &Arc<Memory>) -> CacheMark {
        memory.count_cached_segment(true);
        CacheMark(Arc::clone(memory))
    }
}

impl Drop for CacheMark {
    fn drop(&mut self) {
        self.0.count_cached_segment(false);
    }
}

/// A complete segment.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) id: SegmentId,
    pub(crate) seglets: Vec<u32>,
    /// Bytes in memory.
    pub(crate) length: usize,
    /// Bytes on backups: its length before compaction.
    pub(crate) disk_bytes: usize,
    /// Bytes of tombstones in memory.
    pub(crate) tombstone_bytes: usize,
    /// The log's clock (see [`SegmentId`]) when its data was put together.
    pub(crate) created: u64,
    /// The number of dropped tablets when the segment was last known to count none of their entries
    /// as live.
    pub(crate) drops: u64,
    /// The span of segments that its objects and tombstones guard.
    pub(crate) prior_span: PriorSpan,
    /// No item in it expires earlier; [`Timestamp::LATEST`] if none expires.
    pub(crate) expires: Timestamp,
    /// It may have objects of caches.
    pub(crate) cached: Option<CacheMark>,
    /// The log's clock when its objects of caches were written, or last kept by an eviction. The
    /// segment with the lowest one is evicted first.
    pub(crate) queued: u64,
}

impl Segment {
    /// The seglet in whose note the segment's dead bytes are counted.
    pub(crate) fn account(&self) -> u32 {
        self.seglets[0]
    }

    /// The reference of the byte at an offset.
    pub(crate) fn reference_at(&self, memory: &Memory, offset: usize) -> Reference {
        let seglet_bytes = memory.seglet_bytes();
        let seglet = self.seglets[offset / seglet_bytes];
        memory.seglet_start(seglet) + (offset % seglet_bytes) as u64
    }

    /// Whether no entry in it is alive, judged by the counts: dead and idle bytes are all of it.
    /// Once true it stays true. The idle bytes of an adopted segment were never counted, so for it
    /// this is always false.
    pub(crate) fn holds_nothing(&self, memory: &Memory) -> bool {
        let idle = memory.idle_bytes(self.account()) as usize;
        let dead = memory.dead_bytes(self.account()).dead as usize;
        debug_assert!(dead + idle <= self.length, "{}: no byte is counted twice", self.id);
        dead + idle == self.length
    }

    /// Whether cleaning it would leave nothing, judged without a look at its entries: no entry in
    /// it is alive, and every segment that its entries guard is gone, or leaves the durable log by
    /// the same digest.
    pub(crate) fn is_spent(
        &self,
        memory: &Memory,
        present: &PresentSegments,
        leaves: impl Fn(u64) -> bool,
    ) -> bool {
        self.holds_nothing(memory) && present.are_gone(self.prior_span, leaves)
    }

    pub(crate) fn entries<'a>(&'a self, memory: &'a Memory) -> Entries<'a> {
        Entries { memory, seglets: &self.seglets, at: 0, length: self.length }
    }
}

/// The result of [`Appender::reserve`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// The entry may be written here.
    At(Reference),
    /// The segment cannot hold the entry; open the next.
    SegmentFull,
    /// There is no free seglet for this purpose.
    NoMemory,
}

/// An earlier end of a segment; see [`Appender::mark`].
pub(crate) struct Mark {
    current: usize,
    cursor: Reference,
    room: usize,
    length: usize,
    idle: u32,
}

/// Most headers of objects are no longer.
const HEAD_BYTES_USUAL: usize = 32;
const _: () = assert!(HEAD_BYTES_USUAL <= HEADER_BYTES_MAX);

/// Cache lines that a write of a small object and its record takes.
const LINES_AHEAD: usize = 4;

/// A segment that is being filled.
pub(crate) struct Appender {
    memory: Arc<Memory>,
    pub(crate) id: SegmentId,
    seglets: Vec<u32>,
    /// The seglet that is being filled, as a place in `seglets`.
    current: usize,
    cursor: Reference,
    room: usize,
    length: usize,
    capacity: usize,
    straddle_bytes: usize,
    /// The span of segments that its entries name; never too narrow.
    pub(crate) prior_span: PriorSpan,
    /// No item in it expires earlier.
    expires: Timestamp,
    /// It may have objects of caches.
    cached: Option<CacheMark>,
    /// Seglets taken in advance, so that a cleaner never runs out half way.
    pub(crate) stock: Vec<u32>,
}

impl Appender {
    /// Starts a segment, if a seglet can be taken with `keep` left free.
    pub(crate) fn open(
        memory: &Arc<Memory>,
        id: SegmentId,
        capacity: usize,
        keep: usize,
    ) -> Option<Appender> {
        let first = memory.take(keep)?;
        Some(Appender::with(memory, id, capacity, first, Vec::new()))
    }

    /// Starts a segment that takes its seglets from a stock, the first one included.
    pub(crate) fn from_stock(
        memory: &Arc<Memory>,
        id: SegmentId,
        capacity: usize,
        mut stock: Vec<u32>,
    ) -> Option<Appender> {
        let first = stock.pop()?;
        Some(Appender::with(memory, id, capacity, first, stock))
    }

    fn with(
        memory: &Arc<Memory>,
        id: SegmentId,
        capacity: usize,
        first: u32,
        stock: Vec<u32>,
    ) -> Appender {
        memory.link(None, first, first, 0, id);
        Appender {
            memory: Arc::clone(memory),
            id,
            seglets: vec![first],
            current: 0,
            cursor: memory.seglet_start(first),
            room: memory.seglet_bytes(),
            length: 0,
            capacity,
            straddle_bytes: straddle_bytes(memory.seglet_bytes()),
            prior_span: PriorSpan::default(),
            expires: Timestamp::LATEST,
            cached: None,
            stock,
        }
    }

    /// Bytes appended so far, fillings included.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// The reference of the segment's first byte.
    pub(crate) fn first(&self) -> Reference {
        self.memory.seglet_start(self.seglets[0])
    }

    /// The reference of the byte at an offset below the length.
    pub(crate) fn reference_at(&self, offset: usize) -> Reference {
        let seglet = self.seglets[offset / self.memory.seglet_bytes()];
        self.memory.seglet_start(seglet) + (offset % self.memory.seglet_bytes()) as u64
    }

    /// Bytes of the seglets that it has taken.
    pub(crate) fn taken_bytes(&self) -> usize {
        self.seglets.len() * self.memory.seglet_bytes()
    }

    /// Prefetches the lines for the next entries. Written bytes are read back at once, for their
    /// checksum, and that read would have to wait for the lines.
    #[inline]
    pub(crate) fn prefetch(&self) {
        let next = self.memory.at(self.cursor);
        for line in 0..LINES_AHEAD {
            crate::prefetch::read(next.wrapping_add(line * 64));
        }
    }

    /// Finds the place for an entry and the seglets to hold it; leaves `keep` seglets free.
    #[inline]
    pub(crate) fn reserve(&mut self, bytes: usize, keep: usize) -> Room {
        if bytes <= self.room {
            return Room::At(self.cursor);
        }
        self.reserve_more(bytes, keep)
    }

    #[cold]
    fn reserve_more(&mut self, bytes: usize, keep: usize) -> Room {
        let crosses = self.room >= HEADER_BYTES_MAX && bytes > self.straddle_bytes;
        let start = if crosses { self.length } else { self.length + self.room };
        if start + bytes > self.capacity {
            return Room::SegmentFull;
        }
        let beyond = if crosses { bytes - self.room } else { bytes };
        if !self.attach(beyond.div_ceil(self.memory.seglet_bytes()), keep) {
            return Room::NoMemory;
        }
        if !crosses {
            // SAFETY: the rest of the current seglet belongs to this appender and no thread reads
            // beyond the length yet.
            unsafe { std::ptr::write_bytes(self.memory.at(self.cursor), 0, self.room) };
            self.length += self.room;
            self.memory.count_idle(self.first(), self.room);
            self.next_seglet();
        }
        Room::At(self.cursor)
    }

    /// Makes sure that `needed` seglets follow the current one.
    fn attach(&mut self, needed: usize, keep: usize) -> bool {
        let before = self.seglets.len();
        while self.seglets.len() - self.current - 1 < needed {
            let Some(number) = self.stock.pop().or_else(|| self.memory.take(keep)) else {
                for number in self.seglets.drain(before..) {
                    self.memory.give_back(number);
                }
                return false;
            };
            let start = self.seglets.len() * self.memory.seglet_bytes();
            let previous = self.seglets.last().copied();
            self.memory.link(previous, number, self.seglets[0], start as u32, self.id);
            self.seglets.push(number);
        }
        true
    }

    /// Whether entries of `bytes` in all fit into the current seglet.
    #[inline]
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        bytes <= self.room
    }

    /// Makes sure that up to two entries of `bytes` in all can be reserved without another seglet,
    /// however much filling they cause.
    pub(crate) fn prepare(&mut self, bytes: usize, keep: usize) -> Room {
        let most = bytes + 2 * self.straddle_bytes;
        if self.length + most > self.capacity {
            return Room::SegmentFull;
        }
        let beyond = most.saturating_sub(self.room);
        if self.attach(beyond.div_ceil(self.memory.seglet_bytes()), keep) {
            Room::At(self.cursor)
        } else {
            Room::NoMemory
        }
    }

    fn next_seglet(&mut self) {
        self.current += 1;
        self.cursor = self.memory.seglet_start(self.seglets[self.current]);
        self.room = self.memory.seglet_bytes();
    }

    /// Counts an entry of `bytes`, which was written at the place from [`Appender::reserve`], as
    /// part of the segment.
    #[inline]
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.length += bytes;
        let mut bytes = bytes;
        while bytes > self.room {
            bytes -= self.room;
            self.next_seglet();
        }
        self.cursor += bytes as u64;
        self.room -= bytes;
    }

    /// Does so for an entry that never counts as live, and so never as dead.
    pub(crate) fn advance_idle(&mut self, bytes: usize) {
        self.memory.count_idle(self.first(), bytes);
        self.advance(bytes);
    }

    /// Writes an entry to a reserved place, checksum included.
    #[inline]
    pub(crate) fn write<const PARTS: usize>(
        &mut self,
        at: Reference,
        header: &mut Header,
        parts: [&[u8]; PARTS],
        seal: Seal,
    ) {
        if header.entry_bytes <= self.memory.room(at) {
            let address = self.memory.at(at);
            let head = header.as_bytes();
            // A copy of constant length takes a few instructions. The parts that follow overwrite
            // the bytes that are too many.
            let is_short = head.len() <= HEAD_BYTES_USUAL && header.entry_bytes >= HEAD_BYTES_USUAL;
            // SAFETY: `reserve` found room for the whole entry in one seglet of this appender; no
            // other thread reads or writes those bytes before they are published.
            let sealed = unsafe {
                let mut to = address;
                if is_short {
                    let usual = header.padded().as_ptr().cast::<[u8; HEAD_BYTES_USUAL]>();
                    to.cast::<[u8; HEAD_BYTES_USUAL]>().write_unaligned(usual.read_unaligned());
                } else {
                    std::ptr::copy_nonoverlapping(head.as_ptr(), to, head.len());
                }
                to = to.add(head.len());
                for part in parts {
                    std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len());
                    to = to.add(part.len());
                }
                std::slice::from_raw_parts(
                    address.add(FRAME_BYTES),
                    header.entry_bytes - FRAME_BYTES,
                )
            };
            let checksum = seal.of(header.flags(), sealed).to_le_bytes();
            // SAFETY: as above; the checksum's four bytes follow the flags.
            unsafe { std::ptr::copy_nonoverlapping(checksum.as_ptr(), address.add(1), 4) };
            return;
        }
        let pieces = std::iter::once(header.sealed()).chain(parts);
        let checksum = seal.of_pieces(header.flags(), pieces);
        header.set_checksum(checksum);
        let mut at = at;
        for part in std::iter::once(header.as_bytes()).chain(parts) {
            if part.is_empty() {
                continue;
            }
            // SAFETY: `reserve` linked enough seglets of this appender for the whole entry.
            unsafe { self.memory.write(at, part) };
            at = self.memory.advance(at, part.len());
        }
    }

    /// Writes an entry that consists of its header alone.
    #[inline]
    pub(crate) fn write_small(&mut self, at: Reference, header: &mut Header, seal: Seal) {
        if self.memory.room(at) < HEADER_BYTES_MAX {
            return self.write(at, header, [&[], &[]], seal);
        }
        header.set_checksum(seal.of(header.flags(), header.sealed()));
        // SAFETY: `reserve` found room for the entry at this place. The seglet is this appender's
        // and has room for the zeros behind the entry, where no bytes are yet. No other thread
        // reads or writes there before it is published.
        unsafe {
            let to = self.memory.at(at).cast::<[u8; HEADER_BYTES_MAX]>();
            to.write_unaligned(*header.padded());
        }
    }

    /// Copies an entry from elsewhere in the memory to a reserved place, with a clear dead bit.
    #[inline]
    pub(crate) fn copy(&mut self, at: Reference, from: Reference, entry_bytes: usize) {
        let flags = flags(&self.memory, from) & !crate::format::entry::DEAD;
        let whole = entry_bytes <= self.memory.room(at) && entry_bytes <= self.memory.room(from);
        if whole {
            // SAFETY: the source is a complete entry whose bytes after the flags never change;
            // the target is reserved and of this appender alone; they are different seglets.
            unsafe {
                let (source, target) = (self.memory.at(from), self.memory.at(at));
                *target = flags;
                std::ptr::copy_nonoverlapping(source.add(1), target.add(1), entry_bytes - 1);
            }
            return;
        }
        // SAFETY: the first byte is reserved; the header lies in one piece, so does byte 1.
        unsafe { *self.memory.at(at) = flags };
        let mut to = at + 1;
        for (address, length) in self.memory.pieces(from + 1, entry_bytes - 1) {
            // SAFETY: as above: immutable source bytes, reserved target bytes, no overlap.
            unsafe { self.memory.write(to, std::slice::from_raw_parts(address, length)) };
            to = self.memory.advance(to, length);
        }
    }

    /// Notes the present end of the segment, to rewind to.
    pub(crate) fn mark(&self) -> Mark {
        let Appender { current, cursor, room, length, .. } = *self;
        Mark { current, cursor, room, length, idle: self.memory.idle_bytes(self.seglets[0]) }
    }

    /// Moves the end back to a mark; seglets taken since stay attached for later.
    pub(crate) fn rewind(&mut self, mark: Mark) {
        self.current = mark.current;
        self.cursor = mark.cursor;
        self.room = mark.room;
        self.length = mark.length;
        self.memory.rewind_idle(self.seglets[0], mark.idle);
    }

    /// Moves attached but unused seglets to a stock.
    pub(crate) fn release_spare(&mut self, stock: &mut Vec<u32>) {
        stock.extend(self.seglets.drain(self.current + 1..));
    }

    /// Gives all memory back: the segment is dropped.
    pub(crate) fn abandon(self) {
        for number in self.seglets.into_iter().chain(self.stock) {
            self.memory.give_back(number);
        }
    }

    /// Ends the segment; unused seglets go back.
    pub(crate) fn close(mut self, created: u64, drops: u64, tombstone_bytes: usize) -> Segment {
        let unused = self.seglets.split_off(self.current + 1);
        for number in unused.into_iter().chain(self.stock.drain(..)) {
            self.memory.give_back(number);
        }
        Segment {
            id: self.id,
            seglets: std::mem::take(&mut self.seglets),
            length: self.length,
            disk_bytes: self.length,
            tombstone_bytes,
            created,
            drops,
            prior_span: self.prior_span,
            expires: self.expires,
            cached: self.cached.take(),
            queued: created,
        }
    }

    /// Whether it may have objects of caches.
    pub(crate) fn has_cached(&self) -> bool {
        self.cached.is_some()
    }

    /// Notes the attributes of an item in it.
    pub(crate) fn note_item(&mut self, attributes: &Attributes) {
        if attributes.expires != Timestamp::ZERO {
            self.expires = self.expires.min(attributes.expires);
        }
        if attributes.is_cached && self.cached.is_none() {
            self.cached = Some(CacheMark::new(&self.memory));
        }
    }
}

/// The flags of the entry at a reference, as they are at this moment.
#[inline(always)]
pub(crate) fn flags(memory: &Memory, at: Reference) -> u8 {
    // SAFETY: references come from the index or from a walk over a segment, so an entry begins
    // here; its flags are only touched as an atomic once it is published.
    unsafe { AtomicU8::from_ptr(memory.at(at)).load(Ordering::Relaxed) }
}

/// Marks the entry at a reference dead. Reactor only.
#[inline]
pub(crate) fn mark_dead(memory: &Memory, at: Reference) {
    // SAFETY: as in `flags`. Only the reactor writes flags of published entries, so a plain load
    // and store lose nothing.
    let cell = unsafe { AtomicU8::from_ptr(memory.at(at)) };
    cell.store(cell.load(Ordering::Relaxed) | crate::format::entry::DEAD, Ordering::Relaxed);
}

/// Counts a use of the item at a reference, up to 3. Only while the log is borrowed: then nothing
/// marks it dead meanwhile.
pub(crate) fn count_use(memory: &Memory, at: Reference) {
    // SAFETY: as in `mark_dead`.
    let cell = unsafe { AtomicU8::from_ptr(memory.at(at)) };
    let flags = cell.load(Ordering::Relaxed);
    if flags & USES != USES {
        cell.store(flags + 1, Ordering::Relaxed);
    }
}

/// Takes one use of the item at a reference; false if it has none. Reactor only, or the cleaner
/// that is the only one to see the entry.
pub(crate) fn take_use(memory: &Memory, at: Reference) -> bool {
    // SAFETY: as in `mark_dead`.
    let cell = unsafe { AtomicU8::from_ptr(memory.at(at)) };
    let flags = cell.load(Ordering::Relaxed);
    let has_uses = flags & USES != 0;
    if has_uses {
        cell.store(flags - 1, Ordering::Relaxed);
    }
    has_uses
}

/// Clears the dead bit of an entry that no other thread knows of yet.
pub(crate) fn mark_alive(memory: &Memory, at: Reference) {
    // SAFETY: as in `mark_dead`; the entry was just copied here.
    let cell = unsafe { AtomicU8::from_ptr(memory.at(at)) };
    cell.store(cell.load(Ordering::Relaxed) & !crate::format::entry::DEAD, Ordering::Relaxed);
}

/// The frame of the entry at a reference. The entry was written by an [`Appender`].
#[inline]
pub(crate) fn frame(memory: &Memory, at: Reference) -> Frame {
    let flags = flags(memory, at);
    let address = memory.at(at);
    let mut body_at = FRAME_BYTES;
    let mut body_bytes = 0usize;
    let mut shift = 0;
    loop {
        // SAFETY: the entry was written whole, its header in one piece, and its body length is a
        // varint that ends within it; these bytes never change.
        let byte = unsafe { *address.add(body_at) };
        body_at += 1;
        body_bytes |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Frame { flags, body_at, body_bytes };
        }
        shift += 7;
    }
}

/// The part of an entry's body that lies in its first seglet: all small fields are in it.
#[inline]
pub(crate) fn body_start<'a>(memory: &'a Memory, at: Reference, frame: &Frame) -> &'a [u8] {
    let length = frame.body_bytes.min(memory.room(at) - frame.body_at);
    // SAFETY: the bytes belong to the entry at `at`, lie in one seglet and never change while the
    // caller, which holds off the freeing of the segment, can see them.
    unsafe { std::slice::from_raw_parts(memory.at(at).add(frame.body_at), length) }
}

/// Walks the entries of a segment in memory.
pub(crate) struct Entries<'a> {
    memory: &'a Memory,
    seglets: &'a [u32],
    at: usize,
    length: usize,
}

impl Iterator for Entries<'_> {
    type Item = (Reference, Frame);

    #[inline]
    fn next(&mut self) -> Option<(Reference, Frame)> {
        let seglet_bytes = self.memory.seglet_bytes();
        loop {
            if self.at >= self.length {
                return None;
            }
            let inside = self.at & (seglet_bytes - 1);
            let seglet = self.seglets[self.at / seglet_bytes];
            let reference = self.memory.seglet_start(seglet) + inside as u64;
            let frame = if flags(self.memory, reference) == 0 {
                self.at += seglet_bytes - inside;
                continue;
            } else {
                frame(self.memory, reference)
            };
            self.at += frame.entry_bytes();
            return Some((reference, frame));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewinding_to_a_mark_removes_fillings_that_came_later() {
        let memory = Memory::with_seglets(1 << 20, 1024).unwrap();
        let mut appender = Appender::open(&memory, SegmentId(1), 8 << 10, 0).unwrap();
        let mut append = |bytes: usize| {
            let mark = appender.mark();
            assert!(matches!(appender.reserve(bytes, 0), Room::At(_)));
            appender.advance(bytes);
            let idle = memory.idle_bytes(appender.seglets[0]);
            (mark, appender.length(), idle)
        };
        for _ in 0..34 {
            append(30);
        }
        let (mark, length, idle) = append(30);
        assert_eq!((length, idle), (1024 + 30, 1024 - 34 * 30));
        appender.rewind(mark);
        assert_eq!((appender.length(), memory.idle_bytes(appender.seglets[0])), (34 * 30, 0));
    }
}
