//! The replicas that backups still have of logs that were taken back. The module
//! `recoveries::inherited` says which of them are needed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_runtime::Time;
use thunderhead_wire::{MasterId, SegmentId, ServerId};

/// How often a shard is asked, and how often a shard that has not finished taking back.
const ASK_EVERY: Duration = Duration::from_secs(30);
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// The inherited replicas of former masters.
#[derive(Default)]
pub(crate) struct InheritedReplicas(pub(crate) RefCell<BTreeMap<MasterId, InheritedLog>>);

/// The inherited replicas of one former master.
pub(crate) struct InheritedLog {
    pub(crate) heir: MasterId,
    pub(crate) asked: Time,
    /// The segments that the heir still has, once it reports them.
    pub(crate) keep: Option<Rc<Vec<SegmentId>>>,
    /// The number of replicas that each backup still had when it was told.
    pub(crate) left: BTreeMap<ServerId, u64>,
}

impl InheritedLog {
    /// Returns when the heir is asked again.
    pub(crate) fn ask_at(&self) -> Time {
        self.asked + if self.keep.is_some() { ASK_EVERY } else { ASK_AGAIN }
    }
}
