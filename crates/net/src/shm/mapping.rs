//! The memory that two processes share, as atomic words.
//!
//! This file is separate because mapping is unsafe. Its types are safe to use with any
//! peer. Two types carry the proof:
//!
//! - [`SealedMemory`] is a file of exactly the size that its layout needs. The size can never
//!   change again: the file is sealed against shrinking, growing and further sealing. So touching
//!   one of its pages never raises SIGBUS, unless the machine has no memory left. (The peer may
//!   still punch holes into it. They read as zeros, and are filled again when they are written.)
//! - [`Mapping`] is such a file in this process's address space, lent as a slice of [`AtomicU64`].
//!   No other reference to it is ever made: the peer may write at any time, and only an atomic
//!   access is defined then. A load may return any value; the reader has to cope with it.
//!
//! Both may be used by any thread.

use super::error::HandoverError;
use super::layout::{Layout, WORD_BYTES};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::memfd_create;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// The seals that a file needs before it is mapped.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Bytes of the pages that are faulted in together: some 15 microseconds, and on a virtual machine
/// that lacks the pages 50.
const PIECE_BYTES: usize = 16 << 10;

/// Bytes that are unmapped together.
const GIVEN_BACK_BYTES: usize = 128 << 10;

/// A file in memory whose size is right and can no longer change.
pub(super) struct SealedMemory {
    file: OwnedFd,
    layout: Layout,
}

impl SealedMemory {
    /// Makes a file. It is all zeros: two empty rings, and neither end asleep.
    pub(super) fn create(layout: Layout) -> io::Result<SealedMemory> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = match memfd_create(c"thunderhead-channel", flags | MemfdFlags::NOEXEC_SEAL) {
            // A kernel before 6.3 does not know this flag, which makes the file non-executable.
            Err(Errno::INVAL) => memfd_create(c"thunderhead-channel", flags)?,
            other => other?,
        };
        ftruncate(&file, layout.mapped_bytes() as u64)?;
        fcntl_add_seals(&file, SEALS)?;
        Ok(SealedMemory { file, layout })
    }

    /// Takes a file from a peer, if it has the seals and the size.
    pub(super) fn verify(file: OwnedFd, layout: Layout) -> Result<SealedMemory, HandoverError> {
        // Files other than memory have no seals to query. The seals are checked before the size,
        // because only then is the size final.
        match fcntl_get_seals(&file) {
            Ok(seals) if seals.contains(SEALS) => {}
            Ok(_) | Err(Errno::INVAL) => return Err(HandoverError::NotSealed),
            Err(error) => return Err(error.into()),
        }
        let (actual, expected) = (fstat(&file)?.st_size as u64, layout.mapped_bytes());
        if actual != expected as u64 {
            return Err(HandoverError::Size { expected, actual });
        }
        Ok(SealedMemory { file, layout })
    }

    /// Returns the file, to be sent to the peer.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Maps the file into this process. The file need not stay open.
    pub(super) fn map(&self) -> io::Result<Mapping> {
        let bytes = self.layout.mapped_bytes();
        // SAFETY: a new mapping at an address of the kernel's choice changes no memory that this
        // process has. The file is as large as the mapping and stays so.
        let address = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &self.file,
                0,
            )
        }?;
        let address = NonNull::new(address.cast::<AtomicU64>())
            .ok_or_else(|| io::Error::other("the system mapped memory at address 0"))?;
        Ok(Mapping { address, layout: self.layout, mapped: bytes, faulted: 0 })
    }
}

/// Memory shared with a peer. Dropping it unmaps it.
pub(super) struct Mapping {
    address: NonNull<AtomicU64>,
    layout: Layout,
    /// The bytes that are mapped. All, until it is retired.
    mapped: usize,
    /// The bytes at its beginning whose pages are faulted in.
    faulted: usize,
}

// SAFETY: the mapping belongs to this value until it is dropped, on any thread, and is accessed
// only as atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above; atomics may be shared between threads.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Returns the layout of the memory.
    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    /// Whether some pages are not faulted in yet.
    pub(super) fn is_bare(&self) -> bool {
        self.faulted < self.layout.mapped_bytes()
    }

    /// Faults in the next pages. A ring passes through all of its pages soon. So its owner faults
    /// them in before, a piece a turn, and not one by one during requests.
    pub(super) fn fault_in_some(&mut self) {
        let begin = self.faulted;
        let bytes = (self.layout.mapped_bytes() - begin).min(PIECE_BYTES);
        // SAFETY: the range lies within the mapping, and begins at a page because pieces are whole
        // pages. To populate pages changes nothing in them.
        let populated = unsafe {
            let address = self.address.as_ptr().cast::<u8>().add(begin);
            madvise(address.cast(), bytes, Advice::LinuxPopulateWrite)
        };
        // A kernel before 5.14 cannot do this: then pages are faulted in when they are used.
        self.faulted = if populated.is_ok() { begin + bytes } else { self.layout.mapped_bytes() };
    }

    /// Frees the pages behind the first bytes, which begin a page. They read as zeros then.
    fn free_from(&mut self, left: usize) {
        // SAFETY: the range lies within the mapping. A peer that has mapped it reads zeros, which
        // any access must cope with. A failure leaves the pages to the last `munmap`.
        let _ = unsafe {
            let begin = self.address.as_ptr().cast::<u8>().add(left);
            madvise(begin.cast(), self.mapped - left, Advice::LinuxRemove)
        };
    }

    /// Unmaps all behind the first bytes, which end with a page.
    fn unmap_from(&mut self, left: usize) {
        if left == self.mapped {
            return;
        }
        // SAFETY: the range is the end of the mapping made in `SealedMemory::map`. Every slice of
        // it borrowed `self`, and a later one ends before it. The call cannot fail for such a
        // range: the end goes first, so no mapping is split.
        let unmapped = unsafe {
            let begin = self.address.as_ptr().cast::<u8>().add(left);
            munmap(begin.cast(), self.mapped - left)
        };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
        self.mapped = left;
    }

    /// Returns all of the memory, word by word.
    #[inline]
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the address is that of a readable and writable mapping of `mapped` bytes. It
        // lives as long as `self`, is aligned to a page, and is never accessed except as atomics.
        // The peer's writes, at any time and of any values, are writes to atomics too.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.mapped / WORD_BYTES) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.unmap_from(0);
    }
}

/// A mapping that is not used any more, to be unmapped in pieces: unmapping long rings at once
/// takes some tenths of a millisecond. Dropping it unmaps the rest.
pub struct RetiredMapping {
    mapping: Mapping,
    /// No peer has mapped the memory. So its pages are freed with each piece. Otherwise the peer
    /// still reads them, and frees them when it goes.
    is_alone: bool,
}

impl RetiredMapping {
    /// Retires a mapping, of which the peer may be gone.
    pub(super) fn new(mapping: Mapping, is_alone: bool) -> RetiredMapping {
        RetiredMapping { mapping, is_alone }
    }

    /// Unmaps a piece. Returns whether more remain.
    pub fn give_back_some(&mut self) -> bool {
        // The end of a piece may lie within a page, its beginning may not.
        let left = self.mapping.mapped.saturating_sub(1) / GIVEN_BACK_BYTES * GIVEN_BACK_BYTES;
        if self.is_alone {
            self.mapping.free_from(left);
        }
        self.mapping.unmap_from(left);
        left > 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::{End, RING_BYTES_MIN};
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn new_memory_is_zero_and_shared_and_its_size_is_final() {
        let layout = Layout::new(RING_BYTES_MIN).unwrap();
        let memory = SealedMemory::create(layout).unwrap();
        let (one, other) = (memory.map().unwrap(), memory.map().unwrap());
        assert!(one.words().iter().all(|word| word.load(Ordering::Relaxed) == 0));
        let word = layout.ring_written_by(End::Client).end - 1;
        one.words()[word].store(7, Ordering::Relaxed);
        assert_eq!(other.words()[word].load(Ordering::Relaxed), 7);
        for bytes in [0, 4096, 1 << 20] {
            assert_eq!(ftruncate(&memory.file, bytes), Err(Errno::PERM));
        }
        let again = memory.file.try_clone().unwrap();
        assert!(SealedMemory::verify(again, layout).is_ok());
    }
}
