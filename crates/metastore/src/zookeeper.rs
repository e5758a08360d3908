//! A ZooKeeper ensemble.
//!
//! | stored | place |
//! | --- | --- |
//! | a value | node `{root}/keys/+a/+b/=c` of key `a/b/c`; its version is the node's `mzxid` |
//! | a lease | node `{root}/leases/{name}`: data = last holder, data version = token |
//! | | ephemeral node `{root}/leases/{name}/holder`: exists as long as the holder's session |
//! | changes | node `{root}/changes`: set with every write, so that its `mzxid` shows them |
//! | deletions | node `{root}/deletions`: set with every deletion |
//!
//! - Directories and values have different first characters. So a key may be the beginning of
//!   another, and a part may have a name that ZooKeeper reserves. Directories are made when they
//!   are needed, and stay.
//! - A write is one `multi`: it checks the lease's version against the token, checks that the
//!   holder's node exists, and changes the value. ZooKeeper compares a node's number of changes,
//!   which starts again when the node is made again. A value that was deleted and made again could
//!   therefore be taken for the value that the writer read. So a write also checks that no key was
//!   deleted since.
//! - Reads follow a `sync`, so that they see all earlier writes, whichever server answers.
//! - The session behind a lease lasts half as long again as the lease. A server that answers
//!   reports to the leader only a little later that this client is alive, and may crash before
//!   that; the extra half covers this.
//! - The ZooKeeper client keeps sessions alive by itself. A reactor that hangs must not keep its
//!   lease, so this side closes the session of a lease that is not renewed in time.
//! - Only the client that acquired a lease can renew it. A client that lost its session and
//!   acquires again under the same id removes its old node and gets a new token.
//! - A watch looks at `{root}/changes`: it reports all writes by this crate, below any prefix, and
//!   no writes made by other means.

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

/// The way to an ensemble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The addresses of its servers, as `host:port`.
    pub servers: Vec<String>,
    /// The node below which all nodes are, so that several clusters can share it.
    pub root: Key,
    /// How long a server may take to answer. A lease must survive one request without an answer:
    /// it is renewed after a quarter of its length.
    pub patience: Duration,
    /// How often a watch looks.
    pub watch_every: Duration,
}

impl Options {
    /// Returns the usual options for some servers.
    #[must_use]
    pub fn new(servers: Vec<String>, root: Key) -> Options {
        let (patience, watch_every) = (Duration::from_secs(2), Duration::from_millis(500));
        Options { servers, root, patience, watch_every }
    }
}

/// Returns a client of an ensemble, with two workers. The ensemble need not run yet.
///
/// # Errors
/// If there are no servers, or the machine refuses further threads.
pub fn client(
    options: &Options,
    workers: &mut dyn Workers,
    alarm: Alarm,
) -> Result<Driven, OpenError> {
    if options.servers.is_empty() {
        return Err(OpenError::Options("name at least one server of ZooKeeper".into()));
    }
    if let Some(bad) = options.servers.iter().find(|it| !it.contains(':') || it.contains('/')) {
        return Err(OpenError::Options(format!("{bad:?} is not a server: write host:port")));
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
    /// The sessions' runtime. The last field, so that it is dropped last.
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
