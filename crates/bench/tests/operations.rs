//! Every workload against its own shard, with few objects; and the refusal of invalid options.

use clap::Parser;
use serde_json::Value;
use thunderhead_bench::operations;
use thunderhead_load::report::Report;
use thunderhead_load::workload::Workload;

#[derive(Parser)]
struct Operations {
    #[command(flatten)]
    arguments: operations::Arguments,
}

#[derive(Parser)]
struct Bench {
    #[command(flatten)]
    arguments: thunderhead_bench::Arguments,
}

fn arguments(more: &[&str]) -> operations::Arguments {
    let small = [("--objects", "1000"), ("--duration", "0.01"), ("--depth", "4")];
    let small = small.into_iter().filter(|(name, _)| !more.contains(name));
    let small = small.flat_map(|(name, value)| [name, value]);
    let all = std::iter::once("bench").chain(small).chain(more.iter().copied());
    Operations::try_parse_from(all).expect("the arguments are known").arguments
}

fn measure(workload: Workload, more: &[&str]) -> Report {
    match operations::measure(workload, &arguments(more)) {
        Ok(report) => report,
        Err(error) => panic!("{}: {error:#}", workload.name()),
    }
}

/// Checks that a report describes the run and is consistent.
fn check(workload: Workload, report: &Report) {
    let text = serde_json::to_string(report).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["workload"], workload.name().replace("multi", "multi-"), "{text}");
    assert!(json["objects_per_second"].as_f64().unwrap() > 0.0);
    let names: Vec<&str> = workload.mixture(0.5).kinds().map(|kind| kind.name()).collect();
    let kinds = json["kinds"].as_array().unwrap();
    let mut messages = 0;
    for kind in kinds {
        assert!(names.contains(&kind["kind"].as_str().unwrap()), "{kind}");
        let count = kind["messages"].as_u64().unwrap();
        messages += count;
        let many = if workload.name().starts_with("multi") { 70 } else { 1 };
        assert_eq!(kind["objects"].as_u64().unwrap(), count * many);
        let histogram = kind["histogram"].as_array().unwrap();
        let sum: u64 = histogram.iter().map(|it| it["messages"].as_u64().unwrap()).sum();
        assert_eq!(sum, count);
        let percentiles = kind["percentiles_us"].as_array().unwrap();
        let percentiles: Vec<f64> =
            percentiles.iter().map(|it| it["us"].as_f64().unwrap()).collect();
        assert!(percentiles.is_sorted() && percentiles[0] > 0.0, "{percentiles:?}");
    }
    assert!(messages >= 100, "{messages}");
    assert!(report.table().rows.len() == kinds.len() && !report.histograms().is_empty());
    assert_eq!(report.panels().len(), 2);
}

#[test]
fn every_workload_runs_over_shared_memory() {
    for workload in Workload::ALL {
        check(workload, &measure(workload, &[]));
    }
}

#[test]
fn every_workload_runs_over_tcp_with_clients() {
    for workload in Workload::ALL {
        let more = ["--transport", "tcp", "--clients", "3", "--value-bytes", "9"];
        check(workload, &measure(workload, &more));
    }
}

#[test]
fn all_distributions_work_and_updates_need_no_identity() {
    for distribution in ["uniform", "zipfian", "latest", "sequential"] {
        let more = ["--distribution", distribution, "--at-least-once", "--depth", "1"];
        check(Workload::YcsbD, &measure(Workload::YcsbD, &more));
    }
}

#[test]
fn copies_are_made_by_servers_in_this_process() {
    for (replicas, transport) in [("1", "shm"), ("1", "tcp"), ("3", "shm")] {
        let more = ["--replicas", replicas, "--transport", transport, "--clients", "2"];
        for workload in [Workload::Mixed, Workload::MultiWrite] {
            check(workload, &measure(workload, &more));
        }
    }
}

#[test]
fn invalid_options_are_refused_with_advice() {
    let cases: [(&[&str], &str); 9] = [
        (&["--clients", "0"], "--clients is 0; it must be 1 to 1000"),
        (&["--depth", "1001"], "--depth is 1001; it must be 1 to 1000"),
        (&["--objects", "9"], "--objects is 9; it must be 256 to 1000000000"),
        (&["--parts", "129"], "--parts is 129; it must be 1 to 128"),
        (&["--reads", "101"], "--reads is 101; it must be 0 to 100"),
        (&["--utilization", "95"], "--utilization is 95; it must be 1 to 90"),
        (&["--value-bytes", "200000"], "--value-bytes is 200000; it must be 0 to"),
        (&["--value-bytes", "100000"], "makes messages of"),
        (&["--duration", "0"], "--duration is 0; it must be 0.01 to 86400 seconds"),
    ];
    for (more, expected) in cases {
        let error = operations::measure(Workload::MultiRead, &arguments(more)).err().unwrap();
        assert!(error.to_string().contains(expected), "{more:?}: {error}");
    }
    assert!(Operations::try_parse_from(["bench", "--duration", "soon"]).is_err());
    assert!((arguments(&["--duration", "250ms"]).options.duration - 0.25).abs() < 1e-9);
    assert!((arguments(&["--duration", "24s"]).options.duration - 24.0).abs() < 1e-9);
}

#[test]
fn ycsb_e_is_refused_with_the_reason() {
    let bench = Bench::try_parse_from(["bench", "ycsb-e"]).unwrap();
    let error = thunderhead_bench::run(bench.arguments).unwrap_err().to_string();
    assert!(error.contains("ycsb-e scans ranges of keys"), "{error}");
}

#[test]
fn minutes_out_of_range_are_refused() {
    let all = ["bench", "evaluate", "operations", "--quick", "--minutes", "0"];
    let bench = Bench::try_parse_from(all).unwrap();
    let error = thunderhead_bench::run(bench.arguments).unwrap_err().to_string();
    assert!(error.contains("--minutes is 0; it must be 0.01 to 1440"), "{error}");
}
