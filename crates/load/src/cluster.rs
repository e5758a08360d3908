//! Workloads on a running cluster, through the client library. The clients share the cores with
//! other programs of the machine, each on a thread of its own.

use crate::options::{MESSAGE_BYTES_MAX, OBJECT_BYTES, Options};
use crate::output::watched;
use crate::plot;
use crate::report::{Report, Settings, line};
use crate::run::{Second, crews};
use crate::through::{Cluster, Through};
use crate::workload::Workload;
use anyhow::Result;
use std::time::Duration;
use thunderhead_client::Addresses;

/// The options of a workload on a running cluster.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    options: Options,
    /// The table to use. It is created if it does not exist, and is not dropped.
    #[arg(long, default_value = "bench")]
    table: String,
}

/// Measures a workload.
///
/// # Errors
/// When an option is invalid, the cluster cannot be reached, or an answer is wrong.
pub fn measure(
    workload: Workload,
    Arguments { options, table }: &Arguments,
    coordinators: impl Into<Addresses>,
    deadline: Option<Duration>,
) -> Result<Report> {
    options.check(workload, || MESSAGE_BYTES_MAX - OBJECT_BYTES)?;
    let plan = options.plan(workload);
    watched(|| format!("writing {} objects", plan.objects));
    let cluster = Cluster::prepare(coordinators, deadline, options.transport, table, &plan)?;
    let make = |client| Through::new(&cluster, &plan, client);
    let mut told = |second: &Second| watched(|| line(second));
    let tally = crews(plan.clients, plan.clients, &|_| None, &make, options.times(), &mut told)?;
    Ok(Report::of(workload, Settings::of(workload, options), &tally))
}

/// Runs a workload and prints the results. Returns false if an operation failed.
///
/// # Errors
/// As [`measure`], and when the results cannot be written.
pub fn run(
    workload: Workload,
    arguments: &Arguments,
    coordinators: impl Into<Addresses>,
    deadline: Option<Duration>,
    json: bool,
) -> Result<bool> {
    let path = arguments.options.plot.as_deref();
    plot::check(path)?;
    measure(workload, arguments, coordinators, deadline)?.publish(json, path)
}
