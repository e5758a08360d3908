//! The history of a log before its master crashed, and copies of the log, whole or not.

use crate::fixture::*;
use std::collections::BTreeMap;
use thunderhead_log::inspect::{Entry, SegmentReader};
use thunderhead_log::{
    CleanerOptions, Completion, Condition as When, HashedKey, Log, LogId, Memory,
    Options as LogOptions, Recorder, Replica, SegmentId, SegmentKind, TabletRange, Version,
};
use thunderhead_runtime::Random;
use thunderhead_wire::{LeaseId, MasterId, Sequence};

/// The id of the log.
pub(crate) const LOG: LogId = LogId(5);

pub(crate) type Model = BTreeMap<u64, (Version, Vec<u8>)>;

/// A log's history: its contents after each operation, and the number of events up to then.
pub(crate) struct Past {
    pub(crate) recorder: Recorder,
    pub(crate) steps: Vec<(usize, Model)>,
}

pub(crate) fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// The outcome of an update as a shard records it.
pub(crate) fn record(version: Version) -> Vec<u8> {
    let bytes = version.0.to_le_bytes();
    let length = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    [&[1 | (length as u8) << 4, 0, 0, 1], &bytes[..length]].concat()
}

pub(crate) fn past(random: &mut Random, operations: u64) -> Past {
    let recorder = Recorder::new();
    let memory = Memory::with_seglets(256 << 10, 1024).unwrap();
    let cleaner = CleanerOptions {
        free_fraction_low: 1.0,
        free_share_low: 1.0,
        segments_per_pass: 2,
        delete_seglets: 2,
        ..CleanerOptions::default()
    };
    let options = LogOptions { segment_bytes: 8 << 10, cleaner, ..LogOptions::default() };
    let replicator = Box::new(recorder.clone());
    let mut log = Log::new(&memory, LOG, options, replicator).unwrap();
    log.create_tablet(TabletRange::whole(OLD)).unwrap();
    let mut cleaner = log.cleaner().unwrap();
    let mut model = Model::new();
    let mut steps = vec![(recorder.events(), model.clone())];
    for number in 0..operations {
        let which = random.below(KEYS);
        let value = vec![number as u8; random.below(900) as usize];
        match random.below(8) {
            0 => {
                if log.delete(OLD, &key(which), When::Always).is_ok() {
                    model.remove(&which);
                }
            }
            1 => {
                let existing = model.get(&which).map(|(version, _)| *version);
                let version = existing.unwrap_or(log.safe_version()).next();
                let result = record(version);
                // The client says that it has all answers before 1, so there is no update 0.
                let completion = Completion {
                    lease: LeaseId(8),
                    sequence: Sequence(number + 1),
                    result: &result,
                };
                let written =
                    log.write_completed(OLD, &key(which), &value, When::Always, completion);
                if let Ok(written) = written {
                    assert_eq!(written.version, version);
                    model.insert(which, (written.version, value));
                }
            }
            2 => {
                // These are several updates of one message.
                let keys: Vec<u64> = (0..random.below(9)).map(|_| random.below(KEYS)).collect();
                let first = Sequence(10_000 + number * 64);
                log.begin_group(LeaseId(8), first, 7000);
                for (at, which) in (0..).zip(keys) {
                    let value = vec![which as u8; random.below(60) as usize];
                    let name = (LeaseId(8), first.plus(at));
                    if let Ok(written) = log.write_recorded(
                        OLD,
                        HashedKey::of(&key(which)),
                        &value,
                        When::Always,
                        name,
                        record,
                    ) {
                        model.insert(which, (written.version, value));
                    }
                }
                log.end_group();
            }
            _ => {
                if let Ok(written) = log.write(OLD, &key(which), &value) {
                    model.insert(which, (written.version, value));
                }
            }
        }
        cleaner.step();
        log.turn();
        steps.push((recorder.events(), model.clone()));
    }
    std::mem::forget(log); // Its last turn would go on.
    Past { recorder, steps }
}

impl Past {
    /// Returns the contents that a recovery may find after a crash behind `events` events.
    pub(crate) fn allowed(&self, events: usize) -> Vec<&Model> {
        let certain = self.steps.iter().rposition(|(at, _)| *at <= events);
        let from = certain.unwrap_or(0);
        self.steps.iter().skip(from).take(2).map(|(_, model)| model).collect()
    }
}

/// Returns the newest open head's digest, as a recovery should find it.
pub(crate) fn digest(replicas: &BTreeMap<SegmentId, Replica>) -> Option<Vec<SegmentId>> {
    let heads = replicas.values().rev().filter(|it| it.open && it.kind != SegmentKind::Survivor);
    heads.into_iter().find_map(|replica| {
        let entries = SegmentReader::new(&replica.bytes).ok()?;
        let digests = entries.filter_map(|entry| match entry {
            Ok((_, Entry::Digest(digest))) => Some(digest.segments),
            _ => None,
        });
        digests.last()
    })
}

pub(crate) fn put(cluster: &ShardCluster, backup: usize, segment: SegmentId, replica: &Replica) {
    put_of(cluster, GONE, backup, segment, replica);
}

fn put_of(
    cluster: &ShardCluster,
    master: MasterId,
    backup: usize,
    segment: SegmentId,
    replica: &Replica,
) {
    let mut backups = cluster.backups.borrow_mut();
    backups.replicas(backup, master).insert(segment, replica.bytes.clone());
}

pub(crate) fn flip(cluster: &ShardCluster, backup: usize, segment: SegmentId, random: &mut Random) {
    let mut backups = cluster.backups.borrow_mut();
    let bytes = backups.replicas(backup, GONE).get_mut(&segment).unwrap();
    if !bytes.is_empty() {
        let at = random.below(bytes.len() as u64) as usize;
        // The dead bit of an entry stays, because no checksum covers it.
        bytes[at] ^= 1 << random.below(5);
    }
}

/// Puts all segments on these backups, and returns their ids in the order of a digest.
pub(crate) fn put_all(
    cluster: &ShardCluster,
    replicas: &BTreeMap<SegmentId, Replica>,
    backups: &[usize],
) -> Vec<SegmentId> {
    put_all_of(cluster, GONE, replicas, backups)
}

/// Puts all segments of a master on these backups.
pub(crate) fn put_all_of(
    cluster: &ShardCluster,
    master: MasterId,
    replicas: &BTreeMap<SegmentId, Replica>,
    backups: &[usize],
) -> Vec<SegmentId> {
    for (segment, replica) in replicas {
        for backup in backups {
            put_of(cluster, master, *backup, *segment, replica);
        }
    }
    digest(replicas).unwrap()
}
