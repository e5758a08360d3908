//! Trees of the items of collections: the lists, the fields of hashes, the members of sets.
//!
//! A tree is a B+ tree of nodes of about [`NODE_BYTES_MAX`] bytes. The root is in the collection's
//! header, so a small collection is one object. The other nodes are [pages](super::pages).
//!
//! ```text
//!  header: root ─► page: inner ─► page: leaf (items)
//!                │              └► page: leaf
//!                └► page: inner ─► …
//! ```
//!
//! # Promises
//!
//! - The time of a read or a change grows only with the height of the tree. Inner nodes count the
//!   items below, so this also holds for positions.
//! - In a tree of [`Order::Hashed`] whose items all fit into the root, they are in the order in
//!   which they were inserted: clients see them in the order of Redis.
//! - Bytes that this server has not written lead to an error, and to no panic. If a page has more
//!   or fewer items than its parent counts, a position that depends on it is an error, too.
//!   A change by a key adds the difference to the counts above, and checks that of the leaf only.
//!
//! # Sizes
//!
//! A node is split when it is longer than the limit, and joined with its neighbour when it is less
//! than half as long. An item that is longer than the limit has a leaf of its own.

mod build;
mod children;
mod cursor;
mod edit;
mod node;
mod slots;
#[cfg(test)]
mod tests;

use super::pages::Pages;
use super::stop::{self, Stop};
use super::store::Refusal;
use super::transaction::Transaction;
use super::varint;
pub(super) use build::copy;
use children::Children;
pub(super) use cursor::{Cursor, Entry};
pub(super) use edit::Spot;
#[cfg(test)]
use node::Node;
pub(super) use node::hash;
use node::{Inner, Sought, View, child_of};
use std::cmp::Ordering;

/// The length of a node above which it is split.
pub(super) const NODE_BYTES_MAX: usize = 1 << 10;

/// The height of the highest tree. More is damage: each level has twice as many nodes.
const HEIGHT_MAX: usize = 64;

/// The bytes of a value of the store that a node with one item needs for itself.
const NODE_BYTES: usize = 64;

/// The order of the items of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Items have no keys, and are where they were inserted.
    Position,
    /// By the hash of the key, then by the key.
    Hashed,
    /// By the bytes of the key.
    Bytes,
}

/// The form of a tree's items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) order: Order,
    /// Whether items have values. Those without keys do.
    pub(super) has_values: bool,
    /// Whether inner nodes count the items below. If not, only searches by keys and visits have
    /// right results, and the counts are any numbers.
    pub(super) has_counts: bool,
    /// The length of a node above which it is split.
    pub(super) node_bytes_max: usize,
}

impl Form {
    const fn new(order: Order, has_values: bool) -> Form {
        Form { order, has_values, has_counts: true, node_bytes_max: NODE_BYTES_MAX }
    }

    /// The elements of a list: values alone.
    pub(super) const LIST: Form = Form::new(Order::Position, true);
    /// Members, by their hashes.
    pub(super) const SET: Form = Form::new(Order::Hashed, false);
    /// Fields with values, by the hashes of the fields.
    pub(super) const HASH: Form = Form::new(Order::Hashed, true);
    /// Members with their scores, by the hashes of the members. An insertion writes a leaf, and no
    /// node above it.
    pub(super) const SCORES: Form = Form { has_counts: false, ..Form::HASH };
    /// Keys by their bytes, such as scores with members.
    pub(super) const BYTES: Form = Form::new(Order::Bytes, false);
    /// Keys by their bytes, with values, such as the ids of entries.
    pub(super) const MAP: Form = Form::new(Order::Bytes, true);

    pub(super) fn has_keys(self) -> bool {
        self.order != Order::Position
    }

    /// Returns the most bytes of the items of a leaf, if there are several.
    pub(super) fn items_bytes_max(self) -> usize {
        self.node_bytes_max - 1
    }

    /// Returns the bytes that an item takes in a leaf.
    pub(super) fn item_bytes(self, key: usize, value: usize) -> usize {
        let part = |is_there: bool, length: usize| match is_there {
            true => varint::length(length as u64) + length,
            false => 0,
        };
        part(self.has_keys(), key) + part(self.has_values, value)
    }

    /// Checks that an item fits into the store. A command does so before it changes anything.
    ///
    /// # Errors
    /// If the item is too long.
    pub(super) fn check(
        self,
        objects: &Transaction<'_>,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), Stop> {
        self.check_lengths(objects, key.len(), value.len())
    }

    /// Checks that an item with a key and a value of some lengths fits into the store.
    pub(super) fn check_lengths(
        self,
        objects: &Transaction<'_>,
        key: usize,
        value: usize,
    ) -> Result<(), Stop> {
        let most = objects.value_bytes_max();
        // An inner node may hold three separators, each as long as a key.
        let is_long_key = self.order == Order::Bytes && key > most / 4;
        match is_long_key || NODE_BYTES + self.item_bytes(key, value) > most {
            true => Err(Refusal::TooLong.into()),
            false => Ok(()),
        }
    }
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    form: Form,
    root: Vec<u8>,
}

impl Tree {
    /// Returns an empty tree.
    pub(super) fn new(form: Form) -> Tree {
        // Many trees stay empty, and take no memory: see `Tree::root`.
        Tree { form, root: Vec::new() }
    }

    /// Returns the tree with a root from a header.
    pub(super) fn of(form: Form, root: &[u8]) -> Tree {
        Tree { form, root: root.to_vec() }
    }

    /// Returns the root, for the header.
    pub(super) fn root(&self) -> &[u8] {
        if self.root.is_empty() { node::EMPTY } else { &self.root }
    }

    /// Whether there are no items.
    pub(super) fn is_empty(&self) -> bool {
        self.root() == node::EMPTY
    }

    /// Returns the number of items.
    pub(super) fn len(&self) -> Result<u64, Stop> {
        count(self.form, self.root())
    }

    /// Returns the value of a key, which is empty if items have no values.
    pub(super) fn get(
        &self,
        pages: &Pages<'_>,
        objects: &mut Transaction<'_>,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, Stop> {
        match find(self.form, self.root(), key)? {
            Place::Here(value) => Ok(value.map(<[u8]>::to_vec)),
            Place::Page(page) => find_below(self.form, pages, objects, page, key),
        }
    }

    /// Returns the number of items before a key, and whether the key is there.
    pub(super) fn rank(
        &self,
        pages: &Pages<'_>,
        objects: &mut Transaction<'_>,
        key: &[u8],
    ) -> Result<(u64, bool), Stop> {
        self.rank_of(pages, objects, &Sought::new(self.form, key))
    }

    /// Returns a cursor before the first item whose hash is not lower than one.
    pub(super) fn cursor_at_hash<'k>(
        &self,
        pages: &Pages<'k>,
        objects: &mut Transaction<'_>,
        hash: u64,
    ) -> Result<Cursor<'k>, Stop> {
        Cursor::at_key(self.form, self.root(), pages, objects, &Sought::from_hash(hash))
    }

    /// Returns the number of items whose hashes are lower. The items must be in pages.
    pub(super) fn rank_of_hash(
        &self,
        pages: &Pages<'_>,
        objects: &mut Transaction<'_>,
        hash: u64,
    ) -> Result<u64, Stop> {
        Ok(self.rank_of(pages, objects, &Sought::from_hash(hash))?.0)
    }

    fn rank_of(
        &self,
        pages: &Pages<'_>,
        objects: &mut Transaction<'_>,
        sought: &Sought<'_>,
    ) -> Result<(u64, bool), Stop> {
        let mut before = 0u64;
        // The page on the way, and the items that its parent counts in it and below.
        let mut page = None;
        for _ in 0..HEIGHT_MAX {
            let bytes = match page {
                None => self.root(),
                Some((page, _)) => pages.read(objects, page)?,
            };
            if page.is_some_and(|(_, expected)| count(self.form, bytes) != Ok(expected)) {
                return Err(stop::DAMAGED);
            }
            match View::parse(self.form, bytes)? {
                View::Inner(_) => {
                    let (at, ..) = Children::new(bytes).find(sought)?;
                    let mut children = Children::new(bytes);
                    while children.place() < at {
                        before = before.saturating_add(children.pass_count()?);
                    }
                    let found = children.visit()?;
                    page = Some((found.page, found.count));
                }
                View::Leaf(items) => {
                    let is_sorted = !(page.is_none() && self.form.order == Order::Hashed);
                    for item in items {
                        let key = &bytes[item?.key];
                        match sought.compare(key) {
                            Ordering::Equal => return Ok((before, true)),
                            Ordering::Less if is_sorted => return Ok((before, false)),
                            _ => before += 1,
                        }
                    }
                    return Ok((before, false));
                }
            }
        }
        Err(stop::DAMAGED)
    }

    /// Returns a cursor before an item.
    pub(super) fn cursor<'k>(
        &self,
        pages: &Pages<'k>,
        objects: &mut Transaction<'_>,
        position: u64,
    ) -> Result<Cursor<'k>, Stop> {
        Cursor::new(self.form, self.root(), pages, objects, position)
    }

    /// Whether all items are in the root.
    pub(super) fn is_small(&self) -> Result<bool, Stop> {
        Ok(matches!(View::parse(self.form, self.root())?, View::Leaf(_)))
    }
}

/// Returns the number of items of the tree with a root.
pub(super) fn count(form: Form, root: &[u8]) -> Result<u64, Stop> {
    match View::parse(form, root)? {
        View::Leaf(items) => items.map(|item| item.map(|_| 1)).sum(),
        View::Inner(_) => children::sum_of_counts(root),
    }
}

/// The place of a key.
pub(super) enum Place<'a> {
    /// The value, or that there is none.
    Here(Option<&'a [u8]>),
    /// Below this page.
    Page(u64),
}

/// Looks for a key in the root of a tree.
pub(super) fn find<'a>(form: Form, root: &'a [u8], key: &[u8]) -> Result<Place<'a>, Stop> {
    match View::parse(form, root)? {
        View::Leaf(items) => {
            for item in items {
                let item = item?;
                if &root[item.key] == key {
                    return Ok(Place::Here(Some(&root[item.value])));
                }
            }
            Ok(Place::Here(None))
        }
        View::Inner(_) => Ok(Place::Page(child_of(root, &Sought::new(form, key))?)),
    }
}

/// Looks for a key in a page, and below it.
pub(super) fn find_below(
    form: Form,
    pages: &Pages<'_>,
    objects: &mut Transaction<'_>,
    mut page: u64,
    key: &[u8],
) -> Result<Option<Vec<u8>>, Stop> {
    for _ in 0..HEIGHT_MAX {
        match find(form, pages.read(objects, page)?, key)? {
            Place::Here(value) => return Ok(value.map(<[u8]>::to_vec)),
            Place::Page(below) => page = below,
        }
    }
    Err(stop::DAMAGED)
}
