//! Bytes that are no commands of Redis, or nearly none.

use super::grammar::Use;
use super::random::Random;
use super::sequence::{Block, Step};

const PIECES: &[&[u8]] = &[
    b"*1\r\n$4\r\nPING\r\n",
    b"*1\r\n$4\r\nPING\r\n",
    b"*2\r\n$3\r\nGET\r\n$2\r\ns1\r\n",
    b"*3\r\n$3\r\nSET\r\n$2\r\ns1\r\n$1\r\nv\r\n",
    b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n",
    b"PING\r\n",
    b"PING\n",
    b"  PING  \r\n",
    b"\r\n",
    b"\n",
    b"\r\n\r\nPING\r\n",
    b"GET s1\r\n",
    b"GET\ts1\r\n",
    b"SET s1 \"a b\"\r\n",
    b"SET s1 \"a\\x41\\n\\\"\"\r\n",
    b"SET s1 'a\\'b'\r\n",
    b"SET s1 'a\\nb'\r\n",
    b"SET s1 \"open\r\n",
    b"SET s1 'open\r\n",
    b"SET s1 \"a\"b\r\n",
    b"SET s1 a\"b\"\r\n",
    b"\"GET\" \"s1\"\r\n",
    b"ECHO \"\\xzz\\q\"\r\n",
    b"ECHO \"\"\r\n",
    b"SET s1 v\0w\r\n",
    b"\0\r\n",
    b"POST / HTTP/1.1\r\n",
    b"Host: there\r\n",
    b"*-1\r\n",
    b"*-2\r\n",
    b"*0\r\n",
    b"*1000000000\r\n",
    b"*2147483647\r\n",
    b"*2147483648\r\n",
    b"*99999999999999999999\r\n",
    b"*abc\r\n",
    b"*\r\n",
    b"* 1\r\n",
    b"*+1\r\n$4\r\nPING\r\n",
    b"*01\r\n$4\r\nPING\r\n",
    b"*1 \r\n$4\r\nPING\r\n",
    b"*1\n$4\nPING\n",
    b"*1\r\nPING\r\n",
    b"*1\r\n:5\r\n",
    b"*1\r\n*1\r\n$4\r\nPING\r\n",
    b"*1\r\n$-1\r\n",
    b"*2\r\n$3\r\nGET\r\n$-1\r\n",
    b"*1\r\n$04\r\nPING\r\n",
    b"*1\r\n$+4\r\nPING\r\n",
    b"*1\r\n$ 4\r\nPING\r\n",
    b"*1\r\n$\r\nPING\r\n",
    b"*1\r\n$x\r\nPING\r\n",
    b"*1\r\n$536870913\r\n",
    b"*1\r\n$536870912\r\n",
    b"*1\r\n$99999999999999999999\r\n",
    b"*1\r\n$4\r\nPINGxx",
    b"*1\r\n$4\r\nPINGxx*1\r\n$4\r\nPING\r\n",
    b"*1\r\n$5\r\nPING\r\n\r\n",
    b"*1\r\n$0\r\n\r\n",
    b"*2\r\n$0\r\n\r\n$1\r\na\r\n",
    b"$4\r\nPING\r\n",
    b"+PING\r\n",
    b"-ERR\r\n",
    b":1\r\n",
    b"~1\r\n$4\r\nPING\r\n",
    b"%1\r\n$4\r\nPING\r\n$1\r\na\r\n",
    b"*3\r\n$3\r\nSET\r\n$2\r\ns1\r\n",
    b"*1\r\n$4\r\nPI",
    b"*1\r\n$4",
    b"*",
    b"\x80\x01\x02\r\n",
    b"\xff\xfe\r\n",
    b"*2\r\n$6\r\nCLIENT\r\n$7\r\nGETNAME\r\n",
];

/// The longest line that Redis accepts.
const LINE_BYTES: usize = 64 << 10;

/// Returns one connection's bytes.
pub(super) fn block(random: &mut Random) -> Block {
    let mut bytes = Vec::new();
    if random.one_in(200) {
        // It must end with its last byte: a server that closes with unread bytes resets.
        let first: &[u8] = random.of(&[&b"*"[..], b"", b"*1\r\n$"]);
        bytes.extend_from_slice(first);
        bytes.resize(first.len() + LINE_BYTES + 1, b'1');
    } else {
        for _ in 0..random.between(1, 3) {
            bytes.extend_from_slice(random.of(PIECES));
        }
        if random.one_in(3) {
            let at = random.below(bytes.len());
            let new = random.next().to_le_bytes()[0];
            match random.below(3) {
                0 => bytes[at] = new,
                1 => bytes.insert(at, new),
                _ => {
                    bytes.remove(at);
                }
            }
        }
        // It shows whether the connection is still open.
        if random.one_in(2) {
            bytes.extend_from_slice(b"*2\r\n$4\r\nECHO\r\n$4\r\nlast\r\n");
        }
    }
    let step = Step { connection: 0, usage: Use::Send, words: Vec::new(), bytes: Some(bytes) };
    Block { steps: vec![step], is_fixed: true }
}
