//! Replies of Redis's protocol, versions 2 and 3: where they end, and their parts.
//!
//! The tester compares raw bytes. It reads the parts of a reply only if the order or the value of
//! some parts is left to the server.

/// The deepest reply that is read. Redis's own are less than ten deep.
const DEPTH_MAX: usize = 64;

/// Bytes that are no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// A reply and its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply<'a> {
    /// All bytes of the reply.
    pub(super) raw: &'a [u8],
    /// The first byte, which says the type.
    pub(super) kind: u8,
    /// The bytes of a line or of a string.
    pub(super) text: &'a [u8],
    /// The elements of an array, a set or a push; the keys and values of a map in turn.
    pub(super) parts: Vec<Reply<'a>>,
    /// Whether it is the null of its type.
    pub(super) is_null: bool,
}

/// Returns the number of bytes of the first reply, or `None` if it is incomplete.
pub(super) fn length(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let mut at = 0;
    // The replies that are still to come.
    let mut remaining: usize = 1;
    while remaining > 0 {
        let Some(head) = bytes.get(at..).filter(|rest| !rest.is_empty()) else { return Ok(None) };
        let Some(line) = line(head)? else { return Ok(None) };
        at += line.len() + 2;
        remaining -= 1;
        match head[0] {
            b'$' | b'!' | b'=' => {
                if let Some(length) = count(&line[1..])? {
                    let Some(end) = bytes.get(at + length..at + length + 2) else {
                        return Ok(None);
                    };
                    if end != b"\r\n" {
                        return Err(Malformed);
                    }
                    at += length + 2;
                }
            }
            kind @ (b'*' | b'~' | b'>' | b'%' | b'|') => {
                let parts = count(&line[1..])?.unwrap_or(0);
                remaining += parts * elements(kind);
                // An attribute comes before its reply.
                remaining += usize::from(kind == b'|');
            }
            b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => {}
            _ => return Err(Malformed),
        }
    }
    Ok(Some(at))
}

/// Reads a whole reply. It must be complete.
pub(super) fn read(bytes: &[u8]) -> Result<Reply<'_>, Malformed> {
    let (reply, rest) = read_first(bytes, 0)?;
    if rest.is_empty() { Ok(reply) } else { Err(Malformed) }
}

fn read_first(bytes: &[u8], depth: usize) -> Result<(Reply<'_>, &[u8]), Malformed> {
    if depth > DEPTH_MAX {
        return Err(Malformed);
    }
    let kind = *bytes.first().ok_or(Malformed)?;
    let line = line(bytes)?.ok_or(Malformed)?;
    let mut rest = &bytes[line.len() + 2..];
    let mut reply =
        Reply { raw: bytes, kind, text: &line[1..], parts: Vec::new(), is_null: kind == b'_' };
    match kind {
        b'$' | b'!' | b'=' => match count(&line[1..])? {
            Some(length) if length + 2 <= rest.len() => {
                reply.text = &rest[..length];
                rest = &rest[length + 2..];
            }
            Some(_) => return Err(Malformed),
            None => reply.is_null = true,
        },
        b'*' | b'~' | b'>' | b'%' | b'|' => match count(&line[1..])? {
            Some(parts) => {
                let more = usize::from(kind == b'|');
                for _ in 0..parts * elements(kind) + more {
                    let (part, behind) = read_first(rest, depth + 1)?;
                    reply.parts.push(part);
                    rest = behind;
                }
            }
            None => reply.is_null = true,
        },
        _ => {}
    }
    reply.raw = &bytes[..bytes.len() - rest.len()];
    Ok((reply, rest))
}

/// The number of replies that an element of an aggregate has.
fn elements(kind: u8) -> usize {
    if matches!(kind, b'%' | b'|') { 2 } else { 1 }
}

/// Returns the first line without its end, or `None` if it is incomplete.
fn line(bytes: &[u8]) -> Result<Option<&[u8]>, Malformed> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\r') else { return Ok(None) };
    match bytes.get(end + 1) {
        Some(b'\n') if end > 0 => Ok(Some(&bytes[..end])),
        None => Ok(None),
        Some(_) => Err(Malformed),
    }
}

/// Reads the length of a string or an aggregate. A null has the length -1.
fn count(digits: &[u8]) -> Result<Option<usize>, Malformed> {
    if digits == b"-1" {
        return Ok(None);
    }
    if digits.is_empty() || digits.len() > 9 || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Malformed);
    }
    let text = std::str::from_utf8(digits).map_err(|_| Malformed)?;
    text.parse().map(Some).map_err(|_| Malformed)
}

impl Reply<'_> {
    pub(super) fn is_error(&self) -> bool {
        matches!(self.kind, b'-' | b'!')
    }

    /// Returns the number that it is: an integer, or a string with one.
    pub(super) fn number(&self) -> Option<i64> {
        let may_be = matches!(self.kind, b':' | b'$' | b'+');
        std::str::from_utf8(self.text).ok().filter(|_| may_be)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: [&[u8]; 16] = [
        b"+OK\r\n",
        b"-ERR wrong\r\n",
        b":-12\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"_\r\n",
        b"$0\r\n\r\n",
        b"$4\r\n\r\n\r\n\r\n",
        b"*0\r\n",
        b"*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
        b"%1\r\n+k\r\n~2\r\n,1.5\r\n#t\r\n",
        b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n",
        b"(123456789012345678901234567890\r\n",
        b"=7\r\ntxt:abc\r\n",
        b"!5\r\nERR x\r\n",
        b"|1\r\n+ttl\r\n:1\r\n:5\r\n",
    ];

    #[test]
    fn a_reply_is_found_whole_or_not_at_all_wherever_it_is_cut() {
        for whole in WHOLE {
            for end in 0..whole.len() {
                assert_eq!(length(&whole[..end]), Ok(None), "{:?}", whole.escape_ascii());
            }
            let followed = [whole, b"+next\r\n"].concat();
            assert_eq!(length(&followed), Ok(Some(whole.len())));
            assert_eq!(read(whole).map(|reply| reply.raw), Ok(whole));
        }
    }

    #[test]
    fn bytes_that_are_no_reply_are_refused() {
        for wrong in
            [&b"hello\r\n"[..], b"$x\r\n", b"$-2\r\n", b"*99999999999\r\n", b"$1\r\nabc", b"+a\rb"]
        {
            assert_eq!(length(wrong), Err(Malformed), "{:?}", wrong.escape_ascii());
        }
        let deep = b"*1\r\n".repeat(1000);
        assert_eq!(read(&[&deep[..], b":1\r\n"].concat()), Err(Malformed));
    }

    #[test]
    fn parts_have_their_own_bytes() {
        let reply = read(b"*3\r\n$1\r\na\r\n*1\r\n:1\r\n$-1\r\n").unwrap();
        let raw: Vec<&[u8]> = reply.parts.iter().map(|part| part.raw).collect();
        assert_eq!(raw, [&b"$1\r\na\r\n"[..], b"*1\r\n:1\r\n", b"$-1\r\n"]);
        assert_eq!(reply.parts[0].text, b"a");
        assert_eq!(reply.parts[1].parts[0].number(), Some(1));
        assert!(reply.parts[2].is_null && !reply.is_error());
    }
}
