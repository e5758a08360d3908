//! The lasting memory of a simulated machine. It outlives processes, but not a power loss.

use crate::files::check_name;
use crate::lasting::{LastingMemory, Memories, WORD_BYTES};
use crate::random::Random;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory is given out in pages.
const PAGE_WORDS: usize = 4096 / WORD_BYTES;

/// A machine's lasting memory. Clones are handles to the same memory.
#[derive(Clone, Debug, Default)]
pub struct SimMemories(Rc<RefCell<State>>);

#[derive(Debug, Default)]
struct State {
    memories: BTreeMap<String, LastingMemory>,
    boots: u64,
}

impl SimMemories {
    /// Loses all memory, as when the container ends to which alone it belonged.
    pub fn lose(&self) {
        self.0.borrow_mut().memories.clear();
    }

    /// Fails the power. Mostly all memory is lost. Now and then some pages remain, as if the memory
    /// were on a disk by mistake.
    pub fn lose_power(&self, random: &mut Random) {
        let State { memories, boots } = &mut *self.0.borrow_mut();
        *boots += 1;
        if memories.is_empty() {
            return;
        }
        if !random.chance(0.25) {
            memories.clear();
            return;
        }
        let kept = random.fraction();
        for memory in memories.values_mut() {
            // The words move into new ones: a process that is not dropped yet must not restore any
            // of them.
            let words: Vec<AtomicU64> = memory
                .words()
                .chunks(PAGE_WORDS)
                .flat_map(|page| {
                    let kept = random.chance(kept);
                    page.iter().map(move |word| {
                        AtomicU64::new(if kept { word.load(Ordering::Relaxed) } else { 0 })
                    })
                })
                .collect();
            *memory = LastingMemory::new(words);
        }
    }
}

impl Memories for SimMemories {
    fn find(&mut self, name: &str) -> io::Result<Option<LastingMemory>> {
        check_name(name)?;
        Ok(self.0.borrow().memories.get(name).cloned())
    }

    fn make(&mut self, name: &str, bytes: usize) -> io::Result<LastingMemory> {
        check_name(name)?;
        let words = bytes.div_ceil(PAGE_WORDS * WORD_BYTES) * PAGE_WORDS;
        let words: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(0)).collect();
        let memory = LastingMemory::new(words);
        self.0.borrow_mut().memories.insert(name.to_owned(), memory.clone());
        Ok(memory)
    }

    fn boot(&mut self) -> io::Result<u64> {
        Ok(self.0.borrow().boots)
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        check_name(name)?;
        self.0.borrow_mut().memories.remove(name);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_outlives_its_process_but_not_a_power_loss() {
        let machine = SimMemories::default();
        let mut process = machine.clone();
        assert!(process.find("pool").unwrap().is_none());
        process.make("pool", 5000).unwrap().write(4999, b"x");
        drop(process);
        let mut next = machine.clone();
        let found = next.find("pool").unwrap().unwrap();
        assert_eq!(found.bytes(), 8192);
        let mut byte = [0];
        found.read(4999, &mut byte);
        assert_eq!(&byte, b"x");
        let mut lost = 0;
        for seed in 0..100 {
            let boot = next.boot().unwrap();
            machine.lose_power(&mut Random::from_seed(seed));
            assert_ne!(next.boot().unwrap(), boot);
            lost += usize::from(next.find("pool").unwrap().is_none());
            next.make("pool", 5000).unwrap();
        }
        assert!((50..100).contains(&lost), "{lost}");
        next.remove("pool").unwrap();
        assert!(next.find("pool").unwrap().is_none());
        assert!(next.make("../pool", 1).is_err());
    }
}
