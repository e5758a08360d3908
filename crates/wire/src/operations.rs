//! The bodies of operations on objects, as views of the bytes as they came.
//!
//! ```text
//!  object head   0 table u64    8 version u64   16 key_bytes u32   20 condition u8   21 flags u8
//!                22 (zero) [2]
//!  identity      0 lease u64    8 sequence u64   16 first_unacknowledged u64   24 map_version u64
//!
//!  read          object head, key                               answer: version u64, value
//!  write         identity, object head, key, value              answer: version u64
//!  delete        identity, object head, key                     answer: version u64, 0 if none
//!  increment     identity, object head, key, by [8]             answer: version u64, value [8]
//!  write number  identity, object head, key, number [8]         answer: version u64
//!  write expiring  identity, object head, key, expiring head, value
//!                                                               answer: version u64
//!  set expiry    identity, object head, key, time to live u64   answer: version u64, 0 if none
//!  read expiry   object head, key                               answer: version u64, time u64
//!
//!  read many     (object head, key)*                            answer: (part head, value)*
//!  update many   identity, (object head, update head, key, argument)*
//!                                                               answer: (part head, value)*
//!  enumerate     enumerate head                 answer: page head, (found head, key, value)*
//!  enumerate head 0 table u64   8 first u64   16 last u64   24 cursor u64   32 bytes u32
//!                36 (zero) [4]
//!  page head     0 cursor u64   8 last u64   16 is_end u8   17 (zero) [7]
//!  found head    0 version u64   8 key_bytes u24   11 value kind u8   12 value_bytes u32
//!  update head   0 sequence u64    8 argument_bytes u32   12 kind u8   13 (zero) [3]
//!  part head     0 version u64    8 status u16   10 (zero) [2]   12 value_bytes u32
//!  expiring head 0 time to live u64   8 value kind u8   9 (zero) [7]
//! ```
//!
//! If a condition fails, the answer's body is the object's present version, 0 if there is none.
//! `by`, the value of an increment and a number that is written are a little-endian i64, or an IEEE
//! double when the flag *float* is set. Each update of many has its own sequence; the sequence of
//! the identity is ignored.
//!
//! An identity with lease 0 is none: a retry may repeat such an update. `map_version` is the
//! version of the map by which the client chose the shard. A shard refuses a map that is older than
//! its ownership of the tablet.

use crate::{
    Condition, KeyHash, LeaseId, Sequence, TableId, TabletRange, TimeToLive, ValueKind, Version,
};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The number of an increment is a floating-point number.
pub const FLOAT: u8 = 1;

/// The object, and the condition under which the operation goes ahead.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ObjectHead {
    table: U64,
    version: U64,
    key_bytes: U32,
    condition: u8,
    flags: u8,
    zero: [u8; 2],
}

/// Bytes of an [`ObjectHead`].
pub const OBJECT_HEAD_BYTES: usize = size_of::<ObjectHead>();

impl ObjectHead {
    /// The head for a key of so many bytes.
    #[must_use]
    pub fn new(table: TableId, key_bytes: usize, condition: Condition, flags: u8) -> ObjectHead {
        let (number, version) = match condition {
            Condition::Always => (0, Version::NONE),
            Condition::Absent => (1, Version::NONE),
            Condition::Present => (2, Version::NONE),
            Condition::VersionIs(version) => (3, version),
            Condition::VersionBelow(version) => (4, version),
        };
        ObjectHead {
            table: table.0.into(),
            version: version.0.into(),
            // Longer keys are refused when their length is checked.
            key_bytes: u32::try_from(key_bytes).unwrap_or(u32::MAX).into(),
            condition: number,
            flags,
            zero: [0; 2],
        }
    }

    /// The table.
    #[inline]
    #[must_use]
    pub fn table(&self) -> TableId {
        TableId(self.table.get())
    }

    /// The condition; `None` if this version does not know it.
    #[inline]
    #[must_use]
    pub fn condition(&self) -> Option<Condition> {
        let version = Version(self.version.get());
        Some(match self.condition {
            0 => Condition::Always,
            1 => Condition::Absent,
            2 => Condition::Present,
            3 => Condition::VersionIs(version),
            4 => Condition::VersionBelow(version),
            _ => return None,
        })
    }

    /// Whether the number of an increment, or a number that is written, is a floating-point number.
    #[inline]
    #[must_use]
    pub fn is_float(&self) -> bool {
        self.flags & FLOAT != 0
    }

    /// The kind of the number of an increment, or of a number that is written.
    #[inline]
    #[must_use]
    pub fn number_kind(&self) -> ValueKind {
        if self.is_float() { ValueKind::Float } else { ValueKind::Integer }
    }

    /// Takes a head and its key off the front of some bytes.
    #[inline]
    #[must_use]
    pub fn take(bytes: &[u8]) -> Option<(&ObjectHead, &[u8], &[u8])> {
        let (head, rest) = ObjectHead::ref_from_prefix(bytes).ok()?;
        let (key, rest) = rest.split_at_checked(head.key_bytes.get() as usize)?;
        Some((head, key, rest))
    }
}

/// The longest key, in bytes, in a cluster with segments of half a MiB or more. In smaller segments
/// it is an eighth of a segment. A key has at least one byte.
pub const KEY_BYTES_MAX: usize = 64 << 10;

/// The longest value, in bytes, in a cluster with segments of 8 MiB or more. In smaller segments it
/// is an eighth of a segment.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// The identity of an update, so that it is done once however often it arrives.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct Identity {
    lease: U64,
    sequence: U64,
    first_unacknowledged: U64,
    map_version: U64,
}

/// Bytes of an [`Identity`].
pub const IDENTITY_BYTES: usize = size_of::<Identity>();

impl Identity {
    /// No identity: a retry may repeat the update.
    pub const NONE: Identity = Identity {
        lease: U64::ZERO,
        sequence: U64::ZERO,
        first_unacknowledged: U64::ZERO,
        map_version: U64::ZERO,
    };

    /// The identity of an update. The client has all answers to the updates of the lease before
    /// `first_unacknowledged`. The client has no map yet: see [`Identity::with_map`].
    #[must_use]
    pub fn new(lease: LeaseId, sequence: Sequence, first_unacknowledged: Sequence) -> Identity {
        Identity {
            lease: lease.0.into(),
            sequence: sequence.0.into(),
            first_unacknowledged: first_unacknowledged.0.into(),
            map_version: U64::ZERO,
        }
    }

    /// The same identity in a message whose shard was chosen by a map of this version.
    #[must_use]
    pub fn with_map(&self, version: u64) -> Identity {
        Identity { map_version: version.into(), ..*self }
    }

    /// The client's lease; [`LeaseId::NONE`] for none.
    #[inline]
    #[must_use]
    pub fn lease(&self) -> LeaseId {
        LeaseId(self.lease.get())
    }

    /// The number of the update.
    #[inline]
    #[must_use]
    pub fn sequence(&self) -> Sequence {
        Sequence(self.sequence.get())
    }

    /// The first update about which the client may still ask.
    #[inline]
    #[must_use]
    pub fn first_unacknowledged(&self) -> Sequence {
        Sequence(self.first_unacknowledged.get())
    }

    /// The version of the map by which the client chose the shard; 0 for none.
    #[inline]
    #[must_use]
    pub fn map_version(&self) -> u64 {
        self.map_version.get()
    }

    /// The identity of another update of the same client.
    #[inline]
    #[must_use]
    pub fn with_sequence(&self, sequence: Sequence) -> Identity {
        Identity { sequence: sequence.0.into(), ..*self }
    }
}

/// The effect of an update of many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateKind {
    /// Writes the argument.
    Write,
    /// Deletes.
    Delete,
    /// Adds the argument, 8 bytes.
    Increment,
    /// Writes the argument, 8 bytes, as a number.
    WriteNumber,
    /// Writes an object that expires: the argument is an [`ExpiringHead`] and the value.
    WriteExpiring,
    /// Changes when the object expires: the argument is a time to live, 8 bytes.
    SetExpiry,
}

/// The effect of one of many updates, and the length of its argument.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct UpdateHead {
    sequence: U64,
    argument_bytes: U32,
    kind: u8,
    zero: [u8; 3],
}

impl UpdateHead {
    /// The head for an update with this sequence and an argument of so many bytes.
    #[must_use]
    pub fn new(sequence: Sequence, kind: UpdateKind, argument_bytes: usize) -> UpdateHead {
        let kind = match kind {
            UpdateKind::Write => 1,
            UpdateKind::Delete => 2,
            UpdateKind::Increment => 3,
            UpdateKind::WriteNumber => 4,
            UpdateKind::WriteExpiring => 5,
            UpdateKind::SetExpiry => 6,
        };
        let argument_bytes = u32::try_from(argument_bytes).unwrap_or(u32::MAX).into();
        UpdateHead { sequence: sequence.0.into(), argument_bytes, kind, zero: [0; 3] }
    }

    /// The effect; `None` if this version does not know it.
    #[must_use]
    pub fn kind(&self) -> Option<UpdateKind> {
        Some(match self.kind {
            1 => UpdateKind::Write,
            2 => UpdateKind::Delete,
            3 => UpdateKind::Increment,
            4 => UpdateKind::WriteNumber,
            5 => UpdateKind::WriteExpiring,
            6 => UpdateKind::SetExpiry,
            _ => return None,
        })
    }
}

/// How long an object that is written lives, and the kind of its value.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ExpiringHead {
    time_to_live: U64,
    kind: u8,
    zero: [u8; 7],
}

/// Bytes of an [`ExpiringHead`].
pub const EXPIRING_HEAD_BYTES: usize = size_of::<ExpiringHead>();

impl ExpiringHead {
    /// The head in front of a value of a kind.
    #[must_use]
    pub fn new(time_to_live: TimeToLive, kind: ValueKind) -> ExpiringHead {
        ExpiringHead { time_to_live: time_to_live.code().into(), kind: kind.code(), zero: [0; 7] }
    }

    /// Takes a head off the front of an argument. Returns the time to live, the kind of the value
    /// and the value. `None` if the value cannot have that kind.
    #[must_use]
    pub fn take(argument: &[u8]) -> Option<(TimeToLive, ValueKind, &[u8])> {
        let (head, value) = ExpiringHead::ref_from_prefix(argument).ok()?;
        let kind = ValueKind::of_code(head.kind).filter(|kind| kind.has_size(value.len()))?;
        Some((TimeToLive::of_code(head.time_to_live.get()), kind, value))
    }
}

/// A read of many.
#[derive(Clone, Copy, Debug)]
pub struct ReadPart<'a> {
    /// The object, and the condition.
    pub head: &'a ObjectHead,
    /// Its key.
    pub key: &'a [u8],
}

impl<'a> ReadPart<'a> {
    /// Takes a read off the front of some bytes.
    #[inline]
    #[must_use]
    pub fn take(bytes: &'a [u8]) -> Option<(ReadPart<'a>, &'a [u8])> {
        let (head, key, rest) = ObjectHead::take(bytes)?;
        Some((ReadPart { head, key }, rest))
    }
}

/// An update of many.
#[derive(Clone, Copy, Debug)]
pub struct UpdatePart<'a> {
    /// The object, and the condition.
    pub head: &'a ObjectHead,
    /// The effect.
    pub kind: UpdateKind,
    /// Its key.
    pub key: &'a [u8],
    /// The value to write, or the number to add.
    pub argument: &'a [u8],
}

impl<'a> UpdatePart<'a> {
    /// Takes an update off the front of some bytes, with its sequence.
    #[must_use]
    pub fn take(bytes: &'a [u8]) -> Option<((Sequence, UpdatePart<'a>), &'a [u8])> {
        let (head, rest) = ObjectHead::ref_from_prefix(bytes).ok()?;
        let (update, rest) = UpdateHead::ref_from_prefix(rest).ok()?;
        let (key, rest) = rest.split_at_checked(head.key_bytes.get() as usize)?;
        let (argument, rest) = rest.split_at_checked(update.argument_bytes.get() as usize)?;
        let part = UpdatePart { head, kind: update.kind()?, key, argument };
        Some(((Sequence(update.sequence.get()), part), rest))
    }

    /// Appends the update, with its sequence.
    pub fn put(&self, sequence: Sequence, into: &mut Vec<u8>) {
        into.extend_from_slice(self.head.as_bytes());
        let update = UpdateHead::new(sequence, self.kind, self.argument.len());
        into.extend_from_slice(update.as_bytes());
        into.extend_from_slice(self.key);
        into.extend_from_slice(self.argument);
    }
}

/// The result of one of many operations.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct PartHead {
    version: U64,
    status: U16,
    zero: [u8; 2],
    value_bytes: U32,
}

/// Bytes of a [`PartHead`].
pub const PART_HEAD_BYTES: usize = size_of::<PartHead>();

impl PartHead {
    /// The head of an answer with a value of so many bytes.
    #[must_use]
    pub fn new(status: u16, version: Version, value_bytes: usize) -> PartHead {
        PartHead {
            version: version.0.into(),
            status: status.into(),
            zero: [0; 2],
            value_bytes: u32::try_from(value_bytes).unwrap_or(u32::MAX).into(),
        }
    }

    /// The status, as a number.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status.get()
    }

    /// The object's version; if a condition failed, its present one.
    #[must_use]
    pub fn version(&self) -> Version {
        Version(self.version.get())
    }

    /// Takes a head and its value off the front of some bytes.
    #[must_use]
    pub fn take(bytes: &[u8]) -> Option<(&PartHead, &[u8], &[u8])> {
        let (head, rest) = PartHead::ref_from_prefix(bytes).ok()?;
        let (value, rest) = rest.split_at_checked(head.value_bytes.get() as usize)?;
        Some((head, value, rest))
    }
}

/// Asks for some of the objects of a table whose keys hash into a closed range.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct EnumerateHead {
    table: U64,
    first: U64,
    last: U64,
    cursor: U64,
    bytes: U32,
    zero: [u8; 4],
}

impl EnumerateHead {
    /// Asks for about so many bytes of objects, from a cursor on: 0 to begin with, then the cursor
    /// of the page before.
    #[must_use]
    pub fn new(range: TabletRange, cursor: u64, bytes: u32) -> EnumerateHead {
        EnumerateHead {
            table: range.table.0.into(),
            first: range.first.0.into(),
            last: range.last.0.into(),
            cursor: cursor.into(),
            bytes: bytes.into(),
            zero: [0; 4],
        }
    }

    /// The range of the objects.
    #[must_use]
    pub fn range(&self) -> TabletRange {
        let (first, last) = (KeyHash(self.first.get()), KeyHash(self.last.get()));
        TabletRange { table: TableId(self.table.get()), first, last }
    }

    /// The cursor from which to go on.
    #[must_use]
    pub fn cursor(&self) -> u64 {
        self.cursor.get()
    }

    /// About how many bytes to return.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.get() as usize
    }
}

/// The first bytes of a page of objects.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct PageHead {
    cursor: U64,
    last: U64,
    is_end: u8,
    zero: [u8; 7],
}

impl PageHead {
    /// A page of the objects up to a hash. `cursor` is where to go on, if there is more.
    #[must_use]
    pub fn new(last: KeyHash, cursor: Option<u64>) -> PageHead {
        PageHead {
            cursor: cursor.unwrap_or_default().into(),
            last: last.0.into(),
            is_end: u8::from(cursor.is_none()),
            zero: [0; 7],
        }
    }

    /// The last hash that the page and its successors cover. It may be lower than the request's, if
    /// another tablet has the rest.
    #[must_use]
    pub fn last(&self) -> KeyHash {
        KeyHash(self.last.get())
    }

    /// Where to go on, if there is more up to that hash.
    #[must_use]
    pub fn cursor(&self) -> Option<u64> {
        (self.is_end == 0).then(|| self.cursor.get())
    }
}

/// An object of a page.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct FoundHead {
    version: U64,
    /// In the upper 8 bits the kind of the value.
    key_bytes: U32,
    value_bytes: U32,
}

/// Bits of the length of a key in a [`FoundHead`].
const KEY_BITS: u32 = 24;

/// Bytes of a [`FoundHead`].
pub const FOUND_HEAD_BYTES: usize = size_of::<FoundHead>();

impl FoundHead {
    /// The head of an object.
    #[must_use]
    pub fn new(
        version: Version,
        kind: ValueKind,
        key_bytes: usize,
        value_bytes: usize,
    ) -> FoundHead {
        let longest = (1 << KEY_BITS) - 1;
        let key_bytes = u32::try_from(key_bytes).unwrap_or(longest).min(longest);
        let value_bytes = u32::try_from(value_bytes).unwrap_or(u32::MAX).into();
        let key_bytes = (key_bytes | u32::from(kind.code()) << KEY_BITS).into();
        FoundHead { version: version.0.into(), key_bytes, value_bytes }
    }

    /// Takes an object off the front of some bytes.
    #[must_use]
    pub fn take(bytes: &[u8]) -> Option<(Found<'_>, &[u8])> {
        let (head, rest) = FoundHead::ref_from_prefix(bytes).ok()?;
        let key_bytes = head.key_bytes.get();
        let kind = ValueKind::of_code((key_bytes >> KEY_BITS) as u8)?;
        let (key, rest) = rest.split_at_checked((key_bytes & ((1 << KEY_BITS) - 1)) as usize)?;
        let (value, rest) = rest.split_at_checked(head.value_bytes.get() as usize)?;
        if !kind.has_size(value.len()) {
            return None;
        }
        Some((Found { version: Version(head.version.get()), kind, key, value }, rest))
    }
}

/// An object of a page, as it lies in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<'a> {
    /// Its version.
    pub version: Version,
    /// The kind of its value.
    pub kind: ValueKind,
    /// Its key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let head = ObjectHead::new(TableId(0x0102), 3, Condition::VersionIs(Version(9)), FLOAT);
        let mut bytes = vec![2, 1, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend([3, 0, 0, 0, 3, 1, 0, 0]);
        assert_eq!(head.as_bytes(), bytes);
        let identity = Identity::new(LeaseId(5), Sequence(6), Sequence(4)).with_map(7);
        let words: Vec<u8> = [5u64, 6, 4, 7].iter().flat_map(|it| it.to_le_bytes()).collect();
        assert_eq!(identity.as_bytes(), words);
        let update = UpdateHead::new(Sequence(258), UpdateKind::Increment, 8);
        assert_eq!(update.as_bytes(), [2, 1, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 3, 0, 0, 0]);
        let update = UpdateHead::new(Sequence(258), UpdateKind::WriteNumber, 8);
        assert_eq!(update.as_bytes(), [2, 1, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 4, 0, 0, 0]);
        let part = PartHead::new(7, Version(258), 5);
        assert_eq!(part.as_bytes(), [2, 1, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 5, 0, 0, 0]);
    }

    #[test]
    fn golden_bytes_of_pages() {
        let words = |words: &[u64]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_le_bytes()).collect()
        };
        let range = TabletRange { table: TableId(1), first: KeyHash(2), last: KeyHash(3) };
        let head = EnumerateHead::new(range, 4, 5);
        assert_eq!(head.as_bytes(), words(&[1, 2, 3, 4, 5]));
        assert_eq!((head.range(), head.cursor(), head.bytes()), (range, 4, 5));
        let page = PageHead::new(KeyHash(9), Some(7));
        assert_eq!(page.as_bytes(), words(&[7, 9, 0]));
        assert_eq!((page.last(), page.cursor()), (KeyHash(9), Some(7)));
        assert_eq!(PageHead::new(KeyHash(9), None).as_bytes(), words(&[0, 9, 1]));
        let kind = ValueKind::Bytes;
        let found = [FoundHead::new(Version(8), kind, 1, 2).as_bytes(), b"kvv?"].concat();
        assert_eq!(&found[..16], words(&[8, 1 | 2 << 32]));
        let object = Found { version: Version(8), kind, key: b"k", value: b"vv" };
        assert_eq!(FoundHead::take(&found), Some((object, &b"?"[..])));
        assert_eq!(FoundHead::take(&found[..18]), None);
        for (kind, code) in [(ValueKind::Integer, 1), (ValueKind::Float, 2)] {
            let head = FoundHead::new(Version(8), kind, 1, 8);
            assert_eq!(head.as_bytes(), words(&[8, 1 | code << 24 | 8 << 32]));
            let found = [head.as_bytes(), b"k12345678"].concat();
            let object = Found { version: Version(8), kind, key: b"k", value: b"12345678" };
            assert_eq!(FoundHead::take(&found), Some((object, &b""[..])));
            let wrong = [FoundHead::new(Version(8), kind, 1, 7).as_bytes(), b"k1234567"].concat();
            assert_eq!(FoundHead::take(&wrong), None, "a number has 8 bytes");
        }
        assert_eq!(FoundHead::take(&words(&[8, 3 << 24])), None, "there is no such kind");
    }

    #[test]
    fn updates_read_back_as_they_were_written() {
        let mut bytes = Vec::new();
        let conditions = [
            Condition::Always,
            Condition::Absent,
            Condition::Present,
            Condition::VersionIs(Version(3)),
            Condition::VersionBelow(Version(4)),
        ];
        for condition in conditions {
            let head = ObjectHead::new(TableId(1), 3, condition, 0);
            let kind = UpdateKind::Write;
            let part = UpdatePart { head: &head, kind, key: b"key", argument: b"value" };
            part.put(Sequence(9), &mut bytes);
        }
        let mut rest = bytes.as_slice();
        for condition in conditions {
            let ((sequence, part), behind) = UpdatePart::take(rest).unwrap();
            assert_eq!(sequence, Sequence(9));
            assert_eq!(part.head.condition(), Some(condition));
            assert_eq!((part.key, part.argument), (&b"key"[..], &b"value"[..]));
            rest = behind;
        }
        assert!(rest.is_empty());
        for length in 0..48 {
            assert!(UpdatePart::take(&bytes[..length]).is_none(), "{length}");
        }
    }

    #[test]
    fn a_value_follows_its_time_to_live_and_its_kind() {
        let head = ExpiringHead::new(TimeToLive::Milliseconds(0x0201), ValueKind::Float);
        let words = |words: [u64; 2]| words.map(u64::to_le_bytes).concat();
        assert_eq!(head.as_bytes(), words([0x0201, 2]));
        let argument = [head.as_bytes(), b"12345678"].concat();
        let taken = ExpiringHead::take(&argument);
        let expected = (TimeToLive::Milliseconds(0x0201), ValueKind::Float, &b"12345678"[..]);
        assert_eq!(taken, Some(expected));
        for length in 0..argument.len() {
            let taken = ExpiringHead::take(&argument[..length]);
            assert_eq!(taken, None, "a number of {length} bytes");
        }
        let never = ExpiringHead::new(TimeToLive::Never, ValueKind::Bytes);
        let taken = ExpiringHead::take(never.as_bytes());
        assert_eq!(taken, Some((TimeToLive::Never, ValueKind::Bytes, &b""[..])));
        assert_eq!(ExpiringHead::take(&words([1, 3])), None, "there is no such kind");
    }

    #[test]
    fn false_lengths_are_refused() {
        let head = ObjectHead::new(TableId(1), usize::MAX, Condition::Always, 0);
        let bytes = [head.as_bytes(), b"key"].concat();
        assert!(ObjectHead::take(&bytes).is_none());
        let part = PartHead::new(0, Version(1), usize::MAX);
        assert!(PartHead::take(part.as_bytes()).is_none());
    }
}
