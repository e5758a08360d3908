//! A thread that calls only now and then: the time between its calls does not count against them.
//! The clock is set by hand, except in tests that really wait.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use thunderhead_net::os::{Options, OsTransport};
use thunderhead_net::{Cause, Transport};
use thunderhead_rpc::echo::Echo;
use thunderhead_rpc::{CallError, CallId, Caller, Node, Opcode};
use thunderhead_runtime::clock::Clock;
use thunderhead_runtime::polling::Polling;
use thunderhead_runtime::sim::clock::{SimClock, TrueTime};
use thunderhead_runtime::{Time, World, os};

struct Pair {
    truth: TrueTime,
    node: Node<Echo>,
    caller: Caller,
    address: SocketAddr,
    ended: Vec<(CallId, Result<usize, CallError>)>,
}

fn world(truth: &TrueTime) -> World {
    let world = os::world_without_files().expect("an event descriptor");
    let clock = SimClock::new(truth.clone(), Time(0), 0);
    World { clock: Clock::Sim(Arc::new(clock)), ..world }
}

impl Pair {
    fn new(shared_memory: bool) -> Pair {
        let truth = TrueTime::default();
        let options = Options { shared_memory, ..Options::default() };
        let transport = |world: &World| -> Box<dyn Transport + Send> {
            Box::new(OsTransport::new(world, options).unwrap())
        };
        let (server, client) = (world(&truth), world(&truth));
        let transports = (transport(&server), transport(&client));
        let mut node = Node::new(server, transports.0, Echo::default());
        let address = node.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let caller = Caller::new(&client, transports.1, Polling::Always);
        Pair { truth, node, caller, address, ended: Vec::new() }
    }

    fn pass(&self, time: Duration) {
        self.truth.set(self.truth.get() + time.as_nanos() as u64);
    }

    fn begin(&mut self, opcode: Opcode, parts: &[&[u8]], timeout: Duration) -> CallId {
        self.caller.begin(self.address, opcode, parts, Some(timeout)).unwrap()
    }

    /// Lets the caller poll several times, each time a little later.
    fn look(&mut self) {
        for _ in 0..20 {
            self.pass(Duration::from_micros(100));
            let Pair { caller, ended, .. } = self;
            caller.poll(&mut |id, outcome| ended.push((id, outcome.map(<[u8]>::len))));
        }
    }

    fn until_ended(&mut self) -> Result<usize, CallError> {
        for _ in 0..100_000 {
            if let Some((_, outcome)) = self.ended.pop() {
                return outcome;
            }
            self.look();
            self.node.turn_now();
        }
        panic!("a call never ends");
    }
}

const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_calls_time_begins_when_it_is_begun() {
    for shared_memory in [false, true] {
        let mut pair = Pair::new(shared_memory);
        for _ in 0..3 {
            // The thread does other work in the meantime; the server continues.
            pair.pass(HOUR);
            pair.node.turn_now();
            pair.begin(Opcode::Ping, &[], SECOND);
            assert_eq!(pair.until_ended(), Ok(0), "shared memory: {shared_memory}");
        }
        pair.begin(Opcode::Ping, &[], SECOND);
        pair.pass(SECOND);
        pair.look();
        assert_eq!(pair.ended.pop().map(|it| it.1), Some(Err(CallError::Late)));
        assert_eq!(pair.caller.transport().counters().connected, 1);
    }
}

#[test]
fn a_server_has_its_whole_time_for_a_greeting() {
    let mut pair = Pair::new(false);
    pair.look();
    pair.pass(HOUR);
    pair.begin(Opcode::Ping, &[], HOUR);
    // The kernel has accepted; the server is slow.
    for _ in 0..49 {
        pair.look();
        pair.pass(SECOND / 10);
    }
    assert_eq!(pair.ended, []);
    for _ in 0..5 {
        pair.look();
        pair.pass(SECOND / 10);
    }
    let unreachable = Err(CallError::Unreachable(Cause::NoGreeting));
    assert_eq!(pair.ended.pop().map(|it| it.1), Some(unreachable));
}

#[test]
fn a_server_has_its_whole_time_to_take_what_it_is_sent() {
    for shared_memory in [false, true] {
        let mut pair = Pair::new(shared_memory);
        pair.begin(Opcode::Ping, &[], SECOND);
        assert_eq!(pair.until_ended(), Ok(0));
        pair.pass(HOUR);
        // More bytes than sockets and rings hold: the rest waits for the server.
        let long = vec![7; 7 << 20];
        pair.begin(Opcode::Echo, &[&1u32.to_le_bytes(), &long], HOUR);
        for _ in 0..29 {
            pair.look();
            pair.pass(SECOND);
        }
        assert_eq!(pair.ended, []);
        assert_eq!(pair.until_ended(), Ok(1), "shared memory: {shared_memory}");
    }
}

#[test]
fn a_waiting_caller_returns_when_its_alarm_rings() {
    let world = os::world_without_files().unwrap();
    let transport = OsTransport::new(&world, Options::default()).unwrap();
    let alarm = world.alarm.clone();
    // It sleeps at once, and for ever without a ring.
    let mut caller = Caller::new(&world, Box::new(transport), Polling::Never);
    for _ in 0..100 {
        let rings = alarm.clone();
        os::detach("rings", move || rings.ring()).unwrap();
        caller.wait_or_rung(Time::NEVER, &mut || alarm.was_rung(), &mut |_, _| {});
    }
}

#[test]
fn a_call_without_a_timeout_ends_if_the_peer_never_greets() {
    let (tell, told) = std::sync::mpsc::channel();
    #[allow(clippy::disallowed_methods, reason = "a listener that never greets")]
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = mute.local_addr().unwrap();
    for polling in [Polling::Never, Polling::Always] {
        let tell = tell.clone();
        #[allow(
            clippy::disallowed_methods,
            reason = "the thread is abandoned if the call never ends"
        )]
        std::thread::spawn(move || {
            let mut options = Options { shared_memory: false, ..Options::default() };
            options.limits.greeting = Duration::from_millis(20);
            let world = os::world_without_files().unwrap();
            let transport = Box::new(OsTransport::new(&world, options).unwrap());
            let mut caller = Caller::new(&world, transport, polling);
            tell.send(caller.call(address, Opcode::Ping, &[], None, <[u8]>::len)).unwrap();
        });
        let outcome = told.recv_timeout(Duration::from_secs(60));
        assert_eq!(outcome, Ok(Err(CallError::Unreachable(Cause::NoGreeting))), "{polling:?}");
    }
}
