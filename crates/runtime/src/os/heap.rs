//! Settings of the heap, so that no turn returns much memory to the kernel at once.
//!
//! glibc returns free memory at the end of its heap once there is more than a limit. It raises the
//! limit by itself, to twice the size of the largest block that was mapped alone and freed: up to
//! 64 MiB. Then a single `free` of a small block returns 64 MiB, which takes more than a
//! millisecond, and at the end of each recovery one turn did so. At first the limit is 128 KiB,
//! which is too low for long messages: each message of 256 KiB returned its buffer, and the next
//! one waited for new pages, 100 us for 35 of them.
//!
//! With fixed limits, `thunderhead-bench turns` shows the gain beside `--without heap-limits`.

#![allow(unsafe_code, reason = "the allocator's settings are a call of the C library")]

/// Longer blocks are mapped alone. They return to the kernel when they are freed, and piece by
/// piece when they are made shorter.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const ALONE_BYTES: libc::c_int = 4 << 20;

/// Free memory at the end of a heap returns when there is this much: 256 pages, about 50 us.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const FREE_BYTES_MAX: libc::c_int = 1 << 20;

/// This much of it stays, and a heap that is too short grows by this much more than it needs.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const FREE_BYTES_KEPT: libc::c_int = 256 << 10;

/// Fixes the limits at which this process's heap returns memory. Call it before the reactors begin.
/// Has no effect with another allocator than glibc's.
pub fn fix_heap_limits() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if crate::optimizations::Optimization::HeapLimits.is_on() {
        for (limit, bytes) in [
            (libc::M_MMAP_THRESHOLD, ALONE_BYTES),
            (libc::M_TRIM_THRESHOLD, FREE_BYTES_MAX),
            (libc::M_TOP_PAD, FREE_BYTES_KEPT),
        ] {
            // SAFETY: it sets numbers of the allocator, under its lock.
            unsafe { libc::mallopt(limit, bytes) };
        }
    }
}
