//! The parts of the outside that a program may know, except the network.

use crate::alarm::Alarm;
use crate::clock::Clock;
use crate::files::Files;
use crate::lasting::Memories;
use crate::random::Random;
use crate::time::Time;
use crate::workers::Workers;
use std::time::Duration;

/// The parts from which a process is built.
pub struct World {
    /// Its clock.
    pub clock: Clock,
    /// Its random numbers.
    pub random: Random,
    /// Its files. They may wait, so the process uses them only before it serves requests.
    pub files: Box<dyn Files>,
    /// Its memory that outlasts it. The process requests it only before it serves requests.
    pub memories: Box<dyn Memories>,
    /// Starts its workers.
    pub workers: Box<dyn Workers>,
    /// Wakes its reactor.
    pub alarm: Alarm,
}

/// A running program, which gets turns on one thread.
pub trait Process {
    /// Takes the arrived messages, handles them and sends the results. Returns whether there was
    /// any work. `now` is the time of this turn, by the world's clock.
    fn turn(&mut self, now: Time) -> bool;

    /// Returns the time of the next turn that it needs even if no message arrives.
    fn deadline(&self) -> Option<Time>;

    /// Sleeps until a message arrives, but no longer than `at_most`. The os world calls it after a
    /// turn without work; the simulator never does.
    fn sleep(&mut self, at_most: Option<Duration>);
}
