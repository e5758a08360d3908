//! Counts of commands and errors, which `INFO` shows.

use super::commands::Command;
use super::latency::Histogram;
use super::server::State;
use std::collections::BTreeMap;
use std::time::Duration;

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
    /// The counts of the present command. They are taken back if the store refuses the command now,
    /// because it is executed again.
    present: Vec<Counted>,
}

/// The calls of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Calls {
    /// The executed calls, and the failed calls among them.
    pub(super) executed: u64,
    pub(super) failed: u64,
    /// The calls that were refused before.
    pub(super) rejected: u64,
    /// The time of the executed calls.
    pub(super) microseconds: u64,
    /// The executed calls by their time, if that is measured.
    pub(super) histogram: Option<Box<Histogram>>,
}

/// A count that may be taken back.
#[derive(Clone, Debug)]
enum Counted {
    /// A call of the command with a place, whether it failed, and the microseconds that it took if
    /// they are in a histogram.
    Call { place: usize, has_failed: bool, microseconds: u64, is_in_histogram: bool },
    /// An error with a code.
    Error(Vec<u8>),
}

impl State {
    /// Counts a command that was executed, and took a time if that was measured.
    pub(super) fn count(
        &mut self,
        command: &'static Command,
        has_failed: bool,
        took: Option<Duration>,
    ) {
        let place = self.names.place_of(command);
        self.count_calls(place, 1).failed += u64::from(has_failed);
        let microseconds = self.count_time(place, 1, took);
        let is_in_histogram = took.is_some() && self.settings.tracks_latency;
        let call = Counted::Call { place, has_failed, microseconds, is_in_histogram };
        self.counts.present.push(call);
    }

    /// Counts the time of calls of the command with a place, all together. Returns the
    /// microseconds of all.
    pub(super) fn count_time(&mut self, place: usize, count: u64, took: Option<Duration>) -> u64 {
        let Some(took) = took else { return 0 };
        let microseconds = took.as_micros() as u64;
        let tracks = self.settings.tracks_latency;
        let Some(calls) = self.counts.calls.get_mut(place) else { return 0 };
        calls.microseconds += microseconds;
        if tracks {
            let each = microseconds.checked_div(count).unwrap_or(0);
            calls.histogram.get_or_insert_default().add(each, count);
        }
        microseconds
    }

    /// Counts a command that has waited, and the error that ended its waiting.
    pub(super) fn count_ended(&mut self, command: &'static Command, error: Option<&str>) {
        self.count(command, error.is_some(), None);
        if let Some(code) = error.and_then(|text| text.split(' ').next()) {
            self.count_error(code.as_bytes());
        }
    }

    /// Counts a command that was refused before its execution.
    pub(super) fn count_rejected(&mut self, command: &'static Command) {
        let place = self.names.place_of(command);
        self.count_calls(place, 0).rejected += 1;
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

    /// Begins the counts of a command that a client has sent.
    #[inline]
    pub(super) fn begin_counts(&mut self) {
        self.counts.present.clear();
        self.slow_log.keep(self.settings.slow_entries_max);
    }

    /// Takes back the counts of a command that is executed again.
    pub(super) fn take_back_counts(&mut self) {
        self.slow_log.take_back();
        let counts = &mut self.counts;
        for counted in counts.present.drain(..) {
            match counted {
                Counted::Call { place, has_failed, microseconds, is_in_histogram } => {
                    let Some(calls) = counts.calls.get_mut(place) else { continue };
                    counts.commands = counts.commands.saturating_sub(1);
                    calls.executed = calls.executed.saturating_sub(1);
                    calls.failed = calls.failed.saturating_sub(u64::from(has_failed));
                    calls.microseconds = calls.microseconds.saturating_sub(microseconds);
                    if is_in_histogram && let Some(histogram) = &mut calls.histogram {
                        histogram.take_back(microseconds);
                    }
                }
                Counted::Error(code) => {
                    counts.errors = counts.errors.saturating_sub(1);
                    if let Some(count) = counts.codes.get_mut(&code) {
                        *count = count.saturating_sub(1);
                    }
                    counts.codes.retain(|_, count| *count > 0);
                }
            }
        }
    }

    /// Counts an error by its code.
    pub(super) fn count_error(&mut self, code: &[u8]) {
        self.counts.errors += 1;
        self.counts.present.push(Counted::Error(code.to_vec()));
        let codes = &mut self.counts.codes;
        if let Some(count) = codes.get_mut(code) {
            *count += 1;
        } else if codes.len() < CODES_MAX {
            codes.insert(code.to_vec(), 1);
        }
    }
}
