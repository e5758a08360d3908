//! The parts of the latency of messages of many objects. They are found by differences, as in
//! [`copies`](super::copies) for one object: one client has one message in flight at a time.
//!
//! | The request | contains |
//! | --- | --- |
//! | echo of as many bytes there and back | client, network there and back, a turn of the node |
//! | the message, no copies | and the shard's work |
//! | the same, R = 1 on its own disk | and the replication's bookkeeping, and the backup's work |
//! | the same, R = 1 on another server | and the bytes there, the answer, and two more wake-ups |
//! | the same, R = 3 | and two more copies of that, side by side |
//!
//! The first two are measured on a bare shard that also echoes. The cost of copies is measured
//! against a server of a cluster without copies, because a server's reactor may sleep and has more
//! to do.
//!
//! A message is laid out before the clock starts, and its answer is checked after the clock has
//! stopped.

use super::super::generator::{To, check_many, open_lease};
use super::super::message::Bodies;
use super::super::run::load;
use super::super::target::Own;
use super::copies::{OBJECTS, cluster};
use super::{Scale, median_of, medians, name, plan};
use crate::requirements::Rows;
use crate::rpc::floors::PATIENCE;
use crate::rpc::subject::caller;
use anyhow::{Result, ensure};
use std::time::{Duration, Instant};
use thunderhead_load::channel::Channel;
use thunderhead_load::workload::{Kind, Workload};
use thunderhead_rpc::{CallError, Caller, Opcode};
use thunderhead_runtime::Random;
use thunderhead_wire::operations::Identity;
use thunderhead_wire::{LeaseId, Sequence};

/// Objects in a message, and bytes of a value.
const PARTS: usize = 70;
const VALUE_BYTES: usize = 100;

/// The pause before a busy shard is asked again.
const PAUSE: Duration = Duration::from_millis(1);

/// One client, with the bodies of its messages.
struct Client {
    caller: Caller,
    to: To,
    bodies: Bodies,
    random: Random,
    lease: LeaseId,
    sequence: Sequence,
    /// Sizes of the last message and of its answer.
    bytes: (usize, usize),
}

impl Client {
    fn new(channel: Channel, to: To) -> Result<Client> {
        let mut caller = caller(channel)?;
        // A shard without a coordinator accepts any lease, and this is the only client that writes
        // one message at a time.
        let lease = match to.coordinator {
            Some(coordinator) => open_lease(&mut caller, coordinator)?,
            None => LeaseId(u64::MAX),
        };
        let (bodies, random) = (Bodies::new(VALUE_BYTES, PARTS), Random::from_seed(1));
        Ok(Client { caller, to, bodies, random, lease, sequence: Sequence::FIRST, bytes: (0, 0) })
    }

    /// Returns the time of a message and its answer, in nanoseconds. A message for which the shard
    /// was too busy, even in part, is sent again and does not count.
    fn message(&mut self, kind: Kind) -> Result<f64> {
        let began = Instant::now();
        loop {
            if let Some(took) = self.try_message(kind)? {
                return Ok(took);
            }
            ensure!(began.elapsed() < PATIENCE, "the shard was too busy for {PATIENCE:?}");
            std::thread::sleep(PAUSE);
        }
    }

    /// Sends one message; returns `None` if the shard was too busy.
    fn try_message(&mut self, kind: Kind) -> Result<Option<f64>> {
        let numbers: [u64; PARTS] = std::array::from_fn(|_| self.random.below(OBJECTS));
        let identity = Identity::new(self.lease, self.sequence, self.sequence);
        self.sequence = self.sequence.plus(PARTS as u64);
        let (opcode, body) = self.bodies.many(kind, identity, &numbers, self.sequence.0);
        let began = Instant::now();
        let answered = self.caller.call(self.to.shard, opcode, &[body], Some(PATIENCE), |answer| {
            let took = began.elapsed().as_nanos() as f64;
            let mut busy = 0;
            let checked = check_many(kind, VALUE_BYTES, &numbers, answer, |_| busy += 1);
            (took, checked.map(|()| busy == 0), answer.len())
        });
        let (took, checked, bytes) = match answered {
            Err(CallError::Refused { status, .. }) if status.is_busy() => return Ok(None),
            answered => answered?,
        };
        self.bytes = (body.len(), bytes);
        Ok(checked?.then_some(took))
    }

    /// Returns the time of an echo with as many bytes as the last message and its answer had.
    fn echo(&mut self) -> Result<f64> {
        let (there, back) = self.bytes;
        let mut body = vec![b'v'; there.max(4)];
        body[..4].copy_from_slice(&(back as u32).to_le_bytes());
        let began = Instant::now();
        let took =
            self.caller.call(self.to.shard, Opcode::Echo, &[&body], Some(PATIENCE), |_| {
                began.elapsed().as_nanos() as f64
            })?;
        Ok(took)
    }
}

/// Returns the medians of an echo, if the node echoes, and of a message; and the sizes of the
/// message and its answer.
fn measure(
    scale: &Scale,
    channel: Channel,
    to: To,
    kind: Kind,
    echoes: bool,
) -> Result<([f64; 2], (usize, usize))> {
    load(&plan(Workload::MultiWrite, OBJECTS, 1), channel, to)?;
    let mut client = Client::new(channel, to)?;
    let rounds = scale.rounds / 8;
    median_of(rounds, || client.message(kind))?;
    let mut turns = Vec::new();
    for _ in 0..scale.turns.min(15) {
        let echo = if echoes { median_of(rounds, || client.echo())? } else { 0.0 };
        turns.push([echo, median_of(rounds, || client.message(kind))?]);
    }
    Ok((medians(&turns), client.bytes))
}

pub(super) fn rows(scale: &Scale, rows: &mut Rows) -> Result<()> {
    for channel in [Channel::Shm, Channel::Tcp] {
        for (kind, work) in [
            (Kind::MultiRead, "look-ups, values copied into the answer"),
            (Kind::MultiWrite, "log, index, records, answer"),
        ] {
            let own = Own { cleaners: 0, ..Own::holding(OBJECTS, VALUE_BYTES, 0.1) };
            let ([echo, message], (there, back)) =
                own.beside(channel, |address| measure(scale, channel, address.into(), kind, true))?;
            let label = format!(
                "timeline of a {} of {PARTS}, {}: client, network, turn ({there} B there, {back} B back)",
                kind.name(),
                name(channel)
            );
            rows.reported(&label, echo / 1e3, "µs");
            let label = format!("timeline, then the shard: {work}");
            rows.reported(&label, (message - echo) / 1e3, "µs");
            if kind == Kind::MultiRead {
                continue;
            }
            let in_cluster = |replicas, is_remote| -> Result<f64> {
                let own = cluster(replicas, is_remote);
                let measured =
                    own.in_cluster(channel, |place| measure(scale, channel, place.to, kind, false));
                Ok(measured?.0[1])
            };
            let mut before = in_cluster(0, false)?;
            let label = "timeline, then a server of a cluster around it, without copies";
            rows.reported(label, (before - message) / 1e3, "µs");
            for (replicas, is_remote, label) in super::copies::STEPS {
                let message = in_cluster(replicas, is_remote)?;
                rows.reported(&format!("timeline, then {label}"), (message - before) / 1e3, "µs");
                before = message;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_message_counts_although_its_lease_is_new_to_the_shard() {
        let (channel, kind) = (Channel::Shm, Kind::MultiWrite);
        let took = cluster(0, false).in_cluster(channel, |place| {
            load(&plan(Workload::MultiWrite, OBJECTS, 1), channel, place.to)?;
            let mut client = Client::new(channel, place.to)?;
            client.message(kind)
        });
        assert!(took.unwrap() > 0.0);
    }
}
