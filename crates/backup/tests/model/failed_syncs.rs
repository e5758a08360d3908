//! Rounds of which the disk refused a part, or whose sync failed: their headers and data may be in
//! the kernel's memory alone.

use crate::machine::{BUFFERS, Life, Machine};
use crate::replica;
use thunderhead_backup::{Ack, Durability, Event, ReplicaId};
use thunderhead_wire::{Epoch, MasterId, SegmentId};

/// Returns a store with two open replicas of 100 bytes each, which are on the disk.
fn two_durable_replicas(machine: &mut Machine) -> Life {
    let mut life = machine.start(Durability::Synced).unwrap();
    for segment in [1, 2] {
        life.store.open(replica(segment), Epoch(1), false).unwrap();
        life.store.append(replica(segment), Epoch(1), 0, &[1; 100]).unwrap();
        life.settle(&machine.disk);
    }
    life
}

/// Kills the process after the round of some calls had three failed syncs, and after a round of
/// another replica. So the headers of the first round can be read, but may not be on the disk, and
/// they are not the newest.
fn kill_after_failed_syncs(
    machine: &mut Machine,
    mut life: Life,
    (other, length): (ReplicaId, u32),
    calls: impl FnOnce(&mut Life),
) {
    machine.trouble.syncs.set(3);
    calls(&mut life);
    life.turn_and_work(1);
    life.store.append(other, Epoch(1), length, &[1; 10]).unwrap();
    life.turn_and_work(1);
    drop(life);
    machine.disk.restart();
    machine.trouble.ends();
}

/// Headers of a round whose sync failed may be on the disk without their data. Headers that cannot
/// be overwritten must not count because later rounds count.
#[test]
fn a_header_that_a_failed_sync_left_behind_never_counts() {
    for seed in 0..200 {
        let mut machine = Machine::new(seed);
        let mut life = two_durable_replicas(&mut machine);
        machine.trouble.syncs.set(1);
        machine.trouble.refused.set(1 << (seed % 2));
        for (offset, length) in [(100, 3000), (3100, 10)] {
            for segment in [1, 2] {
                _ = life.store.append(replica(segment), Epoch(1), offset, &vec![2; length]);
            }
            life.turn_and_work(3);
        }
        machine.lose_power();
        machine.trouble.ends();
        let mut life = machine.start(Durability::Synced).unwrap();
        assert_eq!(life.opened.damaged, 0, "seed {seed}");
        let mut lengths: Vec<usize> =
            life.read_all(&machine.disk).values().map(|held| held.bytes.len()).collect();
        lengths.sort_unstable();
        let [less, more] = lengths[..] else { panic!("one is gone: {lengths:?}") };
        assert!(less == 100 && more == 3110, "seed {seed}: {lengths:?}");
    }
}

/// A round of one sync writes headers beside data that the disk refuses. They never count, also not
/// after later rounds. A start does not depend on unreadable data either.
#[test]
fn a_header_whose_data_was_not_taken_never_counts() {
    for (seed, others, power) in (0..240).map(|seed| (seed, seed % 3, seed % 2 == 0)) {
        let mut machine = Machine::new(seed);
        let mut life = two_durable_replicas(&mut machine);
        // The offset of a frame's data follows from its number. The first replica has the first
        // frame.
        machine.trouble.refused_data.set(1);
        machine.trouble.unreadable.set(true);
        _ = life.store.append(replica(1), Epoch(1), 100, &[2; 9000]);
        if others > 0 {
            life.store.append(replica(2), Epoch(1), 100, &[2; 3000]).unwrap();
        }
        life.turn_and_work(1);
        if others > 1 {
            life.turn_and_work(3);
        }
        drop(life);
        machine.trouble.refused.set(0);
        if power {
            machine.lose_power();
        } else {
            machine.memories.lose_power(&mut machine.random);
            machine.disk.restart();
        }
        // The store starts and offers both replicas: none is damaged, though one cannot be read
        // while the disk refuses that.
        let life = machine.start(Durability::Synced).unwrap();
        assert_eq!(life.opened.damaged, 0, "seed {seed}");
        drop(life);
        machine.trouble.ends();
        machine.lose_power();
        let mut life = machine.start(Durability::Synced).unwrap();
        let found = life.read_all(&machine.disk);
        let lengths = [1, 2].map(|segment| found[&replica(segment)].bytes.len());
        assert_eq!(lengths, [100, if others > 0 { 3100 } else { 100 }], "seed {seed}");
    }
}

/// The header of a round whose syncs failed can be read after the process was killed, but may not
/// be on the disk. The older header is the only one there, and a loss of power must not find it
/// half overwritten.
#[test]
fn a_header_that_a_failed_sync_left_behind_is_stored_before_the_older_one_is_overwritten() {
    let cases = (0..20).flat_map(|seed| (1..25).map(move |stop| (seed, stop)));
    for (seed, stop) in cases {
        for (is_newest, in_start) in [(true, true), (false, true), (true, false), (false, false)] {
            let mut machine = Machine::new(seed);
            let mut life = two_durable_replicas(&mut machine);
            machine.trouble.syncs.set(3);
            _ = life.store.close(replica(1), Epoch(1), 100);
            life.turn_and_work(1);
            if !is_newest {
                life.store.append(replica(2), Epoch(1), 100, &[1; 10]).unwrap();
                life.turn_and_work(1);
            }
            drop(life);
            machine.disk.restart();
            machine.trouble.ends();
            if in_start {
                machine.disk.stop_after(stop);
            }
            if let Ok(mut life) = machine.start(Durability::Synced) {
                machine.trouble.ends();
                if !in_start {
                    machine.disk.stop_after(stop);
                }
                // The frame of the first replica gets its next header.
                life.store.gives_way(MasterId(1));
                _ = life.store.append(replica(1), Epoch(1), 100, &[1; 10]);
                _ = life.store.close(replica(1), Epoch(1), 100);
                life.turn_and_work(1);
            }
            machine.lose_power();
            let mut life = machine.start(Durability::Synced).unwrap();
            assert_eq!(life.opened.damaged, 0, "seed {seed}, stop {stop}");
            let found = life.read_all(&machine.disk);
            let bytes = found.get(&replica(1)).map(|it| &it.bytes[..100]);
            assert_eq!(bytes, Some(&[1; 100][..]), "seed {seed}, stop {stop}, {is_newest}");
        }
    }
}

/// The start cannot store the header of a failed sync. The round that frees the frame must do it.
#[test]
fn a_header_that_a_start_could_not_store_is_stored_before_the_older_one_is_overwritten() {
    for (seed, stop) in (0..30).flat_map(|seed| (1..12).map(move |stop| (seed, stop))) {
        let mut machine = Machine::new(seed);
        let life = two_durable_replicas(&mut machine);
        kill_after_failed_syncs(&mut machine, life, (replica(2), 100), |life| {
            _ = life.store.close(replica(1), Epoch(1), 100);
        });
        machine.memories.lose_power(&mut machine.random);
        machine.trouble.refused.set(1);
        let mut life = machine.start(Durability::Synced).unwrap();
        machine.trouble.ends();
        machine.disk.stop_after(stop);
        life.store.free(replica(1));
        life.turn_and_work(1);
        drop(life);
        machine.lose_power();
        let life = machine.start(Durability::Synced).unwrap();
        assert_eq!(life.opened.damaged, 0, "seed {seed}, stop {stop}");
    }
}

/// The sync of the last round failed, so its headers and its data may be in the kernel's memory
/// alone. The next process must not store a header whose data the disk refuses: without that
/// header, the disk has the replica as it was before.
#[test]
fn a_start_stores_no_header_whose_data_the_disk_refuses() {
    let mut kept = 0;
    for seed in 0..100 {
        let [without, with] = [false, true].map(|starts| {
            let mut machine = Machine::new(seed);
            let mut life = two_durable_replicas(&mut machine);
            machine.trouble.syncs.set(1);
            machine.trouble.refused_data.set(0b11);
            for segment in [1, 2] {
                life.store.append(replica(segment), Epoch(1), 100, &[2; 9000]).unwrap();
            }
            life.turn_and_work(1);
            drop(life);
            if starts {
                machine.disk.restart();
                // The first replica has the first frame.
                machine.trouble.refused_data.set(0b1);
                let opened = machine.start(Durability::Synced).unwrap().opened;
                assert_eq!(opened.bad, 1, "seed {seed}: the data of one frame was refused");
            }
            machine.lose_power();
            machine.trouble.ends();
            let mut life = machine.start(Durability::Synced).unwrap();
            life.store.read(replica(1)).unwrap();
            let events = life.settle(&machine.disk);
            let length = events.into_iter().find_map(|event| match event {
                Event::Read(_, outcome) => outcome.ok().map(|it| it.bytes().len()),
                _ => None,
            });
            (life.opened.torn, length)
        });
        // The disk has no header of the round.
        if without == (0, Some(100)) {
            assert_eq!(with.1, Some(100), "seed {seed}");
            kept += 1;
        }
    }
    assert!(kept > 20, "{kept} of 100 disks had no header of the round");
}

/// Only the data of a round proves that the round counts. The data may have been read from the
/// kernel's memory alone, so a loss of power may remove it although it was offered.
#[test]
fn replicas_that_one_start_finds_are_found_by_the_next() {
    for seed in 0..200 {
        let mut machine = Machine::new(seed);
        let mut life = machine.start(Durability::Synced).unwrap();
        life.store.open(replica(1), Epoch(1), false).unwrap();
        life.store.append(replica(1), Epoch(1), 0, &[1; 100]).unwrap();
        life.settle(&machine.disk);
        life.store.append(replica(1), Epoch(1), 100, &[2; 3000]).unwrap();
        machine.trouble.syncs.set(u32::MAX);
        life.turn_and_work(1);
        drop(life);
        machine.disk.restart();
        machine.memories.lose_power(&mut machine.random);
        machine.trouble.ends();
        let offered = machine.start(Durability::Synced).unwrap().read_all(&machine.disk);
        machine.lose_power();
        let found = machine.start(Durability::Synced).unwrap().read_all(&machine.disk);
        assert_eq!(found, offered, "seed {seed}");
    }
}

/// A sync that fails may make the kernel forget the bytes that it should store. The next attempt
/// needs them.
#[test]
fn a_header_is_stored_although_a_sync_fails_meanwhile() {
    for seed in 0..100 {
        let mut machine = Machine::new(seed);
        let life = two_durable_replicas(&mut machine);
        kill_after_failed_syncs(&mut machine, life, (replica(2), 100), |life| {
            _ = life.store.close(replica(1), Epoch(1), 100);
        });
        machine.memories.lose_power(&mut machine.random);
        // The start cannot store the header.
        machine.trouble.refused.set(1);
        let mut life = machine.start(Durability::Synced).unwrap();
        machine.trouble.ends();
        machine.trouble.syncs.set(1);
        life.store.free(replica(1));
        life.settle(&machine.disk);
        assert!(life.store.is_settled(), "seed {seed}");
        let ids: Vec<u64> = life.store.replicas().map(|it| it.id.segment.0).collect();
        assert_eq!(ids, [2], "seed {seed}");
    }
}

/// The header that lets a replacement count can be read, but may not be on the disk. The replica
/// that it replaces is freed only after the disk has it.
#[test]
fn one_of_two_is_there_if_the_replacement_counts_by_a_header_that_is_not_on_the_disk() {
    // The replacement has the second frame. The disk takes its header at the start, or refuses it.
    for (seed, refused) in (0..200).map(|seed| (seed, [0, 0b10][seed as usize % 2])) {
        let mut machine = Machine::new(seed);
        let mut life = machine.start(Durability::Synced).unwrap();
        life.store.open(replica(1), Epoch(1), false).unwrap();
        life.store.close(replica(1), Epoch(1), 0).unwrap();
        life.settle(&machine.disk);
        life.store.open(replica(1), Epoch(2), true).unwrap();
        life.settle(&machine.disk);
        rests(&mut life, &machine, replica(1));
        kill_after_failed_syncs(&mut machine, life, (of_another(1), 0), |life| {
            _ = life.store.commit(replica(1), Epoch(2));
        });
        machine.trouble.refused.set(refused);
        drop(machine.start(Durability::Synced).unwrap());
        machine.trouble.ends();
        machine.lose_power();
        let life = machine.start(Durability::Synced).unwrap();
        assert!(life.store.offered(replica(1)).is_some(), "seed {seed}");
    }
}

/// Lets a replica give its buffer to others, so that only the disk has it.
fn rests(life: &mut Life, machine: &Machine, id: ReplicaId) {
    life.store.gives_way(id.master);
    for segment in 1..=u64::from(BUFFERS) {
        life.store.open(of_another(segment), Epoch(1), false).unwrap();
    }
    life.settle(&machine.disk);
    assert!(life.store.is_resting(id));
}

fn of_another(segment: u64) -> ReplicaId {
    ReplicaId { master: MasterId(2), segment: SegmentId(segment) }
}

/// The header of a closed replica can be read, but may not be on the disk. The replica's master
/// sends the closing again.
#[test]
fn a_closing_that_is_sent_again_is_acknowledged_only_if_it_is_on_the_disk() {
    for seed in 0..100 {
        let mut machine = Machine::new(seed);
        let mut life = machine.start(Durability::Synced).unwrap();
        life.store.open(replica(1), Epoch(1), false).unwrap();
        life.settle(&machine.disk);
        rests(&mut life, &machine, replica(1));
        kill_after_failed_syncs(&mut machine, life, (of_another(1), 0), |life| {
            _ = life.store.close(replica(1), Epoch(1), 0);
        });
        let mut life = machine.start(Durability::Synced).unwrap();
        let closed = life.store.close(replica(1), Epoch(1), 0);
        drop(life);
        machine.lose_power();
        let life = machine.start(Durability::Synced).unwrap();
        let is_closed = life.store.offered(replica(1)).is_some_and(|it| it.closed);
        assert!(closed != Ok(Ack::Now) || is_closed, "seed {seed}");
    }
}

/// The header that says that a replaced replica is freed can be read, but may not be on the disk.
#[test]
fn a_replacement_is_not_freed_before_a_header_that_is_not_on_the_disk() {
    for seed in 0..100 {
        let mut machine = Machine::new(seed);
        let mut life = machine.start(Durability::Synced).unwrap();
        life.store.open(replica(1), Epoch(1), false).unwrap();
        life.store.open(of_another(1), Epoch(1), false).unwrap();
        life.settle(&machine.disk);
        _ = life.store.close(replica(1), Epoch(1), 0);
        life.store.open(replica(1), Epoch(2), true).unwrap();
        life.store.commit(replica(1), Epoch(2)).unwrap();
        life.turn_and_work(1);
        // The round of the failed syncs frees the replaced replica.
        kill_after_failed_syncs(&mut machine, life, (of_another(1), 0), |life| {
            life.turn_and_work(1);
            life.store.free(replica(1));
        });
        drop(machine.start(Durability::Synced).unwrap());
        machine.lose_power();
        let mut life = machine.start(Durability::Synced).unwrap();
        let found = life.read_all(&machine.disk);
        let open = found.get(&replica(1)).is_some_and(|it| it.epoch == Epoch(1) && !it.closed);
        assert!(!open, "seed {seed}: {found:?}");
    }
}
