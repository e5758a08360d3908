//! The error of an operation or a question names the reason: the refusal, or the obstacle at the
//! deadline.

use super::{Stage, create};
use std::time::Duration;
use thunderhead_client::control::SplitTablet;
use thunderhead_client::{Error, KeyHash, Obstacle, Question, Reply, Status};
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_runtime::Time;

#[test]
fn an_error_at_the_deadline_names_the_obstacle() {
    let cases = [
        (Status::AwaitingReplicas, Error::Unknown(Obstacle::Replicas)),
        (Status::AwaitingLease, Error::TimedOut(Obstacle::Lease)),
        (Status::AwaitingMemory, Error::TimedOut(Obstacle::Memory)),
        (Status::Busy, Error::TimedOut(Obstacle::Busy)),
        (Status::NoSpace, Error::TimedOut(Obstacle::NoSpace)),
        (Status::Moved, Error::TimedOut(Obstacle::NoOwner)),
    ];
    for (status, expected) in cases {
        let mut stage = Stage::new();
        let table = stage.create("t");
        stage.write(table);
        let holds = status == Status::AwaitingReplicas;
        let hold_from = if holds { stage.now + Duration::from_secs(9) } else { Time::NEVER };
        let result = loop {
            for call in stage.calls() {
                match call.opcode {
                    // The server holds the last attempt until the client stops waiting.
                    Opcode::Write if stage.now > hold_from => {
                        stage.fail(&call, CallError::Late);
                    }
                    Opcode::Write => {
                        stage.fail(&call, CallError::Refused { status, hint: 0, detail: 0 });
                    }
                    _ => stage.answer(&call),
                }
            }
            if let Some((_, mut results)) = stage.session.next_done() {
                break results.remove(0);
            }
            stage.pass(Duration::from_millis(100));
        };
        assert_eq!(result, Err(expected), "{status:?}");
    }
}

#[test]
fn a_question_ends_with_the_reason_for_its_refusal() {
    let mut stage = Stage::new();
    stage.create("t");
    let split = |at| Question::SplitTablet(SplitTablet { table: "t".to_owned(), at: KeyHash(at) });
    stage.ask(split(0));
    assert_eq!(stage.answered(), Err(Error::Refused(Status::BadRange)));
    stage.ask(split(5));
    assert!(matches!(stage.answered(), Ok(Reply::Table(table)) if table.tablets.len() == 2));

    let ends = |stage: &mut Stage, error: Option<CallError>| {
        for _ in 0..1000 {
            for call in stage.calls() {
                stage.fail(&call, error.unwrap_or(CallError::Late));
            }
            if let Some((_, answer)) = stage.session.next_answer() {
                return answer.unwrap_err();
            }
            stage.pass(Duration::from_millis(50));
        }
        panic!("it never ends");
    };
    // No server can take the table until the deadline.
    stage.ask(create("u"));
    let none = CallError::Refused { status: Status::NoServers, hint: 0, detail: 0 };
    let error = ends(&mut stage, Some(none));
    assert_eq!(error.to_string(), "no server can take it; start one");
    assert!(!error.is_unknown());
    // No coordinator answers.
    stage.ask(Question::Map(None));
    let error = ends(&mut stage, None);
    assert_eq!(error, Error::TimedOut(Obstacle::NoCoordinator));
    assert_eq!(
        error.to_string(),
        "the operation timed out and was not done: no coordinator answers; check the addresses and that a coordinator runs"
    );
    stage.ask(create("v"));
    assert_eq!(ends(&mut stage, None), Error::Unknown(Obstacle::NoCoordinator));
    // Every coordinator says that another one leads.
    stage.ask(create("w"));
    let other = CallError::Refused { status: Status::NotLeader, hint: 0, detail: 0 };
    assert_eq!(ends(&mut stage, Some(other)), Error::TimedOut(Obstacle::NoCoordinator));
    // The waits bound the number of calls.
    let before = stage.sent.len();
    stage.ask(Question::Map(None));
    ends(&mut stage, None);
    let asked = stage.sent.len() - before;
    assert!((10..200).contains(&asked), "{asked} calls in ten seconds");
}
