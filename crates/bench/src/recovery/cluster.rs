//! A modelled cluster: its servers as the coordinator would list them, and the replicas of a
//! crashed master's log.

use std::net::SocketAddr;
use thunderhead_coordinator::model::Placed;
use thunderhead_master::replication::{MESSAGE_BYTES, PlacementTrial, Settings};
use thunderhead_runtime::Random;
use thunderhead_wire::control::{BackupInfo, ServerInfo, ServerList, ServerState, ShardInfo};
use thunderhead_wire::{Generation, MasterId, SegmentId, ServerId};

/// The default size of a segment.
pub(super) const SEGMENT_BYTES: u32 = 8 << 20;

/// The server that crashes. The others have the numbers from 1 on.
pub(super) const GONE: ServerId = ServerId(0);

/// A log: its segments, the newest first, with their sizes and the servers of their replicas.
pub(super) type Log = Vec<Placed>;

/// Returns the address of a server.
pub(super) fn address(server: ServerId) -> SocketAddr {
    let [.., high, low] = server.0.to_be_bytes();
    ([10, 0, high, low], 7100).into()
}

/// Returns a list of servers with these disk speeds, `servers_a_host` on each host. The server that
/// crashes is on a host of its own.
pub(super) fn list(speeds: &[u64], servers_a_host: usize) -> ServerList {
    let info = |server: ServerId, host: usize, speed: u64| ServerInfo {
        lineages: Vec::new(),
        server,
        generation: Generation(1),
        state: ServerState::Up,
        host: format!("host-{host}.example"),
        rack: String::new(),
        shards: vec![ShardInfo { master: MasterId(server.0), address: address(server) }],
        backup: Some(BackupInfo {
            address: address(server),
            read_bytes_per_second: speed,
            place: 0,
        }),
    };
    let others = speeds
        .iter()
        .enumerate()
        .map(|(at, speed)| info(ServerId(at as u64 + 1), 1 + at / servers_a_host.max(1), *speed));
    let gone = info(GONE, 0, speeds.first().copied().unwrap_or(0));
    let servers = std::iter::once(gone).chain(others).collect();
    ServerList { version: 1, servers, ..ServerList::default() }
}

/// Returns the settings of the master that crashes.
pub(super) fn settings(replicas: u32) -> Settings {
    Settings {
        server: GONE,
        host: "host-0.example".into(),
        rack: String::new(),
        master: MasterId(GONE.0),
        replicas,
        min_replicas: replicas,
        self_backup: false,
        segment_bytes: SEGMENT_BYTES,
        message_bytes: MESSAGE_BYTES,
    }
}

/// Returns the log of a master that has placed this many segments.
pub(super) fn log(list: &ServerList, replicas: u32, segments: u64, random: Random) -> Log {
    let mut trial = PlacementTrial::new(settings(replicas), random, list);
    let placed = (1..=segments).map(|id| (SegmentId(id), trial.place()));
    let mut log: Log = placed
        .map(|(id, at)| {
            (id, SEGMENT_BYTES, at.into_iter().map(|server| (server, address(server))).collect())
        })
        .collect();
    log.reverse();
    log
}
