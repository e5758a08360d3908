//! A client's session, driven by tasks of a node, with futures for its results.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;
use thunderhead_client::{Answer, Error, Operation, Output, Question, Reply, Session, Ticket};
use thunderhead_rpc::TaskCaller;
use thunderhead_runtime::Time;
use thunderhead_runtime::tasks::Tasks;

/// A client. Clones share its session.
#[derive(Clone)]
pub(crate) struct Client(Rc<Inner>);

struct Inner {
    session: RefCell<Session>,
    tasks: Tasks,
    caller: TaskCaller,
    ended: RefCell<BTreeMap<Ticket, Ended>>,
    waiting: RefCell<BTreeMap<Ticket, Waker>>,
    /// The next time at which the session gets a tick.
    ticks_at: Cell<Time>,
}

enum Ended {
    Done(Vec<Result<Answer, Error>>),
    Answered(Box<Result<Reply, Error>>),
}

impl Client {
    pub(crate) fn new(session: Session, tasks: Tasks, caller: TaskCaller) -> Client {
        Client(Rc::new(Inner {
            session: RefCell::new(session),
            tasks,
            caller,
            ended: RefCell::default(),
            waiting: RefCell::default(),
            ticks_at: Cell::new(Time::NEVER),
        }))
    }

    pub(crate) fn tasks(&self) -> &Tasks {
        &self.0.tasks
    }

    pub(crate) async fn all(
        &self,
        operations: Vec<Operation>,
        patience: Duration,
    ) -> Vec<Result<Answer, Error>> {
        let now = self.0.tasks.now();
        let ticket = self.0.session.borrow_mut().begin(now, operations, now + patience);
        match self.end_of(ticket).await {
            Ended::Done(results) => results,
            Ended::Answered(_) => panic!("an answer of another kind"),
        }
    }

    pub(crate) async fn ask(&self, question: Question, patience: Duration) -> Result<Reply, Error> {
        let now = self.0.tasks.now();
        let ticket = self.0.session.borrow_mut().ask(now, question, now + patience);
        match self.end_of(ticket).await {
            Ended::Answered(answer) => *answer,
            Ended::Done(_) => panic!("an answer of another kind"),
        }
    }

    /// Ends the lease.
    pub(crate) fn close(&self) {
        self.0.session.borrow_mut().close(self.0.tasks.now());
        self.pump();
    }

    async fn end_of(&self, ticket: Ticket) -> Ended {
        self.pump();
        poll_fn(|context| match self.0.ended.borrow_mut().remove(&ticket) {
            Some(ended) => Poll::Ready(ended),
            None => {
                self.0.waiting.borrow_mut().insert(ticket, context.waker().clone());
                Poll::Pending
            }
        })
        .await
    }

    fn pump(&self) {
        let mut session = self.0.session.borrow_mut();
        while let Some(output) = session.next_output() {
            let Output::Call { number, to, opcode, body, timeout } = output else {
                panic!("coordinators are asked");
            };
            let call = self.0.caller.call(to, opcode, body, Some(timeout));
            let own = self.clone();
            self.0.tasks.spawn(async move {
                let outcome = call.await;
                let outcome = outcome.as_deref().map_err(|error| *error);
                let now = own.0.tasks.now();
                own.0.session.borrow_mut().answered(now, number, outcome);
                own.pump();
            });
        }
        let mut ended = Vec::new();
        while let Some((ticket, results)) = session.next_done() {
            ended.push((ticket, Ended::Done(results)));
        }
        while let Some((ticket, answer)) = session.next_answer() {
            ended.push((ticket, Ended::Answered(Box::new(answer))));
        }
        for (ticket, end) in ended {
            self.0.ended.borrow_mut().insert(ticket, end);
            if let Some(waker) = self.0.waiting.borrow_mut().remove(&ticket) {
                waker.wake();
            }
        }
        if let Some(at) = session.deadline()
            && at < self.0.ticks_at.get()
        {
            self.0.ticks_at.set(at);
            let own = self.clone();
            let at = at.max(self.0.tasks.now() + Duration::from_micros(1));
            self.0.tasks.spawn(async move {
                own.0.tasks.sleep_until(at).await;
                own.0.ticks_at.set(Time::NEVER);
                own.0.session.borrow_mut().tick(own.0.tasks.now());
                own.pump();
            });
        }
    }
}
