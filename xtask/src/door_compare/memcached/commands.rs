//! The commands of memcached that the tester generates. See `grammar.rs` for the words.

use crate::door_compare::grammar::Fill;
use crate::door_compare::random::Random;

/// The keys: few, so that commands meet.
pub(super) const KEYS: &[&str] = &["a", "b", "c", "key:4"];

/// The keys of noise, and the keys that others stand for if they are read as base64.
const OTHERS: &[&[u8]] = &[b"Zm9v", b"foo", b"\xff\xfe\x01", b"\x91\xec\xb8"];

/// Returns all keys that an object may have.
pub(super) fn all_keys() -> impl Iterator<Item = Vec<u8>> {
    let usual = KEYS.iter().map(|key| key.as_bytes().to_vec());
    let others = OTHERS.iter().map(|key| key.to_vec());
    usual.chain(others).chain([249, 250].map(|length| b"k".repeat(length)))
}

/// The word that stands for the version of the object that the server showed last.
pub(super) const SEEN: &[u8] = b"@seen";

/// Rows of the classic commands.
pub(super) const CLASSIC: &[&str] = &[
    "get key",
    "get { key }",
    "gets key",
    "gets { key }",
    "gat exptime { key }",
    "gats exptime { key }",
    "set key flags exptime data",
    "set key flags exptime data",
    "set key flags exptime data",
    "( set / add / replace / append / prepend ) key flags exptime data [ noreply ]",
    "( add / replace / append / prepend ) key flags exptime data",
    "cas key flags exptime data seen",
    "cas key flags exptime data seen [ noreply ]",
    "cas key flags exptime data number",
    "set key flags exptime digits",
    "delete key [ noreply ]",
    "delete key 0 [ noreply ]",
    "( incr / decr ) key number",
    "( incr / decr ) key number [ noreply ]",
    "touch key exptime [ noreply ]",
    "verbosity 1 [ noreply ]",
    "version",
    "nosuch key",
    "get",
    "delete",
    "touch key",
    "incr key",
    "set key flags",
    "( set / append ) key flags exptime wrongdata",
];

/// Rows of the meta commands.
pub(super) const META: &[&str] = &[
    "mg key { getflag }",
    "mg key { getflag }",
    "mg key v { getflag }",
    "mg key",
    "ms key data",
    "ms key data { setflag }",
    "ms key data { setflag }",
    "ms key digits { setflag }",
    "ms key wrongdata { setflag }",
    "md key { deleteflag }",
    "md key",
    "ma key { countflag }",
    "ma key { countflag }",
    "mn",
    "me key",
    "mg",
    "ms key",
    "ms",
    "md",
    "ma",
    "me",
    "mx key",
];

const SLOTS: &[(&str, &[&str])] = &[
    ("flags", &["0", "0", "5", "4294967294"]),
    ("exptime", &["0", "0", "0", "100000", "2000000", "2000000000", "-1"]),
    // Memcached misreads some numbers from 2^63 on.
    ("number", &["1", "2", "10", "0", "9", "1000000000000"]),
    (
        "getflag",
        &[
            "b", "c", "f", "h", "k", "l", "Oxyz", "q", "s", "t", "u", "v", "N100000", "R30", "R0",
            "T100000", "T0", "E5", "O", "Nx", "Z",
        ],
    ),
    (
        "setflag",
        &[
            "b", "c", "C1", "F5", "I", "k", "Oxyz", "q", "s", "T100000", "T0", "MA", "MP", "MR",
            "ME", "MS", "Mappend", "Mx", "Fx", "f", "t", "Z", "C@seen",
        ],
    ),
    ("deleteflag", &["b", "C1", "I", "k", "Oxyz", "q", "T100000", "T0", "Z", "Cx", "C@seen", "x"]),
    (
        "countflag",
        &[
            "b", "C1", "N100000", "N0", "J7", "J0", "D3", "D0", "T100000", "T0", "q", "t", "c",
            "v", "k", "Oxyz", "MI", "MD", "M+", "M-", "Mincr", "Mx", "Dx", "Jx", "s", "f",
            "C@seen",
        ],
    ),
];

/// Words that a parser may read in more than one way. None is a short time.
const ODD: &[&str] = &[
    "",
    "-1",
    "+5",
    "0100000",
    "0x10",
    "1.5",
    "abc",
    "99999999999999999999",
    "2147483647",
    "noreply",
    "v",
    "q",
    "-0",
];

/// Fills the slots of one command, and keeps the data that follow its line.
pub(super) struct Filler {
    pub(super) is_noisy: bool,
    pub(super) data: Option<Vec<u8>>,
}

impl Filler {
    fn key(&self, random: &mut Random) -> Vec<u8> {
        match random.below(100) {
            0 if self.is_noisy => b"k".repeat(random.between(249, 251)),
            1 if self.is_noisy => b"\xff\xfe\x01".to_vec(),
            // In base64, for the flag b.
            2..5 => b"Zm9v".to_vec(),
            _ => random.of(KEYS).as_bytes().to_vec(),
        }
    }

    fn value(random: &mut Random) -> Vec<u8> {
        match random.below(30) {
            0 => Vec::new(),
            1 => b"x".repeat(random.between(50, 2000)),
            2 => b"a\r\nb\r\n".to_vec(),
            3 => (0..random.between(1, 9)).map(|_| random.next().to_le_bytes()[0]).collect(),
            4 => b"END\r\n".to_vec(),
            _ => random.of(&["1", "10", "99", "value", "0", "-5", "1000000000000", "12 "]).into(),
        }
    }
}

impl Fill for Filler {
    fn fill(&mut self, slot: &str, random: &mut Random, words: &mut Vec<Vec<u8>>) -> bool {
        let word = match slot {
            "key" => self.key(random),
            "seen" => SEEN.to_vec(),
            "data" | "digits" => {
                let value = match slot {
                    "data" => Filler::value(random),
                    _ => random.of(&["1", "7", "10", "100", "99", "1000000000000"]).into(),
                };
                let length = value.len().to_string().into_bytes();
                self.data = Some(value);
                length
            }
            "wrongdata" => {
                let value = Filler::value(random);
                let length = value.len();
                let said = random.below(length + 5);
                // All that a server may take for the value is there, and ends with a line.
                let mut value = value;
                value.extend_from_slice(b"\r\n");
                value.resize(value.len() + said.saturating_sub(length) + 2, b'x');
                self.data = Some(value);
                said.to_string().into_bytes()
            }
            other => match SLOTS.iter().find(|(name, _)| *name == other) {
                None => return false,
                Some(_) if self.is_noisy && random.one_in(40) => random.of(ODD).into(),
                Some((_, usual)) => random.of(usual).as_bytes().to_vec(),
            },
        };
        words.push(word);
        true
    }
}
