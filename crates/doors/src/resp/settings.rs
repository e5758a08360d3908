//! The settings that clients read and write with `CONFIG`.

use super::server::ServerOptions;

/// The objects that may be evicted when memory is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// None: writes are refused.
    NoEviction,
    /// All that are written, by a rule with this name.
    AllKeys(&'static str),
    /// The objects that expire, by a rule with this name.
    Volatile(&'static str),
}

impl Policy {
    /// Whether an object that expires then may be evicted.
    pub(super) fn caches(self, expires: Option<u64>) -> bool {
        match self {
            Policy::NoEviction => false,
            Policy::AllKeys(_) => true,
            Policy::Volatile(_) => expires.is_some(),
        }
    }
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) policy: Policy,
    pub(super) password: Option<Vec<u8>>,
}

impl Settings {
    pub(super) fn new(options: &ServerOptions) -> Settings {
        let policy =
            if options.evicts { Policy::AllKeys("allkeys-lru") } else { Policy::NoEviction };
        Settings { policy, password: options.password.clone() }
    }
}
