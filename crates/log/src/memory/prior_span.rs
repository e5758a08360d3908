//! The span of segment ids that the entries of one segment name as those of dead versions.
//!
//! A segment without live entries may leave the log unread if there is nothing left that its
//! entries could guard against ([`design::tombstones`](crate::design::tombstones)). So each segment
//! keeps the lowest and the highest id that its entries name, without ids that had left the log
//! when a cleaner made the segment. Too many ids may lie between the two, never too few. Most
//! entries name segments older than their own. A head also names survivors that were made while it
//! was open, and these have higher ids.

use thunderhead_wire::SegmentId;

/// The ids between the lowest and the highest, both included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PriorSpan {
    lowest: u64,
    highest: u64,
}

impl Default for PriorSpan {
    /// No id.
    fn default() -> Self {
        PriorSpan { lowest: u64::MAX, highest: 0 }
    }
}

impl PriorSpan {
    /// All ids, for a segment whose entries were not looked at.
    pub(crate) const ANY: PriorSpan = PriorSpan { lowest: 0, highest: u64::MAX };

    /// Adds the segment that an entry names.
    #[inline]
    pub(crate) fn add(&mut self, prior: Option<SegmentId>) {
        if let Some(SegmentId(prior)) = prior {
            self.lowest = self.lowest.min(prior);
            self.highest = self.highest.max(prior);
        }
    }

    /// The lowest and the highest id, if an entry names any.
    pub(crate) fn bounds(self) -> Option<(u64, u64)> {
        (self.lowest <= self.highest).then_some((self.lowest, self.highest))
    }
}
