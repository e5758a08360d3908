//! Values of all forms are read, and damaged ones are refused.

use super::*;
use proptest::prelude::*;

const ROOM: usize = 1 << 20;

/// Returns the bytes behind a value that is skipped.
pub(super) fn rest_behind(kind: u8, bytes: &[u8]) -> Result<&[u8], Damaged> {
    let mut reader = Reader::new(bytes, 0);
    Value::skip(kind, &mut reader).map(|()| reader.rest())
}

fn read(kind: u8, bytes: &[u8]) -> Result<Value, Damaged> {
    let mut reader = Reader::new(bytes, ROOM);
    let value = Value::read(kind, &mut reader)?;
    assert_eq!(rest_behind(kind, bytes), Ok(reader.rest()), "both find the same end");
    if reader.rest().is_empty() { Ok(value) } else { Err(Damaged::Format) }
}

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn fields(pairs: &[(&str, &str, Option<u64>)]) -> Value {
    let field = |(name, value, expires): &(&str, &str, Option<u64>)| Field {
        name: name.as_bytes().to_vec(),
        value: value.as_bytes().to_vec(),
        expires: *expires,
    };
    Value::Hash(pairs.iter().map(field).collect())
}

/// Returns a string of the format.
fn string(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    reader::put_length(&mut out, bytes.len() as u64);
    out.extend_from_slice(bytes);
    out
}

/// Returns a listpack with items that are encoded already.
fn listpack(items: &[&[u8]]) -> Vec<u8> {
    let mut body = Vec::new();
    for item in items {
        body.extend_from_slice(item);
        body.push(item.len() as u8);
    }
    let mut out = (body.len() as u32 + 7).to_le_bytes().to_vec();
    out.extend_from_slice(&(items.len() as u16).to_le_bytes());
    out.extend_from_slice(&body);
    out.push(0xff);
    out
}

/// Returns a ziplist with short items that are encoded already.
fn ziplist(items: &[&[u8]]) -> Vec<u8> {
    let (mut body, mut before) = (Vec::new(), 0);
    for item in items {
        body.push(before);
        body.extend_from_slice(item);
        before = item.len() as u8 + 1;
    }
    let mut out = (body.len() as u32 + 11).to_le_bytes().to_vec();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&(items.len() as u16).to_le_bytes());
    out.extend_from_slice(&body);
    out.push(0xff);
    out
}

#[test]
fn the_checksum_is_that_of_redis() {
    assert_eq!(checksum(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    let mut pieces = Checksum::default();
    pieces.add(b"12345");
    pieces.add(b"6789");
    assert_eq!(pieces.value(), 0xe9c6_d914_c4b8_d9ca);
}

#[test]
fn strings_have_several_forms() {
    let is = |bytes: &[u8], text: &str| {
        assert_eq!(read(0, bytes), Ok(Value::String(text.as_bytes().to_vec())), "{bytes:x?}");
    };
    is(b"\x03abc", "abc");
    is(b"\x40\x03abc", "abc");
    is(b"\x80\0\0\0\x03abc", "abc");
    is(b"\x81\0\0\0\0\0\0\0\x03abc", "abc");
    is(b"\xc0\x7f", "127");
    is(b"\xc0\x80", "-128");
    is(b"\xc1\x00\x80", "-32768");
    is(b"\xc2\xff\xff\xff\x7f", "2147483647");
    is(b"\xc3\x05\x0a\x01ab\xc0\x01", "ababababab");
}

#[test]
fn damaged_strings_are_refused() {
    for (bytes, error) in [
        (&b""[..], Damaged::End),
        (b"\x05abc", Damaged::End),
        (b"\x81\xff\xff\xff\xff\xff\xff\xff\xffabc", Damaged::End),
        (b"\x82", Damaged::Format),
        (b"\xc4", Damaged::Format),
        (b"\xc1\0", Damaged::End),
        (b"\xc3\x02\x0a\x01ab", Damaged::Format),
        (b"\xc3\x02\x80\xff\xff\xff\xff\x01a", Damaged::TooLong),
        (b"\xc3\x03\x05\xff\xff\xff", Damaged::Format),
        (b"\xc3\xc0\x05", Damaged::Format),
    ] {
        assert_eq!(read(0, bytes), Err(error), "{bytes:x?}");
    }
}

#[test]
fn collections_are_read_from_all_their_forms() {
    let ab = Value::List(texts(&["a", "5"]));
    assert_eq!(read(1, b"\x02\x01a\xc0\x05"), Ok(ab.clone()));
    let packed = ziplist(&[b"\x01a", b"\xf6"]);
    assert_eq!(read(10, &string(&packed)), Ok(ab.clone()));
    assert_eq!(read(14, &[&[1][..], &string(&packed)].concat()), Ok(ab.clone()));
    let packed = listpack(&[b"\x81a", b"\x05"]);
    let parts = [&[2, 2][..], &string(&packed), &[1, 3], b"xyz"].concat();
    assert_eq!(read(18, &parts), Ok(Value::List(texts(&["a", "5", "xyz"]))));
    assert_eq!(read(2, b"\x02\x01a\xc0\x05"), Ok(Value::Set(texts(&["a", "5"]))));
    assert_eq!(read(20, &string(&packed)), Ok(Value::Set(texts(&["a", "5"]))));
    let integers = b"\x02\0\0\0\x02\0\0\0\xff\xff\x07\0";
    assert_eq!(read(11, &string(integers)), Ok(Value::Set(texts(&["-1", "7"]))));
    let scored = Value::SortedSet(vec![(b"a".to_vec(), 5.0)]);
    assert_eq!(read(17, &string(&packed)), Ok(scored.clone()));
    assert_eq!(read(12, &string(&ziplist(&[b"\x01a", b"\xf6"]))), Ok(scored.clone()));
    assert_eq!(read(3, b"\x01\x01a\x015"), Ok(scored.clone()));
    assert_eq!(read(5, b"\x01\x01a\0\0\0\0\0\0\x14@"), Ok(scored));
    let infinite = Value::SortedSet(vec![(b"a".to_vec(), f64::NEG_INFINITY)]);
    assert_eq!(read(3, b"\x01\x01a\xff"), Ok(infinite));
    let hash = fields(&[("a", "5", None)]);
    assert_eq!(read(4, b"\x01\x01a\xc0\x05"), Ok(hash.clone()));
    assert_eq!(read(16, &string(&packed)), Ok(hash.clone()));
    assert_eq!(read(13, &string(&ziplist(&[b"\x01a", b"\xf6"]))), Ok(hash.clone()));
    assert_eq!(read(9, &string(b"\x01\x01a\x01\x025zz\xff")), Ok(hash));
}

#[test]
fn fields_that_expire_are_read() {
    let hash = fields(&[("a", "1", Some(1000)), ("b", "2", None)]);
    assert_eq!(read(22, b"\x02\x43\xe8\x01a\xc0\x01\0\x01b\xc0\x02"), Ok(hash.clone()));
    let begin = 990_u64.to_le_bytes();
    let body = b"\x02\x0b\x01a\xc0\x01\0\x01b\xc0\x02";
    assert_eq!(read(24, &[&begin[..], body].concat()), Ok(hash.clone()));
    let packed = listpack(&[b"\x81a", b"\x01", b"\xc3\xe8", b"\x81b", b"\x02", b"\0"]);
    assert_eq!(read(23, &string(&packed)), Ok(hash.clone()));
    assert_eq!(read(25, &[&begin[..], &string(&packed)].concat()), Ok(hash));
    let late = u64::MAX.to_le_bytes();
    assert_eq!(read(24, &[&late[..], body].concat()), Err(Damaged::Format));
}

#[test]
fn integers_of_packed_collections_have_many_forms() {
    let items: [(&[u8], &str); 9] = [
        (b"\x7f", "127"),
        (b"\xdf\xff", "-1"),
        (b"\xd0\x00", "-4096"),
        (b"\xcf\xff", "4095"),
        (b"\xf1\x00\x80", "-32768"),
        (b"\xf2\xff\xff\x7f", "8388607"),
        (b"\xf3\0\0\0\x80", "-2147483648"),
        (b"\xf4\xff\xff\xff\xff\xff\xff\xff\x7f", "9223372036854775807"),
        (b"\xe0\x01x", "x"),
    ];
    let bytes: Vec<&[u8]> = items.iter().map(|(bytes, _)| *bytes).collect();
    let wanted: Vec<&str> = items.iter().map(|(_, text)| *text).collect();
    let list = [&[1, 2][..], &string(&listpack(&bytes))].concat();
    assert_eq!(read(18, &list), Ok(Value::List(texts(&wanted))));
    let items: [(&[u8], &str); 9] = [
        (b"\xfe\x80", "-128"),
        (b"\xc0\x00\x80", "-32768"),
        (b"\xf0\xff\xff\x7f", "8388607"),
        (b"\xd0\0\0\0\x80", "-2147483648"),
        (b"\xe0\xff\xff\xff\xff\xff\xff\xff\x7f", "9223372036854775807"),
        (b"\xf1", "0"),
        (b"\xfd", "12"),
        (b"\x40\x01x", "x"),
        (b"\x80\0\0\0\x02yz", "yz"),
    ];
    let bytes: Vec<&[u8]> = items.iter().map(|(bytes, _)| *bytes).collect();
    let wanted: Vec<&str> = items.iter().map(|(_, text)| *text).collect();
    assert_eq!(read(10, &string(&ziplist(&bytes))), Ok(Value::List(texts(&wanted))));
}

#[test]
fn impossible_collections_are_refused() {
    for (kind, bytes) in [
        (1, &b"\0"[..]),
        (2, b"\0"),
        (4, b"\0"),
        (5, b"\0"),
        (2, b"\x02\x01a\x01a"),
        (4, b"\x02\x01a\x01b\x01a\x01c"),
        (5, b"\x01\x01a\0\0\0\0\0\0\xf8\x7f"),
        (3, b"\x01\x01a\xfd"),
        (3, b"\x01\x01a\x01x"),
        (14, b"\0"),
        (18, b"\x01\x03\x01a"),
    ] {
        assert_eq!(read(kind, bytes), Err(Damaged::Format), "{kind} {bytes:x?}");
    }
    for (kind, packed) in [
        (13, ziplist(&[b"\x01a"])),
        (12, ziplist(&[b"\x01a", b"\x01x"])),
        (16, listpack(&[b"\x81a"])),
        (25, listpack(&[b"\x81a", b"\x01"])),
        (20, listpack(&[])),
        (11, b"\x03\0\0\0\x01\0\0\0abc".to_vec()),
        (11, b"\x02\0\0\0\x02\0\0\0ab".to_vec()),
        (11, b"\x08\0\0\0\xff\xff\xff\xff".to_vec()),
        (9, b"\x01\x01a\xff".to_vec()),
    ] {
        let bytes = match kind {
            25 => [&[0; 8][..], &string(&packed)].concat(),
            _ => string(&packed),
        };
        assert_eq!(read(kind, &bytes), Err(Damaged::Format), "{kind} {packed:x?}");
    }
    let mut wrong = listpack(&[b"\x81a"]);
    wrong[4] = 2;
    assert_eq!(read(20, &string(&wrong)), Err(Damaged::Format));
    wrong[4] = 1;
    wrong[0] = 200;
    assert_eq!(read(20, &string(&wrong)), Err(Damaged::Format));
    for kind in [6, 7, 8, 26, 255] {
        assert_eq!(read(kind, b"\x01a"), Err(Damaged::Unsupported(kind)));
    }
    assert_eq!(read(2, b"\x81\0\0\0\xff\xff\xff\xff\xff"), Err(Damaged::End));
}

#[test]
fn a_payload_with_another_checksum_is_refused() {
    let payload = Value::String(b"hello".to_vec()).payload();
    assert_eq!(payload[7..9], [10, 0]);
    assert_eq!(unwrap(&payload), Ok(&b"\0\x05hello"[..]));
    for at in 0..payload.len() {
        let mut damaged = payload.clone();
        damaged[at] ^= 1;
        assert_eq!(unwrap(&damaged), Err(BadPayload), "{at}");
        assert_eq!(unwrap(&payload[..at]), Err(BadPayload), "{at}");
    }
    let mut newer = b"\0\x05hello\x0d\0".to_vec();
    newer.extend_from_slice(&checksum(&newer).to_le_bytes());
    assert_eq!(unwrap(&newer), Err(BadPayload));
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..20),
        any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        any::<i8>().prop_map(|number| number.to_string().into_bytes()),
        (any::<u8>(), 60..300usize).prop_map(|(byte, length)| vec![byte; length]),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let different = prop::collection::btree_set(bytes(), 1..20);
    let scored = prop::collection::btree_map(bytes(), any::<f64>(), 1..20).prop_map(|scored| {
        let number = |score: f64| if score.is_nan() { 0.5 } else { score };
        scored.into_iter().map(|(member, score)| (member, number(score))).collect()
    });
    let time = prop::option::of(1..(1_u64 << 46));
    let fields = prop::collection::btree_map(bytes(), (bytes(), time), 1..20).prop_map(|fields| {
        let field = |(name, (value, expires))| Field { name, value, expires };
        fields.into_iter().map(field).collect()
    });
    prop_oneof![
        bytes().prop_map(Value::String),
        prop::collection::vec(bytes(), 1..20).prop_map(Value::List),
        different.prop_map(|members| Value::Set(members.into_iter().collect())),
        scored.prop_map(Value::SortedSet),
        fields.prop_map(Value::Hash),
    ]
}

proptest! {
    #[test]
    fn values_are_read_as_they_were_written(value in value()) {
        let payload = value.payload();
        let inner = unwrap(&payload).unwrap();
        prop_assert_eq!(read(inner[0], &inner[1..]), Ok(value));
    }

    #[test]
    fn damage_is_an_error_or_another_value(
        value in value(),
        kind in 0..30u8,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        end in any::<prop::sample::Index>(),
    ) {
        let mut bytes = Vec::new();
        value.write(&mut bytes);
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        bytes.truncate(end.index(bytes.len()) + 1);
        let _ = read(bytes[0], &bytes[1..]);
        let _ = read(kind, &bytes[1..]);
    }

    #[test]
    fn any_bytes_are_an_error_or_a_value(
        kind in 0..30u8,
        bytes in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let _ = read(kind, &bytes);
        // Packed collections, whose inner bytes are any.
        let _ = read(kind, &string(&bytes));
        let _ = read(kind, &[&[1, 2][..], &string(&bytes)].concat());
    }

    #[test]
    fn damaged_packed_collections_are_an_error_or_a_value(
        kind in prop::sample::select(vec![9u8, 10, 11, 12, 13, 16, 17, 20, 23]),
        is_ziplist in any::<bool>(),
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let items: [&[u8]; 6] = [b"\x81a", b"\x05", b"\xc3\xe8", b"\x82bc", b"\x02", b"\0"];
        let mut packed = if is_ziplist { ziplist(&items) } else { listpack(&items) };
        let place = place.index(packed.len());
        packed[place] = byte;
        let _ = read(kind, &string(&packed));
    }
}
