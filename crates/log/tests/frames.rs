//! A storage has a fixed number of frames, and a log needs frames to free frames. For all writes,
//! however slow its backups and cleaners are, a log never has more segments than its limit, and
//! makes progress.

use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use thunderhead_log::{
    CleanerOptions, Error, FRAMES_SPARE, Log, LogId, Memory, Options, Rebuild, Recorder,
    Replicator, SegmentBytes, SegmentId, SegmentKind, TableId, TabletRange, TakeIn,
};
use thunderhead_wire::LogPosition;

const TABLE: TableId = TableId(1);
const SEGMENTS: usize = 24;
const SEGMENT_BYTES: usize = 8 << 10;

/// A storage that refuses a segment without a frame for it. Bytes after that are never durable.
#[derive(Clone, Default)]
struct Storage(Arc<Mutex<Frames>>, Recorder);

#[derive(Default)]
struct Frames {
    taken: BTreeSet<SegmentId>,
    most: usize,
    at_most: usize,
    refused: Option<SegmentId>,
}

impl Storage {
    fn with(at_most: usize) -> Storage {
        let storage = Storage::default();
        storage.0.lock().unwrap().at_most = at_most;
        storage
    }

    fn most(&self) -> usize {
        self.0.lock().unwrap().most
    }
}

impl Replicator for Storage {
    fn opened(&mut self, segment: SegmentId, kind: SegmentKind) {
        let mut frames = self.0.lock().unwrap();
        frames.taken.insert(segment);
        frames.most = frames.most.max(frames.taken.len());
        if frames.taken.len() > frames.at_most {
            frames.refused.get_or_insert(segment);
        }
        self.1.opened(segment, kind);
    }

    fn appended(&mut self, segment: SegmentId, offset: u32, bytes: SegmentBytes<'_>) {
        if self.0.lock().unwrap().refused.is_none() {
            self.1.appended(segment, offset, bytes);
        }
    }

    fn closed(&mut self, segment: SegmentId, length: u32) {
        self.1.closed(segment, length);
    }

    fn freed(&mut self, segment: SegmentId) {
        self.0.lock().unwrap().taken.remove(&segment);
        Replicator::freed(&mut self.1, segment);
    }

    fn durable(&mut self) -> LogPosition {
        self.1.durable()
    }

    fn is_durable(&self, survivor: SegmentId) -> bool {
        let frames = self.0.lock().unwrap();
        frames.refused.is_none_or(|refused| survivor < refused) && self.1.is_durable(survivor)
    }
}

fn log(storage: &Storage) -> Log {
    let memory = Memory::with_seglets(SEGMENTS * SEGMENT_BYTES, 1024).unwrap();
    let cleaner = CleanerOptions { delete_seglets: 2, ..CleanerOptions::default() };
    let options = Options { segment_bytes: SEGMENT_BYTES, cleaner, ..Options::default() };
    let mut log = Log::new(&memory, LogId(1), options, Box::new(storage.clone())).unwrap();
    log.create_tablet(TabletRange::whole(TABLE)).unwrap();
    log
}

/// The most frames of a log with its memory, and of a log that is rebuilt from another.
const FRAMES: usize = 2 * SEGMENTS + FRAMES_SPARE;
const FRAMES_OF_A_REBUILD: usize = SEGMENTS + FRAMES_SPARE;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_log_never_exceeds_its_limit_of_segments_and_makes_progress(
        keys in 8..90u16,
        length in 20..900usize,
        steps in 1..12usize,
        holds in 1..60usize,
        deletes in 0..4usize,
        seed in any::<u64>(),
    ) {
        let storage = Storage::with(FRAMES);
        let mut log = log(&storage);
        let mut cleaner = log.cleaner().unwrap();
        let mut random = seed | 1;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) as usize % below
        };
        for number in 0..2500 {
            if number % holds == 0 {
                storage.1.hold(next(2) == 0);
            }
            let key = (next(keys.into()) as u16).to_le_bytes();
            let is_deleted = next(8) < deletes;
            let value = vec![7; next(length)];
            let mut waits = 0;
            loop {
                let done = match is_deleted {
                    true => log.delete(TABLE, &key, thunderhead_log::Condition::Always).map(|_| ()),
                    false => log.write(TABLE, &key, &value).map(|_| ()),
                };
                match done {
                    Ok(()) | Err(Error::MemoryFull { .. }) => break,
                    Err(Error::CleanerBehind) => {}
                    Err(error) => panic!("{error}"),
                }
                waits += 1;
                prop_assert!(waits < 500, "stuck with {} segments after {number}", storage.most());
                (0..steps).for_each(|_| _ = cleaner.step());
                storage.1.hold(waits < holds);
                log.turn();
            }
            log.turn();
        }
        prop_assert!(storage.most() <= FRAMES, "{} of {FRAMES}", storage.most());
    }
}

#[test]
fn a_rebuilt_log_takes_few_frames_beside_the_former_one() {
    for is_beside in [false, true] {
        rebuilt_beside_the_former_one(is_beside);
    }
}

fn rebuilt_beside_the_former_one(is_beside: bool) {
    // The former log: a few objects, written again and again until it is as large as it may grow.
    // They are written in no order, so that most segments keep a live object and stay.
    let former = Storage::with(FRAMES);
    let mut old = log(&former);
    let mut cleaner = old.cleaner().unwrap();
    let mut random = 1u64;
    for number in 0..3000u32 {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let key = if number < 110 { number } else { (random >> 33) as u32 % 110 };
        let value = vec![number as u8; 900];
        while old.write(TABLE, &key.to_le_bytes(), &value).is_err() {
            cleaner.step();
            old.turn();
        }
        old.turn();
    }
    let replicas = former.1.replicas(usize::MAX);
    assert!(replicas.len() > SEGMENTS, "{}", replicas.len());

    let storage = Storage::with(FRAMES_OF_A_REBUILD);
    let memory = Memory::with_seglets(SEGMENTS * SEGMENT_BYTES, 1024).unwrap();
    let options = Options { segment_bytes: SEGMENT_BYTES, ..Options::default() };
    let mut new = Log::new(&memory, LogId(2), options, Box::new(storage.clone())).unwrap();
    let mut cleaner = new.cleaner().unwrap();
    let tablets: Vec<_> = old.tablets().collect();
    let mut rebuild = match is_beside {
        true => Rebuild::begin_in_side_log(&mut new, tablets).unwrap(),
        false => Rebuild::begin(&mut new, tablets).unwrap(),
    };
    for replica in replicas.values() {
        let (mut at, mut waits) = (Some(0), 0);
        while let Some(from) = at {
            match rebuild.step(&mut new, &replica.bytes, from, 16, 4096) {
                Ok(next) => (at, waits) = (next, 0),
                Err(error) => {
                    waits += 1;
                    assert!(waits < 500, "{error} with {} segments", storage.most());
                    cleaner.step();
                }
            }
            new.turn();
        }
    }
    let mut waits = 0;
    while rebuild.take_in(&mut new) != TakeIn::Done {
        waits += 1;
        assert!(waits < 500, "not taken in, with {} segments", storage.most());
        cleaner.step();
        new.turn();
    }
    while rebuild.finish(&mut new).is_err() {
        cleaner.step();
        new.turn();
    }
    assert!(storage.most() <= FRAMES_OF_A_REBUILD, "{}", storage.most());
    for key in 0..110u32 {
        assert!(new.read(TABLE, &key.to_le_bytes()).unwrap().is_some(), "{key}");
    }
}
