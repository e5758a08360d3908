//! The scaling of recovery: Fig. 16 of the TOCS paper, extended to 1 000 modelled nodes.
//!
//! A master holds a fixed amount of data for every node, then it crashes. The model follows one
//! recovery. The silence is noticed. The coordinator asks all backups, plans and informs all nodes.
//! Disks read in the planned order. Each master fetches its part of every segment, replays it and
//! writes it to backups. The coordinator writes each part's new owner.
//!
//! The cluster's own code decides the placement of replicas, the readers and their order, and the
//! division of tablets; it also makes the messages whose length counts. Everything else is
//! [`Costs`]. The coordinator is one thread. So is a node, which is a master with one shard and a
//! backup at once, like a process with one shard.
//!
//! Not in the model: other work, lost messages, disk writes of the rewritten data (it is in
//! memory), and a coordinator's memory.

use super::cluster::{self, GONE, SEGMENT_BYTES};
use super::costs::Costs;
use anyhow::{Result, ensure};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;
use thunderhead_coordinator::limits::TAKE_OVER;
use thunderhead_coordinator::model::{divided, reading_order};
use thunderhead_coordinator::{Probing, Rounds};
use thunderhead_load::output::show;
use thunderhead_load::plot::{self, Marks, Panel, Series};
use thunderhead_load::table::Table;
use thunderhead_runtime::Random;
use thunderhead_wire::control::{
    BeginRecovery, Inventory, Recover, ReplicaInfo, Replicas, TabletStatus, Taken, to_body,
};
use thunderhead_wire::{
    Epoch, KeyHash, MasterId, RecoveryId, SegmentId, ServerId, TableId, TabletRange,
};

/// The longest message: the default limit of connections.
const MESSAGE_BYTES: usize = 8 << 20;

/// The options of the model.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Numbers of nodes that take part, besides the crashed node.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "6,10,20,40,80,120,160,240,320,480,640,800,1000"
    )]
    nodes: Vec<usize>,
    /// MB of the crashed master for each node.
    #[arg(long, default_value_t = 500.0)]
    node_mb: f64,
    /// Bytes of an object with its key.
    #[arg(long, default_value_t = 1100)]
    object_bytes: u64,
    /// Replicas of each segment.
    #[arg(long, default_value_t = 3)]
    replicas: u32,
    /// The seed of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    costs: Costs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Draw a figure.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// The coordinator's costs that a model includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Control {
    /// All of them.
    All,
    /// All, except the list of segments in each master's message.
    NoLists,
    /// None: the data alone.
    Free,
}

/// One recovery.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Figures {
    nodes: usize,
    gigabytes: f64,
    parts: usize,
    /// From the silence to the verdict. All other times count from the verdict.
    detected_s: f64,
    /// The coordinator knows all replicas.
    surveyed_s: f64,
    /// The last backup, and the last master, have received their orders.
    backups_told_s: f64,
    masters_told_s: f64,
    /// The times at which disks have read their shares.
    first_disk_s: f64,
    mean_disk_s: f64,
    last_disk_s: f64,
    /// The last master has rebuilt its part.
    rebuilt_s: f64,
    /// The last new owner is written.
    total_s: f64,
    /// The time without the segment lists in messages to masters, and the time if the coordinator
    /// took none.
    total_without_lists_s: f64,
    data_alone_s: f64,
    /// Seconds of a node's thread for all messages that fetch.
    fetching_s: f64,
    /// Bytes of one message to a master, and to a backup.
    recover_bytes: usize,
    begin_bytes: usize,
    /// Whether the message to a master is too long to be sent.
    too_long: bool,
}

/// Returns the time at which the coordinator declares a silent server crashed. The probes are the
/// cluster's own code, with each server at the beginning of a round.
fn detected(nodes: usize, random: &mut Random) -> f64 {
    let probing = Probing::default();
    let there: BTreeSet<ServerId> = (0..nodes as u64).map(ServerId).collect();
    let mut first = Duration::MAX;
    for _ in 0..nodes {
        let (mut rounds, mut at) = (Rounds::default(), probing.interval.mul_f64(random.fraction()));
        while at < first {
            if rounds.next(random, &there) == Some(GONE) {
                first = at;
            }
            at += probing.pause(random);
        }
    }
    first.saturating_add(probing.timeout).saturating_add(probing.check()).as_secs_f64()
}

/// The plan of a recovery.
struct Plan {
    order: Vec<Replicas>,
    parts: Vec<Vec<Taken>>,
    /// Actual bytes a second of each node's disks.
    speeds: BTreeMap<ServerId, u64>,
    list_bytes: usize,
    inventory_bytes: usize,
    begin_bytes: usize,
    recover_bytes: usize,
    recover_without_list_bytes: usize,
    /// The size of a table's record with a tablet for each part.
    table_bytes: usize,
}

fn plan(arguments: &Arguments, nodes: usize, random: &mut Random) -> Plan {
    let bytes = nodes as f64 * arguments.node_mb * 1e6;
    let speed = |random: &mut Random| {
        (arguments.costs.disk_mb * 1e6 * (0.95 + 0.1 * random.fraction())) as u64
    };
    let speeds: Vec<u64> = (0..nodes).map(|_| speed(random)).collect();
    let list = cluster::list(&speeds, 1);
    let segments = ((bytes / f64::from(SEGMENT_BYTES)).ceil() as u64).max(1);
    let log = cluster::log(&list, arguments.replicas, segments, random.split());
    let speeds: BTreeMap<ServerId, u64> =
        speeds.into_iter().enumerate().map(|(at, it)| (ServerId(at as u64 + 1), it)).collect();
    let order = reading_order(&log, &speeds);
    let range = TabletRange { table: TableId(1), first: KeyHash(0), last: KeyHash(u64::MAX) };
    let statistics = [TabletStatus {
        range,
        objects: bytes as u64 / arguments.object_bytes.max(1),
        bytes: bytes as u64,
    }];
    let parts =
        divided(&[Taken { range, since: SegmentId::NONE }], &statistics, bytes as u64, nodes);
    let crashed = MasterId(GONE.0);
    let share = segments * u64::from(arguments.replicas) / nodes.max(1) as u64;
    let replica = |segment| ReplicaInfo {
        segment: SegmentId(segment),
        epoch: Epoch(1),
        length: SEGMENT_BYTES,
        closed: true,
    };
    let inventory =
        Inventory { replicas: (0..share).map(|it| replica(segments - it % segments)).collect() };
    let own = order.iter().map(|it| it.segment).take(order.len().div_ceil(nodes.max(1))).collect();
    let begin = BeginRecovery {
        lineage: Vec::new(),
        whole: false,
        recovery: RecoveryId(1),
        crashed,
        partitions: parts.clone(),
        segments: own,
    };
    let first = parts.first().cloned().unwrap_or_default();
    let status = |it: &Taken| TabletStatus { range: it.range, objects: 1 << 22, bytes: 1 << 29 };
    let expected: Vec<TabletStatus> = first.iter().map(status).collect();
    let recover = |segments| Recover {
        take_back: false,
        master: MasterId(1),
        crashed,
        recovery: RecoveryId(1),
        partition: 0,
        tablets: first.clone(),
        expected: expected.clone(),
        segments,
    };
    Plan {
        list_bytes: to_body(&list).len(),
        inventory_bytes: to_body(&inventory).len(),
        begin_bytes: to_body(&begin).len(),
        recover_bytes: to_body(&recover(order.clone())).len(),
        recover_without_list_bytes: to_body(&recover(Vec::new())).len(),
        table_bytes: to_body(&parts).len(),
        order,
        parts,
        speeds,
    }
}

/// Computes the course of a recovery.
fn recover(arguments: &Arguments, nodes: usize, plan: &Plan, control: Control) -> Figures {
    let costs = &arguments.costs;
    let (count, replicas) = (nodes as f64, f64::from(arguments.replicas));
    let round_trip = costs.round_trip_us / 1e6;
    let is_free = control == Control::Free;
    let paid = |seconds: f64| if is_free { 0.0 } else { seconds };
    // Messages from the coordinator to all nodes keep its thread and its network busy.
    let to_all = |bytes: usize| {
        let all = bytes as f64 * count;
        paid(costs.messages_s(count, all).max(costs.network_s(all)))
    };
    // All nodes get the list of servers, and are asked for their inventories.
    let inventories = plan.inventory_bytes as f64 * count;
    let surveyed =
        to_all(plan.list_bytes) + paid(costs.messages_s(count, inventories)) + 2.0 * round_trip;
    // The coordinator asks for free room, writes the assignment of parts to masters, and orders the
    // segments.
    let planned = surveyed
        + to_all(0)
        + paid(3.0 * costs.write_s(plan.table_bytes as f64))
        + paid(plan.order.len() as f64 * costs.plan_ns / 1e9);
    let backup_gap = to_all(plan.begin_bytes) / count;
    let begun = |server: ServerId| {
        let read = paid(plan.begin_bytes as f64 / (costs.json_mb * 1e6));
        planned + backup_gap * server.0 as f64 + read + round_trip / 2.0
    };
    let backups_told = planned + backup_gap * count + round_trip;
    let recover_bytes = match control {
        Control::All => plan.recover_bytes,
        Control::NoLists | Control::Free => plan.recover_without_list_bytes,
    };
    let parts = plan.parts.len().max(1);
    let master_gap = {
        let bytes = recover_bytes as f64;
        paid(costs.messages_s(1.0, bytes).max(costs.network_s(bytes)))
    };
    // Each disk reads its replicas one after the other, in the planned order.
    let segment = f64::from(SEGMENT_BYTES);
    let mut busy: BTreeMap<ServerId, f64> = BTreeMap::new();
    let mut readable: Vec<f64> = Vec::with_capacity(plan.order.len());
    for replicas in &plan.order {
        let Some((server, _)) = replicas.at.first() else { continue };
        let speed = plan.speeds.get(server).copied().unwrap_or(1).max(1) as f64;
        let until = busy.entry(*server).or_insert_with(|| begun(*server));
        *until += costs.seek_us / 1e6 + segment / speed;
        readable.push(*until + segment / (costs.cut_gb * 1e9));
    }
    // Each master takes its share of every segment as it becomes readable. Each node serves as many
    // such requests as it makes.
    let piece = segment / parts as f64;
    let load = parts as f64 / count;
    let thread = costs.bytes_s(piece, replicas) + 2.0 * costs.message_us / 1e6;
    let network = costs.network_s(piece) * (1.0 + replicas);
    let each = thread.max(network) * load.max(1.0);
    let mut rebuilt: Vec<f64> = Vec::with_capacity(parts);
    for number in 0..parts {
        let read = paid(recover_bytes as f64 / (costs.json_mb * 1e6));
        let mut at = backups_told + master_gap * (number + 1) as f64 + read + round_trip / 2.0;
        for readable in &readable {
            at = at.max(*readable + round_trip) + each;
        }
        rebuilt.push(at + round_trip);
    }
    rebuilt.sort_by(f64::total_cmp);
    // New owners are written one after the other, and not before reads of the former owner have
    // ended.
    let fenced = surveyed;
    let mut written = if is_free { 0.0 } else { fenced + TAKE_OVER.as_secs_f64() };
    for at in &rebuilt {
        let write = costs.write_s(plan.table_bytes as f64) + costs.messages_s(1.0, 0.0);
        written = written.max(*at) + paid(write);
    }
    let disks: Vec<f64> = busy.values().copied().collect();
    Figures {
        nodes,
        gigabytes: count * arguments.node_mb / 1e3,
        parts,
        surveyed_s: surveyed,
        backups_told_s: backups_told,
        masters_told_s: backups_told + master_gap * parts as f64,
        first_disk_s: disks.iter().copied().fold(f64::MAX, f64::min),
        mean_disk_s: disks.iter().sum::<f64>() / disks.len().max(1) as f64,
        last_disk_s: disks.iter().copied().fold(0.0, f64::max),
        rebuilt_s: rebuilt.last().copied().unwrap_or(0.0),
        total_s: written + round_trip,
        fetching_s: readable.len() as f64 * load.max(1.0) * 2.0 * costs.message_us / 1e6,
        recover_bytes: plan.recover_bytes,
        begin_bytes: plan.begin_bytes,
        too_long: plan.recover_bytes > MESSAGE_BYTES,
        ..Figures::default()
    }
}

fn measure(arguments: &Arguments, nodes: usize) -> Figures {
    let mut random = Random::from_seed(arguments.seed);
    // The median of many crashes, because one is not representative.
    let crashes = 11;
    let mut silent: Vec<f64> = (0..crashes).map(|_| detected(nodes, &mut random)).collect();
    silent.sort_by(f64::total_cmp);
    let plan = plan(arguments, nodes, &mut random);
    let of = |control| recover(arguments, nodes, &plan, control);
    Figures {
        detected_s: silent.get(crashes / 2).copied().unwrap_or(0.0),
        total_without_lists_s: of(Control::NoLists).total_s,
        data_alone_s: of(Control::Free).total_s,
        ..of(Control::All)
    }
}

fn panels(all: &[Figures]) -> Vec<Panel> {
    let series = |name: &str, of: fn(&Figures) -> f64| Series {
        name: name.into(),
        points: all.iter().map(|it| (it.nodes as f64, of(it))).collect(),
    };
    let panel = |title: &str, series| Panel {
        title: title.into(),
        x_label: "nodes".into(),
        y_label: "seconds from the verdict".into(),
        marks: Marks::Lines,
        series,
    };
    let total = series("all", |it| it.total_s);
    let without = series("no segment lists", |it| it.total_without_lists_s);
    let data = series("data alone", |it| it.data_alone_s);
    let whole = vec![
        total,
        without.clone(),
        data.clone(),
        series("masters told", |it| it.masters_told_s),
        series("last disk", |it| it.last_disk_s),
    ];
    let fetching = series("of it: fetching", |it| it.fetching_s);
    vec![
        panel("Recovery of a master that grows with the cluster", whole),
        panel("Recovery without the coordinator's lists", vec![without, data, fetching]),
    ]
}

/// Runs the model.
///
/// # Errors
/// When the options are invalid, or the figure cannot be written.
pub fn run(arguments: &Arguments) -> Result<()> {
    plot::check(arguments.plot.as_deref())?;
    ensure!(!arguments.nodes.is_empty(), "--nodes: at least one number");
    for nodes in &arguments.nodes {
        ensure!(
            (arguments.replicas as usize..=2000).contains(nodes),
            "--nodes: {nodes} is not between --replicas and 2000"
        );
    }
    ensure!(arguments.replicas >= 1, "--replicas: at least 1");
    ensure!((1.0..=4000.0).contains(&arguments.node_mb), "--node-mb: from 1 to 4000");
    let Costs { disk_mb, network_gb, kernel_gb, cut_gb, replay_gb, json_mb, .. } = arguments.costs;
    let rates = [disk_mb, network_gb, kernel_gb, cut_gb, replay_gb, json_mb];
    ensure!(rates.iter().all(|it| *it > 0.0), "all rates must be more than 0");
    let all: Vec<Figures> = arguments.nodes.iter().map(|it| measure(arguments, *it)).collect();
    let mut table = Table::new(
        "Seconds of a recovery, from the verdict",
        &[
            "nodes",
            "GB",
            "parts",
            "detected before",
            "surveyed",
            "backups told",
            "masters told",
            "disks: first",
            "mean",
            "last",
            "rebuilt",
            "all",
            "without lists",
            "data alone",
            "KB to a master",
        ],
    );
    for it in &all {
        let s = |seconds: f64| format!("{seconds:.2}");
        let long = if it.too_long { " (too long)" } else { "" };
        table.row(&[
            it.nodes.to_string(),
            format!("{:.0}", it.gigabytes),
            it.parts.to_string(),
            s(it.detected_s),
            s(it.surveyed_s),
            s(it.backups_told_s),
            s(it.masters_told_s),
            s(it.first_disk_s),
            s(it.mean_disk_s),
            s(it.last_disk_s),
            s(it.rebuilt_s),
            s(it.total_s),
            s(it.total_without_lists_s),
            s(it.data_alone_s),
            format!("{}{long}", it.recover_bytes / 1000),
        ]);
    }
    if let Some(path) = &arguments.plot {
        plot::save(path, &panels(&all))?;
    }
    show(arguments.json, &table, &all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn arguments(line: &[&str]) -> Arguments {
        Line::parse_from(std::iter::once("scale").chain(line.iter().copied())).arguments
    }

    #[test]
    fn the_same_seed_gives_the_same_figures_whose_stages_follow_each_other() {
        let arguments = arguments(&[]);
        for nodes in [6, 40] {
            let figures = measure(&arguments, nodes);
            assert_eq!(figures, measure(&arguments, nodes));
            let Figures { surveyed_s, backups_told_s, masters_told_s, .. } = figures;
            assert!(surveyed_s < backups_told_s && backups_told_s < masters_told_s);
            assert!(figures.last_disk_s < figures.rebuilt_s && figures.rebuilt_s < figures.total_s);
            assert!(figures.data_alone_s <= figures.total_without_lists_s);
            assert!(figures.total_without_lists_s <= figures.total_s);
            assert!((0.4..1.0).contains(&figures.detected_s), "{}", figures.detected_s);
            assert_eq!(figures.parts, nodes, "one for each");
        }
    }

    #[test]
    fn higher_costs_take_longer() {
        let total = |line: &[&str]| measure(&arguments(line), 20).total_s;
        let usual = total(&[]);
        for more in [
            ["--disk-mb", "100"],
            ["--network-gb", "0.5"],
            ["--message-us", "100"],
            ["--kernel-gb", "1"],
            ["--replay-gb", "0.5"],
            ["--cut-gb", "0.5"],
            ["--json-mb", "5"],
            ["--metastore-ms", "200"],
            ["--node-mb", "1000"],
        ] {
            assert!(total(&more) > usual, "{more:?}");
        }
    }
}
