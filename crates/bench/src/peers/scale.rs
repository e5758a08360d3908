//! How much of everything is measured.

use std::time::Duration;

/// How much of everything.
#[derive(Clone, Debug)]
pub struct Scale {
    /// Objects of 100 B that are asked for.
    pub objects: u64,
    /// Requests of a measurement of latency, and how often all stores are measured in turn.
    pub rounds: u64,
    pub(crate) turns: usize,
    /// How long a measurement of a rate takes, and how often all stores are measured in turn.
    pub burst: Duration,
    pub(crate) bursts: usize,
    /// Numbers of connections.
    pub connections: Vec<usize>,
    /// Numbers of objects whose memory is measured.
    pub counts: Vec<u64>,
    /// Live bytes while sizes change, and how often each phase writes them.
    pub live_bytes: u64,
    pub(crate) churn: f64,
    /// Bytes of keys and values that are there when a store starts again.
    pub restart_bytes: u64,
    /// How long idle servers are watched.
    pub idle: Duration,
}

impl Scale {
    /// Says whether everything works.
    #[must_use]
    pub fn quick() -> Scale {
        Scale {
            objects: 50_000,
            rounds: 300,
            turns: 3,
            burst: Duration::from_millis(60),
            bursts: 2,
            connections: vec![1, 8, 32],
            counts: vec![300_000],
            live_bytes: 48 << 20,
            churn: 1.2,
            restart_bytes: 24 << 20,
            idle: Duration::from_secs(1),
        }
    }

    /// Says how fast it is.
    #[must_use]
    pub fn full() -> Scale {
        Scale {
            objects: 1_000_000,
            rounds: 2_000,
            turns: 21,
            burst: Duration::from_millis(250),
            bursts: 7,
            connections: vec![1, 2, 4, 8, 16, 32, 64, 128],
            counts: vec![1_000_000, 5_000_000],
            live_bytes: 512 << 20,
            churn: 3.0,
            restart_bytes: 1 << 30,
            idle: Duration::from_secs(10),
        }
    }

    /// Memory for so many objects, with room to spare.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.objects * 400 + (768 << 20)
    }
}
