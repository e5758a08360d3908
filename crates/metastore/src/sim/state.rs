//! The contents of a simulated store, and the effect of each request: the contract in its plainest
//! form.

use crate::key::{Key, LeaseName, Prefix};
use crate::limits::{PAGE_BYTES_MAX, PAGE_ENTRIES_MAX};
use crate::request::{Answer, Change, Entry, Fence, Held, Holder, Page, Request, Token, Version};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

/// Values and leases. Times are in nanoseconds of the store's own clock.
#[derive(Debug, Default)]
pub(super) struct State {
    values: BTreeMap<Key, (Version, Vec<u8>)>,
    leases: BTreeMap<LeaseName, Lease>,
    tokens: BTreeMap<LeaseName, u64>,
    version: u64,
}

#[derive(Debug)]
struct Lease {
    held: Held,
    ttl: Duration,
    until: u64,
}

impl State {
    /// Does a request at a time.
    pub(super) fn apply(&mut self, now: u64, request: &Request) -> Answer {
        match request {
            Request::Get { key } => Answer::Value(self.entry(key)),
            Request::List { prefix, after } => Answer::Page(self.list(prefix, after.as_ref())),
            Request::Write { key, change, fence } => self.write(now, key, change, fence.as_ref()),
            Request::Acquire { lease, holder, ttl } => self.acquire(now, lease, holder, *ttl),
            Request::Renew { fence } => self.renew(now, fence),
            Request::Release { fence } => {
                if self.is_held(now, fence) {
                    self.leases.remove(&fence.lease);
                }
                Answer::Released
            }
            Request::Holder { lease } => {
                Answer::Holder(self.held(now, lease).map(|lease| lease.held.clone()))
            }
        }
    }

    /// Takes a lease from its holder.
    pub(super) fn revoke(&mut self, lease: &LeaseName) {
        self.leases.remove(lease);
    }

    /// Forgets expired leases for good.
    pub(super) fn drop_leases(&mut self, now: u64) {
        self.leases.retain(|_, lease| now < lease.until);
    }

    /// Gives every remaining lease its whole time again.
    pub(super) fn extend_leases(&mut self, now: u64) {
        for lease in self.leases.values_mut() {
            lease.until = lease.until.max(now + lease.ttl.as_nanos() as u64);
        }
    }

    fn entry(&self, key: &Key) -> Option<Entry> {
        let (version, value) = self.values.get(key)?;
        Some(Entry { key: key.clone(), version: *version, value: value.clone() })
    }

    fn list(&self, prefix: &Prefix, after: Option<&Key>) -> Page {
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.values.range::<Key, _>((begin, Bound::Unbounded));
        let mut page = Page::default();
        let mut bytes = 0;
        for (key, (version, value)) in behind.filter(|(key, _)| prefix.contains(key)) {
            if page.entries.len() == PAGE_ENTRIES_MAX || bytes >= PAGE_BYTES_MAX {
                page.more = true;
                break;
            }
            bytes += value.len();
            let (key, value) = (key.clone(), value.clone());
            page.entries.push(Entry { key, version: *version, value });
        }
        page
    }

    fn write(&mut self, now: u64, key: &Key, change: &Change, fence: Option<&Fence>) -> Answer {
        if fence.is_some_and(|fence| !self.is_held(now, fence)) {
            return Answer::Deposed;
        }
        let current = self.values.get(key).map(|(version, _)| *version);
        if current != change.expected() {
            return Answer::Conflict(current);
        }
        self.version += 1;
        let version = Version(self.version);
        match change.value() {
            Some(value) => {
                self.values.insert(key.clone(), (version, value.to_vec()));
            }
            None => {
                self.values.remove(key);
            }
        }
        Answer::Written(version)
    }

    fn held(&self, now: u64, lease: &LeaseName) -> Option<&Lease> {
        self.leases.get(lease).filter(|held| now < held.until)
    }

    fn is_held(&self, now: u64, fence: &Fence) -> bool {
        self.held(now, &fence.lease).is_some_and(|lease| lease.held.token == fence.token)
    }

    fn acquire(&mut self, now: u64, name: &LeaseName, holder: &Holder, ttl: Duration) -> Answer {
        let token = match self.held(now, name) {
            Some(lease) if lease.held.by.id == holder.id => lease.held.token,
            Some(lease) => return Answer::HeldBy(lease.held.clone()),
            None => {
                let last = self.tokens.entry(name.clone()).or_default();
                *last += 1;
                Token(*last)
            }
        };
        let held = Held { by: holder.clone(), token };
        let until = now + ttl.as_nanos() as u64;
        self.leases.insert(name.clone(), Lease { held, ttl, until });
        Answer::Acquired(token)
    }

    fn renew(&mut self, now: u64, fence: &Fence) -> Answer {
        if !self.is_held(now, fence) {
            return Answer::NotHeld;
        }
        if let Some(lease) = self.leases.get_mut(&fence.lease) {
            lease.until = now + lease.ttl.as_nanos() as u64;
        }
        Answer::Renewed
    }
}
