//! The format of a cluster: what its programs may write where others read it.
//!
//! Segments, storages and the coordinators' records have versions of their own, by which a reader refuses what it
//! does not know. That protects the data, but not the cluster: one upgraded program would write what
//! all others refuse. So a program writes what is new only while the *cluster's format* allows it.
//!
//! | format | what it allows |
//! | --- | --- |
//! | 1 | segments up to format 3, storages of format 1, records without a field that this table does not name |
//!
//! - Each server and each coordinator says which format is the newest that it knows.
//! - The coordinator keeps the format in force in the cluster's record and tells it to all servers.
//! - A start never changes it. An operator does, with `thunderhead cluster set format N`, and the leader refuses while
//!   any program does not know the format. Until then each program may be replaced by its former version.
//! - It never goes back. A program that does not know it is refused.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A format of a cluster: the newest form of each structure that its programs may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Format(pub u32);

impl Format {
    /// The first one, which every program knows.
    pub const FIRST: Format = Format(1);

    /// The newest one that this program knows.
    pub const NEWEST: Format = Format(1);
}

/// What a program that does not say anything knows.
impl Default for Format {
    fn default() -> Format {
        Format::FIRST
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "format {}", self.0)
    }
}
