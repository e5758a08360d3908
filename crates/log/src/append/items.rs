//! Objects of another form than bytes without attributes: numbers, and items, which have
//! attributes.
//!
//! The form is a state of the log while objects are written, and not an argument, so that the usual
//! write does not carry it. Likewise a reader meets items behind a branch that it takes anyway, for
//! entries without a key. So objects without attributes are read and written as if there were
//! no items.
//!
//! **Expired items.** An item whose time has come is absent in every answer, although it is in the
//! index until [`expired`](super::expired) removes it. Two things keep this unnoticed:
//! - A write in its place gets a version above the item's, and above that of every deleted object,
//!   as if the item had been deleted. (A replay may bring back an item that is older than the
//!   newest one.)
//! - A clock mark is durable before an answer tells of the absence: see [`clock`](super::clock).

use super::Log;
use super::batch::Purpose;
use super::write::{ExistingEntry, NewVersion};
use crate::error::Error;
use crate::format::entry::{Frame, Kind, ObjectFields};
use crate::limits::HEADER_BYTES_MAX;
use crate::memory::Reference;
use crate::memory::object::{Extras, Located};
use crate::memory::segment;
use std::sync::atomic::Ordering;
use thunderhead_wire::{Attributes, EncodedAttributes, LogPosition, Timestamp, ValueKind, Version};

/// The largest header of an object: flags, checksum, length, table, version, birth, prior and the
/// length of the key. With the attributes it takes no more than the largest header of any entry, so
/// the room for that is enough.
const OBJECT_HEADER_MAX: usize = 1 + 4 + 3 + 10 + 9 + 10 + 10 + 3;
const _: () = assert!(OBJECT_HEADER_MAX + Attributes::BYTES_MAX <= HEADER_BYTES_MAX);

/// The bits by which the kind of items differs from that of bytes without attributes.
const ITEM_BITS: u8 = Kind::Item as u8 ^ Kind::Object as u8;

/// The form of written objects.
#[derive(Clone, Copy, Default)]
pub(super) struct Form {
    /// The bits by which their kind differs from that of bytes without attributes.
    bits: u8,
    kind: ValueKind,
    attributes: Attributes,
}

impl Form {
    fn new(kind: ValueKind, attributes: Attributes) -> Form {
        let entry = if attributes.is_none() { Kind::of_object(kind) } else { Kind::Item };
        Form { bits: entry as u8 ^ Kind::Object as u8, kind, attributes }
    }

    /// Whether the objects belong to a cache.
    pub(super) fn is_cached(&self) -> bool {
        self.attributes.is_cached
    }

    /// Whether the objects have attributes.
    #[inline]
    pub(super) fn is_item(&self) -> bool {
        self.bits == ITEM_BITS
    }

    /// The bits by which their kind differs from that of bytes without attributes.
    #[inline]
    pub(super) fn bits(&self) -> u8 {
        self.bits
    }
}

impl Log {
    /// Runs `act`, whose writes make objects of this kind. All other writes make bytes, also of a
    /// number.
    #[inline]
    pub fn of_kind<T>(&mut self, kind: ValueKind, act: impl FnOnce(&mut Log) -> T) -> T {
        let outer = (self.form.bits, self.form.kind);
        if !self.form.is_item() {
            self.form.bits = Kind::of_object(kind) as u8 ^ Kind::Object as u8;
        }
        self.form.kind = kind;
        let result = act(self);
        (self.form.bits, self.form.kind) = outer;
        result
    }

    /// Runs `act`, whose writes make objects with these attributes. All other writes make objects
    /// without, also of an object that has some.
    ///
    /// An object that expires is absent from that time on, by the clock of
    /// [`Log::keep_time_by`]. Its memory becomes free if [`Log::tick`] is called now and then, and
    /// a cleaner runs.
    #[inline]
    pub fn with_attributes<T>(
        &mut self,
        attributes: Attributes,
        act: impl FnOnce(&mut Log) -> T,
    ) -> T {
        if attributes.is_cached {
            self.make_room_in_cache();
        }
        self.of_form(self.form.kind, attributes, act)
    }

    /// Gives the objects of all further writes these attributes, until the next call.
    #[cold]
    pub fn set_attributes(&mut self, attributes: Attributes) {
        if attributes.is_cached {
            self.make_room_in_cache();
        }
        self.form = Form::new(ValueKind::Bytes, attributes);
    }

    /// The attributes of the objects that writes make now.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        self.form.attributes
    }

    /// Whether writes make objects with attributes now.
    #[inline]
    #[must_use]
    pub fn writes_items(&self) -> bool {
        self.form.is_item()
    }

    #[inline]
    pub(crate) fn of_form<T>(
        &mut self,
        kind: ValueKind,
        attributes: Attributes,
        act: impl FnOnce(&mut Log) -> T,
    ) -> T {
        let outer = std::mem::replace(&mut self.form, Form::new(kind, attributes));
        let result = act(self);
        self.form = outer;
        result
    }

    /// Writes an object with the attributes of the present form beyond the head's end.
    #[cold]
    #[inline(never)]
    pub(super) fn write_item(
        &mut self,
        fields: &ObjectFields,
        key: &[u8],
        value: &[u8],
    ) -> (Reference, usize) {
        let Form { bits, kind, attributes } = self.form;
        let (encoded, length) = attributes.encode(kind);
        let encoded = &encoded[..length];
        let mut header = fields.object(key.len(), encoded.len() + value.len());
        header.add_flag(self.groups.links());
        header.change_flags(bits);
        self.head.appender.prior_span.add(fields.prior);
        self.head.appender.note_item(&attributes);
        self.note_attributes(&attributes, fields.version);
        if attributes.is_cached {
            self.limited.note_cached(fields.table);
        }
        let at = self.head.place(header.entry_bytes);
        self.head.appender.write(at, &mut header, [key, encoded, value], self.seal);
        (at, header.entry_bytes)
    }

    /// Appends an object of this form and makes it the current one, for a replay.
    #[cold]
    #[inline(never)]
    pub(crate) fn put_of_form(
        &mut self,
        kind: ValueKind,
        attributes: &EncodedAttributes,
        new: NewVersion<'_>,
        current: Option<ExistingEntry>,
    ) -> Result<LogPosition, Error> {
        self.of_form(kind, attributes.decode(), |log| log.put_admitted(new, current))
    }

    /// As [`Log::note_attributes`].
    #[cold]
    #[inline(never)]
    pub(crate) fn note_encoded(&mut self, attributes: &EncodedAttributes, version: Version) {
        self.note_attributes(&attributes.decode(), version);
    }

    /// Notes that the log has an object with these attributes, of this version. The next object of
    /// a cache gets a higher version, also under another key.
    pub(crate) fn note_attributes(&mut self, attributes: &Attributes, version: Version) {
        let expires = attributes.expires != Timestamp::ZERO;
        self.keeps_time |= expires;
        if attributes.is_cached && !self.shared.sums.has_cache.swap(true, Ordering::Relaxed) {
            // A cache may have other limits: the next turn counts them anew.
            self.limits_with = super::log::LIMITS_UNKNOWN;
        }
        // That of an item that expires counts as the version of a deleted object from the start.
        if attributes.is_cached || expires {
            self.note_safe_version(version);
        }
    }

    /// The version of the item at a place that the index names, as it is for this purpose, and the
    /// place of its value.
    #[cold]
    #[inline(never)]
    pub(super) fn item_of(
        &self,
        at: Reference,
        frame: &Frame,
        purpose: Purpose,
    ) -> Option<(Version, u32)> {
        let (located, Extras { attributes, .. }) = Located::of_item(&self.memory, at, frame)?;
        let mut version = located.fields.version;
        let has_expired = || attributes.has_expired(self.clock.now());
        match purpose {
            Purpose::Read if has_expired() => {
                self.clock.note_gone(attributes.expires);
                return None;
            }
            Purpose::Update if attributes.is_cached || has_expired() => {
                version = version.max(self.safe_version);
            }
            Purpose::Read | Purpose::Update | Purpose::Replay => {}
        }
        Some((version, located.value_at()))
    }

    /// The version that conditions see of the item at a reference; none if it has expired.
    #[cold]
    pub(super) fn seen_version(&self, at: Reference) -> Version {
        let located = Located::read(&self.memory, at).filter(|_| !self.has_expired(at));
        located.map_or(Version::NONE, |located| located.fields.version)
    }

    /// Whether the entry at a reference, which the index names, is an item that has expired. The
    /// caller will treat it as absent.
    #[inline]
    pub(super) fn has_expired(&self, at: Reference) -> bool {
        Kind::is_item(segment::flags(&self.memory, at)) && self.item_has_expired(at)
    }

    #[cold]
    fn item_has_expired(&self, at: Reference) -> bool {
        let item = Located::of_item(&self.memory, at, &segment::frame(&self.memory, at));
        let Some((_, extras)) = item else { return false };
        let has_expired = extras.attributes.has_expired(self.clock.now());
        if has_expired {
            self.clock.note_gone(extras.attributes.expires);
        }
        has_expired
    }

    /// The entry at a place that the index names, unless it has expired.
    #[inline]
    pub(super) fn shown(&self, at: Reference) -> Option<Located> {
        let frame = segment::frame(&self.memory, at);
        if !Kind::is_item(frame.flags) {
            return Located::of(&self.memory, at, &frame);
        }
        let (located, _) = Located::of_item(&self.memory, at, &frame)?;
        (!self.has_expired(at)).then_some(located)
    }
}
