//! The parts of a server, beside its shard and its backup, that make calls, set timers and ask the
//! coordinators.

use thunderhead_rpc::owners;

owners! {
    /// A part of a server that owns calls, timers or questions.
    pub(crate) enum Owner of Membership {
        /// The server's client of the coordinators, for registering and enlisting.
        Coordinator,
        /// Leaving: its waits for updates and for the disk end.
        Leaving,
        /// The probes: their calls, and the time of the next one.
        Probes,
        /// The probes' client of the coordinators, for reports and for the list of servers.
        ProbesCoordinator,
        /// The door: the next try of a request that could not be done.
        Door,
        /// The door of a cluster: its waits for the shard that executes the commands, and its
        /// question to that shard.
        ClusterDoor,
        /// The cluster door's client of the coordinators, for the map.
        ClusterDoorCoordinator,
    }
}
