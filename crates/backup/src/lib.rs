//! A backup's storage: replicas of other servers' segments, in frames of one preallocated file.
//!
//! ```text
//!  master ──append──► [ buffer ]  shared memory: outlasts the process      reactor: a copy, no wait
//!                         │
//!                         ▼ rounds: data, headers, fdatasync               flusher: a worker
//!                     [ frame  ]  file, direct I/O                         reader: another
//! ```
//!
//! - **What arrives** is copied into a buffer and checksummed by the reactor. From then on it
//!   survives every crash of the process: the buffers are [lasting memory], and the next process
//!   finds them and brings them to the disk before its first turn.
//! - **What is durable** survives the loss of power. [`Durability`] says what an acknowledgement
//!   waits for. Whatever it is, what the disk holds is what some prefix of the calls made, of all
//!   masters together: a new head is never missing while the old one is already closed.
//! - **What is read** is verified, chunk by chunk, or not served. A frame whose header is damaged
//!   is skipped and counted. Damage is told from a write that the power loss tore.
//!
//! # Why a pool and direct writes
//!
//! A mapped file would outlast the process too, and need no pool. But a copy into it may wait: for a
//! page that must be read first, for one that is being written out, for the kernel's limit on dirty
//! pages; and nothing in a turn may wait. The kernel also writes it back when it likes and has a
//! page of cache for each page of the frames. The pool's pages are always there. `thunderhead bench
//! backup storage` measures both ways beside plain direct writes: bandwidth, and the longest that a
//! chunk held the reactor.
//!
//! # Modules
//!
//! [`service`] is what masters and recoveries talk to; [`store`] is what it uses; [`start`] opens it; `flusher` and [`reader`] are the workers;
//! `pool` is the buffers, and `whereabouts` a file that says where they are; [`layout`] and [`block`] are the file's bytes, described in
//! `docs/format.md`; [`check`](mod@check) reads a store offline.
//!
//! # What it does not do
//!
//! The store does not know what is in a segment; only the service looks, for recoveries.
//!
//! [lasting memory]: thunderhead_runtime::lasting
#![forbid(unsafe_code)]

mod around;
pub mod block;
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
mod whereabouts;

pub use error::{OpenError, ReadError, Refusal, Unserved};
pub use layout::{Identity, ReplicaId};
pub use reader::{ReadId, ReplicaBytes};
pub use service::{Local, Service};
pub use start::Opened;
pub use store::{Ack, Durability, Event, FILE_NAME, Options, Replica, Store, Ticket};
pub use whereabouts::buffer_directory;
