//! A place between two items of a tree, from which it is read in both directions.
//!
//! The nodes on the way are copied and read where they lie in their bytes: nothing is decoded but
//! the children and the items that are passed.

use super::super::pages::Pages;
use super::super::stop::{self, Stop};
use super::super::transaction::Transaction;
use super::children::Children;
use super::node::{Node, Sought};
use super::slots::Slots;
use super::{Form, HEIGHT_MAX, Inner, Order};

/// The room for the inner nodes above the usual leaf.
const LEVELS: usize = 3;

/// The key and the value of an item.
pub(in super::super) type Entry<'a> = (&'a [u8], &'a [u8]);

/// A place between two items. The tree must not change while there is one.
pub(in super::super) struct Cursor<'k> {
    pages: Pages<'k>,
    form: Form,
    /// The bytes of the inner nodes from the root on, and the index of the child that is read.
    path: Vec<(Vec<u8>, usize)>,
    leaf: Slots,
    /// The item of the leaf before which the place is.
    at: usize,
}

impl<'k> Cursor<'k> {
    pub(super) fn new(
        form: Form,
        root: &[u8],
        pages: &Pages<'k>,
        objects: &mut Transaction<'_>,
        position: u64,
    ) -> Result<Cursor<'k>, Stop> {
        let mut cursor = Cursor {
            pages: pages.clone(),
            form,
            path: Vec::with_capacity(LEVELS),
            leaf: Slots::empty(form),
            at: 0,
        };
        cursor.descend(root, None, objects, position)?;
        Ok(cursor)
    }

    /// Returns a cursor before the first item whose key is not lower than one.
    pub(super) fn at_key(
        form: Form,
        root: &[u8],
        pages: &Pages<'k>,
        objects: &mut Transaction<'_>,
        sought: &Sought<'_>,
    ) -> Result<Cursor<'k>, Stop> {
        let mut bytes = match form.order {
            // The items of a root are in the order of insertion.
            Order::Hashed if !Inner::is_inner(root) => {
                let mut node = Node::parse(form, root)?;
                node.sort(form);
                node.encode(form)
            }
            _ => root.to_vec(),
        };
        let mut path = Vec::with_capacity(LEVELS);
        while path.len() < HEIGHT_MAX {
            if !Inner::is_inner(&bytes) {
                let leaf = Slots::parse(form, &bytes, 0)?;
                let (Ok(at) | Err(at)) = leaf.index_of(sought, false);
                return Ok(Cursor { pages: pages.clone(), form, path, leaf, at });
            }
            let (at, index, _) = Children::new(&bytes).find(sought)?;
            let child = Children::at(&bytes, at)?;
            let below = pages.read(objects, child.page)?;
            check_count(form, below, child.count)?;
            path.push((std::mem::replace(&mut bytes, below.to_vec()), index));
        }
        Err(stop::DAMAGED)
    }

    /// Goes down to the leaf with a position below the root, or below a page in which its parent
    /// counts so many items. The highest position is the end.
    fn descend(
        &mut self,
        root: &[u8],
        mut page: Option<(u64, u64)>,
        objects: &mut Transaction<'_>,
        mut position: u64,
    ) -> Result<(), Stop> {
        // From the root on, the counts of inner nodes do not matter for the ends.
        let mut is_trusted = page.is_none() && matches!(position, 0 | u64::MAX);
        while self.path.len() < HEIGHT_MAX {
            let bytes = match page {
                None => root,
                Some((page, _)) => self.pages.read(objects, page)?,
            };
            let is_inner = Inner::is_inner(bytes);
            if let Some((_, count)) = page.filter(|_| !is_inner || !is_trusted) {
                check_count(self.form, bytes, count)?;
            }
            if !is_inner {
                self.leaf = Slots::parse(self.form, bytes, 0)?;
                let last = self.leaf.len();
                self.at = usize::try_from(position).unwrap_or(last).min(last);
                return Ok(());
            }
            let (at, index, _) = Children::new(bytes).at_position(&mut position)?;
            let child = Children::at(bytes, at)?;
            self.path.push((bytes.to_vec(), index));
            is_trusted &= matches!(position, 0 | u64::MAX);
            page = Some((child.page, child.count));
        }
        Err(stop::DAMAGED)
    }

    /// Goes to the leaf behind this one, or to the one before it; returns whether there is one.
    fn step(&mut self, objects: &mut Transaction<'_>, is_forward: bool) -> Result<bool, Stop> {
        let next = loop {
            let Some((bytes, index)) = self.path.last_mut() else { return Ok(false) };
            let next = if is_forward { Some(*index + 1) } else { index.checked_sub(1) };
            let child = next.map_or(Ok(None), |next| Children::nth(bytes, next))?;
            if let (Some(next), Some(child)) = (next, child) {
                *index = next;
                break child;
            }
            self.path.pop();
        };
        let position = if is_forward { 0 } else { u64::MAX };
        self.descend(&[], Some((next.page, next.count)), objects, position)?;
        Ok(true)
    }

    /// Returns the item behind the place, its key and its value, and goes behind it.
    pub(in super::super) fn next(
        &mut self,
        objects: &mut Transaction<'_>,
    ) -> Result<Option<Entry<'_>>, Stop> {
        while self.at >= self.leaf.len() {
            if !self.step(objects, true)? {
                return Ok(None);
            }
        }
        self.at += 1;
        Ok(Some(self.leaf.item(self.at - 1)))
    }

    /// Returns the item before the place, its key and its value, and goes before it.
    pub(in super::super) fn previous(
        &mut self,
        objects: &mut Transaction<'_>,
    ) -> Result<Option<Entry<'_>>, Stop> {
        while self.at == 0 {
            if !self.step(objects, false)? {
                return Ok(None);
            }
        }
        self.at -= 1;
        Ok(Some(self.leaf.item(self.at)))
    }
}

/// Checks that a node has as many items as its parent counts in it and below.
fn check_count(form: Form, bytes: &[u8], count: u64) -> Result<(), Stop> {
    match !form.has_counts || super::count(form, bytes)? == count {
        true => Ok(()),
        false => Err(stop::DAMAGED),
    }
}
