//! The bodies of the entries that describe the log itself: segment header, digest, safe version and
//! tablet statistics. They are small, rare, and read at recovery, so encoding and decoding are
//! plain.

use super::entry::{self, FORMAT_VERSION, Kind, Seal};
use super::unnamed_survivors::UnnamedSurvivors;
use super::varint::{self, Reader};
use crate::error::Damage;
use thunderhead_wire::{KeyHash, LogId, SegmentId, TableId, TabletRange, Timestamp, Version};

/// The first bytes of a segment header's body: they tell a segment from other bytes.
const MAGIC: [u8; 4] = *b"THLG";

/// The kind of a segment, as its header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SegmentKind {
    /// Takes new entries until it is full; begins with a digest.
    Head = 1,
    /// Written by combined cleaning; has no digest.
    Survivor = 2,
    /// A head that holds a digest and nothing else, for when memory is exhausted.
    EmergencyHead = 3,
}

/// The first entry of every segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The log that wrote the segment.
    pub log: LogId,
    /// The segment's id in that log.
    pub segment: SegmentId,
    /// Bytes of a full segment of that log.
    pub segment_bytes: u32,
    /// Bytes of a seglet: small entries never cross a multiple of it.
    pub seglet_bytes: u32,
    /// The kind of the segment.
    pub kind: SegmentKind,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = MAGIC.to_vec();
        body.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        // No incompatible features yet: a reader refuses any bit that it does not know.
        body.extend_from_slice(&0u32.to_le_bytes());
        body.extend_from_slice(&self.log.0.to_le_bytes());
        body.extend_from_slice(&self.segment.0.to_le_bytes());
        body.extend_from_slice(&self.segment_bytes.to_le_bytes());
        body.extend_from_slice(&self.seglet_bytes.to_le_bytes());
        body.push(self.kind as u8);
        body
    }

    /// Decodes a body. A newer format is refused before any other field is believed; bytes after
    /// the known fields are skipped, so that a header can grow.
    pub(crate) fn decode(body: &[u8]) -> Result<SegmentHeader, Damage> {
        let mut reader = Reader::new(body);
        if reader.take(4) != Some(&MAGIC) {
            return Err(Damage::NoHeader);
        }
        let version = reader.u16().ok_or(Damage::NoHeader)?;
        let features = reader.u32().ok_or(Damage::NoHeader)?;
        if version > FORMAT_VERSION || features != 0 {
            return Err(Damage::UnknownFormat { version, features, known: FORMAT_VERSION });
        }
        SegmentHeader::decode_fields(&mut reader).ok_or(Damage::NoHeader)
    }

    fn decode_fields(reader: &mut Reader<'_>) -> Option<SegmentHeader> {
        let log = LogId(reader.u64()?);
        let segment = SegmentId(reader.u64()?);
        let segment_bytes = reader.u32()?;
        let seglet_bytes = reader.u32()?;
        let kind = match reader.u8()? {
            1 => SegmentKind::Head,
            2 => SegmentKind::Survivor,
            3 => SegmentKind::EmergencyHead,
            _ => return None,
        };
        let sensible = segment != SegmentId::NONE
            && seglet_bytes.is_power_of_two()
            && seglet_bytes >= 1024
            && segment_bytes >= seglet_bytes;
        sensible.then_some(SegmentHeader { log, segment, segment_bytes, seglet_bytes, kind })
    }
}

/// The segments that make up a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// The ids of its segments, ascending.
    pub segments: Vec<SegmentId>,
    /// The other ids among which there may be survivors that no digest has named.
    pub unnamed: UnnamedSurvivors,
}

pub(crate) fn encode_digest(
    segments: impl ExactSizeIterator<Item = SegmentId>,
    unnamed: &UnnamedSurvivors,
) -> Vec<u8> {
    let mut body = Vec::with_capacity(16 + 2 * segments.len());
    push(&mut body, segments.len() as u64);
    let mut previous = 0;
    for segment in segments {
        push(&mut body, segment.0 - previous);
        previous = segment.0;
    }
    push(&mut body, unnamed.ranges().len() as u64);
    let mut previous = 0;
    for range in unnamed.ranges() {
        push(&mut body, range.start - previous);
        push(&mut body, range.end - range.start);
        previous = range.end;
    }
    body
}

/// A digest that names no segment, as an entry of a log: for replays, which are given the segments.
pub(crate) fn digest_of_none(log: LogId, unnamed: &UnnamedSurvivors) -> Vec<u8> {
    let body = encode_digest([].into_iter(), unnamed);
    let mut header = entry::plain(Kind::Digest, body.len());
    let pieces = [header.sealed(), &body];
    let checksum = Seal::new(log).of_pieces(header.flags(), pieces.into_iter());
    header.set_checksum(checksum);
    [header.as_bytes(), &body].concat()
}

pub(crate) fn decode_digest(body: &[u8]) -> Option<Digest> {
    let mut reader = Reader::new(body);
    let count = reader.varint()?;
    // Every id takes at least a byte, so the body's own length bounds the allocation.
    if count > body.len() as u64 {
        return None;
    }
    let mut segments = Vec::with_capacity(count as usize);
    let mut previous = 0u64;
    for _ in 0..count {
        let difference = reader.varint()?;
        previous = previous.checked_add(difference)?;
        if difference == 0 {
            return None;
        }
        segments.push(SegmentId(previous));
    }
    // Earlier builds wrote nothing about survivors that no digest names: any id may be one.
    if reader.position() == body.len() {
        return Some(Digest { segments, unnamed: UnnamedSurvivors::from_on(0) });
    }
    let count = reader.varint()?;
    let (mut unnamed, mut previous) = (UnnamedSurvivors::default(), 0u64);
    for _ in 0..count {
        let start = previous.checked_add(reader.varint()?)?;
        previous = start.checked_add(reader.varint()?)?;
        unnamed.add(start..previous);
    }
    Some(Digest { segments, unnamed })
}

pub(crate) fn encode_safe_version(version: Version) -> Vec<u8> {
    let mut body = Vec::new();
    push(&mut body, version.0);
    body
}

pub(crate) fn decode_safe_version(body: &[u8]) -> Option<Version> {
    Reader::new(body).varint().map(Version)
}

pub(crate) fn encode_clock_mark(time: Timestamp) -> Vec<u8> {
    let mut body = Vec::new();
    push(&mut body, time.0);
    body
}

/// The same for a mark that ends a chain: with the number of entries before it that are linked.
pub(crate) fn encode_chain_end(time: Timestamp, entries: u64) -> Vec<u8> {
    let mut body = encode_clock_mark(time);
    push(&mut body, entries);
    body
}

/// Returns the time, and the number of entries of the chain that the mark ends, if it ends one.
pub(crate) fn decode_clock_mark(body: &[u8], ends_chain: bool) -> Option<(Timestamp, Option<u64>)> {
    let mut reader = Reader::new(body);
    let time = reader.varint().map(Timestamp).filter(|time| *time <= Timestamp::LATEST)?;
    let entries = if ends_chain { Some(reader.varint()?) } else { None };
    Some((time, entries))
}

/// The contents of one tablet when a head was opened. A recovery divides the work by these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TabletStatistics {
    /// The tablet.
    pub tablet: TabletRange,
    /// Live objects.
    pub objects: u64,
    /// Bytes of their log entries.
    pub bytes: u64,
}

/// Encodes as many tablets as fit into `limit` bytes, the largest first when not all do: a recovery
/// treats missing tablets as small.
pub(crate) fn encode_statistics(mut tablets: Vec<TabletStatistics>, limit: usize) -> Vec<u8> {
    let most = 20 + 20 + 16;
    if tablets.len() * most > limit {
        tablets.sort_by_key(|tablet| std::cmp::Reverse(tablet.bytes));
        tablets.truncate(limit / most);
    }
    let mut body = Vec::new();
    push(&mut body, tablets.len() as u64);
    for statistics in tablets {
        push(&mut body, statistics.tablet.table.0);
        body.extend_from_slice(&statistics.tablet.first.0.to_le_bytes());
        body.extend_from_slice(&statistics.tablet.last.0.to_le_bytes());
        push(&mut body, statistics.objects);
        push(&mut body, statistics.bytes);
    }
    body
}

pub(crate) fn decode_statistics(body: &[u8]) -> Option<Vec<TabletStatistics>> {
    let mut reader = Reader::new(body);
    let count = reader.varint()?;
    if count > body.len() as u64 {
        return None;
    }
    let mut tablets = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let table = TableId(reader.varint()?);
        let (first, last) = (KeyHash(reader.u64()?), KeyHash(reader.u64()?));
        let (objects, bytes) = (reader.varint()?, reader.varint()?);
        tablets.push(TabletStatistics {
            tablet: TabletRange { table, first, last },
            objects,
            bytes,
        });
    }
    Some(tablets)
}

fn push(body: &mut Vec<u8>, value: u64) {
    let mut bytes = [0; 10];
    let length = varint::write(&mut bytes, value);
    body.extend_from_slice(&bytes[..length]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_segment_header_are_pinned() {
        let header = SegmentHeader {
            log: LogId(1),
            segment: SegmentId(2),
            segment_bytes: 8 << 20,
            seglet_bytes: 64 << 10,
            kind: SegmentKind::Survivor,
        };
        let body = header.encode();
        let hex: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = concat!(
            "54484c47",
            "0300",
            "00000000",
            "0100000000000000",
            "0200000000000000",
            "00008000",
            "00000100",
            "02"
        );
        assert_eq!(hex, expected);
        assert_eq!(SegmentHeader::decode(&body), Ok(header));
    }

    #[test]
    fn a_header_of_a_newer_format_or_with_unknown_features_is_refused_by_name() {
        let header = SegmentHeader {
            log: LogId(1),
            segment: SegmentId(2),
            segment_bytes: 4096,
            seglet_bytes: 1024,
            kind: SegmentKind::Head,
        };
        for at in [4, 6] {
            let mut body = header.encode();
            body[at] += 1;
            assert!(matches!(SegmentHeader::decode(&body), Err(Damage::UnknownFormat { .. })));
        }
        for length in 0..header.encode().len() {
            assert!(SegmentHeader::decode(&header.encode()[..length]).is_err());
        }
    }

    #[test]
    fn a_digest_reads_back_and_a_false_count_allocates_nothing() {
        let ids = [3u64, 4, 900, u64::MAX].map(SegmentId);
        let mut unnamed = UnnamedSurvivors::from_on(1 << 40);
        unnamed.add(7..9);
        let body = encode_digest(ids.into_iter(), &unnamed);
        let digest = Digest { segments: ids.to_vec(), unnamed };
        assert_eq!(decode_digest(&body), Some(digest));
        assert_eq!(decode_digest(&[0xff, 0xff, 0xff, 0xff, 0x7f, 1]), None);
        assert_eq!(decode_digest(&[2, 5, 0]), None, "ids ascend");
        assert_eq!(
            decode_digest(&[1, 5, 0xff, 0xff, 0xff, 0xff, 0x7f, 1]),
            None,
            "the ranges are missing"
        );
        let beyond = [vec![0, 1], vec![0xff; 9], vec![1, 1]].concat();
        assert_eq!(decode_digest(&beyond), None, "an id overflows");
        assert_eq!(decode_digest(&[1, 5, 0x80]), None, "a number is cut off");
    }

    #[test]
    fn in_a_log_of_an_earlier_build_survivors_may_be_anywhere() {
        let digest = decode_digest(&[1, 5]).unwrap();
        assert_eq!(digest.segments, [SegmentId(5)]);
        assert!(digest.unnamed.contains(0) && digest.unnamed.contains(1 << 50));
    }

    #[test]
    fn statistics_that_do_not_all_fit_keep_the_largest_tablets() {
        let tablets: Vec<_> = (0..100)
            .map(|n| TabletStatistics {
                tablet: TabletRange::whole(TableId(n)),
                objects: n,
                bytes: n * 100,
            })
            .collect();
        let body = encode_statistics(tablets.clone(), 600);
        assert!(body.len() <= 600);
        let kept = decode_statistics(&body).unwrap();
        assert_eq!(kept.first().unwrap().bytes, 9900);
        assert_eq!(decode_statistics(&encode_statistics(tablets.clone(), 1 << 20)), Some(tablets));
    }
}
