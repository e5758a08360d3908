//! Random calls on a store in a simulated machine, with a crash of the process or a loss of power
//! at any operation of its disk, a restart, and a comparison with the promises:
//!
//! - After a crash of the process the effects of all calls are there, except unacknowledged calls
//!   on a replica without a buffer.
//! - After a loss of power the effects of some prefix of the calls are there. The prefix contains
//!   all calls that were acknowledged as durable. Only the freeing of a replica that replaced
//!   another one may be missing, because the other one is freed first.
//! - Served bytes equal the sent bytes.
//! - A freed replica may come back, because no master relies on its absence. But if its closing was
//!   acknowledged, or if it had a buffer when it was freed, it does not come back open: recoveries
//!   take the newest open head that they find for the end of the log.

mod failed_syncs;
mod freed;
mod machine;
mod masters;
mod promises;

use machine::*;
use promises::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use thunderhead_backup::check::{Content, check};
use thunderhead_backup::layout::{FrameNumber, Slot};
use thunderhead_backup::{Ack, Durability, Event, FILE_NAME, ReplicaId};
use thunderhead_runtime::lasting::Memories;
use thunderhead_runtime::sim::disk::{DiskModel, Unreadable};
use thunderhead_wire::{Epoch, MasterId, SegmentId};

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn promised_replicas_survive_crashes_and_power_losses(
        seed in any::<u64>(),
        durability in durability(),
        lives in proptest::collection::vec(
            (proptest::collection::vec(op(), 1..40), any::<bool>(), proptest::option::of(1..40u64)),
            1..4,
        ),
    ) {
        let mut machine = Machine::new(seed);
        let mut life = machine.start(durability).unwrap();
        let (mut before, mut epochs) = (State::new(), BTreeMap::new());
        for (ops, power, stop) in lives {
            let mut model = Model::new(before, epochs, false);
            if let Some(operations) = stop {
                machine.disk.stop_after(operations);
            }
            for op in &ops {
                if machine.disk.has_stopped() {
                    break;
                }
                model.apply(&mut life, &machine.disk, op);
            }
            if stop.is_none() {
                // Everything becomes durable, at every level.
                for event in life.settle(&machine.disk) {
                    model.heard(&event);
                }
                model.durable = model.history.len();
            }
            if power {
                machine.lose_power();
            } else {
                machine.disk.restart();
            }
            life = machine.start(durability).unwrap();
            prop_assert_eq!(life.opened.damaged, 0);
            let found = life.read_all(&machine.disk);
            if power {
                let from = model.durable.max(1) - 1;
                let prefix = model.history[from..].iter().rposition(|it| model.fits(it, &found));
                prop_assert!(prefix.is_some(), "found {:?}\n in none of {:?}", found, model.history[from..].iter().map(visible).collect::<Vec<_>>());
            } else {
                let mut state = visible(&model.state());
                let mut kept = found.clone();
                prop_assert!(model.forget_unacknowledged(&mut kept, &mut state));
                kept.retain(|id, held| {
                    state.contains_key(id) || !model.may_come_back(*id, held, power)
                });
                prop_assert_eq!(&kept, &state);
            }
            // Incomplete copies belong to no master; the master begins them anew.
            (before, epochs) = (found, model.epochs);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    /// The promises also hold if the disk refuses writes, or takes writes and reports failures.
    #[test]
    fn one_of_those_that_take_each_others_place_is_there_whatever_the_disk_takes(
        seed in any::<u64>(),
        durability in durability(),
        ops in proptest::collection::vec(op_in_trouble(), 1..80),
        power in any::<bool>(),
        starts in proptest::collection::vec((0..4u64, any::<bool>(), refuses(), 0..3u64), 0..3),
    ) {
        let mut machine = Machine::new(seed);
        let mut life = machine.start(durability).unwrap();
        let mut model = Model::new(State::new(), BTreeMap::new(), true);
        for op in &ops {
            model.apply(&mut life, &machine.disk, op);
        }
        drop(life);
        let loses = |machine: &mut Machine, power| match power {
            true => machine.lose_power(),
            false => machine.disk.restart(),
        };
        loses(&mut machine, power);
        let mut any_power = power;
        for (quarters, power, refuses, others) in starts {
            let failure = quarters as f64 / 4.0;
            machine.disk.set_model(DiskModel { failure, ..DiskModel::default() });
            let Op::Refuses { frames, data, syncs } = refuses else { unreachable!() };
            machine.trouble.syncs.set(0);
            machine.trouble.refused.set(frames);
            machine.trouble.refused_data.set(data);
            if let Ok(mut life) = machine.start(durability) {
                // Replicas of another master are written meanwhile.
                machine.trouble.syncs.set(syncs);
                for segment in 0..others {
                    let id = ReplicaId { master: MasterId(9), segment: SegmentId(segment) };
                    _ = life.store.open(id, Epoch(1), false);
                    _ = life.store.append(id, Epoch(1), 0, b"beside");
                    life.turn_and_work(3);
                }
            }
            loses(&mut machine, power);
            any_power |= power;
        }
        machine.disk.set_model(DiskModel::default());
        machine.trouble.ends();
        let power = any_power;
        let mut life = machine.start(durability).unwrap();
        let mut found = life.read_all(&machine.disk);
        found.retain(|id, _| id.master != MasterId(9));
        prop_assert!(
            model.allows(&found, power),
            "found {:?}\nafter {:?}\nof which are acknowledged {:?}, durable {:?}",
            found, model.history, model.acknowledged, model.durable_of
        );
    }
}

fn replica(segment: u64) -> ReplicaId {
    ReplicaId { master: MasterId(1), segment: SegmentId(segment) }
}

#[test]
fn a_store_refuses_what_it_cannot_keep() {
    let mut machine = Machine::new(1);
    let mut life = machine.start(Durability::Replicated).unwrap();
    for segment in 1..=3 {
        life.store.open(replica(segment), Epoch(1), false).unwrap();
    }
    let code = |refused: Result<Ack, thunderhead_backup::Refusal>| refused.unwrap_err().code();
    assert_eq!(code(life.store.open(replica(4), Epoch(1), false)), 2, "no buffer is free");
    life.store.gives_way(MasterId(1));
    assert_eq!(code(life.store.open(replica(4), Epoch(1), false)), 2, "none is on the disk");
    life.store.append(replica(1), Epoch(2), 0, b"bytes").unwrap();
    assert_eq!(code(life.store.append(replica(1), Epoch(1), 5, b"more")), 7, "an old epoch");
    assert_eq!(code(life.store.append(replica(1), Epoch(2), 0, b"bites")), 8, "other bytes");
    assert_eq!(code(life.store.append(replica(1), Epoch(2), 9, b"more")), 5, "a gap");
    let mut in_two = |front: &[u8], back: &[u8]| {
        life.store
            .append_pieces(replica(1), Epoch(2), 0, [front, back].into_iter())
            .map_err(|it| it.code())
    };
    for (front, back) in
        [("by", "tas"), ("bi", "tes"), ("", "bites"), ("bites", ""), ("bytas", "more")]
    {
        assert_eq!(in_two(front.as_bytes(), back.as_bytes()), Err(8), "other bytes");
    }
    assert_eq!(in_two(&[0; 10_000], &[0; 10_001]), Err(6), "too long");
    for (front, back) in [("by", "tes"), ("bytes", ""), ("", "by"), ("b", "y")] {
        in_two(front.as_bytes(), back.as_bytes()).unwrap();
    }
    assert_eq!(code(life.store.append(replica(1), Epoch(2), 5, &[0; 20_000])), 6, "too long");
    assert_eq!(code(life.store.close(replica(1), Epoch(2), 9)), 5);
    life.store.append(replica(1), Epoch(2), 0, b"bytes").unwrap();
    life.store.close(replica(1), Epoch(2), 5).unwrap();
    life.store.close(replica(1), Epoch(2), 5).unwrap();
    assert_eq!(code(life.store.append(replica(1), Epoch(2), 5, b"more")), 4);
    life.settle(&machine.disk);
    assert_eq!(code(life.store.open(replica(1), Epoch(1), false)), 11);
    assert_eq!(life.store.close(replica(1), Epoch(2), 5), Ok(Ack::Now), "it was closed so");
    life.store.open(replica(4), Epoch(1), false).unwrap();
    for segment in [2, 3, 4] {
        life.store.close(replica(segment), Epoch(1), 0).unwrap();
    }
    life.settle(&machine.disk);
    life.store.open(replica(5), Epoch(1), false).unwrap();
    assert_eq!(code(life.store.open(replica(7), Epoch(1), false)), 1, "no frame is free");
    assert_eq!(life.store.free_master(MasterId(1)), 5);
    life.settle(&machine.disk);
    life.store.open(replica(7), Epoch(1), false).unwrap();
    assert_eq!(code(life.store.append(replica(6), Epoch(1), 0, b"x")), 3);
}

/// Three masters each have a buffer for a head and wait for one for the next head. One of them has
/// crashed.
#[test]
fn open_replicas_that_get_nothing_give_their_buffers_to_others() {
    let of = |master, segment| ReplicaId { master: MasterId(master), segment: SegmentId(segment) };
    let code = |refused: Result<Ack, thunderhead_backup::Refusal>| refused.unwrap_err().code();
    let mut machine = Machine::new(5);
    let mut life = machine.start(Durability::Replicated).unwrap();
    for master in 1..=3 {
        life.store.open(of(master, 1), Epoch(1), false).unwrap();
        let bytes = vec![master as u8; 6000];
        life.store.append(of(master, 1), Epoch(1), 0, &bytes).unwrap();
    }
    let turns = |life: &mut Life, passes: u64| {
        for _ in 0..4 {
            life.now = life.now + Duration::from_millis(passes / 4);
            life.store.turn(life.now, &mut |_| {});
            for worker in 0..life.workers.count() {
                while life.workers.is_ringing(worker) {
                    life.workers.step(worker);
                }
            }
        }
    };
    turns(&mut life, 100);
    assert_eq!(code(life.store.open(of(2, 2), Epoch(1), false)), 2, "they are needed");
    life.store.gives_way(MasterId(3));
    life.store.open(of(2, 2), Epoch(1), false).unwrap();
    assert!(life.store.is_resting(of(3, 1)));
    assert_eq!(code(life.store.append(of(3, 1), Epoch(1), 6000, b"more")), 9);
    // Of the needed replicas, the oldest gives its buffer up once it has received nothing for long.
    life.store.append(of(1, 1), Epoch(1), 6000, b"more").unwrap();
    turns(&mut life, 100);
    turns(&mut life, 900);
    life.store.open(of(4, 1), Epoch(1), false).unwrap();
    assert!(life.store.is_resting(of(2, 1)) && !life.store.is_resting(of(1, 1)));
    // A replica without a buffer can be closed, but not before that is on the disk.
    let Ack::When(ticket) = life.store.close(of(2, 1), Epoch(1), 6000).unwrap() else {
        panic!("no memory has it that outlasts the process")
    };
    let events = life.settle(&machine.disk);
    assert!(matches!(events[..], [Event::Durable(done)] if done == ticket), "{events:?}");
    let found = life.read_all(&machine.disk);
    let is = |id: &ReplicaId| (found[id].bytes.len(), found[id].closed);
    assert_eq!(
        (is(&of(1, 1)), is(&of(2, 1)), is(&of(3, 1))),
        ((6004, false), (6000, true), (6000, false))
    );
    assert!(found[&of(3, 1)].bytes.iter().all(|it| *it == 3));
    for power in [false, true] {
        drop(life);
        if power {
            machine.lose_power()
        } else {
            machine.disk.restart()
        }
        life = machine.start(Durability::Replicated).unwrap();
        assert_eq!(life.read_all(&machine.disk), found);
    }
}

/// Lets the disk fail while `act` runs.
fn while_it_fails(machine: &Machine, act: impl FnOnce()) {
    machine.disk.set_model(DiskModel { failure: 1.0, ..DiskModel::default() });
    act();
    machine.disk.set_model(DiskModel::default());
}

#[test]
fn refused_data_is_kept_in_memory_and_written_later() {
    for durability in [Durability::Synced, Durability::Replicated] {
        let mut machine = Machine::new(2);
        let mut life = machine.start(durability).unwrap();
        life.store.open(replica(1), Epoch(1), false).unwrap();
        life.store.append(replica(1), Epoch(1), 0, b"first").unwrap();
        life.store.close(replica(1), Epoch(1), 5).unwrap();
        life.store.open(replica(2), Epoch(1), false).unwrap();
        life.store.append(replica(2), Epoch(1), 0, b"on the disk").unwrap();
        life.settle(&machine.disk);
        life.store.append(replica(2), Epoch(1), 11, b", in memory").unwrap();
        life.store.free(replica(1));
        let mut events = Vec::new();
        while_it_fails(&machine, || events = life.settle(&machine.disk));
        let failed = events.iter().filter(|it| matches!(it, Event::Failed(_))).count();
        assert_eq!(failed, usize::from(durability == Durability::Synced), "{events:?}");
        assert!(!life.store.is_settled());
        // The master makes the replica elsewhere; this one counts until then.
        let refused = life.store.append(replica(2), Epoch(1), 22, b"more").unwrap_err();
        assert_eq!(refused.code(), 9);
        assert_eq!(life.store.open(replica(2), Epoch(1), false).unwrap_err().code(), 9);
        assert_eq!(life.read_all(&machine.disk)[&replica(2)].bytes, b"on the disk, in memory");
        life.settle(&machine.disk);
        assert!(life.store.is_settled());
        life.store.append(replica(2), Epoch(1), 22, b"!").unwrap();
        life.settle(&machine.disk);
        machine.lose_power();
        let found = machine.start(durability).unwrap().read_all(&machine.disk);
        assert_eq!(found.len(), 1);
        assert_eq!(found[&replica(2)].bytes, b"on the disk, in memory!");
    }
}

/// Another process may take this one's shared memory for the remains of a killed process.
#[test]
fn a_replica_whose_buffer_another_process_has_taken_is_not_called_durable() {
    for claimed_anew in [false, true] {
        let mut machine = Machine::new(8);
        let mut life = machine.start(Durability::Synced).unwrap();
        let name = format!("thunderhead-backup-{:016x}", life.store.superblock().store);
        let memory = machine.memories.find(&name).unwrap().expect("the buffers of the store");
        life.store.open(replica(1), Epoch(1), false).unwrap();
        life.settle(&machine.disk);
        let Ack::When(ticket) = life.store.append(replica(1), Epoch(1), 0, b"lost").unwrap() else {
            panic!("it is to be synced")
        };
        // A buffer's page begins with its claim; its extent is the length of the valid part.
        let (page, extent) = (512, 6);
        let claimed = (1..=3).map(|buffer| buffer * page);
        let claimed = claimed.clone().find(|at| memory.words()[*at].load(Relaxed) != 0).unwrap();
        let word = if claimed_anew { claimed + extent } else { claimed };
        memory.words()[word].store(0, Relaxed);
        let events = life.settle(&machine.disk);
        let failed = |it: &Event| matches!(it, Event::Failed(it) if *it == ticket);
        let durable = |it: &Event| matches!(it, Event::Durable(it) if *it == ticket);
        assert!(events.iter().any(failed) && !events.iter().any(durable), "{events:?}");
        assert!(!life.store.is_settled(), "something is not on the disk");
        assert_eq!(life.store.read(replica(1)).unwrap_err().code(), 3);
        let refused = life.store.append(replica(1), Epoch(1), 4, b"more").unwrap_err();
        assert_eq!(refused.code(), 9, "its master makes another one");
        life.store.free(replica(1));
        life.settle(&machine.disk);
        assert!(life.store.is_settled());
    }
}

/// The disk has an older state than the acknowledged one. The older state must not remain.
#[test]
fn refused_data_is_found_by_the_next_process() {
    let mut machine = Machine::new(3);
    let mut life = machine.start(Durability::Replicated).unwrap();
    life.store.open(replica(1), Epoch(1), false).unwrap();
    life.store.append(replica(1), Epoch(1), 0, b"on the disk").unwrap();
    life.settle(&machine.disk);
    life.store.append(replica(1), Epoch(1), 11, b", in memory").unwrap();
    while_it_fails(&machine, || _ = life.settle(&machine.disk));
    drop(life);
    machine.disk.restart();
    let mut life = machine.start(Durability::Replicated).unwrap();
    assert_eq!(life.read_all(&machine.disk)[&replica(1)].bytes, b"on the disk, in memory");
}

#[test]
fn one_of_two_always_counts_where_one_takes_the_place_of_another() {
    for (fails, closed) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut machine = Machine::new(4);
        let mut life = machine.start(Durability::Replicated).unwrap();
        life.store.open(replica(1), Epoch(1), false).unwrap();
        life.store.append(replica(1), Epoch(1), 0, b"old").unwrap();
        if closed {
            life.store.close(replica(1), Epoch(1), 3).unwrap();
        }
        life.settle(&machine.disk);
        machine.lose_power();
        let mut life = machine.start(Durability::Replicated).unwrap();
        let offered = |life: &Life| {
            let replicas: Vec<_> = life.store.replicas().collect();
            replicas.iter().map(|it| (it.epoch.0, it.length)).collect::<Vec<_>>()
        };
        for epoch in [2, 3] {
            life.store.open(replica(1), Epoch(epoch), true).unwrap();
            life.store.append(replica(1), Epoch(epoch), 0, b"the new").unwrap();
            assert_eq!(offered(&life), [(1, 3)], "an attempt is none");
        }
        life.settle(&machine.disk);
        assert_eq!(life.store.frames_free(), FRAMES as usize - 2, "that of the first attempt");
        life.store.append(replica(1), Epoch(3), 7, b" one").unwrap();
        if fails {
            while_it_fails(&machine, || _ = life.settle(&machine.disk));
            // The master cannot continue the replica before the disk takes it.
            assert_eq!(life.store.commit(replica(1), Epoch(3)).unwrap_err().code(), 9);
            machine.lose_power();
            let found = machine.start(Durability::Replicated).unwrap().read_all(&machine.disk);
            assert_eq!(found[&replica(1)].bytes, b"old");
            continue;
        }
        life.store.commit(replica(1), Epoch(3)).unwrap();
        assert_eq!(offered(&life), [(3, 11)]);
        while_it_fails(&machine, || _ = life.settle(&machine.disk));
        assert_eq!(offered(&life), [(3, 11)]);
        life.settle(&machine.disk);
        assert_eq!(life.store.frames_free(), FRAMES as usize - 1);
        machine.lose_power();
        let found = machine.start(Durability::Replicated).unwrap().read_all(&machine.disk);
        assert_eq!(found[&replica(1)].bytes, b"the new one");
    }
}

/// All buffers are taken by replicas that replace others, and their master cannot close any of them
/// before it has begun another one. The old replica is only in memory, because the disk refused it.
#[test]
fn replacing_replicas_give_their_buffers_up_and_one_of_two_counts() {
    for killed_before in [false, true] {
        let mut machine = Machine::new(9);
        let mut life = machine.start(Durability::Replicated).unwrap();
        life.store.open(replica(1), Epoch(1), false).unwrap();
        life.store.append(replica(1), Epoch(1), 0, b"old").unwrap();
        while_it_fails(&machine, || _ = life.settle(&machine.disk));
        life.store.open(replica(1), Epoch(2), true).unwrap();
        life.store.append(replica(1), Epoch(2), 0, b"the new one").unwrap();
        let turn = |life: &mut Life| {
            life.now = life.now + Duration::from_millis(25);
            life.store.turn(life.now, &mut |_| {});
            for worker in 0..life.workers.count() {
                while life.workers.is_ringing(worker) {
                    life.workers.step(worker);
                }
            }
        };
        // This is too short for another attempt to write the old replica.
        (0..4).for_each(|_| turn(&mut life));
        life.store.open(replica(2), Epoch(1), false).unwrap();
        assert_eq!(life.store.open(replica(3), Epoch(1), false).unwrap_err().code(), 2);
        life.store.gives_way(MasterId(1));
        life.store.open(replica(3), Epoch(1), false).unwrap();
        assert!(life.store.is_resting(replica(1)));
        let Ack::When(ticket) = life.store.close(replica(1), Epoch(2), 11).unwrap() else {
            panic!("no memory has it that outlasts the process")
        };
        let expected: &[u8] = if killed_before {
            b"old"
        } else {
            life.wait_for(ticket);
            b"the new one"
        };
        drop(life);
        machine.disk.restart();
        let found = machine.start(Durability::Replicated).unwrap().read_all(&machine.disk);
        assert_eq!(found[&replica(1)].bytes, expected);
    }
}

/// The successor is freed before any of it reaches the disk.
#[test]
fn a_replaced_replica_is_freed_together_with_its_successor() {
    let mut machine = Machine::new(6);
    let mut life = machine.start(Durability::Synced).unwrap();
    life.store.open(replica(1), Epoch(1), false).unwrap();
    life.settle(&machine.disk);
    life.store.open(replica(1), Epoch(2), true).unwrap();
    let Ack::When(closed) = life.store.close(replica(1), Epoch(2), 0).unwrap() else {
        panic!("it is to be synced")
    };
    life.store.free(replica(1));
    life.wait_for(closed);
    machine.lose_power();
    let found = machine.start(Durability::Synced).unwrap().read_all(&machine.disk);
    assert_eq!(found, State::new(), "the old one was over when the new one was closed");
}

/// A round also writes the headers of freed frames. The proof that a round was durable is written
/// while a replica is begun in such a frame: the next process must not take the new replica for
/// freed.
#[test]
fn a_frame_that_is_begun_in_while_a_round_is_proven_is_found_by_the_next_process() {
    for segments in [[1, 2], [2, 1]] {
        let mut machine = Machine::new(7);
        let mut life = machine.start(Durability::Replicated).unwrap();
        for segment in segments {
            life.store.open(replica(segment), Epoch(1), false).unwrap();
        }
        life.store.append(replica(2), Epoch(1), 0, b"more").unwrap();
        life.store.free(replica(1));
        let turn = |life: &mut Life, work: bool| {
            life.now = life.now + Duration::from_millis(25);
            life.store.turn(life.now, &mut |_| {});
            for worker in 0..life.workers.count() {
                while work && life.workers.is_ringing(worker) {
                    life.workers.step(worker);
                }
            }
        };
        turn(&mut life, true);
        turn(&mut life, false);
        assert!(life.store.is_written() && !life.store.is_settled());
        turn(&mut life, false);
        assert!(!life.store.is_written(), "it is being said that it was durable");
        life.store.open(replica(1), Epoch(1), false).unwrap();
        for worker in 0..life.workers.count() {
            life.workers.step(worker);
        }
        drop(life);
        machine.disk.restart();
        let found = machine.start(Durability::Replicated).unwrap().read_all(&machine.disk);
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [replica(1), replica(2)]);
    }
}

#[test]
fn a_sync_that_fails_once_costs_nothing() {
    for seed in 0..50 {
        let mut machine = Machine::new(seed);
        let mut life = machine.start(Durability::Synced).unwrap();
        let mut kept = Vec::new();
        machine.disk.set_model(DiskModel { failure: 0.1, ..DiskModel::default() });
        for segment in 1..=3 {
            if life.store.open(replica(segment), Epoch(1), false).is_ok() {
                let bytes = vec![segment as u8; 10_000];
                let Ack::When(ticket) =
                    life.store.append(replica(segment), Epoch(1), 0, &bytes).unwrap()
                else {
                    panic!("synced appends wait")
                };
                let events = life.settle(&machine.disk);
                let durable = |it: &Event| matches!(it, Event::Durable(it) if *it == ticket);
                if events.iter().any(durable) {
                    kept.push(segment);
                }
            }
        }
        machine.disk.set_model(DiskModel::default());
        machine.lose_power();
        let mut life = machine.start(Durability::Synced).unwrap();
        let found = life.read_all(&machine.disk);
        for segment in kept {
            assert_eq!(found[&replica(segment)].bytes, vec![segment as u8; 10_000], "seed {seed}");
        }
    }
}

/// Makes three replicas, the first of which is closed. All of them are on the disk, and the store
/// is settled.
fn three_replicas(machine: &mut Machine) -> State {
    let mut life = machine.start(Durability::Replicated).unwrap();
    for segment in 1..=3 {
        life.store.open(replica(segment), Epoch(1), false).unwrap();
        life.store.append(replica(segment), Epoch(1), 0, &[7; 19_999]).unwrap();
        life.settle(&machine.disk);
    }
    life.store.close(replica(1), Epoch(1), 19_999).unwrap();
    life.settle(&machine.disk);
    life.read_all(&machine.disk)
}

#[test]
fn an_unreadable_block_of_superblocks_or_headers_costs_one_replica_at_most() {
    let blocks = 2 + 2 * u64::from(FRAMES);
    let mut lost = 0;
    for (block, seed) in (0..blocks).flat_map(|block| (0..6).map(move |seed| (block, seed))) {
        let mut machine = Machine::new(seed);
        let before = three_replicas(&mut machine);
        if seed % 2 == 0 {
            machine.lose_power();
        } else {
            machine.disk.restart();
        }
        let how = if seed < 3 { Unreadable::UntilWritten } else { Unreadable::ForGood };
        assert!(machine.disk.spoil(FILE_NAME, block * 4096 + 512 * seed, how));
        let mut files = machine.disk.files();
        let report = check(&mut files, &mut machine.memories, FILE_NAME, &mut |_, _| {}).unwrap();
        let unreadable = report.frames.iter().filter(|it| it.content == Content::HeaderDamaged);
        assert_eq!(unreadable.count(), usize::from(block > 1), "block {block}");
        for _ in 0..2 {
            let mut life = machine.start(Durability::Replicated).unwrap();
            // A replica that a killed process left in memory cannot be written to an unwritable
            // frame.
            let missing = (life.opened.damaged + life.opened.bad) as usize;
            assert!(missing <= 1, "block {block}");
            let found = life.read_all(&machine.disk);
            assert!(found.iter().all(|(id, held)| before[id] == *held), "block {block}");
            assert!(found.len() + missing >= before.len(), "block {block}");
            lost += before.len() - found.len();
            drop(life);
            machine.lose_power();
        }
    }
    assert!(lost > 0, "headers of replicas were hit");
}

/// The data of the last round proves whether the round counts, and some of it cannot be read.
#[test]
fn unreadable_data_of_the_last_round_costs_that_replica_alone() {
    for (seed, how) in (0..40).zip([Unreadable::UntilWritten, Unreadable::ForGood].iter().cycle()) {
        let mut machine = Machine::new(seed);
        let mut life = machine.start(Durability::Synced).unwrap();
        for segment in [1, 2] {
            life.store.open(replica(segment), Epoch(1), false).unwrap();
        }
        life.settle(&machine.disk);
        let mut last = None;
        for segment in [1, 2] {
            let bytes = vec![segment as u8; 9000];
            last = Some(life.store.append(replica(segment), Epoch(1), 0, &bytes).unwrap());
        }
        let Some(Ack::When(ticket)) = last else { panic!("it is to be synced") };
        life.wait_for(ticket);
        let data_at = life.store.superblock().geometry.data_at(FrameNumber(0));
        drop(life);
        machine.lose_power();
        // The first frame belongs to the first replica.
        assert!(machine.disk.spoil(FILE_NAME, data_at + 4096 + 512 * (seed % 8), *how));
        for _ in 0..2 {
            let mut life = machine.start(Durability::Synced).unwrap();
            let lengths: Vec<u32> = life.store.replicas().map(|it| it.length).collect();
            assert_eq!(lengths, [9000, 9000], "seed {seed}: both were acknowledged");
            let mut read = |segment| {
                life.store.read(replica(segment)).unwrap();
                let events = life.settle(&machine.disk);
                events.into_iter().find_map(|event| match event {
                    Event::Read(_, outcome) => Some(outcome.map(|it| it.bytes().to_vec())),
                    _ => None,
                })
            };
            assert!(read(1).unwrap().is_err(), "seed {seed}");
            assert_eq!(read(2).unwrap().unwrap(), [2; 9000], "seed {seed}");
            drop(life);
            machine.lose_power();
        }
    }
}

/// A replica that a killed process left in memory is written to a frame with an unreadable header.
#[test]
fn a_replica_written_from_memory_to_a_frame_with_an_unreadable_header_stays() {
    for (seed, slot) in (0..40).zip([Slot::A, Slot::B].into_iter().cycle()) {
        for how in [Unreadable::UntilWritten, Unreadable::ForGood] {
            let mut machine = Machine::new(seed);
            let mut life = machine.start(Durability::Replicated).unwrap();
            life.store.open(replica(1), Epoch(1), false).unwrap();
            life.store.append(replica(1), Epoch(1), 0, b"on the disk").unwrap();
            life.settle(&machine.disk);
            life.store.append(replica(1), Epoch(1), 11, b", in memory").unwrap();
            let header_at = life.store.superblock().geometry.header_at(FrameNumber(0), slot);
            drop(life);
            machine.disk.restart();
            assert!(machine.disk.spoil(FILE_NAME, header_at, how));
            let mut life = machine.start(Durability::Replicated).unwrap();
            let is_written = how == Unreadable::UntilWritten;
            assert_eq!(life.opened.bad, u32::from(!is_written), "seed {seed}");
            if is_written {
                let found = life.read_all(&machine.disk);
                assert_eq!(found[&replica(1)].bytes, b"on the disk, in memory");
                drop(life);
                machine.lose_power();
                let mut life = machine.start(Durability::Replicated).unwrap();
                assert_eq!(life.read_all(&machine.disk), found, "seed {seed}");
            }
        }
    }
}

#[test]
fn a_bit_that_turns_over_anywhere_is_found_or_harmless() {
    let (mut found, mut harmless) = (0, 0);
    for seed in 0..400 {
        let mut machine = Machine::new(seed);
        let mut life = machine.start(Durability::Replicated).unwrap();
        for segment in 1..=3 {
            life.store.open(replica(segment), Epoch(1), false).unwrap();
            life.store.append(replica(segment), Epoch(1), 0, &[7; 19_999]).unwrap();
            life.settle(&machine.disk);
        }
        life.store.close(replica(1), Epoch(1), 19_999).unwrap();
        life.settle(&machine.disk);
        let before = life.read_all(&machine.disk);
        machine.lose_power();
        assert!(machine.disk.rot());
        // Most of the file is padding and the area for timing reads. So a byte of the headers is
        // hit now and then, and a byte of data often.
        let Ok(mut life) = machine.start(Durability::Replicated) else { continue };
        let listed: Vec<_> = life.store.replicas().collect();
        let mut intact = 0;
        for replica in &listed {
            life.store.read(replica.id).unwrap();
            for event in life.settle(&machine.disk) {
                let Event::Read(_, outcome) = event else { continue };
                if let Ok(bytes) = outcome {
                    assert_eq!(bytes.bytes(), before[&replica.id].bytes, "seed {seed}");
                    assert_eq!(bytes.header().closed, before[&replica.id].closed);
                    intact += 1;
                }
            }
        }
        let missing = 3 - listed.len();
        assert!(life.opened.damaged as usize >= missing, "missing replicas are counted");
        found += usize::from(intact < 3);
        harmless += usize::from(intact == 3);
    }
    assert!(found > 10 && harmless > 10, "{found} were found, {harmless} hit nothing");
}
