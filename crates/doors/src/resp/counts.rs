//! Counts of commands and errors, which `INFO` shows.

use super::commands::Command;
use super::parser::Arguments;
use super::server::State;
use std::collections::BTreeMap;

/// The most codes of errors that are counted.
const CODES_MAX: usize = 128;

/// Counts since the start, or since `CONFIG RESETSTAT`.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) commands: u64,
    pub(super) errors: u64,
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) connections: u64,
    /// The calls of each command, in the order of [`Names`](super::commands::Names).
    pub(super) calls: Vec<Calls>,
    /// Errors by their code.
    pub(super) codes: BTreeMap<Vec<u8>, u64>,
}

/// Counts of one command.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Calls {
    pub(super) executed: u64,
    /// The executed calls that ended with an error.
    pub(super) failed: u64,
    /// Further calls, which were refused before they were executed.
    pub(super) rejected: u64,
}

impl State {
    /// Counts a command that was executed.
    pub(super) fn count(&mut self, command: &'static Command, has_failed: bool) {
        self.count_calls(self.names.place_of(command), 1).failed += u64::from(has_failed);
    }

    /// Counts a command that has waited, and the error that ended its waiting.
    pub(super) fn count_ended(&mut self, command: &'static Command, error: Option<&str>) {
        self.count(command, error.is_some());
        if let Some(code) = error.and_then(|text| text.split(' ').next()) {
            self.count_error(code.as_bytes());
        }
    }

    /// Counts a command that is refused, if it is known.
    pub(super) fn count_rejected(&mut self, arguments: &Arguments<'_>) {
        if let Some(command) = self.names.known(arguments) {
            self.count_calls(self.names.place_of(command), 0).rejected += 1;
        }
    }

    /// Counts calls of the command with a place; returns its counts.
    pub(super) fn count_calls(&mut self, place: usize, count: u64) -> &mut Calls {
        self.counts.commands += count;
        if self.counts.calls.len() <= place {
            self.counts.calls.resize(place + 1, Calls::default());
        }
        let calls = &mut self.counts.calls[place];
        calls.executed += count;
        calls
    }

    /// Counts an error by its code.
    pub(super) fn count_error(&mut self, code: &[u8]) {
        self.counts.errors += 1;
        let codes = &mut self.counts.codes;
        if let Some(count) = codes.get_mut(code) {
            *count += 1;
        } else if codes.len() < CODES_MAX {
            codes.insert(code.to_vec(), 1);
        }
    }
}
