//! Requests and results as bytes.
//!
//! The border between Rust and another language is expensive to cross, and objects are expensive to
//! convert there. So the client for Node crosses it with one buffer of bytes for many
//! requests, and one for many results. [`request`] and [`result`] describe the bytes.
//!
//! A [`ByteQueue`] is a [`CompletionQueue`](thunderhead_client::CompletionQueue) behind such
//! buffers. It also keeps the state of scans.
//!
//! Both ends of a buffer are in the same process and of the same release, so the layouts have no
//! version. A buffer that is malformed is refused as a whole, without a panic.
#![forbid(unsafe_code)]

mod queue;
mod reader;
pub mod request;
pub mod result;

pub use queue::{ByteQueue, SubmitError};
pub use reader::Malformed;
