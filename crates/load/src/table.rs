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
