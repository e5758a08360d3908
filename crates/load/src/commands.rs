//! The workloads as commands.

use crate::workload::Workload;
use anyhow::{Result, bail};

/// A workload with its options `O`, which depend on the target.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command<O: clap::Args> {
    /// Reads of single objects.
    Read(O),
    /// Writes of single objects.
    Write(O),
    /// Reads and writes of single objects.
    Mixed(O),
    /// Reads of many objects in one message.
    Multiread(O),
    /// Writes of many objects in one message.
    Multiwrite(O),
    /// Increments of single objects.
    Increment(O),
    /// YCSB A: half reads, half updates, zipfian.
    YcsbA(O),
    /// YCSB B: 95 % reads, 5 % updates, zipfian.
    YcsbB(O),
    /// YCSB C: reads, zipfian.
    YcsbC(O),
    /// YCSB D: 95 % reads of the latest objects, 5 % inserts.
    YcsbD(O),
    /// YCSB E needs ranges of keys: not supported.
    #[command(hide = true)]
    YcsbE(O),
    /// YCSB F: half reads, half reads followed by a write of the same object, zipfian.
    YcsbF(O),
}

impl<O: clap::Args> Command<O> {
    /// Returns the workload and its options.
    ///
    /// # Errors
    /// When the workload is not supported.
    pub fn into_parts(self) -> Result<(Workload, O)> {
        Ok(match self {
            Command::Read(options) => (Workload::Read, options),
            Command::Write(options) => (Workload::Write, options),
            Command::Mixed(options) => (Workload::Mixed, options),
            Command::Multiread(options) => (Workload::MultiRead, options),
            Command::Multiwrite(options) => (Workload::MultiWrite, options),
            Command::Increment(options) => (Workload::Increment, options),
            Command::YcsbA(options) => (Workload::YcsbA, options),
            Command::YcsbB(options) => (Workload::YcsbB, options),
            Command::YcsbC(options) => (Workload::YcsbC, options),
            Command::YcsbD(options) => (Workload::YcsbD, options),
            Command::YcsbE(_) => bail!(
                "ycsb-e scans ranges of keys, and tables have no order to scan in; run ycsb-a, b, \
                 c, d or f"
            ),
            Command::YcsbF(options) => (Workload::YcsbF, options),
        })
    }
}
