//! The messages from the former master of a tablet to its new one: the bodies of `migrate in`.
//!
//! ```text
//!  body        | migration 8 | new master 8 | kind 1 | ... |
//!  begin  0    | JSON: MigrationBegin                                        answer: nothing
//!  data   1    | entries                                                     answer: nothing
//!  end    2    | safe version 8 | [time 8]                                   answer: JSON: Taken
//!
//!  entries     | kind 1 | version 8 | key length 4 | value length 4 | key | value | object     0
//!              | kind 1 | version 8 | key length 4 | 0 in 4 bytes   | key |         tombstone  1
//!              as an object, with a value of 8 bytes     whole number 3, floating-point number 4
//!              as an object, with attributes in front of the value                       item 5
//!              | kind 1 | lease 8 | sequence 8 | key hash 8 | length 4 | result |   completion 2
//! ```
//!
//! Numbers are little-endian. A message may be duplicated, and `data` messages may be reordered
//! among themselves; the newest version of each key counts. `begin` is answered before any other
//! message is sent, and all others are answered before `end` is sent. `time` is that of the former
//! master's clock, by which items expire, if it has such items.

use crate::{Attributes, KeyHash, LeaseId, MasterId, Sequence, ValueKind, Version};

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Makes room.
    Begin,
    /// Some entries of the tablet.
    Data,
    /// All entries were sent.
    End,
}

/// The most entries in one message: they take about as long as a slice.
pub const ENTRIES_MAX: usize = 48;

/// The first bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The migration's number.
    pub migration: u64,
    /// The master for which the message is meant.
    pub master: MasterId,
    /// The kind of the message.
    pub kind: Kind,
}

impl Head {
    /// Appends the head to a body.
    pub fn put(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.migration.to_le_bytes());
        into.extend_from_slice(&self.master.0.to_le_bytes());
        into.push(match self.kind {
            Kind::Begin => 0,
            Kind::Data => 1,
            Kind::End => 2,
        });
    }

    /// Takes the head off a body.
    #[must_use]
    pub fn take(body: &[u8]) -> Option<(Head, &[u8])> {
        let (migration, rest) = number(body)?;
        let (master, rest) = number(rest)?;
        let (kind, rest) = rest.split_first()?;
        let kind = match kind {
            0 => Kind::Begin,
            1 => Kind::Data,
            2 => Kind::End,
            _ => return None,
        };
        Some((Head { migration, master: MasterId(master), kind }, rest))
    }
}

/// An entry of the tablet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// An object.
    Object {
        /// Its version.
        version: Version,
        /// The kind of its value.
        kind: ValueKind,
        /// Its attributes.
        attributes: Attributes,
        /// Its key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// No object with this key exists, of this version or an earlier one.
    Tombstone {
        /// The version.
        version: Version,
        /// The key.
        key: &'a [u8],
    },
    /// An update was done.
    Completion {
        /// Its client's lease.
        lease: LeaseId,
        /// The client's number for it.
        sequence: Sequence,
        /// The hash of the key that it updated.
        key_hash: KeyHash,
        /// The outcome.
        result: &'a [u8],
    },
}

impl<'a> Entry<'a> {
    /// Appends an object to a body. Its key and value have these lengths and lie in these pieces,
    /// the key's before the value's.
    pub fn put_object<'p>(
        into: &mut Vec<u8>,
        (version, kind, attributes): (Version, ValueKind, Attributes),
        (key_bytes, value_bytes): (usize, usize),
        mut pieces: impl Iterator<Item = &'p [u8]>,
    ) {
        let (encoded, length) = attributes.encode(kind);
        let encoded = if attributes.is_none() { &[][..] } else { &encoded[..length] };
        into.push(match kind {
            _ if !attributes.is_none() => 5,
            ValueKind::Bytes => 0,
            ValueKind::Integer => 3,
            ValueKind::Float => 4,
        });
        into.extend_from_slice(&version.0.to_le_bytes());
        for length in [key_bytes, encoded.len() + value_bytes] {
            into.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
        }
        into.reserve(key_bytes + encoded.len() + value_bytes);
        let behind_key = into.len() + key_bytes;
        while into.len() < behind_key
            && let Some(piece) = pieces.next()
        {
            into.extend_from_slice(piece);
        }
        into.extend_from_slice(encoded);
        pieces.for_each(|piece| into.extend_from_slice(piece));
    }

    /// Appends the entry to a body.
    pub fn put(&self, into: &mut Vec<u8>) {
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
        match self {
            Entry::Object { version, kind, attributes, key, value } => {
                let lengths = (key.len(), value.len());
                let form = (*version, *kind, *attributes);
                Entry::put_object(into, form, lengths, [*key, *value].into_iter());
            }
            Entry::Tombstone { version, key } => {
                into.push(1);
                into.extend_from_slice(&version.0.to_le_bytes());
                into.extend_from_slice(&length(key));
                into.extend_from_slice(&[0; 4]);
                into.extend_from_slice(key);
            }
            Entry::Completion { lease, sequence, key_hash, result } => {
                into.push(2);
                for number in [lease.0, sequence.0, key_hash.0] {
                    into.extend_from_slice(&number.to_le_bytes());
                }
                into.extend_from_slice(&length(result));
                into.extend_from_slice(result);
            }
        }
    }

    /// Takes an entry off a body.
    #[must_use]
    pub fn take(body: &'a [u8]) -> Option<(Entry<'a>, &'a [u8])> {
        let (kind, rest) = body.split_first()?;
        if *kind == 2 {
            let (lease, rest) = number(rest)?;
            let (sequence, rest) = number(rest)?;
            let (key_hash, rest) = number(rest)?;
            let (length, rest) = length(rest)?;
            let (result, rest) = rest.split_at_checked(length)?;
            let (lease, sequence) = (LeaseId(lease), Sequence(sequence));
            let key_hash = KeyHash(key_hash);
            return Some((Entry::Completion { lease, sequence, key_hash, result }, rest));
        }
        let (version, rest) = number(rest)?;
        let version = Version(version);
        let (key_bytes, rest) = length(rest)?;
        let (value_bytes, rest) = length(rest)?;
        let (key, rest) = rest.split_at_checked(key_bytes)?;
        let (value, rest) = rest.split_at_checked(value_bytes)?;
        let (kind, attributes, value) = match kind {
            _ if version > Version::HIGHEST => return None,
            0 => (ValueKind::Bytes, Attributes::NONE, value),
            3 => (ValueKind::Integer, Attributes::NONE, value),
            4 => (ValueKind::Float, Attributes::NONE, value),
            5 => {
                let (kind, attributes, bytes) = Attributes::decode(value)?;
                (kind, attributes, value.get(bytes..)?)
            }
            1 if value.is_empty() => return Some((Entry::Tombstone { version, key }, rest)),
            _ => return None,
        };
        let entry = Entry::Object { version, kind, attributes, key, value };
        kind.has_size(value.len()).then_some((entry, rest))
    }
}

/// Takes a number off some bytes.
#[must_use]
pub fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*number), rest))
}

fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*number) as usize, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_read_back_and_truncated_ones_are_refused() {
        let head = Head { migration: 7, master: MasterId(3), kind: Kind::Data };
        let item = |attributes, kind, value| {
            let (version, key) = (Version(5), &b"key"[..]);
            Entry::Object { version, kind, attributes, key, value }
        };
        let object = |kind, value| item(Attributes::NONE, kind, value);
        let expires = crate::Timestamp(1 << 41);
        let attributes = Attributes { expires, client_flags: 3, ..Attributes::NONE };
        let entries = [
            object(ValueKind::Bytes, b"value"),
            object(ValueKind::Integer, b"12345678"),
            object(ValueKind::Float, b"12345678"),
            item(attributes, ValueKind::Bytes, b"value"),
            item(attributes, ValueKind::Float, b"12345678"),
            Entry::Tombstone { version: Version(9), key: b"gone" },
            Entry::Completion {
                lease: LeaseId(1),
                sequence: Sequence(2),
                key_hash: KeyHash(3),
                result: b"done",
            },
        ];
        let mut body = Vec::new();
        head.put(&mut body);
        let (found, rest) = Head::take(&body).unwrap();
        assert_eq!((found, rest.len()), (head, 0));
        for entry in entries {
            let mut body = Vec::new();
            entry.put(&mut body);
            assert_eq!(Entry::take(&body), Some((entry, &[][..])));
            for length in 0..body.len() {
                assert_eq!(Entry::take(&body[..length]), None, "{length}");
            }
        }
        assert!(Head::take(&body[..16]).is_none());
        let mut kinds = Vec::new();
        for (number, entry) in entries.iter().enumerate() {
            let mut body = Vec::new();
            entry.put(&mut body);
            kinds.push((number, body[0]));
        }
        assert_eq!(kinds, [(0, 0), (1, 3), (2, 4), (3, 5), (4, 5), (5, 1), (6, 2)]);
        let mut short = Vec::new();
        object(ValueKind::Integer, b"1234567").put(&mut short);
        assert_eq!(Entry::take(&short), None, "a number has 8 bytes");
        short.clear();
        item(attributes, ValueKind::Integer, b"1234567").put(&mut short);
        assert_eq!(Entry::take(&short), None, "a number has 8 bytes");
        let mut too_high = Vec::new();
        Entry::Tombstone { version: Version(u64::MAX), key: b"k" }.put(&mut too_high);
        assert_eq!(Entry::take(&too_high), None);
    }
}
