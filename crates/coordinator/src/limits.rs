//! The limits of a coordinator.

use std::time::Duration;
use thunderhead_metastore::limits::VALUE_BYTES_MAX;
use thunderhead_runtime::backoff::Backoff;
use thunderhead_wire::control::READ_LEASE;

/// Bytes of a table's name.
pub const NAME_BYTES_MAX: usize = 255;

/// How often a coordinator writes its value in the metastore, and how often the leader reads these
/// values.
pub const ANNOUNCED_EVERY: Duration = Duration::from_secs(10);

/// A coordinator that has not written its value for so long does not run: it has missed more than
/// two writes.
pub const COORDINATOR_GONE: Duration = Duration::from_secs(30);

/// The highest number, about, of coordinators that a leader knows.
pub const COORDINATORS_MAX: usize = 1024;

/// Bytes of the name of a machine or a rack.
pub const PLACE_BYTES_MAX: usize = 255;

/// Servers that may be registered. Each is a value in the metastore.
pub const SERVERS_MAX: usize = 10_000;

/// Shards of one server. Their records, with the former masters that each inherits, must fit into
/// one value of the metastore.
pub const SHARDS_MAX: usize = 128;

/// Tables. Each is a value in the metastore.
pub const TABLES_MAX: usize = 100_000;

/// Tablets of one table: a number that certainly fits into a value of the metastore.
pub const TABLETS_MAX: usize = 4096;

/// Requests that may wait for the metastore: fewer than the metastore allows.
pub const REQUESTS_MAX: usize = 512;

/// Tables that are written at the same time, because each write waits for the metastore.
pub const WRITES_AT_ONCE: usize = 128;

/// Leases that are ended at the same time.
pub const ENDINGS_MAX: usize = 64;

/// Numbers of leases that are set aside with one write.
pub const LEASES_AT_ONCE: u64 = 256;

/// Heads with raised epochs that are remembered for each master. A log has at most two open heads.
/// So all older segments are closed, and epochs do not concern closed segments. An open replica of
/// an old segment belongs to a backup that was down: it does not count.
pub const EPOCHS_MAX: usize = 64;

/// Former generations of a server whose nonces are remembered, so that a delayed request of a
/// former generation does not end the present one.
pub const LIVES_MAX: usize = 16;

/// Other masters take over tablets no earlier than so long after backups were fenced: the read
/// lease, and the difference of clocks.
pub const TAKE_OVER: Duration = Duration::from_millis(READ_LEASE.as_millis() as u64 * 21 / 20);

/// How long a recovery waits for silent backups after the other backups have reported all that is
/// needed.
pub const SURVEY_GRACE: Duration = Duration::from_secs(1);

/// How long the parts of a recovery may take, at first, after another part has failed.
pub const STUCK: Duration = Duration::from_secs(30);

/// The longest pause before a recovery that fails repeatedly is tried again.
pub const RECOVERY_PAUSE_MAX: Duration = Duration::from_secs(10);

/// Bytes of a shard's report about its trouble.
pub const TROUBLE_BYTES_MAX: usize = 1000;

/// How long a caller should wait while the metastore cannot be reached.
pub const METASTORE_HINT: Duration = Duration::from_millis(200);

/// How long a caller should wait while a new leader reads the recorded state without an obstacle.
/// Mostly that takes milliseconds.
pub const LOADING_HINT: Duration = Duration::from_millis(10);

/// How long a caller should wait while too many requests are pending.
pub const BUSY_HINT: Duration = Duration::from_millis(50);

/// How long `status` shows an event that is over.
pub const EVENT_TOLD: Duration = Duration::from_secs(10 * 60);

/// Leases that may exist at the same time. Each is a value in the metastore, and a new leader reads
/// them all.
pub const LEASES_MAX: u64 = 1 << 18;

/// How long a coordinator that cannot read the metastore's contents does not request the
/// leadership: long enough for each other coordinator to request it.
pub const STANDS_BACK: Duration = Duration::from_secs(12);

/// How often a leader tries whether a metastore that refused a write accepts writes again.
pub const METASTORE_TRIED: Duration = Duration::from_secs(1);

/// Servers that are registered and have never begun a generation. A server that begins its first
/// generation is such a server for less than a second. A server that ends each time before it can
/// begin one is such a server for ever.
pub const UNBORN_MAX: usize = 1000;

/// Bytes of one shard in a server's record, present or former, without the parts that other masters
/// rebuild: its numbers, and each epoch with two numbers of up to 20 digits.
pub const SHARD_BYTES_MAX: usize = 400 + EPOCHS_MAX * 44;

/// The longest lineage. After that a recovery in parts ends it.
pub const LINEAGE_MAX: usize = 8;

/// Bytes of an inherited former master in a server's record. It has neither parts nor epochs.
pub const FORMER_BYTES: usize = 200;

// The record of a server whose shards all have the longest lineage has room for the end of its
// generation. Otherwise the coordinator would refuse such a server for ever.
const _: () = {
    let shard_bytes = SHARD_BYTES_MAX + (LINEAGE_MAX + 1) * FORMER_BYTES;
    assert!(SHARDS_MAX * shard_bytes < VALUE_BYTES_MAX);
};

/// The pauses before repetitions.
pub const RETRY: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));

/// The pauses before a recovery master is told again about its part.
pub const TELL_AGAIN: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(800));

/// The bits of a list's or map's version that count the changes under one leader.
pub const VERSION_BITS: u32 = 20;

/// The highest number of a leadership that is accepted from a server. Versions of list and map
/// begin with it.
pub const LEADERSHIP_MAX: u64 = 1 << (62 - VERSION_BITS);

/// The number of ids of each kind that are skipped if the metastore turns out to be an older copy:
/// more than can have been given out since the copy was made.
pub const IDS_PASSED_OVER: u64 = 1 << 32;

/// Servers that are checked at the same time because a peer got no answer. Further ones will be
/// reported again.
pub const CHECKS_MAX: usize = 512;

/// Characters of a server's report about another server that does not answer.
pub const WHY_CHARS_MAX: usize = 200;
