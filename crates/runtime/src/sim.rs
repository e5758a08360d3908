//! The simulated world: clocks that a simulation sets, and disks with faults.
//!
//! The crate `simulator` has the simulation itself, which advances time and gives turns.

pub mod clock;
pub mod disk;
pub mod memory;
pub mod trace;
pub mod workers;
