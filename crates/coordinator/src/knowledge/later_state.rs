//! The latest state of the cluster that servers know. The module `later_state` compares it with the
//! recorded one.

use crate::waiting::Signal;
use std::cell::Cell;
use thunderhead_wire::{MasterId, ServerId};

/// The latest state of the cluster that servers know.
#[derive(Default)]
pub(crate) struct LaterState {
    /// The highest number of a leadership that a server follows.
    pub(crate) followed: Cell<u64>,
    /// The highest ids of a master and of a server that a server knows.
    pub(crate) named: Cell<(MasterId, ServerId)>,
    /// Raised when a server knows a later state of the cluster than this leader.
    pub(crate) is_refused: Signal,
}

impl LaterState {
    /// Notes that a server follows a leadership later than this one.
    pub(crate) fn note_leadership(&self, number: u64) {
        self.followed.set(self.followed.get().max(number));
        self.is_refused.raise();
    }
}
