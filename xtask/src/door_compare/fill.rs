//! The words of generated commands: few keys and members, so that commands meet, and odd ones.

use super::administration::{COMMAND_NAMES, COMMANDS, RULES};
use super::commands::{FUNCTIONS, KEYS, LIBRARIES, SCRIPTS};
use super::grammar::Fill;
use super::random::Random;

/// Words that a parser may read in more than one way.
const ODD: &[&[u8]] = &[
    b"",
    b" ",
    b"0",
    b"-1",
    b"+1",
    b"01",
    b"-0",
    b"0x10",
    b"1e3",
    b" 1",
    b"1 ",
    b"nan",
    b"inf",
    b"-inf",
    b"9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775808",
    b"-9223372036854775809",
    b"18446744073709551615",
    b"12345678901234567890123",
    b"1.0",
    b"1.",
    b".5",
    b"abc",
    b"\0",
    b"\xff\xfe",
    b"*",
    b"NX",
];

/// Odd times and offsets. None is a short time, or makes a long string.
const ODD_AMOUNTS: &[&[u8]] = &[
    b"",
    b"-1",
    b"abc",
    b"1.5",
    b"0x10",
    b"+100000",
    b"0100000",
    b" 100000",
    b"9223372036854775807",
    b"9223372036854775808",
    b"9223372036854775",
    b"-9223372036854775808",
    b"12345678901234567890123",
    b"4294967296",
];

/// Payloads of `DUMP`: a value of each type, and four that are wrong.
const PAYLOADS: &[&[u8]] = &[
    b"\x00\x05hello\x0a\x00cr\xdfve4\x20\x0a",
    b"\x00\xc1\xe8\x03\x0b\x00\xe0\x0e\xfa\xfdG[^\xed",
    b"\x01\x03\x01a\xc0\x05\x01a\x0a\x008\xe8\x8a\xca\xb1\x20\x9d\xb2",
    b"\x02\x03\x01a\xc0\x05\x01b\x0a\x00\xaej\xc9\xa4\xdb\xc5\x04^",
    b"\x05\x02\x01b\x00\x00\x00\x00\x00\x00\x04@\x01a\x00\x00\x00\x00\x00\x00\xf0\xbf\x0a\x00\xf5H\x22,\xce**@",
    b"\x04\x02\x01a\xc0\x01\x01b\x01x\x0a\x00\xba6\x0cu\xae\x9bkG",
    b"\x18\x00\xd8\xc3,\xbb\x03\x00\x00\x02\x01\x01a\xc0\x01\x00\x01b\x01x\x0c\x00\xb3\x1f[n\x89-`8",
    b"\x00\x05hello\x0d\x00\xc1\xdbV\xc5b\x81W\xca",
    b"c\x05hello\x0a\x00\xa3\x9f\xc9\x09\x18\x20\x06\xb7",
    b"\x02\x00\x0a\x00:\xce9\x00\x9b\x899\xe8",
    b"\x00\x05hello\x0a\x00cr\xdfve4\x20\x00",
];

const VALUES: &[&str] = &[
    "1",
    "2",
    "10",
    "-3",
    "a",
    "b",
    "foo",
    "foobar",
    "hello world",
    "3.5",
    "",
    "ohmytext",
    "mynewtext",
    "9223372036854775806",
    "\u{e9}",
    "\r\n",
    "0",
];

const MEMBERS: &[&str] = &["a", "b", "c", "d", "e", "1", "2", "3", "10", "foo", "aa", "ab"];

const NUMBERS: &[&str] = &[
    "1",
    "2",
    "3",
    "5",
    "-1",
    "-7",
    "0",
    "100",
    "1000000",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775800",
];

const FLOATS: &[&str] = &[
    "1",
    "0.5",
    "-1.25",
    "3.0",
    "1e2",
    "1e-5",
    "0.1",
    "0.2",
    "10.10",
    "1.7976931348623157e308",
    "123456789.123456789",
    "5e-324",
    "-0.1",
    "1e20",
    "0",
    "3.141592653589793",
];

const SCORES: &[&str] = &[
    "0",
    "1",
    "1",
    "2",
    "2",
    "3",
    "4",
    "-1",
    "2.5",
    "1.5",
    "inf",
    "-inf",
    "-0",
    "1e5",
    "3.0",
    "3.141592653589793",
    "1e-5",
    "123456789012345678",
    "0.1",
    "1e21",
    "5e-324",
    "1.7976931348623157e308",
    "+inf",
    "1e16",
    "1e17",
    "0.30000000000000004",
];

const SLOTS: &[(&str, &[&str])] = &[
    ("member", MEMBERS),
    ("field", &["f1", "f2", "f3", "1", "a"]),
    ("number", NUMBERS),
    ("float", FLOATS),
    ("score", SCORES),
    ("index", &["0", "1", "2", "3", "-1", "-2", "-3", "5", "-100", "100"]),
    ("count", &["0", "1", "2", "3", "10", "-1", "-2", "-5"]),
    ("small", &["1", "2", "3", "10"]),
    ("bit", &["0", "1", "1"]),
    ("inttype", &["u8", "i8", "u1", "i16", "u16", "i64", "u63", "i5", "u32", "u64", "x8", "i0"]),
    ("boff", &["0", "1", "8", "#0", "#1", "#2", "100", "7", "-1", "#x"]),
    ("pattern", &["*", "s*", "?1", "[st]1", "l[1-2]", "[^s]*", "a", "s\\*", "**1", "*[", "f*"]),
    ("type", &["string", "list", "hash", "set", "zset", "stream", "nosuch"]),
    ("lex", &["-", "+", "[a", "(a", "[b", "(c", "[", "(", "a", "", "[foo", "(aa"]),
    ("aclrule", RULES),
    ("commandname", COMMAND_NAMES),
    ("aclcategory", &["read", "write", "string", "dangerous", "keyspace", "nosuch", "STREAM"]),
    (
        "events",
        &["KEA", "KEg$lshzetnocm", "K", "E", "A", "AK", "Elg", "nothing", "Kx", "Knm", "KAn", ""],
    ),
    (
        "sortpattern",
        // Without a star, sets have any order.
        &["s*", "h*", "h*->f1", "h1->*", "*", "x*->", "l*", "*->f1"],
    ),
    (
        "getpattern",
        &["s*", "nosort", "h*", "h*->f1", "h1->*", "*", "#", "x*->", "l*", "s?", "->", "*->f1"],
    ),
    (
        "settingname",
        &[
            "databases",
            "slowlog-*",
            "latency-monitor-*",
            "notify-keyspace-events",
            "nosuch",
            "SLOWLOG-MAX-LEN",
            "[s]lowlog-max-len",
        ],
    ),
    ("channel", &["c1", "c2", "news.a", "news.b"]),
    ("chanpattern", &["c*", "news.*", "c1", "*"]),
    ("clientname", &["one", "two", "", "with space", "1.2.3", "n\n"]),
    ("database", &["0", "1", "2", "15", "16", "-1", "a"]),
    (
        "id",
        &[
            "1-1",
            "1-2",
            "2-1",
            "3-0",
            "5-5",
            "5-*",
            "7",
            "0-1",
            "0-0",
            "0",
            "10-3",
            "1-",
            "-1",
            "a-b",
            "18446744073709551615-18446744073709551615",
        ],
    ),
    ("xbound", &["-", "+", "1-1", "(1-1", "2", "5-5", "(2-1", "(-", "7-0", "x"]),
    ("group", &["gr1", "gr2"]),
    ("consumer", &["co1", "co2"]),
    ("longitude", &["13.361389", "15.087269", "2.35", "-122.4", "0", "179.9", "-181", "200"]),
    ("latitude", &["38.115556", "37.502669", "48.85", "37.8", "0", "-85", "86", "85.05"]),
    ("radius", &["100", "200", "1000", "20000", "0", "-1"]),
    // No command may wait, so none of these is a time.
    ("wrongtime", &["-1", "abc", "", "nan", "1e400", "-0.1", "0x", "1 "]),
];

/// Fills the slots of one row.
pub(super) struct Filler<'a> {
    /// The keys of the row's group.
    pub(super) keys: &'a [&'static str],
    /// Whether any key is as likely as the group's own.
    pub(super) is_crossed: bool,
    /// Whether odd words may stand for all others.
    pub(super) is_noisy: bool,
    /// The keys that the row uses in several places.
    pub(super) bound: [&'static str; 2],
}

impl<'a> Filler<'a> {
    pub(super) fn new(keys: &'a [&'static str], random: &mut Random) -> Filler<'a> {
        let bound = [random.of(keys), random.of(keys)];
        Filler { keys, is_crossed: false, is_noisy: true, bound }
    }

    fn key(&self, random: &mut Random) -> Vec<u8> {
        let is_any = self.is_noisy && random.one_in(if self.is_crossed { 2 } else { 16 });
        random.of(if is_any { KEYS } else { self.keys }).as_bytes().to_vec()
    }

    fn value(&self, random: &mut Random) -> Vec<u8> {
        match random.below(40) {
            0 => long(random),
            1 if self.is_noisy => random.of(ODD).to_vec(),
            2 => (0..random.between(1, 12)).map(|_| random.next().to_le_bytes()[0]).collect(),
            _ => random.of(VALUES).as_bytes().to_vec(),
        }
    }

    fn amount(&self, usual: &[&str], random: &mut Random) -> Vec<u8> {
        if self.is_noisy && random.one_in(16) {
            return random.of(ODD_AMOUNTS).to_vec();
        }
        random.of(usual).as_bytes().to_vec()
    }
}

/// Returns a value that is longer than the small encodings of Redis allow.
fn long(random: &mut Random) -> Vec<u8> {
    let letter = random.of(&["x", "long ", "01234567"]);
    letter.repeat(random.between(20, 300)).into_bytes()
}

impl Fill for Filler<'_> {
    fn fill(&mut self, slot: &str, random: &mut Random, words: &mut Vec<Vec<u8>>) -> bool {
        let text = |word: &str| word.as_bytes().to_vec();
        let word = match slot {
            "key" => self.key(random),
            "kA" => text(self.bound[0]),
            "kB" => text(self.bound[1]),
            "value" => self.value(random),
            "long" => long(random),
            "odd" => random.of(ODD).to_vec(),
            // Two equal times from now on would differ by the time between their commands, which
            // GT and LT show. So there are many, and none in seconds is one in milliseconds.
            "seconds" => {
                let seconds = 50_000 + 1000 * random.below(1000);
                self.amount(&[&seconds.to_string()], random)
            }
            "ms" => {
                let milliseconds = 50_500_000 + 1_000_000 * random.below(1000);
                self.amount(&[&milliseconds.to_string()], random)
            }
            // In the year 2100.
            "at" => self.amount(&["4102444800", "4102444900", "4102440000", "1"], random),
            "atms" => self.amount(&["4102444800000", "4102444900500", "1000"], random),
            "offset" => self.amount(&["0", "1", "2", "5", "7", "8", "23", "100", "1000"], random),
            "script" => text(random.of(SCRIPTS)),
            "library" => text(random.of(LIBRARIES)),
            "fun" => text(random.of(FUNCTIONS)),
            "payload" => random.of(PAYLOADS).to_vec(),
            "bound" => {
                let mut word = if random.one_in(3) { text("(") } else { Vec::new() };
                word.extend_from_slice(random.of(SCORES).as_bytes());
                word
            }
            "nkeys" | "nfields" => {
                let count = random.between(1, 3);
                let wrong = self.is_noisy && random.one_in(20);
                let said = if wrong { random.below(5) } else { count };
                words.push(said.to_string().into_bytes());
                for _ in 0..count {
                    let one = if slot == "nkeys" { "key" } else { "field" };
                    self.fill(one, random, words);
                }
                return true;
            }
            "none" => Vec::new(),
            "anycommand" => {
                words.extend(random.of(COMMANDS).split(' ').map(text));
                return true;
            }
            "many" => {
                let count = if random.one_in(4) { 140 } else { 20 };
                words.extend((0..count).map(|at| format!("m{at}").into_bytes()));
                return true;
            }
            other => match SLOTS.iter().find(|(name, _)| *name == other) {
                None => return false,
                Some((_, usual)) => {
                    let is_fixed = ["wrongtime", "small", "sortpattern"].contains(&other);
                    let may_be_odd = self.is_noisy && !is_fixed;
                    if may_be_odd && random.one_in(50) {
                        // An automatic id is the time, which the contents would show.
                        match random.of(ODD) {
                            b"*" if other == "id" => text("a-b"),
                            odd => odd.to_vec(),
                        }
                    } else {
                        text(random.of(usual))
                    }
                }
            },
        };
        words.push(word);
        true
    }
}
