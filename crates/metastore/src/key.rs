//! Names in a metastore: keys, the prefixes by which keys are listed, and leases.
//!
//! The constructors check them, so that no store has to. They refuse a name that any of the stores
//! could not hold.

use crate::error::Error;
use crate::limits::KEY_BYTES_MAX;
use std::fmt;

/// The name of a value: parts joined by slashes, as in `tables/17`.
///
/// Keys are ordered by their bytes. A key may be the beginning of another: `tables` and `tables/17`
/// are two unrelated values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

/// The keys below one name, or all keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix(String);

/// The name of a lease: one part, without slashes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseName(String);

impl Key {
    /// Checks a text and makes it a key.
    ///
    /// # Errors
    /// If the text is empty, too long or malformed: an empty part, `.` or `..`, or characters that
    /// ZooKeeper does not allow.
    pub fn new(text: impl Into<String>) -> Result<Key, Error> {
        let text = text.into();
        check(&text)?;
        Ok(Key(text))
    }

    /// Returns the key's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Prefix {
    /// Returns the prefix of all keys.
    #[must_use]
    pub fn all() -> Prefix {
        Prefix(String::new())
    }

    /// Returns the prefix of the keys below a name: `tables` stands for `tables/17`, but neither
    /// for `tables` itself nor for `tables-old/1`.
    ///
    /// # Errors
    /// As for a key.
    pub fn under(name: &str) -> Result<Prefix, Error> {
        check(name)?;
        Ok(Prefix(format!("{name}/")))
    }

    /// Whether a key is below this prefix.
    #[must_use]
    pub fn contains(&self, key: &Key) -> bool {
        key.0.starts_with(&self.0)
    }

    /// Returns the text with which all its keys begin: nothing, or text that ends with a slash.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl LeaseName {
    /// Checks a text and makes it the name of a lease.
    ///
    /// # Errors
    /// As for a key, and if the text has a slash.
    pub fn new(text: impl Into<String>) -> Result<LeaseName, Error> {
        let text = text.into();
        check(&text)?;
        if text.contains('/') {
            return Err(malformed(&text, "the name of a lease must have no slash"));
        }
        Ok(LeaseName(text))
    }

    /// Returns the name's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for LeaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn malformed(text: &str, why: &'static str) -> Error {
    Error::KeyMalformed { key: text.to_owned(), why }
}

/// Whether every store accepts the character. ZooKeeper refuses control characters, characters that
/// Java stores in two units, private use and the specials.
fn is_allowed(character: char) -> bool {
    let in_a_unit = character <= '\u{d7ff}' || ('\u{f900}'..='\u{ffef}').contains(&character);
    in_a_unit && !character.is_control()
}

pub(crate) fn check(text: &str) -> Result<(), Error> {
    if text.is_empty() {
        return Err(Error::KeyEmpty);
    }
    if text.len() > KEY_BYTES_MAX {
        return Err(Error::KeyTooLong { bytes: text.len(), limit: KEY_BYTES_MAX });
    }
    if !text.chars().all(is_allowed) {
        return Err(malformed(
            text,
            "it has a character that is not allowed, for example a control character",
        ));
    }
    for part in text.split('/') {
        if part.is_empty() {
            return Err(malformed(text, "it begins or ends with a slash or has two in a row"));
        }
        if part == "." || part == ".." {
            return Err(malformed(text, "a part is . or .."));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_checked() {
        for good in ["a", "tables/17", "a.b/..c", "Zürich/日本", &"k".repeat(KEY_BYTES_MAX)] {
            assert_eq!(Key::new(good).map(|key| key.0), Ok(good.to_owned()));
        }
        let long = "k".repeat(KEY_BYTES_MAX + 1);
        let bad = [
            ("", 1),
            (&long, 2),
            ("/a", 3),
            ("a/", 3),
            ("a//b", 3),
            (".", 3),
            ("a/../b", 3),
            ("a\nb", 3),
            ("a\0b", 3),
            ("\u{85}", 3),
            ("\u{e000}", 3),
            ("\u{fff0}", 3),
            ("\u{1f600}", 3),
        ];
        for (text, code) in bad {
            assert_eq!(Key::new(text).map_err(|error| error.code()), Err(code), "{text:?}");
            assert_eq!(Prefix::under(text).map_err(|error| error.code()), Err(code), "{text:?}");
        }
        assert!(LeaseName::new("coordinator").is_ok());
        assert!(LeaseName::new("a/b").is_err());
    }

    #[test]
    fn a_prefix_contains_the_keys_below_it() -> Result<(), Error> {
        let prefix = Prefix::under("tables")?;
        for (key, inside) in [("tables/1", true), ("tables/1/2", true), ("tables", false)] {
            assert_eq!(prefix.contains(&Key::new(key)?), inside, "{key}");
        }
        assert!(!prefix.contains(&Key::new("tables-old/1")?));
        assert!(Prefix::all().contains(&Key::new("tables")?));
        Ok(())
    }
}
