//! A caller that sends more than its server takes gets an error, and loses no call.

use std::net::SocketAddr;
use thunderhead_net::os::{Options, OsTransport};
use thunderhead_net::{Cause, Limits};
use thunderhead_rpc::echo::Echo;
use thunderhead_rpc::{
    CallError, CallId, Caller, Component, Context, Node, Opcode, OwnerId, Request, Service,
};
use thunderhead_runtime::polling::Polling;
use thunderhead_runtime::{World, os};

const HIGH: usize = 256 << 10;

/// A long call, but well below the limit for waiting bytes.
const BODY: [u8; 16 << 10] = [7; 16 << 10];

/// More calls than sockets, rings and waiting bytes can hold.
const MANY: usize = 2000;

fn options(shared_memory: bool) -> Options {
    let limits = Limits { waiting_bytes_high: HIGH, ..Limits::default() };
    Options { shared_memory, limits, ..Options::default() }
}

fn world() -> World {
    os::world_without_files().expect("an event descriptor")
}

fn server(shared_memory: bool) -> (Node<Echo>, SocketAddr) {
    let world = world();
    let transport = OsTransport::new(&world, options(shared_memory)).unwrap();
    let mut node = Node::new(world, Box::new(transport), Echo::default());
    let address = node.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    (node, address)
}

fn request(caller: &mut Caller, to: SocketAddr) -> Result<CallId, CallError> {
    caller.begin(to, Opcode::Echo, &[&8u32.to_le_bytes(), &BODY], None)
}

/// Begins calls until the caller refuses; returns their number.
fn fill(caller: &mut Caller, to: SocketAddr) -> usize {
    for count in 0..MANY {
        match request(caller, to) {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error, CallError::Congested);
                return count;
            }
        }
        // It continues to poll, but the server takes nothing.
        caller.poll(&mut |_, _| panic!("nothing can have been answered"));
    }
    panic!("a server that takes nothing was sent {MANY} calls");
}

#[test]
fn a_congested_caller_refuses_calls_and_completes_the_begun_ones() {
    for shared_memory in [false, true] {
        let (mut node, to) = server(shared_memory);
        let world = world();
        let transport = OsTransport::new(&world, options(shared_memory)).unwrap();
        let mut caller = Caller::new(&world, Box::new(transport), Polling::Always);
        // Before there is a connection, and afterwards.
        for open in [false, true] {
            let begun = fill(&mut caller, to);
            if !open {
                assert_eq!(begun, HIGH / (BODY.len() + 20) + 1);
            }
            let held = caller.transport().counters().held_bytes as usize;
            assert!(held < HIGH + 2 * BODY.len(), "{held} bytes wait");
            let mut answered = 0;
            while answered < begun {
                node.turn_now();
                caller.poll(&mut |_, outcome| {
                    assert_eq!(outcome.map(<[u8]>::len), Ok(8));
                    answered += 1;
                });
            }
            assert_eq!(caller.in_flight(), 0, "a refused call is not in flight");
            assert!(request(&mut caller, to).is_ok(), "there is room again");
            let mut answered = false;
            while !answered {
                node.turn_now();
                caller.poll(&mut |_, outcome| answered = outcome.is_ok());
            }
        }
        assert_eq!(caller.transport().counters().closed(Cause::NotReading), 0);
    }
}

/// Calls the other node repeatedly.
struct Eager {
    to: SocketAddr,
    outcomes: Vec<Result<usize, CallError>>,
}

impl Service for Eager {
    fn request(&mut self, _: &mut Context<'_>, _: Request<'_>) {}

    fn timer(&mut self, context: &mut Context<'_>, _: OwnerId) {
        let parts: [&[u8]; 2] = [&8u32.to_le_bytes(), &BODY];
        context.call(OwnerId::only(Component::Node), self.to, Opcode::Echo, &parts, None);
    }

    fn reply(
        &mut self,
        _: &mut Context<'_>,
        _: OwnerId,
        _: CallId,
        outcome: Result<&[u8], CallError>,
    ) {
        self.outcomes.push(outcome.map(<[u8]>::len));
    }

    fn start(&mut self, context: &mut Context<'_>) {
        for _ in 0..100 {
            context.set_timer(context.now(), OwnerId::only(Component::Node));
        }
    }
}

#[test]
fn services_and_tasks_are_refused_calls_too() {
    let (mut node, to) = server(true);
    let world = world();
    let transport = OsTransport::new(&world, options(true)).unwrap();
    let eager = Eager { to, outcomes: Vec::new() };
    let mut eager = Node::new(world, Box::new(transport), eager);
    let caller = eager.task_caller();
    let (tell, told) = std::sync::mpsc::channel();
    eager.tasks().spawn(async move {
        let mut body = 8u32.to_le_bytes().to_vec();
        body.extend(BODY);
        let refused = caller.call(to, Opcode::Echo, body.clone(), None).await;
        tell.send(refused.map(|reply| reply.len())).unwrap();
    });
    // The server takes no turn meanwhile, so there is no connection yet.
    for _ in 0..10 {
        eager.turn_now();
    }
    let refused = eager.service().outcomes.len();
    let begun = 100 - refused;
    assert!(eager.service().outcomes.iter().all(|it| *it == Err(CallError::Congested)));
    assert_eq!(begun, HIGH / (BODY.len() + 20) + 1);
    assert_eq!(told.try_recv(), Ok(Err(CallError::Congested)), "the task is told as well");
    while eager.service().outcomes.len() < 100 {
        node.turn_now();
        eager.turn_now();
    }
    assert!(eager.service().outcomes[refused..].iter().all(|it| *it == Ok(8)));
}
