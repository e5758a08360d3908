//! Groups: the outcomes of the updates of one message, recorded together.
//!
//! A record of each outcome by itself costs more than the update: an entry, its checksum, its place
//! in the index, and all of that again when the client has the answer. Between [`Log::begin_group`]
//! and [`Log::end_group`] outcomes are only noted. Then they are recorded in one entry
//! ([`outcomes`](crate::format::outcomes)), which the index holds under the group's first sequence.
//! A word beside the log says which sequences of a group are still wanted; when none is, the entry
//! is dead.
//!
//! **All or nothing.** The entries that the updates append are linked, each to the next and the
//! last one to the record. So a recovery sees all updates of a group with their outcomes, or none
//! of them. For this they must lie in one segment. So room for the whole group is made when it
//! begins. No turn is taken inside a group, because a turn would hand over a part of it.
//!
//! **Durable together.** A replicator may have copied a part of a group and not the rest. After a
//! crash such a part does not count, so an object of a group is durable when the group is: see
//! [`Groups::durable_at`].
//!
//! **Apart.** The sequences of two groups of a client do not interleave, so at most one group can
//! have a sequence. An outcome that would make groups interleave is recorded by itself.

use super::Log;
use super::completions::Records;
use crate::error::Error;
use crate::format::entry::{CompletionFields, LINKED};
use crate::format::outcomes::{
    FIXED_BYTES_MAX, GroupFields, OUTCOME_BYTES_MAX, Outcome, RESULT_BYTES_MAX, SPAN,
};
use crate::memory::Reference;
use crate::memory::segment;
use std::collections::{BTreeMap, VecDeque};
use thunderhead_wire::{LeaseId, LogPosition, Sequence};

/// The most that the updates of one group may append: a small part of a segment, so that little is
/// lost at the segment's end, and few seglets.
const GROUP_BYTES_MAX: usize = 64 << 10;

/// The most that an update appends beside its value and, twice, its key: an object, in the classic
/// scheme a tombstone, and its outcome.
const UPDATE_BYTES: usize = 2 * crate::limits::HEADER_BYTES_MAX + OUTCOME_BYTES_MAX;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Groups {
    /// By lease and first sequence: the sequences from there on whose outcomes are wanted, as bits.
    wanted: BTreeMap<(LeaseId, Sequence), u64>,
    open: Option<OpenGroup>,
    /// The flags of entries that are appended now: [`LINKED`] while a group is open.
    links: u8,
    /// The positions where groups that are not durable yet begin and end, in their order.
    unsettled: VecDeque<(LogPosition, LogPosition)>,
    /// How far the log is durable, without the part of a group that is not durable whole.
    settled: LogPosition,
    /// The outcomes of the open group.
    bytes: Vec<u8>,
}

/// The group to which updates are being added.
struct OpenGroup {
    lease: LeaseId,
    first: Sequence,
    /// The last sequence that the group may have.
    last: Sequence,
    from: LogPosition,
    room: usize,
    wanted: u64,
    effects: u64,
}

impl Groups {
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// The flags for entries that are appended now.
    #[inline]
    pub(super) fn links(&self) -> u8 {
        self.links
    }

    /// Sets whether the entries that are appended now are linked, each to the next.
    pub(super) fn link(&mut self, are_linked: bool) {
        self.links = if are_linked { LINKED } else { 0 };
    }

    /// Notes the place of entries that count only together.
    pub(super) fn add_unsettled(&mut self, from: LogPosition, end: LogPosition) {
        self.unsettled.push_back((from, end));
    }

    /// Counts an appended entry for the open group, if there is one.
    #[inline]
    pub(super) fn count_effect(&mut self) {
        if let Some(open) = &mut self.open {
            open.effects += 1;
        }
    }

    /// The group that has a sequence, and its wanted sequences.
    #[inline]
    fn around(&self, lease: LeaseId, sequence: Sequence) -> Option<(Sequence, u64)> {
        let (key, wanted) = self.wanted.range(..=(lease, sequence)).next_back()?;
        let at = sequence.distance_from(key.1);
        (key.0 == lease && at < SPAN && wanted >> at & 1 != 0).then_some((key.1, *wanted))
    }

    /// Whether the outcome of a sequence of a group is wanted.
    pub(super) fn wants(&self, lease: LeaseId, first: Sequence, sequence: Sequence) -> bool {
        let wanted = self.wanted.get(&(lease, first)).copied().unwrap_or_default();
        let at = sequence.distance_from(first);
        at < SPAN && wanted >> at & 1 != 0
    }

    /// The last sequence that a group may have if it begins at `first`; `None` if `first` lies
    /// between the sequences of another group.
    fn last_of(&self, lease: LeaseId, first: Sequence) -> Option<Sequence> {
        if let Some((key, wanted)) = self.wanted.range(..=(lease, first)).next_back()
            && key.0 == lease
            && first.distance_from(key.1) <= u64::from(wanted.checked_ilog2().unwrap_or_default())
        {
            return None;
        }
        let last = Sequence(first.0.saturating_add(SPAN - 1));
        let next = self.wanted.range((lease, first)..=(lease, last)).next();
        Some(next.map_or(last, |((_, next), _)| Sequence(next.0 - 1)))
    }

    /// How far the log is durable, without the part of a group that is not durable whole.
    #[inline]
    pub(super) fn settled(&self) -> LogPosition {
        self.settled
    }

    /// Learns how far the log is durable.
    pub(super) fn settle(&mut self, durable: LogPosition) {
        while self.unsettled.front().is_some_and(|(_, end)| *end <= durable) {
            self.unsettled.pop_front();
        }
        self.settled = match self.unsettled.front() {
            Some((start, _)) => durable.min(*start),
            None => durable,
        };
    }

    /// The position at which an entry is durable, given the unsettled position where the entry
    /// ends.
    pub(super) fn durable_at(&self, end: LogPosition) -> LogPosition {
        let at = self.unsettled.partition_point(|(_, behind)| *behind < end);
        match self.unsettled.get(at) {
            Some((start, behind)) if *start < end => *behind,
            _ => end,
        }
    }
}

impl Log {
    /// The most that an update may append in a group, for a key and a value of so many bytes.
    #[must_use]
    pub fn grouped_bytes(key: usize, value: usize) -> usize {
        UPDATE_BYTES + 2 * key + value
    }

    /// Begins a group: from now on the outcomes of one client's updates, from a sequence on, are
    /// recorded together. `bytes` is the room that they take ([`Log::grouped_bytes`]); the group
    /// may get less. False if there is no room, or another group is in the way: then each outcome
    /// is recorded by itself.
    ///
    /// While a group is open, make no update of another client, and none without an outcome.
    pub fn begin_group(&mut self, lease: LeaseId, sequence: Sequence, bytes: usize) -> bool {
        self.end_group();
        let seglet_bytes = self.memory.seglet_bytes();
        let most = GROUP_BYTES_MAX.min(12 * seglet_bytes).min(self.options().segment_bytes / 8);
        let bytes = bytes.min(most - FIXED_BYTES_MAX);
        let Some(last) = self.groups.last_of(lease, sequence) else { return false };
        // Each seglet may end with a filling.
        let fillings = (bytes / seglet_bytes + 2) * segment::straddle_bytes(seglet_bytes);
        let all = bytes + FIXED_BYTES_MAX + fillings;
        if self.make_room(all, self.shared.reserves.for_writes()).is_err() {
            return false;
        }
        let from = self.head.position();
        self.groups.open = Some(OpenGroup {
            lease,
            first: sequence,
            last,
            from,
            room: bytes,
            wanted: 0,
            effects: 0,
        });
        self.groups.links = LINKED;
        true
    }

    /// Whether an open group can take the outcome of an update with this sequence that appends
    /// `bytes`.
    #[inline]
    #[must_use]
    pub fn group_takes(&self, sequence: Sequence, bytes: usize) -> bool {
        self.groups.open.as_ref().is_some_and(|open| {
            let taken = u64::from(u64::BITS - open.wanted.leading_zeros());
            let is_next = (open.first..=open.last).contains(&sequence);
            is_next && sequence.distance_from(open.first) >= taken && bytes <= open.room
        })
    }

    /// The outcomes that are noted in the open group and not yet in the log: a number that changes
    /// with each.
    #[inline]
    #[must_use]
    pub fn grouped(&self) -> u64 {
        self.groups.open.as_ref().map_or(0, |open| open.wanted)
    }

    /// Whether the open group can take an update that appends `bytes`, and its outcome; ends the
    /// group if not.
    #[inline]
    pub(super) fn make_room_in_group(
        &mut self,
        result: &[u8],
        bytes: usize,
    ) -> Result<bool, Error> {
        let Some(open) = &self.groups.open else { return Ok(false) };
        if result.len() > RESULT_BYTES_MAX || bytes > open.room {
            self.close_group();
            return Ok(false);
        }
        // The outcome enters the index when the group ends, and must find room then.
        if self.completions.index.prepare_insert() { Ok(true) } else { Err(Error::CleanerBehind) }
    }

    /// Notes the outcome of an update in the open group; the update's entries lie behind `from`.
    #[inline]
    pub(super) fn note_outcome(&mut self, outcome: &Outcome<'_>, from: LogPosition) {
        let end = self.head.position();
        let Some(open) = &mut self.groups.open else { return };
        let before = self.groups.bytes.len();
        GroupFields::put(&mut self.groups.bytes, open.first, outcome);
        open.wanted |= 1 << outcome.sequence.distance_from(open.first);
        let taken = (end.offset - from.offset) as usize + self.groups.bytes.len() - before;
        open.room = open.room.saturating_sub(taken);
    }

    /// Ends a group and appends the noted outcomes to the log.
    pub fn end_group(&mut self) {
        if self.groups.is_open() {
            self.close_group();
            self.turn_if_due();
        }
    }

    /// Ends the group if it has noted outcomes: removing an entry from the index may use the room
    /// that was ensured there.
    #[inline]
    pub(super) fn end_noted_group(&mut self) {
        if self.grouped() != 0 {
            self.end_group();
        }
    }

    pub(super) fn close_group(&mut self) {
        let Some(open) = self.groups.open.take() else { return };
        self.groups.links = 0;
        let OpenGroup { lease, first, from, wanted, effects, .. } = open;
        assert!(wanted != 0 || effects == 0, "every effect in a group has an outcome");
        if wanted == 0 {
            return;
        }
        let outcomes = std::mem::take(&mut self.groups.bytes);
        let fields = GroupFields { lease, first, birth: self.head.born, effects };
        let (mut header, fixed, length) = fields.encode(outcomes.len());
        let bytes = header.entry_bytes;
        let at = self.head.place(bytes);
        self.head.appender.write(at, &mut header, [&fixed[..length], &outcomes], self.seal);
        let hash = CompletionFields::hash(lease, first);
        let inserted = self.completions.index.insert(hash, at, &Records(&self.memory));
        assert!(inserted.is_ok(), "memory for it was ensured");
        self.head.appender.advance(bytes);
        self.live_bytes += bytes as u64;
        self.groups.bytes = outcomes;
        self.groups.bytes.clear();
        self.groups.wanted.insert((lease, first), wanted);
        if effects > 0 {
            self.groups.add_unsettled(from, self.head.position());
        }
    }

    /// Records outcomes of one client's updates, for a replay: later updates have replaced their
    /// effects here. The outcomes are in the order of their sequences, none of them is known here,
    /// and this log holds their tablets. `done` is called with each recorded sequence.
    pub(crate) fn complete_many(
        &mut self,
        lease: LeaseId,
        outcomes: &[Outcome<'_>],
        mut done: impl FnMut(Sequence),
    ) -> Result<(), Error> {
        let result = outcomes.iter().try_for_each(|outcome| {
            let Outcome { sequence, table, key_hash, result } = *outcome;
            if !self.group_takes(sequence, OUTCOME_BYTES_MAX) {
                self.begin_group(lease, sequence, outcomes.len() * OUTCOME_BYTES_MAX);
            }
            if self.make_room_in_group(result, OUTCOME_BYTES_MAX)? {
                let from = self.head.position();
                self.note_outcome(outcome, from);
            } else {
                let completion = super::Completion { lease, sequence, result };
                self.complete_admitted(table, key_hash, completion)?;
            }
            done(sequence);
            Ok(())
        });
        self.end_group();
        result
    }

    /// The place in the log of the group that has a wanted sequence.
    pub(super) fn group_of(&self, lease: LeaseId, sequence: Sequence) -> Option<Reference> {
        let (first, _) = self.groups.around(lease, sequence)?;
        let mut found = None;
        self.completions.index.find(CompletionFields::hash(lease, first), |at| {
            let same = super::completions::is_group(&self.memory, at, lease, first);
            found = same.then_some(at);
            same
        })?;
        found
    }

    /// Forgets outcomes of the group that has the sequence `from`: bit `i` stands for `from + i`.
    /// Returns the bits of the forgotten outcomes; none if there is no such group.
    pub(super) fn forget_of_group(&mut self, lease: LeaseId, from: Sequence, bits: u64) -> u64 {
        let key = self.groups.wanted.range_mut(..=(lease, from)).next_back();
        let Some((&(_, first), wanted)) = key.filter(|((it, _), _)| *it == lease) else { return 0 };
        let at = from.distance_from(first);
        if at >= SPAN {
            return 0;
        }
        let gone = bits & *wanted >> at;
        *wanted &= !(gone << at);
        if *wanted != 0 || gone == 0 {
            return gone;
        }
        self.groups.wanted.remove(&(lease, first));
        let memory = &*self.memory;
        let found = self.completions.index.find(CompletionFields::hash(lease, first), |at| {
            super::completions::is_group(memory, at, lease, first)
        });
        if let Some(found) = found {
            let at = self.completions.index.remove(found);
            self.bury_record(at);
        }
        gone
    }
}
