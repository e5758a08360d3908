//! Changes of trees.
//!
//! A change goes down to one leaf, and back up: each changed node is written, split or joined with
//! its neighbour, and then its parent is changed. Nodes whose bytes stay the same are not written.

use super::super::pages::Pages;
use super::super::stop::{self, Stop};
use super::super::transaction::Transaction;
use super::super::varint;
use super::node::{Child, Edge, Inner, Leaf, Node, Piece, Sought, take_child};
use super::{Form, HEIGHT_MAX, Order, Tree};
use std::ops::Range;

/// An inner node on the way to a leaf.
struct Level {
    /// Its page; 0 for the root.
    page: u64,
    bytes: Vec<u8>,
    /// The index and the page of the child on the way.
    index: usize,
    child: u64,
    is_last: bool,
    /// The number of items below that child, and the place of this number in the bytes.
    count: u64,
    count_at: Range<usize>,
}

/// The way to a leaf, and the leaf.
struct Path {
    levels: Vec<Level>,
    page: u64,
    leaf: Leaf,
    /// The position that was looked for, in the leaf.
    position: usize,
    is_first: bool,
    is_last: bool,
}

/// The leaf for a change.
enum Target<'a> {
    Key(Sought<'a>),
    Position(u64),
}

impl Level {
    /// Finds the way in an inner node. A position then counts from the begin of the child.
    fn find(page: u64, bytes: &[u8], target: &mut Target<'_>) -> Result<Level, Stop> {
        let mut rest = bytes.get(1..).unwrap_or_default();
        let mut found: Option<(u64, u64, usize)> = None;
        let mut index = 0;
        let mut is_last = true;
        while !rest.is_empty() {
            let at = bytes.len() - rest.len();
            let (child, count, separator) = take_child(&mut rest)?;
            let goes_on = match target {
                Target::Key(sought) => {
                    if found.is_some() && sought.is_below(separator) {
                        is_last = false;
                        break;
                    }
                    true
                }
                Target::Position(position) if *position < count || rest.is_empty() => {
                    *position = (*position).min(count);
                    is_last = rest.is_empty();
                    false
                }
                Target::Position(position) => {
                    *position -= count;
                    true
                }
            };
            index += usize::from(found.is_some());
            found = Some((child, count, at + varint::length(child)));
            if !goes_on {
                break;
            }
        }
        let (child, count, at) = found.ok_or(stop::DAMAGED)?;
        let count_at = at..at + varint::length(count);
        Ok(Level { page, bytes: bytes.to_vec(), index, child, is_last, count, count_at })
    }

    /// Sets the number of items below the child.
    fn set_count(&mut self, count: u64) {
        let mut number = Vec::with_capacity(10);
        varint::put(&mut number, count);
        let end = self.count_at.start + number.len();
        self.bytes.splice(self.count_at.clone(), number);
        (self.count, self.count_at.end) = (count, end);
    }

    /// Returns the node, to be changed.
    fn inner(&self, form: Form) -> Result<Inner, Stop> {
        match Node::parse(form, &self.bytes)? {
            Node::Inner(inner) => Ok(inner),
            Node::Leaf(_) => Err(stop::DAMAGED),
        }
    }
}

impl Path {
    fn is_root(&self) -> bool {
        self.levels.is_empty()
    }

    /// Returns the index of a key in the leaf, or the one at which it belongs.
    fn index_of(&self, form: Form, sought: &Sought<'_>) -> Result<usize, usize> {
        let items = &self.leaf.items;
        if form.order == Order::Hashed {
            let place = items.iter().position(|item| self.leaf.key(item) == sought.key);
            if let Some(index) = place {
                return Ok(index);
            }
            if self.is_root() {
                return Err(items.len());
            }
        }
        items.binary_search_by(|item| sought.compare(self.leaf.key(item)).reverse())
    }
}

impl Tree {
    fn path(
        &self,
        pages: &Pages<'_>,
        objects: &mut Transaction<'_>,
        mut target: Target<'_>,
    ) -> Result<Path, Stop> {
        let mut levels: Vec<Level> = Vec::new();
        let (mut page, mut is_first, mut is_last) = (0, true, true);
        while levels.len() < HEIGHT_MAX {
            let bytes = match levels.is_empty() {
                true => &self.root,
                false => pages.read(objects, page)?,
            };
            // The page has as many items as its parent counts.
            if let Some(level) = levels.last()
                && super::count(self.form, bytes)? != level.count
            {
                return Err(stop::DAMAGED);
            }
            if !Inner::is_inner(bytes) {
                let Node::Leaf(leaf) = Node::parse(self.form, bytes)? else { break };
                let position = match target {
                    Target::Position(position) => usize::try_from(position).unwrap_or(usize::MAX),
                    Target::Key(_) => 0,
                };
                return Ok(Path { levels, page, leaf, position, is_first, is_last });
            }
            let level = Level::find(page, bytes, &mut target)?;
            is_first &= level.index == 0;
            is_last &= level.is_last;
            page = level.child;
            levels.push(level);
        }
        Err(stop::DAMAGED)
    }

    /// Inserts a key with a value, or replaces its value; returns whether the key is new.
    pub(in super::super) fn set(
        &mut self,
        pages: &mut Pages<'_>,
        objects: &mut Transaction<'_>,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, Stop> {
        let sought = Sought::new(self.form, key);
        let mut path = self.path(pages, objects, Target::Key(sought))?;
        match path.index_of(self.form, &sought) {
            Ok(index) => {
                let old = path.leaf.value(&path.leaf.items[index]);
                if old == value {
                    return Ok(false);
                }
                let is_shorter = value.len() < old.len();
                let item = path.leaf.make(key, value);
                path.leaf.items[index] = item;
                self.finish(pages, objects, path, Edge::None, is_shorter)?;
                Ok(false)
            }
            Err(index) => {
                let edge = self.insert(&mut path, index, key, value);
                self.finish(pages, objects, path, edge, false)?;
                Ok(true)
            }
        }
    }

    /// Inserts an item at a position. Its key, if it has one, must belong there.
    pub(in super::super) fn insert_at(
        &mut self,
        pages: &mut Pages<'_>,
        objects: &mut Transaction<'_>,
        position: u64,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), Stop> {
        let mut path = self.path(pages, objects, Target::Position(position))?;
        let index = path.position.min(path.leaf.items.len());
        let edge = self.insert(&mut path, index, key, value);
        self.finish(pages, objects, path, edge, false)
    }

    /// Inserts the elements of a list at a position.
    pub(in super::super) fn insert_run(
        &mut self,
        pages: &mut Pages<'_>,
        objects: &mut Transaction<'_>,
        position: u64,
        elements: &[&[u8]],
    ) -> Result<(), Stop> {
        let mut path = self.path(pages, objects, Target::Position(position))?;
        let index = path.position.min(path.leaf.items.len());
        let edge = self.edge(&path, index);
        let items: Vec<_> = elements.iter().map(|it| path.leaf.make(&[], it)).collect();
        path.leaf.items.splice(index..index, items);
        self.finish(pages, objects, path, edge, false)
    }

    /// Takes the first or the last leaf out of the tree, if it is a page and not too long. Returns
    /// the number of its items, and their bytes.
    pub(in super::super) fn take_leaf(
        &mut self,
        pages: &mut Pages<'_>,
        objects: &mut Transaction<'_>,
        is_first: bool,
        bytes_max: usize,
    ) -> Result<Option<(u64, Vec<u8>)>, Stop> {
        let position = if is_first { 0 } else { u64::MAX };
        let mut path = self.path(pages, objects, Target::Position(position))?;
        if path.is_root() {
            return Ok(None);
        }
        let bytes = path.leaf.all_bytes(self.form);
        if bytes.len() > bytes_max {
            return Ok(None);
        }
        let count = std::mem::take(&mut path.leaf.items).len() as u64;
        self.finish(pages, objects, path, Edge::None, true)?;
        Ok(Some((count, bytes)))
    }

    /// Returns the end at which a list, or a tree in the order of bytes, grows.
    fn edge(&self, path: &Path, index: usize) -> Edge {
        match self.form.order {
            Order::Hashed => Edge::None,
            _ if path.is_last && index == path.leaf.items.len() => Edge::End,
            _ if path.is_first && index == 0 => Edge::Begin,
            _ => Edge::None,
        }
    }

    fn insert(&self, path: &mut Path, index: usize, key: &[u8], value: &[u8]) -> Edge {
        let edge = self.edge(path, index);
        let item = path.leaf.make(key, value);
        path.leaf.items.insert(index, item);
        edge
    }

    /// Replaces the value at a position. There must be one.
    pub(in super::super) fn replace_at(
        &mut self,
        pages: &mut Pages<'_>,
        objects: &mut Transaction<'_>,
        position: u64,
        value: &[u8],
    ) -> Result<(), Stop> {
        let mut path = self.path(pages, objects, Target::Position(position))?;
        let index = path.position;
        let old = path.leaf.items.get(index).ok_or(stop::DAMAGED)?;
        let is_shorter = value.len() < old.value.len();
        let key = path.leaf.key(old).to_vec();
        let item = path.leaf.make(&key, value);
        path.leaf.items[index] = item;
        self.finish(pages, objects, path, Edge::None, is_shorter)
    }

    /// Removes a key; returns whether it was there.
    pub(in super::super) fn remove(
        &mut self,
        pages: &mut Pages<'_>,
        objects: &mut Transaction<'_>,
        key: &[u8],
    ) -> Result<bool, Stop> {
        let sought = Sought::new(self.form, key);
        let mut path = self.path(pages, objects, Target::Key(sought))?;
        let Ok(index) = path.index_of(self.form, &sought) else { return Ok(false) };
        path.leaf.items.remove(index);
        self.finish(pages, objects, path, Edge::None, true)?;
        Ok(true)
    }

    /// Removes so many items from a position on, or all that there are.
    pub(in super::super) fn remove_range(
        &mut self,
        pages: &mut Pages<'_>,
        objects: &mut Transaction<'_>,
        position: u64,
        mut count: u64,
    ) -> Result<(), Stop> {
        while count > 0 {
            let mut path = self.path(pages, objects, Target::Position(position))?;
            let (begin, length) = (path.position, path.leaf.items.len());
            if begin >= length {
                return Ok(());
            }
            let removed = usize::try_from(count).unwrap_or(usize::MAX).min(length - begin);
            path.leaf.items.drain(begin..begin + removed);
            count -= removed as u64;
            self.finish(pages, objects, path, Edge::None, true)?;
        }
        Ok(())
    }

    /// Writes a changed leaf, and the nodes above it that change with it.
    fn finish(
        &mut self,
        pages: &mut Pages<'_>,
        objects: &mut Transaction<'_>,
        path: Path,
        edge: Edge,
        is_shorter: bool,
    ) -> Result<(), Stop> {
        let Path { mut levels, mut page, leaf, is_first, is_last, .. } = path;
        let is_at_edge = self.form.order == Order::Position && (is_first || is_last);
        let (mut node, mut is_shorter) = (Node::Leaf(leaf), is_shorter);
        while let Some(level) = levels.pop() {
            let may_join = is_shorter && node.bytes(self.form) < self.form.node_bytes_max / 2;
            if node.len() > 0 && !may_join {
                let mut pieces = node.pieces(self.form, edge);
                is_shorter = false;
                if let [piece] = &mut *pieces {
                    // The node stays where it was, so at most the counts above change.
                    let counts = (level.count, piece.count);
                    pages.write(objects, page, std::mem::take(&mut piece.bytes))?;
                    levels.push(level);
                    match self.recount(pages, objects, &mut levels, counts)? {
                        None => return Ok(()),
                        Some((above, long)) => (page, node) = (above, Node::Inner(long)),
                    }
                } else {
                    let mut inner = level.inner(self.form)?;
                    let index = level.index;
                    replace(pages, objects, &mut inner, index, pieces, &mut Vec::new())?;
                    (page, node) = (level.page, Node::Inner(inner));
                }
                continue;
            }
            let mut inner = level.inner(self.form)?;
            let (index, children) = (level.index, inner.children.len());
            if node.len() == 0 {
                pages.remove(objects, page)?;
                inner.children.remove(index);
            } else if let Err(node) =
                self.join(pages, objects, &mut inner, index, node, is_at_edge)?
            {
                let pieces = node.pieces(self.form, edge);
                let is_same = matches!(
                    &*pieces, [piece] if piece.count == inner.children[index].count
                );
                replace(pages, objects, &mut inner, index, pieces, &mut Vec::new())?;
                // An equal count and the same separator: no node above changes.
                if is_same {
                    return Ok(());
                }
            }
            is_shorter = inner.children.len() < children;
            (page, node) = (level.page, Node::Inner(inner));
        }
        self.set_root(pages, objects, node, edge)
    }

    /// Changes the counts in the nodes above one whose items became more or fewer. Stops at a node
    /// that becomes too long, and returns it with its page.
    fn recount(
        &mut self,
        pages: &mut Pages<'_>,
        objects: &mut Transaction<'_>,
        levels: &mut Vec<Level>,
        (before, after): (u64, u64),
    ) -> Result<Option<(u64, Inner)>, Stop> {
        if before == after {
            return Ok(None);
        }
        while let Some(mut level) = levels.pop() {
            level.set_count(level.count.saturating_sub(before).saturating_add(after));
            if level.bytes.len() > self.form.node_bytes_max {
                return Ok(Some((level.page, level.inner(self.form)?)));
            }
            match levels.is_empty() {
                true => self.root = level.bytes,
                false => pages.write(objects, level.page, level.bytes)?,
            }
        }
        Ok(None)
    }

    /// Joins a short node with a neighbour, or takes items from it. Returns the node if it stays
    /// as it is.
    fn join(
        &self,
        pages: &mut Pages<'_>,
        objects: &mut Transaction<'_>,
        parent: &mut Inner,
        index: usize,
        node: Node,
        is_at_edge: bool,
    ) -> Result<Result<(), Node>, Stop> {
        let form = self.form;
        let most = form.node_bytes_max;
        let bytes = node.bytes(form);
        let mut neighbours = Vec::with_capacity(2);
        if index + 1 < parent.children.len() {
            neighbours.push(index + 1);
        }
        neighbours.extend(index.checked_sub(1));
        for (neighbour, may_share) in
            neighbours.iter().map(|it| (*it, false)).chain(neighbours.iter().map(|it| (*it, true)))
        {
            let Child { page, count, .. } = parent.children[neighbour];
            let other = Node::parse_child(form, pages.read(objects, page)?, count)?;
            let total = bytes + other.bytes(form) - 1;
            // The room that is left keeps the next insertion from splitting the node again.
            let is_joined = total <= if is_at_edge { most / 2 } else { most / 8 * 7 };
            let is_shared = may_share
                && !is_at_edge
                && bytes < most / 8 * 3
                && other.bytes(form) > bytes
                && other.len() >= 2 * other.least();
            if !is_joined && !is_shared {
                continue;
            }
            let left = index.min(neighbour);
            let (first, second) = if left == index { (node, other) } else { (other, node) };
            let separator = parent.separator(&parent.children[left + 1]).to_vec();
            let mut whole = first;
            whole.append(second, &separator)?;
            let pieces = match (is_joined, total > most) {
                (true, _) => whole.cut_whole(form),
                (false, true) => whole.pieces(form, Edge::None),
                (false, false) => whole.halves(form),
            };
            let second = parent.children.remove(left + 1).page;
            let mut pages_left = vec![second];
            replace(pages, objects, parent, left, pieces, &mut pages_left)?;
            for page in pages_left {
                pages.remove(objects, page)?;
            }
            return Ok(Ok(()));
        }
        Ok(Err(node))
    }

    /// Makes a node the root. A node that does not fit goes into pages. A child that fits again
    /// comes back.
    fn set_root(
        &mut self,
        pages: &mut Pages<'_>,
        objects: &mut Transaction<'_>,
        mut node: Node,
        edge: Edge,
    ) -> Result<(), Stop> {
        let most = self.form.node_bytes_max;
        for _ in 0..HEIGHT_MAX {
            let is_leaf = matches!(node, Node::Leaf(_));
            if let Node::Inner(inner) = &node
                && inner.children.len() <= 1
            {
                let Some(child) = inner.children.first() else {
                    node = Node::Leaf(Leaf::default());
                    continue;
                };
                let (page, count) = (child.page, child.count);
                let below = Node::parse_child(self.form, pages.read(objects, page)?, count)?;
                // A leaf comes back when it has room: the next insertion does not move it again.
                if matches!(below, Node::Leaf(_)) && below.bytes(self.form) > most / 2 {
                    break;
                }
                pages.remove(objects, page)?;
                node = below;
                continue;
            }
            if node.bytes(self.form) <= most || !is_leaf && node.len() < 2 * node.least() {
                break;
            }
            if is_leaf {
                node.sort(self.form);
            }
            let mut inner = Inner::default();
            for (index, piece) in node.pieces(self.form, edge).into_iter().enumerate() {
                let page = pages.add(objects, piece.bytes)?;
                inner.insert(index, page, piece.count, &piece.separator);
            }
            node = Node::Inner(inner);
            if is_leaf && node.len() == 1 {
                break;
            }
        }
        self.root = node.encode(self.form);
        Ok(())
    }

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

/// Writes a node that may have been split, in place of a child. Pages without use are taken first.
fn replace(
    pages: &mut Pages<'_>,
    objects: &mut Transaction<'_>,
    parent: &mut Inner,
    index: usize,
    pieces: Vec<Piece>,
    unused: &mut Vec<u64>,
) -> Result<(), Stop> {
    for (piece, at) in pieces.into_iter().zip(index..) {
        if at == index {
            parent.children[at].count = piece.count;
            pages.write(objects, parent.children[at].page, piece.bytes)?;
        } else {
            let page = match unused.pop() {
                Some(page) => {
                    pages.write(objects, page, piece.bytes)?;
                    page
                }
                None => pages.add(objects, piece.bytes)?,
            };
            parent.insert(at, page, piece.count, &piece.separator);
        }
    }
    Ok(())
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
