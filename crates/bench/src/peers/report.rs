//! The results of a comparison: for people, for programs, and as the generated part of a page.
//!
//! The page keeps its handwritten parts. The text between the two marks is replaced, and figures
//! are written beside the page:
//!
//! ```text
//!  # Title, explanations …
//!  <!-- measured: begin -->     from here
//!  …
//!  <!-- measured: end -->       to here
//!  the rows that fall short, and why …
//! ```

use crate::requirements::{Requirement, Rows, closing_line, table_of};
use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use std::io::Write;
use std::path::Path;
use thunderhead_load::plot::{Panel, save};
use thunderhead_load::table::Table;

/// The marks around the generated part of a page.
const BEGIN: &str = "<!-- measured: begin -->";
const END: &str = "<!-- measured: end -->";

/// A figure: the name of its file beside the page, without suffix, and its panels.
struct Figure {
    name: &'static str,
    panels: Vec<Panel>,
}

/// The results so far.
pub struct Report {
    /// The names of the figures' files begin with it.
    name: &'static str,
    /// Versions, settings, the machine.
    pub facts: Vec<[String; 2]>,
    pub(crate) rows: Rows,
    tables: Vec<Table>,
    figures: Vec<Figure>,
}

#[derive(Serialize)]
struct Facts<'a> {
    facts: &'a [[String; 2]],
    requirements: &'a [Requirement],
    tables: &'a [Table],
}

impl Report {
    /// Returns an empty report whose figures are in files of this name.
    #[must_use]
    pub fn named(name: &'static str) -> Report {
        let (facts, tables, figures) = (Vec::new(), Vec::new(), Vec::new());
        Report { name, facts, rows: Rows::default(), tables, figures }
    }

    /// Adds a fact that a reader must know.
    pub fn fact(&mut self, label: &str, is: impl Into<String>) {
        self.facts.push([label.to_owned(), is.into()]);
    }

    /// Adds a table, and shows it at once.
    pub fn table(&mut self, table: Table) {
        let mut text = Vec::new();
        if table.print(&mut text).is_ok() {
            String::from_utf8_lossy(&text).lines().for_each(thunderhead_load::output::progress);
        }
        self.tables.push(table);
    }

    /// Adds a figure.
    pub fn figure(&mut self, name: &'static str, panels: Vec<Panel>) {
        self.figures.push(Figure { name, panels });
    }

    /// Whether no row fell short.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.rows.all().iter().all(|row| row.pass)
    }

    /// Prints the report; returns false if a row falls short.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn show(&self, json: bool) -> Result<bool> {
        let mut out = std::io::stdout().lock();
        if json {
            let (facts, tables) = (self.facts.as_slice(), self.tables.as_slice());
            let facts = Facts { facts, requirements: self.rows.all(), tables };
            serde_json::to_writer_pretty(&mut out, &facts)?;
            out.write_all(b"\n")?;
            thunderhead_load::output::progress(&closing_line(self.rows.all()));
            return Ok(self.passes());
        }
        for [label, is] in &self.facts {
            writeln!(out, "{label}: {is}")?;
        }
        for table in &self.tables {
            writeln!(out)?;
            table.print(&mut out)?;
        }
        writeln!(out)?;
        drop(out);
        self.rows.show(false)
    }

    fn markdown(&self) -> Result<String> {
        let mut text = Vec::new();
        for [label, is] in &self.facts {
            writeln!(text, "- **{label}**: {is}")?;
        }
        writeln!(text)?;
        table_of(self.rows.all()).print_markdown(&mut text)?;
        writeln!(text, "\n{}", closing_line(self.rows.all()))?;
        for figure in &self.figures {
            writeln!(text, "\n![{0}]({1}-{0}.svg)", figure.name, self.name)?;
        }
        for table in &self.tables {
            writeln!(text, "\n### {}\n", table.title)?;
            table.print_markdown(&mut text)?;
        }
        Ok(String::from_utf8(text)?)
    }

    /// Writes the report into a page, with the figures beside it.
    ///
    /// # Errors
    /// When the page lacks the marks, or a file cannot be written.
    pub fn write(&self, page: &Path) -> Result<()> {
        let text = std::fs::read_to_string(page).with_context(|| read(page))?;
        let text = within(&text, &self.markdown()?)?;
        for figure in &self.figures {
            let file = format!("{}-{}.svg", self.name, figure.name);
            save(&page.with_file_name(file), &figure.panels)?;
        }
        std::fs::write(page, text).with_context(|| format!("write {}", page.display()))
    }
}

fn read(page: &Path) -> String {
    format!("read {}, which must be there, with {BEGIN} and {END} in it", page.display())
}

/// Checks that a page has the marks for a report, before the measurement.
///
/// # Errors
/// When it lacks them.
pub fn check(page: &Path) -> Result<()> {
    let text = std::fs::read_to_string(page).with_context(|| read(page))?;
    within(&text, "").map(drop)
}

fn within(text: &str, generated: &str) -> Result<String> {
    let found = text.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some(format!("{before}{BEGIN}\n\n{generated}\n{END}{after}"))
    });
    ensure!(found.is_some(), "the page lacks {BEGIN} or, behind it, {END}");
    Ok(found.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_keeps_its_handwritten_parts() {
        let page = format!("# T\n\nwhy\n\n{BEGIN}\nold\n{END}\n\nmore\n");
        let new = within(&page, "new").unwrap();
        assert_eq!(new, format!("# T\n\nwhy\n\n{BEGIN}\n\nnew\n{END}\n\nmore\n"));
        assert_eq!(within(&new, "new").unwrap(), new);
        assert!(within("nothing", "new").is_err());
        assert!(within(&format!("{END} {BEGIN}"), "new").is_err());
    }

    #[test]
    fn a_report_is_a_list_a_table_and_figures() {
        let mut report = Report::named("peers");
        report.fact("date", "today");
        report.rows.at_least("a | b", 3.0, 4.0, "×");
        report.figure("reads", Vec::new());
        let mut table = Table::new("Reads", &["store", "K/s"]);
        table.row(&["ours".into(), "7".into()]);
        report.table(table);
        let text = report.markdown().unwrap();
        assert!(text.contains("- **date**: today"));
        assert!(text.contains("| a \\| b | ≥ 3 × | 4.00 × | ok |"), "{text}");
        assert!(text.contains("![reads](peers-reads.svg)"));
        assert!(text.contains("### Reads\n\n| store | K/s |\n| --- | --- |\n| ours | 7 |"));
        assert!(report.passes());
    }
}
