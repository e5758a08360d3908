//! Metastores that a coordinator cannot use or should not use: unreachable, empty, the wrong one,
//! or written by a newer coordinator.

use crate::control_plane::{ControlPlane, create, map, options, registration, value};
use std::time::Duration;
use thunderhead_coordinator::Options;
use thunderhead_metastore::{Answer, Change, Entry, Key, LeaseName, Request as Ask};
use thunderhead_rpc::Opcode;
use thunderhead_wire::control::{CreateTable, Known, Registered};
use thunderhead_wire::{ClusterId, Format, ServerId, Status};

/// Puts a value into the store, as another coordinator would.
fn put(cluster: &ControlPlane, key: &str, value: &serde_json::Value) {
    let key = Key::new(key).unwrap();
    let Answer::Value(Some(Entry { version, .. })) =
        cluster.store.peek(&Ask::Get { key: key.clone() })
    else {
        panic!("there is no {key}")
    };
    let change = Change::Replace(version, serde_json::to_vec(value).unwrap());
    let answer = cluster.store.peek(&Ask::Write { key, change, fence: None });
    assert!(matches!(answer, Answer::Written(_)), "{answer:?}");
}

#[test]
fn without_its_metastore_a_leader_changes_nothing_and_still_answers_for_the_map() {
    let options = Options { leadership_ttl: Duration::from_secs(20), ..options() };
    let mut cluster = ControlPlane::new(11, 2, 1, &options);
    cluster.until_all_are_there();
    create(&mut cluster, "t", 1).unwrap();
    cluster.store.stop();
    assert_eq!(create(&mut cluster, "u", 1), Err(Status::MetastoreUnavailable));
    assert_eq!(map(&mut cluster).tables.len(), 1);
    assert!(cluster.handle().remarks()[0].contains("metastore"));
    // A request that began before the store returned is done after that.
    let begun = cluster.begin(Opcode::CreateTable, &CreateTable::spread("v", 1));
    cluster.simulation.run_for(Duration::from_secs(1));
    cluster.store.start();
    cluster.until("it is made", |cluster| matches!(cluster.answer(begun), Some(Ok(_))));
    assert_eq!(map(&mut cluster).tables.len(), 2);
    assert_eq!(cluster.handle().remarks(), [""; 0]);
}

#[test]
fn a_coordinator_that_does_not_know_every_field_does_not_lead() {
    let mut cluster = ControlPlane::new(26, 1, 1, &options());
    cluster.until_all_are_there();
    create(&mut cluster, "t", 1).unwrap();
    let good = [value(&cluster, "cluster"), value(&cluster, "servers/1")];
    let mut newer = good.clone();
    newer[0]["format"] = (Format::NEWEST.0 + 1).into();
    newer[1]["former"] = serde_json::json!([{ "master": 7, "shard": 0, "colour": "red" }]);
    for (number, key) in ["cluster", "servers/1"].into_iter().enumerate() {
        cluster.coordinator(0).kill();
        put(&cluster, key, &newer[number]);
        cluster.coordinator(0).restart();
        cluster.simulation.run_for(Duration::from_secs(5));
        assert_eq!(cluster.leader(), None);
        // Other coordinators can have the leadership: it is free most of the time.
        let holder = Ask::Holder { lease: LeaseName::new("coordinator").unwrap() };
        assert_eq!(cluster.store.peek(&holder), Answer::Holder(None));
        let remarks = cluster.seats[0].handle.borrow().as_ref().unwrap().0.remarks();
        assert!(remarks[0].contains("upgrade"), "{remarks:?}");
        cluster.simulation.run_for(Duration::from_secs(30));
        assert_eq!(value(&cluster, key), newer[number], "the value is unchanged");
        put(&cluster, key, &good[number]);
        cluster.until("it leads", |cluster| cluster.leader().is_some());
        assert!(cluster.handle().remarks().is_empty());
        assert_eq!(map(&mut cluster).tables.len(), 1);
    }
}

#[test]
fn a_coordinator_of_an_existing_cluster_creates_none() {
    let only_existing = Options { existing: true, ..options() };
    let mut cluster = ControlPlane::new(30, 1, 0, &only_existing);
    cluster.simulation.run_for(Duration::from_secs(30));
    assert_eq!(cluster.leader(), None);
    assert!(matches!(
        cluster.store.peek(&Ask::Get { key: Key::new("cluster").unwrap() }),
        Answer::Value(None)
    ));
    let remarks = cluster.seats[0].handle.borrow().as_ref().unwrap().0.remarks();
    assert!(remarks.iter().any(|it| it.contains("holds no cluster")), "{remarks:?}");
}

#[test]
fn a_coordinator_that_created_a_cluster_reports_servers_of_another_one() {
    let store = "/data/metastore".to_owned();
    let mut cluster = ControlPlane::new(29, 2, 1, &Options { store, ..options() });
    cluster.until_all_are_there();
    let known = Some(Known { cluster: ClusterId(7), server: ServerId(3) });
    let register = registration(known, 1);
    for has_founded in [true, false] {
        let refused = cluster.ask::<Registered>(Opcode::Register, &register);
        assert_eq!(refused, Err(Status::WrongCluster));
        let remarks = cluster.handle().remarks();
        let told = "server 3 belongs to cluster 7";
        let asks = |it: &String| it.contains(told) && it.contains("/data/metastore mounted?");
        assert_eq!(remarks.iter().any(asks), has_founded, "{remarks:?}");
        cluster.change_leader();
    }
}
