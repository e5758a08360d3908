//! memcached's text protocol: `get` of one or many keys, `set`, and for many writes at once the
//! meta commands, quiet, with `mn` after them. Its binary protocol is deprecated.

use super::protocol::{
    Act, Answer, Bad, Flight, Protocol, check, line, number, oldest, put_number, put_value,
    refused, text_key, up_to, value_at,
};
use std::collections::VecDeque;
use thunderhead_wire::Sequence;

/// The longest line other than a value: one with a key in it.
const LINE_MAX: usize = 512;

/// The error of a class of sizes that got no memory and has nothing to evict.
const NO_MEMORY: &[u8] = b"SERVER_ERROR out of memory storing object";

/// One connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memcached {
    /// The server may have evicted objects to be deleted. It may also have no memory for a write,
    /// if other classes of sizes have all of it; it counts such writes (`store_no_memory`).
    pub forgets: bool,
}

impl Protocol for Memcached {
    #[inline]
    fn ask(&mut self, flight: &mut Flight, _oldest: Option<Sequence>, to: &mut Vec<u8>) {
        let single = flight.numbers.len() == 1;
        if flight.act == Act::Read {
            to.extend_from_slice(b"get");
            for number in &flight.numbers {
                to.push(b' ');
                to.extend_from_slice(&text_key(*number));
            }
            to.extend_from_slice(b"\r\n");
            return;
        }
        for number in &flight.numbers {
            let command: &[u8] = match (flight.act, single) {
                (Act::Write, true) => b"set ",
                (Act::Write, false) => b"ms ",
                (_, true) => b"delete ",
                (_, false) => b"md ",
            };
            to.extend_from_slice(command);
            to.extend_from_slice(&text_key(*number));
            if flight.act == Act::Write {
                to.extend_from_slice(if single { b" 0 0 " } else { b" " });
                put_number(to, flight.value_bytes as u64);
            }
            to.extend_from_slice(if single { b"\r\n" } else { b" q\r\n" });
            if flight.act == Act::Write {
                put_value(to, *number, flight.id, flight.value_bytes);
                to.extend_from_slice(b"\r\n");
            }
        }
        if !single {
            to.extend_from_slice(b"mn\r\n");
        }
    }

    #[inline]
    fn answer(&mut self, flights: &mut VecDeque<Flight>, bytes: &[u8]) -> Result<Answer, Bad> {
        let flight = oldest(flights)?;
        let end = match flight.act {
            Act::Read => values(flight, bytes)?,
            _ => line(bytes, LINE_MAX)?
                .map(|(text, end)| done(flight, text, self.forgets).map(|()| end))
                .transpose()?,
        };
        Ok(up_to(end))
    }
}

fn done(flight: &Flight, text: &[u8], forgets: bool) -> Result<(), Bad> {
    let first = flight.numbers.first().copied().unwrap_or_default();
    match (flight.act, flight.numbers.len(), text) {
        (Act::Write, 1, b"STORED") | (Act::Delete, 1, b"DELETED") | (_, 2.., b"MN") => Ok(()),
        (Act::Delete, 1, b"NOT_FOUND") | (Act::Write, 1, NO_MEMORY) if forgets => Ok(()),
        (Act::Delete, _, b"NOT_FOUND" | b"NF") => Err(Bad::Gone(first)),
        _ => Err(refused(text)),
    }
}

/// Parses values, in the order of their keys, and `END`. A missing object is left out.
#[inline]
fn values(flight: &Flight, bytes: &[u8]) -> Result<Option<usize>, Bad> {
    let mut at = 0;
    for asked in &flight.numbers {
        let rest = bytes.get(at..).unwrap_or_default();
        let Some((text, length)) = line(rest, LINE_MAX)? else { return Ok(None) };
        let key = text_key(*asked);
        let found = text.strip_prefix(b"VALUE ");
        if found.is_none() && text != b"END" {
            return Err(refused(text));
        }
        let Some(head) = found.and_then(|it| it.strip_prefix(key.as_slice())) else {
            return Err(Bad::Gone(*asked));
        };
        let told = head.strip_prefix(b" 0 ").and_then(number);
        if told != Some(flight.value_bytes as u64) {
            return Err(Bad::Wrong(*asked));
        }
        let Some((value, end)) = value_at(bytes, at + length, flight.value_bytes)? else {
            return Ok(None);
        };
        check(value, *asked)?;
        at = end;
    }
    let rest = bytes.get(at..).unwrap_or_default();
    match line(rest, LINE_MAX)? {
        None => Ok(None),
        Some((b"END", length)) => Ok(Some(at + length)),
        Some(_) => Err(Bad::Malformed("more values than requested")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::tests::{flights, hold, value};
    use super::*;

    fn reply(numbers: &[u64], bytes: usize) -> Vec<u8> {
        let mut reply = Vec::new();
        for number in numbers {
            reply.extend_from_slice(b"VALUE ");
            reply.extend_from_slice(&text_key(*number));
            reply.extend_from_slice(format!(" 0 {bytes}\r\n").as_bytes());
            reply.extend_from_slice(&value(*number, bytes));
            reply.extend_from_slice(b"\r\n");
        }
        [reply.as_slice(), b"END\r\n"].concat()
    }

    #[test]
    fn requests_have_these_bytes() {
        let text = |act, numbers: &[u64]| {
            let mut bytes = Vec::new();
            Memcached::default().ask(&mut flights(act, numbers, 3)[0], None, &mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let key = |number| String::from_utf8_lossy(&text_key(number)).into_owned();
        assert_eq!(text(Act::Read, &[1, 2]), format!("get {} {}\r\n", key(1), key(2)));
        assert!(text(Act::Write, &[1]).starts_with(&format!("set {} 0 0 3\r\n", key(1))));
        let many = text(Act::Write, &[1, 2]);
        assert!(many.starts_with(&format!("ms {} 3 q\r\n", key(1))), "{many}");
        assert!(many.ends_with("\r\nmn\r\n"));
        assert_eq!(text(Act::Delete, &[1]), format!("delete {}\r\n", key(1)));
    }

    #[test]
    fn answers_are_taken_whole_or_not_at_all() {
        for bytes in [0, 5, 100] {
            let mut it = Memcached::default();
            hold(&mut it, &flights(Act::Read, &[4], bytes), &reply(&[4], bytes));
            hold(&mut it, &flights(Act::Read, &[4, 9, 2], bytes), &reply(&[4, 9, 2], bytes));
        }
        hold(&mut Memcached::default(), &flights(Act::Write, &[4], 8), b"STORED\r\n");
        hold(&mut Memcached::default(), &flights(Act::Write, &[4, 5], 8), b"MN\r\n");
        hold(&mut Memcached::default(), &flights(Act::Delete, &[4], 8), b"DELETED\r\n");
        hold(&mut Memcached { forgets: true }, &flights(Act::Delete, &[4], 8), b"NOT_FOUND\r\n");
    }

    #[test]
    fn unexpected_answers_are_errors() {
        let read = || flights(Act::Read, &[4, 5], 100);
        let answer = |mut flights: VecDeque<Flight>, bytes: &[u8]| {
            Memcached::default().answer(&mut flights, bytes)
        };
        assert_eq!(answer(read(), b"END\r\n"), Err(Bad::Gone(4)));
        assert_eq!(answer(read(), &reply(&[4], 100)), Err(Bad::Gone(5)));
        assert!(answer(read(), &reply(&[4, 5, 6], 100)).is_err());
        assert_eq!(answer(read(), &reply(&[4, 5], 99)), Err(Bad::Wrong(4)));
        assert!(answer(read(), b"VALUE \r\n").is_err());
        assert!(answer(read(), &[b'V'; 4096]).is_err());
        let refuses = [NO_MEMORY, b"\r\n"].concat();
        assert_eq!(answer(read(), &refuses), Err(refused(NO_MEMORY)));
        assert_eq!(answer(flights(Act::Write, &[4], 8), &refuses), Err(refused(NO_MEMORY)));
        let forgetful =
            Memcached { forgets: true }.answer(&mut flights(Act::Write, &[4], 8), &refuses);
        assert!(
            matches!(forgetful, Ok(Answer::Done { .. })),
            "the server counts the writes that it drops"
        );
        assert!(answer(flights(Act::Write, &[4, 5], 8), b"NS\r\n").is_err());
        assert_eq!(answer(flights(Act::Delete, &[4], 8), b"NOT_FOUND\r\n"), Err(Bad::Gone(4)));
        assert!(answer(VecDeque::new(), b"STORED\r\n").is_err());
    }
}
