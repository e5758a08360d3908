//! A completion queue behind buffers of bytes.

use crate::reader::Malformed;
use crate::request::{self, Submitted, Work};
use crate::result;
use crate::scans::Scans;
use std::collections::{HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use thunderhead_client::{
    Completion, CompletionQueue, Error, Options, Outcome, Request, Submission, TableId,
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
    scans: Scans,
    /// The scan of each submission that requests a page.
    pages: HashMap<u64, u64>,
    /// Completions that were taken from the queue and are still to be encoded.
    ready: VecDeque<Completion>,
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
        self.lock().scans.open(TableId(table))
    }

    /// Ends a scan.
    pub fn close_scan(&self, scan: u64) {
        self.lock().scans.close(scan);
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
                        Request::Operations(state.scans.next(scan).into_iter().collect())
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
        completions.into_iter().for_each(|it| put(&mut self.lock(), it, into));
        count
    }

    /// Takes completions and appends their bytes until there are at least this many bytes, or no
    /// completion is left. Returns how many completions there were. For users with a buffer of a
    /// fixed size.
    ///
    /// The completions that are not encoded yet are kept here, and the descriptor is not readable
    /// for them. So the user calls this until it returns 0, before it waits for the descriptor.
    pub fn take_bytes(&self, bytes: usize, into: &mut Vec<u8>) -> usize {
        let mut state = self.lock();
        if state.ready.is_empty() {
            state.ready = self.queue.take(usize::MAX).into();
        }
        let mut count = 0;
        while into.len() < bytes
            && let Some(completion) = state.ready.pop_front()
        {
            put(&mut state, completion, into);
            count += 1;
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

/// Appends a completion.
fn put(state: &mut State, completion: Completion, into: &mut Vec<u8>) {
    let Completion { tag, outcome } = completion;
    match outcome {
        Outcome::Operations(results) => match state.pages.remove(&tag) {
            Some(scan) => state.scans.put_page((tag, scan), results, into),
            None => {
                result::put_head(tag, results.len(), into);
                results.iter().for_each(|it| result::put_answer(it, into));
            }
        },
        Outcome::Question(reply) => result::put_reply_to(tag, &reply, into),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thunderhead_client::{Answer, Reply, Version};

    #[test]
    fn completions_are_encoded_with_their_tags() {
        let mut into = Vec::new();
        let written = Ok(Answer::Written(Version(5)));
        let outcome = Outcome::Operations(vec![written, Err(Error::Closed)]);
        put(&mut State::default(), Completion { tag: 7, outcome }, &mut into);
        let outcome = Outcome::Question(Box::new(Ok(Reply::Done)));
        put(&mut State::default(), Completion { tag: 8, outcome }, &mut into);
        let number = |at: usize| u64::from_le_bytes(into[at..at + 8].try_into().unwrap());
        assert_eq!((number(0), into[8], into[12], number(24)), (7, 2, 3, 5));
        let end = 12 + 20 + 20 + Error::Closed.to_string().len();
        assert_eq!((number(end), into[end + 8], into[end + 12]), (8, 1, 6));
        assert_eq!(into.len(), end + 12 + 20);
    }
}
