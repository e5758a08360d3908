//! Whole files are read part by part, in pieces of any length.

use super::*;

/// Returns a file with a body, and its checksum.
fn file(version: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = [b"REDIS", version.as_bytes(), body, b"\xff"].concat();
    let sum = checksum(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// Returns the keys of a file that arrives in pieces of so many bytes.
fn read(bytes: &[u8], piece: usize) -> Result<Vec<String>, FileError> {
    let (mut file, mut shown) = (File::new(), Vec::new());
    let (mut at, mut end) = (0, 0);
    loop {
        let (part, used) = file.next(&bytes[at..end])?;
        at += used;
        match part {
            Part::More if end == bytes.len() => return Ok([shown, vec!["cut".into()]].concat()),
            Part::More => end = bytes.len().min(end + piece),
            Part::Nothing => {}
            Part::End => {
                assert_eq!(at, bytes.len());
                return Ok(shown);
            }
            Part::Entry(entry) => {
                let Entry { database, expires, .. } = &entry;
                let checked = entry.check();
                let payload = entry.payload();
                let inner = unwrap(&payload).unwrap();
                let value = Value::read(inner[0], &mut Reader::new(&inner[1..], 1000));
                assert_eq!(value.map(|_| ()), checked);
                let key = entry.key.escape_ascii();
                shown.push(format!("{database} {key} {expires:?} {checked:?}"));
            }
        }
    }
}

/// The parts that Redis 8.2 writes around keys, and some keys.
const BODY: &[u8] = b"\xfa\x09redis-ver\x058.2.3\xfa\x05ctime\xc2\0\0\0\x01\
    \xf5\x04code\
    \xf7\x05\x02\x01\x05\x03abc\0\
    \xfe\x00\xfb\x02\x01\
    \x00\x01a\x011\
    \xfc\xe8\x03\0\0\0\0\0\0\xf8\x05\x01\x01l\x02\x01a\x01b\
    \xfd\x02\0\0\0\xf9\x07\x02\x01t\x01\x01m\
    \xfe\x03\xf4\x01\x02\x03\
    \x07\x01m\x05\x02\x07\x00\
    \x0f\x01x\0\0\x02\x03\x01\x01g\x02\x03\x01\
    \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\
    \x01\x01c\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
    \x00\x01z\xc0\x07";

#[test]
fn a_file_is_read_in_pieces_of_any_length() {
    let bytes = file("0011", BODY);
    for piece in [1, 2, 7, 1000] {
        let keys = [
            "0 a None Ok(())",
            "0 l Some(1000) Ok(())",
            "0 t Some(2000) Ok(())",
            "3 m None Err(Unsupported(7))",
            "3 x None Ok(())",
            "3 z None Ok(())",
        ];
        assert_eq!(read(&bytes, piece).unwrap(), keys, "{piece}");
    }
}

#[test]
fn a_damaged_file_is_refused() {
    let bytes = file("0011", BODY);
    for at in 9..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        let read = read(&damaged, 1000);
        let is_cut = read.as_ref().is_ok_and(|keys| keys.last().is_some_and(|it| it == "cut"));
        assert!(is_cut || read.is_err(), "{at} {read:?}");
    }
    assert_eq!(read(b"RIDES0011", 1), Err(FileError::NotRdb));
    assert_eq!(read(b"REDISabcd", 1), Err(FileError::NotRdb));
    assert_eq!(read(b"REDIS0013", 1), Err(FileError::Version(13)));
    assert_eq!(read(b"REDIS0011\x02\x01a\xc0", 1), Err(FileError::Damaged(9, Damaged::Format)));
    let mut wrong = bytes.clone();
    wrong[bytes.len() - 1] ^= 1;
    assert_eq!(read(&wrong, 1000), Err(FileError::Checksum));
}

/// Keys with values that cannot be read, each of which has an end.
const UNREADABLE: &[(&[u8], Damaged)] = &[
    // A set without members, and a list with an element in a form that does not exist.
    (b"\x02\x01a\0", Damaged::Format),
    (b"\x12\x01a\x01\x07\x01x", Damaged::Format),
    // A stream with two entries, of which it has none.
    (b"\x0f\x01a\0\x02\x03\x01\0", Damaged::Format),
    // A node with less than a header.
    (b"\x0f\x01a\x01\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01x\x01\x03\x01\0", Damaged::End),
    // A node that would be unpacked to two gigabytes, and such a string.
    (
        b"\x0f\x01a\x01\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
        \xc3\x02\x80\x80\0\0\0\0x\x01\x03\x01\0",
        Damaged::TooLong,
    ),
    (b"\0\x01a\xc3\x02\x80\x80\0\0\0\0x", Damaged::TooLong),
];

#[test]
fn a_file_is_read_on_behind_a_value_that_cannot_be_read() {
    for (key, damaged) in UNREADABLE {
        let body = [b"\0\x01b\x01x", *key, b"\0\x01c\x01y"].concat();
        let bytes = file("0011", &body);
        for piece in [1, 1000] {
            let keys = [
                "0 b None Ok(())".to_owned(),
                format!("0 a None Err({damaged:?})"),
                "0 c None Ok(())".to_owned(),
            ];
            assert_eq!(read(&bytes, piece).unwrap(), keys, "{}", key.escape_ascii());
        }
    }
}

#[test]
fn a_file_may_have_no_checksum() {
    let mut bytes = file("0011", BODY);
    let sum = bytes.len() - 8;
    bytes[sum..].fill(0);
    assert_eq!(read(&bytes, 1000).map(|keys| keys.len()), Ok(6));
    assert_eq!(read(b"REDIS0003\x00\x01a\x011\xff", 1), Ok(vec!["0 a None Ok(())".to_owned()]));
}
