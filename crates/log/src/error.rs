//! Failures, split by whose fault they are: the caller's ([`Error`]), or damage in bytes that came
//! from outside ([`Damage`]). A broken invariant of the log itself is neither: it panics.

use thunderhead_wire::{LeaseId, LogId, SegmentId, Sequence, TableId, TabletRange, Version};

/// The reason why an operation was refused. A refused operation changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key has no bytes.
    #[error("the key is empty; give at least one byte")]
    KeyEmpty,
    /// The key is longer than [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX), or than an eighth of a
    /// segment of this log: [`Options::key_bytes_max`](crate::Options::key_bytes_max).
    #[error("the key has {bytes} bytes; the limit is {limit}")]
    KeyTooLong {
        /// The given length.
        bytes: usize,
        /// The longest allowed length.
        limit: usize,
    },
    /// The value is longer than [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX), or than an eighth of
    /// a segment of this log: [`Options::value_bytes_max`](crate::Options::value_bytes_max).
    #[error("the value has {bytes} bytes; the limit is {limit}")]
    ValueTooLong {
        /// The given length.
        bytes: usize,
        /// The longest allowed length.
        limit: usize,
    },
    /// No tablet of this log holds the key.
    #[error(
        "no tablet of {table} here holds this key; create the table or ask the server that has it"
    )]
    UnknownTablet {
        /// The table of the request.
        table: TableId,
    },
    /// A tablet to be created overlaps a tablet of this log.
    #[error(
        "the tablet {0} overlaps a tablet that exists here; drop that tablet first, or choose another range"
    )]
    TabletExists(TabletRange),
    /// A tablet to be created has no hashes: its first hash comes after its last.
    #[error("the tablet {0} is empty: its first hash must be at most its last")]
    RangeReversed(TabletRange),
    /// The condition of a conditional operation does not hold.
    #[error("the condition does not hold: the object's version is {current}")]
    Condition {
        /// The version the key has now; [`Version::NONE`] when it does not exist.
        current: Version,
    },
    /// The update was completed before; its record holds the outcome.
    #[error(
        "update {sequence} of lease {lease} was completed before: answer with its recorded outcome"
    )]
    AlreadyCompleted {
        /// The client's lease.
        lease: LeaseId,
        /// The update's number.
        sequence: Sequence,
    },
    /// No version is that high: the given version, or the version that a write would have made.
    #[error("version {version} is impossible: the highest is {}", Version::HIGHEST)]
    VersionTooHigh {
        /// The version that was given, or that would have been written.
        version: Version,
    },
    /// Live data and indexes fill the memory up to the limit, and cleaning cannot help. Reads and
    /// deletes go on; delete objects or drop tablets, then try again. A memory does not grow: if
    /// all the data must be kept, replay it into a log with a larger [`Memory`].
    ///
    /// [`Memory`]: crate::Memory
    #[error(
        "memory is full: {live_bytes} bytes of live data, of which {limit_bytes} are allowed beside the indexes; delete objects or drop tablets, or make the log with a larger memory"
    )]
    MemoryFull {
        /// Live bytes in the log.
        live_bytes: u64,
        /// The limit of the live bytes: less than the memory, because indexes and reserves share
        /// it.
        limit_bytes: u64,
    },
    /// The tablet has its share of the most bytes of its table
    /// ([`TableLimits::max_bytes`](crate::TableLimits::max_bytes)), and the write would make it
    /// larger. Reads, deletes and writes that make no object larger go on.
    #[error(
        "{table} is full: its tablet here has {live_bytes} bytes of live data, and {limit_bytes} are its share of the table's maximum; delete objects"
    )]
    TabletFull {
        /// The table.
        table: TableId,
        /// Live bytes of its tablet.
        live_bytes: u64,
        /// The most of these.
        limit_bytes: u64,
    },
    /// There is room, but the cleaners have not freed it yet. Let them run and try again.
    #[error("no free memory at this moment: the cleaners are behind; try again shortly")]
    CleanerBehind,
}

impl Error {
    /// A stable number for logs and wires; never reused for another meaning.
    #[must_use]
    pub fn code(&self) -> u16 {
        match self {
            Error::KeyEmpty => 1,
            Error::KeyTooLong { .. } => 2,
            Error::ValueTooLong { .. } => 3,
            Error::UnknownTablet { .. } => 4,
            Error::TabletExists(_) => 5,
            Error::Condition { .. } => 6,
            Error::MemoryFull { .. } => 7,
            Error::CleanerBehind => 8,
            Error::AlreadyCompleted { .. } => 9,
            Error::VersionTooHigh { .. } => 10,
            Error::RangeReversed(_) => 11,
            Error::TabletFull { .. } => 12,
        }
    }

    /// Whether the same call may succeed a moment later with nothing else changed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Error::CleanerBehind)
    }
}

/// Damage in bytes that claim to be a segment, found while replaying or inspecting them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// The bytes end inside an entry: the usual end of a segment that was open at a crash.
    #[error("the entry at {offset} is cut short")]
    Torn {
        /// Where the entry begins.
        offset: u32,
    },
    /// The checksum of an entry does not fit its bytes.
    #[error("the entry at {offset} fails its checksum")]
    Checksum {
        /// Where the entry begins.
        offset: u32,
    },
    /// The checksum holds but the fields make no sense: written by a broken or hostile program.
    #[error("the entry at {offset} has an impossible {field}")]
    Field {
        /// Where the entry begins.
        offset: u32,
        /// The name of the field.
        field: &'static str,
    },
    /// The entry is of a kind that this version does not know and must not skip.
    #[error(
        "the entry at {offset} is of kind {kind}, which this version must understand and does not; upgrade first"
    )]
    UnknownKind {
        /// Where the entry begins.
        offset: u32,
        /// The kind's number.
        kind: u8,
    },
    /// The segment does not begin with a segment header.
    #[error("these bytes do not begin with a segment header")]
    NoHeader,
    /// The segment was written in a format, or with features, that this version does not know.
    #[error(
        "the segment has format {version} with features {features:#x}; this version reads format {known}"
    )]
    UnknownFormat {
        /// The version that the header names.
        version: u16,
        /// The incompatible features that the header names.
        features: u32,
        /// The newest version known here.
        known: u16,
    },
    /// The segment belongs to another log than the segments before it.
    #[error("the segment belongs to {found}, the segments before it to {expected}")]
    OtherLog {
        /// The log in the header.
        found: LogId,
        /// The log of the first segment.
        expected: LogId,
    },
    /// The segment cannot be adopted by this log.
    #[error(
        "{segment} cannot be adopted: its sizes differ, or its id is in use; replay it instead"
    )]
    NotAdoptable {
        /// The segment.
        segment: SegmentId,
    },
    /// The bytes are those of another segment.
    #[error("these bytes are of {found}, not of {expected}")]
    OtherSegment {
        /// The segment in the header.
        found: SegmentId,
        /// The segment that was expected.
        expected: SegmentId,
    },
}

/// The options cannot work; the sentence says which option and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OptionsError(pub(crate) String);
