//! Clients' leases.

use crate::{ClusterId, LeaseId};
use serde::{Deserialize, Serialize};

/// The answer to `open lease`, whose body is [`Empty`](super::Empty).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseOpened {
    /// The lease, never 0 and never used again.
    pub lease: LeaseId,
    /// The time for which the lease lasts after the coordinator last heard from the client, in
    /// milliseconds.
    pub ttl_ms: u64,
    /// The cluster, so that a client notices when it talks to another one.
    pub cluster: ClusterId,
}

/// `renew lease` and `close lease`. The answer is [`Empty`](super::Empty).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The lease.
    pub lease: LeaseId,
}

/// `check leases`: asks which leases have ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckLeases {
    /// Leases.
    pub leases: Vec<LeaseId>,
}

/// The answer to [`CheckLeases`]. It is durable: a lease that has ended stays so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeasesChecked {
    /// The leases that have ended, or never existed.
    pub ended: Vec<LeaseId>,
    /// The version of the map when the others were open.
    pub map_version: u64,
}
