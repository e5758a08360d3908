//! A whole cluster among faults, drawn from a seed: coordinators over a metastore, servers with
//! their backups, users.
//!
//! ```text
//!  calm: all start, tables are created ─► faults, users work ─► calm: users end, all is read
//! ```
//!
//! The rules that must hold:
//!
//! - The history of the users is linearizable for each object, with each update once, also after
//!   everything is read again at the end: no acknowledged update is lost.
//! - A walk lists each stable object once.
//! - Tables are whole, and exist until they are dropped.
//! - When the faults end, everything is served again within a limit, and all users end.
//! - Then each segment gets all its replicas, as many as there are servers for.
//! - No server fails.
//!
//! Processes crash at any moment: during a turn, or at an operation of their disk. Servers also
//! lose power, if the cluster's durability survives that. In one scene, a single server loses its
//! memory while all replicas on other servers are complete. All of them restart: this scenario does
//! not test servers that never come back.

mod client;
mod clusters;
pub(crate) mod plan;
mod redis;
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

/// The longest time for the cluster to begin.
const BEGINNING: Duration = Duration::from_secs(30);

/// The longest time from the end of the faults until a step is done. It is longer than any wait.
const HEALING: Duration = Duration::from_secs(60);

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcomes {
    /// The digest of the run: equal runs have equal digests.
    pub(crate) digest: u64,
    /// The number of operations on objects.
    pub(crate) operations: usize,
    /// The number of those operations that were answered.
    pub(crate) answered: usize,
    /// The violated rules, if there are any.
    pub(crate) failure: Option<String>,
    /// The events of the run as text, if that was requested.
    pub(crate) trace: Vec<String>,
    /// The virtual time at the end.
    pub(crate) virtual_time: Duration,
    /// The number of turns of all hosts.
    pub(crate) turns: u64,
    /// The counts of events.
    pub(crate) rare_events: RareEvents,
}

/// The counts of a run's events. A swarm with a count of 0 tests less than it claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RareEvents {
    /// Servers that were killed.
    pub(crate) restarts: u64,
    /// Servers that learned that they were declared crashed.
    pub(crate) given_up: u64,
    /// Servers that ended in order.
    pub(crate) left: u64,
    /// Walks that were completed.
    pub(crate) walks: u64,
    /// Tables that users created for themselves.
    pub(crate) made: u64,
    /// Tablets that were split.
    pub(crate) splits: u64,
    /// Tablets that were moved.
    pub(crate) migrations: u64,
    /// Bits that flipped in replicas.
    pub(crate) rotted: u64,
    /// Shards that took back the log of their former generation.
    pub(crate) taken_back: u64,
    /// Changes of `min_replicas`.
    pub(crate) changes: u64,
    /// Servers that lost the memory that outlasts processes.
    pub(crate) forgot: u64,
    /// Runs in which a disk hung for good.
    pub(crate) hung: u64,
    /// Keys that were too complex for the judge.
    pub(crate) not_judged: u64,
}

impl std::ops::AddAssign for RareEvents {
    fn add_assign(&mut self, other: RareEvents) {
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
        self.forgot += other.forgot;
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
        Extras { redis: true, .. } => Plan::of_redis(&mut random),
        _ => Plan::draw(&mut random, extras).with_churn(&mut random),
    };
    let plan = Rc::new(plan);
    let mut world = World::new(seed, &plan, random.split(), keeps_text);
    let mut trace = Vec::new();
    if keeps_text {
        trace.push(format!("{plan:?}"));
    }
    let played = match extras.redis {
        true => redis::play(&mut world, &plan, &mut random),
        false => play(&mut world, &plan, &mut random),
    };
    let failure = played.err();
    trace.extend(world.simulation.take_trace());
    let longest = world.simulation.network().longest_message();
    let failure = failure.or_else(|| {
        let is_too_long = longest > scale::MESSAGE_BYTES_MAX;
        is_too_long.then(|| format!("a message of {longest} bytes was sent"))
    });
    let mut rare_events =
        RareEvents { restarts: world.restarts, given_up: world.given_up, ..RareEvents::default() };
    let seen = world.seeing.seen.borrow();
    let judged = linearizability::check(&seen.history);
    if matches!(judged, Err(Violation::GaveUp(..))) {
        rare_events.not_judged = 1;
    }
    let violation = match judged {
        Ok(()) | Err(Violation::GaveUp(..)) => None,
        Err(violation) => Some(violation.to_string()),
    };
    (rare_events.left, rare_events.walks, rare_events.made) = (world.left, seen.walks, seen.made);
    (rare_events.rotted, rare_events.forgot) = (world.rotted, world.forgot);
    rare_events.hung = u64::from(world.hung.is_some());
    rare_events.changes = seen.changes;
    rare_events.taken_back = world.taken_back.len() as u64;
    (rare_events.splits, rare_events.migrations) = (seen.splits, seen.migrations);
    if keeps_text {
        trace.push(format!("{:?}", seen.counts));
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
        rare_events,
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
    world.suffer(plan, random);
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
