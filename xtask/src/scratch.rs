//! Temporary directories, and processes that end with their owner.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// The time for the orderly end of a server, and the time between two looks at it.
const ENDING: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(10);

/// A temporary directory, which is removed with its contents.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes the directory of this process for a purpose. It is outside of the repository.
    pub(crate) fn new(purpose: &str) -> Result<Scratch> {
        let name = format!("thunderhead-{purpose}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // A killed run of a process with the same id may have left one.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).with_context(|| format!("make {}", path.display()))?;
        Ok(Scratch(path))
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.0
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If the directory is gone already, nothing is left to do.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process that is killed when its owner ends.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn start(mut command: Command, name: &str) -> Result<Running> {
        command.spawn().map(Running).with_context(|| format!("start {name}"))
    }

    /// Lets a server end in order, so that it leaves no memory behind in `/dev/shm`. A server that
    /// does not end in time is killed.
    pub(crate) fn end(mut self) {
        let id = self.0.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &id]).status();
        let until = Instant::now() + ENDING;
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // If the process has ended already, nothing is left to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
