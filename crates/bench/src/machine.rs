//! What the benchmarks ask of the machine: cores, processor time, resident memory.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Keeps the calling thread on one core, if the machine has it. With the writer on one core and
/// cleaners on the others, a run measures the code and not the scheduler.
pub fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core % cores());
    // Where it is not allowed, the figures are noisier; nothing else changes.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// Cores that this process may use. Counted once: a thread that is pinned would count one.
#[must_use]
pub fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES
        .get_or_init(|| std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get))
}

/// Processor time of the whole process.
#[must_use]
pub fn process_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Processor time of the calling thread.
#[must_use]
pub fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Resident bytes of the process.
#[must_use]
pub fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Seconds that something takes.
pub fn seconds<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let began = Instant::now();
    let result = work();
    (began.elapsed().as_secs_f64(), result)
}

/// The middle of some figures.
#[must_use]
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
