//! Tests of the leader's view of the cluster.

use super::*;
use thunderhead_wire::control::Settings;
use thunderhead_wire::{ClusterId, Format};

pub(super) fn cluster() -> Cluster {
    let settings = Settings {
        replicas: 1,
        min_replicas: 1,
        durability: "replicated".into(),
        segment_bytes: 1,
        self_backup: true,
    };
    let record = ClusterRecord::new(Format::FIRST, ClusterId(1), settings);
    Cluster::new(record, Ids::default(), 1 << 20)
}

pub(super) fn server(id: u64, masters: &[u64]) -> ServerRecord {
    let shard = |master: &u64| ShardRecord {
        master: MasterId(*master),
        address: ([10, 0, 0, id as u8], *master as u16).into(),
        epochs: vec![],
        floor: SegmentId::NONE,
    };
    ServerRecord {
        log_seed: 0,
        server: ServerId(id),
        registered: id,
        lives: vec![1],
        generation: Generation(1),
        state: ServerState::Up,
        host: format!("host{id}"),
        rack: String::new(),
        shards: masters.iter().map(shard).collect(),
        backup: None,
        former: vec![],
        forgotten: false,
        newest_format: Format::FIRST,
    }
}

pub(super) fn table(id: u64, masters: &[u64], cluster: &Cluster) -> TableRecord {
    let tablets = cluster.spread(masters.len() as u32, cluster.by_load()).into_iter().zip(masters);
    let tablets = tablets
        .map(|(tablet, master)| TabletRecord { master: MasterId(*master), taken: true, ..tablet })
        .collect();
    TableRecord {
        id: TableId(id),
        name: format!("t{id}"),
        tablets,
        dropped: false,
        beside: None,
        options: Default::default(),
    }
}

#[test]
fn tables_are_spread_over_all_hashes_and_over_servers_before_shards() {
    let mut cluster = cluster();
    assert!(cluster.spread(3, cluster.by_load()).is_empty(), "there is no master");
    cluster.put_server(server(1, &[1, 2]));
    cluster.put_server(server(2, &[3, 4]));
    for (span, masters) in [(1, 1), (2, 2), (3, 3), (4, 4), (u32::MAX, 4), (0, 1)] {
        let tablets = cluster.spread(span, cluster.by_load());
        assert_eq!(tablets.len(), masters);
        assert_eq!(tablets.first().map(|it| it.first), Some(KeyHash::MIN));
        assert_eq!(tablets.last().map(|it| it.last), Some(KeyHash::MAX));
        for pair in tablets.windows(2) {
            assert_eq!(pair[0].last.0 + 1, pair[1].first.0);
        }
    }
    let two: Vec<_> = cluster.spread(2, cluster.by_load()).iter().map(|it| it.master).collect();
    assert_eq!(two, [MasterId(1), MasterId(3)]);
    cluster.put_table(table(1, &[1, 3, 4], &cluster));
    assert_eq!(
        cluster.spread(1, cluster.by_load())[0].master,
        MasterId(2),
        "the master with the fewest tablets"
    );
}

#[test]
fn a_tablet_is_split_once_and_only_inside_its_range() {
    let mut cluster = cluster();
    cluster.put_server(server(1, &[1]));
    let whole = table(1, &[1], &cluster);
    let two = split(&whole, KeyHash(77)).expect("there are hashes on both sides");
    let bounds: Vec<_> = two.tablets.iter().map(|it| (it.first.0, it.last.0)).collect();
    assert_eq!(bounds, [(0, 76), (77, u64::MAX)]);
    assert_eq!(split(&two, KeyHash(77)), Some(two), "a repetition changes nothing");
    assert_eq!(split(&whole, KeyHash::MIN), None);
    let mut many = whole.clone();
    many.tablets = vec![whole.tablets[0]; TABLETS_MAX];
    assert_eq!(split(&many, KeyHash(5)), None, "a value of the metastore has a limit");
}

#[test]
fn a_crashed_master_leaves_tablets_to_rebuild_and_versions_grow() {
    let mut cluster = cluster();
    cluster.put_server(server(1, &[1]));
    cluster.put_server(server(2, &[2]));
    cluster.put_table(table(1, &[1, 2], &cluster));
    let (list, map) = (cluster.list().version, cluster.first_page().version);
    cluster.put_server(gone(&server(1, &[1])));
    assert!(cluster.list().version > list && cluster.first_page().version > map);
    let places: Vec<_> =
        cluster.first_page().tables[0].tablets.iter().map(|it| it.address.is_some()).collect();
    assert_eq!(places, [false, true]);
    let lost = cluster.to_recover(MasterId(1));
    assert_eq!(lost.len(), 1);
    assert_eq!(cluster.successors(MasterId(1)), []);
    let taken = [Taken { since: SegmentId(4), ..lost[0] }];
    let whose = |cluster: &Cluster| cluster.not_of(MasterId(2), &[lost[0].range]);
    assert_eq!(whose(&cluster), [lost[0].range]);
    let other = Part { by: MasterId(2), tablets: vec![] };
    assert!(
        cluster.recovered(MasterId(1), &other, &taken).is_empty(),
        "this part was not requested"
    );
    let part = Part { by: MasterId(2), tablets: lost.clone() };
    assert!(cluster.is_left(MasterId(1), &part));
    for record in cluster.recovered(MasterId(1), &part, &taken) {
        cluster.put_table(record);
    }
    assert!(cluster.to_recover(MasterId(1)).is_empty());
    assert!(!cluster.is_left(MasterId(1), &part));
    assert_eq!(whose(&cluster), []);
    assert!(
        cluster.recovered(MasterId(1), &part, &taken).is_empty(),
        "a repetition changes nothing"
    );
    // The server restarts: the shard with the same number is preferred.
    let mut again = gone(&server(1, &[1]));
    again.shards = server(1, &[7, 8]).shards;
    cluster.put_server(again);
    assert_eq!(cluster.successors(MasterId(1)), [MasterId(7), MasterId(8)]);
}

#[test]
fn foreign_ranges_of_a_master_are_named_as_finely_as_necessary() {
    let mut cluster = cluster();
    cluster.put_server(server(1, &[1, 3]));
    cluster.put_table(table(1, &[1, 3], &cluster));
    cluster.put_table(TableRecord { dropped: true, ..table(2, &[1], &cluster) });
    let whole = |table| TabletRange::whole(TableId(table));
    let upper = TabletRange { first: KeyHash(1 << 63), ..whole(1) };
    let ranges = [whole(1), whole(2), whole(3)];
    assert_eq!(cluster.not_of(MasterId(1), &ranges), [upper, whole(2), whole(3)]);
    assert_eq!(cluster.not_of(MasterId(2), &ranges), ranges);
    assert_eq!(cluster.orphans(&ranges), [whole(2), whole(3)]);
}

#[test]
fn the_end_of_a_generation_always_fits_into_the_servers_record() {
    use crate::limits::SHARD_BYTES_MAX;
    let mut record = server(1, &[]);
    let bytes = |record: &ServerRecord| crate::stored::to_value(record).len();
    let (before, count) = (bytes(&record), SHARDS_MAX);
    record.shards = (0..count as u64)
        .map(|shard| ShardRecord {
            master: MasterId(u64::MAX - shard),
            address: "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%4294967295]:65535".parse().unwrap(),
            epochs: vec![(SegmentId(u64::MAX), Epoch(u64::MAX)); EPOCHS_MAX],
            floor: SegmentId(u64::MAX),
        })
        .collect();
    for mut record in [record.clone(), gone(&record)] {
        for former in &mut record.former {
            (former.recovery, former.heir) = (RecoveryId(u64::MAX), Some(MasterId(u64::MAX)));
            (former.freeing, former.inherited) = (true, true);
        }
        assert!(bytes(&record) - before <= count * SHARD_BYTES_MAX);
        assert_eq!(shards_of(&record), count);
    }
}

#[test]
fn an_inherited_former_master_fits_into_its_bytes_and_keeps_no_epochs() {
    use crate::limits::FORMER_BYTES;
    let mut record = server(1, &[]);
    let bytes = |record: &ServerRecord| crate::stored::to_value(record).len();
    let before = bytes(&record);
    let mut former = Former {
        master: MasterId(u64::MAX),
        shard: SHARDS_MAX as u32 - 1,
        epochs: vec![(SegmentId(u64::MAX), Epoch(u64::MAX)); EPOCHS_MAX],
        floor: SegmentId(u64::MAX),
        recovery: RecoveryId(u64::MAX),
        parts: Vec::new(),
        freeing: false,
        heir: Some(MasterId(u64::MAX)),
        inherited: false,
    };
    former.inherit();
    assert!(former.inherited);
    for freeing in [false, true] {
        former.freeing = freeing;
        record.former = vec![former.clone()];
        // With the comma after it.
        assert!(bytes(&record) - before < FORMER_BYTES, "{}", bytes(&record) - before);
    }
}

#[test]
fn epochs_only_grow_and_old_ones_are_forgotten() {
    let mut shard = server(1, &[1]).shards.remove(0);
    assert!(raise_epoch(&mut shard, SegmentId(5), Epoch(2)));
    assert!(!raise_epoch(&mut shard, SegmentId(5), Epoch(2)));
    assert!(!raise_epoch(&mut shard, SegmentId(5), Epoch(1)));
    for segment in 6..200 {
        assert!(raise_epoch(&mut shard, SegmentId(segment), Epoch(1)));
    }
    assert_eq!(shard.epochs.len(), EPOCHS_MAX);
    assert_eq!(shard.epochs.last(), Some(&(SegmentId(199), Epoch(1))));
    let oldest = SegmentId(200 - EPOCHS_MAX as u64);
    assert_eq!((shard.epochs[0].0, shard.floor), (oldest, oldest));
    assert!(!raise_epoch(&mut shard, SegmentId(5), Epoch(9)), "below all remembered segments");
    let mut record = server(1, &[]);
    record.shards.push(shard);
    assert_eq!(gone(&record).former[0].floor, oldest);
}
