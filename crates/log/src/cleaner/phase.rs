//! The phases of a cleaner's step, for measurements of where its time goes.
//!
//! The log reads no clock, because it also runs in a simulator. A program that watches a step reads
//! its own clock whenever it is told that a phase begins.

/// The work that a step of a [`Cleaner`](crate::Cleaner) does from now on; see
/// [`Cleaner::step_watched`](crate::Cleaner::step_watched).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Frees the memory of earlier work if it may, checks which cleaning is due, and picks
    /// candidates.
    Picking,
    /// Scans a segment for useless entries.
    Looking,
    /// Takes memory to copy to.
    TakingMemory,
    /// Reads the headers of entries, and copies the live ones.
    Copying,
    /// Updates the index for a batch of entries.
    Telling {
        /// The number of entries in the batch.
        entries: usize,
    },
    /// Completes the output, counts it and hands it on.
    HandingOn,
}

/// Called when a phase begins.
pub(super) type Watch<'a> = dyn FnMut(Phase) + 'a;
