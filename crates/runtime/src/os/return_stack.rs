//! Returns from the kernel, and the processor's predictions for them.
//!
//! A processor predicts a function's return address from a small stack of its own. Calls push on it
//! and returns pop from it. A kernel that guards its own returns against speculation (Linux on AMD:
//! "Safe RET") leaves more entries there than it takes. After a system call the processor therefore
//! predicts that a program's first return leads into the kernel, where it may not go. It takes 300
//! to 650 ns until the processor has found out and is back (EPYC of family 25, in a virtual
//! machine: two cores far from each other, and close), more than most system calls take themselves.
//! Each further return costs next to nothing.
//!
//! So a function that has called the kernel, and is about to return to its callers, pushes harmless
//! entries first: [`expect_returns`]. Predictions for these returns are wrong too, but lead into
//! the program, and cost only some nanoseconds each. A round trip over TCP between two programs
//! that poll became a fifth shorter.
//!
//! Without such a guard in the kernel the predictions are still good, and pushing would destroy
//! them. So nothing is pushed there. `thunderhead-bench rpc` measures the gain with and without
//! `--without return-stack`.

use crate::optimizations::Optimization;
use std::sync::LazyLock;

/// The number of pushed entries: more than functions return one after the other, and no more than
/// such stacks hold.
#[cfg(target_arch = "x86_64")]
const CALLS: usize = 16;

/// The files in which Linux names its guards, and the words that stand for a guard that spoils
/// predictions of returns. Only the first has been measured.
const GUARDS: [(&str, &str); 3] = [
    ("spec_rstack_overflow", "safe ret"),
    ("retbleed", "untrained return thunk"),
    ("retbleed", "stuffing"),
];

/// Whether this kernel has such a guard. A kernel that does not say has none.
static IS_GUARDED: LazyLock<bool> = LazyLock::new(|| {
    if !Optimization::ReturnStack.is_on() {
        return false;
    }
    let says =
        |name| std::fs::read_to_string(format!("/sys/devices/system/cpu/vulnerabilities/{name}"));
    GUARDS.iter().any(|(name, words)| says(name).is_ok_and(|said| spoils(&said, words)))
});

fn spoils(said: &str, words: &str) -> bool {
    said.to_lowercase().contains(words)
}

/// Refills the processor's predictions of returns, if the kernel has spoiled them. Call it between
/// a system call and the end of the function that made it, if the function's caller waits for it.
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
    // SAFETY: Each call pushes an address and goes on right behind itself. The last instruction
    // removes all of them. Nothing else changes but flags: assembly that may push owns the stack
    // below its pointer, and the stack is aligned. No code returns to the addresses. Shadow stacks,
    // which do not allow a call without a return, are only on in programs that were built for them,
    // and this one is not.
    unsafe {
        std::arch::asm!(
            ".rept {calls}",
            "call 2f",
            // Speculation after a wrong prediction ends here.
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
    fn functions_return_to_their_callers_with_all_their_state() {
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
    fn the_kernels_words_for_its_guards_are_recognized() {
        let (_, words) = GUARDS[0];
        assert!(spoils("Vulnerable: Safe RET, no microcode\n", words));
        assert!(spoils("Mitigation: safe RET\n", words));
        assert!(!spoils("Not affected\n", words));
        assert!(!spoils("Mitigation: SMT disabled\n", words));
    }
}
