//! The read lease of a shard. A master that was declared crashed, or has no answers of its backups,
//! stops answering reads in time. An idle master, or a master that has lost a backup or the
//! coordinator, goes on.

use crate::recovery::TABLE;
use crate::simulated::{MASTER, backup_node, first_list, master_node};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_backup::Durability;
use thunderhead_log::TabletRange;
use thunderhead_master::replication::MESSAGE_BYTES;
use thunderhead_rpc::{CallError, Node, Opcode};
use thunderhead_simulator::Options;
use thunderhead_testkit::{Cluster, Place};
use thunderhead_wire::control::{InventoryOf, READ_LEASE, ServerState, to_body};
use thunderhead_wire::operations::{EnumerateHead, Identity, ObjectHead};
use thunderhead_wire::{Condition, Status, Version};
use zerocopy::IntoBytes;

const KEY: &[u8] = b"key";

/// Milliseconds.
fn ms(number: u64) -> Duration {
    Duration::from_millis(number)
}

fn object(condition: Condition) -> Vec<u8> {
    [ObjectHead::new(TABLE, KEY.len(), condition, 0).as_bytes(), KEY].concat()
}

/// A request, with the time and the outcome of its answer.
#[derive(Clone, Debug)]
struct Asked {
    opcode: Opcode,
    answered: Duration,
    outcome: Result<(), CallError>,
}

impl Asked {
    /// Whether the answer reveals the shard's contents.
    fn tells(&self) -> bool {
        let told = [Status::NotFound, Status::ConditionFailed];
        match self.outcome {
            Ok(()) => true,
            Err(CallError::Refused { status, .. }) => told.contains(&status),
            Err(_) => false,
        }
    }
}

/// A shard, its backups, and the answers that it gave.
struct Scene {
    cluster: Cluster,
    asked: Rc<RefCell<Vec<Asked>>>,
}

/// Starts a shard with replicas on backups, which gets one write and then reads of all kinds, some
/// every few milliseconds.
fn scene(replicas: u32, backups: u64) -> Scene {
    let mut cluster = Cluster::new(Options::calm(1));
    for id in 1..=backups {
        let known = Rc::clone(&cluster.coordinators);
        cluster.add_backup(move |boot| backup_node(boot, id, Durability::Replicated, &known));
    }
    cluster.add_scripted_coordinator();
    let coordinator = cluster.address(Place::Coordinator(0));
    let known = Rc::clone(&cluster.coordinators);
    cluster.add_server(move |boot| master_node(boot, &known, replicas, MESSAGE_BYTES, coordinator));
    let to = cluster.address(0);
    cluster.coordinators.borrow_mut().servers = first_list(to, &cluster.addresses(Place::Backup));
    let asked: Rc<RefCell<Vec<Asked>>> = Rc::default();
    let (truth, own) = (cluster.simulation.truth(), Rc::clone(&asked));
    cluster.add_user(move |boot| {
        let node = Node::new(boot.world, boot.transport, ());
        let (caller, tasks, asked) = (node.task_caller(), node.tasks().clone(), Rc::clone(&own));
        let truth = truth.clone();
        node.tasks().spawn(async move {
            let nobody = Identity::NONE;
            let write = [nobody.as_bytes(), &object(Condition::Always), b"value"].concat();
            while caller.call(to, Opcode::Write, write.clone(), Some(ms(500))).await.is_err() {}
            let never = object(Condition::VersionIs(Version(77)));
            let whole = EnumerateHead::new(TabletRange::whole(TABLE), 0, 1000);
            let nothing = ObjectHead::new(TABLE, 4, Condition::Always, 0);
            let questions = [
                (Opcode::Read, object(Condition::Always)),
                (Opcode::ReadMany, object(Condition::Always)),
                (Opcode::Enumerate, whole.as_bytes().to_vec()),
                (Opcode::Write, [nobody.as_bytes(), &never, b"value"].concat()),
                (Opcode::Delete, [nobody.as_bytes(), nothing.as_bytes(), b"none"].concat()),
            ];
            for (opcode, body) in questions.iter().cycle() {
                let (caller, body) = (caller.clone(), body.clone());
                let (asked, truth, opcode) = (Rc::clone(&asked), truth.clone(), *opcode);
                tasks.spawn(async move {
                    let outcome = caller.call(to, opcode, body, Some(ms(5000))).await.map(drop);
                    let answered = Duration::from_nanos(truth.get());
                    asked.borrow_mut().push(Asked { opcode, answered, outcome });
                });
                tasks.sleep(ms(7)).await;
            }
        });
        Box::new(node)
    });
    Scene { cluster, asked }
}

impl Scene {
    fn run_for(&mut self, duration: Duration) {
        self.cluster.simulation.run_for(duration);
    }

    /// Fences a backup at a time, as a recovery of the log does.
    fn fence_at(&mut self, at: Duration, backup: usize) {
        let to = self.cluster.address(Place::Backup(backup));
        self.cluster.add_user(move |boot| {
            let node = Node::new(boot.world, boot.transport, ());
            let (caller, tasks) = (node.task_caller(), node.tasks().clone());
            node.tasks().spawn(async move {
                tasks.sleep(at).await;
                let body =
                    to_body(&InventoryOf { lineage: Vec::new(), master: MASTER, deposed: true });
                caller.call(to, Opcode::Inventory, body, Some(ms(50))).await.unwrap();
            });
            Box::new(node)
        });
    }

    /// Cuts the shard off from all its backups.
    fn cut_off(&mut self) {
        let backups = self.cluster.count(Place::Backup);
        (0..backups).for_each(|backup| self.cluster.cut(0, Place::Backup(backup)));
    }

    /// Opens all links between the shard and its backups.
    fn mend(&mut self) {
        let backups = self.cluster.count(Place::Backup);
        (0..backups).for_each(|backup| self.cluster.mend(0, Place::Backup(backup)));
    }

    /// Kills a backup, of which the coordinator tells the shard at once.
    fn kill_backup(&mut self, backup: usize) {
        self.cluster.backup(backup).kill();
        let list = &mut self.cluster.coordinators.borrow_mut().servers;
        list.version += 1;
        list.servers[backup + 1].state = ServerState::Down;
    }

    /// Returns the requests that were answered within a time.
    fn answered(&self, from: Duration, until: Duration) -> Vec<Asked> {
        let asked = self.asked.borrow();
        asked.iter().filter(|it| (from..until).contains(&it.answered)).cloned().collect()
    }

    /// Checks that all answers within a time reveal the shard's contents.
    fn serves(&self, from: Duration, until: Duration) {
        let all = self.answered(from, until);
        assert!(all.len() > 20, "{}", all.len());
        let not = all.iter().find(|it| !it.tells());
        assert!(not.is_none(), "{not:?}");
    }

    /// Checks that no answer within a time reveals the shard's contents.
    fn is_silent(&self, from: Duration, until: Duration) {
        let all = self.answered(from, until);
        assert!(all.len() > 20, "{}", all.len());
        let not = all.iter().find(|it| it.tells());
        assert!(not.is_none(), "{not:?}");
    }
}

#[test]
fn an_idle_master_answers_reads_and_needs_no_coordinator() {
    let mut scene = scene(2, 3);
    scene.run_for(ms(5000));
    scene.cluster.coordinator(0).kill();
    scene.run_for(ms(60_000));
    scene.serves(ms(100), ms(65_000));
}

#[test]
fn a_master_that_was_stopped_while_it_was_given_up_tells_nothing_old() {
    let mut scene = scene(1, 1);
    scene.fence_at(ms(1100), 0);
    scene.run_for(ms(1000));
    scene.serves(ms(100), ms(1000));
    scene.cluster.server(0).pause(ms(2000));
    scene.run_for(ms(3000));
    // Requests arrived during the pause, before or after other masters could have written.
    scene.is_silent(ms(1000) + ms(100) + READ_LEASE, ms(4000));
}

#[test]
fn one_backup_of_the_end_of_the_log_that_was_fenced_is_enough() {
    for backup in 0..2 {
        let mut scene = scene(2, 2);
        scene.fence_at(ms(1000), backup);
        scene.run_for(ms(2000));
        scene.serves(ms(100), ms(1000));
        scene.is_silent(ms(1000) + READ_LEASE, ms(2000));
    }
}

#[test]
fn a_master_that_hears_nothing_of_its_backups_stops_in_time_and_goes_on_when_it_does() {
    let mut scene = scene(2, 2);
    scene.run_for(ms(1000));
    scene.cut_off();
    scene.run_for(ms(2000));
    scene.serves(ms(100), ms(1000) + READ_LEASE * 2 / 3 - ms(10));
    scene.is_silent(ms(1000) + READ_LEASE, ms(3000));
    // After a while the shard answers that another one may have the tablet.
    let moved = Err(CallError::Refused { status: Status::Moved, hint: 0, detail: 0 });
    let late = scene.answered(ms(1100) + READ_LEASE * 2, ms(3000));
    assert!(late.iter().all(|it| it.opcode == Opcode::ReadMany || it.outcome == moved), "{late:?}");
    scene.mend();
    scene.run_for(ms(4000));
    scene.serves(ms(5000), ms(7000));
}

#[test]
fn an_answer_that_waits_for_backups_for_long_says_so() {
    let mut scene = scene(2, 2);
    scene.run_for(ms(1000));
    scene.cut_off();
    let to = scene.cluster.address(0);
    let outcome: Rc<RefCell<Option<Asked>>> = Rc::default();
    let (truth, own) = (scene.cluster.simulation.truth(), Rc::clone(&outcome));
    scene.cluster.add_user(move |boot| {
        let node = Node::new(boot.world, boot.transport, ());
        let (caller, truth, own) = (node.task_caller(), truth.clone(), Rc::clone(&own));
        node.tasks().spawn(async move {
            let nobody = Identity::NONE;
            let body = [nobody.as_bytes(), &object(Condition::Always), b"later"].concat();
            let outcome = caller.call(to, Opcode::Write, body, Some(ms(5000))).await.map(drop);
            let answered = Duration::from_nanos(truth.get());
            own.replace(Some(Asked { opcode: Opcode::Write, answered, outcome }));
        });
        Box::new(node)
    });
    scene.run_for(ms(1000));
    let asked = outcome.take().expect("the write is answered");
    let CallError::Refused { status, .. } = asked.outcome.unwrap_err() else { panic!() };
    assert_eq!(status, Status::AwaitingReplicas);
    assert!((ms(1390)..ms(1900)).contains(&asked.answered), "{:?}", asked.answered);
    // Reads are refused for the same reason once the lease is over.
    let silent = scene.answered(ms(1100) + READ_LEASE, ms(1900));
    let is_told = |it: &Asked| {
        matches!(it.outcome, Err(CallError::Refused { status: Status::AwaitingReplicas, .. }))
    };
    assert!(silent.iter().any(is_told), "{silent:?}");
}

#[test]
fn reads_do_not_wait_for_a_backup_that_died_once_others_have_its_replicas() {
    let mut stopped = 0;
    for backup in 0..3 {
        for coordinates in [true, false] {
            let mut scene = scene(2, 3);
            scene.run_for(ms(1000));
            if !coordinates {
                scene.cluster.coordinator(0).kill();
            }
            scene.kill_backup(backup);
            scene.run_for(ms(2000));
            if coordinates {
                scene.serves(ms(100), ms(3000));
                continue;
            }
            // Without a coordinator no epoch can be noted, so the crashed backup's replica still
            // counts.
            let all = scene.answered(ms(1000) + READ_LEASE, ms(3000));
            stopped += u32::from(all.iter().all(|it| !it.tells()));
            scene.cluster.coordinator(0).restart();
            scene.run_for(ms(2000));
            scene.serves(ms(4000), ms(5000));
        }
    }
    assert_eq!(stopped, 2, "the backups with a replica of the head");
}

#[test]
fn a_shard_writes_and_reads_with_one_replica_of_two_while_a_backup_is_away() {
    let mut scene = scene(2, 2);
    scene.fence_at(ms(6000), 0);
    scene.run_for(ms(1000));
    scene.kill_backup(1);
    scene.run_for(ms(5000));
    scene.serves(ms(100), ms(6000));
    // The remaining backup is enough for a recovery, so its word is needed.
    scene.run_for(ms(1000));
    scene.is_silent(ms(6000) + ms(10) + READ_LEASE, ms(7000));
}

#[test]
fn reads_go_on_by_the_word_of_the_coordinator_where_replicas_are_too_few_to_write() {
    let mut scene = scene(2, 2);
    scene.cluster.coordinators.borrow_mut().servers.min_replicas = Some(2);
    scene.run_for(ms(1000));
    scene.kill_backup(1);
    scene.run_for(ms(5000));
    scene.serves(ms(100), ms(6000));
    scene.cluster.coordinator(0).kill();
    scene.run_for(ms(2000));
    scene.is_silent(ms(6000) + READ_LEASE, ms(8000));
    scene.cluster.coordinator(0).restart();
    scene.run_for(ms(2000));
    scene.serves(ms(8700), ms(10_000));
}
