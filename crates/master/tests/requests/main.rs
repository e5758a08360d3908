//! A shard's answers, over the machine's own loopback, with server and client taking turns on one
//! thread: every operation, every refusal, and answers that wait for the log.

mod durable_answers;
mod enumeration;
mod expired_objects;
mod expiring_writes;
mod full_shard;
mod many;
mod numbers;
mod objects;
mod once;
mod refusals;

use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_log::{
    Log, LogId, Memory, NoReplication, Options as LogOptions, Replicator, TableId, TabletRange,
};
use thunderhead_master::Shard;
use thunderhead_net::Transport;
use thunderhead_net::os::{Options, OsTransport};
use thunderhead_rpc::{CallError, CallId, Caller, Node, Opcode};
use thunderhead_runtime::polling::Polling;
use thunderhead_runtime::{World, os};
use thunderhead_wire::operations::{Identity, ObjectHead};
use thunderhead_wire::{Condition, LeaseId, Sequence, Status};
use zerocopy::IntoBytes;

const TABLE: TableId = TableId(7);

fn world() -> World {
    os::world_without_files().expect("an event descriptor")
}

type Ended = Result<Vec<u8>, CallError>;

struct Pair {
    node: Node<Shard>,
    caller: Caller,
    address: SocketAddr,
}

impl Pair {
    fn new(bytes: usize, replicator: Box<dyn Replicator>) -> Pair {
        Pair::with(bytes, replicator, Shard::new)
    }

    fn with(
        bytes: usize,
        replicator: Box<dyn Replicator>,
        shard: impl FnOnce(Log) -> Shard,
    ) -> Pair {
        let memory = Memory::with_seglets(bytes, 4096).unwrap();
        let options = LogOptions { segment_bytes: 64 << 10, ..LogOptions::default() };
        let mut log = Log::new(&memory, LogId(1), options, replicator).unwrap();
        log.create_tablet(TabletRange::whole(TABLE)).unwrap();
        let server = world();
        let options = Options { shared_memory: false, ..Options::default() };
        let transport = OsTransport::new(&server, options).unwrap();
        let mut node = Node::new(server, Box::new(transport), shard(log));
        let address = node.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let client = world();
        let transport: Box<dyn Transport + Send> =
            Box::new(OsTransport::new(&client, options).unwrap());
        Pair { node, caller: Caller::new(&client, transport, Polling::Always), address }
    }

    fn small() -> Pair {
        Pair::new(2 << 20, Box::new(NoReplication::default()))
    }

    fn begin(&mut self, opcode: Opcode, body: &[u8]) -> CallId {
        self.caller.begin(self.address, opcode, &[body], Some(Duration::from_secs(60))).unwrap()
    }

    /// Lets both take `count` turns, and returns the calls that have ended.
    fn turns(&mut self, count: usize) -> Vec<(CallId, Ended)> {
        let mut ended = Vec::new();
        for _ in 0..count {
            self.caller.poll(&mut |id, outcome| ended.push((id, outcome.map(<[u8]>::to_vec))));
            self.node.turn_now();
        }
        ended
    }

    fn finish(&mut self) -> Ended {
        loop {
            if let Some((_, outcome)) = self.turns(1).pop() {
                return outcome;
            }
        }
    }

    fn call(&mut self, opcode: Opcode, body: &[u8]) -> Ended {
        self.begin(opcode, body);
        self.finish()
    }

    fn read(&mut self, key: &[u8]) -> Ended {
        self.call(Opcode::Read, &read_body(key, Condition::Always))
    }

    fn update(&mut self, opcode: Opcode, key: &[u8], argument: &[u8]) -> Ended {
        self.call(opcode, &update_body(Identity::NONE, key, Condition::Always, 0, argument))
    }
}

fn read_body(key: &[u8], condition: Condition) -> Vec<u8> {
    [ObjectHead::new(TABLE, key.len(), condition, 0).as_bytes(), key].concat()
}

fn identity(lease: LeaseId, sequence: u64, first: u64) -> Identity {
    Identity::new(lease, Sequence(sequence), Sequence(first))
}

fn update_body(
    identity: Identity,
    key: &[u8],
    condition: Condition,
    flags: u8,
    argument: &[u8],
) -> Vec<u8> {
    let head = ObjectHead::new(TABLE, key.len(), condition, flags);
    [identity.as_bytes(), head.as_bytes(), key, argument].concat()
}

fn version(ended: &Ended) -> u64 {
    u64::from_le_bytes(ended.as_ref().unwrap()[..8].try_into().unwrap())
}

fn status(ended: &Ended) -> Status {
    match ended {
        Ok(_) => Status::Ok,
        Err(CallError::Refused { status, .. }) => *status,
        Err(other) => panic!("{other}"),
    }
}
