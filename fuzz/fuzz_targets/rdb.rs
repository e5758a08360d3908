//! Values and files of Redis: any bytes. A value that is read is the same when it was written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thunderhead_doors::rdb::{File, Part, Reader, Value, unwrap};

/// The bytes that a value may unpack.
const ROOM: usize = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let _ = unwrap(data);
    if let Some((kind, rest)) = data.split_first()
        && let Ok(value) = Value::read(*kind, &mut Reader::new(rest, ROOM))
    {
        let payload = value.payload();
        let inner = unwrap(&payload).expect("a payload that was just made is whole");
        let again = Value::read(inner[0], &mut Reader::new(&inner[1..], usize::MAX));
        assert_eq!(again, Ok(value));
    }
    let (mut file, mut at) = (File::new(), 0);
    while let Ok((part, used)) = file.next(&data[at..]) {
        at += used;
        if let Part::Entry(entry) = &part {
            let _ = entry.check();
        }
        if matches!(part, Part::More | Part::End) {
            break;
        }
    }
});
