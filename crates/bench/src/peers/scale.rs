//! The sizes of all measurements.

use std::time::Duration;

/// The sizes of all measurements.
#[derive(Clone, Debug)]
pub struct Scale {
    /// The number of objects of 100 B.
    pub objects: u64,
    /// Requests of a latency measurement, and the number of turns over all stores.
    pub rounds: u64,
    pub(crate) turns: usize,
    /// The duration of a rate measurement, and the number of turns over all stores.
    pub burst: Duration,
    pub(crate) bursts: usize,
    /// Numbers of connections.
    pub connections: Vec<usize>,
    /// Numbers of objects whose memory is measured.
    pub counts: Vec<u64>,
    /// Live bytes while sizes change, and how often each phase writes them.
    pub live_bytes: u64,
    pub(crate) churn: f64,
    /// Bytes of keys and values on the disk at a restart.
    pub restart_bytes: u64,
    /// How long idle servers are observed.
    pub idle: Duration,
}

impl Scale {
    /// Returns sizes that show whether everything works.
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

    /// Returns sizes that show how fast it is.
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

    /// Returns memory for this many objects, with room to spare.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.objects * 400 + (768 << 20)
    }
}
