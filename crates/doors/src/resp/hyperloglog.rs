//! Commands about HyperLogLogs, which are strings: `GET` and `SET` move them.

use super::commands::{ADMIN, Command, DENYOOM, FAST, Group, Keys, READONLY, WRITE};
use super::context::{Context, from};
use super::events::Kinds;
use super::parser::Arguments;
use super::sketch::{self, Corrupted, REGISTERS, Registers, Sketch};
use super::stop::{Done, Stop};
use super::store::{Found, Kind};

pub(super) const COMMANDS: &[Command] = &[
    Command::new("pfadd", -2, WRITE | DENYOOM | FAST, pfadd)
        .keys(&[Keys::one("RW insert", 1)])
        .about(Group::HyperLogLog, "2.8.9", "Adds elements to a HyperLogLog."),
    Command::new("pfcount", -2, READONLY, pfcount)
        .keys(&[Keys::range("RW access", 1, -1, 1).note(
            "RW because it may change the internal representation of the key, and propagate to \
             replicas",
        )])
        .about(Group::HyperLogLog, "2.8.9", "Estimates the number of different elements."),
    Command::new("pfmerge", -2, WRITE | DENYOOM, pfmerge)
        .keys(&[Keys::one("RW access insert", 1), Keys::range("RO access", 2, -1, 1)])
        .about(Group::HyperLogLog, "2.8.9", "Joins HyperLogLogs into one."),
    Command::new("pfselftest", 1, ADMIN, pfselftest).about(
        Group::HyperLogLog,
        "2.8.9",
        "Tests the code of HyperLogLogs.",
    ),
];

const NOT_A_SKETCH: Stop = Stop::error("WRONGTYPE Key is not a valid HyperLogLog string value.");

impl From<Corrupted> for Stop {
    fn from(_: Corrupted) -> Stop {
        Stop::error("INVALIDOBJ Corrupted HLL object detected")
    }
}

/// Reads a sketch with its time of expiry; `None` if there is none.
fn sketch_of(found: Option<Found<'_>>) -> Result<Option<(Sketch, Option<u64>)>, Stop> {
    let Some(found) = found else { return Ok(None) };
    let sketch = Sketch::of(found.value).ok_or(NOT_A_SKETCH)?;
    Ok(Some((sketch, found.expires)))
}

fn pfadd(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let key = &arguments[1];
    let sparse_bytes_max = context.state.settings.sketch_bytes_max();
    let found = sketch_of(context.objects.find_kind(key, Kind::String)?)?;
    let mut is_changed = found.is_none();
    let (mut sketch, expires) = found.unwrap_or_else(|| (Sketch::new(), None));
    for element in from(arguments, 2) {
        is_changed |= sketch.add(element, sparse_bytes_max)?;
    }
    if is_changed {
        sketch.forget_cached();
        context.objects.put(key, sketch.into_bytes(), Kind::String, expires)?;
        context.objects.event(Kinds::STRING, "pfadd", key);
    }
    context.reply.integer(i64::from(is_changed));
    Ok(())
}

fn pfcount(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let estimate = match arguments.len() {
        2 => count_one(context, &arguments[1])?,
        _ => {
            let mut registers = [0; REGISTERS];
            for key in from(arguments, 1) {
                merge(context, key, &mut registers)?;
            }
            sketch::estimate(&registers)
        }
    };
    context.reply.integer(estimate as i64);
    Ok(())
}

/// Returns the estimate of one sketch, and keeps it there.
fn count_one(context: &mut Context<'_>, key: &[u8]) -> Result<u64, Stop> {
    let found = sketch_of(context.objects.read_kind(key, Kind::String)?)?;
    let Some((mut sketch, expires)) = found else { return Ok(0) };
    if let Some(estimate) = sketch.cached() {
        return Ok(estimate);
    }
    let estimate = sketch.estimate()?;
    sketch.cache(estimate);
    context.objects.put(key, sketch.into_bytes(), Kind::String, expires)?;
    Ok(estimate)
}

/// Raises registers to those of a key. Returns whether it has the dense encoding.
fn merge(context: &mut Context<'_>, key: &[u8], registers: &mut Registers) -> Result<bool, Stop> {
    let found = sketch_of(context.objects.read_kind(key, Kind::String)?)?;
    let Some((sketch, _)) = found else { return Ok(false) };
    sketch.merge_into(registers)?;
    Ok(sketch.is_dense())
}

fn pfmerge(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let key = &arguments[1];
    let sparse_bytes_max = context.state.settings.sketch_bytes_max();
    let (mut registers, mut is_dense) = ([0; REGISTERS], false);
    for key in from(arguments, 1) {
        is_dense |= merge(context, key, &mut registers)?;
    }
    let found = sketch_of(context.objects.find_kind(key, Kind::String)?)?;
    let (mut sketch, expires) = found.unwrap_or_else(|| (Sketch::new(), None));
    if is_dense {
        sketch.make_dense()?;
        sketch.set_dense(&registers);
    } else {
        for (index, value) in registers.iter().enumerate().filter(|(_, value)| **value > 0) {
            sketch.raise(index, *value, sparse_bytes_max)?;
        }
    }
    sketch.forget_cached();
    context.objects.put(key, sketch.into_bytes(), Kind::String, expires)?;
    context.objects.event(Kinds::STRING, "pfadd", key);
    context.ok();
    Ok(())
}

/// Adds elements to a sparse and to a dense sketch, which must have the same registers.
fn pfselftest(context: &mut Context<'_>, _: Arguments<'_>) -> Done {
    const ELEMENTS: u32 = 10_000;
    let (mut sparse, mut dense) = (Sketch::new(), Sketch::new());
    dense.make_dense()?;
    for element in 0..ELEMENTS {
        let element = element.to_le_bytes();
        sparse.add(&element, usize::MAX)?;
        dense.add(&element, 0)?;
    }
    let (estimate, other) = (sparse.estimate()?, dense.estimate()?);
    if estimate != other || estimate.abs_diff(u64::from(ELEMENTS)) > u64::from(ELEMENTS) / 20 {
        return Err(Stop::error("ERR TESTFAILED the sketches of the same elements differ"));
    }
    context.ok();
    Ok(())
}
