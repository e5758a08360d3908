//! Runs clients for a time: their threads, the counts, and the progress reports.

use crate::machine;
use crate::workload::Kind;
use anyhow::{Result, anyhow};
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The longest distinguishable latency, in nanoseconds.
const LATENCY_MAX: u64 = 60_000_000_000;

/// The fewest messages of a thread for a meaningful result, however short the time was.
const MESSAGES_MIN: u64 = 100;

/// Turns of a client without an answer, between two readings of the clock.
const IDLE_TURNS: u32 = 64;

/// Returns a histogram of nanoseconds with a relative error of a thousandth.
#[must_use]
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX, 3).expect("the bounds are in order")
}

/// The results of one kind.
pub struct Kinds {
    /// The kind.
    pub kind: Kind,
    /// Latencies of its messages.
    pub latencies: Histogram<u64>,
    /// Objects in them.
    pub objects: u64,
}

/// The results of one second.
pub struct Second {
    /// Its number in the run, the warm-up included.
    pub number: u64,
    /// Objects.
    pub objects: u64,
    /// Latencies of all messages.
    pub latencies: Histogram<u64>,
}

/// The results of a run.
pub struct Tally {
    /// By kind.
    pub kinds: Vec<Kinds>,
    /// The measured time.
    pub seconds: f64,
    /// All full seconds, the warm-up included.
    pub timeline: Vec<Second>,
    /// How often the server was too busy.
    pub busy: u64,
    /// Operations that failed permanently.
    pub failures: Failures,
}

impl Tally {
    /// Objects a second.
    #[must_use]
    pub fn objects_per_second(&self) -> f64 {
        self.kinds.iter().map(|it| it.objects).sum::<u64>() as f64 / self.seconds
    }

    /// Messages a second.
    #[must_use]
    pub fn messages_per_second(&self) -> f64 {
        self.kinds.iter().map(|it| it.latencies.len()).sum::<u64>() as f64 / self.seconds
    }
}

/// Receives each completed operation: its kind, the number of objects, the latency.
pub type Record<'a> = dyn FnMut(Kind, u64, Duration) + 'a;

/// The durations of a run.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The time under load before the measurement.
    pub warm_up: Duration,
    /// The time of the measurement.
    pub duration: Duration,
}

/// A client that keeps requests in flight.
pub trait Work {
    /// Begins as many requests as allowed, and takes arrived answers; `record` receives each
    /// completed operation. Returns whether any answer had arrived.
    ///
    /// # Errors
    /// When an answer is wrong.
    fn turn(&mut self, record: &mut Record<'_>) -> Result<bool>;

    /// Waits for all requests in flight.
    ///
    /// # Errors
    /// When an answer is wrong.
    fn finish(&mut self) -> Result<()>;

    /// Returns the time of the last answer.
    fn now(&self) -> Instant;

    /// Returns how often a server was too busy.
    fn busy(&self) -> u64;

    /// Returns the operations that failed permanently, with the reasons of the first.
    fn failures(&self) -> Failures {
        Failures::default()
    }
}

/// Operations that failed.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    /// Their number.
    pub count: u64,
    /// The reasons of the first failures.
    pub reasons: Vec<String>,
}

/// The most reasons that are kept.
const REASONS_MAX: usize = 5;

impl Failures {
    /// Counts a failure.
    pub fn add(&mut self, reason: impl FnOnce() -> String) {
        self.count += 1;
        if self.reasons.len() < REASONS_MAX {
            self.reasons.push(reason());
        }
    }

    fn add_all(&mut self, other: Failures) {
        self.count += other.count;
        self.reasons.extend(other.reasons);
        self.reasons.truncate(REASONS_MAX);
    }
}

/// The results of a thread: by kind, the seconds, how often servers were busy, and failures.
type Outcome = (Vec<Kinds>, f64, u64, Failures);

/// One thread's clients.
struct Crew<'a, C> {
    clients: Vec<C>,
    times: Times,
    began: Instant,
    stop: &'a AtomicBool,
    tell: mpsc::Sender<Second>,
}

impl<C: Work> Crew<'_, C> {
    fn work(mut self) -> Result<Outcome> {
        let mut kinds: Vec<Kinds> = Vec::new();
        let mut second = Second { number: 0, objects: 0, latencies: histogram() };
        let start = self.began + self.times.warm_up;
        let end = start + self.times.duration;
        let (mut now, mut is_measured, mut idle) = (Instant::now(), false, 0);
        let mut next_second = self.began + Duration::from_secs(1);
        let (mut measured_from, mut measured) = (now, 0);
        let failed = |clients: &[C]| clients.iter().any(|it| it.failures().count > 0);
        while (now < end || (measured < MESSAGES_MIN && !failed(&self.clients)))
            && !self.stop.load(Ordering::Relaxed)
        {
            let mut arrived = false;
            for client in &mut self.clients {
                arrived |= client.turn(&mut |kind, objects, latency| {
                    let nanoseconds = (latency.as_nanos() as u64).clamp(1, LATENCY_MAX);
                    second.objects += objects;
                    second.latencies.saturating_record(nanoseconds);
                    if !is_measured {
                        return;
                    }
                    let place = kinds.iter().position(|it| it.kind == kind);
                    let place = place.unwrap_or_else(|| {
                        kinds.push(Kinds { kind, latencies: histogram(), objects: 0 });
                        kinds.len() - 1
                    });
                    measured += 1;
                    kinds[place].objects += objects;
                    kinds[place].latencies.saturating_record(nanoseconds);
                })?;
                now = client.now();
            }
            idle = if arrived { 0 } else { idle + 1 };
            if idle >= IDLE_TURNS {
                idle = 0;
                now = Instant::now();
            }
            if !is_measured && now >= start {
                (is_measured, measured_from) = (true, now);
            }
            if now >= next_second {
                next_second += Duration::from_secs(1);
                let number = second.number;
                let next = Second { number: number + 1, objects: 0, latencies: histogram() };
                // If another thread has failed, the receiver is gone.
                let _ = self.tell.send(std::mem::replace(&mut second, next));
            }
        }
        let seconds = (now - measured_from).as_secs_f64();
        self.clients.iter_mut().try_for_each(Work::finish)?;
        let mut failures = Failures::default();
        self.clients.iter().for_each(|client| failures.add_all(client.failures()));
        Ok((kinds, seconds, self.clients.iter().map(Work::busy).sum(), failures))
    }
}

/// Runs any kind of client on this many threads; `core` returns the core of each thread.
///
/// # Errors
/// When a client fails.
pub fn crews<C: Work>(
    clients: usize,
    threads: usize,
    core: &(impl Fn(usize) -> Option<usize> + Sync),
    make: &(impl Fn(usize) -> Result<C> + Sync),
    times: Times,
    progress: &mut dyn FnMut(&Second),
) -> Result<Tally> {
    let stop = &AtomicBool::new(false);
    let (tell, told) = mpsc::channel();
    let began = Instant::now();
    std::thread::scope(|scope| {
        let crews: Vec<_> = (0..threads)
            .map(|thread| {
                let tell = tell.clone();
                scope.spawn(move || {
                    if let Some(core) = core(thread) {
                        machine::pin(core);
                    }
                    let clients = (thread..clients).step_by(threads);
                    let clients: Result<_> = clients.map(make).collect();
                    let crew = clients.map(|clients| Crew { clients, times, began, stop, tell });
                    let outcome = crew.and_then(Crew::work);
                    if outcome.is_err() {
                        stop.store(true, Ordering::Relaxed);
                    }
                    outcome
                })
            })
            .collect();
        drop(tell);
        let mut timeline: Vec<(Second, usize)> = Vec::new();
        for second in told {
            let place = timeline.iter().position(|(it, _)| it.number == second.number);
            let place = place.unwrap_or_else(|| {
                let number = second.number;
                timeline.push((Second { number, objects: 0, latencies: histogram() }, 0));
                timeline.len() - 1
            });
            let (sum, crews) = &mut timeline[place];
            sum.objects += second.objects;
            sum.latencies.add(&second.latencies)?;
            *crews += 1;
            if *crews == threads {
                progress(sum);
            }
        }
        let mut kinds: Vec<Kinds> = Vec::new();
        let (mut seconds, mut busy, mut failures) = (0.0f64, 0, Failures::default());
        for crew in crews {
            let (theirs, took, was_busy, failed) =
                crew.join().map_err(|_| anyhow!("a client's thread panicked"))??;
            for their in theirs {
                match kinds.iter_mut().find(|it| it.kind == their.kind) {
                    Some(it) => {
                        it.objects += their.objects;
                        it.latencies.add(&their.latencies)?;
                    }
                    None => kinds.push(their),
                }
            }
            (seconds, busy) = (seconds.max(took), busy + was_busy);
            failures.add_all(failed);
        }
        kinds.sort_by_key(|it| it.kind);
        let full = timeline.into_iter().filter(|(_, crews)| *crews == threads);
        let timeline = full.map(|(second, _)| second).collect();
        Ok(Tally { kinds, seconds, timeline, busy, failures })
    })
}
