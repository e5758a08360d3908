//! A set of the numbers that a client gave its updates: mostly a window without gaps, which moves.
//!
//! A word has a bit for each of 64 numbers in a row. Empty words are not kept, so the set is never
//! larger than its content, even if a client makes up numbers.

use std::collections::BTreeMap;
use thunderhead_wire::Sequence;

/// Numbers in a word.
const WORD: u64 = u64::BITS as u64;

/// No word has this number.
const NONE: u64 = u64::MAX;

/// A set of numbers.
#[derive(Debug)]
pub(crate) struct Sequences {
    /// All words but the open one.
    words: BTreeMap<u64, u64>,
    /// The word of the last insertion (its number and its bits), kept beside the others because
    /// most numbers follow the previous one.
    open: (u64, u64),
    count: usize,
}

impl Default for Sequences {
    fn default() -> Sequences {
        Sequences { words: BTreeMap::new(), open: (NONE, 0), count: 0 }
    }
}

impl Sequences {
    /// Numbers in it.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[inline]
    pub(crate) fn contains(&self, Sequence(number): Sequence) -> bool {
        let at = number / WORD;
        let bits = if at == self.open.0 { Some(&self.open.1) } else { self.words.get(&at) };
        bits.is_some_and(|word| word >> (number % WORD) & 1 != 0)
    }

    /// True where it was not in it.
    #[inline]
    pub(crate) fn insert(&mut self, Sequence(number): Sequence) -> bool {
        let (at, bit) = (number / WORD, 1 << (number % WORD));
        if at != self.open.0 {
            self.close();
            self.open = (at, self.words.remove(&at).unwrap_or_default());
        }
        let is_new = self.open.1 & bit == 0;
        self.open.1 |= bit;
        self.count += usize::from(is_new);
        is_new
    }

    /// Puts the open word to the others.
    fn close(&mut self) {
        let (at, bits) = std::mem::replace(&mut self.open, (NONE, 0));
        if bits != 0 {
            self.words.insert(at, bits);
        }
    }

    /// True where it was in it.
    pub(crate) fn remove(&mut self, Sequence(number): Sequence) -> bool {
        self.close();
        let (at, bit) = (number / WORD, 1 << (number % WORD));
        let Some(word) = self.words.get_mut(&at).filter(|word| **word & bit != 0) else {
            return false;
        };
        *word &= !bit;
        if *word == 0 {
            self.words.remove(&at);
        }
        self.count -= 1;
        true
    }

    /// The highest one.
    pub(crate) fn last(&self) -> Option<Sequence> {
        let highest =
            |at: u64, bits: u64| Some(Sequence(at * WORD + u64::from(bits.checked_ilog2()?)));
        let closed = self.words.last_key_value().and_then(|(at, bits)| highest(*at, *bits));
        closed.max(if self.open.0 == NONE { None } else { highest(self.open.0, self.open.1) })
    }

    /// Takes the lowest one out.
    pub(crate) fn pop_first(&mut self) -> Option<Sequence> {
        self.close();
        let (at, word) = self.words.first_key_value()?;
        let sequence = Sequence(at * WORD + u64::from(word.trailing_zeros()));
        self.remove(sequence);
        Some(sequence)
    }

    /// Takes all below a number out, the lowest first: so many as are in a word at a time, as the
    /// number of its first bit, and its bits.
    pub(crate) fn take_below(&mut self, end: Sequence, mut taken: impl FnMut(Sequence, u64)) {
        while let Some(mut first) = self.words.first_entry() {
            if *first.key() > self.open.0 {
                self.close();
                continue;
            }
            let base = Sequence(*first.key() * WORD);
            let bits = first.get() & below(base, end);
            if bits == 0 {
                return;
            }
            self.count -= bits.count_ones() as usize;
            *first.get_mut() &= !bits;
            taken(base, bits);
            if *first.get() == 0 {
                first.remove();
            } else {
                return;
            }
        }
        if self.open.0 == NONE {
            return;
        }
        let base = Sequence(self.open.0 * WORD);
        let bits = self.open.1 & below(base, end);
        if bits != 0 {
            self.count -= bits.count_ones() as usize;
            self.open.1 &= !bits;
            taken(base, bits);
        }
    }
}

/// Those bits of the word that begins at a number which are below another number.
#[inline]
fn below(base: Sequence, end: Sequence) -> u64 {
    match end.0.saturating_sub(base.0) {
        more @ 0..WORD => (1 << more) - 1,
        _ => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use thunderhead_runtime::Random;

    #[test]
    fn it_is_a_set() {
        let mut random = Random::from_seed(9);
        for round in 0..50 {
            let (mut ours, mut model) = (Sequences::default(), BTreeSet::new());
            let span = 1 << (round % 10 + 1);
            let mut from = if round % 7 == 0 { u64::MAX - 40_000 } else { 0 };
            for _ in 0..400 {
                let sequence = Sequence(from + random.below(span));
                match random.below(6) {
                    0 => assert_eq!(ours.remove(sequence), model.remove(&sequence)),
                    1 => assert_eq!(ours.pop_first(), model.pop_first()),
                    2 => {
                        from += random.below(90);
                        let mut taken = Vec::new();
                        ours.take_below(Sequence(from), |base, bits| {
                            taken.extend(
                                (0..64).filter(|at| bits >> at & 1 != 0).map(|at| base.plus(at)),
                            );
                        });
                        let kept = model.split_off(&Sequence(from));
                        let expected = std::mem::replace(&mut model, kept);
                        assert_eq!(taken, expected.into_iter().collect::<Vec<_>>());
                    }
                    _ => assert_eq!(ours.insert(sequence), model.insert(sequence)),
                }
                assert_eq!(ours.contains(sequence), model.contains(&sequence));
                assert_eq!(ours.last(), model.last().copied());
                assert_eq!((ours.len(), ours.is_empty()), (model.len(), model.is_empty()));
            }
            ours.take_below(Sequence(u64::MAX), |_, _| {});
            ours.close();
            assert!(ours.len() <= 1 && ours.words.len() <= 1);
        }
    }
}
