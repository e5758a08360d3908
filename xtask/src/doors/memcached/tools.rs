//! Programs that speak to a server for memcached's clients: a check of libmemcached, and the tests
//! of the client pymemcache.

use crate::doors::python;
use crate::scratch::{Running, Scratch};
use crate::steps::{execute, target};
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader};
use std::path::{Path, absolute};
use std::process::{Command, Stdio};

/// The client, and the tool that runs its tests.
const PACKAGES: [&str; 2] = ["pymemcache==4.0.0", "pytest>=8"];

/// Tests of the client that do not run: `cache_memlimit` is refused.
const REFUSED: [&str; 1] = ["test_misc"];

/// The least number of its tests that pass. They run with several kinds of clients.
const LEAST_PASSED: u32 = 90;

/// A server, and the port that it chose.
struct Server {
    _process: Running,
    port: String,
}

impl Server {
    fn start(thunderhead: &Path) -> Result<Server> {
        let mut command = Command::new(thunderhead);
        command.args(["--json", "memcached", "-p", "0"]).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = Running::start(command, "thunderhead memcached")?;
        let out = process.0.stdout.take().context("take the output of the server")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).context("read the address of the server")?;
        let ready: serde_json::Value =
            serde_json::from_str(&line).with_context(|| format!("the server says: {line}"))?;
        let listens = ready["listens"][0].as_str().unwrap_or_default();
        let port = listens.rsplit(':').next().unwrap_or_default().to_owned();
        ensure!(!port.is_empty(), "the server does not say where it listens: {line}");
        Ok(Server { _process: process, port })
    }
}

/// Runs libmemcached's check of the text protocol.
pub(super) fn memccapable(thunderhead: &Path) -> Result<()> {
    let server = Server::start(thunderhead)?;
    let mut check = Command::new("memccapable");
    check.args(["-h", "127.0.0.1", "-p", &server.port, "-a"]).stdout(Stdio::null());
    execute(check).context("run it by hand to see the results")?;
    println!("{:22} all good", "memccapable -a");
    Ok(())
}

/// Runs the integration tests of pymemcache, which its package holds.
pub(super) fn pymemcache(scratch: &Scratch, thunderhead: &Path) -> Result<()> {
    let environment = absolute(target().join("doors/python")).context("find the builds")?;
    python::install(&environment, &PACKAGES, "pytest")?;
    let server = Server::start(thunderhead)?;
    let python = environment.join("bin/python");
    let place = "import pymemcache.test; print(pymemcache.test.__path__[0])";
    let place = Command::new(&python).args(["-c", place]).output().context("find its tests")?;
    let place = String::from_utf8_lossy(&place.stdout).trim().to_owned();
    let left_out: Vec<String> = REFUSED.iter().map(|name| format!("not {name}")).collect();
    let mut tests = Command::new(&python);
    tests.args(["-m", "pytest", "--quiet", "-p", "no:cacheprovider", "--disable-warnings"]);
    tests.args(["--server", "127.0.0.1", "--port", &server.port, "-m", "integration"]);
    tests.args(["-k", &left_out.join(" and "), "--rootdir"]).arg(scratch.directory());
    tests.arg(format!("{place}/test_integration.py")).current_dir(scratch.directory());
    let output = tests.stdin(Stdio::null()).output().context("run pytest")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("tests of pymemcache fail:\n{text}{}", String::from_utf8_lossy(&output.stderr));
    }
    let passed = passed(&text).context("pytest does not say how many tests passed")?;
    ensure!(passed >= LEAST_PASSED, "only {passed} tests of pymemcache ran");
    println!("{:22} {passed:6} good", "pymemcache");
    Ok(())
}

/// Returns the number in `94 passed`.
fn passed(text: &str) -> Option<u32> {
    let words: Vec<&str> = text.split([' ', '\n', ',']).collect();
    let at = words.iter().rposition(|word| *word == "passed")?;
    words.get(at.checked_sub(1)?)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_passed_tests_is_read_from_the_last_line() {
        assert_eq!(passed("..s.\n94 passed, 3 skipped in 2.32s\n"), Some(94));
        assert_eq!(passed("1 failed, 7 passed in 1s"), Some(7));
        assert_eq!(passed("passed"), None);
        assert_eq!(passed("no tests ran"), None);
    }
}
