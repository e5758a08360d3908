//! A whole cluster in one process: what `thunderhead dev` is, and what benchmarks are run against.

use crate::coordinator::{RunningCoordinator, Truth};
use crate::life::Ended;
use crate::options::{BackupOptions, Options};
use crate::process::{Machine, Running};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use thunderhead_coordinator::{Options as CoordinatorOptions, Probing};
use thunderhead_net::os::Options as NetOptions;
use thunderhead_runtime::polling::Polling;
use thunderhead_wire::Format;
use thunderhead_wire::control::Settings;

/// What a cluster in one process is made of.
#[derive(Clone, Debug)]
pub struct LocalOptions {
    /// Where everything is: the metastore in `coordinator`, each server in `server-N`.
    pub directory: PathBuf,
    /// The metastore is in memory instead. Without backups there are no files then.
    pub in_memory: bool,
    /// Where the coordinator listens; shards on the next ports, or everybody on any if it is 0.
    pub listen: SocketAddr,
    /// How many servers.
    pub servers: u32,
    /// Shards of each.
    pub shards: u32,
    /// Cleaners of each shard.
    pub cleaners: usize,
    /// Memory of each server.
    pub memory_bytes: usize,
    /// All of that is touched at the start.
    pub populate: bool,
    /// What each keeps of the others, or of itself.
    pub backup: Option<BackupOptions>,
    /// What holds in the cluster, if it is made now.
    pub settings: Settings,
    /// How it is found out that servers are not there any more.
    pub probing: Probing,
    /// How to look for work.
    pub polling: Polling,
    /// How to use the network.
    pub net: NetOptions,
}

impl LocalOptions {
    /// One server on any ports that backs itself up, with little memory: what is different is said
    /// by who asks.
    #[must_use]
    pub fn small(directory: PathBuf) -> LocalOptions {
        LocalOptions {
            directory,
            in_memory: false,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            servers: 1,
            shards: 1,
            cleaners: 1,
            memory_bytes: 64 << 20,
            populate: false,
            backup: Some(BackupOptions::default()),
            settings: Settings {
                replicas: 1,
                min_replicas: 1,
                durability: "replicated".to_owned(),
                segment_bytes: 1 << 20,
                self_backup: true,
            },
            probing: Probing::default(),
            polling: Polling::Never,
            net: NetOptions::default(),
        }
    }
}

/// A cluster in this process.
#[derive(Debug)]
pub struct Local {
    coordinator: RunningCoordinator,
    servers: Vec<Running>,
}

impl Local {
    /// Starts it; it serves a moment later.
    ///
    /// # Errors
    /// When an address, a directory or a thread cannot be had, or the metastore is in use.
    pub fn start(options: &LocalOptions) -> io::Result<Local> {
        let next = format!("server-{}", options.servers.saturating_add(1));
        if !options.in_memory && options.directory.join(&next).exists() {
            return Err(io::Error::other(format!(
                "there are more than {} servers here: {next} has data of its own; start as many as \
                 there were, or begin in another directory",
                options.servers
            )));
        }
        let machine = |name: &str| Machine {
            directory: options.directory.join(name),
            polling: options.polling,
            net: options.net,
        };
        let of_coordinator = machine("coordinator");
        let truth = match options.in_memory {
            true => Truth::Memory,
            false => Truth::File(of_coordinator.directory.join("metastore")),
        };
        let settings = options.settings.clone();
        let coordinator = RunningCoordinator::start(
            CoordinatorOptions {
                settings,
                probing: options.probing,
                ..CoordinatorOptions::default()
            },
            options.listen,
            truth,
            &of_coordinator,
        )?;
        let mut local = Local { coordinator, servers: Vec::new() };
        for number in 0..options.servers {
            match local.start_server(options, number, &machine(&format!("server-{}", number + 1))) {
                Ok(server) => local.servers.push(server),
                Err(error) => {
                    local.leave();
                    let _ = local.join();
                    return Err(error);
                }
            }
        }
        Ok(local)
    }

    fn start_server(
        &self,
        options: &LocalOptions,
        number: u32,
        machine: &Machine,
    ) -> io::Result<Running> {
        let of_coordinator = self.coordinator();
        let listen = (0..options.shards).map(|shard| {
            let mut address = of_coordinator;
            let next = 1 + number * options.shards + shard;
            let port = u32::from(of_coordinator.port()) + next;
            address.set_port(match options.listen.port() {
                0 => 0,
                _ => u16::try_from(port).unwrap_or(0),
            });
            address
        });
        let of_server = Options {
            coordinators: [of_coordinator].into(),
            listen: listen.collect(),
            advertise: None,
            memory_bytes: options.memory_bytes,
            seglet_bytes: None,
            message_bytes: None,
            populate: options.populate,
            newest_format: Format::NEWEST,
            cleaners: options.cleaners,
            backup: options.backup.clone(),
            probing: options.probing,
            host: "localhost".to_owned(),
            rack: String::new(),
        };
        Running::start_lasting(of_server, machine)
    }

    /// Where the coordinator listens.
    #[must_use]
    pub fn coordinator(&self) -> SocketAddr {
        self.coordinator.address().unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// The servers.
    #[must_use]
    pub fn servers(&self) -> &[Running] {
        &self.servers
    }

    /// Why it is over, if something is. A server that was given up begins a new life.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        let mut ended = self.servers.iter().filter_map(|server| server.life().latest().ended());
        ended.find(|why| *why != Ended::Deposed)
    }

    /// Asks all servers to bring to an end what they have begun.
    pub fn leave(&self) {
        self.servers.iter().for_each(|server| server.life().leave());
    }

    /// Waits until the servers have ended, ends the coordinator, and says why the first one of them
    /// that did not end in order did.
    #[must_use]
    pub fn join(self) -> Ended {
        let mut why = Ended::Asked;
        for server in self.servers {
            let ended = server.join();
            if why == Ended::Asked {
                why = ended;
            }
        }
        self.coordinator.life().leave();
        let ended = self.coordinator.join();
        if why == Ended::Asked { ended } else { why }
    }
}
