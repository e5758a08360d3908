//! Settings of the heap, so that turns rarely return much memory to the kernel at once.
//!
//! glibc returns free memory at the end of its heap once there is more than a limit. It raises the
//! limit by itself, to twice the size of the largest block that was mapped alone and freed: up to
//! 64 MiB. Then a single `free` of a small block returns 64 MiB. At the end of each recovery, one
//! turn took more than a millisecond for that. At first the limit is 128 KiB, which is too low for
//! long messages: each message of 256 KiB returned its buffer, and the next one waited for new
//! pages, 100 us for 35 of them.
//!
//! With fixed limits, `thunderhead-bench turns` shows the gain beside `--without heap-limits`.

#![allow(unsafe_code, reason = "the allocator's settings are a call of the C library")]

/// The allocator gives each longer block a mapping of its own. Such blocks return to the kernel
/// when they are freed, and piece by piece when they are made shorter.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const ALONE_BYTES: libc::c_int = 4 << 20;

/// The allocator trims a heap when this much memory at its end is free. This is no bound: if the
/// last used block is freed, all free memory below it goes too.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const FREE_BYTES_MAX: libc::c_int = 1 << 20;

/// A trim leaves this much free memory at the end of the heap.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const FREE_BYTES_KEPT: libc::c_int = 256 << 10;

/// Fixes the limits at which this process's heap returns memory. Later calls set the same values
/// again. Has no effect with another allocator than glibc's.
pub fn fix_heap_limits() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if crate::optimizations::Optimization::HeapLimits.is_on() {
        for (limit, bytes) in [
            (libc::M_MMAP_THRESHOLD, ALONE_BYTES),
            (libc::M_TRIM_THRESHOLD, FREE_BYTES_MAX),
            (libc::M_TOP_PAD, FREE_BYTES_KEPT),
        ] {
            // SAFETY: it sets a number of the allocator. Other threads may read the number
            // meanwhile; it is an aligned word, and both its values are valid.
            unsafe { libc::mallopt(limit, bytes) };
        }
    }
}
