//! What a command has around it: where its output goes, and whom it can ask.

use crate::exit::Failure;
use crate::text;
use serde::Serialize;
use std::io::{Read, Write};

/// What a command has around it.
pub(crate) struct Session<'a> {
    /// What it is asked for goes here.
    pub(crate) out: &'a mut dyn Write,
    /// What it says besides goes here: progress, what was skipped.
    pub(crate) notes: &'a mut dyn Write,
    /// What is handed to it; nothing in the shell, whose own input that is.
    pub(crate) input: Option<&'a mut dyn Read>,
    /// Whether somebody agrees; nobody can be asked where there is no terminal.
    pub(crate) ask: Option<&'a mut dyn FnMut(&str) -> bool>,
    /// For programs.
    pub(crate) json: bool,
    /// Whether progress is shown.
    pub(crate) progress: bool,
}

impl Session<'_> {
    /// Prints a value for programs, in one line. Numbers that many programs cannot read exactly are strings:
    /// see [`text::exact`].
    pub(crate) fn put_json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let line = serde_json::to_string(value).map_err(std::io::Error::from)?;
        writeln!(self.out, "{}", text::exact(&line))?;
        Ok(())
    }

    /// Says something besides. That nobody hears it is no failure.
    pub(crate) fn note(&mut self, text: impl std::fmt::Display) {
        let _ = writeln!(self.notes, "{text}");
    }
}
