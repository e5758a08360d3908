//! Tables for people and the same facts for programs.

use serde::Serialize;
use std::io::{self, Write};

/// A table with a title. Cells are text, because each figure has its own precision.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// The title.
    pub title: String,
    /// The columns' names.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns an empty table.
    #[must_use]
    pub fn new(title: &str, columns: &[&str]) -> Table {
        let columns = columns.iter().map(|column| (*column).to_string()).collect();
        Table { title: title.to_string(), columns, rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: &[String]) {
        self.rows.push(cells.to_vec());
    }

    /// Prints the table in Markdown, without the title.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn print_markdown(&self, to: &mut dyn Write) -> io::Result<()> {
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|it| it.replace('|', "\\|")).collect();
            format!("| {} |", cells.join(" | "))
        };
        writeln!(to, "{}", line(&self.columns))?;
        writeln!(to, "|{}", " --- |".repeat(self.columns.len()))?;
        self.rows.iter().try_for_each(|row| writeln!(to, "{}", line(row)))
    }

    /// Prints the table with aligned columns: text to the left, numbers to the right.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn print(&self, to: &mut dyn Write) -> io::Result<()> {
        writeln!(to, "{}", self.title)?;
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|at| {
                let cells = self.rows.iter().filter_map(|row| row.get(at));
                cells.chain([&self.columns[at]]).map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        for row in std::iter::once(&self.columns).chain(&self.rows) {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| {
                    if cell.starts_with(|first: char| first.is_ascii_digit()) {
                        format!("{cell:>width$}")
                    } else {
                        format!("{cell:<width$}")
                    }
                })
                .collect();
            writeln!(to, "  {}", cells.join("  ").trim_end())?;
        }
        Ok(())
    }
}

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
    pub(crate) fn at_least(&mut self, what: &str, least: f64, measured: f64, unit: &str) {
        self.add(
            what,
            format!("≥ {least} {unit}"),
            format!("{measured:.2} {unit}"),
            measured >= least,
        );
    }

    pub(crate) fn at_most(&mut self, what: &str, most: f64, measured: f64, unit: &str) {
        self.add(
            what,
            format!("≤ {most} {unit}"),
            format!("{measured:.2} {unit}"),
            measured <= most,
        );
    }

    /// Adds a figure without a requirement.
    pub(crate) fn reported(&mut self, what: &str, measured: f64, unit: &str) {
        self.add(what, "reported".into(), format!("{measured:.2} {unit}"), true);
    }

    pub(crate) fn add(&mut self, what: &str, required: String, measured: String, pass: bool) {
        let required = required.trim_end().to_string();
        let measured = measured.trim_end().to_string();
        crate::log::progress(&format!("{what}: {measured} (required: {required})"));
        self.0.push(Requirement { what: what.into(), required, measured, pass });
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
            crate::log::progress(&closing_line(&self.0));
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
