//! A server with the door for Redis's clients, among faults. It is one server that backs itself
//! up, as `thunderhead redis --data` starts it.
//!
//! The rules, beside those of the other scenarios:
//!
//! - The history of each object is linearizable, whether it is a string, a field of a large hash or
//!   a whole hash. RESP has no versions, so clients write a version beside the object in a `MULTI`,
//!   or they alone write the object.
//! - A `MULTI` is done as a whole or not at all: the sum of all accounts stays the same.
//! - An item of a queue is taken once. At most as many items are lost as pops had no answer.
//! - An object is never there after its expiry by the server's clock, and always before. Once a
//!   client was told that it is gone, no client sees it again.
//! - A subscriber gets the messages of a channel in order and without gaps, and none of a write
//!   that a crash undoes.

mod client;
mod databases;
mod records;
mod resp;
mod step;

use super::world::World;
use super::{BEGINNING, HEALING, Plan, user};
use client::{COUNTERS, Client, State, VERSIONED, Work};
pub(super) use databases::Present;
use records::Records;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use step::{Own, Step};
use thunderhead_rpc::Node;
use thunderhead_runtime::Random;
use thunderhead_simulator::HostId;

/// The port of the door.
pub(super) const PORT: u16 = 6379;

/// The answer to a connection for which there is no room.
pub(super) const FAREWELL: &[u8] = b"-ERR max number of clients reached\r\n";

/// The clients of the door.
struct Clients {
    to: SocketAddr,
    records: Rc<RefCell<Records>>,
}

impl Clients {
    fn add(&self, world: &mut World, name: &str, work: Work) -> (HostId, Rc<RefCell<State>>) {
        let (to, time) = (self.to, world.seeing.time.clone());
        let random = world.simulation.random().split();
        let state = Rc::new(RefCell::new(State::new(work, &self.records, time, random)));
        let of_host = Rc::clone(&state);
        let host = world.simulation.add_host(name, move |boot| {
            let client = Client::new(to, &of_host);
            Box::new(Node::new(boot.world, boot.transport, client))
        });
        (host, state)
    }

    /// Runs until all clients have ended.
    fn end(&self, world: &mut World, patience: Duration) -> bool {
        world.until(patience, |_| {
            let records = self.records.borrow();
            records.working == 0 || !records.failures.is_empty()
        }) && self.records.borrow().failures.is_empty()
    }
}

/// Plays the scenario.
pub(super) fn play(world: &mut World, plan: &Plan, random: &mut Random) -> Result<(), String> {
    let to = SocketAddr::new(world.simulation.address(world.hosts(0)[0]), PORT);
    let clients = Clients { to, records: Rc::default() };
    let result = play_with(world, plan, random, &clients);
    let mut records = clients.records.borrow_mut();
    let mut seen = world.seeing.seen.borrow_mut();
    seen.history.append(&mut records.history);
    seen.failures.append(&mut records.failures);
    seen.counts = std::mem::take(&mut records.counts);
    result
}

/// Waits for the server, and writes the objects for other steps. The returned flag must be set at
/// the end.
fn begin(world: &mut World, plan: &Plan, clients: &Clients) -> Result<Rc<Cell<bool>>, String> {
    let is_together = world.until(BEGINNING, |world| {
        world.known().is_some_and(|(_, list)| list.servers.len() == plan.servers)
            && world.is_whole()
    });
    if !is_together {
        return Err(format!("the server does not begin: {}", world.describe()));
    }
    let is_over = Rc::new(Cell::new(false));
    let (present, over) = (world.databases(), Rc::clone(&is_over));
    world
        .add_user("tables", move |user| user.keep_databases(Rc::clone(&present), Rc::clone(&over)));
    clients.add(world, "founder", Work::Steps(step::founding().into()));
    if !clients.end(world, BEGINNING) {
        return Err(format!("the objects are not written: {}", world.describe()));
    }
    Ok(is_over)
}

fn play_with(
    world: &mut World,
    plan: &Plan,
    random: &mut Random,
    clients: &Clients,
) -> Result<(), String> {
    let is_over = begin(world, plan, clients)?;
    for number in 0..plan.users as u64 {
        let (left, thinks) = (plan.operations, plan.thinks);
        let work = Work::Random { user: number + 1, left, thinks };
        let (host, _) = clients.add(world, &format!("client {number}"), work);
        world.add_victim(host);
    }
    for number in 0..2 {
        let work = Work::Messages { last: Default::default(), since: 0 };
        let (host, _) = clients.add(world, &format!("subscriber {number}"), work);
        if number == 0 {
            world.add_victim(host);
        }
    }
    world.suffer(plan, random);
    world.heal();
    if !world.until(HEALING, World::is_whole) {
        return Err(format!("not everything is served again: {}", world.describe()));
    }
    if !clients.end(world, HEALING) {
        return Err(format!("clients do not come to an end: {}", world.describe()));
    }
    let (_, last) = clients.add(world, "last", Work::Steps(looking_back(clients).into()));
    if !clients.end(world, HEALING) {
        return Err(format!("the last one does not come to an end: {}", world.describe()));
    }
    let remaining = last.borrow().queue.clone().unwrap_or_default();
    clients.records.borrow_mut().check(&remaining);
    is_over.set(true);
    if !world.until(HEALING, |world| world.seeing.seen.borrow().working == 0) {
        return Err(format!("the tables are not kept to the end: {}", world.describe()));
    }
    world.add_user("auditor", user::User::sees_all_replicas);
    if !world.until(HEALING, |world| world.seeing.seen.borrow().working == 0) {
        return Err(format!("replicas are not made up for: {}", world.describe()));
    }
    Ok(())
}

/// Returns steps that read all objects.
fn looking_back(clients: &Clients) -> Vec<Step> {
    let records = clients.records.borrow();
    let mut steps = vec![Step::ReadQueue, Step::ReadFilling, Step::ReadMoney];
    steps.push(Step::ReadCounters((0..COUNTERS).collect()));
    steps.extend((0..VERSIONED).map(|key| Step::Read(key, true)));
    for ((user, kind), last) in &records.own {
        for number in 0..=*last {
            steps.push(Step::ReadOwn(Own::ALL[*kind as usize], (*user, number)));
        }
    }
    steps.extend(records.expiring.keys().map(|number| Step::ReadExpiring(*number, true)));
    steps
}
