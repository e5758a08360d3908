//! Entry points for the fuzz targets. They take any bytes and must never panic.

use super::entry::{CompletionFields, Frame, ObjectFields};
use super::filter::{Filter, Partitions};
use super::inspect::{Scan, SegmentReader};
use super::metadata;
use super::outcomes::Outcomes;
use thunderhead_wire::{KeyHash, SegmentId, TableId, TabletRange};

/// Decodes bytes as an entry and as each kind of body.
pub fn entry(data: &[u8]) {
    if let Ok(frame) = Frame::decode(data, 0) {
        let _ = frame.entry_bytes();
    }
    let Some((flags, body)) = data.split_first() else { return };
    let _ = ObjectFields::read_keyed(*flags, body);
    let _ = CompletionFields::read(body);
    let _ = Outcomes::read(body).map(|(_, outcomes)| outcomes.count());
    let _ = metadata::SegmentHeader::decode(body);
    let _ = metadata::decode_digest(body);
    let _ = metadata::decode_safe_version(body);
    let _ = metadata::decode_clock_mark(body, true);
    let _ = metadata::decode_statistics(body);
}

/// Reads bytes as a segment: as they are, and behind an intact header, so that the fuzzer need not
/// find a checksum first.
pub fn segment(data: &[u8]) {
    if let Ok(reader) = SegmentReader::new(data) {
        look_and_cut(reader.header().segment, data);
        walk(reader, data.len());
    }
    let with_header = crate::format::testing::segment_with(data);
    if let Ok(reader) = SegmentReader::new(&with_header) {
        look_and_cut(reader.header().segment, &with_header);
        walk(reader, with_header.len());
    }
}

fn walk(reader: SegmentReader<'_>, length: usize) {
    // Each item takes at least a byte, so more items than bytes would be an endless loop.
    assert!(reader.count() <= length, "reading always moves on");
}

/// Checks that the parts of a segment are segments without damage.
fn look_and_cut(segment: SegmentId, bytes: &[u8]) {
    let mut scan = Scan::default();
    while scan.step(segment, bytes) {}
    let half = |first, last| TabletRange { table: TableId(1), first, last };
    let middle = KeyHash(u64::MAX / 2);
    let partitions = [half(KeyHash::MIN, middle), half(KeyHash(middle.0 + 1), KeyHash::MAX)];
    let tablets = partitions.map(|range| vec![(range, SegmentId(1))]);
    let Some(partitions) = Partitions::new(&tablets) else { return };
    let mut filter = Filter::new(segment, &partitions, None);
    loop {
        match filter.step(&partitions, bytes, 3, 100) {
            Ok(progress) if progress.more => {}
            Ok(_) => break,
            Err(_) => return,
        }
    }
    assert!(scan.is_usable(), "a damaged segment is refused");
    for part in filter.finish().parts {
        let part = part.to_vec();
        let reader = SegmentReader::of(segment, &part);
        assert!(reader.is_ok_and(|mut it| it.all(|entry| entry.is_ok())), "parts are whole");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_targets_do_not_panic_on_simple_bytes() {
        for data in [vec![], vec![0; 5000], vec![1; 900], vec![0x41; 77], vec![8, 0, 0, 0, 0, 0]] {
            super::segment(&data);
            super::entry(&data);
        }
    }
}
