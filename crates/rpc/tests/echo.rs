//! The echo service on the machine's own transports, server and client taking turns on one thread.

use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_net::os::{Options, OsTransport};
use thunderhead_net::{Transport, Via};
use thunderhead_rpc::echo::Echo;
use thunderhead_rpc::{CallError, CallId, Caller, Node, Opcode};
use thunderhead_runtime::polling::Polling;
use thunderhead_runtime::{World, os};
use thunderhead_wire::Status;

fn world() -> World {
    os::world_without_files().expect("an event descriptor")
}

struct Pair {
    node: Node<Echo>,
    caller: Caller,
    address: SocketAddr,
}

impl Pair {
    fn new(listen: &str, options: Options) -> Pair {
        Pair::with(listen, options, |_| {})
    }

    fn with(listen: &str, options: Options, set_up: impl FnOnce(&mut OsTransport)) -> Pair {
        let server = world();
        let mut transport = OsTransport::new(&server, options).unwrap();
        set_up(&mut transport);
        let mut node = Node::new(server, Box::new(transport), Echo::default());
        let address = node.listen(listen.parse().unwrap()).unwrap();
        let client = world();
        let transport: Box<dyn Transport + Send> =
            Box::new(OsTransport::new(&client, options).unwrap());
        let caller = Caller::new(&client, transport, Polling::Always);
        Pair { node, caller, address }
    }

    fn begin(&mut self, opcode: Opcode, parts: &[&[u8]]) -> CallId {
        self.caller.begin(self.address, opcode, parts, Some(Duration::from_secs(60))).unwrap()
    }

    /// Lets both take turns until `count` calls have ended.
    fn finish(&mut self, count: usize) -> Vec<(CallId, Result<Vec<u8>, CallError>)> {
        let mut ended = Vec::new();
        while ended.len() < count {
            self.caller.poll(&mut |id, outcome| ended.push((id, outcome.map(<[u8]>::to_vec))));
            self.node.turn_now();
        }
        ended
    }

    fn call(&mut self, opcode: Opcode, parts: &[&[u8]]) -> Result<Vec<u8>, CallError> {
        let id = self.begin(opcode, parts);
        let (ended, outcome) = self.finish(1).remove(0);
        assert_eq!(ended, id);
        outcome
    }
}

fn both() -> [(Pair, Via); 3] {
    let tcp = Options { shared_memory: false, ..Options::default() };
    [
        (Pair::new("127.0.0.1:0", Options::default()), Via::SharedMemory),
        (Pair::new("127.0.0.1:0", tcp), Via::Tcp),
        (Pair::new("[::1]:0", tcp), Via::Tcp),
    ]
}

#[test]
fn an_echo_comes_back_over_every_transport() {
    for (mut pair, via) in both() {
        assert_eq!(pair.call(Opcode::Ping, &[]), Ok(vec![]));
        for bytes in [0u32, 1, 126, 5000, 100_000, 3_000_000] {
            let ballast = vec![7; bytes as usize / 2];
            let reply = pair.call(Opcode::Echo, &[&bytes.to_le_bytes(), &ballast]).unwrap();
            let mut expected = ballast.clone();
            expected.resize(bytes as usize, 0);
            assert!(reply == expected, "{via:?} {bytes}");
        }
        let there = pair.node.transport().counters();
        assert_eq!((there.accepted, there.messages_in), (1, 7), "{via:?}");
        // The calls went over the intended medium only.
        let over_shared_memory = u64::from(via == Via::SharedMemory);
        assert_eq!(there.shared_memory, over_shared_memory, "{via:?}");
        assert_eq!(pair.caller.transport().counters().shared_memory, over_shared_memory, "{via:?}");
    }
}

#[test]
fn a_client_that_cannot_use_a_servers_rings_calls_it_over_tcp() {
    let mut pair =
        Pair::with("127.0.0.1:0", Options::default(), |it| it.pretend_layout_version(99));
    for _ in 0..20 {
        let reply = pair.call(Opcode::Echo, &[&5u32.to_le_bytes(), b"hello"]);
        assert_eq!(reply, Ok(b"hello".to_vec()));
    }
    let there = pair.node.transport().counters();
    assert_eq!((there.accepted, there.messages_in, there.shared_memory), (1, 20, 0));
    assert_eq!(pair.caller.transport().counters().shared_memory, 0);
}

#[test]
fn many_calls_in_flight_each_get_their_own_reply() {
    for (mut pair, _) in both() {
        let mut expected = std::collections::BTreeMap::new();
        for number in 0..1000u32 {
            let bytes = (number * 37) % 3000;
            let id = pair.begin(Opcode::Echo, &[&bytes.to_le_bytes(), &number.to_le_bytes()]);
            let mut reply = number.to_le_bytes().to_vec();
            reply.resize(bytes as usize, 0);
            expected.insert(id, reply);
        }
        for (id, outcome) in pair.finish(1000) {
            assert_eq!(expected.remove(&id), outcome.ok());
        }
        assert!(expected.is_empty());
    }
}

#[test]
fn malformed_requests_are_refused_and_the_connection_stays() {
    for (mut pair, _) in both() {
        let malformed = Err(CallError::Refused { status: Status::Malformed, hint: 0, detail: 0 });
        let unknown = Err(CallError::Refused { status: Status::UnknownOpcode, hint: 0, detail: 0 });
        assert_eq!(pair.call(Opcode::Echo, &[b"abc"]), malformed);
        assert_eq!(pair.call(Opcode::Echo, &[&u32::MAX.to_le_bytes()]), malformed);
        assert_eq!(pair.call(Opcode::RegisterRead, &[]), unknown);
        assert_eq!(pair.call(Opcode::Ping, &[]), Ok(vec![]));
        let long = vec![0; 9 << 20];
        let address = pair.address;
        let refused = pair.caller.begin(address, Opcode::Echo, &[&long], None);
        assert_eq!(refused, Err(CallError::TooLong));
        assert_eq!(pair.call(Opcode::Ping, &[]), Ok(vec![]));
        assert_eq!(pair.node.transport().counters().accepted, 1);
    }
}

#[test]
fn calls_to_a_stopping_server_break_and_a_missing_server_is_unreachable() {
    for (mut pair, _) in both() {
        assert_eq!(pair.call(Opcode::Ping, &[]), Ok(vec![]));
        let lost = pair.begin(Opcode::Ping, &[]);
        let Pair { node, mut caller, address } = pair;
        drop(node);
        let mut ended = Vec::new();
        while ended.is_empty() {
            caller.poll(&mut |id, outcome| ended.push((id, outcome.map(<[u8]>::to_vec))));
        }
        assert_eq!(ended, [(lost, Err(CallError::Broken))]);
        let unreachable = caller.call(address, Opcode::Ping, &[], None, <[u8]>::to_vec);
        assert!(matches!(unreachable, Err(CallError::Unreachable(_))), "{unreachable:?}");
    }
}
