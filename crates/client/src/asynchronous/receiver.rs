//! The receivers of results: a task that waits for one, or a queue that collects many.

use super::promise::Promise;
use super::queue::{Completion, Completions, Outcome};
use std::sync::Arc;

/// The receiver of one result.
pub(crate) enum Receiver<T> {
    Task(Promise<T>),
    Queue(QueuePlace),
}

impl<T: Into<Outcome>> Receiver<T> {
    /// Hands a result over. A queue receives it with the end of the delivery.
    pub(crate) fn take(self, result: T, delivery: &mut Delivery) {
        match self {
            Receiver::Task(promise) => promise.keep(result),
            Receiver::Queue(mut place) => {
                if let Some(queue) = place.queue.take() {
                    let completion = Completion { tag: place.tag, outcome: result.into() };
                    delivery.add(queue, completion);
                }
            }
        }
    }
}

/// The place of one submission in a queue. If it is dropped without a result, the queue receives an
/// unknown outcome.
pub(crate) struct QueuePlace {
    tag: u64,
    /// The number of operations; `None` for a question.
    count: Option<usize>,
    queue: Option<Arc<Completions>>,
}

impl QueuePlace {
    pub(crate) fn new(tag: u64, count: Option<usize>, queue: Arc<Completions>) -> QueuePlace {
        QueuePlace { tag, count, queue: Some(queue) }
    }

    /// Removes it without a result: the submission was refused, and its caller knows.
    pub(crate) fn forget(mut self) {
        self.queue = None;
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            let outcome = Outcome::lost(self.count);
            queue.add(&mut vec![Completion { tag: self.tag, outcome }]);
        }
    }
}

/// Results on their way to a queue. They are handed over together, because each hand-over may wake
/// the queue's thread.
#[derive(Default)]
pub(crate) struct Delivery {
    queue: Option<Arc<Completions>>,
    completions: Vec<Completion>,
}

impl Delivery {
    fn add(&mut self, queue: Arc<Completions>, completion: Completion) {
        // A driver has one queue.
        self.queue = Some(queue);
        self.completions.push(completion);
    }

    /// Hands the results over.
    pub(crate) fn end(&mut self) {
        if let Some(queue) = &self.queue
            && !self.completions.is_empty()
        {
            queue.add(&mut self.completions);
        }
    }
}
