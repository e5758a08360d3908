//! The outcome of an operation, and the format of its record.

use thunderhead_log::Error;
use thunderhead_wire::operations::PartHead;
use thunderhead_wire::{Sequence, Status, Version};
use zerocopy::IntoBytes;

/// Microseconds that a client waits before it tries again when memory is full: clients have to
/// delete objects first.
const NO_SPACE_US: u32 = 10_000;

/// The same where the cleaners are about to free some.
const BUSY_US: u32 = 500;

/// The outcome of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) status: Status,
    /// The object's new version, or its present version if the update was refused.
    pub(crate) version: Version,
    /// The sum of an increment.
    pub(crate) sum: Option<[u8; 8]>,
    /// A detail of the status, as the status defines it.
    pub(crate) hint: u32,
}

impl Outcome {
    pub(crate) fn done(version: Version) -> Outcome {
        Outcome { status: Status::Ok, version, sum: None, hint: 0 }
    }

    pub(crate) fn refused(status: Status, version: Version) -> Outcome {
        Outcome { status, version, sum: None, hint: 0 }
    }

    /// The outcome for an error of the log.
    pub(crate) fn of_error(error: &Error) -> Outcome {
        let (status, version, hint) = match error {
            Error::KeyEmpty => (Status::KeyEmpty, Version::NONE, 0),
            Error::KeyTooLong { .. } => (Status::KeyTooLong, Version::NONE, 0),
            Error::ValueTooLong { .. } => (Status::ValueTooLong, Version::NONE, 0),
            Error::Condition { current } => (Status::ConditionFailed, *current, 0),
            Error::VersionTooHigh { .. } => (Status::VersionsExhausted, Version::NONE, 0),
            Error::MemoryFull { .. } => (Status::NoSpace, Version::NONE, NO_SPACE_US),
            Error::TabletFull { .. } => (Status::TableFull, Version::NONE, 0),
            Error::CleanerBehind => (Status::AwaitingMemory, Version::NONE, BUSY_US),
            // Another shard has the tablet. Those of tablets and records come from calls that are
            // not made for a client's update.
            _ => (Status::Moved, Version::NONE, 0),
        };
        Outcome { status, version, sum: None, hint }
    }

    /// Whether asking again could find the object in another state, so that it must be written
    /// down.
    pub(crate) fn depends_on_object(&self) -> bool {
        use Status::{ConditionFailed, NotANumber, Ok, Overflow, VersionsExhausted};
        matches!(self.status, Ok | ConditionFailed | NotANumber | Overflow | VersionsExhausted)
    }

    /// Puts the form in which it is answered among many behind others.
    #[inline]
    pub(crate) fn put_part(&self, into: &mut Vec<u8>) {
        let bytes = self.sum.map_or(0, |sum| sum.len());
        into.extend_from_slice(PartHead::new(self.status.code(), self.version, bytes).as_bytes());
        if let Some(sum) = self.sum {
            into.extend_from_slice(&sum);
        }
    }

    /// Returns the recorded form. It carries the first unacknowledged update too, so that a shard
    /// that reads the records after a crash knows it as well. Numbers have only as many bytes as
    /// they need; the first byte holds these lengths.
    ///
    /// ```text
    ///  | bytes of first 4 bits, of version 4 bits | status u16, HAS_SUM | first | version | [sum 8] |
    /// ```
    #[inline]
    pub(crate) fn to_record(self, first_unacknowledged: Sequence) -> Record {
        let bytes_of = |number: u64| (u64::BITS - number.leading_zeros()).div_ceil(8) as usize;
        let (first, version) = (bytes_of(first_unacknowledged.0), bytes_of(self.version.0));
        let has_sum = if self.sum.is_some() { HAS_SUM } else { 0 };
        let head = (first | version << 4) as u128 | u128::from(self.status.code() | has_sum) << 8;
        let behind = 24 + 8 * first;
        let low =
            head | u128::from(first_unacknowledged.0) << 24 | u128::from(self.version.0) << behind;
        let high = if behind > 64 { self.version.0 >> (128 - behind) } else { 0 };
        let mut record = Record { bytes: [0; RECORD_BYTES_MAX], length: 3 + first + version };
        record.bytes[..16].copy_from_slice(&low.to_le_bytes());
        record.bytes[16..24].copy_from_slice(&high.to_le_bytes());
        if let Some(sum) = self.sum {
            record.bytes[record.length..record.length + 8].copy_from_slice(&sum);
            record.length += 8;
        }
        record
    }

    /// Reads a record: the first unacknowledged update and the outcome.
    pub(crate) fn of_record(bytes: &[u8]) -> Option<(Sequence, Outcome)> {
        let (&[lengths, low, high], rest) = bytes.split_first_chunk::<3>()?;
        let (first, rest) = rest.split_at_checked(usize::from(lengths & 15))?;
        let (version, rest) = rest.split_at_checked(usize::from(lengths >> 4))?;
        let status = u16::from_le_bytes([low, high]);
        let sum = match (status & HAS_SUM != 0, rest) {
            (false, []) => None,
            (true, sum) => Some(sum.try_into().ok()?),
            (false, _) => return None,
        };
        let status = Status::of_code(status & !HAS_SUM)?;
        let version = Version(number(version)?);
        Some((Sequence(number(first)?), Outcome { status, version, sum, hint: 0 }))
    }
}

/// A number of which the upper bytes were left out.
fn number(bytes: &[u8]) -> Option<u64> {
    let mut all = [0; 8];
    all.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(all))
}

/// Beside the status in a record: a sum follows.
const HAS_SUM: u16 = 1 << 15;

/// The most that is recorded of an update.
const RECORD_BYTES_MAX: usize = 1 + 2 + 8 + 8 + 8;

/// The record of an update.
pub(crate) struct Record {
    bytes: [u8; RECORD_BYTES_MAX],
    length: usize,
}

impl AsRef<[u8]> for Record {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_survives_the_round_trip_through_its_record() {
        let outcomes = [
            Outcome::done(Version(7)),
            Outcome::done(Version::NONE),
            Outcome::done(Version(u64::MAX)),
            Outcome::refused(Status::ConditionFailed, Version(3)),
            Outcome { sum: Some([9; 8]), ..Outcome::done(Version(8)) },
        ];
        for outcome in outcomes {
            let record = outcome.to_record(Sequence(5));
            let bytes = record.as_ref();
            assert_eq!(Outcome::of_record(bytes), Some((Sequence(5), outcome)));
            assert!(outcome.depends_on_object());
            for length in 0..bytes.len() {
                assert_eq!(Outcome::of_record(&bytes[..length]), None, "{length}");
            }
            for first in [0, 255, 256, u64::MAX].map(Sequence) {
                let record = outcome.to_record(first);
                assert_eq!(Outcome::of_record(record.as_ref()), Some((first, outcome)));
            }
        }
    }

    #[test]
    fn numbers_of_any_length_lie_one_behind_the_other() {
        let numbers = (0..=64).map(|bits| 0x9a7b_5c3d_1e2f_4a6b_u64.unbounded_shr(64 - bits));
        for (first, version) in numbers.clone().flat_map(|it| numbers.clone().map(move |v| (it, v)))
        {
            for sum in [None, Some([7; 8])] {
                let record =
                    Outcome { sum, ..Outcome::done(Version(version)) }.to_record(Sequence(first));
                let short = |number: u64| {
                    let bytes = number.to_le_bytes();
                    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
                    bytes[..used].to_vec()
                };
                let lengths = (short(first).len() | short(version).len() << 4) as u8;
                let status = if sum.is_some() { [0, 0x80] } else { [0, 0] };
                let sum = sum.map_or(Vec::new(), Vec::from);
                let whole = [vec![lengths], status.to_vec(), short(first), short(version), sum];
                assert_eq!(record.as_ref(), whole.concat(), "{first:x} {version:x}");
            }
        }
    }
}
