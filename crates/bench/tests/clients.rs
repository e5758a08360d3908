//! `thunderhead-bench clients` with a program whose replies are written in advance. It starts the
//! product, which `cargo test --workspace` builds too. Alone, this test needs
//! `cargo build --package thunderhead`.
#![allow(clippy::disallowed_methods, reason = "the binary is run as a person runs it")]

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A program in the language of the shell. Each of its operations takes a second, and a package for
/// Redis is missing.
const PROGRAM: &str = r#"
echo '{"ready":true,"language":"python","modes":["sync"]}'
while read -r line; do
    id=$(echo "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
    rounds=$(echo "$line" | sed 's/.*"rounds":\([0-9]*\).*/\1/')
    ns=1e9
    while [ "$rounds" -gt 1 ]; do rounds=$((rounds - 1)); ns=$ns,1e9; done
    case $line in
    *'"store":"redis"'*) echo "{\"id\":$id,\"missing\":\"install the package\"}" ;;
    *'"work":"put_many"'*) echo "{\"id\":$id,PUT_MANY}" ;;
    *) echo "{\"id\":$id,\"ns\":[$ns]}" ;;
    esac
done
"#;

/// A test's own directory, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str, put_many: &str) -> Place {
        let name = format!("thunderhead-clients-test-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("program"), PROGRAM.replace("PUT_MANY", put_many)).unwrap();
        Place(path)
    }

    fn judge(&self, words: &[&str]) -> Output {
        let program = format!("sh {}", self.0.join("program").display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_thunderhead-bench"));
        command.args(["clients", "--operations", "100", "--rounds", "2", "--program", &program]);
        command.args(words).stdin(Stdio::null()).output().unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_program_is_measured_beside_the_core() {
    let place = Place::new("measured", "\\\"ns\\\":[$ns]");
    let figure = place.0.join("clients.svg");
    let output = place.judge(&["--json", "--require", "--plot", figure.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let works: Vec<&str> = rows.iter().map(|row| row["work"].as_str().unwrap()).collect();
    assert_eq!(works, ["get", "put", "get_many", "put_many"]);
    for row in rows {
        assert_eq!(row["client"]["median_ns"], 1e9);
        assert!(row["core"]["best_ns"].as_f64().unwrap() > 0.0);
        assert!(row["price"]["median_ns"].as_f64().unwrap() < 1e9);
        assert_eq!(row["redis"], Value::Null);
    }
    assert_eq!((&rows[0]["is_met"], &rows[3]["is_met"]), (&Value::Bool(false), &Value::Null));
    let notes = report["notes"].to_string();
    assert!(notes.contains("install the package") || notes.contains("redis-server"), "{notes}");
    assert!(std::fs::read_to_string(&figure).unwrap().starts_with("<svg"));
}

#[test]
fn a_program_that_fails_ends_the_run() {
    let place = Place::new("fails", "\\\"error\\\":\\\"the table is gone\\\"");
    let output = place.judge(&[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("Python sync, put 100 at once") && said.contains("gone"), "{said}");
    let output = place.judge(&["--rounds", "0"]);
    assert_eq!(output.status.code(), Some(2));
}
