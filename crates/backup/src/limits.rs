//! What is limited, in which unit and why.

use std::time::Duration;
use thunderhead_runtime::files::DIRECT_BYTES;

/// Bytes of a block of the file: what direct I/O asks for.
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

/// What is not flushed yet of a frame is flushed once it is this much, however young.
pub(crate) const FLUSH_BYTES: u32 = 1 << 20;

/// With `replicated`, what is acknowledged is flushed after this time: long enough to write more
/// than a block at a time.
pub(crate) const FLUSH_AGE: Duration = Duration::from_millis(10);

/// How often a round is written again after a sync that failed, before its replicas are given up.
pub(crate) const SYNC_ATTEMPTS: u32 = 3;

/// Reads under way at most: each holds a segment of memory.
pub(crate) const READS_MAX: usize = 8;

/// Frames whose reading is timed at the start.
pub(crate) const TIMED_FRAMES: u32 = 4;

const _: () = assert!(SEGMENT_BYTES_MAX as usize / CHUNKS_MAX >= BLOCK_BYTES);
