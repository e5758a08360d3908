//! Optimizations whose gain depends on the machine. Tests and measurements can turn each off to
//! show its gain. The product never does.

use std::sync::atomic::{AtomicU8, Ordering};

/// An optimization that can be turned off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Optimization {
    /// Messages to slow backups wait for more updates: `replication/gathering.rs` of the master.
    Gathering = 1,
    /// The processor's predictions of returns are repaired after system calls:
    /// `os/return_stack.rs`.
    ReturnStack = 2,
    /// Threads with long work request longer slices of the processor: `os/slices.rs`.
    Slices = 4,
    /// Memory that only the start used goes back to the kernel: `os/code.rs`.
    StartMemory = 8,
    /// The heap returns free memory to the kernel before much of it collects: `os/heap.rs`.
    HeapLimits = 16,
}

static OFF: AtomicU8 = AtomicU8::new(0);

impl Optimization {
    /// All of them.
    pub const ALL: [Optimization; 5] = [
        Optimization::Gathering,
        Optimization::ReturnStack,
        Optimization::Slices,
        Optimization::StartMemory,
        Optimization::HeapLimits,
    ];

    /// Returns its name in arguments.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Optimization::Gathering => "gathering",
            Optimization::ReturnStack => "return-stack",
            Optimization::Slices => "slices",
            Optimization::StartMemory => "start-memory",
            Optimization::HeapLimits => "heap-limits",
        }
    }

    /// Returns the optimization with a name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Optimization> {
        Optimization::ALL.into_iter().find(|it| it.name() == name)
    }

    /// Turns it off in this process, for the rest of its life. Has an effect only before the first
    /// reactor and the first master begin.
    pub fn turn_off(self) {
        OFF.fetch_or(self as u8, Ordering::Relaxed);
    }

    /// Whether it is on, which is the default.
    #[must_use]
    pub fn is_on(self) -> bool {
        OFF.load(Ordering::Relaxed) & self as u8 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_optimization_that_is_turned_off_leaves_the_others_on() {
        // The tests of this process use no return stack.
        assert!(Optimization::ALL.into_iter().all(Optimization::is_on));
        Optimization::ReturnStack.turn_off();
        for it in Optimization::ALL {
            assert_eq!(it.is_on(), it != Optimization::ReturnStack, "{}", it.name());
            assert_eq!(Optimization::of_name(it.name()), Some(it));
        }
        assert_eq!(Optimization::of_name("all"), None);
    }
}
