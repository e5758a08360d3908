//! Short replies of several parts that become one.

use super::super::number::integer_of;
use super::super::writer::{Version, Writer};
use super::frames::Head;
use super::routes::Merge;
use super::{Broken, Router};

impl Router {
    /// Makes one reply of those of several parts.
    pub(super) fn merged(
        &mut self,
        merge: Merge,
        replies: Vec<Vec<u8>>,
    ) -> Result<Vec<u8>, Broken> {
        let is_error = |reply: &&Vec<u8>| reply.first() == Some(&b'-');
        if merge == Merge::Any {
            let found = replies.iter().find(|reply| !is_error(reply)).or(replies.first());
            return found.cloned().ok_or(Broken);
        }
        if let Some(error) = replies.iter().find(is_error) {
            return Ok(error.clone());
        }
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, Version::Two);
        match merge {
            Merge::First | Merge::Any | Merge::Elements | Merge::Joined => {
                return replies.into_iter().next().ok_or(Broken);
            }
            Merge::Sum => {
                let numbers = replies.iter().map(|reply| integer(reply).map(|(number, _)| number));
                let sum = numbers.sum::<Option<i64>>().ok_or(Broken)?;
                writer.integer(sum);
            }
            Merge::Least => {
                let lists: Option<Vec<Vec<i64>>> = replies.iter().map(|it| integers(it)).collect();
                let lists = lists.ok_or(Broken)?;
                let length = lists.iter().map(Vec::len).min().unwrap_or(0);
                writer.array(length);
                for place in 0..length {
                    let own = lists.iter().filter_map(|list| list.get(place));
                    writer.integer(own.min().copied().unwrap_or(0));
                }
            }
            Merge::Pick => {
                let is_null = |reply: &Vec<u8>| matches!(reply.get(..2), Some(b"$-" | b"_\r"));
                let found: Vec<&Vec<u8>> = replies.iter().filter(|it| !is_null(it)).collect();
                // Numbers of a simple generator: any key will do.
                self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let place = (self.seed >> 33) as usize % found.len().max(1);
                return found.get(place).copied().or(replies.first()).cloned().ok_or(Broken);
            }
        }
        Ok(out)
    }
}

/// Reads an integer in front of some bytes, and returns the bytes behind it.
fn integer(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let end = memchr::memchr(b'\n', bytes)?;
    let line = bytes.get(..end)?.strip_prefix(b":")?.strip_suffix(b"\r")?;
    Some((integer_of(line)?, bytes.get(end + 1..)?))
}

/// Reads an array of integers.
fn integers(bytes: &[u8]) -> Option<Vec<i64>> {
    let head = Head::read(bytes).ok()??;
    let (mut numbers, mut rest) = (Vec::new(), bytes.get(head.bytes..)?);
    for _ in 0..head.length? {
        let (number, behind) = integer(rest)?;
        numbers.push(number);
        rest = behind;
    }
    Some(numbers)
}
