//! Whole clusters in one deterministic thread: any number of hosts, each with its own clock, disk
//! and place in a network, on virtual time, from one seed. And the judge of what they did.
//!
//! - [`Simulation`]: the hosts, the time, the faults.
//! - [`linearizability`]: whether what clients saw can be explained.
//! - [`register`]: a toy service that keeps its promises, and ways to break it, to prove that the
//!   stack holds and that the judge sees.
//! - [`swarm`]: scenarios drawn from seeds.
//!
//! The same seed gives the same run, to the last bit: [`Simulation::digest`] tells.
#![forbid(unsafe_code)]

mod host;
pub mod linearizability;
pub mod register;
mod scheduling;
mod simulation;
pub mod swarm;

pub use host::{Boot, Program};
pub use scheduling::Scheduling;
pub use simulation::{HostId, Options, Simulation};
