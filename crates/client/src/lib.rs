//! The client library.
//!
//! - [`Client`]: for a thread that waits for its answers. It does the I/O itself, which is the
//!   fastest way to do one operation after another.
//! - [`AsyncClient`]: for any number of tasks of an asynchronous program, on tokio or another
//!   executor. Requests that tasks make at the same time are sent together.
//! - [`CompletionQueue`]: for the event loops of other languages. It collects the results of many
//!   operations behind a descriptor.
//! - [`ClientPool`]: for the threads of other languages that wait for their answers. It lends each
//!   of them a client.
//!
//! All are thin. All decisions are made in a state machine without I/O and without a clock, which
//! the simulator and other languages drive too. The caller gives a [`Session`] the user's requests
//! ([`Session::begin`], [`Session::ask`]), the answers ([`Session::answered`]) and the time. The
//! session returns the messages to send ([`Session::next_output`]) and the results
//! ([`Session::next_done`], [`Session::next_answer`]). Inside it, a [`Core`] handles the operations
//! on objects, and the session handles everything that concerns the coordinator.
//!
//! # Features
//!
//! - **Routing**: each object goes to the shard that has its tablet. If the shard refuses because
//!   the tablet is elsewhere, or cannot be reached, the client fetches a new map and sends the
//!   operation to the shard that has the tablet now.
//! - **Batches**: operations that are ready at the same time are sent together, one message for
//!   each shard and kind. If a shard does only part of a message, the client sends only the rest
//!   again.
//! - **Exactly once**: each update has a sequence in the client's lease, the same in every attempt,
//!   so that a server does it once. Each message carries the client's first unacknowledged
//!   sequence. The client opens, renews and replaces leases by itself.
//! - **Coordinators**: the client finds the leading coordinator, also after a change of leader.
//! - **Deadlines**: an operation ends by its deadline. The error then says whether an update was
//!   not done, or may have been done.
#![forbid(unsafe_code)]

mod asynchronous;
mod blocking;
mod client;
mod core;
mod enumeration;
mod error;
mod identities;
mod map;
mod operation;
mod pool;
mod question;
mod session;
mod url;

pub use self::asynchronous::{
    AsyncClient, AsyncScan, Completion, CompletionQueue, Outcome, Request, Submission,
};
pub use self::blocking::{Blocking, Coordinators, MapSource, Scan};
pub use self::client::{Client, Options};
pub use self::core::{CallNumber, Core, Output, Results, Ticket};
pub use enumeration::Enumeration;
pub use error::{Error, Obstacle};
pub use map::TabletMap;
pub use operation::{Action, Answer, Number, Object, Operation, Value};
pub use pool::ClientPool;
pub use question::{Question, Reply};
pub use session::Session;
pub use thunderhead_runtime::names::Addresses;
pub use thunderhead_runtime::os::ForkCount;
pub use thunderhead_wire::operations::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use thunderhead_wire::{
    Condition, Format, KeyHash, MasterId, ServerId, Status, TableId, TimeToLive, ValueKind,
    Version, control,
};
pub use url::{ClusterUrl, UrlError};
