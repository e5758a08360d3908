//! Calls by tasks, with `await`.

use crate::calls::CallError;
use crate::opcode::Opcode;
use std::cell::RefCell;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use thunderhead_runtime::alarm::Alarm;

/// The place for the outcome of a task's call. The task is on the same thread. The lock is there
/// because the calls of a [`Caller`](crate::Caller), which has no tasks, can be moved to another
/// thread.
pub(crate) type Slot = Arc<Mutex<Outcome>>;

#[derive(Default)]
pub(crate) struct Outcome {
    result: Option<Result<Vec<u8>, CallError>>,
    waker: Option<Waker>,
}

/// A call that a task has requested.
pub(crate) struct QueuedCall {
    pub(crate) to: SocketAddr,
    pub(crate) opcode: Opcode,
    pub(crate) body: Vec<u8>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) slot: Slot,
}

/// Makes calls for the tasks of a node. Clones belong to the same node.
#[derive(Clone)]
pub struct TaskCaller {
    pub(crate) queued: Rc<RefCell<Vec<QueuedCall>>>,
    alarm: Alarm,
}

impl TaskCaller {
    pub(crate) fn new(alarm: Alarm) -> TaskCaller {
        TaskCaller { queued: Rc::default(), alarm }
    }

    /// Calls a server and waits for the body of its reply. Dropping the future discards the reply;
    /// the request may still be carried out.
    pub fn call(
        &self,
        to: SocketAddr,
        opcode: Opcode,
        body: Vec<u8>,
        timeout: Option<Duration>,
    ) -> impl Future<Output = Result<Vec<u8>, CallError>> + use<> {
        let slot = Slot::default();
        let call = QueuedCall { to, opcode, body, timeout, slot: Arc::clone(&slot) };
        self.queued.borrow_mut().push(call);
        self.alarm.ring();
        ReplyFuture(slot)
    }
}

struct ReplyFuture(Slot);

impl Future for ReplyFuture {
    type Output = Result<Vec<u8>, CallError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut outcome = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                outcome.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Stores an outcome for the task, and wakes the task.
pub(crate) fn deliver(slot: &Slot, result: Result<&[u8], CallError>) {
    let mut outcome = slot.lock().unwrap_or_else(PoisonError::into_inner);
    outcome.result = Some(result.map(<[u8]>::to_vec));
    let waker = outcome.waker.take();
    drop(outcome);
    if let Some(waker) = waker {
        waker.wake();
    }
}
