//! Reads of single objects, beside echoes of the same node.

use super::super::run::load;
use super::super::target::Own;
use super::loads::Memory;
use super::{Scale, medians, name, plan};
use crate::log::subject::TABLE;
use crate::requirements::Rows;
use crate::rpc::floors::PATIENCE;
use crate::rpc::floors::load::{Load, generate};
use crate::rpc::subject::{REPLY_FRAME_BYTES, Setup, body, caller, greet, request_frame, world};
use anyhow::{Result, ensure};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use thunderhead_client::{Blocking, TabletMap};
use thunderhead_load::channel::Channel;
use thunderhead_load::content::{KEY_BYTES, is_right, key};
use thunderhead_load::machine::median;
use thunderhead_load::workload::Workload;
use thunderhead_net::os::OsTransport;
use thunderhead_rpc::{Caller, Opcode};
use thunderhead_runtime::Random;
use thunderhead_runtime::polling::Polling;
use thunderhead_wire::frame::{HEAD_BYTES, Head, Kind};
use thunderhead_wire::message::{MESSAGE_HEAD_BYTES, MessageHead};
use thunderhead_wire::operations::{OBJECT_HEAD_BYTES, ObjectHead};
use thunderhead_wire::{Condition, LeaseId, TabletRange};
use zerocopy::IntoBytes;

const VALUE_BYTES: usize = 100;

/// Returns the median of round trips. If reading the clock would matter, each sample is the mean of
/// several.
fn round_trips(rounds: u64, channel: Channel, mut one: impl FnMut() -> Result<()>) -> Result<f64> {
    let together = if channel == Channel::Shm { 16 } else { 1 };
    let (warm_up, measured) = (rounds / together / 10, rounds / together);
    let mut times = Vec::with_capacity(measured as usize);
    for round in 0..warm_up + measured {
        let began = Instant::now();
        (0..together).try_for_each(|_| one())?;
        let took = began.elapsed().as_nanos() as f64 / together as f64;
        if round >= warm_up {
            times.push(took);
        }
    }
    Ok(median(times))
}

fn echo(caller: &mut Caller, address: SocketAddr) -> Result<()> {
    caller.call(address, Opcode::Echo, &[&body()], Some(PATIENCE), |_| ())?;
    Ok(())
}

fn read(caller: &mut Caller, address: SocketAddr, number: u64) -> Result<()> {
    let head = ObjectHead::new(TABLE, KEY_BYTES, Condition::Always, 0);
    let parts: [&[u8]; 2] = [head.as_bytes(), &key(number)];
    let right = |body: &[u8]| {
        body.len() == 8 + VALUE_BYTES && body.get(8..).is_some_and(|value| is_right(value, number))
    };
    let is_right = caller.call(address, Opcode::Read, &parts, Some(PATIENCE), right)?;
    ensure!(is_right, "object {number} has a value that was never written for it");
    Ok(())
}

/// Measures one client that reads one object at a time.
pub(super) fn latencies(scale: &Scale, rows: &mut Rows) -> Result<()> {
    for objects in scale.objects {
        let own = Own { cleaners: 0, ..Own::holding(objects, VALUE_BYTES, 0.9) };
        let mut memory = Memory::new(own.memory_bytes())?;
        for channel in [Channel::Shm, Channel::Tcp] {
            let measure = |address| {
                load(&plan(Workload::Read, objects, 1), channel, address)?;
                let (mut caller, mut random) = (caller(channel)?, Random::from_seed(1));
                let mut turns = Vec::new();
                for _ in 0..scale.turns {
                    let echo = round_trips(scale.rounds, channel, || echo(&mut caller, address))?;
                    let load = memory.dependent_load(scale.rounds * 4);
                    let read = round_trips(scale.rounds, channel, || {
                        read(&mut caller, address, random.below(objects))
                    })?;
                    turns.push([echo, load, read, read - echo - 2.0 * load]);
                }
                Ok(medians(&turns))
            };
            let [echo, load, read, above] = own.beside(channel, measure)?;
            let what = format!(
                "100 B read among {objects} objects, {}, median: {read:.0} ns; echo {echo:.0} ns \
                 and two dependent loads of {load:.0} ns; above them",
                name(channel)
            );
            rows.at_most(&what, 200.0, above, "ns");
        }
    }
    library(scale, rows)
}

/// Measures the same through the client library.
fn library(scale: &Scale, rows: &mut Rows) -> Result<()> {
    let (objects, channel) = (scale.objects[0], Channel::Shm);
    let own = Own { cleaners: 0, ..Own::holding(objects, VALUE_BYTES, 0.9) };
    let [raw, ours, above] = own.beside(channel, |address| {
        load(&plan(Workload::Read, objects, 1), channel, address)?;
        let mut raw = caller(channel)?;
        let (world, _scrap) = world()?;
        let transport = Box::new(OsTransport::new(&world, Setup::from(channel).options())?);
        let caller = Caller::new(&world, transport, Polling::Always);
        let mut map = TabletMap::default();
        map.insert(TabletRange::whole(TABLE), address);
        let mut client = Blocking::new(LeaseId(1), Random::from_seed(1), world.clock, caller, map);
        let (mut turns, mut random) = (Vec::new(), Random::from_seed(2));
        for _ in 0..scale.turns {
            let raw = round_trips(scale.rounds, channel, || {
                read(&mut raw, address, random.below(objects))
            })?;
            let ours = round_trips(scale.rounds, channel, || {
                let number = random.below(objects);
                let found = client.get(TABLE, &key(number))?;
                ensure!(found.is_some_and(|(_, value)| is_right(&value, number)), "a wrong value");
                Ok(())
            })?;
            turns.push([raw, ours, ours - raw]);
        }
        Ok(medians(&turns))
    })?;
    let what = format!(
        "the same of {objects} through the client library: {ours:.0} ns, without {raw:.0} ns; it adds"
    );
    rows.reported(&what, above, "ns");
    Ok(())
}

/// Returns the bytes of a request to read an object, and the place of the object's number in them.
fn read_frame() -> (Vec<u8>, usize) {
    let object = ObjectHead::new(TABLE, KEY_BYTES, Condition::Always, 0);
    let payload_bytes = MESSAGE_HEAD_BYTES + OBJECT_HEAD_BYTES + KEY_BYTES;
    let head = Head { kind: Kind::MESSAGE, payload_bytes }.to_bytes();
    let message = MessageHead::request(1, Opcode::Read.code(), 0);
    let frame = [&head, message.as_bytes(), object.as_bytes(), &key(0)].concat();
    (frame, HEAD_BYTES + MESSAGE_HEAD_BYTES + OBJECT_HEAD_BYTES)
}

/// Measures many connections, with one request in flight on each.
pub(super) fn connections(scale: &Scale, rows: &mut Rows) -> Result<()> {
    let objects = scale.objects[0];
    let own = Own { cleaners: 0, ..Own::holding(objects, VALUE_BYTES, 0.9) };
    let (frame, place) = read_frame();
    let stamp = |bytes: &mut [u8], count: u64| {
        let number = scattered(count, objects);
        bytes[place..place + 8].copy_from_slice(&number.to_le_bytes());
    };
    let drive = |address, is_read: bool, duration: Duration| {
        let reply = HEAD_BYTES + MESSAGE_HEAD_BYTES + 8 + VALUE_BYTES;
        let load = Load {
            address,
            connections: 32,
            depth: 1,
            request: if is_read { &frame } else { &request_frame() },
            reply_bytes: if is_read { reply } else { REPLY_FRAME_BYTES },
            stamp: if is_read { Some(&stamp) } else { None },
            warm_up: duration / 10,
            duration,
        };
        Ok::<_, anyhow::Error>(generate(&load, &mut greet)?.per_second())
    };
    let turns = own.beside(Channel::Tcp, |address| {
        load(&plan(Workload::Read, objects, 1), Channel::Tcp, address)?;
        let turn = |_| {
            let echo = drive(address, false, scale.burst)?;
            let reads = drive(address, true, scale.burst)?;
            Ok([echo, reads, reads / echo])
        };
        (0..scale.bursts).map(turn).collect::<Result<Vec<_>>>()
    })?;
    let [echo, reads, ratio] = medians(&turns);
    let what = format!(
        "reads of one shard, 32 TCP connections, 1 in flight on each: {:.0} K/s, our echo {:.0} K/s",
        reads / 1e3,
        echo / 1e3
    );
    rows.at_least(&what, 0.9, ratio, "×");
    Ok(())
}

/// Returns a pseudo-random object for each request.
#[inline]
fn scattered(count: u64, objects: u64) -> u64 {
    let mixed = count.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    ((u128::from(mixed) * u128::from(objects)) >> 64) as u64
}
