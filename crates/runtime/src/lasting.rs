//! Memory that outlasts the process: what was written there is found by the process that is
//! started after a crash, but not after the machine lost its power.
//!
//! It is separate from [files](crate::files) because it is written in turns, where nothing may
//! wait: a write is a copy in memory. A backup acknowledges what it has copied there.
//!
//! Two threads may use the same memory, and a process that was killed may have stopped between
//! any two words. So it is made of atomic words and nothing else is ever made of them; who writes
//! them in which order, and what is to be believed of them afterwards, is for their user to say.
//!
//! - **os**: a mapped file of a file system that lives in memory (`os/memory.rs`).
//! - **sim**: words that the simulated machine keeps (`sim/memory.rs`).

use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a word.
pub const WORD_BYTES: usize = 8;

/// A piece of lasting memory. Clones are handles to the same.
#[derive(Clone)]
pub struct Lasting(Arc<dyn Deref<Target = [AtomicU64]> + Send + Sync>);

impl std::fmt::Debug for Lasting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lasting({} bytes)", self.bytes())
    }
}

impl Lasting {
    /// Wraps the words that a world keeps.
    pub(crate) fn new(words: impl Deref<Target = [AtomicU64]> + Send + Sync + 'static) -> Lasting {
        Lasting(Arc::new(words))
    }

    /// The words.
    #[inline]
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        &self.0
    }

    /// How many bytes there are.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.words().len() * WORD_BYTES
    }

    /// Copies bytes in, in relaxed order. One thread at a time may write to a word.
    ///
    /// # Panics
    /// When they do not fit: who calls has checked that.
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
    /// When there are not as many: who calls has checked that.
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

/// Puts bytes into a part of a word.
fn merge(word: &AtomicU64, at: usize, bytes: &[u8]) {
    let mut merged = word.load(Ordering::Relaxed).to_ne_bytes();
    merged[at..at + bytes.len()].copy_from_slice(bytes);
    word.store(u64::from_ne_bytes(merged), Ordering::Relaxed);
}

/// The memory of a name belongs to another user than this process.
///
/// An [`io::Error`] carries it: what is to be done depends on who that user is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfAnotherUser {
    /// Where the memory is.
    pub path: String,
    /// To whom it belongs.
    pub user: u32,
    /// To whom this process belongs.
    pub own: u32,
}

impl OfAnotherUser {
    /// What an error carries, if that is it.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<&OfAnotherUser> {
        error.get_ref()?.downcast_ref()
    }
}

impl std::fmt::Display for OfAnotherUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let OfAnotherUser { path, user, own } = self;
        write!(f, "{path} belongs to user {user} and this process to user {own}")
    }
}

impl std::error::Error for OfAnotherUser {}

/// The lasting memories of a machine, by name.
///
/// Each belongs to one process at a time, from when the process found or made it until its last handle is gone. A
/// simulated machine has one process at a time.
pub trait Memories {
    /// The memory that has this name, if there is one.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) when another process has it; else as the operating
    /// system has them; also for a name that is not plain.
    fn find(&mut self, name: &str) -> io::Result<Option<Lasting>>;

    /// Makes memory of a name, all zeroes, in place of what had it. All of it is there at once:
    /// to touch it later neither waits nor fails. Its size is rounded up to a page.
    ///
    /// # Errors
    /// As [`find`](Memories::find), and for example when there is not so much.
    fn make(&mut self, name: &str, bytes: usize) -> io::Result<Lasting>;

    /// Checks that memory can be made here, in all so many bytes. None is made.
    ///
    /// # Errors
    /// Why not, with the place.
    fn check(&mut self, bytes: usize) -> io::Result<()> {
        let _ = bytes;
        Ok(())
    }

    /// Where these memories are, where a machine has more than one place for them.
    fn place(&self) -> Option<String> {
        None
    }

    /// Those of another place of the same machine, by what [`place`](Memories::place) said there.
    ///
    /// # Errors
    /// When there are no other places.
    fn elsewhere(&self, place: &str) -> io::Result<Box<dyn Memories>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("there is no place {place}")))
    }

    /// A number of the time since the machine's power came: another one after each loss of it.
    /// Memory that was made in another time is not to be believed, wherever it comes from.
    ///
    /// # Errors
    /// As the operating system has them.
    fn boot(&mut self) -> io::Result<u64>;

    /// Removes the name; the memory goes with its last user. Nothing happens if there is none.
    ///
    /// # Errors
    /// As [`find`](Memories::find).
    fn remove(&mut self, name: &str) -> io::Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_from_wherever_they_were_put() {
        let words: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(0)).collect();
        let memory = Lasting::new(words);
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
