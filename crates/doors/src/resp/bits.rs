//! Commands about the bits of strings. The first bit of a byte is its highest one.

use super::commands::{Command, DENYOOM, FAST, Group, Keys, READONLY, WRITE};
use super::context::{Context, from, is};
use super::events::Kinds;
use super::long_string::Text;
use super::number::integer_of;
use super::parser::Arguments;
use super::stop::{self, Done, Stop};
use super::store::Kind;
use super::strings::part;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("setbit", 4, WRITE | DENYOOM, setbit)
        .keys(&[Keys::one("RW access update", 1)])
        .about(Group::Bitmap, "2.2.0", "Sets a bit of a string and returns the one before."),
    Command::new("getbit", 3, READONLY | FAST, getbit).keys(&[Keys::one("RO access", 1)]).about(
        Group::Bitmap,
        "2.2.0",
        "Returns a bit of a string.",
    ),
    Command::new("bitcount", -2, READONLY, bitcount).keys(&[Keys::one("RO access", 1)]).about(
        Group::Bitmap,
        "2.6.0",
        "Counts the bits of a string that are set.",
    ),
    Command::new("bitpos", -3, READONLY, bitpos).keys(&[Keys::one("RO access", 1)]).about(
        Group::Bitmap,
        "2.8.7",
        "Finds the first bit of a string that is set, or is not.",
    ),
    Command::new("bitop", -4, WRITE | DENYOOM, bitop)
        .keys(&[Keys::one("OW update", 2), Keys::range("RO access", 3, -1, 1)])
        .about(Group::Bitmap, "2.6.0", "Combines the bits of strings."),
    Command::new("bitfield", -2, WRITE | DENYOOM, bitfield)
        .keys(&[Keys::one("RW access update variable_flags", 1)
            .note("This command allows both access and modification of the key")])
        .about(Group::Bitmap, "3.2.0", "Reads and writes integers of any width within a string."),
    Command::new("bitfield_ro", -2, READONLY | FAST, bitfield_ro)
        .keys(&[Keys::one("RO access", 1)])
        .about(Group::Bitmap, "6.0.0", "Reads integers of any width within a string."),
];

const BAD_OFFSET: Stop = Stop::error("ERR bit offset is not an integer or out of range");

/// Reads the place of a bit: of the n-th integer of a width, if it begins with `#`.
pub(super) fn offset_of(
    context: &Context<'_>,
    text: &[u8],
    width: Option<u32>,
) -> Result<u64, Stop> {
    let (text, factor) = match (text, width) {
        ([b'#', rest @ ..], Some(width)) => (rest, u64::from(width)),
        (text, _) => (text, 1),
    };
    let number = integer_of(text).and_then(|number| u64::try_from(number).ok());
    let offset = number.and_then(|number| number.checked_mul(factor)).ok_or(BAD_OFFSET)?;
    match offset / 8 < context.objects.string_bytes_max() as u64 {
        true => Ok(offset),
        false => Err(BAD_OFFSET),
    }
}

fn bit(value: &[u8], offset: u64) -> bool {
    value.get((offset / 8) as usize).is_some_and(|byte| byte >> (7 - offset % 8) & 1 == 1)
}

fn setbit(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let key = &arguments[1];
    let offset = offset_of(context, &arguments[2], None)?;
    let set = match &arguments[3] {
        b"0" => false,
        b"1" => true,
        _ => return Err(Stop::error("ERR bit is not an integer or out of range")),
    };
    let (byte, mask) = ((offset / 8) as usize, 0x80 >> (offset % 8));
    let (mut value, expires) = match context.objects.find_text(key)? {
        Some(Text::Whole(found)) => (found.value.to_vec(), found.expires),
        Some(Text::Long(long)) => {
            let part = context.objects.part_of(&long, byte..byte.saturating_add(1))?;
            let old = part.first().copied().unwrap_or(0);
            let new = if set { old | mask } else { old & !mask };
            context.reply.integer(i64::from(old & mask != 0));
            if part.is_empty() || new != old {
                context.objects.patch(key, long, byte, &[new])?;
                context.objects.event(Kinds::STRING, "setbit", key);
            }
            return Ok(());
        }
        None => (Vec::new(), None),
    };
    let before = bit(&value, offset);
    let grows = value.len() <= byte;
    if grows {
        value.resize(byte + 1, 0);
    }
    if set {
        value[byte] |= mask;
    } else {
        value[byte] &= !mask;
    }
    context.reply.integer(i64::from(before));
    if grows || before != set {
        context.objects.put(key, value, Kind::String, expires)?;
        context.objects.event(Kinds::STRING, "setbit", key);
    }
    Ok(())
}

fn getbit(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let offset = offset_of(context, &arguments[2], None)?;
    let byte = (offset / 8) as usize;
    let is_set = match context.objects.read_text(&arguments[1])? {
        None => false,
        Some(Text::Whole(found)) => bit(found.value, offset),
        Some(Text::Long(long)) => {
            bit(&context.objects.part_of(&long, byte..byte.saturating_add(1))?, offset % 8)
        }
    };
    context.reply.integer(i64::from(is_set));
    Ok(())
}

/// Whether a unit is that of bits.
fn counts_bits(unit: Option<&[u8]>) -> Result<bool, Stop> {
    match unit {
        None => Ok(false),
        Some(unit) if is(unit, "BYTE") => Ok(false),
        Some(unit) if is(unit, "BIT") => Ok(true),
        Some(_) => Err(stop::SYNTAX),
    }
}

fn bitcount(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    if arguments.len() == 3 || arguments.len() > 5 {
        return Err(stop::SYNTAX);
    }
    let range = match (arguments.get(2), arguments.get(3)) {
        (Some(begin), Some(end)) => {
            let begin = integer_of(begin).ok_or(stop::NOT_AN_INTEGER)?;
            let end = integer_of(end).ok_or(stop::NOT_AN_INTEGER)?;
            Some((begin, end, counts_bits(arguments.get(4))?))
        }
        _ => None,
    };
    let (begin, end, is_bits) = range.unwrap_or((0, -1, false));
    let count = context.objects.with_text(&arguments[1], |value| {
        let value = value.unwrap_or_default();
        let bits = match is_bits {
            true => part(value.len() * 8, begin, end),
            false => {
                let bytes = part(value.len(), begin, end);
                bytes.start * 8..bytes.end * 8
            }
        };
        ones(value, bits.start as u64, bits.end as u64)
    })?;
    context.reply.integer(count as i64);
    Ok(())
}

/// Counts the ones in a range of bits.
fn ones(value: &[u8], begin: u64, end: u64) -> u64 {
    if begin >= end {
        return 0;
    }
    let (first, last) = ((begin / 8) as usize, (end.div_ceil(8)) as usize);
    let bytes = &value[first..last];
    let all: u64 = bytes.iter().map(|byte| u64::from(byte.count_ones())).sum();
    let before = (begin - begin / 8 * 8) as u32;
    let behind = (last as u64 * 8 - end) as u32;
    let cut = |byte: Option<&u8>, mask: u8| byte.map_or(0, |byte| (byte & mask).count_ones());
    let outside =
        cut(bytes.first(), !(0xff_u8 >> before)) + cut(bytes.last(), ((1u16 << behind) - 1) as u8);
    all - u64::from(outside)
}

fn bitpos(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let wanted = match integer_of(&arguments[2]) {
        Some(0) => false,
        Some(1) => true,
        Some(_) => return Err(Stop::error("ERR The bit argument must be 1 or 0.")),
        None => return Err(stop::NOT_AN_INTEGER),
    };
    if arguments.len() > 6 {
        return Err(stop::SYNTAX);
    }
    let number = |text: Option<&[u8]>| match text {
        Some(text) => integer_of(text).map(Some).ok_or(stop::NOT_AN_INTEGER),
        None => Ok(None),
    };
    let begin = number(arguments.get(3))?.unwrap_or(0);
    let is_bits = counts_bits(arguments.get(5))?;
    let end = number(arguments.get(4))?;
    let place = context.objects.with_text(&arguments[1], |value| {
        let Some(value) = value else { return if wanted { -1 } else { 0 } };
        let bits = match is_bits {
            true => clamped(value.len() * 8, begin, end.unwrap_or(-1)),
            false => {
                let bytes = clamped(value.len(), begin, end.unwrap_or(-1));
                bytes.start * 8..bytes.end * 8
            }
        };
        match position(value, wanted, bits.start as u64, bits.end as u64) {
            Some(place) => place as i64,
            // Zero bits follow a string whose end was not given.
            None if !wanted && end.is_none() && bits.start < bits.end => value.len() as i64 * 8,
            None => -1,
        }
    })?;
    context.reply.integer(place);
    Ok(())
}

/// Returns a part as `BITPOS` understands it: an end before the first byte is the first byte.
fn clamped(length: usize, begin: i64, end: i64) -> std::ops::Range<usize> {
    let place =
        |place: i64| if place < 0 { (length as i64).saturating_add(place).max(0) } else { place };
    part(length, place(begin), place(end))
}

/// Finds a bit in a part of a string.
fn position(value: &[u8], wanted: bool, begin: u64, end: u64) -> Option<u64> {
    let mut at = begin;
    while at < end {
        let byte = value.get((at / 8) as usize)?;
        let none = if wanted { 0 } else { 0xff };
        if at.is_multiple_of(8) && *byte == none {
            at += 8;
            continue;
        }
        if bit(value, at) == wanted {
            return Some(at);
        }
        at += 1;
    }
    None
}

/// A way to combine strings.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
    Diff,
    DiffOne,
    AndOr,
    One,
}

const OPERATIONS: [(&str, Operation); 8] = [
    ("AND", Operation::And),
    ("OR", Operation::Or),
    ("XOR", Operation::Xor),
    ("NOT", Operation::Not),
    ("DIFF", Operation::Diff),
    ("DIFF1", Operation::DiffOne),
    ("ANDOR", Operation::AndOr),
    ("ONE", Operation::One),
];

fn bitop(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let named = OPERATIONS.into_iter().find(|(name, _)| is(&arguments[1], name));
    let (name, operation) = named.ok_or(stop::SYNTAX)?;
    let sources = arguments.len() - 3;
    if operation == Operation::Not && sources != 1 {
        return Err(Stop::error("ERR BITOP NOT must be called with a single source key."));
    }
    if matches!(operation, Operation::Diff | Operation::DiffOne | Operation::AndOr) && sources < 2 {
        return Err(Stop::error_of(format!(
            "ERR BITOP {name} must be called with at least two source keys."
        )));
    }
    let mut first = Vec::new();
    // Bits that are set in all of the others, in one of them, and in more than one.
    let (mut all, mut any, mut more) = (Vec::new(), Vec::<u8>::new(), Vec::<u8>::new());
    let mut odd = Vec::<u8>::new();
    let mut length = 0;
    let is_apart = matches!(operation, Operation::Diff | Operation::DiffOne | Operation::AndOr);
    for (index, key) in from(arguments, 3).enumerate() {
        context.objects.with_text(key, |value| {
            let value = value.unwrap_or_default();
            length = length.max(value.len());
            if index == 0 {
                first = value.to_vec();
                all = value.to_vec();
                if is_apart {
                    return;
                }
            }
            for list in [&mut any, &mut more, &mut odd] {
                list.resize(length.max(list.len()), 0);
            }
            all.resize(length, 0);
            for (at, all) in all.iter_mut().enumerate() {
                let byte = value.get(at).copied().unwrap_or(0);
                *all &= byte;
                more[at] |= any[at] & byte;
                any[at] |= byte;
                odd[at] ^= byte;
            }
        })?;
    }
    for list in [&mut first, &mut all, &mut any, &mut more, &mut odd] {
        list.resize(length, 0);
    }
    let byte = |at: usize| match operation {
        Operation::And => all[at],
        Operation::Or => any[at],
        Operation::Xor => odd[at],
        Operation::Not => !first[at],
        Operation::Diff => first[at] & !any[at],
        Operation::DiffOne => !first[at] & any[at],
        Operation::AndOr => first[at] & any[at],
        Operation::One => any[at] & !more[at],
    };
    let result: Vec<u8> = (0..length).map(byte).collect();
    if result.is_empty() {
        context.objects.delete(&arguments[2])?;
    } else {
        context.objects.note_overwrite(&arguments[2], Kind::String)?;
        context.objects.put(&arguments[2], result, Kind::String, None)?;
        context.objects.event(Kinds::STRING, "set", &arguments[2]);
    }
    context.reply.integer(length as i64);
    Ok(())
}

fn bitfield(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    super::bit_fields::execute(context, arguments, false)
}

fn bitfield_ro(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    super::bit_fields::execute(context, arguments, true)
}
