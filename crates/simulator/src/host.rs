//! A simulated machine: what outlives its processes, and the process that runs on it.

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

/// What a program is started with.
pub struct Boot {
    /// The world it lives in.
    pub world: World,
    /// Its end of the network.
    pub transport: Box<dyn Transport>,
    /// Its host's address.
    pub address: IpAddr,
}

/// What runs on a host: started anew after every crash.
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
    /// Counts the processes that ran here.
    pub(crate) lives: u64,
    pub(crate) paused_until: u64,
    /// What happens when the machine stops at an operation of its disk or in a turn: the power goes,
    /// or only the process dies.
    pub(crate) stop_is_power: bool,
    /// How long after it stops its program is started again.
    pub(crate) restarts_after: Option<Duration>,
    pub(crate) limits: Limits,
}

/// A process that runs.
pub(crate) struct Running {
    pub(crate) process: Box<dyn Process>,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) alarm: Alarm,
    pub(crate) workers: SimWorkers,
    /// When each worker has its next step, if one is due.
    pub(crate) steps: Vec<Option<u64>>,
    /// Until when each worker is busy.
    pub(crate) busy_until: Vec<u64>,
    /// When it has its next turn.
    pub(crate) turn_at: Option<u64>,
    /// Until when its thread is held up, or in a turn.
    pub(crate) held_until: u64,
    /// It is held up before this turn, and will not be again.
    pub(crate) is_late: bool,
    /// The clock as its next turn has read it, where the thread is stopped behind that.
    pub(crate) has_read: Option<Time>,
    /// For how long its thread is to be stopped behind its next look at the clock.
    pub(crate) stops_for: Option<Duration>,
}

impl Host {
    /// Starts the program.
    pub(crate) fn boot(&mut self, truth: &TrueTime, network: &Network, random: &mut Random) {
        self.lives += 1;
        // Clocks of processes begin anywhere; only differences mean something.
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
