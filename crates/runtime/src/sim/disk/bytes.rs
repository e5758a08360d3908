//! The bytes of a simulated file, in pages. A page that was never written takes no memory. Storage
//! files consist mostly of such pages, and a swarm makes them by the hundred.

use crate::sim::trace::{fold, hash};
use std::rc::Rc;

const PAGE: usize = 4096;

type Page = [u8; PAGE];

/// The contents of a file. Clones share pages until one of them changes.
#[derive(Clone, Debug, Default)]
pub(super) struct Bytes {
    length: usize,
    pages: Vec<Option<Rc<Page>>>,
}

impl Bytes {
    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn resize(&mut self, length: usize) {
        self.pages.resize(length.div_ceil(PAGE), None);
        let rest = length % PAGE;
        if length < self.length
            && rest > 0
            && let Some(Some(last)) = self.pages.last_mut()
        {
            Rc::make_mut(last)[rest..].fill(0);
        }
        self.length = length;
    }

    /// Writes from an offset on. The file grows as far as needed.
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        if self.length < offset + bytes.len() {
            self.resize(offset + bytes.len());
        }
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let within = at % PAGE;
            let (part, further) = rest.split_at(rest.len().min(PAGE - within));
            let page = &mut self.pages[at / PAGE];
            if page.is_some() || part.iter().any(|byte| *byte != 0) {
                let page = page.get_or_insert_with(|| Rc::new([0; PAGE]));
                Rc::make_mut(page)[within..within + part.len()].copy_from_slice(part);
            }
            at += part.len();
            rest = further;
        }
    }

    /// Reads from an offset on. Returns the number of bytes.
    pub(super) fn read(&self, offset: usize, into: &mut [u8]) -> usize {
        let count = self.length.saturating_sub(offset).min(into.len());
        let mut at = offset;
        let mut rest = &mut into[..count];
        while !rest.is_empty() {
            let within = at % PAGE;
            let (part, further) = rest.split_at_mut(rest.len().min(PAGE - within));
            match &self.pages[at / PAGE] {
                Some(page) => part.copy_from_slice(&page[within..within + part.len()]),
                None => part.fill(0),
            }
            at += part.len();
            rest = further;
        }
        count
    }

    /// Flips bits of a byte, if it exists.
    pub(super) fn flip(&mut self, at: usize, bits: u8) {
        let mut byte = [0];
        if self.read(at, &mut byte) == 1 {
            self.write(at, &[byte[0] ^ bits]);
        }
    }

    /// Returns one number for the contents.
    pub(super) fn digest(&self) -> u64 {
        let pages = self.pages.iter().enumerate();
        let written = pages.filter_map(|(at, page)| Some((at as u64, page.as_ref()?)));
        written.fold(self.length as u64, |digest, (at, page)| {
            fold(fold(digest, at), hash(page.as_slice()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Makes the same changes to a vector.
    #[test]
    fn bytes_equal_those_of_a_vector() {
        let mut random = Random::from_seed(7);
        for _ in 0..50 {
            let (mut bytes, mut model) = (Bytes::default(), Vec::new());
            for _ in 0..60 {
                let at = random.below(5 * PAGE as u64) as usize;
                match random.below(5) {
                    0 => {
                        bytes.resize(at);
                        model.resize(at, 0);
                    }
                    1 if at < model.len() => {
                        bytes.flip(at, 4);
                        model[at] ^= 4;
                    }
                    byte => {
                        let new = vec![byte as u8 % 4; random.below(2 * PAGE as u64) as usize];
                        bytes.write(at, &new);
                        model.resize(model.len().max(at + new.len()), 0);
                        model[at..at + new.len()].copy_from_slice(&new);
                    }
                }
                assert_eq!(bytes.len(), model.len());
                let from = random.below(5 * PAGE as u64) as usize;
                let mut read = vec![9; random.below(3 * PAGE as u64) as usize];
                let count = bytes.read(from, &mut read);
                let there = model.get(from..).unwrap_or_default();
                assert_eq!(read[..count], there[..there.len().min(read.len())]);
            }
            let same = bytes.clone();
            bytes.flip(0, 1);
            assert_eq!(bytes.digest() == same.digest(), model.is_empty());
        }
    }
}
