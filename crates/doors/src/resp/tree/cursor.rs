//! A place between two items of a tree, from which it is read in both directions.

use super::super::pages::Pages;
use super::super::stop::{self, Stop};
use super::super::transaction::Transaction;
use super::node::{Child, Leaf, Node, Sought};
use super::{Form, HEIGHT_MAX, Inner};

/// The key and the value of an item.
pub(in super::super) type Entry<'a> = (&'a [u8], &'a [u8]);

/// A place between two items. The tree must not change while there is one.
pub(in super::super) struct Cursor<'k> {
    pages: Pages<'k>,
    form: Form,
    /// The inner nodes from the root on, and the index of the child that is read.
    path: Vec<(Inner, usize)>,
    leaf: Leaf,
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
        let (pages, path, leaf) = (pages.clone(), Vec::new(), Leaf::default());
        let mut cursor = Cursor { pages, form, path, leaf, at: 0 };
        let node = Node::parse(form, root)?;
        cursor.descend(node, objects, position)?;
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
        let mut node = Node::parse(form, root)?;
        // The items of a root are in the order of insertion.
        node.sort(form);
        let mut path = Vec::new();
        while path.len() < HEIGHT_MAX {
            let inner = match node {
                Node::Leaf(leaf) => {
                    let at = leaf.items.partition_point(|it| sought.compare(leaf.key(it)).is_gt());
                    return Ok(Cursor { pages: pages.clone(), form, path, leaf, at });
                }
                Node::Inner(inner) => inner,
            };
            // The separator of the first child is not used.
            let others = inner.children.get(1..).unwrap_or_default();
            let index = others.partition_point(|it| !sought.is_below(inner.separator(it)));
            let Child { page, count, .. } = inner.children[index];
            path.push((inner, index));
            node = Node::parse_child(form, pages.read(objects, page)?, count)?;
        }
        Err(stop::DAMAGED)
    }

    /// Goes down to the leaf with a position below a node.
    fn descend(
        &mut self,
        mut node: Node,
        objects: &mut Transaction<'_>,
        mut position: u64,
    ) -> Result<(), Stop> {
        while self.path.len() < HEIGHT_MAX {
            let inner = match node {
                Node::Leaf(leaf) => {
                    let last = leaf.items.len();
                    self.at = usize::try_from(position).unwrap_or(last).min(last);
                    self.leaf = leaf;
                    return Ok(());
                }
                Node::Inner(inner) => inner,
            };
            let (index, below) = inner.index_at(position)?;
            let Child { page, count, .. } = inner.children[index];
            position = below;
            self.path.push((inner, index));
            node = Node::parse_child(self.form, self.pages.read(objects, page)?, count)?;
        }
        Err(stop::DAMAGED)
    }

    /// Goes to the leaf behind this one, or to the one before it; returns whether there is one.
    fn step(&mut self, objects: &mut Transaction<'_>, is_forward: bool) -> Result<bool, Stop> {
        let has_more = |(inner, index): &(Inner, usize)| match is_forward {
            true => index + 1 < inner.children.len(),
            false => *index > 0,
        };
        let Some(depth) = self.path.iter().rposition(has_more) else { return Ok(false) };
        self.path.truncate(depth + 1);
        let Some((inner, index)) = self.path.last_mut() else { return Ok(false) };
        *index = if is_forward { *index + 1 } else { *index - 1 };
        let Child { page, count, .. } = inner.children[*index];
        let node = Node::parse_child(self.form, self.pages.read(objects, page)?, count)?;
        self.descend(node, objects, if is_forward { 0 } else { u64::MAX })?;
        Ok(true)
    }

    /// Returns the item behind the place, its key and its value, and goes behind it.
    pub(in super::super) fn next(
        &mut self,
        objects: &mut Transaction<'_>,
    ) -> Result<Option<Entry<'_>>, Stop> {
        while self.at >= self.leaf.items.len() {
            if !self.step(objects, true)? {
                return Ok(None);
            }
        }
        self.at += 1;
        Ok(self.item(self.at - 1))
    }

    /// Returns the item before the place, its key and its value, and goes before it.
    #[allow(dead_code, reason = "lists and sorted sets follow")]
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
        Ok(self.item(self.at))
    }

    fn item(&self, index: usize) -> Option<Entry<'_>> {
        let item = self.leaf.items.get(index)?;
        Some((self.leaf.key(item), self.leaf.value(item)))
    }
}
