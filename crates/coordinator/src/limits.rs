//! What a coordinator takes, and how much of it.

use std::time::Duration;
use thunderhead_metastore::limits::VALUE_BYTES_MAX;
use thunderhead_wire::control::READ_LEASE;

/// Bytes of a table's name.
pub const NAME_BYTES_MAX: usize = 255;

/// How often a coordinator writes that it is there, and the leader looks which ones are.
pub const ANNOUNCED_EVERY: Duration = Duration::from_secs(10);

/// A coordinator that has not written it for so long does not run: more than two writes are missing.
pub const COORDINATOR_GONE: Duration = Duration::from_secs(30);

/// Coordinators that a leader knows of, about.
pub const COORDINATORS_MAX: usize = 1024;

/// Bytes of the name of a machine or a rack.
pub const PLACE_BYTES_MAX: usize = 255;

/// Servers that may be registered. Each is a value in the metastore.
pub const SERVERS_MAX: usize = 10_000;

/// Shards of one server.
pub const SHARDS_MAX: usize = 256;

/// Tables. Each is a value in the metastore.
pub const TABLES_MAX: usize = 100_000;

/// Tablets of one table: what surely fits a value of the metastore.
pub const TABLETS_MAX: usize = 4096;

/// Requests that may wait for the metastore: less than the metastore lets wait.
pub const REQUESTS_MAX: usize = 512;

/// Tables that are written at the same time: each write waits for the metastore.
pub const WRITES_AT_ONCE: usize = 128;

/// Leases that are ended at the same time.
pub const ENDINGS_MAX: usize = 64;

/// Leases' numbers that are set aside with one write.
pub const LEASES_AT_ONCE: u64 = 256;

/// Heads with raised epochs that are remembered of each master. A log has two open heads at most,
/// so those of old segments are closed, and epochs say nothing of closed ones. An open replica of an old one
/// is of a backup that was away: it does not count.
pub const EPOCHS_MAX: usize = 64;

/// Former lives of a server whose nonces are remembered, so that a request of a former life that
/// was long on its way does not end the present one.
pub const LIVES_MAX: usize = 16;

/// Tablets are somebody else's no earlier than so long after backups were fenced: the lease, and what
/// clocks differ by.
pub const TAKE_OVER: Duration = Duration::from_millis(READ_LEASE.as_millis() as u64 * 21 / 20);

/// How long a recovery waits for backups that do not answer, though the others have all that is
/// needed.
pub const SURVEY_GRACE: Duration = Duration::from_secs(1);

/// How long parts of a recovery may take after another one has come to nothing, at first.
pub const STUCK: Duration = Duration::from_secs(30);

/// The longest pause before a recovery that fails again and again is tried anew.
pub const RECOVERY_PAUSE_MAX: Duration = Duration::from_secs(10);

/// Bytes of what a shard says about its trouble.
pub const TROUBLE_BYTES_MAX: usize = 1000;

/// What a caller is told to wait while the metastore cannot be reached.
pub const METASTORE_HINT: Duration = Duration::from_millis(200);

/// What a caller is told to wait while a new leader reads what there is, as long as nothing is in its way:
/// mostly that takes milliseconds.
pub const LOADING_HINT: Duration = Duration::from_millis(10);

/// What a caller is told to wait while too many others do.
pub const BUSY_HINT: Duration = Duration::from_millis(50);

/// How long `status` tells of what has happened and is not so any more.
pub const EVENT_TOLD: Duration = Duration::from_secs(10 * 60);

/// Leases that may last at once. Each is a value in the metastore, and a new leader reads them all.
pub const LEASES_MAX: u64 = 1 << 18;

/// How long a coordinator that cannot read what the metastore holds does not want to lead: long enough for
/// each other coordinator to ask for the leadership.
pub const STANDS_BACK: Duration = Duration::from_secs(12);

/// How often a leader tries whether a metastore that refused a write takes writes again.
pub const METASTORE_TRIED: Duration = Duration::from_secs(1);

/// Servers that are registered and have never had a life. A server that begins its first life is one for less
/// than a second; a server that ends again and again before it can is one for ever.
pub const UNBORN_MAX: usize = 1000;

/// Bytes of one shard in a server's record, now or when it is a former master, without the parts that others
/// rebuild: its numbers, and each epoch with two numbers of up to 20 digits.
pub const SHARD_BYTES_MAX: usize = 400 + EPOCHS_MAX * 44;

const _: () = assert!(SHARDS_MAX * SHARD_BYTES_MAX < VALUE_BYTES_MAX * 9 / 10);

/// The first wait before something that failed is tried again; each is twice the one before.
pub const RETRY_MIN: Duration = Duration::from_millis(50);

/// The longest such wait.
pub const RETRY_MAX: Duration = Duration::from_secs(2);

/// Bits of a version of list or map that count the changes under one leader.
pub const VERSION_BITS: u32 = 20;

/// The highest number of a leadership that a server is believed. Versions of list and map begin
/// with it.
pub const LEADERSHIP_MAX: u64 = 1 << (62 - VERSION_BITS);

/// Ids of each kind that are passed over when the metastore turns out to be an older copy: more
/// than can have been given out since the copy was made.
pub const IDS_PASSED_OVER: u64 = 1 << 32;

/// Servers that are looked for at the same time because somebody had no answer. Whoever is beyond that
/// is reported again.
pub const CHECKS_MAX: usize = 512;

/// Letters of what a server says about another one that does not answer.
pub const WHY_CHARS_MAX: usize = 200;
