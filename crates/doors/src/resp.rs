//! RESP, the protocol of Redis, in its versions 2 and 3.
//!
//! A [`Parser`] cuts commands out of the bytes of a connection: arrays of bulk strings, or lines
//! that a person types. A [`Writer`] writes replies in the version that the client has asked for.
//!
//! The behaviour is that of Redis 8.2, also for bytes that are no commands. A client gets the error
//! that Redis sends, and then the connection must be closed.

mod administration;
mod bit_fields;
mod bits;
#[cfg(test)]
mod bits_tests;
mod blocked;
mod channels;
#[cfg(test)]
mod channels_tests;
mod client;
mod clients;
mod command_info;
mod commands;
mod connection;
#[cfg(test)]
mod connection_tests;
mod context;
mod digits;
mod expiry;
mod extended;
mod glob;
mod help;
mod info;
mod inline;
mod keys;
#[cfg(test)]
mod keys_tests;
mod lcs;
mod memory;
mod number;
mod parser;
mod paused;
mod refused;
mod server;
#[cfg(test)]
mod server_tests;
mod settings;
mod slots;
mod stop;
pub mod store;
mod strings;
#[cfg(test)]
mod strings_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod transaction;
mod transactions;
#[cfg(test)]
mod transactions_tests;
mod writer;

pub use memory::Memory;
pub use number::{double_text, integer_of};
pub use parser::{Arguments, Limits, Parsed, Parser};
pub use server::{ClientId, Facts, Output, Server, ServerOptions, Step};
pub use writer::{Version, Writer};
