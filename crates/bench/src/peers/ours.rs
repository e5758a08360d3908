//! Thunderhead's own protocol over a plain socket, with the same client as for the peers.
//!
//! Over shared memory the RPC crate's caller is the client, because there is no other.

use super::protocol::{Act, Answer, Bad, Flight, Protocol, Stream, check, put_value};
use crate::log::subject::TABLE;
use anyhow::{Context as _, Result, ensure};
use std::collections::VecDeque;
use thunderhead_load::content::{KEY_BYTES, key};
use thunderhead_rpc::Opcode;
use thunderhead_wire::frame::{HEAD_BYTES, Head, Kind, PAYLOAD_BYTES_MAX, Preface};
use thunderhead_wire::message::{MESSAGE_HEAD_BYTES, MessageHead};
use thunderhead_wire::operations::{Identity, ObjectHead, PartHead, UpdateHead, UpdateKind};
use thunderhead_wire::{Condition, LeaseId, Sequence, Status, TableId};
use zerocopy::IntoBytes;

/// Bytes of a version in an answer.
const VERSION_BYTES: usize = 8;

/// One connection.
#[derive(Clone, Copy, Debug)]
pub struct Ours {
    /// The lease of its updates, so that each is executed once; [`LeaseId::NONE`] for none.
    pub lease: LeaseId,
    /// The table of its objects.
    table: TableId,
    /// Whether an object to be deleted may be missing, because the server was too busy for its
    /// write.
    forgets: bool,
    /// The sequence of the next update.
    sequence: Sequence,
}

impl Ours {
    /// Returns a connection whose updates have this lease.
    #[must_use]
    pub fn new(lease: LeaseId) -> Ours {
        Ours { lease, table: TABLE, forgets: false, sequence: Sequence::FIRST }
    }

    /// Returns the same connection, for the objects of another table.
    #[must_use]
    pub fn in_table(self, table: TableId) -> Ours {
        Ours { table, ..self }
    }

    /// Returns the same connection, for which objects to be deleted may be missing.
    #[must_use]
    pub fn that_forgets(self) -> Ours {
        Ours { forgets: true, ..self }
    }

    fn identity(&self, oldest: Option<Sequence>) -> Identity {
        match self.lease {
            LeaseId::NONE => Identity::NONE,
            lease => Identity::new(lease, self.sequence, oldest.unwrap_or(self.sequence)),
        }
    }
}

impl Protocol for Ours {
    fn greet(&mut self, stream: &mut dyn Stream) -> Result<()> {
        let preface = Preface::new(0, 1 << 20, None);
        let payload = preface.as_bytes();
        let head = Head { kind: Kind::PREFACE, payload_bytes: payload.len() };
        stream.write_all(&[&head.to_bytes(), payload].concat()).context("greet")?;
        let mut head = [0; HEAD_BYTES];
        stream.read_exact(&mut head).context("be greeted")?;
        let head = Head::read(&head).context("a greeting")?;
        ensure!(head.kind == Kind::PREFACE && head.payload_bytes <= 4096, "no greeting");
        let mut theirs = vec![0; head.payload_bytes];
        stream.read_exact(&mut theirs).context("be greeted")
    }

    #[inline]
    fn ask(&mut self, flight: &mut Flight, oldest: Option<Sequence>, to: &mut Vec<u8>) {
        let from = to.len();
        to.extend_from_slice(&[0; HEAD_BYTES]);
        let single = flight.numbers.len() == 1;
        let opcode = match (flight.act, single) {
            (Act::Read, true) => Opcode::Read,
            (Act::Read, false) => Opcode::ReadMany,
            (Act::Write, true) => Opcode::Write,
            (Act::Delete, true) => Opcode::Delete,
            (_, false) => Opcode::UpdateMany,
        };
        to.extend_from_slice(MessageHead::request(flight.id, opcode.code(), 0).as_bytes());
        flight.sequence = self.sequence;
        if flight.act != Act::Read {
            to.extend_from_slice(self.identity(oldest).as_bytes());
        }
        let object = ObjectHead::new(self.table, KEY_BYTES, Condition::Always, 0);
        for number in &flight.numbers {
            to.extend_from_slice(object.as_bytes());
            let (kind, bytes) = match flight.act {
                Act::Write => (UpdateKind::Write, flight.value_bytes),
                _ => (UpdateKind::Delete, 0),
            };
            if flight.act != Act::Read {
                if !single {
                    to.extend_from_slice(UpdateHead::new(self.sequence, kind, bytes).as_bytes());
                }
                self.sequence = self.sequence.next();
            }
            to.extend_from_slice(&key(*number));
            if flight.act == Act::Write {
                put_value(to, *number, flight.id, bytes);
            }
        }
        let payload_bytes = (to.len() - from - HEAD_BYTES).min(PAYLOAD_BYTES_MAX);
        let head = Head { kind: Kind::MESSAGE, payload_bytes }.to_bytes();
        to[from..from + HEAD_BYTES].copy_from_slice(&head);
    }

    #[inline]
    fn answer(&mut self, flights: &mut VecDeque<Flight>, bytes: &[u8]) -> Result<Answer, Bad> {
        let Some(head) = Head::read(bytes) else { return Ok(Answer::Partial) };
        let end = HEAD_BYTES + head.payload_bytes;
        if head.kind != Kind::MESSAGE {
            if !head.kind.may_be_skipped() {
                return Err(Bad::Malformed("a frame of an unknown kind"));
            }
            return Ok(if bytes.len() < end { Answer::Partial } else { Answer::Aside(end) });
        }
        let most = flights.iter().map(reply_bytes_max).max().unwrap_or(0);
        if head.payload_bytes > most {
            return Err(Bad::Malformed("an answer that is longer than any expected one"));
        }
        let Some(message) = bytes.get(HEAD_BYTES..end) else { return Ok(Answer::Partial) };
        let Some((head, body)) = MessageHead::split(message) else {
            return Err(Bad::Malformed("a message without a head"));
        };
        let place = flights.iter().position(|it| it.id == head.id());
        let found = place.and_then(|place| Some((place, flights.get_mut(place)?)));
        let Some((place, flight)) = found.filter(|_| head.is_reply()) else {
            return Err(Bad::Malformed("an answer without a request"));
        };
        let is_done = match Status::of_code(head.code()) {
            Some(Status::Ok) if flight.numbers.len() == 1 => one(flight, body, self.forgets)?,
            Some(Status::Ok) => many(flight, body)?,
            Some(status) if status.is_busy() => false,
            status => return Err(Bad::Refused(format!("status {status:?} ({})", head.code()))),
        };
        let bytes = end;
        Ok(if is_done { Answer::Done { bytes, place } } else { Answer::Again { bytes, place } })
    }
}

/// Returns the length of the longest answer to a request.
fn reply_bytes_max(flight: &Flight) -> usize {
    let value = if flight.act == Act::Read { flight.value_bytes } else { 0 };
    MESSAGE_HEAD_BYTES + 64 + flight.numbers.len() * (value + 64)
}

#[inline]
fn one(flight: &Flight, body: &[u8], forgets: bool) -> Result<bool, Bad> {
    let number = flight.numbers.first().copied().unwrap_or_default();
    let Some((version, value)) = body.split_at_checked(VERSION_BYTES) else {
        return Err(Bad::Malformed("an answer without a version"));
    };
    match flight.act {
        Act::Read if value.len() != flight.value_bytes => return Err(Bad::Wrong(number)),
        Act::Read => check(value, number)?,
        Act::Delete if version == [0; VERSION_BYTES] && !forgets => return Err(Bad::Gone(number)),
        Act::Write | Act::Delete => {}
    }
    Ok(true)
}

/// Checks an answer to a message of many. Returns false if objects must be sent again; those stay
/// in the flight.
fn many(flight: &mut Flight, body: &[u8]) -> Result<bool, Bad> {
    let (mut rest, mut kept, count) = (body, 0, flight.numbers.len());
    for at in 0..count {
        let number = flight.numbers.get(at).copied().unwrap_or_default();
        let Some((head, value, behind)) = PartHead::take(rest) else {
            return Err(Bad::Malformed("an answer that ends before its last part"));
        };
        rest = behind;
        match Status::of_code(head.status()) {
            Some(Status::Ok) if flight.act != Act::Read => {}
            Some(Status::Ok) if value.len() != flight.value_bytes => {
                return Err(Bad::Wrong(number));
            }
            Some(Status::Ok) => check(value, number)?,
            Some(status) if status.is_busy() => {
                if let Some(place) = flight.numbers.get_mut(kept) {
                    *place = number;
                }
                kept += 1;
            }
            status => return Err(Bad::Refused(format!("status {status:?} of object {number}"))),
        }
    }
    if !rest.is_empty() {
        return Err(Bad::Malformed("an answer with bytes behind its last part"));
    }
    if kept == 0 {
        return Ok(true);
    }
    flight.done += (count - kept) as u64;
    flight.numbers.truncate(kept);
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::super::protocol::tests::{flights, hold, value};
    use super::*;
    use thunderhead_wire::Version;

    fn reply(id: u64, status: Status, body: &[u8]) -> Vec<u8> {
        let message = MessageHead::reply(id, status.code(), 0);
        let payload_bytes = MESSAGE_HEAD_BYTES + body.len();
        let head = Head { kind: Kind::MESSAGE, payload_bytes }.to_bytes();
        [&head, message.as_bytes(), body].concat()
    }

    fn part(status: Status, value: &[u8]) -> Vec<u8> {
        [PartHead::new(status.code(), Version(3), value.len()).as_bytes(), value].concat()
    }

    #[test]
    fn answers_are_taken_whole_or_not_at_all() {
        let one = [7u64.to_le_bytes().as_slice(), &value(4, 100)].concat();
        let reads = flights(Act::Read, &[4], 100);
        hold(&mut Ours::new(LeaseId::NONE), &reads, &reply(1, Status::Ok, &one));
        let version = 7u64.to_le_bytes();
        hold(
            &mut Ours::new(LeaseId::NONE),
            &flights(Act::Write, &[4], 9),
            &reply(1, Status::Ok, &version),
        );
        let parts = [part(Status::Ok, &value(4, 100)), part(Status::Ok, &value(5, 100))].concat();
        let many = flights(Act::Read, &[4, 5], 100);
        hold(&mut Ours::new(LeaseId::NONE), &many, &reply(1, Status::Ok, &parts));
    }

    #[test]
    fn objects_refused_by_a_busy_server_stay_in_the_request() {
        let mut many = flights(Act::Write, &[4, 5, 6], 100);
        let parts = [part(Status::Ok, &[]), part(Status::Busy, &[]), part(Status::Ok, &[])];
        let bytes = reply(1, Status::Ok, &parts.concat());
        let again = Answer::Again { bytes: bytes.len(), place: 0 };
        assert_eq!(Ours::new(LeaseId(1)).answer(&mut many, &bytes), Ok(again));
        assert_eq!((many[0].numbers.as_slice(), many[0].done), ([5].as_slice(), 2));
        let busy = reply(1, Status::Busy, &[]);
        let again = Answer::Again { bytes: busy.len(), place: 0 };
        assert_eq!(Ours::new(LeaseId(1)).answer(&mut many, &busy), Ok(again));
    }

    #[test]
    fn unexpected_answers_are_errors() {
        let answer = |bytes: &[u8]| {
            Ours::new(LeaseId::NONE).answer(&mut flights(Act::Read, &[4], 100), bytes)
        };
        let good = [7u64.to_le_bytes().as_slice(), &value(4, 100)].concat();
        assert!(answer(&reply(2, Status::Ok, &good)).is_err());
        assert!(answer(&reply(1, Status::Ok, &good[..50])).is_err());
        assert!(answer(&reply(1, Status::Ok, &[])).is_err());
        let long = Head { kind: Kind::MESSAGE, payload_bytes: PAYLOAD_BYTES_MAX }.to_bytes();
        assert!(answer(&long).is_err());
        assert!(answer(&Head { kind: Kind(9), payload_bytes: 1 }.to_bytes()).is_err());
        let aside = Head { kind: Kind(200), payload_bytes: 1 }.to_bytes();
        assert_eq!(answer(&[aside.as_slice(), b"x"].concat()), Ok(Answer::Aside(5)));
    }
}
