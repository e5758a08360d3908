//! The cluster behind a command: the client library.

use crate::exit::{Exit, Failure};
use crate::store::Store;
use std::net::TcpStream;
use std::time::Instant;
use thunderhead_config::ClientConfig;

/// Connects to a cluster.
///
/// For the time being it finds out whether a coordinator listens, and no more.
// To become: Client::connect(&Options::new(coordinators)), with `Store` implemented for it here.
pub(crate) fn connect(config: &ClientConfig) -> Result<Box<dyn Store>, Failure> {
    let until = Instant::now() + config.deadline;
    let mut tried = Vec::new();
    for coordinator in &config.coordinators {
        let addresses = match coordinator.resolve() {
            Ok(addresses) => addresses,
            Err(error) => {
                tried.push(format!("{coordinator}: {error}"));
                continue;
            }
        };
        for address in addresses {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                tried.push(format!("{coordinator}: no time was left"));
                break;
            }
            match TcpStream::connect_timeout(&address, left) {
                Ok(_) => {
                    let message = "a coordinator listens, but this program has no client yet";
                    return Err(Failure::new(Exit::Refused, "not_built", message));
                }
                Err(error) => tried.push(format!("{coordinator}: {error}")),
            }
        }
    }
    let message = format!(
        "no coordinator can be reached ({}); check that the cluster runs, or begin with \
         `thunderhead dev`, or name the coordinators with --coordinators",
        tried.join("; ")
    );
    Err(Failure::new(Exit::Unreachable, "unreachable", message))
}
