//! Segments cut into partitions: rebuilding from the parts gives the same as rebuilding from the
//! whole segments, for any log and any partitions.

mod common;
mod kinds;

use kinds::kind_of;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use thunderhead_log::filter::{Cut, Filter, Partitions};
use thunderhead_log::inspect::SegmentReader;
use thunderhead_log::{
    Attributes, Cleaner, Completion, Condition, Cursor, Damage, KeyHash, LeaseId, Log, LogId,
    Memory, NoReplication, Options, Recorder, Replay, SegmentId, Sequence, TableId, TabletRange,
    Tombstones, Update, Version,
};

const TABLES: [TableId; 2] = [TableId(7), TableId(9)];

type Tablets = Vec<(TabletRange, SegmentId)>;

fn options(tombstones: Tombstones) -> Options {
    common::options(8 << 10, tombstones, 1.0)
}

#[derive(Clone, Debug)]
enum Operation {
    Write(usize, u8, u16),
    Update(usize, u8, u16),
    /// Several updates whose outcomes are recorded together; without a length a key is deleted.
    Group(Vec<(usize, u8, Option<u16>)>),
    /// Several updates that are done together: every second one of a few keys is deleted.
    Together(usize, u8, u8, u16),
    Delete(usize, u8),
    Clean(u8),
    /// Drops the first table and creates it again: entries born before are of its former stay.
    Anew,
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let length = prop_oneof![2 => 0..60u16, 1 => Just(8u16), 2 => 300..700u16];
    let operation = prop_oneof![
        8 => (0..2usize, 0..60u8, length.clone()).prop_map(|(t, k, l)| Operation::Write(t, k, l)),
        4 => (0..2usize, 0..60u8, length.clone()).prop_map(|(t, k, l)| Operation::Update(t, k, l)),
        3 => prop::collection::vec((0..2usize, 0..60u8, prop::option::weighted(0.8, length)), 1..20)
            .prop_map(Operation::Group),
        2 => (0..2usize, 0..60u8, 2..12u8, 9..200u16)
            .prop_map(|(t, k, n, l)| Operation::Together(t, k, n, l)),
        3 => (0..2usize, 0..60u8).prop_map(|(t, k)| Operation::Delete(t, k)),
        2 => (1..5u8).prop_map(Operation::Clean),
        1 => Just(Operation::Anew),
    ];
    prop::collection::vec(operation, 1..500)
}

/// The segments of a log after these operations, and the positions from which its tables count.
fn recorded(
    operations: &[Operation],
    tombstones: Tombstones,
) -> (Vec<(SegmentId, Vec<u8>)>, Tablets) {
    let recorder = Recorder::new();
    let memory = Memory::with_seglets(256 << 10, 1024).unwrap();
    let mut log =
        Log::new(&memory, LogId(5), options(tombstones), Box::new(recorder.clone())).unwrap();
    TABLES.iter().for_each(|table| log.create_tablet(TabletRange::whole(*table)).unwrap());
    let mut cleaner: Cleaner = log.cleaner().unwrap();
    // Operations without room are skipped.
    for (number, operation) in (1..).zip(operations) {
        let sequence = Sequence(number * 64);
        match operation {
            Operation::Write(table, key, length) => {
                let value = vec![*key; *length as usize];
                let write = |log: &mut Log| log.write(TABLES[*table], &[*key], &value);
                let _ = log.of_kind(kind_of(&value), write);
            }
            Operation::Update(table, key, length) => {
                let completion = Completion { lease: LeaseId(3), sequence, result: &[*key] };
                let value = vec![*key; *length as usize];
                let (table, always) = (TABLES[*table], Condition::Always);
                let kind = kind_of(&value);
                let _ = log.of_kind(kind, |log| {
                    log.write_completed(table, &[*key], &value, always, completion)
                });
            }
            Operation::Group(updates) => {
                log.begin_group(LeaseId(3), sequence, 4000);
                for (number, (table, key, length)) in (sequence.0..).zip(updates) {
                    let sequence = Sequence(number);
                    let bytes = Log::grouped_bytes(1, length.unwrap_or(0).into());
                    if !log.group_takes(sequence, bytes) {
                        log.begin_group(LeaseId(3), sequence, 4000);
                    }
                    let result = [*key, number as u8];
                    let completion = Completion { lease: LeaseId(3), sequence, result: &result };
                    let (table, always) = (TABLES[*table], Condition::Always);
                    match length {
                        Some(length) => {
                            let value = vec![number as u8; *length as usize];
                            let kind = kind_of(&value);
                            let _ = log.of_kind(kind, |log| {
                                log.write_completed(table, &[*key], &value, always, completion)
                            });
                        }
                        None => {
                            let _ = log.delete_completed(table, &[*key], always, completion);
                        }
                    }
                }
                log.end_group();
            }
            Operation::Together(table, key, count, length) => {
                let keys: Vec<[u8; 1]> = (0..*count).map(|at| [(key + at) % 60]).collect();
                let value = vec![*key; *length as usize];
                let new = |key: u8| key.is_multiple_of(2).then_some((&value[..], Attributes::NONE));
                let update = |key| Update { table: TABLES[*table], key, new: new(key[0]) };
                let updates: Vec<Update<'_>> = keys.iter().map(|key| update(key)).collect();
                let _ = log.update_together(&updates);
            }
            Operation::Delete(table, key) => {
                let _ = log.delete(TABLES[*table], &[*key], Condition::Always);
            }
            Operation::Clean(steps) => {
                for _ in 0..*steps {
                    cleaner.step();
                    log.turn();
                }
            }
            Operation::Anew => {
                let range = TabletRange::whole(TABLES[0]);
                log.drop_tablet(range);
                while log.create_tablet(range).is_err() {
                    cleaner.step();
                    log.turn();
                }
            }
        }
        log.turn();
    }
    let tablets = log.tablets().collect();
    let replicas = recorder.replicas(usize::MAX).into_iter();
    (replicas.map(|(id, replica)| (id, replica.bytes)).collect(), tablets)
}

/// The tablets, cut into pieces and dealt out to the partitions; some pieces go to none.
fn dealt(tablets: &Tablets, cuts: &BTreeSet<u64>, deal: &[u8], partitions: usize) -> Vec<Tablets> {
    let mut dealt: Vec<Tablets> = vec![Vec::new(); partitions];
    let mut next = deal.iter().cycle();
    for (range, since) in tablets {
        let mut first = 0;
        for last in cuts.iter().copied().chain([u64::MAX]).filter(|last| *last > 0) {
            let (from, to) = (KeyHash(first), KeyHash(last));
            let piece = TabletRange { table: range.table, first: from, last: to };
            let to = *next.next().unwrap() as usize % (partitions + 1);
            if let Some(partition) = dealt.get_mut(to) {
                partition.push((piece, *since));
            }
            first = last.wrapping_add(1);
        }
    }
    dealt
}

/// The contents of a log as a client sees them.
#[derive(Debug, PartialEq)]
struct Contents {
    objects: BTreeMap<(TableId, Vec<u8>), (Version, Vec<u8>)>,
    completions: BTreeMap<Sequence, Vec<u8>>,
    safe: Version,
}

fn rebuilt<'a>(segments: impl Iterator<Item = &'a [u8]>, tablets: &Tablets) -> Contents {
    let memory = Memory::with_seglets(1 << 20, 1024).unwrap();
    let nothing = Box::new(NoReplication::default());
    let mut log = Log::new(&memory, LogId(99), options(Tombstones::Folded), nothing).unwrap();
    let mut replay = Replay::new(&mut log, tablets.clone()).unwrap();
    for segment in segments {
        replay.segment(segment).unwrap();
    }
    replay.finish().unwrap();
    let mut objects = BTreeMap::new();
    for (range, _) in tablets {
        let mut cursor = Some(Cursor::default());
        while let Some(at) = cursor {
            cursor = log
                .scan(*range, at, |object| {
                    let what = (object.version(), object.value().to_vec());
                    assert_eq!(object.kind(), kind_of(&what.1));
                    objects.insert((object.table(), object.key().to_vec()), what);
                })
                .unwrap();
        }
    }
    let (mut completions, mut cursor) = (BTreeMap::new(), Some(Cursor::default()));
    while let Some(at) = cursor {
        cursor = log.scan_completions(at, |_, sequence, result| {
            completions.insert(sequence, result.to_vec());
        });
    }
    Contents { objects, completions, safe: log.safe_version() }
}

fn cut(
    id: SegmentId,
    bytes: &[u8],
    partitions: &Partitions,
    wanted: Option<BTreeSet<u32>>,
    (entries, most): (usize, usize),
) -> Result<Cut, Damage> {
    let mut filter = Filter::new(id, partitions, wanted);
    while filter.step(partitions, bytes, entries, most)?.more {}
    Ok(filter.finish())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn parts_rebuild_the_same_as_the_whole_segments(
        operations in operations(),
        classic in any::<bool>(),
        cuts in prop::collection::btree_set(any::<u64>(), 0..12),
        deal in prop::collection::vec(any::<u8>(), 1..40),
        count in 1..6usize,
        limits in (1..50usize, prop_oneof![1..200usize, 1000..20_000usize]),
        torn in prop::option::of(any::<prop::sample::Index>()),
        order in any::<prop::sample::Index>(),
    ) {
        let tombstones = if classic { Tombstones::Classic } else { Tombstones::Folded };
        let (mut segments, tablets) = recorded(&operations, tombstones);
        if let (Some(torn), Some((id, bytes))) = (torn, segments.last_mut()) {
            // The end is torn, but the header is there.
            let header = (0..bytes.len()).find(|at| SegmentReader::of(*id, &bytes[..*at]).is_ok());
            let header = header.unwrap();
            bytes.truncate(header + torn.index(bytes.len() - header + 1));
        }
        let dealt = dealt(&tablets, &cuts, &deal, count);
        let partitions = Partitions::new(&dealt).unwrap();
        let all: Result<Vec<Cut>, Damage> =
            segments.iter().map(|(id, bytes)| cut(*id, bytes, &partitions, None, limits)).collect();
        let all = all.unwrap();
        for (number, tablets) in dealt.iter().enumerate() {
            let mut parts: Vec<Vec<u8>> =
                all.iter().map(|cut| cut.parts[number].to_vec()).collect();
            for (part, (id, _)) in parts.iter().zip(&segments) {
                let reader = SegmentReader::of(*id, part).unwrap();
                prop_assert!(reader.into_iter().all(|entry| entry.is_ok()), "parts are whole");
            }
            let middle = order.index(parts.len());
            parts.rotate_left(middle);
            let of_parts = rebuilt(parts.iter().map(Vec::as_slice), tablets);
            let whole = segments.iter().map(|(_, bytes)| bytes.as_slice());
            prop_assert_eq!(of_parts, rebuilt(whole, tablets));
        }
        // One partition alone gets the same, in steps of another size.
        let wanted = order.index(count);
        for ((id, bytes), whole) in segments.iter().zip(&all) {
            let alone = BTreeSet::from([wanted as u32]);
            let alone = cut(*id, bytes, &partitions, Some(alone), (32, 16 << 10)).unwrap();
            prop_assert_eq!(&alone.torn, &whole.torn);
            for (number, (one, other)) in alone.parts.iter().zip(&whole.parts).enumerate() {
                let expected = if number == wanted { other.to_vec() } else { Vec::new() };
                prop_assert_eq!(one.to_vec(), expected);
            }
        }
    }

    #[test]
    fn any_bytes_are_cut_or_refused(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        length in any::<prop::sample::Index>(),
        limits in (0..50usize, 0..3000usize),
    ) {
        let operations: Vec<Operation> =
            (0..20).map(|key| match key % 4 {
                0 => Operation::Group((0..9).map(|at| (at % 2, key + at as u8, Some(30))).collect()),
                _ => Operation::Update(key as usize % 2, key, 100),
            }).collect();
        let (segments, tablets) = recorded(&operations, Tombstones::Folded);
        let partitions = Partitions::new(&[tablets]).unwrap();
        let (id, whole) = segments.last().unwrap();
        let mut bytes = whole[..length.index(whole.len() + 1)].to_vec();
        let mut changed = false;
        for (at, bits) in &flips {
            if bytes.is_empty() {
                break;
            }
            let at = at.index(bytes.len());
            bytes[at] ^= bits;
            // The dead bit of an entry is ignored.
            changed |= bits & 0x7f != 0;
        }
        let steps = whole.len() + 100;
        let mut filter = Filter::new(*id, &partitions, None);
        for step in 0.. {
            prop_assert!(step < 3 * steps, "every step makes progress");
            match filter.step(&partitions, &bytes, limits.0, limits.1) {
                Ok(progress) if progress.more => {}
                Ok(_) => {
                    let part = filter.finish().parts[0].to_vec();
                    if !changed {
                        let mut reader = SegmentReader::of(*id, &part).unwrap();
                        prop_assert!(reader.all(|entry| entry.is_ok()));
                    }
                    break;
                }
                Err(_) => break,
            }
        }
    }
}

#[test]
fn damage_inside_is_refused_and_a_torn_end_is_reported() {
    let operations: Vec<Operation> = (0..30).map(|key| Operation::Write(0, key, 100)).collect();
    let (segments, tablets) = recorded(&operations, Tombstones::Folded);
    let partitions = Partitions::new(&[tablets]).unwrap();
    let (id, bytes) = segments.last().unwrap();
    let cut = |bytes: &[u8]| cut(*id, bytes, &partitions, None, (10, 1000));
    let whole = cut(bytes).unwrap();
    assert_eq!(whole.torn, None);
    let torn = cut(&bytes[..bytes.len() - 3]).unwrap();
    assert!(matches!(torn.torn, Some(Damage::Torn { .. })));
    assert!(torn.parts[0].len() < whole.parts[0].len() && torn.parts[0].len() > 1000);
    for at in [bytes.len() / 2, bytes.len() / 3, bytes.len() - 3] {
        let mut bad = bytes.clone();
        bad[at] ^= 4;
        assert!(cut(&bad).is_err(), "{at}");
    }
    let other = Filter::new(SegmentId(77), &partitions, None).step(&partitions, bytes, 1, 1);
    assert_eq!(other, Err(Damage::OtherSegment { found: *id, expected: SegmentId(77) }));
}

#[test]
fn overlapping_partitions_are_refused() {
    let range = |table, first, last| {
        let range =
            TabletRange { table: TableId(table), first: KeyHash(first), last: KeyHash(last) };
        (range, SegmentId::NONE)
    };
    let of = |partitions: &[Vec<(TabletRange, SegmentId)>]| Partitions::new(partitions).is_some();
    assert!(of(&[]));
    assert!(of(&[vec![], vec![range(1, 0, 9)], vec![range(1, 10, 10), range(2, 0, 9)]]));
    assert!(!of(&[vec![range(1, 0, 9), range(1, 9, 12)]]));
    assert!(!of(&[vec![range(1, 5, 9)], vec![range(1, 0, 20)]]));
    assert!(!of(&[vec![range(1, 5, 4)]]));
}
