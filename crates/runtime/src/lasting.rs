//! Memory that outlasts the process. The process that starts after a crash finds its contents; a
//! power loss destroys them.
//!
//! It is separate from [files](crate::files) because turns write it, in which no code may wait: a
//! write is a copy in memory. A backup acknowledges bytes once it has copied them there.
//!
//! Two threads may use the same memory, and a killed process may have stopped between any two
//! words. So the memory consists of atomic words and is never seen as any other type. Its user
//! decides which thread writes which word in which order, and which words are valid afterwards.
//!
//! - **os**: a mapped file of a file system that lives in memory (`os/memory.rs`).
//! - **sim**: words that the simulated machine keeps (`sim/memory.rs`).

use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a word.
pub const WORD_BYTES: usize = 8;

/// A piece of lasting memory. Clones are handles to the same memory.
#[derive(Clone)]
pub struct LastingMemory(Arc<dyn Deref<Target = [AtomicU64]> + Send + Sync>);

impl std::fmt::Debug for LastingMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LastingMemory({} bytes)", self.bytes())
    }
}

impl LastingMemory {
    /// Wraps words that a world keeps.
    pub(crate) fn new(
        words: impl Deref<Target = [AtomicU64]> + Send + Sync + 'static,
    ) -> LastingMemory {
        LastingMemory(Arc::new(words))
    }

    /// Returns the words.
    #[inline]
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        &self.0
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.words().len() * WORD_BYTES
    }

    /// Copies bytes in, in relaxed order. Only one thread at a time may write to a word.
    ///
    /// # Panics
    /// If they do not fit: the caller checks that before.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let begins = offset % WORD_BYTES;
        let to_word = (WORD_BYTES - begins) % WORD_BYTES;
        let (first, rest) = bytes.split_at(to_word.min(bytes.len()));
        let words = self.words();
        if !first.is_empty() {
            merge(&words[offset / WORD_BYTES], begins, first);
        }
        let at = (offset + first.len()).div_ceil(WORD_BYTES);
        let (whole, last) = rest.as_chunks::<WORD_BYTES>();
        for (word, bytes) in words[at..at + whole.len()].iter().zip(whole) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
        if !last.is_empty() {
            merge(&words[at + whole.len()], 0, last);
        }
    }

    /// Copies bytes out, in relaxed order.
    ///
    /// # Panics
    /// If the memory is shorter: the caller checks that before.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        let begins = offset % WORD_BYTES;
        let to_word = ((WORD_BYTES - begins) % WORD_BYTES).min(into.len());
        let (first, rest) = into.split_at_mut(to_word);
        let words = self.words();
        if !first.is_empty() {
            let word = words[offset / WORD_BYTES].load(Ordering::Relaxed).to_ne_bytes();
            first.copy_from_slice(&word[begins..begins + first.len()]);
        }
        let at = (offset + first.len()).div_ceil(WORD_BYTES);
        let (whole, last) = rest.as_chunks_mut::<WORD_BYTES>();
        let count = whole.len();
        for (word, bytes) in words[at..at + count].iter().zip(whole) {
            *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        if !last.is_empty() {
            let word = words[at + count].load(Ordering::Relaxed).to_ne_bytes();
            last.copy_from_slice(&word[..last.len()]);
        }
    }
}

/// Replaces some bytes of a word.
fn merge(word: &AtomicU64, at: usize, bytes: &[u8]) {
    let mut merged = word.load(Ordering::Relaxed).to_ne_bytes();
    merged[at..at + bytes.len()].copy_from_slice(bytes);
    word.store(u64::from_ne_bytes(merged), Ordering::Relaxed);
}

/// The refusal for a memory that belongs to another user than this process.
///
/// An [`io::Error`] carries it, because the remedy depends on that user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongOwner {
    /// The memory's path.
    pub path: String,
    /// The memory's user.
    pub user: u32,
    /// This process's user.
    pub own: u32,
}

impl WrongOwner {
    /// Returns this refusal if an error carries one.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<&WrongOwner> {
        error.get_ref()?.downcast_ref()
    }
}

impl std::fmt::Display for WrongOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let WrongOwner { path, user, own } = self;
        write!(f, "{path} belongs to user {user} and this process to user {own}")
    }
}

impl std::error::Error for WrongOwner {}

/// The lasting memories of a machine, by name.
///
/// Each belongs to one process at a time: from the call that finds or makes it until its last
/// handle is dropped. A simulated machine has one process at a time.
pub trait Memories {
    /// Returns the memory of this name, if there is one.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if another process has it; otherwise the operating
    /// system's; also for a name that is not plain.
    fn find(&mut self, name: &str) -> io::Result<Option<LastingMemory>>;

    /// Makes a memory of zeroes and replaces the one of the same name. All its pages are present at
    /// once, so a later access neither waits nor fails. Its size is rounded up to a page.
    ///
    /// # Errors
    /// As for [`find`](Memories::find), and for example if the machine has too little memory.
    fn make(&mut self, name: &str, bytes: usize) -> io::Result<LastingMemory>;

    /// Checks that memories of so many bytes in all can be made here. Makes none.
    ///
    /// # Errors
    /// The reason why not, with the place.
    fn check(&mut self, bytes: usize) -> io::Result<()> {
        let _ = bytes;
        Ok(())
    }

    /// Returns the place of these memories, if the machine has several places.
    fn place(&self) -> Option<String> {
        None
    }

    /// Returns the memories of another place of the same machine, named as by
    /// [`place`](Memories::place).
    ///
    /// # Errors
    /// If there are no other places.
    fn elsewhere(&self, place: &str) -> io::Result<Box<dyn Memories>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("there is no place {place}")))
    }

    /// Returns a number for the time since the machine's power came on. It changes with each loss
    /// of power. Memory that was made before the loss is not valid, wherever it comes from.
    ///
    /// # Errors
    /// The operating system's.
    fn boot(&mut self) -> io::Result<u64>;

    /// Removes the name, if it exists. The memory goes with its last user.
    ///
    /// # Errors
    /// As for [`find`](Memories::find).
    fn remove(&mut self, name: &str) -> io::Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_back_from_every_offset() {
        let words: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(0)).collect();
        let memory = LastingMemory::new(words);
        let mut model = [0u8; 64];
        for offset in 0..40 {
            for length in 0..24 {
                let bytes: Vec<u8> = (0..length).map(|at| (offset * 7 + at + 1) as u8).collect();
                memory.write(offset, &bytes);
                model[offset..offset + length].copy_from_slice(&bytes);
                let mut found = [0; 64];
                memory.read(0, &mut found);
                assert_eq!(found, model, "{length} bytes at {offset}");
                let mut part = vec![0; length];
                memory.read(offset, &mut part);
                assert_eq!(part, bytes);
            }
        }
    }
}
