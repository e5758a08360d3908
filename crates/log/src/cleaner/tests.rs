//! The conditions for a pass to begin.

use super::*;
use crate::{Log, LogId, Memory, NoReplication, Options, TableId, TabletRange};

/// Picks candidates for a pass, and then promises all frames for survivors to others.
fn pick_without_room(candidates: &mut Candidates, shared: &Shared) -> Vec<Candidate> {
    let picked = candidates.pick_for_combining(shared);
    assert!(picked.len() > 1 && shared.frames.room() > 0);
    shared.frames.promise(shared.frames.room());
    picked
}

#[test]
fn a_pass_for_which_backups_have_no_room_gives_back_what_it_picked() {
    let memory = Memory::with_seglets(1 << 20, 1024).unwrap();
    let options = Options { segment_bytes: 16 << 10, ..Options::default() };
    let mut log = Log::new(&memory, LogId(1), options, Box::<NoReplication>::default()).unwrap();
    let table = TableId(1);
    log.create_tablet(TabletRange::whole(table)).unwrap();
    // Writes every other one of the first objects again.
    for number in (0..100u64).chain((0..100).step_by(2)) {
        log.write(table, &number.to_be_bytes(), &[1; 700]).unwrap();
    }
    log.turn();
    let mut cleaner = log.cleaner().unwrap();
    let shared = Arc::clone(&cleaner.shared);
    let segments = || {
        let mut candidates = lock(&shared.candidates);
        shared.take_closed(&mut candidates);
        let mut ids: Vec<u64> = candidates.segments().map(|segment| segment.id.0).collect();
        ids.sort_unstable();
        ids
    };
    let (before, free) = (segments(), memory.free_seglets());
    let room = shared.frames.room();
    assert!(cleaner.combine_picked(pick_without_room, combine::Goal::Sweep, &mut |_| {}).is_none());
    assert_eq!((segments(), memory.free_seglets()), (before, free));
    assert!(shared.passes.is_empty());
    assert_eq!(shared.sums.coming_seglets.load(Ordering::Relaxed), 0);
    // Once there is room again, a pass takes them.
    shared.frames.keep_promise(room);
    assert_eq!(shared.frames.room(), room, "nothing else was promised");
    assert_eq!(cleaner.combine(&mut |_| {}), Some(Step::Combined));
    assert!(shared.frames.room() < room);
    log.turn();
    while log.has_to_hand_over() {
        log.turn();
    }
    assert_eq!(log.usage().passes_received, 1);
}
