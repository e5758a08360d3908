//! Requests and replies on top of messages.
//!
//! - [`Opcode`]: the one table of operations, from which name, service, level and what may be
//!   repeated derive.
//! - [`Service`]: what a program does with requests, with replies to its own calls, with timers.
//!   Written as a state machine: nothing in it waits. A request may be answered at once or later.
//! - [`Node`]: a service on a transport, as a [`Process`](thunderhead_runtime::Process) that either
//!   world gives its turns. Its tasks call others with `await`.
//! - [`Caller`]: for a thread that waits for its answers: it does the I/O itself and spins a little.
//! - [`Retry`]: what to do about a call that failed.
//!
//! # What is promised
//!
//! A call ends with an answer or an error by its deadline. An error says whether the request may
//! have been carried out. A reply is given to the call it answers, or to nobody: late and repeated
//! ones are dropped. Requests may arrive more than once over some transports; what must not be
//! done twice carries its own identity.
#![forbid(unsafe_code)]

mod caller;
mod calls;
mod context;
pub mod echo;
mod node;
mod opcode;
mod retry;
mod tasks;

pub use caller::{Caller, Done};
pub use calls::{CallError, CallId};
pub use context::{Context, ReplyTo, Request};
pub use node::{Node, Service};
pub use opcode::{Level, Opcode, Repeat, ServiceKind, check_levels};
pub use retry::{Decision, Retry};
pub use tasks::Calling;
