//! The limits of a shard's replication, each with its unit and reason.

use std::time::Duration;

/// How long a backup or a coordinator has for an answer. Long beside any disk that is not broken; a
/// message that is lost is sent again after it.
pub(crate) const REPLICATE_TIMEOUT: Duration = Duration::from_millis(250);

/// The bytes of survivors and side segments that a turn sends for each replica: as many as the log
/// hands over in a turn. Each byte is copied from memory that no cache holds: 256 KiB take 60 to
/// 130 us. If a turn sends fewer, later turns may send more, up to [`BESIDE_HEADS_MAX`].
pub(crate) const BYTES_BESIDE_HEADS: usize = 64 << 10;

/// The most bytes of survivors and side segments that a turn sends, with the unused part of earlier
/// turns. Without that part, a backup with a slow disk, which answers a message after many turns,
/// would get short messages.
pub(crate) const BESIDE_HEADS_MAX: usize = 256 << 10;

/// The bytes that a turn copies from memory for replicas that are made later than the others.
pub(crate) const FETCHED_BYTES: usize = 64 << 10;

/// The cost of sending 1 KiB to a backup, most of it for copying the bytes.
pub(crate) const SENT_KILOBYTE: Duration = Duration::from_nanos(400);

/// How often in a turn more is sent because the backup of the same process has answered: enough for
/// a change of heads, which takes four rounds, and one before and after.
pub(crate) const LOCAL_ROUNDS_MAX: usize = 8;
