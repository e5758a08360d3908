//! Bytes for tests and fuzz targets: segments made by hand.

use super::entry::{self, FORMAT_VERSION, Kind, Seal};
use super::metadata::{SegmentHeader, SegmentKind};
use thunderhead_wire::{LogId, SegmentId};

/// The log of hand-made segments.
pub(crate) const LOG: LogId = LogId(0x7468_756e_6465_7221);

/// A segment that begins with an intact header, followed by any bytes.
pub(crate) fn segment_with(bytes: &[u8]) -> Vec<u8> {
    debug_assert_eq!(FORMAT_VERSION, 3);
    let body = SegmentHeader {
        log: LOG,
        segment: SegmentId(1),
        segment_bytes: 1 << 20,
        seglet_bytes: 1 << 12,
        kind: SegmentKind::Head,
    }
    .encode();
    let mut header = entry::plain(Kind::SegmentHeader, body.len());
    let pieces = [header.sealed(), &body];
    let checksum = Seal::new(LOG).of_pieces(header.flags(), pieces.into_iter());
    header.set_checksum(checksum);
    let mut segment = header.as_bytes().to_vec();
    segment.extend_from_slice(&body);
    segment.extend_from_slice(bytes);
    segment
}
