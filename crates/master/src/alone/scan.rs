//! Looks through the bytes of a segment that was open, before anything of them is used: what its
//! last digest is, and whether it is intact but for its end.

use thunderhead_log::SegmentKind;
use thunderhead_log::inspect::{Entry, SegmentReader};
use thunderhead_wire::SegmentId;

/// Entries and bytes that one step looks at.
const ENTRIES: usize = 48;
const BYTES: usize = 32 << 10;

/// What was found so far.
#[derive(Default)]
pub(super) struct Scan {
    at: u32,
    /// The segments that the last digest names.
    pub(super) digest: Option<Vec<SegmentId>>,
    /// What is wrong, if something is.
    pub(super) damage: Option<String>,
    /// What is wrong is at the end, where the last bytes may be missing.
    pub(super) is_torn: bool,
}

impl Scan {
    /// Looks at some entries; false at the end.
    pub(super) fn step(&mut self, segment: SegmentId, bytes: &[u8]) -> bool {
        let mut reader = match SegmentReader::new(bytes) {
            Ok(reader) => reader,
            Err(damage) => {
                self.damage = Some(damage.to_string());
                return false;
            }
        };
        if reader.header().segment != segment {
            self.damage = Some(format!("it holds {}", reader.header().segment));
            return false;
        }
        let may_have_digest = reader.header().kind != SegmentKind::Survivor;
        reader.go_on_at(self.at);
        let enough = self.at as usize + BYTES;
        let mut count = 0;
        loop {
            let Some(entry) = reader.next() else { return false };
            // Something intact behind it: it was not the end.
            self.is_torn = false;
            match entry {
                Ok((_, Entry::Digest(digest))) if may_have_digest => self.digest = Some(digest),
                Ok(_) => {}
                Err(damage) => {
                    self.is_torn = self.damage.is_none()
                        && matches!(damage, thunderhead_log::Damage::Torn { .. });
                    self.damage.get_or_insert(damage.to_string());
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

    /// Whether the bytes may be used if no better copy is there.
    pub(super) fn is_usable(&self) -> bool {
        self.damage.is_none() || self.is_torn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thunderhead_log::{Log, LogId, Memory, Options, Recorder, TableId, TabletRange};

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
        for number in 0..200u64 {
            log.write(TableId(1), &number.to_be_bytes(), &[7; 100]).unwrap();
        }
        log.turn();
        let bytes = recorder.replicas(usize::MAX)[&SegmentId(1)].bytes.clone();
        let whole = scanned(1, &bytes);
        assert_eq!((whole.damage.clone(), whole.digest.clone()), (None, Some(vec![SegmentId(1)])));
        assert!(scanned(2, &bytes).damage.is_some(), "another segment than was asked for");
        assert!(scanned(1, &[]).damage.is_some());
        let torn = scanned(1, &bytes[..bytes.len() - 3]);
        assert!(torn.is_torn && torn.is_usable() && torn.digest == whole.digest);
        for at in [bytes.len() / 2, bytes.len() / 3] {
            let mut bad = bytes.clone();
            bad[at] ^= 4;
            let bad = scanned(1, &bad);
            assert!(!bad.is_usable() && bad.damage.is_some(), "{at}");
        }
    }
}
