//! `thunderhead-bench door` on a small scale. It starts the product, which `cargo test --workspace`
//! builds too. Alone, this test needs `cargo build --package thunderhead`.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thunderhead-bench"));
    command.args(["door"]).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// A server that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn all_rows_are_measured_on_the_door_for_redis_clients() {
    let program = Path::new(env!("CARGO_BIN_EXE_thunderhead-bench")).with_file_name("thunderhead");
    let mut command = Command::new(program);
    command.args(["redis", "--port", "0", "--maxmemory", "256mb"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = Server(command.spawn().unwrap());
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let address = lines.find_map(|line| {
        let line = line.unwrap();
        line.split_whitespace().find(|word| word.starts_with("127.0.0.1:")).map(str::to_owned)
    });
    let named = format!("ours={}", address.unwrap().trim_end_matches(':'));
    let output =
        bench(&["beside", "--server", &named, "--rounds", "1", "--seconds", "0.01", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 17);
    let output = bench(&["beside", "--server", "nowhere"]);
    assert!(!output.status.success());
}

#[test]
fn the_doors_are_measured_beside_the_native_protocol() {
    let output = bench(&["native", "--rounds", "1", "--seconds", "0.01", "--json"]);
    // The figures do not matter here.
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 10, "{said}");
}
