//! The text protocol of memcached: any bytes, in any pieces. The pieces must not matter.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thunderhead_doors::memcached::{Limits, Parsed, Parser};

/// Reads requests until one is unfinished. Returns the number of bytes used, and whether the
/// connection must be closed.
fn read(parser: &mut Parser, bytes: &[u8], said: &mut Vec<String>) -> (usize, bool) {
    let mut at = 0;
    loop {
        match parser.next(&bytes[at..]) {
            Parsed::More => return (at, false),
            Parsed::Close => return (at, true),
            Parsed::Discarded(used) => at += used,
            Parsed::Refused(answer, used) => {
                said.push(String::from_utf8_lossy(answer).into_owned());
                at += used;
            }
            Parsed::Request(request, used) => {
                said.push(format!("{request:?}"));
                at += used;
            }
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((piece, data)) = data.split_first() else { return };
    let parser = || Parser::new(Limits { value_bytes_max: 1000, get_bytes_max: 4000 });
    let mut whole = Vec::new();
    let (_, is_closed) = read(&mut parser(), data, &mut whole);
    let (mut parser, mut pieces) = (parser(), Vec::new());
    let (mut begin, mut end) = (0, 0);
    while end < data.len() {
        end = (end + 1 + usize::from(*piece)).min(data.len());
        let (used, closes) = read(&mut parser, &data[begin..end], &mut pieces);
        assert!(is_closed || !closes);
        if closes {
            break;
        }
        begin += used;
    }
    assert_eq!(pieces, whole);
});
