//! Restores tablets in a log, from segments of another log or of the log's own former generation.
//!
//! - [`replay`] does so segment by segment, and says how the promises are kept.
//! - [`rebuild`] does so piece by piece. It can also adopt segments unchanged.
//! - [`remembered_tombstones`] keeps the tombstones that may kill an object that comes later.
//! - [`rebuild_limit`] lowers the log's limit of frames during a rebuild.
//!
//! This is the highest layer of the crate: it appends to the log as any of its users does.

mod rebuild;
mod rebuild_limit;
mod remembered_tombstones;
mod replay;

pub use rebuild::{AbandonedAdoption, ArrivedRecords, FinishedAdoption, Incoming, Rebuild};
pub use replay::{Replay, ReplayError, Report};
