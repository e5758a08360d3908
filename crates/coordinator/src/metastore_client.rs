//! The metastore's client for tasks: they hand in requests and wait for the answers.
//!
//! The node polls the metastore once a turn. The metastore's alarm makes sure that there is a turn.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use thunderhead_metastore::{Answer, Error, Event, Keeper, Metastore, Request, RequestId};
use thunderhead_runtime::Time;

type Slot = Rc<RefCell<Waiting>>;

#[derive(Default)]
struct Waiting {
    result: Option<Result<Answer, Error>>,
    waker: Option<Waker>,
}

/// A metastore for the tasks of one thread.
pub(crate) struct MetastoreClient {
    store: RefCell<Box<dyn Metastore>>,
    waiting: RefCell<BTreeMap<RequestId, Slot>>,
}

impl MetastoreClient {
    pub(crate) fn new(store: Box<dyn Metastore>) -> MetastoreClient {
        MetastoreClient { store: RefCell::new(store), waiting: RefCell::default() }
    }

    /// Sends a request. Dropping the future discards only the answer.
    pub(crate) fn ask(
        &self,
        now: Time,
        request: Request,
    ) -> impl Future<Output = Result<Answer, Error>> + use<> {
        let id = self.store.borrow_mut().submit(now, request);
        let slot = Slot::default();
        self.waiting.borrow_mut().insert(id, Rc::clone(&slot));
        Awaited(slot)
    }

    /// Passes the metastore's answers to their tasks, and gives the keeper its turn.
    pub(crate) fn turn(&self, now: Time, keeper: &mut Keeper) {
        let mut store = self.store.borrow_mut();
        while let Some(event) = store.poll(now) {
            let Event::Done(id, result) = event else { continue };
            if keeper.take(now, id, &result) {
                continue;
            }
            let Some(slot) = self.waiting.borrow_mut().remove(&id) else { continue };
            let mut waiting = slot.borrow_mut();
            waiting.result = Some(result);
            if let Some(waker) = waiting.waker.take() {
                waker.wake();
            }
        }
        keeper.turn(now, &mut **store);
    }

    /// Gives a leadership back.
    pub(crate) fn resign(&self, now: Time, keeper: &mut Keeper) {
        keeper.resign(now, &mut **self.store.borrow_mut());
    }

    /// Returns the time at which the metastore wants to be polled.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.store.borrow().deadline()
    }
}

struct Awaited(Slot);

impl Future for Awaited {
    type Output = Result<Answer, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut waiting = self.0.borrow_mut();
        match waiting.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                waiting.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
