//! The simulated world: clocks that a simulation sets, disks that fail as disks do.
//!
//! The simulation itself, which moves time on and gives turns, is the crate `simulator`.

pub mod clock;
pub mod disk;
pub mod memory;
pub mod trace;
pub mod workers;
