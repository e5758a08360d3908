//! Ids that every part of Thunderhead shares: what a table, a key's hash, a segment, a version
//! and a log position are, as types that cannot be taken for one another.
//!
//! This crate does no I/O and holds no state. Message layouts join it with the RPC layer.
#![forbid(unsafe_code)]

mod ids;

pub use ids::{KeyHash, LogId, LogPosition, SegmentId, TableId, TabletRange, Version};
