//! `thunderhead-bench cache` on a small scale, with the installed memcached. It starts the product,
//! which `cargo test --workspace` builds too. Alone, this test needs `cargo build --package
//! thunderhead`.
#![allow(clippy::print_stderr, reason = "a skipped test prints a message")]

use serde_json::Value;
use std::process::{Command, Stdio};

#[test]
fn caches_are_compared() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|place| place.join("memcached").is_file()) {
        eprintln!("skipped: memcached is not installed; cargo xtask compare installs it");
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_thunderhead-bench"));
    command.args(["cache", "misses", "--quick", "--json"]).stdin(Stdio::null());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // The figures do not matter here.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["requirements"].as_array().unwrap();
    assert_eq!(rows.len(), 10, "{rows:?}");
    let table = report["tables"][0]["rows"].as_array().unwrap();
    assert_eq!(table.len(), 5, "{table:?}");
}
