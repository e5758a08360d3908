//! What became of an operation, and how it is written down.

use thunderhead_log::Error;
use thunderhead_wire::operations::PartHead;
use thunderhead_wire::{Status, Version};
use zerocopy::IntoBytes;

/// What a client waits before it tries again, in microseconds, where there is no room: somebody has
/// to delete something first.
const NO_SPACE_US: u32 = 10_000;

/// The same where the cleaners are about to free some.
const BUSY_US: u32 = 500;

/// What became of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) status: Status,
    /// The object's new version, or the one that it has.
    pub(crate) version: Version,
    /// The sum of an increment.
    pub(crate) sum: Option<[u8; 8]>,
    /// What the status wants.
    pub(crate) hint: u32,
}

impl Outcome {
    pub(crate) fn done(version: Version) -> Outcome {
        Outcome { status: Status::Ok, version, sum: None, hint: 0 }
    }

    pub(crate) fn refused(status: Status, version: Version) -> Outcome {
        Outcome { status, version, sum: None, hint: 0 }
    }

    /// What the log says.
    pub(crate) fn of_error(error: &Error) -> Outcome {
        let (status, version, hint) = match error {
            Error::KeyEmpty => (Status::KeyEmpty, Version::NONE, 0),
            Error::KeyTooLong { .. } => (Status::KeyTooLong, Version::NONE, 0),
            Error::ValueTooLong { .. } => (Status::ValueTooLong, Version::NONE, 0),
            Error::Condition { current } => (Status::ConditionFailed, *current, 0),
            Error::VersionTooHigh { .. } => (Status::VersionsExhausted, Version::NONE, 0),
            Error::MemoryFull { .. } => (Status::NoSpace, Version::NONE, NO_SPACE_US),
            Error::CleanerBehind => (Status::Busy, Version::NONE, BUSY_US),
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

    /// The form in which it is answered among many.
    pub(crate) fn to_part(self) -> Part {
        let sum = self.sum.unwrap_or_default();
        let bytes = self.sum.map_or(0, |sum| sum.len());
        Part { head: PartHead::new(self.status.code(), self.version, bytes), sum, bytes }
    }

    /// The form in which it is recorded: behind the first update of which the client may still ask,
    /// so that whoever reads the records anew knows that as well.
    #[inline]
    pub(crate) fn to_record(self, first_unacknowledged: u64) -> Record {
        let part = self.to_part();
        let mut record = Record { bytes: [0; RECORD_BYTES_MAX], length: 0 };
        record.put(&first_unacknowledged.to_le_bytes());
        record.put(part.head.as_bytes());
        record.put(&part.sum[..part.bytes]);
        record
    }

    /// Reads what was recorded: the first update of which the client may still ask, and the outcome.
    pub(crate) fn of_record(bytes: &[u8]) -> Option<(u64, Outcome)> {
        let (first, part) = bytes.split_first_chunk::<8>()?;
        Some((u64::from_le_bytes(*first), Outcome::of_part(part)?))
    }

    /// Reads what is answered among many.
    pub(crate) fn of_part(bytes: &[u8]) -> Option<Outcome> {
        let (head, value, _) = PartHead::take(bytes)?;
        let status = Status::of_code(head.status())?;
        let sum = value.first_chunk::<8>().copied();
        Some(Outcome { status, version: head.version(), sum, hint: 0 })
    }
}

/// The most that is recorded of an update: whose answers the client has, the outcome, a sum.
const RECORD_BYTES_MAX: usize = 8 + size_of::<PartHead>() + 8;

/// What is recorded of an update.
pub(crate) struct Record {
    bytes: [u8; RECORD_BYTES_MAX],
    length: usize,
}

impl Record {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        self.bytes[self.length..end].copy_from_slice(bytes);
        self.length = end;
    }
}

impl AsRef<[u8]> for Record {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// An outcome as bytes.
pub(crate) struct Part {
    head: PartHead,
    sum: [u8; 8],
    bytes: usize,
}

impl Part {
    pub(crate) fn put(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(self.head.as_bytes());
        into.extend_from_slice(&self.sum[..self.bytes]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_recorded_is_read() {
        let outcomes = [
            Outcome::done(Version(7)),
            Outcome::refused(Status::ConditionFailed, Version(3)),
            Outcome { sum: Some([9; 8]), ..Outcome::done(Version(8)) },
        ];
        for outcome in outcomes {
            let record = outcome.to_record(5);
            let bytes = record.as_ref();
            assert_eq!(Outcome::of_record(bytes), Some((5, outcome)));
            assert!(outcome.depends_on_object());
            for length in 0..bytes.len() {
                assert_eq!(Outcome::of_record(&bytes[..length]), None, "{length}");
            }
        }
    }
}
