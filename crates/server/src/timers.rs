//! The numbers of a server's own timers. One table, because a timer with the number of another one is taken
//! for that: the compiler refuses two numbers that are equal.
//!
//! All components of a node share its timers. Each has a range of numbers:
//!
//! ```text
//!  1 << 32  master      2 << 32  backup      3 << 32  server      4 << 32  coordinator
//! ```

/// A timer of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Timer {
    /// Questions of the server are repeated.
    AskAgain = 3 << 32,
    /// Leaving waits no longer for answers.
    Leave,
    /// Leaving waits no longer for the disk.
    Flushed,
    /// The next probe is due.
    Probe,
    /// Questions of the probes are repeated.
    ProbeAskAgain,
}

impl Timer {
    pub(crate) const fn number(self) -> u64 {
        self as u64
    }
}
