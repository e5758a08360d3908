//! The servers that are suspected or were declared crashed. The module `probes` probes them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use thunderhead_runtime::Time;
use thunderhead_wire::{Generation, ServerId};

/// This leadership's knowledge about silent and crashed servers.
#[derive(Default)]
pub(crate) struct Watch {
    /// The servers that are being checked, with their generations.
    pub(crate) suspicions: RefCell<BTreeMap<ServerId, Generation>>,
    /// The servers that have just answered. They are not suspected until the given time.
    pub(crate) cleared: RefCell<BTreeMap<ServerId, (Generation, Time)>>,
    /// The verdicts to write.
    pub(crate) pending_verdicts: RefCell<Vec<PendingVerdict>>,
    /// The servers that were declared crashed, when, and why.
    pub(crate) verdicts: RefCell<BTreeMap<ServerId, (Generation, Time, String)>>,
    /// When the latest probe was sent that each server has answered.
    pub(crate) last_answered: RefCell<BTreeMap<ServerId, Time>>,
    /// The silent servers that are not declared crashed, with their generations, and why not.
    pub(crate) undecided: RefCell<BTreeMap<ServerId, (Generation, String)>>,
    /// The number of own probes without an answer.
    pub(crate) probes: Cell<usize>,
}

impl Watch {
    /// Drops all knowledge of a server that the cluster has forgotten.
    pub(crate) fn forget(&self, server: ServerId) {
        self.cleared.borrow_mut().remove(&server);
        self.verdicts.borrow_mut().remove(&server);
        self.last_answered.borrow_mut().remove(&server);
        self.undecided.borrow_mut().remove(&server);
    }
}

/// A verdict that is not written yet.
pub(crate) struct PendingVerdict {
    pub(crate) server: ServerId,
    pub(crate) generation: Generation,
    pub(crate) why: String,
    pub(crate) not_after: Time,
}
