//! What a step of a cleaner is at, for who measures where its time goes.
//!
//! The log reads no clock: it runs in a simulator too. Who watches a step does, whenever it is told
//! that a phase begins.

/// What a step of a [`Cleaner`](crate::Cleaner) does from now on; see
/// [`Cleaner::step_watched`](crate::Cleaner::step_watched).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It frees what it may free of earlier work, looks at what is due, and picks among the candidates.
    Picking,
    /// It looks through a segment to learn what is dead in it.
    Looking,
    /// It takes memory to copy to.
    TakingMemory,
    /// It reads the heads of entries, and copies those that live.
    Copying,
    /// It tells the index where a batch of entries is now.
    Telling {
        /// So many they are.
        entries: usize,
    },
    /// It puts what it wrote into order, counts it and hands it on.
    HandingOn,
}

/// Who is told.
pub(super) type Watch<'a> = dyn FnMut(Phase) + 'a;
