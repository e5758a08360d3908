//! The properties of a server: the fixed ones, and the present state of its process.

use super::settings::Policy;
use super::store::Database;

/// The fixed properties of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The number of databases, at least one.
    pub databases: Database,
    /// The memory for objects, which `maxmemory` shows.
    pub memory_bytes: u64,
    /// The longest value of an object of the store.
    pub value_bytes_max: usize,
    /// The longest string, which `proto-max-bulk-len` shows. A longer one than an object has pages.
    pub string_bytes_max: usize,
    /// The most bytes of a reply. Redis has no such limit, but runs out of memory.
    pub reply_bytes_max: usize,
    /// The greatest number of clients, which `maxclients` shows.
    pub clients_max: usize,
    /// The password that clients must give, if there is one.
    pub password: Option<Vec<u8>>,
    /// Whether objects survive a crash of all servers.
    pub is_kept: bool,
    /// The replicas of each object, without the copy in memory.
    pub replicas: u32,
    /// The port, which `INFO` shows.
    pub port: u16,
    /// Forty hexadecimal digits that name this start of the server.
    pub run_id: String,
    /// The objects that are evicted when memory is full: one of [`ServerOptions::POLICIES`].
    pub policy: &'static str,
    /// Whether `FLUSHDB` and `FLUSHALL` are allowed.
    pub may_flush: bool,
    /// Whether `CONFIG SET requirepass` is allowed.
    pub may_set_password: bool,
    /// Secret random bytes, from which `ACL GENPASS` makes passwords.
    pub secret: Option<[u8; 32]>,
}

impl ServerOptions {
    /// The names of the policies.
    pub const POLICIES: [&'static str; 8] = Policy::NAMES;

    /// Returns the longest argument. Values that are a little too long get an error, and not the
    /// end of the connection.
    pub(super) fn argument_bytes_max(&self) -> usize {
        self.string_bytes_max.saturating_mul(2).clamp(16 << 20, 512 << 20)
    }
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            databases: 16,
            memory_bytes: 1 << 30,
            value_bytes_max: 1 << 20,
            string_bytes_max: 32 << 20,
            reply_bytes_max: 48 << 20,
            clients_max: 10_000,
            password: None,
            is_kept: false,
            replicas: 0,
            port: 6379,
            run_id: "0".repeat(40),
            policy: "noeviction",
            may_flush: true,
            may_set_password: true,
            secret: None,
        }
    }
}

/// The present state of the process, for `INFO`.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Bytes that objects use.
    pub used_memory: u64,
    /// The most that they have used.
    pub used_memory_peak: u64,
    /// Bytes of the process.
    pub resident_memory: u64,
    /// Bytes of memory of the machine.
    pub machine_memory: u64,
    /// Seconds since the start.
    pub uptime_seconds: u64,
    /// The number of the process.
    pub process: u32,
    /// Objects that were evicted.
    pub evicted: u64,
    /// Objects that have expired and were removed.
    pub expired: u64,
    /// Connections that were accepted.
    pub connections: u64,
    /// Connections that were refused.
    pub rejected: u64,
    /// Bytes that were received.
    pub received_bytes: u64,
    /// Bytes that were sent.
    pub sent_bytes: u64,
    /// Seconds of processor time, of the system and of the user.
    pub processor_seconds: (f64, f64),
}
