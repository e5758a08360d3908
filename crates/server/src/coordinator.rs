//! A coordinator on this machine, with a thread of its own.

use crate::generation::{Ended, GenerationState};
use crate::process::{EndOnPanic, Machine, set_process_limits};
use std::borrow::Cow;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thunderhead_coordinator::{Coordinator, Options};
use thunderhead_metastore::embedded::Embedded;
use thunderhead_metastore::{Key, Metastore, OpenError, etcd, zookeeper};
use thunderhead_net::os::{Options as NetOptions, OsTransport};
use thunderhead_rpc::Node;
use thunderhead_runtime::polling::Polling;
use thunderhead_runtime::{World, os};
use thunderhead_wire::frame::MEMBER;

/// How long a coordinator that ends waits until the metastore knows that it no longer leads.
const RESIGNING: Duration = Duration::from_secs(1);

/// How long a coordinator waits for a file that another process has locked. A killed process keeps
/// its files until the kernel has taken its memory back, which takes a while if it had much.
const KILLED_GONE: Duration = Duration::from_secs(2);

/// The pause between two attempts to lock the file.
const KILLED_LOOK: Duration = Duration::from_millis(10);

/// The location of a coordinator's metastore.
#[derive(Clone, Debug)]
pub enum MetastoreLocation {
    /// A file.
    File(PathBuf),
    /// The memory of this process: the state is lost when the process ends.
    Memory,
    /// etcd.
    Etcd {
        /// The addresses of etcd.
        endpoints: Vec<String>,
        /// The key below which the state is kept.
        root: Key,
    },
    /// ZooKeeper.
    ZooKeeper {
        /// The addresses of ZooKeeper.
        servers: Vec<String>,
        /// The node below which the state is kept.
        root: Key,
    },
}

impl fmt::Display for MetastoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetastoreLocation::File(path) => write!(f, "{}", path.display()),
            MetastoreLocation::Memory => write!(f, "memory"),
            MetastoreLocation::Etcd { root, .. } => write!(f, "etcd below {}", root.as_str()),
            MetastoreLocation::ZooKeeper { root, .. } => {
                write!(f, "ZooKeeper below {}", root.as_str())
            }
        }
    }
}

impl MetastoreLocation {
    /// Refuses a file that does not exist. The caller has created nothing before, neither on the
    /// file's disk nor in the place where that disk is mounted.
    fn check_existing(&self) -> io::Result<()> {
        match self {
            MetastoreLocation::File(path) if !is_file_there(path)? => Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!(
                    "there is no metastore at {self}: is its disk mounted? To create a new cluster there, \
                     unset coordinator.existing"
                ),
            )),
            _ => Ok(()),
        }
    }

    fn open(&self, world: &mut World) -> io::Result<Box<dyn Metastore>> {
        let alarm = world.alarm.clone();
        let workers = world.workers.as_mut();
        let driven = match self {
            MetastoreLocation::File(path) => {
                let (directory, name) = split(path)?;
                let path = os::Directory::open(directory)?.path_of(&name)?;
                let store = open(&path).map_err(io::Error::other)?;
                store.client(workers, alarm)?
            }
            MetastoreLocation::Memory => {
                let store = Embedded::in_memory().map_err(io::Error::other)?;
                store.client(workers, alarm)?
            }
            MetastoreLocation::Etcd { endpoints, root } => {
                let options = etcd::Options::new(endpoints.clone(), root.clone());
                etcd::client(&options, workers, alarm).map_err(io::Error::other)?
            }
            MetastoreLocation::ZooKeeper { servers, root } => {
                let options = zookeeper::Options::new(servers.clone(), root.clone());
                zookeeper::client(&options, workers, alarm).map_err(io::Error::other)?
            }
        };
        Ok(Box::new(driven))
    }
}

/// The directory and the name of the metastore's file.
fn split(path: &Path) -> io::Result<(&Path, Cow<'_, str>)> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path of the metastore names no file",
        ));
    };
    let directory = match directory.as_os_str().is_empty() {
        true => Path::new("."),
        false => directory,
    };
    Ok((directory, name.to_string_lossy()))
}

/// Returns whether there is a file at this path. Creates no directory.
fn is_file_there(path: &Path) -> io::Result<bool> {
    let (directory, name) = split(path)?;
    Ok(directory.try_exists()? && os::Directory::open(directory)?.path_of(&name)?.try_exists()?)
}

/// Opens a file that a killed process may still have locked.
#[allow(clippy::disallowed_methods, reason = "nothing runs yet, and no simulation comes here")]
fn open(path: &Path) -> Result<Embedded, OpenError> {
    let until = Instant::now() + KILLED_GONE;
    loop {
        match Embedded::open(path) {
            Err(OpenError::InUse { .. }) if Instant::now() < until => {
                std::thread::sleep(KILLED_LOOK);
            }
            opened => return opened,
        }
    }
}

/// The reason for the end of a coordinator whose thread panicked.
const THREAD_FAILED: &str = "the coordinator's thread failed";

/// Starts the coordinator's thread. If the thread panics, its generation ends.
fn spawn(
    generation: &GenerationState,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let generation = generation.clone();
    let guarded = move || {
        let _ends = EndOnPanic(&generation, THREAD_FAILED);
        work();
    };
    std::thread::Builder::new().name("coordinator".to_owned()).spawn(guarded)
}

/// A running coordinator.
#[derive(Debug)]
pub struct RunningCoordinator {
    generation: GenerationState,
    thread: JoinHandle<()>,
}

impl RunningCoordinator {
    /// Starts a coordinator.
    ///
    /// # Errors
    /// If the address is taken or the metastore cannot be used.
    pub fn start(
        options: Options,
        listen: SocketAddr,
        metastore: MetastoreLocation,
        machine: &Machine,
    ) -> io::Result<RunningCoordinator> {
        set_process_limits();
        let (ready, is_ready) = channel();
        let (generation, machine) = (GenerationState::new(), machine.clone());
        let of = generation.clone();
        let node = move || {
            let begun = begin(options, listen, &metastore, &machine, &of);
            match begun {
                Ok(mut node) => {
                    let _ = ready.send(Ok(()));
                    let clock = node.clock().clone();
                    let ends = || of.is_leaving() || of.ended().is_some();
                    os::run(&mut node, &clock, machine.polling, ends);
                    resign(&mut node, machine.polling);
                    of.end(Ended::Asked);
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                }
            }
        };
        let thread = spawn(&generation, node)?;
        match is_ready.recv() {
            Ok(begun) => begun?,
            Err(_) => return Err(io::Error::other("the coordinator's thread failed at its start")),
        }
        Ok(RunningCoordinator { generation, thread })
    }

    /// Returns the coordinator's address.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.generation.addresses().first().copied()
    }

    /// Returns the handle by which the coordinator is ended.
    #[must_use]
    pub fn generation(&self) -> &GenerationState {
        &self.generation
    }

    /// Waits until the coordinator has ended, and returns the reason.
    #[must_use]
    pub fn join(self) -> Ended {
        if self.thread.join().is_err() {
            return Ended::Failed(THREAD_FAILED.to_owned());
        }
        self.generation.ended().unwrap_or(Ended::Asked)
    }
}

/// Gives the leadership back, so that another coordinator leads at once. If the metastore does not
/// answer, the leadership expires by itself.
fn resign(node: &mut Node<Coordinator>, polling: Polling) {
    let (clock, handle) = (node.clock().clone(), node.service().handle());
    handle.resign();
    // This timer wakes the node in the end.
    node.tasks().spawn(node.tasks().sleep(RESIGNING));
    let by = clock.now() + RESIGNING;
    let ends = || handle.has_resigned() || clock.now() >= by;
    os::run(node, &clock, polling, ends);
}

fn begin(
    mut options: Options,
    listen: SocketAddr,
    metastore: &MetastoreLocation,
    machine: &Machine,
    generation: &GenerationState,
) -> io::Result<Node<Coordinator>> {
    if options.existing {
        metastore.check_existing()?;
    }
    options.store = metastore.to_string();
    let mut world = match metastore {
        MetastoreLocation::Memory => os::world_without_files()?,
        _ => os::world(&machine.directory)?,
    };
    let alarm = world.alarm.clone();
    let store = metastore.open(&mut world)?;
    // Callers rarely ask a coordinator, and it sleeps between their requests. Shared memory would
    // cost a quarter of a megabyte of rings for each caller, in both processes.
    let features = machine.net.features | MEMBER;
    let net = NetOptions { features, shared_memory: false, ..machine.net };
    let mut transport: Box<dyn thunderhead_net::Transport> =
        Box::new(OsTransport::new(&world, net)?);
    let address = transport.listen(listen).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot listen at {listen}: {error}"))
    })?;
    if options.address.is_empty() {
        options.address = address.to_string();
    }
    generation.join(address, alarm);
    let coordinator = Coordinator::new(store, options);
    Ok(Node::new(world, transport, coordinator))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coordinator_whose_thread_panics_ends_its_generation() {
        let generation = GenerationState::new();
        let thread = spawn(&generation, || panic!("as the test wants")).unwrap();
        assert!(thread.join().is_err());
        assert_eq!(generation.ended(), Some(Ended::Failed(THREAD_FAILED.to_owned())));
    }
}
