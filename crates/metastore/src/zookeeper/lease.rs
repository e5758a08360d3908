//! Leases as sessions: one session for each lease that this client requests.

use super::nodes::{EVERYONE, Ensemble, Failure, Outcome, Seen, says, token_of, version_of};
use crate::error::Error;
use crate::key::LeaseName;
use crate::request::{Answer, Fence, Holder, Token};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use zookeeper_client::{
    Acls, Client as Session, CreateMode, CreateOptions, Error as ZkError, MultiWriteResult,
};

const EPHEMERAL: CreateOptions<'static> = CreateMode::Ephemeral.with_acls(Acls::anyone_all());

/// How often `take` tries again after another client was faster.
const ATTEMPTS: usize = 4;

/// The sessions behind leases, by lease and holder.
#[derive(Default)]
pub(super) struct Leases(BTreeMap<(LeaseName, u64), Owner>);

/// A session for a lease. It is closed when the owner is dropped.
struct Owner {
    slot: Arc<Mutex<Slot>>,
    ttl: Duration,
    token: Option<Token>,
    guard: JoinHandle<()>,
}

/// Shared with the guard that closes the session when the lease is not renewed.
struct Slot {
    session: Option<Session>,
    until: Instant,
}

fn lock(slot: &Mutex<Slot>) -> MutexGuard<'_, Slot> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Owner {
    fn new(session: Session, ttl: Duration) -> Owner {
        let slot = Slot { session: Some(session), until: Instant::now() + ttl };
        let slot = Arc::new(Mutex::new(slot));
        let guarded = Arc::clone(&slot);
        let guard = tokio::spawn(async move {
            loop {
                let until = lock(&guarded).until;
                if until <= Instant::now() {
                    lock(&guarded).session = None;
                    return;
                }
                tokio::time::sleep_until(until).await;
            }
        });
        Owner { slot, ttl, token: None, guard }
    }

    /// Returns the session if it still exists, and gives it another time to live.
    fn session(&self) -> Option<Session> {
        let mut slot = lock(&self.slot);
        slot.until = Instant::now() + self.ttl;
        slot.session.clone().filter(|session| !session.state().is_terminated())
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.guard.abort();
    }
}

impl Leases {
    pub(super) async fn acquire(
        &mut self,
        ensemble: &mut Ensemble,
        lease: &LeaseName,
        holder: &Holder,
        ttl: Duration,
    ) -> Result<Answer, Failure> {
        // First with the session for values: most candidates only learn that the lease is taken.
        let known = (lease.clone(), holder.id);
        if !self.0.contains_key(&known) {
            let session = ensemble.session().await?;
            let seen = ensemble.lease(&session, lease).await?;
            if let Some(held) = seen.and_then(|seen| seen.held())
                && held.by.id != holder.id
            {
                return Ok(Answer::HeldBy(held));
            }
        }
        let kept = self.0.get(&known).filter(|owner| owner.ttl == ttl);
        let session = match kept.and_then(Owner::session) {
            Some(session) => session,
            None => {
                self.0.remove(&known);
                let asked = ttl * 3 / 2;
                let session = ensemble.connect(asked).await?;
                if session.session_timeout() < asked {
                    let granted = session.session_timeout();
                    let why = format!("it grants sessions of at most {granted:?}, not {asked:?}");
                    return Err(Failure::Said(Error::refused(why)));
                }
                self.0.insert(known.clone(), Owner::new(session.clone(), ttl));
                session
            }
        };
        let answer = take(ensemble, &session, lease, holder).await?;
        match (&answer, self.0.get_mut(&known)) {
            (Answer::Acquired(token), Some(owner)) => owner.token = Some(*token),
            _ => drop(self.0.remove(&known)),
        }
        Ok(answer)
    }

    pub(super) async fn renew(
        &mut self,
        ensemble: &Ensemble,
        fence: &Fence,
    ) -> Result<Answer, Failure> {
        let Some(known) = self.find(fence) else { return Ok(Answer::NotHeld) };
        let session = self.0.get(&known).and_then(Owner::session);
        if let Some(session) = session {
            match ensemble.lease(&session, &fence.lease).await {
                Ok(Some(seen))
                    if is_ours(&seen, &session) && token_of(seen.version) == fence.token =>
                {
                    return Ok(Answer::Renewed);
                }
                Ok(_) | Err(Failure::Before(ZkError::SessionExpired)) => {}
                Err(failure) => return Err(failure),
            }
        }
        self.0.remove(&known);
        Ok(Answer::NotHeld)
    }

    pub(super) async fn release(
        &mut self,
        ensemble: &mut Ensemble,
        fence: &Fence,
    ) -> Result<Answer, Failure> {
        // The lease's session is closed when `owner` is dropped, even if a later step fails.
        let owner = self.find(fence).and_then(|known| self.0.remove(&known));
        let session = match owner.as_ref().and_then(Owner::session) {
            Some(session) => session,
            None => ensemble.session().await?,
        };
        let mut writer = session.new_multi_writer();
        writer.add_check_version(&ensemble.lease_path(&fence.lease), version_of(fence.token))?;
        writer.add_delete(&ensemble.holder_path(&fence.lease), None)?;
        match ensemble.commit(writer).await? {
            Outcome::Done(_) | Outcome::Failed(_, ZkError::BadVersion | ZkError::NoNode) => {
                Ok(Answer::Released)
            }
            Outcome::Failed(_, error) => Err(Failure::Before(error)),
        }
    }

    fn find(&self, fence: &Fence) -> Option<(LeaseName, u64)> {
        let is_it = |(lease, _): &(LeaseName, u64), owner: &Owner| {
            *lease == fence.lease && owner.token == Some(fence.token)
        };
        self.0.iter().find(|(known, owner)| is_it(known, owner)).map(|(known, _)| known.clone())
    }
}

fn is_ours(seen: &Seen, session: &Session) -> bool {
    seen.owner == Some(session.session_id().0)
}

/// Takes a lease for a session, unless another session holds it.
async fn take(
    ensemble: &Ensemble,
    session: &Session,
    lease: &LeaseName,
    holder: &Holder,
) -> Result<Answer, Failure> {
    let (path, place) = (ensemble.lease_path(lease), ensemble.holder_path(lease));
    for _ in 0..ATTEMPTS {
        let Some(seen) = ensemble.lease(session, lease).await? else {
            ensemble.wait(session.mkdir(&path, &EVERYONE)).await?;
            continue;
        };
        if is_ours(&seen, session) {
            return Ok(Answer::Acquired(token_of(seen.version)));
        }
        let mut writer = session.new_multi_writer();
        if let Some(held) = seen.held() {
            if held.by.id != holder.id {
                return Ok(Answer::HeldBy(held));
            }
            // An earlier session of this holder.
            writer.add_delete(&place, None)?;
        }
        writer.add_set_data(&path, &says(holder), Some(seen.version))?;
        writer.add_create(&place, b"", &EPHEMERAL)?;
        match ensemble.commit(writer).await? {
            Outcome::Done(results) => {
                let version = results.iter().find_map(|result| match result {
                    MultiWriteResult::SetData { stat } => Some(stat.version),
                    _ => None,
                });
                return Ok(Answer::Acquired(token_of(version.unwrap_or(seen.version + 1))));
            }
            Outcome::Failed(_, ZkError::BadVersion | ZkError::NodeExists | ZkError::NoNode) => {}
            Outcome::Failed(_, error) => return Err(Failure::Before(error)),
        }
    }
    Err(Failure::Said(Error::unavailable("other clients keep taking the lease; try again later")))
}
