//! The flags of meta commands.

use super::number::{i32_of, u32_of, u64_of};
use super::{Exptime, KEY_BYTES_MAX, Words};
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use std::borrow::Cow;

/// The most words of a meta command.
const WORDS_MAX: usize = 19;

/// All flags. Each command accepts those of the others.
const FLAGS: &[u8] = b"bNTRvuqIFCMJDOkstcflhPL";

/// The longest opaque word that is sent back.
const OPAQUE_BYTES_MAX: usize = 32;

/// Bits that padding makes meaningless may be set.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

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
        let mut failed = None;
        for word in words {
            let (flag, argument) = (word[0], &word[1..]);
            let was_seen = seen.get_mut(usize::from(flag)).map(|it| std::mem::replace(it, true));
            if was_seen != Some(false) {
                return Err(command.error_of(b"CLIENT_ERROR duplicate flag\r\n"));
            }
            if !FLAGS.contains(&flag) {
                return Err(command.error_of(b"CLIENT_ERROR invalid flag\r\n"));
            }
            // Memcached reads on, and tells of the last wrong argument.
            match (meta.take_flag(command, flag, argument), flag) {
                // It does not tell of this one.
                (Err(error), b'F') => failed = failed.or(Some(error)),
                (Err(error), _) => failed = Some(error),
                (Ok(()), _) => {}
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        for word in words {
            match (word[0], &word[1..]) {
                (b'M', [letter]) => meta.take_mode(command, *letter)?,
                (b'O', opaque) if opaque.len() + 1 > OPAQUE_BYTES_MAX => {
                    return Err(b"CLIENT_ERROR opaque token too long\r\n");
                }
                _ => {}
            }
        }
        Ok(meta)
    }

    fn take_flag(&mut self, command: Command, flag: u8, argument: &'a [u8]) -> Result<(), Refused> {
        let bad_token = command.error_of(BAD_TOKEN);
        let time = || i32_of(argument).map(Exptime).ok_or(bad_token).map(Some);
        match flag {
            b'b' => {
                let error = command.error_of(b"CLIENT_ERROR error decoding key\r\n");
                (self.key, self.is_binary) = (Cow::Owned(decoded(&self.key).ok_or(error)?), true);
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
            b'M' if argument.len() != 1 => {
                return Err(command.error_of(b"CLIENT_ERROR incorrect length for M token\r\n"));
            }
            b'J' => {
                let error = command.error_of(b"CLIENT_ERROR invalid numeric initial value\r\n");
                self.initial = u64_of(argument).ok_or(error)?;
            }
            b'D' => {
                let error = command.error_of(b"CLIENT_ERROR invalid numeric delta value\r\n");
                self.delta = u64_of(argument).ok_or(error)?;
            }
            // These ask for something, or their arguments are read later.
            _ => {}
        }
        Ok(())
    }

    fn take_mode(&mut self, command: Command, letter: u8) -> Result<(), Refused> {
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

/// Returns the key that a word in base64 stands for. As in memcached, bytes of no meaning in base64
/// are skipped, and so is all behind the padding.
fn decoded(word: &[u8]) -> Option<Vec<u8>> {
    let has_meaning = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
    let mut letters: Vec<u8> = word.iter().copied().filter(has_meaning).collect();
    if letters.is_empty() || !letters.len().is_multiple_of(4) {
        return None;
    }
    if let Some(padding) = letters.iter().position(|letter| *letter == b'=') {
        letters.truncate(padding / 4 * 4 + 4);
    }
    let decoded = LENIENT.decode(&letters).ok()?;
    (!decoded.is_empty() && decoded.len() <= KEY_BYTES_MAX).then_some(decoded)
}
