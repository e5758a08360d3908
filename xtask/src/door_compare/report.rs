//! The results of a run, for a person and for a program.

use super::contest::Results;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The servers of a run, and the commands that were left out.
pub(super) struct Setting {
    pub(super) theirs: String,
    pub(super) ours: String,
    pub(super) seed: u64,
    /// Commands of the real server that ours does not have.
    pub(super) absent: Vec<String>,
    /// Commands of the real server that are only sent with a wrong number of arguments.
    pub(super) without_rows: Vec<String>,
    /// Commands that are not sent because their effect may differ, with the reasons.
    pub(super) skipped: Vec<String>,
}

pub(super) fn text(setting: &Setting, results: &Results) -> String {
    let mut out = String::new();
    let Setting { theirs, ours, seed, absent, without_rows, skipped } = setting;
    let width = theirs.len().max(ours.len());
    for (at, finding) in results.findings.iter().enumerate() {
        let difference = &finding.difference;
        let place = if difference.is_of_contents { " (contents)" } else { "" };
        let _ = writeln!(
            out,
            "{}. {}{place}: {} times, first in sequence {}",
            at + 1,
            difference.name,
            finding.times,
            finding.sequence
        );
        if !finding.repeats {
            let _ = writeln!(out, "   The same sequence did not show it again.");
        }
        for line in &finding.lines {
            let _ = writeln!(out, "     {line}");
        }
        let _ = writeln!(out, "   answers to {}", difference.command);
        let _ = writeln!(out, "     {theirs:width$}  {}", difference.theirs.text());
        let _ = writeln!(out, "     {ours:width$}  {}\n", difference.ours.text());
    }
    for (rule, times) in &results.allowed {
        let command = if rule.command.is_empty() { "all commands" } else { rule.command };
        let never = if *times == 0 { " (never used)" } else { "" };
        let _ = writeln!(out, "allowed {times} times{never}: {command}: {}", rule.reason);
    }
    for line in skipped {
        let _ = writeln!(out, "not sent: {line}");
    }
    for (command, stall) in &results.stalled {
        let (times, first) = (stall.times, stall.sequence);
        let _ = writeln!(out, "{theirs} did not answer {command}: {times} times, first in {first}");
        for line in &stall.lines {
            let _ = writeln!(out, "     {line}");
        }
    }
    if !absent.is_empty() {
        let _ = writeln!(out, "absent in {ours} ({}): {}", absent.len(), absent.join(", "));
    }
    if !without_rows.is_empty() {
        let (count, names) = (without_rows.len(), without_rows.join(", "));
        let _ = writeln!(out, "only with wrong numbers of arguments ({count}): {names}");
    }
    if let Some(broken) = &results.broken {
        let _ = writeln!(out, "ended early: {broken}");
    }
    let seconds = results.took.as_secs_f64();
    let _ = writeln!(
        out,
        "{theirs} and {ours}: {} differences in {} sequences of {} commands, {seconds:.1} s, {:.0} \
         commands a second, seed {seed}",
        results.findings.len(),
        results.sequences,
        results.commands,
        results.commands as f64 / seconds.max(0.001)
    );
    out
}

pub(super) fn json(setting: &Setting, results: &Results) -> Value {
    let findings = results.findings.iter().map(|finding| {
        let difference = &finding.difference;
        json!({
            "command": difference.name,
            "times": finding.times,
            "sequence": finding.sequence,
            "repeats": finding.repeats,
            "of_contents": difference.is_of_contents,
            "lines": finding.lines,
            "answers_to": difference.command,
            "theirs": difference.theirs.text(),
            "ours": difference.ours.text(),
        })
    });
    let allowed = results.allowed.iter().map(
        |(rule, times)| json!({ "command": rule.command, "reason": rule.reason, "times": times }),
    );
    let stalled = results.stalled.iter().map(|(command, stall)| {
        json!({ "command": command, "times": stall.times, "sequence": stall.sequence })
    });
    json!({
        "theirs": setting.theirs,
        "ours": setting.ours,
        "seed": setting.seed,
        "sequences": results.sequences,
        "commands": results.commands,
        "seconds": results.took.as_secs_f64(),
        "differences": findings.collect::<Vec<_>>(),
        "ended_early": results.broken,
        "allowed": allowed.collect::<Vec<_>>(),
        "stalled": stalled.collect::<Vec<_>>(),
        "absent": setting.absent,
        "without_rows": setting.without_rows,
        "not_sent": setting.skipped,
    })
}
