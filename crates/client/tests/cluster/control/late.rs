//! Tests of requests without an answer: a copy that the network delays changes nothing later, and
//! the error says whether the request may have been done.

use super::{Stage, drop_table, only};
use std::time::Duration;
use thunderhead_client::control::{ChangeSettings, DropTable, MigrateTablet, to_body};
use thunderhead_client::{Error, KeyHash, MasterId, Obstacle, Question, Reply, Status, Version};
use thunderhead_rpc::{CallError, Opcode};

impl Stage {
    /// Waits for the answer to a change of settings. Returns the setting.
    fn min_replicas_set(&mut self) -> u32 {
        match self.answered() {
            Ok(Reply::Settings(changed)) => changed.settings.min_replicas,
            other => panic!("{other:?}"),
        }
    }
}

fn set_min_replicas(min_replicas: u32) -> Question {
    let min_replicas = Some(min_replicas);
    Question::ChangeSettings(ChangeSettings { min_replicas, ..ChangeSettings::default() })
}

fn refused(status: Status) -> CallError {
    CallError::Refused { status, hint: 0, detail: 7 }
}

#[test]
fn a_delayed_drop_deletes_no_later_table_of_the_same_name() {
    let mut stage = Stage::new();
    let former = stage.create("t");
    stage.ask(drop_table("t"));
    let map = only(stage.calls(), Opcode::Map);
    stage.answer(&map);
    let held = only(stage.calls(), Opcode::DropTable);
    stage.fail(&held, CallError::Late);
    // Another client drops the table. The first one learns that it is gone.
    let other = to_body(&DropTable::named("t"));
    stage.cluster.carry_out(Opcode::DropTable, &other, stage.now.0).unwrap();
    assert_eq!(stage.answered(), Ok(Reply::Done));
    let table = stage.create("t");
    assert!(table > former);
    // The delayed message arrives.
    let late = stage.cluster.carry_out(held.opcode, &held.body, stage.now.0);
    assert_eq!(late, Err(Status::NoSuchTable));
    assert_eq!(stage.cluster.map.tables[0].id, table);
    // The user may name the id.
    let ask = |stage: &mut Stage, id| {
        stage.ask(Question::DropTable(DropTable { name: "t".to_owned(), id: Some(id) }));
        stage.answered()
    };
    assert_eq!(ask(&mut stage, former), Err(Error::Refused(Status::NoSuchTable)));
    assert_eq!(ask(&mut stage, table), Ok(Reply::Done));
}

#[test]
fn a_delayed_change_of_settings_undoes_no_later_change() {
    let mut stage = Stage::new();
    stage.create("t");
    stage.ask(set_min_replicas(2));
    let status = only(stage.calls(), Opcode::ClusterStatus);
    stage.answer(&status);
    let held = only(stage.calls(), Opcode::ChangeSettings);
    stage.fail(&held, CallError::Late);
    assert_eq!(stage.min_replicas_set(), 2);
    // Another client changes the setting. Then the delayed message arrives.
    stage.ask(set_min_replicas(3));
    assert_eq!(stage.min_replicas_set(), 3);
    let late = stage.cluster.carry_out(held.opcode, &held.body, stage.now.0);
    assert_eq!((late, stage.cluster.min_replicas), (Err(Status::Outdated), 3));
}

#[test]
fn a_change_of_settings_is_repeated_if_another_one_came_between() {
    let mut stage = Stage::new();
    stage.create("t");
    stage.ask(set_min_replicas(2));
    let call = only(stage.calls(), Opcode::ClusterStatus);
    stage.answer(&call);
    stage.cluster.settings_version = Some(9);
    assert!(matches!(stage.answered(), Ok(Reply::Settings(_))));
    assert_eq!((stage.cluster.min_replicas, stage.cluster.settings_version), (2, Some(10)));
    assert_eq!(stage.count(Opcode::ChangeSettings), 2);
    // A version that the user names is not replaced.
    let changes = |version| ChangeSettings { min_replicas: Some(4), version, format: None };
    stage.ask(Question::ChangeSettings(changes(Some(9))));
    assert_eq!(stage.answered(), Err(Error::Refused(Status::Outdated)));
    stage.ask(Question::ChangeSettings(changes(Some(10))));
    assert!(stage.answered().is_ok());
    // A coordinator of an earlier version has no versions.
    stage.cluster.settings_version = None;
    stage.ask(Question::ChangeSettings(changes(None)));
    assert!(stage.answered().is_ok());
}

/// The session would have repeated the change, so its user has nothing to look at again.
#[test]
fn a_change_of_settings_that_is_not_repeated_in_time_is_not_called_outdated() {
    let mut stage = Stage::new();
    stage.create("t");
    stage.ask(set_min_replicas(2));
    let call = only(stage.calls(), Opcode::ClusterStatus);
    stage.answer(&call);
    let change = only(stage.calls(), Opcode::ChangeSettings);
    stage.fail(&change, refused(Status::Outdated));
    // No coordinator answers any more.
    stage.pass(Duration::from_secs(10));
    let answer = stage.session.next_answer().unwrap().1;
    assert_eq!(answer, Err(Error::TimedOut(Obstacle::NoCoordinator)));
}

#[test]
fn a_change_whose_lookup_is_not_answered_was_not_done() {
    for question in [set_min_replicas(2), drop_table("t")] {
        let mut stage = Stage::new();
        stage.ask(question);
        // No coordinator answers, and the last lookup is still in flight at the deadline.
        stage.calls();
        stage.pass(Duration::from_secs(10));
        let answer = stage.session.next_answer().unwrap().1;
        assert_eq!(answer, Err(Error::TimedOut(Obstacle::NoCoordinator)));
    }
}

#[test]
fn a_migration_in_progress_is_unknown_until_the_coordinator_tells_its_end() {
    let (late, progress) = (CallError::Late, refused(Status::InProgress));
    let ended = refused(Status::NotMigrated);
    let unknown = Error::Unknown(Obstacle::InProgress);
    let cases = [
        // The deadline passes.
        (vec![progress], unknown),
        (vec![refused(Status::Busy)], Error::Refused(Status::Busy)),
        (vec![progress, refused(Status::Busy)], Error::Unknown(Obstacle::Busy)),
        // The coordinator tells the end.
        (vec![progress, ended], Error::Refused(Status::NotMigrated)),
        (vec![progress, refused(Status::NoSuchTable)], unknown),
        (vec![refused(Status::NoSuchTable)], Error::Refused(Status::NoSuchTable)),
        // A delayed copy may begin another migration.
        (vec![late, progress, ended], unknown),
    ];
    for (errors, expected) in cases {
        let mut stage = Stage::new();
        stage.create("t");
        let (table, first, to) = ("t".to_owned(), KeyHash::MIN, MasterId(1));
        stage.ask(Question::MigrateTablet(MigrateTablet { table, first, to }));
        let mut left = errors.iter();
        let mut last = errors[0];
        while !stage.session.has_done() {
            for call in stage.calls() {
                last = left.next().copied().unwrap_or(last);
                stage.fail(&call, last);
            }
            stage.pass(Duration::from_millis(50));
        }
        let answer = stage.session.next_answer().unwrap().1;
        assert_eq!(answer, Err(expected), "{errors:?}");
    }
}

#[test]
fn after_a_lost_attempt_only_recorded_refusals_are_definite() {
    use Status::{
        ConditionFailed, Deposed, KeyEmpty, KeyTooLong, Malformed, NotANumber, Overflow,
        ReplyTooLong, Stale, UnknownOpcode, ValueTooLong, VersionsExhausted,
    };
    let unknown = Error::Unknown(Obstacle::NoAnswer);
    let definite = [KeyEmpty, KeyTooLong, ValueTooLong, Overflow, VersionsExhausted];
    let version = Version(7);
    let mut cases = vec![
        (CallError::TooLong, Error::Refused(ValueTooLong), unknown),
        (
            refused(ConditionFailed),
            Error::ConditionFailed { version },
            Error::ConditionFailed { version },
        ),
        (refused(NotANumber), Error::NotANumber { version }, Error::NotANumber { version }),
    ];
    for status in definite {
        cases.push((refused(status), Error::Refused(status), Error::Refused(status)));
    }
    for status in [UnknownOpcode, Malformed, Deposed, Stale, ReplyTooLong] {
        cases.push((refused(status), Error::Refused(status), unknown));
    }
    for (error, first, after_a_lost_one) in cases {
        for (errors, expected) in
            [(vec![error], first), (vec![CallError::Late, error], after_a_lost_one)]
        {
            let mut stage = Stage::new();
            let table = stage.create("t");
            stage.write(table);
            let mut left = errors.iter();
            while !stage.session.has_done() {
                for call in stage.calls() {
                    match call.opcode {
                        Opcode::Write => stage.fail(&call, *left.next().expect("an error")),
                        _ => stage.answer(&call),
                    }
                }
                stage.pass(Duration::from_millis(1));
            }
            let result = stage.session.next_done().unwrap().1.remove(0);
            assert_eq!(result, Err(expected), "{errors:?}");
        }
    }
}
