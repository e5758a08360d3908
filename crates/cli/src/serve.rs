//! `thunderhead dev`, `server`, `coordinator`: from the configuration to running processes.
//!
//! The seam to the crate that composes servers: each function gets a checked configuration and
//! returns when the process is to end.

use crate::exit::{Exit, Failure};
use thunderhead_config::{CoordinatorConfig, DevConfig, ServerConfig};

/// Runs a whole cluster in this process.
pub(crate) fn dev(config: &DevConfig) -> Result<(), Failure> {
    // To become: thunderhead_server::run_dev(config).
    let _ = config;
    Err(not_built("dev"))
}

/// Runs a server.
pub(crate) fn server(config: &ServerConfig) -> Result<(), Failure> {
    // To become: thunderhead_server::run_server(config).
    let _ = config;
    Err(not_built("server"))
}

/// Runs a coordinator.
pub(crate) fn coordinator(config: &CoordinatorConfig) -> Result<(), Failure> {
    // To become: thunderhead_server::run_coordinator(config).
    let _ = config;
    Err(not_built("coordinator"))
}

fn not_built(what: &str) -> Failure {
    Failure::new(Exit::Refused, "not_built", format!("`thunderhead {what}` is not built yet"))
}
