//! The bytes of results.
//!
//! A buffer holds any number of completions, one after another. All numbers are little-endian, and
//! nothing is aligned.
//!
//! | bytes | content of a completion |
//! | --- | --- |
//! | 8 | tag of the submission |
//! | 4 | how many results follow |
//!
//! | bytes | content of a result |
//! | --- | --- |
//! | 1 | kind, see below |
//! | 1 | error: 1 if a change may have been done; value: 1 whole, 2 floating-point number; else 0 |
//! | 2 | error: its code; else 0 |
//! | 4 | bytes of the key |
//! | 4 | bytes of the value |
//! | 8 | version, or 0 |
//! | … | key, value |
//!
//! | kind | result |
//! | --- | --- |
//! | 0 | an error; the value is a sentence |
//! | 1 | a value; in a scan also its key |
//! | 2 | there is no object |
//! | 3 | a change was done: the version is that of the object, or of the deleted object |
//! | 4 | a sum: 8 bytes of a number, and the version |
//! | 5 | a table: key is its name, version its id; value: see below |
//! | 6 | a question has been answered, without more to say |
//! | 7 | the end of a page; the second byte is 1 if the scan has ended |
//! | 8 | 8 bytes of milliseconds that an object still lives, or the highest number; its version |
//!
//! The value of a table has its options, as [`request`](crate::request) describes them, and then
//! three numbers for each tablet: the first hash, the last hash and the master.

use thunderhead_client::control::{Policy, TableInfo, TableOptions};
use thunderhead_client::{Answer, Error, Number, Object, Reply, TimeToLive, ValueKind, Version};

/// Appends the head of a completion.
pub fn put_head(tag: u64, results: usize, into: &mut Vec<u8>) {
    into.extend_from_slice(&tag.to_le_bytes());
    into.extend_from_slice(&u32::try_from(results).unwrap_or(u32::MAX).to_le_bytes());
}

/// The kinds of results.
#[derive(Clone, Copy)]
enum Kind {
    Error = 0,
    Value = 1,
    Absent = 2,
    Changed = 3,
    Sum = 4,
    Table = 5,
    Done = 6,
    PageEnd = 7,
    Lives = 8,
}

fn put(
    (kind, mark, code): (Kind, u8, u16),
    version: u64,
    (key, value): (&[u8], &[u8]),
    into: &mut Vec<u8>,
) {
    into.extend_from_slice(&[kind as u8, mark]);
    into.extend_from_slice(&code.to_le_bytes());
    for part in [key, value] {
        into.extend_from_slice(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes());
    }
    into.extend_from_slice(&version.to_le_bytes());
    into.extend_from_slice(key);
    into.extend_from_slice(value);
}

/// Appends an error.
pub fn put_error(error: &Error, into: &mut Vec<u8>) {
    let version = match error {
        Error::ConditionFailed { version } | Error::NotANumber { version } => version.0,
        _ => 0,
    };
    let head = (Kind::Error, u8::from(error.is_unknown()), error.code());
    put(head, version, (&[], error.to_string().as_bytes()), into);
}

/// Appends an error that is not the core's own, with its code and a sentence. `is_unknown`: whether
/// a change may have been done.
pub fn put_failure((code, is_unknown): (u16, bool), text: &str, into: &mut Vec<u8>) {
    put((Kind::Error, u8::from(is_unknown), code), 0, (&[], text.as_bytes()), into);
}

/// Appends the result of an operation.
pub fn put_answer(result: &Result<Answer, Error>, into: &mut Vec<u8>) {
    let plain = |kind| (kind, 0, 0);
    match result {
        Err(error) => put_error(error, into),
        Ok(Answer::Found { version, value }) => {
            put_value(*version, value, into);
        }
        Ok(Answer::Absent) => put(plain(Kind::Absent), 0, (&[], &[]), into),
        Ok(Answer::Written(version) | Answer::Deleted(version)) => {
            put(plain(Kind::Changed), version.0, (&[], &[]), into);
        }
        Ok(Answer::Sum { version, number }) => put_sum(*version, *number, into),
        Ok(Answer::Lives { version, time_to_live }) => put_lives(*version, *time_to_live, into),
        Ok(Answer::Page { .. }) => put_error(&Error::Incomprehensible, into),
    }
}

/// Appends the value of an object.
pub fn put_value(version: Version, value: &[u8], into: &mut Vec<u8>) {
    put((Kind::Value, 0, 0), version.0, (&[], value), into);
}

fn put_sum(version: Version, number: Number, into: &mut Vec<u8>) {
    let (mark, bytes) = match number {
        Number::Integer(number) => (1, number.to_le_bytes()),
        Number::Float(number) => (2, number.to_le_bytes()),
    };
    put((Kind::Sum, mark, 0), version.0, (&[], &bytes), into);
}

fn put_lives(version: Version, time_to_live: TimeToLive, into: &mut Vec<u8>) {
    let bytes = time_to_live.code().to_le_bytes();
    put((Kind::Lives, 0, 0), version.0, (&[], &bytes), into);
}

/// Appends the objects of a page.
pub fn put_page(objects: &[Object], is_last: bool, into: &mut Vec<u8>) {
    for Object { version, key, kind, value } in objects {
        let mark = match kind {
            ValueKind::Bytes => 0,
            ValueKind::Integer => 1,
            ValueKind::Float => 2,
        };
        put((Kind::Value, mark, 0), version.0, (key, value), into);
    }
    put((Kind::PageEnd, u8::from(is_last), 0), 0, (&[], &[]), into);
}

/// Appends the completion of a question.
pub fn put_reply_to(tag: u64, reply: &Result<Reply, Error>, into: &mut Vec<u8>) {
    let mut body = Vec::new();
    let results = put_reply(reply, &mut body);
    put_head(tag, results, into);
    into.append(&mut body);
}

/// Appends the reply to a question, and returns how many results it is.
pub fn put_reply(reply: &Result<Reply, Error>, into: &mut Vec<u8>) -> usize {
    match reply {
        Err(error) => {
            put_error(error, into);
            1
        }
        Ok(Reply::Table(table)) => {
            put_table(table, into);
            1
        }
        Ok(Reply::Map(map)) => {
            map.tables.iter().for_each(|table| put_table(table, into));
            map.tables.len()
        }
        Ok(_) => {
            put((Kind::Done, 0, 0), 0, (&[], &[]), into);
            1
        }
    }
}

fn put_table(table: &TableInfo, into: &mut Vec<u8>) {
    let TableOptions { ttl_ms, policy, max_bytes, reserved_bytes } = table.options;
    let mut about = ttl_ms.to_le_bytes().to_vec();
    about.push(match policy {
        Policy::Durable => 0,
        Policy::Cache => 1,
    });
    for bytes in [max_bytes, reserved_bytes] {
        about.extend_from_slice(&bytes.to_le_bytes());
    }
    for tablet in &table.tablets {
        for number in [tablet.first.0, tablet.last.0, tablet.master.0] {
            about.extend_from_slice(&number.to_le_bytes());
        }
    }
    put((Kind::Table, 0, 0), table.id.0, (table.name.as_bytes(), &about), into);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_an_object_lives_has_eight_bytes() {
        let mut bytes = Vec::new();
        let time_to_live = TimeToLive::Milliseconds(300);
        put_answer(&Ok(Answer::Lives { version: Version(7), time_to_live }), &mut bytes);
        let head = [8, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(bytes, [head.as_slice(), &300u64.to_le_bytes()].concat());
    }
}
