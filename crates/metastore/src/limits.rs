//! Sizes and times that a metastore accepts. They are the same for all stores, so that a
//! coordinator that works with one store works with each.

use std::time::Duration;
use thunderhead_runtime::backoff::Backoff;

/// Bytes of a key. Short enough for every message and log line.
pub const KEY_BYTES_MAX: usize = 512;

/// Bytes of a value. ZooKeeper accepts packets below 1 MiB, and a fenced write's packet also has up
/// to four paths. etcd accepts requests below 1.5 MiB.
pub const VALUE_BYTES_MAX: usize = 1_000_000;

/// Bytes of a holder's description of itself.
pub const DESCRIPTION_BYTES_MAX: usize = 1024;

/// The shortest lease. With shorter ones, the pauses of an ordinary machine would lose leases.
pub const LEASE_MIN: Duration = Duration::from_secs(1);

/// The longest lease. ZooKeeper grants sessions of at most 20 ticks, 40 seconds by default, and
/// a session must outlast its lease by half.
pub const LEASE_MAX: Duration = Duration::from_secs(20);

/// Entries of a page.
pub const PAGE_ENTRIES_MAX: usize = 256;

/// Bytes of values after which a page ends. One value may exceed it.
pub const PAGE_BYTES_MAX: usize = 4 << 20;

/// Requests that may be pending. A coordinator with more does not read their answers.
pub const REQUESTS_MAX: usize = 1024;

/// The part of a lease by which its holder stops believing before the store may grant it again: one
/// in so many. It covers clocks that run at different rates. No working machine's clock is wrong by
/// as much.
pub const LEASE_MARGIN: u32 = 8;

/// The pauses before the embedded store's file is opened again, if an attempt without a pause
/// failed. Opening reads the whole file.
pub const REOPENING: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));

/// How long leases in the embedded store outlast a file that cannot be opened again.
pub const LEADS_UNOPENED: Duration = Duration::from_secs(15);

const _: () = assert!(VALUE_BYTES_MAX + 8 * (KEY_BYTES_MAX + DESCRIPTION_BYTES_MAX) < 1 << 20);
const _: () = assert!(VALUE_BYTES_MAX <= PAGE_BYTES_MAX);
