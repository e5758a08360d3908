//! Recoveries in parts, in a calm simulation except for each test's own faults: which servers are
//! asked and told, and the effect of crashes during the recovery. The servers check on their side
//! that no master gets a tablet that may still be read elsewhere, and that backups are told before
//! masters.

use crate::control_plane::{
    ControlPlane, create, held, map, mapped, options, owners, status, stored,
};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_rpc::Opcode;
use thunderhead_wire::control::{
    DropTable, Empty, Head, Owned, Recover, Recovered, SplitTablet, TableInfo, Taken,
};
use thunderhead_wire::{
    Generation, KeyHash, MasterId, RecoveryId, SegmentId, ServerId, Status, TabletRange,
};

const MEGABYTES: u64 = 1 << 20;

/// Returns a cluster with a table on each shard of the first server, and perhaps more.
fn cluster(seed: u64, coordinators: usize, servers: usize, table_bytes: u64) -> ControlPlane {
    let mut cluster = ControlPlane::new(seed, coordinators, servers, &options());
    cluster.until_all_are_there();
    cluster.common.table_bytes.set(table_bytes);
    create(&mut cluster, "t", 2 * servers as u32).unwrap();
    cluster
}

fn id(cluster: &ControlPlane, number: usize) -> ServerId {
    cluster.servers[number].borrow().known.unwrap().server
}

/// Crashes a server for good, and declares the verdict.
pub(crate) fn fell(cluster: &mut ControlPlane, number: usize) {
    let server = Rc::clone(&cluster.servers[number]);
    cluster.server(number).kill();
    let (server, generation) = {
        let server = server.borrow();
        (server.known.unwrap().server, server.enlisted.as_ref().unwrap().generation)
    };
    cluster.servers[number].borrow_mut().enlisted = None;
    cluster.until("a coordinator leads", |cluster| cluster.leader().is_some());
    assert!(cluster.handle().server_failed(server, generation));
}

pub(crate) fn until_all_are_somewhere(cluster: &mut ControlPlane, former: &[MasterId]) {
    cluster.until("all are somewhere", |cluster| {
        let Some(map) = cluster.leader().and_then(|_| cluster.handle().map()) else { return false };
        let mut tablets = map.tables.iter().flat_map(|table| &table.tablets);
        tablets.all(|it| it.address.is_some() && !former.contains(&it.master))
    });
    assert!(owners(&cluster.store).iter().all(|it| !former.contains(it)));
    cluster.until("masters know their tablets", |cluster| {
        let Some(map) = cluster.leader().and_then(|_| cluster.handle().map()) else { return false };
        let held = held(cluster);
        mapped(&map).iter().all(|(master, range)| {
            let holds = |it: &TabletRange| {
                it.table == range.table && it.first <= range.first && range.last <= it.last
            };
            held.iter().any(|(by, it)| by == master && holds(it))
        })
    });
}

/// Returns all orders to rebuild, each once.
pub(crate) fn told(cluster: &ControlPlane) -> Vec<Recover> {
    let mut all: Vec<Recover> = Vec::new();
    for server in &cluster.servers {
        for recover in &server.borrow().recovers {
            let same =
                |it: &Recover| (it.recovery, it.partition) == (recover.recovery, recover.partition);
            if !all.iter().any(same) {
                all.push(recover.clone());
            }
        }
    }
    all
}

#[test]
fn much_data_is_divided_among_all_masters_and_large_tablets_are_split() {
    let mut cluster = cluster(40, 1, 3, 0);
    // Two tablets on the crashed server, of 64 and 2 x 64 megabytes.
    cluster.common.table_bytes.set(6 * 64 * MEGABYTES);
    let former = cluster.masters(0);
    fell(&mut cluster, 0);
    until_all_are_somewhere(&mut cluster, &former);
    let told = told(&cluster);
    let of = |master| told.iter().filter(move |it| it.crashed == master);
    for master in &former {
        assert_eq!(of(*master).count(), 2, "64 megabytes are two partitions");
        let masters: BTreeSet<_> = of(*master).map(|it| it.master).collect();
        assert_eq!(masters.len(), 2);
        let numbers: BTreeSet<_> = of(*master).map(|it| it.recovery).collect();
        assert_eq!(numbers.len(), 1, "all at the first attempt");
    }
    // Every master has some work.
    let all: BTreeSet<_> = told.iter().map(|it| it.master).collect();
    assert_eq!(all.len(), 4);
    assert_eq!(mapped(&map(&mut cluster)).len(), 8);
    // Each segment is read by only one backup.
    let reads = cluster.servers.iter().flat_map(|it| it.borrow().begun.clone());
    let mut seen = BTreeSet::new();
    for begun in reads {
        for segment in begun.segments {
            assert!(seen.insert((begun.recovery, segment)), "{segment} is read twice");
        }
    }
    assert_eq!(seen.len(), 4);
}

#[test]
fn few_masters_rebuild_a_huge_tablet_in_pieces_of_half_a_gigabyte() {
    let mut cluster = cluster(41, 1, 2, 0);
    cluster.common.table_bytes.set(4 * 2048 * MEGABYTES);
    let former = cluster.masters(0);
    fell(&mut cluster, 0);
    until_all_are_somewhere(&mut cluster, &former);
    assert_eq!(told(&cluster).len(), 8);
    let now: BTreeSet<_> = mapped(&map(&mut cluster)).into_iter().map(|it| it.0).collect();
    assert_eq!(now, cluster.masters(1).into_iter().collect());
}

#[test]
fn a_small_tablet_is_rebuilt_whole_by_its_restarted_server() {
    let mut cluster = cluster(42, 1, 3, 8 * MEGABYTES);
    cluster.common.table_bytes.set(6 * 200 * MEGABYTES);
    let former = cluster.masters(0);
    cluster.server(0).kill();
    cluster.server(0).restart();
    cluster.until_all_are_there();
    until_all_are_somewhere(&mut cluster, &former);
    let told = told(&cluster);
    assert_eq!(told.len(), 2, "no more than its own shards can do in time");
    let own = cluster.masters(0);
    for recover in told {
        let shard = former.iter().position(|it| *it == recover.crashed).unwrap();
        assert_eq!(recover.master, own[shard]);
    }
}

#[test]
fn a_master_that_crashes_during_a_recovery_owns_none_of_its_part_and_the_others_go_on() {
    let mut cluster = cluster(43, 2, 4, 0);
    cluster.common.table_bytes.set(8 * 256 * MEGABYTES);
    cluster.servers[2].borrow_mut().recovers_by_itself = false;
    let (former, slow) = (cluster.masters(0), cluster.masters(2));
    fell(&mut cluster, 0);
    cluster.until("the slow master has begun", |cluster| {
        !cluster.servers[2].borrow().recovers.is_empty()
    });
    let left = |cluster: &ControlPlane| {
        let map = cluster.handle().map().unwrap();
        map.tables[0].tablets.iter().filter(|it| it.address.is_none()).count()
    };
    cluster.simulation.run_for(Duration::from_secs(3));
    let begun = told(&cluster);
    let is_slow = |it: &&Recover| slow.contains(&it.master);
    let waiting: usize = begun.iter().filter(is_slow).map(|it| it.tablets.len()).sum();
    assert!(waiting > 0 && waiting < begun.len());
    assert_eq!(left(&cluster), waiting, "all other parts are their masters'");
    let seen = status(&mut cluster).recoveries;
    assert!(seen.iter().all(|it| it.stage == "rebuilding" && it.partitions_left < it.partitions));
    assert!(
        seen.iter().all(|it| it.masters.iter().all(|by| slow.contains(by)) && it.bytes == 2000)
    );
    let numbers: BTreeSet<RecoveryId> = begun.iter().map(|it| it.recovery).collect();
    fell(&mut cluster, 2);
    let gone = [former.clone(), slow].concat();
    until_all_are_somewhere(&mut cluster, &gone);
    let again: Vec<_> =
        told(&cluster).into_iter().filter(|it| !numbers.contains(&it.recovery)).collect();
    // From the first log it gets the unfinished tablets, from its own log the others.
    let of_first: usize =
        again.iter().filter(|it| former.contains(&it.crashed)).map(|it| it.tablets.len()).sum();
    assert!(of_first >= waiting, "{of_first} of {waiting}");
    assert!(again.iter().all(|it| it.recovery > *numbers.last().unwrap()));
}

#[test]
fn the_next_leader_finishes_a_recovery_whenever_the_leader_crashes() {
    let mut lasted = BTreeSet::new();
    for step in 0..40 {
        let mut cluster = cluster(100 + step, 2, 3, 6 * 64 * MEGABYTES);
        let former = cluster.masters(0);
        fell(&mut cluster, 0);
        let millis = if step < 20 { step * 3 } else { (step - 17) * 25 };
        cluster.simulation.run_for(Duration::from_millis(millis));
        lasted.insert(told(&cluster).len());
        cluster.change_leader();
        // If not even the verdict was written.
        assert!(cluster.handle().server_failed(id(&cluster, 0), Generation(1)));
        until_all_are_somewhere(&mut cluster, &former);
        assert_eq!(held(&cluster).len(), mapped(&map(&mut cluster)).len(), "step {step}");
        for server in &cluster.servers[1..] {
            let server = server.borrow();
            let mut numbers = server.begun.iter().map(|it| (it.crashed, it.recovery));
            assert!(numbers.all(|(_, number)| number > RecoveryId(0)));
        }
    }
    assert!(lasted.contains(&0) && lasted.contains(&4), "{lasted:?}: not at every step");
}

#[test]
fn a_recovery_does_not_wait_for_backups_that_are_down_and_only_shortly_for_silent_ones() {
    // The log of the first server is on the first and the second server.
    let time = |seed, silent: bool| {
        let mut cluster = cluster(seed, 1, 4, 0);
        cluster.servers[2].borrow_mut().backup_is_deaf = silent;
        let former = cluster.masters(0);
        let begun = cluster.simulation.now();
        fell(&mut cluster, 0);
        cluster.until("a master is told", |cluster| !told(cluster).is_empty());
        let took = cluster.simulation.now() - begun;
        until_all_are_somewhere(&mut cluster, &former);
        took
    };
    assert!(time(44, false) < Duration::from_millis(100));
    let took = time(45, true);
    assert!(took >= Duration::from_secs(1) && took < Duration::from_millis(1300), "{took:?}");
}

#[test]
fn missing_segments_are_named_and_used_as_soon_as_their_backup_restarts() {
    let mut cluster = cluster(46, 2, 3, 0);
    let former = [cluster.masters(0), cluster.masters(1)].concat();
    // Both servers with the first server's log. The third one has a replica of the second one's
    // log.
    let first = cluster.masters(0);
    fell(&mut cluster, 0);
    fell(&mut cluster, 1);
    cluster.simulation.run_for(Duration::from_secs(4));
    let seen = status(&mut cluster).recoveries;
    assert_eq!(seen.iter().map(|it| it.crashed).collect::<Vec<_>>(), first);
    let silent: BTreeSet<_> = [id(&cluster, 0), id(&cluster, 1)].into();
    let silent = silent.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    for it in &seen {
        let trouble = it.trouble.as_deref().unwrap();
        assert!(trouble.contains(&format!("no answer came from {silent}")), "{trouble}");
        assert_eq!(it.stage, "waiting");
    }
    cluster.change_leader();
    cluster.simulation.run_for(Duration::from_secs(20));
    // At the restart at once, however long the pause had grown.
    cluster.server(1).restart();
    cluster.until_all_are_there_but(&[0]);
    let came = cluster.simulation.now();
    until_all_are_somewhere(&mut cluster, &former);
    let took = cluster.simulation.now() - came;
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn no_owner_is_written_before_reads_have_ended() {
    for (seed, changes) in [(47, false), (48, true)] {
        let mut cluster = cluster(seed, 2, 2, 0);
        let former = cluster.masters(0);
        let begun = cluster.simulation.now();
        cluster.servers[1].borrow_mut().recovers_by_itself = !changes;
        fell(&mut cluster, 0);
        if changes {
            // One leader assigns the parts. The next leader, which did not see that, gets the
            // report.
            cluster.until("the parts are assigned", |cluster| told(cluster).len() == 2);
            cluster.store.stop();
            let old = cluster.leader().unwrap();
            cluster.coordinator(old).kill();
            cluster.servers[1].borrow_mut().recovers_by_itself = true;
            cluster.store.start();
        }
        until_all_are_somewhere(&mut cluster, &former);
        let took = cluster.simulation.now() - begun;
        assert!(took >= Duration::from_millis(525), "{took:?}");
        assert!(changes || took < Duration::from_millis(650), "{took:?}");
    }
}

#[test]
fn torn_replicas_of_heads_are_used_only_if_no_other_of_their_length_remains() {
    let mut cluster = cluster(49, 1, 3, 0);
    let former = cluster.masters(0);
    let digest = Some(vec![SegmentId(1), SegmentId(2)]);
    let torn = Head { digest, torn: Some("cut short".into()), ..Head::default() };
    let heads = [(former[0], Ok(torn)), (former[1], Err(Status::NotFound))];
    cluster.servers[0].borrow_mut().heads.extend(heads);
    cluster.server(0).kill();
    cluster.server(0).restart();
    cluster.until_all_are_there();
    until_all_are_somewhere(&mut cluster, &former);
    for recover in told(&cluster) {
        let at: Vec<_> = recover.segments[0].at.iter().map(|it| it.0).collect();
        assert_eq!(at, [id(&cluster, 1)]);
        assert_eq!(recover.segments[1].at.len(), 2);
    }
    // A torn replica is better than none.
    let torn = cluster.servers[0].borrow().heads[&former[0]].clone();
    let former = cluster.masters(1);
    for number in [1, 2] {
        let heads = former.iter().map(|it| (*it, torn.clone()));
        cluster.servers[number].borrow_mut().heads.extend(heads);
    }
    fell(&mut cluster, 1);
    until_all_are_somewhere(&mut cluster, &former);
}

#[test]
fn a_busy_master_is_asked_for_a_while_and_then_another_one() {
    let mut cluster = cluster(50, 1, 3, 0);
    let former = cluster.masters(0);
    let busy = cluster.masters(1);
    cluster.servers[1].borrow_mut().refuses = Some(Status::Busy);
    fell(&mut cluster, 0);
    until_all_are_somewhere(&mut cluster, &former);
    assert!(told(&cluster).iter().all(|it| !busy.contains(&it.master)));
}

#[test]
fn a_recovery_waits_for_a_master_that_still_works_on_an_earlier_round() {
    let mut cluster = cluster(67, 1, 3, 0);
    let former = cluster.masters(0);
    for number in [1, 2] {
        cluster.servers[number].borrow_mut().refuses = Some(Status::InProgress);
    }
    fell(&mut cluster, 0);
    cluster.simulation.run_for(Duration::from_secs(12));
    assert!(status(&mut cluster).recoveries.iter().all(|it| it.trouble.is_none()));
    for number in [1, 2] {
        cluster.servers[number].borrow_mut().refuses = None;
    }
    until_all_are_somewhere(&mut cluster, &former);
    assert!(
        told(&cluster).iter().all(|it| it.recovery <= RecoveryId(2)),
        "each at the first attempt"
    );
}

/// The leader crashes when it has written one of a part's two tables. The next leader assigns the
/// other table under another number, to the same master, which still waits for the answer to its
/// report.
#[test]
fn a_part_that_is_half_written_when_the_leader_crashes_is_finished() {
    let mut halves = 0;
    for seed in 120..130 {
        let mut cluster = cluster(seed, 2, 2, 0);
        create(&mut cluster, "u", 4).unwrap();
        let former = cluster.masters(0);
        fell(&mut cluster, 0);
        let written = |cluster: &ControlPlane| -> Vec<usize> {
            let is_left = |it: &serde_json::Value| former.contains(&MasterId(it.as_u64().unwrap()));
            let left = |table: &serde_json::Value| {
                let tablets = table["tablets"].as_array().unwrap();
                tablets.iter().filter(|it| is_left(&it["master"])).count()
            };
            stored(&cluster.store, "tables").iter().map(left).collect()
        };
        while written(&cluster).iter().all(|left| *left == 2) {
            cluster.simulation.run_for(Duration::from_micros(20));
        }
        cluster.store.stop();
        let left = written(&cluster);
        halves += usize::from(left.iter().any(|it| *it > 0) && left[0] != left[1]);
        let old = cluster.leader().unwrap();
        cluster.coordinator(old).kill();
        cluster.store.start();
        assert!(cluster.servers[1].borrow().freed.is_empty());
        until_all_are_somewhere(&mut cluster, &former);
        assert_eq!(held(&cluster).len(), mapped(&map(&mut cluster)).len(), "seed {seed}");
        assert!(cluster.servers[1].borrow().telling.is_empty());
        cluster.until("replicas are freed", |cluster| {
            let server = cluster.servers[1].borrow();
            former.iter().all(|it| server.freed.contains(it))
        });
    }
    assert!(halves > 5, "{halves}: the crash did not hit a half-written part");
}

#[test]
fn a_recovery_goes_on_without_a_backup_that_crashes_before_it_reads() {
    for seed in 51..61 {
        let mut cluster = cluster(seed, 1, 4, 8 * 64 * MEGABYTES);
        let former = cluster.masters(0);
        let server = Rc::clone(&cluster.servers[1]);
        // One of the two backups with the log restarts at once. The other one belongs to the
        // crashed server.
        fell(&mut cluster, 0);
        cluster.simulation.run_for(Duration::from_millis((seed - 51) * 4));
        cluster.server(1).kill();
        cluster.simulation.run_for(Duration::from_millis(30));
        server.borrow_mut().enlisted = None;
        cluster.server(1).restart();
        cluster.until_all_are_there_but(&[0]);
        until_all_are_somewhere(&mut cluster, &former);
    }
}

#[test]
fn a_backup_that_restarts_during_a_recovery_is_told_again() {
    let mut cluster = cluster(66, 1, 4, 8 * 64 * MEGABYTES);
    for server in &cluster.servers {
        server.borrow_mut().recovers_by_itself = false;
    }
    fell(&mut cluster, 0);
    cluster.until("all are told", |cluster| told(cluster).len() == 4);
    let numbers: BTreeSet<RecoveryId> = told(&cluster).iter().map(|it| it.recovery).collect();
    let server = Rc::clone(&cluster.servers[1]);
    server.borrow_mut().begun.clear();
    cluster.server(1).kill();
    cluster.server(1).restart();
    cluster.until("it is told again", |_| {
        let server = server.borrow();
        numbers.iter().all(|number| server.begun.iter().any(|it| it.recovery == *number))
    });
}

/// The generation has lost its memory, and with it the end of a head.
#[test]
fn a_round_ends_if_a_backup_restarts_without_a_replica_that_the_survey_found() {
    let mut cluster = cluster(67, 1, 4, 8 * 64 * MEGABYTES);
    for server in &cluster.servers {
        server.borrow_mut().recovers_by_itself = false;
    }
    let former = cluster.masters(0);
    fell(&mut cluster, 0);
    cluster.until("all are told", |cluster| told(cluster).len() == 4);
    let last = told(&cluster).iter().map(|it| it.recovery).max().unwrap();
    let server = Rc::clone(&cluster.servers[1]);
    server.borrow_mut().begun.clear();
    cluster.server(1).kill();
    for master in &former {
        let mut server = server.borrow_mut();
        let replicas = server.replicas.get_mut(master).unwrap();
        replicas.iter_mut().filter(|it| !it.closed).for_each(|it| it.length -= 1);
    }
    cluster.server(1).restart();
    cluster.until("other rounds begin", |_| {
        let server = server.borrow();
        former.iter().all(|master| server.begun.iter().any(|it| it.crashed == *master))
    });
    let server = server.borrow();
    assert!(server.begun.iter().all(|it| it.recovery > last), "{:?}", server.begun);
}

#[test]
fn a_backup_that_refuses_to_read_is_named_and_replaced_if_another_one_can_read() {
    for (seed, others) in [(68, false), (69, true)] {
        let mut cluster = cluster(seed, 1, 3, 0);
        let former = cluster.masters(0);
        cluster.servers[1].borrow_mut().does_not_read = Some(Status::Malformed);
        if others {
            // The other backup with the log restarts.
            cluster.server(0).kill();
            cluster.server(0).restart();
            cluster.until_all_are_there();
            until_all_are_somewhere(&mut cluster, &former);
            continue;
        }
        fell(&mut cluster, 0);
        cluster.simulation.run_for(Duration::from_secs(5));
        let name = id(&cluster, 1).to_string();
        for it in status(&mut cluster).recoveries {
            assert_eq!(it.stage, "waiting");
            assert!(it.trouble.as_ref().is_some_and(|it| it.contains(&name)), "{:?}", it.trouble);
        }
        assert!(told(&cluster).is_empty());
        cluster.servers[1].borrow_mut().does_not_read = None;
        until_all_are_somewhere(&mut cluster, &former);
    }
}

#[test]
fn a_master_that_never_finishes_does_not_block_another_masters_part_for_ever() {
    let mut cluster = cluster(39, 2, 4, 0);
    cluster.common.table_bytes.set(8 * 256 * MEGABYTES);
    for number in [2, 3] {
        cluster.servers[number].borrow_mut().recovers_by_itself = false;
    }
    let (former, stuck) = (cluster.masters(0), cluster.masters(3));
    fell(&mut cluster, 0);
    for number in [2, 3] {
        cluster
            .until("it has begun", |cluster| !cluster.servers[number].borrow().recovers.is_empty());
    }
    cluster.simulation.run_for(Duration::from_secs(3));
    fell(&mut cluster, 2);
    let begun = cluster.simulation.now();
    cluster.until("the first master is finished", |cluster| {
        owners(&cluster.store).iter().all(|it| !former.contains(it))
    });
    let took = cluster.simulation.now() - begun;
    assert!(took > Duration::from_secs(29) && took < Duration::from_secs(34), "{took:?}");
    let seen = told(&cluster);
    let of_first: Vec<_> = seen.iter().filter(|it| former.contains(&it.crashed)).collect();
    let newest = of_first.iter().map(|it| it.recovery).max().unwrap();
    let last = of_first.iter().filter(|it| it.recovery == newest);
    assert!(last.clone().count() > 0 && last.clone().all(|it| !stuck.contains(&it.master)));
}

/// A leader has assigned parts, and gives the leadership back before they are rebuilt. The next
/// leader cannot assign them again, because a backup is silent.
#[test]
fn a_leader_that_did_not_assign_the_parts_waits_as_long() {
    let mut soonest = Duration::MAX;
    for seed in 70..90 {
        let mut cluster = cluster(seed, 2, 2, 0);
        let former = cluster.masters(0);
        cluster.servers[1].borrow_mut().recovers_by_itself = true;
        fell(&mut cluster, 0);
        cluster.until("the parts are assigned", |cluster| told(cluster).len() == 2);
        let begun = cluster.simulation.now();
        cluster.servers[1].borrow_mut().backup_is_deaf = true;
        cluster.handle().resign();
        until_all_are_somewhere(&mut cluster, &former);
        let took = cluster.simulation.now() - begun;
        assert!(took >= Duration::from_millis(520), "{took:?}");
        soonest = soonest.min(took);
    }
    assert!(soonest < Duration::from_millis(1500), "{soonest:?}: the next round did it");
}

/// The value of reports: the first one, a repetition, reports with another number, partition or
/// master, and an incomplete one.
#[test]
fn a_report_counts_if_it_was_requested_or_is_written_already() {
    let mut cluster = cluster(62, 2, 2, 0);
    cluster.common.table_bytes.set(4 * 64 * MEGABYTES);
    for server in &cluster.servers {
        server.borrow_mut().recovers_by_itself = false;
    }
    fell(&mut cluster, 0);
    cluster.until("both are told", |cluster| told(cluster).len() == 4);
    let first = told(&cluster).into_iter().find(|it| it.partition == 0).unwrap();
    let second = told(&cluster)
        .into_iter()
        .find(|it| it.recovery == first.recovery && it.partition == 1)
        .unwrap();
    let taken = |recover: &Recover| -> Vec<Taken> {
        recover.tablets.iter().map(|it| Taken { since: SegmentId(9), ..*it }).collect()
    };
    let report = |recover: &Recover, taken: Vec<Taken>| Recovered {
        keeps: false,
        crashed: recover.crashed,
        recovery: recover.recovery,
        partition: recover.partition,
        by: recover.master,
        outcome: Ok(taken),
    };
    let good = report(&first, taken(&first));
    let say = |cluster: &mut ControlPlane, message: &Recovered| {
        cluster.ask::<Owned>(Opcode::Recovered, message).map(|it| it.not_yours)
    };
    let bad = [
        Recovered { recovery: RecoveryId(first.recovery.0 + 100), ..good.clone() },
        Recovered { recovery: RecoveryId(0), ..good.clone() },
        Recovered { partition: 7, ..good.clone() },
        Recovered { partition: 1, by: first.master, ..good.clone() },
        Recovered { crashed: MasterId(77), ..good.clone() },
        // A report that was not requested.
        report(&first, taken(&second)),
    ];
    let mut before = owners(&cluster.store);
    for message in &bad {
        assert_eq!(say(&mut cluster, message), Err(Status::BadRange), "{message:?}");
    }
    assert_eq!(owners(&cluster.store), before);
    assert_eq!(say(&mut cluster, &good), Ok(vec![]));
    before = owners(&cluster.store);
    assert!(before.contains(&first.master));
    assert_eq!(say(&mut cluster, &good), Ok(vec![]), "a repetition");
    cluster.change_leader();
    assert_eq!(say(&mut cluster, &good), Ok(vec![]), "a repetition to another leader");
    // The remainder was assigned again, under another number: a report with the old number is void.
    cluster.until("the remainder is assigned again", |cluster| told(cluster).len() > 4);
    assert_eq!(say(&mut cluster, &report(&second, taken(&second))), Err(Status::BadRange));
    // A report with tablets that it owns already keeps these, and the answer names the others.
    let both = [taken(&first), taken(&second)].concat();
    let others: Vec<_> = second.tablets.iter().map(|it| it.range).collect();
    assert_eq!(say(&mut cluster, &report(&first, both)), Ok(others));
}

#[test]
fn a_table_that_is_split_or_dropped_during_a_recovery_does_no_harm() {
    for (seed, drops) in [(63, false), (64, true)] {
        let mut cluster = cluster(seed, 2, 3, 0);
        create(&mut cluster, "u", 6).unwrap();
        cluster.common.table_bytes.set(6 * 64 * MEGABYTES);
        let former = cluster.masters(0);
        fell(&mut cluster, 0);
        cluster.simulation.run_for(Duration::from_millis(40));
        for at in 1..64 {
            let split = SplitTablet { table: "t".into(), at: KeyHash(at << 58) };
            cluster.ask::<TableInfo>(Opcode::SplitTablet, &split).unwrap();
        }
        if drops {
            let message = DropTable::named("u");
            cluster.ask::<Empty>(Opcode::DropTable, &message).unwrap();
        }
        until_all_are_somewhere(&mut cluster, &former);
        let tables: BTreeSet<_> = map(&mut cluster).tables.iter().map(|it| it.id).collect();
        assert!(held(&cluster).iter().all(|(_, range)| tables.contains(&range.table)));
        assert_eq!(stored(&cluster.store, "tables").len(), if drops { 1 } else { 2 });
    }
}

#[test]
fn masters_with_room_rebuild_and_the_status_says_if_none_has_room() {
    let mut cluster = cluster(65, 1, 4, 0);
    cluster.common.table_bytes.set(8 * 64 * MEGABYTES);
    let (former, small) = (cluster.masters(0), [cluster.masters(1), cluster.masters(3)].concat());
    for (number, megabytes) in [(1, 10), (2, 1000), (3, 10)] {
        let mut server = cluster.servers[number].borrow_mut();
        (server.memory_bytes, server.recovers_by_itself) = (megabytes * MEGABYTES, false);
    }
    fell(&mut cluster, 0);
    cluster.until("all are told", |cluster| told(cluster).len() == 4);
    assert!(told(&cluster).iter().all(|it| !small.contains(&it.master)));
    assert!(status(&mut cluster).recoveries.iter().all(|it| it.trouble.is_none()));
    fell(&mut cluster, 2);
    for number in [1, 3] {
        cluster.servers[number].borrow_mut().recovers_by_itself = true;
    }
    let seen = |cluster: &ControlPlane| cluster.handle().recoveries().unwrap();
    cluster.until("the status says so", |cluster| {
        seen(cluster).iter().any(|it| it.trouble.as_ref().is_some_and(|it| it.contains("room")))
    });
    until_all_are_somewhere(&mut cluster, &former);
}

#[test]
fn a_recovery_counts_the_room_that_others_are_about_to_take() {
    const BYTES: u64 = 16 * 64 * MEGABYTES;
    const ROOM: u64 = 40 * MEGABYTES;
    let mut cluster = cluster(66, 1, 8, 0);
    cluster.common.table_bytes.set(BYTES);
    let small = [cluster.masters(1), cluster.masters(3)].concat();
    for (number, room) in [(1, ROOM), (3, ROOM), (5, 30 * ROOM), (7, 30 * ROOM)] {
        cluster.servers[number].borrow_mut().memory_bytes = room;
    }
    // Masters begin no part, so none of them counts its future data.
    for server in &cluster.servers {
        server.borrow_mut().refuses = Some(Status::Busy);
    }
    [0, 2, 4, 6].into_iter().for_each(|number| fell(&mut cluster, number));
    let given = |cluster: &ControlPlane| -> Vec<Vec<(MasterId, u64)>> {
        let servers = stored(&cluster.store, "servers");
        let formers = servers.iter().flat_map(|it| it["former"].as_array().unwrap());
        let parts = |former: &serde_json::Value| {
            let parts = former["parts"].as_array().cloned().unwrap_or_default();
            let of_part = |part: &serde_json::Value| {
                let by = serde_json::from_value(part["by"].clone()).unwrap();
                let tablets: Vec<Taken> = serde_json::from_value(part["tablets"].clone()).unwrap();
                let hashes = tablets.iter().map(|it| it.range.last.0 - it.range.first.0);
                let share = hashes.map(|it| it as f64 / u64::MAX as f64).sum::<f64>();
                (by, (share * BYTES as f64) as u64)
            };
            parts.iter().map(of_part).collect()
        };
        formers.map(parts).collect()
    };
    cluster.until("all parts are assigned", |cluster| {
        let given = given(cluster);
        given.len() == 8 && given.iter().all(|parts| !parts.is_empty())
    });
    let given = given(&cluster).concat();
    for master in small {
        let bytes: u64 = given.iter().filter(|it| it.0 == master).map(|it| it.1).sum();
        assert!(bytes <= ROOM, "{master} is to rebuild {bytes} bytes: {given:?}");
    }
}
