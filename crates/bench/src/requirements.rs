//! The requirements of an evaluation, each beside its result.

use serde::Serialize;
use std::io::{self, Write};
use thunderhead_load::output::progress;
use thunderhead_load::table::Table;

/// A requirement beside its result.
#[derive(Clone, Debug, Serialize)]
pub struct Requirement {
    /// The requirement.
    pub what: String,
    /// The bound.
    pub required: String,
    /// The result.
    pub measured: String,
    /// Whether the requirement is met.
    pub pass: bool,
}

/// Returns requirements as a table.
pub(crate) fn table_of(rows: &[Requirement]) -> Table {
    let mut table = Table::new("", &["what", "required", "measured", ""]);
    for row in rows {
        let verdict = match (row.pass, row.required.as_str()) {
            (_, "reported") => "",
            (true, _) => "ok",
            (false, _) => "SHORT",
        };
        table.row(&[row.what.clone(), row.required.clone(), row.measured.clone(), verdict.into()]);
    }
    table
}

/// Prints requirements; returns whether all are met.
fn print_requirements(rows: &[Requirement], to: &mut dyn Write) -> io::Result<bool> {
    table_of(rows).print(to)?;
    writeln!(to, "{}", closing_line(rows))?;
    Ok(rows.iter().all(|row| row.pass))
}

/// Collects requirements and reports progress.
#[derive(Default)]
pub(crate) struct Rows(Vec<Requirement>);

impl Rows {
    pub(crate) fn at_least(&mut self, label: &str, least: f64, measured: f64, unit: &str) {
        self.add(
            label,
            format!("≥ {least} {unit}"),
            format!("{measured:.2} {unit}"),
            measured >= least,
        );
    }

    pub(crate) fn at_most(&mut self, label: &str, most: f64, measured: f64, unit: &str) {
        self.add(
            label,
            format!("≤ {most} {unit}"),
            format!("{measured:.2} {unit}"),
            measured <= most,
        );
    }

    /// Adds a figure without a requirement.
    pub(crate) fn reported(&mut self, label: &str, measured: f64, unit: &str) {
        self.add(label, "reported".into(), format!("{measured:.2} {unit}"), true);
    }

    pub(crate) fn add(&mut self, label: &str, required: String, measured: String, pass: bool) {
        let required = required.trim_end().to_string();
        let measured = measured.trim_end().to_string();
        progress(&format!("{label}: {measured} (required: {required})"));
        self.0.push(Requirement { what: label.into(), required, measured, pass });
    }

    /// Returns all requirements.
    pub(crate) fn all(&self) -> &[Requirement] {
        &self.0
    }

    /// Prints all requirements; returns false if one is not met.
    pub(crate) fn show(&self, json: bool) -> anyhow::Result<bool> {
        let mut out = io::stdout().lock();
        if json {
            serde_json::to_writer_pretty(&mut out, &self.0)?;
            io::Write::write_all(&mut out, b"\n")?;
            progress(&closing_line(&self.0));
            return Ok(self.0.iter().all(|row| row.pass));
        }
        Ok(print_requirements(&self.0, &mut out)?)
    }
}

/// Returns the verdict with its reservations.
#[must_use]
pub fn closing_line(rows: &[Requirement]) -> String {
    let short = rows.iter().filter(|row| !row.pass).count();
    if short == 0 {
        return format!("None of {} rows fell short: status 0.", rows.len());
    }
    format!(
        "{short} of {} rows fell short: status 1. Figures mean little with --quick, or on a machine \
         that is not idle.",
        rows.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_says_what_the_status_means() {
        let row = |pass| Requirement {
            what: "w".into(),
            required: "r".into(),
            measured: "m".into(),
            pass,
        };
        let mut out = Vec::new();
        assert!(!print_requirements(&[row(true), row(false)], &mut out).unwrap());
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().last().unwrap().starts_with("1 of 2 rows fell short: status 1."));
        assert!(closing_line(&[row(true)]).ends_with("status 0."));
    }
}
