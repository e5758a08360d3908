//! The protocol of Redis: any bytes, in any pieces. The pieces must not matter.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thunderhead_doors::resp::{Limits, Parsed, Parser};

/// Reads commands until one is unfinished. Returns the number of bytes used, and whether the
/// connection must be closed.
fn read(parser: &mut Parser, bytes: &[u8], said: &mut Vec<Vec<Vec<u8>>>) -> (usize, bool) {
    let mut at = 0;
    loop {
        match parser.next(&bytes[at..]) {
            Parsed::More => return (at, false),
            Parsed::Nothing(used) => at += used,
            Parsed::Command(used) => {
                let arguments = parser.arguments(&bytes[at..]);
                assert!(arguments.len() > 0);
                said.push(arguments.iter().map(<[u8]>::to_vec).collect());
                at += used;
            }
            Parsed::Error(text) => {
                said.push(vec![text]);
                return (at, true);
            }
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((piece, data)) = data.split_first() else { return };
    let limits = Limits { is_stranger: piece & 1 == 1, ..Limits::default() };
    let mut whole = Vec::new();
    read(&mut Parser::new(limits), data, &mut whole);
    let (mut parser, mut pieces) = (Parser::new(limits), Vec::new());
    let (mut begin, mut end) = (0, 0);
    while end < data.len() {
        end = (end + 1 + usize::from(piece >> 1)).min(data.len());
        let (used, closes) = read(&mut parser, &data[begin..end], &mut pieces);
        if closes {
            break;
        }
        begin += used;
    }
    assert_eq!(pieces, whole);
});
