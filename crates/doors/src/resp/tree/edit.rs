//! Changes of trees.
//!
//! A change goes down to one leaf, and back up: each changed node is written, split or joined with
//! its neighbour, and then its parent is changed. Nodes whose bytes stay the same are not written.
//! Only a node that is split or joined is decoded. Otherwise an item and the counts above it are
//! changed where they lie in the bytes.

use super::super::pages::Pages;
use super::super::stop::{self, Stop};
use super::super::transaction::Transaction;
use super::super::varint;
use super::children::{self, Child, Children};
use super::node::{self, Edge, Inner, Leaf, Node, Piece, Sought};
use super::slots::{self, Slots};
use super::{Form, HEIGHT_MAX, Order, Tree};
use std::ops::Range;

/// The room for the inner nodes above the usual leaf.
const LEVELS: usize = 3;

/// An inner node on the way to a leaf.
struct Level {
    /// Its page; 0 for the root.
    page: u64,
    /// Its bytes, which are empty for the root: those are in the tree.
    bytes: Vec<u8>,
    /// The index and the page of the child on the way.
    index: usize,
    child: u64,
    is_last: bool,
    /// The number of items below that child, and the place of this number in the bytes.
    count: u64,
    count_at: Range<usize>,
    /// The places of the child and of its separator.
    child_at: Range<usize>,
    separator: Range<usize>,
}

/// The place of a key, whose item is changed next. Until then the tree does not change.
pub(in super::super) struct Spot {
    path: Path,
    index: Result<usize, usize>,
}

impl Spot {
    /// Returns the value of the key, if it is there.
    pub(in super::super) fn value(&self) -> Option<&[u8]> {
        self.index.ok().map(|index| self.path.leaf.value(index))
    }
}

/// The way to a leaf, and the leaf.
struct Path {
    levels: Vec<Level>,
    page: u64,
    leaf: Slots,
    /// The position that was looked for, in the leaf.
    position: usize,
    is_first: bool,
    is_last: bool,
}

/// The manner in which a node has changed, for the nodes above it.
struct Manner {
    /// The end at which the tree grows.
    edge: Edge,
    /// Whether the node is at an edge of a list.
    is_at_edge: bool,
    is_shorter: bool,
}

/// The leaf for a change.
enum Target<'a> {
    Key(Sought<'a>),
    Position(u64),
}

impl Level {
    /// Finds the way in an inner node. A position then counts from the begin of the child.
    fn find(page: u64, bytes: &[u8], target: &mut Target<'_>) -> Result<Level, Stop> {
        let children = Children::new(bytes);
        let (at, index, is_last) = match target {
            Target::Key(sought) => children.find(sought)?,
            Target::Position(position) => children.at_position(position)?,
        };
        let Child { page: child, count, count_at, separator } = Children::at(bytes, at)?;
        let bytes = if page == 0 { Vec::new() } else { bytes.to_vec() };
        let child_at = at..separator.end;
        Ok(Level { page, bytes, index, child, is_last, count, count_at, child_at, separator })
    }

    /// Sets the number of items below the child.
    fn set_count(&mut self, root: &mut Vec<u8>, count: u64) {
        let bytes = if self.page == 0 { root } else { &mut self.bytes };
        let (begin, before) = (self.count_at.start, self.count_at.len());
        let length = varint::length(count);
        if length != before {
            bytes.splice(self.count_at.clone(), std::iter::repeat_n(0, length));
        }
        (self.count, self.count_at.end) = (count, varint::write_at(bytes, begin, count));
        if length != before {
            children::shift(bytes, self.index, (before, length));
        }
    }

    /// Returns the node, to be changed.
    fn inner(&self, form: Form, root: &[u8]) -> Result<Inner, Stop> {
        match Node::parse(form, if self.page == 0 { root } else { &self.bytes })? {
            Node::Inner(inner) => Ok(inner),
            Node::Leaf(_) => Err(stop::DAMAGED),
        }
    }
}

impl Path {
    fn is_root(&self) -> bool {
        self.levels.is_empty()
    }
}

impl Tree {
    /// Goes down to a leaf, and copies it with room for more bytes.
    fn path(
        &self,
        pages: &Pages<'_>,
        objects: &mut Transaction<'_>,
        mut target: Target<'_>,
        room: usize,
    ) -> Result<Path, Stop> {
        let mut levels: Vec<Level> = Vec::with_capacity(LEVELS);
        let (mut page, mut is_first, mut is_last) = (0, true, true);
        while levels.len() < HEIGHT_MAX {
            let bytes = match levels.is_empty() {
                true => self.root(),
                false => pages.read(objects, page)?,
            };
            if Inner::is_inner(bytes) {
                // The page has as many items as its parent counts. Only positions depend on it, and
                // the ends do not.
                if let (Some(level), Target::Position(position)) = (levels.last(), &target)
                    && !matches!(*position, 0 | u64::MAX)
                    && super::count(self.form, bytes)? != level.count
                {
                    return Err(stop::DAMAGED);
                }
                let level = Level::find(page, bytes, &mut target)?;
                is_first &= level.index == 0;
                is_last &= level.is_last;
                page = level.child;
                levels.push(level);
                continue;
            }
            let leaf = Slots::parse(self.form, bytes, room)?;
            let has_counts = self.form.has_counts;
            if levels.last().is_some_and(|it| has_counts && it.count != leaf.len() as u64) {
                return Err(stop::DAMAGED);
            }
            let position = match target {
                Target::Position(position) => usize::try_from(position).unwrap_or(usize::MAX),
                Target::Key(_) => 0,
            };
            let position = position.min(leaf.len());
            return Ok(Path { levels, page, leaf, position, is_first, is_last });
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
        let spot = self.seek(pages, objects, key, value.len())?;
        self.set_at(pages, objects, spot, (key, value))
    }

    /// Looks for a key that will get a value of about this length.
    pub(in super::super) fn seek(
        &self,
        pages: &Pages<'_>,
        objects: &mut Transaction<'_>,
        key: &[u8],
        value_bytes: usize,
    ) -> Result<Spot, Stop> {
        let sought = Sought::new(self.form, key);
        let room = self.form.item_bytes(key.len(), value_bytes);
        let path = self.path(pages, objects, Target::Key(sought), room)?;
        let index = path.leaf.index_of(&sought, path.is_root());
        Ok(Spot { path, index })
    }

    /// Replaces the value of an item, or inserts an item at its spot; returns whether it is new.
    pub(in super::super) fn set_at(
        &mut self,
        pages: &mut Pages<'_>,
        objects: &mut Transaction<'_>,
        Spot { mut path, index }: Spot,
        item: (&[u8], &[u8]),
    ) -> Result<bool, Stop> {
        let index = match index {
            Ok(index) => {
                let old = path.leaf.value(index);
                if old != item.1 {
                    let is_shorter = item.1.len() < old.len();
                    path.leaf.replace(index..index + 1, [item].into_iter());
                    self.finish(pages, objects, path, Edge::None, is_shorter)?;
                }
                return Ok(false);
            }
            Err(index) => index,
        };
        let edge = self.edge(&path, index);
        path.leaf.replace(index..index, [item].into_iter());
        self.finish(pages, objects, path, edge, false)?;
        Ok(true)
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
        let room = self.form.item_bytes(key.len(), value.len());
        let path = self.path(pages, objects, Target::Position(position), room)?;
        let spot = Spot { index: Err(path.position), path };
        self.set_at(pages, objects, spot, (key, value))?;
        Ok(())
    }

    /// Inserts the elements of a list at a position.
    pub(in super::super) fn insert_run(
        &mut self,
        pages: &mut Pages<'_>,
        objects: &mut Transaction<'_>,
        position: u64,
        elements: &[&[u8]],
    ) -> Result<(), Stop> {
        let room = elements.iter().map(|it| self.form.item_bytes(0, it.len())).sum();
        let mut path = self.path(pages, objects, Target::Position(position), room)?;
        let index = path.position;
        let edge = self.edge(&path, index);
        path.leaf.replace(index..index, elements.iter().map(|it| (&[][..], *it)));
        self.finish(pages, objects, path, edge, false)
    }

    /// Adds the elements of a list at one of its ends. They lie in some bytes as in a leaf. If they
    /// do not fit into the leaf there, they become a leaf, and that one is not changed.
    pub(in super::super) fn add_run(
        &mut self,
        pages: &mut Pages<'_>,
        objects: &mut Transaction<'_>,
        is_first: bool,
        (count, items): (u64, &[u8]),
    ) -> Result<(), Stop> {
        let (most, position) = (self.form.items_bytes_max(), if is_first { 0 } else { u64::MAX });
        let mut path = self.path(pages, objects, Target::Position(position), items.len())?;
        let is_too_much = path.leaf.items_bytes().len() + items.len() > most;
        if is_too_much
            && items.len() <= most
            && let Some(level) = path.levels.pop()
        {
            let leaf = [&[node::LEAF], items].concat();
            let page = pages.add(objects, leaf)?;
            let (mut new, own) = (Vec::new(), level.child_at.clone());
            for number in [page, count, 0] {
                varint::put(&mut new, number);
            }
            let bytes = if level.page == 0 { &self.root } else { &level.bytes };
            let old = bytes.get(own).ok_or(stop::DAMAGED)?;
            let (begin, children) = match is_first {
                true => (new.len(), [&new, old].concat()),
                false => (old.len(), [old, &new].concat()),
            };
            let count = count.saturating_add(level.count);
            let edge = if is_first { Edge::Begin } else { Edge::End };
            let mut levels = path.levels;
            let new = (&[0, begin][..], &*children, count);
            return match self.put_children(pages, objects, &mut levels, level, new, false)? {
                Some(above) => {
                    let manner = Manner { edge, is_at_edge: true, is_shorter: false };
                    self.climb(pages, objects, levels, above, manner)
                }
                None => Ok(()),
            };
        }
        let index = path.position;
        let edge = self.edge(&path, index);
        let count = usize::try_from(count).map_err(|_| stop::DAMAGED)?;
        path.leaf.insert_run(index, (count, items));
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
        let mut path = self.path(pages, objects, Target::Position(position), 0)?;
        let bytes = path.leaf.items_bytes();
        if path.is_root() || bytes.len() > bytes_max {
            return Ok(None);
        }
        let (count, bytes) = (path.leaf.len() as u64, bytes.to_vec());
        path.leaf.clear();
        self.finish(pages, objects, path, Edge::None, true)?;
        Ok(Some((count, bytes)))
    }

    /// Returns the end at which a list, or a tree in the order of bytes, grows.
    fn edge(&self, path: &Path, index: usize) -> Edge {
        match self.form.order {
            Order::Hashed => Edge::None,
            _ if path.is_last && index == path.leaf.len() => Edge::End,
            _ if path.is_first && index == 0 => Edge::Begin,
            _ => Edge::None,
        }
    }

    /// Replaces the value at a position. There must be one.
    pub(in super::super) fn replace_at(
        &mut self,
        pages: &mut Pages<'_>,
        objects: &mut Transaction<'_>,
        position: u64,
        value: &[u8],
    ) -> Result<(), Stop> {
        let room = self.form.item_bytes(0, value.len());
        let mut path = self.path(pages, objects, Target::Position(position), room)?;
        let index = path.position;
        if index >= path.leaf.len() {
            return Err(stop::DAMAGED);
        }
        let is_shorter = value.len() < path.leaf.value(index).len();
        let key = path.leaf.key(index).to_vec();
        path.leaf.replace(index..index + 1, [(&*key, value)].into_iter());
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
        let mut path = self.path(pages, objects, Target::Key(sought), 0)?;
        let Ok(index) = path.leaf.index_of(&sought, path.is_root()) else { return Ok(false) };
        path.leaf.remove(index..index + 1);
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
            let mut path = self.path(pages, objects, Target::Position(position), 0)?;
            let (begin, length) = (path.position, path.leaf.len());
            if begin >= length {
                return Ok(());
            }
            let removed = usize::try_from(count).unwrap_or(usize::MAX).min(length - begin);
            path.leaf.remove(begin..begin + removed);
            count -= removed as u64;
            self.finish(pages, objects, path, Edge::None, true)?;
        }
        Ok(())
    }

    /// Removes the items at some positions, which rise. Each leaf is changed once. It ends early
    /// when the changes have so many bytes. Returns the number of the first positions whose items
    /// are still there.
    pub(in super::super) fn remove_each(
        &mut self,
        pages: &mut Pages<'_>,
        objects: &mut Transaction<'_>,
        mut positions: &[u64],
        bytes_max: usize,
    ) -> Result<usize, Stop> {
        // From the right to the left, so that the other positions stay as they are.
        while let Some(last) = positions.last()
            && objects.changed_bytes() < bytes_max
        {
            let mut path = self.path(pages, objects, Target::Position(*last), 0)?;
            if path.position >= path.leaf.len() {
                return Err(stop::DAMAGED);
            }
            let begin = last.saturating_sub(path.position as u64);
            let (before, here) = positions.split_at(positions.partition_point(|it| *it < begin));
            for position in here.iter().rev() {
                let index = (position - begin) as usize;
                path.leaf.remove(index..index + 1);
            }
            positions = before;
            self.finish(pages, objects, path, Edge::None, true)?;
        }
        Ok(positions.len())
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
        let manner = |is_shorter| Manner { edge, is_at_edge, is_shorter };
        let (most, (bytes, count)) = (self.form.node_bytes_max, leaf.into_bytes());
        let is_short = match levels.last() {
            Some(level) if is_shorter && count > 0 && bytes.len() < most / 2 => {
                self.may_join(pages, objects, level, (bytes.len(), is_at_edge))?
            }
            _ => is_shorter && bytes.len() < most / 2,
        };
        let fits = bytes.len() <= most || count == 1;
        let (node, is_shorter) = match levels.last() {
            None if bytes.len() <= most => {
                self.root = bytes;
                return Ok(());
            }
            // The usual change: the leaf stays where it was, so at most the counts above change.
            Some(level) if count > 0 && fits && !is_short => {
                let counts = (level.count, count as u64);
                pages.write(objects, page, bytes)?;
                match self.recount(pages, objects, &mut levels, counts)? {
                    None => return Ok(()),
                    Some((above, long)) => {
                        page = above;
                        (Node::Inner(long), false)
                    }
                }
            }
            Some(_) if count > 1 && !fits => {
                let pieces = slots::pieces(self.form, &bytes, edge)?;
                match self.put_pieces(pages, objects, &mut levels, pieces)? {
                    None => return Ok(()),
                    Some(above) => {
                        page = above.0;
                        (above.1, false)
                    }
                }
            }
            _ => (Node::parse(self.form, &bytes)?, is_shorter),
        };
        self.climb(pages, objects, levels, (page, node), manner(is_shorter))
    }

    /// Writes a changed node with its page, and the nodes above it that change with it.
    fn climb(
        &mut self,
        pages: &mut Pages<'_>,
        objects: &mut Transaction<'_>,
        mut levels: Vec<Level>,
        (mut page, mut node): (u64, Node),
        Manner { edge, is_at_edge, mut is_shorter }: Manner,
    ) -> Result<(), Stop> {
        let most = self.form.node_bytes_max;
        while let Some(level) = levels.last() {
            let is_short = is_shorter && node.bytes(self.form) < most / 2;
            if node.len() == 0 || !is_short {
                is_shorter = node.len() == 0;
                let mut pieces = Vec::new();
                if is_shorter {
                    pages.remove(objects, page)?;
                } else {
                    pieces = node.pieces(self.form, edge);
                }
                let above = match &mut *pieces {
                    [piece] => {
                        // The node stays where it was, so at most the counts above change.
                        let counts = (level.count, piece.count);
                        pages.write(objects, page, std::mem::take(&mut piece.bytes))?;
                        let long = self.recount(pages, objects, &mut levels, counts)?;
                        long.map(|(page, inner)| (page, Node::Inner(inner)))
                    }
                    _ => self.put_pieces(pages, objects, &mut levels, pieces)?,
                };
                let Some(above) = above else { return Ok(()) };
                (page, node) = above;
                continue;
            }
            let Some(level) = levels.pop() else { break };
            let mut inner = level.inner(self.form, &self.root)?;
            let (index, children) = (level.index, inner.children.len());
            if let Err(node) = self.join(pages, objects, &mut inner, index, node, is_at_edge)? {
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
        if before == after || !self.form.has_counts {
            return Ok(None);
        }
        while let Some(mut level) = levels.pop() {
            let count = level.count.saturating_sub(before).saturating_add(after);
            level.set_count(&mut self.root, count);
            let length = if level.page == 0 { self.root.len() } else { level.bytes.len() };
            if length > self.form.node_bytes_max {
                return Ok(Some((level.page, level.inner(self.form, &self.root)?)));
            }
            if level.page != 0 {
                pages.write(objects, level.page, level.bytes)?;
            }
        }
        Ok(None)
    }

    /// Puts the pieces of a split node in place of the child on the way, or removes that child if
    /// there are none. Stops at a node that becomes too long or too short, and returns it with its
    /// page.
    fn put_pieces(
        &mut self,
        pages: &mut Pages<'_>,
        objects: &mut Transaction<'_>,
        levels: &mut Vec<Level>,
        pieces: Vec<Piece>,
    ) -> Result<Option<(u64, Node)>, Stop> {
        let Some(level) = levels.pop() else { return Ok(None) };
        let is_shorter = pieces.is_empty();
        let (mut children, mut begins, mut count) = (Vec::new(), Vec::new(), 0u64);
        for (index, piece) in pieces.into_iter().enumerate() {
            let page = match index {
                0 => {
                    pages.write(objects, level.child, piece.bytes)?;
                    level.child
                }
                _ => pages.add(objects, piece.bytes)?,
            };
            let bytes = if level.page == 0 { &self.root } else { &level.bytes };
            let old = &bytes[level.separator.clone()];
            let separator = if index == 0 { old } else { &piece.separator };
            begins.push(children.len());
            for number in [page, piece.count, separator.len() as u64] {
                varint::put(&mut children, number);
            }
            children.extend_from_slice(separator);
            count = count.saturating_add(piece.count);
        }
        let new = (&*begins, &*children, count);
        self.put_children(pages, objects, levels, level, new, is_shorter)
    }

    /// Puts children, which begin at some places of their bytes, in place of the one on the way.
    /// Stops at a node that becomes too long or too short, and returns it with its page.
    fn put_children(
        &mut self,
        pages: &mut Pages<'_>,
        objects: &mut Transaction<'_>,
        levels: &mut Vec<Level>,
        mut level: Level,
        (begins, children, count): (&[usize], &[u8], u64),
        is_shorter: bool,
    ) -> Result<Option<(u64, Node)>, Stop> {
        let most = self.form.node_bytes_max;
        let bytes = if level.page == 0 { &mut self.root } else { &mut level.bytes };
        let old = (level.index, level.child_at.clone());
        *bytes = children::with_children(bytes, old, (begins, children))?;
        let fits = bytes.len() <= most && !(is_shorter && bytes.len() < most / 2);
        let Some(parent) = levels.last() else {
            // A root with one child is none, and goes into no page by itself.
            if bytes.len() <= most && has_two_children(bytes) {
                return Ok(None);
            }
            return Ok(Some((0, Node::parse_any(self.form, bytes)?)));
        };
        if !fits || Children::new(bytes).is_at_end() {
            return Ok(Some((level.page, Node::parse_any(self.form, bytes)?)));
        }
        let after = parent.count.saturating_sub(level.count).saturating_add(count);
        let counts = (parent.count, after);
        pages.write(objects, level.page, level.bytes)?;
        let long = self.recount(pages, objects, levels, counts)?;
        Ok(long.map(|(page, inner)| (page, Node::Inner(inner))))
    }

    /// Whether a short node may be joined with a neighbour, or get items from it, as the lengths of
    /// both tell. Most neighbours are too long for the one, and not long enough for the other. A
    /// node without neighbours may take the place of its parent.
    fn may_join(
        &self,
        pages: &Pages<'_>,
        objects: &mut Transaction<'_>,
        level: &Level,
        (bytes, is_at_edge): (usize, bool),
    ) -> Result<bool, Stop> {
        let above = if level.page == 0 { &self.root } else { &level.bytes };
        let mut is_alone = true;
        for index in [Some(level.index + 1), level.index.checked_sub(1)].into_iter().flatten() {
            let Some(child) = Children::nth(above, index)? else { continue };
            is_alone = false;
            let other = pages.read(objects, child.page)?.len();
            if self.joins(bytes, other, is_at_edge) || self.shares(bytes, other, is_at_edge) {
                return Ok(true);
            }
        }
        Ok(is_alone)
    }

    /// Whether a short node of some bytes is joined with a neighbour of others. The room that is
    /// left keeps the next insertion from splitting the node again.
    fn joins(&self, bytes: usize, other: usize, is_at_edge: bool) -> bool {
        let most = self.form.node_bytes_max;
        bytes + other - 1 <= if is_at_edge { most / 2 } else { most / 8 * 7 }
    }

    /// Whether a short node of some bytes gets items from a neighbour of others.
    fn shares(&self, bytes: usize, other: usize, is_at_edge: bool) -> bool {
        !is_at_edge && bytes < self.form.node_bytes_max / 8 * 3 && other > bytes
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
            let node::Child { page, count, .. } = parent.children[neighbour];
            // At the edge of a list most neighbours are too long: only their length is read.
            let other = pages.read(objects, page)?;
            let total = bytes + other.len() - 1;
            let is_joined = self.joins(bytes, other.len(), is_at_edge);
            let may_share = may_share && self.shares(bytes, other.len(), is_at_edge);
            if !is_joined && !may_share {
                continue;
            }
            let other = Node::parse_child(form, other, count)?;
            let is_shared = other.len() >= 2 * other.least();
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
    pub(super) fn set_root(
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
}

/// Whether the bytes of an inner node have two children or more.
fn has_two_children(bytes: &[u8]) -> bool {
    let mut children = Children::new(bytes);
    !children.is_at_end() && children.visit().is_ok() && !children.is_at_end()
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
