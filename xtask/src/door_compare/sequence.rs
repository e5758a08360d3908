//! Sequences of commands, as they are sent and as a person reads them.

use super::grammar::Use;

/// The connections of a sequence.
pub(super) const CONNECTIONS: usize = 3;

/// One command, or bytes that are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) connection: usize,
    pub(super) usage: Use,
    /// The words of the command; none for bytes.
    pub(super) words: Vec<Vec<u8>>,
    /// All bytes, if they are not the usual form of the words.
    pub(super) bytes: Option<Vec<u8>>,
}

/// Steps that stay together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) steps: Vec<Step>,
    /// Whether its steps cannot be removed one by one.
    pub(super) is_fixed: bool,
}

/// How a sequence is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Manner {
    /// The version of the protocol: 2 or 3.
    pub(super) version: u8,
    /// Whether each command waits for the answer to the last one.
    pub(super) is_stepwise: bool,
    /// Whether each run of commands ends with a PING, because the number of answers is open.
    pub(super) is_marked: bool,
    /// Whether the bytes are a connection's first and last.
    pub(super) is_raw: bool,
}

/// A sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sequence {
    pub(super) blocks: Vec<Block>,
    pub(super) manner: Manner,
}

impl Step {
    /// Appends the bytes that are sent.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match &self.bytes {
            Some(bytes) => out.extend_from_slice(bytes),
            None => write_words(&self.words, out),
        }
    }

    /// Returns the name of the command, with its subcommand if it has some.
    pub(super) fn name(&self) -> String {
        if self.words.is_empty() {
            return "(bytes)".to_owned();
        }
        name(&self.words)
    }
}

/// Commands whose second word is a part of the name.
const CONTAINERS: [&str; 15] = [
    "ACL", "CLIENT", "CLUSTER", "COMMAND", "CONFIG", "FUNCTION", "LATENCY", "MEMORY", "MODULE",
    "OBJECT", "PUBSUB", "SCRIPT", "SLOWLOG", "XGROUP", "XINFO",
];

/// Returns the name of a command in capital letters, with its subcommand if it has some.
pub(super) fn name(words: &[Vec<u8>]) -> String {
    let upper = |word: &Vec<u8>| word.escape_ascii().to_string().to_ascii_uppercase();
    let Some(first) = words.first().map(upper) else { return String::new() };
    match words.get(1) {
        Some(second) if CONTAINERS.contains(&first.as_str()) => {
            format!("{first} {}", upper(second))
        }
        _ => first,
    }
}

pub(super) fn write_words(words: &[Vec<u8>], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

impl Sequence {
    pub(super) fn steps(&self) -> impl Iterator<Item = &Step> {
        self.blocks.iter().flat_map(|block| &block.steps)
    }

    /// Returns the sequence with each removable step in a block of its own.
    pub(super) fn loosened(&self) -> Sequence {
        let blocks = self.blocks.iter().flat_map(|block| match block.is_fixed {
            true => vec![block.clone()],
            false => {
                let alone = |step: &Step| Block { steps: vec![step.clone()], is_fixed: true };
                block.steps.iter().map(alone).collect()
            }
        });
        Sequence { blocks: blocks.collect(), manner: self.manner }
    }

    /// Returns lines that a person can paste into `redis-cli`.
    pub(super) fn lines(&self) -> Vec<String> {
        let uses_others = self.steps().any(|step| step.connection > 0);
        let mut lines = Vec::new();
        if self.manner.version == 3 && !self.manner.is_raw {
            lines.push("HELLO 3".to_owned());
        }
        for step in self.steps() {
            let text = match &step.bytes {
                Some(bytes) if step.words.is_empty() => {
                    format!("printf '{}' | nc -N HOST PORT", for_printf(bytes))
                }
                Some(bytes) => {
                    let inline = String::from_utf8_lossy(bytes);
                    format!("{}    # as a line, not as an array", inline.trim_end())
                }
                None => step.words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
            };
            let place = if uses_others { format!("{}> ", step.connection) } else { String::new() };
            lines.push(match step.usage {
                Use::Send => format!("{place}{text}"),
                Use::Wait => format!("{place}{text}    # waits"),
                Use::Collect => format!("{place}(the answer of the command that waits)"),
                Use::Exchange => format!("{place}{text}    # the other server restores this"),
            });
        }
        lines
    }
}

/// Returns a word as `redis-cli` reads it.
pub(super) fn quoted(word: &[u8]) -> String {
    let is_plain =
        |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\' | b'#');
    if !word.is_empty() && word.iter().all(is_plain) {
        return String::from_utf8_lossy(word).into_owned();
    }
    let mut text = String::from("\"");
    for byte in word {
        match byte {
            b'"' => text.push_str("\\\""),
            b'\\' => text.push_str("\\\\"),
            b' '..=b'~' => text.push(char::from(*byte)),
            byte => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text.push('"');
    text
}

/// Returns bytes as `printf` of a shell reads them.
pub(super) fn for_printf(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte {
            b'\r' => text.push_str("\\r"),
            b'\n' => text.push_str("\\n"),
            b'%' => text.push_str("%%"),
            b'\\' => text.push_str("\\\\"),
            b'\'' => text.push_str("\\047"),
            b' '..=b'~' => text.push(char::from(*byte)),
            byte => text.push_str(&format!("\\{byte:03o}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_written_as_an_array_of_strings() {
        let mut out = Vec::new();
        write_words(&[b"GET".to_vec(), b"".to_vec()], &mut out);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n");
    }

    #[test]
    fn a_person_can_paste_any_word() {
        assert_eq!(quoted(b"plain:1"), "plain:1");
        assert_eq!(quoted(b""), "\"\"");
        assert_eq!(quoted(b"a \"b\"\\\0\xff"), "\"a \\\"b\\\"\\\\\\x00\\xff\"");
        assert_eq!(for_printf(b"*1\r\n'%\\\0"), "*1\\r\\n\\047%%\\\\\\000");
    }

    #[test]
    fn names_have_their_subcommands() {
        let named = |line: &str| {
            let words: Vec<Vec<u8>> =
                line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            name(&words)
        };
        assert_eq!(named("get a"), "GET");
        assert_eq!(named("client id"), "CLIENT ID");
        assert_eq!(named("xinfo stream x"), "XINFO STREAM");
    }
}
