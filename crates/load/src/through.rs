//! A client of a running cluster that keeps requests in flight through the client library.
//!
//! It drives the library's [`Session`] directly, so that any number of operations can be in flight
//! on one thread. The session finds the shards by the tablet map, sends operations for the same
//! shard together, retries, and masks transient faults: changes of the coordinator, servers that
//! restart. So it measures a program that uses the library, not the speed of a shard.
//!
//! An operation that the session abandons counts as failed, also if its outcome is unknown. A wrong
//! answer ends the run: a missing object, or a value that was never written for it.

use crate::channel::Channel;
use crate::content::{NUMBERS, fill, is_right, key};
use crate::distribution::Draw;
use crate::plan::Plan;
use crate::run::{Failures, Record, Work};
use crate::workload::{Kind, Mixture};
use anyhow::{Context as _, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use thunderhead_client::{
    Action, Addresses, Answer, CallNumber, Client, Condition, Number, Operation, Options, Output,
    Results, Session, TableId, Ticket,
};
use thunderhead_net::os::{Options as NetOptions, OsTransport};
use thunderhead_rpc::{CallId, Caller};
use thunderhead_runtime::clock::Clock;
use thunderhead_runtime::polling::Polling;
use thunderhead_runtime::{Time, os};
use thunderhead_wire::control::ServerState;

/// Objects that are written together before the measurement.
const LOADED_TOGETHER: u64 = 1024;

/// The longest sleep, so that the counter of seconds gets its turn.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// A running cluster with a table for the workloads.
#[derive(Clone, Debug)]
pub struct Cluster {
    coordinators: Addresses,
    deadline: Option<Duration>,
    channel: Channel,
    table: TableId,
}

impl Cluster {
    /// Finds the cluster, creates the table over all its shards unless it exists, and writes the
    /// objects of a plan.
    ///
    /// # Errors
    /// When the cluster cannot be reached, or an object cannot be written.
    pub fn prepare(
        coordinators: impl Into<Addresses>,
        deadline: Option<Duration>,
        channel: Channel,
        table: &str,
        plan: &Plan,
    ) -> Result<Cluster> {
        let coordinators = coordinators.into();
        let mut cluster = Cluster { coordinators, deadline, channel, table: TableId(0) };
        let mut client = Client::connect(&cluster.options()).context("find the cluster")?;
        let status = client.status().context("ask the cluster how it is")?;
        let up = status.servers.servers.iter().filter(|it| it.state == ServerState::Up);
        let shards: usize = up.map(|it| it.shards.len()).sum();
        ensure!(shards > 0, "the cluster has no servers; start one with `thunderhead server`");
        cluster.table = client
            .ensure_table(table, shards as u32)
            .with_context(|| format!("make the table {table}"))?;
        let mut next = 0;
        while next < plan.objects {
            let last = (next + LOADED_TOGETHER).min(plan.objects);
            let writes = (next..last).map(|number| cluster.write(plan, number, 0)).collect();
            for result in client.all(writes) {
                result.context("write the objects to begin with")?;
            }
            next = last;
        }
        Ok(cluster)
    }

    fn options(&self) -> Options {
        let shared_memory = self.channel == Channel::Shm;
        let net = NetOptions { shared_memory, ..NetOptions::default() };
        Options { net, ..Options::new(self.coordinators.clone()).deadline(self.deadline) }
    }

    fn operation(&self, key: &[u8], action: Action) -> Operation {
        Operation { table: self.table, key: key.to_vec(), condition: Condition::Always, action }
    }

    fn write(&self, plan: &Plan, number: u64, stamp: u64) -> Operation {
        let mut value = vec![b'v'; plan.value_bytes];
        fill(&mut value, number, stamp);
        self.operation(&key(number), Action::Write(value))
    }
}

/// One or more messages in flight.
struct Flight {
    ticket: Ticket,
    kind: Kind,
    /// Whether this is the write after a read of the same object.
    is_second: bool,
    numbers: Vec<u64>,
    sent: Instant,
}

/// A client. See the module's documentation.
pub struct Through<'a> {
    cluster: &'a Cluster,
    plan: &'a Plan,
    client: u64,
    session: Session,
    caller: Caller,
    clock: Clock,
    calls: BTreeMap<CallId, CallNumber>,
    mixture: Mixture,
    draw: Draw,
    flights: Vec<Flight>,
    stamp: u64,
    inserts: u64,
    /// Inserts without an answer, and inserts that failed.
    unknown: BTreeSet<u64>,
    failures: Failures,
    now: Instant,
}

impl<'a> Through<'a> {
    /// Returns a client of a cluster.
    ///
    /// # Errors
    /// When the kernel has no descriptors.
    pub fn new(cluster: &'a Cluster, plan: &'a Plan, client: usize) -> Result<Through<'a>> {
        let mut world = os::world_without_files()?;
        let transport = Box::new(OsTransport::new(&world, cluster.options().net)?);
        // The client shares the machine with the cluster, and perhaps with many other clients.
        let caller = Caller::new(&world, transport, Polling::default());
        let random = world.random.split();
        Ok(Through {
            cluster,
            plan,
            client: client as u64,
            session: Session::new(cluster.coordinators.clone(), random),
            caller,
            clock: world.clock,
            calls: BTreeMap::new(),
            mixture: plan.workload.mixture(plan.reads),
            draw: Draw::new(plan.distribution, plan.objects, 1 + client as u64),
            flights: Vec::new(),
            stamp: 0,
            inserts: 0,
            unknown: BTreeSet::new(),
            failures: Failures::default(),
            now: Instant::now(),
        })
    }

    fn begin(&mut self) {
        let kind = self.mixture.draw(self.draw.random());
        let mut numbers = Vec::new();
        match kind {
            Kind::Insert => {
                self.unknown.insert(self.inserts);
                numbers.push(self.inserted(self.inserts));
                self.inserts += 1;
            }
            Kind::Increment => numbers.push(NUMBERS + self.draw.number()),
            _ => {
                let count = if kind.is_many() { self.plan.parts } else { 1 };
                for _ in 0..count {
                    let drawn = self.draw.number();
                    numbers.push(match drawn.checked_sub(self.plan.objects) {
                        None => drawn,
                        Some(insert) => self.inserted(insert),
                    });
                }
            }
        }
        self.send(kind, numbers, None);
    }

    /// Returns the number of this client's n-th insert.
    fn inserted(&self, count: u64) -> u64 {
        self.plan.objects + self.client + count * self.plan.clients as u64
    }

    /// Sends operations. `first_sent` is the send time of the read that this write follows.
    fn send(&mut self, kind: Kind, numbers: Vec<u64>, first_sent: Option<Instant>) {
        self.stamp += 1;
        let reads = matches!(kind, Kind::Read | Kind::MultiRead)
            || kind == Kind::ReadModifyWrite && first_sent.is_none();
        let operations = numbers.iter().map(|number| match kind {
            _ if reads => self.cluster.operation(&key(*number), Action::Read),
            Kind::Increment => {
                let by = Action::Increment(Number::Integer(1));
                self.cluster.operation(&key(*number), by)
            }
            _ => self.cluster.write(self.plan, *number, self.stamp),
        });
        let (operations, now) = (operations.collect(), self.clock.now());
        let deadline = self.cluster.deadline.map_or(Time::NEVER, |deadline| now + deadline);
        let ticket = self.session.begin(now, operations, deadline);
        let (is_second, sent) = (first_sent.is_some(), first_sent.unwrap_or(self.now));
        self.flights.push(Flight { ticket, kind, is_second, numbers, sent });
    }

    /// Makes the calls that the session requests, and waits for their outcomes.
    fn go_on(&mut self) -> bool {
        while let Some(output) = self.session.next_output() {
            let Output::Call { number, to, opcode, body, timeout } = output else { continue };
            match self.caller.begin(to, opcode, &[&body], Some(timeout)) {
                Ok(id) => {
                    self.calls.insert(id, number);
                }
                Err(error) => self.session.answered(self.clock.now(), number, Err(error)),
            }
        }
        let Through { session, caller, clock, calls, .. } = self;
        if !session.has_done() {
            let until = session.deadline().unwrap_or(Time::NEVER).min(clock.now() + SLEEP_MAX);
            caller.wait_until(until, &mut |id, outcome: Result<&[u8], _>| {
                if let Some(number) = calls.remove(&id) {
                    session.answered(clock.now(), number, outcome);
                }
            });
        }
        session.tick(clock.now());
        session.has_done()
    }

    fn take(&mut self, record: &mut Record<'_>) -> Result<bool> {
        let arrived = self.go_on();
        // This is also the send time of the next requests.
        self.now = Instant::now();
        while let Some((ticket, results)) = self.session.next_done() {
            let place = self.flights.iter().position(|flight| flight.ticket == ticket);
            let Some(flight) = place.map(|place| self.flights.swap_remove(place)) else { continue };
            self.done(flight, results, record)?;
        }
        Ok(arrived)
    }

    fn done(&mut self, flight: Flight, results: Results, record: &mut Record<'_>) -> Result<()> {
        let Flight { kind, is_second, numbers, sent, .. } = flight;
        ensure!(results.len() == numbers.len(), "the client library lost an operation");
        let mut right = 0;
        for (number, result) in numbers.iter().zip(results) {
            let table = self.cluster.table;
            match result {
                Err(error) => self.failures.add(|| {
                    format!("{} of object {number}: {error} (E{})", kind.name(), error.code())
                }),
                Ok(Answer::Absent) => bail!("object {number} of table {table} is gone"),
                Ok(Answer::Found { value, .. }) => {
                    ensure!(
                        value.len() == self.plan.value_bytes && is_right(&value, *number),
                        "object {number} of table {table} has a value of {} bytes that this \
                         run did not write for it; if another program uses the table, choose another --table",
                        value.len()
                    );
                    right += 1;
                }
                Ok(Answer::Sum { number: Number::Integer(sum), .. }) => {
                    ensure!(sum > 0, "object {number} was incremented and is {sum}");
                    right += 1;
                }
                Ok(_) => right += 1,
            }
        }
        if right == 0 {
            return Ok(());
        }
        if kind == Kind::ReadModifyWrite && !is_second {
            self.send(kind, numbers, Some(sent));
            return Ok(());
        }
        if kind == Kind::Insert {
            let first = numbers.first().copied().unwrap_or_default() - self.plan.objects;
            self.unknown.remove(&(first / self.plan.clients as u64));
            let known = self.unknown.first().copied().unwrap_or(self.inserts);
            self.draw.grow(self.plan.objects + known);
        }
        record(kind, right, self.now - sent);
        Ok(())
    }
}

impl Work for Through<'_> {
    fn turn(&mut self, record: &mut Record<'_>) -> Result<bool> {
        while self.flights.len() < self.plan.depth {
            self.begin();
        }
        self.take(record)
    }

    fn finish(&mut self) -> Result<()> {
        while !self.flights.is_empty() {
            self.take(&mut |_, _, _| {})?;
        }
        // Lets the servers forget this client's records.
        self.session.close(self.clock.now());
        while !self.session.is_idle() {
            self.go_on();
        }
        Ok(())
    }

    fn now(&self) -> Instant {
        self.now
    }

    fn busy(&self) -> u64 {
        0
    }

    fn failures(&self) -> Failures {
        self.failures.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;
    use thunderhead_server::{LocalCluster, LocalOptions};
    use thunderhead_wire::control::Settings;

    #[test]
    fn operations_that_the_library_abandons_count_as_failed() {
        let name = format!("thunderhead-bench-through-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let small = LocalOptions::small(directory.clone());
        let settings = Settings { replicas: 0, self_backup: false, ..small.settings.clone() };
        let options = LocalOptions { shards: 2, backup: None, settings, ..small };
        let local = LocalCluster::start(&options).unwrap();
        let plan = Plan::new(Workload::Write, 1000);
        let (deadline, channel) = (Some(Duration::from_secs(60)), Channel::Shm);
        let at = vec![local.coordinator()];
        let mut client = Client::connect(&Options::new(at.clone())).unwrap();
        while client.status().unwrap().servers.servers.is_empty() {}
        let mut cluster = Cluster::prepare(at, deadline, channel, "t", &plan).unwrap();
        let mut done = 0;
        let mut through = Through::new(&cluster, &plan, 0).unwrap();
        while !through.turn(&mut |_, objects, _| done += objects).unwrap() {}
        through.finish().unwrap();
        assert_eq!(through.failures().count, 0);
        drop(through);
        assert!(done > 0);
        local.leave();
        let _ = local.join();

        cluster.deadline = Some(Duration::from_millis(50));
        let mut through = Through::new(&cluster, &plan, 0).unwrap();
        while through.failures().count == 0 {
            through.turn(&mut |_, _, _| panic!("no server answers")).unwrap();
        }
        let reasons = through.failures().reasons;
        assert!(reasons[0].contains("write of object"), "{reasons:?}");
        drop(through);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
