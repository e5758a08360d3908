//! Keeps a lease for a reactor: requests it until it is granted, renews it, and knows until when
//! the holder may believe in it.
//!
//! # Why two keepers never believe at once
//!
//! The store grants a lease to another holder no earlier than its time to live after the last
//! request for it (or renewal) *reached the store*. A keeper believes for seven eighths of that
//! time, counted from the moment *before it sent* that request. The request was sent before it
//! arrived. So the keeper stops believing first, unless its clock is slower than the store's by
//! more than an eighth. A pause of the process does not matter: a caller of [`Keeper::fence`]
//! passes the present time, and the pause counts. A pause *between* that call and an action does
//! matter. Against it, writes carry the fence into the store.
//!
//! The clock is the reactor's, which never jumps. On Linux it stands still while the whole machine
//! is suspended. A coordinator that wakes up after that may believe a moment too long, until its
//! first renewal fails. The store refuses its writes all the same.

use crate::error::Error;
use crate::key::LeaseName;
use crate::limits::LEASE_MARGIN;
use crate::request::{Answer, Fence, Held, Holder, Request};
use crate::store::{Metastore, RequestId};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;
use thunderhead_runtime::Time;

/// A change of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The keeper has it from now on.
    Won(Fence),
    /// The keeper no longer has it, as far as it knows.
    Lost(Fence),
}

/// Keeps a lease. The reactor gives the keeper turns and the answers to its requests.
#[derive(Debug)]
pub struct Keeper {
    lease: LeaseName,
    holder: Holder,
    ttl: Duration,
    state: State,
    held_by: Option<Held>,
    news: VecDeque<News>,
    /// Requests whose answers no longer matter.
    stale: BTreeSet<RequestId>,
    resigned: bool,
    /// Why the last request was not answered.
    trouble: Option<Error>,
}

#[derive(Debug)]
enum State {
    /// The lease is free, or another process has it.
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
    /// Returns a keeper that requests the lease.
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

    /// Returns the same keeper, which sends no request before a time.
    #[must_use]
    pub fn not_before(self, time: Time) -> Keeper {
        Keeper { state: State::Without { ask_at: time }, ..self }
    }

    /// Returns the reason why the store did not answer the last request.
    #[must_use]
    pub fn trouble(&self) -> Option<&Error> {
        self.trouble.as_ref()
    }

    /// Returns the proof of holding the lease, while the keeper may believe in it. Every write
    /// carries it.
    #[must_use]
    pub fn fence(&self, now: Time) -> Option<&Fence> {
        match &self.state {
            State::Holding { fence, until, .. } if now < *until => Some(fence),
            _ => None,
        }
    }

    /// Returns the other holder that the last request found.
    #[must_use]
    pub fn held_by(&self) -> Option<&Held> {
        self.held_by.as_ref()
    }

    /// Returns the next change of the lease that the caller has not read yet.
    pub fn news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    /// Returns the time of its next turn.
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

    /// Sends requests that are due, and stops believing in time. The reactor calls it in every
    /// turn.
    ///
    /// A keeper sends no request while it has news that its owner has not read. The owner of a lost
    /// lease may replace the keeper. A request sent before that could get the lease for the old
    /// keeper, and the new keeper would wait until that grant expires.
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

    /// Takes an answer and returns whether the answer was for this keeper.
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
            // An answer that comes too late to be believed: request again, the store knows this
            // holder.
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

    /// Whether the keeper has resigned and the store has answered all its requests.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.resigned && self.stale.is_empty()
    }

    /// Stops believing at once, gives the lease back if it is held, and sends no further request.
    /// Another process then need not wait until the lease expires.
    pub fn resign(&mut self, now: Time, store: &mut (impl Metastore + ?Sized)) {
        self.resigned = true;
        if let State::Asking { request, .. } = &self.state {
            // A grant that this request may still get expires by itself.
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
