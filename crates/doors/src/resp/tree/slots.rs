//! The items of a leaf, which are changed where they lie in its bytes.
//!
//! Most changes neither split nor join a leaf: they move its last bytes, and decode nothing.

use super::super::stop::{self, Stop};
use super::super::varint;
use super::node::{self, Edge, Items, LEAF, Piece, Sought, View};
use super::{Form, Order};
use std::cmp::Ordering;
use std::ops::Range;

/// The room for places of items in the usual leaf.
const ITEMS: usize = 64;

/// The bytes of a leaf, and the places of its items.
pub(super) struct Slots {
    form: Form,
    bytes: Vec<u8>,
    /// The begin of each item, and the end. They are those before a change.
    begins: Vec<usize>,
    /// The number of items.
    count: usize,
}

impl Slots {
    /// Copies a leaf, with room for more bytes.
    pub(super) fn parse(form: Form, bytes: &[u8], room: usize) -> Result<Slots, Stop> {
        let View::Leaf(mut items) = View::parse(form, bytes)? else { return Err(stop::DAMAGED) };
        let mut begins = Vec::with_capacity(ITEMS);
        begins.push(1);
        while !items.is_at_end() {
            begins.push(items.go_behind()?);
        }
        let mut copy = Vec::with_capacity(bytes.len() + room);
        copy.extend_from_slice(bytes);
        let count = begins.len() - 1;
        Ok(Slots { form, bytes: copy, begins, count })
    }

    /// Returns a leaf without items.
    pub(super) fn empty(form: Form) -> Slots {
        Slots { form, bytes: Vec::new(), begins: Vec::new(), count: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Returns the bytes of the leaf, and the number of its items.
    pub(super) fn into_bytes(self) -> (Vec<u8>, usize) {
        (self.bytes, self.count)
    }

    /// Returns the bytes of the items.
    pub(super) fn items_bytes(&self) -> &[u8] {
        self.bytes.get(1..).unwrap_or_default()
    }

    /// Returns the places of the key and the value of an item. There must be one, and no change.
    fn places(&self, index: usize) -> (Range<usize>, Range<usize>) {
        let end = self.begins[index + 1];
        let item = Items::at(self.form, &self.bytes[..end], self.begins[index]).next();
        item.and_then(Result::ok).map_or((0..0, 0..0), |item| (item.key, item.value))
    }

    pub(super) fn key(&self, index: usize) -> &[u8] {
        &self.bytes[self.places(index).0]
    }

    pub(super) fn value(&self, index: usize) -> &[u8] {
        &self.bytes[self.places(index).1]
    }

    /// Returns the key and the value of an item. There must be one, and no change.
    pub(super) fn item(&self, index: usize) -> (&[u8], &[u8]) {
        let (key, value) = self.places(index);
        (&self.bytes[key], &self.bytes[value])
    }

    /// Returns the index of a key, or the one at which it belongs. The items of a root in the order
    /// of hashes are not sorted.
    pub(super) fn index_of(&self, sought: &Sought<'_>, is_root: bool) -> Result<usize, usize> {
        if is_root && self.form.order == Order::Hashed {
            let found = (0..self.count).find(|index| self.key(*index) == sought.key);
            return found.ok_or(self.count);
        }
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            match sought.compare(self.key(middle)) {
                Ordering::Equal => return Ok(middle),
                Ordering::Less => high = middle,
                Ordering::Greater => low = middle + 1,
            }
        }
        Err(low)
    }

    /// Puts items in place of some. This is the last change, as the places of items are old then.
    pub(super) fn replace<'i>(
        &mut self,
        range: Range<usize>,
        items: impl Iterator<Item = (&'i [u8], &'i [u8])> + Clone,
    ) {
        let form = self.form;
        let (begin, end) = (self.begins[range.start], self.begins[range.end]);
        let (mut length, mut count) = (0, 0);
        for (key, value) in items.clone() {
            length += form.item_bytes(key.len(), value.len());
            count += 1;
        }
        let old = self.bytes.len();
        let new = old - (end - begin) + length;
        if new > old {
            self.bytes.resize(new, 0);
        }
        self.bytes.copy_within(end..old, begin + length);
        self.bytes.truncate(new);
        let mut at = begin;
        for (key, value) in items {
            for (_, part) in [(form.has_keys(), key), (form.has_values, value)]
                .iter()
                .filter(|(is_there, _)| *is_there)
            {
                at = varint::write_at(&mut self.bytes, at, part.len() as u64);
                self.bytes[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            }
        }
        self.count = self.count - range.len() + count;
    }

    /// Inserts items, which lie in some bytes as in a leaf, before another one or at the end. This
    /// is the last change.
    pub(super) fn insert_run(&mut self, index: usize, (count, items): (usize, &[u8])) {
        let at = self.begins[index];
        self.bytes.splice(at..at, items.iter().copied());
        self.count += count;
    }

    /// Removes some items. This is the last change.
    pub(super) fn remove(&mut self, range: Range<usize>) {
        self.replace(range, std::iter::empty());
    }

    /// Removes all items. This is the last change.
    pub(super) fn clear(&mut self) {
        self.bytes.truncate(1);
        self.count = 0;
    }
}

/// Returns the parts of a leaf that is too long for a page. The leaf has two items or more.
pub(super) fn pieces(form: Form, bytes: &[u8], edge: Edge) -> Result<Vec<Piece>, Stop> {
    let View::Leaf(mut items) = View::parse(form, bytes)? else { return Err(stop::DAMAGED) };
    let (mut begins, mut sizes) = (Vec::with_capacity(ITEMS), Vec::with_capacity(ITEMS));
    let mut at = 1;
    while !items.is_at_end() {
        let end = items.go_behind()?;
        begins.push(at);
        sizes.push(end - at);
        at = end;
    }
    let key = |index: usize| match Items::at(form, bytes, begins[index]).next() {
        Some(Ok(item)) => &bytes[item.key],
        _ => &[],
    };
    let cuts = node::cuts(&sizes, form.node_bytes_max.saturating_sub(1), 1, edge);
    let ends = cuts.into_iter().chain([begins.len()]);
    let mut first = 0;
    let piece = |end: usize| {
        let begin = first;
        first = end;
        let until = begins.get(end).copied().unwrap_or(bytes.len());
        let own = &bytes[begins[begin]..until];
        let separator = match begin {
            0 => Vec::new(),
            _ => node::separator(form, key(begin - 1), key(begin)),
        };
        let mut leaf = Vec::with_capacity(1 + own.len());
        leaf.push(LEAF);
        leaf.extend_from_slice(own);
        Piece { bytes: leaf, count: (end - begin) as u64, separator }
    };
    Ok(ends.map(piece).collect())
}

#[cfg(test)]
mod tests {
    use super::super::node::{Leaf, Node};
    use super::*;
    use proptest::prelude::*;

    type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

    fn pairs(most: usize) -> impl Strategy<Value = Pairs> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..200);
        prop::collection::vec((bytes(), bytes()), 0..most)
    }

    /// Encodes items as a whole node.
    fn encoded(form: Form, items: &Pairs) -> Vec<u8> {
        let mut leaf = Leaf::default();
        for (key, value) in items {
            let item = leaf.make(key, value);
            leaf.items.push(item);
        }
        Node::Leaf(leaf).encode(form)
    }

    proptest! {
        #[test]
        fn a_change_in_place_leaves_the_bytes_of_an_encoded_leaf(
            before in pairs(12),
            new in pairs(4),
            begin in 0..12usize,
            removed in 0..4usize,
            room in 0..100usize,
            form in prop::sample::select(vec![Form::LIST, Form::HASH, Form::SET, Form::BYTES]),
        ) {
            let begin = begin.min(before.len());
            let range = begin..(begin + removed).min(before.len());
            let mut slots = Slots::parse(form, &encoded(form, &before), room).unwrap();
            prop_assert_eq!(slots.len(), before.len());
            for (index, (key, value)) in before.iter().enumerate() {
                let key = if form.has_keys() { &**key } else { &[] };
                let value = if form.has_values { &**value } else { &[] };
                prop_assert_eq!((slots.key(index), slots.value(index)), (key, value));
            }
            slots.replace(range.clone(), new.iter().map(|(key, value)| (&**key, &**value)));
            let mut after = before;
            after.splice(range, new);
            prop_assert_eq!(slots.into_bytes(), (encoded(form, &after), after.len()));
        }
    }
}
