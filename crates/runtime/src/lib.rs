//! What programs run on. The same program runs in two worlds:
//!
//! - **os**: the machine's clock, randomness, files and threads;
//! - **sim**: virtual time, numbers from a seed, disks that tear and lose what was not synced.
//!
//! A program is a [`Process`]: something that is given turns on one thread. It is built from a
//! [`World`], which holds all that it may know of the outside except the network (crate `net`).
//! Nothing above this crate and `net` asks the operating system for anything.
//!
//! - A **turn** takes what has arrived, handles it and sends what came of it. Nothing in a turn
//!   waits; long work goes in slices ([`mod@slice`]) with turns between them.
//! - Between turns an os process spins or sleeps as its [`polling::Pacer`] says.
//! - **Tasks** ([`tasks`]) are futures that live on the same thread, for what is easier to say in
//!   steps than in states.
//! - **Workers** ([`workers`]) are for what must wait for a device: threads of their own in the os
//!   world, steps among the turns in the simulator.
//! - **Lasting memory** ([`lasting`]) is written in turns and found again after a crash.
//!
//! `unsafe` is in three files: `os/memory.rs`, `os/together.rs`, and one instruction in `os/ticks.rs`.
#![deny(unsafe_code)]

pub mod alarm;
pub mod clock;
pub mod files;
pub mod lasting;
pub mod names;
pub mod os;
pub mod polling;
mod random;
pub mod sim;
pub mod slice;
pub mod spares;
pub mod tasks;
mod time;
pub mod timers;
pub mod workers;
mod world;

pub use random::Random;
pub use time::Time;
pub use world::{Process, World};
