//! The log itself: its state, and all that its own thread does with it.
//!
//! - [`log`] has the [`Log`] and makes its [`tablets`].
//! - [`write`](mod@write), [`read`] and [`batch`] are the operations. [`completions`] and
//!   [`groups`] make updates happen exactly once. [`chains`] do several together.
//! - [`items`] are objects with attributes. [`clock`] is the time by which they expire, and
//!   [`expired`] removes them. [`eviction`] removes objects of a cache to make room, and
//!   [`table_limits`] limits the bytes of a table.
//! - [`heads`] appends to segments and ends turns. [`ledger`] knows which segments a digest names.
//! - [`side_log`] and [`handover`] bring in segments beside the heads, [`adopt`] the segments of a
//!   former generation.
//! - [`replicator`] is the seam to the copies, and [`frames`] counts them.
//! - [`shared`] is the state that cleaners share with the log. [`candidates`] are the segments that
//!   they may clean.
//!
//! The cleaners and the restoring of tablets are layers above this one: the log knows neither.

mod adopt;
mod batch;
pub(crate) mod candidates;
mod chains;
mod clock;
mod completions;
pub(crate) mod eviction;
pub(crate) mod expired;
pub(crate) mod frames;
mod groups;
mod handover;
mod heads;
mod items;
mod ledger;
mod log;
mod read;
mod replicator;
pub(crate) mod shared;
mod side_log;
mod table_limits;
mod tablets;
pub(crate) mod victims;
mod write;

pub(crate) use adopt::SegmentInAdoption;
pub(crate) use batch::Purpose;
pub use batch::{ExpectedUpdates, Put};
pub use chains::Update;
pub use clock::TimeSource;
pub use completions::Completion;
pub use eviction::{Evicted, Keeps};
pub use frames::FRAMES_SPARE;
pub(crate) use log::{Keys, hash_of};
pub use log::{Log, Usage};
pub use read::ExpectedRead;
pub use replicator::{Event, NoReplication, Recorder, Replica, Replicator, SegmentBytes};
pub(crate) use side_log::SideLog;
pub use side_log::TakeIn;
pub use table_limits::TableLimits;
pub(crate) use write::NewVersion;
pub use write::{HashedKey, Written};
