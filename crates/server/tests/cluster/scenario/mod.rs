//! A whole cluster among faults, drawn from a seed: coordinators over a metastore, servers with
//! their backups, users.
//!
//! ```text
//!  calm: everybody starts, tables are made ─► faults, users work ─► calm: users end, all is read
//! ```
//!
//! What must hold:
//!
//! - what users saw is linearizable for each object, each update once, also after everything was
//!   read again in the end: nothing that was acknowledged is lost;
//! - walks tell of each object that nobody changes once;
//! - tables are whole, and there until they are dropped;
//! - when nothing is wrong any more, everything is served again before long, and everybody comes to
//!   an end;
//! - then each segment gets all its replicas, as many as there are servers for;
//! - no server fails.
//!
//! Processes die at any moment (in the midst of a turn, at an operation of their disk), servers
//! also with the power where the cluster's durability outlasts that. All of them are started again:
//! what becomes of servers that do not come back is not looked at here.

mod client;
mod clusters;
pub(crate) mod plan;
pub(crate) mod scale;
pub(crate) mod user;
pub(crate) mod world;

pub(crate) use plan::Extras;
use plan::Plan;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_runtime::Random;
use thunderhead_simulator::linearizability::{self, Outcome, Violation};
use world::World;

/// How long the cluster has to begin.
const BEGINNING: Duration = Duration::from_secs(30);

/// How long everything has to be as it should once nothing is wrong any more: longer than anything
/// waits.
const HEALING: Duration = Duration::from_secs(60);

/// What a seed led to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcomes {
    /// The same for the same run.
    pub(crate) digest: u64,
    /// Operations on objects.
    pub(crate) operations: usize,
    /// Of these, answered.
    pub(crate) answered: usize,
    /// Why the run is not right, if it is not.
    pub(crate) failure: Option<String>,
    /// What happened, in words, if that was asked for.
    pub(crate) trace: Vec<String>,
    /// Virtual time.
    pub(crate) virtual_time: Duration,
    /// Turns of all hosts.
    pub(crate) turns: u64,
    /// What it came to.
    pub(crate) met: Met,
}

/// What a run came to. A swarm that never meets one of them tests less than it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Met {
    /// Servers that were killed.
    pub(crate) restarts: u64,
    /// Servers that learnt that they were given up.
    pub(crate) given_up: u64,
    /// Servers that ended in order.
    pub(crate) left: u64,
    /// Walks that came to their end.
    pub(crate) walks: u64,
    /// Tables that users made for themselves.
    pub(crate) made: u64,
    /// Tablets that were split.
    pub(crate) splits: u64,
    /// Tablets that were moved.
    pub(crate) migrations: u64,
    /// Bits that turned over in replicas.
    pub(crate) rotted: u64,
    /// Shards that took back the log of their former life.
    pub(crate) taken_back: u64,
    /// Changes of `min_replicas`.
    pub(crate) changes: u64,
    /// Runs in which a disk hung for good.
    pub(crate) hung: u64,
    /// Keys that the judge gave up on.
    pub(crate) not_judged: u64,
}

impl std::ops::AddAssign for Met {
    fn add_assign(&mut self, other: Met) {
        self.restarts += other.restarts;
        self.given_up += other.given_up;
        self.left += other.left;
        self.taken_back += other.taken_back;
        self.walks += other.walks;
        self.made += other.made;
        self.splits += other.splits;
        self.migrations += other.migrations;
        self.rotted += other.rotted;
        self.changes += other.changes;
        self.hung += other.hung;
        self.not_judged += other.not_judged;
    }
}

/// Runs the scenario of a seed.
#[must_use]
pub(crate) fn run(seed: u64, extras: Extras, keeps_text: bool) -> Outcomes {
    if extras.clusters {
        return clusters::run(seed, keeps_text);
    }
    let mut random = Random::from_seed(seed ^ 0x636c_7573_7465_7200);
    let plan = match extras {
        Extras { leaving: true, .. } => Plan::that_leaves(&mut random),
        Extras { scenes: true, .. } => Plan::of_scenes(&mut random),
        _ => Plan::draw(&mut random, extras).with_churn(&mut random),
    };
    let plan = Rc::new(plan);
    let mut world = World::new(seed, &plan, random.split(), keeps_text);
    let mut trace = Vec::new();
    if keeps_text {
        trace.push(format!("{plan:?}"));
    }
    let failure = play(&mut world, &plan, &mut random).err();
    trace.extend(world.simulation.take_trace());
    let longest = world.simulation.network().longest_message();
    let failure = failure.or_else(|| {
        let is_too_long = longest > scale::MESSAGE_BYTES_MAX;
        is_too_long.then(|| format!("a message of {longest} bytes was sent"))
    });
    let mut met = Met { restarts: world.restarts, given_up: world.given_up, ..Met::default() };
    let seen = world.seeing.seen.borrow();
    let judged = linearizability::check(&seen.history);
    if matches!(judged, Err(Violation::GaveUp(..))) {
        met.not_judged = 1;
    }
    let violation = match judged {
        Ok(()) | Err(Violation::GaveUp(..)) => None,
        Err(violation) => Some(violation.to_string()),
    };
    (met.left, met.walks, met.made) = (world.left, seen.walks, seen.made);
    met.rotted = world.rotted;
    met.hung = u64::from(world.hung.is_some());
    met.changes = seen.changes;
    met.taken_back = world.taken_back.len() as u64;
    (met.splits, met.migrations) = (seen.splits, seen.migrations);
    if keeps_text {
        trace.extend(seen.history.iter().map(|operation| format!("{operation:?}")));
    }
    let unknown = seen.history.iter().filter(|it| it.outcome == Outcome::Unknown).count();
    let failures = (seen.failures.iter().take(3).cloned()).chain(violation).chain(failure);
    let failure = failures.collect::<Vec<_>>().join("\n");
    Outcomes {
        digest: world.simulation.digest(),
        operations: seen.history.len(),
        answered: seen.history.len() - unknown,
        failure: (!failure.is_empty()).then_some(failure),
        trace,
        virtual_time: world.simulation.now(),
        turns: world.simulation.turns(),
        met,
    }
}

fn play(world: &mut World, plan: &Plan, random: &mut Random) -> Result<(), String> {
    let may_found = world.until(BEGINNING, |world| {
        world.known().is_some_and(|(_, list)| list.servers.len() == plan.servers)
            && world.is_whole()
    });
    if !may_found {
        return Err(format!("the servers do not come together: {}", world.describe()));
    }
    world.add_user("founder", user::User::found);
    if !world.until(BEGINNING, |world| world.seeing.seen.borrow().tables.len() == 2) {
        return Err(format!("the tables are not made: {}", world.describe()));
    }
    world.add_users();
    world.begin_trouble();
    let end = world.simulation.now() + plan.trouble;
    while world.simulation.now() < end {
        let wait = random.exponential(plan.trouble_every.as_nanos() as f64) as u64;
        world.run_for(Duration::from_nanos(wait).min(plan.trouble));
        world.trouble();
        world.see_lineages();
    }
    world.heal();
    if !world.until(HEALING, World::is_whole) {
        return Err(format!("not everything is served again: {}", world.describe()));
    }
    if !world.until(HEALING, |world| world.seeing.seen.borrow().working == 0) {
        return Err(format!("users do not come to an end: {}", world.describe()));
    }
    world.see_lineages();
    world.add_user("last", |user| user.look_back(Duration::from_secs(20)));
    if !world.until(HEALING, |world| world.seeing.seen.borrow().working == 0) {
        return Err(format!("the last one does not come to an end: {}", world.describe()));
    }
    world.add_user("auditor", user::User::sees_all_replicas);
    if !world.until(HEALING, |world| world.seeing.seen.borrow().working == 0) {
        return Err(format!("replicas are not made up for: {}", world.describe()));
    }
    Ok(())
}
