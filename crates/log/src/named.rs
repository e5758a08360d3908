//! Which segments the entries of one segment name as those of what they guard against.
//!
//! A segment in which nothing lives may leave the log without a look at its entries, if there is nothing left that
//! they could guard against ([`design::tombstones`](crate::design::tombstones)). So for each segment the lowest and
//! the highest id is kept that is named in it, but for those that were gone when a cleaner made it: too many ids may
//! lie between, never too few. Most entries name what is older than they are; a head also names survivors that were
//! made while it was open, and these have higher ids.

use thunderhead_wire::SegmentId;

/// The ids between the lowest and the highest, both included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    lowest: u64,
    highest: u64,
}

impl Default for Named {
    /// None.
    fn default() -> Self {
        Named { lowest: u64::MAX, highest: 0 }
    }
}

impl Named {
    /// Nobody knows which.
    pub(crate) const ANY: Named = Named { lowest: 0, highest: u64::MAX };

    /// Takes in what an entry names.
    #[inline]
    pub(crate) fn add(&mut self, prior: Option<SegmentId>) {
        if let Some(SegmentId(prior)) = prior {
            self.lowest = self.lowest.min(prior);
            self.highest = self.highest.max(prior);
        }
    }

    /// The lowest and the highest, if any is named.
    pub(crate) fn span(self) -> Option<(u64, u64)> {
        (self.lowest <= self.highest).then_some((self.lowest, self.highest))
    }
}
