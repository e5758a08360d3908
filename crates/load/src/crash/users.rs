//! The clients of a cluster that loses a server. Two write at full speed: one the objects of the
//! crashed server, one those of the others. Several try to read the crashed server's objects, from
//! the crash on. One may read the other servers' objects.

use super::Deadline;
use super::members::{self, View};
use super::objects::{Objects, is_in};
use crate::content::key;
use crate::run::histogram;
use anyhow::Result;
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thunderhead_client::KeyHash;
use thunderhead_client::control::TabletInfo;

/// Objects in a request of a writer.
const TOGETHER: usize = 64;

/// Threads that try to read, and the number of objects for each of them.
const PROBES: usize = 8;
const PROBED: usize = 32;

/// The most failures that are reported.
const EXAMPLES: usize = 5;

/// The results of a writer.
#[derive(Default)]
pub struct Written {
    /// Acknowledged writes.
    pub acknowledged: u64,
    /// Writes that failed or whose outcome is unknown.
    pub failed: u64,
    /// Some of the reasons.
    pub failures: Vec<String>,
    /// The longest time without an answer after the crash.
    pub longest_pause: Duration,
    /// The end of that time.
    pub again: Option<Instant>,
}

/// Writes the objects in (or outside of) some tablets, until it is told to stop. `crashed` holds
/// the time of the crash.
///
/// # Errors
/// When the cluster cannot be reached to begin with.
pub fn write(
    cluster: View,
    deadline: Duration,
    objects: &Objects,
    tablets: &[TabletInfo],
    inside: bool,
    stop: &AtomicBool,
    crashed: &dyn Fn() -> Option<Instant>,
) -> Result<Written> {
    let mut client = cluster.client(deadline)?;
    let mut written = Written::default();
    let mut next = 0;
    let mut before = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let mut numbers = Vec::with_capacity(TOGETHER);
        for _ in 0..objects.count {
            let number = next;
            next = if next + 1 >= objects.count { 0 } else { next + 1 };
            if is_in(tablets, number) == inside {
                numbers.push(number);
                if numbers.len() == TOGETHER {
                    break;
                }
            }
        }
        if numbers.is_empty() {
            break;
        }
        let writes: Vec<_> = numbers.iter().map(|number| objects.next_write(*number)).collect();
        let results = client.put_many(objects.table, writes);
        let now = Instant::now();
        let mut some = false;
        for (number, result) in numbers.iter().zip(results) {
            match result {
                Ok(_) => {
                    some = true;
                    objects.acknowledged(*number);
                    written.acknowledged += 1;
                }
                Err(error) => {
                    written.failed += 1;
                    if written.failures.len() < EXAMPLES {
                        written.failures.push(format!("write of object {number}: {error}"));
                    }
                }
            }
        }
        if let Some(crashed) = crashed()
            && now > crashed
            && some
        {
            let pause = now - before.max(crashed);
            if pause > written.longest_pause {
                (written.longest_pause, written.again) = (pause, Some(now));
            }
        }
        before = now;
    }
    Ok(written)
}

/// Returns the objects to read from some tablets: for each thread objects with neighbouring hashes,
/// evenly spread over the tablets.
#[must_use]
pub fn to_probe(objects: &Objects, tablets: &[TabletInfo]) -> Vec<Vec<u64>> {
    // Enough candidates that each part of a tablet has some.
    let stride = (objects.count / 50_000).max(1);
    let mut hashes: Vec<(KeyHash, u64)> = (0..objects.count)
        .step_by(stride as usize)
        .filter(|number| is_in(tablets, *number))
        .map(|number| (KeyHash::of(&key(number)), number))
        .collect();
    hashes.sort_unstable();
    let step = (hashes.len() / (PROBES * PROBED)).max(1);
    let mut chosen: Vec<u64> = hashes.iter().step_by(step).map(|(_, number)| *number).collect();
    // The last one belongs to the last part.
    chosen.extend(hashes.last().map(|(_, number)| *number));
    let share = chosen.len().div_ceil(PROBES).max(1);
    chosen.chunks(share).map(<[u64]>::to_vec).collect()
}

/// Waits until the given objects can be read; returns the times of the first and the last success.
pub fn probe(cluster: View, objects: &Objects, numbers: &[u64], stop: &AtomicBool) -> Probed {
    let mut probed = Probed::default();
    let Ok(mut client) = cluster.client(Deadline::OF_PROBE) else { return probed };
    for number in numbers {
        while client.get(objects.table, &key(*number)).is_err() {
            if stop.load(Ordering::Relaxed) {
                return probed;
            }
        }
        let now = Instant::now();
        probed.first.get_or_insert(now);
        probed.last = Some(now);
    }
    probed.all = true;
    probed
}

/// The results of a reader that tries again.
#[derive(Clone, Copy, Default)]
pub struct Probed {
    /// When the first object could be read.
    pub first: Option<Instant>,
    /// When the last object could be read.
    pub last: Option<Instant>,
    /// Whether all objects could be read.
    pub all: bool,
}

/// Latencies of reads of the other servers' objects.
pub struct Latencies {
    /// Before the crash.
    pub before: Histogram<u64>,
    /// From the crash until all data could be read again.
    pub during: Histogram<u64>,
    /// Reads that failed.
    pub failed: u64,
}

/// Reads objects of some tablets until it is told to stop, on the core of the server with a
/// separate core.
///
/// # Errors
/// When the cluster cannot be reached to begin with.
pub fn read(
    cluster: View,
    deadline: Duration,
    objects: &Objects,
    tablets: &[TabletInfo],
    stop: &AtomicBool,
    crashed: &dyn Fn() -> Option<Instant>,
) -> Result<Latencies> {
    members::pin_apart();
    let mut client = cluster.client(deadline)?;
    let inside: Vec<u64> =
        (0..objects.count).filter(|number| is_in(tablets, *number)).take(20_000).collect();
    let mut latencies = Latencies { before: histogram(), during: histogram(), failed: 0 };
    let mut numbers = inside.iter().cycle();
    while !stop.load(Ordering::Relaxed) {
        let Some(number) = numbers.next() else { break };
        let began = Instant::now();
        let result = client.get(objects.table, &key(*number));
        let took = began.elapsed().as_nanos() as u64;
        match (result, crashed()) {
            (Err(_), _) => latencies.failed += 1,
            (Ok(_), None) => latencies.before.saturating_record(took),
            (Ok(_), Some(_)) => latencies.during.saturating_record(took),
        }
    }
    Ok(latencies)
}
