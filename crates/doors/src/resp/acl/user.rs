//! A user: passwords, and selectors of rules.

use super::selector::{Reader, Selector, Wrong};
use crate::resp::commands::Names;
use sha2::{Digest, Sha256};

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::resp) struct User {
    pub(in crate::resp) name: Vec<u8>,
    pub(in crate::resp) is_on: bool,
    /// Whether every password is right.
    pub(in crate::resp) is_open: bool,
    /// Whether the payloads of its `RESTORE` are checked, as the client sees it. They always are.
    pub(in crate::resp) is_checked: bool,
    /// The hashes of its passwords, as hexadecimal digits.
    pub(in crate::resp) passwords: Vec<String>,
    pub(in crate::resp) root: Selector,
    pub(in crate::resp) selectors: Vec<Selector>,
}

/// Returns the hash of a password, as hexadecimal digits.
fn hash_of(password: &[u8]) -> String {
    Sha256::digest(password).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn checked_hash(text: &[u8]) -> Result<String, Wrong> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    match std::str::from_utf8(text) {
        Ok(hash) if text.len() == 64 && text.iter().all(is_digit) => Ok(hash.to_owned()),
        _ => Err(Wrong::Hash),
    }
}

impl User {
    /// Returns a new user without rights.
    pub(in crate::resp) fn new(name: &[u8]) -> User {
        User {
            name: name.to_vec(),
            is_on: false,
            is_open: false,
            is_checked: true,
            passwords: Vec::new(),
            root: Selector::none(),
            selectors: Vec::new(),
        }
    }

    /// Returns a user with all rights, and without a password.
    pub(super) fn all_powerful(name: &[u8]) -> User {
        User { is_on: true, is_open: true, root: Selector::everything(), ..User::new(name) }
    }

    /// Sets the only password, or makes every one right.
    pub(super) fn set_password(&mut self, password: Option<&[u8]>) {
        self.is_open = password.is_none();
        self.passwords = password.map(hash_of).into_iter().collect();
    }

    /// Whether the user may use the server with a password.
    pub(in crate::resp) fn lets_in(&self, password: &[u8]) -> bool {
        let hash = hash_of(password);
        let mut is_right = self.is_open;
        for own in &self.passwords {
            // The time of the comparison does not depend on the place of a difference.
            let differences = own.bytes().zip(hash.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
            is_right |= differences == 0 && own.len() == hash.len();
        }
        is_right && self.is_on
    }

    /// Applies a rule of `ACL SETUSER`.
    pub(in crate::resp) fn apply(&mut self, names: &Names, rule: &[u8]) -> Result<(), Wrong> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            _ if is("on") => self.is_on = true,
            _ if is("off") => self.is_on = false,
            _ if is("nopass") => self.set_password(None),
            _ if is("resetpass") => {
                self.is_open = false;
                self.passwords.clear();
            }
            _ if is("sanitize-payload") => self.is_checked = true,
            _ if is("skip-sanitize-payload") => self.is_checked = false,
            _ if is("clearselectors") => self.selectors.clear(),
            _ if is("reset") => *self = User::new(&std::mem::take(&mut self.name)),
            [b'>', password @ ..] => self.add_password(hash_of(password)),
            [b'#', hash @ ..] => self.add_password(checked_hash(hash)?),
            [b'<', password @ ..] => self.remove_password(&hash_of(password))?,
            [b'!', hash @ ..] => self.remove_password(&checked_hash(hash)?)?,
            [b'(', rules @ .., b')'] => {
                let mut selector = Selector::none();
                for rule in rules.split(u8::is_ascii_whitespace).filter(|it| !it.is_empty()) {
                    selector.apply(names, rule)?;
                }
                self.selectors.push(selector);
            }
            rule => self.root.apply(names, rule)?,
        }
        Ok(())
    }

    fn add_password(&mut self, hash: String) {
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
        self.is_open = false;
    }

    fn remove_password(&mut self, hash: &str) -> Result<(), Wrong> {
        let place = self.passwords.iter().position(|own| own == hash);
        self.passwords.remove(place.ok_or(Wrong::NoSuchPassword)?);
        Ok(())
    }

    /// Returns the flags that clients see.
    pub(in crate::resp) fn flags(&self) -> impl Iterator<Item = &'static str> + Clone {
        let on = if self.is_on { "on" } else { "off" };
        let checked = if self.is_checked { "sanitize-payload" } else { "skip-sanitize-payload" };
        [Some(on), self.is_open.then_some("nopass"), Some(checked)].into_iter().flatten()
    }

    /// Returns its line in `ACL LIST`.
    pub(in crate::resp) fn line(&self) -> Vec<u8> {
        self.line_for(Reader::Client)
    }

    /// Returns its line in the store, from which [`User::of_line`] makes the same user.
    pub(super) fn stored_line(&self) -> Vec<u8> {
        self.line_for(Reader::Store)
    }

    fn line_for(&self, reader: Reader) -> Vec<u8> {
        let mut line = [b"user ", self.name.as_slice()].concat();
        for flag in self.flags() {
            line.push(b' ');
            line.extend_from_slice(flag.as_bytes());
        }
        for hash in &self.passwords {
            line.extend_from_slice(format!(" #{hash}").as_bytes());
        }
        line.push(b' ');
        line.extend_from_slice(&self.root.line(reader));
        for selector in &self.selectors {
            line.extend_from_slice(b" (");
            line.extend_from_slice(&selector.line(reader));
            line.push(b')');
        }
        line
    }

    /// Returns the user of a line. If a later version has written rules that are unknown here, the
    /// user is off.
    pub(super) fn of_line(names: &Names, line: &[u8]) -> Option<User> {
        let mut words = line.strip_prefix(b"user ")?.split(|byte| *byte == b' ');
        let mut user = User::new(words.next()?);
        let mut rules: Vec<Vec<u8>> = Vec::new();
        for word in words.filter(|word| !word.is_empty()) {
            match rules.last_mut() {
                // In a line, only another selector is behind a selector. A pattern may end with a
                // parenthesis, too.
                Some(selector) if selector.starts_with(b"(") && !word.starts_with(b"(") => {
                    selector.push(b' ');
                    selector.extend_from_slice(word);
                }
                _ => rules.push(word.to_vec()),
            }
        }
        user.is_on &= rules.iter().all(|rule| user.apply(names, rule).is_ok());
        Some(user)
    }
}

/// Joins the rules of each selector, which are in parentheses.
///
/// # Errors
/// The beginning of a selector without an end.
pub(in crate::resp) fn merged<'r>(
    rules: impl Iterator<Item = &'r [u8]>,
) -> Result<Vec<Vec<u8>>, &'r [u8]> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    let mut begin = None;
    for rule in rules {
        match (begin, all.last_mut()) {
            (Some(_), Some(selector)) => {
                selector.push(b' ');
                selector.extend_from_slice(rule);
            }
            _ => {
                if rule.starts_with(b"(") {
                    begin = Some(rule);
                }
                all.push(rule.to_vec());
            }
        }
        if rule.ends_with(b")") {
            begin = None;
        }
    }
    begin.map_or(Ok(all), Err)
}
