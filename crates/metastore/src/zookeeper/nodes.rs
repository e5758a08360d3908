//! The nodes of an ensemble: values, and the nodes that show their changes.

use super::Options;
use crate::error::Error;
use crate::key::{Key, LeaseName, Prefix};
use crate::limits::{PAGE_BYTES_MAX, PAGE_ENTRIES_MAX};
use crate::request::{Answer, Change, Entry, Fence, Held, Holder, Page, Token, Version};
use serde_json::{Value, json};
use std::future::Future;
use std::time::Duration;
use zookeeper_client::{
    Acls, Client as Session, CreateMode, CreateOptions, Error as ZkError, MultiWriteError,
    MultiWriteResult, MultiWriter, Stat,
};

pub(super) const EVERYONE: CreateOptions<'static> =
    CreateMode::Persistent.with_acls(Acls::anyone_all());

/// How long the session for values outlives its connection.
const SESSION: Duration = Duration::from_secs(10);

/// How often a write tries again after another client was faster.
const ATTEMPTS: usize = 16;

/// The number of values in one read.
const READ_AHEAD: usize = 8;

/// The reasons why a request failed, with the known effect.
#[derive(Debug)]
pub(super) enum Failure {
    /// No change was sent.
    Before(ZkError),
    /// A change was sent.
    After(ZkError),
    /// A failure with an error of this crate.
    Said(Error),
}

/// Only failures of reads convert by themselves: a change names `After`.
impl From<ZkError> for Failure {
    fn from(error: ZkError) -> Failure {
        Failure::Before(error)
    }
}

impl Failure {
    pub(super) fn into_error(self) -> Error {
        match self {
            Failure::Said(error) => error,
            Failure::Before(error) | Failure::After(error) if is_refusal(&error) => {
                Error::refused(error)
            }
            Failure::Before(error) => Error::unavailable(error),
            Failure::After(error) => Error::unknown(error),
        }
    }
}

fn is_refusal(error: &ZkError) -> bool {
    use ZkError as E;
    matches!(error, E::NoAuth | E::InvalidAcl | E::AuthFailed | E::QuotaExceeded | E::Unimplemented)
}

/// The outcome of a transaction.
pub(super) enum Outcome {
    Done(Vec<MultiWriteResult>),
    /// The number of the failed operation, and the reason.
    Failed(usize, ZkError),
}

/// The state of a lease.
pub(super) struct Seen {
    /// The data version of its node: the token of its last holder.
    pub(super) version: i32,
    pub(super) by: Option<Holder>,
    /// The session that holds it.
    pub(super) owner: Option<i64>,
}

impl Seen {
    pub(super) fn held(&self) -> Option<Held> {
        self.owner?;
        Some(Held { by: self.by.clone()?, token: token_of(self.version) })
    }
}

pub(super) fn token_of(version: i32) -> Token {
    Token(u64::from(version.unsigned_abs()))
}

/// Returns the version that a lease's node has while a token is the newest. Each token has its own.
pub(super) fn version_of(token: Token) -> i32 {
    i32::try_from(token.0).unwrap_or(i32::MAX)
}

/// An ensemble, and the session for requests that are not bound to a lease.
pub(super) struct Ensemble {
    servers: String,
    root: String,
    patience: Duration,
    session: Option<Session>,
}

impl Ensemble {
    pub(super) fn new(options: &Options) -> Ensemble {
        Ensemble {
            servers: options.servers.join(","),
            root: format!("/{}", options.root),
            patience: options.patience,
            session: None,
        }
    }

    /// Waits for an answer, but not for ever.
    pub(super) async fn wait<T, E: From<ZkError>>(
        &self,
        answer: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        match tokio::time::timeout(self.patience, answer).await {
            Ok(result) => result,
            Err(_) => Err(E::from(ZkError::Timeout)),
        }
    }

    /// Opens a new session, and makes the nodes below the root that are missing.
    pub(super) async fn connect(&self, timeout: Duration) -> Result<Session, Failure> {
        let connector = Session::connector().with_session_timeout(timeout);
        let session = self.wait(connector.connect(&self.servers)).await?;
        for name in ["keys", "leases", "changes", "deletions"] {
            let path = format!("{}/{name}", self.root);
            self.wait(session.mkdir(&path, &EVERYONE)).await?;
        }
        Ok(session)
    }

    /// Returns the session for values, and opens a new one if the last has ended.
    pub(super) async fn session(&mut self) -> Result<Session, Failure> {
        match &self.session {
            Some(session) if !session.state().is_terminated() => Ok(session.clone()),
            _ => {
                self.session = None;
                let session = self.connect(SESSION).await?;
                self.session = Some(session.clone());
                Ok(session)
            }
        }
    }

    pub(super) async fn commit(&self, mut writer: MultiWriter<'_>) -> Result<Outcome, Failure> {
        match self.wait(writer.commit()).await {
            Ok(results) => Ok(Outcome::Done(results)),
            Err(MultiWriteError::OperationFailed { index, source }) => {
                Ok(Outcome::Failed(index, source))
            }
            Err(MultiWriteError::RequestFailed { source }) => Err(Failure::After(source)),
        }
    }

    fn changes(&self) -> String {
        format!("{}/changes", self.root)
    }

    fn deletions(&self) -> String {
        format!("{}/deletions", self.root)
    }

    pub(super) fn lease_path(&self, lease: &LeaseName) -> String {
        format!("{}/leases/{lease}", self.root)
    }

    pub(super) fn holder_path(&self, lease: &LeaseName) -> String {
        format!("{}/leases/{lease}/holder", self.root)
    }

    fn directory_of(&self, prefix: &str) -> String {
        let mut path = format!("{}/keys", self.root);
        for part in prefix.split('/').filter(|part| !part.is_empty()) {
            path.push_str("/+");
            path.push_str(part);
        }
        path
    }

    fn path_of(&self, key: &Key) -> String {
        let (directory, name) = key.as_str().rsplit_once('/').unwrap_or(("", key.as_str()));
        format!("{}/={name}", self.directory_of(directory))
    }

    /// Returns a node's present state, whichever server answers.
    pub(super) async fn stat(
        &self,
        session: &Session,
        path: &str,
    ) -> Result<Option<Stat>, Failure> {
        // Both are sent at once, and are answered in this order.
        let (sync, stat) = (session.sync(path), session.check_stat(path));
        self.wait(sync).await?;
        Ok(self.wait(stat).await?)
    }

    /// Returns a node's data, or none if the node does not exist.
    pub(super) async fn data(
        &self,
        session: &Session,
        path: &str,
    ) -> Result<Option<(Vec<u8>, Stat)>, Failure> {
        match self.wait(session.get_data(path)).await {
            Ok(found) => Ok(Some(found)),
            Err(ZkError::NoNode) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn last_change(&mut self) -> Result<u128, Failure> {
        let session = self.session().await?;
        let stat = self.stat(&session, &self.changes()).await?;
        Ok(stat.map_or(0, |stat| u128::from(version(&stat).0)))
    }

    pub(super) async fn get(&mut self, key: &Key) -> Result<Option<Entry>, Failure> {
        let session = self.session().await?;
        let path = self.path_of(key);
        let (sync, data) = (session.sync(&path), session.get_data(&path));
        self.wait(sync).await?;
        match self.wait(data).await {
            Ok((value, stat)) => {
                Ok(Some(Entry { key: key.clone(), version: version(&stat), value }))
            }
            Err(ZkError::NoNode) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn list(
        &mut self,
        prefix: &Prefix,
        after: Option<&Key>,
    ) -> Result<Page, Failure> {
        let session = self.session().await?;
        self.wait(session.sync(&self.changes())).await?;
        let (mut page, mut bytes) = (Page::default(), 0);
        // The remaining names, the next one last. Names that end with a slash are directories.
        // Within one directory this order is the order of the keys, because no other key begins
        // with the name of a directory and its slash.
        let mut names = vec![prefix.as_str().to_owned()];
        while let Some(name) = names.pop() {
            if name.is_empty() || name.ends_with('/') {
                let mut below = self.names_below(&session, &name, after).await?;
                below.sort_unstable_by(|a, b| b.cmp(a));
                names.append(&mut below);
                continue;
            }
            let mut keys =
                vec![Key::new(name).map_err(|error| Failure::Said(Error::damaged(error)))?];
            while let Some(next) =
                names.pop_if(|next| keys.len() < READ_AHEAD && !next.ends_with('/'))
            {
                keys.push(Key::new(next).map_err(|error| Failure::Said(Error::damaged(error)))?);
            }
            let paths: Vec<String> = keys.iter().map(|key| self.path_of(key)).collect();
            let asked: Vec<_> = paths.iter().map(|path| session.get_data(path)).collect();
            for (key, data) in keys.into_iter().zip(asked) {
                if page.entries.len() >= PAGE_ENTRIES_MAX || bytes >= PAGE_BYTES_MAX {
                    page.more = true;
                    return Ok(page);
                }
                match self.wait(data).await {
                    Ok((value, stat)) => {
                        bytes += value.len();
                        page.entries.push(Entry { key, version: version(&stat), value });
                    }
                    // Deleted since its name was read.
                    Err(ZkError::NoNode) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(page)
    }

    /// Returns the names in a directory after a key, in the form that `list` uses.
    async fn names_below(
        &self,
        session: &Session,
        prefix: &str,
        after: Option<&Key>,
    ) -> Result<Vec<String>, Failure> {
        let children = match self.wait(session.list_children(&self.directory_of(prefix))).await {
            Ok(children) => children,
            Err(ZkError::NoNode) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let names = children.iter().filter_map(|child| {
            let mut name = child.chars();
            match name.next() {
                Some('=') => Some(format!("{prefix}{}", name.as_str())),
                Some('+') => Some(format!("{prefix}{}/", name.as_str())),
                // A node that this crate did not make.
                _ => None,
            }
        });
        let after = after.map_or("", Key::as_str);
        let is_behind = |name: &String| {
            name.as_str() > after || (name.ends_with('/') && after.starts_with(name.as_str()))
        };
        Ok(names.filter(is_behind).collect())
    }

    /// Returns a lease's state at one moment, or none if it never had a holder.
    pub(super) async fn lease(
        &self,
        session: &Session,
        lease: &LeaseName,
    ) -> Result<Option<Seen>, Failure> {
        let (path, holder) = (self.lease_path(lease), self.holder_path(lease));
        for _ in 0..ATTEMPTS {
            self.wait(session.sync(&path)).await?;
            let Some((data, before)) = self.data(session, &path).await? else { return Ok(None) };
            let owner = self.wait(session.check_stat(&holder)).await?;
            let after = self.wait(session.check_stat(&path)).await?;
            // Another client may have got the lease in between.
            if after.is_some_and(|after| after.version == before.version) {
                let owner = owner.map(|stat| stat.ephemeral_owner);
                return Ok(Some(Seen { version: before.version, by: holder_in(&data), owner }));
            }
        }
        Err(Failure::Said(Error::unavailable(
            "other clients keep taking the lease; try again later",
        )))
    }

    async fn is_held(&self, session: &Session, fence: &Fence) -> Result<bool, Failure> {
        let seen = self.lease(session, &fence.lease).await?;
        Ok(seen.and_then(|seen| seen.held()).is_some_and(|held| held.token == fence.token))
    }

    pub(super) async fn write(
        &mut self,
        key: &Key,
        change: &Change,
        fence: Option<&Fence>,
    ) -> Result<Answer, Failure> {
        let session = self.session().await?;
        let path = self.path_of(key);
        for _ in 0..ATTEMPTS {
            if let Some(fence) = fence
                && !self.is_held(&session, fence).await?
            {
                return Ok(Answer::Deposed);
            }
            // The node of deletions comes first, so that a deletion between the two reads is
            // noticed.
            let deletions = self.stat(&session, &self.deletions()).await?;
            let deletions = deletions.map_or(0, |stat| stat.version);
            let stat = self.stat(&session, &path).await?;
            let current = stat.as_ref().map(version);
            if current != change.expected() {
                return Ok(Answer::Conflict(current));
            }
            let node = stat.map_or(0, |stat| stat.version);
            let writer = self.transaction(&session, &path, change, fence, (deletions, node))?;
            match self.commit(writer).await? {
                Outcome::Done(results) => return written(&results),
                Outcome::Failed(0 | 1, ZkError::BadVersion | ZkError::NoNode)
                    if fence.is_some() =>
                {
                    return Ok(Answer::Deposed);
                }
                Outcome::Failed(_, ZkError::NoNode) if change.expected().is_none() => {
                    let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
                    self.wait(session.mkdir(directory, &EVERYONE)).await?;
                }
                // Another client was faster: read the present version again.
                Outcome::Failed(_, ZkError::BadVersion | ZkError::NoNode | ZkError::NodeExists) => {
                }
                // Transactions are done whole or not at all.
                Outcome::Failed(_, error) => return Err(Failure::Before(error)),
            }
        }
        Err(Failure::Said(Error::unavailable("other clients keep writing; try again later")))
    }

    fn transaction<'a>(
        &self,
        session: &'a Session,
        path: &str,
        change: &Change,
        fence: Option<&Fence>,
        (deletions, node): (i32, i32),
    ) -> Result<MultiWriter<'a>, ZkError> {
        const ANY: i32 = -1;
        let mut writer = session.new_multi_writer();
        if let Some(fence) = fence {
            writer.add_check_version(&self.lease_path(&fence.lease), version_of(fence.token))?;
            writer.add_check_version(&self.holder_path(&fence.lease), ANY)?;
        }
        match change {
            Change::Create(value) => writer.add_create(path, value, &EVERYONE)?,
            Change::Replace(_, value) => {
                writer.add_check_version(&self.deletions(), deletions)?;
                writer.add_set_data(path, value, Some(node))?;
            }
            Change::Delete(_) => {
                writer.add_set_data(&self.deletions(), b"", Some(deletions))?;
                writer.add_delete(path, Some(node))?;
            }
        }
        writer.add_set_data(&self.changes(), b"", None)?;
        Ok(writer)
    }
}

/// Returns a node's version, as this crate counts versions.
fn version(stat: &Stat) -> Version {
    Version(stat.mzxid.unsigned_abs())
}

/// Returns the version that a transaction gave. All its operations share one, and the last is
/// always a change of data. (Some servers do not report it for a node that was made.)
fn written(results: &[MultiWriteResult]) -> Result<Answer, Failure> {
    match results.last() {
        Some(MultiWriteResult::SetData { stat }) => Ok(Answer::Written(version(stat))),
        _ => Err(Failure::Said(Error::unknown("the answer to a transaction is malformed"))),
    }
}

/// Returns the text about a holder in its lease's node.
pub(super) fn says(holder: &Holder) -> Vec<u8> {
    let id = holder.id.to_string();
    json!({ "holder": id, "description": holder.description }).to_string().into_bytes()
}

fn holder_in(data: &[u8]) -> Option<Holder> {
    let says: Value = serde_json::from_slice(data).ok()?;
    let id = says["holder"].as_str()?.parse().ok()?;
    Some(Holder { id, description: says["description"].as_str()?.to_owned() })
}
