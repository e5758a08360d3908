//! The children of an inner node, read from its bytes without a copy.
//!
//! A search by a key uses the index of the node: the place of each child. So it reads seven of a
//! hundred children. A node has no index if it is too long for the numbers of an index. A search in
//! such a node reads the children one by one, and so does a search by a position. If the three
//! numbers of a child take up to eight bytes, as usual, they are read as one word.

use super::super::stop::{self, Stop};
use super::super::varint;
use super::node::{Sought, take_child};
use std::ops::Range;

/// The bytes of a word.
const WORD: usize = size_of::<u64>();

/// The highest bit of each byte: it is 0 in the last byte of a varint.
const LAST: u64 = 0x8080_8080_8080_8080;

/// The first byte of an inner node without an index, and of one with an index.
pub(super) const PLAIN: u8 = 1;
pub(super) const INDEXED: u8 = 2;

/// The bytes of a place in an index.
pub(super) const PLACE_BYTES: usize = size_of::<u16>();

/// The bytes of an inner node before its index: the first byte, and the number of children.
pub(super) const HEAD_BYTES: usize = 1 + size_of::<u16>();

/// A child in the bytes of an inner node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Child {
    pub(super) page: u64,
    /// The number of items below.
    pub(super) count: u64,
    /// The place of this number.
    pub(super) count_at: Range<usize>,
    /// The place of the separator.
    pub(super) separator: Range<usize>,
}

/// The children of an inner node. See the module's documentation.
#[derive(Clone, Debug)]
pub(super) struct Children<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// Returns the index of an inner node, if it has one.
#[inline]
fn index_of(bytes: &[u8]) -> Option<&[[u8; PLACE_BYTES]]> {
    let rest = bytes.strip_prefix(&[INDEXED])?;
    let (count, rest) = rest.split_first_chunk()?;
    let index = rest.get(..PLACE_BYTES * usize::from(u16::from_le_bytes(*count)))?;
    Some(index.as_chunks().0)
}

/// Returns the place of the first child of an inner node. An index that is cut off has no children
/// behind it.
#[inline]
pub(super) fn begin(bytes: &[u8]) -> usize {
    match (bytes.first(), index_of(bytes)) {
        (_, Some(index)) => HEAD_BYTES + size_of_val(index),
        (Some(&INDEXED), None) => bytes.len(),
        (_, None) => 1,
    }
}

/// Assembles an inner node. Its children lie in some parts, and begin at some places of them.
pub(super) fn assemble(begins: &[usize], parts: &[&[u8]]) -> Vec<u8> {
    let first = HEAD_BYTES + PLACE_BYTES * begins.len();
    let length = first + parts.iter().map(|part| part.len()).sum::<usize>();
    let mut out = Vec::with_capacity(length);
    match u16::try_from(length) {
        Ok(_) => {
            out.push(INDEXED);
            out.extend_from_slice(&(begins.len() as u16).to_le_bytes());
            let places = begins.iter().map(|begin| ((first + begin) as u16).to_le_bytes());
            places.for_each(|place| out.extend_from_slice(&place));
        }
        Err(_) => out.push(PLAIN),
    }
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out
}

/// Returns an inner node with other children in place of one. The new children begin at some places
/// of their bytes.
pub(super) fn with_children(
    bytes: &[u8],
    (index, old): (usize, Range<usize>),
    (begins, new): (&[usize], &[u8]),
) -> Result<Vec<u8>, Stop> {
    let first = begin(bytes);
    let mut places = places_of(bytes)?;
    if places.get(index) != Some(&old.start) || old.end < old.start || old.end > bytes.len() {
        return Err(stop::DAMAGED);
    }
    for place in &mut places {
        *place = if *place < old.end { *place } else { *place - old.len() + new.len() };
        *place = place.checked_sub(first).ok_or(stop::DAMAGED)?;
    }
    let at = old.start - first;
    places.splice(index..=index, begins.iter().map(|begin| at + begin));
    Ok(assemble(&places, &[&bytes[first..old.start], new, &bytes[old.end..]]))
}

/// Returns the places of all children of an inner node.
fn places_of(bytes: &[u8]) -> Result<Vec<usize>, Stop> {
    if let Some(index) = index_of(bytes) {
        return Ok(index.iter().map(|place| usize::from(u16::from_le_bytes(*place))).collect());
    }
    let (mut places, mut children) = (Vec::new(), Children::new(bytes));
    while !children.is_at_end() {
        places.push(children.place());
        children.pass()?;
    }
    Ok(places)
}

/// Returns the number of items below all children of an inner node.
pub(super) fn sum_of_counts(bytes: &[u8]) -> Result<u64, Stop> {
    let mut sum = 0u64;
    let Some(index) = index_of(bytes) else {
        let mut children = Children::new(bytes);
        while !children.is_at_end() {
            sum = sum.checked_add(children.pass_count()?).ok_or(stop::DAMAGED)?;
        }
        return Ok(sum);
    };
    for place in index {
        let children = Children { bytes, at: usize::from(u16::from_le_bytes(*place)) };
        let count = match children.ends() {
            // The count of the usual child of a page has one byte.
            Some(Ends { word, page, count, .. }) if count == page + 8 => word >> (page + 1) & 0x7f,
            _ => children.clone().pass_count()?,
        };
        sum = sum.checked_add(count).ok_or(stop::DAMAGED)?;
    }
    Ok(sum)
}

/// Tells the index of a node that the children behind one begin later or earlier than before.
pub(super) fn shift(bytes: &mut Vec<u8>, index: usize, (before, after): (usize, usize)) {
    let Some(count) = index_of(bytes).map(<[_]>::len) else { return };
    let end = HEAD_BYTES + PLACE_BYTES * count;
    if u16::try_from(bytes.len()).is_err() {
        bytes.drain(1..end);
        bytes[0] = PLAIN;
        return;
    }
    for place in bytes[HEAD_BYTES..end].as_chunks_mut().0.iter_mut().skip(index + 1) {
        let at = u16::from_le_bytes(*place).wrapping_add(after as u16).wrapping_sub(before as u16);
        *place = at.to_le_bytes();
    }
}

/// The last bits of the three numbers of a child in a word.
struct Ends {
    word: u64,
    page: u32,
    count: u32,
    length: u32,
}

impl<'a> Children<'a> {
    /// Returns the children in the bytes of an inner node.
    pub(super) fn new(bytes: &'a [u8]) -> Children<'a> {
        Children { bytes, at: begin(bytes) }
    }

    /// Whether all children were visited.
    #[inline(always)]
    pub(super) fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Returns the place of the next child.
    #[inline(always)]
    pub(super) fn place(&self) -> usize {
        self.at
    }

    /// Finds the ends of the numbers of a child, if they lie in one word.
    #[inline(always)]
    fn ends(&self) -> Option<Ends> {
        let word = u64::from_le_bytes(*self.bytes.get(self.at..)?.first_chunk::<WORD>()?);
        let pages = !word & LAST;
        let counts = pages & pages.wrapping_sub(1);
        let lengths = counts & counts.wrapping_sub(1);
        (lengths != 0).then(|| Ends {
            word,
            page: pages.trailing_zeros(),
            count: counts.trailing_zeros(),
            length: lengths.trailing_zeros(),
        })
    }

    /// Goes behind the next child; returns the place of its separator. The other numbers of the
    /// child are not read.
    #[inline(always)]
    pub(super) fn pass(&mut self) -> Result<Range<usize>, Stop> {
        if let Some(ends) = self.ends()
            && ends.length == ends.count + 8
        {
            let length = (ends.word >> (ends.count + 1)) as usize & 0x7f;
            let begin = self.at + (ends.length as usize + 1) / 8;
            if begin + length <= self.bytes.len() {
                self.at = begin + length;
                return Ok(begin..begin + length);
            }
        }
        Ok(self.visit_slowly()?.separator)
    }

    /// Goes behind the next child; returns the number of items below it. That is not checked.
    #[inline(always)]
    pub(super) fn pass_count(&mut self) -> Result<u64, Stop> {
        let ends = self.ends();
        let begin = self.at;
        self.pass()?;
        match ends {
            Some(ends) => {
                let bits = ends.word & (u64::MAX >> (63 - ends.count));
                Ok(bits_of(bits >> (ends.page + 1)))
            }
            None => Ok(Children { at: begin, ..*self }.visit()?.count),
        }
    }

    #[cold]
    #[inline(never)]
    fn visit_slowly(&mut self) -> Result<Child, Stop> {
        self.visit()
    }

    /// Reads the next child, and goes behind it.
    pub(super) fn visit(&mut self) -> Result<Child, Stop> {
        let mut rest = self.bytes.get(self.at..).unwrap_or_default();
        let (page, count, separator) = take_child(&mut rest)?;
        let count_at = self.at + varint::length(page);
        self.at = self.bytes.len() - rest.len();
        Ok(Child {
            page,
            count,
            count_at: count_at..count_at + varint::length(count),
            separator: self.at - separator.len()..self.at,
        })
    }

    /// Finds the child with the items around a key. Returns its place and its index, and whether it
    /// is the last one.
    #[inline]
    pub(super) fn find(mut self, sought: &Sought<'_>) -> Result<(usize, usize, bool), Stop> {
        if let Some(places) = index_of(self.bytes) {
            let at = |index: usize| usize::from(u16::from_le_bytes(places[index]));
            // The separator of the first child is not used.
            let (mut low, mut high) = (1, places.len());
            if high == 0 {
                return Err(stop::DAMAGED);
            }
            while low < high {
                let middle = low.midpoint(high);
                let separator = Children { bytes: self.bytes, at: at(middle) }.pass()?;
                match sought.is_below_in(self.bytes, separator) {
                    true => high = middle,
                    false => low = middle + 1,
                }
            }
            return Ok((at(low - 1), low - 1, low == places.len()));
        }
        let (mut found, mut index) = (self.at, 0);
        self.pass()?;
        while !self.is_at_end() {
            let next = self.at;
            if sought.is_below_in(self.bytes, self.pass()?) {
                return Ok((found, index, false));
            }
            (found, index) = (next, index + 1);
        }
        Ok((found, index, true))
    }

    /// Whether an inner node has one child. It has no fewer.
    pub(super) fn has_one(bytes: &[u8]) -> Result<bool, Stop> {
        let mut children = Children::new(bytes);
        children.pass()?;
        Ok(children.is_at_end())
    }

    /// Returns the place and the index of the last child.
    pub(super) fn last(mut self) -> Result<(usize, usize), Stop> {
        if let Some(places) = index_of(self.bytes) {
            let (last, before) = places.split_last().ok_or(stop::DAMAGED)?;
            return Ok((usize::from(u16::from_le_bytes(*last)), before.len()));
        }
        let (mut last, mut index) = (self.at, 0);
        self.pass()?;
        while !self.is_at_end() {
            (last, index) = (self.at, index + 1);
            self.pass()?;
        }
        Ok((last, index))
    }

    /// Finds the child with a position. Returns its place and its index, and whether it is the last
    /// one. The position then counts from the begin of that child. A position at the end is in the
    /// last child, and so is the highest one, without regard to counts.
    pub(super) fn at_position(mut self, position: &mut u64) -> Result<(usize, usize, bool), Stop> {
        if *position == 0 {
            return Ok((self.at, 0, Children::has_one(self.bytes)?));
        }
        if *position == u64::MAX {
            let (at, index) = self.last()?;
            return Ok((at, index, true));
        }
        let (mut at, mut index) = (self.at, 0);
        let mut count = self.pass_count()?;
        while *position >= count && !self.is_at_end() {
            *position -= count;
            (at, index) = (self.at, index + 1);
            count = self.pass_count()?;
        }
        *position = (*position).min(count);
        Ok((at, index, self.is_at_end()))
    }

    /// Reads the child with an index; `None` if there are not so many.
    pub(super) fn nth(bytes: &[u8], index: usize) -> Result<Option<Child>, Stop> {
        if let Some(places) = index_of(bytes) {
            let at = places.get(index).map(|at| usize::from(u16::from_le_bytes(*at)));
            return at.map(|at| Children::at(bytes, at)).transpose();
        }
        let mut children = Children::new(bytes);
        for _ in 0..index {
            if children.is_at_end() {
                return Ok(None);
            }
            children.pass()?;
        }
        if children.is_at_end() { Ok(None) } else { children.visit().map(Some) }
    }

    /// Reads the child at a place.
    pub(super) fn at(bytes: &[u8], at: usize) -> Result<Child, Stop> {
        Children { bytes, at }.visit()
    }
}

/// Returns the number in the bytes of a varint, the first byte the lowest.
#[inline(always)]
fn bits_of(bytes: u64) -> u64 {
    let bits = bytes & !LAST;
    let bits = bits & 0x007f_007f_007f_007f | (bits & 0x7f00_7f00_7f00_7f00) >> 1;
    let bits = bits & 0x0000_3fff_0000_3fff | (bits & 0x3fff_0000_3fff_0000) >> 2;
    bits & 0x0fff_ffff | (bits & 0x0fff_ffff_0000_0000) >> 4
}

#[cfg(test)]
mod tests {
    use super::super::Form;
    use super::*;
    use proptest::prelude::*;

    fn number() -> impl Strategy<Value = u64> {
        (1..=u64::MAX, 0..64u32).prop_map(|(number, shift)| (number >> shift).max(1))
    }

    proptest! {
        #[test]
        fn a_key_is_found_by_an_index_as_without_one(
            keys in prop::collection::btree_set(prop::collection::vec(any::<u8>(), 0..4), 1..40),
            sought in prop::collection::vec(any::<u8>(), 0..5),
            form in prop::sample::select(vec![Form::BYTES, Form::HASH]),
        ) {
            let (mut begins, mut children) = (Vec::new(), Vec::new());
            for (page, key) in keys.iter().enumerate() {
                begins.push(children.len());
                children.extend([page as u8 + 1, 1, key.len() as u8]);
                children.extend_from_slice(key);
            }
            let indexed = assemble(&begins, &[&children]);
            let plain = [&[PLAIN], &*children].concat();
            let sought = Sought::new(form, &sought);
            let (at, index, is_last) = Children::new(&indexed).find(&sought).unwrap();
            let (other_at, other_index, other_is_last) = Children::new(&plain).find(&sought).unwrap();
            prop_assert_eq!((index, is_last), (other_index, other_is_last));
            prop_assert_eq!(at - begin(&indexed), other_at - 1);
            let last = Children::new(&indexed).last().unwrap();
            let other = Children::new(&plain).last().unwrap();
            prop_assert_eq!((last.0 - begin(&indexed), last.1), (other.0 - 1, other.1));
        }

        #[test]
        fn a_position_is_found_by_the_counts_of_children(
            counts in prop::collection::vec(1..300u64, 1..20),
            wanted in 0..4000u64,
            is_indexed in any::<bool>(),
        ) {
            let (mut begins, mut children) = (Vec::new(), Vec::new());
            for (count, page) in counts.iter().zip(1..) {
                begins.push(children.len());
                [page, *count, 0].iter().for_each(|number| varint::put(&mut children, *number));
            }
            let bytes = match is_indexed {
                true => assemble(&begins, &[&children]),
                false => [&[PLAIN], &*children].concat(),
            };
            let (mut expected, mut rest) = (0, wanted);
            while rest >= counts[expected] && expected + 1 < counts.len() {
                rest -= counts[expected];
                expected += 1;
            }
            let mut position = wanted;
            let (at, index, is_last) = Children::new(&bytes).at_position(&mut position).unwrap();
            prop_assert_eq!((index, position), (expected, rest.min(counts[expected])));
            prop_assert_eq!(sum_of_counts(&bytes).unwrap(), counts.iter().sum::<u64>());
            prop_assert_eq!(is_last, expected + 1 == counts.len());
            let child = Children::at(&bytes, at).unwrap();
            prop_assert_eq!((child.page, child.count), (expected as u64 + 1, counts[expected]));
            prop_assert_eq!(Children::nth(&bytes, index).unwrap(), Some(child));
            prop_assert_eq!(Children::nth(&bytes, counts.len()).unwrap(), None);
            let (_, index, is_last) = Children::new(&bytes).at_position(&mut { u64::MAX }).unwrap();
            prop_assert_eq!((index, is_last), (counts.len() - 1, true));
        }

        #[test]
        fn an_index_names_the_children_that_replace_another(
            lengths in prop::collection::vec(0..300usize, 1..9),
            new in prop::collection::vec(0..300usize, 0..4),
            index in 0..9usize,
            grows in 0..120_000usize,
            is_plain in any::<bool>(),
        ) {
            let assembled = |lengths: &[usize]| {
                let (mut begins, mut children) = (Vec::new(), Vec::new());
                for length in lengths {
                    begins.push(children.len());
                    children.extend([1, 1]);
                    varint::put(&mut children, *length as u64);
                    children.resize(children.len() + length, 7);
                }
                (begins, children)
            };
            let mut lengths = lengths;
            let index = index % lengths.len();
            lengths[0] += grows;
            let (begins, children) = assembled(&lengths);
            let before = match is_plain {
                true => [&[PLAIN], &*children].concat(),
                false => assemble(&begins, &[&children]),
            };
            let old = begin(&before) + begins[index];
            let old = old..Children::at(&before, old).unwrap().separator.end;
            let (new_begins, new_children) = assembled(&new);
            let after =
                with_children(&before, (index, old), (&new_begins, &new_children)).unwrap();
            lengths.splice(index..=index, new);
            let (begins, children) = assembled(&lengths);
            prop_assert_eq!(after, assemble(&begins, &[&children]));
        }

        #[test]
        fn a_count_may_take_more_bytes_than_before(
            lengths in prop::collection::vec(0..300usize, 1..9),
            first in prop_oneof![0..300usize, 65_000..65_600usize],
            index in 0..9usize,
        ) {
            let assembled = |changed: Option<usize>| {
                let (mut begins, mut children) = (Vec::new(), Vec::new());
                for (index, length) in lengths.iter().enumerate() {
                    begins.push(children.len());
                    children.push(1);
                    varint::put(&mut children, if changed == Some(index) { 300 } else { 1 });
                    let length = if index == 0 { first } else { *length };
                    varint::put(&mut children, length as u64);
                    children.resize(children.len() + length, 7);
                }
                assemble(&begins, &[&children])
            };
            let (mut bytes, index) = (assembled(None), index % lengths.len());
            let mut children = Children::new(&bytes);
            for _ in 0..index {
                children.pass().unwrap();
            }
            let at = children.visit().unwrap().count_at;
            bytes.splice(at, [0xac, 2]);
            shift(&mut bytes, index, (1, 2));
            prop_assert_eq!(bytes, assembled(Some(index)));
        }

        #[test]
        fn children_are_read_as_they_are_one_by_one(
            children in prop::collection::vec(
                (number(), number(), prop::collection::vec(any::<u8>(), 0..200)),
                1..8,
            ),
            cut in 0..40usize,
        ) {
            let mut bytes = vec![1];
            for (page, count, separator) in &children {
                varint::put(&mut bytes, *page);
                varint::put(&mut bytes, *count);
                varint::put(&mut bytes, separator.len() as u64);
                bytes.extend_from_slice(separator);
            }
            bytes.truncate(bytes.len().saturating_sub(cut.saturating_sub(20)).max(2));
            let mut children = Children::new(&bytes);
            while !children.is_at_end() {
                let (mut passed, mut counted) = (children.clone(), children.clone());
                let Ok(child) = children.visit() else { break };
                prop_assert_eq!(passed.pass(), Ok(child.separator));
                prop_assert_eq!(counted.pass_count(), Ok(child.count));
                prop_assert_eq!((passed.at, counted.at), (children.at, children.at));
            }
        }

        #[test]
        fn any_bytes_are_no_panic(bytes in prop::collection::vec(prop_oneof![0..3u8, 0x7e..0x82u8], 1..40)) {
            let found = Children::new(&bytes).find(&Sought::new(Form::BYTES, b"a"));
            let last = Children::new(&bytes).last();
            let places = found.map(|it| (it.0, it.1)).into_iter().chain(last);
            for (at, index) in places {
                if let Ok(child) = Children::at(&bytes, at) {
                    let old = (index, at..child.separator.end);
                    let _ = with_children(&bytes, old, (&[0], &[1, 1, 0]));
                    let mut longer = bytes.clone();
                    longer.splice(child.count_at, [0xac, 2]);
                    shift(&mut longer, index, (1, 2));
                }
            }
            let mut children = Children::new(&bytes);
            while !children.is_at_end() && children.clone().pass().is_ok() {
                let _ = children.clone().visit();
                if children.pass_count().is_err() {
                    break;
                }
            }
        }
    }
}
