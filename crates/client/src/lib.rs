//! The core of the client library: everything that a client decides, and no I/O.
//!
//! A [`Core`] is told what its user wants ([`Core::begin`]), what servers answered
//! ([`Core::answered`]), what the coordinator knows ([`Core::learn`]), and what time it is. It says
//! what to send ([`Core::next_output`]) and what is done ([`Core::next_done`]). Fronts do the I/O:
//! a thread that waits, an event loop, the simulator, other languages.
//!
//! # What it does for its user
//!
//! - **Routing**: each object goes to the shard that has its tablet. When that says "not here", or
//!   cannot be reached, the map is learnt anew, and the operation goes where it belongs now.
//! - **Batches**: the operations of one call are sent together, one message for each shard and
//!   kind, all at once; of a message that was done in part only the rest is sent again.
//! - **Exactly once**: each update has a sequence in the client's lease, the same in every attempt,
//!   so that a server does it once. Each message says up to where the client has all answers.
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
pub use operation::{Action, Answer, Number, Object, Operation};
pub use question::{Question, Reply};
pub use session::Session;
pub use thunderhead_wire::{
    Condition, KeyHash, MasterId, ServerId, Status, TableId, Version, control,
};
