//! The commands that a row sends, and a client's side of Redis's protocol for any of them.

use crate::peers::protocol::{
    Answer, Bad, Flight, Protocol, line, number, oldest, put_number, refused, up_to,
};
use std::collections::VecDeque;
use thunderhead_wire::Sequence;

/// The longest line other than a string.
const LINE_MAX: usize = 512;

/// The longest string or array in an answer.
const STRING_BYTES_MAX: u64 = 1 << 20;
const PARTS_MAX: u64 = 1 << 10;

/// Bytes of a value.
const VALUE: &[u8] = &[b'v'; 100];

/// Digits of a number in a key.
const DIGITS: usize = 12;

/// A word of a command.
#[derive(Clone, Copy, Debug)]
pub(super) enum Word {
    /// These bytes.
    Text(&'static str),
    /// These bytes and a random number of twelve digits.
    Numbered(&'static str),
    /// A random number.
    Number,
    /// A value of 100 bytes.
    Value,
    /// So many keys, each with a random number.
    Keys(usize),
    /// So many values.
    Values(usize),
}

/// A command of a row.
pub(super) type Work = &'static [Word];

/// The beginning of the keys of strings.
const KEY: &str = "key:";

/// Returns how many random numbers a command takes.
pub(super) fn numbers_of(work: Work) -> usize {
    let numbers = work.iter().map(|word| match word {
        Word::Numbered(_) | Word::Number => 1,
        Word::Keys(count) => *count,
        Word::Text(_) | Word::Value | Word::Values(_) => 0,
    });
    numbers.sum()
}

fn words_of(work: Work) -> usize {
    let words = work.iter().map(|word| match word {
        Word::Keys(count) | Word::Values(count) => *count,
        _ => 1,
    });
    words.sum()
}

/// One connection that sends one command again and again, with other numbers each time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Commands {
    work: Work,
    /// Whether a missing value is an error: all values that the row asks for are there.
    must_find: bool,
}

impl Commands {
    /// Returns a connection for a command.
    pub(super) fn new(work: Work, must_find: bool) -> Commands {
        Commands { work, must_find }
    }
}

fn bulk(to: &mut Vec<u8>, parts: [&[u8]; 2]) {
    to.push(b'$');
    put_number(to, (parts[0].len() + parts[1].len()) as u64);
    to.extend_from_slice(b"\r\n");
    to.extend_from_slice(parts[0]);
    to.extend_from_slice(parts[1]);
    to.extend_from_slice(b"\r\n");
}

fn digits(mut number: u64) -> [u8; DIGITS] {
    let mut digits = [b'0'; DIGITS];
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    digits
}

impl Protocol for Commands {
    #[inline]
    fn ask(&mut self, flight: &mut Flight, _oldest: Option<Sequence>, to: &mut Vec<u8>) {
        let mut numbers = flight.numbers.iter().copied();
        let mut next = || digits(numbers.next().unwrap_or_default());
        to.push(b'*');
        put_number(to, words_of(self.work) as u64);
        to.extend_from_slice(b"\r\n");
        for word in self.work {
            match *word {
                Word::Text(text) => bulk(to, [text.as_bytes(), b""]),
                Word::Numbered(text) => bulk(to, [text.as_bytes(), &next()]),
                Word::Number => bulk(to, [&next(), b""]),
                Word::Value => bulk(to, [VALUE, b""]),
                Word::Keys(count) => {
                    (0..count).for_each(|_| bulk(to, [KEY.as_bytes(), &next()]));
                }
                Word::Values(count) => (0..count).for_each(|_| bulk(to, [VALUE, b""])),
            }
        }
    }

    #[inline]
    fn answer(&mut self, flights: &mut VecDeque<Flight>, bytes: &[u8]) -> Result<Answer, Bad> {
        oldest(flights)?;
        let (mut at, mut parts) = (0, 1);
        while parts > 0 {
            parts -= 1;
            let rest = bytes.get(at..).unwrap_or_default();
            let Some((text, end)) = line(rest, LINE_MAX)? else { return Ok(Answer::Partial) };
            at += end;
            let Some((kind, text)) = text.split_first() else {
                return Err(Bad::Malformed("an empty line"));
            };
            match (kind, text) {
                (b'+' | b':', _) => {}
                (b'-', text) => return Err(refused(text)),
                (b'$' | b'*', b"-1") if self.must_find => return Err(Bad::Gone(0)),
                (b'$' | b'*', b"-1") => {}
                (b'$', text) => {
                    let length = number(text).filter(|it| *it <= STRING_BYTES_MAX);
                    let length = length.ok_or(Bad::Malformed("a string without a length"))?;
                    at += length as usize + 2;
                    if at > bytes.len() {
                        return Ok(Answer::Partial);
                    }
                    if bytes.get(at - 2..at) != Some(b"\r\n") {
                        return Err(Bad::Malformed("a string is longer than it says"));
                    }
                }
                (b'*', text) => {
                    let count = number(text).filter(|it| *it <= PARTS_MAX);
                    parts += count.ok_or(Bad::Malformed("an array without a length"))?;
                }
                _ => return Err(Bad::Malformed("an answer of an unknown kind")),
            }
        }
        Ok(up_to(Some(at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::protocol::Act;
    use std::time::Instant;

    fn flight(numbers: &[u64]) -> VecDeque<Flight> {
        VecDeque::from([Flight {
            id: 1,
            act: Act::Read,
            numbers: numbers.to_vec(),
            value_bytes: 0,
            sent: Instant::now(),
            done: 0,
            sequence: Sequence::NONE,
        }])
    }

    #[test]
    fn a_command_has_its_words_and_numbers() {
        let work: Work = &[Word::Text("GET"), Word::Keys(2), Word::Number];
        assert_eq!(numbers_of(work), 3);
        let mut bytes = Vec::new();
        Commands::new(work, false).ask(&mut flight(&[7, 12, 5])[0], None, &mut bytes);
        let text = "*4\r\n$3\r\nGET\r\n$16\r\nkey:000000000007\r\n$16\r\nkey:000000000012\r\n\
                    $12\r\n000000000005\r\n";
        assert_eq!(String::from_utf8_lossy(&bytes), text);
    }

    #[test]
    fn an_answer_is_taken_whole_or_not_at_all() {
        for reply in ["+OK\r\n", ":12\r\n", "$3\r\nabc\r\n", "*2\r\n$1\r\na\r\n$-1\r\n", "*0\r\n"] {
            let mut commands = Commands::new(&[Word::Text("X")], false);
            let mut answer = |bytes: &[u8]| commands.answer(&mut flight(&[]), bytes);
            for cut in 0..reply.len() {
                assert_eq!(answer(&reply.as_bytes()[..cut]), Ok(Answer::Partial), "{reply} {cut}");
            }
            let done = Answer::Done { bytes: reply.len(), place: 0 };
            assert_eq!(answer(format!("{reply}more").as_bytes()), Ok(done));
        }
    }

    #[test]
    fn an_unexpected_answer_is_an_error() {
        for reply in
            ["-ERR no\r\n", "$99999999999\r\n", "*4000000000\r\n", "?\r\n", "\r\n", "$1\r\nabcd"]
        {
            let mut commands = Commands::new(&[Word::Text("X")], false);
            assert!(commands.answer(&mut flight(&[]), reply.as_bytes()).is_err(), "{reply}");
        }
        let mut commands = Commands::new(&[Word::Text("X")], true);
        assert_eq!(commands.answer(&mut flight(&[]), b"$-1\r\n"), Err(Bad::Gone(0)));
    }
}
