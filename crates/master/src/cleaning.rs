//! The log's cleaners as workers beside the reactor.
//!
//! A worker sleeps until its bell is rung, then steps its cleaner until that finds nothing to do.
//! The reactor rings at the end of a turn where memory is short and something has changed since it
//! last rang, or where a write was refused because the cleaners are behind.

use std::io;
use thunderhead_log::{Cleaner, Log, Step as Cleaned};
use thunderhead_runtime::files::Files;
use thunderhead_runtime::workers::{Step, Worker, WorkerBell, Workers};
use thunderhead_wire::LogPosition;

struct CleanerWorker(Cleaner);

impl Worker for CleanerWorker {
    fn step(&mut self, _: &mut dyn Files) -> Step {
        match self.0.step() {
            Cleaned::Idle => Step::Idle,
            _ => Step::Again,
        }
    }
}

/// The bells of the cleaners.
#[derive(Default)]
pub(crate) struct Cleaning {
    bells: Vec<WorkerBell>,
    /// How far the log was when they were rung.
    rung_at: (LogPosition, LogPosition),
    /// A writer waits for memory.
    pub(crate) is_urgent: bool,
}

impl Cleaning {
    pub(crate) fn start(
        &mut self,
        log: &Log,
        workers: &mut dyn Workers,
        count: usize,
    ) -> io::Result<usize> {
        for _ in 0..count {
            let Some(cleaner) = log.cleaner() else { break };
            let bell = workers.start("cleaner", Box::new(CleanerWorker(cleaner)))?;
            self.bells.push(bell);
        }
        Ok(self.bells.len())
    }

    /// Wakes the cleaners to look for objects that have expired.
    pub(crate) fn ring(&self) {
        self.bells.iter().for_each(WorkerBell::ring);
    }

    #[inline]
    pub(crate) fn turn_over(&mut self, log: &Log) {
        if self.bells.is_empty() || !(self.is_urgent || log.wants_cleaning()) {
            return;
        }
        let at = (log.appended(), log.durable());
        if std::mem::take(&mut self.is_urgent) || at != self.rung_at {
            self.rung_at = at;
            self.bells.iter().for_each(WorkerBell::ring);
        }
    }
}
