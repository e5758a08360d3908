//! A cluster of processes: a coordinator and servers, each running this binary, on loopback, with
//! their files in a directory of their own.
//!
//! Nothing remains of it, however this process ends. A dropped cluster kills its processes, and so
//! does a signal that asks this process to end. If this process is killed with SIGKILL, the
//! children's inputs close, and they end by themselves.

use crate::children::{self, Children, locked, own_address};
use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use thunderhead_backup::start::forget_memory;
use thunderhead_client::control::{ClusterStatus, ServerInfo, ServerState};
use thunderhead_client::{Client, Options};
use thunderhead_runtime::os::{Directory, MemoryDirectory};
use thunderhead_runtime::polling::Polling;
use thunderhead_wire::Generation;

/// The longest time for a cluster to come up: opening storage may write all of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest time for processes to end when asked.
const ENDING: Duration = Duration::from_secs(30);

const LOOK: Duration = Duration::from_millis(20);

/// Two cores, so that the measured process can be separated from the rest.
const CROWDED: usize = 0;
const APART: usize = 1;

/// The parameters of a cluster.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The binary.
    pub program: PathBuf,
    /// The parent of its directory; the directory for temporary files if `None`.
    pub directory: Option<PathBuf>,
    /// Whether the directory stays. If so, servers are asked to end instead of being killed.
    pub keep: bool,
    /// The number of servers.
    pub servers: u32,
    /// Replicas of each segment.
    pub replicas: u32,
    /// Memory of each server.
    pub memory_bytes: u64,
    /// Disk space for replicas of each server.
    pub disk_bytes: u64,
    /// The cores of the processes.
    pub cores: Cores,
    /// The servers' use of idle time, as in `--polling`.
    pub polling: &'static str,
    /// More arguments of the coordinator.
    pub coordinator: Vec<String>,
    /// More arguments of each server.
    pub server: Vec<String>,
}

/// The cores to which processes are pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cores {
    /// Any.
    Any,
    /// The first server has a core that the other processes do not use.
    FirstApart,
    /// All processes are pinned to this core.
    One(usize),
}

/// One process.
struct Member {
    name: String,
    arguments: Vec<String>,
    child: Option<Child>,
    /// The core to which it is pinned: its own one, or the one of all other processes.
    core: Option<usize>,
}

/// The processes and files that a signal must clean up.
struct Processes {
    program: PathBuf,
    directory: PathBuf,
    keep: bool,
    /// The coordinator comes first.
    members: Vec<Member>,
}

/// A running cluster.
pub struct Cluster {
    processes: Arc<Mutex<Processes>>,
    coordinator: SocketAddr,
    servers: u32,
}

/// A handle to a cluster for its clients.
#[derive(Clone, Copy, Debug)]
pub struct View {
    coordinator: SocketAddr,
}

impl View {
    /// Returns a client whose operations have this deadline.
    ///
    /// # Errors
    /// When the coordinator does not answer.
    pub fn client(&self, deadline: Duration) -> Result<Client> {
        // There are more processes than cores, so a spinning process would take a core from a
        // working one.
        let polling = Polling::Never;
        let options = Options { polling, ..Options::new([self.coordinator]) };
        Client::connect(&options.deadline(Some(deadline))).context("reach the coordinator")
    }
}

impl Member {
    fn pid(&self) -> Result<Pid> {
        let child = self.child.as_ref();
        let child = child.with_context(|| format!("{} does not run", self.name))?;
        Ok(Pid::from_child(child))
    }

    fn number(&self) -> Result<u32> {
        let child = self.child.as_ref();
        Ok(child.with_context(|| format!("{} does not run", self.name))?.id())
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Processes {
    fn log(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.log"))
    }

    /// Returns the last lines of a process's log.
    fn last_words(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.log(name)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(3).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    fn start(&mut self, number: usize) -> Result<()> {
        let member = self.members.get(number).context("there is no such process")?;
        let log = File::options().create(true).append(true).open(self.log(&member.name));
        let log = log.context("write a log")?;
        let mut command = Command::new(&self.program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("THUNDERHEAD_") {
                command.env_remove(name);
            }
        }
        command.args(&member.arguments).current_dir(&self.directory);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        // Ctrl-C goes to this process, which ends the children.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = match member.core {
            Some(core) => crate::machine::pinned(core, || command.spawn()),
            None => command.spawn(),
        };
        let child = child.with_context(|| format!("start {}", self.program.display()))?;
        if let Some(member) = self.members.get_mut(number) {
            member.child = Some(child);
        }
        Ok(())
    }

    /// Returns a description of a process that ended unexpectedly, if any.
    fn fallen(&mut self) -> Option<String> {
        for number in 0..self.members.len() {
            let member = self.members.get_mut(number)?;
            let Some(Ok(Some(status))) = member.child.as_mut().map(Child::try_wait) else {
                continue;
            };
            let name = member.name.clone();
            return Some(format!("{name} ended ({status}): {}", self.last_words(&name)));
        }
        None
    }
}

impl Children for Processes {
    fn end(&mut self) {
        if self.keep {
            for member in self.members.iter().skip(1) {
                if let Ok(pid) = member.pid() {
                    let _ = kill_process(pid, Signal::CONT);
                    let _ = kill_process(pid, Signal::TERM);
                }
            }
            let until = Instant::now() + ENDING;
            for child in self.members.iter_mut().skip(1).filter_map(|it| it.child.as_mut()) {
                while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
                    std::thread::sleep(LOOK);
                }
            }
        }
        self.members.iter_mut().for_each(Member::kill);
        if self.keep {
            return;
        }
        for member in self.members.iter().skip(1) {
            if let Ok(mut files) = Directory::open(&self.directory.join(&member.name)) {
                let _ = forget_memory(&mut files, &mut MemoryDirectory::default());
            }
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn name_of(number: u32) -> String {
    format!("server-{}", number + 1)
}

impl Cluster {
    /// Starts a cluster, and waits until all its servers are up.
    ///
    /// # Errors
    /// When a process does not come up.
    pub fn start(setup: &Setup) -> Result<Cluster> {
        static COUNT: Mutex<u32> = Mutex::new(0);
        let number = {
            let mut count = locked(&COUNT);
            *count += 1;
            *count
        };
        let above = setup.directory.clone().unwrap_or_else(std::env::temp_dir);
        let directory = above.join(format!("thunderhead-crash-{}-{number}", std::process::id()));
        std::fs::create_dir_all(directory.join("coordinator"))
            .with_context(|| format!("make the directory {}", directory.display()))?;
        let directory = directory.canonicalize()?;
        let coordinator = own_address()?;
        let mut cluster = Cluster {
            processes: Arc::new(Mutex::new(Processes {
                program: setup.program.clone(),
                members: members(setup, &directory, coordinator),
                directory,
                keep: setup.keep,
            })),
            coordinator,
            servers: setup.servers,
        };
        let processes: Arc<Mutex<dyn Children>> = cluster.processes.clone();
        children::watch(processes)?;
        cluster.start_coordinator()?;
        for server in 0..setup.servers {
            cluster.start_server(server)?;
        }
        cluster.wait_up(Generation(0))?;
        Ok(cluster)
    }

    fn locked(&self) -> MutexGuard<'_, Processes> {
        locked(&self.processes)
    }

    /// Returns the directory of its files.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.locked().directory.clone()
    }

    /// Returns the coordinator's address.
    #[must_use]
    pub fn coordinator(&self) -> SocketAddr {
        self.coordinator
    }

    /// Returns the number of servers.
    #[must_use]
    pub fn servers(&self) -> u32 {
        self.servers
    }

    /// Returns the process id of a server.
    ///
    /// # Errors
    /// When it does not run.
    pub fn server_process(&self, server: u32) -> Result<u32> {
        let processes = self.locked();
        let member = processes.members.get(server as usize + 1);
        member.context("there is no such server")?.number()
    }

    /// Returns the ids of all processes, the coordinator's first.
    ///
    /// # Errors
    /// When a process does not run.
    pub fn all_processes(&self) -> Result<Vec<u32>> {
        self.locked().members.iter().map(Member::number).collect()
    }

    /// Starts the coordinator.
    ///
    /// # Errors
    /// When the system does not allow it.
    pub fn start_coordinator(&mut self) -> Result<()> {
        self.locked().start(0)
    }

    /// Starts a server, for the first time or again.
    ///
    /// # Errors
    /// When the system does not allow it.
    pub fn start_server(&mut self, server: u32) -> Result<()> {
        self.locked().start(server as usize + 1)
    }

    /// Kills a server with SIGKILL.
    pub fn kill_server(&mut self, server: u32) {
        if let Some(member) = self.locked().members.get_mut(server as usize + 1) {
            member.kill();
        }
    }

    /// Kills all processes, coordinator and servers.
    pub fn kill_all(&mut self) {
        self.locked().members.iter_mut().for_each(Member::kill);
    }

    /// Stops a server (SIGSTOP), or lets it continue (SIGCONT).
    ///
    /// # Errors
    /// When it does not run.
    pub fn pause_server(&mut self, server: u32, pause: bool) -> Result<()> {
        let processes = self.locked();
        let member = processes.members.get(server as usize + 1);
        let pid = member.context("there is no such server")?.pid()?;
        let signal = if pause { Signal::STOP } else { Signal::CONT };
        kill_process(pid, signal).context("send the server a signal")
    }

    /// Returns a handle with which threads become clients while the cluster is changed.
    #[must_use]
    pub fn view(&self) -> View {
        View { coordinator: self.coordinator }
    }

    /// Returns a client.
    ///
    /// # Errors
    /// When the coordinator does not answer.
    pub fn client(&self, deadline: Duration) -> Result<Client> {
        self.view().client(deadline)
    }

    /// Returns the logs of all processes, the coordinator's first.
    #[must_use]
    pub fn said(&self) -> Vec<String> {
        let processes = self.locked();
        let text = |member: &Member| std::fs::read_to_string(processes.log(&member.name));
        processes.members.iter().map(|it| text(it).unwrap_or_default()).collect()
    }

    /// Refuses to continue if a process has ended unexpectedly.
    ///
    /// # Errors
    /// When a process has.
    pub fn ensure_whole(&self) -> Result<()> {
        match self.locked().fallen() {
            Some(fallen) => bail!("{fallen}"),
            None => Ok(()),
        }
    }

    /// Waits until all servers are up, each in a generation above this number.
    ///
    /// # Errors
    /// When that takes too long, or a server ends.
    pub fn wait_up(&self, beyond: Generation) -> Result<ClusterStatus> {
        let end = Instant::now() + PATIENCE;
        let mut client = None;
        loop {
            self.ensure_whole()?;
            ensure!(Instant::now() < end, "the servers did not come up within {PATIENCE:?}");
            client = client.or_else(|| self.client(Duration::from_secs(1)).ok());
            if let Some(Ok(status)) = client.as_mut().map(Client::status) {
                let is_up =
                    |it: &&ServerInfo| it.state == ServerState::Up && it.generation > beyond;
                if status.servers.servers.iter().filter(is_up).count() as u32 >= self.servers {
                    return Ok(status);
                }
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Returns the index of a server's process.
    ///
    /// # Errors
    /// When the server does not belong to this cluster.
    pub fn number_of(&self, server: &ServerInfo) -> Result<u32> {
        let mut numbers = 0..self.servers;
        let number = numbers.find(|number| name_of(*number) == server.host);
        number.with_context(|| format!("{} is not a server of this cluster", server.server))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.locked().end();
        children::forget(&self.processes);
    }
}

fn members(setup: &Setup, directory: &Path, coordinator: SocketAddr) -> Vec<Member> {
    let core = |number: u32| match (setup.cores, number) {
        (Cores::Any, _) => None,
        (Cores::FirstApart, 0) => Some(APART),
        (Cores::FirstApart, _) => Some(CROWDED),
        (Cores::One(core), _) => Some(core),
    };
    let words = |all: &[&str], more: &[String]| {
        all.iter().map(|it| (*it).to_owned()).chain(more.iter().cloned()).collect()
    };
    let metastore = format!("embedded:{}", directory.join("coordinator/metastore").display());
    let at = coordinator.to_string();
    let first = Member {
        name: "coordinator".into(),
        arguments: words(
            &[
                "coordinator",
                "--while-input",
                "--listen",
                &at,
                "--metastore",
                &metastore,
                "--replicas",
                &setup.replicas.to_string(),
            ],
            &setup.coordinator,
        ),
        child: None,
        core: core(1),
    };
    let servers = (0..setup.servers).map(|number| {
        let name = name_of(number);
        let arguments = words(
            &[
                "server",
                "--while-input",
                "--coordinators",
                &at,
                "--listen",
                "127.0.0.1:0",
                "--data",
                &directory.join(&name).display().to_string(),
                "--host",
                &name,
                "--memory",
                &format!("{}B", setup.memory_bytes),
                "--backup-bytes",
                &format!("{}B", setup.disk_bytes),
                "--polling",
                setup.polling,
            ],
            &setup.server,
        );
        Member { name, arguments, child: None, core: core(number) }
    });
    std::iter::once(first).chain(servers).collect()
}

/// Pins the calling thread to the first server's separate core.
pub(crate) fn pin_apart() {
    crate::machine::pin(APART);
}
