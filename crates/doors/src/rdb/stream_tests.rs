//! Streams are read in all forms, and damaged ones are refused.

use super::packed::{PackedWriter, listpack};
use super::tests::rest_behind;
use super::*;
use proptest::prelude::*;

const ROOM: usize = 1 << 20;

/// A payload of Redis 8.2: entries, one of which is deleted, and two groups.
const OF_8_2: &[u8] =
    b"\x15\x01\x10\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\
    @OO\x00\x00\x00\x1f\x00\x03\x01\x01\x01\x02\x01\x81a\x02\x81b\x02\x00\x01\x02\x01\x00\x01\x00\
    \x01\x01\x01\x83two\x04\x05\x01\x03\x01\x00\x01\x01\x01\x03\x01\x80\x01\x05\x01\x00\x01\x04\
    \x01\xdf\xff\x02\x01\x01\x81c\x02\xf2\x90\xee\xfe\x04\x06\x01\x02\x01\x06\x01\x02\x01\x04\x01\
    \x05\x01\x05\x01\xff\x03\x07\x03\x01\x01\x01\x02\x04\x02\x02g1\x05\x00\x81\xff\xff\xff\xff\xff\
    \xff\xff\xff\x02\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\xe8\x03\x00\
    \x00\x00\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x00\x0f\
    \x99\x85(\xa2\x01\x00\x00\x01\x02\x02c1\x0f\x99\x85(\xa2\x01\x00\x00\x0f\x99\x85(\xa2\x01\x00\
    \x00\x02\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\
    \x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x00\x02c2\x0f\x99\x85(\xa2\x01\x00\x00\xff\xff\xff\
    \xff\xff\xff\xff\xff\x00\x02g2\x07\x03\x81\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x0c\x00\x91\
    \xf7\x07\x85\xe9\xc2\xae\xb1";

/// The time of the last commands of [`OF_8_2`].
const TIME: u64 = 1_795_976_173_839;

fn read(bytes: &[u8]) -> Result<Value, Damaged> {
    let mut reader = Reader::new(bytes, ROOM);
    let kind = reader.byte()?;
    let skipped = rest_behind(kind, reader.rest());
    let value = Value::read(kind, &mut reader)?;
    assert_eq!(skipped, Ok(reader.rest()), "both find the same end");
    if reader.rest().is_empty() { Ok(value) } else { Err(Damaged::Format) }
}

fn entry(id: Id, strings: &[&str]) -> StreamEntry {
    StreamEntry { id, strings: strings.iter().map(|it| it.as_bytes().to_vec()).collect() }
}

/// The stream of [`OF_8_2`].
fn stream() -> Stream {
    let pending = |id, delivered, deliveries| StreamPending { id, delivered, deliveries };
    let first = StreamConsumer {
        name: b"c1".to_vec(),
        seen: TIME,
        active: Some(TIME),
        pending: vec![pending((1, 1), 1000, 3), pending((5, 0), TIME, 1)],
    };
    let second =
        StreamConsumer { name: b"c2".to_vec(), seen: TIME, active: None, pending: Vec::new() };
    let group = |name: &[u8], last, consumers| StreamGroup {
        name: name.to_vec(),
        last,
        entries_read: None,
        consumers,
    };
    Stream {
        entries: vec![
            entry((1, 1), &["a", "1", "b", "two"]),
            entry((5, 0), &["c", "-70000"]),
            entry((7, 3), &["a", "4", "b", "5"]),
        ],
        last: (7, 3),
        max_deleted: (1, 2),
        added: 4,
        groups: vec![group(b"g1", (5, 0), vec![first, second]), group(b"g2", (7, 3), Vec::new())],
    }
}

#[test]
fn a_stream_of_redis_is_read_and_written() {
    let expected = Value::Stream(stream());
    assert_eq!(read(unwrap(OF_8_2).unwrap()), Ok(expected.clone()));
    let payload = expected.payload();
    assert_eq!(payload[payload.len() - 10..payload.len() - 8], [11, 0]);
    assert_eq!(read(unwrap(&payload).unwrap()), Ok(expected));
    let empty = Value::Stream(Stream { last: (3, 1), added: 7, ..Stream::default() });
    assert_eq!(read(unwrap(&empty.payload()).unwrap()), Ok(empty));
}

/// The bytes of a stream of one entry with one group, in a form, without its type.
fn older(is_first: bool, read: &[u8]) -> Vec<u8> {
    let mut packed = PackedWriter::default();
    for number in [1, 0, 0, 0, 0, 0, 0, 1] {
        packed.integer(number);
    }
    packed.string(b"f");
    packed.string(b"v");
    packed.integer(6);
    let packed = packed.finish();
    let counts: &[u8] = if is_first { b"\x01\x05\x02" } else { b"\x01\x05\x02\x05\x02\x04\0\x09" };
    [
        &b"\x01\x10\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x02"[..],
        &[packed.len() as u8],
        &packed,
        counts,
        b"\x01\x01g\x05\x02",
        read,
        b"\x01\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x02\x07\0\0\0\0\0\0\0\x01",
        b"\x01\x01c\x09\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x02",
    ]
    .concat()
}

#[test]
fn older_forms_lack_counts_and_times() {
    for (kind, bytes, added, max_deleted, entries_read) in [
        (15, older(true, b""), 1, (0, 0), Some(1)),
        (19, older(false, b"\x08"), 9, (4, 0), Some(8)),
        (19, older(false, &[0x81, 255, 255, 255, 255, 255, 255, 255, 255]), 9, (4, 0), None),
    ] {
        let Ok(Value::Stream(stream)) = read(&[&[kind], &bytes[..]].concat()) else {
            panic!("{kind} is not read")
        };
        assert_eq!(stream.entries, [entry((5, 2), &["f", "v"])]);
        assert_eq!((stream.last, stream.added, stream.max_deleted), ((5, 2), added, max_deleted));
        let [group] = &stream.groups[..] else { panic!("{:?}", stream.groups) };
        assert_eq!((group.last, group.entries_read), ((5, 2), entries_read));
        let pending = vec![StreamPending { id: (5, 2), delivered: 7, deliveries: 1 }];
        let name = b"c".to_vec();
        let consumer = StreamConsumer { name, seen: 9, active: Some(9), pending };
        assert_eq!(group.consumers, [consumer]);
    }
}

#[test]
fn a_stream_that_contradicts_itself_is_refused() {
    let changed: [fn(&mut Stream); 6] = [
        |it| it.last = (7, 2),
        |it| it.entries[1].id = (1, 1),
        |it| it.groups[1].name = b"g1".to_vec(),
        |it| it.groups[0].consumers[1].name = b"c1".to_vec(),
        |it| it.groups[0].consumers[1].pending = it.groups[0].consumers[0].pending.clone(),
        |it| it.entries[0].strings.clear(),
    ];
    for (number, change) in changed.into_iter().enumerate() {
        let mut stream = stream();
        change(&mut stream);
        let payload = Value::Stream(stream).payload();
        assert_eq!(read(unwrap(&payload).unwrap()), Err(Damaged::Format), "{number}");
    }
    // One more entry than the stream has, and a pending entry without a consumer.
    let bytes = [&[15], &older(true, b"")[..]].concat();
    for (place, byte) in [(bytes.len() - 71, 2), (bytes.len() - 17, 0)] {
        let mut damaged = bytes.clone();
        damaged[place] = byte;
        assert!(read(&damaged).is_err(), "{place}");
    }
}

#[test]
fn few_bytes_do_not_become_many_names_of_fields() {
    let name = "n".repeat(1000);
    let entries: Vec<StreamEntry> = (1..2000).map(|id| entry((id, 0), &[&name, ""])).collect();
    let stream = Stream { last: (2000, 0), entries, ..Stream::default() };
    let payload = Value::Stream(stream).payload();
    assert!(payload.len() < ROOM / 2, "{}", payload.len());
    assert_eq!(read(unwrap(&payload).unwrap()), Err(Damaged::TooLong));
}

#[test]
fn an_item_has_the_length_behind_it_that_redis_expects() {
    for (bytes, width) in [
        (125, 1),
        (126, 2),
        (4095, 2),
        (16_377, 2),
        (16_378, 3),
        (16_379, 3),
        (2_097_145, 3),
        (2_097_146, 4),
    ] {
        let mut packed = PackedWriter::default();
        packed.string(&vec![b'x'; bytes]);
        let packed = packed.finish();
        let around = match bytes {
            0..0x40 => 1,
            0x40..0x1000 => 2,
            _ => 5,
        };
        // A header, the item, its length and the end.
        assert_eq!(packed.len(), 6 + around + bytes + width + 1, "{bytes}");
        let items = listpack(&packed, &mut Reader::new(&[], 4 << 20)).unwrap();
        assert_eq!(items, [vec![b'x'; bytes]], "{bytes}");
    }
}

fn id() -> impl Strategy<Value = Id> {
    prop_oneof![(0..20_u64, 0..4_u64), (any::<u64>(), any::<u64>())]
}

fn streams() -> impl Strategy<Value = Stream> {
    let bytes = || {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..6),
            any::<i32>().prop_map(|number| number.to_string().into_bytes()),
            (any::<u8>(), 60..300usize).prop_map(|(byte, length)| vec![byte; length]),
        ]
    };
    let field = || (prop_oneof![Just(b"a".to_vec()), Just(b"b".to_vec()), bytes()], bytes());
    let fields = prop::collection::vec(field(), 1..3)
        .prop_map(|pairs| pairs.into_iter().flat_map(|(name, value)| [name, value]).collect());
    let entries = prop::collection::btree_map(id(), fields, 0..250);
    let group = (bytes(), id(), prop::option::of(0..u64::MAX), prop::collection::vec(id(), 0..9));
    (entries, id(), id(), any::<u64>(), prop::collection::vec(group, 0..3)).prop_map(
        |(entries, last, max_deleted, added, groups)| {
            let entries: Vec<StreamEntry> =
                entries.into_iter().map(|(id, strings)| StreamEntry { id, strings }).collect();
            let last = entries.last().map_or(last, |entry| entry.id.max(last));
            let mut made: Vec<StreamGroup> = Vec::new();
            for (name, last, entries_read, mut ids) in groups {
                ids.sort();
                ids.dedup();
                let pending =
                    ids.iter().map(|id| StreamPending { id: *id, delivered: id.0, deliveries: 2 });
                let pending = pending.collect();
                let consumer =
                    StreamConsumer { name: name.clone(), seen: 5, active: None, pending };
                if made.iter().all(|group| group.name != name) {
                    made.push(StreamGroup { name, last, entries_read, consumers: vec![consumer] });
                }
            }
            Stream { entries, last, max_deleted, added, groups: made }
        },
    )
}

proptest! {
    #[test]
    fn streams_are_read_as_they_were_written(stream in streams()) {
        let payload = Value::Stream(stream.clone()).payload();
        prop_assert_eq!(read(unwrap(&payload).unwrap()), Ok(Value::Stream(stream)));
    }

    #[test]
    fn a_damaged_stream_is_an_error_or_another_stream(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        end in any::<prop::sample::Index>(),
    ) {
        let mut bytes = unwrap(OF_8_2).unwrap().to_vec();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let _ = read(&bytes);
        bytes.truncate(end.index(bytes.len()) + 1);
        let _ = read(&bytes);
    }
}
