//! The limits of a shard's replication, each with its unit and reason.

use std::time::Duration;

/// How long a backup or a coordinator has for an answer. Long beside any disk that is not broken; a
/// message that is lost is sent again after it.
pub(crate) const REPLICATE_TIMEOUT: Duration = Duration::from_millis(250);

/// The bytes of survivors and side segments that a turn sends. They are on many backups, and each
/// byte is copied from memory that no cache holds: 256 KiB took 60 to 130 us of a turn.
pub(crate) const BYTES_BESIDE_HEADS: usize = 32 << 10;

/// How often in a turn more is sent because the backup of the same process has answered: enough for
/// a change of heads, which takes four rounds, and one before and after.
pub(crate) const LOCAL_ROUNDS_MAX: usize = 8;
