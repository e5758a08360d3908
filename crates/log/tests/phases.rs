//! The phases that a step of a cleaner reports, and the progress of its work.

mod common;

use common::options;
use thunderhead_log::{
    Cleaner, Log, LogId, Memory, NoReplication, Phase, Step, TableId, TabletRange, Tombstones,
    Usage,
};

const TABLE: TableId = TableId(1);
const OBJECTS: u64 = 3000;
const ROUNDS: u64 = 20_000;

fn log() -> Log {
    let memory = Memory::with_seglets(1 << 20, 1024).unwrap();
    let options = options(16 << 10, Tombstones::Folded, 1.0);
    let mut log = Log::new(&memory, LogId(1), options, Box::<NoReplication>::default()).unwrap();
    log.create_tablet(TabletRange::whole(TABLE)).unwrap();
    log
}

/// Overwrites objects in some order, and steps the cleaner after every few writes.
fn overwrite(mut step: impl FnMut(&mut Cleaner) -> Step) -> (Vec<Step>, Usage) {
    let mut log = log();
    let mut cleaner = log.cleaner().unwrap();
    let mut steps = Vec::new();
    for round in 0..ROUNDS {
        let key = (round * 7919 % OBJECTS).to_be_bytes();
        while let Err(error) = log.write(TABLE, &key, &[1; 100]) {
            assert!(error.is_transient(), "{error}");
            steps.push(step(&mut cleaner));
            log.turn();
        }
        if round % 16 == 0 {
            steps.push(step(&mut cleaner));
            log.turn();
        }
    }
    (steps, log.usage())
}

#[test]
fn watching_a_step_does_not_change_its_work() {
    let alone = overwrite(Cleaner::step);
    let watched = overwrite(|cleaner| cleaner.step_watched(&mut |_| {}));
    assert_eq!(alone, watched);
    assert!(alone.1.compactions > 0 && alone.1.passes > 0, "{:?}", alone.1);
}

#[test]
fn phases_come_in_order_and_count_every_entry() {
    let mut told = 0;
    let (_, usage) = overwrite(|cleaner| {
        let mut phases = Vec::new();
        let step = cleaner.step_watched(&mut |phase| phases.push(phase));
        assert_eq!(phases.first(), Some(&Phase::Picking));
        let last = phases.iter().rposition(|it| *it == Phase::Picking).unwrap();
        let work = &phases[last + 1..];
        match step {
            Step::Idle => assert!(work.is_empty(), "{phases:?}"),
            Step::Rescanned => assert_eq!(work, [Phase::Looking, Phase::HandingOn]),
            Step::Compacted | Step::Combined => {
                let [Phase::TakingMemory, batches @ .., Phase::HandingOn] = work else {
                    panic!("{phases:?}")
                };
                for batch in batches.chunks(2) {
                    assert!(matches!(batch, [Phase::Copying, Phase::Telling { .. }]), "{phases:?}");
                }
            }
        }
        for phase in phases {
            if let Phase::Telling { entries } = phase {
                told += entries as u64;
            }
        }
        step
    });
    assert_eq!(told, usage.entries_moved, "only the cleaner touches the entries meanwhile");
}

#[test]
fn cleaned_segments_are_freed_later() {
    let (_, usage) = overwrite(Cleaner::step);
    let Usage { passes, passes_received, passes_named, passes_freed, .. } = usage;
    assert!(passes >= passes_received && passes_received >= passes_named, "{usage:?}");
    assert!(passes_named >= passes_freed && passes_freed > 0, "{usage:?}");
    assert!((1..=usage.compactions).contains(&usage.compactions_freed), "{usage:?}");
}
