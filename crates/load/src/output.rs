//! The output of a measurement: the result on the standard output, the progress on the standard
//! error.

use crate::table::Table;
use anyhow::Result;
use serde::Serialize;
use std::io::{IsTerminal, Write};

/// Prints a result as a table or as JSON.
///
/// # Errors
/// When the output cannot be written.
pub fn show<T: Serialize>(json: bool, table: &Table, facts: &T) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, facts)?;
        out.write_all(b"\n")?;
    } else {
        table.print(&mut out)?;
    }
    Ok(())
}

/// Reports the progress of a long measurement to a person.
pub fn progress(text: &str) {
    let _ = writeln!(std::io::stderr(), "  {text}");
}

/// Reports the progress of a run on a terminal.
pub fn watched(text: impl FnOnce() -> String) {
    if std::io::stderr().is_terminal() {
        progress(&text());
    }
}
