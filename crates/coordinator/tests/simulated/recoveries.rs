//! Recoveries in parts, in a calm simulation except for each test's own faults: which servers are
//! asked and told, and the effect of crashes during the recovery. The servers check on their side
//! that no master gets a tablet that may still be read elsewhere, and that backups are told before
//! masters.

use crate::scenarios::{create, held, map, mapped, status};
use crate::world::{World, options, owners, stored};
use std::collections::BTreeSet;
use std::time::Duration;
use thunderhead_rpc::Opcode;
use thunderhead_wire::control::{
    DropTable, Empty, Head, Owned, Recover, Recovered, SplitTablet, TableInfo, Taken,
};
use thunderhead_wire::{
    Generation, KeyHash, MasterId, RecoveryId, SegmentId, ServerId, Status, TabletRange,
};

const MEGABYTES: u64 = 1 << 20;

/// Returns a world with a table on each shard of the first server, and perhaps more.
fn world(seed: u64, coordinators: usize, servers: usize, table_bytes: u64) -> World {
    let mut world = World::new(seed, coordinators, servers, &options());
    world.until_all_are_there();
    world.common.table_bytes.set(table_bytes);
    create(&mut world, "t", 2 * servers as u32).unwrap();
    world
}

fn id(world: &World, number: usize) -> ServerId {
    world.servers[number].1.borrow().known.unwrap().server
}

/// Crashes a server for good, and declares the verdict.
fn fell(world: &mut World, number: usize) {
    let (host, server) = world.servers[number].clone();
    world.simulation.crash(host);
    let (server, generation) = {
        let server = server.borrow();
        (server.known.unwrap().server, server.enlisted.as_ref().unwrap().generation)
    };
    world.servers[number].1.borrow_mut().enlisted = None;
    world.until("a coordinator leads", |world| world.leader().is_some());
    assert!(world.handle().server_failed(server, generation));
}

pub(crate) fn until_all_are_somewhere(world: &mut World, former: &[MasterId]) {
    world.until("all are somewhere", |world| {
        let Some(map) = world.leader().and_then(|_| world.handle().map()) else { return false };
        let mut tablets = map.tables.iter().flat_map(|table| &table.tablets);
        tablets.all(|it| it.address.is_some() && !former.contains(&it.master))
    });
    assert!(owners(&world.store).iter().all(|it| !former.contains(it)));
    world.until("masters know their tablets", |world| {
        let Some(map) = world.leader().and_then(|_| world.handle().map()) else { return false };
        let held = held(world);
        mapped(&map).iter().all(|(master, range)| {
            let holds = |it: &TabletRange| {
                it.table == range.table && it.first <= range.first && range.last <= it.last
            };
            held.iter().any(|(by, it)| by == master && holds(it))
        })
    });
}

/// Returns all orders to rebuild, each once.
fn told(world: &World) -> Vec<Recover> {
    let mut all: Vec<Recover> = Vec::new();
    for (_, server) in &world.servers {
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
    let mut world = world(40, 1, 3, 0);
    // Two tablets on the crashed server, of 64 and 2 x 64 megabytes.
    world.common.table_bytes.set(6 * 64 * MEGABYTES);
    let former = world.masters(0);
    fell(&mut world, 0);
    until_all_are_somewhere(&mut world, &former);
    let told = told(&world);
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
    assert_eq!(mapped(&map(&mut world)).len(), 8);
    // Each segment is read by only one backup.
    let reads = world.servers.iter().flat_map(|(_, it)| it.borrow().begun.clone());
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
    let mut world = world(41, 1, 2, 0);
    world.common.table_bytes.set(4 * 2048 * MEGABYTES);
    let former = world.masters(0);
    fell(&mut world, 0);
    until_all_are_somewhere(&mut world, &former);
    assert_eq!(told(&world).len(), 8);
    let now: BTreeSet<_> = mapped(&map(&mut world)).into_iter().map(|it| it.0).collect();
    assert_eq!(now, world.masters(1).into_iter().collect());
}

#[test]
fn a_small_tablet_is_rebuilt_whole_by_its_restarted_server() {
    let mut world = world(42, 1, 3, 8 * MEGABYTES);
    world.common.table_bytes.set(6 * 200 * MEGABYTES);
    let (host, former) = (world.servers[0].0, world.masters(0));
    world.simulation.crash(host);
    world.simulation.start(host);
    world.until_all_are_there();
    until_all_are_somewhere(&mut world, &former);
    let told = told(&world);
    assert_eq!(told.len(), 2, "no more than its own shards can do in time");
    let own = world.masters(0);
    for recover in told {
        let shard = former.iter().position(|it| *it == recover.crashed).unwrap();
        assert_eq!(recover.master, own[shard]);
    }
}

#[test]
fn a_master_that_crashes_during_a_recovery_owns_none_of_its_part_and_the_others_go_on() {
    let mut world = world(43, 2, 4, 0);
    world.common.table_bytes.set(8 * 256 * MEGABYTES);
    world.servers[2].1.borrow_mut().recovers_by_itself = false;
    let (former, slow) = (world.masters(0), world.masters(2));
    fell(&mut world, 0);
    world.until("the slow master has begun", |world| {
        !world.servers[2].1.borrow().recovers.is_empty()
    });
    let left = |world: &World| {
        let map = world.handle().map().unwrap();
        map.tables[0].tablets.iter().filter(|it| it.address.is_none()).count()
    };
    world.simulation.run_for(Duration::from_secs(3));
    let begun = told(&world);
    let is_slow = |it: &&Recover| slow.contains(&it.master);
    let waiting: usize = begun.iter().filter(is_slow).map(|it| it.tablets.len()).sum();
    assert!(waiting > 0 && waiting < begun.len());
    assert_eq!(left(&world), waiting, "all other parts are their masters'");
    let seen = status(&mut world).recoveries;
    assert!(seen.iter().all(|it| it.stage == "rebuilding" && it.partitions_left < it.partitions));
    assert!(
        seen.iter().all(|it| it.masters.iter().all(|by| slow.contains(by)) && it.bytes == 2000)
    );
    let numbers: BTreeSet<RecoveryId> = begun.iter().map(|it| it.recovery).collect();
    fell(&mut world, 2);
    let gone = [former.clone(), slow].concat();
    until_all_are_somewhere(&mut world, &gone);
    let again: Vec<_> =
        told(&world).into_iter().filter(|it| !numbers.contains(&it.recovery)).collect();
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
        let mut world = world(100 + step, 2, 3, 6 * 64 * MEGABYTES);
        let former = world.masters(0);
        fell(&mut world, 0);
        let millis = if step < 20 { step * 3 } else { (step - 17) * 25 };
        world.simulation.run_for(Duration::from_millis(millis));
        lasted.insert(told(&world).len());
        world.change_leader();
        // If not even the verdict was written.
        assert!(world.handle().server_failed(id(&world, 0), Generation(1)));
        until_all_are_somewhere(&mut world, &former);
        assert_eq!(held(&world).len(), mapped(&map(&mut world)).len(), "step {step}");
        for (_, server) in &world.servers[1..] {
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
        let mut world = world(seed, 1, 4, 0);
        world.servers[2].1.borrow_mut().backup_is_deaf = silent;
        let former = world.masters(0);
        let begun = world.simulation.now();
        fell(&mut world, 0);
        world.until("a master is told", |world| !told(world).is_empty());
        let took = world.simulation.now() - begun;
        until_all_are_somewhere(&mut world, &former);
        took
    };
    assert!(time(44, false) < Duration::from_millis(100));
    let took = time(45, true);
    assert!(took >= Duration::from_secs(1) && took < Duration::from_millis(1300), "{took:?}");
}

#[test]
fn missing_segments_are_named_and_used_as_soon_as_their_backup_restarts() {
    let mut world = world(46, 2, 3, 0);
    let former = [world.masters(0), world.masters(1)].concat();
    // Both servers with the first server's log. The third one has a replica of the second one's
    // log.
    let first = world.masters(0);
    fell(&mut world, 0);
    fell(&mut world, 1);
    world.simulation.run_for(Duration::from_secs(4));
    let seen = status(&mut world).recoveries;
    assert_eq!(seen.iter().map(|it| it.crashed).collect::<Vec<_>>(), first);
    let silent: BTreeSet<_> = [id(&world, 0), id(&world, 1)].into();
    let silent = silent.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    for it in &seen {
        let trouble = it.trouble.as_deref().unwrap();
        assert!(trouble.contains(&format!("no answer came from {silent}")), "{trouble}");
        assert_eq!(it.stage, "waiting");
    }
    world.change_leader();
    world.simulation.run_for(Duration::from_secs(20));
    // At the restart at once, however long the pause had grown.
    let (host, _) = world.servers[1];
    world.simulation.start(host);
    world.until_all_are_there_but(&[0]);
    let came = world.simulation.now();
    until_all_are_somewhere(&mut world, &former);
    let took = world.simulation.now() - came;
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn no_owner_is_written_before_reads_have_ended() {
    for (seed, changes) in [(47, false), (48, true)] {
        let mut world = world(seed, 2, 2, 0);
        let former = world.masters(0);
        let begun = world.simulation.now();
        world.servers[1].1.borrow_mut().recovers_by_itself = !changes;
        fell(&mut world, 0);
        if changes {
            // One leader assigns the parts. The next leader, which did not see that, gets the
            // report.
            world.until("the parts are assigned", |world| told(world).len() == 2);
            world.store.stop();
            let old = world.coordinators[world.leader().unwrap()].host;
            world.simulation.crash(old);
            world.servers[1].1.borrow_mut().recovers_by_itself = true;
            world.store.start();
        }
        until_all_are_somewhere(&mut world, &former);
        let took = world.simulation.now() - begun;
        assert!(took >= Duration::from_millis(525), "{took:?}");
        assert!(changes || took < Duration::from_millis(650), "{took:?}");
    }
}

#[test]
fn torn_replicas_of_heads_are_used_only_if_no_other_of_their_length_remains() {
    let mut world = world(49, 1, 3, 0);
    let (host, former) = (world.servers[0].0, world.masters(0));
    let digest = Some(vec![SegmentId(1), SegmentId(2)]);
    let torn = Head { digest, torn: Some("cut short".into()), ..Head::default() };
    let heads = [(former[0], Ok(torn)), (former[1], Err(Status::NotFound))];
    world.servers[0].1.borrow_mut().heads.extend(heads);
    world.simulation.crash(host);
    world.simulation.start(host);
    world.until_all_are_there();
    until_all_are_somewhere(&mut world, &former);
    for recover in told(&world) {
        let at: Vec<_> = recover.segments[0].at.iter().map(|it| it.0).collect();
        assert_eq!(at, [id(&world, 1)]);
        assert_eq!(recover.segments[1].at.len(), 2);
    }
    // A torn replica is better than none.
    let torn = world.servers[0].1.borrow().heads[&former[0]].clone();
    let former = world.masters(1);
    for number in [1, 2] {
        let heads = former.iter().map(|it| (*it, torn.clone()));
        world.servers[number].1.borrow_mut().heads.extend(heads);
    }
    fell(&mut world, 1);
    until_all_are_somewhere(&mut world, &former);
}

#[test]
fn a_busy_master_is_asked_for_a_while_and_then_another_one() {
    let mut world = world(50, 1, 3, 0);
    let former = world.masters(0);
    let busy = world.masters(1);
    world.servers[1].1.borrow_mut().refuses = Some(Status::Busy);
    fell(&mut world, 0);
    until_all_are_somewhere(&mut world, &former);
    assert!(told(&world).iter().all(|it| !busy.contains(&it.master)));
}

#[test]
fn a_recovery_waits_for_a_master_that_still_works_on_an_earlier_round() {
    let mut world = world(67, 1, 3, 0);
    let former = world.masters(0);
    for number in [1, 2] {
        world.servers[number].1.borrow_mut().refuses = Some(Status::InProgress);
    }
    fell(&mut world, 0);
    world.simulation.run_for(Duration::from_secs(12));
    assert!(status(&mut world).recoveries.iter().all(|it| it.trouble.is_none()));
    for number in [1, 2] {
        world.servers[number].1.borrow_mut().refuses = None;
    }
    until_all_are_somewhere(&mut world, &former);
    assert!(
        told(&world).iter().all(|it| it.recovery <= RecoveryId(2)),
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
        let mut world = world(seed, 2, 2, 0);
        create(&mut world, "u", 4).unwrap();
        let former = world.masters(0);
        fell(&mut world, 0);
        let written = |world: &World| -> Vec<usize> {
            let is_left = |it: &serde_json::Value| former.contains(&MasterId(it.as_u64().unwrap()));
            let left = |table: &serde_json::Value| {
                let tablets = table["tablets"].as_array().unwrap();
                tablets.iter().filter(|it| is_left(&it["master"])).count()
            };
            stored(&world.store, "tables").iter().map(left).collect()
        };
        while written(&world).iter().all(|left| *left == 2) {
            world.simulation.run_for(Duration::from_micros(20));
        }
        world.store.stop();
        let left = written(&world);
        halves += usize::from(left.iter().any(|it| *it > 0) && left[0] != left[1]);
        let old = world.coordinators[world.leader().unwrap()].host;
        world.simulation.crash(old);
        world.store.start();
        assert!(world.servers[1].1.borrow().freed.is_empty());
        until_all_are_somewhere(&mut world, &former);
        assert_eq!(held(&world).len(), mapped(&map(&mut world)).len(), "seed {seed}");
        assert!(world.servers[1].1.borrow().telling.is_empty());
        world.until("replicas are freed", |world| {
            let server = world.servers[1].1.borrow();
            former.iter().all(|it| server.freed.contains(it))
        });
    }
    assert!(halves > 5, "{halves}: the crash did not hit a half-written part");
}

#[test]
fn a_recovery_goes_on_without_a_backup_that_crashes_before_it_reads() {
    for seed in 51..61 {
        let mut world = world(seed, 1, 4, 8 * 64 * MEGABYTES);
        let former = world.masters(0);
        let (host, server) = world.servers[1].clone();
        // One of the two backups with the log restarts at once. The other one belongs to the
        // crashed server.
        fell(&mut world, 0);
        world.simulation.run_for(Duration::from_millis((seed - 51) * 4));
        world.simulation.crash(host);
        world.simulation.run_for(Duration::from_millis(30));
        server.borrow_mut().enlisted = None;
        world.simulation.start(host);
        world.until_all_are_there_but(&[0]);
        until_all_are_somewhere(&mut world, &former);
    }
}

#[test]
fn a_backup_that_restarts_during_a_recovery_is_told_again() {
    let mut world = world(66, 1, 4, 8 * 64 * MEGABYTES);
    for (_, server) in &world.servers {
        server.borrow_mut().recovers_by_itself = false;
    }
    fell(&mut world, 0);
    world.until("all are told", |world| told(world).len() == 4);
    let numbers: BTreeSet<RecoveryId> = told(&world).iter().map(|it| it.recovery).collect();
    let (host, server) = world.servers[1].clone();
    server.borrow_mut().begun.clear();
    world.simulation.crash(host);
    world.simulation.start(host);
    world.until("it is told again", |_| {
        let server = server.borrow();
        numbers.iter().all(|number| server.begun.iter().any(|it| it.recovery == *number))
    });
}

/// The generation has lost its memory, and with it the end of a head.
#[test]
fn a_round_ends_if_a_backup_restarts_without_a_replica_that_the_survey_found() {
    let mut world = world(67, 1, 4, 8 * 64 * MEGABYTES);
    for (_, server) in &world.servers {
        server.borrow_mut().recovers_by_itself = false;
    }
    let former = world.masters(0);
    fell(&mut world, 0);
    world.until("all are told", |world| told(world).len() == 4);
    let last = told(&world).iter().map(|it| it.recovery).max().unwrap();
    let (host, server) = world.servers[1].clone();
    server.borrow_mut().begun.clear();
    world.simulation.crash(host);
    for master in &former {
        let mut server = server.borrow_mut();
        let replicas = server.replicas.get_mut(master).unwrap();
        replicas.iter_mut().filter(|it| !it.closed).for_each(|it| it.length -= 1);
    }
    world.simulation.start(host);
    world.until("other rounds begin", |_| {
        let server = server.borrow();
        former.iter().all(|master| server.begun.iter().any(|it| it.crashed == *master))
    });
    let server = server.borrow();
    assert!(server.begun.iter().all(|it| it.recovery > last), "{:?}", server.begun);
}

#[test]
fn a_backup_that_refuses_to_read_is_named_and_replaced_if_another_one_can_read() {
    for (seed, others) in [(68, false), (69, true)] {
        let mut world = world(seed, 1, 3, 0);
        let former = world.masters(0);
        let at_first = world.servers[0].0;
        world.servers[1].1.borrow_mut().does_not_read = Some(Status::Malformed);
        if others {
            // The other backup with the log restarts.
            world.simulation.crash(at_first);
            world.simulation.start(at_first);
            world.until_all_are_there();
            until_all_are_somewhere(&mut world, &former);
            continue;
        }
        fell(&mut world, 0);
        world.simulation.run_for(Duration::from_secs(5));
        let name = id(&world, 1).to_string();
        for it in status(&mut world).recoveries {
            assert_eq!(it.stage, "waiting");
            assert!(it.trouble.as_ref().is_some_and(|it| it.contains(&name)), "{:?}", it.trouble);
        }
        assert!(told(&world).is_empty());
        world.servers[1].1.borrow_mut().does_not_read = None;
        until_all_are_somewhere(&mut world, &former);
    }
}

#[test]
fn a_master_that_never_finishes_does_not_block_another_masters_part_for_ever() {
    let mut world = world(39, 2, 4, 0);
    world.common.table_bytes.set(8 * 256 * MEGABYTES);
    for number in [2, 3] {
        world.servers[number].1.borrow_mut().recovers_by_itself = false;
    }
    let (former, stuck) = (world.masters(0), world.masters(3));
    fell(&mut world, 0);
    for number in [2, 3] {
        world.until("it has begun", |world| !world.servers[number].1.borrow().recovers.is_empty());
    }
    world.simulation.run_for(Duration::from_secs(3));
    fell(&mut world, 2);
    let begun = world.simulation.now();
    world.until("the first master is finished", |world| {
        owners(&world.store).iter().all(|it| !former.contains(it))
    });
    let took = world.simulation.now() - begun;
    assert!(took > Duration::from_secs(29) && took < Duration::from_secs(34), "{took:?}");
    let seen = told(&world);
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
        let mut world = world(seed, 2, 2, 0);
        let former = world.masters(0);
        world.servers[1].1.borrow_mut().recovers_by_itself = true;
        fell(&mut world, 0);
        world.until("the parts are assigned", |world| told(world).len() == 2);
        let begun = world.simulation.now();
        world.servers[1].1.borrow_mut().backup_is_deaf = true;
        world.handle().resign();
        until_all_are_somewhere(&mut world, &former);
        let took = world.simulation.now() - begun;
        assert!(took >= Duration::from_millis(520), "{took:?}");
        soonest = soonest.min(took);
    }
    assert!(soonest < Duration::from_millis(1500), "{soonest:?}: the next round did it");
}

/// The value of reports: the first one, a repetition, reports with another number, partition or
/// master, and an incomplete one.
#[test]
fn a_report_counts_if_it_was_requested_or_is_written_already() {
    let mut world = world(62, 2, 2, 0);
    world.common.table_bytes.set(4 * 64 * MEGABYTES);
    for (_, server) in &world.servers {
        server.borrow_mut().recovers_by_itself = false;
    }
    fell(&mut world, 0);
    world.until("both are told", |world| told(world).len() == 4);
    let first = told(&world).into_iter().find(|it| it.partition == 0).unwrap();
    let second = told(&world)
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
    let say = |world: &mut World, message: &Recovered| {
        world.ask::<Owned>(Opcode::Recovered, message).map(|it| it.not_yours)
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
    let mut before = owners(&world.store);
    for message in &bad {
        assert_eq!(say(&mut world, message), Err(Status::BadRange), "{message:?}");
    }
    assert_eq!(owners(&world.store), before);
    assert_eq!(say(&mut world, &good), Ok(vec![]));
    before = owners(&world.store);
    assert!(before.contains(&first.master));
    assert_eq!(say(&mut world, &good), Ok(vec![]), "a repetition");
    world.change_leader();
    assert_eq!(say(&mut world, &good), Ok(vec![]), "a repetition to another leader");
    // The remainder was assigned again, under another number: a report with the old number is void.
    world.until("the remainder is assigned again", |world| told(world).len() > 4);
    assert_eq!(say(&mut world, &report(&second, taken(&second))), Err(Status::BadRange));
    // A report with tablets that it owns already keeps these, and the answer names the others.
    let both = [taken(&first), taken(&second)].concat();
    let others: Vec<_> = second.tablets.iter().map(|it| it.range).collect();
    assert_eq!(say(&mut world, &report(&first, both)), Ok(others));
}

#[test]
fn a_table_that_is_split_or_dropped_during_a_recovery_does_no_harm() {
    for (seed, drops) in [(63, false), (64, true)] {
        let mut world = world(seed, 2, 3, 0);
        create(&mut world, "u", 6).unwrap();
        world.common.table_bytes.set(6 * 64 * MEGABYTES);
        let former = world.masters(0);
        fell(&mut world, 0);
        world.simulation.run_for(Duration::from_millis(40));
        for at in 1..64 {
            let split = SplitTablet { table: "t".into(), at: KeyHash(at << 58) };
            world.ask::<TableInfo>(Opcode::SplitTablet, &split).unwrap();
        }
        if drops {
            let message = DropTable::named("u");
            world.ask::<Empty>(Opcode::DropTable, &message).unwrap();
        }
        until_all_are_somewhere(&mut world, &former);
        let tables: BTreeSet<_> = map(&mut world).tables.iter().map(|it| it.id).collect();
        assert!(held(&world).iter().all(|(_, range)| tables.contains(&range.table)));
        assert_eq!(stored(&world.store, "tables").len(), if drops { 1 } else { 2 });
    }
}

#[test]
fn masters_with_room_rebuild_and_the_status_says_if_none_has_room() {
    let mut world = world(65, 1, 4, 0);
    world.common.table_bytes.set(8 * 64 * MEGABYTES);
    let (former, small) = (world.masters(0), [world.masters(1), world.masters(3)].concat());
    for (number, megabytes) in [(1, 10), (2, 1000), (3, 10)] {
        let mut server = world.servers[number].1.borrow_mut();
        (server.memory_bytes, server.recovers_by_itself) = (megabytes * MEGABYTES, false);
    }
    fell(&mut world, 0);
    world.until("all are told", |world| told(world).len() == 4);
    assert!(told(&world).iter().all(|it| !small.contains(&it.master)));
    assert!(status(&mut world).recoveries.iter().all(|it| it.trouble.is_none()));
    fell(&mut world, 2);
    for number in [1, 3] {
        world.servers[number].1.borrow_mut().recovers_by_itself = true;
    }
    let seen = |world: &World| world.handle().recoveries().unwrap();
    world.until("the status says so", |world| {
        seen(world).iter().any(|it| it.trouble.as_ref().is_some_and(|it| it.contains("room")))
    });
    until_all_are_somewhere(&mut world, &former);
}

#[test]
fn a_recovery_counts_the_room_that_others_are_about_to_take() {
    const BYTES: u64 = 16 * 64 * MEGABYTES;
    const ROOM: u64 = 40 * MEGABYTES;
    let mut world = world(66, 1, 8, 0);
    world.common.table_bytes.set(BYTES);
    let small = [world.masters(1), world.masters(3)].concat();
    for (number, room) in [(1, ROOM), (3, ROOM), (5, 30 * ROOM), (7, 30 * ROOM)] {
        world.servers[number].1.borrow_mut().memory_bytes = room;
    }
    // Masters begin no part, so none of them counts its future data.
    for (_, server) in &world.servers {
        server.borrow_mut().refuses = Some(Status::Busy);
    }
    [0, 2, 4, 6].into_iter().for_each(|number| fell(&mut world, number));
    let given = |world: &World| -> Vec<Vec<(MasterId, u64)>> {
        let servers = stored(&world.store, "servers");
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
    world.until("all parts are assigned", |world| {
        let given = given(world);
        given.len() == 8 && given.iter().all(|parts| !parts.is_empty())
    });
    let given = given(&world).concat();
    for master in small {
        let bytes: u64 = given.iter().filter(|it| it.0 == master).map(|it| it.1).sum();
        assert!(bytes <= ROOM, "{master} is to rebuild {bytes} bytes: {given:?}");
    }
}
