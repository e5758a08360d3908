//! A large cluster: many servers, each table spread over all of them. All processes end at once and
//! restart, and the cluster must serve everything again within a limit.
//!
//! Virtual time includes the time of messages, disks and the metastore, but not of processors.
//! Servers work in parallel, the coordinator alone. So the real time of the coordinator's turns is
//! added to the virtual time. It is measured in this build on this machine, as if no turn
//! overlapped with waiting, so the sum is an upper bound.

use super::plan::{Extras, Plan};
use super::world::World;
use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};
use thunderhead_coordinator::Parts;
use thunderhead_metastore::sim::Faults;
use thunderhead_net::sim::Link;
use thunderhead_runtime::sim::disk::DiskModel;
use thunderhead_runtime::{Process, Random, Time};
use thunderhead_server::Probing;
use thunderhead_simulator::Scheduling;
use thunderhead_wire::Generation;
use thunderhead_wire::control::Settings;

/// The longest message: a value of the metastore with its envelope, a map, or a piece of a segment.
pub(crate) const MESSAGE_BYTES_MAX: usize = (1 << 20) + 1024;

/// The size of a cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) servers: usize,
    pub(crate) tables: u64,
}

impl Size {
    /// 1000 tables of 100 tablets each.
    #[allow(dead_code, reason = "the tests run a smaller one")]
    pub(crate) const LARGE: Size = Size { servers: 100, tables: 1000 };
}

/// The results of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    /// The number of tablets, all of which were served before and after.
    pub(crate) tablets: usize,
    /// The virtual time from the end of all processes until everything was served again.
    pub(crate) cold: Duration,
    /// The real time of the coordinators' turns meanwhile.
    pub(crate) coordinator: Duration,
    /// The bytes of the longest message.
    pub(crate) longest: usize,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures { tablets, cold, coordinator, longest } = self;
        write!(
            f,
            "{tablets} tablets are served {:.2} s after a cold start ({:.2} s of virtual time and {:.2} s \
             of the coordinator's); the longest message has {longest} bytes",
            (*cold + *coordinator).as_secs_f64(),
            cold.as_secs_f64(),
            coordinator.as_secs_f64()
        )
    }
}

/// A process whose turns are timed. Nothing of the simulation depends on it.
pub(crate) struct Timed<P> {
    pub(crate) inner: P,
    pub(crate) spent: Rc<Cell<Duration>>,
}

impl<P: Process> Process for Timed<P> {
    #[allow(clippy::disallowed_methods, reason = "this measures real time")]
    fn turn(&mut self, now: Time) -> bool {
        let began = Instant::now();
        let busy = self.inner.turn(now);
        self.spent.set(self.spent.get() + began.elapsed());
        busy
    }

    fn deadline(&self) -> Option<Time> {
        self.inner.deadline()
    }

    fn sleep(&mut self, limit: Option<Duration>) {
        self.inner.sleep(limit);
    }
}

fn plan(size: Size, random: &mut Random) -> Plan {
    Plan {
        servers: size.servers,
        shards: 1,
        users: 0,
        settings: Settings {
            replicas: 2,
            min_replicas: 1,
            durability: "replicated".to_owned(),
            segment_bytes: 128 << 10,
            self_backup: false,
        },
        // Each tablet takes some hundred bytes of memory.
        memory_bytes: 32 * (128 << 10) + size.tables as usize * (4 << 10),
        buffers: 24,
        link: Link { delay: Duration::from_micros(20), ..Link::default() },
        disk: DiskModel::default(),
        scheduling: Scheduling::default(),
        metastore: Faults::none(),
        leadership_ttl: Duration::from_secs(3),
        probing: Probing::default(),
        parts: Parts::default(),
        ..Plan::draw(random, Extras::default())
    }
}

/// The longest time of each step, after which the run fails.
const PATIENCE: Duration = Duration::from_secs(600);

/// Runs the scenario of a seed.
pub(crate) fn run(seed: u64, size: Size) -> Result<Figures, String> {
    let mut random = Random::from_seed(seed);
    let plan = Rc::new(plan(size, &mut random));
    let mut world = World::new(seed, &plan, random.split(), false);
    let is_whole = |world: &World, tables: u64| {
        world.known().is_some_and(|(map, _)| map.tables.len() as u64 == tables) && world.is_whole()
    };
    if !world.until(PATIENCE, World::is_whole) {
        return Err(format!("the servers do not come together: {}", world.describe()));
    }
    let (tables, span) = (size.tables, size.servers as u32);
    world.add_user("maker", move |user| user.make_tables(tables, span));
    let all_made = |world: &World| world.seeing.seen.borrow().working == 0;
    if !world.until(PATIENCE, all_made) || !world.until(PATIENCE, |it| is_whole(it, tables)) {
        return Err(format!("the tables are not made: {}", world.describe()));
    }
    let tablets =
        world.known().map_or(0, |(map, _)| map.tables.iter().map(|it| it.tablets.len()).sum());
    let (began, spent) = (world.simulation.now(), world.spent());
    world.stop_all(Duration::from_millis(100));
    // A new leader first reads that all servers are up, because no server has reported otherwise
    // yet.
    let serves_again = |world: &World| {
        world
            .known()
            .is_some_and(|(_, list)| list.servers.iter().all(|it| it.generation > Generation(1)))
    };
    if !world.until(PATIENCE, |it| serves_again(it) && is_whole(it, tables)) {
        return Err(format!("not everything is served again: {}", world.describe()));
    }
    let cold = world.simulation.now() - began;
    let coordinator = world.spent() - spent;
    // A new client, without a map, reads and writes.
    world.add_user("last", move |user| user.use_tables(tables.min(20)));
    if !world.until(PATIENCE, |world| world.seeing.seen.borrow().working == 0) {
        return Err("a user of the tables does not come to an end".to_owned());
    }
    if let Some(failure) = world.seeing.seen.borrow().failures.first() {
        return Err(failure.clone());
    }
    let longest = world.simulation.network().longest_message();
    Ok(Figures { tablets, cold, coordinator, longest })
}
