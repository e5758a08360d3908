//! One file on one machine, for a cluster with one coordinator: redb, behind a worker thread.
//!
//! - What was answered is on the disk: each commit is synced before its answer leaves.
//! - The file is locked while it is open: a second process is refused.
//! - A file that is damaged or belongs to something else is refused with its name. redb checks its
//!   pages when the file is opened; each row carries a checksum besides, which every read checks.
//! - A file comes into being under another name and is linked to its own when it is whole, so that
//!   a process killed in between leaves nothing half made, and two that do it at once do not share.
//! - A lease ends with the process, for the lock does; only the tokens are kept.

mod database;

use crate::driven::{Answers, Driven, Driver, Lane, Lanes};
use crate::error::{Error, OpenError};
use crate::key::{LeaseName, Prefix};
use crate::request::{Answer, Change, Fence, Held, Holder, Request, Token};
use database::Database;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use thunderhead_runtime::alarm::Alarm;
use thunderhead_runtime::clock::Clock;
use thunderhead_runtime::workers::Workers;

/// How often a watch looks. Looking is reading one number.
const WATCH_EVERY: Duration = Duration::from_millis(20);

/// An open file. Clones are the same; it is closed with the last of them and of their clients.
#[derive(Clone)]
pub struct Embedded(Arc<Mutex<Core>>);

struct Core {
    path: PathBuf,
    /// None once it was closed.
    database: Option<Database>,
    leases: BTreeMap<LeaseName, Lease>,
    began: Instant,
}

struct Lease {
    held: Held,
    ttl: Duration,
    /// In the time since the file was opened.
    until: Duration,
}

/// A client's end.
struct Client(Embedded);

impl Embedded {
    /// Opens a file; makes it if it is not there. May wait for the disk: done before the first
    /// turn.
    ///
    /// # Errors
    /// When it is open elsewhere, damaged, of a newer format, or the machine refuses.
    pub fn open(path: &Path) -> Result<Embedded, OpenError> {
        let database = Some(Database::open(path)?);
        let Clock::Os(clock) = Clock::os() else {
            return Err(OpenError::Options("the embedded store needs a machine's clock".into()));
        };
        Ok(Embedded(Arc::new(Mutex::new(Core {
            path: path.to_owned(),
            database,
            leases: BTreeMap::new(),
            began: clock.origin(),
        }))))
    }

    /// A client, with a worker of its own.
    ///
    /// # Errors
    /// When there can be no further thread.
    pub fn client(&self, workers: &mut dyn Workers, alarm: Alarm) -> io::Result<Driven> {
        let answers = Answers::new(alarm);
        let lane = Lane::start("metastore", Client(self.clone()), workers, &answers)?;
        Ok(Driven::new(Lanes::One(lane), answers, WATCH_EVERY))
    }

    /// Closes the file: its lock is free when this returns. Clients are told that the store is
    /// unavailable.
    pub fn close(&self) {
        let mut core = self.core();
        core.database = None;
        core.leases.clear();
    }

    /// Opens the file again after it was closed; clients that there are go on.
    ///
    /// # Errors
    /// As for opening.
    pub fn reopen(&self) -> Result<(), OpenError> {
        let mut core = self.core();
        if core.database.is_none() {
            core.database = Some(Database::open(&core.path)?);
        }
        Ok(())
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Core {
    fn database(&self) -> Result<&Database, Error> {
        self.database.as_ref().ok_or_else(|| Error::unavailable("its file was closed"))
    }

    /// Who has a lease now.
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
            None => self.database()?.next_token(name)?,
        };
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
        let database = self.database()?;
        if fence.is_some_and(|fence| !self.is_held(fence)) {
            return Ok(Answer::Deposed);
        }
        database.write(key, change)
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
        core.database()?;
        match request {
            Request::Get { key } => core.database()?.get(key).map(Answer::Value),
            Request::List { prefix, after } => {
                core.database()?.list(prefix, after.as_ref()).map(Answer::Page)
            }
            Request::Write { key, change, fence } => core.write(key, change, fence.as_ref()),
            Request::Acquire { lease, holder, ttl } => match core.acquire(lease, holder, *ttl) {
                Ok(token) => Ok(Answer::Acquired(token)),
                Err(AcquireError::Held(held)) => Ok(Answer::HeldBy(held)),
                Err(AcquireError::Failed(error)) => Err(error),
            },
            Request::Renew { fence } => Ok(core.renew(fence)),
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
        self.0.core().database()?.version().map(u128::from)
    }
}
