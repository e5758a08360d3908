//! Digests of runs differ if any byte of a message or a file differs.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_net::sim::{Link, address};
use thunderhead_rpc::echo::Echo;
use thunderhead_rpc::{Node, Opcode};
use thunderhead_simulator::{Options, Simulation};

/// The inputs of a program from outside the seed.
#[derive(Clone, Copy, Default)]
struct Outside {
    said: u8,
    written: u8,
}

/// Returns the digest of a run, and the numbers of turns and answers.
fn run(link: Link, outside: Outside) -> (u64, u64, u64) {
    let mut simulation = Simulation::new(Options { link, ..Options::calm(1) });
    let server = simulation.add_host("server", |boot| {
        let mut node = Node::new(boot.world, boot.transport, Echo::default());
        node.listen(SocketAddr::new(boot.address, 7)).unwrap();
        Box::new(node)
    });
    let to = address(simulation.address(server), 7);
    let answered = Rc::new(Cell::new(0));
    let told = Rc::clone(&answered);
    simulation.add_host("client", move |mut boot| {
        let file = boot.world.files.open("notes", true).unwrap();
        boot.world.files.write_at(file, 0, &[outside.written; 100]).unwrap();
        // The file is removed again.
        boot.world.files.remove("notes").unwrap();
        let node = Node::new(boot.world, boot.transport, ());
        let (caller, told) = (node.task_caller(), Rc::clone(&told));
        node.tasks().spawn(async move {
            let mut body = 4u32.to_le_bytes().to_vec();
            body.push(outside.said);
            let reply = caller.call(to, Opcode::Echo, body, Some(Duration::from_secs(9))).await;
            told.set(told.get() + u64::from(reply.is_ok()));
        });
        Box::new(node)
    });
    simulation.run_for(Duration::from_secs(1));
    (simulation.digest(), simulation.turns(), answered.get())
}

#[test]
fn one_different_byte_in_a_message_or_a_file_changes_the_digest() {
    let usual = Link::default();
    // So slow that the message is still in flight at the end.
    let slow = Link { bytes_per_second: 300, ..usual };
    for (link, answers) in [(usual, 1), (slow, 0)] {
        let (digest, turns, answered) = run(link, Outside::default());
        assert_eq!(answered, answers);
        assert_eq!(run(link, Outside::default()), (digest, turns, answered), "the same again");
        for outside in [Outside { said: 1, written: 0 }, Outside { said: 0, written: 1 }] {
            let other = run(link, outside);
            assert_eq!((other.1, other.2), (turns, answered), "all else is the same");
            assert_ne!(other.0, digest);
        }
    }
}
