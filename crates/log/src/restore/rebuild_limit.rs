//! The lower limit of frames during a rebuild: see [`frames`](crate::append::frames).

use crate::append::shared::Shared;
use std::sync::Arc;

/// Lowers the limit of frames as long as it exists, because tablets are being rebuilt.
pub(crate) struct RebuildLimit(Arc<Shared>);

impl RebuildLimit {
    pub(crate) fn begin(shared: &Arc<Shared>) -> RebuildLimit {
        shared.frames.rebuild_begins();
        RebuildLimit(Arc::clone(shared))
    }
}

impl Drop for RebuildLimit {
    fn drop(&mut self) {
        self.0.frames.rebuild_ends();
    }
}
