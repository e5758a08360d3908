//! Chains: updates that are done together or not at all, by the log and by a recovery.

mod common;
mod digest;

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thunderhead_log::inspect::SegmentReader;
use thunderhead_log::{
    Attributes, Cursor, Error, Log, LogId, Memory, NoReplication, Recorder, Replay, Replicator,
    SegmentId, TableId, TabletRange, Timestamp, Tombstones, Update,
};

const TABLES: [TableId; 2] = [TableId(1), TableId(2)];

fn log_of(bytes: usize, segment: usize, kind: Tombstones, copies: Box<dyn Replicator>) -> Log {
    let memory = Memory::with_seglets(bytes, 1024).unwrap();
    let options = common::options(segment, kind, 0.1);
    let mut log = Log::new(&memory, LogId(3), options, copies).unwrap();
    for table in TABLES {
        log.create_tablet(TabletRange::whole(table)).unwrap();
    }
    log
}

fn put<'a>(table: usize, key: &'a [u8], value: &'a [u8]) -> Update<'a> {
    Update { table: TABLES[table], key, new: Some((value, Attributes::NONE)) }
}

fn delete(table: usize, key: &[u8]) -> Update<'_> {
    Update { table: TABLES[table], key, new: None }
}

type Objects = BTreeMap<(TableId, Vec<u8>), Vec<u8>>;

fn objects(log: &Log) -> Objects {
    let mut found = Objects::new();
    for table in TABLES {
        let mut cursor = Some(Cursor::default());
        while let Some(at) = cursor {
            cursor = log
                .scan(TabletRange::whole(table), at, |it| {
                    found.insert((table, it.key().to_vec()), it.value().to_vec());
                })
                .unwrap();
        }
    }
    found
}

fn replayed(segments: &[Vec<u8>], segment: usize, kind: Tombstones) -> (Objects, usize) {
    let memory = Memory::with_seglets(2 << 20, 1024).unwrap();
    let options = common::options(segment, kind, 0.1);
    let nothing = Box::<NoReplication>::default();
    let mut log = Log::new(&memory, LogId(4), options, nothing).unwrap();
    let tablets = TABLES.map(|table| (TabletRange::whole(table), SegmentId::NONE));
    let mut replay = Replay::new(&mut log, tablets).unwrap();
    for segment in segments {
        replay.segment(segment).unwrap();
    }
    let report = replay.finish().unwrap();
    (objects(&log), report.damage.len())
}

#[test]
fn a_chain_cut_or_damaged_anywhere_is_replayed_whole_or_not_at_all() {
    const SEGMENT: usize = 16 << 10;
    for kind in [Tombstones::Folded, Tombstones::Classic] {
        let recorder = Recorder::new();
        let mut log = log_of(1 << 20, SEGMENT, kind, Box::new(recorder.clone()));
        for key in [b"a", b"b", b"c"] {
            log.write(TABLES[0], key, b"old").unwrap();
        }
        let before = objects(&log);
        let written = log.appended().offset as usize;
        let long = [7; 600];
        let cached = Attributes { is_cached: true, client_flags: 5, ..Attributes::NONE };
        let updates = [
            put(0, b"a", &long),
            delete(0, b"b"),
            delete(1, b"nothing to delete"),
            put(1, b"new", b""),
            put(0, b"a", b"again"),
            Update { table: TABLES[1], key: b"item", new: Some((b"value", cached)) },
        ];
        assert_eq!(log.update_together(&updates), Ok(updates.len()));
        log.turn();
        let after = objects(&log);
        assert_eq!(after.len(), before.len() + 1);
        let item = log.read(TABLES[1], b"item").unwrap().unwrap();
        assert_eq!(item.attributes(), cached);
        let whole = recorder.replicas(usize::MAX).into_values().next_back().unwrap().bytes;
        assert!(whole.len() > written + 600);
        for length in written..=whole.len() {
            let (rebuilt, damage) = replayed(&[whole[..length].to_vec()], SEGMENT, kind);
            let expected = if length == whole.len() { &after } else { &before };
            assert_eq!(&rebuilt, expected, "{length}");
            assert!(damage <= 1);
        }
        for at in written..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 4;
            let (rebuilt, damage) = replayed(&[damaged], SEGMENT, kind);
            assert_eq!((rebuilt, damage > 0), (before.clone(), true), "{at}");
        }
    }
}

#[test]
fn objects_of_a_chain_and_their_absence_are_durable_when_the_chain_is() {
    let recorder = Recorder::new();
    let mut log = log_of(1 << 20, 16 << 10, Tombstones::Folded, Box::new(recorder.clone()));
    log.write(TABLES[0], b"gone", b"1").unwrap();
    log.turn();
    let before = log.appended();
    recorder.hold(true);
    let long = [1; 200];
    let updates = [put(0, b"a", &long), delete(0, b"gone"), put(1, b"b", &long)];
    log.update_together(&updates).unwrap();
    let end = log.appended();
    for offset in [before.offset + 1, before.offset + 300, end.offset - 1] {
        recorder.hold_at(thunderhead_log::LogPosition { offset, ..end });
        log.turn();
        for (table, key) in [(0, b"a"), (1, b"b")] {
            let object = log.read(TABLES[table], key).unwrap().unwrap();
            assert_eq!(log.durable_at(&object), Some(end), "{offset}");
        }
        assert_eq!(log.deletes_durable_at(), Some(end), "{offset}");
    }
    recorder.hold_at(end);
    log.turn();
    let object = log.read(TABLES[0], b"a").unwrap().unwrap();
    assert_eq!((log.durable_at(&object), log.deletes_durable_at()), (None, None));
}

#[test]
fn an_update_alone_needs_no_chain() {
    let recorder = Recorder::new();
    let mut log = log_of(1 << 20, 16 << 10, Tombstones::Folded, Box::new(recorder.clone()));
    assert_eq!(log.update_together(&[]), Ok(0));
    let from = log.appended();
    assert_eq!(log.update_together(&[put(0, b"k", b"v")]), Ok(1));
    assert_eq!(log.update_together(&[delete(0, b"k")]), Ok(1));
    log.turn();
    let whole = recorder.replicas(usize::MAX).into_values().next_back().unwrap().bytes;
    let entries = SegmentReader::new(&whole).unwrap();
    let behind = entries.filter(|it| it.as_ref().unwrap().0 >= from.offset).count();
    assert_eq!(behind, 2);
}

#[test]
fn a_wrong_update_undoes_nothing_because_none_is_done() {
    let mut log = log_of(1 << 20, 16 << 10, Tombstones::Folded, Box::<NoReplication>::default());
    let long = vec![0; 16 << 10];
    let unknown = Update { table: TableId(9), key: b"k", new: None };
    for wrong in [put(0, b"long", &long), put(0, b"", b"v"), unknown] {
        let at = log.appended();
        assert!(log.update_together(&[put(0, b"k", b"v"), wrong]).is_err());
        assert_eq!((objects(&log), log.appended()), (Objects::new(), at));
    }
}

#[test]
fn a_list_of_several_chains_is_cut_between_updates() {
    const SEGMENT: usize = 16 << 10;
    let recorder = Recorder::new();
    let mut log = log_of(1 << 20, SEGMENT, Tombstones::Folded, Box::new(recorder.clone()));
    let keys: Vec<[u8; 2]> = (0..200u16).map(u16::to_be_bytes).collect();
    let value = [3; 300];
    let updates: Vec<Update<'_>> = keys.iter().map(|key| put(0, key, &value)).collect();
    assert_eq!(log.update_together(&updates), Ok(200));
    assert_eq!(objects(&log).len(), 200);
    log.turn();
    let bytes = recorder.replicas(usize::MAX);
    let segments: Vec<Vec<u8>> = bytes.into_values().map(|replica| replica.bytes).collect();
    assert_eq!(replayed(&segments, SEGMENT, Tombstones::Folded), (objects(&log), 0));
}

#[test]
fn lists_longer_than_a_chain_are_done_whole_or_refused_whole() {
    for (bytes, count, length) in [(64, 12, 900), (64, 20, 500), (96, 30, 400), (80, 9, 900)] {
        let nothing = Box::new(Recorder::new());
        let mut log = log_of(bytes << 10, 8 << 10, Tombstones::Folded, nothing);
        let mut cleaner = log.cleaner().unwrap();
        let value = vec![3; length];
        let mut whole = 0;
        for round in 0..300u16 {
            let keys: Vec<[u8; 1]> = (0..count).map(|k| [k + (round % 2) as u8 * 7]).collect();
            let updates: Vec<Update<'_>> = keys.iter().map(|key| put(0, key, &value)).collect();
            if let Ok(done) = log.update_together(&updates) {
                assert_eq!(done, updates.len(), "{bytes} KiB in round {round}");
                whole += 1;
            }
            let _ = cleaner.step();
            log.turn();
        }
        assert!(whole > 0, "{bytes} KiB");
    }
}

#[test]
fn absence_of_an_expired_object_is_durable_when_the_chain_with_its_mark_is() {
    let recorder = Recorder::new();
    let mut log = log_of(1 << 20, 16 << 10, Tombstones::Folded, Box::new(recorder.clone()));
    let time = Arc::new(AtomicU64::new(10));
    let source = Arc::clone(&time);
    log.keep_time_by(Box::new(move || Timestamp(source.load(Ordering::Relaxed))));
    let expiring = Attributes { expires: Timestamp(100), ..Attributes::NONE };
    let soon = Update { table: TABLES[0], key: b"soon", new: Some((b"v", expiring)) };
    log.update_together(&[soon]).unwrap();
    log.turn();
    recorder.hold(true);
    time.store(150, Ordering::Relaxed);
    assert_eq!(log.update_together(&[put(0, b"a", b"1"), delete(0, b"soon")]), Ok(2));
    let end = log.appended();
    assert!(log.read(TABLES[0], b"soon").unwrap().is_none());
    log.settle_clock().unwrap();
    assert_eq!(log.deletes_durable_at(), Some(end));
}

#[test]
fn a_list_evicts_as_many_objects_as_it_needs_and_a_list_of_deletes_is_never_full() {
    const SEGMENT: usize = 16 << 10;
    let nothing = Box::<NoReplication>::default();
    let mut log = log_of(512 << 10, SEGMENT, Tombstones::Folded, nothing);
    let mut cleaner = log.cleaner().unwrap();
    let cached = Attributes { is_cached: true, ..Attributes::NONE };
    let value = [7; 700];
    let mut update = |log: &mut Log, keys: &[[u8; 2]], new| {
        let updates: Vec<Update<'_>> =
            keys.iter().map(|key| Update { table: TABLES[0], key, new }).collect();
        for _ in 0..200 {
            match log.update_together(&updates) {
                Err(Error::CleanerBehind) => {}
                other => return other,
            }
            let _ = cleaner.step();
            log.turn();
        }
        Err(Error::CleanerBehind)
    };
    let key = |number: u16| number.to_be_bytes();
    let (cached, stays) = (Some((&value[..], cached)), Some((&value[..], Attributes::NONE)));
    for number in 0..1500 {
        assert_eq!(update(&mut log, &[key(number)], cached), Ok(1), "{number}");
    }
    // Far more than lies between the high-water mark and the limit.
    let many: Vec<[u8; 2]> = (2000..2150).map(key).collect();
    assert_eq!(update(&mut log, &many, cached), Ok(many.len()));
    // Objects that stay also make objects of the cache go, until nothing else is left.
    let mut stay = 3000;
    let full = loop {
        match update(&mut log, &[key(stay)], stays) {
            Ok(_) => stay += 1,
            Err(error) => break error,
        }
    };
    assert!(stay > 3300, "{stay}");
    assert!(matches!(full, Error::CleanerBehind | Error::MemoryFull { .. }));
    let deleted: Vec<[u8; 2]> = (3000..3100).map(key).collect();
    assert_eq!(update(&mut log, &deleted, None), Ok(100));
}

#[derive(Clone, Debug)]
enum Step {
    Together(Vec<(u8, Option<u16>)>),
    Clean,
    Turn,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let update = (0..40u8, proptest::option::weighted(0.8, 0..200u16));
    let step = prop_oneof![
        6 => proptest::collection::vec(update, 1..12).prop_map(Step::Together),
        2 => Just(Step::Clean),
        2 => Just(Step::Turn),
    ];
    proptest::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// With little memory, cleaning in between, and a crash after any event of the copies: a model
    /// has all updates of each list that was done, and a recovery has a state between two lists.
    #[test]
    fn lists_are_done_whole_or_refused_whole(steps in steps(), cut in any::<prop::sample::Index>()) {
        const SEGMENT: usize = 8 << 10;
        let recorder = Recorder::new();
        let mut log = log_of(48 << 10, SEGMENT, Tombstones::Folded, Box::new(recorder.clone()));
        let mut cleaner = log.cleaner().unwrap();
        let mut model = Objects::new();
        let mut states = vec![model.clone()];
        for step in steps {
            match step {
                Step::Clean => {
                    let _ = cleaner.step();
                }
                Step::Turn => log.turn(),
                Step::Together(list) => {
                    let values: Vec<(Vec<u8>, Option<Vec<u8>>)> = list
                        .iter()
                        .map(|(key, length)| {
                            let value = length.map(|length| vec![*key; usize::from(length)]);
                            (vec![*key], value)
                        })
                        .collect();
                    let updates: Vec<Update<'_>> = values
                        .iter()
                        .map(|(key, value)| match value {
                            Some(value) => put(usize::from(key[0] % 2), key, value),
                            None => delete(usize::from(key[0] % 2), key),
                        })
                        .collect();
                    match log.update_together(&updates) {
                        Ok(done) => {
                            prop_assert_eq!(done, updates.len());
                            for (key, value) in values {
                                let at = (TABLES[usize::from(key[0] % 2)], key);
                                match value {
                                    Some(value) => model.insert(at, value),
                                    None => model.remove(&at),
                                };
                            }
                            states.push(model.clone());
                        }
                        Err(Error::MemoryFull { .. } | Error::CleanerBehind) => {}
                        Err(error) => prop_assert!(false, "{error}"),
                    }
                }
            }
            prop_assert_eq!(&objects(&log), &model);
        }
        log.turn();
        let events = cut.index(recorder.events() + 1);
        let replicas = recorder.replicas(events);
        if let Some(ids) = digest::newest(&replicas) {
            let segments: Vec<Vec<u8>> = ids.iter().map(|id| replicas[id].bytes.clone()).collect();
            let (rebuilt, _) = replayed(&segments, SEGMENT, Tombstones::Folded);
            prop_assert!(states.contains(&rebuilt));
        }
    }
}
