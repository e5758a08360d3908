//! The digest from which a recovery starts.

use std::collections::BTreeMap;
use thunderhead_log::inspect::{Entry, SegmentReader};
use thunderhead_log::{Replica, SegmentId, SegmentKind};

/// The segments that a recovery would replay: the newest digest on an open head names them.
pub(crate) fn newest(replicas: &BTreeMap<SegmentId, Replica>) -> Option<Vec<SegmentId>> {
    let heads = replicas.values().rev();
    let mut heads = heads.filter(|it| it.open && it.kind != SegmentKind::Survivor);
    heads.find_map(|head| {
        let entries = SegmentReader::new(&head.bytes).ok()?;
        let digests = entries.filter_map(|entry| match entry {
            Ok((_, Entry::Digest(digest))) => Some(digest.segments),
            _ => None,
        });
        digests.last()
    })
}
