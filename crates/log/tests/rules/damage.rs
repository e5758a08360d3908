//! Damaged segments: torn ends, flipped bits, values that look like entries, and entries of newer
//! kinds.

use crate::{TABLE, keys, log_of, log_with_table, nothing, options, replay, segments};
use thunderhead_log::inspect::{Entry, SegmentReader};
use thunderhead_log::{Damage, Recorder, Replay, ReplayError, SegmentId, TabletRange};

#[test]
fn a_torn_segment_gives_all_entries_before_the_tear() {
    let recorder = Recorder::new();
    let mut log = log_with_table(1, Box::new(recorder.clone()));
    let mut ends = Vec::new();
    for number in 0..20u32 {
        log.write(TABLE, &number.to_be_bytes(), &[9; 50]).unwrap();
        ends.push(log.appended().offset as usize);
    }
    log.turn();
    let whole = segments(&recorder).pop().unwrap();
    for length in ends[0]..=whole.len() {
        let (rebuilt, report) = replay(&[whole[..length].to_vec()], SegmentId::NONE);
        let expected = ends.iter().filter(|end| **end <= length).count();
        assert_eq!(keys(&rebuilt, TabletRange::whole(TABLE)).len(), expected, "{length}");
        // Behind the last whole entry there may be a filling; it is no loss.
        let last = ends[..expected].last().copied().unwrap_or(ends[0] - 66);
        let torn = whole[last.min(length)..length].iter().any(|byte| *byte != 0);
        assert_eq!(report.damage.is_empty(), !torn, "{length} {report:?}");
    }
}

#[test]
fn one_flipped_bit_costs_at_most_a_seglet_and_adds_no_object() {
    let recorder = Recorder::new();
    let mut log = log_with_table(1, Box::new(recorder.clone()));
    for number in 0..100u32 {
        log.write(TABLE, &number.to_be_bytes(), &number.to_le_bytes()).unwrap();
    }
    log.turn();
    let truth = keys(&log, TabletRange::whole(TABLE));
    let whole = segments(&recorder).pop().unwrap();
    for at in 0..whole.len() {
        for bit in [0, 3, 6] {
            let mut bad = whole.clone();
            bad[at] ^= 1 << bit;
            let mut log = log_of(4, 1 << 20, options(), nothing());
            let range = TabletRange::whole(TABLE);
            let mut replay = Replay::new(&mut log, [(range, SegmentId::NONE)]).unwrap();
            match replay.segment(&bad) {
                Err(ReplayError::Damaged(_)) => continue, // The header: use another replica.
                result => result.unwrap(),
            }
            let report = replay.finish().unwrap();
            assert_eq!(report.damage.len(), 1, "byte {at} bit {bit}: {report:?}");
            let found = keys(&log, range);
            assert!(found.iter().all(|(key, value)| truth.get(key) == Some(value)));
            assert!(found.len() + 1024 / 18 >= truth.len(), "byte {at}: {}", found.len());
        }
    }
}

#[test]
fn bytes_in_a_value_never_pass_for_an_entry() {
    // A client that knows the format stores a whole segment's bytes, headers and all, as a value.
    let recorder = Recorder::new();
    let mut log = log_with_table(1, Box::new(recorder.clone()));
    for number in 0..40u32 {
        log.write(TABLE, &number.to_be_bytes(), b"stolen").unwrap();
    }
    log.turn();
    let bait = segments(&recorder).pop().unwrap()[..800].to_vec();
    let recorder = Recorder::new();
    let mut log = log_with_table(77, Box::new(recorder.clone()));
    log.write(TABLE, b"bait", &bait).unwrap();
    log.turn();
    let whole = segments(&recorder).pop().unwrap();
    for at in 0..whole.len() {
        let mut bad = whole.clone();
        bad[at] ^= 4;
        let Ok(reader) = SegmentReader::new(&bad) else { continue };
        for entry in reader {
            if let Ok((_, Entry::Object(record))) = entry {
                assert_eq!(record.key, b"bait", "damage at {at}");
            }
        }
    }
}

#[test]
fn a_newer_kind_is_skipped_or_refused_as_its_number_says() {
    let recorder = Recorder::new();
    let mut log = log_with_table(1, Box::new(recorder.clone()));
    log.write(TABLE, b"k", b"v").unwrap();
    log.turn();
    let whole = segments(&recorder).pop().unwrap();
    let last = SegmentReader::new(&whole).unwrap().filter_map(Result::ok).last().unwrap();
    let at = last.0 as usize;
    for (kind, skipped) in [(9u8, true), (15, true), (17, false), (20, false), (31, false)] {
        let mut newer = whole.clone();
        // The flags are mixed into the checksum by exclusive or, so it can be carried over.
        let mix = |flags: u8| u32::from(flags).wrapping_mul(0x9e37_79b1);
        let checksum = u32::from_le_bytes(newer[at + 1..at + 5].try_into().unwrap());
        let flags = newer[at] & 0xe0 | kind;
        let checksum = checksum ^ mix(newer[at]) ^ mix(flags);
        newer[at] = flags;
        newer[at + 1..at + 5].copy_from_slice(&checksum.to_le_bytes());
        let found = SegmentReader::new(&newer).unwrap().last().unwrap();
        if skipped {
            assert_eq!(found, Ok((last.0, Entry::Skipped(kind))));
        } else if kind == 17 {
            let field = "number";
            assert_eq!(found, Err(Damage::Field { offset: last.0, field }), "it has 8 bytes");
        } else {
            assert_eq!(found, Err(Damage::UnknownKind { offset: last.0, kind }));
        }
    }
}
