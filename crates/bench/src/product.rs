//! The program `thunderhead`, which clusters of processes run.

use anyhow::{Context as _, Result, ensure};
use std::path::PathBuf;

/// Returns the program, which is beside this one.
///
/// # Errors
/// When it is not there.
pub fn program() -> Result<PathBuf> {
    let own = std::env::current_exe().context("find this program")?;
    let program = own.with_file_name("thunderhead");
    ensure!(
        program.is_file(),
        "there is no {}, which clusters run; build it there: cargo build --package thunderhead, \
         with --release if this program was built so",
        program.display()
    );
    Ok(program)
}
