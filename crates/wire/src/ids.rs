//! The ids themselves. Each is a newtype, so that a version can never be passed for a segment.
//!
//! All are plain values, `Copy`, ordered as their numbers are, and mean the same on every machine.

use serde::{Deserialize, Serialize};
use std::fmt;
use xxhash_rust::xxh3::xxh3_64;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(
            Clone,
            Copy,
            Debug,
            Default,
            PartialEq,
            Eq,
            PartialOrd,
            Ord,
            Hash,
            Serialize,
            Deserialize,
        )]
        #[repr(transparent)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id! {
    /// A table: a name space of keys. Ids are handed out once and never reused.
    TableId, "table "
}

id! {
    /// A segment of one log. Ids start at 1, grow by one with every segment that is opened, and
    /// are never reused, so they also serve as the log's own clock.
    SegmentId, "segment "
}

id! {
    /// A log: the sequence of segments that one master writes in one generation. Drawn at random.
    LogId, "log "
}

id! {
    /// The version of an object. 0 means "does not exist"; a key's versions never go back.
    Version, "v"
}

id! {
    /// A cluster. Drawn at random when the cluster is created.
    ClusterId, "cluster "
}

id! {
    /// A server process in one cluster. Handed out by the coordinator, never reused.
    ServerId, "server "
}

id! {
    /// A master: a shard of a server, which writes one log. Handed out by the coordinator, never
    /// reused.
    MasterId, "master "
}

id! {
    /// The epoch of a segment: raised when a replica of an open head was lost, so that the remains
    /// of that replica can be told from the replicas that went on.
    Epoch, "epoch "
}

/// A number that every text names itself, as in "generation 3". So both of its own texts are the
/// number alone, and a text stays the same if a plain number in it becomes such a type.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[repr(transparent)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

number! {
    /// The generation of a server: one of its runs. The coordinator counts them from 1; 0 means
    /// that the server has not enlisted yet.
    Generation
}

number! {
    /// A client's lease, under which each update of the client is done once. The coordinator counts
    /// leases in the high bits, so a later lease has a higher number; the low bits are random.
    LeaseId
}

number! {
    /// A recovery: one attempt to rebuild the tablets of a crashed master. The coordinator counts
    /// them from 1 and never uses a number twice, so of two attempts the later one has the higher
    /// number. 0 means no recovery.
    RecoveryId
}

number! {
    /// The number of an update among those of its client's lease. The client counts them from 1; 0
    /// means no sequence.
    Sequence
}

impl LeaseId {
    /// No lease: a retry may repeat the update.
    pub const NONE: LeaseId = LeaseId(0);
}

impl Sequence {
    /// No sequence: sequences start at 1.
    pub const NONE: Sequence = Sequence(0);

    /// The sequence of the first update under a lease.
    pub const FIRST: Sequence = Sequence(1);

    /// The sequence after this one.
    #[inline]
    #[must_use]
    pub fn next(self) -> Sequence {
        self.plus(1)
    }

    /// The sequence that comes `count` places after this one.
    #[inline]
    #[must_use]
    pub fn plus(self, count: u64) -> Sequence {
        Sequence(self.0 + count)
    }

    /// The distance from `first` to this sequence. If `first` is higher, the distance wraps around:
    /// then no group of updates is as long.
    #[inline]
    #[must_use]
    pub fn distance_from(self, first: Sequence) -> u64 {
        self.0.wrapping_sub(first.0)
    }
}

impl SegmentId {
    /// No segment: ids start at 1.
    pub const NONE: SegmentId = SegmentId(0);
}

impl Version {
    /// The version of a key that does not exist.
    pub const NONE: Version = Version(0);

    /// No key ever gets this far; a higher version in a log or a message is damage.
    pub const HIGHEST: Version = Version(1 << 62);

    /// The version after this one.
    #[must_use]
    pub fn next(self) -> Version {
        Version(self.0 + 1)
    }
}

/// The hash that places a key: it decides the tablet of its table, and the place in that tablet's
/// index.
///
/// It is XXH3 (64 bits, seed 0) of the key's bytes, on every machine and in every version, because
/// clients of all languages must compute the same.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[repr(transparent)]
#[serde(transparent)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// The smallest hash.
    pub const MIN: KeyHash = KeyHash(0);
    /// The largest hash.
    pub const MAX: KeyHash = KeyHash(u64::MAX);

    /// The hash of a key.
    #[inline]
    #[must_use]
    pub fn of(key: &[u8]) -> KeyHash {
        KeyHash(xxh3_64(key))
    }
}

/// A tablet: the part of a table whose keys hash into one closed range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TabletRange {
    /// The table.
    pub table: TableId,
    /// The first hash that belongs to the tablet.
    pub first: KeyHash,
    /// The last hash that belongs to the tablet.
    pub last: KeyHash,
}

impl TabletRange {
    /// The tablet that holds a table whole.
    #[must_use]
    pub fn whole(table: TableId) -> TabletRange {
        TabletRange { table, first: KeyHash::MIN, last: KeyHash::MAX }
    }

    /// Whether a key with this hash belongs to the tablet.
    #[inline]
    #[must_use]
    pub fn contains(&self, table: TableId, hash: KeyHash) -> bool {
        self.table == table && self.first <= hash && hash <= self.last
    }

    /// Whether a key could belong to both.
    #[must_use]
    pub fn overlaps(&self, other: &TabletRange) -> bool {
        self.table == other.table && self.first <= other.last && other.first <= self.last
    }
}

impl fmt::Display for TabletRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{:016x}, {:016x}]", self.table, self.first.0, self.last.0)
    }
}

/// A place in a log's stream of head segments: everything appended earlier comes before it.
///
/// Survivor segments are not part of that stream, so no position ever names one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition {
    /// The head segment.
    pub segment: SegmentId,
    /// The number of its bytes before this position.
    pub offset: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_a_key_is_the_one_every_client_computes() {
        // Values of the reference implementation of XXH3, 64 bits, seed 0.
        assert_eq!(KeyHash::of(b"").0, 0x2d06_8005_38d3_94c2);
        assert_eq!(KeyHash::of(b"a").0, 0xe6c6_32b6_1e96_4e1f);
        assert_eq!(KeyHash::of(b"abc").0, 0x78af_5f94_892f_3950);
    }

    #[test]
    fn the_texts_of_types_for_plain_numbers_are_those_of_the_numbers() {
        assert_eq!(format!("{0} {0:?} {0:>3}", Generation(7)), "7 7   7");
        assert_eq!(format!("{0} {0:?} {0:>3}", LeaseId(7)), "7 7   7");
        assert_eq!(format!("{0} {0:?} {0:>3}", RecoveryId(7)), "7 7   7");
        assert_eq!(format!("{0} {0:?} {0:>3}", Sequence(7)), "7 7   7");
        let ids = (Generation(7), LeaseId(8), RecoveryId(9), Sequence(10));
        assert_eq!(serde_json::to_string(&ids).unwrap(), "[7,8,9,10]");
    }

    #[test]
    fn a_distance_from_a_higher_sequence_exceeds_every_count_of_updates() {
        let [low, high] = [Sequence::FIRST, Sequence::FIRST.plus(63)];
        assert_eq!((low.next(), high), (Sequence(2), Sequence(64)));
        assert_eq!((high.distance_from(low), low.distance_from(low)), (63, 0));
        assert!(low.distance_from(high) > 1 << 63);
    }

    #[test]
    fn a_tablet_holds_both_ends_of_its_range() {
        let tablet = TabletRange { table: TableId(1), first: KeyHash(10), last: KeyHash(20) };
        for (hash, inside) in [(9, false), (10, true), (20, true), (21, false)] {
            assert_eq!(tablet.contains(TableId(1), KeyHash(hash)), inside, "{hash}");
        }
        assert!(!tablet.contains(TableId(2), KeyHash(10)));
    }

    #[test]
    fn positions_order_by_segment_and_then_by_offset() {
        let at = |segment, offset| LogPosition { segment: SegmentId(segment), offset };
        assert!(at(1, 900) < at(2, 0));
        assert!(at(2, 0) < at(2, 1));
    }
}
