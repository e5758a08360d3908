//! Coming back from the kernel.
//!
//! A processor predicts where a function returns to from a small stack of its own, on which calls push and from
//! which returns pop. A kernel that guards its own returns against speculation (Linux on AMD: "Safe RET") leaves
//! more there than it takes. After a system call the first return of a program is therefore predicted to lead into
//! the kernel, where it may not go; until the processor has found out and is back, 300 to 650 ns pass (EPYC of
//! family 25, in a virtual machine: two cores far from each other, and close), more than most system calls take
//! themselves. Each further return costs next to nothing.
//!
//! So who has called the kernel, and is about to return to functions that were active before, pushes something
//! harmless first: [`expect_returns`]. These returns are predicted wrongly, too, but into the program, and then
//! they take what a wrong prediction takes, some nanoseconds. A round trip over TCP between two programs that poll
//! became a fifth shorter.
//!
//! Where a kernel has no such guard the predictions are still good, and would be lost: there nothing is done.

use std::sync::LazyLock;

/// What is pushed: more than functions return one after the other, and no more than such stacks hold.
#[cfg(target_arch = "x86_64")]
const CALLS: usize = 16;

/// Where Linux says how it guards itself, and what it says there if that spoils predictions of returns. Only the
/// first has been measured.
const GUARDS: [(&str, &str); 3] = [
    ("spec_rstack_overflow", "safe ret"),
    ("retbleed", "untrained return thunk"),
    ("retbleed", "stuffing"),
];

/// Whether this kernel does. Where it does not say, it does not.
static IS_GUARDED: LazyLock<bool> = LazyLock::new(|| {
    let says =
        |name| std::fs::read_to_string(format!("/sys/devices/system/cpu/vulnerabilities/{name}"));
    GUARDS.iter().any(|(name, words)| says(name).is_ok_and(|said| spoils(&said, words)))
});

fn spoils(said: &str, words: &str) -> bool {
    said.to_lowercase().contains(words)
}

/// Says to the processor that functions will return, if it has forgotten: to be called between a system call and
/// the end of the function that it was made in, where that is a function which others wait for.
#[inline(always)]
pub fn expect_returns() {
    if *IS_GUARDED {
        push();
    }
}

#[inline(always)]
#[allow(unsafe_code)]
fn push() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: Each call pushes an address and goes on right behind itself; the last instruction takes all of them
    // off again. Nothing else is touched but flags: assembly that may push has the stack below its pointer for
    // itself, and it is aligned. Nobody returns to the addresses. Shadow stacks, which would not bear it that a
    // call is never returned from, are only on in programs that were built for them, which this one is not.
    unsafe {
        std::arch::asm!(
            ".rept {calls}",
            "call 2f",
            // What is run ahead by a wrong prediction ends here.
            "int3",
            "2:",
            ".endr",
            "add rsp, 8 * {calls}",
            calls = const CALLS,
            options(nomem)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn nested(depth: u64, sum: &mut Vec<u64>) -> u64 {
        if depth == 0 {
            push();
            return 1;
        }
        sum.push(depth);
        let below = nested(depth - 1, sum);
        push();
        sum.push(below);
        below + depth
    }

    #[test]
    fn functions_return_to_where_they_were_called_with_all_that_they_had() {
        let mut sum = Vec::new();
        assert_eq!(nested(100, &mut sum), 1 + (1..=100).sum::<u64>());
        assert_eq!(sum.len(), 200);
        assert!(sum[100..].is_sorted());
    }

    #[test]
    fn a_panic_passes_it() {
        let caught = std::panic::catch_unwind(|| {
            push();
            std::panic::resume_unwind(Box::new(7));
        });
        assert_eq!(*caught.unwrap_err().downcast::<i32>().unwrap(), 7);
    }

    #[test]
    fn what_kernels_say_is_understood() {
        let (_, words) = GUARDS[0];
        assert!(spoils("Vulnerable: Safe RET, no microcode\n", words));
        assert!(spoils("Mitigation: safe RET\n", words));
        assert!(!spoils("Not affected\n", words));
        assert!(!spoils("Mitigation: SMT disabled\n", words));
    }
}
