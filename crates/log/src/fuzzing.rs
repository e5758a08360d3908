//! Entry points for the fuzz targets. They take any bytes and must never panic.

use crate::entry::{CompletionFields, Frame, ObjectFields};
use crate::inspect::SegmentReader;
use crate::metadata;

/// Decodes bytes as an entry and as each kind of body.
pub fn entry(data: &[u8]) {
    if let Ok(frame) = Frame::decode(data, 0) {
        let _ = frame.entry_bytes();
    }
    let Some((flags, body)) = data.split_first() else { return };
    let _ = ObjectFields::read_keyed(*flags, body);
    let _ = CompletionFields::read(body);
    let _ = metadata::SegmentHeader::decode(body);
    let _ = metadata::decode_digest(body);
    let _ = metadata::decode_safe_version(body);
    let _ = metadata::decode_statistics(body);
}

/// Reads bytes as a segment: as they are, and behind an intact header, so that the fuzzer need
/// not find a checksum before it gets anywhere.
pub fn segment(data: &[u8]) {
    if let Ok(reader) = SegmentReader::new(data) {
        walk(reader, data.len());
    }
    let with_header = crate::testing::segment_with(data);
    if let Ok(reader) = SegmentReader::new(&with_header) {
        walk(reader, with_header.len());
    }
}

fn walk(reader: SegmentReader<'_>, length: usize) {
    // Each item takes at least a byte, so more items than bytes would be an endless loop.
    assert!(reader.count() <= length, "reading always moves on");
}
