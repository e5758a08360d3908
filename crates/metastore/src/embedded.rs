//! One file on one machine, for a cluster with one coordinator: redb, behind a worker thread.
//!
//! - Every answered write is on the disk: each commit is synced before its answer leaves.
//! - The file is locked while it is open: a second process is refused.
//! - A file that is damaged or belongs to another program is refused with its name. redb checks its
//!   pages when the file is opened. Each row also carries a checksum, which every read checks.
//! - A new file is made under another name and linked to its own when it is whole. So a crash
//!   leaves no partial file, and two processes that make it at once do not share it.
//! - A lease ends with the process, because the lock does. Only the tokens are kept.
//! - A failed input or output (a full disk, a device that does not answer) ends with its cause.
//!   redb refuses everything after the first error, so the store closes the file and opens it
//!   again, with growing pauses. It keeps the lock, and with it the leases. If the file cannot be
//!   opened for [`LEADS_UNOPENED`], its leases end: their holder would only seem to lead.

mod database;
mod file;
#[cfg(test)]
mod tests;

use crate::driven::{Answers, Driven, Driver, Lane, Lanes};
use crate::error::{Error, OpenError};
use crate::key::{LeaseName, Prefix};
use crate::limits::{LEADS_UNOPENED, REOPENING};
use crate::request::{Answer, Change, Fence, Held, Holder, Request, Token};
use database::Database;
use file::LockedFile;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use thunderhead_runtime::alarm::Alarm;
use thunderhead_runtime::clock::Clock;
use thunderhead_runtime::workers::Workers;

/// How often a watch looks. One look reads one number.
const WATCH_EVERY: Duration = Duration::from_millis(20);

/// An open file. Clones share it. It is closed with the last of them and of their clients.
#[derive(Clone)]
pub struct Embedded(Arc<Mutex<Core>>);

struct Core {
    path: PathBuf,
    /// The file has no name: the path serves only messages.
    is_in_memory: bool,
    state: State,
    /// Failures since the last successful write.
    failures: u32,
    leases: BTreeMap<LeaseName, Lease>,
    /// The highest token of each lease that this process granted. An operator may replace the file
    /// by an older copy.
    granted: BTreeMap<LeaseName, Token>,
    began: Instant,
}

enum State {
    Open(Database, LockedFile),
    Failed(Failure),
    /// The owner of the store closed it.
    Closed,
}

/// A file after a failed input or output.
struct Failure {
    file: LockedFile,
    why: String,
    /// When it failed, measured from the first opening of the file.
    since: Duration,
    retry_at: Duration,
}

struct Lease {
    held: Held,
    ttl: Duration,
    /// Measured from the opening of the file.
    until: Duration,
}

/// The driver of one client.
struct Client(Embedded);

impl Embedded {
    /// Opens a file, and makes it if it is missing. It may wait for the disk, so the caller opens
    /// it before the first turn.
    ///
    /// # Errors
    /// If another process has it open, it is damaged or of a newer format, or the machine refuses.
    pub fn open(path: &Path) -> Result<Embedded, OpenError> {
        let opened = Database::open(path)?;
        Embedded::of(path, false, opened)
    }

    /// Returns a store in memory, in a file without a name. It is gone when this process ends,
    /// however it ends.
    ///
    /// # Errors
    /// If the machine refuses.
    pub fn in_memory() -> Result<Embedded, OpenError> {
        let path = Path::new("the metastore in memory");
        let file = LockedFile::in_memory(path)?;
        let database = Database::make_locked(path, &file)?;
        Embedded::of(path, true, (database, file))
    }

    fn of(
        path: &Path,
        is_in_memory: bool,
        (database, file): (Database, LockedFile),
    ) -> Result<Embedded, OpenError> {
        let Clock::Os(clock) = Clock::os() else {
            return Err(OpenError::Options("the embedded store needs a machine's clock".into()));
        };
        Ok(Embedded(Arc::new(Mutex::new(Core {
            path: path.to_owned(),
            is_in_memory,
            state: State::Open(database, file),
            failures: 0,
            leases: BTreeMap::new(),
            granted: BTreeMap::new(),
            began: clock.origin(),
        }))))
    }

    /// Returns a client with a worker of its own.
    ///
    /// # Errors
    /// If the machine refuses another thread.
    pub fn client(&self, workers: &mut dyn Workers, alarm: Alarm) -> io::Result<Driven> {
        let answers = Answers::new(alarm);
        let lane = Lane::start("metastore", Client(self.clone()), workers, &answers)?;
        Ok(Driven::new(Lanes::One(lane), answers, WATCH_EVERY))
    }

    /// Closes the file. Its lock is free when this returns. Later requests of clients fail as
    /// unavailable.
    pub fn close(&self) {
        let mut core = self.core();
        core.state = State::Closed;
        core.leases.clear();
    }

    /// Opens the file again after it was closed. The present clients go on.
    ///
    /// # Errors
    /// As for opening.
    pub fn reopen(&self) -> Result<(), OpenError> {
        let mut core = self.core();
        if core.is_in_memory {
            return Err(OpenError::Options("a store in memory is gone when it is closed".into()));
        }
        if matches!(core.state, State::Closed) {
            let (database, file) = Database::open(&core.path)?;
            core.state = State::Open(database, file);
        }
        Ok(())
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Core {
    /// Does some work with the database. First opens the file again if it failed and its pause is
    /// over.
    fn work<T>(&mut self, act: impl FnOnce(&Database) -> Result<T, Error>) -> Result<T, Error> {
        self.mend()?;
        let State::Open(database, _) = &self.state else {
            return Err(Error::unavailable("its file was closed"));
        };
        let outcome = act(database);
        if database.has_failed() {
            let why = outcome.as_ref().err().map_or_else(|| "it failed".into(), Error::cause);
            self.fails(why);
        }
        outcome
    }

    /// As [`work`](Core::work), for changes that must reach the disk.
    fn commit<T>(&mut self, act: impl FnOnce(&Database) -> Result<T, Error>) -> Result<T, Error> {
        let outcome = self.work(act);
        if outcome.is_ok() {
            self.failures = 0;
        }
        outcome
    }

    /// Closes redb, which refuses everything now. The lock stays.
    fn fails(&mut self, why: String) {
        if let State::Open(database, file) = std::mem::replace(&mut self.state, State::Closed) {
            drop(database);
            let (since, retry_at) = (self.began.elapsed(), self.next_retry());
            self.state = State::Failed(Failure { file, why, since, retry_at });
        }
    }

    /// Returns the time of the next attempt. The first follows at once: most causes are gone by
    /// then, and any other shows with the next request.
    fn next_retry(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let pause = match self.failures {
            0 | 1 => Duration::ZERO,
            more => REOPENING.limit(more - 2),
        };
        self.began.elapsed() + pause
    }

    /// Opens a failed file again if its pause is over.
    fn mend(&mut self) -> Result<(), Error> {
        let now = self.began.elapsed();
        let State::Failed(failure) = &self.state else { return Ok(()) };
        if now >= failure.retry_at {
            let since = failure.since;
            match self.open_again() {
                Ok(()) => return Ok(()),
                Err(error) => {
                    let retry_at = self.next_retry();
                    if let State::Failed(failure) = &mut self.state {
                        (failure.why, failure.retry_at) = (error.to_string(), retry_at);
                    }
                }
            }
            if now.saturating_sub(since) >= LEADS_UNOPENED {
                self.leases.clear();
            }
        }
        let State::Failed(Failure { why, .. }) = &self.state else { return Ok(()) };
        let path = self.path.display();
        Err(Error::unavailable(format!(
            "{path} failed, and the store keeps trying to open it again: {why}"
        )))
    }

    fn open_again(&mut self) -> Result<(), OpenError> {
        let State::Failed(failure) = &self.state else { return Ok(()) };
        let is_same = self.is_in_memory || failure.file.is_at(&self.path);
        let file = if is_same { failure.file.clone() } else { LockedFile::open(&self.path)? };
        file.drop_unwritten()?;
        let database = Database::open_locked(&self.path, &file)?;
        if !is_same {
            // Another file has tokens of its own.
            self.leases.clear();
        }
        self.state = State::Open(database, file);
        Ok(())
    }

    /// Returns a lease's present holder.
    fn held(&self, lease: &LeaseName) -> Option<&Lease> {
        let now = self.began.elapsed();
        self.leases.get(lease).filter(|held| now < held.until)
    }

    fn is_held(&self, fence: &Fence) -> bool {
        self.held(&fence.lease).is_some_and(|lease| lease.held.token == fence.token)
    }

    fn acquire(
        &mut self,
        name: &LeaseName,
        holder: &Holder,
        ttl: Duration,
    ) -> Result<Token, AcquireError> {
        let token = match self.held(name) {
            Some(lease) if lease.held.by.id == holder.id => lease.held.token,
            Some(lease) => return Err(AcquireError::Held(lease.held.clone())),
            None => {
                let above = self.granted.get(name).map_or(0, |token| token.0);
                self.commit(|database| database.next_token(name, above))?
            }
        };
        self.granted.insert(name.clone(), token);
        let held = Held { by: holder.clone(), token };
        let lease = Lease { held, ttl, until: self.began.elapsed() + ttl };
        self.leases.insert(name.clone(), lease);
        Ok(token)
    }

    fn renew(&mut self, fence: &Fence) -> Answer {
        if !self.is_held(fence) {
            return Answer::NotHeld;
        }
        let now = self.began.elapsed();
        if let Some(lease) = self.leases.get_mut(&fence.lease) {
            lease.until = now + lease.ttl;
        }
        Answer::Renewed
    }

    fn write(
        &mut self,
        key: &crate::Key,
        change: &Change,
        fence: Option<&Fence>,
    ) -> Result<Answer, Error> {
        self.mend()?;
        if fence.is_some_and(|fence| !self.is_held(fence)) {
            return Ok(Answer::Deposed);
        }
        self.commit(|database| database.write(key, change))
    }
}

enum AcquireError {
    Held(Held),
    Failed(Error),
}

impl From<Error> for AcquireError {
    fn from(error: Error) -> AcquireError {
        AcquireError::Failed(error)
    }
}

impl Driver for Client {
    fn answer(&mut self, request: &Request) -> Result<Answer, Error> {
        let mut core = self.0.core();
        if matches!(core.state, State::Closed) {
            return Err(Error::unavailable("its file was closed"));
        }
        match request {
            Request::Get { key } => core.work(|database| database.get(key)).map(Answer::Value),
            Request::List { prefix, after } => {
                core.work(|database| database.list(prefix, after.as_ref())).map(Answer::Page)
            }
            Request::Write { key, change, fence } => core.write(key, change, fence.as_ref()),
            Request::Acquire { lease, holder, ttl } => match core.acquire(lease, holder, *ttl) {
                Ok(token) => Ok(Answer::Acquired(token)),
                Err(AcquireError::Held(held)) => Ok(Answer::HeldBy(held)),
                Err(AcquireError::Failed(error)) => Err(error),
            },
            Request::Renew { fence } => {
                // A leader that writes nothing finds out in this way whether the file works again.
                // Its lease is in memory and lasts.
                let _ = core.mend();
                Ok(core.renew(fence))
            }
            Request::Release { fence } => {
                if core.is_held(fence) {
                    core.leases.remove(&fence.lease);
                }
                Ok(Answer::Released)
            }
            Request::Holder { lease } => {
                Ok(Answer::Holder(core.held(lease).map(|lease| lease.held.clone())))
            }
        }
    }

    fn fingerprint(&mut self, _prefix: &Prefix) -> Result<u128, Error> {
        self.0.core().work(Database::version).map(u128::from)
    }
}
