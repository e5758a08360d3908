//! A simulated machine: the parts that outlive its processes, and the process that runs on it.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use thunderhead_net::sim::{Network, SimTransport};
use thunderhead_net::{Limits, Transport};
use thunderhead_runtime::alarm::Alarm;
use thunderhead_runtime::clock::Clock;
use thunderhead_runtime::sim::clock::{SimClock, TrueTime};
use thunderhead_runtime::sim::disk::SimDisk;
use thunderhead_runtime::sim::memory::SimMemories;
use thunderhead_runtime::sim::workers::SimWorkers;
use thunderhead_runtime::{Process, Random, Time, World};

/// The arguments with which a program is started.
pub struct Boot {
    /// The program's world.
    pub world: World,
    /// The program's end of the network.
    pub transport: Box<dyn Transport>,
    /// Its host's address.
    pub address: IpAddr,
}

/// The program of a host, started again after every crash.
pub type Program = Rc<dyn Fn(Boot) -> Box<dyn Process>>;

/// A machine.
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) address: IpAddr,
    pub(crate) disk: SimDisk,
    pub(crate) memories: SimMemories,
    pub(crate) program: Program,
    pub(crate) drift: i64,
    pub(crate) running: Option<Running>,
    /// The number of processes that have run here.
    pub(crate) lives: u64,
    pub(crate) paused_until: u64,
    /// The kind of stop, if the machine stops at a disk operation or in a turn: a power loss, or
    /// only a crash of the process.
    pub(crate) stop_is_power: bool,
    /// The time from its stop to its restart.
    pub(crate) restarts_after: Option<Duration>,
    pub(crate) limits: Limits,
}

/// A running process.
pub(crate) struct Running {
    pub(crate) process: Box<dyn Process>,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) alarm: Alarm,
    pub(crate) workers: SimWorkers,
    /// The time of each worker's next step, if one is due.
    pub(crate) steps: Vec<Option<u64>>,
    /// The time until which each worker is busy.
    pub(crate) busy_until: Vec<u64>,
    /// The time of its next turn.
    pub(crate) turn_at: Option<u64>,
    /// The time until which its thread is delayed or in a turn.
    pub(crate) held_until: u64,
    /// Its thread was delayed before this turn, and will not be delayed again.
    pub(crate) is_late: bool,
    /// The clock as its next turn has read it, if the thread is stopped after that.
    pub(crate) has_read: Option<Time>,
    /// The time for which its thread will be stopped after its next reading of the clock.
    pub(crate) stops_for: Option<Duration>,
}

impl Host {
    /// Starts the program.
    pub(crate) fn boot(&mut self, truth: &TrueTime, network: &Network, random: &mut Random) {
        self.lives += 1;
        // Clocks of processes begin anywhere; only differences have a meaning.
        let begins = Time(random.below(1 << 40));
        let clock = Arc::new(SimClock::new(truth.clone(), begins, self.drift));
        let (alarm, workers) = (Alarm::sim(), SimWorkers::default());
        let disk = self.disk.clone();
        let world = World {
            clock: Clock::Sim(Arc::clone(&clock)),
            random: random.split(),
            files: Box::new(self.disk.files()),
            memories: Box::new(self.memories.clone()),
            workers: Box::new(workers.starter(move || Box::new(disk.files()))),
            alarm: alarm.clone(),
        };
        let transport = SimTransport::new(network, self.address, self.limits, 0);
        let boot = Boot { world, transport: Box::new(transport), address: self.address };
        let process = (self.program)(boot);
        let count = workers.count();
        self.running = Some(Running {
            process,
            clock,
            alarm,
            workers,
            steps: vec![None; count],
            busy_until: vec![0; count],
            turn_at: None,
            held_until: 0,
            is_late: false,
            has_read: None,
            stops_for: None,
        });
    }
}
