//! Our clients beside the peers' own tools. Ours must drive them at least as fast; otherwise a
//! store could seem slow because of its client.

use super::crowd::{Address, Shape, Source};
use super::measure::{Client, at_random, rate};
use super::process::{program, says};
use super::protocol::{Act, text_key};
use super::report::Report;
use super::scale::Scale;
use super::store::{Kind, Store, Wanted};
use super::throughput::VALUE_BYTES;
use anyhow::{Context as _, Result};
use thunderhead_load::machine::median;
use thunderhead_load::output::progress;

/// The share of a tool's rate that ours must reach: a smaller difference is noise.
const SHARE: f64 = 0.97;

/// The object that redis-benchmark reads.
const ONE: u64 = 7;

/// Connections of the tools.
const CONNECTIONS: usize = 50;

/// Measures our clients and the tools.
///
/// # Errors
/// When a store fails.
pub fn run(scale: &Scale, kinds: &[Kind], report: &mut Report) -> Result<()> {
    for kind in kinds.iter().filter(|it| it.is_redis()) {
        let tool = if *kind == Kind::Redis { "redis-benchmark" } else { "valkey-benchmark" };
        redis(scale, *kind, tool, report)?;
    }
    if kinds.contains(&Kind::Memcached) {
        memcached(scale, report)?;
    }
    Ok(())
}

fn ours(scale: &Scale, store: &Store, depth: usize, source: Source<'static>) -> Result<f64> {
    let shape = Shape::polling(CONNECTIONS, depth);
    let mut crowd = store.crowd(store.tcp(), shape, false, source)?;
    let found = rate(&mut crowd, scale.burst * 4)?;
    Client::finish(&mut crowd)?;
    Ok(found.per_second)
}

fn redis(scale: &Scale, kind: Kind, tool: &str, report: &mut Report) -> Result<()> {
    let Some(path) = program(tool) else {
        report.rows.add(&format!("{tool} is installed"), "reported".into(), "no".into(), true);
        return Ok(());
    };
    progress(&format!("clients: {tool}"));
    let store = Store::start(kind, Wanted::memory(0))?;
    store.load(scale.objects, VALUE_BYTES)?;
    let Address::Tcp(address) = store.tcp() else { return Ok(()) };
    let (port, key) = (address.port().to_string(), text_key(ONE));
    let key = String::from_utf8_lossy(&key).into_owned();
    for depth in [1, 16] {
        // About as long as the measurement of ours.
        let rate = if depth == 1 { 120e3 } else { 700e3 };
        let requests = (scale.burst.as_secs_f64() * 4.0 * rate) as u64;
        let mut turns = Vec::new();
        for _ in 0..scale.bursts {
            // The tool reads one object repeatedly, which stays in the server's caches.
            let source = Box::new(|numbers: &mut Vec<u64>| {
                numbers.push(ONE);
                Some((Act::Read, VALUE_BYTES))
            });
            let ours = ours(scale, &store, depth, source)?;
            let (clients, pipeline) = (CONNECTIONS.to_string(), depth.to_string());
            let count = requests.max(1000).to_string();
            let words = ["-p", &port, "-c", &clients, "-n", &count, "-P", &pipeline, "--csv"];
            let text = says(&path, &[words.as_slice(), &["GET", &key]].concat())?;
            let theirs = csv_rate(&text).with_context(|| format!("{tool} printed {text:?}"))?;
            turns.push((ours, theirs));
        }
        row(report, kind.name(), tool, depth, &turns);
    }
    Ok(())
}

fn row(report: &mut Report, store: &str, tool: &str, depth: usize, turns: &[(f64, f64)]) {
    let ours = median(turns.iter().map(|it| it.0).collect());
    let theirs = median(turns.iter().map(|it| it.1).collect());
    let what = format!(
        "our client drives {store}, {CONNECTIONS} connections, {depth} deep: {:.0} K reads/s, {tool} \
         {:.0} K/s",
        ours / 1e3,
        theirs / 1e3
    );
    let ratios = turns.iter().map(|(ours, theirs)| ours / theirs);
    report.rows.at_least(&what, SHARE, median(ratios.collect()), "×");
}

/// Returns requests a second from a table whose first line names its columns.
fn csv_rate(text: &str) -> Option<f64> {
    let line = text.lines().rev().find(|line| line.starts_with('"'))?;
    let cells: Vec<&str> = line.trim_matches('"').split("\",\"").collect();
    cells.get(1)?.parse().ok().filter(|rate: &f64| rate.is_finite())
}

fn memcached(scale: &Scale, report: &mut Report) -> Result<()> {
    let Some(path) = program("memcslap") else {
        report.rows.add("memcslap is installed", "reported".into(), "no".into(), true);
        return Ok(());
    };
    progress("clients: memcslap");
    let store = Store::start(Kind::Memcached, Wanted::memory(scale.memory_bytes()))?;
    store.load(scale.objects, VALUE_BYTES)?;
    let mut turns = Vec::new();
    // It first writes objects of its own, outside of the measured time.
    let each = ((scale.burst.as_secs_f64() * 4.0 * 100e3) as u64 / CONNECTIONS as u64).max(50);
    let servers = format!("--servers={}", store.tcp());
    let (clients, count) =
        (format!("--concurrency={CONNECTIONS}"), format!("--execute-number={each}"));
    for _ in 0..scale.bursts {
        let source = at_random(Act::Read, scale.objects, VALUE_BYTES, 1, 13);
        let ours = ours(scale, &store, 1, source)?;
        let words =
            [&servers, &clients, &count, "--test=get", "--initial-load=1000", "--tcp-nodelay"];
        let text = says(&path, &words)?;
        let theirs = slap_rate(&text).with_context(|| format!("memcslap printed {text:?}"))?;
        turns.push((ours, theirs));
    }
    row(report, Kind::Memcached.name(), "memcslap", 1, &turns);
    Ok(())
}

/// Returns reads a second, from `Time to get  24000 keys by  50 threads:  1.487 seconds.`
fn slap_rate(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.trim_start().starts_with("Time to get "))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let (keys, seconds) = (words.get(3)?, words.iter().rev().nth(1)?);
    let (keys, seconds): (f64, f64) = (keys.parse().ok()?, seconds.parse().ok()?);
    (seconds > 0.0).then_some(keys / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_the_tools_is_parsed() {
        let csv = "\"test\",\"rps\",\"avg\"\n\"GET k\",\"158730.16\",\"0.2\"\n";
        assert_eq!(csv_rate(csv), Some(158_730.16));
        assert_eq!(csv_rate("\"test\",\"rps\"\n"), None);
        assert_eq!(csv_rate("ERROR\n"), None);
        let text = "Time to set 9 keys: 1 seconds.\nTime to get    300 keys by  5 threads:  0.5 seconds.\n";
        assert_eq!(slap_rate(text), Some(600.0));
        assert_eq!(slap_rate("Time to get nothing"), None);
        assert_eq!(slap_rate("Time to get 1 keys by 1 threads: 0 seconds."), None);
    }
}
