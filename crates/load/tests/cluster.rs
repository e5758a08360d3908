//! Every workload on a cluster in this process, with few objects.

use clap::Parser;
use std::time::Duration;
use thunderhead_client::{Addresses, Client, Options};
use thunderhead_load::cluster::{self, Arguments};
use thunderhead_load::report::Report;
use thunderhead_load::workload::Workload;
use thunderhead_runtime::os::addresses_of;
use thunderhead_server::{LocalCluster, LocalOptions};
use thunderhead_wire::control::{ServerState, Settings};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    arguments: Arguments,
}

fn measure(workload: Workload, coordinators: &Addresses, more: &[&str]) -> anyhow::Result<Report> {
    let small = [("--objects", "1000"), ("--duration", "0.01"), ("--depth", "4")];
    let small = small.into_iter().filter(|(name, _)| !more.contains(name));
    let small = small.flat_map(|(name, value)| [name, value]);
    let all = std::iter::once("load").chain(small).chain(more.iter().copied());
    let Line { arguments } = Line::try_parse_from(all).expect("the arguments are known");
    let deadline = Some(Duration::from_secs(60));
    cluster::measure(workload, &arguments, coordinators.clone(), deadline)
}

#[track_caller]
fn check(workload: Workload, report: &Report) {
    assert_eq!((report.failed, report.failures.len()), (0, 0), "{report:?}");
    let kinds: Vec<_> = workload.mixture(0.5).kinds().collect();
    for it in &report.kinds {
        assert!(kinds.contains(&it.kind), "{report:?}");
        assert_eq!(it.objects, it.messages * if it.kind.is_many() { 70 } else { 1 });
    }
    let messages: u64 = report.kinds.iter().map(|it| it.messages).sum();
    assert!(messages >= 100 && report.objects_per_second > 0.0, "{report:?}");
}

#[test]
fn every_workload_runs_through_the_client_library() {
    let directory = std::env::temp_dir().join(format!("thunderhead-load-{}", std::process::id()));
    let small = LocalOptions::small(directory.clone());
    let settings = Settings { self_backup: false, ..small.settings.clone() };
    let options = LocalOptions { servers: 2, shards: 2, settings, ..small };
    let local = LocalCluster::start(&options).unwrap();
    let mut client = Client::connect(&Options::new([local.coordinator()])).unwrap();
    let is_up = |client: &mut Client| {
        let servers = client.status().unwrap().servers.servers;
        servers.iter().filter(|it| it.state == ServerState::Up).count() == 2
    };
    while !is_up(&mut client) {}
    // By host name, with a second coordinator that does not exist.
    let hosts =
        vec![("localhost".to_owned(), local.coordinator().port()), ("127.0.0.1".to_owned(), 1)];
    let coordinators = addresses_of(hosts).unwrap();
    for workload in Workload::ALL {
        let more = ["--clients", "2", "--value-bytes", "40"];
        check(workload, &measure(workload, &coordinators, &more).unwrap());
    }
    let more = ["--table", "other"];
    check(Workload::Read, &measure(Workload::Read, &coordinators, &more).unwrap());
    let tables = client.map().unwrap().tables;
    let spans: Vec<_> = tables.iter().map(|it| (it.name.as_str(), it.tablets.len())).collect();
    assert_eq!(spans, [("bench", 4), ("other", 4)]);
    local.leave();
    let _ = local.join();
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn invalid_options_are_refused_before_the_cluster_is_asked() {
    let nowhere = Addresses::from(vec!["127.0.0.1:1".parse().unwrap()]);
    let cases: [(&[&str], &str); 4] = [
        (&["--clients", "0"], "--clients is 0; it must be 1 to 1000"),
        (&["--value-bytes", "1048576"], "--value-bytes is 1048576; it must be 0 to"),
        (&["--value-bytes", "100000"], "makes messages of"),
        (&["--duration", "0"], "--duration is 0; it must be 0.01 to 86400 seconds"),
    ];
    for (more, expected) in cases {
        let error = measure(Workload::MultiRead, &nowhere, more).err().unwrap();
        assert!(error.to_string().contains(expected), "{more:?}: {error}");
    }
}
