//! Byte streams in the simulator: under all faults of the network and the server, a client receives
//! a prefix of the server's bytes, in order. On a network without faults it receives all.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_net::sim::{Link, address};
use thunderhead_net::stream::{Opened, StreamAddress, Taken, Then};
use thunderhead_net::{Cause, ConnectionId};
use thunderhead_rpc::{Component, Context, Node, OwnerId, Request, Service};
use thunderhead_runtime::Time;
use thunderhead_simulator::{Options, Simulation};

/// The lines of a client.
const LINES: usize = 200;

/// The time that a slow line takes.
const SLOW: Duration = Duration::from_micros(300);

/// Returns the client's nth line. Every seventh line is slow.
fn line(number: usize) -> Vec<u8> {
    let kind = if number.is_multiple_of(7) { "slow" } else { "fast" };
    format!("{kind} {}\n", "x".repeat(number * 31 % 400)).into_bytes()
}

/// Answers each line with its number among the lines of its stream and the line.
#[derive(Default)]
struct Server {
    lines: BTreeMap<ConnectionId, usize>,
    /// Streams that wait for the answer to a slow line.
    slow: VecDeque<(Time, ConnectionId, Vec<u8>)>,
}

fn answer(number: usize, line: &[u8]) -> Vec<u8> {
    [format!("{number} ").as_bytes(), line].concat()
}

impl Service for Server {
    fn request(&mut self, _: &mut Context<'_>, _: Request<'_>) {}

    fn stream_opened(&mut self, _: &mut Context<'_>, stream: ConnectionId, _: Opened) {
        self.lines.insert(stream, 0);
    }

    fn stream_bytes(
        &mut self,
        context: &mut Context<'_>,
        from: ConnectionId,
        bytes: &[u8],
    ) -> Taken {
        let mut used = 0;
        for line in bytes.split_inclusive(|byte| *byte == b'\n').filter(|it| it.ends_with(b"\n")) {
            if !context.may_go_on(from) {
                return Taken { bytes: used, then: Then::Again };
            }
            used += line.len();
            context.charge(Duration::from_micros(10));
            let count = self.lines.entry(from).or_default();
            let answer = answer(*count, line);
            *count += 1;
            if line.starts_with(b"slow") {
                let at = context.now() + SLOW;
                context.set_timer(at, OwnerId::only(Component::Echo));
                self.slow.push_back((at, from, answer));
                return Taken { bytes: used, then: Then::Wait };
            }
            context.send_bytes(from, &[&answer]);
        }
        Taken::read_on(used)
    }

    fn timer(&mut self, context: &mut Context<'_>, _: OwnerId) {
        while let Some((_, stream, answer)) = self.slow.pop_front_if(|it| it.0 <= context.now()) {
            context.send_bytes(stream, &[&answer]);
            context.resume_stream(stream);
        }
    }

    fn stream_closed(&mut self, _: &mut Context<'_>, stream: ConnectionId, _: Cause) {
        self.lines.remove(&stream);
    }
}

/// The counts of all clients.
#[derive(Default)]
struct Seen {
    /// Streams on which all lines were answered.
    complete: usize,
    closed: BTreeMap<Cause, usize>,
}

/// Sends all lines over a stream, and begins again with another stream when it is closed.
struct Client {
    to: SocketAddr,
    received: Vec<u8>,
    expected: Vec<u8>,
    seen: Rc<RefCell<Seen>>,
}

impl Service for Client {
    fn start(&mut self, context: &mut Context<'_>) {
        context.connect_stream(self.to);
    }

    fn request(&mut self, _: &mut Context<'_>, _: Request<'_>) {}

    fn stream_opened(&mut self, context: &mut Context<'_>, stream: ConnectionId, _: Opened) {
        self.received.clear();
        let mut number = 0;
        while number < LINES {
            // Several lines in one piece, and a line in several pieces.
            let most = 1 + context.random().below(20) as usize;
            let end = LINES.min(number + most);
            let burst: Vec<u8> = (number..end).flat_map(line).collect();
            let (first, second) = burst.split_at(burst.len() / 3);
            context.send_bytes(stream, &[first, second]);
            number = end;
        }
    }

    fn stream_bytes(
        &mut self,
        context: &mut Context<'_>,
        from: ConnectionId,
        bytes: &[u8],
    ) -> Taken {
        self.received.extend_from_slice(bytes);
        assert!(self.expected.starts_with(&self.received), "other bytes than those of the server");
        if self.received.len() == self.expected.len() {
            self.seen.borrow_mut().complete += 1;
            context.finish_stream(from);
        }
        Taken::read_on(bytes.len())
    }

    fn stream_closed(&mut self, context: &mut Context<'_>, _: ConnectionId, why: Cause) {
        *self.seen.borrow_mut().closed.entry(why).or_default() += 1;
        let at = context.now() + Duration::from_millis(5);
        context.set_timer(at, OwnerId::only(Component::Node));
    }

    fn timer(&mut self, context: &mut Context<'_>, _: OwnerId) {
        context.connect_stream(self.to);
    }
}

fn run(seed: u64, link: Link, faults: impl Fn(&mut Simulation)) -> Seen {
    let mut simulation = Simulation::new(Options { link, ..Options::calm(seed) });
    let server = simulation.add_host("server", |boot| {
        let mut node = Node::new(boot.world, boot.transport, Server::default());
        let address = StreamAddress::Tcp(SocketAddr::new(boot.address, 7));
        node.listen_stream(&address, b"full\n").unwrap();
        Box::new(node)
    });
    let to = address(simulation.address(server), 7);
    let seen = Rc::new(RefCell::new(Seen::default()));
    for name in ["one", "two"] {
        let seen = Rc::clone(&seen);
        simulation.add_host(name, move |boot| {
            let expected = (0..LINES).flat_map(|at| answer(at, &line(at))).collect();
            let client = Client { to, received: Vec::new(), expected, seen: Rc::clone(&seen) };
            Box::new(Node::new(boot.world, boot.transport, client))
        });
    }
    faults(&mut simulation);
    simulation.run_until(Duration::from_secs(5));
    seen.take()
}

#[test]
fn on_a_good_network_all_answers_come() {
    for streams in [true, false] {
        let seen = run(1, Link { streams, ..Link::default() }, |_| {});
        assert!(seen.complete > 300, "{}", seen.complete);
        assert_eq!(seen.closed.keys().copied().collect::<Vec<_>>(), [Cause::ByUs]);
    }
}

#[test]
fn on_a_bad_network_the_answers_are_a_prefix() {
    for seed in 0..8 {
        let link = Link {
            streams: seed % 2 == 0,
            loss: 0.002,
            duplicates: 0.05,
            stragglers: 0.02,
            resets: 0.002,
            ..Link::default()
        };
        let seen = run(seed, link, |simulation| {
            for crash in 1..8 {
                let host = thunderhead_simulator::HostId(0);
                simulation.after(Duration::from_millis(crash * 600), move |simulation| {
                    if crash % 2 == 0 {
                        simulation.crash(host);
                    } else {
                        simulation.cut_power(host);
                    }
                    simulation.restart_after(host, Duration::from_millis(200));
                });
            }
        });
        assert!(seen.complete > 0, "seed {seed}: {}", seen.complete);
        assert!(seen.closed.contains_key(&Cause::Reset), "seed {seed}: {:?}", seen.closed);
    }
}
