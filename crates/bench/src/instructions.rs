//! The work for `cargo xtask instructions`, which counts instructions. A shard and its client take
//! turns on one thread, so that each operation executes the same instructions every time.
//!
//! Callgrind counts from outside, and only within functions that it knows by name: `counted_server`
//! (or `counted_replay`, `counted_take_back`, `counted_clean`) and `counted_client`. The cost of an
//! operation is the difference between two runs with different numbers of operations, so that start
//! and end do not count. Of the kernel only the calls are counted, not their work.

use crate::log::subject::{TABLE, entry_bytes};
use crate::operations::message::Bodies;
use crate::operations::target::{Both, Own};
use crate::rpc::floors::PATIENCE;
use crate::rpc::subject::{Setup, caller, world};
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use clap::ValueEnum;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use thunderhead_load::channel::Channel;
use thunderhead_load::content::{KEY_BYTES, NUMBERS, fill, is_right, key};
use thunderhead_load::workload::Kind;
use thunderhead_log::{
    Cleaner, CleanerOptions, Log, LogId, Memory, NoReplication, Options, Rebuild, Recorder,
    Replica, SegmentId, Step, TabletRange,
};
use thunderhead_net::os::OsTransport;
use thunderhead_rpc::{CallError, Caller, Node, Opcode};
use thunderhead_wire::operations::{Identity, PartHead};
use thunderhead_wire::{LeaseId, Sequence, Status};

/// The number of objects from which all workloads draw.
const OBJECTS: u64 = 10_000;

/// Bytes of a value.
const VALUE_BYTES: usize = 100;

/// Objects in a message of several.
const PARTS: u64 = 70;

/// The lease of updates with an identity: a shard without a coordinator accepts any.
const LEASE: LeaseId = LeaseId(1);

/// The counted operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Operation {
    /// An echo: the cost of a request without an operation.
    Echo,
    /// A read.
    Read,
    /// A read over TCP.
    ReadTcp,
    /// A write without an identity.
    Write,
    /// A write with an identity, which is done exactly once.
    WriteOnce,
    /// The same over TCP.
    WriteOnceTcp,
    /// An increment with an identity.
    Increment,
    /// Objects read in messages of 70.
    MultiRead,
    /// Objects written in messages of 70, without identities.
    MultiWrite,
    /// The same with identities.
    MultiWriteOnce,
    /// Objects replayed, in slices.
    Replay,
    /// Objects taken back with their segments at a start, in slices.
    TakeBack,
    /// Objects moved by a cleaner; nine of ten entries are alive.
    Clean,
}

/// The options of the run.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The operation; if none is given, all are listed.
    pub operation: Option<Operation>,
    /// The number of objects: a multiple of 70, at most 70000.
    #[arg(long, default_value_t = 7000)]
    pub objects: u64,
}

/// Runs this many operations.
///
/// # Errors
/// When an answer is wrong.
pub fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { operation, objects } = *arguments;
    let Some(operation) = operation else { return list() };
    ensure!(
        objects.is_multiple_of(PARTS) && (PARTS..=70_000).contains(&objects),
        "--objects is {objects}; it must be a multiple of {PARTS}, at most 70000"
    );
    match operation {
        Operation::Replay => replay(objects),
        Operation::TakeBack => take_back(objects),
        Operation::Clean => clean(objects),
        _ => Pair::new(operation)?.operations(objects),
    }
}

/// Lists the operations: a name and a description on each line.
fn list() -> Result<()> {
    let mut out = std::io::stdout().lock();
    for operation in Operation::value_variants() {
        let Some(value) = operation.to_possible_value() else { continue };
        let help = value.get_help().map(ToString::to_string).unwrap_or_default();
        writeln!(out, "{}\t{help}", value.get_name())?;
    }
    Ok(())
}

/// A client and a shard.
struct Pair {
    operation: Operation,
    /// The operation in progress: the objects are written before anything else.
    asked: Operation,
    node: Node<Both>,
    caller: Caller,
    address: SocketAddr,
    bodies: Bodies,
    sequence: Sequence,
    numbers: Vec<u64>,
}

/// The outcome of a request.
enum Outcome {
    Waiting,
    Right,
    Wrong(String),
}

/// Takes a turn of the shard.
#[inline(never)]
fn counted_server(node: &mut Node<Both>) {
    node.turn_now();
}

impl Pair {
    fn new(operation: Operation) -> Result<Pair> {
        let over_tcp = matches!(operation, Operation::ReadTcp | Operation::WriteOnceTcp);
        let channel = if over_tcp { Channel::Tcp } else { Channel::Shm };
        // No cleaner runs, so there must be room for all writes.
        let own = Own { cleaners: 0, ..Own::holding(OBJECTS, VALUE_BYTES, 0.04) };
        let (world, _scrap) = world()?;
        let transport = OsTransport::new(&world, Setup::from(channel).options())?;
        let (service, _cleaners) = own.service()?;
        let mut node = Node::new(world, Box::new(transport), service);
        let address = node.listen((Ipv4Addr::LOCALHOST, 0).into()).context("listen")?;
        let (caller, bodies) = (caller(channel)?, Bodies::new(VALUE_BYTES, PARTS as usize));
        let numbers = Vec::new();
        let (asked, sequence) = (operation, Sequence::FIRST);
        let mut pair = Pair { operation, asked, node, caller, address, bodies, sequence, numbers };
        for first in (0..OBJECTS).step_by(PARTS as usize) {
            pair.numbers.clear();
            pair.numbers.extend(first..(first + PARTS).min(OBJECTS));
            pair.one(Operation::MultiWrite)?;
        }
        Ok(pair)
    }

    fn operations(&mut self, objects: u64) -> Result<()> {
        let (operation, mut drawn) = (self.operation, 0u64);
        let many = [Operation::MultiRead, Operation::MultiWrite, Operation::MultiWriteOnce];
        let together = if many.contains(&operation) { PARTS } else { 1 };
        for _ in 0..objects / together {
            self.numbers.clear();
            for _ in 0..together {
                // The step visits every object, in an order that helps neither caches nor the
                // index.
                drawn = (drawn + 6_421) % OBJECTS;
                self.numbers.push(drawn);
            }
            self.one(operation)?;
        }
        Ok(())
    }

    /// Makes one request and checks its answer.
    fn one(&mut self, operation: Operation) -> Result<()> {
        let mut outcome = self.counted_client(Some(operation));
        loop {
            match outcome {
                Outcome::Right => return Ok(()),
                Outcome::Wrong(text) => bail!("{operation:?} of {:?}: {text}", self.numbers),
                Outcome::Waiting => {}
            }
            counted_server(&mut self.node);
            outcome = self.counted_client(None);
        }
    }

    /// Takes a turn of the client, which may begin a request.
    #[inline(never)]
    fn counted_client(&mut self, begin: Option<Operation>) -> Outcome {
        let begun = match begin {
            Some(operation) => {
                self.asked = operation;
                self.begin(operation)
            }
            None => Ok(()),
        };
        if let Err(error) = begun {
            return Outcome::Wrong(error.to_string());
        }
        let (mut outcome, operation, numbers) = (Outcome::Waiting, self.asked, &self.numbers);
        self.caller.poll(&mut |_, answer| outcome = judge(operation, numbers, answer));
        outcome
    }

    #[inline]
    fn begin(&mut self, operation: Operation) -> Result<(), CallError> {
        let Pair { caller, address, bodies, sequence, numbers, .. } = self;
        let identity = Identity::new(LEASE, *sequence, *sequence);
        let (number, stamp) = (numbers.first().copied().unwrap_or(0), sequence.0);
        let echo;
        let (opcode, body) = match operation {
            Operation::Echo => {
                echo = crate::rpc::subject::body();
                (Opcode::Echo, echo.as_slice())
            }
            Operation::Read | Operation::ReadTcp => bodies.read(number),
            // These run without a shard.
            Operation::Replay | Operation::TakeBack | Operation::Clean => bodies.read(number),
            Operation::Write => bodies.write(Identity::NONE, number, stamp),
            Operation::WriteOnce | Operation::WriteOnceTcp => bodies.write(identity, number, stamp),
            Operation::Increment => bodies.increment(identity, NUMBERS + number),
            Operation::MultiRead => bodies.many(Kind::MultiRead, identity, numbers, 0),
            Operation::MultiWrite => bodies.many(Kind::MultiWrite, Identity::NONE, numbers, stamp),
            Operation::MultiWriteOnce => bodies.many(Kind::MultiWrite, identity, numbers, stamp),
        };
        *sequence = sequence.plus(numbers.len() as u64);
        caller.begin(*address, opcode, &[body], Some(PATIENCE)).map(|_| ())
    }
}

/// Checks an answer as a careful client does.
#[inline]
fn judge(operation: Operation, numbers: &[u64], answer: Result<&[u8], CallError>) -> Outcome {
    let body = match answer {
        Ok(body) => body,
        Err(error) => return Outcome::Wrong(error.to_string()),
    };
    let number = numbers.first().copied().unwrap_or(0);
    let is_whole = match operation {
        Operation::Echo => body.len() == crate::rpc::floors::REPLY_BYTES,
        Operation::Read | Operation::ReadTcp => {
            body.get(8..).is_some_and(|value| is_right(value, number))
        }
        Operation::Increment => body.len() == 16,
        Operation::MultiRead | Operation::MultiWrite | Operation::MultiWriteOnce => {
            let mut rest = body;
            let reads = operation == Operation::MultiRead;
            let all = numbers.iter().all(|number| {
                let Some((head, value, behind)) = PartHead::take(rest) else { return false };
                rest = behind;
                let is_done = Status::of_code(head.status()) == Some(Status::Ok);
                is_done && (!reads || is_right(value, *number))
            });
            all && rest.is_empty()
        }
        _ => body.len() == 8,
    };
    if is_whole { Outcome::Right } else { Outcome::Wrong(format!("{} bytes", body.len())) }
}

/// Entries and bytes of a slice: twice those of a step of a recovery master.
const SLICE: (usize, usize) = (64, 32 << 10);

/// Executes a slice of a replay.
#[inline(never)]
fn counted_replay(
    rebuild: &mut Rebuild,
    log: &mut Log,
    bytes: &[u8],
    from: u32,
) -> Result<Option<u32>> {
    let next = rebuild.step(log, bytes, from, SLICE.0, SLICE.1)?;
    log.turn();
    Ok(next)
}

/// Returns the segments of a log into which objects were written, the open one last.
fn written(objects: u64, options: &Options) -> Result<Vec<Replica>> {
    let recorder = Recorder::new();
    let memory = memory(objects)?;
    let mut log = Log::new(&memory, LogId(1), options.clone(), Box::new(recorder.clone()))?;
    log.create_tablet(TabletRange::whole(TABLE))?;
    write(&mut log, objects, 0)?;
    drop(log);
    let replicas = recorder.into_replicas().ok_or_else(|| anyhow!("the recorder is shared"))?;
    Ok(replicas.into_values().collect())
}

/// Returns memory for twice as many objects.
fn memory(objects: u64) -> Result<Arc<Memory>> {
    let bytes = objects * (entry_bytes(VALUE_BYTES) * 2 + 30) + (16 << 20);
    Ok(Memory::with_seglets(bytes as usize, 16 << 10)?)
}

/// Writes objects, and among each ten of them `dead_of_ten` versions of one other object. Each
/// version kills the one before.
fn write(log: &mut Log, objects: u64, dead_of_ten: u64) -> Result<()> {
    let mut value = [b'v'; VALUE_BYTES];
    for number in 0..objects {
        fill(&mut value, number, 1);
        log.write(TABLE, &key(number), &value)?;
        if number % 10 < dead_of_ten {
            log.write(TABLE, &key(objects), &value)?;
        }
    }
    log.turn();
    Ok(())
}

/// Goes through segments slice by slice.
fn in_slices(
    replicas: &[Replica],
    mut slice: impl FnMut(&[u8], u32) -> Result<Option<u32>>,
) -> Result<()> {
    for replica in replicas {
        let mut at = Some(0);
        while let Some(from) = at {
            at = slice(&replica.bytes, from)?;
        }
    }
    Ok(())
}

fn ends_with(objects: u64, taken: u64) -> Result<()> {
    ensure!(taken == objects, "{taken} of {objects} objects of {KEY_BYTES} B keys were taken in");
    Ok(())
}

fn replay(objects: u64) -> Result<()> {
    let options = Options { segment_bytes: 1 << 20, ..Options::default() };
    let replicas = written(objects, &options)?;
    let memory = memory(objects)?;
    let mut log = Log::new(&memory, LogId(2), options, Box::new(NoReplication::default()))?;
    let tablet = (TabletRange::whole(TABLE), SegmentId::NONE);
    let mut rebuild = Rebuild::begin(&mut log, [tablet])?;
    in_slices(&replicas, |bytes, from| counted_replay(&mut rebuild, &mut log, bytes, from))?;
    ends_with(objects, rebuild.finish(&mut log)?.taken)
}

/// Executes a slice of taking back a log.
#[inline(never)]
fn counted_take_back(
    rebuild: &mut Rebuild,
    log: &mut Log,
    bytes: &[u8],
    from: u32,
) -> Result<Option<u32>> {
    Ok(rebuild.adopt(log, bytes, from, SLICE.0, SLICE.1)?)
}

fn take_back(objects: u64) -> Result<()> {
    let options = Options { segment_bytes: 128 << 10, ..Options::default() };
    let replicas = written(objects, &options)?;
    let memory = memory(objects)?;
    let (first, nobody) = (SegmentId(1 << 20), Box::new(NoReplication::default()));
    let mut log = Log::beginning_at(first, &memory, LogId(1), options, nobody)?;
    let tablet = (TabletRange::whole(TABLE), SegmentId::NONE);
    let mut rebuild = Rebuild::take_back(&mut log, [tablet])?;
    while rebuild.make_room(&mut log, tablet.0, objects) {}
    // The open segment is adopted as well, so that all objects count.
    in_slices(&replicas, |bytes, from| counted_take_back(&mut rebuild, &mut log, bytes, from))?;
    ends_with(objects, rebuild.finish(&mut log)?.taken)
}

/// Executes a step of a cleaner.
#[inline(never)]
fn counted_clean(cleaner: &mut Cleaner) -> Step {
    cleaner.step()
}

fn clean(objects: u64) -> Result<()> {
    // Everything is cleaned once, at once, and never by compaction.
    let cleaner = CleanerOptions {
        compaction: false,
        free_fraction_low: 1.0,
        free_share_low: 1.0,
        ..CleanerOptions::default()
    };
    let options = Options { segment_bytes: 512 << 10, cleaner, ..Options::default() };
    let memory = memory(objects)?;
    let mut log = Log::new(&memory, LogId(1), options, Box::new(NoReplication::default()))?;
    log.create_tablet(TabletRange::whole(TABLE))?;
    write(&mut log, objects, 1)?;
    // Moves on until all of the objects are in closed segments.
    let (head, long) = (log.appended().segment, [0; 4096]);
    while log.appended().segment == head {
        log.write(TABLE, &key(objects), &long)?;
    }
    log.turn();
    let mut cleaner = log.cleaner().context("a cleaner")?;
    while counted_clean(&mut cleaner) != Step::Idle {
        log.turn();
    }
    let moved = log.usage().entries_moved;
    ensure!(moved == objects, "{moved} of {objects} objects were moved");
    Ok(())
}
