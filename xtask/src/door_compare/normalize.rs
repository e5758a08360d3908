//! Which parts of a reply are left to the server, and the comparison of the others.
//!
//! Nearly all replies must be equal byte for byte. The exceptions are a table of commands here:
//! elements without an order, elements that the server draws, times, and facts about the server.

use super::commands::CALL;
use super::reply::{Reply, read};

/// The way to compare the replies to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// All bytes.
    Exact,
    /// The elements, in any order.
    Unordered,
    /// The elements at each depth, in any order.
    AnyOrder,
    /// Names of commands that both servers may have, in any order.
    Commands,
    /// Keys with their values, in any order.
    Pairs,
    /// Numbers may be so far apart. Negative numbers, which mean that there is no time, must be
    /// equal.
    Within(i64),
    /// The type only: the server chooses the value.
    Kind,
    /// The type and the number of elements: the server draws them.
    Drawn,
    /// All but the values of these names, in a map or in an array of names and values.
    Named(&'static [&'static str]),
    /// A page of a scan, which is whole if its cursor is 0: the elements, in any order.
    Page,
    /// A page of a scan of keys with their values.
    PageOfPairs,
}

/// Facts about a server.
const OF_SERVER: &[&str] = &["server", "version", "id", "modules", "mode"];

/// The way to compare the replies to HELLO.
pub(super) const GREETING: Comparison = Comparison::Named(OF_SERVER);

/// The inner structure and the times of a stream.
const OF_STREAM: &[&str] =
    &["radix-tree-keys", "radix-tree-nodes", "idle", "inactive", "seen-time", "active-time"];

/// The most seconds between the executions of one command on the two servers: a busy machine may
/// stop one of them meanwhile. Generated times differ by more.
const SECONDS: i64 = 30;

/// Commands whose replies are not compared byte for byte. A name of two words is a subcommand.
const EXCEPTIONS: &[(Comparison, &[&str])] = &[
    (Comparison::Exact, &["COMMAND GETKEYS", "COMMAND GETKEYSANDFLAGS"]),
    (Comparison::AnyOrder, &["COMMAND INFO"]),
    (Comparison::Commands, &["COMMAND LIST", "ACL CAT"]),
    (
        Comparison::Unordered,
        &[
            "SMEMBERS",
            "SINTER",
            "SUNION",
            "SDIFF",
            "KEYS",
            "HKEYS",
            "HVALS",
            "PUBSUB CHANNELS",
            "PUBSUB SHARDCHANNELS",
        ],
    ),
    // A function of the libraries returns a map.
    (Comparison::Pairs, &["HGETALL", "CONFIG GET", "FCALL", "FCALL_RO"]),
    (Comparison::Within(SECONDS), &["TTL", "EXPIRETIME", "HTTL", "HEXPIRETIME"]),
    (
        Comparison::Within(1000 * SECONDS),
        &["PTTL", "PEXPIRETIME", "HPTTL", "HPEXPIRETIME", "XPENDING", "XCLAIM"],
    ),
    (Comparison::Drawn, &["SRANDMEMBER", "HRANDFIELD", "ZRANDMEMBER", "SPOP", "RANDOMKEY"]),
    (
        Comparison::Kind,
        &[
            "INFO",
            "TIME",
            "LOLWUT",
            "ROLE",
            "LASTSAVE",
            // Ours has simpler forms.
            "DUMP",
            "FUNCTION DUMP",
            "COMMAND",
            "CLIENT ID",
            "CLIENT INFO",
            "CLIENT LIST",
            "MEMORY USAGE",
            "OBJECT FREQ",
            "OBJECT IDLETIME",
            "OBJECT REFCOUNT",
            "ACL GENPASS",
            "ACL LOG",
            "LATENCY",
            "SLOWLOG GET",
            "SLOWLOG LEN",
        ],
    ),
    (GREETING, &["HELLO"]),
    (Comparison::Named(OF_STREAM), &["XINFO STREAM", "XINFO CONSUMERS", "XINFO GROUPS"]),
    (Comparison::Page, &["SCAN", "SSCAN"]),
    (Comparison::PageOfPairs, &["ZSCAN"]),
    // With NOVALUES the page has no pairs, and the words decide.
    (Comparison::PageOfPairs, &["HSCAN"]),
];

/// Returns the way to compare the replies to a command.
pub(super) fn comparison(words: &[Vec<u8>]) -> Comparison {
    let [name, rest @ ..] = words else { return Comparison::Exact };
    // The answer to a command that a script calls has no order either.
    if let ([script, _, called @ ..], true) = (rest, name.eq_ignore_ascii_case(b"EVAL"))
        && script == CALL.as_bytes()
    {
        return comparison(called);
    }
    // So does a hash that the script itself reads, once Redis has a table for it.
    if let ([script, ..], true) = (rest, name.eq_ignore_ascii_case(b"EVAL"))
        && script.windows(7).any(|word| word == b"HGETALL")
    {
        return Comparison::AnyOrder;
    }
    let is = |wanted: &&str| match wanted.split_once(' ') {
        None => name.eq_ignore_ascii_case(wanted.as_bytes()),
        Some((one, two)) => {
            name.eq_ignore_ascii_case(one.as_bytes())
                && rest.first().is_some_and(|word| word.eq_ignore_ascii_case(two.as_bytes()))
        }
    };
    let has = |wanted: &[u8]| rest.iter().any(|word| word.eq_ignore_ascii_case(wanted));
    if name.eq_ignore_ascii_case(b"XADD") && rest.iter().any(|word| word == b"*") {
        return Comparison::Kind;
    }
    let found = EXCEPTIONS.iter().find(|(_, names)| names.iter().any(is));
    match found.map_or(Comparison::Exact, |(comparison, _)| *comparison) {
        // The page behind any other cursor is the server's own.
        Comparison::Page | Comparison::PageOfPairs
            if words.get(cursor_at(words)).is_some_and(|cursor| cursor != b"0") =>
        {
            Comparison::Kind
        }
        Comparison::PageOfPairs if has(b"NOVALUES") => Comparison::Page,
        comparison => comparison,
    }
}

/// Returns the place of the cursor among the words of a scan.
pub(super) fn cursor_at(words: &[Vec<u8>]) -> usize {
    let is_of_keys = words.first().is_some_and(|name| name.eq_ignore_ascii_case(b"SCAN"));
    if is_of_keys { 1 } else { 2 }
}

/// Whether two replies agree.
pub(super) fn agree(comparison: Comparison, theirs: &[u8], ours: &[u8]) -> bool {
    if theirs == ours {
        return true;
    }
    if comparison == Comparison::Exact {
        return false;
    }
    match (read(theirs), read(ours)) {
        (Ok(theirs), Ok(ours)) => agree_read(comparison, &theirs, &ours),
        _ => false,
    }
}

/// How the replies to EXEC agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Agreement {
    /// All of them do.
    Whole,
    /// That of the command with this number does not.
    Without { number: usize, theirs: Vec<u8>, ours: Vec<u8> },
    /// They are not replies to the same commands.
    None,
}

/// Compares the replies to EXEC: each element in the way of its command.
pub(super) fn agree_each(ways: &[Comparison], theirs: &[u8], ours: &[u8]) -> Agreement {
    if theirs == ours {
        return Agreement::Whole;
    }
    let (Ok(theirs), Ok(ours)) = (read(theirs), read(ours)) else { return Agreement::None };
    let same = theirs.kind == ours.kind && theirs.parts.len() == ours.parts.len();
    if !same || ways.len() != theirs.parts.len() {
        return Agreement::None;
    }
    let mut parts = theirs.parts.iter().zip(&ours.parts).zip(ways).enumerate();
    let differs = |((theirs, ours), way): ((&Reply<'_>, &Reply<'_>), &Comparison)| {
        theirs.raw != ours.raw && !agree_read(*way, theirs, ours)
    };
    match parts.find(|(_, part)| differs(*part)) {
        Some((number, ((theirs, ours), _))) => {
            Agreement::Without { number, theirs: theirs.raw.to_vec(), ours: ours.raw.to_vec() }
        }
        None => Agreement::Whole,
    }
}

fn agree_read(comparison: Comparison, theirs: &Reply<'_>, ours: &Reply<'_>) -> bool {
    if theirs.raw == ours.raw {
        return true;
    }
    if theirs.is_error() || ours.is_error() || theirs.is_null != ours.is_null {
        return false;
    }
    let is_same_shape = theirs.kind == ours.kind && theirs.parts.len() == ours.parts.len();
    match comparison {
        Comparison::Exact => false,
        Comparison::Kind => theirs.kind == ours.kind,
        Comparison::Unordered => is_same_shape && elements(theirs, 1) == elements(ours, 1),
        Comparison::AnyOrder => sorted(theirs) == sorted(ours),
        Comparison::Commands => theirs.kind == ours.kind && names(theirs) == names(ours),
        Comparison::Pairs => is_same_shape && elements(theirs, 2) == elements(ours, 2),
        Comparison::Within(most) => are_near(most, theirs, ours),
        Comparison::Drawn => {
            let kinds = |reply: &Reply<'_>| {
                let parts = reply.parts.iter().map(|part| (part.kind, part.parts.len()));
                parts.collect::<Vec<_>>()
            };
            is_same_shape && kinds(theirs) == kinds(ours)
        }
        Comparison::Named(skipped) => are_named_alike(skipped, theirs, ours),
        Comparison::Page => are_pages_alike(1, theirs, ours),
        Comparison::PageOfPairs => are_pages_alike(2, theirs, ours),
    }
}

/// Returns the elements of a reply in an order of their bytes, in runs of so many.
pub(super) fn elements(reply: &Reply<'_>, run: usize) -> Vec<Vec<u8>> {
    let raw = |parts: &[Reply<'_>]| parts.iter().flat_map(|part| part.raw).copied().collect();
    let mut elements: Vec<Vec<u8>> = reply.parts.chunks(run.max(1)).map(raw).collect();
    elements.sort();
    elements
}

/// Returns the bytes of a reply whose elements are sorted at each depth.
fn sorted(reply: &Reply<'_>) -> Vec<u8> {
    if reply.parts.is_empty() {
        return reply.raw.to_vec();
    }
    let mut parts: Vec<Vec<u8>> = reply.parts.iter().map(sorted).collect();
    parts.sort();
    [vec![reply.kind], parts.concat()].concat()
}

/// Commands of Redis that are not ours, beside those of a module: their names begin with V.
const NOT_OURS: [&[u8]; 2] = [b"pfdebug", b"restore-asking"];

/// Returns the names of commands that both servers may have, sorted.
fn names<'a>(reply: &Reply<'a>) -> Vec<&'a [u8]> {
    let names = reply.parts.iter().map(|part| part.text);
    let is_shared = |name: &&[u8]| {
        !NOT_OURS.contains(name) && !name.first().is_some_and(|first| matches!(first, b'v' | b'V'))
    };
    let mut names: Vec<&[u8]> = names.filter(is_shared).collect();
    names.sort_unstable();
    names
}

fn are_near(most: i64, theirs: &Reply<'_>, ours: &Reply<'_>) -> bool {
    if theirs.kind != ours.kind || theirs.parts.len() != ours.parts.len() {
        return false;
    }
    if theirs.parts.is_empty() {
        let near = match (theirs.number(), ours.number()) {
            (Some(theirs), Some(ours)) if theirs >= 0 && ours >= 0 && theirs != ours => {
                theirs.abs_diff(ours) <= most.unsigned_abs()
            }
            _ => false,
        };
        return theirs.raw == ours.raw || (theirs.kind == b':' && near);
    }
    theirs.parts.iter().zip(&ours.parts).all(|(theirs, ours)| are_near(most, theirs, ours))
}

fn are_named_alike(skipped: &[&str], theirs: &Reply<'_>, ours: &Reply<'_>) -> bool {
    if theirs.kind != ours.kind || theirs.parts.len() != ours.parts.len() {
        return false;
    }
    if theirs.parts.is_empty() {
        return theirs.raw == ours.raw || are_times_alike(theirs, ours);
    }
    let mut is_skipped = false;
    theirs.parts.iter().zip(&ours.parts).all(|(theirs, ours)| {
        let alike = is_skipped || are_named_alike(skipped, theirs, ours);
        is_skipped = skipped.iter().any(|name| name.as_bytes() == theirs.text);
        alike
    })
}

/// Whether two numbers are times of about now, as those of pending entries are.
fn are_times_alike(theirs: &Reply<'_>, ours: &Reply<'_>) -> bool {
    /// The year 2020, in milliseconds.
    const LEAST: i64 = 1_577_836_800_000;
    let is_time = |reply: &Reply<'_>| reply.kind == b':' && reply.number() >= Some(LEAST);
    is_time(theirs) && is_time(ours) && are_near(1000 * SECONDS, theirs, ours)
}

/// Whether two pages of scans agree. Cursors are the server's own, but for the last.
fn are_pages_alike(run: usize, theirs: &Reply<'_>, ours: &Reply<'_>) -> bool {
    let ([cursor, page], [our_cursor, our_page]) = (&theirs.parts[..], &ours.parts[..]) else {
        return false;
    };
    let is_same_kind = cursor.kind == our_cursor.kind && page.kind == our_page.kind;
    is_same_kind && elements(page, run) == elements(our_page, run)
}

/// Whether all drawn elements are among the elements of an earlier reply.
pub(super) fn is_drawn_from(all: &[u8], drawn: &[u8]) -> bool {
    let (Ok(all), Ok(drawn)) = (read(all), read(drawn)) else { return false };
    if all.is_error() || drawn.is_error() || drawn.is_null {
        return true;
    }
    let mut texts = Vec::new();
    leaves(&all, &mut texts);
    let mut of_drawn = Vec::new();
    leaves(&drawn, &mut of_drawn);
    of_drawn.iter().all(|text| texts.contains(text))
}

fn leaves<'a>(reply: &Reply<'a>, texts: &mut Vec<&'a [u8]>) {
    if matches!(reply.kind, b'*' | b'~' | b'%' | b'>') {
        reply.parts.iter().for_each(|part| leaves(part, texts));
    } else {
        texts.push(reply.text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(line: &str) -> Comparison {
        let words: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        comparison(&words)
    }

    #[test]
    fn names_decide_in_any_case() {
        assert_eq!(way("get a"), Comparison::Exact);
        assert_eq!(way("smembers a"), Comparison::Unordered);
        assert_eq!(way("Client id"), Comparison::Kind);
        assert_eq!(way("client getname"), Comparison::Exact);
        assert_eq!(way("hscan h 0"), Comparison::PageOfPairs);
        assert_eq!(way("hscan h 0 novalues"), Comparison::Page);
        assert_eq!(way("xadd x * f v"), Comparison::Kind);
        assert_eq!(way("xadd x 1-1 f v"), Comparison::Exact);
        let called = ["eval", CALL, "0", "smembers", "t"].map(|word| word.as_bytes().to_vec());
        assert_eq!(comparison(&called), Comparison::Unordered);
    }

    #[test]
    fn sets_and_maps_agree_in_any_order() {
        let (one, other) = (b"*2\r\n$1\r\na\r\n$1\r\nb\r\n", b"*2\r\n$1\r\nb\r\n$1\r\na\r\n");
        assert!(agree(Comparison::Unordered, one, other));
        assert!(!agree(Comparison::Exact, one, other));
        // A set is not an array.
        assert!(!agree(Comparison::Unordered, one, b"~2\r\n$1\r\nb\r\n$1\r\na\r\n"));
        let map = |text: &str| text.replace(' ', "\r\n").into_bytes();
        let one = map("*4 +a +1 +b +2 ");
        assert!(agree(Comparison::Pairs, &one, &map("*4 +b +2 +a +1 ")));
        assert!(!agree(Comparison::Pairs, &one, &map("*4 +b +1 +a +2 ")));
    }

    #[test]
    fn times_agree_within_their_bound_and_missing_times_exactly() {
        assert!(agree(Comparison::Within(1), b":100\r\n", b":99\r\n"));
        assert!(!agree(Comparison::Within(1), b":100\r\n", b":98\r\n"));
        assert!(!agree(Comparison::Within(1), b":-1\r\n", b":-2\r\n"));
        assert!(!agree(Comparison::Within(1), b":0\r\n", b":-1\r\n"));
        assert!(agree(Comparison::Within(1), b"*2\r\n:-2\r\n:7\r\n", b"*2\r\n:-2\r\n:8\r\n"));
        assert!(!agree(Comparison::Within(1), b"*1\r\n:7\r\n", b"*2\r\n:7\r\n:7\r\n"));
        assert!(!agree(Comparison::Within(1), b"$1\r\n7\r\n", b":7\r\n"));
    }

    #[test]
    fn errors_agree_only_with_equal_errors() {
        for way in [Comparison::Kind, Comparison::Drawn, Comparison::Unordered] {
            assert!(agree(way, b"-ERR a\r\n", b"-ERR a\r\n"));
            assert!(!agree(way, b"-ERR a\r\n", b"-ERR b\r\n"), "{way:?}");
            assert!(!agree(way, b"-ERR a\r\n", b"*0\r\n"), "{way:?}");
        }
        assert!(!agree(Comparison::Drawn, b"$-1\r\n", b"$1\r\na\r\n"));
    }

    #[test]
    fn drawn_elements_are_counted_and_come_from_the_whole() {
        let all = b"*2\r\n$1\r\na\r\n$1\r\nb\r\n";
        assert!(agree(Comparison::Drawn, b"*1\r\n$1\r\na\r\n", b"*1\r\n$1\r\nb\r\n"));
        assert!(!agree(Comparison::Drawn, b"*1\r\n$1\r\na\r\n", all));
        assert!(is_drawn_from(all, b"$1\r\na\r\n"));
        assert!(is_drawn_from(all, b"*2\r\n$1\r\nb\r\n$1\r\nb\r\n"));
        assert!(!is_drawn_from(all, b"*1\r\n$1\r\nc\r\n"));
    }

    #[test]
    fn facts_about_the_server_are_not_compared_but_their_names_are() {
        let skip = Comparison::Named(OF_SERVER);
        let greeting = |name: &str, version: &str, proto: &str| {
            format!("*4\r\n+{name}\r\n+{version}\r\n+proto\r\n+{proto}\r\n").into_bytes()
        };
        assert!(agree(skip, &greeting("version", "1", "2"), &greeting("version", "3", "2")));
        assert!(!agree(skip, &greeting("version", "1", "2"), &greeting("version", "1", "3")));
        assert!(!agree(skip, &greeting("version", "1", "2"), &greeting("edition", "1", "2")));
    }

    #[test]
    fn the_replies_to_a_transaction_are_compared_one_by_one() {
        let ways = [Comparison::Exact, Comparison::Within(1)];
        let near = agree_each(&ways, b"*2\r\n+OK\r\n:7\r\n", b"*2\r\n+OK\r\n:8\r\n");
        assert_eq!(near, Agreement::Whole);
        let (theirs, ours) = (b":7\r\n".to_vec(), b":8\r\n".to_vec());
        assert_eq!(
            agree_each(&ways, b"*2\r\n:7\r\n:7\r\n", b"*2\r\n:8\r\n:7\r\n"),
            Agreement::Without { number: 0, theirs, ours }
        );
        assert_eq!(agree_each(&ways, b"*-1\r\n", b"*0\r\n"), Agreement::None);
    }
}
