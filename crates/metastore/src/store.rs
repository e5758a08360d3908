//! The trait: how a reactor uses a metastore without ever waiting for it.

use crate::error::Error;
use crate::key::Prefix;
use crate::request::{Answer, Request};
use thunderhead_runtime::Time;

/// The number of a request of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// The number of a watch of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub u64);

/// An answer or a notice of a metastore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The answer to a request.
    Done(RequestId, Result<Answer, Error>),
    /// Something below a watched prefix may have changed since the last such notice.
    Changed(WatchId),
}

/// A client of a metastore. The crate's documentation lists the promises of every store.
pub trait Metastore {
    /// Sends a request. Exactly one [`Event::Done`] follows, in a later [`poll`](Metastore::poll).
    fn submit(&mut self, now: Time, request: Request) -> RequestId;

    /// Reports changes below a prefix from now on. The first [`Event::Changed`] comes soon. It
    /// means that the store sees all changes from then on, so read after it.
    fn watch(&mut self, now: Time, prefix: Prefix) -> WatchId;

    /// Ends a watch.
    fn unwatch(&mut self, watch: WatchId);

    /// Returns the next event. The reactor calls it in every turn until it returns `None`. The
    /// alarm with which the client was made rings when an event is ready.
    fn poll(&mut self, now: Time) -> Option<Event>;

    /// Returns the time of the next poll that is due even if the alarm does not ring.
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
