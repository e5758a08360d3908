//! Replication of a log to backups: the manager alone with everything that may happen to it, and a
//! shard with it among faults of the network; and until when that answers reads.

mod lease;
mod messages;
mod model;
mod recovery;
mod simulated;
