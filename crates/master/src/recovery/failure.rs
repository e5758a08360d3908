//! The causes of failed recoveries. `thunderhead status` shows their texts.

use std::fmt;
use thunderhead_log::{Damage, Error, ReplayError};
use thunderhead_wire::SegmentId;

/// The cause of a failed recovery.
#[derive(Debug)]
pub(super) enum Failure {
    /// The backups of the rebuilt entries took no copies for so long.
    NoCopies { seconds: u64 },
    /// The cleaners freed no memory for so long.
    NoMemoryFreed { seconds: u64 },
    /// No backup has sent a segment for so long.
    Silence { seconds: u64, segment: String, servers: String, reasons: Vec<String> },
    /// No backup can give a segment.
    Lost { segment: SegmentId, reasons: Vec<String> },
    /// An entry of a later version.
    LaterVersion(Damage),
    /// No other replica of the segment can be better.
    Hopeless(ReplayError),
    /// The shard rebuilt a part of the log earlier, so it cannot take the log back.
    RebuiltBefore,
    /// The memory is full.
    MemoryFull(Error),
    /// Any other error of the log.
    Log(Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::NoCopies { seconds } => write!(
                f,
                "for {seconds} seconds its backups have taken no copies of it; see that the \
                 servers that are listed as up can be reached"
            ),
            Failure::NoMemoryFreed { seconds } => write!(
                f,
                "the shard needs more memory: for {seconds} seconds it waited for cleaners to free \
                 some"
            ),
            Failure::Silence { seconds, segment, servers, reasons } => {
                write!(f, "for {seconds} seconds it waited for {segment}, which is on {servers}")?;
                if !reasons.is_empty() {
                    write!(f, "; {}", reasons.join("; "))?;
                }
                write!(f, "; see that these servers run")
            }
            Failure::Lost { segment, reasons } => {
                write!(f, "no backup can give {segment}: {}", reasons.join(", "))
            }
            Failure::LaterVersion(damage) => {
                write!(f, "this version cannot: {damage}; upgrade the server")
            }
            Failure::Hopeless(error) => write!(f, "{error}"),
            Failure::RebuiltBefore => {
                write!(f, "some of it was rebuilt by this shard before, so all of it has to be")
            }
            Failure::MemoryFull(error) => write!(f, "the shard needs more memory: {error}"),
            Failure::Log(error) => write!(f, "{error}"),
        }
    }
}
