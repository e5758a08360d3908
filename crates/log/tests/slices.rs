//! Bounds on the work in a turn of the log's thread, counted and not timed: requests wait for it.

use std::sync::{Arc, Mutex};
use thunderhead_log::{
    Cleaner, Error, Log, LogId, Memory, Options, Rebuild, Recorder, Replicator, SegmentBytes,
    SegmentKind, TableId, TabletRange,
};
use thunderhead_wire::{LogPosition, SegmentId};

const TABLE: TableId = TableId(1);
const SEGMENT_BYTES: usize = 1 << 20;

/// The amounts that a replicator was given since the last turn, and the most in any turn.
#[derive(Default)]
struct Given {
    head: SegmentId,
    appended: LogPosition,
    beside_head: usize,
    freed: usize,
    longest: usize,
    most_freed: usize,
    survivors: usize,
}

#[derive(Clone, Default)]
struct Meter(Arc<Mutex<Given>>);

impl Meter {
    /// Ends a turn of the log's thread.
    fn turn_is_over(&self) {
        let mut given = self.0.lock().unwrap();
        given.longest = given.longest.max(std::mem::take(&mut given.beside_head));
        given.most_freed = given.most_freed.max(std::mem::take(&mut given.freed));
    }
}

impl Replicator for Meter {
    fn opened(&mut self, segment: SegmentId, kind: SegmentKind) {
        let mut given = self.0.lock().unwrap();
        match kind {
            SegmentKind::Survivor => given.survivors += 1,
            _ => given.head = segment,
        }
    }

    fn appended(&mut self, segment: SegmentId, offset: u32, bytes: SegmentBytes<'_>) {
        let mut given = self.0.lock().unwrap();
        if segment == given.head {
            given.appended = LogPosition { segment, offset: offset + bytes.len() as u32 };
        } else {
            given.beside_head += bytes.len();
        }
    }

    fn closed(&mut self, _: SegmentId, _: u32) {}

    fn freed(&mut self, _: SegmentId) {
        self.0.lock().unwrap().freed += 1;
    }

    fn durable(&mut self) -> LogPosition {
        self.0.lock().unwrap().appended
    }

    fn is_durable(&self, _: SegmentId) -> bool {
        true
    }
}

/// Returns a log with its cleaner and a meter of its turns. Its survivors are large, several in a
/// pass.
fn measured() -> (Log, Cleaner, Meter) {
    let memory = Memory::with_seglets(32 << 20, 16 << 10).unwrap();
    let mut options = Options { segment_bytes: SEGMENT_BYTES, ..Options::default() };
    options.cleaner.free_fraction_low = 0.2;
    let meter = Meter::default();
    let mut log = Log::new(&memory, LogId(3), options, Box::new(meter.clone())).unwrap();
    log.create_tablet(TabletRange::whole(TABLE)).unwrap();
    let cleaner = log.cleaner().unwrap();
    (log, cleaner, meter)
}

#[test]
fn survivors_are_handed_over_in_pieces_while_nine_tenths_are_live() {
    let (mut log, mut cleaner, meter) = measured();
    let value = vec![7; 1000];
    let mut state = 1u64;
    let mut keys = 0u64;
    let mut is_full = false;
    for _ in 0..80_000 {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let usage = log.usage();
        is_full |= usage.live_bytes * 10 >= usage.log_bytes * 9
            || usage.live_bytes * 100 >= usage.live_limit * 99;
        if !is_full {
            keys += 1;
        }
        let key = if is_full { (state >> 33) % keys } else { keys };
        match log.write(TABLE, &key.to_be_bytes(), &value) {
            Ok(_) | Err(Error::CleanerBehind) => {}
            Err(error) => panic!("{error}"),
        }
        log.turn();
        meter.turn_is_over();
        cleaner.step();
    }
    let given = meter.0.lock().unwrap();
    let usage = log.usage();
    assert!(is_full && usage.passes > 4 && given.survivors > 8, "{usage:?}");
    assert!(usage.passes_freed > 2, "cleaning gets on: {usage:?}");
    // A piece, and a smaller one each time the write waited for memory.
    assert!(given.longest <= 192 << 10, "{} bytes were handed over in one turn", given.longest);
    assert!(given.longest >= 64 << 10, "{} bytes", given.longest);
    assert!(given.most_freed <= 24, "{} segments were freed in one turn", given.most_freed);
}

/// A step of the replay ends a turn of the log, and so does the turn itself.
#[test]
fn a_turn_of_a_replay_hands_over_two_short_pieces_of_its_side_segments() {
    let memory = Memory::with_seglets(32 << 20, 16 << 10).unwrap();
    let options = Options { segment_bytes: SEGMENT_BYTES, ..Options::default() };
    let former = Recorder::new();
    let mut old = Log::new(&memory, LogId(2), options.clone(), Box::new(former.clone())).unwrap();
    let whole = TabletRange::whole(TABLE);
    old.create_tablet(whole).unwrap();
    for key in 0..8000u32 {
        old.write(TABLE, &key.to_be_bytes(), &[7; 1000]).unwrap();
        old.turn();
    }
    let memory = Memory::with_seglets(32 << 20, 16 << 10).unwrap();
    let meter = Meter::default();
    let mut log = Log::new(&memory, LogId(3), options, Box::new(meter.clone())).unwrap();
    let mut rebuild = Rebuild::begin_in_side_log(&mut log, [(whole, SegmentId::NONE)]).unwrap();
    for replica in former.replicas(usize::MAX).into_values() {
        let mut at = Some(0);
        while let Some(from) = at {
            at = rebuild.step(&mut log, &replica.bytes, from, 32, 16 << 10).unwrap();
            log.turn();
            meter.turn_is_over();
        }
    }
    let longest = meter.0.lock().unwrap().longest;
    assert!((1..=64 << 10).contains(&longest), "{longest} bytes were handed over in one turn");
}

/// A round of a shard's requests may have many writes, in which turns end by themselves. Backups
/// that answer at once end more of them.
#[test]
fn a_round_of_many_writes_hands_over_little_more_than_one_of_few() {
    const WRITES: usize = 256;
    let (mut log, mut cleaner, meter) = measured();
    let value = vec![7; 200];
    let (mut state, mut keys, mut behind) = (1u64, 0u64, 0);
    for _ in 0..3_000 {
        for _ in 0..WRITES {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let usage = log.usage();
            let is_full = usage.live_bytes * 100 >= usage.live_limit * 90;
            keys += u64::from(!is_full);
            let key = if is_full { (state >> 33) % keys } else { keys };
            match log.write(TABLE, &key.to_be_bytes(), &value) {
                Ok(_) => {}
                Err(Error::CleanerBehind) => behind += 1,
                Err(error) => panic!("{error}"),
            }
        }
        log.turn();
        (0..8).for_each(|_| log.turn_again());
        meter.turn_is_over();
        for _ in 0..8 {
            cleaner.step();
        }
    }
    let given = meter.0.lock().unwrap();
    assert!(log.usage().passes_freed > 2 && behind > 0, "{behind} {:?}", log.usage());
    // The piece of the turn, one for each 64 writes, and those of writes that wait for memory.
    let most = (128 << 10) + WRITES / 64 * (32 << 10) + (64 << 10) + 2 * WRITES * 512;
    assert!(given.longest <= most, "{} bytes were handed over in one round", given.longest);
    assert!(given.longest >= 128 << 10, "{} bytes", given.longest);
}

#[test]
fn dropped_tables_are_forgotten_with_the_head() {
    let memory = Memory::with_seglets(4 << 20, 4 << 10).unwrap();
    let options = Options { segment_bytes: 64 << 10, ..Options::default() };
    let mut log = Log::new(&memory, LogId(3), options, Box::new(Meter::default())).unwrap();
    let head = |log: &Log| log.appended().segment;
    let first = head(&log);
    // Other tables than the dropped ones need no new head, as long as the dropped ones can be
    // listed.
    for table in 1..100 {
        let range = TabletRange::whole(TableId(table));
        log.create_tablet(range).unwrap();
        assert!(log.drop_tablet(range));
    }
    assert_eq!(head(&log), first);
    let again = TabletRange::whole(TableId(7));
    log.create_tablet(again).unwrap();
    assert!(head(&log) > first, "the table must not find its old objects");
    // Only drops: the list begins anew with a head.
    let before = head(&log);
    for table in 100..10_000 {
        let range = TabletRange::whole(TableId(table));
        log.create_tablet(range).unwrap();
        log.drop_tablet(range);
    }
    assert!(head(&log) > before, "a list that cannot grow ends with its head");
}
