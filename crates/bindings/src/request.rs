//! The bytes of requests.
//!
//! A buffer holds any number of submissions, one after another. All numbers are little-endian, and
//! nothing is aligned.
//!
//! | bytes | content of a submission |
//! | --- | --- |
//! | 8 | tag: identifies the submission in the results |
//! | 8 | deadline in nanoseconds from now; 0: none |
//! | 1 | class: 0 operations, 1 question, 2 next page of a scan |
//! | 3 | zeroes |
//! | 4 | class 0: how many operations follow; else 1 |
//!
//! | bytes | content of an operation |
//! | --- | --- |
//! | 1 | kind: 0 read, 1 write, 2 delete, 3 increment, 4 write a number, 5 set expiry, 6 read it |
//! | 1 | condition: 0 always, 1 absent, 2 present, 3 the version is, 4 the version is below |
//! | 1 | kinds 3 and 4: 0 whole number, 1 floating-point number; else 0 |
//! | 1 | 1 if a time to live follows; else 0. Kinds 1 and 4 may have one, kind 5 has one |
//! | 4 | bytes of the key |
//! | 4 | bytes of the value; kinds 3 and 4: 8, kinds 0, 2, 5 and 6: 0 |
//! | 8 | table |
//! | 8 | version of the condition, or 0 |
//! | 8 | the time to live in milliseconds, or the highest number for ever; only with the mark |
//! | … | key, value |
//!
//! | bytes | content of a question |
//! | --- | --- |
//! | 1 | kind: 0 create a table, 1 drop it, 2 find it, 3 list all, 4 split a tablet, 5 migrate it |
//! | 2, … | name of the table; kind 3: empty |
//! | 8 | kind 0: over how many shards; kinds 4 and 5: hash; else 0 |
//! | 8 | kind 5: master; else 0 |
//! | 25 | kind 0: the options of the table, see below |
//!
//! | bytes | content of the options of a table |
//! | --- | --- |
//! | 8 | time to live of objects whose writes name none, in milliseconds; 0: for ever |
//! | 1 | policy: 0 durable, 1 cache |
//! | 8 | the most bytes of the table; 0: no limit |
//! | 8 | the reserved bytes of a cache |
//!
//! | bytes | content of a scan |
//! | --- | --- |
//! | 8 | scan, as [`ByteQueue::open_scan`](crate::ByteQueue::open_scan) returned it |

use crate::reader::{Malformed, Reader};
use std::time::Duration;
use thunderhead_client::control::{
    CreateTable, DropTable, MigrateTablet, Policy, SplitTablet, TableOptions,
};
use thunderhead_client::{
    Action, Condition, KeyHash, MasterId, Number, Operation, Question, TableId, TimeToLive, Version,
};

/// The bytes of the smallest operation, which bounds how many a buffer can hold.
const OPERATION_BYTES_MIN: usize = 28;

/// A submission.
#[derive(Clone, Debug, PartialEq)]
pub struct Submitted {
    /// Identifies it.
    pub tag: u64,
    /// Its time limit.
    pub deadline: Option<Duration>,
    /// Its work.
    pub work: Work,
}

/// The work of a submission.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Operations on objects.
    Operations(Vec<Operation>),
    /// A question to the coordinator.
    Question(Question),
    /// The next page of a scan.
    Page {
        /// The scan.
        scan: u64,
    },
}

/// Decodes a buffer of submissions.
///
/// # Errors
/// If the buffer is not a row of whole submissions.
pub fn decode(buffer: &[u8]) -> Result<Vec<Submitted>, Malformed> {
    let mut reader = Reader::new(buffer);
    let mut all = Vec::new();
    while !reader.is_at_end() {
        let tag = reader.u64()?;
        let deadline = Some(reader.u64()?).filter(|it| *it > 0).map(Duration::from_nanos);
        let class = reader.u8()?;
        reader.bytes(3)?;
        let count = reader.u32()? as usize;
        let work = match class {
            0 => {
                // The count is not trusted before the operations are there.
                let mut operations =
                    Vec::with_capacity(count.min(buffer.len() / OPERATION_BYTES_MIN));
                for _ in 0..count {
                    operations.push(operation(&mut reader)?);
                }
                Work::Operations(operations)
            }
            1 => Work::Question(question(&mut reader)?),
            2 => Work::Page { scan: reader.u64()? },
            _ => return Err(reader.malformed()),
        };
        all.push(Submitted { tag, deadline, work });
    }
    Ok(all)
}

/// A submission of one unconditional read, in the buffer that it came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoneRead<'a> {
    pub(crate) tag: u64,
    pub(crate) deadline: Option<Duration>,
    pub(crate) table: TableId,
    pub(crate) key: &'a [u8],
}

/// Returns the read if the buffer holds one read and nothing else. It is the most frequent request,
/// and this takes no memory for it.
pub(crate) fn lone_read(buffer: &[u8]) -> Option<LoneRead<'_>> {
    let mut reader = Reader::new(buffer);
    let tag = reader.u64().ok()?;
    let deadline = Some(reader.u64().ok()?).filter(|it| *it > 0).map(Duration::from_nanos);
    // The class, three zeroes, the count, and then the kind and the condition.
    if reader.bytes(10).ok()? != [0, 0, 0, 0, 1, 0, 0, 0, 0, 0] {
        return None;
    }
    reader.u8().ok()?;
    if reader.u8().ok()? != 0 {
        return None;
    }
    let (key, value) = (reader.u32().ok()? as usize, reader.u32().ok()?);
    let table = TableId(reader.u64().ok()?);
    reader.u64().ok()?;
    let key = reader.bytes(key).ok()?;
    (value == 0 && reader.is_at_end()).then_some(LoneRead { tag, deadline, table, key })
}

fn operation(reader: &mut Reader<'_>) -> Result<Operation, Malformed> {
    let (kind, condition, is_float) = (reader.u8()?, reader.u8()?, reader.u8()?);
    let mark = reader.u8()?;
    let (key, value) = (reader.u32()? as usize, reader.u32()? as usize);
    let table = TableId(reader.u64()?);
    let version = Version(reader.u64()?);
    let time_to_live = match mark {
        0 => None,
        1 => Some(TimeToLive::of_code(reader.u64()?)),
        _ => return Err(reader.malformed()),
    };
    let key = reader.bytes(key)?.to_vec();
    let value = reader.bytes(value)?;
    let malformed = reader.malformed();
    let number = || {
        let bytes = value.try_into().map_err(|_| malformed)?;
        Ok(match is_float {
            0 => Number::Integer(i64::from_le_bytes(bytes)),
            _ => Number::Float(f64::from_le_bytes(bytes)),
        })
    };
    let action = match (kind, time_to_live) {
        (0, None) => Action::Read,
        (1, None) => Action::Write(value.to_vec()),
        (1, Some(time)) => Action::WriteExpiring(value.to_vec(), time),
        (2, None) => Action::Delete,
        (3, None) => Action::Increment(number()?),
        (4, None) => Action::WriteNumber(number()?),
        (4, Some(time)) => Action::WriteNumberExpiring(number()?, time),
        (5, Some(time)) => Action::SetExpiry(time),
        (6, None) => Action::ReadExpiry,
        _ => return Err(malformed),
    };
    let condition = match condition {
        0 => Condition::Always,
        1 => Condition::Absent,
        2 => Condition::Present,
        3 => Condition::VersionIs(version),
        4 => Condition::VersionBelow(version),
        _ => return Err(malformed),
    };
    Ok(Operation { table, key, condition, action })
}

fn question(reader: &mut Reader<'_>) -> Result<Question, Malformed> {
    let kind = reader.u8()?;
    let name = reader.text()?.to_owned();
    let (first, second) = (reader.u64()?, reader.u64()?);
    Ok(match kind {
        0 => {
            let server_span = u32::try_from(first).map_err(|_| reader.malformed())?;
            let options = table_options(reader)?;
            Question::CreateTable(CreateTable { options, ..CreateTable::spread(name, server_span) })
        }
        1 => Question::DropTable(DropTable::named(&name)),
        2 => Question::Map(Some(name)),
        3 => Question::Map(None),
        4 => Question::SplitTablet(SplitTablet { table: name, at: KeyHash(first) }),
        5 => {
            let (first, to) = (KeyHash(first), MasterId(second));
            Question::MigrateTablet(MigrateTablet { table: name, first, to })
        }
        _ => return Err(reader.malformed()),
    })
}

fn table_options(reader: &mut Reader<'_>) -> Result<TableOptions, Malformed> {
    let ttl_ms = reader.u64()?;
    let policy = match reader.u8()? {
        0 => Policy::Durable,
        1 => Policy::Cache,
        _ => return Err(reader.malformed()),
    };
    let (max_bytes, reserved_bytes) = (reader.u64()?, reader.u64()?);
    Ok(TableOptions { ttl_ms, policy, max_bytes, reserved_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(tag: u64, deadline: u64, class: u8, count: u32) -> Vec<u8> {
        let mut bytes = [tag.to_le_bytes(), deadline.to_le_bytes()].concat();
        bytes.extend([class, 0, 0, 0]);
        bytes.extend(count.to_le_bytes());
        bytes
    }

    fn operation(kind: u8, condition: u8, is_float: u8, key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind, condition, is_float, 0];
        bytes.extend((key.len() as u32).to_le_bytes());
        bytes.extend((value.len() as u32).to_le_bytes());
        bytes.extend(5u64.to_le_bytes());
        bytes.extend(9u64.to_le_bytes());
        [bytes.as_slice(), key, value].concat()
    }

    /// An operation with a time to live.
    fn living(kind: u8, ttl: u64, key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut bytes = operation(kind, 0, 0, key, value);
        bytes[3] = 1;
        bytes.splice(OPERATION_BYTES_MIN..OPERATION_BYTES_MIN, ttl.to_le_bytes());
        bytes
    }

    fn some_of_everything() -> Vec<u8> {
        let mut bytes = head(1, 0, 0, 7);
        bytes.extend(operation(0, 0, 0, b"ada", b""));
        bytes.extend(operation(1, 3, 0, b"", b"countess"));
        bytes.extend(operation(3, 0, 1, b"n", &1.5f64.to_le_bytes()));
        bytes.extend(living(1, 60, b"t", b"v"));
        bytes.extend(living(4, u64::MAX, b"n", &7i64.to_le_bytes()));
        bytes.extend(living(5, 5, b"t", b""));
        bytes.extend(operation(6, 0, 0, b"t", b""));
        bytes.extend(head(2, 1_000, 1, 1));
        bytes.push(0);
        bytes.extend(5u16.to_le_bytes());
        bytes.extend(b"users");
        bytes.extend([2u64.to_le_bytes(), 0u64.to_le_bytes(), 9u64.to_le_bytes()].concat());
        bytes.push(1);
        bytes.extend([30u64.to_le_bytes(), 20u64.to_le_bytes()].concat());
        bytes.extend(head(3, 0, 2, 1));
        bytes.extend(77u64.to_le_bytes());
        bytes
    }

    #[test]
    fn submissions_are_decoded_in_their_order() {
        let decoded = decode(&some_of_everything()).unwrap();
        let operation = |key: &[u8], condition, action| Operation {
            table: TableId(5),
            key: key.to_vec(),
            condition,
            action,
        };
        let operations = vec![
            operation(b"ada", Condition::Always, Action::Read),
            operation(b"", Condition::VersionIs(Version(9)), Action::Write(b"countess".to_vec())),
            operation(b"n", Condition::Always, Action::Increment(Number::Float(1.5))),
            operation(
                b"t",
                Condition::Always,
                Action::WriteExpiring(b"v".to_vec(), TimeToLive::Milliseconds(60)),
            ),
            operation(
                b"n",
                Condition::Always,
                Action::WriteNumberExpiring(Number::Integer(7), TimeToLive::Never),
            ),
            operation(b"t", Condition::Always, Action::SetExpiry(TimeToLive::Milliseconds(5))),
            operation(b"t", Condition::Always, Action::ReadExpiry),
        ];
        let options =
            TableOptions { ttl_ms: 9, policy: Policy::Cache, max_bytes: 30, reserved_bytes: 20 };
        let question = CreateTable { options, ..CreateTable::spread("users", 2) };
        let expected = [
            Submitted { tag: 1, deadline: None, work: Work::Operations(operations) },
            Submitted {
                tag: 2,
                deadline: Some(Duration::from_micros(1)),
                work: Work::Question(Question::CreateTable(question)),
            },
            Submitted { tag: 3, deadline: None, work: Work::Page { scan: 77 } },
        ];
        assert_eq!(decoded, expected);
    }

    #[test]
    fn only_writes_have_a_time_to_live() {
        for kind in [0, 2, 3, 6] {
            let bytes = [head(1, 0, 0, 1), living(kind, 5, b"k", &[0; 8])].concat();
            assert!(decode(&bytes).is_err(), "kind {kind}");
        }
        let bytes = [head(1, 0, 0, 1), operation(5, 0, 0, b"k", b"")].concat();
        assert!(decode(&bytes).is_err(), "an expiry without a time");
    }

    #[test]
    fn only_one_unconditional_read_is_a_lone_read() {
        let single = [head(7, 1_000, 0, 1), operation(0, 0, 0, b"ada", b"")].concat();
        let deadline = Some(Duration::from_micros(1));
        let expected = LoneRead { tag: 7, deadline, table: TableId(5), key: b"ada" };
        assert_eq!(lone_read(&single), Some(expected));
        for end in 0..single.len() {
            assert_eq!(lone_read(&single[..end]), None, "cut to {end}");
        }
        let others = [
            [head(7, 0, 0, 1), operation(2, 0, 0, b"ada", b"")].concat(),
            [head(7, 0, 0, 1), operation(0, 3, 0, b"ada", b"")].concat(),
            [head(7, 0, 0, 2), operation(0, 0, 0, b"ada", b"")].concat(),
            [head(7, 0, 0, 1), operation(0, 0, 0, b"ada", b"x")].concat(),
            [head(7, 0, 0, 1), living(0, 5, b"ada", b"")].concat(),
            [single.clone(), single].concat(),
            [head(3, 0, 2, 1), 77u64.to_le_bytes().to_vec()].concat(),
        ];
        for other in others {
            assert_eq!(lone_read(&other), None);
        }
    }

    #[test]
    fn no_prefix_and_no_changed_byte_makes_the_decoder_panic() {
        let whole = some_of_everything();
        let ends: Vec<usize> =
            (0..=whole.len()).filter(|end| decode(&whole[..*end]).is_ok()).collect();
        // Only whole submissions are accepted.
        assert_eq!(ends.len(), 4, "{ends:?}");
        for at in 0..whole.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[at] = byte;
                let _ = decode(&changed);
            }
        }
        let huge = head(1, 0, 0, u32::MAX);
        assert_eq!(decode(&huge).unwrap_err(), Malformed { at: huge.len() });
    }
}
