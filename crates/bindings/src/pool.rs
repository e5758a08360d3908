//! A pool of clients behind buffers of bytes.

use crate::reader::Malformed;
use crate::request::{self, LoneRead, Submitted, Work};
use crate::result;
use crate::scans::Scans;
use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use thunderhead_client::{Answer, Client, ClientPool, Error, Operation, Options, TableId};

thread_local! {
    /// The time limit of this thread's call, for a client that the pool connects for it.
    static DEADLINE: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// A [`ClientPool`] whose requests and results are bytes. The calling thread does the I/O.
pub struct BytePool {
    pool: ClientPool,
    scans: Mutex<Scans>,
}

impl BytePool {
    /// Makes a pool of at most `clients_max` clients and connects the first of them. A thread that
    /// waits calls `is_wanted` about every `every`: see [`Client::set_interrupt`].
    ///
    /// # Errors
    /// Those of [`Client::connect_interruptibly`].
    pub fn connect(
        options: &Options,
        clients_max: usize,
        (every, is_wanted): (Duration, fn() -> bool),
    ) -> Result<BytePool, Error> {
        let (patience, options) = (options.deadline, options.clone());
        let connect = move || {
            let deadline = DEADLINE.get().or(options.deadline);
            Client::connect_interruptibly(&options.clone().deadline(deadline), every, is_wanted)
        };
        // A call that panicked may have left its limit.
        DEADLINE.set(None);
        let pool = ClientPool::of(clients_max, patience, connect)?;
        Ok(BytePool { pool, scans: Mutex::default() })
    }

    /// Lends a client to `work`, with this time limit.
    fn with<T>(
        &self,
        deadline: Option<Duration>,
        work: impl FnOnce(&mut Client) -> T,
    ) -> Result<T, Error> {
        DEADLINE.set(deadline);
        let done = self.pool.with(|client| {
            client.set_deadline(deadline);
            work(client)
        });
        DEADLINE.set(None);
        done
    }

    fn scans(&self) -> MutexGuard<'_, Scans> {
        self.scans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a scan of a table and returns its number. The caller requests its pages one by one,
    /// and ends it with [`BytePool::close_scan`].
    pub fn open_scan(&self, table: u64) -> u64 {
        self.scans().open(TableId(table))
    }

    /// Ends a scan.
    pub fn close_scan(&self, scan: u64) {
        self.scans().close(scan);
    }

    /// Does the submissions of a buffer one after another and appends their completions: see
    /// [`request`] and [`result`].
    ///
    /// # Errors
    /// If the buffer is malformed: nothing was begun.
    pub fn call(&self, buffer: &[u8], into: &mut Vec<u8>) -> Result<(), Malformed> {
        if let Some(read) = request::lone_read(buffer) {
            self.read(&read, into);
            return Ok(());
        }
        for Submitted { tag, deadline, work } in request::decode(buffer)? {
            match work {
                Work::Operations(operations) => {
                    let count = operations.len();
                    let done = self.with(deadline, |client| client.all(operations));
                    let results = done.unwrap_or_else(|error| vec![Err(error); count]);
                    result::put_head(tag, results.len(), into);
                    results.iter().for_each(|it| result::put_answer(it, into));
                }
                Work::Question(question) => {
                    let reply = self.with(deadline, |client| client.ask(question));
                    result::put_reply_to(tag, &reply.and_then(|it| it), into);
                }
                Work::Page { scan } => {
                    let operation = self.scans().next(scan);
                    let operations: Vec<Operation> = operation.into_iter().collect();
                    let done = self.with(deadline, |client| client.all(operations));
                    let results = done.unwrap_or_else(|error| vec![Err(error)]);
                    self.scans().put_page((tag, scan), results, into);
                }
            }
        }
        Ok(())
    }

    /// Reads one object. Its bytes go from the answer into the result without a copy in between.
    fn read(&self, read: &LoneRead<'_>, into: &mut Vec<u8>) {
        result::put_head(read.tag, 1, into);
        let done = self.with(read.deadline, |client| {
            client.get_with(read.table, read.key, |found| match found {
                Some((version, value)) => result::put_value(version, value, into),
                None => result::put_answer(&Ok(Answer::Absent), into),
            })
        });
        if let Err(error) | Ok(Err(error)) = done {
            result::put_error(&error, into);
        }
    }

    /// Closes the pool: see [`ClientPool::close`]. Later calls end with [`Error::Closed`].
    pub fn close(&self) {
        self.pool.close();
    }
}
