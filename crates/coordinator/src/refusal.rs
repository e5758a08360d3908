//! The outcome of a request: the body of its answer, or a refusal.

use crate::limits::{BUSY_HINT, LOADING_HINT, METASTORE_HINT};
use std::time::Duration;
use thunderhead_metastore::Error;
use thunderhead_wire::Status;

/// The body of an answer, or a refusal.
pub(crate) type Outcome = Result<Vec<u8>, Refusal>;

/// The reason why a request was refused, and how long to wait before it is sent again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub(crate) status: Status,
    pub(crate) hint: Duration,
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Refusal {
        let hint =
            if status.next() == thunderhead_wire::Next::Wait { BUSY_HINT } else { Duration::ZERO };
        Refusal { status, hint }
    }
}

impl Refusal {
    /// The metastore cannot be reached.
    pub(crate) const METASTORE: Refusal =
        Refusal { status: Status::MetastoreUnavailable, hint: METASTORE_HINT };

    /// The leader is still reading the recorded state.
    pub(crate) const LOADING: Refusal =
        Refusal { status: Status::MetastoreUnavailable, hint: LOADING_HINT };
}

impl From<Error> for Refusal {
    fn from(_: Error) -> Refusal {
        Refusal::METASTORE
    }
}
