//! One client that keeps a number of requests in flight, and checks every answer.
//!
//! It sends to one shard in this process; for a running cluster there is
//! [`Through`](thunderhead_load::through::Through). It calls [`Caller`] directly, without the
//! client library, because it must be faster than the shard that it measures. It retries requests
//! for which the shard was too busy. It fails with an error if an answer is wrong: a missing
//! object, a value of another object, an unexpected error.

use super::message::Bodies;
use crate::rpc::floors::PATIENCE;
use crate::rpc::subject::caller;
use anyhow::{Context as _, Result, bail, ensure};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use thunderhead_load::channel::Channel;
use thunderhead_load::content::{NUMBERS, is_right};
use thunderhead_load::distribution::Draw;
use thunderhead_load::plan::Plan;
use thunderhead_load::run::Record;
use thunderhead_load::workload::{Kind, Mixture};
use thunderhead_rpc::{CallError, CallId, Caller, Opcode};
use thunderhead_wire::operations::{Identity, PartHead};
use thunderhead_wire::{LeaseId, Sequence, Status, control};

/// A message in flight, or waiting to be sent again.
struct Flight {
    id: Option<CallId>,
    kind: Kind,
    /// Whether this is the write after a read of the same object.
    is_second: bool,
    sent: Instant,
    first_sequence: Sequence,
    numbers: Vec<u64>,
    /// Objects that earlier attempts have completed.
    done: u64,
}

/// The meaning of an answer.
enum Verdict {
    Done,
    /// Some objects, or all, must be sent again; the completed ones have left the list.
    Again,
    /// The object was read and must now be written.
    Second,
}

/// The target of a client's requests.
#[derive(Clone, Copy, Debug)]
pub struct To {
    /// The shard that has the whole table.
    pub shard: SocketAddr,
    /// The coordinator that grants leases; a shard without one accepts any lease.
    pub coordinator: Option<SocketAddr>,
}

impl From<SocketAddr> for To {
    fn from(shard: SocketAddr) -> To {
        To { shard, coordinator: None }
    }
}

/// The interval at which a lease is renewed; it lasts a few minutes.
const RENEW: Duration = Duration::from_secs(30);

/// The next unused lease for shards in this process, which accept any.
static LEASE: AtomicU64 = AtomicU64::new(1);

/// One client.
pub struct Generator {
    caller: Caller,
    to: To,
    renew_at: Instant,
    plan: Plan,
    /// The client's number.
    client: u64,
    /// The lease of its updates, [`LeaseId::NONE`] for none.
    lease: LeaseId,
    mixture: Mixture,
    draw: Draw,
    bodies: Bodies,
    flights: VecDeque<Flight>,
    /// Answered requests, and requests refused by a busy server; they are processed after the poll.
    answered: Vec<(Flight, Verdict)>,
    spare: Vec<Flight>,
    again: VecDeque<Flight>,
    /// The next update's sequence.
    sequence: Sequence,
    /// Inserts begun.
    inserts: u64,
    /// The time of the last answer.
    pub now: Instant,
    /// How often a server was too busy.
    pub busy: u64,
}

impl Generator {
    /// Returns a client.
    ///
    /// # Errors
    /// When the kernel has no descriptors.
    pub fn new(
        plan: &Plan,
        channel: Channel,
        to: impl Into<To>,
        client: usize,
    ) -> Result<Generator> {
        let (to, mut caller) = (to.into(), caller(channel)?);
        let lease = match to.coordinator {
            _ if !plan.exactly_once => LeaseId::NONE,
            None => LeaseId(LEASE.fetch_add(1, Ordering::Relaxed)),
            Some(coordinator) => open_lease(&mut caller, coordinator)?,
        };
        Ok(Generator {
            caller,
            to,
            renew_at: Instant::now() + RENEW,
            client: client as u64,
            lease,
            mixture: plan.workload.mixture(plan.reads),
            draw: Draw::new(plan.distribution, plan.objects, 1 + client as u64),
            bodies: Bodies::new(plan.value_bytes, plan.parts),
            plan: plan.clone(),
            flights: VecDeque::new(),
            answered: Vec::new(),
            spare: Vec::new(),
            again: VecDeque::new(),
            sequence: Sequence::FIRST,
            inserts: 0,
            now: Instant::now(),
            busy: 0,
        })
    }

    /// Writes the objects of the plan, many at once, and waits for completion.
    ///
    /// # Errors
    /// When a write is refused permanently.
    pub fn load(&mut self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let (mut next, objects) = (0, self.plan.objects);
        while next < objects || self.in_flight() > 0 {
            while next < objects && self.in_flight() < 8 {
                let last = (next + self.plan.parts as u64).min(objects);
                let mut flight = self.blank(Kind::MultiWrite);
                flight.numbers.extend(next..last);
                self.send(flight)?;
                next = last;
            }
            if self.take(&mut |_, _, _| {})? {
                progress(next);
            }
        }
        Ok(())
    }

    /// Begins as many requests as the plan allows, and takes arrived answers; `record` receives
    /// each completed operation.
    ///
    /// # Errors
    /// When an answer is wrong.
    #[inline]
    pub fn turn(&mut self, record: &mut Record<'_>) -> Result<bool> {
        while self.in_flight() < self.plan.depth {
            self.begin()?;
        }
        self.take(record)
    }

    /// Waits for all requests in flight.
    ///
    /// # Errors
    /// When an answer is wrong.
    pub fn finish(&mut self) -> Result<()> {
        while self.in_flight() > 0 {
            self.take(&mut |_, _, _| {})?;
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.flights.len() + self.again.len()
    }

    fn blank(&mut self, kind: Kind) -> Flight {
        let sent = self.now;
        let mut flight = self.spare.pop().unwrap_or_else(|| Flight {
            id: None,
            kind,
            is_second: false,
            sent,
            first_sequence: Sequence::NONE,
            numbers: Vec::new(),
            done: 0,
        });
        flight.numbers.clear();
        (flight.kind, flight.sent, flight.is_second, flight.done) = (kind, sent, false, 0);
        flight
    }

    /// Begins a new operation.
    #[inline]
    fn begin(&mut self) -> Result<()> {
        let kind = self.mixture.draw(self.draw.random());
        let mut flight = self.blank(kind);
        match kind {
            Kind::Insert => {
                flight.numbers.push(self.inserted(self.inserts));
                self.inserts += 1;
            }
            Kind::Increment => flight.numbers.push(NUMBERS + self.draw.number()),
            _ => {
                let count = if kind.is_many() { self.plan.parts } else { 1 };
                for _ in 0..count {
                    let drawn = self.draw.number();
                    flight.numbers.push(self.number(drawn));
                }
            }
        }
        self.send(flight)
    }

    /// Returns the number of this client's n-th insert.
    fn inserted(&self, count: u64) -> u64 {
        self.plan.objects + self.client + count * self.plan.clients as u64
    }

    /// Maps a drawn number to an object: numbers beyond the initial objects are inserts of this
    /// client.
    #[inline]
    fn number(&self, drawn: u64) -> u64 {
        match drawn.checked_sub(self.plan.objects) {
            None => drawn,
            Some(insert) => self.inserted(insert),
        }
    }

    /// Sends a message, or keeps it for later if there is no room.
    #[inline]
    fn send(&mut self, mut flight: Flight) -> Result<()> {
        let oldest = self.flights.front().map_or(self.sequence, |flight| flight.first_sequence);
        let identity = match self.lease {
            LeaseId::NONE => Identity::NONE,
            lease => Identity::new(lease, self.sequence, oldest),
        };
        flight.first_sequence = self.sequence;
        let (number, stamp) = (flight.numbers.first().copied().unwrap_or(0), self.sequence.0);
        let bodies = &mut self.bodies;
        let (opcode, body) = match flight.kind {
            Kind::Read => bodies.read(number),
            Kind::ReadModifyWrite if !flight.is_second => bodies.read(number),
            Kind::Write | Kind::Insert | Kind::ReadModifyWrite => {
                bodies.write(identity, number, stamp)
            }
            Kind::Increment => bodies.increment(identity, number),
            kind => bodies.many(kind, identity, &flight.numbers, stamp),
        };
        match self.caller.begin(self.to.shard, opcode, &[body], Some(PATIENCE)) {
            Ok(id) => {
                self.sequence = self.sequence.plus(flight.numbers.len() as u64);
                flight.id = Some(id);
                self.flights.push_back(flight);
            }
            Err(CallError::Congested) => self.again.push_back(flight),
            Err(error) => bail!("a request could not be sent: {error}"),
        }
        Ok(())
    }

    /// Takes arrived answers. Returns whether there were any.
    #[inline]
    fn take(&mut self, record: &mut Record<'_>) -> Result<bool> {
        let Generator { caller, flights, answered, plan, .. } = self;
        let mut failed = None;
        let arrived = caller.poll(&mut |id, outcome| {
            let place = flights.iter().position(|flight| flight.id == Some(id));
            let Some(mut flight) = place.and_then(|place| flights.remove(place)) else { return };
            match judge(plan, &mut flight, outcome) {
                Ok(verdict) => answered.push((flight, verdict)),
                Err(error) => failed = Some(error),
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        if !arrived && self.again.is_empty() {
            return Ok(false);
        }
        // Messages kept earlier are retried before new ones are kept.
        for _ in 0..self.again.len() {
            if let Some(flight) = self.again.pop_front() {
                self.send(flight)?;
            }
        }
        if !arrived {
            return Ok(false);
        }
        // This is also the send time of the next requests: the clock is read once for each round.
        let now = Instant::now();
        self.now = now;
        if now >= self.renew_at {
            self.renew();
        }
        while let Some((mut flight, verdict)) = self.answered.pop() {
            match verdict {
                Verdict::Done => {
                    let objects = flight.done + flight.numbers.len() as u64;
                    if flight.kind == Kind::Insert {
                        self.inserted_is_known();
                    }
                    record(flight.kind, objects, now - flight.sent);
                    self.spare.push(flight);
                }
                Verdict::Again => {
                    self.busy += 1;
                    self.again.push_back(flight);
                }
                Verdict::Second => {
                    flight.is_second = true;
                    self.send(flight)?;
                }
            }
        }
        Ok(true)
    }

    /// Renews the lease. The answer does not matter: an expired lease shows in the shard's answers.
    fn renew(&mut self) {
        self.renew_at = self.now + RENEW;
        if let (Some(coordinator), true) = (self.to.coordinator, self.lease != LeaseId::NONE) {
            let body = control::to_body(&control::Lease { lease: self.lease });
            let _ = self.caller.begin(coordinator, Opcode::RenewLease, &[&body], Some(PATIENCE));
        }
    }

    /// Makes inserts readable, up to the first that is still in flight.
    fn inserted_is_known(&mut self) {
        // An unprocessed answer may be a refusal by a busy server.
        let answered = self.answered.iter().map(|(flight, _)| flight);
        let waiting = self.flights.iter().chain(&self.again).chain(answered);
        let waiting = waiting.filter(|flight| flight.kind == Kind::Insert);
        let first = waiting.filter_map(|flight| flight.numbers.first()).min();
        let known = match first {
            Some(number) => (number - self.plan.objects) / self.plan.clients as u64,
            None => self.inserts,
        };
        self.draw.grow(self.plan.objects + known);
    }
}

pub(crate) fn open_lease(caller: &mut Caller, coordinator: SocketAddr) -> Result<LeaseId> {
    let body = control::to_body(&control::Empty {});
    let opened = caller.call(coordinator, Opcode::OpenLease, &[&body], Some(PATIENCE), |body| {
        control::of_body::<control::LeaseOpened>(body)
    });
    let opened =
        opened.context("open a lease")?.context("the coordinator's answer is not a lease")?;
    Ok(opened.lease)
}

/// Checks an answer.
#[inline]
fn judge(plan: &Plan, flight: &mut Flight, outcome: Result<&[u8], CallError>) -> Result<Verdict> {
    let number = flight.numbers.first().copied().unwrap_or(0);
    let body = match outcome {
        Ok(body) => body,
        Err(CallError::Refused { status, .. }) if status.is_busy() => return Ok(Verdict::Again),
        Err(error) => return Err(wrong(flight.kind, number, error)),
    };
    let is_read = matches!(flight.kind, Kind::Read | Kind::ReadModifyWrite) && !flight.is_second;
    match flight.kind {
        Kind::MultiRead | Kind::MultiWrite => return judge_many(plan, flight, body),
        _ if is_read => {
            let value = body.get(8..).unwrap_or_default();
            ensure!(
                value.len() == plan.value_bytes && is_right(value, number),
                "object {number} has a value of {} bytes that was never written for it",
                value.len()
            );
        }
        Kind::Increment => {
            let sum = body.get(8..).and_then(|sum| sum.first_chunk()).copied();
            let sum = sum.map_or(0, i64::from_le_bytes);
            ensure!(sum > 0, "object {number} was incremented and is {sum}");
        }
        _ => ensure!(body.len() == 8, "a write was answered with {} bytes", body.len()),
    }
    let goes_on = flight.kind == Kind::ReadModifyWrite && !flight.is_second;
    Ok(if goes_on { Verdict::Second } else { Verdict::Done })
}

fn wrong(kind: Kind, number: u64, error: CallError) -> anyhow::Error {
    let full = matches!(error, CallError::Refused { status: Status::NoSpace, .. });
    let hint = if full { "; lower --objects, --duration or --utilization" } else { "" };
    anyhow::anyhow!("a {} of object {number} failed: {error}{hint}", kind.name())
}

/// Checks an answer to a message of many. Objects to be sent again stay in the list.
#[inline]
fn judge_many(plan: &Plan, flight: &mut Flight, body: &[u8]) -> Result<Verdict> {
    let mut busy = Vec::new();
    check_many(flight.kind, plan.value_bytes, &flight.numbers, body, |number| busy.push(number))?;
    if busy.is_empty() {
        return Ok(Verdict::Done);
    }
    flight.done += (flight.numbers.len() - busy.len()) as u64;
    flight.numbers = busy;
    Ok(Verdict::Again)
}

/// Checks an answer to a message of these objects, whose values have `value_bytes`. `busy` receives
/// each object for which the shard was too busy.
#[inline]
pub(super) fn check_many(
    kind: Kind,
    value_bytes: usize,
    numbers: &[u64],
    body: &[u8],
    mut busy: impl FnMut(u64),
) -> Result<()> {
    let mut rest = body;
    let count = numbers.len();
    for (at, number) in numbers.iter().copied().enumerate() {
        let Some((head, value, behind)) = PartHead::take(rest) else {
            bail!("an answer to {count} operations ends after {at}");
        };
        rest = behind;
        match Status::of_code(head.status()) {
            Some(Status::Ok) if kind != Kind::MultiRead => {}
            Some(Status::Ok) => ensure!(
                value.len() == value_bytes && is_right(value, number),
                "object {number} has a value of {} bytes that was never written for it",
                value.len()
            ),
            Some(status) if status.is_busy() => busy(number),
            Some(status) => {
                let error = CallError::Refused { status, hint: 0, detail: 0 };
                return Err(wrong(kind, number, error));
            }
            None => bail!("object {number} was answered with status {}", head.status()),
        }
    }
    ensure!(rest.is_empty(), "an answer to {count} operations has bytes behind them");
    Ok(())
}
