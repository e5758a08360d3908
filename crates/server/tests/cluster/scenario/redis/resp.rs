//! The protocol of Redis (RESP 2), as a client speaks it.

/// A command with its arguments.
pub(super) type Command = Vec<Vec<u8>>;

/// Returns a command with these words.
pub(super) fn command<const N: usize>(words: [&str; N]) -> Command {
    words.into_iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// Appends a command in the form that the server reads.
pub(super) fn put(to: &mut Vec<u8>, command: &Command) {
    to.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
    for word in command {
        to.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        to.extend_from_slice(word);
        to.extend_from_slice(b"\r\n");
    }
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// A word such as `OK`.
    Word(String),
    Error(String),
    Integer(u64),
    /// A string or an array that does not exist.
    Nothing,
    Text(Vec<u8>),
    Array(Vec<Reply>),
}

impl Reply {
    /// Returns the number, if the reply is a number or the text of a number.
    pub(super) fn number(&self) -> Option<u64> {
        match self {
            Reply::Integer(number) => Some(*number),
            Reply::Text(text) => std::str::from_utf8(text).ok()?.parse().ok(),
            _ => None,
        }
    }

    pub(super) fn text(&self) -> Option<&[u8]> {
        match self {
            Reply::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn array(&self) -> Option<&[Reply]> {
        match self {
            Reply::Array(array) => Some(array),
            _ => None,
        }
    }
}

/// Returns the first reply of some bytes and its length, or `None` if it is not complete.
///
/// # Panics
/// If the bytes are not of the protocol.
pub(super) fn first_reply(bytes: &[u8]) -> Option<(Reply, usize)> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let line = std::str::from_utf8(&bytes[1..end]).expect("a line is text");
    let number = || line.parse::<i64>().unwrap_or_else(|_| panic!("{line} is no number"));
    let behind = end + 2;
    Some(match bytes[0] {
        b'+' => (Reply::Word(line.to_owned()), behind),
        b'-' => (Reply::Error(line.to_owned()), behind),
        b':' => (Reply::Integer(number() as u64), behind),
        b'$' | b'*' if number() < 0 => (Reply::Nothing, behind),
        b'$' => {
            let end = behind + number() as usize;
            let text = bytes.get(behind..end)?;
            bytes.get(end..end + 2)?;
            (Reply::Text(text.to_vec()), end + 2)
        }
        b'*' => {
            let mut at = behind;
            let mut items = Vec::new();
            for _ in 0..number() {
                let (item, length) = first_reply(&bytes[at..])?;
                items.push(item);
                at += length;
            }
            (Reply::Array(items), at)
        }
        other => panic!("a reply begins with {other}"),
    })
}
