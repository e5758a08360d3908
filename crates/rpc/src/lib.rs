//! Requests and replies on top of messages.
//!
//! - [`Opcode`]: the one table of operations, from which name, component, level and the rule for
//!   retries derive.
//! - [`Component`]: a part of a program that serves operations and owns calls and timers.
//! - [`Service`]: a program's handlers for requests, for replies to its own calls, and for timers.
//!   It is a state machine that never blocks. It may answer a request at once or later.
//! - [`Node`]: a service on a transport, as a [`Process`](thunderhead_runtime::Process) to which
//!   either world gives turns. Its tasks make calls with `await`.
//! - [`Caller`]: for a thread that waits for its replies. It does the I/O itself and spins a
//!   little.
//! - [`Retry`]: the rules for calls that failed.
//! - [`LeaderSearch`]: the search for the coordinator that leads.
//!
//! # Promises
//!
//! A call ends with a reply or an error by its deadline. An error says whether the request may have
//! been carried out. A reply reaches only the call that it answers: late and duplicated replies are
//! dropped. Over some transports a request may arrive more than once, so an operation that must not
//! be repeated carries its own identity.
#![forbid(unsafe_code)]

mod caller;
mod calls;
mod component;
mod context;
pub mod echo;
mod leader;
mod node;
mod opcode;
mod retry;
mod tasks;

pub use caller::{Caller, OutcomeHandler};
pub use calls::{CallError, CallId};
pub use component::{Component, OwnerId};
pub use context::{Context, ReplyTo, Request};
pub use leader::LeaderSearch;
pub use node::{Node, Service};
pub use opcode::{Level, Opcode, Repeat, check_levels};
pub use retry::{Decision, Retry};
pub use tasks::TaskCaller;
pub use thunderhead_net::ForeignPeer;
