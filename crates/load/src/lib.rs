//! What programs that load a store have in common: the objects with their checks, the workloads,
//! the machine's cores and memory, tables, figures and progress.
//!
//! It is apart from `bench` because `thunderhead` loads clusters too, and must not contain the
//! experiments, their simulator and the clients of other stores.
#![allow(clippy::disallowed_methods, reason = "a load is put on the machine itself")]

pub mod channel;
pub mod children;
pub mod cluster;
pub mod commands;
pub mod content;
pub mod crash;
pub mod distribution;
pub mod machine;
pub mod options;
pub mod output;
pub mod plan;
pub mod plot;
pub mod report;
pub mod run;
pub mod table;
pub mod through;
pub mod workload;
