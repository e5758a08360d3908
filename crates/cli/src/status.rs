//! `thunderhead status`: the state of the cluster at a glance.
//!
//! The coordinator lists the servers. Each shard and each backup reports the rest. A shard or
//! backup that does not answer is shown as such, and is not a failure of the command.

use crate::exit::Failure;
use crate::session::Session;
use crate::store::Store;
use crate::text::{amount, count, escape, plural};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use thunderhead_wire::MasterId;
use thunderhead_wire::control::{
    AtRisk, BackupStatus, ClusterStatus, RecoveryInfo, ServerInfo, ServerState, ShardStatus,
    TableInfo,
};

/// The whole report, for programs too.
#[derive(Serialize)]
struct Report {
    cluster: ClusterStatus,
    /// By address.
    shards: BTreeMap<SocketAddr, StatusOrError<ShardStatus>>,
    backups: BTreeMap<SocketAddr, StatusOrError<BackupStatus>>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum StatusOrError<T> {
    Status(T),
    Error(String),
}

impl<T> From<Result<T, Failure>> for StatusOrError<T> {
    fn from(result: Result<T, Failure>) -> StatusOrError<T> {
        match result {
            Ok(status) => StatusOrError::Status(status),
            Err(failure) => StatusOrError::Error(failure.message),
        }
    }
}

/// Runs the command.
pub(crate) fn run(store: &mut dyn Store, session: &mut Session<'_>) -> Result<(), Failure> {
    let cluster = store.status()?;
    let mut report = Report { cluster, shards: BTreeMap::new(), backups: BTreeMap::new() };
    let servers = report.cluster.servers.servers.iter();
    for server in servers.filter(|server| server.state == ServerState::Up) {
        for shard in &server.shards {
            report.shards.insert(shard.address, store.shard_status(shard.address).into());
        }
        if let Some(backup) = &server.backup {
            report.backups.insert(backup.address, store.backup_status(backup.address).into());
        }
    }
    match session.json {
        true => session.put_json(&report),
        false => Ok(print(&report, session.out)?),
    }
}

fn print(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let ClusterStatus { cluster, settings, servers, map, leases, recoveries, .. } = &report.cluster;
    let up = servers.servers.iter().filter(|it| it.state == ServerState::Up).count();
    let down = servers.servers.len() - up;
    let down = if down == 0 { String::new() } else { format!(", {down} DOWN") };
    writeln!(
        out,
        "{cluster}: {}{down}; {} (at least {}), {}; {}",
        plural(up as u64, "server"),
        plural(u64::from(settings.replicas), "replica"),
        settings.min_replicas,
        settings.durability,
        plural(*leases, "client")
    )?;
    print_risk(report, out)?;
    print_formats(&report.cluster, out)?;
    let mut remarks: Vec<String> = report.cluster.remarks.iter().map(|it| line(it)).collect();
    for server in &servers.servers {
        print_server(server, report, &mut remarks, out)?;
    }
    if servers.servers.is_empty() {
        writeln!(out, "\nno servers; `thunderhead server` starts a server")?;
    }
    print_tables(&map.tables, report, out)?;
    for recovery in recoveries {
        remarks.push(recovery_line(recovery, report));
    }
    if !remarks.is_empty() {
        writeln!(out)?;
    }
    for remark in remarks {
        writeln!(out, "! {remark}")?;
    }
    Ok(())
}

/// Prints the cluster's format if a program knows a newer one, because an upgrade is not finished
/// then.
fn print_formats(cluster: &ClusterStatus, out: &mut dyn Write) -> io::Result<()> {
    let ClusterStatus { format, programs, .. } = cluster;
    let Some(newest) = programs.iter().map(|it| it.newest).max().filter(|it| it > format) else {
        return Ok(());
    };
    let lacking: Vec<String> = programs
        .iter()
        .filter(|it| it.newest < newest)
        .map(|it| format!("{} ({})", line(&it.program.to_string()), it.newest))
        .collect();
    let (number, lacking) = (newest.0, lacking.join(", "));
    if lacking.is_empty() {
        writeln!(
            out,
            "{format}; all programs know {newest}: `thunderhead cluster set format {number}` switches it on"
        )
    } else {
        writeln!(out, "{format}; not all programs know {newest} yet: {lacking}")
    }
}

/// Prints the segments that another failure could lose, of all shards together. Each shard's remark
/// says more.
fn print_risk(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let (mut all, mut blocked) = (AtRisk::default(), 0u64);
    for answered in report.shards.values() {
        let StatusOrError::Status(ShardStatus { at_risk: Some(risk), .. }) = answered else {
            continue;
        };
        all.segments = all.segments.saturating_add(risk.segments);
        all.bytes = all.bytes.saturating_add(risk.bytes);
        all.for_ms = all.for_ms.max(risk.for_ms);
        blocked += u64::from(risk.is_blocked);
    }
    let AtRisk { segments, bytes, for_ms, .. } = all;
    if segments == 0 {
        return Ok(());
    }
    let (wanted, seconds) = (report.cluster.settings.replicas, for_ms / 1000);
    let segments = plural(segments, "segment");
    writeln!(
        out,
        "AT RISK: {segments} ({}) with fewer than {wanted} replicas, for {seconds} s",
        amount(bytes)
    )?;
    if blocked > 0 {
        let (shards, min) = (plural(blocked, "shard"), report.cluster.settings.min_replicas);
        writeln!(
            out,
            "WRITES WAIT on {shards}: fewer than {min} replicas can be kept, or a backup's disk is behind"
        )?;
    }
    Ok(())
}

/// Describes the progress of a recovery.
fn recovery_line(recovery: &RecoveryInfo, report: &Report) -> String {
    let RecoveryInfo { crashed, by, trouble, stage, partitions, masters, bytes, for_ms, .. } =
        recovery;
    let by = match masters.as_slice() {
        [] => by.map_or("a master that is not chosen yet".to_owned(), |by| by.to_string()),
        [one] => one.to_string(),
        many => plural(many.len() as u64, "master"),
    };
    let mut line_of_it = format!("{crashed} is being recovered by {by}");
    if !stage.is_empty() {
        let seconds = for_ms / 1000;
        line_of_it += &format!(" ({}, for {seconds} s", line(stage));
        if *partitions > 0 {
            let done = partitions.saturating_sub(recovery.partitions_left);
            line_of_it += &format!(", {done} of {}", plural(u64::from(*partitions), "part"));
        }
        if *bytes > 0 {
            line_of_it += &format!(", log of {}", amount(*bytes));
        }
        let read = report.shards.values().filter_map(|answered| match answered {
            StatusOrError::Status(shard) if masters.contains(&shard.master) => shard.recovering,
            _ => None,
        });
        let read = read.fold(0u64, |sum, (done, _)| sum.saturating_add(done));
        if read > 0 {
            line_of_it += &format!(", {} replayed", amount(read));
        }
        line_of_it += ")";
    }
    if let Some(why) = trouble {
        line_of_it += &format!("; last attempt: {}", line(why));
    }
    line_of_it
}

/// Puts a foreign text into one line.
fn line(text: &str) -> String {
    escape(text.as_bytes())
}

fn print_server(
    server: &ServerInfo,
    report: &Report,
    remarks: &mut Vec<String>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let ServerInfo { server: id, generation, state, host, rack, shards, backup, .. } = server;
    let state = match state {
        ServerState::Up => "up",
        ServerState::Down => "DOWN",
    };
    let rack = if rack.is_empty() { String::new() } else { format!(", rack {}", line(rack)) };
    writeln!(out, "\n{id}  {state}  host {}{rack}, generation {generation}", line(host))?;
    for shard in shards {
        let (master, address) = (shard.master, shard.address);
        match report.shards.get(&address) {
            Some(StatusOrError::Status(status)) => {
                print_shard(master, address, status, out)?;
                remarks.extend(status.remarks.iter().map(|it| format!("{master}: {}", line(it))));
            }
            Some(StatusOrError::Error(why)) => {
                writeln!(out, "  {master:<12}  {address:21}  NO ANSWER")?;
                remarks.push(format!("{master}: {}", line(why)));
            }
            None => writeln!(out, "  {master:<12}  {address:21}  -")?,
        }
    }
    let Some(backup) = backup else { return Ok(()) };
    let address = backup.address;
    match report.backups.get(&address) {
        Some(StatusOrError::Status(BackupStatus {
            frames, frames_free, frames_damaged, ..
        })) => {
            let used = frames.saturating_sub(*frames_free);
            let bar = bar(used, used, *frames);
            let frames = plural(*frames, "frame");
            writeln!(out, "  {:12}  {address:21}  {bar}  {} of {frames}", "backup", count(used))?;
            if *frames_damaged > 0 {
                let damaged = plural(*frames_damaged, "damaged frame");
                remarks.push(format!("{id}: {damaged}; `thunderhead backup check` lists them"));
            }
        }
        Some(StatusOrError::Error(why)) => {
            writeln!(out, "  {:12}  {address:21}  NO ANSWER", "backup")?;
            remarks.push(format!("backup of {id}: {}", line(why)));
        }
        None => {}
    }
    Ok(())
}

fn print_shard(
    master: MasterId,
    address: SocketAddr,
    status: &ShardStatus,
    out: &mut dyn Write,
) -> io::Result<()> {
    let ShardStatus { memory_bytes, used_bytes, live_bytes, objects, recovering, .. } = status;
    let recovering = match recovering {
        Some((done, total)) if total > done => {
            format!(", recovering: {} of {}", amount(*done), amount(*total))
        }
        Some((done, _)) => format!(", recovering: {}", amount(*done)),
        None => String::new(),
    };
    writeln!(
        out,
        "  {:12}  {:21}  {}  {} live, {} used of {}; {}{recovering}",
        master.to_string(),
        address.to_string(),
        bar(*live_bytes, *used_bytes, *memory_bytes),
        amount(*live_bytes),
        amount(*used_bytes),
        amount(*memory_bytes),
        plural(*objects, "object")
    )
}

/// Draws a bar: # live, = used, . free.
fn bar(live: u64, used: u64, whole: u64) -> String {
    const WIDTH: u64 = 20;
    let cells = |part: u64| {
        let cells = u128::from(part.min(whole)) * u128::from(WIDTH) / u128::from(whole.max(1));
        usize::try_from(cells).unwrap_or(0)
    };
    let (live, used) = (cells(live), cells(used.max(live)));
    let free = (WIDTH as usize).saturating_sub(used);
    format!("[{}{}{}]", "#".repeat(live), "=".repeat(used - live), ".".repeat(free))
}

fn print_tables(tables: &[TableInfo], report: &Report, out: &mut dyn Write) -> io::Result<()> {
    if tables.is_empty() {
        return writeln!(out, "\nno tables; `thunderhead table create NAME` makes one");
    }
    writeln!(out, "\n{:>7}  {:>15}  {:>10}  table", "tablets", "objects", "bytes")?;
    for table in tables {
        let (mut objects, mut bytes) = (0, 0);
        for answered in report.shards.values() {
            let StatusOrError::Status(status) = answered else { continue };
            let ours = status.tablets.iter().filter(|tablet| tablet.range.table == table.id);
            for tablet in ours {
                objects += tablet.objects;
                bytes += tablet.bytes;
            }
        }
        let lost = table.tablets.iter().filter(|tablet| tablet.address.is_none()).count();
        let lost = if lost == 0 { String::new() } else { format!("  {lost} BEING RECOVERED") };
        writeln!(
            out,
            "{:>7}  {:>15}  {:>10}  {}{lost}",
            table.tablets.len(),
            count(objects),
            amount(bytes),
            line(&table.name)
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::bar;
    use crate::fake::{FakeStore, run};

    #[test]
    fn the_status_shows_servers_tables_and_problems() {
        let mut fake = FakeStore::default();
        run(&mut fake, "table create t").unwrap();
        let text = run(&mut fake, "status").unwrap();
        let expected = [
            "cluster 77: 1 server, 1 DOWN; 3 replicas (at least 1), replicated; 4 clients",
            "AT RISK: 12 segments (96.0 MiB) with fewer than 3 replicas, for 35 s",
            "WRITES WAIT on 1 shard: fewer than 1 replicas can be kept, or a backup's disk is behind",
            "format 1; not all programs know format 2 yet: server 2 (format 1)",
            "server 1  up  host here, generation 2",
            "[#####=====..........]  256 MiB live, 512 MiB used of 1.0 GiB; 1,234,567 objects, recovering: 1.0 MiB of 4.0 MiB",
            "40 of 100 frames",
            "server 2  DOWN",
            "! server 1: 1 damaged frame",
            "! master 1: memory is tight",
            "! master 2 is being recovered by master 1 (rebuilding, for 2 s, 1 of 3 parts, log of 64.0 MiB, 1.0 MiB replayed); last attempt: a segment is missing",
            "! master 3 is being recovered by a master that is not chosen yet",
        ];
        for part in expected {
            assert!(text.contains(part), "{part:?} is missing:\n{text}");
        }
        fake.is_upgraded = true;
        let text = run(&mut fake, "status").unwrap();
        assert!(text.contains("`thunderhead cluster set format 2` switches it on"), "{text}");
    }

    #[test]
    fn the_json_status_has_all_members() {
        let text = run(&mut FakeStore::default(), "status --json").unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["cluster"]["cluster"], 77);
        assert_eq!(value["shards"]["127.0.0.1:7071"]["status"]["objects"], 1_234_567);
        assert_eq!(value["backups"]["127.0.0.1:7071"]["status"]["frames"], 100);
    }

    #[test]
    fn a_bar_has_the_same_width_for_all_values() {
        for (live, used, whole) in [(0, 0, 0), (5, 3, 2), (u64::MAX, u64::MAX, u64::MAX), (1, 2, 3)]
        {
            assert_eq!(bar(live, used, whole).len(), 22);
        }
    }
}
