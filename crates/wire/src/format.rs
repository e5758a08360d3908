//! The format of a cluster: the limit on the structures that its programs may write for others.
//!
//! Segments, storages and the coordinators' records have versions of their own, by which a reader
//! refuses structures that it does not know. That protects the data, but not the cluster: one
//! upgraded program would write structures that all others refuse. So a program writes a new
//! structure only while the *cluster's format* allows it.
//!
//! | format | allowed structures |
//! | --- | --- |
//! | 1 | segments up to format 3, storages of format 1, records without further fields |
//! | 2 | also: tables with options, and tables that lie beside others |
//!
//! - Each server and each coordinator reports the newest format that it knows.
//! - The coordinator keeps the format in force in the cluster's record and sends it to all servers.
//! - A start never changes it. An operator changes it with `thunderhead cluster set format N`; the
//!   leader refuses while any program does not know the format. Until then each program may be
//!   replaced by its former version.
//! - It never goes back. A program that does not know it is refused.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A format of a cluster: the newest form of each structure that its programs may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Format(pub u32);

impl Format {
    /// The first format, which every program knows.
    pub const FIRST: Format = Format(1);

    /// The first format in which a table can lie beside another one.
    pub const TABLES_BESIDE: Format = Format(2);

    /// The newest format that this program knows.
    pub const NEWEST: Format = Format(2);

    /// The first format in which tables have options.
    pub const TABLE_OPTIONS: Format = Format(2);
}

/// The format of a program that reports none.
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
