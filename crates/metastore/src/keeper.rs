//! Keeps a lease for a reactor: asks for it until it has it, renews it, and knows until when it may
//! believe in it.
//!
//! # Why two keepers never believe at once
//!
//! The store gives a lease away no earlier than its time to live after the last request for it (or
//! renewal) *reached the store*. A keeper believes for seven eighths of that time after the moment
//! *before it sent* that request. Between the two moments no time passes backwards; so unless the
//! keeper's clock is slower than the store's by more than an eighth, it stops believing first. A
//! pause does not matter: who asks [`Keeper::fence`] with the time of now is told of the time that
//! has passed. What does matter is a pause *between* asking and acting; against that writes carry
//! the fence into the store.
//!
//! The clock is the reactor's, which never jumps. On Linux it stands still while the whole machine
//! is suspended: a coordinator that was put to sleep may believe for a moment too long when it is
//! woken, until its first renewal fails. Its writes are refused all the same.

use crate::error::Error;
use crate::key::LeaseName;
use crate::limits::LEASE_MARGIN;
use crate::request::{Answer, Fence, Held, Holder, Request};
use crate::store::{Metastore, RequestId};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;
use thunderhead_runtime::Time;

/// What happened to a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// It is ours from now on.
    Won(Fence),
    /// It is not ours any more, as far as we know.
    Lost(Fence),
}

/// Keeps a lease. The reactor gives it turns and the answers to its requests.
#[derive(Debug)]
pub struct Keeper {
    lease: LeaseName,
    holder: Holder,
    ttl: Duration,
    state: State,
    held_by: Option<Held>,
    news: VecDeque<News>,
    /// Requests whose answers do not matter any more.
    stale: BTreeSet<RequestId>,
    resigned: bool,
    /// Why the last request was not answered.
    trouble: Option<Error>,
}

#[derive(Debug)]
enum State {
    /// Somebody else has it, or nobody.
    Without {
        ask_at: Time,
    },
    Asking {
        request: RequestId,
        sent: Time,
    },
    Holding {
        fence: Fence,
        until: Time,
        renewing: Option<(RequestId, Time)>,
        renew_at: Time,
    },
}

impl Keeper {
    /// A keeper that wants the lease.
    #[must_use]
    pub fn new(lease: LeaseName, holder: Holder, ttl: Duration) -> Keeper {
        Keeper {
            lease,
            holder,
            ttl,
            state: State::Without { ask_at: Time(0) },
            held_by: None,
            news: VecDeque::new(),
            stale: BTreeSet::new(),
            resigned: false,
            trouble: None,
        }
    }

    /// The same keeper, which does not ask before a time.
    #[must_use]
    pub fn not_before(self, time: Time) -> Keeper {
        Keeper { state: State::Without { ask_at: time }, ..self }
    }

    /// Why the store did not answer the last request.
    #[must_use]
    pub fn trouble(&self) -> Option<&Error> {
        self.trouble.as_ref()
    }

    /// The proof of holding the lease, while it may be believed. Every write carries it.
    #[must_use]
    pub fn fence(&self, now: Time) -> Option<&Fence> {
        match &self.state {
            State::Holding { fence, until, .. } if now < *until => Some(fence),
            _ => None,
        }
    }

    /// Who else had it when we asked last.
    #[must_use]
    pub fn held_by(&self) -> Option<&Held> {
        self.held_by.as_ref()
    }

    /// What has happened since the last call.
    pub fn news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    /// When it wants a turn.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        match &self.state {
            State::Without { .. } if self.resigned => None,
            State::Without { ask_at } => Some(*ask_at),
            State::Asking { .. } => None,
            State::Holding { until, renewing: Some(_), .. } => Some(*until),
            State::Holding { until, renew_at, .. } => Some(*until.min(renew_at)),
        }
    }

    /// Sends what is due, and stops believing in time. Called in every turn.
    ///
    /// A keeper asks for nothing while it has news that its owner has not read. The owner of a lost lease may
    /// replace the keeper: the store would give the lease to the old keeper then, and the new keeper would
    /// wait until that grant has run out.
    pub fn turn(&mut self, now: Time, store: &mut (impl Metastore + ?Sized)) {
        if matches!(&self.state, State::Holding { until, .. } if now >= *until) {
            self.lose(now);
        }
        if !self.news.is_empty() {
            return;
        }
        match &mut self.state {
            State::Without { ask_at } if !self.resigned && now >= *ask_at => {
                let request = Request::Acquire {
                    lease: self.lease.clone(),
                    holder: self.holder.clone(),
                    ttl: self.ttl,
                };
                let request = store.submit(now, request);
                self.state = State::Asking { request, sent: now };
            }
            State::Holding { fence, renewing: renewing @ None, renew_at, .. }
                if now >= *renew_at =>
            {
                let request = store.submit(now, Request::Renew { fence: fence.clone() });
                *renewing = Some((request, now));
            }
            _ => {}
        }
    }

    /// Takes an answer; says whether it was for this keeper.
    pub fn take(&mut self, now: Time, id: RequestId, result: &Result<Answer, Error>) -> bool {
        if self.stale.remove(&id) {
            return true;
        }
        let believed = self.ttl - self.ttl / LEASE_MARGIN;
        match &mut self.state {
            State::Asking { request, sent } if *request == id => {
                let until = *sent + believed;
                self.trouble = result.as_ref().err().cloned();
                self.asked(now, until, result);
                true
            }
            State::Holding { until, renewing, renew_at, .. }
                if renewing.is_some_and(|(request, _)| request == id) =>
            {
                let sent = renewing.take().map_or(now, |(_, sent)| sent);
                self.trouble = result.as_ref().err().cloned();
                match result {
                    Ok(Answer::Renewed) => {
                        *until = sent + believed;
                        *renew_at = sent + self.ttl / 4;
                    }
                    Ok(_) => self.lose(now),
                    Err(_) => *renew_at = now + self.ttl / 16,
                }
                true
            }
            _ => false,
        }
    }

    fn asked(&mut self, now: Time, until: Time, result: &Result<Answer, Error>) {
        let ttl = self.ttl;
        self.state = match result {
            // An answer that comes too late to be believed is asked for again: the store knows us.
            Ok(Answer::Acquired(token)) if now < until => {
                let fence = Fence { lease: self.lease.clone(), token: *token };
                self.held_by = None;
                self.news.push_back(News::Won(fence.clone()));
                State::Holding { fence, until, renewing: None, renew_at: now + ttl / 4 }
            }
            Ok(Answer::Acquired(_)) => State::Without { ask_at: now },
            Ok(Answer::HeldBy(held)) => {
                self.held_by = Some(held.clone());
                State::Without { ask_at: now + ttl / 4 }
            }
            _ => State::Without { ask_at: now + ttl / 8 },
        };
    }

    fn lose(&mut self, now: Time) {
        let without = State::Without { ask_at: now };
        if let State::Holding { fence, renewing, .. } = std::mem::replace(&mut self.state, without)
        {
            self.stale.extend(renewing.map(|(request, _)| request));
            self.news.push_back(News::Lost(fence));
        }
    }

    /// Whether the store has answered all that a keeper told it which gave its lease back.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.resigned && self.stale.is_empty()
    }

    /// Stops believing at once, gives the lease back if it is held, and does not ask again.
    /// Somebody else need not wait for it to run out then.
    pub fn resign(&mut self, now: Time, store: &mut (impl Metastore + ?Sized)) {
        self.resigned = true;
        if let State::Asking { request, .. } = &self.state {
            // What it may still be given runs out by itself.
            self.stale.insert(*request);
            self.state = State::Without { ask_at: now };
        }
        if let State::Holding { fence, .. } = &self.state {
            let request = store.submit(now, Request::Release { fence: fence.clone() });
            self.stale.insert(request);
            self.lose(now);
        }
    }
}
