//! The workers of a simulated process: the simulation gives them steps.

use crate::files::Files;
use crate::workers::{Step, Worker, WorkerBell, Workers};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;

/// The workers of one process. Clones are handles to the same workers.
#[derive(Clone, Default)]
pub struct SimWorkers(Rc<RefCell<Vec<SimWorker>>>);

struct SimWorker {
    name: String,
    bell: WorkerBell,
    worker: Box<dyn Worker>,
    files: Box<dyn Files>,
}

/// Starts workers that use these files.
pub struct Starter {
    workers: SimWorkers,
    files: Box<dyn Fn() -> Box<dyn Files>>,
}

impl SimWorkers {
    /// Returns the starter of these workers.
    #[must_use]
    pub fn starter(&self, files: impl Fn() -> Box<dyn Files> + 'static) -> Starter {
        Starter { workers: self.clone(), files: Box::new(files) }
    }

    /// Returns the number of workers.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.borrow().len()
    }

    /// Whether a worker has work.
    #[must_use]
    pub fn is_ringing(&self, number: usize) -> bool {
        self.0.borrow().get(number).is_some_and(|it| it.bell.is_ringing())
    }

    /// Returns the name of a worker.
    #[must_use]
    pub fn name(&self, number: usize) -> String {
        self.0.borrow().get(number).map_or(String::new(), |it| it.name.clone())
    }

    /// Gives a worker a step. Its bell goes on ringing if it wants another.
    pub fn step(&self, number: usize) {
        let mut workers = self.0.borrow_mut();
        let Some(SimWorker { bell, worker, files, .. }) = workers.get_mut(number) else { return };
        let _ = bell.was_rung();
        if worker.step(files.as_mut()) == Step::Again {
            bell.ring();
        }
    }
}

impl Workers for Starter {
    fn start(&mut self, name: &str, worker: Box<dyn Worker>) -> io::Result<WorkerBell> {
        let bell = WorkerBell::new();
        let (name, files) = (name.to_owned(), (self.files)());
        self.workers.0.borrow_mut().push(SimWorker { name, bell: bell.clone(), worker, files });
        Ok(bell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::sim::disk::{DiskModel, SimDisk};

    struct Panics;

    impl Worker for Panics {
        fn step(&mut self, _: &mut dyn Files) -> Step {
            panic!("a worker that fails")
        }
    }

    #[test]
    #[should_panic(expected = "a worker that fails")]
    fn a_worker_that_panics_ends_the_simulation() {
        let disk = SimDisk::new(DiskModel::default(), Random::from_seed(1));
        let workers = SimWorkers::default();
        let mut starter = workers.starter(move || Box::new(disk.files()));
        starter.start("flusher", Box::new(Panics)).unwrap();
        workers.step(0);
    }
}
