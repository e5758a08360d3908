//! The placement of replicas, and the time at which the last disk has read its share: Fig. 17 of
//! the TOCS paper, with modelled disks.
//!
//! A master has placed its log, then it crashes, and all backups read their parts. Replicas were
//! placed in one of three ways: by the cluster's own code, by the same code with all disks taken to
//! be alike (the paper's even segments), or purely at random. The backups read the primary
//! replicas, as in the paper; or for each segment the replica that the coordinator chooses when it
//! plans the recovery, which this cluster does and the paper's did not.
//!
//! Disks keep their speeds over all crashes of a run, except for a few percent that are not
//! foreseeable.

use super::cluster::{self, GONE, Log, SEGMENT_BYTES, address};
use anyhow::{Result, ensure};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use thunderhead_coordinator::model::reading_order;
use thunderhead_load::output::show;
use thunderhead_load::plot::{self, Marks, Panel, Series};
use thunderhead_load::table::Table;
use thunderhead_runtime::Random;
use thunderhead_wire::control::{ServerInfo, ServerList};
use thunderhead_wire::{SegmentId, ServerId};

/// Bytes a second of a normal disk: 120 of them have the paper's 12 GB/s.
const DISK: f64 = 100e6;

/// The time to move a disk's head to the beginning of a segment.
const SEEK_S: f64 = 0.008;

/// The unforeseeable deviation of a disk from its measured speed.
const UNFORESEEN: f64 = 0.03;

/// The options of the model.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Servers, each with one disk.
    #[arg(long, default_value_t = 120)]
    servers: usize,
    /// Servers on each host: replicas of a segment are on different hosts.
    #[arg(long, default_value_t = 2)]
    servers_a_host: usize,
    /// Gigabytes of the master's log.
    #[arg(long, default_value_t = 12.0)]
    gigabytes: f64,
    /// Replicas of each segment.
    #[arg(long, default_value_t = 3)]
    replicas: u32,
    /// The number of crashes, each of a master that has placed its log again.
    #[arg(long, default_value_t = 120)]
    crashes: u64,
    /// The seed of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Draw a figure.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// The speeds of disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Disks {
    /// All within 15 %, except that one in twenty has only 0.4 of the speed.
    Alike,
    /// Half of them are shaken by fans and have between a quarter and all of the speed.
    Shaken,
}

impl Disks {
    fn name(self) -> &'static str {
        match self {
            Disks::Alike => "alike, 1 in 20 slow",
            Disks::Shaken => "half shaken, up to 4 x slower",
        }
    }

    fn draw(self, random: &mut Random) -> f64 {
        let speed = DISK * (0.85 + 0.3 * random.fraction());
        match self {
            Disks::Alike if random.chance(0.05) => speed * 0.4,
            Disks::Shaken if random.chance(0.5) => speed * (0.25 + 0.75 * random.fraction()),
            Disks::Alike | Disks::Shaken => speed,
        }
    }
}

/// The way of placing replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Way {
    Random,
    EvenCounts,
    ReadTime,
}

impl Way {
    const ALL: [Way; 3] = [Way::Random, Way::EvenCounts, Way::ReadTime];

    fn name(self) -> &'static str {
        match self {
            Way::Random => "random",
            Way::EvenCounts => "even counts",
            Way::ReadTime => "read time (ours)",
        }
    }

    fn log(self, arguments: &Arguments, list: &ServerList, mut random: Random) -> Log {
        let segments = segments(arguments);
        let replicas = arguments.replicas;
        match self {
            Way::ReadTime => cluster::log(list, replicas, segments, random),
            Way::EvenCounts => {
                let mut alike = list.clone();
                for backup in alike.servers.iter_mut().filter_map(|it| it.backup.as_mut()) {
                    backup.read_bytes_per_second = DISK as u64;
                }
                cluster::log(&alike, replicas, segments, random)
            }
            Way::Random => (1..=segments)
                .map(|id| (SegmentId(id), SEGMENT_BYTES, at_random(list, replicas, &mut random)))
                .collect(),
        }
    }
}

/// Returns random servers on different hosts, never the crashed server.
fn at_random(
    list: &ServerList,
    replicas: u32,
    random: &mut Random,
) -> Vec<(ServerId, std::net::SocketAddr)> {
    let mut chosen: Vec<&ServerInfo> = Vec::new();
    while chosen.len() < replicas as usize {
        let Some(server) = random.pick(&list.servers) else { break };
        if server.server != GONE && chosen.iter().all(|it| it.host != server.host) {
            chosen.push(server);
        }
    }
    chosen.into_iter().map(|it| (it.server, address(it.server))).collect()
}

fn segments(arguments: &Arguments) -> u64 {
    ((arguments.gigabytes * 1e9 / f64::from(SEGMENT_BYTES)).ceil() as u64).max(1)
}

/// The results of one way of placing and of reading.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Figures {
    disks: Disks,
    way: Way,
    /// Which replica is read: the coordinator's choice, or the primary.
    chosen: bool,
    /// Seconds if all disks were busy until the end.
    ideal_s: f64,
    mean_s: f64,
    /// Seconds until the last disk was done, for each crash, sorted.
    last_s: Vec<f64>,
}

impl Figures {
    fn share(&self, share: f64) -> f64 {
        let at = (self.last_s.len() as f64 * share).ceil() as usize;
        self.last_s.get(at.saturating_sub(1)).copied().unwrap_or(0.0)
    }
}

/// Returns the time at which the last disk has read its share.
fn last(reads: impl Iterator<Item = ServerId>, speeds: &BTreeMap<ServerId, f64>) -> f64 {
    let mut busy: BTreeMap<ServerId, f64> = BTreeMap::new();
    for server in reads {
        let speed = speeds.get(&server).copied().unwrap_or(DISK);
        *busy.entry(server).or_default() += SEEK_S + f64::from(SEGMENT_BYTES) / speed;
    }
    busy.into_values().fold(0.0, f64::max)
}

fn measure(arguments: &Arguments, disks: Disks) -> Vec<Figures> {
    let mut random = Random::from_seed(arguments.seed);
    let speeds: Vec<u64> = (0..arguments.servers).map(|_| disks.draw(&mut random) as u64).collect();
    let list = cluster::list(&speeds, arguments.servers_a_host);
    let known: BTreeMap<ServerId, u64> =
        speeds.iter().enumerate().map(|(at, speed)| (ServerId(at as u64 + 1), *speed)).collect();
    let segments = segments(arguments) as f64;
    let rates = known.values().map(|it| 1.0 / (SEEK_S + f64::from(SEGMENT_BYTES) / *it as f64));
    let ideal_s = segments / rates.sum::<f64>();
    let mut found: BTreeMap<(bool, Way), Vec<f64>> = BTreeMap::new();
    for _ in 0..arguments.crashes {
        let mut noise = random.split();
        let mut real =
            |speed: u64| speed as f64 * (1.0 - UNFORESEEN + 2.0 * UNFORESEEN * noise.fraction());
        let real: BTreeMap<_, _> = known.iter().map(|(id, speed)| (*id, real(*speed))).collect();
        for way in Way::ALL {
            let log = way.log(arguments, &list, random.split());
            let primaries = log.iter().filter_map(|(_, _, at)| at.first().map(|it| it.0));
            found.entry((false, way)).or_default().push(last(primaries, &real));
            let order = reading_order(&log, &known);
            let reads = order.iter().filter_map(|it| it.at.first().map(|it| it.0));
            found.entry((true, way)).or_default().push(last(reads, &real));
        }
    }
    let figures = found.into_iter().map(|((chosen, way), mut last_s)| {
        last_s.sort_by(f64::total_cmp);
        let mean_s = last_s.iter().sum::<f64>() / last_s.len().max(1) as f64;
        Figures { disks, way, chosen, ideal_s, mean_s, last_s }
    });
    figures.collect()
}

fn panel(figures: &[Figures], disks: Disks, chosen: bool) -> Panel {
    let which = if chosen { "the replica that the coordinator chose" } else { "primary replicas" };
    let curve = |figures: &Figures| {
        let count = figures.last_s.len().max(1) as f64;
        let points = figures.last_s.iter().enumerate();
        Series {
            name: figures.way.name().into(),
            points: points.map(|(at, s)| (*s, (at + 1) as f64 / count)).collect(),
        }
    };
    let shown = figures.iter().filter(|it| it.disks == disks && it.chosen == chosen);
    Panel {
        title: format!("Disks {}; read: {which}", disks.name()),
        x_label: "seconds until the last disk is done".into(),
        y_label: "share of crashes".into(),
        marks: Marks::Lines,
        series: shown.map(curve).collect(),
    }
}

/// Runs the model.
///
/// # Errors
/// When the options are invalid, or the figure cannot be written.
pub fn run(arguments: &Arguments) -> Result<()> {
    plot::check(arguments.plot.as_deref())?;
    let hosts = arguments.servers.div_ceil(arguments.servers_a_host.max(1));
    ensure!(
        arguments.replicas >= 1 && hosts >= arguments.replicas as usize,
        "--servers, --servers-a-host: {hosts} hosts are too few for --replicas {}",
        arguments.replicas
    );
    ensure!(arguments.servers <= 10_000, "--servers: a cluster has 10000 at most");
    ensure!(
        arguments.gigabytes > 0.0 && arguments.gigabytes <= 2000.0,
        "--gigabytes: more than 0, and 2000 at most"
    );
    ensure!(arguments.crashes >= 1, "--crashes: at least 1");
    let kinds = [Disks::Alike, Disks::Shaken];
    let all: Vec<Figures> = kinds.into_iter().flat_map(|it| measure(arguments, it)).collect();
    let mut table = Table::new(
        "Seconds until the last disk has read its share",
        &["disks", "placed by", "read", "ideal", "mean", "median", "90 %", "worst"],
    );
    for figures in &all {
        let digits = |s: f64| format!("{s:.2}");
        table.row(&[
            figures.disks.name().into(),
            figures.way.name().into(),
            if figures.chosen { "chosen" } else { "primary" }.into(),
            digits(figures.ideal_s),
            digits(figures.mean_s),
            digits(figures.share(0.5)),
            digits(figures.share(0.9)),
            digits(figures.share(1.0)),
        ]);
    }
    if let Some(path) = &arguments.plot {
        let panels = kinds.into_iter().flat_map(|it| [(it, false), (it, true)]);
        let panels: Vec<_> = panels.map(|(it, chosen)| panel(&all, it, chosen)).collect();
        plot::save(path, &panels)?;
    }
    show(arguments.json, &table, &all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(seed: u64) -> Arguments {
        Arguments {
            servers: 40,
            servers_a_host: 2,
            gigabytes: 4.0,
            replicas: 3,
            crashes: 8,
            seed,
            json: false,
            plot: None,
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_figures() {
        let figures = measure(&arguments(7), Disks::Alike);
        assert_eq!(figures, measure(&arguments(7), Disks::Alike));
        assert_ne!(figures, measure(&arguments(8), Disks::Alike));
    }

    #[test]
    fn our_placement_beats_its_rivals_and_choosing_replicas_is_better_still() {
        for seed in 0..3 {
            for disks in [Disks::Alike, Disks::Shaken] {
                let figures = measure(&arguments(seed), disks);
                let mean = |way, chosen| {
                    let found = figures.iter().find(|it| it.way == way && it.chosen == chosen);
                    found.map(|it| it.mean_s / it.ideal_s).unwrap()
                };
                let names: Vec<_> =
                    figures.iter().map(|it| (it.way, it.chosen, it.mean_s)).collect();
                let ours = mean(Way::ReadTime, false);
                assert!(ours < mean(Way::EvenCounts, false) * 0.9, "{seed}: {names:?}");
                assert!(ours < mean(Way::Random, false) * 0.8, "{seed}: {names:?}");
                assert!(ours < 1.6, "{seed}: {names:?}");
                for way in Way::ALL {
                    assert!(mean(way, true) >= 0.95, "no recovery is faster than its disks");
                    assert!(mean(way, true) < mean(way, false) * 1.05, "{seed}: {names:?}");
                    assert!(mean(way, true) < 1.3, "{seed}: {names:?}");
                }
            }
        }
    }
}
