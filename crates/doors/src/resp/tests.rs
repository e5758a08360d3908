//! Commands in whole and in pieces, wrong ones, and replies in both versions.

use super::*;
use proptest::prelude::*;

/// Reads all commands of some bytes; returns them and the errors, and the number of bytes used.
fn read_all(parser: &mut Parser, bytes: &[u8]) -> (Vec<String>, usize) {
    let (mut all, mut at) = (Vec::new(), 0);
    loop {
        match parser.next(&bytes[at..]) {
            Parsed::More => return (all, at),
            Parsed::Nothing(used) => at += used,
            Parsed::Command(used) => {
                let arguments = parser.arguments(&bytes[at..]);
                let text = |it: &[u8]| it.escape_ascii().to_string();
                all.push(arguments.iter().map(text).collect::<Vec<_>>().join(" "));
                at += used;
            }
            Parsed::Error(text) => {
                all.push(text.escape_ascii().to_string().replace("\\'", "'"));
                return (all, bytes.len());
            }
        }
    }
}

fn said(bytes: &[u8]) -> Vec<String> {
    read_all(&mut Parser::new(Limits::default()), bytes).0
}

#[test]
fn arrays_are_commands() {
    assert_eq!(said(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nPING\r\n"), ["GET k", "PING"]);
    assert_eq!(said(b"*1\r\n$0\r\n\r\n"), [""]);
    assert_eq!(said(b"*2\r\n$1\r\na\r\n$4\r\n\r\n\r\n\r\n"), ["a \\r\\n\\r\\n"]);
    assert_eq!(said(b"*0\r\n*-1\r\n*1\r\n$1\r\na\r\n"), ["a"], "empty arrays are skipped");
    assert_eq!(said(b"*1\r\n$1\r\naXY*1\r\n$1\r\nb\r\n"), ["a", "b"], "as Redis skips any two");
    for unfinished in
        ["", "*", "*1", "*1\r", "*1\r\n", "*1\r\n$", "*1\r\n$1\r\na\r", "*2\r\n$1\r\na\r\n"]
    {
        assert_eq!(said(unfinished.as_bytes()), [""; 0], "{unfinished:?}");
    }
}

#[test]
fn lines_are_commands() {
    assert_eq!(said(b"PING\r\n"), ["PING"]);
    assert_eq!(said(b"  set  k\tv  \n\r\n\n get k\r\n"), ["set k v", "get k"]);
    assert_eq!(
        said(
            br#"set "a b" 'c d' "\x41\n\"" '\'' ""
"#
        ),
        [r#"set a b c d A\n\" \' "#]
    );
    assert_eq!(said(b"a\"b c\" d'e'\r\n"), ["ab c de"], "a quote may begin within a word");
    assert_eq!(said(b"get a\0 b\r\n"), ["get a"]);
    assert_eq!(said(b"\x0bget a\x0bb\r\n"), ["get a\\x0bb"]);
}

#[test]
fn other_bytes_get_the_errors_of_redis() {
    let long = "x".repeat(70_000);
    for (bytes, error) in [
        ("*x\r\n", "invalid multibulk length"),
        ("*2147483648\r\n", "invalid multibulk length"),
        ("*01\r\n", "invalid multibulk length"),
        ("*+1\r\n", "invalid multibulk length"),
        ("* 1\r\n", "invalid multibulk length"),
        ("*1\r\nPING\r\n", "expected '$', got 'P'"),
        ("*1\r\n\r\n", "expected '$', got '\\r'"),
        ("*1\r\n$-1\r\n", "invalid bulk length"),
        ("*1\r\n$x\r\n", "invalid bulk length"),
        ("*1\r\n$536870913\r\n", "invalid bulk length"),
        ("*1\r\n$99999999999999999999\r\n", "invalid bulk length"),
        (&format!("*{long}"), "too big mbulk count string"),
        (&format!("*{long}\r\n"), "too big mbulk count string"),
        (&format!("*1\r\n${long}"), "too big bulk count string"),
        (&long, "too big inline request"),
        ("set \"a\r\n", "unbalanced quotes in request"),
        ("set 'a\r\n", "unbalanced quotes in request"),
        ("set \"a\"b\r\n", "unbalanced quotes in request"),
    ] {
        assert_eq!(said(bytes.as_bytes()), [format!("Protocol error: {error}")], "{bytes:.40?}");
    }
    assert_eq!(said(b"*1\r\n\xc7\r\n"), ["Protocol error: expected '$', got '\\xc7'"]);
}

#[test]
fn a_stranger_may_send_short_commands_only() {
    let limits = Limits { is_stranger: true, ..Limits::default() };
    let said = |bytes: &[u8]| read_all(&mut Parser::new(limits), bytes).0;
    assert_eq!(said(b"*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n"), ["AUTH x"]);
    assert_eq!(said(b"*11\r\n"), ["Protocol error: unauthenticated multibulk length"]);
    assert_eq!(said(b"*1\r\n$16385\r\n"), ["Protocol error: unauthenticated bulk length"]);
}

#[test]
fn a_claimed_length_takes_no_memory() {
    let mut parser = Parser::new(Limits::default());
    assert_eq!(parser.next(b"*2147483647\r\n$536870912\r\nabc"), Parsed::More);
    assert!(parser.arguments.capacity() < 100);
}

#[test]
fn a_parser_keeps_little_memory_after_a_command_with_many_arguments() {
    let many = [b"*100000\r\n".to_vec(), b"$0\r\n\r\n".repeat(100_000)].concat();
    let mut parser = Parser::new(Limits::default());
    assert_eq!(parser.next(&many), Parsed::Command(many.len()));
    assert_eq!(parser.arguments(&many).len(), 100_000);
    assert_eq!(parser.next(b"*"), Parsed::More);
    assert!(parser.arguments.capacity() < 1000);
}

#[test]
fn integers_are_read_strictly() {
    for (text, number) in [
        ("0", Some(0)),
        ("-1", Some(-1)),
        ("9223372036854775807", Some(i64::MAX)),
        ("-9223372036854775808", Some(i64::MIN)),
        ("9223372036854775808", None),
        ("-9223372036854775809", None),
        ("", None),
        ("-", None),
        ("-0", None),
        ("00", None),
        ("01", None),
        ("+1", None),
        ("1 ", None),
        ("1.0", None),
    ] {
        assert_eq!(integer_of(text.as_bytes()), number, "{text:?}");
    }
}

#[test]
fn numbers_with_a_point_are_short() {
    for (number, text) in [
        (0.0, "0"),
        (-0.0, "-0"),
        (724.21481, "724.2148100000001"),
        (-622417.823122848, "-6.224178231228481e+5"),
        (1.0, "1"),
        (-3.25, "-3.25"),
        (0.1, "0.1"),
        (1e7, "10000000"),
        (1e20, "1e+20"),
        (1.5e300, "1.5e+300"),
        (1e-5, "0.00001"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (123456789012345680.0, "123456789012345680"),
        (36455824602328896.0, "36455824602328896"),
        (5e18, "5e+18"),
        (-622417.5, "-622417.5"),
        (0.30000000000000004, "0.30000000000000004"),
        (f64::MAX, "1.7976931348623157e+308"),
        (5e-324, "5e-324"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
    ] {
        assert_eq!(double_text(number), text);
    }
}

#[test]
fn replies_are_written_in_both_versions() {
    let written = |version| {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, version);
        writer.simple("OK");
        writer.error(b"ERR two\r\nlines");
        writer.integer(-7);
        writer.string(b"a\r\nb");
        writer.null();
        writer.null_array();
        writer.array(2);
        writer.map(1);
        writer.set(3);
        writer.push(4);
        writer.double(0.5);
        writer.boolean(true);
        writer.big_number("123");
        writer.verbatim(*b"txt", b"hi");
        String::from_utf8(out).unwrap()
    };
    assert_eq!(
        written(Version::Two),
        "+OK\r\n-ERR two  lines\r\n:-7\r\n$4\r\na\r\nb\r\n$-1\r\n*-1\r\n*2\r\n*2\r\n*3\r\n*4\r\n\
         $3\r\n0.5\r\n:1\r\n$3\r\n123\r\n$2\r\nhi\r\n"
    );
    assert_eq!(
        written(Version::Three),
        "+OK\r\n-ERR two  lines\r\n:-7\r\n$4\r\na\r\nb\r\n_\r\n_\r\n*2\r\n%1\r\n~3\r\n>4\r\n\
         ,0.5\r\n#t\r\n(123\r\n=6\r\ntxt:hi\r\n"
    );
}

/// Bytes that are often commands, or nearly so.
fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let argument = prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..20)
            .prop_map(|it| [format!("${}\r\n", it.len()).as_bytes(), &it, b"\r\n"].concat()),
        1 => Just(b"$x\r\n".to_vec()),
        1 => Just(b"abc\r\n".to_vec()),
    ];
    let command = prop_oneof![
        5 => prop::collection::vec(argument, 0..6)
            .prop_map(|it| [format!("*{}\r\n", it.len()).as_bytes(), &it.concat()].concat()),
        3 => "[a-z \"'\\\\x]{0,20}\r\n".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ];
    prop::collection::vec(command, 0..8).prop_map(|all| all.concat())
}

proptest! {
    #[test]
    fn the_pieces_in_which_bytes_arrive_do_not_matter(
        bytes in any_bytes(),
        cuts in prop::collection::vec(1usize..20, 1..50),
    ) {
        let whole = said(&bytes);
        let (mut parser, mut pieces) = (Parser::new(Limits::default()), Vec::new());
        let (mut begin, mut end) = (0, 0);
        let mut cuts = cuts.iter().cycle();
        while end < bytes.len() {
            end = (end + cuts.next().unwrap()).min(bytes.len());
            let (more, used) = read_all(&mut parser, &bytes[begin..end]);
            let is_over = more.last().is_some_and(|last| last.starts_with("Protocol error"));
            pieces.extend(more);
            begin += used;
            if is_over {
                break;
            }
        }
        prop_assert_eq!(pieces, whole);
    }

    #[test]
    fn a_number_with_a_point_is_read_as_the_same_number(bits in any::<u64>()) {
        let number = f64::from_bits(bits);
        prop_assume!(number.is_finite() && number != 0.0);
        prop_assert_eq!(double_text(number).parse::<f64>().unwrap().to_bits(), bits);
    }
}
