//! The asynchronous client: any thread submits operations, and takes results when a descriptor is
//! readable.

use crate::abi::{th_batch, th_error, th_op, th_options};
use crate::arguments;
use crate::batch::{Outcome, OwnedBatch, outcome, reply_outcome};
use crate::client::{Settings, batch_place};
use crate::entry::entry;
use crate::failure::Failure;
use crate::sized;
use crate::status::{TH_OK, th_status};
use std::ffi::{c_char, c_int};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use thunderhead_client::{Completion, CompletionQueue, Error, ForkCount, Submission};

/// A client of a cluster, for any number of threads. A thread of the library does the I/O.
#[allow(non_camel_case_types, reason = "it is a name of C")]
pub struct th_queue {
    queue: CompletionQueue,
    deadline: Duration,
    /// Whether its user has closed it.
    is_closed: AtomicBool,
    /// The process that made the queue.
    forks: ForkCount,
}

const fn assert_for_all_threads<T: Send + Sync>() {}
const _: () = assert_for_all_threads::<th_queue>();

/// Returns a queue, unless the process has forked.
///
/// # Safety
/// The pointer keeps the header's rules.
unsafe fn unforked<'a>(queue: *const th_queue) -> Result<&'a th_queue, Failure> {
    // SAFETY: as the caller vouches.
    let queue = unsafe { sized::handle(queue, "queue") }?;
    if queue.forks.is_past() { Err(Error::Forked.into()) } else { Ok(queue) }
}

/// Opens a queue: connects to the cluster that a URL names, and starts a thread for the I/O. Waits
/// until a coordinator answers.
///
/// `options` may be `NULL`. After a failure `*queue` is `NULL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_queue_open(
    url: *const c_char,
    options: *const th_options,
    queue: *mut *mut th_queue,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        let (place, settings) = unsafe {
            let place = sized::place(queue, "queue")?;
            place.write(std::ptr::null_mut());
            (place, Settings::of(url, options)?)
        };
        let forks = ForkCount::now().map_err(|error| Error::System(error.kind()))?;
        let queue = CompletionQueue::connect(settings.options())?;
        let (deadline, is_closed) = (settings.deadline, AtomicBool::new(false));
        place.write(Box::into_raw(Box::new(th_queue { queue, deadline, is_closed, forks })));
        Ok(TH_OK)
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

/// Begins operations. Each of them has one result later, which `th_take` hands over. Operations
/// that are submitted together are sent together. They have no order among them.
///
/// Hands over the number of the first operation, for `th_cancel`, unless `first` is `NULL`; the
/// others have the numbers after it. With any other status than `TH_OK` nothing was begun, except
/// with `TH_INTERNAL`. Any thread may call it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_submit(
    queue: *mut th_queue,
    ops: *const th_op,
    count: usize,
    first: *mut u64,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        let (queue, place, submissions) = unsafe {
            let queue = unforked(queue)?;
            let place = sized::optional_place(first, "first")?;
            let submission = |op: &th_op| {
                let request = arguments::request(op)?;
                let deadline = arguments::deadline(op.deadline_us)?.unwrap_or(queue.deadline);
                Ok(Submission { tag: op.tag, request, deadline: Some(deadline) })
            };
            let ops = sized::inputs(ops, count)?;
            let submissions: Result<Vec<Submission>, Failure> = ops
                .iter()
                .enumerate()
                .map(|(index, op)| submission(op).map_err(|it| arguments::at_index(index, it)))
                .collect();
            (queue, place, submissions?)
        };
        let first = queue.queue.submit(submissions)?;
        if let Some(place) = place {
            place.write(first);
        }
        Ok(TH_OK)
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

/// Ends an operation before its deadline. Its result comes soon: `TH_CANCELLED` if it was not done,
/// `TH_OUTCOME_UNKNOWN` if it may have been done, or its usual result if it had ended already. Any
/// thread may call it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_cancel(
    queue: *mut th_queue,
    number: u64,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        let queue = unsafe { unforked(queue) }?;
        queue.queue.cancel(number);
        Ok(TH_OK)
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

/// Hands over at most `count_max` results, the oldest first. Does not wait. Free the batch with
/// `th_batch_free`. If there is no result, `*batch` is `NULL`, and the status is `TH_OK`.
///
/// Once the queue is closed and its last result was taken, the status is `TH_CLOSED`. Any thread
/// may call it; each result goes to one thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_take(
    queue: *mut th_queue,
    count_max: usize,
    batch: *mut *mut th_batch,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        let (place, queue) = unsafe { (batch_place(batch)?, unforked(queue)?) };
        // This is asked first: work that ends before the queue is closed has a result by then.
        let is_closed = queue.is_closed.load(Ordering::Acquire);
        let completions = queue.queue.take(count_max);
        if completions.is_empty() {
            return if is_closed && count_max > 0 { Err(Failure::closed()) } else { Ok(TH_OK) };
        }
        place.write(OwnedBatch::of(completions.into_iter().map(result).collect()).into_raw());
        Ok(TH_OK)
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

fn result(Completion { tag, outcome: its }: Completion) -> (u64, Outcome) {
    use thunderhead_client::Outcome::{Operations, Question};
    let its = match its {
        // Each submission has one operation.
        Operations(mut results) => outcome(results.pop().unwrap_or(Err(Error::Incomprehensible))),
        Question(reply) => reply_outcome(*reply),
    };
    (tag, its)
}

/// Hands over a descriptor that is readable while there are results to take. Now and then it is
/// readable although an earlier call has just taken them; `th_take` hands over `NULL` then. Only
/// wait for it, with `poll` or `epoll`: never read from it, write to it or close it. It stays valid
/// until `th_queue_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_queue_fd(
    queue: *mut th_queue,
    fd: *mut c_int,
    error: *mut th_error,
) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        let (place, queue) = unsafe { (sized::place(fd, "fd")?, unforked(queue)?) };
        place.write(queue.queue.descriptor().as_raw_fd());
        Ok(TH_OK)
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

/// Closes a queue. Refuses new operations with `TH_CLOSED`, waits until those in progress have
/// ended, which takes no longer than their deadlines, and ends the lease. Their results can still
/// be taken. Closing again does nothing. The handle stays valid until `th_queue_free`. Any thread
/// may call it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_queue_close(queue: *mut th_queue, error: *mut th_error) -> th_status {
    let work = || {
        // SAFETY: the caller keeps the header's rules for pointers.
        let queue = unsafe { unforked(queue) }?;
        queue.queue.close();
        queue.is_closed.store(true, Ordering::Release);
        Ok(TH_OK)
    };
    // SAFETY: the caller keeps the header's rules for pointers.
    unsafe { entry(error, work) }
}

/// Releases a queue. `NULL` is allowed. Operations that are in progress may be done or not; close
/// the queue first if that matters. No other thread may use the queue during this call or later. In
/// the child of a fork, it releases the child's copy only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn th_queue_free(queue: *mut th_queue) -> th_status {
    let work = || {
        if !queue.is_null() {
            // SAFETY: `th_queue_open` made it with `Box::into_raw`, and it has not been freed
            // before: that is a rule of the header.
            drop(unsafe { Box::from_raw(queue) });
        }
        Ok(TH_OK)
    };
    // SAFETY: there is no error to fill.
    unsafe { entry(std::ptr::null_mut(), work) }
}
