//! Requests in whole and in pieces, wrong ones, and answers.

use super::*;
use proptest::prelude::*;

/// Reads all requests of some bytes; returns them and the answers to wrong ones, as text.
fn read_all(parser: &mut Parser, bytes: &[u8]) -> (Vec<String>, usize) {
    let (mut all, mut at) = (Vec::new(), 0);
    loop {
        match parser.next(&bytes[at..]) {
            Parsed::More => return (all, at),
            Parsed::Request(request, used) => {
                all.push(format!("{request:?}"));
                at += used;
            }
            Parsed::Refused(answer, used) => {
                all.push(String::from_utf8_lossy(answer).trim_end().to_owned());
                at += used;
            }
            Parsed::Discarded(used) => at += used,
            Parsed::Close => {
                all.push("closed".to_owned());
                return (all, bytes.len());
            }
        }
    }
}

fn parser() -> Parser {
    Parser::new(Limits { value_bytes_max: 100, get_bytes_max: 10_000 })
}

/// Returns the answers to wrong requests, or the requests.
fn said(bytes: &[u8]) -> Vec<String> {
    read_all(&mut parser(), bytes).0
}

fn one(bytes: &[u8]) -> Request<'_> {
    match parser().next(bytes) {
        Parsed::Request(request, used) => {
            assert_eq!(used, bytes.len());
            request
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn classic_commands_are_read() {
    let store = |mode, flags, time, cas, value: &'static [u8], no_reply| {
        let exptime = Exptime(time);
        Request::Store(Store { mode, key: b"k", flags, exptime, cas, value, no_reply })
    };
    assert_eq!(one(b"set k 5 0 3\r\nabc\r\n"), store(Mode::Set, 5, 0, None, b"abc", false));
    assert_eq!(
        one(b"set k 0 -1 2 noreply\r\n\r\n\r\n"),
        store(Mode::Set, 0, -1, None, b"\r\n", true)
    );
    assert_eq!(one(b"add k 4294967295 0 0\n\r\n"), store(Mode::Add, u32::MAX, 0, None, b"", false));
    assert_eq!(one(b"replace k 0 0 0\r\n\r\n"), store(Mode::Replace, 0, 0, None, b"", false));
    assert_eq!(one(b"append k 0 0 1\r\nx\r\n"), store(Mode::Append, 0, 0, None, b"x", false));
    assert_eq!(one(b"prepend k 0 0 1\r\nx\r\n"), store(Mode::Prepend, 0, 0, None, b"x", false));
    assert_eq!(
        one(b"cas k 0 9 1 77 noreply\r\nx\r\n"),
        store(Mode::Set, 0, 9, Some(77), b"x", true)
    );
    let keys = |request| match request {
        Request::Get { keys, with_cas, touch } => {
            (keys.map(<[u8]>::to_vec).collect::<Vec<_>>(), with_cas, touch.map(|it| it.0))
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(
        keys(one(b"get  a bb   c\r\n")),
        (vec![b"a".to_vec(), b"bb".to_vec(), b"c".to_vec()], false, None)
    );
    assert_eq!(keys(one(b"gets a\r\n")), (vec![b"a".to_vec()], true, None));
    assert_eq!(keys(one(b"gat 10 a\r\n")), (vec![b"a".to_vec()], false, Some(10)));
    assert_eq!(keys(one(b"gats -1 a\r\n")), (vec![b"a".to_vec()], true, Some(-1)));
    assert_eq!(one(b"delete k\r\n"), Request::Delete { key: b"k", no_reply: false });
    assert_eq!(one(b"delete k 0 noreply\r\n"), Request::Delete { key: b"k", no_reply: true });
    let arithmetic = |delta, is_decrement, no_reply| Request::Arithmetic {
        key: b"k",
        delta,
        is_decrement,
        no_reply,
    };
    assert_eq!(one(b"incr k 18446744073709551615\r\n"), arithmetic(u64::MAX, false, false));
    assert_eq!(one(b"decr k 1 noreply\r\n"), arithmetic(1, true, true));
    let exptime = Exptime(60);
    assert_eq!(one(b"touch k 60\r\n"), Request::Touch { key: b"k", exptime, no_reply: false });
    let flush = |delay, no_reply| Request::FlushAll { delay: Exptime(delay), no_reply };
    assert_eq!(one(b"flush_all\r\n"), flush(0, false));
    assert_eq!(one(b"flush_all noreply\r\n"), flush(0, true));
    assert_eq!(one(b"flush_all 30 noreply\r\n"), flush(30, true));
    assert_eq!(one(b"version\r\n"), Request::Version);
    assert_eq!(one(b"quit\r\n"), Request::Quit);
    assert_eq!(one(b"verbosity 1\r\n"), Request::Verbosity { no_reply: false });
    let Request::Stats(words) = one(b"stats detail on\r\n") else { panic!("stats") };
    assert_eq!(words.collect::<Vec<_>>(), [b"detail".as_slice(), b"on"]);
}

#[test]
fn wrong_requests_get_the_answers_of_memcached() {
    let long = "k".repeat(251);
    for (request, answer) in [
        ("\r\n", "ERROR"),
        ("g\r\n", "ERROR"),
        ("nonsense\r\n", "ERROR"),
        ("GET a\r\n", "ERROR"),
        ("get\r\n", "ERROR"),
        ("get a\0b\r\n", "CLIENT_ERROR bad command line format"),
        (&format!("get {long}\r\n"), "CLIENT_ERROR bad command line format"),
        (&format!("get a {long}\r\n"), "CLIENT_ERROR bad command line format"),
        ("gat\r\n", "ERROR"),
        ("gat 0\r\n", "END"),
        ("gats x\r\n", "CLIENT_ERROR invalid exptime argument"),
        ("gat x a\r\n", "CLIENT_ERROR invalid exptime argument"),
        ("set a\r\n", "ERROR"),
        ("set a 0 0 1 noreply extra\r\n", "ERROR"),
        ("set a x 0 1\r\n", "CLIENT_ERROR bad command line format"),
        ("set a -1 0 1\r\n", "CLIENT_ERROR bad command line format"),
        ("set a 4294967296 0 1\r\n", "CLIENT_ERROR bad command line format"),
        ("set a 0 0 -1\r\n", "CLIENT_ERROR bad command line format"),
        ("set a 0 0 2147483647\r\n", "CLIENT_ERROR bad command line format"),
        ("set a 0 0 -1 noreply\r\n", ""),
        (&format!("set {long} 0 0 1\r\n"), "CLIENT_ERROR bad command line format"),
        ("set a 0 0 1\r\nxyz", "CLIENT_ERROR bad data chunk"),
        ("set a 0 0 1 noreply\r\nxyz", ""),
        ("cas a 0 0 1\r\n", "ERROR"),
        ("cas a 0 0 1 x\r\n", "CLIENT_ERROR bad command line format"),
        ("incr a\r\n", "ERROR"),
        ("incr a -1\r\n", "CLIENT_ERROR invalid numeric delta argument"),
        ("incr a 18446744073709551616\r\n", "CLIENT_ERROR invalid numeric delta argument"),
        ("touch a\r\n", "ERROR"),
        ("touch a soon\r\n", "CLIENT_ERROR invalid exptime argument"),
        ("delete a 5\r\n", "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]"),
        ("delete a 5 noreply\r\n", ""),
        ("cache_memlimit x noreply\r\n", ""),
        ("me\r\n", "CLIENT_ERROR bad command line format"),
        ("mg a Fx\r\n", "CLIENT_ERROR bad command line format"),
        ("verbosity\r\n", "ERROR"),
        ("flush_all soon\r\n", "CLIENT_ERROR invalid exptime argument"),
        ("mg\r\n", "ERROR"),
        ("mg a v v\r\n", "CLIENT_ERROR duplicate flag"),
        ("mg a !\r\n", "CLIENT_ERROR invalid flag"),
        ("mg a Nx\r\n", "CLIENT_ERROR bad token in command line format"),
        ("mg !! b\r\n", "CLIENT_ERROR error decoding key"),
        ("ms a\r\n", "CLIENT_ERROR bad command line format"),
        ("ms a -1\r\n", "CLIENT_ERROR bad command line format"),
        ("ma a MX\r\n", "CLIENT_ERROR invalid mode for ma M token"),
        ("ma a Dx\r\n", "CLIENT_ERROR invalid or duplicate flag"),
        ("md a v v\r\n", "CLIENT_ERROR invalid or duplicate flag"),
        ("ms a 0 MXX\r\n\r\n", "CLIENT_ERROR incorrect length for M token"),
        // Memcached stops at an unknown or a second flag, and tells of the last wrong argument.
        ("mg a Nx !\r\n", "CLIENT_ERROR invalid flag"),
        ("mg a Nx v v\r\n", "CLIENT_ERROR duplicate flag"),
        ("ms a 0 MXX MA\r\n\r\n", "CLIENT_ERROR duplicate flag"),
        ("mg a Nx Fx\r\n", "CLIENT_ERROR bad token in command line format"),
        (&format!("touch {long} noreply\r\n"), ""),
        ("touch a noreply\r\n", ""),
        ("decr a noreply\r\n", ""),
        ("cas a 0 0 1 noreply\r\n", ""),
        ("set a 0 0 noreply\r\n", ""),
        (&format!("incr {long} noreply\r\n"), ""),
        (&format!("incr {long} 1 2\r\n"), "CLIENT_ERROR bad command line format"),
        ("ms a 0 MX Fx\r\n\r\n", "CLIENT_ERROR bad command line format"),
        ("mg !! b Nx\r\n", "CLIENT_ERROR bad token in command line format"),
        ("ma a Mx Mincr\r\n", "CLIENT_ERROR invalid or duplicate flag"),
    ] {
        assert_eq!(said(request.as_bytes()), [answer], "{request:?}");
    }
    assert_eq!(said(b"\x80\x00"), ["closed"], "the binary protocol");
    assert_eq!(said(b"mn\r\n\x80\r\n"), ["MetaNoop", "ERROR"], "no longer the first byte");
    assert_eq!(said(b"GET / HTTP/1.1\r\nHost: x\r\n"), ["closed"]);
}

#[test]
fn the_value_of_a_refused_request_is_no_request() {
    let value = "quit\r\n".repeat(50);
    let request = format!("set a 0 0 {}\r\n{value}\r\nversion\r\n", value.len());
    let expected = ["SERVER_ERROR object too large for cache", "Version"];
    assert_eq!(said(request.as_bytes()), expected);
    let request = format!("set a 0 0 {} noreply\r\n{value}\r\nversion\r\n", value.len());
    assert_eq!(said(request.as_bytes()), ["", "Version"]);
    let request = "ms a 6 Mx\r\nquit\r\n\r\nversion\r\n";
    assert_eq!(said(request.as_bytes()), ["CLIENT_ERROR invalid mode for ms M token", "Version"]);
}

#[test]
fn a_line_without_an_end_closes_the_connection_unless_it_is_a_get() {
    assert_eq!(said("x".repeat(2048).as_bytes()), [""; 0]);
    assert_eq!(said("x".repeat(2049).as_bytes()), ["closed"]);
    assert_eq!(said("set a ".repeat(500).as_bytes()), ["closed"]);
    assert_eq!(said(format!("{}\r\n", "x".repeat(3000)).as_bytes()), ["closed"]);
    assert_eq!(said("get a ".repeat(1000).as_bytes()), [""; 0]);
    assert_eq!(said("get a ".repeat(2000).as_bytes()), ["closed"]);
}

#[test]
fn meta_commands_are_read() {
    let Request::MetaGet(meta) = one(b"mg Zm9v b v k Oabc N30 R-1 T60 q u\r\n") else {
        panic!("mg")
    };
    assert_eq!((&*meta.key, meta.is_binary, meta.wants_value), (b"foo".as_slice(), true, true));
    assert_eq!(
        (meta.vivify, meta.recache, meta.exptime),
        (Some(Exptime(30)), Some(Exptime(-1)), Some(Exptime(60)))
    );
    assert!(meta.is_quiet && meta.leaves_access);
    let Request::MetaSet(meta, value) = one(b"ms foo 2 C5 F7 I MA T0\r\nhi\r\n") else {
        panic!("ms")
    };
    assert_eq!(
        (value, meta.mode, meta.cas, meta.flags),
        (b"hi".as_slice(), Mode::Append, Some(5), 7)
    );
    assert!(meta.makes_stale);
    let Request::MetaArithmetic(meta) = one(b"ma n MD D10 J100 N0\r\n") else { panic!("ma") };
    assert_eq!((meta.is_decrement, meta.delta, meta.initial), (true, 10, 100));
    assert_eq!(one(b"mn\r\n"), Request::MetaNoop);
    let Request::MetaDebug(key, true) = one(b"me Zm9v b\r\n") else { panic!("me") };
    assert_eq!(&*key, b"foo");
    assert!(matches!(one(b"md foo q\r\n"), Request::MetaDelete(meta) if meta.is_quiet));
}

#[test]
fn answers_have_the_flags_in_the_order_of_the_request() {
    let Request::MetaGet(request) = one(b"mg Zm9v b t v k Oxy s c f h l\r\n") else { panic!("mg") };
    let object =
        reply::Described { value_bytes: 3, flags: 9, cas: 77, ttl: None, idle: 4, was_read: true };
    let marks = reply::Marks { has_won: true, is_stale: true, is_awaited: false };
    let mut out = Vec::new();
    let described = Some((object, reply::OF_GET));
    reply::meta(&mut out, *b"HD", &request, described, marks, Some(b"abc"));
    let expected = "VA 3 t-1 kZm9v b Oxy s3 c77 f9 h1 l4 X W\r\nabc\r\n";
    assert_eq!(String::from_utf8_lossy(&out), expected);
    out.clear();
    reply::meta(&mut out, *b"EN", &request, None, reply::Marks::default(), None);
    assert_eq!(String::from_utf8_lossy(&out), "EN kZm9v b Oxy\r\n");
    out.clear();
    reply::value(&mut out, b"k", 1, b"abc", None);
    reply::value(&mut out, b"k", u32::MAX, b"", Some(u64::MAX));
    reply::end(&mut out);
    let expected = "VALUE k 1 3\r\nabc\r\nVALUE k 4294967295 0 18446744073709551615\r\n\r\nEND\r\n";
    assert_eq!(String::from_utf8_lossy(&out), expected);
}

#[test]
fn times_up_to_thirty_days_are_relative() {
    let expiries = [0, 1, 2_592_000, 2_592_001, -1, i32::MIN].map(|it| Exptime(it).expiry());
    let expected = [
        Expiry::Never,
        Expiry::In(1),
        Expiry::In(2_592_000),
        Expiry::At(2_592_001),
        Expiry::Past,
        Expiry::Past,
    ];
    assert_eq!(expiries, expected);
}

/// Bytes that are often requests, or nearly so.
fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just("get".to_owned()),
        Just("set".to_owned()),
        Just("ms".to_owned()),
        Just("mg".to_owned()),
        Just("ma".to_owned()),
        Just("cas".to_owned()),
        Just("incr".to_owned()),
        Just("noreply".to_owned()),
        "[a-z]{1,5}",
        "[0-9]{1,3}",
        "[TNRCFMOb][0-9a-z]{0,3}",
        Just("\r\n".to_owned()),
        "[ -~]{0,20}",
    ];
    prop_oneof![
        9 => prop::collection::vec(word, 0..40).prop_map(|words| words.join(" ").replace(" \r\n ", "\r\n").into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 0..300),
    ]
}

proptest! {
    #[test]
    fn the_pieces_in_which_bytes_arrive_do_not_matter(
        bytes in any_bytes(),
        cuts in prop::collection::vec(1usize..20, 1..50),
    ) {
        let (whole, _) = read_all(&mut parser(), &bytes);
        let (mut parser, mut said) = (parser(), Vec::new());
        let (mut begin, mut end) = (0, 0);
        let mut cuts = cuts.iter().cycle();
        while end < bytes.len() {
            end = (end + cuts.next().unwrap()).min(bytes.len());
            let (more, used) = read_all(&mut parser, &bytes[begin..end]);
            let is_closed = more.last().is_some_and(|last| last == "closed");
            said.extend(more);
            begin += used;
            if is_closed {
                break;
            }
        }
        prop_assert_eq!(said, whole);
    }
}

#[test]
fn a_key_in_base64_is_read_as_memcached_reads_it() {
    for (word, key) in [
        ("Zm9v", Some("foo")),
        ("Zm8=", Some("fo")),
        ("Zg==", Some("f")),
        ("Z:m9-v", Some("foo")),
        ("Zm8=Zm9v", Some("fo")),
        ("Zm9", None),
        ("Zg=", None),
        ("Z===", None),
        (":::", None),
        ("====", None),
    ] {
        let request = format!("mg {word} b\r\n");
        match (Parser::new(Limits::default()).next(request.as_bytes()), key) {
            (Parsed::Request(Request::MetaGet(meta), _), Some(key)) => {
                assert_eq!(meta.key, key.as_bytes(), "{word}");
            }
            (Parsed::Refused(..), None) => {}
            (other, _) => panic!("{word}: {other:?}"),
        }
    }
}
