//! Every fixed limit of the engine, each with its unit and the reason for its value.
//!
//! The limits that an operator may change are in [`Options`](crate::Options). The limits that
//! follow from the format or from the machine are here.

/// The longest key, in bytes, in segments of half a MiB and more; in smaller segments an eighth of
/// a segment: see [`Options::key_bytes_max`](crate::Options::key_bytes_max). An empty key is
/// refused as well: it is almost always a mistake.
pub const KEY_BYTES_MAX: usize = thunderhead_wire::operations::KEY_BYTES_MAX;

/// The longest value, in bytes, in segments of 8 MiB (the default) and more; in smaller segments an
/// eighth of a segment, so that little is lost at its end when the next object does not fit: see
/// [`Options::value_bytes_max`](crate::Options::value_bytes_max).
pub const VALUE_BYTES_MAX: usize = thunderhead_wire::operations::VALUE_BYTES_MAX;

/// The longest entry header, from its flags to the length of its key: a reader may load this many
/// bytes without looking for the seglet's end. See [`crate::format::entry`].
pub(crate) const HEADER_BYTES_MAX: usize = 64;

/// The longest body of an entry that a reader believes before its checksum is verified: a key and a
/// value of full length with the largest header, rounded up.
pub(crate) const BODY_BYTES_MAX: usize = KEY_BYTES_MAX + VALUE_BYTES_MAX + 1024;

/// The number of updates on which a batch works at once: enough to keep a core's load buffers full
/// of prefetches, few enough that the first prefetched line is still there for the last step.
pub const BATCH: usize = 64;

/// Mutations after which the log takes a turn by itself, if its owner does not call
/// [`Log::turn`](crate::Log::turn). The number is small, and large enough to hide a turn's fence.
pub(crate) const MUTATIONS_PER_TURN: u32 = 64;

/// The most cleaners that one log has at a time: more than today's machines would give one shard.
pub const CLEANERS_MAX: usize = 16;

/// Seglets of one memory: references hold 48 bits of address and seglet numbers 32.
pub(crate) const SEGLETS_MAX: usize = (u32::MAX - 1) as usize;

/// Bytes of one memory: the reach of an address in today's processes, and so of a reference.
pub(crate) const MEMORY_BYTES_MAX: usize = (1 << 47) - 1;

/// The least [`CleanerOptions::spread_max`](crate::CleanerOptions::spread_max): with less,
/// cleaners would copy most bytes of the segments that they clean.
pub(crate) const SPREAD_LEAST: f64 = 1.5;

/// The bytes of memory that a log takes before it is cleaned, however little is live: several
/// segments of usual length, few enough to stay in a large cache of a processor.
pub(crate) const SPREAD_BYTES: usize = 64 << 20;

/// The most dropped tables that are listed since the head was opened. Creating a listed table again
/// needs another head. With more dropped tables, creating any table does.
pub(crate) const DROPPED_MAX: usize = 1024;

const _: () = assert!(BODY_BYTES_MAX > KEY_BYTES_MAX + VALUE_BYTES_MAX + HEADER_BYTES_MAX);
const _: () = assert!(BATCH.is_power_of_two());
