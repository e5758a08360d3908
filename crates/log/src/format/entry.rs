//! The bytes of a log entry: how they are written, checked and read.
//!
//! ```text
//!  | flags 1 | crc 4 | body length 1-4 | body …                                   |
//!  flags:  7 dead (memory only) · 6 linked: counts only with the next · 5 extra · 4-0 kind
//!          of an item, 1-0 say how often it was read (memory only)
//!
//!  object      | table v | version v | birth v | [prior z] | key length v | key | value |
//!  integer, float   as an object, the value is a number of 8 bytes
//!  item        as an object, with attributes in front of the value
//!  tombstone   | table v | version v | birth v | [prior z] | key length v | key | ignored |
//!  completion  | lease v | sequence v | table v | birth v | key hash 8 | result         |
//!  completions | lease v | first sequence v | birth v | effects v | outcomes …          |
//!  v = variable-length integer, z = zigzag difference to `birth`, present when `extra` is set
//! ```
//!
//! Every field is position-independent, so that a cleaner moves an entry by copying it: the age of
//! an object is the id of the head segment to which it was first appended (`birth`), not an offset.
//! A typical object of 30 + 100 bytes has a header of 13 to 15 bytes. `docs/format.md` describes
//! every byte and is checked against [`FORMAT_VERSION`].
//!
//! **Checksum.** `crc` is the CRC32C of everything after it, mixed with the flags (dead bit
//! cleared) and with the log's id. So an entry of another log never passes for an entry here, nor
//! do bytes that a client wrote into a value.
//!
//! **The dead bit** is in memory only. The reactor alone sets it and cleaners read it, so the flags
//! byte is only ever accessed as an atomic. The rest of an entry never changes once written.
//!
//! This code trusts no length that is not verified yet: decoding works on slices and returns `None`
//! or [`Damage`] if they end too early.

use super::varint::{self, Reader};
use crate::error::Damage;
use crate::limits::{BODY_BYTES_MAX, HEADER_BYTES_MAX};
use crc_fast::CrcAlgorithm::Crc32Iscsi;
use thunderhead_wire::{KeyHash, LeaseId, LogId, SegmentId, Sequence, TableId, ValueKind, Version};

/// The version of the segment format. A reader refuses segments of a newer version.
pub const FORMAT_VERSION: u16 = 3;

pub(crate) const DEAD: u8 = 0x80;
pub(crate) const LINKED: u8 = 0x40;
pub(crate) const EXTRA: u8 = 0x20;
pub(crate) const KIND_BITS: u8 = 0x1f;

/// The bits of an item's kind that say how often it was read.
pub(crate) const USES: u8 = 3;

/// Bytes before the body length: flags and checksum.
pub(crate) const FRAME_BYTES: usize = 5;

/// The kind of an entry. Numbers 9 to 15 are free for kinds that an old reader may skip, the
/// numbers from 20 on for kinds that it must refuse. 24 to 27 are one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// An object: key, value and version.
    Object = 1,
    /// The record that all versions of a key up to one are dead.
    Tombstone = 2,
    /// The outcome of an update, kept so that a retry does not repeat it.
    Completion = 3,
    /// The first entry of every segment.
    SegmentHeader = 4,
    /// The ids of all segments of the log. Second entry of every head.
    Digest = 5,
    /// A version that no deleted object exceeds. In every head.
    SafeVersion = 6,
    /// Objects and bytes of each tablet when the head was opened.
    TabletStatistics = 7,
    /// Bytes without meaning: a copy that was overwritten before its segment was complete.
    Void = 8,
    /// The outcomes of several updates of one client: see [`crate::format::outcomes`].
    Completions = 16,
    /// An object whose value is a whole number. An increment counts with it, and refuses other
    /// objects.
    Integer = 17,
    /// The same with a floating-point number.
    Float = 18,
    /// A time that the log's clock has reached. In every head.
    ClockMark = 19,
    /// An object with attributes.
    Item = 24,
}

impl Kind {
    pub(crate) fn of(flags: u8) -> Option<Kind> {
        Some(match flags & KIND_BITS {
            1 => Kind::Object,
            2 => Kind::Tombstone,
            3 => Kind::Completion,
            4 => Kind::SegmentHeader,
            5 => Kind::Digest,
            6 => Kind::SafeVersion,
            7 => Kind::TabletStatistics,
            8 => Kind::Void,
            16 => Kind::Completions,
            17 => Kind::Integer,
            18 => Kind::Float,
            19 => Kind::ClockMark,
            24..=27 => Kind::Item,
            _ => return None,
        })
    }

    /// The kind of an object with a value of this kind.
    #[inline]
    pub(crate) fn of_object(value: ValueKind) -> Kind {
        match value {
            ValueKind::Bytes => Kind::Object,
            ValueKind::Integer => Kind::Integer,
            ValueKind::Float => Kind::Float,
        }
    }

    /// The kind of the value of an object with these flags.
    #[inline]
    pub(crate) fn value_kind(flags: u8) -> ValueKind {
        match flags & KIND_BITS {
            17 => ValueKind::Integer,
            18 => ValueKind::Float,
            _ => ValueKind::Bytes,
        }
    }

    /// Whether an entry of this kind has a key: it is an object, an item, a number or a tombstone.
    #[inline]
    pub(crate) fn has_key(kind: u8) -> bool {
        const ITEMS: u32 = 0b1111 << Kind::Item as u8;
        const KINDS: u32 = 1 << Kind::Object as u8
            | 1 << Kind::Tombstone as u8
            | 1 << Kind::Integer as u8
            | 1 << Kind::Float as u8;
        (KINDS | ITEMS) >> (kind & KIND_BITS) & 1 == 1
    }

    /// Whether an entry of this kind has a key, and no attributes.
    #[inline]
    pub(crate) fn is_plain(kind: u8) -> bool {
        const KINDS: u32 = 1 << Kind::Object as u8
            | 1 << Kind::Tombstone as u8
            | 1 << Kind::Integer as u8
            | 1 << Kind::Float as u8;
        KINDS >> (kind & KIND_BITS) & 1 == 1
    }

    /// Whether an entry of this kind is an item: it has attributes.
    #[inline]
    pub(crate) fn is_item(kind: u8) -> bool {
        kind & (KIND_BITS & !USES) == Kind::Item as u8
    }

    /// Whether a reader that does not know this kind may skip the entry.
    pub(crate) fn may_be_skipped(flags: u8) -> bool {
        (8..16).contains(&(flags & KIND_BITS))
    }
}

/// The flags without the bits that change in memory: the checksum was computed with these.
#[inline]
pub(crate) fn unused(flags: u8) -> u8 {
    let flags = flags & !DEAD;
    if Kind::is_item(flags) { flags & !USES } else { flags }
}

/// Turns a CRC32C of an entry's bytes into the entry's checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seal {
    key: u32,
}

impl Seal {
    pub(crate) fn new(log: LogId) -> Seal {
        let mixed = log.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Seal { key: (mixed >> 32) as u32 ^ log.0 as u32 }
    }

    #[inline]
    pub(crate) fn finish(self, flags: u8, crc: u32) -> u32 {
        crc ^ self.key ^ u32::from(flags & !DEAD).wrapping_mul(0x9e37_79b1)
    }

    /// The checksum of an entry after a change of its flags alone.
    #[inline]
    pub(crate) fn carried_over(checksum: u32, old_flags: u8, new_flags: u8) -> u32 {
        let mix = |flags: u8| u32::from(unused(flags)).wrapping_mul(0x9e37_79b1);
        checksum ^ mix(old_flags) ^ mix(new_flags)
    }

    /// The checksum of an entry whose bytes after the checksum lie in one piece.
    #[inline]
    pub(crate) fn of(self, flags: u8, after_checksum: &[u8]) -> u32 {
        self.finish(flags, crc_fast::checksum(Crc32Iscsi, after_checksum) as u32)
    }

    /// The same checksum over several pieces.
    pub(crate) fn of_pieces<'a>(self, flags: u8, pieces: impl Iterator<Item = &'a [u8]>) -> u32 {
        let mut digest = crc_fast::Digest::new(Crc32Iscsi);
        for piece in pieces {
            digest.update(piece);
        }
        self.finish(flags, digest.finalize() as u32)
    }
}

/// A header under construction, at most [`HEADER_BYTES_MAX`] bytes, so that it needs no heap.
pub(crate) struct Header {
    bytes: [u8; HEADER_BYTES_MAX],
    length: usize,
    /// Bytes of the whole entry: this header and the bytes that follow.
    pub(crate) entry_bytes: usize,
}

impl Header {
    /// Starts an entry whose body is `fields` bytes of small fields and `rest` bytes after them.
    #[inline]
    fn start(flags: u8, fields: usize, rest: usize) -> Header {
        let mut header =
            Header { bytes: [0; HEADER_BYTES_MAX], length: FRAME_BYTES, entry_bytes: 0 };
        header.bytes[0] = flags;
        header.put((fields + rest) as u64);
        header.entry_bytes = header.length + fields + rest;
        header
    }

    #[inline]
    fn put(&mut self, value: u64) {
        self.length += varint::write(&mut self.bytes[self.length..], value);
    }

    #[inline]
    pub(crate) fn flags(&self) -> u8 {
        self.bytes[0]
    }

    #[inline]
    pub(crate) fn add_flag(&mut self, flag: u8) {
        self.bytes[0] |= flag;
    }

    /// Changes these flags: makes an entry of another kind of it, whose bits differ by these.
    #[inline]
    pub(crate) fn change_flags(&mut self, bits: u8) {
        self.bytes[0] ^= bits;
    }

    /// Takes in the bytes that follow, if there is room: then the header is the whole entry.
    #[inline]
    pub(crate) fn take_in(&mut self, rest: &[u8]) -> bool {
        let Some(place) = self.bytes.get_mut(self.length..self.length + rest.len()) else {
            return false;
        };
        place.copy_from_slice(rest);
        self.length += rest.len();
        true
    }

    /// The header's bytes, and zeros behind them.
    #[inline]
    pub(crate) fn padded(&self) -> &[u8; HEADER_BYTES_MAX] {
        &self.bytes
    }

    pub(crate) fn set_checksum(&mut self, checksum: u32) {
        self.bytes[1..5].copy_from_slice(&checksum.to_le_bytes());
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The bytes of this header that the checksum covers.
    pub(crate) fn sealed(&self) -> &[u8] {
        &self.bytes[FRAME_BYTES..self.length]
    }
}

/// The small fields of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectFields {
    pub(crate) table: TableId,
    pub(crate) version: Version,
    pub(crate) birth: SegmentId,
    /// The segment that held the version which this one replaces.
    pub(crate) prior: Option<SegmentId>,
}

impl ObjectFields {
    #[inline]
    fn prior_code(&self) -> Option<u64> {
        self.prior.map(|prior| varint::zigzag(self.birth.0.wrapping_sub(prior.0) as i64))
    }

    #[inline]
    fn fields_bytes(&self, prior: Option<u64>) -> usize {
        varint::length(self.table.0)
            + varint::length(self.version.0)
            + varint::length(self.birth.0)
            + prior.map_or(0, varint::length)
    }

    #[inline]
    fn put(&self, header: &mut Header, prior: Option<u64>) {
        header.put(self.table.0);
        header.put(self.version.0);
        header.put(self.birth.0);
        if let Some(prior) = prior {
            header.put(prior);
        }
    }

    /// The header of an object; key and value follow it.
    #[inline]
    pub(crate) fn object(&self, key_bytes: usize, value_bytes: usize) -> Header {
        let prior = self.prior_code();
        let flags = Kind::Object as u8 | if prior.is_some() { EXTRA } else { 0 };
        let one_byte = (self.table.0 | key_bytes as u64) < 0x80;
        let two_bytes = (self.version.0 | self.birth.0 | prior.unwrap_or(0)) < 0x4000;
        // Then the body's length takes two bytes for any such fields.
        let rest = key_bytes + value_bytes;
        if one_byte && two_bytes && (0x80..0x4000 - 8).contains(&rest) {
            return self.usual_object(flags, prior, key_bytes, rest);
        }
        self.any_object(flags, prior, key_bytes, value_bytes)
    }

    /// The header when all small fields fit into a word: they are put together there.
    #[inline]
    fn usual_object(&self, flags: u8, prior: Option<u64>, key_bytes: usize, rest: usize) -> Header {
        const BODY_AT: usize = FRAME_BYTES + 2;
        let (mut fields, mut bits) = (self.table.0, 8);
        for value in [self.version.0, self.birth.0] {
            let (code, more) = varint::of_two_bytes(value);
            fields |= code << bits;
            bits += 8 + more;
        }
        if let Some(prior) = prior {
            let (code, more) = varint::of_two_bytes(prior);
            fields |= code << bits;
            bits += 8 + more;
        }
        fields |= (key_bytes as u64) << bits;
        let fields_bytes = bits as usize / 8 + 1;
        let (length, _) = varint::of_two_bytes((fields_bytes + rest) as u64);
        let front = u64::from(flags) | length << (8 * FRAME_BYTES);
        let mut bytes = [0; HEADER_BYTES_MAX];
        bytes[..8].copy_from_slice(&front.to_le_bytes());
        bytes[BODY_AT..BODY_AT + 8].copy_from_slice(&fields.to_le_bytes());
        let length = BODY_AT + fields_bytes;
        Header { bytes, length, entry_bytes: length + rest }
    }

    #[inline(never)]
    fn any_object(
        &self,
        flags: u8,
        prior: Option<u64>,
        key_bytes: usize,
        value_bytes: usize,
    ) -> Header {
        let fields = self.fields_bytes(prior) + varint::length(key_bytes as u64);
        let mut header = Header::start(flags, fields, key_bytes + value_bytes);
        self.put(&mut header, prior);
        header.put(key_bytes as u64);
        header
    }

    /// The header of a tombstone; the key follows it. Here `prior` is the segment that the
    /// tombstone guards against: the tombstone may be dropped once that segment is out of the
    /// durable log.
    pub(crate) fn tombstone(&self, key_bytes: usize) -> Header {
        let mut header = self.object(key_bytes, 0);
        header.bytes[0] = header.bytes[0] & !KIND_BITS | Kind::Tombstone as u8;
        header
    }

    #[inline]
    fn read(reader: &mut Reader<'_>, extra: bool) -> Option<ObjectFields> {
        let table = TableId(reader.varint()?);
        let version = Version(reader.varint()?);
        let birth = SegmentId(reader.varint()?);
        let prior = if extra {
            let difference = varint::unzigzag(reader.varint()?);
            Some(SegmentId(birth.0.wrapping_sub(difference as u64)))
        } else {
            None
        };
        Some(ObjectFields { table, version, birth, prior })
    }

    /// Reads the fields of an object or a tombstone from the first bytes of its body, and where its
    /// key begins and how long it is.
    #[inline]
    pub(crate) fn read_keyed(flags: u8, body: &[u8]) -> Option<(ObjectFields, usize, usize)> {
        let extra = flags & EXTRA != 0;
        let (count, long) = if extra { (5, 0x80_8080_8080) } else { (4, 0x8080_8080) };
        match body.first_chunk().map(|first| u64::from_le_bytes(*first)) {
            // If each field takes one byte, a single comparison shows it.
            Some(bytes) if bytes & long == 0 => {
                let field = |at: usize| bytes >> (8 * at) & 0x7f;
                let birth = SegmentId(field(2));
                let difference = varint::unzigzag(field(3)) as u64;
                let fields = ObjectFields {
                    table: TableId(field(0)),
                    version: Version(field(1)),
                    birth,
                    prior: extra.then(|| SegmentId(birth.0.wrapping_sub(difference))),
                };
                Some((fields, count, field(count - 1) as usize))
            }
            _ => ObjectFields::read_long(flags, body),
        }
    }

    /// Reads fields of any length.
    #[inline(never)]
    fn read_long(flags: u8, body: &[u8]) -> Option<(ObjectFields, usize, usize)> {
        let mut reader = Reader::new(body);
        let fields = ObjectFields::read(&mut reader, flags & EXTRA != 0)?;
        let key_bytes = reader.varint()?;
        Some((fields, reader.position(), usize::try_from(key_bytes).ok()?))
    }
}

/// The most bytes that the small fields of a completion record take.
const COMPLETION_FIELDS_MAX: usize = 4 * 10 + 8;

/// The small fields of a completion record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CompletionFields {
    pub(crate) lease: LeaseId,
    pub(crate) sequence: Sequence,
    pub(crate) table: TableId,
    pub(crate) birth: SegmentId,
    pub(crate) key_hash: KeyHash,
}

impl CompletionFields {
    /// The hash of a lease and a sequence number, which places the record in the index of
    /// completion records.
    pub(crate) fn hash(lease: LeaseId, sequence: Sequence) -> u64 {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&lease.0.to_le_bytes());
        bytes[8..].copy_from_slice(&sequence.0.to_le_bytes());
        KeyHash::of(&bytes).0
    }

    /// The hash for the first bytes of a record. A record of several updates is placed by the first
    /// of them.
    pub(crate) fn hash_of(body: &[u8]) -> Option<u64> {
        let mut reader = Reader::new(body);
        Some(CompletionFields::hash(LeaseId(reader.varint()?), Sequence(reader.varint()?)))
    }

    /// The header of a record; the outcome follows it.
    pub(crate) fn header(&self, result_bytes: usize) -> Header {
        let varints = [self.lease.0, self.sequence.0, self.table.0, self.birth.0];
        // Then the length takes one byte for any such fields, and is filled in when the fields are
        // written.
        let is_short = COMPLETION_FIELDS_MAX + result_bytes < 0x80;
        let fields = if is_short {
            0
        } else {
            varints.iter().map(|value| varint::length(*value)).sum::<usize>() + 8
        };
        let mut header = Header::start(Kind::Completion as u8, fields, result_bytes);
        let begins = header.length;
        for value in varints {
            header.put(value);
        }
        let at = header.length;
        header.bytes[at..at + 8].copy_from_slice(&self.key_hash.0.to_le_bytes());
        header.length += 8;
        if is_short {
            header.bytes[FRAME_BYTES] = (header.length - begins + result_bytes) as u8;
            header.entry_bytes = header.length + result_bytes;
        }
        header
    }

    pub(crate) fn read(body: &[u8]) -> Option<(CompletionFields, usize)> {
        let mut reader = Reader::new(body);
        let (lease, sequence) = (LeaseId(reader.varint()?), Sequence(reader.varint()?));
        let (table, birth) = (TableId(reader.varint()?), SegmentId(reader.varint()?));
        let key_hash = KeyHash(reader.u64()?);
        Some((CompletionFields { lease, sequence, table, birth, key_hash }, reader.position()))
    }
}

/// The header of an entry whose whole body is given as bytes: digests and the like.
pub(crate) fn plain(kind: Kind, body_bytes: usize) -> Header {
    Header::start(kind as u8, 0, body_bytes)
}

/// The place of an entry's body, as its first bytes give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) flags: u8,
    pub(crate) body_at: usize,
    pub(crate) body_bytes: usize,
}

impl Frame {
    #[inline]
    pub(crate) fn entry_bytes(&self) -> usize {
        self.body_at + self.body_bytes
    }

    /// Reads a frame from unverified bytes. `offset` is only for the message.
    pub(crate) fn decode(bytes: &[u8], offset: u32) -> Result<Frame, Damage> {
        let torn = Damage::Torn { offset };
        let flags = *bytes.first().ok_or(torn.clone())?;
        let mut reader = Reader::new(bytes.get(FRAME_BYTES..).ok_or(torn.clone())?);
        let body_bytes = match reader.varint() {
            Some(length) if length <= BODY_BYTES_MAX as u64 => length as usize,
            Some(_) => return Err(Damage::Field { offset, field: "length" }),
            None => return Err(torn),
        };
        Ok(Frame { flags, body_at: FRAME_BYTES + reader.position(), body_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SEAL: Seal = Seal { key: 7 };

    fn entry(mut header: Header, rest: &[&[u8]]) -> Vec<u8> {
        let pieces = std::iter::once(header.sealed()).chain(rest.iter().copied());
        let checksum = SEAL.of_pieces(header.flags(), pieces);
        header.set_checksum(checksum);
        let mut bytes = header.as_bytes().to_vec();
        rest.iter().for_each(|part| bytes.extend_from_slice(part));
        assert_eq!(bytes.len(), header.entry_bytes);
        bytes
    }

    fn fields() -> impl Strategy<Value = ObjectFields> {
        // In one byte, in two, in many.
        let number = || prop_oneof![3 => 0..64u64, 1 => 100..300u64, 1 => any::<u64>()];
        let prior = prop_oneof![Just(None), number().prop_map(Some)];
        (number(), number(), number(), prior).prop_map(|(table, version, birth, prior)| {
            ObjectFields {
                table: TableId(table),
                version: Version(version),
                birth: SegmentId(birth),
                prior: prior.map(SegmentId),
            }
        })
    }

    proptest! {
        #[test]
        fn an_object_reads_back_as_it_was_written(
            fields in fields(),
            key in prop::collection::vec(any::<u8>(), 1..300),
            value in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            let bytes = entry(fields.object(key.len(), value.len()), &[&key, &value]);
            let frame = Frame::decode(&bytes, 0).unwrap();
            prop_assert_eq!(frame.entry_bytes(), bytes.len());
            let body = &bytes[frame.body_at..];
            let (read, key_at, key_bytes) =
                ObjectFields::read_keyed(frame.flags, body).unwrap();
            prop_assert_eq!(read, fields);
            let any =
                fields.any_object(frame.flags, fields.prior_code(), key.len(), value.len());
            let header = fields.object(key.len(), value.len());
            prop_assert_eq!(header.as_bytes(), any.as_bytes(), "both ways give the same bytes");
            prop_assert_eq!(header.entry_bytes, any.entry_bytes);
            prop_assert_eq!(&body[key_at..key_at + key_bytes], &key[..]);
            prop_assert_eq!(&body[key_at + key_bytes..], &value[..]);
        }

        #[test]
        fn a_tombstone_and_a_completion_read_back(fields in fields(), hash in any::<u64>()) {
            let bytes = entry(fields.tombstone(3), &[b"key"]);
            let frame = Frame::decode(&bytes, 0).unwrap();
            let (read, key_at, _) =
                ObjectFields::read_keyed(frame.flags, &bytes[frame.body_at..]).unwrap();
            prop_assert_eq!(read, fields);
            prop_assert_eq!(&bytes[frame.body_at + key_at..], b"key");

            let completion = CompletionFields {
                lease: LeaseId(fields.version.0),
                sequence: Sequence(hash),
                table: fields.table,
                birth: fields.birth,
                key_hash: KeyHash(hash),
            };
            for result in [&b"result"[..], &[1; 79], &[2; 80], &[3; 300]] {
                let bytes = entry(completion.header(result.len()), &[result]);
                let frame = Frame::decode(&bytes, 0).unwrap();
                let (read, at) = CompletionFields::read(&bytes[frame.body_at..]).unwrap();
                prop_assert_eq!(read, completion);
                prop_assert_eq!(&bytes[frame.body_at + at..], result);
            }
        }

        #[test]
        fn any_flipped_bit_but_the_dead_one_fails_the_checksum(
            at in 0usize..60, bit in 0u8..8,
        ) {
            let fields = ObjectFields {
                table: TableId(1), version: Version(2), birth: SegmentId(3), prior: None,
            };
            let good = entry(fields.object(4, 44), &[b"key!", &[9; 44]]);
            let mut bad = good.clone();
            let at = at % bad.len();
            prop_assume!(!(at == 0 && bit == 7));
            bad[at] ^= 1 << bit;
            let checksum = u32::from_le_bytes(bad[1..5].try_into().unwrap());
            prop_assert_ne!(SEAL.of(bad[0], &bad[FRAME_BYTES..]), checksum);
        }
    }

    #[test]
    fn the_bytes_of_an_object_are_pinned() {
        let fields = ObjectFields {
            table: TableId(1),
            version: Version(300),
            birth: SegmentId(7),
            prior: Some(SegmentId(5)),
        };
        let mut header = fields.object(3, 5);
        let seal = Seal::new(LogId(0x0123_4567_89ab_cdef));
        let pieces = [header.sealed(), b"key", b"value"];
        let checksum = seal.of_pieces(header.flags(), pieces.into_iter());
        header.set_checksum(checksum);
        let hex: String = header.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, concat!("21", "b47d5509", "0e", "01", "ac02", "07", "04", "03"));
    }

    #[test]
    fn the_bytes_of_numbers_are_pinned() {
        let fields = ObjectFields {
            table: TableId(1),
            version: Version(300),
            birth: SegmentId(7),
            prior: Some(SegmentId(5)),
        };
        let seal = Seal::new(LogId(0x0123_4567_89ab_cdef));
        for (kind, expected) in [
            (ValueKind::Integer, concat!("31", "627aeede", "11", "01", "ac02", "07", "04", "03")),
            (ValueKind::Float, concat!("32", "11f4a570", "11", "01", "ac02", "07", "04", "03")),
        ] {
            let mut header = fields.object(3, 8);
            header.change_flags(Kind::Object as u8 ^ Kind::of_object(kind) as u8);
            assert_eq!(Kind::value_kind(header.flags() | DEAD | LINKED), kind);
            let pieces = [header.sealed(), b"key", b"\x01\0\0\0\0\0\0\0"];
            header.set_checksum(seal.of_pieces(header.flags(), pieces.into_iter()));
            let hex: String = header.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, expected);
        }
        assert_eq!((Kind::Integer as u8, Kind::Float as u8), (17, 18));
        assert!(!Kind::may_be_skipped(17) && !Kind::may_be_skipped(18), "old readers refuse them");
    }

    #[test]
    fn the_header_of_a_small_object_takes_at_most_fifteen_bytes() {
        let fields = ObjectFields {
            table: TableId(100),
            version: Version(10_000),
            birth: SegmentId(10_000),
            prior: Some(SegmentId(9_950)),
        };
        assert!(fields.object(30, 100).as_bytes().len() <= 15);
    }

    #[test]
    fn a_length_beyond_any_entry_is_refused_before_it_is_used() {
        let mut bytes = vec![Kind::Object as u8, 0, 0, 0, 0];
        bytes.extend_from_slice(&[0xff; 9]);
        bytes.push(1);
        assert_eq!(Frame::decode(&bytes, 8), Err(Damage::Field { offset: 8, field: "length" }));
        assert_eq!(Frame::decode(&bytes[..7], 8), Err(Damage::Torn { offset: 8 }));
    }
}
