//! Freed replicas after a crash of the process: if their closing was acknowledged, they do not come
//! back open.

use crate::machine::{BUFFERS, FRAMES, Life, Machine};
use crate::promises::State;
use crate::{replica, while_it_fails};
use std::time::Duration;
use thunderhead_backup::{Ack, Durability, Event, ReplicaId};
use thunderhead_wire::{Epoch, MasterId, SegmentId};

/// Makes an open replica that the disk has, then closes it. With `replicated`, the buffer alone
/// says that it is closed.
fn closed_in_memory(machine: &mut Machine) -> Life {
    let mut life = machine.start(Durability::Replicated).unwrap();
    life.store.open(replica(1), Epoch(1), false).unwrap();
    life.store.append(replica(1), Epoch(1), 0, b"an old head").unwrap();
    life.settle(&machine.disk);
    assert_eq!(life.store.close(replica(1), Epoch(1), 11), Ok(Ack::Now));
    life
}

/// Begins a replica that replaces the closed one, and closes it.
fn replace(life: &mut Life) {
    life.store.open(replica(1), Epoch(2), true).unwrap();
    life.store.append(replica(1), Epoch(2), 0, b"the same").unwrap();
    assert_eq!(life.store.close(replica(1), Epoch(2), 8), Ok(Ack::Now));
}

/// Kills the process. Returns the replicas that the next one finds.
fn found_after_a_kill(machine: &mut Machine, life: Life) -> State {
    drop(life);
    machine.disk.restart();
    machine.start(Durability::Replicated).unwrap().read_all(&machine.disk)
}

#[test]
fn a_replica_that_was_closed_and_freed_in_memory_does_not_come_back_open() {
    for is_replaced in [false, true] {
        let mut machine = Machine::new(11);
        let mut life = closed_in_memory(&mut machine);
        if is_replaced {
            replace(&mut life);
        }
        assert!(life.store.free(replica(1)));
        assert_eq!(found_after_a_kill(&mut machine, life), State::new());
    }
}

/// The disk has the replacement, and refuses to free the frame of the replaced replica.
#[test]
fn a_replaced_replica_does_not_come_back_open_after_its_replacement_was_freed() {
    let mut machine = Machine::new(12);
    let mut life = closed_in_memory(&mut machine);
    // The replaced replica has the first frame.
    machine.trouble.refused.set(1);
    replace(&mut life);
    life.turn_and_work(4);
    assert_eq!(life.store.unwritten(), 1, "only the replaced replica is not written");
    life.store.free(replica(1));
    life.turn_and_work(4);
    machine.trouble.ends();
    // The replacement may come back, because its frame is freed only after the other one.
    let found = found_after_a_kill(&mut machine, life);
    assert!(found.values().all(|held| held.closed && held.epoch == Epoch(2)), "{found:?}");
}

/// The disk refuses the headers of all frames for some time, also while processes start.
#[test]
fn a_replica_stays_freed_while_the_disk_refuses_to_free_its_frame() {
    for (starts, buffers) in [(0, BUFFERS), (1, BUFFERS), (3, BUFFERS), (1, 1), (1, 5)] {
        let mut machine = Machine::new(13);
        let mut life = closed_in_memory(&mut machine);
        life.store.free(replica(1));
        machine.trouble.refused.set(u8::MAX);
        life.turn_and_work(4);
        assert!(!life.store.is_written());
        for _ in 0..starts {
            drop(life);
            machine.disk.restart();
            life = machine.start_with(Durability::Replicated, buffers).unwrap();
            assert_eq!((life.opened.bad, life.opened.recovered), (1, 0));
            assert_eq!(life.store.replicas().count(), 0);
        }
        machine.trouble.ends();
        assert_eq!(found_after_a_kill(&mut machine, life), State::new());
    }
}

/// A process that is started with another number of buffers makes them anew.
#[test]
fn a_replica_stays_freed_if_the_next_process_has_other_buffers() {
    let mut machine = Machine::new(14);
    let mut life = closed_in_memory(&mut machine);
    life.store.free(replica(1));
    drop(life);
    machine.disk.restart();
    life = machine.start_with(Durability::Replicated, BUFFERS + 1).unwrap();
    assert_eq!(life.store.replicas().count(), 0);
    assert_eq!(life.store.frames_free(), FRAMES as usize);
    assert_eq!(found_after_a_kill(&mut machine, life), State::new());
}

/// A freed replica whose header the disk refuses keeps its buffer. The buffer is free again once
/// the disk takes the header.
#[test]
fn all_buffers_are_free_again_when_the_disk_takes_the_headers_of_freed_replicas() {
    let mut machine = Machine::new(15);
    let mut life = machine.start(Durability::Replicated).unwrap();
    let segments = 1..=u64::from(BUFFERS);
    for segment in segments.clone() {
        life.store.open(replica(segment), Epoch(1), false).unwrap();
    }
    life.settle(&machine.disk);
    segments.clone().for_each(|segment| _ = life.store.free(replica(segment)));
    while_it_fails(&machine, || life.turn_and_work(4));
    assert_eq!(life.store.open(replica(9), Epoch(1), false).unwrap_err().code(), 2);
    life.settle(&machine.disk);
    assert_eq!(life.store.frames_free(), FRAMES as usize);
    for segment in segments {
        life.store.open(replica(segment), Epoch(2), false).unwrap();
    }
}

/// A crash of the process or of the machine: with `synced` the disk has the closing before it is
/// acknowledged.
#[test]
fn a_synced_replica_that_was_closed_and_freed_comes_back_closed_at_most() {
    for (seed, power) in (0..40).map(|seed| (seed, seed % 2 == 0)) {
        let mut machine = Machine::new(seed);
        let mut life = machine.start(Durability::Synced).unwrap();
        life.store.open(replica(1), Epoch(1), false).unwrap();
        life.settle(&machine.disk);
        let Ok(Ack::When(closed)) = life.store.close(replica(1), Epoch(1), 0) else {
            panic!("it is to be synced")
        };
        life.wait_for(closed);
        life.store.free(replica(1));
        machine.disk.stop_after(seed / 2 % 4);
        life.turn_and_work(2);
        drop(life);
        if power {
            machine.lose_power();
        } else {
            machine.disk.restart();
        }
        let found = machine.start(Durability::Synced).unwrap().read_all(&machine.disk);
        assert!(found.values().all(|held| held.closed), "seed {seed}: {found:?}");
    }
}

/// Begins a replica in atomic mode that takes the place of another one, and waits until the disk
/// has it. The closing of the other one is acknowledged then.
fn replaced_durably(life: &mut Life) {
    let closing = life.store.close(replica(1), Epoch(1), 0).unwrap();
    life.store.open(replica(1), Epoch(2), true).unwrap();
    life.store.commit(replica(1), Epoch(2)).unwrap();
    match closing {
        Ack::When(ticket) => life.wait_for(ticket),
        Ack::Now => panic!("the closing waits for the disk"),
    }
}

/// The disk refuses to free the frame of a replaced replica, and then the power fails. The
/// replacement is freed before a start, after it, or without one.
#[test]
fn a_replaced_replica_does_not_come_back_open_while_the_disk_refuses_its_frame() {
    for (starts, frees_first) in [(false, true), (true, true), (true, false)] {
        let mut machine = Machine::new(16);
        let mut life = machine.start(Durability::Synced).unwrap();
        life.store.open(replica(1), Epoch(1), false).unwrap();
        life.settle(&machine.disk);
        replaced_durably(&mut life);
        // The replaced replica has the first frame.
        machine.trouble.refused.set(1);
        if frees_first {
            life.store.free(replica(1));
            life.turn_and_work(4);
        }
        if starts {
            drop(life);
            machine.disk.restart();
            life = machine.start(Durability::Synced).unwrap();
        }
        life.store.free(replica(1));
        life.turn_and_work(4);
        drop(life);
        machine.lose_power();
        machine.trouble.ends();
        let found = machine.start(Durability::Synced).unwrap().read_all(&machine.disk);
        assert!(found.values().all(|held| held.epoch == Epoch(2)), "{found:?}");
    }
}

/// The disk refuses to free frames during a start. The running process frees them later.
#[test]
fn frames_that_a_start_cannot_free_are_freed_by_the_running_process() {
    let mut machine = Machine::new(19);
    let mut life = machine.start(Durability::Synced).unwrap();
    life.store.open(replica(1), Epoch(1), false).unwrap();
    life.settle(&machine.disk);
    replaced_durably(&mut life);
    machine.trouble.refused.set(1);
    life.store.free(replica(1));
    life.turn_and_work(4);
    drop(life);
    machine.disk.restart();
    let mut life = machine.start(Durability::Synced).unwrap();
    assert_eq!(life.store.replicas().count(), 0);
    machine.trouble.ends();
    life.turn_and_work(8);
    assert_eq!(life.store.frames_free(), FRAMES as usize);
    for segment in 1..=u64::from(BUFFERS) {
        life.store.open(replica(segment), Epoch(3), false).unwrap();
    }
}

/// The replacement is replaced too, before a round has ended. The disk then refuses to free the
/// frame of the first replica.
#[test]
fn a_replica_that_was_replaced_twice_does_not_come_back_open() {
    let mut machine = Machine::new(18);
    let mut life = machine.start(Durability::Synced).unwrap();
    life.store.open(replica(1), Epoch(1), false).unwrap();
    life.settle(&machine.disk);
    let Ack::When(closing) = life.store.close(replica(1), Epoch(1), 0).unwrap() else {
        panic!("the closing waits for the disk")
    };
    for epoch in [Epoch(2), Epoch(3)] {
        life.store.open(replica(1), epoch, true).unwrap();
        life.store.commit(replica(1), epoch).unwrap();
        if epoch == Epoch(2) {
            life.store.turn(life.now, &mut |_| {});
        }
    }
    for worker in 0..life.workers.count() {
        while life.workers.is_ringing(worker) {
            life.workers.step(worker);
        }
    }
    life.store.free(replica(1));
    // The first replica has the first frame.
    machine.trouble.refused.set(1);
    let mut is_closed = false;
    life.now = life.now + Duration::from_millis(500);
    life.store.turn(life.now, &mut |event| {
        is_closed |= matches!(event, Event::Durable(it) if it == closing);
    });
    life.turn_and_work(4);
    drop(life);
    machine.lose_power();
    machine.trouble.ends();
    let found = machine.start(Durability::Synced).unwrap().read_all(&machine.disk);
    assert!(is_closed, "its closing was acknowledged");
    assert!(found.values().all(|held| held.closed || held.epoch > Epoch(1)), "{found:?}");
}

/// The replaced replica rested, so no memory says that it was freed.
#[test]
fn a_replaced_replica_that_rested_does_not_come_back_open_after_both_were_freed() {
    let mut machine = Machine::new(17);
    let mut life = machine.start(Durability::Synced).unwrap();
    life.store.open(replica(1), Epoch(1), false).unwrap();
    life.settle(&machine.disk);
    life.store.gives_way(MasterId(1));
    for segment in 1..=u64::from(BUFFERS) {
        let id = ReplicaId { master: MasterId(2), segment: SegmentId(segment) };
        life.store.open(id, Epoch(1), false).unwrap();
    }
    assert!(life.store.is_resting(replica(1)), "its buffer is another one's");
    life.settle(&machine.disk);
    life.store.free_master(MasterId(2));
    life.settle(&machine.disk);
    replaced_durably(&mut life);
    life.store.free(replica(1));
    let found = found_after_a_kill(&mut machine, life);
    assert!(found.values().all(|held| held.epoch == Epoch(2)), "{found:?}");
}
