//! `cargo xtask release`: the product as its users get it. The program is stripped, and its symbols
//! and line tables are in a file beside it.
//!
//! Cargo has no setting for this on Linux. `strip` throws the line tables away. With
//! `split-debuginfo = "packed"` the line tables stay in the program: only types and variables move
//! to another file, and release builds have none. So a build keeps its line tables, which callgrind
//! and `perf` need, and this command takes them out of a copy.
//!
//! A panic's backtrace names functions and lines if `thunderhead.debug` is beside the program.
//! Without that file only the place of the panic is named.

use crate::steps::{build_programs, program, run, target};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The largest program, in bytes, without symbols and line tables.
const BYTES_MAX: u64 = 20_000_000;

/// Crates for measurements and tests, which the product must not contain.
const FOREIGN: [&str; 3] = ["thunderhead-bench", "thunderhead-simulator", "thunderhead-testkit"];

/// Builds the product below `target/dist`, and checks its size and its crates.
pub(crate) fn release() -> Result<()> {
    let foreign = foreign(&crates()?);
    ensure!(foreign.is_empty(), "thunderhead must not depend on {}", foreign.join(", "));
    build_programs()?;
    let (built, directory) = (program("thunderhead"), target().join("dist"));
    fs::create_dir_all(&directory).context("make a directory for the release")?;
    let (stripped, debug) = (directory.join("thunderhead"), directory.join("thunderhead.debug"));
    let text = |path: &Path| path.display().to_string();
    let keep = ["--only-keep-debug", "--compress-debug-sections=zlib"];
    run("objcopy", &[keep[0], keep[1], &text(&built), &text(&debug)])?;
    let link = format!("--add-gnu-debuglink={}", debug.display());
    run("objcopy", &["--strip-all", &link, &text(&built), &text(&stripped)])?;
    run(&text(&stripped), &["--version"])?;
    let (size, beside) = (bytes(&stripped)?, bytes(&debug)?);
    println!(
        "{}: {:.1} MB, and {:.1} MB of symbols and line tables in {}",
        stripped.display(),
        megabytes(size),
        megabytes(beside),
        debug.display()
    );
    ensure!(
        size <= BYTES_MAX,
        "the program has {:.1} MB and may have {:.1}: see what was added with `cargo tree -p \
         thunderhead -e normal`",
        megabytes(size),
        megabytes(BYTES_MAX)
    );
    Ok(())
}

/// Returns the crates of the product, one a line.
fn crates() -> Result<String> {
    let arguments = ["tree", "--package", "thunderhead", "--edges", "normal", "--prefix", "none"];
    let output = Command::new("cargo").args(arguments).output().context("start cargo tree")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).context("read the output of cargo tree")
}

/// Returns the crates of a list that the product must not contain.
fn foreign(crates: &str) -> Vec<&'static str> {
    let has = |name: &&str| crates.lines().any(|line| line.split(' ').next() == Some(*name));
    FOREIGN.into_iter().filter(has).collect()
}

fn bytes(path: &Path) -> Result<u64> {
    Ok(fs::metadata(path).with_context(|| format!("find {}", path.display()))?.len())
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_for_measurements_are_found_in_the_product() {
        let crates = "thunderhead v0.1.0 (/x)\nthunderhead-load v0.1.0\nclap v4.5.0 (*)\n";
        assert!(foreign(crates).is_empty());
        let crates = format!("{crates}thunderhead-simulator v0.1.0 (/x) (*)\n");
        assert_eq!(foreign(&crates), ["thunderhead-simulator"]);
    }
}
