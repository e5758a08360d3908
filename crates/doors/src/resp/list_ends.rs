//! The ends of a large list: its first and its last elements, which lie in the header.
//!
//! Most lists are queues or stacks, and change only there. Such a change writes the header alone,
//! and no page. Elements move between the ends and the tree several at a time.
//!
//! ```text
//!  0 │ elements in the tree │ elements, bytes of the left end │ the same of the right end │
//!  left end │ right end
//!  end: elements: length, bytes
//! ```
//!
//! All numbers but the first byte are varints.

use super::list::End;
use super::stop::{self, Stop};
use super::tree::NODE_BYTES_MAX;
use super::varint;
use std::ops::Range;

/// The first byte is that of a leaf: the header's last root refers to no page.
const MARK: u8 = 0;

/// The length of an end above which elements move into the tree: a page of them, so that a quarter
/// of a page stays.
pub(super) const END_BYTES_MAX: usize = NODE_BYTES_MAX / 4 * 5;

/// The most bytes in front of the elements.
const HEAD_BYTES_MAX: usize = 1 + 5 * 10;

/// Some elements that follow one another.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    count: u64,
    bytes: Vec<u8>,
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct Ends {
    pub(super) left: Part,
    /// The number of elements in the tree between the ends.
    pub(super) tree: u64,
    pub(super) right: Part,
}

/// The lengths of both ends: elements and bytes of each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lengths {
    tree: u64,
    pub(super) left: (u64, u64),
    pub(super) right: (u64, u64),
}

impl Lengths {
    /// Reads the lengths from a header's last root. Returns the place of the left end, too.
    pub(super) fn read(bytes: &[u8]) -> Option<(Lengths, usize)> {
        let mut rest = bytes.strip_prefix(&[MARK])?;
        let mut number = || varint::take(&mut rest);
        let (tree, left, right) = (number()?, (number()?, number()?), (number()?, number()?));
        // Each element has a byte at least.
        let is_sane = left.0 <= left.1
            && right.0 <= right.1
            && left.1.checked_add(right.1)? == rest.len() as u64
            && tree.checked_add(left.0)?.checked_add(right.0).is_some();
        is_sane.then_some((Lengths { tree, left, right }, bytes.len() - rest.len()))
    }

    /// Returns the number of elements of the list.
    pub(super) fn elements(&self) -> u64 {
        self.left.0.saturating_add(self.tree).saturating_add(self.right.0)
    }

    /// Returns the bytes of both ends.
    pub(super) fn bytes(&self) -> usize {
        (self.left.1 + self.right.1) as usize
    }

    /// Returns the lengths with more or fewer elements and bytes in an end.
    pub(super) fn plus(mut self, end: End, elements: i64, bytes: i64) -> Option<Lengths> {
        let own = if end == End::Left { &mut self.left } else { &mut self.right };
        *own = (own.0.checked_add_signed(elements)?, own.1.checked_add_signed(bytes)?);
        Some(self)
    }

    fn numbers(&self) -> [u64; 5] {
        [self.tree, self.left.0, self.left.1, self.right.0, self.right.1]
    }

    /// Appends the length of the ends, and all that is in front of them.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let numbers = self.numbers();
        let head: usize = 1 + numbers.iter().map(|it| varint::length(*it)).sum::<usize>();
        varint::put(out, (head + self.bytes()) as u64);
        out.push(MARK);
        numbers.iter().for_each(|number| varint::put(out, *number));
    }
}

/// Returns the places of an item and of its element in an end; `None` if there is none.
pub(super) fn element_at(
    bytes: &[u8],
    end: Range<usize>,
    index: u64,
) -> Option<(Range<usize>, Range<usize>)> {
    let mut rest = bytes.get(end.clone())?;
    for _ in 0..index {
        take(&mut rest).ok()?;
    }
    let begin = end.end - rest.len();
    let element = take(&mut rest).ok()?.len();
    let item = begin..end.end - rest.len();
    Some((item.clone(), item.end - element..item.end))
}

/// The room for one more element that a copy of elements usually has.
const ROOM_BYTES: usize = 128;

/// Copies some elements, to which another one may be added.
fn with_room(bytes: &[u8]) -> Vec<u8> {
    let mut copy = Vec::with_capacity(bytes.len() + ROOM_BYTES);
    copy.extend_from_slice(bytes);
    copy
}

/// Takes an element from the begin of some bytes.
fn take<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Stop> {
    let mut read = || {
        let length = usize::try_from(varint::take(rest)?).ok()?;
        let (element, behind) = rest.split_at_checked(length)?;
        *rest = behind;
        Some(element)
    };
    let Some(element) = read() else { return Err(stop::DAMAGED) };
    Ok(element)
}

impl Part {
    /// Returns elements from their bytes in a leaf.
    pub(super) fn new(count: u64, bytes: Vec<u8>) -> Part {
        Part { count, bytes }
    }

    pub(super) fn len(&self) -> u64 {
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the bytes of the elements.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the elements.
    pub(super) fn elements(&self) -> Result<Vec<&[u8]>, Stop> {
        let mut rest = self.bytes.as_slice();
        // The count is only as good as the bytes.
        let mut elements = Vec::with_capacity(self.bytes.len().min(self.count as usize));
        while !rest.is_empty() {
            elements.push(take(&mut rest)?);
        }
        if elements.len() as u64 == self.count { Ok(elements) } else { Err(stop::DAMAGED) }
    }

    /// Returns the offset of an element, or of the end.
    fn offset(&self, index: u64) -> Result<usize, Stop> {
        if index == self.count {
            return Ok(self.bytes.len());
        }
        let mut rest = self.bytes.as_slice();
        for _ in 0..index {
            take(&mut rest)?;
        }
        Ok(self.bytes.len() - rest.len())
    }

    /// Adds an element before another one, or at the end.
    pub(super) fn insert(&mut self, index: u64, element: &[u8]) -> Result<(), Stop> {
        let (at, old) = (self.offset(index)?, self.bytes.len());
        let length = varint::length(element.len() as u64) + element.len();
        self.bytes.resize(old + length, 0);
        self.bytes.copy_within(at..old, at + length);
        let begin = varint::write_at(&mut self.bytes, at, element.len() as u64);
        self.bytes[begin..at + length].copy_from_slice(element);
        self.count += 1;
        Ok(())
    }

    /// Removes elements.
    pub(super) fn remove(&mut self, places: Range<u64>) -> Result<(), Stop> {
        let (begin, end) = (self.offset(places.start)?, self.offset(places.end)?);
        self.bytes.drain(begin..end);
        self.count -= places.end - places.start;
        Ok(())
    }

    /// Takes the first or the last element; `None` if there is none.
    pub(super) fn pop(&mut self, is_first: bool) -> Result<Option<Vec<u8>>, Stop> {
        let Some(rest) = self.count.checked_sub(1) else { return Ok(None) };
        let begin = if is_first { 0 } else { self.offset(rest)? };
        let mut behind = self.bytes.get(begin..).unwrap_or_default();
        let element = take(&mut behind)?.to_vec();
        let end = self.bytes.len() - behind.len();
        self.bytes.drain(begin..end);
        self.count = rest;
        Ok(Some(element))
    }

    /// Takes the elements that are furthest from the end of the list: as many as have so many bytes
    /// at most, but at least one.
    pub(super) fn take_inner(&mut self, is_left: bool, bytes_max: usize) -> Result<Part, Stop> {
        let (length, mut rest) = (self.bytes.len(), self.bytes.as_slice());
        // The elements before a place, and the place.
        let (mut before, mut at) = (0, 0);
        loop {
            if is_left && rest.len() <= bytes_max {
                break;
            }
            take(&mut rest)?;
            let next = length - rest.len();
            let is_last = rest.is_empty();
            if if is_left { is_last } else { before > 0 && next > bytes_max } {
                break;
            }
            (before, at) = (before + 1, next);
            if is_last {
                break;
            }
        }
        let behind = self.bytes.split_off(at);
        let behind = Part::new(self.count.checked_sub(before).ok_or(stop::DAMAGED)?, behind);
        let before = Part::new(before, std::mem::take(&mut self.bytes));
        let (taken, stays) = if is_left { (behind, before) } else { (before, behind) };
        *self = stays;
        Ok(taken)
    }
}

impl Ends {
    /// Returns the ends of a list whose elements are all in its tree.
    pub(super) fn none(tree: u64) -> Ends {
        Ends { tree, ..Ends::default() }
    }

    /// Reads the ends from a header's last root.
    pub(super) fn read(bytes: &[u8]) -> Result<Ends, Stop> {
        Ends::parse(bytes).ok_or(stop::DAMAGED)
    }

    fn parse(bytes: &[u8]) -> Option<Ends> {
        let (Lengths { tree, left, right }, begin) = Lengths::read(bytes)?;
        let (before, behind) = bytes.get(begin..)?.split_at_checked(left.1 as usize)?;
        Some(Ends {
            left: Part { count: left.0, bytes: with_room(before) },
            tree,
            right: Part { count: right.0, bytes: with_room(behind) },
        })
    }

    /// Whether all elements are in the tree.
    pub(super) fn are_empty(&self) -> bool {
        self.left.is_empty() && self.right.is_empty()
    }

    /// Returns the number of elements.
    pub(super) fn elements(&self) -> u64 {
        self.left.count + self.tree + self.right.count
    }

    /// Returns the bytes of both ends.
    pub(super) fn bytes(&self) -> usize {
        self.left.bytes.len() + self.right.bytes.len()
    }

    /// Returns the bytes for the header in front of those of the ends; none if all elements are in
    /// the tree.
    pub(super) fn encode_head(&self) -> Vec<u8> {
        if self.are_empty() {
            return Vec::new();
        }
        let mut out = Vec::with_capacity(HEAD_BYTES_MAX);
        out.push(MARK);
        varint::put(&mut out, self.tree);
        for part in [&self.left, &self.right] {
            varint::put(&mut out, part.count);
            varint::put(&mut out, part.bytes.len() as u64);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part(elements: &[&[u8]]) -> Part {
        let mut part = Part::default();
        for (index, element) in elements.iter().enumerate() {
            part.insert(index as u64, element).unwrap();
        }
        part
    }

    #[test]
    fn ends_are_read_as_they_were_written() {
        let ends = Ends { left: part(&[b"a", b""]), tree: 1000, right: part(&[b"xyz"]) };
        let bytes = [&*ends.encode_head(), ends.left.as_bytes(), ends.right.as_bytes()].concat();
        let read = Ends::read(&bytes).unwrap();
        assert_eq!(read.elements(), 1003);
        assert_eq!(read.left.elements().unwrap(), [&b"a"[..], b""]);
        assert_eq!(read.right.elements().unwrap(), [b"xyz"]);
        assert_eq!(Ends::none(3).encode_head(), b"");
    }

    #[test]
    fn the_inner_elements_of_an_end_are_taken() {
        let elements: Vec<Vec<u8>> = (0..20u8).map(|it| vec![it; 60]).collect();
        let elements: Vec<&[u8]> = elements.iter().map(|it| &**it).collect();
        let (mut left, mut right) = (part(&elements), part(&elements));
        let taken = (left.take_inner(true, 1000).unwrap(), right.take_inner(false, 1000).unwrap());
        assert_eq!(left.elements().unwrap(), elements[..4]);
        assert_eq!(taken.0.elements().unwrap(), elements[4..]);
        assert_eq!(right.elements().unwrap(), elements[16..]);
        assert_eq!(taken.1.elements().unwrap(), elements[..16]);
        for is_left in [false, true] {
            let mut long = part(&[&[1; 5000]]);
            assert_eq!((long.take_inner(is_left, 1000).unwrap().len(), long.len()), (1, 0));
            let mut two = part(&[&[1; 5000], &[1; 5000]]);
            assert_eq!((two.take_inner(is_left, 1000).unwrap().len(), two.len()), (1, 1));
        }
    }

    #[test]
    fn elements_are_popped_at_both_ends() {
        let mut ends = part(&[b"a", b"", b"bcd", b"e"]);
        assert_eq!(ends.pop(true).unwrap(), Some(b"a".to_vec()));
        assert_eq!(ends.pop(false).unwrap(), Some(b"e".to_vec()));
        assert_eq!(ends.pop(false).unwrap(), Some(b"bcd".to_vec()));
        assert_eq!((ends.len(), ends.bytes()), (1, 1));
        assert_eq!(ends.pop(true).unwrap(), Some(Vec::new()));
        assert_eq!(ends.pop(true).unwrap(), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_no_panic(
            bytes in prop::collection::vec(0..6u8, 0..24),
            begin in 0..4u64,
            count in 0..4u64,
        ) {
            if let Ok(mut ends) = Ends::read(&[&[MARK], &*bytes].concat()) {
                let _ = ends.left.elements();
                let _ = ends.left.clone().pop(true);
                let _ = ends.left.clone().pop(false);
                let _ = ends.right.clone().take_inner(true, 3);
                let _ = ends.right.clone().take_inner(false, 3);
                if begin + count <= ends.left.len() {
                    let _ = ends.left.insert(begin, b"x");
                    let _ = ends.left.remove(begin..begin + count);
                }
            }
        }
    }
}
