//! A recovery replays into side segments, which come into the log all together. Meanwhile the other
//! tables are written, cleaners run, copies are late, and the recovery may be abandoned and begun
//! again. After a crash at any event, a recovery finds the other tables as they were, and all of
//! the rebuilt table once that is durable.

mod digest;

use proptest::prelude::*;
use std::collections::BTreeMap;
use thunderhead_log::{
    CleanerOptions, Condition, Cursor, Error, Log, LogId, Memory, NoReplication, Options, Rebuild,
    Recorder, Replay, ReplayError, SegmentId, TableId, TabletRange, TakeIn, Version,
};

const TABLE: TableId = TableId(7);
const OTHER: TableId = TableId(8);

type Model = BTreeMap<Vec<u8>, (Version, Vec<u8>)>;

fn log_in(memory_bytes: usize, id: u64, recorder: &Recorder) -> Log {
    // One generation has one form of index, the next one the other.
    let map =
        if id.is_multiple_of(2) { Memory::with_long_references } else { Memory::with_seglets };
    let memory = map(memory_bytes, 1024).unwrap();
    let cleaner = CleanerOptions {
        free_fraction_low: 1.0,
        free_share_low: 1.0,
        segments_per_pass: 2,
        delete_seglets: 2,
        disk_expansion: 3.0,
        ..CleanerOptions::default()
    };
    let options = Options { segment_bytes: 8 << 10, cleaner, ..Options::default() };
    Log::new(&memory, LogId(id), options, Box::new(recorder.clone())).unwrap()
}

fn contents(log: &Log, table: TableId) -> Model {
    let mut model = Model::new();
    let mut cursor = Some(Cursor::default());
    while let Some(at) = cursor {
        let visit = |object: thunderhead_log::Object<'_>| {
            let (key, value) = (object.key().to_vec(), object.value().to_vec());
            assert!(model.insert(key, (object.version(), value)).is_none());
        };
        cursor = log.scan(TabletRange::whole(table), at, visit).unwrap();
    }
    model
}

/// The segments that a recovery finds after a crash behind so many events: the newest digest names
/// them.
fn recoverable(recorder: &Recorder, events: usize) -> Vec<Vec<u8>> {
    let replicas = recorder.replicas(events);
    let bytes = |id: &SegmentId| replicas.get(id).expect("a named segment exists").bytes.clone();
    digest::newest(&replicas).unwrap_or_default().iter().map(bytes).collect()
}

fn replayed(segments: &[Vec<u8>], table: TableId, since: SegmentId) -> Model {
    let memory = Memory::with_seglets(2 << 20, 1024).unwrap();
    let options = Options { segment_bytes: 8 << 10, ..Options::default() };
    let nothing = Box::new(NoReplication::default());
    let mut log = Log::new(&memory, LogId(99), options, nothing).unwrap();
    let mut replay = Replay::new(&mut log, [(TabletRange::whole(table), since)]).unwrap();
    segments.iter().for_each(|segment| replay.segment(segment).unwrap());
    replay.finish().unwrap();
    contents(&log, table)
}

struct Draws(u64);

impl Draws {
    fn below(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// Writes or deletes an object of a table, if there is room; the model follows.
fn change(log: &mut Log, table: TableId, model: &mut Model, draws: &mut Draws) {
    let key = vec![b'k', draws.below(60) as u8];
    if draws.below(4) == 0 {
        if log.delete(table, &key, Condition::Always).is_ok() {
            model.remove(&key);
        }
        return;
    }
    let value = vec![draws.below(256) as u8; draws.below(400) as usize];
    if let Ok(written) = log.write(table, &key, &value) {
        model.insert(key, (written.version, value));
    }
}

/// The replicas of a former log.
fn past(draws: &mut Draws, changes: u64) -> (Vec<Vec<u8>>, Model) {
    let recorder = Recorder::new();
    let mut log = log_in(192 << 10, 5, &recorder);
    log.create_tablet(TabletRange::whole(TABLE)).unwrap();
    let mut cleaner = log.cleaner().unwrap();
    let mut model = Model::new();
    for _ in 0..changes {
        change(&mut log, TABLE, &mut model, draws);
        if draws.below(3) == 0 {
            cleaner.step();
        }
        log.turn();
    }
    (recoverable(&recorder, recorder.events()), model)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn side_segments_come_into_the_log_all_together_or_not_at_all(
        seed in any::<u64>(),
        memory_kb in 112..600usize,
        given_up in 0..3u64,
        crashes in prop::collection::vec(0.0..1.0f64, 4),
    ) {
        let mut draws = Draws(seed);
        let changes = draws.below(600);
        let (segments, mut model) = past(&mut draws, changes);
        let recorder = Recorder::new();
        let mut log = log_in(memory_kb << 10, 6, &recorder);
        log.create_tablet(TabletRange::whole(OTHER)).unwrap();
        let mut cleaner = log.cleaner().unwrap();
        let mut others = Model::new();
        // After so many events: the other table's contents, and the rebuilt table's once all of it
        // is there.
        let mut history: Vec<(usize, Model, Option<Model>)> = Vec::new();
        let whole = TabletRange::whole(TABLE);
        let free = log.usage().free_bytes;
        let mut attempts = given_up;
        let mut rebuild = 'attempt: loop {
            let mut rebuild = Rebuild::begin_in_side_log(&mut log, [(whole, SegmentId::NONE)]).unwrap();
            let mut waits = 0;
            for segment in &segments {
                let mut at = Some(0);
                while let Some(from) = at {
                    let (entries, bytes) = (draws.below(70) as usize, draws.below(3000) as usize);
                    match rebuild.step(&mut log, segment, from, entries, bytes) {
                        Ok(behind) => (at, waits) = (behind, 0),
                        Err(ReplayError::Log(Error::CleanerBehind)) => waits += 1,
                        // The table does not fit.
                        Err(ReplayError::Log(Error::MemoryFull { .. })) => return Ok(()),
                        Err(error) => panic!("{error}"),
                    }
                    prop_assert!(waits < 2000, "stuck");
                    recorder.hold(draws.below(3) == 0 && waits < 1000);
                    change(&mut log, OTHER, &mut others, &mut draws);
                    cleaner.step();
                    log.turn();
                    history.push((recorder.events(), others.clone(), None));
                    if attempts > 0 && draws.below(40) == 0 {
                        attempts -= 1;
                        log.drop_tablet(whole);
                        rebuild.give_up(&mut log);
                        recorder.hold(false);
                        log.turn();
                        continue 'attempt;
                    }
                }
            }
            break rebuild;
        };
        let mut waits = 0;
        while rebuild.take_in(&mut log) != TakeIn::Done {
            waits += 1;
            prop_assert!(waits < 2000, "stuck");
            recorder.hold(draws.below(3) == 0 && waits < 1000);
            change(&mut log, OTHER, &mut others, &mut draws);
            cleaner.step();
            log.turn();
            history.push((recorder.events(), others.clone(), None));
        }
        while rebuild.finish(&mut log).is_err() {
            cleaner.step();
            log.turn();
        }
        drop(rebuild);
        recorder.hold(false);
        let until = log.appended();
        log.turn();
        log.turn();
        prop_assert!(log.durable() >= until);
        prop_assert_eq!(&contents(&log, TABLE), &model);
        let since = log.tablets().find(|(range, _)| *range == whole).unwrap().1;
        for _ in 0..draws.below(300) {
            let table = draws.below(2) == 0;
            match table {
                true => change(&mut log, TABLE, &mut model, &mut draws),
                false => change(&mut log, OTHER, &mut others, &mut draws),
            }
            cleaner.step();
            log.turn();
            history.push((recorder.events(), others.clone(), Some(model.clone())));
        }
        prop_assert_eq!(&contents(&log, TABLE), &model);
        prop_assert_eq!(&contents(&log, OTHER), &others);
        for crash in crashes {
            let Some((events, others, model)) =
                history.get((history.len() as f64 * crash) as usize)
            else {
                continue;
            };
            let left = recoverable(&recorder, *events);
            prop_assert_eq!(&replayed(&left, OTHER, SegmentId::NONE), others);
            if let Some(model) = model {
                prop_assert_eq!(&replayed(&left, TABLE, since), model);
            }
        }
        // All memory is free, or in segments of the log, or in the head, or in indexes.
        let usage = log.usage();
        let known = usage.free_bytes + usage.disk_bytes + usage.index_bytes + (8 << 10);
        prop_assert!(known + (usage.segments as u64 + 4) * 1024 >= free, "{:?} of {}", usage, free);
    }
}

/// An abandoned recovery leaves no copies, takes no memory, and is in no digest.
#[test]
fn an_abandoned_recovery_leaves_nothing() {
    let mut draws = Draws(5);
    let (segments, _) = past(&mut draws, 600);
    let recorder = Recorder::new();
    let mut log = log_in(600 << 10, 6, &recorder);
    let before = (log.usage().free_bytes, recorder.replicas(usize::MAX).len());
    let whole = TabletRange::whole(TABLE);
    let mut rebuild = Rebuild::begin_in_side_log(&mut log, [(whole, SegmentId::NONE)]).unwrap();
    for segment in &segments {
        let mut at = Some(0);
        while let Some(from) = at {
            at = rebuild.step(&mut log, segment, from, 64, 4096).unwrap();
        }
    }
    assert!(recorder.replicas(usize::MAX).len() > before.1, "{}", segments.len());
    log.drop_tablet(whole);
    rebuild.give_up(&mut log);
    log.turn();
    assert_eq!((log.usage().free_bytes, recorder.replicas(usize::MAX).len()), before);
}

/// Dead entries in side segments do not block writers for long: a recovery that waits for another
/// condition does not keep memory from writers.
#[test]
fn writers_get_the_memory_of_dead_entries_in_side_segments() {
    let former = Recorder::new();
    let mut old = log_in(600 << 10, 5, &former);
    old.create_tablet(TabletRange::whole(TABLE)).unwrap();
    for number in 0..250u32 {
        old.write(TABLE, b"key", &[number as u8; 900]).unwrap();
        old.turn();
    }
    let recorder = Recorder::new();
    let mut log = log_in(320 << 10, 6, &recorder);
    log.create_tablet(TabletRange::whole(OTHER)).unwrap();
    let mut cleaner = log.cleaner().unwrap();
    let whole = TabletRange::whole(TABLE);
    let mut rebuild = Rebuild::begin_in_side_log(&mut log, [(whole, SegmentId::NONE)]).unwrap();
    for replica in former.replicas(usize::MAX).values() {
        let mut at = Some(0);
        while let Some(from) = at {
            at = rebuild.step(&mut log, &replica.bytes, from, 64, 4096).unwrap();
        }
    }
    assert!(log.usage().free_bytes < 120 << 10, "{:?}", log.usage());
    // The recovery pauses here, while other clients write.
    for number in 0..600u32 {
        let mut tries = 0;
        while let Err(error) = log.write(OTHER, &[number as u8 % 100], &[3; 900]) {
            tries += 1;
            assert!(tries < 500, "{error} at {number}: {:?}", log.usage());
            cleaner.step();
            log.turn();
        }
    }
    while rebuild.take_in(&mut log) != TakeIn::Done {
        cleaner.step();
    }
    rebuild.finish(&mut log).unwrap();
    let found = log.read(TABLE, b"key").unwrap().unwrap().value().to_vec();
    assert_eq!(found, [249; 900]);
}
