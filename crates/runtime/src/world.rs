//! All that a program may know of the outside, except the network.

use crate::alarm::Alarm;
use crate::clock::Clock;
use crate::files::Files;
use crate::lasting::Memories;
use crate::random::Random;
use crate::time::Time;
use crate::workers::Workers;
use std::time::Duration;

/// What a process is built from.
pub struct World {
    /// Its clock.
    pub clock: Clock,
    /// Its random numbers.
    pub random: Random,
    /// Its files, to be used while nobody is served yet: they may wait.
    pub files: Box<dyn Files>,
    /// Its memory that outlasts it, to be asked for while nobody is served yet.
    pub memories: Box<dyn Memories>,
    /// What works beside it.
    pub workers: Box<dyn Workers>,
    /// Wakes its reactor.
    pub alarm: Alarm,
}

/// A program that runs: it is given turns on one thread.
pub trait Process {
    /// Takes what has arrived, handles it, sends what came of it. Returns whether there was
    /// anything to do. `now` is the time of this turn, by the world's clock.
    fn turn(&mut self, now: Time) -> bool;

    /// When it wants a turn though nothing arrives.
    fn deadline(&self) -> Option<Time>;

    /// Sleeps until something arrives, but no longer than this. Only called in the os world, after
    /// a turn that did nothing.
    fn sleep(&mut self, at_most: Option<Duration>);
}
