//! The native part of the client for Node.
//!
//! Only bytes cross the border. JavaScript writes the requests of a turn of its event loop into one
//! buffer, and reads all results that are ready from another one: `thunderhead-bindings` describes
//! both. A promise, an error or an object is never made here, because each would cost as much as
//! the operation itself.
//!
//! - `connection`: a connection to a cluster, as JavaScript sees it.
//! - `watch`: a descriptor that Node's event loop watches. All `unsafe` code is there.
//! - `panics`: a panic becomes an exception and prints nothing.
//!
//! Every environment of Node (the main thread and each worker) has connections of its own, which
//! only its thread uses. When an environment ends, its watches end first, then the connections are
//! abandoned: their driver threads leave by themselves and touch nothing of Node.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod connection;
mod panics;
mod watch;
