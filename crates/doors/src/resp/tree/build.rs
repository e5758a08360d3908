//! Builds whole trees: from items in their order, or as the copy of another tree.

use super::super::pages::Pages;
use super::super::stop::{self, Stop};
use super::super::transaction::Transaction;
use super::node::{Edge, Inner, Leaf, Node};
use super::{Form, HEIGHT_MAX, Tree};

impl Tree {
    /// Fills the tree, which is empty, with items that are in its order and have different keys.
    pub(in super::super) fn fill<'i>(
        &mut self,
        pages: &mut Pages<'_>,
        objects: &mut Transaction<'_>,
        items: impl Iterator<Item = (&'i [u8], &'i [u8])>,
    ) -> Result<(), Stop> {
        let form = self.form;
        // Full leaves are written as they come. The last two share their items.
        let (mut leaf, mut bytes) = (Leaf::default(), 1);
        let (mut inner, mut last) = (Inner::default(), Vec::new());
        for (key, value) in items {
            let item = leaf.make(key, value);
            bytes += form.item_bytes(key.len(), value.len());
            leaf.items.push(item);
            if bytes > 3 * form.node_bytes_max {
                let mut pieces = Node::Leaf(std::mem::take(&mut leaf)).pieces(form, Edge::End);
                let Some(rest) = pieces.pop() else { return Err(stop::DAMAGED) };
                let (rest_separator, rest) = (rest.separator, Node::parse(form, &rest.bytes)?);
                for piece in pieces {
                    let separator = match piece.separator.is_empty() {
                        true => std::mem::take(&mut last),
                        false => piece.separator,
                    };
                    let page = pages.add(objects, piece.bytes)?;
                    inner.insert(inner.children.len(), page, piece.count, &separator);
                }
                if !rest_separator.is_empty() {
                    last = rest_separator;
                }
                bytes = rest.bytes(form);
                if let Node::Leaf(rest) = rest {
                    leaf = rest;
                }
            }
        }
        let leaf = Node::Leaf(leaf);
        if inner.children.is_empty() {
            return self.set_root(pages, objects, leaf, Edge::None);
        }
        for piece in leaf.pieces(form, Edge::None) {
            let separator = match piece.separator.is_empty() {
                true => std::mem::take(&mut last),
                false => piece.separator,
            };
            let page = pages.add(objects, piece.bytes)?;
            inner.insert(inner.children.len(), page, piece.count, &separator);
        }
        self.set_root(pages, objects, Node::Inner(inner), Edge::None)
    }
}

/// Copies a node and the pages below it; returns the node with the new pages.
pub(in super::super) fn copy(
    root: &[u8],
    from: &Pages<'_>,
    to: &mut Pages<'_>,
    objects: &mut Transaction<'_>,
) -> Result<Vec<u8>, Stop> {
    /// A node of which some children are copied.
    struct Half {
        inner: Inner,
        copied: usize,
    }
    // The form does not matter: leaves are copied as they are.
    let form = Form::LIST;
    let mut path: Vec<Half> = Vec::new();
    let mut bytes = root.to_vec();
    loop {
        if path.len() > HEIGHT_MAX {
            return Err(stop::DAMAGED);
        }
        if Inner::is_inner(&bytes) {
            let Node::Inner(inner) = Node::parse(form, &bytes)? else {
                return Err(stop::DAMAGED);
            };
            let page = inner.children[0].page;
            path.push(Half { inner, copied: 0 });
            bytes = from.read(objects, page)?.to_vec();
            continue;
        }
        // A whole node: its parent's next child follows, or the parent is whole as well.
        loop {
            let Some(Half { inner, copied }) = path.last_mut() else { return Ok(bytes) };
            inner.children[*copied].page = to.add(objects, bytes)?;
            *copied += 1;
            if let Some(next) = inner.children.get(*copied) {
                let page = next.page;
                bytes = from.read(objects, page)?.to_vec();
                break;
            }
            bytes = Node::Inner(std::mem::take(inner)).encode(form);
            path.pop();
        }
    }
}
