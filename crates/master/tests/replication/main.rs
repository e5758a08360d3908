//! Replication of a log to backups: the manager alone with all kinds of faults, a shard with it
//! among faults of the network, and the read lease.

mod lease;
mod messages;
mod model;
mod recovery;
mod simulated;
