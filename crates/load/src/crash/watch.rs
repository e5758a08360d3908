//! The reports of a cluster about itself while it loses a server, observed from outside by asking
//! the coordinator repeatedly.

use super::Deadline;
use super::members::View;
use anyhow::Result;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thunderhead_client::control::{ClusterStatus, RecoveryInfo, ServerState, TabletInfo};
use thunderhead_client::{Client, MasterId, ServerId};
use thunderhead_wire::Generation;

/// The interval at which the coordinator is asked.
const LOOK: Duration = Duration::from_millis(5);

/// The interval at which shards are asked for their progress.
const LOOK_AT_SHARDS: Duration = Duration::from_millis(100);

/// The state before the crash.
#[derive(Clone, Debug)]
pub struct Before {
    /// Each server's generation before the crash.
    pub lives: BTreeMap<ServerId, Generation>,
    /// The server that crashes.
    pub victim: ServerId,
    /// Its masters.
    pub masters: Vec<MasterId>,
    /// Their tablets.
    pub tablets: Vec<TabletInfo>,
}

/// An observed event.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Event {
    /// Seconds since the crash.
    pub at: f64,
    /// A description.
    pub what: String,
}

/// All observations of a run.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// When the cluster declared the server crashed.
    pub detected: Option<Instant>,
    /// When all its tablets were served again.
    pub owned: Option<Instant>,
    /// Servers that were declared crashed, or that began a new generation, although nothing was
    /// wrong with them.
    pub false_verdicts: Vec<String>,
    /// All events with their times.
    pub events: Vec<Event>,
}

struct Watch<'a> {
    before: &'a Before,
    crashed: Instant,
    seen: Seen,
    tell: &'a dyn Fn(f64, &str),
    said: BTreeMap<String, String>,
}

impl Watch<'_> {
    /// Reports a change of a topic.
    fn say(&mut self, topic: &str, what: String) {
        let old = self.said.insert(topic.to_owned(), what.clone());
        if old.is_none_or(|old| old != what) {
            let at = self.crashed.elapsed().as_secs_f64();
            (self.tell)(at, &what);
            self.seen.events.push(Event { at, what });
        }
    }

    fn look(&mut self, status: &ClusterStatus) {
        let servers = &status.servers.servers;
        for (server, life) in &self.before.lives {
            let now = servers.iter().find(|it| it.server == *server);
            let what = match now {
                None => format!("{server} is no longer in the list"),
                Some(it) if it.generation > *life => {
                    format!("{server} begins generation {}", it.generation)
                }
                Some(it) if it.state == ServerState::Down => {
                    format!("{server} is declared crashed")
                }
                Some(_) => continue,
            };
            if *server == self.before.victim {
                self.seen.detected.get_or_insert_with(Instant::now);
            } else if !self.seen.false_verdicts.contains(&what) {
                self.seen.false_verdicts.push(what.clone());
            }
            self.say(&format!("server {server}"), what);
        }
        for recovery in &status.recoveries {
            self.say(&format!("recovery {}", recovery.crashed), words(recovery));
        }
        let total = self.before.tablets.len();
        let away = homeless(status, self.before);
        if self.seen.detected.is_some() {
            self.say("tablets", format!("{} of {total} parts have a server", total - away));
            if away == 0 {
                self.seen.owned.get_or_insert_with(Instant::now);
            }
        }
    }

    fn look_at_shards(&mut self, client: &mut Client, status: &ClusterStatus) {
        let up = status.servers.servers.iter().filter(|it| it.state == ServerState::Up);
        let addresses: Vec<_> = up.flat_map(|it| &it.shards).map(|it| it.address).collect();
        let (mut done, mut of, mut shards) = (0, 0, 0);
        for address in addresses {
            if let Ok(status) = client.shard_status(address)
                && let Some((own_done, own_of)) = status.recovering
            {
                shards += 1;
                done += own_done;
                of += own_of;
            }
        }
        if shards > 0 {
            let mut what = format!("{shards} servers rebuild: {} MB", done / 1_000_000);
            if of > done {
                let _ = write!(what, " of {} MB", of / 1_000_000);
            }
            self.say("bytes", what);
        }
    }
}

/// Describes a recovery, without the figures that change continuously.
fn words(recovery: &RecoveryInfo) -> String {
    let RecoveryInfo { crashed, by, trouble, stage, partitions, partitions_left, bytes, .. } =
        recovery;
    let mut text = format!("recovery of {crashed}: {stage}");
    match stage.as_str() {
        "rebuilding" => {
            let megabytes = bytes / 1_000_000;
            let masters: Vec<String> = recovery.masters.iter().map(ToString::to_string).collect();
            let _ = write!(
                text,
                ", {megabytes} MB in {partitions} parts, {partitions_left} of them left, by {}",
                masters.join(", ")
            );
        }
        "" => {
            text = by.map_or_else(
                || format!("{crashed} has no recovery masters yet"),
                |by| format!("{crashed} is recovered by {by}"),
            )
        }
        _ => {}
    }
    if let Some(trouble) = trouble {
        let _ = write!(text, "; {trouble}");
    }
    text
}

/// Counts the crashed server's tablets that are not yet served in full.
fn homeless(status: &ClusterStatus, before: &Before) -> usize {
    let tablets = || status.map.tables.iter().flat_map(|it| &it.tablets);
    let is_away = |was: &&TabletInfo| {
        let mut now = tablets().filter(|it| it.first <= was.last && was.first <= it.last);
        now.any(|it| it.address.is_none() || before.masters.contains(&it.master))
    };
    before.tablets.iter().filter(is_away).count()
}

/// Watches a cluster from a crash on until it is told to stop. `tell` receives each change.
///
/// # Errors
/// When the cluster cannot be reached to begin with.
pub fn watch(
    cluster: View,
    before: &Before,
    crashed: Instant,
    stop: &AtomicBool,
    tell: &dyn Fn(f64, &str),
) -> Result<Seen> {
    let mut client = cluster.client(Deadline::SHORT)?;
    let mut shards = cluster.client(Deadline::SHORT)?;
    let seen = Seen::default();
    let mut watch = Watch { before, crashed, seen, tell, said: BTreeMap::new() };
    let mut looked_at = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        if let Ok(status) = client.status() {
            watch.look(&status);
            if watch.seen.detected.is_some() && looked_at.elapsed() > LOOK_AT_SHARDS {
                watch.look_at_shards(&mut shards, &status);
                looked_at = Instant::now();
            }
        }
        std::thread::sleep(LOOK);
    }
    Ok(watch.seen)
}
