//! Log-structured memory: the memory of a key-value store, kept as a log.
//!
//! Objects are appended to a log in memory and found through an index. Overwritten and deleted
//! objects leave gaps. Cleaners, which run beside the program, close the gaps by copying the live
//! entries. So memory can be 80 to 90 % full of live data, even when the sizes of objects change:
//! no fragmentation, no pauses, and a bound that holds for everything, indexes included. All
//! appended bytes can be copied elsewhere unchanged, and a set of such copies rebuilds the store.
//! # When to use it
//!
//! - As the memory of a cache or store inside your process: many objects, from bytes to a
//!   megabyte, under a memory limit that must hold.
//! - As the engine of a durable store: give it a [`Replicator`] that keeps the bytes safe, and
//!   [`Replay`] them after a crash.
//!
//! One thread owns a [`Log`], and a log owns its [`Memory`]. If many threads must write, give each
//! a log and a memory of its own, and divide the keys among them.
//!
//! # Example
//!
//! ```
//! use thunderhead_log::{CleanerThreads, Log, LogId, Memory, NoReplication, Options, TableId,
//!     TabletRange};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let memory = Memory::new(64 << 20)?;
//! let options = Options { segment_bytes: 1 << 20, ..Options::default() };
//! let mut log = Log::new(&memory, LogId(1), options, Box::new(NoReplication::default()))?;
//! let _cleaners = CleanerThreads::start(&log, 1, |_| {});
//!
//! let users = TableId(1);
//! log.create_tablet(TabletRange::whole(users))?;
//! let written = log.write(users, b"alice", b"hello")?;
//! let object = log.read(users, b"alice")?.expect("it was just written");
//! assert_eq!(object.version(), written.version);
//! assert_eq!(object.value().as_slice(), Some(&b"hello"[..]));
//!
//! log.turn(); // Hands the write to the replicator; this one makes it durable at once.
//! assert!(log.durable() >= written.position);
//! # Ok(())
//! # }
//! ```
//!
//! # Turns, and when a write is safe
//!
//! The log hands written bytes to the [`Replicator`] at the end of a *turn*: when [`Log::turn`] is
//! called, after every 64 writes without a call, and when the log is dropped. A server calls it
//! after each round of requests. A write is safe once [`Log::durable`] has reached the position
//! that the write returned; [`Log`] says more.
//!
//! # References
//!
//! A read returns an object that borrows the log, so nothing can be freed under it:
//!
//! ```compile_fail
//! # use thunderhead_log::*;
//! # fn f(log: &mut Log, users: TableId) -> Result<(), Error> {
//! let object = log.read(users, b"alice")?;
//! log.write(users, b"bob", b"hi")?;
//! println!("{object:?}"); // The write may have taken a turn: the compiler says no.
//! # Ok(())
//! # }
//! ```
//!
//! # How it is made
//!
//! The module [`design`] argues why it is correct; `ARCHITECTURE.md` walks through it, and
//! `docs/format.md` describes every byte.
//!
//! The modules are in layers. Each layer knows only the layers below it:
//!
//! ```text
//!  restore   replay and adoption: tablets from the segments of a former log
//!  cleaner   compaction and combined cleaning
//!  append    the log: heads, digests, operations, and the state that cleaners share with it
//!  options   the settings of a log
//!  index     from the hash of a key to the reference of its entry
//!  memory    seglets, segments, objects, and when memory may be reused
//!  format    the log as bytes: entries, digests, and readers that trust none of them
//!  sync, …   primitives, errors, limits
//! ```

mod append;
mod cleaner;
pub mod design;
mod error;
mod format;
mod index;
mod limits;
mod memory;
mod options;
mod prefetch;
mod restore;
mod sync;

pub use append::{
    Completion, Event, Evicted, ExpectedRead, ExpectedUpdates, FRAMES_SPARE, HashedKey, Keeps, Log,
    NoReplication, Put, Recorder, Replica, Replicator, SegmentBytes, TableLimits, TakeIn,
    TimeSource, Update, Usage, Written,
};
pub use cleaner::{Cleaner, CleanerThreads, Phase, Step};
pub use error::{Damage, Error, OptionsError};
pub use format::entry::FORMAT_VERSION;
#[doc(hidden)]
pub use format::fuzzing;
pub use format::metadata::{Digest, SegmentHeader, SegmentKind, TabletStatistics};
pub use format::unnamed_survivors::UnnamedSurvivors;
pub use format::{filter, inspect};
pub use index::Cursor;
pub use limits::{BATCH, CLEANERS_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use memory::object::{Bytes, Item, Object};
pub use memory::{Memory, SEGLET_BYTES};
pub use options::{CleanerOptions, Options, Tombstones};
pub use restore::{
    AbandonedAdoption, ArrivedRecords, FinishedAdoption, Incoming, Rebuild, Replay, ReplayError,
    Report,
};
pub use thunderhead_wire::{
    Attributes, Condition, KeyHash, LeaseId, LogId, LogPosition, SegmentId, Sequence, TableId,
    TabletRange, Timestamp, ValueKind, Version,
};
