//! The order of threads that share a processor.
//!
//! A thread that wakes waits until the running thread has used its slice, a millisecond or two,
//! even if it only has to give the disk its next write. Linux (6.12 and later; on earlier ones this
//! module has no effect) mostly lets the waking thread run at once if its slice is shorter and it
//! has had no more than its share. So threads with long work request a slice a little longer than
//! usual. The kernel's workers, which report a finished disk, and our workers, which wait for it,
//! then run in between. No thread gets more or less time by that, only earlier or later. But any
//! other thread with the usual slice may also run in between. Slices are set when workers start. If
//! the usual slice changes afterwards, with the number of processors, these stay unchanged.
//!
//! It matters if a shard and the disk's workers share a processor: a round of a backup took 1.2 ms
//! longer than the disk did, because the shard was busy meanwhile. The gain in synced messages of
//! 70 objects was 3 to 27 % with one core for all threads of a server (`docs/evaluation/peers.md`).
//! If the threads have two cores, there is no gain: sixteen clients write 57 K/s with longer slices
//! and 59 K/s without them. Measure it with `thunderhead-bench write --replicas 2 --synced
//! --clients 16 --depth 1`, and then with `--without slices`.

#![allow(unsafe_code, reason = "two system calls with a structure of this module")]

use crate::optimizations::Optimization;

/// The length of a thread's slice, relative to the usual one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slice {
    /// The usual slice: for a thread that mostly waits for a device.
    Usual,
    /// For a reactor that has such threads.
    Longer,
    /// For a worker with long work: it runs after reactors that have work.
    Longest,
}

impl Slice {
    fn of(self, usual: u64) -> u64 {
        match self {
            // The kernel's number for the usual slice.
            Slice::Usual => 0,
            Slice::Longer => usual + usual / 8,
            Slice::Longest => usual + usual / 4,
        }
    }
}

/// The kernel's `struct sched_attr`, in its first version.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// For a thread without deadlines: its slice in nanoseconds.
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Gives the calling thread a slice, if its policy is a fair one and the kernel has slices. Returns
/// the length in nanoseconds, or 0 if it is unknown.
pub(super) fn set(slice: Slice) -> u64 {
    let slice = if Optimization::Slices.is_on() { slice } else { Slice::Usual };
    let Some(own) = get() else { return 0 };
    let is_fair = [libc::SCHED_OTHER as u32, libc::SCHED_BATCH as u32].contains(&own.policy);
    if !is_fair || own.runtime == 0 {
        return 0;
    }
    put(&Attributes { runtime: 0, ..own });
    let usual = get().map_or(0, |it| it.runtime);
    let wanted = slice.of(usual);
    if wanted > 0 {
        put(&Attributes { runtime: wanted, ..own });
    }
    get().map_or(0, |it| it.runtime)
}

fn get() -> Option<Attributes> {
    let mut attributes = Attributes::default();
    let size = size_of::<Attributes>() as libc::c_uint;
    // SAFETY: the kernel writes `size` bytes at most to a structure of that size; 0 is the calling
    // thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    (result == 0).then_some(attributes)
}

/// Sets the attributes. If the kernel refuses, the slice stays as it was: only the slice differs.
fn put(attributes: &Attributes) {
    let attributes = Attributes { size: size_of::<Attributes>() as u32, ..*attributes };
    // SAFETY: the kernel reads `size` bytes, which exist; 0 is the calling thread.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_with_long_work_has_a_longer_slice_if_the_kernel_has_slices() {
        let Some(before) = get() else { return };
        let usual = set(Slice::Usual);
        let longer = set(Slice::Longer);
        if longer == usual {
            // The kernel has no slices, or a policy forbids them.
            return;
        }
        let longest = set(Slice::Longest);
        assert_eq!(set(Slice::Usual), usual);
        assert!(usual < longer && longer < longest, "{usual}, {longer}, {longest}");
        assert_eq!(set(Slice::Longer), longer, "the slice does not grow with each call");
        let Some(after) = get() else { panic!("the thread's attributes are readable, as before") };
        let other = |it: Attributes| (it.policy, it.flags, it.nice, it.priority);
        assert_eq!(other(after), other(before), "only the slice has changed");
    }
}
