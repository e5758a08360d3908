//! Who goes first on a processor that threads share.
//!
//! A thread that wakes waits until the one that runs has had its slice, a millisecond or two, even if it only has to tell
//! the disk what to write next. Linux mostly lets it go at once where its slice is the shorter one, if it has had no more than
//! its share (6.12 and later; before, nothing here does anything). So who works for long has a slice a little longer than usual: workers of the kernel, which say that a
//! disk is done, and ours, which wait for it, then come between. Nobody gets more or less time by that, only
//! earlier or later; but so may anybody else come between whose slice is the usual one. Slices are set when workers
//! start: where the usual one changes afterwards, with the number of processors, these stay as they were.
//!
//! It matters where a shard and the disk's workers share a processor: a round of a backup took 1.2 ms longer than the
//! disk did, as the shard had something to do meanwhile.

#![allow(unsafe_code, reason = "two calls of the kernel with a structure of ours")]

/// How long a thread's slice is beside the usual one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slice {
    /// As usual: a thread that mostly waits for a device.
    Usual,
    /// That of a reactor that has such threads.
    Longer,
    /// That of a worker which works for long: it comes after reactors that have something to do.
    Longest,
}

impl Slice {
    fn of(self, usual: u64) -> u64 {
        match self {
            // The kernel's number for it.
            Slice::Usual => 0,
            Slice::Longer => usual + usual / 8,
            Slice::Longest => usual + usual / 4,
        }
    }
}

/// The kernel's `struct sched_attr`, as it was when it came into being.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// Of a thread without deadlines: its slice in nanoseconds.
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Gives the thread that calls a slice, if it is of those that share fairly and the kernel knows of slices. Says how long
/// that is in nanoseconds; 0 where it is not known.
pub(super) fn set(slice: Slice) -> u64 {
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
    // SAFETY: the kernel writes `size` bytes at most to a structure that has so many; 0 is the thread that calls.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    (result == 0).then_some(attributes)
}

/// What the kernel has against it, it has against the slice: all else is as it was.
fn put(attributes: &Attributes) {
    let attributes = Attributes { size: size_of::<Attributes>() as u32, ..*attributes };
    // SAFETY: the kernel reads as many bytes as `size` says, which are there; 0 is the thread that calls.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_works_for_long_has_a_longer_slice_where_the_kernel_knows_of_slices() {
        let Some(before) = get() else { return };
        let usual = set(Slice::Usual);
        let longer = set(Slice::Longer);
        if longer == usual {
            // The kernel does not know of slices, or somebody forbids it.
            return;
        }
        let longest = set(Slice::Longest);
        assert_eq!(set(Slice::Usual), usual);
        assert!(usual < longer && longer < longest, "{usual}, {longer}, {longest}");
        assert_eq!(set(Slice::Longer), longer, "not longer and longer");
        let Some(after) = get() else { panic!("a thread can be asked about, as before") };
        let other = |it: Attributes| (it.policy, it.flags, it.nice, it.priority);
        assert_eq!(other(after), other(before), "nothing else has changed");
    }
}
