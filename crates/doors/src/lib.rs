//! Doors: the protocols of other stores, so that their clients can use Thunderhead.
//!
//! This crate has the protocols alone, without I/O and without a store: bytes become requests, and
//! results become bytes. Where a protocol's commands are executed here, the store is a trait. The
//! server's door for memcached uses it; no door uses [`resp`] yet.
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
