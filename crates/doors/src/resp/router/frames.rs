//! Finds the ends of replies in the bytes of a part, in both versions of the protocol.
//!
//! A *frame* is a whole reply or a whole message, with all its elements. Nothing of a frame is
//! kept: the scanner counts the elements and the bytes that are missing. So neither the depth nor
//! the length of a frame costs memory.

use super::super::number::integer_of;

/// The longest line with a length: its kind, the digits of 64 bits and the end of the line.
const LENGTH_LINE_MAX: usize = 24;

/// The most elements or bytes that a line may announce.
const LENGTH_MAX: i64 = 1 << 40;

/// The bytes are not of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The first line of a frame, or of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: u8,
    /// The number of elements or bytes that follow; `None` for a null. It is 0 for the kinds that
    /// are only a line.
    pub(super) length: Option<u64>,
    /// The bytes of the line, with its end.
    pub(super) bytes: usize,
}

impl Head {
    /// Reads a line with a length, once it is complete.
    pub(super) fn read(bytes: &[u8]) -> Result<Option<Head>, Malformed> {
        let Some(kind) = bytes.first().copied() else { return Ok(None) };
        let line = bytes.get(..bytes.len().min(LENGTH_LINE_MAX)).unwrap_or_default();
        let Some(end) = memchr::memchr(b'\n', line) else {
            return if line.len() < LENGTH_LINE_MAX { Ok(None) } else { Err(Malformed) };
        };
        let digits = line.get(1..end).and_then(|rest| rest.strip_suffix(b"\r"));
        let length = match digits.and_then(integer_of).ok_or(Malformed)? {
            -1 => None,
            length @ 0..=LENGTH_MAX => Some(length as u64),
            _ => return Err(Malformed),
        };
        Ok(Some(Head { kind, length, bytes: end + 1 }))
    }
}

/// The place of a scanner in a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// In front of an element.
    #[default]
    Head,
    /// In an element that is only a line.
    Line,
    /// In a string of which so many bytes are missing, with its end of line.
    String(u64),
}

/// See the module's documentation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Frames {
    place: Place,
    /// The elements that are missing behind the present one. The frame ends without any.
    missing: u64,
    is_within: bool,
}

impl Frames {
    /// Whether the next byte begins a frame.
    pub(super) fn is_between(&self) -> bool {
        !self.is_within
    }

    /// Passes the bytes of one frame, or of its rest. Returns their number, and whether the frame
    /// has ended. A line with a length is passed as a whole.
    pub(super) fn pass(&mut self, bytes: &[u8]) -> Result<(usize, bool), Malformed> {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            match self.place {
                Place::Head => match self.pass_head(rest)? {
                    0 => break,
                    passed => at += passed,
                },
                Place::Line => match memchr::memchr(b'\n', rest) {
                    Some(end) => {
                        at += end + 1;
                        self.place = Place::Head;
                    }
                    None => at = bytes.len(),
                },
                Place::String(missing) => {
                    let passed = missing.min(rest.len() as u64);
                    at += passed as usize;
                    self.place = match missing - passed {
                        0 => Place::Head,
                        missing => Place::String(missing),
                    };
                }
            }
            if self.place == Place::Head && self.missing == 0 {
                *self = Frames::default();
                return Ok((at, true));
            }
        }
        Ok((at, false))
    }

    /// Passes the head of an element; returns its bytes, or 0 if it is unfinished.
    fn pass_head(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let is_first = !self.is_within;
        let missing = if is_first { 0 } else { self.missing - 1 };
        let kind = bytes.first().copied().unwrap_or_default();
        let (passed, place, more) = match kind {
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => (1, Place::Line, 0),
            b'$' | b'!' | b'=' | b'*' | b'~' | b'>' | b'%' | b'|' => {
                let Some(head) = Head::read(bytes)? else { return Ok(0) };
                match (kind, head.length) {
                    (b'$' | b'!' | b'=', Some(length)) => {
                        (head.bytes, Place::String(length + 2), 0)
                    }
                    (b'%', Some(pairs)) => (head.bytes, Place::Head, 2 * pairs),
                    // The element to which the attributes belong follows them.
                    (b'|', pairs) => (head.bytes, Place::Head, 2 * pairs.unwrap_or(0) + 1),
                    (_, elements) => (head.bytes, Place::Head, elements.unwrap_or(0)),
                }
            }
            _ => return Err(Malformed),
        };
        self.missing = missing.checked_add(more).ok_or(Malformed)?;
        (self.place, self.is_within) = (place, true);
        Ok(passed)
    }
}

/// The first word of an array or of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word<'a> {
    /// More bytes are needed.
    More,
    /// There is no such word.
    None,
    Is(&'a [u8]),
}

/// The longest first word of a message.
const WORD_BYTES_MAX: u64 = 16;

/// Returns the first element of an array or of a message, if it is a short string.
pub(super) fn first_word(bytes: &[u8]) -> Result<Word<'_>, Malformed> {
    if !matches!(bytes.first(), Some(b'*' | b'>')) {
        return Ok(if bytes.is_empty() { Word::More } else { Word::None });
    }
    let Some(array) = Head::read(bytes)? else { return Ok(Word::More) };
    if array.length.unwrap_or(0) == 0 {
        return Ok(Word::None);
    }
    let rest = bytes.get(array.bytes..).unwrap_or_default();
    if rest.first().is_some_and(|kind| *kind != b'$') {
        return Ok(Word::None);
    }
    let Some(string) = Head::read(rest)? else { return Ok(Word::More) };
    match string.length {
        Some(length @ 1..=WORD_BYTES_MAX) => {
            let word = rest.get(string.bytes..string.bytes + length as usize);
            Ok(word.map_or(Word::More, Word::Is))
        }
        _ => Ok(Word::None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Passes bytes in pieces of some lengths; returns the lengths of the frames.
    fn frames(bytes: &[u8], mut piece: impl FnMut() -> usize) -> Result<Vec<usize>, Malformed> {
        let (mut scanner, mut lengths, mut length) = (Frames::default(), Vec::new(), 0);
        let (mut at, mut end) = (0, 0);
        while at < bytes.len() {
            end = (end + piece().max(1)).min(bytes.len());
            while at < end {
                let (passed, has_ended) = scanner.pass(&bytes[at..end])?;
                (at, length) = (at + passed, length + passed);
                if has_ended {
                    lengths.push(std::mem::take(&mut length));
                } else if passed == 0 {
                    break;
                }
            }
            if end == bytes.len() && at < end {
                break;
            }
        }
        Ok(lengths)
    }

    const SAMPLES: &[&str] = &[
        "+OK\r\n",
        "-ERR no\r\n",
        ":-7\r\n",
        "$0\r\n\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "*0\r\n",
        "$4\r\n\r\n\r\n\r\n",
        "_\r\n",
        "#t\r\n",
        ",1.5\r\n",
        "(123456789012345678901234567890\r\n",
        "=8\r\ntxt:+a\r\n\r\n",
        "!5\r\nERR x\r\n",
        "%2\r\n+a\r\n:1\r\n$1\r\nb\r\n*0\r\n",
        "~2\r\n*1\r\n*1\r\n*0\r\n_\r\n",
        ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$5\r\nhello\r\n",
        "|1\r\n+ttl\r\n:3\r\n*2\r\n:1\r\n:2\r\n",
        "*2\r\n|1\r\n+a\r\n+b\r\n:1\r\n:2\r\n",
    ];

    #[test]
    fn each_frame_ends_where_its_last_element_ends() {
        for sample in SAMPLES {
            for piece in 1..=sample.len() {
                let twice = sample.repeat(2);
                let found = frames(twice.as_bytes(), || piece).unwrap();
                assert_eq!(found, [sample.len(); 2], "{sample:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn deep_frames_cost_no_memory() {
        let deep = "*1\r\n".repeat(100_000) + ":1\r\n";
        assert_eq!(frames(deep.as_bytes(), || 4096).unwrap(), [deep.len()]);
    }

    #[test]
    fn wrong_lengths_and_kinds_are_malformed() {
        let wrong = [
            "?\r\n",
            "$-2\r\n",
            "*x\r\n",
            "$1\n",
            "*9223372036854775807\r\n",
            "$?\r\n",
            "*11111111111111111111111111",
        ];
        for wrong in wrong {
            assert_eq!(frames(wrong.as_bytes(), || 1), Err(Malformed), "{wrong:?}");
        }
        assert_eq!(first_word(b"*1\r\n$-2\r\n"), Err(Malformed));
    }

    #[test]
    fn the_first_word_of_a_message_is_found_when_it_is_there() {
        let message = SAMPLES[16].as_bytes();
        for end in 0..message.len() {
            let expected = if end < 15 { Word::More } else { Word::Is(b"message") };
            assert_eq!(first_word(&message[..end]), Ok(expected), "{end}");
        }
        for other in
            ["+OK\r\n", "*0\r\n", "*-1\r\n", "*1\r\n:1\r\n", "*1\r\n$-1\r\n", "*1\r\n$17\r\n"]
        {
            assert_eq!(first_word(other.as_bytes()), Ok(Word::None), "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn frames_are_found_in_bytes_that_are_cut_anywhere(
            chosen in prop::collection::vec(0..SAMPLES.len(), 1..20),
            pieces in prop::collection::vec(1usize..9, 1..50),
        ) {
            let bytes: String = chosen.iter().map(|at| SAMPLES[*at]).collect();
            let mut next = pieces.iter().cycle();
            let found = frames(bytes.as_bytes(), || *next.next().unwrap()).unwrap();
            let expected: Vec<usize> = chosen.iter().map(|at| SAMPLES[*at].len()).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn no_bytes_make_the_scanner_panic_or_stand_still(
            bytes in prop::collection::vec(prop::sample::select(b"*$%|>+-:_19\r\na".to_vec()), 0..60),
        ) {
            let _ = frames(&bytes, || 3);
            let _ = first_word(&bytes);
        }
    }
}
