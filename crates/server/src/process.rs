//! A server on this machine: a thread for each of its nodes.

use crate::door::DoorOptions;
use crate::door::cluster::Ports;
use crate::generation::{Ended, GenerationState};
use crate::options::Options;
use crate::server::Server;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use thunderhead_net::os::{Options as NetOptions, OsTransport};
use thunderhead_rpc::Node;
use thunderhead_runtime::os::{self, MemoryDirectory};
use thunderhead_runtime::polling::Polling;
use thunderhead_wire::KeyHash;
use thunderhead_wire::frame::{LONG_MESSAGES, MEMBER};

/// The pause before a server that was declared crashed begins a new generation.
const NEXT_LIFE_AFTER: Duration = Duration::from_secs(1);

/// With fewer descriptors than this, a server warns that they may not be enough.
const DESCRIPTORS_MIN: u64 = 4096;

/// The resources of the machine that the nodes of a process use.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The directory of the files.
    pub directory: PathBuf,
    /// The way in which reactors wait for work.
    pub polling: Polling,
    /// The options of the network.
    pub net: NetOptions,
}

/// A running server. Dropping this does not end the server: see [`RunningServer::join`].
#[derive(Debug)]
pub struct RunningServer {
    generation: GenerationState,
    threads: Vec<JoinHandle<()>>,
}

impl RunningServer {
    /// Starts a server, with a thread for each shard.
    ///
    /// # Errors
    /// If an address is taken, the directory cannot be used, or no thread can be started.
    pub fn start(options: Options, machine: &Machine) -> io::Result<RunningServer> {
        RunningServer::begin(&Arc::new(placed(options, machine)), machine, GenerationState::new())
    }

    /// Starts a server that begins a new generation whenever the cluster has declared it crashed.
    ///
    /// # Errors
    /// As [`RunningServer::start`].
    pub fn start_lasting(options: Options, machine: &Machine) -> io::Result<RunningServer> {
        let (options, machine) = (Arc::new(placed(options, machine)), machine.clone());
        let first = RunningServer::begin(&options, &machine, GenerationState::new())?;
        let generation = first.generation.clone();
        let minder = move || begin_again(first, &options, &machine);
        let thread = std::thread::Builder::new().name("server".to_owned()).spawn(minder)?;
        Ok(RunningServer { generation, threads: vec![thread] })
    }

    fn begin(
        options: &Arc<Options>,
        machine: &Machine,
        generation: GenerationState,
    ) -> io::Result<RunningServer> {
        set_process_limits();
        let mut threads = Vec::new();
        // All nodes listen before any begins: the first one sends all addresses to the coordinator.
        let mut go = Vec::new();
        for number in 0..options.listen.len() {
            let (ready, is_ready) = channel();
            let (begin, may_begin) = channel();
            let (options, machine, of) = (Arc::clone(options), machine.clone(), generation.clone());
            let node = move || run(&options, &machine, &of, number, &ready, &may_begin);
            let name = format!("shard-{number}");
            threads.push(std::thread::Builder::new().name(name).spawn(node)?);
            go.push(begin);
            match is_ready.recv() {
                Ok(listens) => listens?,
                Err(_) => return Err(io::Error::other("a shard's thread failed at its start")),
            }
        }
        for begin in go {
            // The shard's thread waits for this.
            let _ = begin.send(());
        }
        Ok(RunningServer { generation, threads })
    }

    /// Returns the server's first generation. [`GenerationState::latest`] returns the present one.
    #[must_use]
    pub fn generation(&self) -> &GenerationState {
        &self.generation
    }

    /// Waits until the server has ended, and returns the reason.
    #[must_use]
    pub fn join(self) -> Ended {
        for thread in self.threads {
            // The panic itself was logged by the thread.
            if thread.join().is_err() {
                self.generation.end(Ended::Failed("a thread of the server failed".to_owned()));
            }
        }
        self.generation.latest().ended().unwrap_or(Ended::Asked)
    }
}

/// Sets the place of the storage: a hash of host name, directory and configured port. The place
/// stays the same if the disk is not mounted or a link leads elsewhere. It includes the port
/// because containers may share a host name while each has another volume at `/data`. It does not
/// include the address, which may change at each start.
fn placed(mut options: Options, machine: &Machine) -> Options {
    let directory = std::path::absolute(&machine.directory);
    let directory = directory.unwrap_or_else(|_| machine.directory.clone());
    let port = options.listen.first().map_or(0, SocketAddr::port).to_le_bytes();
    let directory = directory.as_os_str().as_encoded_bytes();
    let place = [options.host.as_bytes(), b"\0", directory, b"\0", &port].concat();
    if let Some(backup) = &mut options.backup {
        backup.place = KeyHash::of(&place).0.max(1);
    }
    options
}

/// Waits for the end of a server's generation and begins the next one, until the server is asked to
/// end.
fn begin_again(first: RunningServer, options: &Arc<Options>, machine: &Machine) {
    let mut running = first;
    loop {
        let generation = running.generation.clone();
        let why = running.join();
        if why != Ended::Deposed {
            return;
        }
        tracing::warn!("{why}; the server begins a new generation");
        if !generation.is_leaving() {
            // If another process has the same id, each deposes the other: the pause slows that
            // down.
            #[allow(clippy::disallowed_methods, reason = "nothing else is to be done here")]
            std::thread::sleep(NEXT_LIFE_AFTER);
        }
        let next = generation.begin_next();
        if generation.is_leaving() {
            return next.end(Ended::Asked);
        }
        match RunningServer::begin(options, machine, next.clone()) {
            Ok(begun) => running = begun,
            Err(error) => {
                let why = format!("the server cannot begin a new generation: {error}");
                return next.end(Ended::Failed(why));
            }
        }
    }
}

/// Sets the limits of the process: those of its heap, and the limit of descriptors to the highest
/// that the system allows, because each connection takes one.
pub(crate) fn set_process_limits() {
    os::fix_heap_limits();
    let limit = match os::raise_descriptor_limit() {
        Ok(limit) => limit,
        Err(error) => {
            tracing::warn!("the limit of open files cannot be raised: {error}");
            os::descriptor_limit()
        }
    };
    static HAS_WARNED: AtomicBool = AtomicBool::new(false);
    if limit < DESCRIPTORS_MIN && !HAS_WARNED.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            limit,
            "the limit of open files is low: raise the hard limit (ulimit -Hn) for more clients"
        );
    }
}

/// Ends the generation for this reason if the thread panics, so that the other threads do not wait
/// for it.
pub(crate) struct EndOnPanic<'a>(pub(crate) &'a GenerationState, pub(crate) &'static str);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end(Ended::Failed(self.1.to_owned()));
        }
    }
}

fn run(
    options: &Arc<Options>,
    machine: &Machine,
    generation: &GenerationState,
    number: usize,
    ready: &Sender<io::Result<()>>,
    may_begin: &Receiver<()>,
) {
    let _ends = EndOnPanic(generation, "a thread of the server failed");
    let begun = begin(options, machine, generation, number);
    let mut node = match begun {
        Ok(node) => {
            let _ = ready.send(Ok(()));
            node
        }
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    if may_begin.recv().is_ok() {
        let clock = node.clock().clone();
        os::run(&mut node, &clock, machine.polling, || generation.is_over());
    }
}

fn begin(
    options: &Arc<Options>,
    machine: &Machine,
    generation: &GenerationState,
    number: usize,
) -> io::Result<Node<Server>> {
    // Only the backup has files.
    let mut world = match options.backup {
        Some(_) => os::world(&machine.directory)?,
        None => os::world_without_files()?,
    };
    let buffers = options.backup.as_ref().and_then(|backup| backup.buffer_directory.as_deref());
    if let Some(buffers) = buffers {
        world.memories = Box::new(MemoryDirectory::at(buffers));
    }
    if number == 0 && options.backup.is_some() {
        // The check comes before the cluster knows of a server that cannot begin.
        world.memories.check(0).map_err(|error| {
            let why = format!("the buffers (the setting `buffer_directory`): {error}");
            io::Error::new(error.kind(), why)
        })?;
    }
    let alarm = world.alarm.clone();
    let features = machine.net.features | LONG_MESSAGES | MEMBER;
    let net = NetOptions { features, ..machine.net };
    let transport = Box::new(OsTransport::new(&world, net)?);
    let server = Server::new(Arc::clone(options), generation.clone(), number);
    let mut node = Node::new(world, transport, server);
    let at = options.listen.get(number).copied().ok_or(io::ErrorKind::InvalidInput)?;
    let mut address = node
        .listen(at)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot listen at {at}: {error}")))?;
    if let Some(ip) = options.advertise {
        address.set_ip(ip);
    }
    if number == 0
        && let Some(door) = &options.door
    {
        door.listen(&mut node)?;
    }
    if let Some(cluster) = options.door.as_ref().and_then(|door| door.cluster.as_ref()) {
        let (mut inside, listener) = DoorOptions::listen_inside(&mut node, at.ip())?;
        if let Some(ip) = options.advertise {
            inside.set_ip(ip);
        }
        let of_parts = cluster.listen(&mut node, number, inside.ip())?;
        node.service().set_ports(Ports { inside: (inside, listener), of_parts });
    }
    generation.join(address, alarm);
    Ok(node)
}
