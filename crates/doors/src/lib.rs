//! Doors: the protocols of other stores, so that their clients can use Thunderhead.
//!
//! This crate has the protocols and the execution of their commands, without I/O and without a
//! store: bytes become requests, and results become bytes. The store is a trait. The doors of
//! `crates/server` implement it for memcached and for Redis.
//!
//! - [`memcached`]: the text protocol with its classic and its meta commands.
//! - [`rdb`]: the form of values in the files of Redis, and in `DUMP`.
//! - [`resp`]: the protocol of Redis, versions 2 and 3, and a server of it.
//!
//! # Promises
//!
//! - A request borrows from the bytes in which it arrived: nothing is copied.
//! - Bytes that are not of the protocol lead to the error that the original server sends, or to the
//!   end of the connection. They never cause a panic, and no memory is allocated by a claimed
//!   length.
//! - It does not matter in which pieces the bytes arrive.

pub mod memcached;
pub mod rdb;
pub mod resp;
