//! `thunderhead demo crash` on a small scale: processes, one of which is killed.
#![allow(clippy::disallowed_methods, reason = "the binary is run as a person runs it")]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A test's own directory, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let name = format!("thunderhead-demo-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    fn demo(&self, more: &[&str]) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thunderhead"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("THUNDERHEAD_")) {
            command.env_remove(name);
        }
        command.args(["demo", "crash", "--bytes", "2MB", "--servers", "3", "--directory"]);
        command.arg(&self.0).args(more);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    fn is_empty(&self) -> bool {
        std::fs::read_dir(&self.0).unwrap().next().is_none()
    }

    /// Returns the number of processes that serve in this directory.
    fn processes(&self) -> usize {
        let of = |path: &Path| std::fs::read(path.join("cmdline")).unwrap_or_default();
        let place = self.0.canonicalize().unwrap();
        let place = place.to_str().unwrap().as_bytes();
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let is_ours = |line: &[u8]| {
            let serves = line.windows(13).any(|it| it == b"--while-input");
            serves && line.windows(place.len()).any(|it| it == place)
        };
        all.filter(|entry| is_ours(&of(&entry.path()))).count()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Reads the output until all servers are up.
fn until_up(child: &mut Child) -> BufReader<std::process::ChildStderr> {
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.contains("are up"), "{line}");
    said
}

#[test]
fn a_servers_data_comes_back_after_it_is_killed() {
    let place = Place::new("killed");
    let child = place.demo(&["--restart", "100ms", "--json"]);
    let output = child.wait_with_output().unwrap();
    let (out, err) = (output.stdout, String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{err}");
    let report: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(report["found"]["checked"], 2000, "{report}");
    assert_eq!((&report["found"]["lost"], &report["found"]["wrong"]), (&0.into(), &0.into()));
    assert_eq!(report["came_back"], true);
    let at = |name: &str| report[name].as_f64().unwrap();
    assert!(at("detected_s") <= at("last_readable_s"), "{report}");
    assert!(at("first_readable_s") <= at("last_readable_s"), "{report}");
    assert!(report["writes_acknowledged"].as_u64().unwrap() > 0);
    assert!(err.contains("is killed"), "{err}");
    assert!(place.is_empty());
    assert_eq!(place.processes(), 0);
}

#[test]
fn a_demo_that_is_asked_to_end_leaves_nothing() {
    let place = Place::new("asked");
    let mut child = place.demo(&[]);
    let mut said = until_up(&mut child);
    assert_eq!(place.processes(), 4);
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let mut rest = String::new();
    let _ = said.read_to_string(&mut rest);
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest}");
    assert_eq!(place.processes(), 0);
    assert!(place.is_empty());
}

#[test]
fn no_process_survives_the_demo() {
    let place = Place::new("orphans");
    let mut child = place.demo(&[]);
    let _said = until_up(&mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    let began = std::time::Instant::now();
    while place.processes() > 0 {
        assert!(began.elapsed().as_secs() < 60, "a process goes on");
        std::thread::yield_now();
    }
}

#[test]
fn bad_arguments_are_refused() {
    let place = Place::new("refused");
    for more in [&["--replicas", "3"][..], &["--value-bytes", "8"], &["--value-bytes", "0"]] {
        let output = place.demo(more).wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{more:?}");
    }
    assert!(place.is_empty());
}
