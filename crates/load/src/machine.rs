//! The machine's figures that benchmarks need: cores, processor time, resident memory.

use anyhow::Context as _;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Pins the calling thread to one core, if the machine has it. With the writer on one core and
/// cleaners on the others, a run measures the code and not the scheduler.
pub fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core % cores());
    // If pinning is not allowed, the figures are noisier; nothing else changes.
    let _ = sched_setaffinity(None, &set);
}

/// Restores a thread's allowed cores when dropped.
struct Unpin(Option<CpuSet>);

impl Drop for Unpin {
    fn drop(&mut self) {
        if let Some(set) = &self.0 {
            // If this is not allowed, pinning was not allowed either.
            let _ = sched_setaffinity(None, set);
        }
    }
}

/// Runs the work with the calling thread pinned to one core, and restores its cores afterwards.
pub fn pinned<T>(core: usize, work: impl FnOnce() -> T) -> T {
    let _unpin = Unpin(sched_getaffinity(None).ok());
    pin(core);
    work()
}

/// Returns the number of cores that this process may use. It is counted once: a pinned thread would
/// count one core.
#[must_use]
pub fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES
        .get_or_init(|| std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get))
}

/// Returns the processor time of the whole process.
#[must_use]
pub fn process_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the processor time of the calling thread.
#[must_use]
pub fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A handle to a thread's processor time, for other threads of this process.
#[derive(Clone, Debug)]
pub struct Thread(PathBuf);

impl Thread {
    /// Returns the calling thread.
    #[must_use]
    pub fn own() -> Thread {
        let number = rustix::thread::gettid().as_raw_nonzero();
        Thread(PathBuf::from(format!("/proc/self/task/{number}/schedstat")))
    }

    /// Returns the thread with this file of scheduler statistics.
    #[must_use]
    pub fn of(schedstat: PathBuf) -> Thread {
        Thread(schedstat)
    }

    /// Returns its processor time, to within a tick of the scheduler while it runs.
    ///
    /// # Errors
    /// When the kernel does not report it.
    pub fn processor(&self) -> anyhow::Result<Duration> {
        let text = std::fs::read_to_string(&self.0)?;
        let nanoseconds = text.split_whitespace().next().and_then(|it| it.parse().ok());
        Ok(Duration::from_nanos(nanoseconds.context("read a thread's processor time")?))
    }
}

/// Returns the resident bytes of the process.
#[must_use]
pub fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Returns the bytes that processes can still allocate without swapping, if the system reports
/// them.
#[must_use]
pub fn available_bytes() -> Option<u64> {
    available_in(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn available_in(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// Refuses a run that needs more memory than the machine can give: it would swap, or the kernel
/// would kill a process. `flag` is the option to lower.
///
/// # Errors
/// When it does not fit.
pub fn ensure_memory(needed: u64, flag: &str) -> anyhow::Result<()> {
    fits(needed, available_bytes(), flag)
}

fn fits(needed: u64, available: Option<u64>, flag: &str) -> anyhow::Result<()> {
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let available = available.unwrap_or(u64::MAX);
    anyhow::ensure!(
        needed <= available,
        "this needs {} MiB of memory and the machine has {} MiB available; lower {flag}",
        mib(needed),
        mib(available)
    );
    Ok(())
}

/// Returns the seconds that a function takes, and its result.
pub fn seconds<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let began = Instant::now();
    let result = work();
    (began.elapsed().as_secs_f64(), result)
}

/// Returns the median.
#[must_use]
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_does_not_fit_is_refused_with_both_sizes() {
        let meminfo = "MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable:    2048 kB\n";
        let available = available_in(meminfo);
        assert_eq!(available, Some(2 << 20));
        fits(2 << 20, available, "--live").unwrap();
        let text = fits(5 << 20, available, "--live").unwrap_err().to_string();
        assert!(text.contains("5 MiB") && text.contains("2 MiB") && text.contains("--live"));
        fits(u64::MAX, available_in("nothing"), "--live").unwrap();
    }
}
