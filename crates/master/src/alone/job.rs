//! One segment's way through a recovery: fetched, looked through if it was open, replayed.

use super::copies::Copy;
use super::fetch::Fetch;
use super::scan::Scan;
use thunderhead_runtime::slice::Budget;
use thunderhead_wire::SegmentId;

/// What a step of looking through a segment takes.
const SCANNING: std::time::Duration = std::time::Duration::from_micros(10);

/// See the module's documentation.
pub(super) struct Job {
    pub(super) fetch: Fetch,
    /// The segment was open, so a copy may end in the midst of an entry.
    is_open: bool,
    scan: Scan,
    /// A copy that does, to be used if no other is intact; with its digest.
    torn: Option<(Vec<u8>, Option<Vec<SegmentId>>)>,
    /// The bytes are as good as they get.
    ready: bool,
    pub(super) digest: Option<Vec<SegmentId>>,
    /// Where the replay goes on.
    pub(super) at: u32,
}

impl Job {
    pub(super) fn new(segment: SegmentId, copies: Vec<Copy>) -> Job {
        let is_open = copies.iter().all(|copy| !copy.closed);
        Job {
            fetch: Fetch::new(segment, copies),
            is_open,
            scan: Scan::default(),
            torn: None,
            ready: false,
            digest: None,
            at: 0,
        }
    }

    /// Whether a copy may be used beside those that are known.
    pub(super) fn takes(&self, copy: &Copy) -> bool {
        self.is_open || copy.closed
    }

    /// Whether the bytes can be replayed.
    pub(super) fn is_ready(&self) -> bool {
        self.ready
    }

    /// Whether there is no copy that could be used.
    pub(super) fn is_lost(&self) -> bool {
        !self.ready && self.fetch.is_lost()
    }

    /// Whether damage at the end is what an open segment may have.
    pub(super) fn may_be_torn(&self) -> bool {
        self.is_open
    }

    /// Looks through what was fetched, as far as the budget goes; false when that is used up.
    pub(super) fn look(&mut self, budget: &mut Budget) -> bool {
        while !self.ready && self.fetch.is_whole() {
            if !self.is_open {
                self.ready = true;
                return true;
            }
            let more = self.scan.step(self.fetch.segment, &self.fetch.bytes);
            if !more {
                self.judge();
            }
            if !budget.spend(SCANNING) {
                return false;
            }
        }
        if !self.ready
            && self.fetch.is_lost()
            && let Some((bytes, digest)) = self.torn.take()
        {
            (self.fetch.bytes, self.digest, self.ready) = (bytes, digest, true);
        }
        true
    }

    fn judge(&mut self) {
        let scan = std::mem::take(&mut self.scan);
        match &scan.damage {
            None => (self.digest, self.ready) = (scan.digest, true),
            Some(damage) => {
                if scan.is_usable() && self.torn.is_none() {
                    self.torn = Some((std::mem::take(&mut self.fetch.bytes), scan.digest));
                }
                self.fetch.give_up_copy(damage.clone());
            }
        }
    }

    /// The copy turned out to be of no use.
    pub(super) fn give_up_copy(&mut self, why: String) {
        (self.ready, self.at) = (false, 0);
        self.fetch.give_up_copy(why);
    }
}
