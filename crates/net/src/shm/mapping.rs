//! The memory that two processes share, as atomic words.
//!
//! It is separate because mapping is unsafe; what comes out of here is safe to use whatever the
//! peer does. Two types carry the proof:
//!
//! - [`SealedMemory`] is a file whose size is what its layout needs and can never change again:
//!   sealed against shrinking, growing and further sealing. So touching a page of it never raises
//!   SIGBUS, short of the machine having no memory left. (The peer may still punch holes into it;
//!   they read as zeros, and are filled again when they are written.)
//! - [`Mapping`] is such a file in this process's address space, lent as a slice of [`AtomicU64`].
//!   Nothing else is ever made of it: the peer may write at any time, and only an atomic access
//!   has a meaning then. What it reads may be any value; that is for the reader to bear.
//!
//! Both may be used by any thread.

use super::error::HandoverError;
use super::layout::{Layout, WORD_BYTES};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::memfd_create;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// The seals without which no memory is mapped.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// A file in memory of the right size, which nobody can change any more.
pub(super) struct SealedMemory {
    file: OwnedFd,
    layout: Layout,
}

impl SealedMemory {
    /// Makes one. It is all zeros: two empty rings, and nobody asleep.
    pub(super) fn create(layout: Layout) -> io::Result<SealedMemory> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = match memfd_create(c"thunderhead-channel", flags | MemfdFlags::NOEXEC_SEAL) {
            // A kernel before 6.3 does not know that a file need not be executable.
            Err(Errno::INVAL) => memfd_create(c"thunderhead-channel", flags)?,
            other => other?,
        };
        ftruncate(&file, layout.mapped_bytes() as u64)?;
        fcntl_add_seals(&file, SEALS)?;
        Ok(SealedMemory { file, layout })
    }

    /// Takes a file that a peer has sent, if it is what it should be.
    pub(super) fn verify(file: OwnedFd, layout: Layout) -> Result<SealedMemory, HandoverError> {
        // Files other than memory have no seals to ask for. The seals are asked for before the
        // size, for only then does the size stay.
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

    /// The file, to be sent to the peer.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Maps it into this process. The file need not stay open.
    pub(super) fn map(&self) -> io::Result<Mapping> {
        let bytes = self.layout.mapped_bytes();
        // SAFETY: a new mapping at an address of the kernel's choice changes no memory that this
        // process has. The file is as large as the mapping and stays so.
        let address = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                // All pages are wanted soon, for a ring passes through all of its own; so they
                // are had now, and not one by one in the midst of somebody's request.
                MapFlags::SHARED | MapFlags::POPULATE,
                &self.file,
                0,
            )
        }?;
        let address = NonNull::new(address.cast::<AtomicU64>())
            .ok_or_else(|| io::Error::other("the system mapped memory at address 0"))?;
        Ok(Mapping { address, layout: self.layout })
    }
}

/// Memory shared with a peer. It is unmapped when this is dropped.
pub(super) struct Mapping {
    address: NonNull<AtomicU64>,
    layout: Layout,
}

// SAFETY: the mapping belongs to this value until it is dropped, on whatever thread, and is reached
// as atomics only.
unsafe impl Send for Mapping {}
// SAFETY: as above; atomics are made for being shared.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// How it is laid out.
    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    /// All of it, word by word.
    #[inline]
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the address is that of a readable and writable mapping of this many bytes, which
        // lives as long as `self`, is aligned to a page, and is never reached except as atomics.
        // The peer's writes, at any time and of any values, are writes to atomics too.
        unsafe {
            std::slice::from_raw_parts(
                self.address.as_ptr(),
                self.layout.mapped_bytes() / WORD_BYTES,
            )
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping made in `SealedMemory::map`, and every slice of it
        // borrowed `self`. It cannot fail for such a range.
        let _ = unsafe { munmap(self.address.as_ptr().cast(), self.layout.mapped_bytes()) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::{End, RING_BYTES_MIN};
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn new_memory_is_zero_shared_and_of_a_size_that_stays() {
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
