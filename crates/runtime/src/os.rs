//! The world of the machine: its files, its threads, and the loop that gives a process its turns.

mod aio;
mod code;
mod descriptors;
mod disk;
mod event_flag;
mod fork;
mod heap;
mod lock;
mod memory;
mod poller;
mod resolver;
mod return_stack;
mod signals;
mod slices;
mod threads;
mod ticks;
mod trust;
mod turns;

pub use code::give_start_back;
pub use descriptors::{descriptor_limit, raise_descriptor_limit};
pub use disk::Directory;
pub use event_flag::EventFlag;
pub use fork::ForkCount;
pub use heap::fix_heap_limits;
pub(crate) use lock::LockedFile;
pub use memory::MemoryDirectory;
pub use poller::{Poller, Ready};
pub use resolver::addresses_of;
pub use return_stack::expect_returns;

pub use signals::on_end_asked;
pub use threads::{Threads, detach};
pub use ticks::OsClock;
pub use trust::{Access, find_trusted, open_trusted};
pub use turns::{LengthHistogram, Turns, watch_turns};

use crate::alarm::Alarm;
use crate::clock::Clock;
use crate::polling::{Pacer, Polling, Usage};
use crate::random::Random;
use crate::world::{Process, World};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::path::Path;

/// Returns the world of this machine, with its files in a directory. Makes the directory if it is
/// missing.
///
/// # Errors
/// If the directory cannot be made, or the kernel refuses an event descriptor.
pub fn world(directory: &Path) -> io::Result<World> {
    world_in(Directory::open(directory)?)
}

/// Returns the world of this machine for a program without files, such as a client.
///
/// # Errors
/// If the kernel refuses an event descriptor.
pub fn world_without_files() -> io::Result<World> {
    world_in(Directory::nowhere())
}

fn world_in(directory: Directory) -> io::Result<World> {
    Ok(World {
        clock: Clock::os(),
        random: Random::from_seed(entropy()),
        files: Box::new(directory.clone()),
        memories: Box::new(MemoryDirectory::default()),
        workers: Box::new(Threads::new(directory)),
        alarm: Alarm::os()?,
    })
}

/// Returns an unpredictable number.
#[must_use]
pub fn entropy() -> u64 {
    // The standard library seeds its hash maps with the system's randomness.
    RandomState::new().build_hasher().finish()
}

/// Gives a process turns until `stop` returns true, which is asked after each turn. Returns the use
/// of the time.
pub fn run(
    process: &mut dyn Process,
    clock: &Clock,
    polling: Polling,
    mut stop: impl FnMut() -> bool,
) -> Usage {
    // The clock is read once a turn: the end of one turn is the beginning of the next. While turns
    // find no work it is read less often.
    let mut now = clock.now();
    let mut pacer = Pacer::new(polling, now);
    let mut idle = 0u32;
    let watched = turns::watched();
    while !stop() {
        let busy = match watched {
            None => process.turn(now),
            Some(turns) => turns.time(|| process.turn(now)),
        };
        idle = if busy { 0 } else { idle.wrapping_add(1) };
        if !idle.is_multiple_of(pacer.idle_turns()) {
            continue;
        }
        now = clock.now();
        if pacer.turn_ended(now, busy) {
            let at_most = process.deadline().map(|at| at.since(now));
            process.sleep(at_most);
            now = clock.now();
            pacer.slept(now);
        } else if !busy && threads::some_work() && pacer.lets_others(now) {
            std::thread::yield_now();
        }
    }
    pacer.usage()
}
