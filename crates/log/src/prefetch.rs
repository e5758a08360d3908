//! Prefetches: asks the processor for a cache line ahead of its use.

/// Prefetches the line that holds an address. Any address is allowed: a wrong one has no effect.
#[inline(always)]
pub(crate) fn read(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing as far as the program can tell and never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
