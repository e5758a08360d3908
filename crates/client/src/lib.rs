//! The client library.
//!
//! - [`Client`]: for a thread that waits for its answers. It does the I/O itself: nothing is faster
//!   for one operation after another.
//! - [`AsyncClient`]: for any number of tasks of an asynchronous program, on tokio or elsewhere. What they
//!   ask for at the same time is sent together.
//!
//! Both are thin. What they decide is decided in a state machine without I/O and without a clock,
//! which the simulator and other languages drive too: a [`Session`] is told what its user wants
//! ([`Session::begin`], [`Session::ask`]), what was answered ([`Session::answered`]) and what time
//! it is. It says what to send ([`Session::next_output`]) and what is done ([`Session::next_done`],
//! [`Session::next_answer`]). In it, a [`Core`] sees to the operations on objects, and the session
//! to all that concerns the coordinator.
//!
//! # What it does for its user
//!
//! - **Routing**: each object goes to the shard that has its tablet. When that says "not here", or
//!   cannot be reached, the map is learnt anew, and the operation goes where it belongs now.
//! - **Batches**: operations that are ready at the same time are sent together, one message for each
//!   shard and kind; of a message that was done in part only the rest is sent again.
//! - **Exactly once**: each update has a sequence in the client's lease, the same in every attempt,
//!   so that a server does it once. Each message says up to where the client has all answers. Leases
//!   are opened, kept and replaced without the user's doing.
//! - **Coordinators**: whoever leads is found, also after it has changed.
//! - **Deadlines**: an operation ends by its deadline. The error then says whether an update was
//!   not done, or may have been.
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
mod question;
mod session;

pub use self::asynchronous::{AsyncClient, AsyncScan};
pub use self::blocking::{Blocking, Coordinators, MapSource, Scan};
pub use self::client::{Client, Options};
pub use self::core::{CallNumber, Core, Output, Results, Ticket};
pub use enumeration::Enumeration;
pub use error::{Error, Obstacle};
pub use map::TabletMap;
pub use operation::{Action, Answer, Number, Object, Operation, Value};
pub use question::{Question, Reply};
pub use session::Session;
pub use thunderhead_runtime::names::Addresses;
pub use thunderhead_wire::{
    Condition, KeyHash, MasterId, ServerId, Status, TableId, ValueKind, Version, control,
};
