//! etcd's gateway, which speaks JSON over HTTP/1.1 on persistent connections: one put after another
//! on each. Its gRPC would take a third fewer bytes, but durable writes are limited by the disk.

use super::protocol::{
    Act, Answer, Bad, Flight, Protocol, line, number, oldest, put_number, put_value, refused,
    text_key,
};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as STANDARD;
use std::collections::VecDeque;
use thunderhead_wire::Sequence;

/// The longest line of a head, and the most lines of a head.
const LINE_MAX: usize = 1024;
const LINES_MAX: usize = 64;

/// The longest body.
const BODY_BYTES_MAX: u64 = 64 << 10;

/// One connection. It writes, reads and deletes single objects.
#[derive(Clone, Debug, Default)]
pub struct Etcd {
    value: Vec<u8>,
}

impl Protocol for Etcd {
    fn ask(&mut self, flight: &mut Flight, _oldest: Option<Sequence>, to: &mut Vec<u8>) {
        for object in &flight.numbers {
            self.value.clear();
            put_value(&mut self.value, *object, flight.id, flight.value_bytes);
            let (key, value) = (STANDARD.encode(text_key(*object)), STANDARD.encode(&self.value));
            let body = match flight.act {
                Act::Write => format!("{{\"key\":\"{key}\",\"value\":\"{value}\"}}"),
                _ => format!("{{\"key\":\"{key}\"}}"),
            };
            let path: &[u8] = match flight.act {
                Act::Write => b"put",
                Act::Read => b"range",
                Act::Delete => b"deleterange",
            };
            to.extend_from_slice(b"POST /v3/kv/");
            to.extend_from_slice(path);
            to.extend_from_slice(b" HTTP/1.1\r\nHost: etcd\r\nContent-Length: ");
            put_number(to, body.len() as u64);
            to.extend_from_slice(b"\r\n\r\n");
            to.extend_from_slice(body.as_bytes());
        }
    }

    fn answer(&mut self, flights: &mut VecDeque<Flight>, bytes: &[u8]) -> Result<Answer, Bad> {
        let flight = oldest(flights)?;
        if flight.act != Act::Write || flight.numbers.len() != 1 {
            return Err(Bad::Malformed("a request that this client does not support"));
        }
        let (mut at, mut length, mut is_ok) = (0, None, false);
        for count in 0..LINES_MAX {
            let rest = bytes.get(at..).unwrap_or_default();
            let Some((text, end)) = line(rest, LINE_MAX)? else { return Ok(Answer::Partial) };
            at += end;
            if count == 0 {
                is_ok = text.starts_with(b"HTTP/1.1 200");
            } else if text.is_empty() {
                return body(bytes, at, length, is_ok);
            } else if let Some((name, value)) = text.split_at_checked(15)
                && name.eq_ignore_ascii_case(b"content-length:")
            {
                length = number(value.trim_ascii());
            }
        }
        Err(Bad::Malformed("a head that does not end"))
    }
}

fn body(bytes: &[u8], at: usize, length: Option<u64>, is_ok: bool) -> Result<Answer, Bad> {
    let Some(length) = length.filter(|it| *it <= BODY_BYTES_MAX) else {
        return Err(Bad::Malformed("a body without a valid length"));
    };
    let end = at + length as usize;
    match bytes.get(at..end) {
        None => Ok(Answer::Partial),
        Some(_) if is_ok => Ok(Answer::Done { bytes: end, place: 0 }),
        Some(words) => Err(refused(words)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::tests::{flights, hold};
    use super::*;

    const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\
        content-length: 11\r\n\r\n{\"a\": \"bb\"}";

    #[test]
    fn answers_are_taken_whole_or_not_at_all() {
        hold(&mut Etcd::default(), &flights(Act::Write, &[4], 100), REPLY);
    }

    #[test]
    fn a_request_states_its_length() {
        let mut bytes = Vec::new();
        Etcd::default().ask(&mut flights(Act::Write, &[4], 100)[0], None, &mut bytes);
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /v3/kv/put HTTP/1.1\r\n"));
        assert!(head.ends_with(&format!("Content-Length: {}", body.len())));
    }

    #[test]
    fn unexpected_answers_are_errors() {
        let answer =
            |bytes: &[u8]| Etcd::default().answer(&mut flights(Act::Write, &[4], 100), bytes);
        let refuses = b"HTTP/1.1 503 no\r\nContent-Length: 4\r\n\r\nbusy";
        assert_eq!(answer(refuses), Err(refused(b"busy")));
        assert!(answer(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
        assert!(answer(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n").is_err());
        assert!(answer(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n").is_err());
        assert!(answer(&b"a: b\r\n".repeat(100)).is_err());
        assert!(answer(&[b'H'; 4096]).is_err());
    }
}
