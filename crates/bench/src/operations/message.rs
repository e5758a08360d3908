//! Requests made without allocating: bodies are laid out once, and only the differences between
//! operations are written into them.

use crate::log::subject::TABLE;
use thunderhead_load::content::{KEY_BYTES, fill, key};
use thunderhead_load::workload::Kind;
use thunderhead_rpc::Opcode;
use thunderhead_wire::operations::{
    IDENTITY_BYTES, Identity, OBJECT_HEAD_BYTES, ObjectHead, UpdateHead, UpdateKind,
};
use thunderhead_wire::{Condition, Sequence};
use zerocopy::IntoBytes;

/// Bytes of an update head: see docs/protocol.md.
const UPDATE_HEAD_BYTES: usize = 16;

/// Bodies of all kinds of requests, for values of one length and a limited number of parts.
pub struct Bodies {
    value_bytes: usize,
    read: Vec<u8>,
    write: Vec<u8>,
    increment: Vec<u8>,
    many_reads: Vec<u8>,
    many_writes: Vec<u8>,
}

impl Bodies {
    /// Lays out the bodies.
    #[must_use]
    pub fn new(value_bytes: usize, parts: usize) -> Bodies {
        let head = ObjectHead::new(TABLE, KEY_BYTES, Condition::Always, 0);
        let (head, key) = (head.as_bytes(), key(0));
        let (value, by) = (vec![b'v'; value_bytes], 1i64.to_le_bytes());
        let identity = Identity::NONE;
        let update = UpdateHead::new(Sequence::NONE, UpdateKind::Write, value_bytes);
        let read = [head, &key].concat();
        let write = [identity.as_bytes(), head, &key, &value].concat();
        let increment = [identity.as_bytes(), head, &key, &by].concat();
        let one = [head, update.as_bytes(), &key, &value].concat();
        let many_writes = [identity.as_bytes(), &one.repeat(parts)].concat();
        let many_reads = read.repeat(parts);
        Bodies { value_bytes, read, write, increment, many_reads, many_writes }
    }

    /// Returns the body that reads an object.
    #[inline]
    pub fn read(&mut self, number: u64) -> (Opcode, &[u8]) {
        put(&mut self.read, OBJECT_HEAD_BYTES, number);
        (Opcode::Read, &self.read)
    }

    /// Returns the body that writes an object.
    #[inline]
    pub fn write(&mut self, identity: Identity, number: u64, stamp: u64) -> (Opcode, &[u8]) {
        let body = &mut self.write;
        body[..IDENTITY_BYTES].copy_from_slice(identity.as_bytes());
        put(body, IDENTITY_BYTES + OBJECT_HEAD_BYTES, number);
        fill(&mut body[IDENTITY_BYTES + OBJECT_HEAD_BYTES + KEY_BYTES..], number, stamp);
        (Opcode::Write, body)
    }

    /// Returns the body that adds one to an object.
    #[inline]
    pub fn increment(&mut self, identity: Identity, number: u64) -> (Opcode, &[u8]) {
        let body = &mut self.increment;
        body[..IDENTITY_BYTES].copy_from_slice(identity.as_bytes());
        put(body, IDENTITY_BYTES + OBJECT_HEAD_BYTES, number);
        (Opcode::Increment, body)
    }

    /// Returns the body that reads or writes several objects, no more than there is room for.
    #[inline]
    pub fn many(
        &mut self,
        kind: Kind,
        identity: Identity,
        numbers: &[u64],
        stamp: u64,
    ) -> (Opcode, &[u8]) {
        if kind == Kind::MultiRead {
            let each = OBJECT_HEAD_BYTES + KEY_BYTES;
            let body = &mut self.many_reads[..numbers.len() * each];
            for (part, number) in body.chunks_exact_mut(each).zip(numbers) {
                put(part, OBJECT_HEAD_BYTES, *number);
            }
            return (Opcode::ReadMany, body);
        }
        let each = OBJECT_HEAD_BYTES + UPDATE_HEAD_BYTES + KEY_BYTES + self.value_bytes;
        let body = &mut self.many_writes[..IDENTITY_BYTES + numbers.len() * each];
        body[..IDENTITY_BYTES].copy_from_slice(identity.as_bytes());
        let (first, parts) = (identity.sequence().0, body[IDENTITY_BYTES..].chunks_exact_mut(each));
        for ((part, number), sequence) in parts.zip(numbers).zip(first..) {
            put(part, OBJECT_HEAD_BYTES, sequence);
            put(part, OBJECT_HEAD_BYTES + UPDATE_HEAD_BYTES, *number);
            let value = OBJECT_HEAD_BYTES + UPDATE_HEAD_BYTES + KEY_BYTES;
            fill(&mut part[value..], *number, stamp);
        }
        (Opcode::UpdateMany, body)
    }
}

#[inline]
fn put(body: &mut [u8], at: usize, number: u64) {
    body[at..at + 8].copy_from_slice(&number.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use thunderhead_load::content::is_right;
    use thunderhead_wire::LeaseId;
    use thunderhead_wire::operations::{ReadPart, UpdatePart};

    #[test]
    fn bodies_have_the_bytes_of_the_protocol() {
        for value_bytes in [0, 16, 100] {
            let mut bodies = Bodies::new(value_bytes, 3);
            let identity = Identity::new(LeaseId(5), Sequence(70), Sequence(60));
            let (_, body) = bodies.read(8);
            let (part, rest) = ReadPart::take(body).unwrap();
            assert_eq!((part.key, rest.len()), (key(8).as_slice(), 0));
            let (_, body) = bodies.write(identity, 9, 3);
            assert_eq!(&body[..IDENTITY_BYTES], identity.as_bytes());
            let (_, found, value) = ObjectHead::take(&body[IDENTITY_BYTES..]).unwrap();
            assert_eq!(found, key(9));
            assert!(value.len() == value_bytes && is_right(value, 9));
            let (_, body) = bodies.increment(identity, 1);
            assert_eq!(ObjectHead::take(&body[IDENTITY_BYTES..]).unwrap().2, 1i64.to_le_bytes());

            let numbers = [3, 4];
            let (opcode, mut rest) = bodies.many(Kind::MultiRead, identity, &numbers, 0);
            assert_eq!(opcode, Opcode::ReadMany);
            for number in numbers {
                let (part, behind) = ReadPart::take(rest).unwrap();
                assert_eq!(part.key, key(number));
                rest = behind;
            }
            assert!(rest.is_empty());
            let (opcode, body) = bodies.many(Kind::MultiWrite, identity, &numbers, 0);
            assert_eq!(opcode, Opcode::UpdateMany);
            let mut rest = &body[IDENTITY_BYTES..];
            for (number, expected) in numbers.into_iter().zip((70..).map(Sequence)) {
                let ((sequence, part), behind) = UpdatePart::take(rest).unwrap();
                assert_eq!((sequence, part.key), (expected, key(number).as_slice()));
                assert!(part.argument.len() == value_bytes && is_right(part.argument, number));
                rest = behind;
            }
            assert!(rest.is_empty());
        }
    }
}
