//! Clients for any number of threads that wait for their answers.

use crate::client::{Client, Options};
use crate::error::{Error, Obstacle};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use thunderhead_runtime::os::ForkCount;

/// The most clients of a pool by default. Each has connections of its own to every server.
const CLIENTS_MAX: usize = 64;

/// How long the clients of a pool wait for coordinators in all, when the pool is closed.
const CLOSING: Duration = Duration::from_secs(1);

/// A pool of clients. Any thread may use it.
///
/// An operation takes an idle client, and makes a new one if none is idle. So threads do not wait
/// for one another, and the thread that calls does the I/O itself. Once the pool has as many
/// clients as it may, further threads wait until one is idle.
pub struct ClientPool {
    connect: Box<Connect>,
    clients_max: usize,
    /// How long a thread waits for an idle client; `None`: as long as it takes.
    patience: Option<Duration>,
    state: Mutex<State>,
    /// Signalled when a client becomes idle or a place becomes free.
    freed: Condvar,
    forks: ForkCount,
}

/// Makes a client.
type Connect = dyn Fn() -> Result<Client, Error> + Send + Sync;

struct State {
    /// The most recently used is last, and is used next: its connections are warm.
    #[expect(
        clippy::vec_box,
        reason = "each operation moves a client out and in, and it is large"
    )]
    idle: Vec<Box<Client>>,
    /// How many clients exist or are being made.
    count: usize,
    /// The threads that wait for an idle client. If there are none, none is signalled: a signal
    /// is a call of the kernel even then.
    waiting: usize,
    is_closed: bool,
}

impl ClientPool {
    /// Makes a pool and connects its first client, to notice a wrong address now. A pool makes at
    /// most 64 clients by default.
    ///
    /// # Errors
    /// Those of [`Client::connect`].
    pub fn connect(options: &Options) -> Result<ClientPool, Error> {
        let (deadline, options) = (options.deadline, options.clone());
        ClientPool::of(CLIENTS_MAX, deadline, move || Client::connect(&options))
    }

    /// Makes a pool whose clients are made by `connect`, and makes the first of them. A thread
    /// waits at most `patience` for an idle client.
    ///
    /// # Errors
    /// Those of `connect`.
    pub fn of(
        clients_max: usize,
        patience: Option<Duration>,
        connect: impl Fn() -> Result<Client, Error> + Send + Sync + 'static,
    ) -> Result<ClientPool, Error> {
        let forks = ForkCount::now().map_err(|error| Error::System(error.kind()))?;
        let state =
            State { idle: vec![Box::new(connect()?)], count: 1, waiting: 0, is_closed: false };
        Ok(ClientPool {
            connect: Box::new(connect),
            clients_max: clients_max.max(1),
            patience,
            state: Mutex::new(state),
            freed: Condvar::new(),
            forks,
        })
    }

    /// Lends a client to `work` and returns its result.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`], [`Error::TimedOut`] if no client becomes idle in time,
    /// or the error of connecting a new client.
    pub fn with<T>(&self, work: impl FnOnce(&mut Client) -> T) -> Result<T, Error> {
        let mut lent = self.lend()?;
        let result = lent.client.as_deref_mut().map(work);
        lent.is_sound = true;
        result.ok_or(Error::Closed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "a condition variable waits by the system's clock"
    )]
    fn lend(&self) -> Result<Lent<'_>, Error> {
        if self.forks.is_past() {
            return Err(Error::Forked);
        }
        let mut state = self.lock();
        let mut until = None;
        loop {
            if state.is_closed {
                return Err(Error::Closed);
            }
            if let Some(client) = state.idle.pop() {
                return Ok(Lent { pool: self, client: Some(client), is_sound: false });
            }
            if state.count < self.clients_max {
                break;
            }
            // A patience of more than the clock can count has no end.
            let end = || self.patience.and_then(|patience| Instant::now().checked_add(patience));
            let left = match *until.get_or_insert_with(end) {
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left == Duration::ZERO {
                        return Err(Error::TimedOut(Obstacle::Busy));
                    }
                    left
                }
                None => Duration::MAX,
            };
            state.waiting += 1;
            let waited = self.freed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= 1;
        }
        state.count += 1;
        drop(state);
        // If connecting fails, this gives the place back.
        let mut lent = Lent { pool: self, client: None, is_sound: false };
        lent.client = Some(Box::new((self.connect)()?));
        Ok(lent)
    }

    /// Closes the pool. Later operations fail with [`Error::Closed`]; those in progress go on. Ends
    /// the leases of the idle clients now, and the others' when they are given back. Waits for one
    /// or two seconds at most, however many clients there are, and no longer if a client's
    /// interrupt is wanted.
    pub fn close(&self) {
        if self.forks.is_past() {
            return;
        }
        let idle = {
            let mut state = self.lock();
            state.is_closed = true;
            state.count -= state.idle.len();
            std::mem::take(&mut state.idle)
        };
        self.freed.notify_all();
        let mut left = Some(CLOSING);
        for client in idle {
            // Dropping a client ends its lease too, without waiting for the answer.
            left = left
                .filter(|left| *left > Duration::ZERO)
                .and_then(|left| Some(left.saturating_sub(client.close_within()?)));
        }
    }
}

impl Drop for ClientPool {
    fn drop(&mut self) {
        self.close();
    }
}

/// A client that is lent to an operation.
struct Lent<'a> {
    pool: &'a ClientPool,
    client: Option<Box<Client>>,
    /// Whether the operation returned. A client whose operation panicked is not used again.
    is_sound: bool,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if self.pool.forks.is_past() {
            return;
        }
        let mut state = self.pool.lock();
        let unused = match self.client.take() {
            Some(client) if self.is_sound && !state.is_closed => {
                state.idle.push(client);
                None
            }
            client => {
                state.count -= 1;
                client
            }
        };
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.pool.freed.notify_one();
        }
        if let Some(client) = unused
            && self.is_sound
        {
            client.close();
        }
    }
}
