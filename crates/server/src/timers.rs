//! The numbers of a server's own timers. They are in one table, because a timer is known only by
//! its number: the compiler refuses two equal numbers.
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
    /// Requests of the server to the coordinator are repeated.
    AskAgain = 3 << 32,
    /// Leaving stops waiting for answers.
    Leave,
    /// Leaving stops waiting for the disk.
    Flushed,
    /// The next probe is due.
    Probe,
    /// Requests of the probes to the coordinator are repeated.
    ProbeAskAgain,
}

impl Timer {
    pub(crate) const fn number(self) -> u64 {
        self as u64
    }
}
