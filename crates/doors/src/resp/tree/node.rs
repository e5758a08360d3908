//! The nodes of a tree, and their bytes.
//!
//! ```text
//!  leaf:  0 │ items: key (its length, bytes), if items have keys │ value (its length, bytes)
//!  inner: 2 │ number of children │ their places in the node │ children
//!  inner without an index: 1 │ children
//!  child: page │ items below │ separator (its length, bytes)
//! ```
//!
//! The number of children and their places have two bytes each, the lowest first. An inner node of
//! more than 65 535 bytes has no index. All other numbers are varints.
//!
//! A separator is the shortest prefix of the order key of the child's first item that is above the
//! order keys of the child before it. That of a node's first child is not used. The order key of
//! [`Order::Hashed`] is the hash of the key, then the key.

use super::super::stop::{self, Stop};
use super::super::varint;
use super::children::{self, Children, HEAD_BYTES, INDEXED, PLACE_BYTES, PLAIN};
use super::{Form, Order};
use std::cmp::Ordering;
use std::ops::Range;

pub(super) const LEAF: u8 = 0;

/// The bytes of a leaf without items.
pub(super) const EMPTY: &[u8] = &[LEAF];

/// Returns the hash that is the first part of an order key.
pub(in super::super) fn hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// A key that is looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sought<'a> {
    order: Order,
    hash: u64,
    pub(super) key: &'a [u8],
}

impl<'a> Sought<'a> {
    pub(super) fn new(form: Form, key: &'a [u8]) -> Sought<'a> {
        let hash = if form.order == Order::Hashed { hash(key) } else { 0 };
        Sought { order: form.order, hash, key }
    }

    /// Returns the order key of all keys with a hash or a higher one.
    pub(super) fn from_hash(hash: u64) -> Sought<'static> {
        Sought { order: Order::Hashed, hash, key: &[] }
    }

    /// Whether the key is before the items behind a separator, which lies in some bytes.
    #[inline(always)]
    pub(super) fn is_below_in(&self, bytes: &[u8], separator: Range<usize>) -> bool {
        // Most separators of hashes are shorter than a hash: compare the bits of that length.
        if self.order == Order::Hashed
            && (1..=size_of::<u64>()).contains(&separator.len())
            && let Some(word) = bytes.get(separator.start..).and_then(<[u8]>::first_chunk)
        {
            let unused = u64::BITS - 8 * separator.len() as u32;
            let (hash, first) = (self.hash >> unused, u64::from_be_bytes(*word) >> unused);
            return hash < first;
        }
        self.is_below(&bytes[separator])
    }

    /// Whether the key is before the items behind a separator.
    pub(super) fn is_below(&self, separator: &[u8]) -> bool {
        if self.order != Order::Hashed {
            return self.key < separator;
        }
        // Most separators are shorter than a hash.
        let length = separator.len().min(size_of::<u64>());
        let (first, rest) = separator.split_at(length);
        match self.hash.to_be_bytes()[..length].cmp(first) {
            Ordering::Equal => length == size_of::<u64>() && self.key < rest,
            order => order.is_lt(),
        }
    }

    /// Compares the key with that of an item.
    pub(super) fn compare(&self, key: &[u8]) -> Ordering {
        match self.order {
            Order::Hashed => (self.hash, self.key).cmp(&(hash(key), key)),
            Order::Position | Order::Bytes => self.key.cmp(key),
        }
    }
}

/// Returns the separator of two items, one behind the other.
pub(super) fn separator(form: Form, before: &[u8], key: &[u8]) -> Vec<u8> {
    if form.order == Order::Position {
        return Vec::new();
    }
    let full = |key: &[u8]| match form.order {
        Order::Hashed => [&hash(key).to_be_bytes(), key].concat(),
        Order::Position | Order::Bytes => key.to_vec(),
    };
    let (before, mut key) = (full(before), full(key));
    let common = before.iter().zip(&key).take_while(|(one, other)| one == other).count();
    key.truncate(common + 1);
    key
}

/// The places of an item's key and value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) key: Range<usize>,
    pub(super) value: Range<usize>,
}

/// The items of a leaf's bytes.
pub(super) struct Items<'a> {
    form: Form,
    bytes: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Items<'a> {
    /// Returns the items of a leaf's bytes from a place on.
    #[inline]
    pub(super) fn at(form: Form, bytes: &'a [u8], at: usize) -> Items<'a> {
        Items { form, bytes, rest: bytes.get(at..).unwrap_or_default() }
    }

    /// Whether there are no more items.
    #[inline]
    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Goes behind the next item; returns the place there.
    #[inline]
    pub(super) fn go_behind(&mut self) -> Result<usize, Stop> {
        match self.item() {
            Some(_) => Ok(self.bytes.len() - self.rest.len()),
            None => Err(stop::DAMAGED),
        }
    }

    #[inline]
    fn part(&mut self) -> Option<Range<usize>> {
        let length = usize::try_from(varint::take(&mut self.rest)?).ok()?;
        let begin = self.bytes.len() - self.rest.len();
        self.rest = self.rest.get(length..)?;
        Some(begin..begin + length)
    }

    #[inline]
    fn item(&mut self) -> Option<Item> {
        let key = if self.form.has_keys() { self.part()? } else { 0..0 };
        let value = if self.form.has_values { self.part()? } else { 0..0 };
        Some(Item { key, value })
    }
}

impl Iterator for Items<'_> {
    type Item = Result<Item, Stop>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        match self.item() {
            Some(item) => Some(Ok(item)),
            None => {
                self.rest = &[];
                Some(Err(stop::DAMAGED))
            }
        }
    }
}

/// A node's bytes: its items, or the bytes of its children.
pub(super) enum View<'a> {
    Leaf(Items<'a>),
    Inner(&'a [u8]),
}

impl<'a> View<'a> {
    pub(super) fn parse(form: Form, bytes: &'a [u8]) -> Result<View<'a>, Stop> {
        match bytes.split_first() {
            Some((&LEAF, rest)) => Ok(View::Leaf(Items { form, bytes, rest })),
            Some((&(PLAIN | INDEXED), _)) => Ok(View::Inner(&bytes[children::begin(bytes)..])),
            _ => Err(stop::DAMAGED),
        }
    }
}

/// Takes a child from the bytes of an inner node: its page, its count, its separator.
pub(super) fn take_child<'a>(rest: &mut &'a [u8]) -> Result<(u64, u64, &'a [u8]), Stop> {
    let mut read = || {
        let (page, count) = (varint::take(rest)?, varint::take(rest)?);
        let length = usize::try_from(varint::take(rest)?).ok()?;
        let (separator, behind) = rest.split_at_checked(length)?;
        *rest = behind;
        (page != 0 && count != 0).then_some((page, count, separator))
    };
    let Some(child) = read() else { return Err(stop::DAMAGED) };
    Ok(child)
}

/// Returns the page that has the items around a key, from the bytes of an inner node.
pub(super) fn child_of(bytes: &[u8], sought: &Sought<'_>) -> Result<u64, Stop> {
    let (at, ..) = Children::new(bytes).find(sought)?;
    Ok(Children::at(bytes, at)?.page)
}

/// A node that is changed.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Leaf(Leaf),
    Inner(Inner),
}

/// The items of a leaf. Their bytes lie in the arena, in any order.
#[derive(Clone, Debug, Default)]
pub(super) struct Leaf {
    arena: Vec<u8>,
    pub(super) items: Vec<Item>,
}

/// A child of an inner node.
#[derive(Clone, Debug)]
pub(super) struct Child {
    pub(super) page: u64,
    pub(super) count: u64,
    separator: Range<usize>,
}

/// The children of an inner node. Their separators lie in the arena.
#[derive(Clone, Debug, Default)]
pub(super) struct Inner {
    arena: Vec<u8>,
    pub(super) children: Vec<Child>,
}

/// A part of a node that was split.
pub(super) struct Piece {
    pub(super) bytes: Vec<u8>,
    pub(super) count: u64,
    /// Its separator from the part before it; empty for the first one.
    pub(super) separator: Vec<u8>,
}

/// The end of a tree at which it grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    None,
    Begin,
    End,
}

impl Leaf {
    pub(super) fn key(&self, item: &Item) -> &[u8] {
        &self.arena[item.key.clone()]
    }

    pub(super) fn value(&self, item: &Item) -> &[u8] {
        &self.arena[item.value.clone()]
    }

    /// Adds the bytes of an item; returns it. It is not in the leaf yet.
    pub(super) fn make(&mut self, key: &[u8], value: &[u8]) -> Item {
        let begin = self.arena.len();
        self.arena.extend_from_slice(key);
        self.arena.extend_from_slice(value);
        let middle = begin + key.len();
        Item { key: begin..middle, value: middle..middle + value.len() }
    }

    fn item_bytes(form: Form, item: &Item) -> usize {
        form.item_bytes(item.key.len(), item.value.len())
    }

    fn append(&mut self, other: &Leaf) {
        let shift = self.arena.len();
        self.arena.extend_from_slice(&other.arena);
        let moved = |range: &Range<usize>| range.start + shift..range.end + shift;
        let moved = |item: &Item| Item { key: moved(&item.key), value: moved(&item.value) };
        self.items.extend(other.items.iter().map(moved));
    }

    fn encode(&self, form: Form, items: &[Item]) -> Vec<u8> {
        let bytes: usize = items.iter().map(|item| Leaf::item_bytes(form, item)).sum();
        let mut out = Vec::with_capacity(1 + bytes);
        out.push(LEAF);
        for item in items {
            let parts = [(form.has_keys(), self.key(item)), (form.has_values, self.value(item))];
            for (_, part) in parts.iter().filter(|(is_there, _)| *is_there) {
                varint::put(&mut out, part.len() as u64);
                out.extend_from_slice(part);
            }
        }
        out
    }

    /// Sorts the items by their hashes.
    fn sort(&mut self) {
        let mut items = std::mem::take(&mut self.items);
        items.sort_by_cached_key(|item| (hash(self.key(item)), self.key(item).to_vec()));
        self.items = items;
    }
}

impl Inner {
    /// Whether some bytes are an inner node.
    pub(super) fn is_inner(bytes: &[u8]) -> bool {
        matches!(bytes.first(), Some(&(PLAIN | INDEXED)))
    }

    pub(super) fn separator(&self, child: &Child) -> &[u8] {
        &self.arena[child.separator.clone()]
    }

    /// Inserts a child.
    pub(super) fn insert(&mut self, index: usize, page: u64, count: u64, separator: &[u8]) {
        let begin = self.arena.len();
        self.arena.extend_from_slice(separator);
        self.children.insert(index, Child { page, count, separator: begin..self.arena.len() });
    }

    /// Replaces the separator of a child.
    pub(super) fn set_separator(&mut self, index: usize, separator: &[u8]) {
        let begin = self.arena.len();
        self.arena.extend_from_slice(separator);
        self.children[index].separator = begin..self.arena.len();
    }

    fn child_bytes(child: &Child) -> usize {
        let separator = child.separator.len();
        PLACE_BYTES
            + varint::length(child.page)
            + varint::length(child.count)
            + varint::length(separator as u64)
            + separator
    }

    fn append(&mut self, other: &Inner) {
        for child in &other.children {
            let index = self.children.len();
            self.insert(index, child.page, child.count, other.separator(child));
        }
    }

    fn encode(&self, children: &[Child]) -> Vec<u8> {
        let bytes = children.iter().map(Inner::child_bytes).sum::<usize>();
        let (mut out, mut begins) = (Vec::with_capacity(bytes), Vec::with_capacity(children.len()));
        for child in children {
            begins.push(out.len());
            varint::put(&mut out, child.page);
            varint::put(&mut out, child.count);
            varint::put(&mut out, child.separator.len() as u64);
            out.extend_from_slice(self.separator(child));
        }
        children::assemble(&begins, &[&out])
    }
}

impl Node {
    /// Copies a node from its bytes.
    pub(super) fn parse(form: Form, bytes: &[u8]) -> Result<Node, Stop> {
        match Node::parse_any(form, bytes)? {
            Node::Inner(inner) if inner.children.is_empty() => Err(stop::DAMAGED),
            node => Ok(node),
        }
    }

    /// Copies a node that may have lost all of its children.
    pub(super) fn parse_any(form: Form, bytes: &[u8]) -> Result<Node, Stop> {
        match View::parse(form, bytes)? {
            View::Leaf(items) => {
                let items = items.collect::<Result<Vec<_>, _>>()?;
                Ok(Node::Leaf(Leaf { arena: bytes.to_vec(), items }))
            }
            View::Inner(mut rest) => {
                let mut inner = Inner { arena: bytes.to_vec(), children: Vec::new() };
                while !rest.is_empty() {
                    let (page, count, separator) = take_child(&mut rest)?;
                    let end = bytes.len() - rest.len();
                    let separator = end - separator.len()..end;
                    inner.children.push(Child { page, count, separator });
                }
                Ok(Node::Inner(inner))
            }
        }
    }

    /// Copies a node from the bytes of its page. Its parent counts so many items in it and below.
    ///
    /// # Errors
    /// If there are more or fewer.
    pub(super) fn parse_child(form: Form, bytes: &[u8], count: u64) -> Result<Node, Stop> {
        let node = Node::parse(form, bytes)?;
        if node.count() == count || !form.has_counts { Ok(node) } else { Err(stop::DAMAGED) }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.items.len(),
            Node::Inner(inner) => inner.children.len(),
        }
    }

    /// Returns the number of items in the node and below it.
    pub(super) fn count(&self) -> u64 {
        match self {
            Node::Leaf(leaf) => leaf.items.len() as u64,
            Node::Inner(inner) => count_of(&inner.children),
        }
    }

    fn sizes(&self, form: Form) -> Vec<usize> {
        match self {
            Node::Leaf(leaf) => leaf.items.iter().map(|it| Leaf::item_bytes(form, it)).collect(),
            Node::Inner(inner) => inner.children.iter().map(Inner::child_bytes).collect(),
        }
    }

    pub(super) fn bytes(&self, form: Form) -> usize {
        match self {
            Node::Leaf(leaf) => {
                1 + leaf.items.iter().map(|it| Leaf::item_bytes(form, it)).sum::<usize>()
            }
            Node::Inner(inner) => {
                HEAD_BYTES + inner.children.iter().map(Inner::child_bytes).sum::<usize>()
            }
        }
    }

    pub(super) fn encode(&self, form: Form) -> Vec<u8> {
        match self {
            Node::Leaf(leaf) => leaf.encode(form, &leaf.items),
            Node::Inner(inner) => inner.encode(&inner.children),
        }
    }

    /// The least number of parts of a node: an inner node with one child leads nowhere.
    pub(super) fn least(&self) -> usize {
        match self {
            Node::Leaf(_) => 1,
            Node::Inner(_) => 2,
        }
    }

    /// Brings the items of a leaf that was the root into their order.
    pub(super) fn sort(&mut self, form: Form) {
        if let (Node::Leaf(leaf), Order::Hashed) = (self, form.order) {
            leaf.sort();
        }
    }

    /// Appends a node of the same level that the separator separates from this one.
    pub(super) fn append(&mut self, other: Node, separator: &[u8]) -> Result<(), Stop> {
        match (self, other) {
            (Node::Leaf(leaf), Node::Leaf(other)) => leaf.append(&other),
            (Node::Inner(inner), Node::Inner(mut other)) => {
                other.set_separator(0, separator);
                inner.append(&other);
            }
            _ => return Err(stop::DAMAGED),
        }
        Ok(())
    }

    /// Returns the bytes of the whole node, or of its parts if it is too long for one page.
    pub(super) fn pieces(&self, form: Form, edge: Edge) -> Vec<Piece> {
        if self.bytes(form) <= form.node_bytes_max || self.len() < 2 * self.least() {
            return self.cut(form, &[]);
        }
        let head = if matches!(self, Node::Leaf(_)) { 1 } else { HEAD_BYTES };
        let bytes_max = form.node_bytes_max.saturating_sub(head);
        self.cut(form, &cuts(&self.sizes(form), bytes_max, self.least(), edge))
    }

    /// Returns the bytes of the whole node.
    pub(super) fn cut_whole(&self, form: Form) -> Vec<Piece> {
        self.cut(form, &[])
    }

    /// Returns the bytes of two halves; of one whole if there are no halves.
    pub(super) fn halves(&self, form: Form) -> Vec<Piece> {
        match self.len() < 2 * self.least() {
            true => self.cut(form, &[]),
            false => self.cut(form, &[half(&self.sizes(form), self.least())]),
        }
    }

    fn cut(&self, form: Form, cuts: &[usize]) -> Vec<Piece> {
        let ends = cuts.iter().copied().chain([self.len()]);
        let mut begin = 0;
        let piece = |end: usize| {
            let range = begin..end;
            begin = end;
            match self {
                Node::Leaf(leaf) => {
                    let separator = match range.start {
                        0 => Vec::new(),
                        at => separator(
                            form,
                            leaf.key(&leaf.items[at - 1]),
                            leaf.key(&leaf.items[at]),
                        ),
                    };
                    let count = range.len() as u64;
                    Piece { bytes: leaf.encode(form, &leaf.items[range]), count, separator }
                }
                Node::Inner(inner) => {
                    let separator = match range.start {
                        0 => Vec::new(),
                        at => inner.separator(&inner.children[at]).to_vec(),
                    };
                    let children = &inner.children[range];
                    Piece { bytes: inner.encode(children), count: count_of(children), separator }
                }
            }
        };
        ends.map(piece).collect()
    }
}

/// Returns the number of items below some children.
pub(super) fn count_of(children: &[Child]) -> u64 {
    children.iter().fold(0, |sum, child| sum.saturating_add(child.count))
}

/// Returns the index that divides parts of these sizes best, with at least so many on each side.
fn half(sizes: &[usize], least: usize) -> usize {
    let total: usize = sizes.iter().sum();
    let (mut before, mut best, mut best_difference) = (0, least, usize::MAX);
    for (index, size) in sizes.iter().enumerate() {
        let difference = (total - before).abs_diff(before);
        if (least..=sizes.len() - least).contains(&index) && difference < best_difference {
            (best, best_difference) = (index, difference);
        }
        before += size;
    }
    best
}

/// Returns the indexes at which parts of these sizes are cut so that the pieces are short enough.
pub(super) fn cuts(sizes: &[usize], bytes_max: usize, least: usize, edge: Edge) -> Vec<usize> {
    let (mut cuts, mut todo) = (Vec::new(), Vec::with_capacity(4));
    todo.push(0..sizes.len());
    while let Some(range) = todo.pop() {
        let sizes = &sizes[range.clone()];
        if sizes.iter().sum::<usize>() <= bytes_max || sizes.len() < 2 * least {
            continue;
        }
        // At an end that grows, the piece that will not change again is filled.
        let fitting = |sizes: &mut dyn Iterator<Item = &usize>| {
            let mut bytes = 0;
            sizes
                .take_while(|size| {
                    bytes += **size;
                    bytes <= bytes_max
                })
                .count()
        };
        let most = sizes.len() - least;
        let index = match edge {
            Edge::None => half(sizes, least),
            Edge::End => fitting(&mut sizes.iter()).clamp(least, most),
            Edge::Begin => sizes.len() - fitting(&mut sizes.iter().rev()).clamp(least, most),
        };
        let cut = range.start + index;
        cuts.push(cut);
        todo.extend([range.start..cut, cut..range.end]);
    }
    cuts.sort_unstable();
    cuts
}
