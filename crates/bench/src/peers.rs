//! Thunderhead beside its alternatives: Redis, Valkey, memcached and etcd.
//!
//! Every store is a process of its own, on the server's core, with settings that its users choose;
//! the client is on the other core. Compared stores run at the same time and are asked in turn, so
//! that other load on the machine affects all alike. All are asked by the same client ([`crowd`]),
//! which parses every answer and checks every value.
//!
//! | section | content |
//! | --- | --- |
//! | [`tools`] | our clients beside the peers' own tools |
//! | [`latency`] | one client, one object at a time |
//! | [`throughput`] | many connections, requests in flight together, many objects in a request |
//! | [`durable`] | writes at equal durability |
//! | [`memory`], [`churn`] | resident bytes for each object, and while sizes change |
//! | [`restart`], [`stages`] | from the start of a process until all is readable |
//! | [`idle`] | the processor time of an idle store |

pub mod churn;
pub mod crowd;
pub mod durable;
pub mod etcd;
pub mod idle;
pub mod latency;
pub mod measure;
pub mod memcached;
pub mod memory;
pub mod ours;
pub mod process;
pub mod protocol;
pub mod report;
pub mod resp;
pub mod restart;
pub mod scale;
pub mod stages;
pub mod store;
pub mod throughput;
pub mod tools;

use crate::rpc::floors::CLIENT_CORE;
use anyhow::{Context as _, Result, ensure};
use report::Report;
use scale::Scale;
use std::path::PathBuf;
use store::Kind;
use thunderhead_load::machine::{self, pinned};

/// The comparison to run.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Arguments {
    /// Sections, separated by commas: tools, latency, throughput, durable, memory, churn, restart,
    /// idle. The default is all.
    #[arg(long, value_delimiter = ',', value_parser = SECTIONS.map(|(name, _)| name))]
    pub only: Vec<String>,
    /// Smaller and shorter: shows whether everything works, not how fast it is. Rows may fall
    /// short, with status 1.
    #[arg(long)]
    pub quick: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Also write the results into this page, between the marks `measured: begin` and `measured:
    /// end`, and the figures beside it.
    #[arg(long, value_name = "FILE.md")]
    pub write: Option<PathBuf>,
}

type Section = fn(&Scale, &[Kind], &mut Report) -> Result<()>;

/// All sections, in the order in which they are measured.
const SECTIONS: [(&str, Section); 8] = [
    ("tools", tools::run),
    ("latency", latency::run),
    ("throughput", throughput::run),
    ("durable", durable::run),
    ("memory", memory::run),
    ("churn", churn::run),
    ("restart", restart::run),
    ("idle", idle::run),
];

/// Debian's packages of the peers. It has no package of Valkey before its release 13.
const PACKAGES: [(Kind, &str); 3] =
    [(Kind::Redis, "redis-server"), (Kind::Memcached, "memcached"), (Kind::Etcd, "etcd-server")];

/// Measures and prints the comparison; returns false if a row falls short.
///
/// # Errors
/// When no peer is installed, or a measurement fails.
pub fn run(arguments: &Arguments) -> Result<bool> {
    arguments.write.as_deref().map_or(Ok(()), report::check)?;
    ensure!(machine::cores() >= 2, "client and server need a core each, and there is one");
    let kinds: Vec<Kind> =
        Kind::PEERS.into_iter().filter(|kind| kind.program().is_some()).collect();
    ensure!(
        !kinds.is_empty(),
        "none of the peers is installed; `cargo xtask compare` installs them, or as root: apt-get \
         install redis-server memcached etcd-server"
    );
    let scale = if arguments.quick { Scale::quick() } else { Scale::full() };
    machine::ensure_memory(memory_needed(&scale), "the size with --quick")?;
    let mut report = Report::named("peers");
    facts(arguments, &kinds, &mut report)?;
    for (kind, package) in PACKAGES.iter().filter(|(kind, _)| !kinds.contains(kind)) {
        let what = format!("{} is installed (Debian's package {package})", kind.name());
        report.rows.add(&what, "yes".into(), "no".into(), false);
    }
    let wanted =
        |name: &str| arguments.only.is_empty() || arguments.only.iter().any(|it| it == name);
    for (name, section) in SECTIONS.iter().filter(|(name, _)| wanted(name)) {
        let outcome = pinned(CLIENT_CORE, || section(&scale, &kinds, &mut report));
        outcome.with_context(|| format!("measure {name}"))?;
    }
    if let Some(page) = &arguments.write {
        report.write(page)?;
    }
    report.show(arguments.json)
}

/// Returns the most memory of a store together with the client.
fn memory_needed(scale: &Scale) -> u64 {
    let counts = scale.counts.iter().max().copied().unwrap_or(0) * 1_500;
    let churn = scale.live_bytes * 4;
    let restart = scale.restart_bytes * 3;
    counts.max(churn).max(restart).max(scale.memory_bytes() * 4)
}

fn facts(arguments: &Arguments, kinds: &[Kind], report: &mut Report) -> Result<()> {
    let mut command = String::from("thunderhead-bench evaluate peers");
    if !arguments.only.is_empty() {
        command = format!("thunderhead-bench peers --only {}", arguments.only.join(","));
    }
    if arguments.quick {
        command += " --quick";
    }
    report.fact("command", format!("`{command}`"));
    report.fact("date", today());
    report.fact("machine", machine_is());
    report.fact("Thunderhead", Kind::Thunderhead.version()?);
    for kind in kinds {
        report.fact(kind.name(), kind.version()?);
    }
    if !kinds.contains(&Kind::Valkey) {
        let text = "not on this machine (Debian 12 has no package of it); a `valkey-server` in the \
                    path is measured too";
        report.fact("Valkey", text);
    }
    Ok(())
}

/// Returns a description of the machine, as far as it is available.
pub(crate) fn machine_is() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let text = read("/proc/cpuinfo");
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let system = read("/proc/sys/kernel/osrelease");
    let memory = machine::available_bytes().unwrap_or(0) >> 30;
    let load = read("/proc/loadavg");
    format!(
        "{} cores of {}, {memory} GiB of memory available, Linux {}, load before {}",
        machine::cores(),
        model.unwrap_or("some kind"),
        system.trim(),
        load.split(' ').next().unwrap_or("unknown")
    )
}

/// Converts days since 1970 to year, month, day.
fn date(days: u64) -> String {
    let (mut days, mut year) = (days, 1970);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", days + 1)
}

/// Returns today's date.
pub(crate) fn today() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    date(since.map_or(0, |it| it.as_secs() / 86_400))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates() {
        for (days, expected) in [(0, "1970-01-01"), (59, "1970-03-01"), (11_016, "2000-02-29")] {
            assert_eq!(date(days), expected);
        }
        assert_eq!(date(20_453), "2025-12-31");
        assert_eq!(date(20_454), "2026-01-01");
    }
}
