//! The protocol of Redis and Valkey (RESP 2): GET, SET, MGET, MSET and DEL, and WAIT after a write
//! that must be on replicas.

use super::protocol::{
    Act, Answer, Bad, Flight, Protocol, check, line, number, oldest, put_number, put_value,
    refused, text_key, up_to, value_at,
};
use std::collections::VecDeque;
use thunderhead_load::content::KEY_BYTES;
use thunderhead_wire::Sequence;

/// The longest line other than a value.
const LINE_MAX: usize = 512;

/// The timeout of WAIT in milliseconds.
const WAIT_MS: u64 = 10_000;

/// One connection.
#[derive(Clone, Debug, Default)]
pub struct Resp {
    /// Replicas that each write waits for.
    pub replicas: u64,
}

fn bulk(to: &mut Vec<u8>, bytes: &[u8]) {
    to.push(b'$');
    put_number(to, bytes.len() as u64);
    to.extend_from_slice(b"\r\n");
    to.extend_from_slice(bytes);
    to.extend_from_slice(b"\r\n");
}

fn array(to: &mut Vec<u8>, length: usize, command: &[u8]) {
    to.push(b'*');
    put_number(to, length as u64);
    to.extend_from_slice(b"\r\n");
    bulk(to, command);
}

/// The first bytes of a key on the wire: its length and the end of the line.
const KEY_FRAME: [u8; 5] = *b"$30\r\n";
const _: () = assert!(KEY_BYTES == 30);

#[inline]
fn put_key(to: &mut Vec<u8>, number: u64) {
    to.extend_from_slice(&KEY_FRAME);
    to.extend_from_slice(&text_key(number));
    to.extend_from_slice(b"\r\n");
}

impl Protocol for Resp {
    #[inline]
    fn ask(&mut self, flight: &mut Flight, _oldest: Option<Sequence>, to: &mut Vec<u8>) {
        let count = flight.numbers.len();
        match (flight.act, count) {
            (Act::Read, 1) => array(to, 2, b"GET"),
            (Act::Read, _) => array(to, 1 + count, b"MGET"),
            (Act::Write, 1) => array(to, 3, b"SET"),
            (Act::Write, _) => array(to, 1 + 2 * count, b"MSET"),
            (Act::Delete, _) => array(to, 1 + count, b"DEL"),
        }
        for number in &flight.numbers {
            put_key(to, *number);
            if flight.act == Act::Write {
                to.push(b'$');
                put_number(to, flight.value_bytes as u64);
                to.extend_from_slice(b"\r\n");
                put_value(to, *number, flight.id, flight.value_bytes);
                to.extend_from_slice(b"\r\n");
            }
        }
        if flight.act == Act::Write && self.replicas > 0 {
            array(to, 3, b"WAIT");
            bulk(to, self.replicas.to_string().as_bytes());
            bulk(to, WAIT_MS.to_string().as_bytes());
        }
    }

    #[inline]
    fn answer(&mut self, flights: &mut VecDeque<Flight>, bytes: &[u8]) -> Result<Answer, Bad> {
        let flight = oldest(flights)?;
        let end = match flight.act {
            Act::Read => values(flight, bytes)?,
            Act::Write => written(self.replicas, bytes)?,
            Act::Delete => match line(bytes, LINE_MAX)? {
                Some((text, end)) => {
                    deleted(flight, text)?;
                    Some(end)
                }
                None => None,
            },
        };
        Ok(up_to(end))
    }
}

/// Returns the rest of a line that must begin with this byte.
#[inline]
fn after(text: &[u8], kind: u8) -> Result<&[u8], Bad> {
    match text.split_first() {
        Some((first, rest)) if *first == kind => Ok(rest),
        Some((b'-', rest)) => Err(refused(rest)),
        _ => Err(Bad::Malformed("another kind of answer")),
    }
}

#[inline]
fn values(flight: &Flight, bytes: &[u8]) -> Result<Option<usize>, Bad> {
    let mut at = 0;
    if flight.numbers.len() > 1 {
        let Some((text, length)) = line(bytes, LINE_MAX)? else { return Ok(None) };
        if number(after(text, b'*')?) != Some(flight.numbers.len() as u64) {
            return Err(Bad::Malformed("another number of values"));
        }
        at = length;
    }
    for asked in &flight.numbers {
        let rest = bytes.get(at..).unwrap_or_default();
        let Some((text, length)) = line(rest, LINE_MAX)? else { return Ok(None) };
        let text = after(text, b'$')?;
        if text == b"-1" {
            return Err(Bad::Gone(*asked));
        }
        if number(text) != Some(flight.value_bytes as u64) {
            return Err(Bad::Wrong(*asked));
        }
        let Some((value, end)) = value_at(bytes, at + length, flight.value_bytes)? else {
            return Ok(None);
        };
        check(value, *asked)?;
        at = end;
    }
    Ok(Some(at))
}

#[inline]
fn written(replicas: u64, bytes: &[u8]) -> Result<Option<usize>, Bad> {
    let Some((text, end)) = line(bytes, LINE_MAX)? else { return Ok(None) };
    if after(text, b'+')? != b"OK" {
        return Err(Bad::Malformed("a write is not OK"));
    }
    if replicas == 0 {
        return Ok(Some(end));
    }
    let rest = bytes.get(end..).unwrap_or_default();
    let Some((text, length)) = line(rest, LINE_MAX)? else { return Ok(None) };
    match number(after(text, b':')?) {
        Some(found) if found >= replicas => Ok(Some(end + length)),
        Some(_) => Err(Bad::Refused("fewer replicas have the write than required".to_owned())),
        None => Err(Bad::Malformed("WAIT answers with no number")),
    }
}

fn deleted(flight: &Flight, text: &[u8]) -> Result<(), Bad> {
    if number(after(text, b':')?) == Some(flight.numbers.len() as u64) {
        return Ok(());
    }
    Err(Bad::Gone(flight.numbers.first().copied().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::super::protocol::tests::{flights, hold, value};
    use super::*;

    fn reply(numbers: &[u64], bytes: usize) -> Vec<u8> {
        let mut reply = Vec::new();
        if numbers.len() > 1 {
            reply.extend_from_slice(format!("*{}\r\n", numbers.len()).as_bytes());
        }
        for number in numbers {
            bulk(&mut reply, &value(*number, bytes));
        }
        reply
    }

    #[test]
    fn requests_have_these_bytes() {
        let mut bytes = Vec::new();
        let mut asked = flights(Act::Write, &[5], 3);
        Resp { replicas: 2 }.ask(&mut asked[0], None, &mut bytes);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert!(text.starts_with("*3\r\n$3\r\nSET\r\n$30\r\n5000"), "{text}");
        let wait = "*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$5\r\n10000\r\n";
        assert!(text.ends_with(wait), "{text}");
        bytes.clear();
        Resp::default().ask(&mut flights(Act::Read, &[1, 2], 3)[0], None, &mut bytes);
        assert!(bytes.starts_with(b"*3\r\n$4\r\nMGET\r\n$30\r\n1000"));
    }

    #[test]
    fn answers_are_taken_whole_or_not_at_all() {
        for bytes in [0, 5, 100] {
            hold(&mut Resp::default(), &flights(Act::Read, &[4], bytes), &reply(&[4], bytes));
            let many = flights(Act::Read, &[4, 9, 2], bytes);
            hold(&mut Resp::default(), &many, &reply(&[4, 9, 2], bytes));
        }
        hold(&mut Resp::default(), &flights(Act::Write, &[4], 8), b"+OK\r\n");
        hold(&mut Resp { replicas: 2 }, &flights(Act::Write, &[4], 8), b"+OK\r\n:2\r\n");
        hold(&mut Resp::default(), &flights(Act::Delete, &[4, 5], 8), b":2\r\n");
    }

    #[test]
    fn unexpected_answers_are_errors() {
        let read = || flights(Act::Read, &[4], 100);
        let answer = |mut flights: VecDeque<Flight>, bytes: &[u8]| {
            Resp { replicas: 1 }.answer(&mut flights, bytes)
        };
        assert_eq!(answer(read(), b"$-1\r\n"), Err(Bad::Gone(4)));
        assert_eq!(answer(read(), b"$99999999999999\r\n"), Err(Bad::Wrong(4)));
        assert_eq!(answer(read(), b"-LOADING soon\r\n"), Err(refused(b"LOADING soon")));
        assert_eq!(answer(read(), &reply(&[5], 100)), Err(Bad::Wrong(4)));
        assert!(answer(read(), &[b'$'; 4096]).is_err());
        let many = flights(Act::Read, &[4, 5], 100);
        assert!(answer(many.clone(), b"*4000000000\r\n").is_err());
        assert!(answer(many, b"*-1\r\n").is_err());
        let write = flights(Act::Write, &[4], 100);
        assert!(matches!(answer(write.clone(), b"+OK\r\n:0\r\n"), Err(Bad::Refused(_))));
        assert!(answer(write, b"+QUEUED\r\n").is_err());
        assert!(answer(flights(Act::Delete, &[4], 0), b":0\r\n").is_err());
        assert!(answer(VecDeque::new(), b"+OK\r\n").is_err());
    }
}
