//! What a cluster says of itself while it loses a server: seen from outside, by asking the coordinator
//! again and again.

use super::Deadline;
use super::members::View;
use anyhow::Result;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thunderhead_client::control::{ClusterStatus, RecoveryInfo, ServerState, TabletInfo};
use thunderhead_client::{Client, MasterId, ServerId};

/// How often the coordinator is asked.
const LOOK: Duration = Duration::from_millis(5);

/// How often shards are asked how far they are.
const LOOK_AT_SHARDS: Duration = Duration::from_millis(100);

/// Who is watched.
#[derive(Clone, Debug)]
pub struct Before {
    /// Each server's life before the crash.
    pub lives: BTreeMap<ServerId, u64>,
    /// Who goes.
    pub victim: ServerId,
    /// Its masters.
    pub masters: Vec<MasterId>,
    /// What they have.
    pub tablets: Vec<TabletInfo>,
}

/// Something that was seen.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Event {
    /// Seconds from the crash on.
    pub at: f64,
    /// What.
    pub what: String,
}

/// What was seen in the end.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// When the cluster said that the server is gone.
    pub detected: Option<Instant>,
    /// When all its tablets had somebody again.
    pub owned: Option<Instant>,
    /// Servers of whom it said the same, or that began a new life, though nothing was wrong with
    /// them.
    pub false_verdicts: Vec<String>,
    /// When what happened.
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
    /// Tells what is new of a topic.
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
                None => format!("{server} is not in the list any more"),
                Some(it) if it.generation > *life => {
                    format!("{server} begins life {}", it.generation)
                }
                Some(it) if it.state == ServerState::Down => format!("{server} is found dead"),
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

/// What is said of a recovery, without what changes all the time.
fn words(recovery: &RecoveryInfo) -> String {
    let RecoveryInfo { crashed, by, trouble, stage, partitions, partitions_left, bytes, .. } =
        recovery;
    let mut text = format!("what {crashed} had: {stage}");
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
                || format!("{crashed} is recovered by nobody yet"),
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

/// How many of the tablets that were the victim's have nobody who serves all of them.
fn homeless(status: &ClusterStatus, before: &Before) -> usize {
    let tablets = || status.map.tables.iter().flat_map(|it| &it.tablets);
    let is_away = |was: &&TabletInfo| {
        let mut now = tablets().filter(|it| it.first <= was.last && was.first <= it.last);
        now.any(|it| it.address.is_none() || before.masters.contains(&it.master))
    };
    before.tablets.iter().filter(is_away).count()
}

/// Watches a cluster from a crash on until it is told to stop. `tell` is told what is new.
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
