//! A recovery of a log from its replicas, in the simplest way, for tests.

use std::collections::{BTreeMap, BTreeSet};
use thunderhead_log::inspect::{Entry, SegmentReader};
use thunderhead_log::{
    Log, LogId, Memory, NoReplication, Options, Replay, SegmentId, SegmentKind, TableId,
    TabletRange,
};
use thunderhead_master::replication::MESSAGE_BYTES;
use thunderhead_runtime::Random;
use thunderhead_wire::Epoch;

pub(crate) const TABLE: TableId = TableId(1);

/// A replica on some backup.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) segment: SegmentId,
    pub(crate) epoch: Epoch,
    pub(crate) closed: bool,
    pub(crate) bytes: Vec<u8>,
}

/// Returns the segment's kind, and the ids in its last digest.
fn digest(bytes: &[u8]) -> Option<(SegmentKind, Vec<SegmentId>)> {
    let reader = SegmentReader::new(bytes).ok()?;
    let kind = reader.header().kind;
    let mut last = None;
    for entry in reader {
        match entry {
            Ok((_, Entry::Digest(ids))) => last = Some(ids.segments),
            Ok(_) => {}
            Err(_) => break,
        }
    }
    Some((kind, last?))
}

fn counts(found: &Found, epochs: &BTreeMap<SegmentId, Epoch>) -> bool {
    found.closed || found.epoch >= epochs.get(&found.segment).copied().unwrap_or_default()
}

/// Returns the open heads with more than the entries with which every head begins. There is never
/// more than one.
pub(crate) fn open_with_data(
    found: &[Found],
    epochs: &BTreeMap<SegmentId, Epoch>,
) -> BTreeSet<SegmentId> {
    let has_data = |bytes: &[u8]| {
        let Ok(reader) = SegmentReader::new(bytes) else { return false };
        let is_head = reader.header().kind != SegmentKind::Survivor;
        is_head
            && reader
                .map_while(Result::ok)
                .any(|(_, entry)| matches!(entry, Entry::Object(_) | Entry::Tombstone(_)))
    };
    let open = found.iter().filter(|it| !it.closed && counts(it, epochs));
    open.filter(|it| has_data(&it.bytes)).map(|it| it.segment).collect()
}

/// Returns the segments that make up the log, or the reason why they do not.
pub(crate) fn choose(
    found: &[Found],
    epochs: &BTreeMap<SegmentId, Epoch>,
) -> Result<Vec<Found>, String> {
    let of_survivor = |it: &&Found| {
        let reader = SegmentReader::new(&it.bytes);
        !it.closed && reader.is_ok_and(|it| it.header().kind == SegmentKind::Survivor)
    };
    if let Some(open) = found.iter().find(of_survivor) {
        panic!("a replica of survivor {} is offered though it is open", open.segment);
    }
    let counts = |it: &&Found| counts(it, epochs);
    let mut heads: Vec<(&Found, Vec<SegmentId>)> = found
        .iter()
        .filter(|it| !it.closed)
        .filter(counts)
        .filter_map(|it| match digest(&it.bytes)? {
            (SegmentKind::Survivor, _) => None,
            (_, ids) => Some((it, ids)),
        })
        .collect();
    heads.sort_by_key(|(it, _)| (it.segment, it.bytes.len()));
    let (head, ids) = heads.pop().ok_or("no open head with a digest")?;
    let mut log = Vec::new();
    for id in ids {
        if id == head.segment {
            log.push(head.clone());
            continue;
        }
        let of_it = || found.iter().filter(|it| it.segment == id).filter(counts);
        let closed = of_it().find(|it| it.closed);
        // If the previous head was not closed yet, this one has no data.
        let open = of_it()
            .filter(|it| digest(&it.bytes).is_some_and(|(kind, _)| kind != SegmentKind::Survivor))
            .max_by_key(|it| it.bytes.len());
        let best = closed.or(open).ok_or_else(|| format!("{id} is missing"))?;
        log.push(best.clone());
    }
    Ok(log)
}

pub(crate) fn options() -> Options {
    Options { segment_bytes: 32 << 10, ..Options::default() }
}

/// Rebuilds the log from its segments.
pub(crate) fn rebuild(segments: &[Found]) -> Log {
    let memory = Memory::with_seglets(6 << 20, 4096).unwrap();
    let mut log =
        Log::new(&memory, LogId(77), options(), Box::new(NoReplication::default())).unwrap();
    let mut replay = Replay::new(&mut log, [(TabletRange::whole(TABLE), SegmentId::NONE)]).unwrap();
    for segment in segments {
        replay.segment(&segment.bytes).unwrap();
    }
    replay.finish().unwrap();
    log
}

/// Draws the longest message: half of the time far shorter than a segment.
pub(crate) fn drawn_message_bytes(random: &mut Random) -> u32 {
    if random.chance(0.5) { MESSAGE_BYTES } else { random.magnitude(1 << 10..32 << 10) as u32 }
}
