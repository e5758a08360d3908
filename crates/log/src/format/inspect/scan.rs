//! Scans the bytes of an open segment before they are used.

use super::{Entry, SegmentReader};
use crate::error::Damage;
use crate::format::metadata::{SegmentKind, TabletStatistics};
use thunderhead_wire::SegmentId;

/// Entries and bytes that one step reads: some 10 µs.
const ENTRIES: usize = 48;
const BYTES: usize = 32 << 10;

/// The facts that a segment tells about its log, and whether the segment is intact except for its
/// end. A scan finds them step by step.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    at: u32,
    /// The segments that the last digest names.
    pub digest: Option<Vec<SegmentId>>,
    /// The contents of each tablet, from the last statistics entry.
    pub statistics: Vec<TabletStatistics>,
    /// The first damage, if there is any.
    pub damage: Option<Damage>,
    /// Whether that damage is at the end, where the last bytes may be missing.
    pub is_torn: bool,
}

impl Scan {
    /// Reads some entries. Give it the same bytes every time; false at the end.
    pub fn step(&mut self, segment: SegmentId, bytes: &[u8]) -> bool {
        let mut reader = match SegmentReader::of(segment, bytes) {
            Ok(reader) => reader,
            Err(damage) => {
                self.damage = Some(damage);
                return false;
            }
        };
        let may_have_digest = reader.header().kind != SegmentKind::Survivor;
        reader.go_on_at(self.at);
        let enough = self.at as usize + BYTES;
        let mut count = 0;
        loop {
            let Some(entry) = reader.next() else { return false };
            // An intact entry follows, so the damage was not at the end.
            self.is_torn = false;
            match entry {
                Ok((_, Entry::Digest(digest))) if may_have_digest => {
                    self.digest = Some(digest.segments);
                }
                Ok((_, Entry::Statistics(statistics))) => self.statistics = statistics,
                Ok(_) => {}
                Err(damage) => {
                    self.is_torn = self.damage.is_none() && matches!(damage, Damage::Torn { .. });
                    self.damage.get_or_insert(damage);
                }
            }
            count += 1;
            if let Some(at) = reader.place()
                && (count >= ENTRIES || at as usize >= enough)
            {
                self.at = at;
                return (at as usize) < bytes.len();
            }
        }
    }

    /// Whether the bytes may be used if there is no better copy.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.damage.is_none() || self.is_torn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Log, LogId, Memory, Options, Recorder, TableId, TabletRange};

    fn scanned(segment: u64, bytes: &[u8]) -> Scan {
        let mut scan = Scan::default();
        while scan.step(SegmentId(segment), bytes) {}
        scan
    }

    #[test]
    fn a_torn_end_is_told_from_damage() {
        let recorder = Recorder::new();
        let memory = Memory::with_seglets(1 << 20, 1024).unwrap();
        let options = Options { segment_bytes: 64 << 10, ..Options::default() };
        let mut log = Log::new(&memory, LogId(1), options, Box::new(recorder.clone())).unwrap();
        log.create_tablet(TabletRange::whole(TableId(1))).unwrap();
        for number in 0..700u64 {
            log.write(TableId(1), &number.to_be_bytes(), &[7; 100]).unwrap();
        }
        log.turn();
        let replicas = recorder.replicas(usize::MAX);
        let (id, bytes) = (2, &replicas[&SegmentId(2)].bytes);
        let whole = scanned(id, bytes);
        let digest = Some(vec![SegmentId(1), SegmentId(2)]);
        assert_eq!((whole.damage.clone(), whole.digest.clone()), (None, digest));
        assert_eq!(whole.statistics.len(), 1);
        assert_eq!(whole.statistics[0].tablet, TabletRange::whole(TableId(1)));
        assert!(whole.statistics[0].objects > 100);
        assert!(scanned(3, bytes).damage.is_some(), "the bytes are of another segment");
        assert!(scanned(id, &[]).damage.is_some());
        let torn = scanned(id, &bytes[..bytes.len() - 3]);
        assert!(torn.is_torn && torn.is_usable() && torn.digest == whole.digest);
        for at in [bytes.len() / 2, bytes.len() / 3] {
            let mut bad = bytes.clone();
            bad[at] ^= 4;
            let bad = scanned(id, &bad);
            assert!(!bad.is_usable() && bad.damage.is_some(), "{at}");
        }
    }
}
