//! A list: the value of one key. Its elements are a tree by their places, between two ends.
//!
//! The ends are empty as long as the list is so small that its tree is one node in the header.

use super::collection::Collection;
use super::list_ends::{END_BYTES_MAX, Ends, Part};
use super::stop::{self, Stop};
use super::store::Kind;
use super::transaction::Transaction;
use super::tree::{Form, NODE_BYTES_MAX};
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

/// Returns the number of pages, as if the ends were in pages too.
fn pages_with(pages: u64, ends_bytes: usize) -> u64 {
    pages + ends_bytes.div_ceil(NODE_BYTES_MAX) as u64
}

/// Whether a list becomes a quicklist after a write of an element.
pub(super) fn must_be_quicklist(element: &[u8], pages: u64, ends_bytes: usize) -> bool {
    element.len() > LISTPACK_BYTES_MAX || pages_with(pages, ends_bytes) > LISTPACK_PAGES_MAX
}

/// Whether a list becomes a listpack after elements were removed.
pub(super) fn may_be_listpack_again(pages: u64, ends_bytes: usize) -> bool {
    pages_with(pages, ends_bytes) <= LISTPACK_PAGES_AGAIN
}

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Left,
    Right,
}

impl End {
    /// Returns the event of elements that are added here.
    pub(super) fn pushed(self) -> &'static str {
        if self == End::Left { "lpush" } else { "rpush" }
    }

    /// Returns the event of elements that are taken from here.
    pub(super) fn popped(self) -> &'static str {
        if self == End::Left { "lpop" } else { "rpop" }
    }
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
    ends: Ends,
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
        let Some(mut collection) = found else { return Ok(None) };
        let ends = match &*collection.take_appendix() {
            [] => Ends::none(collection.len()?),
            bytes => Ends::read(bytes)?,
        };
        Ok(Some(List { key, collection, ends }))
    }

    /// Returns an empty list for a key that does not exist.
    pub(super) fn new(objects: &Transaction<'_>, key: &'k [u8]) -> List<'k> {
        let collection = Collection::new(objects, key, Kind::List, &[FORM]);
        List { key, collection, ends: Ends::default() }
    }

    /// Returns the key.
    pub(super) fn key(&self) -> &'k [u8] {
        self.key
    }

    /// Returns the number of elements.
    pub(super) fn len(&self) -> u64 {
        self.ends.elements()
    }

    /// Whether changes at the ends do not go into the tree.
    fn has_ends(&self) -> bool {
        self.collection.pages() > 0 || !self.ends.are_empty()
    }

    /// Returns the parts of some places that are in the left end, in the tree and in the right end.
    /// Each counts from the begin of its part of the list.
    fn parts(&self, places: &Range<u64>) -> [Range<u64>; 3] {
        let Ends { left, tree, right } = &self.ends;
        let mut begin = 0;
        [left.len(), *tree, right.len()].map(|length| {
            let within = |place: u64| place.saturating_sub(begin).min(length);
            let part = within(places.start)..within(places.end);
            begin += length;
            part
        })
    }

    /// Visits elements in their order or backwards, until `visit` returns `false`.
    pub(super) fn visit(
        &self,
        objects: &mut Transaction<'_>,
        places: Range<u64>,
        is_reverse: bool,
        mut visit: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), Stop> {
        let [left, tree, right] = self.parts(&places);
        let (first, last) = match is_reverse {
            false => ((&self.ends.left, left), (&self.ends.right, right)),
            true => ((&self.ends.right, right), (&self.ends.left, left)),
        };
        if !visit_end(first, is_reverse, &mut visit)? {
            return Ok(());
        }
        if !tree.is_empty() {
            let begin = if is_reverse { tree.end } else { tree.start };
            let mut cursor = self.collection.cursor(objects, begin)?;
            for _ in tree {
                let entry =
                    if is_reverse { cursor.previous(objects)? } else { cursor.next(objects)? };
                if !entry.is_some_and(|(_, element)| visit(element)) {
                    return Ok(());
                }
            }
        }
        visit_end(last, is_reverse, &mut visit)?;
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
        let (left, tree) = (self.ends.left.len(), self.ends.tree);
        if self.has_ends() && place <= left {
            self.ends.left.insert(place, element)?;
            self.shorten(objects, End::Left)?;
        } else if self.has_ends() && place >= left + tree {
            self.ends.right.insert(place - left - tree, element)?;
            self.shorten(objects, End::Right)?;
        } else {
            self.collection.tree().insert_at(objects, place - left, &[], element)?;
            self.ends.tree += 1;
        }
        self.note(element);
        Ok(())
    }

    /// Moves elements into the tree as long as an end is too long.
    fn shorten(&mut self, objects: &mut Transaction<'_>, end: End) -> Result<(), Stop> {
        let is_left = end == End::Left;
        let Ends { left, tree, right } = &mut self.ends;
        let part = if is_left { left } else { right };
        while part.bytes() > END_BYTES_MAX {
            let moved = part.take_inner(is_left, FORM.items_bytes_max())?;
            let run = (moved.len(), moved.as_bytes());
            self.collection.tree().add_run(objects, is_left, run)?;
            *tree = tree.checked_add(moved.len()).ok_or(stop::DAMAGED)?;
        }
        Ok(())
    }

    /// Moves the elements of a page from the tree to an end that is empty, if there is a page.
    fn fill(&mut self, objects: &mut Transaction<'_>, end: End) -> Result<(), Stop> {
        let is_left = end == End::Left;
        let part = if is_left { &mut self.ends.left } else { &mut self.ends.right };
        if !part.is_empty() || self.collection.pages() == 0 {
            return Ok(());
        }
        let taken = self.collection.tree().take_leaf(objects, is_left, END_BYTES_MAX)?;
        if let Some((count, bytes)) = taken {
            *part = Part::new(count, bytes);
            self.ends.tree = self.ends.tree.checked_sub(count).ok_or(stop::DAMAGED)?;
        }
        Ok(())
    }

    /// Adds an element at an end.
    pub(super) fn push(
        &mut self,
        objects: &mut Transaction<'_>,
        end: End,
        element: &[u8],
    ) -> Result<(), Stop> {
        let place = if end == End::Left { 0 } else { self.len() };
        self.insert(objects, place, element)
    }

    /// Writes an element in place of another one.
    pub(super) fn replace(
        &mut self,
        objects: &mut Transaction<'_>,
        place: u64,
        element: &[u8],
    ) -> Result<(), Stop> {
        let [left, tree, right] = self.parts(&(place..place + 1));
        if !tree.is_empty() {
            self.collection.tree().replace_at(objects, tree.start, element)?;
        } else if !left.is_empty() {
            self.ends.left.remove(left.clone())?;
            self.ends.left.insert(left.start, element)?;
            self.shorten(objects, End::Left)?;
        } else {
            self.ends.right.remove(right.clone())?;
            self.ends.right.insert(right.start, element)?;
            self.shorten(objects, End::Right)?;
        }
        self.note(element);
        Ok(())
    }

    /// Takes the element at an end. The list has some. A list that loses its last one must be saved
    /// next.
    pub(super) fn pop(&mut self, objects: &mut Transaction<'_>, end: End) -> Result<Vec<u8>, Stop> {
        if self.len() > 1 {
            self.fill(objects, end)?;
            let part = if end == End::Left { &mut self.ends.left } else { &mut self.ends.right };
            if let Some(element) = part.pop(end == End::Left)? {
                self.note_removal();
                return Ok(element);
            }
        }
        let place = if end == End::Left { 0 } else { self.len().saturating_sub(1) };
        let element = self.element(objects, place)?;
        self.remove(objects, place..place + 1)?;
        Ok(element)
    }

    /// Removes elements. A list that loses all of them must be saved next.
    pub(super) fn remove(
        &mut self,
        objects: &mut Transaction<'_>,
        places: Range<u64>,
    ) -> Result<(), Stop> {
        let (length, count) = (self.len(), places.end - places.start);
        if count == length {
            self.ends = Ends::default();
        } else if count > 0 {
            if places.start == 0 {
                self.fill(objects, End::Left)?;
            }
            if places.end == length {
                self.fill(objects, End::Right)?;
            }
            let [left, tree, right] = self.parts(&places);
            self.ends.right.remove(right)?;
            if !tree.is_empty() {
                let count = tree.end - tree.start;
                self.collection.tree().remove_range(objects, tree.start, count)?;
                self.ends.tree -= count;
            }
            self.ends.left.remove(left)?;
        }
        self.note_removal();
        Ok(())
    }

    /// Removes the elements at some places, which rise, from the right to the left. It ends early
    /// when the changes have so many bytes. Returns the number of the first places whose elements
    /// are still there. A list that loses all of its elements must be saved next.
    pub(super) fn remove_each(
        &mut self,
        objects: &mut Transaction<'_>,
        places: &[u64],
        bytes_max: usize,
    ) -> Result<usize, Stop> {
        let mut rest = 0;
        let (first, last) = (self.ends.left.len(), self.ends.left.len() + self.ends.tree);
        if places.len() as u64 == self.len() {
            self.ends = Ends::default();
        } else {
            let (of_left, behind) = places.split_at(places.partition_point(|it| *it < first));
            let (of_tree, of_right) = behind.split_at(behind.partition_point(|it| *it < last));
            // From the right to the left, so that the other places stay as they are.
            for place in of_right.iter().map(|it| it - last).rev() {
                self.ends.right.remove(place..place + 1)?;
            }
            let of_tree: Vec<u64> = of_tree.iter().map(|it| it - first).collect();
            rest = self.collection.tree().remove_each(objects, &of_tree, bytes_max)?;
            self.ends.tree -= (of_tree.len() - rest) as u64;
            if rest > 0 {
                rest += of_left.len();
            } else {
                for place in of_left.iter().rev() {
                    self.ends.left.remove(*place..place + 1)?;
                }
            }
        }
        self.note_removal();
        Ok(rest)
    }

    /// Chooses the encoding after elements were removed.
    fn note_removal(&mut self) {
        if may_be_listpack_again(self.collection.pages(), self.ends.bytes()) {
            self.collection.encoding = LISTPACK;
        }
    }

    /// Chooses the encoding after a write of an element.
    fn note(&mut self, element: &[u8]) {
        if must_be_quicklist(element, self.collection.pages(), self.ends.bytes()) {
            self.collection.encoding = QUICKLIST;
        }
    }

    /// Writes the list, which has elements, with a time of expiry.
    pub(super) fn save_until(
        mut self,
        objects: &mut Transaction<'_>,
        expires: Option<u64>,
    ) -> Result<(), Stop> {
        self.collection.expires = expires;
        self.save(objects)
    }

    /// Writes the list, or deletes the key if the list is empty.
    pub(super) fn save(mut self, objects: &mut Transaction<'_>) -> Result<(), Stop> {
        if self.len() == 0 {
            objects.delete(self.key)?;
            return Ok(());
        }
        let bytes = self.collection.root_bytes() + self.ends.bytes();
        if self.collection.pages() == 0 && bytes <= NODE_BYTES_MAX && !self.ends.are_empty() {
            // The list is small again.
            let Ends { left, tree, right } = &self.ends;
            self.collection.tree().insert_run(objects, *tree, &right.elements()?)?;
            self.collection.tree().insert_run(objects, 0, &left.elements()?)?;
            self.ends = Ends::none(self.len());
        }
        let Ends { left, right, .. } = &self.ends;
        let head = self.ends.encode_head();
        self.collection.write(objects, &[&head, left.as_bytes(), right.as_bytes()])
    }
}

/// Visits elements of an end, until `visit` returns `false`; returns its last answer.
fn visit_end(
    (part, places): (&Part, Range<u64>),
    is_reverse: bool,
    visit: &mut impl FnMut(&[u8]) -> bool,
) -> Result<bool, Stop> {
    if places.is_empty() {
        return Ok(true);
    }
    let elements = part.elements()?;
    let mut elements =
        elements.get(places.start as usize..places.end as usize).into_iter().flatten();
    Ok(match is_reverse {
        false => elements.all(|element| visit(element)),
        true => elements.rev().all(|element| visit(element)),
    })
}
