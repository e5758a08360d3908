//! The client library for C. `clients/c/include/thunderhead.h` is made from this crate.
//!
//! It is thin: each function checks its arguments and calls `thunderhead_client`. It is separate
//! because nothing else in the workspace needs pointers of unknown origin.
//!
//! # Promises
//!
//! - Every function with a status returns. None crashes the program, prints, or waits for longer
//!   than the deadline, if the caller keeps the header's rules for pointers.
//! - No call reports through `errno`, or changes a signal's handler or mask. [`entry`] names the
//!   only global state.
//! - Layouts and numbers stay. Structs grow only at their ends: see [`sized`].
//!
//! Not promised: pointers that are neither `NULL` nor valid are not detected.
//!
//! # The way of a call
//!
//! [`entry`] catches panics and fills the caller's error. [`sized`] is the only module that looks
//! behind the caller's pointers. [`arguments`] checks the values and translates them. [`client`],
//! [`scan`], [`table`] and [`queue`] have the functions. [`batch`] owns results until they are
//! freed.

#![allow(
    clippy::missing_safety_doc,
    reason = "the comments of exported functions are for C programmers; the rules for pointers \
              stand once, at the beginning of the header"
)]

mod abi;
mod arguments;
mod batch;
mod client;
mod entry;
mod expiry;
mod failure;
mod queue;
mod scan;
mod sized;
mod status;
mod table;

pub use abi::*;
pub use batch::th_batch_free;
pub use client::*;
pub use expiry::*;
pub use queue::*;
pub use scan::*;
pub use status::*;
pub use table::*;

use std::ffi::c_char;

/// Returns the version of the library, such as "0.1.0". The text is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn th_library_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Returns the name of a status, such as "TH_CONDITION_FAILED". The text is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn th_status_name(status: th_status) -> *const c_char {
    status::name(status).as_ptr()
}
