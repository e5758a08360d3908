//! Workers as threads.

use super::disk::Directory;
use super::slices::{self, Slice};
use crate::workers::{Step, Worker, WorkerBell, Workers};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// Workers of this process that have something to do, whether a disk keeps them waiting or not.
static WORKING: AtomicUsize = AtomicUsize::new(0);

/// Whether a worker of this process has something to do: it may be waiting for a core.
#[inline]
pub(super) fn some_work() -> bool {
    WORKING.load(Ordering::Relaxed) > 0
}

/// The threads of a process. Dropping it ends them, each after the step it is in.
#[derive(Debug)]
pub struct Threads {
    directory: Directory,
    stop: Arc<AtomicBool>,
    running: Vec<(WorkerBell, JoinHandle<()>)>,
}

impl Threads {
    /// No threads yet; theirs will be the files of this directory.
    #[must_use]
    pub fn new(directory: Directory) -> Threads {
        Threads { directory, stop: Arc::default(), running: Vec::new() }
    }
}

/// Starts a thread that nobody waits for: it ends when its work does. For libraries that have a
/// reactor of their own inside somebody else's program.
///
/// # Errors
/// When there can be no further thread.
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
            // The reactor, whose thread this is, lets it go first.
            slices::set(Slice::Longer);
        }
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            // It has that of who started it.
            slices::set(slice);
            while !stop.load(Ordering::SeqCst) {
                let _ = rings.was_rung();
                let working = Working::begin();
                while worker.step(&mut files) == Step::Again && !stop.load(Ordering::SeqCst) {}
                drop(working);
                rings.wait();
            }
        })?;
        self.running.push((bell.clone(), thread));
        Ok(bell)
    }
}

/// Counts a worker while it has something to do, also where it panics.
struct Working;

impl Working {
    fn begin() -> Working {
        WORKING.fetch_add(1, Ordering::Relaxed);
        Working
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        WORKING.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        for (bell, thread) in self.running.drain(..) {
            bell.ring();
            // A worker that panicked has said so already.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::world_without_files;

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
