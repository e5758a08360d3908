//! Replicas by their masters.

use crate::machine::{Life, Machine};
use std::collections::BTreeSet;
use thunderhead_backup::{Durability, Replica, ReplicaId};
use thunderhead_wire::{Epoch, MasterId, SegmentId};

fn of(master: u64, segment: u64) -> ReplicaId {
    ReplicaId { master: MasterId(master), segment: SegmentId(segment) }
}

fn ids(replicas: impl Iterator<Item = Replica>) -> Vec<(u64, u64)> {
    replicas.map(|it| (it.id.master.0, it.id.segment.0)).collect()
}

/// Makes replicas of three masters. The second one has taken back the log of the first one.
fn three_masters(machine: &mut Machine) -> Life {
    let mut life = machine.start(Durability::Replicated).unwrap();
    for (master, segment, closed) in
        [(1, 1, true), (1, 2, true), (1, 3, false), (2, 2, true), (3, 1, true)]
    {
        life.store.open(of(master, segment), Epoch(1), false).unwrap();
        if closed {
            life.store.close(of(master, segment), Epoch(1), 0).unwrap();
        }
        life.settle(&machine.disk);
    }
    life.store.learn_lineage(MasterId(2), &[MasterId(1), MasterId(2)]);
    life
}

#[test]
fn a_master_has_its_own_replicas_and_the_closed_ones_of_its_lineage() {
    let mut machine = Machine::new(16);
    let life = three_masters(&mut machine);
    assert_eq!(ids(life.store.replicas_of(MasterId(1))), [(1, 1), (1, 2), (1, 3)]);
    assert_eq!(ids(life.store.replicas_of(MasterId(2))), [(2, 2), (1, 1)]);
    assert_eq!(ids(life.store.replicas_of(MasterId(3))), [(3, 1)]);
    assert_eq!(ids(life.store.replicas_of(MasterId(4))), []);
    let counts = [1, 2, 3, 4].map(|master| life.store.count_of(MasterId(master)));
    assert_eq!(counts, [3, 1, 1, 0]);
}

#[test]
fn replicas_of_one_master_are_freed_without_those_of_others() {
    let mut machine = Machine::new(17);
    let mut life = three_masters(&mut machine);
    let keep = BTreeSet::from([SegmentId(2), SegmentId(3)]);
    assert_eq!(life.store.free_rest(MasterId(1), &keep), [of(1, 1), of(1, 3)]);
    assert_eq!(life.store.free_master(MasterId(2)), 1);
    assert_eq!(ids(life.store.replicas()), [(1, 2), (3, 1)]);
}
