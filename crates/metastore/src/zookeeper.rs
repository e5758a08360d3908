//! A ZooKeeper ensemble.
//!
//! | what | where |
//! | --- | --- |
//! | a value | node `{root}/keys/+a/+b/=c` of key `a/b/c`; its version is the node's `mzxid` |
//! | a lease | node `{root}/leases/{name}`: its data says who had it last, its data version is the token |
//! | | ephemeral node `{root}/leases/{name}/holder`: there as long as the holder's session |
//! | changes | node `{root}/changes`: set with every write, so that its `mzxid` tells of them |
//! | deletions | node `{root}/deletions`: set with every deletion |
//!
//! - Directories and values have different first characters, so a key may be the beginning of
//!   another, and a part may be called what ZooKeeper reserves. Directories are made when they are
//!   needed and stay.
//! - A write is one `multi`: it checks the lease's version against the token, checks that the
//!   holder's node is there, and changes the value. ZooKeeper compares a node's number of changes,
//!   which begins anew when a node is made again. So that a value that was deleted and made again
//!   is not mistaken for the one that was read, a write also checks that nothing was deleted since.
//! - Reads follow a `sync`, so that they see what was written before, whichever server is asked.
//! - The session behind a lease lasts half as long again as the lease. A server that answers tells
//!   the leader of our being alive only a little later, and may die before it does; the half covers
//!   that.
//! - The client keeps sessions alive by itself. So that a reactor that hangs does not keep its
//!   lease, a lease that is not renewed in its time has its session closed from this side.
//! - Only the client that acquired a lease can renew it. One that lost its session and acquires
//!   again under the same id takes its old node away, and gets a new token.
//! - A watch looks at `{root}/changes`: it tells of all writes by this crate, below any prefix, and
//!   of none that are made by other means.

mod lease;
mod nodes;

use crate::driven::{Answers, Driven, Driver, Lane, Lanes};
use crate::error::{Error, OpenError};
use crate::key::{Key, Prefix};
use crate::request::{Answer, Request};
use nodes::{Ensemble, Failure};
use std::time::Duration;
use thunderhead_runtime::alarm::Alarm;
use thunderhead_runtime::workers::Workers;

/// How to reach an ensemble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Its servers, as `host:port`.
    pub servers: Vec<String>,
    /// The node below which everything is kept, so that several clusters can share it.
    pub root: Key,
    /// How long a server may take to answer. Below a quarter of the shortest lease in use.
    pub patience: Duration,
    /// How often a watch looks.
    pub watch_every: Duration,
}

impl Options {
    /// The usual, for some servers.
    #[must_use]
    pub fn new(servers: Vec<String>, root: Key) -> Options {
        let (patience, watch_every) = (Duration::from_secs(2), Duration::from_millis(500));
        Options { servers, root, patience, watch_every }
    }
}

/// A client of an ensemble, with two workers. The ensemble need not be there yet.
///
/// # Errors
/// When there are no servers, or there can be no further threads.
pub fn client(
    options: &Options,
    workers: &mut dyn Workers,
    alarm: Alarm,
) -> Result<Driven, OpenError> {
    if options.servers.is_empty() {
        return Err(OpenError::Options("name at least one server of ZooKeeper".into()));
    }
    if let Some(bad) = options.servers.iter().find(|it| !it.contains(':') || it.contains('/')) {
        return Err(OpenError::Options(format!("{bad:?} is no server: write host:port")));
    }
    let answers = Answers::new(alarm);
    let mut lane = |name| {
        let driver = Client::new(options)?;
        Lane::start(name, driver, workers, &answers)
    };
    let lanes = Lanes::Two { keys: lane("zk-keys")?, leases: lane("zk-leases")? };
    Ok(Driven::new(lanes, answers, options.watch_every))
}

struct Client {
    ensemble: Ensemble,
    leases: lease::Leases,
    /// Sessions live on it. Last, so that it is dropped last.
    runtime: tokio::runtime::Runtime,
}

impl Client {
    fn new(options: &Options) -> std::io::Result<Client> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("zk-sessions")
            .enable_time()
            .build()?;
        let ensemble = Ensemble::new(options);
        Ok(Client { ensemble, leases: lease::Leases::default(), runtime })
    }
}

impl Driver for Client {
    fn answer(&mut self, request: &Request) -> Result<Answer, Error> {
        let Client { ensemble, leases, runtime } = self;
        let result = runtime.block_on(async {
            match request {
                Request::Get { key } => ensemble.get(key).await.map(Answer::Value),
                Request::List { prefix, after } => {
                    ensemble.list(prefix, after.as_ref()).await.map(Answer::Page)
                }
                Request::Write { key, change, fence } => {
                    ensemble.write(key, change, fence.as_ref()).await
                }
                Request::Acquire { lease, holder, ttl } => {
                    leases.acquire(ensemble, lease, holder, *ttl).await
                }
                Request::Renew { fence } => leases.renew(ensemble, fence).await,
                Request::Release { fence } => leases.release(ensemble, fence).await,
                Request::Holder { lease } => {
                    let session = ensemble.session().await?;
                    let seen = ensemble.lease(&session, lease).await?;
                    Ok(Answer::Holder(seen.and_then(|seen| seen.held())))
                }
            }
        });
        result.map_err(Failure::into_error)
    }

    fn fingerprint(&mut self, _prefix: &Prefix) -> Result<u128, Error> {
        let Client { ensemble, runtime, .. } = self;
        runtime.block_on(ensemble.last_change()).map_err(Failure::into_error)
    }
}
