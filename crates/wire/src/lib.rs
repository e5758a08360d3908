//! The types that every part of Thunderhead shares: the ids of tables, segments, versions and log
//! positions, each a type of its own so that none can be taken for another; the layouts of frames,
//! messages and operations; statuses.
//!
//! This crate does no I/O and holds no state. `docs/protocol.md` describes the bytes; golden
//! vectors in the tests here pin them.
#![forbid(unsafe_code)]

mod attributes;
pub mod command;
mod condition;
pub mod control;
mod format;
pub mod frame;
mod ids;
pub mod membership;
pub mod message;
pub mod migration;
pub mod operations;
pub mod replication;
mod status;
mod time_to_live;
mod value;

pub use attributes::{Attributes, EncodedAttributes, Timestamp};
pub use condition::Condition;
pub use format::Format;
pub use ids::{
    ClusterId, Epoch, Generation, KeyHash, LeaseId, LogId, LogPosition, MasterId, RecoveryId,
    SegmentId, Sequence, ServerId, TableId, TabletRange, Version,
};
pub use status::{Next, Status};
pub use time_to_live::TimeToLive;
pub use value::ValueKind;
