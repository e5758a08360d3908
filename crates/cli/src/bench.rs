//! `thunderhead bench`: workloads on a running cluster, with their throughput and latencies.
//!
//! Measurements without a cluster, of parts of the store, are in a program of their own:
//! `thunderhead-bench`.

use crate::arguments::Common;
use crate::connect::{connect, resolve};
use crate::exit::Failure;
use crate::{foreign, settings};
use std::io;
use thunderhead_load::{cluster, commands};

/// A workload with its options.
pub(crate) type Command = commands::Command<cluster::Arguments>;

/// Runs a workload.
pub(crate) fn run(command: Command, common: &Common) -> Result<(), Failure> {
    let client = settings::effective(common, Vec::new(), &mut io::stderr())?.config().client;
    let (workload, arguments) =
        command.into_parts().map_err(|error| Failure::usage(format!("{error:#}")))?;
    // A cluster that cannot be reached is refused with the message and the status of all commands.
    connect(&client)?;
    let coordinators = resolve(&client.coordinators)?;
    let deadline = Some(client.deadline);
    foreign(cluster::run(workload, &arguments, coordinators, deadline, common.json))
}
