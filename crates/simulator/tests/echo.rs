//! The echo service in the simulator: every call ends with a reply or an error by its deadline,
//! under all faults of the network, and every reply belongs to its call.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_net::sim::{Link, address};
use thunderhead_rpc::echo::Echo;
use thunderhead_rpc::{CallError, Context, Node, Opcode, Request, Service};
use thunderhead_simulator::{Options, Simulation};

/// Returns the outcomes of 200 calls of one client, each with a timeout of 100 ms, and the longest
/// call.
fn outcomes(seed: u64, link: Link) -> (Vec<Result<(), CallError>>, Duration) {
    let options = Options { link, ..Options::calm(seed) };
    let mut simulation = Simulation::new(options);
    let server = simulation.add_host("server", |boot| {
        let mut node = Node::new(boot.world, boot.transport, Echo::default());
        node.listen(SocketAddr::new(boot.address, 7)).unwrap();
        Box::new(node)
    });
    let to = address(simulation.address(server), 7);
    let (results, longest) =
        (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(Duration::ZERO)));
    let (told, slowest) = (Rc::clone(&results), Rc::clone(&longest));
    simulation.add_host("client", move |boot| {
        let clock = boot.world.clock.clone();
        let node = Node::new(boot.world, boot.transport, ());
        let (caller, told, slowest) = (node.task_caller(), Rc::clone(&told), Rc::clone(&slowest));
        node.tasks().spawn(async move {
            for number in 0..200u32 {
                let mut body = 40u32.to_le_bytes().to_vec();
                body.extend(number.to_le_bytes());
                let began = clock.now();
                let timeout = Some(Duration::from_millis(100));
                let reply = caller.call(to, Opcode::Echo, body, timeout).await;
                slowest.set(slowest.get().max(clock.now().since(began)));
                told.borrow_mut().push(reply.map(|reply| {
                    assert_eq!((reply.len(), &reply[..4]), (40, number.to_le_bytes().as_slice()));
                }));
            }
        });
        Box::new(node)
    });
    simulation.run_until(Duration::from_secs(60));
    (results.take(), longest.get())
}

#[test]
fn on_a_good_network_every_call_is_answered() {
    for streams in [true, false] {
        let (results, longest) = outcomes(1, Link { streams, ..Link::default() });
        assert_eq!(results.len(), 200);
        assert!(results.iter().all(Result::is_ok));
        assert!(longest < Duration::from_micros(100), "{longest:?}");
    }
}

/// An echo whose every request ends the input of its turn.
#[derive(Default)]
struct Costly(Echo);

impl Service for Costly {
    fn request(&mut self, context: &mut Context<'_>, request: Request<'_>) {
        context.charge(Duration::from_micros(50));
        self.0.request(context, request);
    }
}

#[test]
fn messages_that_wait_for_the_next_turn_need_no_other_event() {
    let mut simulation = Simulation::new(Options::calm(3));
    let server = simulation.add_host("server", |boot| {
        let mut node = Node::new(boot.world, boot.transport, Costly::default());
        node.listen(SocketAddr::new(boot.address, 7)).unwrap();
        Box::new(node)
    });
    let to = address(simulation.address(server), 7);
    let longest = Rc::new(RefCell::new(Vec::new()));
    let told = Rc::clone(&longest);
    simulation.add_host("client", move |boot| {
        let clock = boot.world.clock.clone();
        let node = Node::new(boot.world, boot.transport, ());
        for _ in 0..12 {
            let (caller, clock, told) = (node.task_caller(), clock.clone(), Rc::clone(&told));
            node.tasks().spawn(async move {
                let began = clock.now();
                let timeout = Some(Duration::from_secs(10));
                let body = 0u32.to_le_bytes().to_vec();
                caller.call(to, Opcode::Echo, body, timeout).await.unwrap();
                told.borrow_mut().push(clock.now().since(began));
            });
        }
        Box::new(node)
    });
    simulation.run_until(Duration::from_secs(60));
    let longest = longest.take();
    assert_eq!(longest.len(), 12);
    assert!(longest.iter().all(|it| *it < Duration::from_millis(1)), "{longest:?}");
}

#[test]
fn on_a_bad_network_every_call_ends_in_time_and_gets_no_reply_of_another() {
    let bad = Link { loss: 0.2, duplicates: 0.3, stragglers: 0.2, resets: 0.02, ..Link::default() };
    let mut late = 0;
    for seed in 0..20 {
        for streams in [true, false] {
            let (results, longest) = outcomes(seed, Link { streams, ..bad });
            assert_eq!(results.len(), 200);
            assert!(longest < Duration::from_millis(110), "{longest:?}");
            late += results.iter().filter(|it| it.is_err()).count();
        }
    }
    assert!((100..6000).contains(&late), "{late}");
}

#[test]
fn over_a_broken_link_calls_fail_by_their_deadline() {
    let (results, longest) = outcomes(3, Link { blocked: true, ..Link::default() });
    assert!(results.iter().all(Result::is_err));
    assert!(longest < Duration::from_millis(110));
}

/// A service that answers, and calls itself.
#[test]
fn a_host_may_call_itself_also_after_a_restart() {
    for (seed, streams) in [(1, true), (2, false), (3, true)] {
        let link = Link { streams, ..Link::default() };
        let mut simulation = Simulation::new(Options { link, ..Options::calm(seed) });
        let answered = Rc::new(Cell::new(0));
        let told = Rc::clone(&answered);
        let host = simulation.add_host("alone", move |boot| {
            let own = SocketAddr::new(boot.address, 7);
            let mut node = Node::new(boot.world, boot.transport, Echo::default());
            node.listen(own).unwrap();
            let (caller, told) = (node.task_caller(), Rc::clone(&told));
            node.tasks().spawn(async move {
                loop {
                    let body = [40u32.to_le_bytes(), [7; 4]].concat();
                    let timeout = Some(Duration::from_millis(100));
                    let reply = caller.call(own, Opcode::Echo, body, timeout).await.unwrap();
                    assert_eq!(reply.len(), 40);
                    told.set(told.get() + 1);
                }
            });
            Box::new(node)
        });
        for _ in 0..3 {
            let before = answered.get();
            simulation.run_for(Duration::from_millis(20));
            assert!(answered.get() > before + 100, "streams: {streams}");
            simulation.crash(host);
            simulation.run_for(Duration::from_millis(1));
            simulation.start(host);
        }
    }
}
