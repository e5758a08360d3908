//! A list: the value of one key. Its elements are a tree by their places.

use super::collection::Collection;
use super::stop::Stop;
use super::store::Kind;
use super::transaction::Transaction;
use super::tree::Form;
use std::ops::Range;

pub(super) const FORM: Form = Form::LIST;

/// The encodings that `OBJECT ENCODING` shows: a listpack, or several in a quicklist.
const LISTPACK: u8 = 0;
const QUICKLIST: u8 = 1;

/// The longest element of a listpack.
const LISTPACK_BYTES_MAX: usize = 8 << 10;

/// The pages above which a list is shown as a quicklist, and up to which it is a listpack again:
/// about as many as have the bytes of one listpack, and of a half.
const LISTPACK_PAGES_MAX: u64 = 11;
const LISTPACK_PAGES_AGAIN: u64 = 5;

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Left,
    Right,
}

/// Checks that elements fit into the store. A command does so before it changes anything.
pub(super) fn check<'e>(
    objects: &Transaction<'_>,
    mut elements: impl Iterator<Item = &'e [u8]>,
) -> Result<(), Stop> {
    elements.try_for_each(|element| FORM.check(objects, &[], element))
}

/// A list that is read or changed.
pub(super) struct List<'k> {
    key: &'k [u8],
    collection: Collection<'k>,
    length: u64,
}

impl<'k> List<'k> {
    /// Returns a list for a command that only reads.
    pub(super) fn read(
        objects: &mut Transaction<'_>,
        key: &'k [u8],
    ) -> Result<Option<List<'k>>, Stop> {
        List::of(key, Collection::to_read(objects, key, Kind::List, &[FORM])?)
    }

    /// Returns a list for a command that also writes.
    pub(super) fn find(
        objects: &mut Transaction<'_>,
        key: &'k [u8],
    ) -> Result<Option<List<'k>>, Stop> {
        List::of(key, Collection::find(objects, key, Kind::List, &[FORM])?)
    }

    fn of(key: &'k [u8], found: Option<Collection<'k>>) -> Result<Option<List<'k>>, Stop> {
        let Some(collection) = found else { return Ok(None) };
        let length = collection.len()?;
        Ok(Some(List { key, collection, length }))
    }

    /// Returns an empty list for a key that does not exist.
    pub(super) fn new(objects: &Transaction<'_>, key: &'k [u8]) -> List<'k> {
        let collection = Collection::new(objects, key, Kind::List, &[FORM]);
        List { key, collection, length: 0 }
    }

    /// Returns the number of elements.
    pub(super) fn len(&self) -> u64 {
        self.length
    }

    /// Visits elements in their order or backwards, until `visit` returns `false`.
    pub(super) fn visit(
        &self,
        objects: &mut Transaction<'_>,
        places: Range<u64>,
        is_reverse: bool,
        mut visit: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), Stop> {
        let begin = if is_reverse { places.end } else { places.start };
        let mut cursor = self.collection.cursor(objects, begin)?;
        for _ in places {
            let entry =
                if is_reverse { cursor.previous(objects)? } else { cursor.next(objects)? };
            if !entry.is_some_and(|(_, element)| visit(element)) {
                break;
            }
        }
        Ok(())
    }

    /// Returns an element.
    pub(super) fn element(
        &self,
        objects: &mut Transaction<'_>,
        place: u64,
    ) -> Result<Vec<u8>, Stop> {
        let mut found = Vec::new();
        self.visit(objects, place..place + 1, false, |element| {
            found = element.to_vec();
            false
        })?;
        Ok(found)
    }

    /// Adds an element before the one at a place, or at the end.
    pub(super) fn insert(
        &mut self,
        objects: &mut Transaction<'_>,
        place: u64,
        element: &[u8],
    ) -> Result<(), Stop> {
        self.collection.tree().insert_at(objects, place, &[], element)?;
        self.length += 1;
        self.note(element);
        Ok(())
    }

    /// Adds an element at an end.
    pub(super) fn push(
        &mut self,
        objects: &mut Transaction<'_>,
        end: End,
        element: &[u8],
    ) -> Result<(), Stop> {
        let place = if end == End::Left { 0 } else { self.length };
        self.insert(objects, place, element)
    }

    /// Writes an element in place of another one.
    pub(super) fn replace(
        &mut self,
        objects: &mut Transaction<'_>,
        place: u64,
        element: &[u8],
    ) -> Result<(), Stop> {
        self.collection.tree().replace_at(objects, place, element)?;
        self.note(element);
        Ok(())
    }

    /// Removes elements. A list that loses all of them must be saved next.
    pub(super) fn remove(
        &mut self,
        objects: &mut Transaction<'_>,
        places: Range<u64>,
    ) -> Result<(), Stop> {
        let count = places.end - places.start;
        self.length -= count;
        if self.length > 0 {
            self.collection.tree().remove_range(objects, places.start, count)?;
        }
        if self.collection.pages() <= LISTPACK_PAGES_AGAIN {
            self.collection.encoding = LISTPACK;
        }
        Ok(())
    }

    /// Chooses the encoding after a write of an element.
    fn note(&mut self, element: &[u8]) {
        if element.len() > LISTPACK_BYTES_MAX || self.collection.pages() > LISTPACK_PAGES_MAX {
            self.collection.encoding = QUICKLIST;
        }
    }

    /// Writes the list, or deletes the key if the list is empty.
    pub(super) fn save(mut self, objects: &mut Transaction<'_>) -> Result<(), Stop> {
        if self.length == 0 {
            objects.remove(self.key)?;
        } else {
            self.collection.close(objects)?;
        }
        Ok(())
    }
}
