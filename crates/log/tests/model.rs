//! Random operations against a model, with cleaning in between, and a crash after any prefix of the
//! replicator's calls: the replayed log must have the same contents as the model.
//!
//! The model changes with every operation at the same moment as the replicator, so each prefix of
//! the recording has a known set of states that a recovery may find.

mod digest;
mod kinds;

use kinds::kind_of;
use proptest::prelude::*;
use std::collections::BTreeMap;
use thunderhead_log::{
    Cleaner, CleanerOptions, Condition, Error, Log, LogId, Memory, Options, Rebuild, Recorder,
    Replay, ReplayError, SegmentId, TableId, TabletRange, Tombstones, Version,
};

const TABLE: TableId = TableId(7);

#[derive(Clone, Debug)]
enum Operation {
    Write { key: u8, length: u16 },
    Delete { key: u8 },
    Clean { steps: u8 },
    Turn,
}

/// Some keys are hot and most are cold. So a dead version often stays in a segment that is
/// otherwise alive and thus is not cleaned for long. That is the case in which an object could be
/// resurrected.
fn keys() -> impl Strategy<Value = u8> {
    prop_oneof![2 => 0..5u8, 1 => 5..40u8, 1 => 40..250u8]
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop_oneof![
        10 => (keys(), prop_oneof![Just(0u16), Just(8u16), 1..80u16, 80..400u16, 400..700u16])
            .prop_map(|(key, length)| Operation::Write { key, length }),
        3 => (0..8u8).prop_map(|key| Operation::Delete { key }),
        1 => keys().prop_map(|key| Operation::Delete { key }),
        3 => (1..4u8).prop_map(|steps| Operation::Clean { steps }),
        1 => Just(Operation::Turn),
    ]
    .prop_map(|one| vec![one]);
    // A whole segment of objects that are soon overwritten: then no entry in it is alive.
    let burst = (20..60usize, 0..3u8).prop_map(|(count, first)| {
        let keys = (first..first + 3).cycle().take(count);
        keys.map(|key| Operation::Write { key, length: 300 }).collect()
    });
    let operation = prop_oneof![30 => operation, 1 => burst];
    let cold = (0..100u8).prop_map(|count| {
        (0..count).map(|key| Operation::Write { key: 250 - key, length: 500 }).collect::<Vec<_>>()
    });
    (cold, prop::collection::vec(operation, 1..900)).prop_map(|(mut all, random)| {
        // One hot object among the cold ones, to die there.
        all.insert(all.len() / 2, Operation::Write { key: 0, length: 20 });
        all.extend(random.into_iter().flatten());
        all
    })
}

fn options(tombstones: Tombstones, compaction: bool) -> Options {
    Options {
        segment_bytes: 8 << 10,
        tombstones,
        cleaner: CleanerOptions {
            compaction,
            // Clean as soon as any segment can be cleaned: correctness must not need idleness.
            free_fraction_low: 1.0,
            free_share_low: 1.0,
            segments_per_pass: 2,
            delete_seglets: 2,
            disk_expansion: 3.0,
            ..CleanerOptions::default()
        },
        ..Options::default()
    }
}

type Model = BTreeMap<Vec<u8>, (Version, Vec<u8>)>;

fn key_of(key: u8) -> Vec<u8> {
    format!("key-{key}").into_bytes()
}

fn value_of(key: u8, number: usize, length: u16) -> Vec<u8> {
    (0..length).map(|at| (at as usize * 7 + number * 13 + key as usize) as u8).collect()
}

/// The contents of a log, read through its cursor.
fn contents(log: &Log) -> Model {
    let mut model = Model::new();
    let mut cursor = Some(thunderhead_log::Cursor::default());
    while let Some(at) = cursor {
        cursor = log
            .scan(TabletRange::whole(TABLE), at, |object| {
                assert_eq!(object.kind(), kind_of(&object.value().to_vec()));
                let seen = model
                    .insert(object.key().to_vec(), (object.version(), object.value().to_vec()));
                assert!(seen.is_none(), "a scan returns a key once");
            })
            .unwrap();
    }
    model
}

/// The segments that a recovery would replay after a crash: the newest digest on an open head names
/// them.
fn recoverable(recorder: &Recorder, events: usize) -> Vec<Vec<u8>> {
    let replicas = recorder.replicas(events);
    digest::newest(&replicas)
        .unwrap_or_default()
        .iter()
        .map(|id| {
            let replica = replicas.get(id);
            replica.unwrap_or_else(|| panic!("{id} is named but was freed")).bytes.clone()
        })
        .collect()
}

fn replayed(segments: &[Vec<u8>], tombstones: Tombstones) -> Model {
    let memory = Memory::with_seglets(1 << 20, 1024).unwrap();
    let mut log = Log::new(
        &memory,
        LogId(99),
        options(tombstones, true),
        Box::new(thunderhead_log::NoReplication::default()),
    )
    .unwrap();
    let mut replay = Replay::new(&mut log, [(TabletRange::whole(TABLE), SegmentId::NONE)]).unwrap();
    for segment in segments {
        replay.segment(segment).unwrap();
    }
    let report = replay.finish().unwrap();
    assert_eq!(report.damage, [], "nothing was torn here");
    contents(&log)
}

/// Rebuilds in slices, while another table is written and read and cleaners run.
fn rebuilt_in_slices(segments: &[Vec<u8>], tombstones: Tombstones, mut random: u64) -> Model {
    let other = TableId(8);
    let memory = Memory::with_seglets(1 << 20, 1024).unwrap();
    let replicator = Box::new(thunderhead_log::NoReplication::default());
    let mut log = Log::new(&memory, LogId(99), options(tombstones, true), replicator).unwrap();
    log.create_tablet(TabletRange::whole(other)).unwrap();
    let mut cleaner = log.cleaner().unwrap();
    let mut rebuild =
        Rebuild::begin(&mut log, [(TabletRange::whole(TABLE), SegmentId::NONE)]).unwrap();
    let expected = random % 500;
    while rebuild.make_room(&mut log, TabletRange::whole(TABLE), expected) {
        log.turn();
    }
    let mut written = BTreeMap::new();
    for segment in segments {
        let mut at = Some(0);
        while let Some(from) = at {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let draw = |bits: u32, below: u64| ((random >> bits) % below) as usize;
            match rebuild.step(&mut log, segment, from, draw(20, 70), draw(30, 2000)) {
                Ok(behind) => at = behind,
                Err(error) => assert_eq!(error, ReplayError::Log(Error::CleanerBehind)),
            }
            let (key, value) = ([draw(40, 30) as u8], draw(45, 200));
            if log.write(other, &key, &vec![1; value]).is_ok() {
                written.insert(key, value);
            }
            cleaner.step();
            log.turn();
        }
    }
    let report = rebuild.finish(&mut log).unwrap();
    assert_eq!((report.damage, report.segments), (Vec::new(), segments.len() as u64));
    for (key, value) in written {
        assert_eq!(log.read(other, &key).unwrap().unwrap().value().len(), value);
    }
    contents(&log)
}

/// The state after one operation.
struct Step {
    /// Events that the recorder had before the operation's turn.
    events: usize,
    model: Model,
}

fn run(
    operations: &[Operation],
    tombstones: Tombstones,
    compaction: bool,
    long: bool,
    crash: f64,
    order: u64,
) -> Result<(), TestCaseError> {
    let recorder = Recorder::new();
    let map = if long { Memory::with_long_references } else { Memory::with_seglets };
    let memory = map(160 << 10, 1024).unwrap();
    let mut log =
        Log::new(&memory, LogId(5), options(tombstones, compaction), Box::new(recorder.clone()))
            .unwrap();
    log.create_tablet(TabletRange::whole(TABLE)).unwrap();
    let mut cleaners: Vec<Cleaner> = (0..2).filter_map(|_| log.cleaner()).collect();
    let mut model = Model::new();
    let mut newest: BTreeMap<Vec<u8>, Version> = BTreeMap::new();
    let mut steps: Vec<Step> = Vec::new();
    for (number, operation) in operations.iter().enumerate() {
        match operation {
            Operation::Write { key, length } => {
                let (key, value) = (key_of(*key), value_of(*key, number, *length));
                match log.of_kind(kind_of(&value), |log| log.write(TABLE, &key, &value)) {
                    Ok(written) => {
                        let before = newest.insert(key.clone(), written.version);
                        prop_assert!(before.is_none_or(|before| before < written.version));
                        model.insert(key, (written.version, value));
                    }
                    Err(Error::MemoryFull { .. } | Error::CleanerBehind) => {}
                    Err(error) => return Err(TestCaseError::fail(error.to_string())),
                }
            }
            Operation::Delete { key } => {
                let key = key_of(*key);
                match log.delete(TABLE, &key, Condition::Always) {
                    Ok(version) => {
                        prop_assert_eq!(version, model.remove(&key).map(|(version, _)| version));
                    }
                    Err(Error::CleanerBehind) => {}
                    Err(error) => return Err(TestCaseError::fail(error.to_string())),
                }
            }
            Operation::Clean { steps } => {
                for at in 0..*steps as usize {
                    let count = cleaners.len();
                    cleaners[at % count].step();
                    log.turn();
                }
            }
            Operation::Turn => {}
        }
        log.turn();
        steps.push(Step { events: recorder.events(), model: model.clone() });
    }
    prop_assert_eq!(&contents(&log), &model);
    for (key, (version, value)) in &model {
        let object = log.read(TABLE, key).unwrap().unwrap();
        prop_assert_eq!((object.version(), object.kind()), (*version, kind_of(value)));
        prop_assert_eq!(&object.value().to_vec(), value);
    }
    // Crash after some operation: every turn was complete then, so the model is exact.
    let at = ((steps.len() as f64 * crash) as usize).min(steps.len() - 1);
    for step in [&steps[at], &steps[steps.len() - 1]] {
        let mut segments = recoverable(&recorder, step.events);
        let mut random = order | 1;
        for left in (1..segments.len()).rev() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            segments.swap(left, (random >> 33) as usize % (left + 1));
        }
        prop_assert_eq!(&replayed(&segments, tombstones), &step.model);
        prop_assert_eq!(&rebuilt_in_slices(&segments, tombstones, random), &step.model);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_replayed_log_has_the_objects_that_were_written(
        operations in operations(),
        classic in any::<bool>(),
        compaction in any::<bool>(),
        long in any::<bool>(),
        crash in 0.0..1.0f64,
        order in any::<u64>(),
    ) {
        let tombstones = if classic { Tombstones::Classic } else { Tombstones::Folded };
        run(&operations, tombstones, compaction, long, crash, order)?;
    }
}
