//! The first line of a library, which names the engine and the library.

use crate::resp::inline;

/// The first line of a library.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Metadata {
    pub(super) name: String,
    /// The number of bytes of the line, without its end.
    pub(super) bytes: usize,
}

/// The error for the name of a library, or of a function.
pub(super) const BAD_NAME: &str = "Library names can only contain letters, numbers, or \
                                   underscores(_) and must be at least one character long";

/// Reads the name of a library or of a function.
pub(super) fn name_of(name: &[u8]) -> Option<&str> {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let is_name = !name.is_empty() && name.iter().all(is_letter);
    std::str::from_utf8(name).ok().filter(|_| is_name)
}

/// Reads the first line of a library.
///
/// # Errors
/// The error, without its code.
pub(super) fn read(code: &[u8]) -> Result<Metadata, Vec<u8>> {
    const INVALID: &[u8] = b"Invalid library metadata";
    if !code.starts_with(b"#!") {
        return Err(b"Missing library metadata".to_vec());
    }
    let bytes = memchr::memchr(b'\n', code).ok_or(INVALID)?;
    let (mut text, mut places) = (Vec::new(), Vec::new());
    let is_split = inline::split(&code[..bytes], &mut text, &mut places).is_some();
    let words: Vec<&[u8]> = places.into_iter().map(|place| &text[place]).collect();
    let (engine, options) = words.split_first().filter(|_| is_split).ok_or(INVALID)?;
    let mut name = None;
    for word in options {
        let value = word.get(5..).filter(|_| word[..5].eq_ignore_ascii_case(b"name="));
        let Some(value) = value else {
            return Err([b"Invalid metadata value given: ", *word].concat());
        };
        if name.replace(value).is_some() {
            let text = b"Invalid metadata value, name argument was given multiple times";
            return Err(text.to_vec());
        }
    }
    let name = name.ok_or(&b"Library name was not given"[..])?;
    let name = name_of(name).ok_or(BAD_NAME.as_bytes())?.to_owned();
    let engine = engine.get(2..).unwrap_or_default();
    if !engine.eq_ignore_ascii_case(b"lua") {
        return Err([b"Engine '", engine, b"' not found"].concat());
    }
    Ok(Metadata { name, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_names_the_library() {
        for (code, expected) in [
            ("#!lua name=l\nx", Ok(("l", 12))),
            ("#!LUA NAME=\"L_5\"\n", Ok(("L_5", 16))),
            ("x", Err("Missing library metadata")),
            ("#!lua name=l", Err("Invalid library metadata")),
            ("#!\"\n", Err("Invalid library metadata")),
            ("#!lua\n", Err("Library name was not given")),
            ("#!lua name=a-b\n", Err(BAD_NAME)),
            ("#!lua name=\n", Err(BAD_NAME)),
            ("#!js name=l\n", Err("Engine 'js' not found")),
            ("#!lua name=l foo=bar\n", Err("Invalid metadata value given: foo=bar")),
            ("#!lua name=l x\n", Err("Invalid metadata value given: x")),
            (
                "#!lua name=l name=k\n",
                Err("Invalid metadata value, name argument was given multiple times"),
            ),
        ] {
            let expected = expected
                .map(|(name, bytes)| Metadata { name: name.to_owned(), bytes })
                .map_err(|text: &str| text.as_bytes().to_vec());
            assert_eq!(read(code.as_bytes()), expected, "{code}");
        }
    }
}
