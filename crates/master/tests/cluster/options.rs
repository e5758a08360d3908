//! A shard knows the options of a table before it does the first update of a tablet that is new,
//! that has migrated, or that was rebuilt.

use crate::coming::{begin, message};
use crate::fixture::*;
use crate::past::{past, put_all};
use crate::recovery::recovered;
use thunderhead_log::TabletRange;
use thunderhead_net::sim::Link;
use thunderhead_rpc::Opcode;
use thunderhead_runtime::Random;
use thunderhead_wire::control::{
    self, MigratedTablets, OptionsOfTable, OwnedSince, Policy, TableOptions, Tablets, Taken,
};
use thunderhead_wire::migration::Kind;
use thunderhead_wire::operations::{Identity, ObjectHead, PartHead, UpdateKind, UpdatePart};
use thunderhead_wire::{Condition, LeaseId, RecoveryId, Sequence, Status, TableId, TimeToLive};
use zerocopy::IntoBytes;

const TTL_MS: u64 = 5_000;

fn options(table: TableId) -> Vec<OptionsOfTable> {
    let options = TableOptions { ttl_ms: TTL_MS, policy: Policy::Cache, ..TableOptions::DEFAULT };
    vec![OptionsOfTable { table, options }]
}

/// Writes an object, and returns how long it lives.
async fn life(user: &User, table: TableId) -> TimeToLive {
    user.write(Identity::NONE, table, b"new", b"value").await.unwrap();
    let head = ObjectHead::new(table, 3, Condition::Always, 0);
    let answer = user.insist(Opcode::ReadExpiry, [head.as_bytes(), b"new"].concat()).await;
    let code = answer.unwrap()[8..].try_into().unwrap();
    TimeToLive::of_code(u64::from_le_bytes(code))
}

const DEFAULT: TimeToLive = TimeToLive::Milliseconds(TTL_MS);

#[test]
fn a_new_tablet_comes_with_the_options_of_its_table() {
    let mut cluster = ShardCluster::new(51, Link::default(), shard_options(), 4 << 20);
    cluster.drive(std::time::Duration::from_secs(30), |user| async move {
        let (tablets, options) = (vec![TabletRange::whole(OTHER)], options(OTHER));
        let mut take = Tablets { master: MASTER, tablets, map_version: 0, options };
        user.insist(Opcode::TakeTablets, control::to_body(&take)).await.unwrap();
        user.take(MASTER, vec![TabletRange::whole(OLD)]).await.unwrap();
        assert_eq!(life(&user, OTHER).await, DEFAULT);
        assert_eq!(life(&user, OLD).await, TimeToLive::Never, "this table has none");
        // A later table never has the id, but the options go with the last tablet.
        user.insist(Opcode::DropTablets, control::to_body(&take)).await.unwrap();
        take.options = Vec::new();
        user.insist(Opcode::TakeTablets, control::to_body(&take)).await.unwrap();
        assert_eq!(life(&user, OTHER).await, TimeToLive::Never);
    });
}

#[test]
fn a_migrated_tablet_comes_with_the_options_of_its_table() {
    let mut cluster = ShardCluster::new(52, Link::default(), shard_options(), 4 << 20);
    cluster.drive(std::time::Duration::from_secs(30), |user| async move {
        user.insist(Opcode::MigrateIn, begin(6, TabletRange::whole(OTHER))).await.unwrap();
        let end = message(6, Kind::End, &1u64.to_le_bytes());
        let taken = user.insist(Opcode::MigrateIn, end).await.unwrap();
        let Taken { range, .. } = control::of_body(&taken).unwrap();
        let (tablets, since, options) = (vec![range], OwnedSince::default(), options(OTHER));
        let serve = MigratedTablets { migration: 6, master: MASTER, tablets, since, options };
        user.insist(Opcode::TakeTablets, control::to_body(&serve)).await.unwrap();
        assert_eq!(life(&user, OTHER).await, DEFAULT);
    });
}

#[test]
fn a_rebuilt_tablet_comes_with_the_options_of_its_table() {
    let past = past(&mut Random::from_seed(33), 200);
    let replicas = past.recorder.replicas(usize::MAX);
    let mut cluster = ShardCluster::new(53, Link::default(), shard_options(), 4 << 20);
    cluster.coordinators.borrow_mut().options = options(OLD);
    let segments = put_all(&cluster, &replicas, &[0, 1]);
    let task = cluster.recover(RecoveryId(1), &segments);
    let (outcome, _) = recovered(&mut cluster, task);
    assert!(outcome.outcome.is_ok());
    cluster.drive(std::time::Duration::from_secs(30), |user| async move {
        assert_eq!(life(&user, OLD).await, DEFAULT);
    });
}

#[test]
fn a_cache_makes_room_for_newer_objects() {
    let mut cluster = ShardCluster::new(54, Link::default(), shard_options(), 4 << 20);
    cluster.drive(std::time::Duration::from_secs(300), |user| async move {
        let (tablets, options) = (vec![TabletRange::whole(OTHER)], options(OTHER));
        let take = Tablets { master: MASTER, tablets, map_version: 0, options };
        user.insist(Opcode::TakeTablets, control::to_body(&take)).await.unwrap();
        user.take(MASTER, vec![TabletRange::whole(OLD)]).await.unwrap();
        let value = [7; 2000];
        for number in 0..4000u32 {
            let key = number.to_le_bytes();
            let argument = update(Identity::NONE, OTHER, &key, &value);
            let written = user.insist(Opcode::Write, argument).await;
            assert!(written.is_ok(), "{number}: {written:?}");
        }
        let newest = user.read(OTHER, &3999u32.to_le_bytes()).await.unwrap();
        assert_eq!(newest.1, value);
        assert!(user.read(OTHER, &0u32.to_le_bytes()).await.is_err(), "the oldest made room");
    });
}

/// Some thousand messages fill the memory many times over.
#[test]
fn no_write_of_many_objects_to_a_full_cache_waits_for_long() {
    // Several messages are in flight, as those of a client with many writers.
    const MESSAGES: u64 = 300;
    const OBJECTS: u64 = 60;
    for bytes in [200, 2000] {
        let mut cluster = ShardCluster::new(55, Link::default(), shard_options(), 4 << 20);
        cluster.drive(std::time::Duration::from_secs(300), move |user| async move {
            let (tablets, options) = (vec![TabletRange::whole(OTHER)], options(OTHER));
            let take = Tablets { master: MASTER, tablets, map_version: 0, options };
            user.insist(Opcode::TakeTablets, control::to_body(&take)).await.unwrap();
            let value = vec![7; bytes];
            let (mut sequence, mut longest) = (0, 0);
            for message in 0..MESSAGES * 2000 / bytes as u64 / 4 {
                let mut left: Vec<u64> = (0..OBJECTS).map(|it| message * OBJECTS + it).collect();
                let mut rounds = 0;
                while !left.is_empty() {
                    let first = sequence + 1;
                    let mut body = identity(LeaseId(9), 0, first).as_bytes().to_vec();
                    for number in &left {
                        sequence += 1;
                        let key = &number.to_le_bytes();
                        let head = &ObjectHead::new(OTHER, key.len(), Condition::Always, 0);
                        let part =
                            UpdatePart { head, kind: UpdateKind::Write, key, argument: &value };
                        part.put(Sequence(sequence), &mut body);
                    }
                    let answer = user.insist(Opcode::UpdateMany, body).await.unwrap();
                    let (mut rest, mut refused) = (answer.as_slice(), Vec::new());
                    for number in &left {
                        let (part, _, behind) = PartHead::take(rest).unwrap();
                        rest = behind;
                        match part.status() {
                            0 => {}
                            code if code == Status::AwaitingMemory.code() => refused.push(*number),
                            code => panic!("object {number}: {code}"),
                        }
                    }
                    left = refused;
                    rounds += 1;
                    if !left.is_empty() {
                        user.tasks.sleep(std::time::Duration::from_millis(1)).await;
                    }
                }
                longest = longest.max(rounds);
            }
            assert!(longest < 100, "a message was sent {longest} times, values of {bytes} bytes");
        });
    }
}

/// Takes a tablet of a table with these options.
async fn take(user: &User, options: TableOptions) {
    let (tablets, options) =
        (vec![TabletRange::whole(OTHER)], vec![OptionsOfTable { table: OTHER, options }]);
    let take = Tablets { master: MASTER, tablets, map_version: 0, options };
    user.insist(Opcode::TakeTablets, control::to_body(&take)).await.unwrap();
}

#[test]
fn a_durable_table_with_a_maximum_refuses_what_makes_it_larger_and_repeats_outcomes() {
    let mut cluster = ShardCluster::new(55, Link::default(), shard_options(), 4 << 20);
    cluster.drive(std::time::Duration::from_secs(30), |user| async move {
        take(&user, TableOptions { max_bytes: 20_000, ..TableOptions::DEFAULT }).await;
        user.take(MASTER, vec![TabletRange::whole(OLD)]).await.unwrap();
        let mut written = 0u32;
        let first = update(identity(LeaseId(8), 1, 1), OTHER, b"first", &[7; 1000]);
        let version = user.insist(Opcode::Write, first.clone()).await.unwrap();
        let full = loop {
            let key = written.to_le_bytes();
            match user.write(Identity::NONE, OTHER, &key, &[7; 1000]).await {
                Ok(_) => written += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(full, Status::TableFull);
        assert!((15..20).contains(&written), "{written}");
        let again = user.insist(Opcode::Write, first).await.unwrap();
        assert_eq!(again, version, "an update that was done is answered again");
        let zero = 0u32.to_le_bytes();
        assert!(user.write(Identity::NONE, OTHER, &zero, &[8; 1000]).await.is_ok());
        assert!(user.write(Identity::NONE, OLD, &zero, &[8; 1000]).await.is_ok());
        let delete = update(Identity::NONE, OTHER, &zero, b"");
        user.insist(Opcode::Delete, delete).await.unwrap();
        assert!(user.write(Identity::NONE, OTHER, b"new", &[8; 900]).await.is_ok());
    });
}

#[test]
fn a_cache_with_a_maximum_evicts_its_own_objects_and_no_others() {
    let mut cluster = ShardCluster::new(56, Link::default(), shard_options(), 4 << 20);
    cluster.drive(std::time::Duration::from_secs(60), |user| async move {
        let cache = TableOptions { policy: Policy::Cache, ..TableOptions::DEFAULT };
        take(&user, TableOptions { max_bytes: 50_000, ..cache }).await;
        user.take(MASTER, vec![TabletRange::whole(OLD)]).await.unwrap();
        user.write(Identity::NONE, OLD, b"other", b"stays").await.unwrap();
        for number in 0..300u32 {
            let key = number.to_le_bytes();
            let written = user.write(Identity::NONE, OTHER, &key, &[7; 1000]).await;
            assert!(written.is_ok(), "{number}: {written:?}");
        }
        let tablets = user.status().await.tablets;
        let bytes = tablets.iter().find(|it| it.range.table == OTHER).unwrap().bytes;
        assert!((45_000..=50_000).contains(&bytes), "{bytes}");
        assert!(user.read(OTHER, &299u32.to_le_bytes()).await.is_ok());
        assert!(user.read(OTHER, &0u32.to_le_bytes()).await.is_err());
        assert_eq!(user.read(OLD, b"other").await.unwrap().1, b"stays");
    });
}

#[test]
fn many_updates_of_a_cache_with_a_maximum_are_done_once_and_keep_to_it() {
    let mut cluster = ShardCluster::new(57, Link::default(), shard_options(), 4 << 20);
    cluster.drive(std::time::Duration::from_secs(60), |user| async move {
        let cache = TableOptions { policy: Policy::Cache, ..TableOptions::DEFAULT };
        take(&user, TableOptions { max_bytes: 20_000, ..cache }).await;
        let mut body = identity(LeaseId(8), 0, 1).as_bytes().to_vec();
        for number in 0..60u64 {
            let (key, argument) = (&number.to_be_bytes(), &[7; 1000]);
            let head = &ObjectHead::new(OTHER, key.len(), Condition::Always, 0);
            let part = UpdatePart { head, kind: UpdateKind::Write, key, argument };
            part.put(Sequence(number + 1), &mut body);
        }
        let answer = user.insist(Opcode::UpdateMany, body.clone()).await.unwrap();
        let (mut rest, mut done) = (answer.as_slice(), 0);
        while let Some((part, _, behind)) = PartHead::take(rest) {
            assert_eq!(part.status(), 0, "{done}");
            (rest, done) = (behind, done + 1);
        }
        assert_eq!(done, 60);
        let tablets = user.status().await.tablets;
        let tablet = tablets.iter().find(|it| it.range.table == OTHER).unwrap();
        assert!((17_000..=20_000).contains(&tablet.bytes), "{}", tablet.bytes);
        let again = user.insist(Opcode::UpdateMany, body).await.unwrap();
        assert_eq!(again, answer);
    });
}

fn limited(table: TableId) -> Vec<OptionsOfTable> {
    let options = TableOptions { max_bytes: 10, ..TableOptions::DEFAULT };
    vec![OptionsOfTable { table, options }]
}

#[test]
fn a_migrated_tablet_has_its_share_of_the_maximum() {
    let mut cluster = ShardCluster::new(58, Link::default(), shard_options(), 4 << 20);
    cluster.drive(std::time::Duration::from_secs(30), |user| async move {
        user.insist(Opcode::MigrateIn, begin(6, TabletRange::whole(OTHER))).await.unwrap();
        let end = message(6, Kind::End, &1u64.to_le_bytes());
        let taken = user.insist(Opcode::MigrateIn, end).await.unwrap();
        let Taken { range, .. } = control::of_body(&taken).unwrap();
        let (tablets, since, options) = (vec![range], OwnedSince::default(), limited(OTHER));
        let serve = MigratedTablets { migration: 6, master: MASTER, tablets, since, options };
        user.insist(Opcode::TakeTablets, control::to_body(&serve)).await.unwrap();
        let written = user.write(Identity::NONE, OTHER, b"new", b"value").await;
        assert_eq!(written, Err(Status::TableFull));
    });
}

#[test]
fn a_rebuilt_tablet_has_its_share_of_the_maximum() {
    let past = past(&mut Random::from_seed(34), 200);
    let replicas = past.recorder.replicas(usize::MAX);
    let mut cluster = ShardCluster::new(59, Link::default(), shard_options(), 4 << 20);
    cluster.coordinators.borrow_mut().options = limited(OLD);
    let segments = put_all(&cluster, &replicas, &[0, 1]);
    let task = cluster.recover(RecoveryId(1), &segments);
    let (outcome, _) = recovered(&mut cluster, task);
    assert!(outcome.outcome.is_ok());
    cluster.drive(std::time::Duration::from_secs(30), |user| async move {
        let written = user.write(Identity::NONE, OLD, b"new", b"value").await;
        assert_eq!(written, Err(Status::TableFull));
    });
}
