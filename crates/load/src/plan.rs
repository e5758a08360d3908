//! The work of the clients of a run.

use crate::distribution::Distribution;
use crate::workload::Workload;

/// The clients' work.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The workload.
    pub workload: Workload,
    /// The share of reads in a mixed workload.
    pub reads: f64,
    /// The distribution of objects.
    pub distribution: Distribution,
    /// Objects that exist from the start.
    pub objects: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Requests that a client keeps in flight.
    pub depth: usize,
    /// Objects in a message of many.
    pub parts: usize,
    /// Whether updates have an identity, so that servers execute each once.
    pub exactly_once: bool,
    /// The number of clients.
    pub clients: usize,
}

impl Plan {
    /// Returns the plan of one client of a workload with 100-byte values and one request in flight.
    #[must_use]
    pub fn new(workload: Workload, objects: u64) -> Plan {
        Plan {
            workload,
            reads: 0.5,
            distribution: workload.distribution(),
            objects,
            value_bytes: 100,
            depth: 1,
            parts: 70,
            exactly_once: true,
            clients: 1,
        }
    }
}
