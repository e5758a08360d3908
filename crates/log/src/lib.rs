//! Log-structured memory.
#![deny(unsafe_op_in_unsafe_fn)]

mod blocks;
mod cleaner;
mod entry;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod index;
pub mod inspect;
mod limits;
mod log;
mod memory;
mod metadata;
mod object;
mod options;
mod prefetch;
mod quiescence;
mod replay;
mod replicator;
mod segment;
mod shared;
mod sync;
mod tablets;
mod testing;
mod threads;
mod varint;

pub use cleaner::{Cleaner, Step};
pub use entry::FORMAT_VERSION;
pub use error::{Damage, Error, OptionsError};
pub use index::Cursor;
pub use limits::{BATCH, KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use log::{Completion, Condition, Log, Put, Usage, Written};
pub use memory::{Memory, SEGLET_BYTES};
pub use metadata::{SegmentHeader, SegmentKind, TabletStatistics};
pub use object::{Bytes, Object};
pub use options::{CleanerOptions, Options, Tombstones};
pub use replay::{Replay, ReplayError, Report};
pub use replicator::{Event, NoReplication, Recorder, Replica, Replicator, SegmentBytes};
pub use threads::CleanerThreads;
pub use thunderhead_wire::{KeyHash, LogId, LogPosition, SegmentId, TableId, TabletRange, Version};
