//! The children of an inner node, read from its bytes one by one, without a copy.
//!
//! A search visits half of the children of each inner node on its way, up to a hundred of them in a
//! node. So the usual child, whose three numbers take up to eight bytes, is read as one word.

use super::super::stop::Stop;
use super::super::varint;
use super::node::{Sought, take_child};
use std::ops::Range;

/// The bytes of a word.
const WORD: usize = size_of::<u64>();

/// The highest bit of each byte: it is 0 in the last byte of a varint.
const LAST: u64 = 0x8080_8080_8080_8080;

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
        Children { bytes, at: 1 }
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
    pub(super) fn find(&mut self, sought: &Sought<'_>) -> Result<(usize, usize, bool), Stop> {
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
    use super::*;
    use proptest::prelude::*;

    fn number() -> impl Strategy<Value = u64> {
        (1..=u64::MAX, 0..64u32).prop_map(|(number, shift)| (number >> shift).max(1))
    }

    proptest! {
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
