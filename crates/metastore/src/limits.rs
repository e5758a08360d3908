//! Sizes and times that a metastore accepts, the same for all stores, so that what works with one
//! works with each.

use std::time::Duration;

/// Bytes of a key. Short enough to stand in every message and log line.
pub const KEY_BYTES_MAX: usize = 512;

/// Bytes of a value. ZooKeeper takes packets below 1 MiB, in which a fenced write also has up to
/// four paths; etcd takes requests below 1.5 MiB.
pub const VALUE_BYTES_MAX: usize = 1_000_000;

/// Bytes of what a holder says of itself.
pub const DESCRIPTION_BYTES_MAX: usize = 1024;

/// The shortest lease. Below it, the pauses of an ordinary machine would cost leases.
pub const LEASE_MIN: Duration = Duration::from_secs(1);

/// The longest lease. ZooKeeper grants sessions of at most 20 ticks, 40 seconds by default, and
/// a session must outlast its lease by half.
pub const LEASE_MAX: Duration = Duration::from_secs(20);

/// Entries of a page.
pub const PAGE_ENTRIES_MAX: usize = 256;

/// Bytes of values after which a page ends. One value may go beyond it.
pub const PAGE_BYTES_MAX: usize = 4 << 20;

/// Requests that may wait for their answers. A coordinator that has more is not reading them.
pub const REQUESTS_MAX: usize = 1024;

/// How much earlier than the store a holder stops believing in its lease: one part in so many.
/// Covers clocks that run at different rates; no clock of a machine that works errs by as much.
pub const LEASE_MARGIN: u32 = 8;

/// The first pause before the file of the embedded store is opened again, if that did not help at once; each
/// is twice the one before.
pub const REOPEN_MIN: Duration = Duration::from_millis(50);

/// The longest such pause. Opening reads the whole file.
pub const REOPEN_MAX: Duration = Duration::from_secs(5);

/// How long leases in the embedded store outlast a file that cannot be opened again.
pub const LEADS_UNOPENED: Duration = Duration::from_secs(15);

const _: () = assert!(VALUE_BYTES_MAX + 8 * (KEY_BYTES_MAX + DESCRIPTION_BYTES_MAX) < 1 << 20);
const _: () = assert!(VALUE_BYTES_MAX <= PAGE_BYTES_MAX);
