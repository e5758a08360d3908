//! A backup's storage: replicas of other servers' segments, in frames of one preallocated file.
//!
//! ```text
//!  master ──append──► [ buffer ]  shared memory: outlasts the process     reactor: a copy, no wait
//!                         │
//!                         ▼ rounds: data, headers, fdatasync              flusher: a worker
//!                     [ frame  ]  file, direct I/O                        reader: another
//! ```
//!
//! - **An incoming change** is copied into a buffer and checksummed by the reactor. From then on
//!   it survives every crash of the process: the buffers are [lasting memory], and the next
//!   process finds them and brings them to the disk before its first turn.
//! - **A durable change** survives the loss of power. [`Durability`] names the step that an
//!   acknowledgement waits for. With every setting, the disk holds the result of some prefix of
//!   the calls of all masters together: a new head is never missing while the old one is already
//!   closed.
//! - **A read** is verified chunk by chunk, or not served. A frame with a damaged header is
//!   skipped and counted. Damage is told from a write that a power loss tore.
//!
//! # Why a pool and direct writes
//!
//! A mapped file would outlast the process too, and need no pool. But a copy into it may wait: for
//! a page that must be read first, for a page that is being written out, for the kernel's limit on
//! dirty pages; and nothing in a turn may wait. The kernel also writes it back when it likes and
//! has a page of cache for each page of the frames. The pool's pages are always there.
//! `thunderhead-bench backup storage` measures both ways beside plain direct writes: bandwidth, and
//! the longest time that a chunk held the reactor.
//!
//! # Modules
//!
//! [`service`] handles the messages of masters and recoveries; [`store`] holds the frames for it;
//! [`start`] opens the store. `flusher` and [`reader`] are the workers. `pool` has the buffers,
//! and `buffer_record` the file that records their directory. [`layout`] and [`block`] define the
//! file's bytes, which `docs/format.md` describes. [`check`](mod@check) reads a store offline.
//!
//! # Limits
//!
//! The store does not know the contents of a segment; only the service reads them, for recoveries.
//!
//! [lasting memory]: thunderhead_runtime::lasting
#![forbid(unsafe_code)]

pub mod block;
mod buffer_record;
pub mod check;
pub mod error;
mod flusher;
pub mod fuzzing;
pub mod layout;
pub mod limits;
mod lineage;
mod pool;
pub mod reader;
pub mod service;
pub mod start;
pub mod store;
mod unreadable_blocks;

pub use buffer_record::buffer_directory;
pub use error::{OpenError, ReadError, Refusal, Unserved};
pub use layout::{Identity, ReplicaId};
pub use reader::{ReadId, ReplicaBytes};
pub use service::{Local, Service};
pub use start::StartReport;
pub use store::{Ack, Durability, Event, FILE_NAME, Options, Replica, Store, Ticket};
