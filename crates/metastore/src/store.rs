//! The trait: how a reactor talks to a metastore without ever waiting for it.

use crate::error::Error;
use crate::key::Prefix;
use crate::request::{Answer, Request};
use thunderhead_runtime::Time;

/// Names a request of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Names a watch of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub u64);

/// What a metastore has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request was answered.
    Done(RequestId, Result<Answer, Error>),
    /// Something below a watched prefix may have changed since the last time this was said.
    Changed(WatchId),
}

/// A client of a metastore. See the crate's documentation for what every one promises.
pub trait Metastore {
    /// Sends a request. Just one [`Event::Done`] follows, in a later [`poll`](Metastore::poll).
    fn submit(&mut self, now: Time, request: Request) -> RequestId;

    /// Tells of changes below a prefix from now on. The first [`Event::Changed`] comes soon, and
    /// says that changes from then on are seen: read after it.
    fn watch(&mut self, now: Time, prefix: Prefix) -> WatchId;

    /// Ends a watch.
    fn unwatch(&mut self, watch: WatchId);

    /// Takes what there is to say. Called in every turn until it says nothing more; the alarm
    /// that the client was made with rings when there is something.
    fn poll(&mut self, now: Time) -> Option<Event>;

    /// When it wants to be polled though the alarm does not ring.
    fn deadline(&self) -> Option<Time>;
}

impl<M: Metastore + ?Sized> Metastore for Box<M> {
    fn submit(&mut self, now: Time, request: Request) -> RequestId {
        (**self).submit(now, request)
    }

    fn watch(&mut self, now: Time, prefix: Prefix) -> WatchId {
        (**self).watch(now, prefix)
    }

    fn unwatch(&mut self, watch: WatchId) {
        (**self).unwatch(watch);
    }

    fn poll(&mut self, now: Time) -> Option<Event> {
        (**self).poll(now)
    }

    fn deadline(&self) -> Option<Time> {
        (**self).deadline()
    }
}
