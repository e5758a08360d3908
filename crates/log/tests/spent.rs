//! Segments in which nothing lives leave the log without a look at their entries, and never while one of
//! these guards against something that a recovery would find.

mod common;

use common::options;
use std::collections::BTreeMap;
use thunderhead_log::inspect::{Entry, SegmentReader};
use thunderhead_log::{
    Cleaner, Completion, Condition, Cursor, Log, LogId, Memory, NoReplication, Recorder, Replay,
    Replicator, SegmentId, SegmentKind, Step, TableId, TabletRange, Tombstones, Usage,
};

const TABLE: TableId = TableId(1);
const SEGMENT_BYTES: usize = 16 << 10;

fn log(tombstones: Tombstones, low: f64, replicator: Box<dyn Replicator>) -> Log {
    let memory = Memory::with_seglets(1 << 20, 1024).unwrap();
    let mut options = options(SEGMENT_BYTES, tombstones, low);
    // Where cleaning begins at once, what is not all but empty is combined.
    options.cleaner.compaction = low < 1.0;
    let mut log = Log::new(&memory, LogId(1), options, replicator).unwrap();
    log.create_tablet(TabletRange::whole(TABLE)).unwrap();
    log
}

/// Updates a few objects again and again, and has the cleaner step after every few.
fn overwrite(tombstones: Tombstones, mut update: impl FnMut(&mut Log, u64)) -> Usage {
    let mut log = log(tombstones, 0.1, Box::<NoReplication>::default());
    let mut cleaner = log.cleaner().unwrap();
    for round in 0..30_000 {
        update(&mut log, round);
        if round % 16 == 0 {
            cleaner.step();
            log.turn();
        }
    }
    log.usage()
}

fn key_of(round: u64) -> [u8; 8] {
    (round % 300).to_be_bytes()
}

fn value_of(round: u64) -> Vec<u8> {
    // Some cross seglets, and others leave the end of one empty.
    vec![round as u8; if round.is_multiple_of(7) { 700 } else { 90 }]
}

fn all_left_without_a_look(usage: &Usage) {
    assert!(usage.cleaned_segments > 100, "{usage:?}");
    assert_eq!(usage.spent_segments, usage.cleaned_segments, "{usage:?}");
    assert_eq!((usage.entries_moved, usage.residuals, usage.compactions), (0, 0, 0), "{usage:?}");
    assert_eq!(usage.survivor_bytes, 0, "{usage:?}");
}

#[test]
fn what_was_overwritten_leaves_without_a_look() {
    for tombstones in [Tombstones::Folded, Tombstones::Classic] {
        let usage = overwrite(tombstones, |log, round| {
            log.write(TABLE, &key_of(round), &value_of(round)).unwrap();
        });
        all_left_without_a_look(&usage);
    }
}

#[test]
fn what_was_deleted_leaves_without_a_look_and_so_do_the_tombstones() {
    for tombstones in [Tombstones::Folded, Tombstones::Classic] {
        let usage = overwrite(tombstones, |log, round| {
            log.write(TABLE, &key_of(round), &value_of(round)).unwrap();
            if round >= 20 {
                log.delete(TABLE, &key_of(round - 20), Condition::Always).unwrap();
            }
        });
        all_left_without_a_look(&usage);
    }
}

#[test]
fn records_of_updates_that_are_forgotten_do_not_keep_a_segment() {
    for is_grouped in [false, true] {
        let usage = overwrite(Tombstones::Folded, |log, round| {
            let (key, value) = (key_of(round), value_of(round));
            if is_grouped && round % 4 == 0 {
                log.begin_group(5, round, 4 * Log::grouped_bytes(key.len(), 700));
            }
            let completion = Completion { lease: 5, sequence: round, result: b"done" };
            log.write_completed(TABLE, &key, &value, Condition::Always, completion).unwrap();
            if round % 4 == 3 {
                log.end_group();
            }
            if round >= 40 {
                assert!(log.forget_completion(5, round - 40));
            }
        });
        all_left_without_a_look(&usage);
    }
}

/// What a recovery would replay after so many events: what the newest digest on an open head names.
fn recoverable(recorder: &Recorder, events: usize) -> Option<Vec<Vec<u8>>> {
    let replicas = recorder.replicas(events);
    let heads = replicas.values().rev();
    let digest =
        heads.filter(|it| it.open && it.kind != SegmentKind::Survivor).find_map(|head| {
            let entries = SegmentReader::new(&head.bytes).ok()?;
            let digests = entries.filter_map(|entry| match entry {
                Ok((_, Entry::Digest(digest))) => Some(digest.segments),
                _ => None,
            });
            digests.last()
        })?;
    Some(digest.iter().map(|id| replicas[id].bytes.clone()).collect())
}

/// What a log has after a crash.
fn recovered(recorder: &Recorder, events: usize) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut log = log(Tombstones::Folded, 0.1, Box::<NoReplication>::default());
    log.drop_tablet(TabletRange::whole(TABLE));
    log.turn();
    let tablets = [(TabletRange::whole(TABLE), SegmentId::NONE)];
    let mut replay = Replay::new(&mut log, tablets).unwrap();
    for segment in recoverable(recorder, events).unwrap() {
        replay.segment(&segment).unwrap();
    }
    replay.finish().unwrap();
    let (mut found, mut cursor) = (BTreeMap::new(), Some(Cursor::default()));
    while let Some(at) = cursor {
        let range = TabletRange::whole(TABLE);
        let visited =
            log.scan(range, at, |it| drop(found.insert(it.key().to_vec(), it.value().to_vec())));
        cursor = visited.unwrap();
    }
    found
}

/// Writes until the head has changed so often, to keys that are written again and again.
fn fill(log: &mut Log, segments: u64) {
    let until = SegmentId(log.appended().segment.0 + segments);
    let mut round = 0;
    while log.appended().segment < until {
        log.write(TABLE, &key_of(round % 30), &value_of(round)).unwrap();
        log.turn();
        round += 1;
    }
}

fn clean(log: &mut Log, cleaner: &mut Cleaner) {
    // Idle once may mean that a pass of before waits for a digest.
    for _ in 0..6 {
        while cleaner.step() != Step::Idle {
            log.turn();
        }
        fill(log, 1);
    }
}

/// Objects that stay, of so many segments, with one among them.
fn stay(log: &mut Log, segments: u32, among: &[u8]) {
    for number in 0..segments * 30 {
        log.write(TABLE, &number.to_be_bytes(), &[3; 500]).unwrap();
        if number == 10 {
            log.write(TABLE, among, b"first").unwrap();
        }
    }
    log.turn();
}

/// Has an object's first version among what stays, lets something be done, and then has a second one of
/// it, which is deleted, leave the log. The first is still there, or was moved, and must not come back.
fn deleted_stays_deleted(between: impl Fn(&mut Log, &mut Cleaner)) {
    let recorder = Recorder::new();
    let mut log = log(Tombstones::Folded, 1.0, Box::new(recorder.clone()));
    let mut cleaner = log.cleaner().unwrap();
    stay(&mut log, 2, b"hot");
    between(&mut log, &mut cleaner);
    // This names the segment that the first one is in.
    log.write(TABLE, b"hot", b"second").unwrap();
    fill(&mut log, 3);
    log.delete(TABLE, b"hot", Condition::Always).unwrap();
    log.turn();
    let (deleted, before) = (recorder.events(), log.usage().spent_segments);
    fill(&mut log, 3);
    clean(&mut log, &mut cleaner);
    assert!(log.usage().spent_segments > before, "{:?}", log.usage());
    for events in (deleted..=recorder.events()).step_by(7).chain([recorder.events()]) {
        let found = recovered(&recorder, events);
        assert_eq!(found.get(&b"hot"[..]), None, "after {events} events");
        assert!(found.len() >= 40 + 30, "{} after {events} events", found.len());
    }
}

#[test]
fn a_segment_that_guards_an_older_one_leaves_a_tombstone() {
    deleted_stays_deleted(|log, _| fill(log, 3));
}

/// A survivor's id is above that of the head which was open when it was made, and that head may name it.
#[test]
fn a_segment_that_guards_a_survivor_with_a_higher_id_leaves_a_tombstone() {
    deleted_stays_deleted(|log, cleaner| {
        fill(log, 1);
        for number in (0..10u32).chain(30..40) {
            log.delete(TABLE, &number.to_be_bytes(), Condition::Always).unwrap();
        }
        let (head, passes) = (log.appended().segment, log.usage().passes);
        while log.usage().passes == passes {
            assert_ne!(cleaner.step(), Step::Idle, "{:?}", log.usage());
        }
        assert!(log.usage().entries_moved >= 40, "{:?}", log.usage());
        assert_eq!(log.appended().segment, head, "it is below the survivors");
    });
}
