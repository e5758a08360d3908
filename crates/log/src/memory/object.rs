//! An object as a reader sees it: borrowed from the log's memory and never copied.
//!
//! An [`Object`] borrows the [`Log`](crate::Log), so it cannot outlive the turn in which it was
//! found. Therefore cleaners can free memory without asking.

use super::segment;
use super::{Memory, Reference};
use crate::format::entry::{Frame, Kind, ObjectFields, USES};
use thunderhead_wire::{Attributes, SegmentId, TableId, ValueKind, Version};

/// The kind of an item's value, and its attributes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extras {
    pub(crate) kind: ValueKind,
    pub(crate) attributes: Attributes,
}

/// An entry with a key, decoded: an object, or a tombstone while a log is being replayed.
#[derive(Clone, Copy)]
pub(crate) struct Located {
    pub(crate) at: Reference,
    pub(crate) fields: ObjectFields,
    entry_bytes: u32,
    key_at: u32,
    key_bytes: u32,
    value_at: u32,
}

impl Located {
    /// Decodes the entry at a reference, or `None` when it has no key. The value of an item begins
    /// with its attributes then: see [`Located::of_item`].
    #[inline]
    pub(crate) fn read(memory: &Memory, at: Reference) -> Option<Located> {
        let frame = segment::frame(memory, at);
        Located::of(memory, at, &frame)
    }

    #[inline]
    pub(crate) fn of(memory: &Memory, at: Reference, frame: &Frame) -> Option<Located> {
        let has_key = Kind::has_key(frame.flags);
        if has_key { Located::of_keyed(memory, at, frame) } else { None }
    }

    /// Decodes the entry at a reference, or `None` when it has no key or is an item.
    #[inline]
    pub(crate) fn read_plain(memory: &Memory, at: Reference) -> Option<Located> {
        let frame = segment::frame(memory, at);
        let is_plain = Kind::is_plain(frame.flags);
        if is_plain { Located::of_keyed(memory, at, &frame) } else { None }
    }

    /// Decodes an entry that has a key.
    #[inline]
    pub(crate) fn of_keyed(memory: &Memory, at: Reference, frame: &Frame) -> Option<Located> {
        let body = segment::body_start(memory, at, frame);
        let (fields, key_at, key_bytes) = ObjectFields::read_keyed(frame.flags, body)?;
        Some(Located {
            at,
            fields,
            entry_bytes: frame.entry_bytes() as u32,
            key_at: (frame.body_at + key_at) as u32,
            key_bytes: key_bytes as u32,
            value_at: (frame.body_at + key_at + key_bytes) as u32,
        })
    }

    /// Decodes an item; `None` for an entry of another kind.
    #[inline(never)]
    pub(crate) fn of_item(
        memory: &Memory,
        at: Reference,
        frame: &Frame,
    ) -> Option<(Located, Extras)> {
        if !Kind::is_item(frame.flags) {
            return None;
        }
        let keyed = Located::of_keyed(memory, at, frame)?;
        let behind_key = keyed.value_at as usize;
        // The attributes may lie in the next seglet.
        let most = Attributes::BYTES_MAX.min(keyed.entry_bytes().checked_sub(behind_key)?);
        let mut copy = [0; Attributes::BYTES_MAX];
        let mut length = 0;
        for piece in Bytes::within(memory, at, behind_key, most).pieces() {
            copy[length..length + piece.len()].copy_from_slice(piece);
            length += piece.len();
        }
        let (kind, attributes, bytes) = Attributes::decode(&copy[..length])?;
        let value_at = keyed.value_at + bytes as u32;
        Some((Located { value_at, ..keyed }, Extras { kind, attributes }))
    }

    #[inline]
    pub(crate) fn entry_bytes(&self) -> usize {
        self.entry_bytes as usize
    }

    /// The most bytes that a residual tombstone in place of the entry may take.
    #[inline]
    pub(crate) fn guarded_bytes(&self) -> usize {
        if self.fields.prior.is_some() { (self.key_at + self.key_bytes) as usize } else { 0 }
    }

    #[inline]
    pub(crate) fn key<'a>(&self, memory: &'a Memory) -> Bytes<'a> {
        Bytes::within(memory, self.at, self.key_at as usize, self.key_bytes as usize)
    }

    #[inline]
    pub(crate) fn value<'a>(&self, memory: &'a Memory) -> Bytes<'a> {
        let begins = self.value_at as usize;
        Bytes::within(memory, self.at, begins, self.entry_bytes() - begins)
    }

    /// The same entry with this version, and with this offset of the value.
    #[inline]
    pub(crate) fn as_item(self, version: Version, value_at: u32) -> Located {
        Located { fields: ObjectFields { version, ..self.fields }, value_at, ..self }
    }

    /// The offset of the value's first byte from the entry's first byte.
    pub(crate) fn value_at(&self) -> u32 {
        self.value_at
    }

    /// Whether the entry has this key.
    #[inline]
    pub(crate) fn has_key(&self, memory: &Memory, key: &[u8]) -> bool {
        self.key_bytes as usize == key.len() && self.key(memory).equals(key)
    }
}

/// An object that was found in the log.
#[derive(Clone, Copy)]
pub struct Object<'a> {
    pub(crate) memory: &'a Memory,
    pub(crate) located: Located,
}

impl<'a> Object<'a> {
    /// The table that the object belongs to.
    #[must_use]
    pub fn table(&self) -> TableId {
        self.located.fields.table
    }

    /// The object's version.
    #[must_use]
    #[inline]
    pub fn version(&self) -> Version {
        self.located.fields.version
    }

    /// The object's key.
    #[must_use]
    pub fn key(&self) -> Bytes<'a> {
        self.located.key(self.memory)
    }

    /// The object's value.
    #[must_use]
    #[inline]
    pub fn value(&self) -> Bytes<'a> {
        self.located.value(self.memory)
    }

    /// The kind of the object's value.
    #[must_use]
    #[inline]
    pub fn kind(&self) -> ValueKind {
        let flags = segment::flags(self.memory, self.located.at);
        if Kind::is_item(flags) { self.extras().kind } else { Kind::value_kind(flags) }
    }

    /// The object's attributes.
    #[must_use]
    #[inline]
    pub fn attributes(&self) -> Attributes {
        let flags = segment::flags(self.memory, self.located.at);
        if Kind::is_item(flags) { self.extras().attributes } else { Attributes::NONE }
    }

    /// Whether the object has attributes.
    #[must_use]
    #[inline]
    pub fn is_item(&self) -> bool {
        Kind::is_item(segment::flags(self.memory, self.located.at))
    }

    /// How often an object of a cache was used since it was written, up to 3. A recovery forgets
    /// it.
    #[must_use]
    pub fn uses(&self) -> u8 {
        let flags = segment::flags(self.memory, self.located.at);
        if Kind::is_item(flags) { flags & USES } else { 0 }
    }

    /// Counts a use of the object, if it belongs to a cache.
    pub fn count_use(&self) {
        if self.attributes().is_cached {
            segment::count_use(self.memory, self.located.at);
        }
    }

    #[cold]
    fn extras(&self) -> Extras {
        let at = self.located.at;
        let item = Located::of_item(self.memory, at, &segment::frame(self.memory, at));
        let (_, extras) = item.expect("an item of ours decodes");
        extras
    }

    /// The head segment that the object was first appended to: its age.
    #[must_use]
    #[inline]
    pub fn birth(&self) -> SegmentId {
        self.located.fields.birth
    }

    /// The bytes that the object takes in the log.
    #[must_use]
    #[inline]
    pub fn entry_bytes(&self) -> usize {
        self.located.entry_bytes()
    }
}

/// An object whose attributes are decoded already, for readers that need them.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    object: Object<'a>,
    extras: Extras,
}

impl<'a> Item<'a> {
    pub(crate) fn new(object: Object<'a>, extras: Extras) -> Item<'a> {
        Item { object, extras }
    }

    /// Returns an object with its attributes.
    #[must_use]
    pub fn of(object: Object<'a>) -> Item<'a> {
        let flags = segment::flags(object.memory, object.located.at);
        let extras = match Kind::is_item(flags) {
            true => object.extras(),
            false => Extras { kind: Kind::value_kind(flags), attributes: Attributes::NONE },
        };
        Item { object, extras }
    }

    /// The kind of the object's value.
    #[must_use]
    #[inline]
    pub fn kind(&self) -> ValueKind {
        self.extras.kind
    }

    /// The object's attributes.
    #[must_use]
    #[inline]
    pub fn attributes(&self) -> &Attributes {
        &self.extras.attributes
    }

    /// Counts a use of the object, if it belongs to a cache.
    #[inline]
    pub fn count_use(&self) {
        if self.extras.attributes.is_cached {
            segment::count_use(self.object.memory, self.object.located.at);
        }
    }
}

impl<'a> std::ops::Deref for Item<'a> {
    type Target = Object<'a>;

    #[inline]
    fn deref(&self) -> &Object<'a> {
        &self.object
    }
}

impl std::fmt::Debug for Object<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Object")
            .field("table", &self.table().0)
            .field("key", &self.key().to_vec())
            .field("version", &self.version().0)
            .field("value_bytes", &self.value().len())
            .finish()
    }
}

/// Bytes in the log: one slice nearly always, several when a large object crosses seglets.
#[derive(Clone, Copy)]
pub struct Bytes<'a> {
    memory: &'a Memory,
    at: Reference,
    length: usize,
}

impl<'a> Bytes<'a> {
    /// Bytes of the entry at a reference: `length` of them, `begins` bytes into the entry.
    #[inline]
    pub(crate) fn within(memory: &'a Memory, at: Reference, begins: usize, length: usize) -> Self {
        let at = if begins < memory.room(at) {
            at + begins as u64
        } else if length == 0 {
            at // Nothing follows, perhaps not even a seglet.
        } else {
            memory.advance(at, begins)
        };
        Bytes { memory, at, length }
    }

    /// How many bytes there are.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the length is 0.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The bytes, when they lie in one piece.
    #[must_use]
    #[inline]
    pub fn as_slice(&self) -> Option<&'a [u8]> {
        if self.length <= self.memory.room(self.at) {
            // SAFETY: these are bytes of an entry behind its flags, which never change; they are
            // borrowed with the log, so the segment is not freed before the borrow ends.
            return Some(unsafe {
                std::slice::from_raw_parts(self.memory.at(self.at), self.length)
            });
        }
        self.joined()
    }

    /// The bytes in one piece if they cross only neighbouring seglets.
    #[cold]
    fn joined(&self) -> Option<&'a [u8]> {
        let mut pieces = self.pieces();
        let first = pieces.next()?;
        (first.len() == self.length).then_some(first)
    }

    /// The bytes, piece by piece, without copying.
    pub fn pieces(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.memory.pieces(self.at, self.length).map(|(address, length)| {
            // SAFETY: as in `as_slice`, for each piece.
            unsafe { std::slice::from_raw_parts(address.cast_const(), length) }
        })
    }

    /// Appends a copy of the bytes to a buffer.
    #[inline]
    pub fn copy_to(&self, buffer: &mut Vec<u8>) {
        match self.as_slice() {
            Some(slice) => buffer.extend_from_slice(slice),
            None => self.copy_pieces_to(buffer),
        }
    }

    #[cold]
    fn copy_pieces_to(&self, buffer: &mut Vec<u8>) {
        for piece in self.pieces() {
            buffer.extend_from_slice(piece);
        }
    }

    /// A copy of the bytes.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut copy = Vec::with_capacity(self.length);
        self.copy_to(&mut copy);
        copy
    }

    /// Whether the bytes equal `other`.
    #[must_use]
    #[inline]
    pub fn equals(&self, other: &[u8]) -> bool {
        if self.length != other.len() {
            return false;
        }
        if let Some(slice) = self.as_slice() {
            return slice == other;
        }
        self.equals_in_pieces(other)
    }

    #[cold]
    fn equals_in_pieces(&self, other: &[u8]) -> bool {
        let mut rest = other;
        for piece in self.pieces() {
            let (front, back) = rest.split_at(piece.len());
            if piece != front {
                return false;
            }
            rest = back;
        }
        true
    }
}

impl std::fmt::Debug for Bytes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.to_vec())
    }
}

impl PartialEq<[u8]> for Bytes<'_> {
    fn eq(&self, other: &[u8]) -> bool {
        self.equals(other)
    }
}
