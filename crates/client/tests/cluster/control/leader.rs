//! A session finds the leader among its coordinators. If no coordinator answers, it resolves their
//! names again. Without coordinators nothing waits.

use super::{Stage, coordinators, create, only};
use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_client::{
    Action, Addresses, Condition, Error, Operation, Question, Reply, Session, TableId,
};
use thunderhead_net::Cause;
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_runtime::names::{AddressUpdate, Resolve};
use thunderhead_runtime::{Random, Time};

#[test]
fn a_session_finds_the_leader_and_then_asks_it_directly() {
    for leader in 0..3 {
        let mut stage = Stage::new();
        stage.cluster.leader = leader;
        stage.create("a");
        assert!(stage.sent.len() <= 3, "{:?}", stage.sent);
        let asked = stage.sent.len();
        stage.create("b");
        assert_eq!(stage.sent[asked..], [(coordinators()[leader], Opcode::CreateTable)]);
        // That coordinator crashes, and another one leads.
        stage.cluster.leader = (leader + 2) % 3;
        stage.ask(Question::ClusterStatus);
        let call = only(stage.calls(), Opcode::ClusterStatus);
        stage.fail(&call, CallError::Late);
        assert!(matches!(stage.answered(), Ok(Reply::Cluster(_))));
    }
}

#[test]
fn without_coordinators_nothing_waits() {
    let mut session = Session::new(Vec::new(), Random::from_seed(1));
    let operation = Operation {
        table: TableId(1),
        key: b"k".to_vec(),
        condition: Condition::Always,
        action: Action::Delete,
    };
    session.ask(Time(1), Question::ClusterStatus, Time::NEVER);
    assert_eq!(session.next_answer().unwrap().1, Err(Error::NoCoordinators));
    session.begin(Time(1), vec![operation], Time::NEVER);
    while session.next_output().is_some() {}
    assert_eq!(session.next_done().unwrap().1, [Err(Error::NoCoordinators)]);
}

/// Resolves the coordinators' names to new addresses.
struct Moved(Vec<SocketAddr>);

impl Resolve for Moved {
    fn resolve(&self, update: AddressUpdate) {
        update.tell(self.0.clone());
    }
}

#[test]
fn coordinators_that_do_not_answer_are_resolved_again() {
    let now = coordinators();
    let former: Vec<SocketAddr> = ["10.0.9.1:1", "10.0.9.2:1"].map(|it| it.parse().unwrap()).into();
    let named = Addresses::resolved(former.clone(), Box::new(Moved(now.clone())));
    let mut stage = Stage::new();
    stage.session = Session::new(named, Random::from_seed(1));
    stage.ask(create("t"));
    let mut tried = Vec::new();
    while !stage.session.has_done() {
        for call in stage.calls() {
            tried.push(call.to);
            match now.contains(&call.to) {
                true => stage.answer(&call),
                false => stage.fail(&call, CallError::Unreachable(Cause::Refused)),
            }
        }
        stage.pass(Duration::from_millis(1));
    }
    assert!(matches!(stage.session.next_answer().unwrap().1, Ok(Reply::Table(_))));
    assert!(former.iter().all(|it| tried[..2].contains(it)), "{tried:?}");
    assert!(tried[2..].iter().all(|it| now.contains(it)), "{tried:?}");
}
