//! Segments without live entries leave the log unread, and never while one of their entries guards
//! against an entry that a recovery would find.

mod common;
mod digest;

use common::options;
use std::collections::BTreeMap;
use thunderhead_log::{
    Cleaner, Completion, Condition, Cursor, Error, LeaseId, Log, LogId, Memory, NoReplication,
    Recorder, Replay, Replica, Replicator, SegmentId, Sequence, Step, TableId, TabletRange,
    Tombstones, Usage,
};

const TABLE: TableId = TableId(1);
const SEGMENT_BYTES: usize = 16 << 10;

fn log(tombstones: Tombstones, low: f64, replicator: Box<dyn Replicator>) -> Log {
    log_in(1 << 20, tombstones, low, replicator)
}

fn log_in(bytes: usize, tombstones: Tombstones, low: f64, replicator: Box<dyn Replicator>) -> Log {
    let memory = Memory::with_seglets(bytes, 1024).unwrap();
    let mut options = options(SEGMENT_BYTES, tombstones, low);
    // If cleaning begins at once, segments that are not almost empty are combined.
    options.cleaner.compaction = low < 1.0;
    let mut log = Log::new(&memory, LogId(1), options, replicator).unwrap();
    log.create_tablet(TabletRange::whole(TABLE)).unwrap();
    log
}

/// Updates a few objects again and again, and steps the cleaner after every few updates.
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
    // Some objects cross seglets, and others leave the end of a seglet empty.
    vec![round as u8; if round.is_multiple_of(7) { 700 } else { 90 }]
}

fn all_left_unread(usage: &Usage) {
    assert!(usage.cleaned_segments > 100, "{usage:?}");
    assert_eq!(usage.spent_segments, usage.cleaned_segments, "{usage:?}");
    assert_eq!((usage.entries_moved, usage.residuals, usage.compactions), (0, 0, 0), "{usage:?}");
    assert_eq!(usage.survivor_bytes, 0, "{usage:?}");
}

#[test]
fn segments_of_overwritten_objects_leave_unread() {
    for tombstones in [Tombstones::Folded, Tombstones::Classic] {
        let usage = overwrite(tombstones, |log, round| {
            log.write(TABLE, &key_of(round), &value_of(round)).unwrap();
        });
        all_left_unread(&usage);
    }
}

#[test]
fn segments_of_deleted_objects_and_their_tombstones_leave_unread() {
    for tombstones in [Tombstones::Folded, Tombstones::Classic] {
        let usage = overwrite(tombstones, |log, round| {
            log.write(TABLE, &key_of(round), &value_of(round)).unwrap();
            if round >= 20 {
                log.delete(TABLE, &key_of(round - 20), Condition::Always).unwrap();
            }
        });
        all_left_unread(&usage);
    }
}

#[test]
fn forgotten_completion_records_do_not_keep_a_segment() {
    for is_grouped in [false, true] {
        let usage = overwrite(Tombstones::Folded, |log, round| {
            let (key, value) = (key_of(round), value_of(round));
            if is_grouped && round % 4 == 0 {
                log.begin_group(
                    LeaseId(5),
                    Sequence(round),
                    4 * Log::grouped_bytes(key.len(), 700),
                );
            }
            let sequence = Sequence(round);
            let completion = Completion { lease: LeaseId(5), sequence, result: b"done" };
            log.write_completed(TABLE, &key, &value, Condition::Always, completion).unwrap();
            if round % 4 == 3 {
                log.end_group();
            }
            if round >= 40 {
                assert!(log.forget_completion(LeaseId(5), Sequence(round - 40)));
            }
        });
        all_left_unread(&usage);
    }
}

type Replicas = BTreeMap<SegmentId, Replica>;
type Objects = BTreeMap<Vec<u8>, Vec<u8>>;

/// The segments that a recovery would replay: the newest digest on an open head names them.
fn recoverable(replicas: &Replicas) -> Vec<&[u8]> {
    let named = digest::newest(replicas).expect("some head is open").into_iter();
    named.map(|id| &*replicas.get(&id).unwrap_or_else(|| panic!("{id} is gone")).bytes).collect()
}

/// The objects of a log that is recovered after a crash left these replicas.
fn recovered(replicas: &Replicas) -> Objects {
    let mut log = log(Tombstones::Folded, 0.1, Box::<NoReplication>::default());
    log.drop_tablet(TabletRange::whole(TABLE));
    log.turn();
    let tablets = [(TabletRange::whole(TABLE), SegmentId::NONE)];
    let mut replay = Replay::new(&mut log, tablets).unwrap();
    for segment in recoverable(replicas) {
        replay.segment(segment).unwrap();
    }
    assert_eq!(replay.finish().unwrap().damage, []);
    let (mut found, mut cursor) = (Objects::new(), Some(Cursor::default()));
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
    // Idle once may mean that an earlier pass waits for a digest.
    for _ in 0..6 {
        while cleaner.step() != Step::Idle {
            log.turn();
        }
        fill(log, 1);
    }
}

/// Writes objects that stay, over so many segments, with one other object among them.
fn stay(log: &mut Log, segments: u32, among: &[u8]) {
    for number in 0..segments * 30 {
        log.write(TABLE, &number.to_be_bytes(), &[3; 500]).unwrap();
        if number == 10 {
            log.write(TABLE, among, b"first").unwrap();
        }
    }
    log.turn();
}

/// Writes an object's first version among objects that stay, then runs `between`. Then the second
/// version and its delete leave the log. The first version is still there, or was moved, and must
/// not come back.
fn deleted_stays_deleted(between: impl Fn(&mut Log, &mut Cleaner)) {
    let recorder = Recorder::new();
    let mut log = log(Tombstones::Folded, 1.0, Box::new(recorder.clone()));
    let mut cleaner = log.cleaner().unwrap();
    stay(&mut log, 2, b"hot");
    between(&mut log, &mut cleaner);
    // This names the segment of the first version.
    log.write(TABLE, b"hot", b"second").unwrap();
    fill(&mut log, 3);
    log.delete(TABLE, b"hot", Condition::Always).unwrap();
    log.turn();
    let (deleted, before) = (recorder.events(), log.usage().spent_segments);
    fill(&mut log, 3);
    clean(&mut log, &mut cleaner);
    assert!(log.usage().spent_segments > before, "{:?}", log.usage());
    for events in (deleted..=recorder.events()).step_by(7).chain([recorder.events()]) {
        let found = recovered(&recorder.replicas(events));
        assert_eq!(found.get(&b"hot"[..]), None, "after {events} events");
        assert!(found.len() >= 40 + 30, "{} after {events} events", found.len());
    }
}

#[test]
fn a_segment_that_guards_an_older_one_leaves_a_tombstone() {
    deleted_stays_deleted(|log, _| fill(log, 3));
}

/// A survivor's id is above that of the head that was open when it was made, and that head may name
/// it.
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
        assert_eq!(log.appended().segment, head, "the head is below the survivors");
    });
}

/// A log whose backups are late, and its contents after each step.
struct Late {
    log: Log,
    cleaner: Cleaner,
    recorder: Recorder,
    held: Objects,
    /// The objects after so many events.
    states: Vec<(usize, Objects)>,
    /// The number of durable states, while nothing more becomes durable.
    durable: Option<usize>,
}

impl Late {
    fn new(tombstones: Tombstones) -> Late {
        let recorder = Recorder::new();
        let log = log_in(288 << 10, tombstones, 0.2, Box::new(recorder.clone()));
        let cleaner = log.cleaner().unwrap();
        let (states, held) = (vec![(recorder.events(), Objects::new())], Objects::new());
        Late { log, cleaner, recorder, held, states, durable: None }
    }

    fn hold(&mut self, is_held: bool) {
        self.recorder.hold(is_held);
        self.durable = is_held.then_some(self.states.len());
    }

    /// Writes an object, or deletes it, and records the new state.
    fn change(&mut self, key: u64, value: Option<Vec<u8>>) {
        let key = key.to_be_bytes();
        loop {
            let done = match &value {
                Some(value) => self.log.write(TABLE, &key, value).map(drop),
                None => self.log.delete(TABLE, &key, Condition::Always).map(drop),
            };
            match done {
                Ok(()) => break,
                // Durability is never held for as long as that.
                Err(Error::CleanerBehind) => self.hold(false),
                Err(error) => panic!("{error}"),
            }
            self.clean();
        }
        match value {
            Some(value) => self.held.insert(key.to_vec(), value),
            None => self.held.remove(&key[..]),
        };
        self.turn();
    }

    fn clean(&mut self) {
        self.cleaner.step();
        self.turn();
    }

    fn turn(&mut self) {
        self.log.turn();
        self.states.push((self.recorder.events(), self.held.clone()));
    }

    /// Crashes all backups, except for durable bytes. Segments that they were told to free are
    /// gone.
    fn crash_now(&self) {
        let durable = self.durable.unwrap_or(self.states.len());
        let (events, expected) = &self.states[durable - 1];
        let mut left = self.recorder.replicas(*events);
        for freed in self.recorder.freed() {
            left.remove(&freed);
        }
        assert!(recovered(&left) == *expected, "{events} events are durable");
    }

    /// Crashes after each event: the recovery finds the state before or after the operation.
    fn crash_everywhere(&self) {
        for states in self.states.windows(2) {
            let [(from, before), (until, after)] = states else { unreachable!() };
            for events in *from..*until {
                let found = recovered(&self.recorder.replicas(events));
                let is_known = found == *before || events > *from && found == *after;
                assert!(is_known, "after {events} events");
            }
        }
    }
}

#[test]
fn a_crash_loses_no_object_and_resurrects_none_while_backups_are_late() {
    // The changes in a row during which nothing becomes durable, and then during which all does.
    let patterns = [(1, 3), (40, 5), (150, 50)];
    for (number, pattern) in patterns.into_iter().enumerate() {
        for tombstones in [Tombstones::Folded, Tombstones::Classic] {
            late(tombstones, pattern, number as u64);
        }
    }
}

fn late(tombstones: Tombstones, (held, free): (u64, u64), seed: u64) {
    let mut late = Late::new(tombstones);
    let mut random = seed;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) % below
    };
    for change in 0..1000 {
        match change % (held + free) {
            0 if held > 0 => late.hold(true),
            at if at == held => late.hold(false),
            _ => {}
        }
        let value = vec![change as u8; 300 + next(600) as usize];
        // Among the objects that stay, some are written once more, and some segments later deleted
        // for good.
        let doomed = |at: u64, begin: u64| {
            let number = (change / 20).checked_sub(begin)?;
            (change % 20 == at && number < 12).then_some(2000 + number)
        };
        if change < 60 {
            let key = if change % 5 == 0 { 2000 + change / 5 } else { 1000 + change };
            late.change(key, Some(value));
        } else if let Some(key) = doomed(3, 4) {
            late.change(key, Some(value));
        } else if let Some(key) = doomed(13, 7) {
            late.change(key, None);
        } else {
            late.change(next(12), (next(5) > 0).then_some(value));
        }
        if change % 7 == 0 {
            late.clean();
            late.crash_now();
        }
    }
    late.hold(false);
    late.clean();
    late.crash_everywhere();
    let usage = late.log.usage();
    assert!(usage.spent_segments > 4, "{usage:?}");
}

/// While nothing becomes durable no segment leaves the log; but compacted memory is free for
/// writers in the next turn.
#[test]
fn a_blocked_writer_gets_the_memory_of_segments_without_live_entries() {
    for tombstones in [Tombstones::Folded, Tombstones::Classic] {
        let recorder = Recorder::new();
        let mut log = log(tombstones, 0.1, Box::new(recorder.clone()));
        let mut cleaner = log.cleaner().unwrap();
        let mut round = 0;
        let mut write = |log: &mut Log| {
            log.write(TABLE, &key_of(round % 30), &value_of(round))?;
            round += 1;
            Ok::<_, Error>(())
        };
        // Half of the writes are durable, and none of the later ones.
        while log.usage().free_bytes > log.usage().log_bytes / 2 {
            write(&mut log).unwrap();
            log.turn();
        }
        recorder.hold(true);
        // Continues until nothing is left to compact.
        let mut written = None;
        loop {
            match write(&mut log) {
                Ok(()) => written = written.map(|written: u64| written + 1),
                Err(error) => {
                    assert_eq!(error, Error::CleanerBehind);
                    written.get_or_insert(0);
                    if matches!(cleaner.step(), Step::Combined | Step::Idle) {
                        break;
                    }
                }
            }
            log.turn();
        }
        let usage = log.usage();
        assert!(usage.compactions > 10 && written > Some(1000), "{written:?} {usage:?}");
        assert_eq!(usage.cleaned_segments, usage.spent_segments, "{usage:?}");
        // As soon as more is durable, passes are freed again.
        recorder.hold(false);
        for _ in 0..3000 {
            let mut tries = 0;
            while write(&mut log).is_err() {
                cleaner.step();
                log.turn();
                tries += 1;
                assert!(tries < 50, "{:?}", log.usage());
            }
        }
        assert!(log.usage().passes_freed > usage.passes_freed, "{:?}", log.usage());
    }
}
