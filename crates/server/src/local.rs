//! A whole cluster in one process, for `thunderhead dev` and for benchmarks.

use crate::coordinator::{MetastoreLocation, RunningCoordinator};
use crate::door::DoorOptions;
use crate::generation::{Ended, GenerationState};
use crate::options::{BackupOptions, Options};
use crate::process::{Machine, RunningServer};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use thunderhead_coordinator::{Options as CoordinatorOptions, Probing};
use thunderhead_net::os::Options as NetOptions;
use thunderhead_runtime::polling::Polling;
use thunderhead_wire::Format;
use thunderhead_wire::control::Settings;

/// The options of a cluster in one process.
#[derive(Clone, Debug)]
pub struct LocalOptions {
    /// The directory of all data: the metastore is in `coordinator`, each server in `server-N`.
    pub directory: PathBuf,
    /// Whether the metastore is in memory instead. Without backups there are no files then.
    pub in_memory: bool,
    /// The address on which the coordinator listens. Shards use the next ports. With port 0, all
    /// use any free port.
    pub listen: SocketAddr,
    /// The number of servers.
    pub servers: u32,
    /// The number of shards of each server.
    pub shards: u32,
    /// The number of cleaners of each shard.
    pub cleaners: usize,
    /// The memory of each server.
    pub memory_bytes: usize,
    /// Whether servers touch all of their memory before they serve.
    pub populate: bool,
    /// The options of each server's backup; `None`: the servers have no backups.
    pub backup: Option<BackupOptions>,
    /// The settings of the cluster, if it is created now.
    pub settings: Settings,
    /// The times of the probes by which servers detect crashed ones.
    pub probing: Probing,
    /// The way in which reactors wait for work.
    pub polling: Polling,
    /// The options of the network.
    pub net: NetOptions,
    /// The door for clients of another protocol, at the first shard of the first server.
    pub door: Option<Arc<DoorOptions>>,
}

impl LocalOptions {
    /// Returns the options of one small server on free ports that backs itself up. The caller
    /// changes fields as needed.
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
            door: None,
        }
    }
}

/// A cluster in this process.
#[derive(Debug)]
pub struct LocalCluster {
    coordinator: RunningCoordinator,
    servers: Vec<RunningServer>,
}

impl LocalCluster {
    /// Starts the cluster; it serves a moment later.
    ///
    /// # Errors
    /// If an address is taken, a directory cannot be used, no thread can be started, or the
    /// metastore is in use.
    pub fn start(options: &LocalOptions) -> io::Result<LocalCluster> {
        let next = format!("server-{}", options.servers.saturating_add(1));
        if !options.in_memory && options.directory.join(&next).exists() {
            return Err(io::Error::other(format!(
                "the directory has data of more than {} servers: there is {next}; start as many \
                 servers as before, or use another directory",
                options.servers
            )));
        }
        let machine = |name: &str| Machine {
            directory: options.directory.join(name),
            polling: options.polling,
            net: options.net,
        };
        let of_coordinator = machine("coordinator");
        let metastore = match options.in_memory {
            true => MetastoreLocation::Memory,
            false => MetastoreLocation::File(of_coordinator.directory.join("metastore")),
        };
        let settings = options.settings.clone();
        let coordinator = RunningCoordinator::start(
            CoordinatorOptions {
                settings,
                probing: options.probing,
                ..CoordinatorOptions::default()
            },
            options.listen,
            metastore,
            &of_coordinator,
        )?;
        let mut local = LocalCluster { coordinator, servers: Vec::new() };
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
    ) -> io::Result<RunningServer> {
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
            records_per_client_max: None,
            populate: options.populate,
            newest_format: Format::NEWEST,
            door: match &options.door {
                Some(door) if number > 0 && door.cluster.is_some() => {
                    Some(Arc::new(door.of_further_server(number, options.shards)))
                }
                door => door.clone().filter(|_| number == 0),
            },
            cleaners: options.cleaners,
            backup: options.backup.clone(),
            probing: options.probing,
            host: "localhost".to_owned(),
            rack: String::new(),
        };
        RunningServer::start_lasting(of_server, machine)
    }

    /// Returns the coordinator's address.
    #[must_use]
    pub fn coordinator(&self) -> SocketAddr {
        self.coordinator.address().unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// Returns the servers.
    #[must_use]
    pub fn servers(&self) -> &[RunningServer] {
        &self.servers
    }

    /// Returns why the coordinator or a server has ended for good, if one has. A server that was
    /// declared crashed begins a new generation and does not count.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        if let Some(why) = self.coordinator.generation().ended() {
            return Some(why);
        }
        let mut ended =
            self.servers.iter().filter_map(|server| server.generation().latest().ended());
        ended.find(|why| *why != Ended::Deposed)
    }

    /// Asks all servers to complete their work and end.
    pub fn leave(&self) {
        self.servers.iter().for_each(|server| server.generation().leave());
    }

    /// Waits until the servers have ended, then ends the coordinator. If the coordinator ends
    /// first, this asks the servers to end. Returns the reason of the first program that did not
    /// end in order.
    #[must_use]
    pub fn join(self) -> Ended {
        let LocalCluster { coordinator, servers } = self;
        let generations: Vec<GenerationState> =
            servers.iter().map(|server| server.generation().clone()).collect();
        let of_coordinator = coordinator.generation().clone();
        let mut why = Ended::Asked;
        std::thread::scope(|scope| {
            let watched = of_coordinator.clone();
            scope.spawn(move || {
                if watched.wait_until_over() != Ended::Asked {
                    generations.iter().for_each(GenerationState::leave);
                }
            });
            for server in servers {
                let ended = server.join();
                if why == Ended::Asked {
                    // A server may fail because the coordinator has.
                    why = of_coordinator.ended().filter(|it| *it != Ended::Asked).unwrap_or(ended);
                }
            }
            of_coordinator.leave();
            let ended = coordinator.join();
            if why == Ended::Asked {
                why = ended;
            }
        });
        why
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_ends_for_the_reason_for_which_its_coordinator_ended() {
        let directory = std::env::temp_dir();
        let directory = directory.join(format!("thunderhead-local-{}", std::process::id()));
        let local = LocalCluster::start(&LocalOptions::small(directory.clone())).unwrap();
        assert_eq!(local.ended(), None);
        let failed = Ended::Failed("as the test wants".to_owned());
        local.coordinator.generation().end(failed.clone());
        assert_eq!(local.ended(), Some(failed.clone()));
        // The servers were not asked to end, and leave all the same.
        assert_eq!(local.join(), failed);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
