//! Measurements of a crowd, or of a client over shared memory.

use super::crowd::{Crowd, Record, Source};
use super::protocol::Act;
use crate::operations::generator::Generator;
use crate::rpc::floors::latencies::Latencies;
use anyhow::{Context as _, Result};
use std::time::{Duration, Instant};
use thunderhead_load::channel::Channel;
use thunderhead_load::plan::Plan;
use thunderhead_load::workload::Workload;
use thunderhead_runtime::Random;

/// A client of a store.
pub trait Client {
    /// Takes arrived answers, and sends more requests.
    ///
    /// # Errors
    /// When an answer is wrong.
    fn turn(&mut self, record: &mut Record<'_>) -> Result<()>;

    /// Waits for all requests in flight.
    ///
    /// # Errors
    /// When an answer is wrong.
    fn finish(&mut self) -> Result<()>;
}

impl Client for Crowd<'_> {
    #[inline]
    fn turn(&mut self, record: &mut Record<'_>) -> Result<()> {
        Crowd::turn(self, record).map(drop)
    }

    fn finish(&mut self) -> Result<()> {
        Crowd::finish(self)
    }
}

impl Client for Generator {
    #[inline]
    fn turn(&mut self, record: &mut Record<'_>) -> Result<()> {
        Generator::turn(self, &mut |_, objects, latency| record(objects, latency)).map(drop)
    }

    fn finish(&mut self) -> Result<()> {
        Generator::finish(self)
    }
}

/// Returns an endless source of objects drawn at random.
#[must_use]
pub fn at_random(
    act: Act,
    objects: u64,
    value_bytes: usize,
    parts: usize,
    seed: u64,
) -> Source<'static> {
    let mut random = Random::from_seed(seed);
    Box::new(move |numbers| {
        (0..parts).for_each(|_| numbers.push(random.below(objects)));
        Some((act, value_bytes))
    })
}

/// Returns our client over shared memory.
///
/// # Errors
/// When it cannot connect.
pub fn over_shared_memory(
    store: &super::store::Store,
    act: Act,
    objects: u64,
    value_bytes: usize,
    depth: usize,
    parts: usize,
) -> Result<Generator> {
    let workload = match (act, parts) {
        (Act::Read, 1) => Workload::Read,
        (Act::Read, _) => Workload::MultiRead,
        (_, 1) => Workload::Write,
        _ => Workload::MultiWrite,
    };
    let plan = Plan { value_bytes, depth, parts, ..Plan::new(workload, objects) };
    let to = store.to().context("only Thunderhead is reached over shared memory")?;
    Generator::new(&plan, Channel::Shm, to, 0)
}

/// A rate over some time, after a warm-up of a tenth of that, and the latencies.
#[derive(Clone, Debug)]
pub struct Rate {
    /// Objects a second.
    pub per_second: f64,
    /// Latencies of requests.
    pub latencies: Latencies,
}

/// Measures a rate. Requests in flight stay so, and the next measurement continues with them.
///
/// # Errors
/// When an answer is wrong.
pub fn rate(client: &mut dyn Client, duration: Duration) -> Result<Rate> {
    let warm = Instant::now() + duration / 10;
    while Instant::now() < warm {
        (0..64).try_for_each(|_| client.turn(&mut |_, _| {}))?;
    }
    let (mut done, mut latencies) = (0, Latencies::new());
    let began = Instant::now();
    let end = began + duration;
    loop {
        for _ in 0..64 {
            client.turn(&mut |objects, latency| {
                done += objects;
                latencies.record(latency);
            })?;
        }
        let now = Instant::now();
        if now >= end {
            return Ok(Rate { per_second: done as f64 / (now - began).as_secs_f64(), latencies });
        }
    }
}

/// Measures the latencies of this many requests, after a warm-up of a tenth as many. No request is
/// in flight at the end.
///
/// # Errors
/// When an answer is wrong.
pub fn latencies(client: &mut dyn Client, rounds: u64) -> Result<Latencies> {
    let (mut latencies, mut seen, warm_up) = (Latencies::new(), 0, rounds / 10);
    while seen < rounds + warm_up {
        client.turn(&mut |_, latency| {
            seen += 1;
            if seen > warm_up {
                latencies.record(latency);
            }
        })?;
    }
    Ok(latencies)
}
