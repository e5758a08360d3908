//! `thunderhead-bench peers` on a small scale, with the installed peers. It starts the product,
//! which `cargo test --workspace` builds too. Alone, this test needs `cargo build --package
//! thunderhead`.
#![allow(clippy::disallowed_methods, reason = "the binary is run as a person runs it")]
#![allow(clippy::print_stderr, reason = "a skipped test prints a message")]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A test's own directory, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let name = format!("thunderhead-peers-test-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Place(path.canonicalize().unwrap())
    }

    fn bench(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thunderhead-bench"));
        command.args(["peers", "--quick"]).args(words).env("TMPDIR", &self.0);
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// Returns the number of processes that have files here.
    fn processes(&self) -> usize {
        let place = self.0.to_str().unwrap().as_bytes();
        let has_it = |path: &Path| {
            let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
            line.windows(place.len()).any(|it| it == place)
        };
        std::fs::read_dir("/proc").unwrap().flatten().filter(|it| has_it(&it.path())).count()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|place| place.join(program).is_file())
}

#[test]
fn stores_are_compared_and_leave_nothing() {
    if !is_installed("redis-server") {
        eprintln!("skipped: redis-server is not installed; cargo xtask compare installs it");
        return;
    }
    let place = Place::new("small");
    let page = place.0.join("page.md");
    std::fs::write(&page, "# Mine\n<!-- measured: begin -->\nold\n<!-- measured: end -->\n")
        .unwrap();
    let written = page.display().to_string();
    let output = place.bench(&["--only", "latency,idle", "--json", "--write", &written]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // The speed does not matter here.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["requirements"].as_array().unwrap();
    let measured = |what: &str| rows.iter().any(|row| row["what"].as_str().unwrap().contains(what));
    assert!(measured("Redis, TCP"), "{rows:?}");
    assert!(measured("Redis, TCP, client blocks"), "{rows:?}");
    assert!(measured("Redis, Unix socket"), "{rows:?}");
    assert!(measured("idle"), "{rows:?}");
    assert!(report["facts"].as_array().unwrap().iter().any(|it| it[0] == "Redis"));
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.starts_with("# Mine\n") && text.contains("SHORT") != text.contains("status 0."));
    assert!(!text.contains("\nold\n") && place.0.join("peers-latency.svg").exists());
    assert_eq!(place.processes(), 0);
    std::fs::remove_file(&page).unwrap();
    std::fs::remove_file(place.0.join("peers-latency.svg")).unwrap();
    assert!(std::fs::read_dir(&place.0).unwrap().next().is_none());
}

#[test]
fn a_page_without_a_place_is_refused_before_the_measurements() {
    let place = Place::new("page");
    let page = place.0.join("page.md");
    std::fs::write(&page, "nothing").unwrap();
    let output = place.bench(&["--only", "idle", "--write", &page.display().to_string()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("measured: begin"));
    let output = place.bench(&["--only", "nonsense"]);
    assert_eq!(output.status.code(), Some(2));
}
