//! The outcomes of several updates of one client, in one entry.
//!
//! ```text
//!  completions  | lease v | first sequence v | birth v | effects v | outcome | outcome | …
//!  outcome      | sequence − first, 1 | table v | key hash 8 | result length v | result |
//! ```
//!
//! The entry stands behind the entries that the updates have appended: `effects` entries, each
//! *linked* to the next and the last of them to this one. With *extra* set, it counts only if all
//! of them are intact, and they only if it is. Without *extra* it counts alone: a cleaner has moved
//! it, or the updates appended nothing. Sequences ascend and span no more than [`SPAN`] numbers, so
//! that a word says which of them are still wanted.

use super::entry::{EXTRA, Header, Kind, Seal, plain};
use super::varint::{self, Reader};
use thunderhead_wire::{KeyHash, LeaseId, LogId, SegmentId, Sequence, TableId};

/// The sequences of one entry are less than this apart.
pub(crate) const SPAN: u64 = 64;

/// The longest result in an entry of several outcomes.
pub(crate) const RESULT_BYTES_MAX: usize = 48;

/// The most bytes of an outcome, and of the fields before the first outcome.
pub(crate) const OUTCOME_BYTES_MAX: usize = 1 + 10 + 8 + 1 + RESULT_BYTES_MAX;
pub(crate) const FIXED_BYTES_MAX: usize = 5 + 4 + 4 * 10;

/// The most entries that may be linked in a row, the last included: those of a chain. A group has
/// fewer.
pub(crate) const CHAIN_MAX: usize = 32 << 10;

/// The small fields of the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupFields {
    pub(crate) lease: LeaseId,
    pub(crate) first: Sequence,
    pub(crate) birth: SegmentId,
    pub(crate) effects: u64,
}

impl GroupFields {
    /// The small fields as bytes, and the header for them with so many bytes of outcomes.
    pub(crate) fn encode(&self, outcomes: usize) -> (Header, [u8; 40], usize) {
        let (mut bytes, mut length) = ([0; 40], 0);
        for value in [self.lease.0, self.first.0, self.birth.0, self.effects] {
            length += varint::write(&mut bytes[length..], value);
        }
        let mut header = plain(Kind::Completions, length + outcomes);
        if self.effects > 0 {
            header.add_flag(EXTRA);
        }
        (header, bytes, length)
    }

    /// Reads them from the first bytes of a body, and where the outcomes begin.
    pub(crate) fn read(body: &[u8]) -> Option<(GroupFields, usize)> {
        let mut reader = Reader::new(body);
        let (lease, first) = (LeaseId(reader.varint()?), Sequence(reader.varint()?));
        let (birth, effects) = (SegmentId(reader.varint()?), reader.varint()?);
        Some((GroupFields { lease, first, birth, effects }, reader.position()))
    }

    /// Appends an outcome.
    #[inline]
    pub(crate) fn put(into: &mut Vec<u8>, first: Sequence, outcome: &Outcome<'_>) {
        let Outcome { sequence, table, key_hash, result } = *outcome;
        // The bytes are written in place, not assembled elsewhere and copied: a read of bytes that
        // were just written in pieces stalls.
        let start = into.len();
        into.extend_from_slice(&[0; OUTCOME_BYTES_MAX]);
        let Some(bytes) = into[start..].first_chunk_mut::<OUTCOME_BYTES_MAX>() else { return };
        bytes[0] = sequence.distance_from(first) as u8;
        let behind_table = match u8::try_from(table.0) {
            Ok(table) if table < 0x80 => {
                bytes[1] = table;
                2
            }
            _ => 1 + varint::write(&mut bytes[1..], table.0),
        };
        bytes[behind_table..behind_table + 8].copy_from_slice(&key_hash.0.to_le_bytes());
        // The length takes one byte: no result is longer.
        const { assert!(RESULT_BYTES_MAX < 0x80) };
        bytes[behind_table + 8] = result.len() as u8;
        let at = behind_table + 9;
        bytes[at..at + result.len()].copy_from_slice(result);
        into.truncate(start + at + result.len());
    }
}

/// An entry for a log with these outcomes, of which there is at least one.
pub(crate) fn made_of(
    log: LogId,
    lease: LeaseId,
    birth: SegmentId,
    effects: u64,
    outcomes: &[Outcome<'_>],
) -> Vec<u8> {
    let first = outcomes.first().map_or(Sequence::NONE, |outcome| outcome.sequence);
    let mut bytes = Vec::with_capacity(outcomes.len() * 24);
    outcomes.iter().for_each(|outcome| GroupFields::put(&mut bytes, first, outcome));
    let fields = GroupFields { lease, first, birth, effects };
    let (mut header, fixed, length) = fields.encode(bytes.len());
    let pieces = [header.sealed(), &fixed[..length], &bytes];
    let checksum = Seal::new(log).of_pieces(header.flags(), pieces.into_iter());
    header.set_checksum(checksum);
    [header.as_bytes(), &fixed[..length], &bytes].concat()
}

/// The outcome of one of several updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome<'a> {
    /// The update's number.
    pub sequence: Sequence,
    /// The table of the key that was updated.
    pub table: TableId,
    /// The hash of that key.
    pub key_hash: KeyHash,
    /// The outcome itself.
    pub result: &'a [u8],
}

/// The outcomes in one entry, in the order of their sequences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcomes<'a> {
    reader: Reader<'a>,
    first: Sequence,
}

impl<'a> Outcomes<'a> {
    /// Reads the whole body of an entry. `None` if any part of it is malformed.
    pub(crate) fn read(body: &'a [u8]) -> Option<(GroupFields, Outcomes<'a>)> {
        let (fields, begins) = GroupFields::read(body)?;
        let outcomes = Outcomes { reader: Reader::new(body.get(begins..)?), first: fields.first };
        let mut all = outcomes.clone();
        let mut before = None;
        while let Some((outcome, _)) = all.after() {
            let at = outcome.sequence.distance_from(fields.first);
            if at >= SPAN
                || outcome.result.len() > RESULT_BYTES_MAX
                || before.is_some_and(|it| at <= it)
            {
                return None;
            }
            before = Some(at);
        }
        (before.is_some() && all.reader.is_empty()).then_some((fields, outcomes))
    }

    /// The number of bytes of a body before these outcomes, if none of them was taken yet.
    pub(crate) fn begin_behind(&self, body: &[u8]) -> usize {
        body.len() - self.reader.rest().len()
    }

    /// The next outcome, and where its result ends among the bytes of the outcomes.
    fn after(&mut self) -> Option<(Outcome<'a>, usize)> {
        let mut reader = self.reader.clone();
        let sequence = Sequence(self.first.0.checked_add(u64::from(reader.u8()?))?);
        let (table, key_hash) = (TableId(reader.varint()?), KeyHash(reader.u64()?));
        let length = usize::try_from(reader.varint()?).ok()?;
        let result = reader.take(length)?;
        self.reader = reader;
        Some((Outcome { sequence, table, key_hash, result }, self.reader.position()))
    }

    /// The next outcome, and where its result begins among the bytes of the outcomes.
    pub(crate) fn next_at(&mut self) -> Option<(Outcome<'a>, usize)> {
        let (outcome, end) = self.after()?;
        Some((outcome, end - outcome.result.len()))
    }
}

impl<'a> Iterator for Outcomes<'a> {
    type Item = Outcome<'a>;

    fn next(&mut self) -> Option<Outcome<'a>> {
        self.after().map(|(outcome, _)| outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn outcomes_read_back_as_written_and_truncated_bytes_are_refused(
            lease in any::<u64>(),
            first in prop_oneof![0..1000u64, Just(u64::MAX - 70)].prop_map(Sequence),
            outcomes in prop::collection::btree_map(
                0..SPAN,
                (any::<u64>(), any::<u64>(), prop::collection::vec(any::<u8>(), 0..RESULT_BYTES_MAX)),
                1..SPAN as usize,
            ),
            effects in 0..70u64,
        ) {
            let fields = GroupFields { lease: LeaseId(lease), first, birth: SegmentId(lease / 3), effects };
            let mut bytes = Vec::new();
            let mut expected = Vec::new();
            for (at, (table, hash, result)) in &outcomes {
                let outcome = Outcome {
                    sequence: first.plus(*at),
                    table: TableId(*table),
                    key_hash: KeyHash(*hash),
                    result,
                };
                let before = bytes.len();
                GroupFields::put(&mut bytes, first, &outcome);
                prop_assert!(bytes.len() - before <= OUTCOME_BYTES_MAX);
                expected.push(outcome);
            }
            let (header, fixed, length) = fields.encode(bytes.len());
            prop_assert!(header.entry_bytes - bytes.len() <= FIXED_BYTES_MAX);
            prop_assert_eq!(header.flags() & EXTRA != 0, effects > 0);
            let body = [&fixed[..length], &bytes].concat();
            let (read, all) = Outcomes::read(&body).unwrap();
            prop_assert_eq!(read, fields);
            prop_assert_eq!(all.clone().collect::<Vec<_>>(), expected);
            let mut each = all;
            while let Some((outcome, at)) = each.next_at() {
                let behind = &bytes[at..at + outcome.result.len()];
                prop_assert_eq!(outcome.result, behind);
            }
            prop_assert!(Outcomes::read(&body[..body.len() - 1]).is_none());
            prop_assert!(Outcomes::read(&body[..length]).is_none(), "none at all");
        }

        #[test]
        fn sequences_that_do_not_ascend_are_refused(a in 0..SPAN, b in 0..SPAN) {
            let (lease, first, birth) = (LeaseId(1), Sequence(5), SegmentId(1));
            let fields = GroupFields { lease, first, birth, effects: 0 };
            let mut bytes = Vec::new();
            for at in [a, b] {
                let (table, key_hash) = (TableId(1), KeyHash(2));
                let outcome = Outcome { sequence: first.plus(at), table, key_hash, result: b"" };
                GroupFields::put(&mut bytes, first, &outcome);
            }
            let (_, fixed, length) = fields.encode(bytes.len());
            let body = [&fixed[..length], &bytes].concat();
            prop_assert_eq!(Outcomes::read(&body).is_some(), a < b);
        }
    }
}
