//! Counts of commands and errors, which `INFO` shows.

use super::commands::Command;
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
    /// Calls, and failures, of each command, in the order of [`Names`](super::commands::Names).
    pub(super) calls: Vec<(u64, u64)>,
    /// Errors by their code.
    pub(super) codes: BTreeMap<Vec<u8>, u64>,
}

impl State {
    /// Counts a command that was executed.
    pub(super) fn count(&mut self, command: &'static Command, has_failed: bool) {
        *self.count_calls(self.names.place_of(command), 1) += u64::from(has_failed);
    }

    /// Counts calls of the command with a place; returns its count of failures.
    pub(super) fn count_calls(&mut self, place: usize, count: u64) -> &mut u64 {
        self.counts.commands += count;
        if self.counts.calls.len() <= place {
            self.counts.calls.resize(place + 1, (0, 0));
        }
        let (calls, failures) = &mut self.counts.calls[place];
        *calls += count;
        failures
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
