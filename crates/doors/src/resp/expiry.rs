//! Times of expiry, as arguments of commands.

use super::context::{Context, is};
use super::number::integer_of;
use super::parser::Arguments;
use super::stop::{self, Stop};

/// The unit of a time in an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitOfTime {
    Seconds,
    Milliseconds,
}

/// Whether a time of expiry has passed already.
pub(super) fn is_past(context: &Context<'_>, expires: Option<u64>) -> bool {
    expires.is_some_and(|expires| expires <= context.objects.now())
}

/// Returns the error for a time of expiry that makes no sense.
pub(super) fn invalid(name: &str) -> Stop {
    Stop::error_of(format!("ERR invalid expire time in '{name}' command"))
}

/// Reads a time of expiry, which must be positive. It counts from now, or from 1970.
pub(super) fn expires_of(
    context: &Context<'_>,
    text: &[u8],
    unit: UnitOfTime,
    is_relative: bool,
    name: &str,
) -> Result<u64, Stop> {
    let time = integer_of(text).ok_or(stop::NOT_AN_INTEGER)?;
    let factor = if unit == UnitOfTime::Seconds { 1000 } else { 1 };
    let time = Some(time).filter(|time| *time > 0).and_then(|time| time.checked_mul(factor));
    let now = if is_relative { context.objects.now() as i64 } else { 0 };
    let time = time.and_then(|time| time.checked_add(now)).ok_or_else(|| invalid(name))?;
    Ok(time.unsigned_abs())
}

/// The options of `SET` and of `GETEX`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options<'a> {
    /// Write only if the key does not exist.
    pub(super) is_new: bool,
    /// Write only if the key exists.
    pub(super) is_old: bool,
    /// Return the value before.
    pub(super) gets: bool,
    /// Keep the time of expiry.
    pub(super) keeps: bool,
    /// Remove the time of expiry.
    pub(super) persists: bool,
    /// The time of expiry, its unit, and whether it counts from now.
    time: Option<(&'a [u8], UnitOfTime, bool)>,
}

impl<'a> Options<'a> {
    /// Reads the options of `SET`.
    pub(super) fn of_set(arguments: Arguments<'a>) -> Result<Options<'a>, Stop> {
        Options::read(arguments, 3, true)
    }

    /// Reads the options of `GETEX`.
    pub(super) fn of_getex(arguments: Arguments<'a>) -> Result<Options<'a>, Stop> {
        Options::read(arguments, 2, false)
    }

    fn read(arguments: Arguments<'a>, begin: usize, is_set: bool) -> Result<Options<'a>, Stop> {
        let mut options = Options::default();
        let mut word_of_time = "";
        let mut at = begin;
        while let Some(word) = arguments.get(at) {
            at += 1;
            if is_set && is(word, "NX") && !options.is_old {
                options.is_new = true;
            } else if is_set && is(word, "XX") && !options.is_new {
                options.is_old = true;
            } else if is_set && is(word, "GET") {
                options.gets = true;
            } else if is_set && is(word, "KEEPTTL") && options.time.is_none() {
                options.keeps = true;
            } else if !is_set && is(word, "PERSIST") && options.time.is_none() {
                options.persists = true;
            } else {
                let (name, unit, is_relative) = time_word(word).ok_or(stop::SYNTAX)?;
                let has_other = options.keeps
                    || options.persists
                    || options.time.is_some() && word_of_time != name;
                let time = arguments.get(at).filter(|_| !has_other).ok_or(stop::SYNTAX)?;
                at += 1;
                word_of_time = name;
                options.time = Some((time, unit, is_relative));
            }
        }
        Ok(options)
    }

    /// Returns the time of expiry, if there is one.
    pub(super) fn expires(&self, context: &Context<'_>, name: &str) -> Result<Option<u64>, Stop> {
        let Some((time, unit, is_relative)) = self.time else { return Ok(None) };
        expires_of(context, time, unit, is_relative, name).map(Some)
    }
}

/// Returns the meaning of a word before a time: its unit, and whether it counts from now.
pub(super) fn time_word(word: &[u8]) -> Option<(&'static str, UnitOfTime, bool)> {
    const WORDS: [(&str, UnitOfTime, bool); 4] = [
        ("EX", UnitOfTime::Seconds, true),
        ("PX", UnitOfTime::Milliseconds, true),
        ("EXAT", UnitOfTime::Seconds, false),
        ("PXAT", UnitOfTime::Milliseconds, false),
    ];
    WORDS.into_iter().find(|(name, _, _)| is(word, name))
}
