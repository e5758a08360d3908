//! A client whose results are collected from a queue, for the event loops of other languages.
//!
//! A driver thread does the I/O, as for [`AsyncClient`](super::AsyncClient). But it calls no code
//! of its user's when an operation ends: it puts the result into a list, and makes a descriptor
//! readable. The user's event loop watches the descriptor and takes all results at once. So a
//! hundred results cost one wake-up, and no foreign thread ever enters the user's language.

use super::driver::{Job, Work};
use super::receiver::{QueuePlace, Receiver};
use super::{Handle, promise};
use crate::client::Options;
use crate::core::Results;
use crate::error::{Error, Obstacle};
use crate::operation::Operation;
use crate::question::{Question, Reply};
use std::future::Future;
use std::os::fd::BorrowedFd;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;
use thunderhead_runtime::os::EventFlag;

/// Work for a [`CompletionQueue`].
#[derive(Clone, Debug, PartialEq)]
pub struct Submission {
    /// Identifies the work to its user. The queue passes it on.
    pub tag: u64,
    /// The work.
    pub request: Request,
    /// The time limit; `None`: no limit.
    pub deadline: Option<Duration>,
}

/// Work that ends with one [`Completion`].
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Operations that have no order among them.
    Operations(Vec<Operation>),
    /// A question to the coordinator or a server.
    Question(Question),
}

/// Work that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// The tag of its [`Submission`].
    pub tag: u64,
    /// Its outcome.
    pub outcome: Outcome,
}

/// The outcome of a [`Request`].
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The results of the operations, in their order.
    Operations(Results),
    /// The reply to the question. It is boxed because it is much larger than the usual results.
    Question(Box<Result<Reply, Error>>),
}

impl From<Results> for Outcome {
    fn from(results: Results) -> Outcome {
        Outcome::Operations(results)
    }
}

impl From<Result<Reply, Error>> for Outcome {
    fn from(reply: Result<Reply, Error>) -> Outcome {
        Outcome::Question(Box::new(reply))
    }
}

impl Outcome {
    /// The outcome of work whose driver has ended without a result.
    pub(crate) fn lost(count: Option<usize>) -> Outcome {
        let unknown = Error::Unknown(Obstacle::NoAnswer);
        match count {
            Some(count) => Outcome::Operations(vec![Err(unknown); count]),
            None => Outcome::Question(Box::new(Err(unknown))),
        }
    }
}

/// Results that wait for their user.
pub(crate) struct Completions {
    list: Mutex<Vec<Completion>>,
    /// Readable while the list is not empty. It is set a moment after the list was filled, so it
    /// may also be readable when all has been taken already. The next `take` clears it then.
    is_filled: EventFlag,
    /// Whether the flag was set since the list was empty: its user's calls that find an empty list
    /// mostly need no call of the kernel.
    was_set: AtomicBool,
}

impl Completions {
    fn new(is_filled: EventFlag) -> Completions {
        Completions { list: Mutex::new(Vec::new()), is_filled, was_set: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Completion>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds completions and leaves `from` empty.
    pub(crate) fn add(&self, from: &mut Vec<Completion>) {
        let mut list = self.lock();
        let wakes = list.is_empty() && !from.is_empty();
        list.append(from);
        // The thread that wakes up takes the lock at once.
        drop(list);
        if wakes {
            self.is_filled.set();
            // In this order: otherwise a `take` between the two could leave the flag set for ever.
            self.was_set.store(true, Ordering::Release);
        }
    }

    /// Takes at most this many completions, the oldest first.
    fn take(&self, most: usize) -> Vec<Completion> {
        let mut list = self.lock();
        if most == 0 {
            return Vec::new();
        }
        if list.is_empty() {
            if self.was_set.swap(false, Ordering::AcqRel) {
                self.is_filled.clear();
            }
            return Vec::new();
        }
        let taken = if most >= list.len() {
            std::mem::take(&mut *list)
        } else {
            list.drain(..most).collect()
        };
        if list.is_empty() {
            self.was_set.store(false, Ordering::Relaxed);
            self.is_filled.clear();
        }
        taken
    }
}

/// A client of a cluster whose results are collected. Any thread may use it.
///
/// ```no_run
/// use thunderhead_client::{Action, CompletionQueue, Condition, Operation, Options, Request};
/// use thunderhead_client::{Submission, TableId};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let queue = CompletionQueue::connect(&Options::of_url("thunderhead://localhost")?)?;
/// let operation = Operation {
///     table: TableId(1),
///     key: b"ada".to_vec(),
///     condition: Condition::Always,
///     action: Action::Read,
/// };
/// let request = Request::Operations(vec![operation]);
/// queue.submit(vec![Submission { tag: 7, request, deadline: None }])?;
/// // An event loop watches `queue.descriptor()`. When it is readable:
/// for completion in queue.take(100) {
///     println!("{}: {:?}", completion.tag, completion.outcome);
/// }
/// # Ok(())
/// # }
/// ```
pub struct CompletionQueue {
    handle: Arc<Handle>,
    completions: Arc<Completions>,
}

impl CompletionQueue {
    /// Connects to the cluster that the options name. Waits until a coordinator answers, to notice
    /// a wrong address now.
    ///
    /// # Errors
    /// [`Error::TimedOut`] when no coordinator answers by the deadline; [`Error::NoCoordinators`];
    /// [`Error::System`].
    pub fn connect(options: &Options) -> Result<CompletionQueue, Error> {
        let queue = CompletionQueue::begin(options)?;
        let handle = Arc::clone(&queue.handle);
        let client = super::AsyncClient { handle, deadline: options.deadline };
        wait(client.ask(Question::News))?;
        Ok(queue)
    }

    /// Like [`CompletionQueue::connect`], but does not wait for a coordinator: for an event loop,
    /// which must not wait here. Submit [`Question::News`] first to notice a wrong address.
    ///
    /// # Errors
    /// [`Error::NoCoordinators`]; [`Error::System`].
    pub fn begin(options: &Options) -> Result<CompletionQueue, Error> {
        let is_filled = EventFlag::new().map_err(|error| Error::System(error.kind()))?;
        let handle = wait(Handle::start(options))?;
        let completions = Arc::new(Completions::new(is_filled));
        Ok(CompletionQueue { handle, completions })
    }

    /// Begins work. All of it is sent together, as far as it goes to the same shards. Returns the
    /// number of the first submission; the others have the numbers after it.
    ///
    /// # Errors
    /// [`Error::Closed`] or [`Error::Forked`]: nothing was begun.
    pub fn submit(&self, work: Vec<Submission>) -> Result<u64, Error> {
        if self.handle.forks.is_past() {
            return Err(Error::Forked);
        }
        let first = self.handle.numbers.fetch_add(work.len() as u64, Ordering::Relaxed);
        let jobs: Vec<Job> =
            work.into_iter().zip(first..).map(|(it, number)| self.job(it, number)).collect();
        let mut jobs = jobs.into_iter();
        if !self.handle.shared.push_all(&mut jobs) {
            for job in jobs {
                match job {
                    Job::Do { work: Work::Operations(_, Receiver::Queue(place)), .. }
                    | Job::Do { work: Work::Question(_, Receiver::Queue(place)), .. } => {
                        place.forget();
                    }
                    _ => {}
                }
            }
            return Err(Error::Closed);
        }
        self.handle.alarm.ring();
        Ok(first)
    }

    fn job(&self, submission: Submission, number: u64) -> Job {
        let Submission { tag, request, deadline } = submission;
        let place = |count| QueuePlace::new(tag, count, Arc::clone(&self.completions));
        let work = match request {
            Request::Operations(operations) => {
                let place = place(Some(operations.len()));
                Work::Operations(operations, Receiver::Queue(place))
            }
            Request::Question(question) => Work::Question(question, Receiver::Queue(place(None))),
        };
        Job::Do { number, work, deadline: self.handle.deadline(deadline) }
    }

    /// Ends work before its deadline, by the number that [`CompletionQueue::submit`] returned. Its
    /// completion comes soon: with [`Error::Cancelled`] if it was not done, [`Error::Unknown`] if
    /// it may have been done, or its result if it had ended already.
    pub fn cancel(&self, number: u64) {
        if !self.handle.forks.is_past() && self.handle.shared.push(Job::Cancel(number)) {
            self.handle.alarm.ring();
        }
    }

    /// Takes at most this many completions, the oldest first. Does not wait.
    #[must_use]
    pub fn take(&self, most: usize) -> Vec<Completion> {
        if self.handle.forks.is_past() {
            return Vec::new();
        }
        self.completions.take(most)
    }

    /// Returns a descriptor that is readable while there are completions to take. Now and then it
    /// is readable although an earlier call has just taken them; [`CompletionQueue::take`] returns
    /// none then. Only wait for it; never read from it or write to it.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.completions.is_filled.descriptor()
    }

    /// Closes the client. Work in progress ends and has completions; later work is refused with
    /// [`Error::Closed`]. Ends the lease, so that servers can forget the client's completion
    /// records. Returns when that is done.
    pub fn close(&self) {
        let (promise, done) = promise::promise();
        if self.handle.close(promise) {
            wait(done);
        }
    }
}

/// Waits for a future on this thread.
fn wait<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_readable(completions: &Completions) -> bool {
        completions.is_filled.is_set()
    }

    fn completion(tag: u64) -> Completion {
        Completion { tag, outcome: Outcome::lost(None) }
    }

    #[test]
    fn the_descriptor_is_readable_exactly_while_there_are_completions() {
        let completions = Arc::new(Completions::new(EventFlag::new().unwrap()));
        assert!(!is_readable(&completions));
        completions.add(&mut Vec::new());
        assert!(!is_readable(&completions));
        completions.add(&mut vec![completion(1), completion(2), completion(3)]);
        completions.add(&mut vec![completion(4)]);
        assert!(is_readable(&completions));
        assert_eq!(completions.take(0), []);
        let tags = |taken: Vec<Completion>| taken.iter().map(|it| it.tag).collect::<Vec<_>>();
        assert_eq!(tags(completions.take(3)), [1, 2, 3]);
        assert!(is_readable(&completions));
        assert_eq!(tags(completions.take(100)), [4]);
        assert!(!is_readable(&completions));
        assert_eq!(completions.take(100), []);
    }

    /// The driver sets the flag after it has released the list, so another thread may take the list
    /// before that.
    #[test]
    fn a_flag_that_is_set_too_late_is_cleared_by_the_next_take() {
        let completions = Completions::new(EventFlag::new().unwrap());
        completions.is_filled.set();
        completions.was_set.store(true, Ordering::Relaxed);
        assert_eq!(completions.take(0), []);
        assert!(is_readable(&completions), "nothing was looked at");
        assert_eq!(completions.take(1), []);
        assert!(!is_readable(&completions));
    }

    #[test]
    fn a_submission_that_is_lost_has_an_unknown_outcome() {
        let completions = Arc::new(Completions::new(EventFlag::new().unwrap()));
        drop(QueuePlace::new(9, Some(2), Arc::clone(&completions)));
        QueuePlace::new(10, None, Arc::clone(&completions)).forget();
        let unknown = Err(Error::Unknown(Obstacle::NoAnswer));
        let outcome = Outcome::Operations(vec![unknown.clone(), unknown]);
        assert_eq!(completions.take(9), [Completion { tag: 9, outcome }]);
    }
}
