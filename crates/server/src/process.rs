//! A server on this machine: a thread for each of its nodes.

use crate::life::{Ended, Life};
use crate::options::Options;
use crate::server::Server;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use thunderhead_net::os::{Options as NetOptions, OsTransport};
use thunderhead_rpc::Node;
use thunderhead_runtime::os;
use thunderhead_runtime::polling::Polling;

/// How the nodes of a process use the machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Where files are.
    pub directory: PathBuf,
    /// How to look for work.
    pub polling: Polling,
    /// How to use the network.
    pub net: NetOptions,
}

/// A server that runs. Dropping it does not end it: see [`Running::join`].
#[derive(Debug)]
pub struct Running {
    life: Life,
    threads: Vec<JoinHandle<()>>,
}

impl Running {
    /// Starts a server, with a thread for each address it is to listen at.
    ///
    /// # Errors
    /// When an address or the directory cannot be had, or there are no more threads.
    pub fn start(options: Options, machine: &Machine) -> io::Result<Running> {
        let options = Arc::new(options);
        let (life, mut threads) = (Life::new(), Vec::new());
        // All listen before any begins: the first tells the coordinator where all of them are.
        let mut go = Vec::new();
        for number in 0..options.listen.len() {
            let (ready, is_ready) = channel();
            let (begin, may_begin) = channel();
            let (options, machine, of) = (Arc::clone(&options), machine.clone(), life.clone());
            let node = move || run(&options, &machine, &of, number, &ready, &may_begin);
            let name = format!("shard-{number}");
            threads.push(std::thread::Builder::new().name(name).spawn(node)?);
            go.push(begin);
            match is_ready.recv() {
                Ok(listens) => listens?,
                Err(_) => return Err(io::Error::other("a shard's thread ended before it began")),
            }
        }
        for begin in go {
            // Its thread waits for this.
            let _ = begin.send(());
        }
        Ok(Running { life, threads })
    }

    /// Its life: who it is, and whether it is over.
    #[must_use]
    pub fn life(&self) -> &Life {
        &self.life
    }

    /// Waits until it has ended, and says why.
    #[must_use]
    pub fn join(self) -> Ended {
        for thread in self.threads {
            // One that panicked has said so.
            if thread.join().is_err() {
                self.life.end(Ended::Failed("a thread of the server failed".to_owned()));
            }
        }
        self.life.ended().unwrap_or(Ended::Asked)
    }
}

/// Ends the life also where the thread panics: the others must not wait for it.
struct EndsWith<'a>(&'a Life);

impl Drop for EndsWith<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end(Ended::Failed("a thread of the server failed".to_owned()));
        }
    }
}

fn run(
    options: &Arc<Options>,
    machine: &Machine,
    life: &Life,
    number: usize,
    ready: &Sender<io::Result<()>>,
    may_begin: &Receiver<()>,
) {
    let _ends = EndsWith(life);
    let begun = begin(options, machine, life, number);
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
        os::run(&mut node, &clock, machine.polling, || life.is_over());
    }
}

fn begin(
    options: &Arc<Options>,
    machine: &Machine,
    life: &Life,
    number: usize,
) -> io::Result<Node<Server>> {
    let directory: &Path = &machine.directory;
    let world = os::world(directory)?;
    let alarm = world.alarm.clone();
    let transport = Box::new(OsTransport::new(&world, machine.net)?);
    let server = Server::new(Arc::clone(options), life.clone(), number);
    let mut node = Node::new(world, transport, server);
    let at = options.listen.get(number).copied().ok_or(io::ErrorKind::InvalidInput)?;
    let mut address = node
        .listen(at)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot listen at {at}: {error}")))?;
    if let Some(ip) = options.advertise {
        address.set_ip(ip);
    }
    life.join(address, alarm);
    Ok(node)
}
