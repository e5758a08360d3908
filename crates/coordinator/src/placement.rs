//! Decides where tablets and the work of recoveries go.
//!
//! - [`tablets`]: the masters for new tablets, by their number of tablets and their free room.
//! - [`rooms`]: the free room of masters. Only this module sends messages.
//! - [`partitions`]: the parts into which the tablets of a crashed master are divided.
//! - [`recovery_masters`]: the master that rebuilds each part.
//! - [`order`]: the backup that reads each segment, and when.
//! - [`model`]: these decisions of a recovery, for programs that model large clusters.
//!
//! The decisions are not written here: the callers write them.

pub mod model;
pub(crate) mod order;
pub(crate) mod partitions;
pub(crate) mod recovery_masters;
pub(crate) mod rooms;
pub(crate) mod tablets;
