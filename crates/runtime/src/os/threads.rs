//! Workers as threads.
//!
//! A worker that panics ends the process. The reactor relies on its workers and does not watch
//! them: without its flusher, a backup would go on acknowledging data that never reaches the disk.
//! The cluster notices a process that ends, and the memory that outlasts it has the acknowledged
//! data.

use super::disk::Directory;
use super::slices::{self, Slice};
use crate::workers::{Step, Worker, WorkerBell, Workers};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// The number of this process's workers that have work, even if they wait for a disk.
static WORKING: AtomicUsize = AtomicUsize::new(0);

/// Whether a worker of this process has work: it may be waiting for a core.
#[inline]
pub(super) fn some_work() -> bool {
    WORKING.load(Ordering::Relaxed) > 0
}

/// The worker threads of a process. Dropping it ends them, each after its present step.
#[derive(Debug)]
pub struct Threads {
    directory: Directory,
    stop: Arc<AtomicBool>,
    running: Vec<(WorkerBell, JoinHandle<()>)>,
}

impl Threads {
    /// Returns an empty set. Its threads will use the files of this directory.
    #[must_use]
    pub fn new(directory: Directory) -> Threads {
        Threads { directory, stop: Arc::default(), running: Vec::new() }
    }
}

/// Starts a thread for which no other thread waits: it ends with its work. For libraries that run a
/// reactor inside a user's program.
///
/// # Errors
/// If the machine refuses another thread.
pub fn detach(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

impl Workers for Threads {
    fn start(&mut self, name: &str, mut worker: Box<dyn Worker>) -> io::Result<WorkerBell> {
        let bell = WorkerBell::new();
        let (rings, stop) = (bell.clone(), Arc::clone(&self.stop));
        let mut files = self.directory.clone();
        let slice = if worker.waits_for_devices() { Slice::Usual } else { Slice::Longest };
        if slice == Slice::Usual {
            // The calling thread is the reactor. It lets the worker go first.
            slices::set(Slice::Longer);
        }
        let watched = AbortOnPanic { worker: name.to_owned() };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let _watched = watched;
            // It has inherited the slice of the thread that started it.
            slices::set(slice);
            while !stop.load(Ordering::SeqCst) {
                let _ = rings.was_rung();
                let working = WorkingGuard::begin();
                while worker.step(&mut files) == Step::Again && !stop.load(Ordering::SeqCst) {}
                drop(working);
                rings.wait();
            }
        })?;
        self.running.push((bell.clone(), thread));
        Ok(bell)
    }
}

/// Ends the process if the worker's thread panics.
struct AbortOnPanic {
    worker: String,
}

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The panic's own message is on the standard error already. This message also reaches
            // the log.
            tracing::error!(worker = %self.worker, "a worker has panicked; the process ends");
            std::process::abort();
        }
    }
}

/// Counts a worker while it has work, even if it panics.
struct WorkingGuard;

impl WorkingGuard {
    fn begin() -> WorkingGuard {
        WORKING.fetch_add(1, Ordering::Relaxed);
        WorkingGuard
    }
}

impl Drop for WorkingGuard {
    fn drop(&mut self) {
        WORKING.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        for (bell, thread) in self.running.drain(..) {
            bell.ring();
            // A worker that panics has ended the process already.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Files;
    use crate::os::world_without_files;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// Set in the process whose worker panics.
    const PANICS: &str = "THUNDERHEAD_WORKER_PANICS";

    struct Panics;

    impl Worker for Panics {
        fn step(&mut self, _: &mut dyn Files) -> Step {
            panic!("a worker that fails")
        }
    }

    #[test]
    fn a_worker_that_panics_ends_the_process() {
        if std::env::var_os(PANICS).is_some() {
            let mut world = world_without_files().unwrap();
            world.workers.start("flusher", Box::new(Panics)).unwrap();
            // The reactor does not look at its worker, and would go on for ever.
            loop {
                std::thread::park();
            }
        }
        let name = "os::threads::tests::a_worker_that_panics_ends_the_process";
        let output = Command::new("timeout")
            .args(["10"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(PANICS, "1")
            .output()
            .unwrap();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(words.contains("a worker that fails") && words.contains("flusher"), "{words}");
        // `timeout` passes on its child's status, and returns 124 if it had to end the child.
        let aborted = output.status.signal() == Some(libc::SIGABRT)
            || output.status.code() == Some(128 + libc::SIGABRT);
        assert!(aborted, "{:?}: {words}", output.status);
    }

    #[test]
    fn a_program_without_files_has_none_and_its_threads_end_by_themselves() {
        let mut world = world_without_files().unwrap();
        assert!(world.files.open("name", true).is_err());
        assert!(world.files.list().is_err());
        let alarm = world.alarm.clone();
        let (tell, told) = std::sync::mpsc::channel();
        detach("detached", move || {
            alarm.ring();
            tell.send(()).unwrap();
        })
        .unwrap();
        told.recv().unwrap();
        assert!(world.alarm.was_rung());
    }
}
