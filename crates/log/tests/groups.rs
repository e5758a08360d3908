//! Groups of outcomes: recorded with their effects or not at all, after any crash, in any order of
//! forgetting, and however a cleaner moves them.

mod common;

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use thunderhead_log::inspect::{Entry, SegmentReader};
use thunderhead_log::{
    Cleaner, Completion, Condition, Cursor, Damage, Error, KeyHash, LeaseId, Log, LogId, Memory,
    NoReplication, Options, Recorder, Replay, Replicator, SegmentId, SegmentKind, Sequence,
    TableId, TabletRange, Tombstones,
};

const TABLE: TableId = TableId(1);
const OTHER: TableId = TableId(2);

fn options(tombstones: Tombstones, low: f64) -> Options {
    common::options(16 << 10, tombstones, low)
}

fn log_of(bytes: usize, options: Options, replicator: Box<dyn Replicator>) -> Log {
    let memory = Memory::with_seglets(bytes, 1024).unwrap();
    let mut log = Log::new(&memory, LogId(3), options, replicator).unwrap();
    log.create_tablet(TabletRange::whole(TABLE)).unwrap();
    log
}

fn plain(replicator: Box<dyn Replicator>) -> Log {
    log_of(1 << 20, options(Tombstones::Folded, 0.1), replicator)
}

/// An update of a group: a sequence, a key, and a value to write, or none to delete.
type Update = (Sequence, u8, Option<u16>);

/// The update with this number.
fn numbered((sequence, key, value): (u64, u8, Option<u16>)) -> Update {
    (Sequence(sequence), key, value)
}

fn value_of(sequence: Sequence, length: u16) -> Vec<u8> {
    (0..length).map(|at| ((u64::from(at) * 3).wrapping_add(sequence.0)) as u8).collect()
}

/// The outcome of an update: it tells whether the update deleted, and the rest is known.
fn result_of((sequence, key, value): Update) -> Vec<u8> {
    format!("{sequence} {key} {}", value.is_some()).into_bytes()
}

/// Does updates as a server does. Returns the updates that were done.
fn update(log: &mut Log, lease: LeaseId, updates: &[Update]) -> Vec<Update> {
    let bytes_of = |(_, _, value): &Update| Log::grouped_bytes(1, value.unwrap_or(0).into());
    let all: usize = updates.iter().map(bytes_of).sum();
    let mut done = Vec::new();
    for it in updates {
        let (sequence, key, value) = *it;
        if !log.group_takes(sequence, bytes_of(it)) {
            log.begin_group(lease, sequence, all);
        }
        if log.completion(lease, sequence).is_some() {
            continue;
        }
        let result = result_of(*it);
        let completion = Completion { lease, sequence, result: &result };
        let always = Condition::Always;
        let outcome = match value {
            Some(length) => {
                let value = value_of(sequence, length);
                log.write_completed(TABLE, &[key], &value, always, completion).map(drop)
            }
            None => log.delete_completed(TABLE, &[key], always, completion).map(drop),
        };
        match outcome {
            Ok(()) => done.push(*it),
            Err(Error::MemoryFull { .. } | Error::CleanerBehind) => {}
            Err(error) => panic!("{error}"),
        }
    }
    log.end_group();
    done
}

type Objects = BTreeMap<u8, Vec<u8>>;

fn objects(log: &Log) -> Objects {
    let (mut found, mut cursor) = (Objects::new(), Some(Cursor::default()));
    while let Some(at) = cursor {
        cursor = log
            .scan(TabletRange::whole(TABLE), at, |it| {
                found.insert(it.key().to_vec()[0], it.value().to_vec());
            })
            .unwrap();
    }
    found
}

type Outcomes = BTreeMap<(LeaseId, Sequence), Vec<u8>>;

fn outcomes(log: &mut Log) -> Outcomes {
    let (mut found, mut cursor) = (Outcomes::new(), Some(Cursor::default()));
    while let Some(at) = cursor {
        cursor = log.scan_completions(at, |lease, sequence, result| {
            let before = found.insert((lease, sequence), result.to_vec());
            assert!(before.is_none(), "an outcome is found once");
        });
    }
    for ((lease, sequence), result) in &found {
        assert_eq!(&log.completion(*lease, *sequence).unwrap().to_vec(), result);
    }
    found
}

fn replayed(segments: &[Vec<u8>], tombstones: Tombstones) -> (Log, thunderhead_log::Report) {
    let nothing = Box::new(NoReplication::default());
    let memory = Memory::with_seglets(2 << 20, 1024).unwrap();
    let mut log = Log::new(&memory, LogId(4), options(tombstones, 0.1), nothing).unwrap();
    let mut replay = Replay::new(&mut log, [(TabletRange::whole(TABLE), SegmentId::NONE)]).unwrap();
    for segment in segments {
        replay.segment(segment).unwrap();
    }
    let report = replay.finish().unwrap();
    (log, report)
}

#[test]
fn a_group_cut_anywhere_is_replayed_whole_or_not_at_all() {
    for tombstones in [Tombstones::Folded, Tombstones::Classic] {
        let recorder = Recorder::new();
        let mut log = log_of(1 << 20, options(tombstones, 0.1), Box::new(recorder.clone()));
        let old: Vec<Update> =
            (0..4).map(|key| (Sequence(u64::from(key) + 1), key, Some(20))).collect();
        update(&mut log, LeaseId(6), &old);
        let before = (objects(&log), outcomes(&mut log));
        let written = log.appended().offset as usize;
        let updates = [
            (1, 0, Some(100)),
            (2, 1, None),
            (3, 9, None), // There is nothing to delete.
            (5, 7, Some(700)),
            (9, 0, Some(10)), // The same key again.
            (60, 2, Some(0)),
        ]
        .map(numbered);
        assert_eq!(update(&mut log, LeaseId(7), &updates), updates);
        log.turn();
        let after = (objects(&log), outcomes(&mut log));
        assert_eq!(after.1.len(), before.1.len() + updates.len());
        let whole = recorder.replicas(usize::MAX).into_values().next_back().unwrap().bytes;
        assert!(whole.len() > written + 900);
        for length in written..=whole.len() {
            let (mut rebuilt, report) = replayed(&[whole[..length].to_vec()], tombstones);
            let expected = if length == whole.len() { &after } else { &before };
            assert_eq!(&(objects(&rebuilt), outcomes(&mut rebuilt)), expected, "{length}");
            assert!(report.damage.len() <= 1);
        }
        // A group with damage inside does not count either, and the damage is reported.
        for at in written..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 4;
            let (mut rebuilt, report) = replayed(&[damaged], tombstones);
            assert_eq!((objects(&rebuilt), outcomes(&mut rebuilt)), before, "{at}");
            assert!(!report.damage.is_empty(), "{at}");
        }
    }
}

#[test]
fn an_object_of_a_group_is_durable_when_the_group_is() {
    let recorder = Recorder::new();
    let mut log = plain(Box::new(recorder.clone()));
    log.write(TABLE, b"before", b"1").unwrap();
    log.turn();
    let updates: Vec<Update> =
        (0..8).map(|key| (Sequence(u64::from(key) + 1), key, Some(100))).collect();
    let before = log.appended();
    recorder.hold(true);
    update(&mut log, LeaseId(1), &updates);
    let end = log.appended();
    log.write(TABLE, b"after", b"1").unwrap();
    let after = log.appended();
    log.turn();
    let durable_at = |log: &Log, key: &[u8]| {
        let object = log.read(TABLE, key).unwrap().unwrap();
        log.durable_at(&object)
    };
    assert_eq!(durable_at(&log, b"before"), None);
    assert_eq!(durable_at(&log, b"after"), Some(after));
    for key in 0..8 {
        assert_eq!(durable_at(&log, &[key]), Some(end), "{key}");
    }
    // Copied up to the middle of the group, and up to its last byte but one.
    for offset in [before.offset + 1, before.offset + 300, end.offset - 1] {
        recorder.hold_at(thunderhead_log::LogPosition { offset, ..end });
        log.turn();
        assert_eq!(log.durable().offset, offset);
        for key in 0..8 {
            assert_eq!(durable_at(&log, &[key]), Some(end), "{key} at {offset}");
        }
        assert_eq!(durable_at(&log, b"before"), None);
    }
    recorder.hold_at(end);
    log.turn();
    for key in 0..8 {
        assert_eq!(durable_at(&log, &[key]), None, "{key}");
    }
    assert_eq!(durable_at(&log, b"after"), Some(after));
}

#[test]
fn outcomes_are_forgotten_in_parts_and_in_any_order() {
    let mut log = plain(Box::new(NoReplication::default()));
    let live = log.usage().live_bytes;
    let updates: Vec<Update> = (10..50).map(|it| (Sequence(it), 1, Some(0))).collect();
    assert_eq!(update(&mut log, LeaseId(5), &updates).len(), 40);
    log.turn();
    let one = log.usage().live_bytes - live;
    assert_eq!(log.forget_completions(LeaseId(5), &[9, 10, 11, 49, 50].map(Sequence)), 3);
    for other in [LeaseId(4), LeaseId(6)] {
        assert_eq!(log.forget_completions(other, &[Sequence(12)]), 0);
    }
    let one_of_them = Sequence(30);
    assert!(log.forget_completion(LeaseId(5), one_of_them));
    assert!(!log.forget_completion(LeaseId(5), one_of_them));
    let left: BTreeSet<Sequence> = (12..49).map(Sequence).filter(|it| *it != one_of_them).collect();
    assert!(outcomes(&mut log).keys().map(|(_, sequence)| *sequence).eq(left.iter().copied()));
    assert_eq!(log.usage().live_bytes, live + one, "the entry lives while any outcome is wanted");
    // A forgotten update may be done again; its outcome is recorded by itself, as its group is
    // still there.
    let again = Completion { lease: LeaseId(5), sequence: one_of_them, result: b"again" };
    log.complete(TABLE, KeyHash::of(b"k"), again).unwrap();
    assert_eq!(log.completion(LeaseId(5), one_of_them).unwrap().to_vec(), b"again");
    let all: Vec<Sequence> = (0..100).map(Sequence).rev().collect();
    assert_eq!(log.forget_completions(LeaseId(5), &all), left.len() + 1);
    assert_eq!(outcomes(&mut log), Outcomes::new());
    log.delete(TABLE, &[1], Condition::Always).unwrap();
    assert_eq!(log.usage().live_bytes, live, "nothing more is counted as live");
}

#[test]
fn a_sequence_between_those_of_a_group_is_recorded_by_itself() {
    let mut log = plain(Box::new(NoReplication::default()));
    let even: Vec<Update> = (0..20).map(|at| (Sequence(2 * at + 10), 1, Some(5))).collect();
    update(&mut log, LeaseId(1), &even);
    assert!(!log.begin_group(LeaseId(1), Sequence(11), 500));
    assert!(!log.begin_group(LeaseId(1), Sequence(48), 500));
    let odd: Vec<Update> = (0..20).map(|at| (Sequence(2 * at + 9), 2, Some(5))).collect();
    assert_eq!(update(&mut log, LeaseId(1), &odd), odd);
    let expected: Outcomes =
        even.iter().chain(&odd).map(|it| ((LeaseId(1), it.0), result_of(*it))).collect();
    assert_eq!(outcomes(&mut log), expected);
    assert!(log.begin_group(LeaseId(1), Sequence(49), 500));
    assert!(log.begin_group(LeaseId(2), Sequence(11), 500));
    log.end_group();
    // At the end of the sequence numbers, each of them once.
    let last: Vec<Update> = (0..4).map(|at| (Sequence(u64::MAX - 3 + at), 3, Some(5))).collect();
    assert_eq!(update(&mut log, LeaseId(3), &last), last);
    assert!(update(&mut log, LeaseId(3), &last).is_empty());
    assert_eq!(outcomes(&mut log).len(), expected.len() + 4);
}

#[test]
fn outcomes_of_dropped_tablets_are_forgotten_and_others_of_their_group_are_kept() {
    let mut log = plain(Box::new(NoReplication::default()));
    log.create_tablet(TabletRange::whole(OTHER)).unwrap();
    assert!(log.begin_group(LeaseId(1), Sequence::FIRST, 4000));
    for number in 1..=10 {
        let table = if number % 3 == 0 { OTHER } else { TABLE };
        let sequence = Sequence(number);
        let completion = Completion { lease: LeaseId(1), sequence, result: b"done" };
        log.write_completed(table, b"k", b"v", Condition::Always, completion).unwrap();
    }
    log.end_group();
    log.drop_tablet(TabletRange::whole(OTHER));
    let (mut gone, mut cursor) = (Vec::new(), Some(Cursor::default()));
    while let Some(at) = cursor {
        cursor = log.forget_homeless_completions(at, |lease, sequence| {
            assert_eq!(lease, LeaseId(1));
            gone.push(sequence);
        });
    }
    assert_eq!(gone, [3, 6, 9].map(Sequence));
    assert_eq!(outcomes(&mut log).len(), 7);
    let mut cursor = Some(Cursor::default());
    let mut found = 0;
    while let Some(at) = cursor {
        let range = TabletRange::whole(TABLE);
        cursor = log.scan_completions_of(range, at, |_, _, hash, _| {
            assert_eq!(hash, KeyHash::of(b"k"));
            found += 1;
        });
    }
    assert_eq!(found, 7);
}

#[test]
fn a_record_without_its_linked_entries_is_damage() {
    let recorder = Recorder::new();
    let mut log = plain(Box::new(recorder.clone()));
    let start = log.appended().offset as usize;
    update(&mut log, LeaseId(1), &[(1, 1, Some(50)), (2, 2, Some(50))].map(numbered));
    log.turn();
    let whole = recorder.replicas(usize::MAX).into_values().next_back().unwrap().bytes;
    let entries: Vec<_> = SegmentReader::new(&whole).unwrap().map(Result::unwrap).collect();
    let at = |back: usize| entries[entries.len() - back].0 as usize;
    assert!(matches!(entries[entries.len() - 1].1, Entry::Completions { .. }));
    assert_eq!(at(3), start);
    let without =
        |gone: std::ops::Range<usize>| [&whole[..gone.start], &whole[gone.end..]].concat();
    for gone in [at(3)..at(2), at(2)..at(1), at(3)..at(1)] {
        let damaged = without(gone);
        let last = SegmentReader::new(&damaged).unwrap().last().unwrap();
        assert!(matches!(last, Err(Damage::Field { field: "links", .. })), "{last:?}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Updates of a client, each with the distance of its sequence from the one before.
    Update {
        lease: LeaseId,
        updates: Vec<(u8, u8, Option<u16>)>,
    },
    /// The updates of an earlier message again, from another one on.
    Again {
        lease: LeaseId,
        back: usize,
        from: usize,
    },
    /// A client has answers: all before one of its last sequences, or only that one.
    Forget {
        lease: LeaseId,
        back: u64,
        only: bool,
    },
    Clean(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let value = prop_oneof![4 => (0..60u16).prop_map(Some), 1 => (300..700u16).prop_map(Some), 2 => Just(None)];
    let gap = prop_oneof![8 => Just(1u8), 1 => 2..5u8, 1 => 20..90u8];
    let updates = prop::collection::vec((gap, 0..50u8, value), 1..30);
    let lease = || (1..4u64).prop_map(LeaseId);
    let step = prop_oneof![
        8 => (lease(), updates).prop_map(|(lease, updates)| Step::Update { lease, updates }),
        2 => (lease(), 0..4usize, 0..20usize)
            .prop_map(|(lease, back, from)| Step::Again { lease, back, from }),
        4 => (lease(), 0..60u64, any::<bool>())
            .prop_map(|(lease, back, only)| Step::Forget { lease, back, only }),
        4 => (1..6u8).prop_map(Step::Clean),
    ];
    prop::collection::vec(step, 1..120)
}

/// The segments that a recovery would replay after so many events.
fn recoverable(recorder: &Recorder, events: usize) -> Vec<Vec<u8>> {
    let replicas = recorder.replicas(events);
    let heads = replicas.values().rev().filter(|it| it.open && it.kind != SegmentKind::Survivor);
    let digest = heads.flat_map(|it| SegmentReader::new(&it.bytes)).find_map(|reader| {
        let digests = reader.filter_map(|entry| match entry {
            Ok((_, Entry::Digest(digest))) => Some(digest.segments),
            _ => None,
        });
        digests.last()
    });
    digest.unwrap().iter().map(|id| replicas[id].bytes.clone()).collect()
}

#[derive(Clone, Default)]
struct Moment {
    events: usize,
    objects: Objects,
    /// The wanted outcomes, and all outcomes that were ever recorded.
    wanted: Outcomes,
    ever: Outcomes,
}

fn run(
    steps: &[Step],
    tombstones: Tombstones,
    crash: prop::sample::Index,
) -> Result<(), TestCaseError> {
    let recorder = Recorder::new();
    let mut log = log_of(192 << 10, options(tombstones, 1.0), Box::new(recorder.clone()));
    let mut cleaner: Cleaner = log.cleaner().unwrap();
    let mut now = Moment::default();
    let mut moments = Vec::new();
    let mut next: BTreeMap<LeaseId, Sequence> = BTreeMap::new();
    let mut sent: Vec<(LeaseId, Vec<Update>)> = Vec::new();
    for step in steps {
        let mut message = None;
        match step {
            Step::Update { lease, updates } => {
                let next = next.entry(*lease).or_default();
                let mut number = |gap: u8| {
                    *next = next.plus(gap.into());
                    *next
                };
                let updates: Vec<Update> =
                    updates.iter().map(|(gap, key, value)| (number(*gap), *key, *value)).collect();
                sent.push((*lease, updates.clone()));
                message = Some((*lease, updates));
            }
            Step::Again { lease, back, from } => {
                let of_lease: Vec<_> = sent.iter().filter(|(it, _)| it == lease).collect();
                if let Some((_, updates)) = of_lease.iter().rev().nth(*back) {
                    let updates = updates.get(*from..).unwrap_or_default().to_vec();
                    // A client whose answer is forgotten does not ask again: a server would not do
                    // the update.
                    let ever = &now.ever;
                    let known = |it: &Update| {
                        let name = (*lease, it.0);
                        now.wanted.contains_key(&name) || !ever.contains_key(&name)
                    };
                    message = Some((*lease, updates.into_iter().filter(known).collect()));
                }
            }
            Step::Forget { lease, back, only } => {
                let next = next.get(lease).copied().unwrap_or_default();
                let until = Sequence(next.0.saturating_sub(*back));
                let is_gone = |it: Sequence| if *only { it == until } else { it < until };
                let gone: Vec<Sequence> = now
                    .wanted
                    .keys()
                    .filter(|(it, sequence)| it == lease && is_gone(*sequence))
                    .map(|(_, sequence)| *sequence)
                    .collect();
                prop_assert_eq!(log.forget_completions(*lease, &gone), gone.len());
                gone.iter().for_each(|sequence| drop(now.wanted.remove(&(*lease, *sequence))));
            }
            Step::Clean(steps) => {
                for _ in 0..*steps {
                    cleaner.step();
                    log.turn();
                }
            }
        }
        if let Some((lease, updates)) = message {
            for it in update(&mut log, lease, &updates) {
                let (sequence, key, value) = it;
                match value {
                    Some(length) => drop(now.objects.insert(key, value_of(sequence, length))),
                    None => drop(now.objects.remove(&key)),
                }
                let before = now.ever.insert((lease, sequence), result_of(it));
                prop_assert!(before.is_none(), "done once");
                now.wanted.insert((lease, sequence), result_of(it));
            }
        }
        log.turn();
        now.events = recorder.events();
        moments.push(now.clone());
        prop_assert_eq!(&outcomes(&mut log), &now.wanted);
    }
    prop_assert_eq!(&objects(&log), &now.objects);
    // Every turn was complete, so the state after a crash is known, except that forgotten outcomes
    // may come back.
    for moment in [&moments[crash.index(moments.len())], &now] {
        let (mut rebuilt, report) = replayed(&recoverable(&recorder, moment.events), tombstones);
        prop_assert_eq!(report.damage, vec![]);
        prop_assert_eq!(&objects(&rebuilt), &moment.objects);
        let found = outcomes(&mut rebuilt);
        prop_assert!(moment.wanted.iter().all(|(name, result)| found.get(name) == Some(result)));
        prop_assert!(found.iter().all(|(name, result)| moment.ever.get(name) == Some(result)));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn done_updates_have_one_outcome_which_survives_cleaning_and_replay(
        steps in steps(),
        classic in any::<bool>(),
        crash in any::<prop::sample::Index>(),
    ) {
        run(&steps, if classic { Tombstones::Classic } else { Tombstones::Folded }, crash)?;
    }
}

/// An update that no group can take is recorded by itself, even if a group was begun for it.
#[test]
fn an_update_too_large_for_a_group_is_recorded_by_itself() {
    let memory = Memory::new(64 << 20).unwrap();
    let replicator = Box::new(NoReplication::default());
    let mut log = Log::new(&memory, LogId(3), Options::default(), replicator).unwrap();
    log.create_tablet(TabletRange::whole(TABLE)).unwrap();
    let (large, small) = (vec![7; 100_000], vec![1; 10]);
    for number in 1..=60 {
        let sequence = Sequence(number);
        let value = if number % 3 == 0 { &small } else { &large };
        if !log.group_takes(sequence, Log::grouped_bytes(1, value.len())) {
            log.begin_group(LeaseId(5), sequence, 20 * Log::grouped_bytes(1, large.len()));
        }
        let completion = Completion { lease: LeaseId(5), sequence, result: b"done" };
        let key = [number as u8];
        log.write_completed(TABLE, &key, value, Condition::Always, completion).unwrap();
    }
    log.end_group();
    for sequence in (1..=60).map(Sequence) {
        assert_eq!(log.completion(LeaseId(5), sequence).unwrap().to_vec(), b"done");
    }
}
