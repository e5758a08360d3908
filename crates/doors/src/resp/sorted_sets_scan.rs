//! `ZSCAN`: walks through the members of a sorted set by their hashes.
//!
//! The cursor is the upper 63 bits of the hash of the next member. So the server keeps no state
//! for a scan. A scan visits each member that stays at least once, and a small sorted set at
//! once, as in Redis.

use super::bounds::integer;
use super::commands::{Command, Group, Keys, READONLY};
use super::context::{Context, is};
use super::keys::{cursor_of, is_match};
use super::number::double_text;
use super::parser::Arguments;
use super::sorted_set::SortedSet;
use super::stop::{self, Done, Stop};
use super::tree;

pub(super) const COMMANDS: &[Command] = &[Command::new("zscan", -3, READONLY, zscan)
    .keys(&[Keys::one("RO access", 1)])
    .tips(&["nondeterministic_output"])
    .about(Group::SortedSet, "2.8.0", "Visits some members with their scores.")];

/// The members that one call visits if the client names no number.
const COUNT: u64 = 10;

/// Reads the options: a pattern, and the number of members.
fn options_of(arguments: Arguments<'_>) -> Result<(Option<&[u8]>, u64), Stop> {
    let (mut pattern, mut count, mut index) = (None, COUNT, 3);
    while let Some(option) = arguments.get(index) {
        match arguments.get(index + 1) {
            Some(value) if is(option, "count") => {
                count = u64::try_from(integer(value)?).map_err(|_| stop::SYNTAX)?;
                if count == 0 {
                    return Err(stop::SYNTAX);
                }
            }
            Some(value) if is(option, "match") => pattern = Some(value),
            _ if is(option, "novalues") => {
                return Err(Stop::error("ERR NOVALUES option can only be used in HSCAN"));
            }
            _ => return Err(stop::SYNTAX),
        }
        index += 2;
    }
    Ok((pattern, count))
}

fn zscan(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let cursor = cursor_of(&arguments[2])?;
    let Context { objects, reply, .. } = context;
    let Some(mut set) = SortedSet::read(objects, &arguments[1])? else {
        reply.array(2);
        reply.string(b"0");
        reply.array(0);
        return Ok(());
    };
    let (pattern, count) = options_of(arguments)?;
    let (mut members, mut next) = (Vec::new(), 0);
    let is_skiplist = set.is_skiplist();
    let mut take = |score: f64, member: &[u8]| {
        if is_match(pattern, member) {
            let text = if is_skiplist { precise_text(score) } else { double_text(score) };
            members.push((member.to_vec(), text));
        }
    };
    if is_skiplist && set.is_indexed()? {
        let (mut visited, mut last) = (0, 0);
        set.visit_hashes(objects, cursor.min(u64::MAX >> 1) << 1, |score, member| {
            let place = tree::hash(member) >> 1;
            // Members with the same place are visited by the same call.
            if visited >= count && place != last {
                next = place;
                return false;
            }
            (visited, last) = (visited + 1, place);
            take(score, member);
            true
        })?;
    } else {
        set.visit(objects, 0..set.len(), false, |score, member| {
            take(score, member);
            true
        })?;
    }
    reply.array(2);
    reply.string(next.to_string().as_bytes());
    reply.array(2 * members.len());
    for (member, score) in members {
        reply.string(&member);
        reply.string(score.as_bytes());
    }
    Ok(())
}

/// The digits of a number that is written precisely.
const DIGITS: i32 = 17;

/// Returns the text of a score with all its digits, as Redis shows it for large sorted sets: that
/// of `%.17g` in C.
fn precise_text(score: f64) -> String {
    if !score.is_finite() {
        return double_text(score);
    }
    let text = format!("{:.*e}", DIGITS as usize - 1, score);
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..DIGITS).contains(&exponent) {
        return trimmed(&format!("{:.*}", (DIGITS - 1 - exponent) as usize, score));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(digits), exponent.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precise_texts_are_those_of_c() {
        for (score, text) in [
            (0.1, "0.10000000000000001"),
            (0.0, "0"),
            (5.0, "5"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (-1.5e300, "-1.5000000000000001e+300"),
            (3.3, "3.2999999999999998"),
            (1e-7, "9.9999999999999995e-08"),
            (0.0001, "0.0001"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(precise_text(score), text);
        }
    }
}
