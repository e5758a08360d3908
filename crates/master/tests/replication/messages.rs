//! How long messages to backups are.

use std::net::SocketAddr;
use thunderhead_log::{Log, Memory, Options};
use thunderhead_master::Replication;
use thunderhead_master::replication::{Settings, To};
use thunderhead_rpc::Opcode;
use thunderhead_runtime::{Random, Time};
use thunderhead_wire::control::{BackupInfo, ServerInfo, ServerList, ServerState};
use thunderhead_wire::{LogId, MasterId, ServerId, TableId, TabletRange};

const TABLE: TableId = TableId(1);

fn server(id: u64) -> ServerInfo {
    let address: SocketAddr = "10.0.0.1:1".parse().unwrap();
    ServerInfo {
        lineages: Vec::new(),
        server: ServerId(id),
        generation: 1,
        state: ServerState::Up,
        host: format!("host {id}"),
        rack: String::new(),
        shards: Vec::new(),
        backup: Some(BackupInfo { address, read_bytes_per_second: 0 }),
    }
}

/// A segment that is nearly as long as what any end takes is sent in several messages, also where nothing else is.
#[test]
fn a_message_is_short_also_where_it_is_the_first_for_its_backup() {
    let settings = Settings {
        server: ServerId(9),
        host: "own".into(),
        rack: String::new(),
        master: MasterId(1),
        replicas: 2,
        self_backup: false,
        segment_bytes: 8 << 20,
    };
    let (mut replication, replicator) = Replication::new(settings, Random::from_seed(1));
    let memory = Memory::new(256 << 20).unwrap();
    let mut log = Log::new(&memory, LogId(1), Options::default(), replicator).unwrap();
    log.create_tablet(TabletRange::whole(TABLE)).unwrap();
    replication.learn(&ServerList { version: 1, servers: (1..=3).map(server).collect() });
    for key in 0..70_u64 {
        log.write(TABLE, &key.to_be_bytes(), &vec![key as u8; 100_000]).unwrap();
    }
    log.turn();
    replication.turn(Time(1), &mut log);
    let mut messages = 0;
    while let Some(request) = replication.next_request() {
        assert!(matches!(request.to, To::Backup(..)) && request.opcode == Opcode::Replicate);
        assert!(request.body.len() > 100_000, "it has something to send");
        assert!(request.body.len() < (1 << 20) + 4096, "{} bytes", request.body.len());
        messages += 1;
    }
    assert_eq!(messages, 2, "one for each replica");
}
