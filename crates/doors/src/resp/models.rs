//! Random commands and models of lists and sorted sets, for tests.

use super::testing::Door;

/// Returns the bytes of a command.
pub(super) fn command(arguments: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Executes a command; returns its reply.
pub(super) fn execute(door: &mut Door, arguments: &[&[u8]]) -> Vec<u8> {
    door.replies(1, &command(arguments))
}

/// Returns the bytes of an array of strings.
pub(super) fn array<'a>(strings: impl ExactSizeIterator<Item = &'a [u8]>) -> Vec<u8> {
    let strings: Vec<&[u8]> = strings.collect();
    command(&strings)
}

/// Returns a string with a number, one in eight of which is long.
pub(super) fn string_of(number: u16) -> Vec<u8> {
    let mut text = format!("s{number:03}").into_bytes();
    if number.is_multiple_of(8) {
        text.resize(200, b'.');
    }
    text
}
