//! The parts of a shard that make calls, set timers and ask the coordinators. A node returns the
//! owner with each outcome and each timer, so that the shard gives it to the right part.

use thunderhead_rpc::owners;

owners! {
    /// A part of a shard that owns calls, timers or questions.
    pub(crate) enum Owner of Shard {
        /// The replication: its messages to backups, and its next turn.
        Replication,
        /// The client of the coordinators: questions, and the time to ask them again.
        Coordinator,
        /// The check of the clients' leases.
        Leases,
        /// Recoveries: the pieces that they fetch.
        Recovery,
        /// Migrations: the messages to the tablets' new masters.
        Migration,
        /// Work of recoveries and migrations that waits for a time.
        Work,
        /// The answers that wait for backups.
        Parked,
        /// The removal of objects that have expired.
        Expiry,
    }
}
