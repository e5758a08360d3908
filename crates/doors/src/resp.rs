//! RESP, the protocol of Redis, in its versions 2 and 3.
//!
//! A [`Parser`] cuts commands out of the bytes of a connection: arrays of bulk strings, or lines
//! that a person types. A [`Writer`] writes replies in the version that the client has asked for.
//!
//! The behaviour is that of Redis 8.2, also for bytes that are no commands. A client gets the error
//! that Redis sends, and then the connection must be closed.

mod digits;
mod inline;
mod number;
mod parser;
pub mod store;
#[cfg(test)]
mod tests;
mod writer;

pub use number::{double_text, integer_of};
pub use parser::{Arguments, Limits, Parsed, Parser};
pub use writer::{Version, Writer};
