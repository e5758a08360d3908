//! The server of Redis's protocol on a store in memory: any commands of one connection, beside a
//! second client that listens. The pieces in which the bytes arrive must not matter, and neither
//! must a store that refuses now and then.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thunderhead_doors::resp::{Facts, Memory, Output, Server, ServerOptions, Step};

const CLIENT: u64 = 1;
const LISTENER: u64 = 2;

/// Words for which a byte of the input stands: bytes alone would seldom be commands.
const WORDS: &str = "\
    get set append incr incrby incrbyfloat decrby getdel getex getrange setrange strlen mget \
    mset msetnx setex setnx getset lcs setbit getbit bitcount bitpos bitop bitfield del exists \
    touch type rename renamenx copy move randomkey keys scan expire pexpire expireat \
    expiretime ttl persist object encoding flushdb flushall swapdb dbsize wait waitaof hello \
    auth ping echo select quit reset client id setname getname list kill reply on off skip \
    no-touch pause unpause command getkeys docs config maxmemory-policy subscribe psubscribe \
    unsubscribe punsubscribe ssubscribe publish spublish pubsub multi exec discard watch \
    unwatch monitor memory usage latency slowlog debug acl time role nx xx gt lt ex px exat \
    keepttl replace db match count idx len withmatchlen and or not diff one u8 i64 overflow \
    sat 3 a* 1e19 100";

/// Returns the bytes of a connection. Bytes from 128 on stand for words, and then for line ends.
fn expanded(data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for byte in data {
        match byte.checked_sub(128) {
            None => bytes.push(*byte),
            Some(index) => match WORDS.split(' ').nth(usize::from(index)) {
                Some(word) => {
                    bytes.extend_from_slice(word.as_bytes());
                    bytes.push(b' ');
                }
                None => bytes.extend_from_slice(b"\r\n"),
            },
        }
    }
    bytes
}

/// The end of a connection, in one of the ways.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    replies: Vec<u8>,
    others: Vec<(u64, Vec<u8>)>,
    is_ended: bool,
    content: Vec<String>,
}

/// Executes commands until the bytes end, arriving in pieces of one size. The store refuses the
/// call after so many ones, if that is given.
fn run(data: &[u8], piece: usize, refuses_after: Option<u64>) -> Said {
    let options = ServerOptions { value_bytes_max: 10_000, ..ServerOptions::default() };
    let (mut server, mut store) = (Server::new(options), Memory::new(1_800_000_000_000));
    let facts = Facts::default();
    let mut output = Output::default();
    for client in [LISTENER, CLIENT] {
        server.opened(client, "127.0.0.1:50000", "127.0.0.1:6379", store.now_ms);
    }
    let listens = b"psubscribe *\r\n";
    let step = server.step(&mut store, &facts, LISTENER, listens, &mut output);
    assert_eq!(step, Step::Done(listens.len()));
    output = Output::default();
    store.refuses_after = refuses_after;
    let (mut begin, mut end, mut is_ended) = (0, 0, false);
    'pieces: while end < data.len() {
        end = (end + piece).min(data.len());
        loop {
            let before = (output.replies.len(), output.messages.len());
            match server.step(&mut store, &facts, CLIENT, &data[begin..end], &mut output) {
                Step::More => break,
                Step::Done(used) => begin += used,
                Step::NotNow => {
                    assert_eq!(before, (output.replies.len(), output.messages.len()));
                }
                Step::Waits(_) | Step::End(_) => {
                    is_ended = true;
                    break 'pieces;
                }
            }
            let replies = output.replies.len();
            // The order of replies and messages to the same client matters.
            let own = std::mem::take(&mut output.messages);
            for (client, bytes) in own {
                match client {
                    CLIENT => output.replies.extend_from_slice(&bytes),
                    _ => output.messages.push((client, bytes)),
                }
            }
            assert!(output.replies.len() >= replies);
        }
    }
    let Output { replies, messages: others, .. } = output;
    server.closed(CLIENT);
    server.closed(LISTENER);
    assert_eq!(server.clients(), 0);
    Said { replies, others, is_ended, content: store.content() }
}

/// Whether a reply may depend on the number of tries: a command that counts them may be there,
/// perhaps behind escapes.
fn depends_on_tries(data: &[u8]) -> bool {
    let data = data.to_ascii_lowercase();
    [&b"info"[..], b"\\"].iter().any(|word| data.windows(word.len()).any(|it| it == *word))
}

fuzz_target!(|data: &[u8]| {
    let [piece, refused, data @ ..] = data else { return };
    let data = &expanded(data);
    let whole = run(data, data.len().max(1), None);
    assert_eq!(run(data, 1 + usize::from(*piece), None), whole);
    if !depends_on_tries(data) {
        assert_eq!(run(data, data.len().max(1), Some(u64::from(*refused))), whole);
    }
});
