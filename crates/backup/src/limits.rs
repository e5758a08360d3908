//! Limits, with their units and reasons.

use std::time::Duration;
use thunderhead_runtime::files::DIRECT_BYTES;

/// Bytes of a block of the file, as direct I/O needs it.
pub const BLOCK_BYTES: usize = DIRECT_BYTES;

/// Chunks of a frame at most: as many checksums fit into a header with room for more fields, and
/// into a page of the pool.
pub(crate) const CHUNKS_MAX: usize = 128;

/// Bytes of a segment at most: lengths are 31-bit numbers, as in the log.
pub const SEGMENT_BYTES_MAX: u32 = 1 << 30;

/// Frames of a store at most. At 8 MiB each this is 8 TiB; headers take 8 KiB each of the file
/// and are read at the start.
pub const FRAMES_MAX: u32 = 1 << 20;

/// Buffers of a store at most.
pub const BUFFERS_MAX: u32 = 1 << 16;

/// A frame with this many unflushed bytes is flushed, however recent they are.
pub(crate) const FLUSH_BYTES: u32 = 1 << 20;

/// With `replicated`, acknowledged bytes are flushed after this time: long enough to write more
/// than a block at a time.
pub(crate) const FLUSH_AGE: Duration = Duration::from_millis(10);

/// How often a round is written again after a sync that failed, before its frames wait for `AGAIN`.
pub(crate) const SYNC_ATTEMPTS: u32 = 3;

/// Frames of a round that are written at once: so many have copies of blocks in memory.
pub(crate) const JOBS_AT_ONCE: usize = 32;

/// Headers of an earlier process that are in memory while they are written again.
pub(crate) const HEADERS_AT_ONCE: usize = 256;

/// The interval between attempts to write data that the disk refused.
pub(crate) const AGAIN: Duration = Duration::from_millis(200);

/// If no write follows a round of one sync for this long, the flusher records that the round was
/// durable.
pub(crate) const PROVE_AFTER: Duration = Duration::from_millis(20);

/// An open replica without new bytes for this long may lose its buffer to another one. A working
/// master appends sooner.
pub(crate) const RESTS_AFTER: Duration = Duration::from_millis(500);

/// Reads under way at most: each holds a segment of memory.
pub(crate) const READS_MAX: usize = 8;

/// How often the start repeats the read of an unreadable block. Disks retry too, some for seconds.
pub(crate) const READ_ATTEMPTS: u32 = 6;

/// Unreadable blocks of one read at most: a disk that cannot read more is not worth waiting for.
pub(crate) const UNREADABLE_MAX: usize = 64;

/// Frames whose reading is timed at the start.
pub(crate) const TIMED_FRAMES: u32 = 4;

/// Parts of one message at most: each is a part of a slice.
pub(crate) const PARTS_MAX: usize = 1024;

/// Bytes of a page of a replica at most: copying more takes longer than a slice.
pub(crate) const PAGE_BYTES_MAX: u32 = 1 << 20;

/// Replicas that were read and are kept for their next pages: each holds a segment of memory.
pub(crate) const CACHED_MAX: usize = 4;

/// Buffers of former reads that are kept for the next ones while any is in use.
pub(crate) const SPARE_MAX: usize = 32;

/// Looks at open replicas under way at most: each holds a segment of memory.
pub(crate) const HEADS_MAX: usize = 8;

/// Segments that are read or cut for recoveries at once: each holds a segment of memory. A read
/// comes while another one is cut; fewer than [`READS_MAX`], so that others can read too.
pub(crate) const RECOVERY_READS_MAX: usize = 4;

/// Bytes of parts that wait to be fetched by recoveries, and the number of segments that always
/// have room.
pub(crate) const PARTS_BYTES_MAX: u64 = 256 << 20;
pub(crate) const SEGMENTS_AHEAD: u64 = 8;

/// Bytes of whole replicas that were read before a master that takes a log back requested them. No
/// more than hides the disk's latency, because new memory costs more than reading into it.
pub(crate) const WHOLE_BYTES_MAX: u64 = 64 << 20;

/// Recoveries of different masters at once, partitions of one, and tablets in all of them: the
/// bounds for requests from outside. A crashed server has a few masters.
pub(crate) const RECOVERIES_MAX: usize = 256;
pub(crate) const PARTITIONS_MAX: usize = 1024;
pub(crate) const RANGES_MAX: usize = 1 << 16;

/// The microseconds that a caller waits for a part that is not cut yet: less than a read takes.
pub(crate) const COMING_US: u32 = 500;

/// The longest list that the reactor reads or writes itself, which takes some tens of
/// microseconds; and how many longer lists may be under way, each with a message of up to
/// 8 MiB.
pub(crate) const LIST_BYTES_AT_ONCE: usize = 4 << 10;
pub(crate) const LIST_ENTRIES_AT_ONCE: usize = 100;
pub(crate) const LISTS_MAX: usize = 16;

/// Requests that may wait for the disk at once.
pub(crate) const WAITING_MAX: usize = 16_384;

/// Freed replicas that are remembered, so that a delayed message does not begin one of them again.
pub(crate) const FREED_REPLICAS_MAX: usize = 4096;

/// Masters in one answer to `masters here`: their lookup takes less than a slice.
pub(crate) const MASTERS_MAX: usize = 256;

/// Masters that are gone and are remembered as such.
pub(crate) const GONE_MAX: usize = 1 << 16;

/// Masters in all lineages. Beyond that, masters without a replica here are forgotten.
pub(crate) const LINEAGES_MAX: usize = 4096;

/// The microseconds that a caller waits before it retries.
pub(crate) const BUSY_US: u32 = 1_000;

const _: () = assert!(SEGMENT_BYTES_MAX as usize / CHUNKS_MAX >= BLOCK_BYTES);

/// The cost of a message with bytes of replicas: the network copies them, the backup copies them
/// again and computes their checksums.
pub(crate) const REPLICATED_KILOBYTE: Duration = Duration::from_nanos(700);

/// The cost of recovery data in an answer: they are copied.
pub(crate) const GIVEN_KILOBYTE: Duration = Duration::from_nanos(260);
