//! A leader that is stopped between a reading of the clock and the decision by that reading.

use crate::control_plane::{ControlPlane, create, drop_table, map, options};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_rpc::{CallError, Node, Opcode};
use thunderhead_testkit::Place;
use thunderhead_wire::Status;
use thunderhead_wire::control::{CreateTable, MapRequest, to_body};

/// Returns the answers of one coordinator, leading or not: a host asks it repeatedly. While the
/// coordinator's answers are decisions, the next question follows at once, so that one is in flight
/// most of the time.
fn asks_only(
    cluster: &mut ControlPlane,
    coordinator: usize,
    asked: (Opcode, Vec<u8>),
) -> Rc<RefCell<Said>> {
    let to = cluster.address(Place::Coordinator(coordinator));
    let said: Rc<RefCell<Said>> = Rc::default();
    let noted = Rc::clone(&said);
    cluster.add_user(move |boot| {
        let node = Node::new(boot.world, boot.transport, ());
        let (tasks, caller, noted) = (node.tasks().clone(), node.task_caller(), Rc::clone(&noted));
        let asked = asked.clone();
        node.tasks().spawn(async move {
            loop {
                let (opcode, body) = asked.clone();
                let timeout = Some(Duration::from_secs(20));
                let said = caller.call(to, opcode, body, timeout).await;
                let pause = if is_decided(&said) { 10 } else { 5000 };
                noted.borrow_mut().push(said);
                tasks.sleep(Duration::from_micros(pause)).await;
            }
        });
        Box::new(node)
    });
    said
}

type Said = Vec<Result<Vec<u8>, CallError>>;

/// Whether an answer is a leader's.
fn is_decided(said: &Result<Vec<u8>, CallError>) -> bool {
    match said {
        Ok(_) => true,
        Err(CallError::Refused { status, .. }) => *status == Status::TableExists,
        Err(_) => false,
    }
}

#[test]
fn a_leader_that_was_stopped_behind_the_clock_does_not_answer_under_its_former_leadership() {
    // One request is answered at once, the other by a task that needs no write for it.
    let create = CreateTable::spread("old", 1);
    let asked =
        [(Opcode::Map, to_body(&MapRequest::default())), (Opcode::CreateTable, to_body(&create))];
    // Some of the tasks are asking masters when the leader is stopped, and end when it goes on.
    let cases = (16..24).flat_map(|seed| asked.clone().map(|(opcode, body)| (seed, opcode, body)));
    for (seed, opcode, body) in cases {
        let mut cluster = ControlPlane::new(seed, 2, 2, &options());
        cluster.until_all_are_there();
        self::create(&mut cluster, "old", 1).unwrap();
        let old = cluster.leader().expect("a coordinator leads");
        let said = asks_only(&mut cluster, old, (opcode, body));
        cluster.simulation.run_for(Duration::from_millis(100));
        assert!(said.borrow().iter().all(is_decided), "it leads: {:?}", said.borrow());
        let stops_for = options().leadership_ttl * 6;
        let host = cluster.host(Place::Coordinator(old));
        cluster.simulation.stop_behind_the_clock(host, stops_for);
        cluster.until("another one leads", |cluster| cluster.leader().is_some_and(|it| it != old));
        // The user finds the new leader by this, and repeats no question after it.
        map(&mut cluster);
        drop_table(&mut cluster, "old").unwrap();
        // The last answers of the leadership may have been in flight until here.
        said.borrow_mut().clear();
        cluster.simulation.run_for(stops_for);
        let said = said.borrow();
        assert!(
            !said.is_empty() && !said.iter().any(is_decided),
            "{opcode}, seed {seed}: {said:?}"
        );
    }
}
