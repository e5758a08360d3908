//! Whole clusters in one deterministic thread, from one seed: any number of hosts on virtual time,
//! each with its own clock, disk and place in a network. Also the judge of their behaviour.
//!
//! - [`Simulation`]: the hosts, the time, the faults.
//! - [`linearizability`]: judges whether the results that clients saw are possible.
//! - [`register`]: a toy service that keeps its promises, and ways to break each of them. It proves
//!   that the stack works and that the judge notices.
//! - [`swarm`]: scenarios drawn from seeds.
//!
//! The same seed gives the same run, bit for bit: [`Simulation::digest`] proves it.
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
