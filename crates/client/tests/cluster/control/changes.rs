//! Changes without an answer: the answer is lost, or the leader abandons the change. The session
//! repeats a creation, and never a drop. It looks for the result in the map.

use super::{Stage, create, drop_table};
use std::time::Duration;
use thunderhead_client::{Error, Obstacle, Question, Reply, Status};
use thunderhead_rpc::{CallError, Opcode};

#[test]
fn a_creation_without_an_answer_succeeds_and_makes_one_table() {
    let mut stage = Stage::new();
    stage.create("other");
    let call = stage.begin_create("t");
    // The table is created, but the answer is lost.
    stage.carry_out(&call);
    stage.fail(&call, CallError::Broken);
    let Ok(Reply::Table(table)) = stage.answered() else { panic!("the table exists") };
    assert_eq!(table.name, "t");
    assert_eq!(stage.cluster.map.tables.len(), 2);
    // Creating a table that existed before is refused.
    stage.ask(create("t"));
    assert_eq!(stage.answered(), Err(Error::Refused(Status::TableExists)));
}

#[test]
fn a_creation_in_progress_succeeds_when_the_table_is_served_and_is_unknown_until_then() {
    let in_progress = CallError::Refused { status: Status::InProgress, hint: 0, detail: 0 };
    for is_served in [true, false] {
        let mut stage = Stage::new();
        let call = stage.begin_create("t");
        stage.carry_out(&call);
        let tablets = &mut stage.cluster.map.tables[0].tablets;
        let address = tablets[0].address.take();
        assert!(address.is_some());
        stage.fail(&call, in_progress);
        if is_served {
            stage.cluster.map.tables[0].tablets[0].address = address;
            let Ok(Reply::Table(table)) = stage.answered() else { panic!("the table was made") };
            assert_eq!(table.tablets[0].address, address);
        } else {
            // Each call settles for a few seconds of the deadline's ten.
            (0..4).for_each(|_| stage.settle());
            assert_eq!(stage.answered(), Err(Error::Unknown(Obstacle::InProgress)));
        }
        assert_eq!(stage.cluster.map.tables.len(), 1);
    }
}

#[test]
fn a_change_that_a_leader_abandons_is_unknown_until_the_next_leader_is_asked() {
    let lost = CallError::Refused { status: Status::LeadershipLost, hint: 0, detail: 0 };
    for is_done in [true, false] {
        let mut stage = Stage::new();
        let call = stage.begin_create("t");
        if is_done {
            stage.carry_out(&call);
        }
        stage.fail(&call, lost);
        let Ok(Reply::Table(table)) = stage.answered() else { panic!("the table was made") };
        assert_eq!((table.name.as_str(), stage.cluster.map.tables.len()), ("t", 1));

        let call = stage.begin_drop("t");
        if is_done {
            stage.carry_out(&call);
        }
        stage.fail(&call, lost);
        let mut waited = Duration::ZERO;
        while !stage.session.has_done() && waited < Duration::from_secs(11) {
            for call in stage.calls() {
                stage.answer(&call);
            }
            stage.pass(Duration::from_millis(100));
            waited += Duration::from_millis(100);
        }
        let dropped = stage.session.next_answer().unwrap().1;
        let unknown = Err(Error::Unknown(Obstacle::NoLeader));
        assert_eq!(dropped, if is_done { Ok(Reply::Done) } else { unknown });
    }
}

#[test]
fn a_table_is_never_dropped_twice() {
    let mut stage = Stage::new();
    stage.create("t");
    let call = stage.begin_drop("t");
    stage.carry_out(&call);
    stage.fail(&call, CallError::Late);
    // Another client creates a table with the same name meanwhile.
    let made = create("t");
    let Question::CreateTable(it) = made else { panic!() };
    let body = thunderhead_client::control::to_body(&it);
    stage.cluster.carry_out(Opcode::CreateTable, &body, stage.now.0).unwrap();
    assert_eq!(stage.answered(), Ok(Reply::Done));
    assert_eq!((stage.count(Opcode::DropTable), stage.cluster.map.tables.len()), (1, 1));

    // If the deletion was not done, the session cannot know that: it ends as unknown.
    let call = stage.begin_drop("t");
    stage.fail(&call, CallError::Late);
    let mut waited = Duration::ZERO;
    while !stage.session.has_done() && waited < Duration::from_secs(11) {
        for call in stage.calls() {
            stage.answer(&call);
        }
        stage.pass(Duration::from_millis(100));
        waited += Duration::from_millis(100);
    }
    assert_eq!(
        stage.session.next_answer().unwrap().1,
        Err(Error::Unknown(Obstacle::NoCoordinator))
    );
    assert_eq!(stage.count(Opcode::DropTable), 2, "one for each question");
    stage.ask(drop_table("nothing"));
    assert_eq!(stage.answered(), Err(Error::Refused(Status::NoSuchTable)));
}
