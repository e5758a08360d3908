//! A completion queue behind buffers of bytes.

use crate::reader::Malformed;
use crate::request::{self, Submitted, Work};
use crate::result;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use thunderhead_client::{
    Completion, CompletionQueue, Enumeration, Error, Options, Outcome, Request, Submission, TableId,
};

/// The error of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// The buffer is malformed. Nothing was begun.
    Malformed(Malformed),
    /// The client refused it. Nothing was begun.
    Client(Error),
}

/// A [`CompletionQueue`] whose requests and results are bytes.
pub struct ByteQueue {
    queue: CompletionQueue,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    scans: HashMap<u64, Enumeration>,
    scan_count: u64,
    /// The scan of each submission that requests a page.
    pages: HashMap<u64, u64>,
}

impl ByteQueue {
    /// Connects to the cluster that the options name.
    ///
    /// # Errors
    /// Those of [`CompletionQueue::connect`].
    pub fn connect(options: &Options) -> Result<ByteQueue, Error> {
        let queue = CompletionQueue::connect(options)?;
        Ok(ByteQueue { queue, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a scan of a table and returns its number. The caller requests its pages one by one,
    /// and ends it with [`ByteQueue::close_scan`].
    pub fn open_scan(&self, table: u64) -> u64 {
        let mut state = self.lock();
        state.scan_count += 1;
        let scan = state.scan_count;
        state.scans.insert(scan, Enumeration::new(TableId(table)));
        scan
    }

    /// Ends a scan.
    pub fn close_scan(&self, scan: u64) {
        self.lock().scans.remove(&scan);
    }

    /// Begins the submissions of a buffer: see [`request`]. Returns the number of the first one;
    /// the others have the numbers after it. [`ByteQueue::cancel`] takes such a number.
    ///
    /// # Errors
    /// [`SubmitError`]: nothing was begun.
    pub fn submit(&self, buffer: &[u8]) -> Result<u64, SubmitError> {
        let submitted = request::decode(buffer).map_err(SubmitError::Malformed)?;
        let mut state = self.lock();
        let mut tags = Vec::new();
        let work = submitted
            .into_iter()
            .map(|Submitted { tag, deadline, work }| {
                let request = match work {
                    Work::Operations(operations) => Request::Operations(operations),
                    Work::Question(question) => Request::Question(question),
                    Work::Page { scan } => {
                        state.pages.insert(tag, scan);
                        tags.push(tag);
                        // A scan that has ended or is unknown has no operation, so it completes
                        // at once.
                        let operation = state.scans.get(&scan).and_then(Enumeration::next);
                        Request::Operations(operation.into_iter().collect())
                    }
                };
                Submission { tag, request, deadline }
            })
            .collect();
        self.queue.submit(work).map_err(|error| {
            state.pages.retain(|tag, _| !tags.contains(tag));
            SubmitError::Client(error)
        })
    }

    /// Ends work before its deadline: see [`CompletionQueue::cancel`].
    pub fn cancel(&self, number: u64) {
        self.queue.cancel(number);
    }

    /// Takes at most this many completions and appends their bytes: see [`result`]. Returns how
    /// many there were.
    pub fn take(&self, most: usize, into: &mut Vec<u8>) -> usize {
        let completions = self.queue.take(most);
        let count = completions.len();
        for Completion { tag, outcome } in completions {
            match outcome {
                Outcome::Operations(results) => {
                    let mut state = self.lock();
                    match state.pages.remove(&tag) {
                        Some(scan) => put_page(&mut state, tag, scan, results, into),
                        None => {
                            drop(state);
                            result::put_head(tag, results.len(), into);
                            results.iter().for_each(|it| result::put_answer(it, into));
                        }
                    }
                }
                Outcome::Question(reply) => {
                    let mut body = Vec::new();
                    let results = result::put_reply(&reply, &mut body);
                    result::put_head(tag, results, into);
                    into.append(&mut body);
                }
            }
        }
        count
    }

    /// Returns a descriptor that is readable while there are completions to take.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.queue.descriptor()
    }

    /// Closes the client: see [`CompletionQueue::close`].
    pub fn close(&self) {
        self.queue.close();
    }
}

/// Appends a page of a scan.
fn put_page(
    state: &mut State,
    tag: u64,
    scan: u64,
    mut results: thunderhead_client::Results,
    into: &mut Vec<u8>,
) {
    let objects = match (results.pop(), state.scans.get_mut(&scan)) {
        (None, _) | (_, None) => Ok(Vec::new()),
        (Some(Ok(answer)), Some(it)) => it.answered(answer).ok_or(Error::Incomprehensible),
        (Some(Err(error)), Some(_)) => Err(error),
    };
    match objects {
        Ok(objects) => {
            let is_last = state.scans.get(&scan).is_none_or(|it| it.next().is_none());
            result::put_head(tag, objects.len() + 1, into);
            result::put_page(&objects, is_last, into);
        }
        Err(error) => {
            result::put_head(tag, 1, into);
            result::put_error(&error, into);
        }
    }
}
