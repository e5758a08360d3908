//! The state that cleaners and the log's own thread leave when they are done, however they
//! interleave: every byte is counted once, and all memory is accounted for.

use super::*;
use crate::format::entry::{DEAD, Kind};
use crate::memory::segment::Segment;
use crate::sync::lock;
use crate::{
    Cleaner, CleanerThreads, Completion, Condition, Phase, Rebuild, Recorder, Step, TakeIn,
    Tombstones,
};
use std::collections::BTreeSet;
use thunderhead_wire::{LeaseId, Sequence};

const TABLE: TableId = TableId(1);
const SEGMENT_BYTES: usize = 16 << 10;

/// A log whose cleaners begin when less than `low` of memory is free.
fn log(tombstones: Tombstones, low: f64, replicator: Box<dyn Replicator>) -> Log {
    log_of(SEGMENT_BYTES, tombstones, low, replicator)
}

fn log_of(
    segment_bytes: usize,
    tombstones: Tombstones,
    low: f64,
    replicator: Box<dyn Replicator>,
) -> Log {
    let memory = Memory::with_seglets(1 << 20, 1024).unwrap();
    let mut options = Options { segment_bytes, tombstones, ..Options::default() };
    let cleaner = &mut options.cleaner;
    (cleaner.free_fraction_low, cleaner.free_share_low) = (low, low);
    cleaner.segments_per_pass = 3;
    let mut log = Log::new(&memory, LogId(1), options, replicator).unwrap();
    log.create_tablet(TabletRange::whole(TABLE)).unwrap();
    log
}

fn nothing() -> Box<crate::NoReplication> {
    Box::default()
}

fn coming(log: &Log) -> usize {
    log.shared.sums.coming_seglets.load(Ordering::Relaxed)
}

/// Closes the head and opens a new one.
fn roll(log: &mut Log) -> SegmentId {
    log.turn();
    let head = log.head.id();
    assert!(log.roll(log.shared.reserves.for_writes()), "{:?}", log.usage());
    log.turn();
    head
}

fn write(log: &mut Log, keys: impl IntoIterator<Item = u64>, length: usize) {
    for key in keys {
        log.write(TABLE, &key.to_be_bytes(), &vec![key as u8; length]).unwrap();
    }
}

/// Fills so many segments with objects that are overwritten at once.
fn spend(log: &mut Log, segments: u64) {
    for _ in 0..segments {
        write(log, 1000..1012, 900);
        roll(log);
    }
}

/// Bytes of the live entries in a segment, judged by the entries.
fn alive_in(log: &Log, segment: &Segment) -> usize {
    let present = log.shared.present();
    let mut alive = 0;
    for (at, frame) in segment.entries(&log.memory) {
        let kind = Kind::of(frame.flags);
        let lives = matches!(kind, Some(Kind::Object | Kind::Completion | Kind::Completions));
        if lives && frame.flags & DEAD == 0 {
            alive += frame.entry_bytes();
        }
        let prior = Located::of(&log.memory, at, &frame).and_then(|located| located.fields.prior);
        if let Some(prior) = prior.filter(|prior| !present.is_gone(*prior)) {
            let (lowest, highest) = segment.prior_span.bounds().expect("something is named");
            assert!((lowest..=highest).contains(&prior.0), "{prior} in {segment:?}");
        }
    }
    alive
}

/// Lets all pending work finish, and then checks the log's state.
fn check_settled(log: &mut Log) {
    let keep = log.shared.reserves.for_writes();
    // The last writer may have left no room for another head.
    if log.memory.free_seglets() < keep + 8 {
        let mut cleaner = log.cleaner().unwrap();
        for _ in 0..100 {
            cleaner.step();
            log.make_haste();
        }
    }
    // A pass becomes part of the log by one digest, and its memory is free when that digest is
    // durable.
    (0..3).for_each(|_| _ = roll(log));
    let (shared, memory) = (Arc::clone(&log.shared), Arc::clone(&log.memory));
    assert!(shared.passes.is_empty());
    assert_eq!(coming(log), 0, "no seglets are pending");
    let mut candidates = lock(&shared.candidates);
    shared.take_closed(&mut candidates);
    shared.free_limbo(&mut candidates);
    let (mut live, mut seglets, mut ids) = (0, 0, BTreeSet::new());
    for segment in candidates.segments() {
        let dead = memory.dead_bytes(segment.account()).dead as usize;
        let idle = memory.idle_bytes(segment.account()) as usize;
        let alive = alive_in(log, segment);
        assert_eq!(idle + dead + alive, segment.length, "{idle}, {dead}, {alive}: {segment:?}");
        assert!(ids.insert(segment.id), "{} is there twice", segment.id);
        live += alive;
        seglets += segment.seglets.len();
    }
    let head = &log.head.appender;
    let account = memory.seglet_of(head.first());
    let lifeless = memory.dead_bytes(account).dead + memory.idle_bytes(account);
    live += head.length() - lifeless as usize;
    assert_eq!(live as u64, log.live_bytes, "the live entries are the ones counted as live");
    ids.insert(log.head.id());
    assert_eq!(ids, log.ledger.digest().collect(), "the log's segments are here");
    let taken = head.taken_bytes() / memory.seglet_bytes() + seglets + memory.index_seglets();
    assert_eq!(taken + memory.free_seglets(), memory.seglets(), "no memory is lost");
}

/// A deterministic source of numbers.
struct Draws(u64);

impl Draws {
    fn below(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// Writes, deletes or updates an object, if there is memory for it.
fn change(log: &mut Log, draws: &mut Draws, number: u64, keys: u64) -> Result<(), Error> {
    let key = draws.below(keys);
    let (key, value) = (key.to_be_bytes(), vec![7; draws.below(400) as usize]);
    match draws.below(8) {
        0 | 1 => log.delete(TABLE, &key, Condition::Always).map(drop),
        2 => {
            let sequence = Sequence(number);
            let completion = Completion { lease: LeaseId(3), sequence, result: b"done" };
            log.write_completed(TABLE, &key, &value, Condition::Always, completion)?;
            let earlier = Sequence(number.wrapping_sub(40 + number % 80));
            log.forget_completion(LeaseId(3), earlier);
            Ok(())
        }
        _ => log.write(TABLE, &key, &value).map(drop),
    }
}

/// In some periods all changes go to a few keys, so that some segments have no live entry left.
fn keys_at(number: u64) -> u64 {
    if number % 1000 < 300 { 900 } else { 30 }
}

#[test]
fn every_byte_is_counted_once_after_cleaners_ran_on_threads() {
    for tombstones in [Tombstones::Folded, Tombstones::Classic] {
        let mut log = log(tombstones, 0.5, nothing());
        let cleaners = CleanerThreads::start(&log, 2, |_| {});
        let mut draws = Draws(5);
        for number in 0..60_000 {
            while let Err(error) = change(&mut log, &mut draws, number, keys_at(number)) {
                assert!(error.is_transient(), "{error}");
                log.turn();
            }
        }
        drop(cleaners);
        let usage = log.usage();
        assert!(usage.compactions + usage.passes > 0, "{usage:?}");
        check_settled(&mut log);
    }
}

/// Runs the same changes with known points inside a cleaner's step: now and then the index refuses
/// a copy, because the copied entry has died.
#[test]
fn every_byte_is_counted_once_after_changes_during_a_step() {
    for tombstones in [Tombstones::Folded, Tombstones::Classic] {
        let mut log = log(tombstones, 0.4, nothing());
        let mut cleaner = log.cleaner().unwrap();
        let (mut draws, mut number, mut told) = (Draws(7), 0, 0);
        for round in 0..6000 {
            let mut some = |log: &mut Log, count: u64, keys: u64| {
                for _ in 0..count {
                    _ = change(log, &mut draws, number, keys);
                    number += 1;
                }
            };
            some(&mut log, 5, keys_at(round * 5));
            cleaner.step_watched(&mut |phase| {
                if let Phase::Telling { entries } = phase {
                    told += entries as u64;
                    some(&mut log, 10, 900);
                }
            });
            log.turn();
            if round % 1000 == 0 {
                check_settled(&mut log);
            }
        }
        let usage = log.usage();
        assert!(told > usage.entries_moved + 20, "{told} copies, {usage:?}");
        assert!(usage.spent_segments > 5 && usage.compactions > 20, "{usage:?}");
        check_settled(&mut log);
    }
}

#[test]
fn pending_seglets_are_freed_by_the_durable_digest() {
    let recorder = Recorder::new();
    let mut log = log(Tombstones::Folded, 1.0, Box::new(recorder.clone()));
    let mut cleaner = log.cleaner().unwrap();
    spend(&mut log, 4);
    let free = log.memory.free_seglets();
    assert_eq!((cleaner.step(), log.usage().spent_segments), (Step::Combined, 3));
    let seglets = coming(&log);
    assert_eq!(seglets, 3 * 11, "all seglets of the objects in each segment");
    log.turn();
    assert_eq!(coming(&log), seglets, "no digest is due");
    recorder.hold(true);
    assert!(log.roll(log.shared.reserves.for_writes()));
    log.turn();
    assert_eq!((coming(&log), log.ledger.progress.named), (seglets, 1), "not durable yet");
    recorder.hold(false);
    log.turn();
    assert_eq!((coming(&log), log.ledger.progress.freed), (0, 1));
    assert!(log.memory.free_seglets() + 2 >= free + seglets, "two heads were closed");
    check_settled(&mut log);
}

#[test]
fn a_pass_stays_pending_when_its_digest_is_refused() {
    let segment_bytes = 64 << 10;
    let mut log = log_of(segment_bytes, Tombstones::Folded, 1.0, nothing());
    // The heads' statistics of these tablets take more than a seglet.
    for table in 2..80 {
        log.create_tablet(TabletRange::whole(TableId(table))).unwrap();
    }
    let mut cleaner = log.cleaner().unwrap();
    spend(&mut log, 4);
    assert_eq!(cleaner.step(), Step::Combined);
    log.turn();
    log.turn();
    assert!(log.ledger.has_ready_pass());
    let named: BTreeSet<SegmentId> = log.ledger.digest().collect();
    let (seglets, free) = (coming(&log), log.memory.free_seglets());
    assert!(seglets > 0);
    // One seglet is free for the head, but no second one.
    assert!(!log.roll(free - 1));
    // And the open head has no room.
    for key in 0u64.. {
        if log.head.appender.length() + 85 > segment_bytes {
            break;
        }
        write(&mut log, [key % 900], 10);
    }
    assert!(!log.renew_digest(0));
    assert!(log.ledger.has_ready_pass());
    assert_eq!(log.ledger.digest().collect::<BTreeSet<_>>(), named, "as it was");
    assert_eq!(coming(&log), seglets);
    roll(&mut log);
    assert_eq!((coming(&log), log.ledger.progress.freed), (0, 1));
    check_settled(&mut log);
}

/// While a writer is blocked, compaction frees memory sooner; but it frees no frames when these are
/// too few.
#[test]
fn spent_segments_are_compacted_while_a_writer_waits_unless_segments_are_too_many() {
    let mut log = log(Tombstones::Folded, 1.0, nothing());
    let mut cleaner = log.cleaner().unwrap();
    spend(&mut log, 8);
    let shared = Arc::clone(&log.shared);
    shared.sums.is_short.store(true, Ordering::Relaxed);
    assert_eq!(cleaner.step(), Step::Compacted);
    let ((taken, staying), limit) = (shared.frames.published(), shared.frames.limit());
    shared.frames.publish(limit, limit);
    assert_eq!((cleaner.step(), log.usage().spent_segments), (Step::Combined, 3));
    shared.frames.publish(taken, staying);
    roll(&mut log);
    assert_eq!((cleaner.step(), log.usage().spent_segments), (Step::Compacted, 3));
    shared.sums.is_short.store(false, Ordering::Relaxed);
    assert_eq!((cleaner.step(), log.usage().spent_segments), (Step::Combined, 6));
    check_settled(&mut log);
}

/// Survivors name segments that still need a guard, and not segments that were gone when they were
/// made.
#[test]
fn a_moved_object_does_not_guard_a_segment_that_was_gone() {
    let mut log = log(Tombstones::Folded, 1.0, nothing());
    let mut cleaner = log.cleaner().unwrap();
    write(&mut log, [1], 500);
    let first = roll(&mut log);
    write(&mut log, 100..115, 900);
    let stays = roll(&mut log);
    write(&mut log, [2], 500);
    let last = roll(&mut log);
    // These objects name the first and the last segment; the segment that stays lies between.
    write(&mut log, [1, 2], 500);
    write(&mut log, 200..210, 900);
    let moved = roll(&mut log);
    assert_eq!((cleaner.step(), log.usage().spent_segments), (Step::Combined, 2));
    roll(&mut log);
    let present = log.shared.present();
    assert!(present.is_gone(first) && present.is_gone(last) && !present.is_gone(stays));
    write(&mut log, 200..210, 900);
    while cleaner.step() != Step::Compacted {
        roll(&mut log);
    }
    assert_eq!(log.usage().entries_moved, 2, "{:?}", log.usage());
    write(&mut log, [1, 2], 500);
    roll(&mut log);
    let before = log.usage().spent_segments;
    cleaner.step();
    (0..2).for_each(|_| _ = roll(&mut log));
    assert!(log.usage().spent_segments > before && log.shared.present().is_gone(moved));
    assert_eq!(log.usage().residuals, 0);
    check_settled(&mut log);
}

/// The cleaned segments of all passes that the log has not received.
fn passes(log: &Log) -> Vec<Vec<SegmentId>> {
    let mut passes = Vec::new();
    while let Some(pass) = log.shared.passes.pop() {
        passes.push(pass);
    }
    let of = |pass: &crate::append::shared::Pass| pass.cleaned.iter().map(|it| it.id).collect();
    let cleaned = passes.iter().map(of).collect();
    passes.into_iter().for_each(|pass| log.shared.passes.push(pass));
    cleaned
}

/// Cleaners begin passes during each other's, while a table is rebuilt in side segments.
#[test]
fn two_passes_never_take_the_same_segment_nor_a_side_segment() {
    let former = Recorder::new();
    let mut old = log(Tombstones::Folded, 0.1, Box::new(former.clone()));
    write(&mut old, 0..150, 700);
    old.turn();
    let mut log = log(Tombstones::Folded, 1.0, nothing());
    log.drop_tablet(TabletRange::whole(TABLE));
    let other = TableId(2);
    log.create_tablet(TabletRange::whole(other)).unwrap();
    let mut cleaners = [log.cleaner().unwrap(), log.cleaner().unwrap()];
    let tablets = [(TabletRange::whole(TABLE), SegmentId::NONE)];
    let mut rebuild = Rebuild::begin_in_side_log(&mut log, tablets).unwrap();
    let replicas = former.replicas(usize::MAX);
    let mut left: Vec<(&[u8], u32)> = replicas.values().map(|it| (&*it.bytes, 0)).collect();
    let (mut cleaned, mut beside, mut together) = (BTreeSet::new(), BTreeSet::new(), 0);
    for round in 0..4000u64 {
        let key = (round % 30).to_be_bytes();
        while log.write(other, &key, &vec![round as u8; 400]).is_err() {
            cleaners[0].step();
            log.turn();
        }
        if round % 60 == 0
            && let Some((segment, at)) = left.pop()
        {
            let stepped = rebuild.step(&mut log, segment, at, 20, usize::MAX);
            let behind = stepped.map_or(Some(at), |behind| behind);
            left.extend(behind.map(|behind| (segment, behind)));
        }
        if round % 40 == 0 {
            let [one, another] = &mut cleaners;
            let mut steps = 0;
            one.step_watched(&mut |phase| {
                // Its own pass may have been picked by then, or not.
                if steps == 0 && (phase != Phase::Picking || round % 80 == 0) {
                    another.step();
                    steps += 1;
                }
            });
            let both = passes(&log);
            together += usize::from(both.len() == 2);
            beside.extend(log.ledger.side_segment_ids());
            for id in both.into_iter().flatten() {
                assert!(cleaned.insert(id), "{id} is cleaned twice");
                assert!(!beside.contains(&id), "{id} is a side segment");
            }
            log.turn();
        }
    }
    assert!(together > 5 && !beside.is_empty(), "{together} {}", beside.len());
    assert!(log.usage().spent_segments > 20, "{:?}", log.usage());
    assert!(left.is_empty());
    while rebuild.take_in(&mut log) != TakeIn::Done {
        step_all(&mut cleaners);
    }
    while rebuild.finish(&mut log).is_err() {
        step_all(&mut cleaners);
        log.turn();
    }
    drop(rebuild);
    for key in 0..150u64 {
        assert!(log.read(TABLE, &key.to_be_bytes()).unwrap().is_some(), "{key}");
    }
    check_settled(&mut log);
}

fn step_all(cleaners: &mut [Cleaner]) {
    for cleaner in cleaners {
        cleaner.step();
    }
}
