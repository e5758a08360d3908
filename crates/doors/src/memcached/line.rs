//! The words of a line.

use super::KEY_BYTES_MAX;

/// The words of a line, which spaces separate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    /// Returns the words of a line without its end.
    pub(super) fn of(line: &'a [u8]) -> Words<'a> {
        Words(line)
    }

    /// Returns the next word without taking it.
    #[must_use]
    pub fn peek(mut self) -> Option<&'a [u8]> {
        self.next()
    }

    /// Returns the first words, and whether there are more.
    pub(super) fn take<const N: usize>(mut self) -> ([Option<&'a [u8]>; N], bool) {
        let words = [(); N].map(|()| self.next());
        (words, self.next().is_some())
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let begin = self.0.iter().position(|byte| *byte != b' ')?;
        let rest = &self.0[begin..];
        let end = memchr::memchr(b' ', rest).unwrap_or(rest.len());
        let (word, rest) = rest.split_at(end);
        self.0 = rest;
        Some(word)
    }
}

/// The keys of a `get`: at least one, and none too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys<'a>(Words<'a>);

impl<'a> Keys<'a> {
    pub(super) fn of(words: Words<'a>) -> Option<Keys<'a>> {
        let are_short = words.into_iter().all(|key| key.len() <= KEY_BYTES_MAX);
        (are_short && words.peek().is_some()).then_some(Keys(words))
    }
}

impl<'a> Iterator for Keys<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.0.next()
    }
}
