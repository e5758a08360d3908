//! The runtime of all programs. The same program runs in two worlds:
//!
//! - **os**: the machine's clock, randomness, files and threads;
//! - **sim**: virtual time, numbers from a seed, disks that tear writes and lose unsynced data.
//!
//! A program is a [`Process`], which gets turns on one thread. It is built from a [`World`], which
//! holds all that the program may know of the outside, except the network (crate `net`). Only this
//! crate and `net` call the operating system.
//!
//! - A **turn** takes the arrived messages, handles them and sends the results. No code in a turn
//!   waits; long work goes in slices ([`mod@slice`]) with turns between them.
//! - Between turns an os process spins or sleeps as its [`polling::Pacer`] says.
//! - **Tasks** ([`tasks`]) are futures that live on the same thread. They suit work that is easier
//!   to write as steps than as states.
//! - **Workers** ([`workers`]) wait for devices. They are threads of their own in the os world, and
//!   steps between the turns in the simulator.
//! - **Lasting memory** ([`lasting`]) is written in turns and found again after a crash.
//!
//! `unsafe` is only in files of `os`, each behind a safe interface: `memory.rs` maps memory,
//! `aio.rs` submits writes to the kernel, `code.rs` gives back pages of the program, `heap.rs` sets
//! the allocator's limits, `slices.rs` asks the scheduler for longer slices, `fork.rs` registers a
//! handler of `fork`, and `return_stack.rs` and `ticks.rs` have single instructions.
#![deny(unsafe_code)]

pub mod alarm;
pub mod backoff;
pub mod buffer_pool;
pub mod clock;
pub mod files;
pub mod lasting;
pub mod names;
pub mod optimizations;
pub mod os;
pub mod polling;
mod random;
pub mod sim;
pub mod slice;
pub mod tasks;
mod time;
pub mod timers;
pub mod workers;
mod world;

pub use random::Random;
pub use time::Time;
pub use world::{Process, World};
