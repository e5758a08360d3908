//! Those who use a cluster while it loses a server: two who write at full speed, one the objects of
//! the server that goes, one those of the others; some who try to read what it had, from the moment
//! on at which it goes; and perhaps one who reads what the others have.

use super::Deadline;
use super::members::{self, View};
use super::objects::{Objects, is_in};
use crate::operations::content::key;
use crate::operations::run::histogram;
use anyhow::Result;
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thunderhead_client::KeyHash;
use thunderhead_client::control::TabletInfo;

/// Objects in a request of a writer.
const TOGETHER: usize = 64;

/// Threads that try to read, and objects that each of them looks at.
const PROBES: usize = 8;
const PROBED: usize = 32;

/// Failures that are told.
const EXAMPLES: usize = 5;

/// What a writer did.
#[derive(Default)]
pub struct Written {
    /// Objects that it was told are written.
    pub acknowledged: u64,
    /// Objects that it was told are not, or may not be.
    pub failed: u64,
    /// Some of the reasons.
    pub failures: Vec<String>,
    /// The longest time without an answer, from the crash on.
    pub longest_pause: Duration,
    /// When that was over.
    pub again: Option<Instant>,
}

/// Writes the objects that are (or are not) in some tablets, until it is told to stop. `crashed` says
/// when the server went.
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
        let results = client.write_many(objects.table, writes);
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

/// What is to be read of some tablets: for each thread some objects whose hashes are near each
/// other, evenly over the tablets.
#[must_use]
pub fn to_probe(objects: &Objects, tablets: &[TabletInfo]) -> Vec<Vec<u64>> {
    // Enough of them that each part of a tablet has some.
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

/// When the first and the last of some objects could be read, from now on.
pub fn probe(cluster: View, objects: &Objects, numbers: &[u64], stop: &AtomicBool) -> Probed {
    let mut probed = Probed::default();
    let Ok(mut client) = cluster.client(Deadline::OF_PROBE) else { return probed };
    for number in numbers {
        while client.read(objects.table, &key(*number)).is_err() {
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

/// What one who tries to read found.
#[derive(Clone, Copy, Default)]
pub struct Probed {
    /// When the first one could be read.
    pub first: Option<Instant>,
    /// When the last one could.
    pub last: Option<Instant>,
    /// All could be read.
    pub all: bool,
}

/// How long reads took of what the others have.
pub struct Latencies {
    /// Until the crash.
    pub before: Histogram<u64>,
    /// From the crash until everything could be read again.
    pub during: Histogram<u64>,
    /// Reads that failed.
    pub failed: u64,
}

/// Reads objects of some tablets until it is told to stop, beside the server that has a core apart.
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
        let result = client.read(objects.table, &key(*number));
        let took = began.elapsed().as_nanos() as u64;
        match (result, crashed()) {
            (Err(_), _) => latencies.failed += 1,
            (Ok(_), None) => latencies.before.saturating_record(took),
            (Ok(_), Some(_)) => latencies.during.saturating_record(took),
        }
    }
    Ok(latencies)
}
