//! The environment of a command: the destinations of its output, and a way to ask a person.

use crate::exit::Failure;
use crate::text;
use serde::Serialize;
use std::io::{Read, Write};

/// The environment of a command.
pub(crate) struct Session<'a> {
    /// Takes the result.
    pub(crate) out: &'a mut dyn Write,
    /// Takes all other messages: progress, skipped lines.
    pub(crate) notes: &'a mut dyn Write,
    /// The command's input. None in the shell, which reads the input itself.
    pub(crate) input: Option<&'a mut dyn Read>,
    /// Asks a person whether they agree. None without a terminal.
    pub(crate) ask: Option<&'a mut dyn FnMut(&str) -> bool>,
    /// Print JSON, for programs.
    pub(crate) json: bool,
    /// Whether progress is shown.
    pub(crate) progress: bool,
}

impl Session<'_> {
    /// Prints a value for programs, in one line. Numbers that many programs cannot read exactly are
    /// strings: see [`text::exact`].
    pub(crate) fn put_json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let line = serde_json::to_string(value).map_err(std::io::Error::from)?;
        writeln!(self.out, "{}", text::exact(&line))?;
        Ok(())
    }

    /// Prints a message beside the result. A failure to print it is ignored.
    pub(crate) fn note(&mut self, text: impl std::fmt::Display) {
        let _ = writeln!(self.notes, "{text}");
    }
}
