//! The flags of meta commands.

use super::number::{i32_of, u32_of, u64_of};
use super::{Exptime, KEY_BYTES_MAX, Words};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::borrow::Cow;

/// The most words of a meta command.
const WORDS_MAX: usize = 19;

/// The longest opaque word that is sent back.
const OPAQUE_BYTES_MAX: usize = 32;

/// The way to write an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Whether it exists or not.
    #[default]
    Set,
    /// Only if it does not exist.
    Add,
    /// Only if it exists.
    Replace,
    /// Behind the value that is there.
    Append,
    /// Before the value that is there.
    Prepend,
}

/// A meta command: its key and its flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    /// The key, decoded if it came as base64.
    pub key: Cow<'a, [u8]>,
    /// `b`: the key came as base64.
    pub is_binary: bool,
    /// `q`: the client does not want the usual answer.
    pub is_quiet: bool,
    /// `v`: the answer has the value.
    pub wants_value: bool,
    /// `u`: the access does not count.
    pub leaves_access: bool,
    /// `I`: the object becomes stale.
    pub makes_stale: bool,
    /// `C`: the version that the object must have.
    pub cas: Option<u64>,
    /// `F`: the client's flags.
    pub flags: u32,
    /// `T`: the new time of expiry.
    pub exptime: Option<Exptime>,
    /// `N`: a missing object is created, with this time of expiry.
    pub vivify: Option<Exptime>,
    /// `R`: the client may load the object again if it expires sooner than this.
    pub recache: Option<Exptime>,
    /// `M`: the mode of `ms`.
    pub mode: Mode,
    /// `M`: whether `ma` subtracts.
    pub is_decrement: bool,
    /// `D`: the number to add or subtract.
    pub delta: u64,
    /// `J`: the number of a created object.
    pub initial: u64,
    /// All flags, in the order in which the answer returns some of them.
    pub words: Words<'a>,
}

/// The command whose flags are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Get,
    Set,
    Delete,
    Arithmetic,
}

impl Command {
    /// Returns the error of a wrong flag. Two of the commands do not tell the errors apart.
    fn error_of(self, error: Refused) -> Refused {
        match self {
            Command::Get | Command::Set => error,
            Command::Delete | Command::Arithmetic => b"CLIENT_ERROR invalid or duplicate flag\r\n",
        }
    }
}

/// An error of a meta command, as a line.
type Refused = &'static [u8];

const BAD_FORMAT: Refused = b"CLIENT_ERROR bad command line format\r\n";
const BAD_TOKEN: Refused = b"CLIENT_ERROR bad token in command line format\r\n";

impl<'a> Meta<'a> {
    /// Reads a key and flags.
    pub(super) fn read(
        command: Command,
        key: &'a [u8],
        words: Words<'a>,
    ) -> Result<Meta<'a>, Refused> {
        let before = if command == Command::Set { 3 } else { 2 };
        if words.into_iter().count() + before > WORDS_MAX {
            return Err(match command {
                Command::Get => b"CLIENT_ERROR options flags are too long\r\n",
                _ => b"CLIENT_ERROR options flags too long\r\n",
            });
        }
        let mut meta = Meta {
            key: Cow::Borrowed(key),
            is_binary: false,
            is_quiet: false,
            wants_value: false,
            leaves_access: false,
            makes_stale: false,
            cas: None,
            flags: 0,
            exptime: None,
            vivify: None,
            recache: None,
            mode: Mode::Set,
            is_decrement: false,
            delta: 1,
            initial: 0,
            words,
        };
        let mut seen = [false; 128];
        for word in words {
            let (flag, argument) = (word[0], &word[1..]);
            let was_seen = seen.get_mut(usize::from(flag)).map(|it| std::mem::replace(it, true));
            if was_seen != Some(false) {
                return Err(command.error_of(b"CLIENT_ERROR duplicate flag\r\n"));
            }
            meta.take_flag(command, flag, argument)?;
        }
        Ok(meta)
    }

    fn take_flag(&mut self, command: Command, flag: u8, argument: &'a [u8]) -> Result<(), Refused> {
        let bad_token = command.error_of(BAD_TOKEN);
        let time = || i32_of(argument).map(Exptime).ok_or(bad_token).map(Some);
        match flag {
            b'b' => {
                let decoded = STANDARD.decode(&*self.key).unwrap_or_default();
                if decoded.is_empty() || decoded.len() > KEY_BYTES_MAX {
                    return Err(command.error_of(b"CLIENT_ERROR error decoding key\r\n"));
                }
                (self.key, self.is_binary) = (Cow::Owned(decoded), true);
            }
            b'N' => self.vivify = time()?,
            b'T' => self.exptime = time()?,
            b'R' => self.recache = time()?,
            b'v' => self.wants_value = true,
            b'u' => self.leaves_access = true,
            b'q' => self.is_quiet = true,
            b'I' => self.makes_stale = true,
            b'F' => self.flags = u32_of(argument).ok_or(command.error_of(BAD_FORMAT))?,
            b'C' => self.cas = Some(u64_of(argument).ok_or(bad_token)?),
            b'M' => self.take_mode(command, argument)?,
            b'J' => {
                let error = command.error_of(b"CLIENT_ERROR invalid numeric initial value\r\n");
                self.initial = u64_of(argument).ok_or(error)?;
            }
            b'D' => {
                let error = command.error_of(b"CLIENT_ERROR invalid numeric delta value\r\n");
                self.delta = u64_of(argument).ok_or(error)?;
            }
            b'O' if argument.len() + 1 > OPAQUE_BYTES_MAX => {
                return Err(b"CLIENT_ERROR opaque token too long\r\n");
            }
            b'O' | b'k' | b's' | b't' | b'c' | b'f' | b'l' | b'h' | b'P' | b'L' => {}
            _ => return Err(command.error_of(b"CLIENT_ERROR invalid flag\r\n")),
        }
        Ok(())
    }

    fn take_mode(&mut self, command: Command, argument: &[u8]) -> Result<(), Refused> {
        let [letter] = argument else {
            return Err(command.error_of(b"CLIENT_ERROR incorrect length for M token\r\n"));
        };
        match (command, letter) {
            (Command::Set, b'S') => self.mode = Mode::Set,
            (Command::Set, b'E') => self.mode = Mode::Add,
            (Command::Set, b'R') => self.mode = Mode::Replace,
            (Command::Set, b'A') => self.mode = Mode::Append,
            (Command::Set, b'P') => self.mode = Mode::Prepend,
            (Command::Set, _) => return Err(b"CLIENT_ERROR invalid mode for ms M token\r\n"),
            (Command::Arithmetic, b'I' | b'+') => self.is_decrement = false,
            (Command::Arithmetic, b'D' | b'-') => self.is_decrement = true,
            (Command::Arithmetic, _) => {
                return Err(b"CLIENT_ERROR invalid mode for ma M token\r\n");
            }
            (Command::Get | Command::Delete, _) => {}
        }
        Ok(())
    }
}
