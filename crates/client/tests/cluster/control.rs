//! Tests of a session's calls to coordinators, one by one: which coordinator it asks, which
//! requests it repeats, and which results its user gets. There is no network, and the test sets the
//! time.

mod late;

use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_client::control::{CreateTable, DropTable, Map, SplitTablet};
use thunderhead_client::{
    Action, Addresses, Answer, CallNumber, Condition, Error, KeyHash, MasterId, Obstacle,
    Operation, Output, Question, Reply, Session, Status, TableId,
};
use thunderhead_net::Cause;
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_runtime::names::{AddressUpdate, Resolve};
use thunderhead_runtime::{Random, Time};
use thunderhead_testkit::CoordinatorState;
use thunderhead_wire::LeaseId;

const SHARD: &str = "10.0.1.1:1";
const TTL: Duration = Duration::from_millis(3000);

fn coordinators() -> Vec<SocketAddr> {
    ["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"].map(|it| it.parse().unwrap()).to_vec()
}

/// A call that the session requests.
#[derive(Clone, Debug)]
struct Call {
    number: CallNumber,
    to: SocketAddr,
    opcode: Opcode,
    body: Vec<u8>,
}

/// A session, and the cluster that answers it if the test lets it.
struct Stage {
    session: Session,
    cluster: CoordinatorState,
    now: Time,
    /// All calls that the session has made.
    sent: Vec<(SocketAddr, Opcode)>,
}

impl Stage {
    fn new() -> Stage {
        let mut cluster = CoordinatorState::new(TTL.as_millis() as u64);
        cluster.shards = vec![(MasterId(1), SHARD.parse().unwrap())];
        let session = Session::new(coordinators(), Random::from_seed(1));
        Stage { session, cluster, now: Time(1_000_000_000), sent: Vec::new() }
    }

    fn calls(&mut self) -> Vec<Call> {
        let mut calls = Vec::new();
        while let Some(output) = self.session.next_output() {
            let Output::Call { number, to, opcode, body, .. } = output else {
                panic!("the session has coordinators to ask")
            };
            self.sent.push((to, opcode));
            calls.push(Call { number, to, opcode, body });
        }
        calls
    }

    /// Does a call as a coordinator, and passes the answer to the session.
    fn answer(&mut self, call: &Call) {
        let refused = |status| Err(CallError::Refused { status, hint: 0, detail: 0 });
        let leader = coordinators()[self.cluster.leader];
        let body;
        let outcome = match call.opcode {
            Opcode::Write | Opcode::UpdateMany => {
                body = 5u64.to_le_bytes().to_vec();
                Ok(body.as_slice())
            }
            _ if call.to != leader => refused(Status::NotLeader),
            _ => match self.cluster.carry_out(call.opcode, &call.body, self.now.0) {
                Ok(said) => {
                    body = said;
                    Ok(body.as_slice())
                }
                Err(status) => refused(status),
            },
        };
        self.session.answered(self.now, call.number, outcome);
    }

    fn fail(&mut self, call: &Call, error: CallError) {
        self.session.answered(self.now, call.number, Err(error));
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.session.tick(self.now);
    }

    /// Answers calls and advances the time until a result is ready.
    fn settle(&mut self) {
        for _ in 0..200 {
            let calls = self.calls();
            calls.iter().for_each(|call| self.answer(call));
            if self.session.has_done() {
                return;
            }
            if calls.is_empty() {
                self.pass(Duration::from_millis(20));
            }
        }
    }

    fn ask(&mut self, question: Question) {
        self.session.ask(self.now, question, self.now + Duration::from_secs(10));
    }

    fn answered(&mut self) -> Result<Reply, Error> {
        self.settle();
        self.session.next_answer().expect("an answer").1
    }

    fn create(&mut self, name: &str) -> TableId {
        self.ask(create(name));
        match self.answered() {
            Ok(Reply::Table(table)) => table.id,
            other => panic!("{other:?}"),
        }
    }

    fn write(&mut self, table: TableId) {
        let key = b"k".to_vec();
        let action = Action::Write(b"v".to_vec());
        let operation = Operation { table, key, condition: Condition::Always, action };
        self.session.begin(self.now, vec![operation], self.now + Duration::from_secs(10));
    }

    fn written(&mut self) -> Result<Answer, Error> {
        self.settle();
        self.session.next_done().expect("a result").1.remove(0)
    }

    fn count(&self, opcode: Opcode) -> usize {
        self.sent.iter().filter(|(_, sent)| *sent == opcode).count()
    }
}

fn create(name: &str) -> Question {
    Question::CreateTable(CreateTable { name: name.to_owned(), server_span: 1 })
}

fn drop_table(name: &str) -> Question {
    Question::DropTable(DropTable::named(name))
}

/// Returns the only call with this opcode.
fn only(calls: Vec<Call>, opcode: Opcode) -> Call {
    let mut calls: Vec<Call> = calls.into_iter().filter(|call| call.opcode == opcode).collect();
    assert_eq!(calls.len(), 1, "{calls:?}");
    calls.remove(0)
}

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
fn a_creation_without_an_answer_succeeds_and_makes_one_table() {
    let mut stage = Stage::new();
    stage.create("other");
    stage.ask(create("t"));
    let call = only(stage.calls(), Opcode::CreateTable);
    // The table is created, but the answer is lost.
    stage.cluster.carry_out(call.opcode, &call.body, stage.now.0).unwrap();
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
        stage.ask(create("t"));
        let call = only(stage.calls(), Opcode::CreateTable);
        stage.cluster.carry_out(call.opcode, &call.body, stage.now.0).unwrap();
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
        stage.ask(create("t"));
        let call = only(stage.calls(), Opcode::CreateTable);
        if is_done {
            stage.cluster.carry_out(call.opcode, &call.body, stage.now.0).unwrap();
        }
        stage.fail(&call, lost);
        let Ok(Reply::Table(table)) = stage.answered() else { panic!("the table was made") };
        assert_eq!((table.name.as_str(), stage.cluster.map.tables.len()), ("t", 1));

        stage.ask(drop_table("t"));
        let map = only(stage.calls(), Opcode::Map);
        stage.answer(&map);
        let call = only(stage.calls(), Opcode::DropTable);
        if is_done {
            stage.cluster.carry_out(call.opcode, &call.body, stage.now.0).unwrap();
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
fn a_table_is_never_dropped_twice() {
    let mut stage = Stage::new();
    stage.create("t");
    stage.ask(drop_table("t"));
    let map = only(stage.calls(), Opcode::Map);
    stage.answer(&map);
    let call = only(stage.calls(), Opcode::DropTable);
    stage.cluster.carry_out(call.opcode, &call.body, stage.now.0).unwrap();
    stage.fail(&call, CallError::Late);
    // Another client creates a table with the same name meanwhile.
    let made = create("t");
    let Question::CreateTable(it) = made else { panic!() };
    let body = thunderhead_client::control::to_body(&it);
    stage.cluster.carry_out(Opcode::CreateTable, &body, stage.now.0).unwrap();
    assert_eq!(stage.answered(), Ok(Reply::Done));
    assert_eq!((stage.count(Opcode::DropTable), stage.cluster.map.tables.len()), (1, 1));

    // If the deletion was not done, the session cannot know that: it ends as unknown.
    stage.ask(drop_table("t"));
    let map = only(stage.calls(), Opcode::Map);
    stage.answer(&map);
    let call = only(stage.calls(), Opcode::DropTable);
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

#[test]
fn a_lease_is_opened_for_the_first_update_and_renewed_and_closed() {
    let mut stage = Stage::new();
    let table = stage.create("t");
    stage.session.begin(stage.now, Vec::new(), stage.now);
    assert!(stage.session.next_done().is_some());
    assert_eq!(stage.session.lease(), None);
    stage.write(table);
    assert!(stage.written().is_ok());
    assert_eq!(
        (stage.session.lease(), stage.count(Opcode::OpenLease) > 0),
        (Some(LeaseId(1)), true)
    );
    for _ in 0..30 {
        stage.pass(Duration::from_millis(500));
        for call in stage.calls() {
            assert_eq!(call.opcode, Opcode::RenewLease);
            stage.answer(&call);
        }
    }
    let renewed = stage.cluster.count(Opcode::RenewLease);
    assert!((10..=15).contains(&renewed), "{renewed} times in five leases");
    assert_eq!(stage.session.lease(), Some(LeaseId(1)));
    // The session had no turn for longer than the lease lasts.
    stage.now = stage.now + TTL + Duration::from_millis(1);
    stage.write(table);
    assert!(stage.written().is_ok());
    assert_eq!(stage.session.lease(), Some(LeaseId(2)));
    stage.session.close(stage.now);
    let call = only(stage.calls(), Opcode::CloseLease);
    stage.answer(&call);
    assert!(stage.session.is_idle());
    assert!(stage.cluster.ended.contains(&LeaseId(2)));
}

#[test]
fn a_lease_is_used_while_no_coordinator_answers() {
    let mut stage = Stage::new();
    let table = stage.create("t");
    stage.write(table);
    assert!(stage.written().is_ok());
    for _ in 0..100 {
        stage.pass(Duration::from_millis(100));
        for call in stage.calls() {
            assert_eq!(call.opcode, Opcode::RenewLease);
            stage.fail(&call, CallError::Late);
        }
    }
    stage.write(table);
    let calls = stage.calls();
    let write = calls.iter().find(|call| call.opcode == Opcode::Write).expect("it is sent at once");
    assert_eq!(write.body[..8], 1u64.to_le_bytes(), "under the present lease");
    // The coordinator is back and says that the lease has ended. The update is not sent twice.
    let write = write.clone();
    stage.cluster.leases.clear();
    for _ in 0..20 {
        for call in stage.calls() {
            stage.answer(&call);
        }
        stage.pass(Duration::from_millis(50));
    }
    assert_eq!(stage.session.lease(), None);
    let ended = CallError::Refused { status: Status::LeaseEnded, hint: 0, detail: 0 };
    stage.fail(&write, ended);
    assert!(stage.written().is_ok(), "the refused update goes out under the next lease");
    assert_eq!(stage.session.lease(), Some(LeaseId(2)));
    // An update that may have been done keeps its lease.
    stage.write(table);
    let write = only(stage.calls(), Opcode::Write);
    stage.fail(&write, CallError::Broken);
    let again = loop {
        stage.pass(Duration::from_millis(1));
        let calls = stage.calls();
        for call in calls.iter().filter(|call| call.opcode != Opcode::Write) {
            stage.answer(call);
        }
        if let Some(call) = calls.iter().find(|call| call.opcode == Opcode::Write) {
            break call.clone();
        }
    };
    assert_eq!(again.body, write.body, "the same sequence of the same lease");
    stage.fail(&again, ended);
    assert_eq!(stage.written(), Err(Error::Unknown(Obstacle::NoAnswer)));
    assert_eq!(stage.session.lease(), None);
}

#[test]
fn updates_that_wait_for_a_lease_end_by_their_deadline_and_were_not_done() {
    let mut stage = Stage::new();
    let table = stage.create("t");
    stage.write(table);
    for call in stage.calls() {
        match call.opcode {
            Opcode::Map => stage.answer(&call),
            _ => stage.fail(&call, CallError::Late),
        }
    }
    let mut waited = 0;
    let result = loop {
        for call in stage.calls() {
            stage.fail(&call, CallError::Late);
        }
        if let Some((_, mut results)) = stage.session.next_done() {
            break results.remove(0);
        }
        stage.pass(Duration::from_millis(100));
        waited += 100;
    };
    assert_eq!((result, waited), (Err(Error::TimedOut(Obstacle::NoCoordinator)), 10_000));
    // No update waits any more, so the session asks for no lease.
    stage.pass(Duration::from_secs(5));
    assert!(stage.calls().is_empty());
    // A coordinator of another cluster answers at these addresses.
    stage.write(table);
    assert!(stage.written().is_ok());
    stage.cluster.cluster.0 += 1;
    stage.now = stage.now + TTL * 2;
    stage.write(table);
    assert_eq!(stage.written(), Err(Error::Refused(Status::WrongCluster)));
}

#[test]
fn a_session_refuses_a_map_older_than_one_it_has_seen() {
    let mut stage = Stage::new();
    stage.create("t");
    stage.ask(Question::Map(None));
    assert!(stage.answered().is_ok());
    stage.ask(Question::Map(Some("t".to_owned())));
    let call = only(stage.calls(), Opcode::Map);
    let old = thunderhead_client::control::to_body(&Map::default());
    stage.session.answered(stage.now, call.number, Ok(&old));
    let Ok(Reply::Map(map)) = stage.answered() else {
        panic!("another coordinator has the newer map")
    };
    assert_eq!((map.tables.len(), map.version), (1, 2));
}

#[test]
fn operations_begun_at_the_same_time_share_messages() {
    let mut stage = Stage::new();
    let table = stage.create("t");
    stage.write(table);
    assert!(stage.written().is_ok());
    for _ in 0..300 {
        stage.write(table);
    }
    let many: Vec<Call> = stage.calls();
    let opcodes: Vec<Opcode> = many.iter().map(|call| call.opcode).collect();
    assert_eq!(opcodes, [Opcode::UpdateMany; 3], "at most 128 in each");
}

#[test]
fn a_message_has_fewer_reads_after_an_answer_was_too_long() {
    let mut stage = Stage::new();
    let table = stage.create("t");
    let read = |stage: &mut Stage, count: usize| {
        let operation = |number: usize| Operation {
            table,
            key: number.to_be_bytes().to_vec(),
            condition: Condition::Always,
            action: Action::Read,
        };
        let until = stage.now + Duration::from_secs(10);
        stage.session.begin(stage.now, (0..count).map(operation).collect(), until);
        let calls = stage.calls();
        match calls.as_slice() {
            [call] if call.opcode == Opcode::Map => {
                stage.answer(call);
                stage.calls()
            }
            _ => calls,
        }
    };
    let too_long = CallError::Refused { status: Status::ReplyTooLong, hint: 0, detail: 0 };
    let object = |bytes: u32| {
        let status = Status::Ok.code().to_le_bytes();
        [&1u64.to_le_bytes()[..], &status, &[0; 2], &bytes.to_le_bytes(), &vec![7; bytes as usize]]
            .concat()
    };
    let call = only(read(&mut stage, 128), Opcode::ReadMany);
    stage.fail(&call, too_long);
    // The client now reads these objects one by one, and later ones in groups of half the size.
    let singly = stage.calls();
    assert_eq!((singly.len(), singly[0].opcode), (128, Opcode::Read));
    for call in &singly {
        stage.session.answered(stage.now, call.number, Ok(&5u64.to_le_bytes()));
    }
    assert!(matches!(stage.session.next_done(), Some((_, results)) if results.len() == 128));
    // Long answers leave the size of the groups as it is; short answers double it.
    for (bytes, messages) in [(10_000, 2), (10_000, 2), (10, 2), (10, 1)] {
        let calls = read(&mut stage, 128);
        assert_eq!(calls.len(), messages);
        for call in &calls {
            let body = object(bytes).repeat(128 / messages);
            stage.session.answered(stage.now, call.number, Ok(&body));
        }
        let (_, results) = stage.session.next_done().unwrap();
        assert!(results.iter().all(Result::is_ok));
    }
    // A lost message says nothing about the length of answers.
    let call = only(read(&mut stage, 128), Opcode::ReadMany);
    stage.fail(&call, too_long);
    stage.calls();
    let lost = read(&mut stage, 64).remove(0);
    stage.fail(&lost, CallError::Late);
    let calls = read(&mut stage, 128);
    assert_eq!(calls.iter().filter(|call| call.opcode == Opcode::ReadMany).count(), 2);
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

#[test]
fn a_cancelled_operation_has_no_result_and_the_rest_of_its_message_has() {
    let mut stage = Stage::new();
    let table = stage.create("t");
    stage.write(table);
    assert!(stage.written().is_ok());
    let operation = |key: &[u8]| Operation {
        table,
        key: key.to_vec(),
        condition: Condition::Always,
        action: Action::Read,
    };
    let until = stage.now + Duration::from_secs(1);
    let first = stage.session.begin(stage.now, vec![operation(b"a")], until);
    let until = until + Duration::from_millis(10);
    let second = stage.session.begin(stage.now, vec![operation(b"b")], until);
    let call = only(stage.calls(), Opcode::ReadMany);
    stage.session.give_up(first);
    // The first part is "busy", the second "not found": each operation has its own result.
    let part = |status: Status| [&[0; 8][..], &status.code().to_le_bytes(), &[0; 6]].concat();
    let body = [part(Status::Busy), part(Status::NotFound)].concat();
    stage.session.answered(stage.now, call.number, Ok(&body));
    assert_eq!(stage.session.next_done(), Some((second, vec![Ok(Answer::Absent)])));
    assert_eq!(stage.session.next_done(), None);
    assert!(stage.session.is_idle());
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

/// The cluster has more tables than fit into a message. Questions for the whole map get it in
/// pages, and operations request only their own tables.
#[test]
fn a_client_of_a_large_cluster_asks_for_its_own_tables() {
    let mut stage = Stage::new();
    let tables: Vec<TableId> = (0..7).map(|number| stage.create(&format!("t{number}"))).collect();
    stage.cluster.page = 3;
    for question in [Question::Map(None), Question::ClusterStatus] {
        stage.ask(question.clone());
        let map = match stage.answered() {
            Ok(Reply::Map(map)) => map,
            Ok(Reply::Cluster(status)) => status.map,
            other => panic!("{other:?}"),
        };
        let ids: Vec<TableId> = map.tables.iter().map(|table| table.id).collect();
        assert_eq!((ids, map.more), (tables.clone(), None), "{question:?}");
    }
    let asked = stage.count(Opcode::Map);
    assert_eq!(asked, 5, "three pages of the map, and two after the status");
    // As when a client connects.
    stage.ask(Question::News);
    let Ok(Reply::Map(map)) = stage.answered() else { panic!("no map") };
    assert!(map.is_part && map.tables.is_empty(), "{map:?}");
    let asked = asked + 1;
    assert_eq!(stage.count(Opcode::Map), asked, "the answer is not paged");
    stage.write(tables[2]);
    assert!(stage.written().is_ok());
    assert_eq!(stage.count(Opcode::Map), asked + 1);
    // Another table needs a request of its own.
    stage.write(tables[1]);
    assert!(stage.written().is_ok());
    assert_eq!(stage.count(Opcode::Map), asked + 2);
    stage.write(tables[2]);
    assert!(stage.written().is_ok());
    assert_eq!(stage.count(Opcode::Map), asked + 2, "the table is known");
    // A table that does not exist is requested once.
    stage.write(TableId(99));
    assert_eq!(stage.written(), Err(Error::NoSuchTable(TableId(99))));
    assert_eq!(stage.count(Opcode::Map), asked + 3);
}

#[test]
fn a_client_that_connects_keeps_the_map_of_a_small_cluster() {
    let mut stage = Stage::new();
    let table = stage.create("t");
    stage.ask(Question::News);
    let Ok(Reply::Map(map)) = stage.answered() else { panic!("no map") };
    assert_eq!(map.tables.len(), 1);
    let asked = stage.count(Opcode::Map);
    stage.write(table);
    assert!(stage.written().is_ok());
    assert_eq!(stage.count(Opcode::Map), asked, "the map is known");
}

/// The coordinator's answer omits the requested table.
#[test]
fn an_answer_without_the_requested_table_delays_the_next_request() {
    let mut stage = Stage::new();
    stage.write(TableId(5));
    for _ in 0..20 {
        for call in stage.calls() {
            match call.opcode {
                Opcode::Map => {
                    let empty = Map { version: 7, is_part: true, ..Map::default() };
                    let body = thunderhead_client::control::to_body(&empty);
                    stage.session.answered(stage.now, call.number, Ok(&body));
                }
                _ => stage.answer(&call),
            }
        }
        stage.pass(Duration::from_millis(1));
    }
    let asked = stage.count(Opcode::Map);
    assert!((1..=4).contains(&asked), "{asked} times in 20 ms");
}
