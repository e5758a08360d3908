//! Keys and values: their limits and kinds, conditions of writes, and batches of writes and reads.

use crate::{TABLE, keys, log, log_in, nothing, options};
use thunderhead_log::{
    Condition, Error, KEY_BYTES_MAX, Log, LogId, Memory, Options, Put, TableId, TabletRange,
    ValueKind, Version,
};

#[test]
fn a_number_stays_one_until_something_else_is_written() {
    let mut log = log();
    let kind = |log: &Log| log.read(TABLE, b"k").unwrap().unwrap().kind();
    for (written, value) in [
        (ValueKind::Integer, &b"12345678"[..]),
        (ValueKind::Bytes, b"12345678"),
        (ValueKind::Float, b"12345678"),
        (ValueKind::Bytes, b"text"),
    ] {
        log.of_kind(written, |log| log.write(TABLE, b"k", value)).unwrap();
        assert_eq!(kind(&log), written);
        assert_eq!(log.read(TABLE, b"k").unwrap().unwrap().value().to_vec(), value);
    }
    log.of_kind(ValueKind::Integer, |log| {
        log.write_if(TABLE, b"k", b"87654321", Condition::Absent)
    })
    .unwrap_err();
    log.write(TABLE, b"k", b"12345678").unwrap();
    assert_eq!(kind(&log), ValueKind::Bytes, "the refused write leaves no kind behind");
}

#[test]
fn impossible_keys_and_values_are_refused_by_name() {
    let mut log = log();
    let long = vec![1; KEY_BYTES_MAX + 1];
    let large = vec![1; log.options().value_bytes_max() + 1];
    let cases: [(&[u8], &[u8], u16); 3] = [(b"", b"", 1), (&long, b"", 2), (b"k", &large, 3)];
    for (key, value, code) in cases {
        assert_eq!(log.write(TABLE, key, value).unwrap_err().code(), code);
    }
    assert_eq!(log.delete(TABLE, b"", Condition::Always), Err(Error::KeyEmpty));
    assert_eq!(keys(&log, TabletRange::whole(TABLE)).len(), 0);
}

#[test]
fn reads_find_no_key_that_cannot_exist() {
    let mut log = log();
    assert!(log.read(TABLE, b"").unwrap().is_none());
    assert!(log.read(TABLE, &vec![1; KEY_BYTES_MAX + 1]).unwrap().is_none());
    assert_eq!(log.write(TABLE, b"", b""), Err(Error::KeyEmpty));
}

#[test]
fn keys_and_values_of_full_length_are_taken_and_come_back() {
    let memory = Memory::new(64 << 20).unwrap();
    let mut log = Log::new(&memory, LogId(1), Options::default(), nothing()).unwrap();
    log.create_tablet(TabletRange::whole(TABLE)).unwrap();
    for number in 0..20u8 {
        let key = vec![number; KEY_BYTES_MAX];
        let value: Vec<u8> = (0..1 << 20).map(|at| (at % 251) as u8 ^ number).collect();
        log.write(TABLE, &key, &value).unwrap();
        let object = log.read(TABLE, &key).unwrap().unwrap();
        assert!(object.key().equals(&key));
        assert!(object.value().equals(&value));
        assert_eq!(object.value().pieces().map(<[u8]>::len).sum::<usize>(), value.len());
    }
}

#[test]
fn a_write_whose_condition_fails_says_which_version_is_there() {
    let mut log = log();
    let first = log.write_if(TABLE, b"k", b"1", Condition::Absent).unwrap().version;
    let cases = [
        (Condition::Absent, false),
        (Condition::Present, true),
        (Condition::VersionIs(first.next()), true),
        (Condition::VersionIs(first), false),
        (Condition::VersionBelow(Version(3)), false),
        (Condition::VersionBelow(Version(9)), true),
    ];
    for (condition, holds) in cases {
        let before = log.read(TABLE, b"k").unwrap().unwrap().version();
        match log.write_if(TABLE, b"k", b"2", condition) {
            Ok(written) => assert!(holds && written.version == before.next(), "{condition:?}"),
            Err(error) => {
                assert!(!holds, "{condition:?}");
                assert_eq!(error, Error::Condition { current: before });
            }
        }
    }
    let absent = log.write_if(TABLE, b"other", b"", Condition::Present);
    assert_eq!(absent, Err(Error::Condition { current: Version::NONE }));
    let below = Condition::VersionBelow(Version::NONE);
    assert_eq!(log.delete(TABLE, b"other", below), Ok(None));
    log.write_if(TABLE, b"other", b"", below).unwrap();
    assert!(log.write_if(TABLE, b"other", b"", below).is_err());
}

#[test]
fn a_batch_does_what_single_operations_do() {
    let mut log = log();
    let names: Vec<Vec<u8>> = (0..300u32).map(|n| (n % 200).to_be_bytes().to_vec()).collect();
    let puts: Vec<Put<'_>> = names
        .iter()
        .map(|key| Put { table: TABLE, key, value: key, condition: Condition::Absent })
        .collect();
    let (mut written, mut refused) = (0, 0);
    log.write_batch(&puts, |_, result| match result {
        Ok(_) => written += 1,
        Err(Error::Condition { .. }) => refused += 1,
        Err(error) => panic!("{error}"),
    });
    assert_eq!((written, refused), (200, 100));
    let mut asked: Vec<(TableId, &[u8])> = names.iter().map(|key| (TABLE, &key[..])).collect();
    asked.push((TABLE, b"absent"));
    asked.push((TableId(8), b"elsewhere"));
    let mut answers = Vec::new();
    log.read_batch(asked, |at, found| {
        assert_eq!(at, answers.len());
        answers.push(found.map(|object| object.map(|object| object.value().to_vec())));
    });
    for (key, answer) in names.iter().zip(&answers) {
        assert_eq!(answer.as_ref().unwrap().as_ref(), Some(key));
    }
    assert_eq!(answers[300], Ok(None));
    assert_eq!(answers[301], Err(Error::UnknownTablet { table: TableId(8) }));
}

#[test]
fn batch_reads_of_any_size_find_the_same_as_single_reads() {
    let mut log = log_in(8 << 20, options(), nothing());
    let key_of = |number: u32| number.wrapping_mul(0x9e37_79b9).to_be_bytes();
    for number in 0..3000u32 {
        // Some objects cross seglets, and some buckets are full.
        let value = vec![number as u8; (number % 97 * number % 997) as usize];
        log.write(TABLE, &key_of(number), &value).unwrap();
        if number % 5 == 0 {
            log.delete(TABLE, &key_of(number), Condition::Always).unwrap();
        }
    }
    let mut next = 0;
    for count in (0..140).chain([3100]) {
        let keys: Vec<_> = (next..next + count)
            .map(|number| {
                (TableId(if number % 11 == 0 { 8 } else { TABLE.0 }), key_of(number % 3100))
            })
            .collect();
        next += count;
        let mut answered = 0;
        log.read_batch(keys.iter().map(|(table, key)| (*table, &key[..])), |at, found| {
            assert_eq!(at, answered, "in order, each once");
            answered += 1;
            let (table, key) = &keys[at];
            let values = |it: Option<thunderhead_log::Object<'_>>| it.map(|it| it.value().to_vec());
            assert_eq!(found.map(values), log.read(*table, key).map(values));
        });
        assert_eq!(answered, keys.len());
    }
}
