//! The first line of a script, which may set its properties.

use crate::resp::inline;

/// The properties of a script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Properties {
    /// Whether the first line sets properties. Otherwise the script may do everything.
    pub(super) has_line: bool,
    /// Whether the script may not write.
    pub(super) only_reads: bool,
}

/// Reads the first line of a script. Returns the number of its bytes, too.
///
/// # Errors
/// The error, without its code.
pub(super) fn read(script: &[u8]) -> Result<(Properties, usize), Vec<u8>> {
    if !script.starts_with(b"#!") {
        return Ok((Properties::default(), 0));
    }
    let Some(end) = memchr::memchr(b'\n', script) else {
        return Err(b"Invalid script shebang".to_vec());
    };
    let line = &script[..end];
    let (mut text, mut places) = (Vec::new(), Vec::new());
    let is_split = inline::split(line, &mut text, &mut places).is_some();
    let words: Vec<&[u8]> = places.into_iter().map(|place| &text[place]).collect();
    let Some((engine, options)) = words.split_first().filter(|_| is_split) else {
        return Err(b"Invalid engine in script shebang".to_vec());
    };
    if *engine != b"#!lua" {
        return Err([b"Unexpected engine in script shebang: ", *engine].concat());
    }
    let mut properties = Properties { has_line: true, only_reads: false };
    for word in options {
        let Some(flags) = word.strip_prefix(b"flags=") else {
            return Err([b"Unknown lua shebang option: ", *word].concat());
        };
        let flags = flags.split(|byte| *byte == b',').filter(|_| !flags.is_empty());
        for flag in flags {
            match flag {
                b"no-writes" => properties.only_reads = true,
                b"allow-oom" | b"allow-stale" | b"no-cluster" | b"allow-cross-slot-keys" => {}
                _ => return Err([b"Unexpected flag in script shebang: ", flag].concat()),
            }
        }
    }
    Ok((properties, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_sets_properties() {
        let none = Properties::default();
        let any = Properties { has_line: true, only_reads: false };
        let reads = Properties { has_line: true, only_reads: true };
        for (script, expected) in [
            ("return 1", Ok((none, 0))),
            ("#!lua\nreturn 1", Ok((any, 5))),
            ("#!lua flags=no-writes,allow-stale\nreturn 1", Ok((reads, 33))),
            ("#!lua flags=\nreturn 1", Ok((any, 12))),
            ("#!lua", Err("Invalid script shebang")),
            ("#!\"\nreturn 1", Err("Invalid engine in script shebang")),
            ("#!js\nreturn 1", Err("Unexpected engine in script shebang: #!js")),
            ("#!lua name=a\nreturn 1", Err("Unknown lua shebang option: name=a")),
            ("#!lua flags=a\nreturn 1", Err("Unexpected flag in script shebang: a")),
        ] {
            let expected = expected.map_err(|text: &str| text.as_bytes().to_vec());
            assert_eq!(read(script.as_bytes()), expected, "{script}");
        }
    }
}
