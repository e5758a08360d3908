//! RESP, the protocol of Redis, in its versions 2 and 3, and a server of it without I/O.
//!
//! A [`Parser`] cuts commands out of the bytes of a connection: arrays of bulk strings, or lines
//! that a person types. A [`Writer`] writes replies in the version that the client has asked for.
//! A [`Server`] executes the commands of its clients on a [`store::Store`].
//!
//! The behaviour is that of Redis 8.2, also for bytes that are no commands. A client gets the error
//! that Redis sends, and then the connection must be closed. The differences:
//!
//! - `HELLO` and `INFO` show version 7.4.4. `INFO` also shows the name `thunderhead`.
//! - Memory is full if the store says so. Then every command that writes an object is refused, also
//!   some that Redis executes, such as `EXPIRE`. Commands that delete are executed.
//! - A `MULTI` does everything or nothing. If memory is full at its end, `EXEC` answers
//!   `EXECABORT`. Redis finds that out before the first command.
//! - If a client of another protocol writes and deletes a watched key that did not exist, the key
//!   counts as unchanged.
//! - `SCAN` and `KEYS` have another order. The cursors of `SCAN`, `HSCAN` and so on differ.
//! - If the scores of a sorted set differ, a range of strings has other members. Redis promises
//!   none for such a set. A score of -0 is kept as 0. `LSET` refuses indexes that Redis cuts to
//!   32 bits.
//! - An approximate trim of a stream removes a hundred entries at a time, also with `DELREF` and
//!   `ACKED`. Changes of a stream's groups count as changes of a watched stream.
//! - The replies to `OBJECT` and `MEMORY USAGE` are estimates: the store keeps values in a form of
//!   its own.
//! - A string has at most the length that `proto-max-bulk-len` shows. `LCS` compares at most
//!   sixteen million pairs of bytes.
//! - Some settings have no effect, and `maxmemory` cannot be changed.
//! - `LATENCY` has events of commands only, and `LATENCY DOCTOR` has another text. `DEBUG` knows a
//!   few harmless words.
//! - `HELP` and `COMMAND DOCS` have other texts, and no descriptions of arguments.
//! - `DUMP` writes simple forms that Redis 7.0 reads, and so other bytes than Redis 8.2. `RESTORE`
//!   refuses bytes behind a value.
//! - Modules and replication are missing. Slots of a cluster do not move one by one, and its nodes
//!   have no bus.

mod acl;
mod administration;
mod bit_fields;
mod bits;
#[cfg(test)]
mod bits_tests;
mod blocked;
mod bounds;
mod channels;
#[cfg(test)]
mod channels_tests;
mod client;
mod clients;
mod cluster;
#[cfg(test)]
mod cluster_tests;
mod collection;
#[cfg(test)]
mod collections_tests;
mod command_info;
mod commands;
mod connection;
#[cfg(test)]
mod connection_tests;
mod context;
mod counts;
mod digits;
mod dumps;
mod dumps_streams;
#[cfg(test)]
mod dumps_tests;
mod events;
#[cfg(test)]
mod events_tests;
mod expiries;
mod expiry;
mod extended;
mod geo;
mod geo_hash;
mod geo_search;
#[cfg(test)]
mod geo_tests;
mod glob;
mod gone;
mod hash;
mod hashes;
mod hashes_expiring;
#[cfg(test)]
mod hashes_expiring_tests;
mod header;
mod help;
mod hyperloglog;
#[cfg(test)]
mod hyperloglog_tests;
mod info;
mod inline;
mod key_slots;
mod keys;
#[cfg(test)]
mod keys_tests;
mod latency;
mod lcs;
mod list;
mod list_ends;
mod list_in_place;
mod lists;
mod lists_moving;
#[cfg(test)]
mod lists_tests;
mod long_begun;
mod long_string;
#[cfg(test)]
mod long_string_tests;
mod memory;
#[cfg(test)]
mod models;
mod monitors;
mod number;
mod options;
mod overlay;
mod pages;
mod parser;
mod parts_done;
mod paused;
mod random;
mod refused;
mod router;
mod runs;
#[cfg(test)]
mod runs_tests;
mod scan;
mod score;
mod scripts;
mod server;
#[cfg(test)]
mod server_tests;
mod set;
mod sets;
mod sets_algebra;
mod settings;
mod sketch;
mod slots;
mod slowlog;
mod sort;
mod sorted_set;
mod sorted_sets;
mod sorted_sets_algebra;
mod sorted_sets_pops;
mod sorted_sets_ranges;
mod sorted_sets_scan;
#[cfg(test)]
mod sorted_sets_tests;
mod state;
mod stop;
pub mod store;
mod stream;
mod stream_groups;
mod stream_id;
mod streams;
mod streams_deleting;
mod streams_groups;
#[cfg(test)]
mod streams_groups_tests;
mod streams_info;
#[cfg(test)]
mod streams_model_tests;
mod streams_pending;
mod streams_reading;
#[cfg(test)]
mod streams_tests;
mod streams_trimming;
#[cfg(test)]
mod streams_waits_tests;
mod strings;
#[cfg(test)]
mod strings_tests;
mod sweep;
#[cfg(test)]
mod sweep_tests;
mod tally;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod tracking;
mod tracking_notes;
#[cfg(test)]
mod tracking_tests;
mod transaction;
mod transactions;
#[cfg(test)]
mod transactions_tests;
mod tree;
mod users;
#[cfg(test)]
mod users_tests;
mod varint;
mod waits;
#[cfg(test)]
mod waits_tests;
mod watches;
mod writer;

pub use cluster::{Node, Nodes, Port};
pub use commands::commands_by_group;
pub use key_slots::{PARTS_MAX, Parts, SLOTS, slot_of};
pub use memory::Memory;
pub use number::{double_text, integer_of};
pub use options::{Facts, ServerOptions};
pub use parser::{Arguments, Limits, Parsed, Parser};
pub use router::{Broken, Effects, Router, Wish};
pub use scripts::ScriptClock;
pub use server::{ClientId, Output, Server, Step};
pub use settings::Settings;
pub use sweep::Swept;
pub use writer::{Version, Writer};
