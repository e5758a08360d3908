//! Tests of a session's calls to coordinators, one by one: which coordinator it asks, which
//! requests it repeats, and which results its user gets. There is no network, and the test sets the
//! time.

mod changes;
mod errors;
mod late;
mod leader;
mod leases;
mod maps;
mod messages;

use std::net::SocketAddr;
use std::time::Duration;
use thunderhead_client::control::{CreateTable, DropTable};
use thunderhead_client::{
    Action, Answer, CallNumber, Condition, Error, MasterId, Operation, Output, Question, Reply,
    Session, Status, TableId,
};
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_runtime::{Random, Time};
use thunderhead_testkit::CoordinatorState;

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

    /// Asks for a table to be created. Returns the session's call.
    fn begin_create(&mut self, name: &str) -> Call {
        self.ask(create(name));
        only(self.calls(), Opcode::CreateTable)
    }

    /// Asks for a table to be dropped, and answers the session's call for the map. Returns the call
    /// that follows.
    fn begin_drop(&mut self, name: &str) -> Call {
        self.ask(drop_table(name));
        let map = only(self.calls(), Opcode::Map);
        self.answer(&map);
        only(self.calls(), Opcode::DropTable)
    }

    /// Lets the coordinator carry out a call without an answer.
    fn carry_out(&mut self, call: &Call) {
        self.cluster.carry_out(call.opcode, &call.body, self.now.0).unwrap();
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
    Question::CreateTable(CreateTable::spread(name, 1))
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
