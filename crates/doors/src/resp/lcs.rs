//! `LCS`: the longest bytes that two strings have in common, in the same order.

use super::context::is;
use super::number::integer_of;
use super::parser::Arguments;
use super::stop::{self, Done, Stop};
use super::writer::Writer;

/// The most pairs of bytes that are compared. They take some ten milliseconds.
const PAIRS_MAX: usize = 16 << 20;

/// The options of the command.
#[derive(Default)]
struct Options {
    wants_length: bool,
    wants_ranges: bool,
    wants_lengths_of_ranges: bool,
    range_min: i64,
}

fn options(arguments: Arguments<'_>) -> Result<Options, Stop> {
    let mut options = Options::default();
    let mut at = 3;
    while let Some(word) = arguments.get(at) {
        at += 1;
        if is(word, "IDX") {
            options.wants_ranges = true;
        } else if is(word, "LEN") {
            options.wants_length = true;
        } else if is(word, "WITHMATCHLEN") {
            options.wants_lengths_of_ranges = true;
        } else if is(word, "MINMATCHLEN")
            && let Some(number) = arguments.get(at)
        {
            options.range_min = integer_of(number).ok_or(stop::NOT_AN_INTEGER)?.max(0);
            at += 1;
        } else {
            return Err(stop::SYNTAX);
        }
    }
    if options.wants_length && options.wants_ranges {
        return Err(Stop::error(
            "ERR If you want both the length and indexes, please just use IDX.",
        ));
    }
    Ok(options)
}

/// A range of the first string that equals one of the second.
struct Same {
    first: usize,
    second: usize,
    length: usize,
}

/// The lengths of the longest common bytes of all beginnings of two strings.
struct Table {
    lengths: Vec<u32>,
    width: usize,
}

impl Table {
    fn new(one: &[u8], other: &[u8]) -> Table {
        let width = other.len() + 1;
        let mut lengths = vec![0u32; (one.len() + 1) * width];
        for (row, byte) in one.iter().enumerate() {
            for (column, opposite) in other.iter().enumerate() {
                let at = (row + 1) * width + column + 1;
                lengths[at] = match byte == opposite {
                    true => lengths[at - width - 1] + 1,
                    false => lengths[at - 1].max(lengths[at - width]),
                };
            }
        }
        Table { lengths, width }
    }

    fn length(&self, row: usize, column: usize) -> u32 {
        self.lengths[row * self.width + column]
    }

    /// Returns the common ranges, the last one first.
    fn ranges(&self, one: &[u8], other: &[u8]) -> Vec<Same> {
        let (mut row, mut column) = (one.len(), other.len());
        let (mut ranges, mut is_open) = (Vec::<Same>::new(), false);
        while row > 0 && column > 0 {
            if one[row - 1] == other[column - 1] {
                (row, column) = (row - 1, column - 1);
                match ranges.last_mut().filter(|_| is_open) {
                    Some(range) => {
                        (range.first, range.second) = (row, column);
                        range.length += 1;
                    }
                    None => ranges.push(Same { first: row, second: column, length: 1 }),
                }
                is_open = true;
            } else {
                is_open = false;
                match self.length(row - 1, column) > self.length(row, column - 1) {
                    true => row -= 1,
                    false => column -= 1,
                }
            }
        }
        ranges
    }
}

/// Compares two strings, and writes the reply to the command with these arguments.
pub(super) fn reply(
    reply: &mut Writer<'_>,
    strings: &[Vec<u8>; 2],
    arguments: Arguments<'_>,
) -> Done {
    let options = options(arguments)?;
    let [one, other] = strings;
    if (one.len() + 1).saturating_mul(other.len() + 1) > PAIRS_MAX {
        return Err(Stop::error(
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
        ));
    }
    let table = Table::new(one, other);
    let length = table.length(one.len(), other.len());
    if options.wants_length {
        reply.integer(i64::from(length));
        return Ok(());
    }
    let ranges = table.ranges(one, other);
    if !options.wants_ranges {
        let parts = ranges.iter().rev().map(|it| &one[it.first..it.first + it.length]);
        reply.string(&parts.collect::<Vec<_>>().concat());
        return Ok(());
    }
    let is_shown = |range: &&Same| range.length as i64 >= options.range_min;
    reply.map(2);
    reply.string(b"matches");
    reply.array(ranges.iter().filter(is_shown).count());
    for Same { first, second, length } in ranges.iter().filter(is_shown) {
        reply.array(2 + usize::from(options.wants_lengths_of_ranges));
        for begin in [first, second] {
            reply.array(2);
            reply.integer(*begin as i64);
            reply.integer((begin + length - 1) as i64);
        }
        if options.wants_lengths_of_ranges {
            reply.integer(*length as i64);
        }
    }
    reply.string(b"len");
    reply.integer(i64::from(length));
    Ok(())
}
