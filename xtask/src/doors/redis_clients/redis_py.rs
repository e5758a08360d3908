//! The tests of redis-py, from its source package.

use super::Server;
use super::results::{
    self, Counts, Exception, File, Kind, Outcome, Results, check_files, fails, skipped,
};
use crate::doors::python;
use crate::scratch::Scratch;
use crate::steps::{Extent, execute, target};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf, absolute};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The version of redis-py. The lists of files and exceptions are for this version.
const VERSION: &str = "8.1.0";

/// The tools that run its tests.
const PACKAGES: [&str; 5] = [
    "mock==5.2.0",
    "packaging>=24",
    "pytest==9.2.0",
    "pytest-asyncio==1.5.0",
    "pytest-timeout==2.4.0",
];

/// The file that all tests use, and the change of it. The server says that it is an older Redis
/// than its commands, so that clients use no command that it does not have. The tests are to be
/// those for the version of the commands.
const SHARED: &str = "tests/conftest.py";
const CHANGE: (&str, &str) = ("version = info[\"redis_version\"]", "version = \"8.2.3\"");

/// The marks of tests that need another server.
const MARKS: &str = "not onlycluster and not redismod and not ssl and not replica and not \
                     cp_integration and not multidb_integration";

/// The directories with files of tests.
const SYNC: &str = "tests";
const ASYNC: &str = "tests/test_asyncio";

/// The most failures that are repeated.
const REPEATED_MAX: usize = 10;

/// Seconds that a test may take.
const PATIENCE: &str = "30";

const CLIENT: &str = "it tests the client alone";
const CLUSTER: &str = "this is no cluster";
const MODULE: &str = "there are no modules";
const IDENTITY: &str = "it needs a package for identities in a cloud";
const NEWER: &str = "its commands are of a newer Redis";
const PORT: &str = "it uses port 6379";
const SENTINEL: &str = "there is no Sentinel";
const TLS: &str = "there is no TLS";
const VECTORS: &str = "there are no vector sets";

/// The files with tests, in `tests` and `tests/test_asyncio`.
const FILES: [File; 78] = [
    ("asyncio/test_bloom", Some(MODULE)),
    ("asyncio/test_client", Some(CLIENT)),
    ("asyncio/test_cluster", Some(CLUSTER)),
    ("asyncio/test_cluster_transaction", Some(CLUSTER)),
    ("asyncio/test_command_parser", None),
    ("asyncio/test_command_policies", Some(CLIENT)),
    ("asyncio/test_commands", None),
    ("asyncio/test_connect", None),
    ("asyncio/test_connection", None),
    ("asyncio/test_connection_pool", None),
    ("asyncio/test_credentials", Some(IDENTITY)),
    ("asyncio/test_cwe_404", None),
    ("asyncio/test_encoding", None),
    ("asyncio/test_hash", None),
    ("asyncio/test_himport_integration", Some(NEWER)),
    ("asyncio/test_json", Some(MODULE)),
    ("asyncio/test_keyspace_notifications", None),
    ("asyncio/test_lock", None),
    ("asyncio/test_monitor", None),
    ("asyncio/test_pipeline", None),
    ("asyncio/test_pubsub", None),
    ("asyncio/test_retry", None),
    ("asyncio/test_scripting", None),
    ("asyncio/test_search", Some(MODULE)),
    ("asyncio/test_sentinel", Some(SENTINEL)),
    ("asyncio/test_sentinel_managed_connection", Some(SENTINEL)),
    ("asyncio/test_ssl", Some(TLS)),
    ("asyncio/test_timeseries", Some(MODULE)),
    ("asyncio/test_usage_counter", Some(CLIENT)),
    ("asyncio/test_utils", Some(CLIENT)),
    ("asyncio/test_vsets", Some(VECTORS)),
    ("test_background", Some(CLIENT)),
    ("test_backoff", Some(CLIENT)),
    ("test_bloom", Some(MODULE)),
    ("test_cache", None),
    ("test_client", Some(CLIENT)),
    ("test_cluster", Some(CLUSTER)),
    ("test_cluster_transaction", Some(CLUSTER)),
    ("test_command_parser", None),
    ("test_command_policies", Some(CLIENT)),
    ("test_commands", None),
    ("test_connect", None),
    ("test_connection", None),
    ("test_connection_pool", None),
    ("test_crc", Some(CLIENT)),
    ("test_credentials", Some(IDENTITY)),
    ("test_data_structure", Some(CLIENT)),
    ("test_defaults", Some(CLIENT)),
    ("test_driver_info", Some(CLIENT)),
    ("test_encoding", None),
    ("test_event", Some(CLIENT)),
    ("test_exceptions", Some(CLIENT)),
    ("test_function", None),
    ("test_hash", None),
    ("test_helpers", Some(CLIENT)),
    ("test_himport", Some(CLIENT)),
    ("test_himport_integration", Some(NEWER)),
    ("test_json", Some(MODULE)),
    ("test_keyspace_notifications", None),
    ("test_legacy_responses_arg", Some(CLIENT)),
    ("test_lock", None),
    ("test_max_connections_error", None),
    ("test_monitor", None),
    ("test_multiprocessing", None),
    ("test_pipeline", None),
    ("test_pubsub", None),
    ("test_retry", None),
    ("test_scripting", None),
    ("test_search", Some(MODULE)),
    ("test_search_aggregation", Some(MODULE)),
    ("test_search_querystring", Some(MODULE)),
    ("test_search_result", Some(MODULE)),
    ("test_sentinel", Some(SENTINEL)),
    ("test_sentinel_managed_connection", Some(SENTINEL)),
    ("test_ssl", Some(TLS)),
    ("test_timeseries", Some(MODULE)),
    ("test_utils", Some(CLIENT)),
    ("test_vsets", Some(VECTORS)),
];

/// The exceptions. Their names are without the directory and the parameters.
const EXCEPTIONS: &[Exception] = &[
    skipped("test_pubsub.py::TestPubSubAutoReconnect", "it fails now and then, with Redis too"),
    fails("test_commands.py::TestRedisCommands::test_client_setinfo", PORT),
    fails("test_commands.py::TestRedisCommands::test_client_setinfo_with_driver_info", PORT),
    fails(
        "test_commands.py::TestRedisCommands::test_config_set_multi_params",
        "maxmemory is an option of the server",
    ),
    fails("test_connection.py::TestConnection::test_connect_with_retries", PORT),
    fails("test_connection.py::test_connect_with_retries", PORT),
    fails("test_connection.py::TestConnection::test_retry_connect_on_timeout_error", PORT),
    fails("test_connection.py::test_create_single_connection_client_from_url", PORT),
    fails("test_connection_pool.py::TestConnectionPool::test_max_connections", PORT),
    fails("test_connection_pool.py::TestConnectionPool::test_multiple_connections", PORT),
    fails(
        "test_connection_pool.py::TestConnectionPool::test_reuse_previously_released_connection",
        PORT,
    ),
    skipped("test_cache.py::TestSentinelCache", SENTINEL),
    skipped("test_cache.py::TestSSLCache", TLS),
];

/// A run of the tests: the directory, and the version of the protocol, if it is not the client's
/// own choice.
struct Run {
    name: &'static str,
    directory: &'static str,
    protocol: Option<&'static str>,
}

const RUNS: [Run; 3] = [
    Run { name: "RESP3", directory: SYNC, protocol: None },
    Run { name: "RESP2", directory: SYNC, protocol: Some("2") },
    Run { name: "asyncio", directory: ASYNC, protocol: None },
];

/// Runs the tests: with the usual protocol, or also with the other protocol and with `asyncio`.
pub(super) fn check(thunderhead: &Path, extent: Extent) -> Result<()> {
    let environment = absolute(target().join("doors/redis-py")).context("find the builds")?;
    python::install(&environment, &PACKAGES, "pytest")?;
    let scratch = Scratch::new("redis-py")?;
    let sources = prepare(&scratch, &environment)?;
    for directory in [SYNC, ASYNC] {
        check_files(&lines_of(directory), &files_in(&sources.join(directory))?, "redis_py.rs")?;
    }
    let place = Place { python: environment.join("bin/python"), sources };
    let runs = if extent == Extent::Whole { &RUNS[..] } else { &RUNS[..1] };
    results::print_reasons("redis-py", &FILES, EXCEPTIONS);
    let mut all = Results::new();
    for run in runs {
        let began = Instant::now();
        let results = place.run(run, thunderhead)?;
        let Counts { good, bad, skipped } = results::count(&results);
        println!(
            "{:22} {good:6} good {:5.1} s, {skipped} skip themselves, {bad} fail",
            format!("redis-py {}", run.name),
            began.elapsed().as_secs_f64()
        );
        for (name, outcomes) in results {
            all.entry(name).or_default().extend(outcomes);
        }
    }
    results::check(&all, EXCEPTIONS, "::", extent != Extent::Whole)
}

/// The lines for the files of a directory.
fn lines_of(directory: &str) -> Vec<File> {
    let own = FILES.iter().filter(|(name, _)| name.starts_with("asyncio/") == (directory == ASYNC));
    own.map(|(name, reason)| (name.trim_start_matches("asyncio/"), *reason)).collect()
}

/// Returns the names of the files with tests in a directory.
fn files_in(directory: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(directory).context("list the tests")? {
        let path = entry.context("list the tests")?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.extension().is_some_and(|it| it == "py") && name.starts_with("test_") {
            names.insert(name);
        }
    }
    Ok(names)
}

/// Unpacks the sources, changes them, and returns their directory.
fn prepare(scratch: &Scratch, environment: &Path) -> Result<PathBuf> {
    let directory = absolute(target().join("doors/sources")).context("find the builds")?;
    let archive = directory.join(format!("redis-{VERSION}.tar.gz"));
    if !archive.exists() {
        println!("fetching the sources of redis-py");
        let mut pip = Command::new(environment.join("bin/python"));
        pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]);
        pip.args(["--no-binary", ":all:", "--dest"]).arg(&directory);
        pip.arg(format!("redis=={VERSION}"));
        execute(pip).context("fetch the sources of redis-py")?;
    }
    let mut unpack = Command::new("tar");
    unpack.arg("-xzf").arg(&archive).arg("-C").arg(scratch.directory());
    execute(unpack)?;
    let sources = scratch.path(&format!("redis-{VERSION}"));
    let shared = sources.join(SHARED);
    let text = fs::read_to_string(&shared).with_context(|| format!("read {SHARED}"))?;
    let (old, new) = CHANGE;
    ensure!(text.matches(old).count() == 1, "{SHARED} does not have once: {old}");
    fs::write(&shared, text.replace(old, new)).with_context(|| format!("write {SHARED}"))?;
    Ok(sources)
}

/// The paths of the programs.
struct Place {
    python: PathBuf,
    sources: PathBuf,
}

impl Place {
    /// Runs tests on a server of their own. Repeats a few that fail without an exception.
    fn run(&self, run: &Run, thunderhead: &Path) -> Result<Results> {
        let server = super::start(thunderhead)?;
        let is_run = |file: &&File| file.1.is_none();
        let files = lines_of(run.directory);
        let paths = files.iter().filter(is_run);
        let paths: Vec<String> =
            paths.map(|(name, _)| format!("{}/{name}.py", run.directory)).collect();
        let (mut results, ids) = self.pytest(run, &server, &paths)?;
        let failed: BTreeSet<String> = results::unexpected(&results, EXCEPTIONS, "::")
            .into_iter()
            .map(|(name, _)| name.to_owned())
            .collect();
        if (1..=REPEATED_MAX).contains(&failed.len()) {
            let again: Vec<String> =
                failed.iter().flat_map(|name| ids.get(name).cloned().unwrap_or_default()).collect();
            println!("redis-py {}: repeating {}", run.name, again.join(", "));
            results.extend(self.pytest(run, &server, &again)?.0);
        }
        Ok(results)
    }

    /// Runs pytest on files or tests. Returns the results, and the places of the tests by name.
    fn pytest(
        &self,
        run: &Run,
        server: &Server,
        tests: &[String],
    ) -> Result<(Results, BTreeMap<String, Vec<String>>)> {
        let mut command = Command::new(&self.python);
        command.args(["-m", "pytest", "--quiet", "--disable-warnings"]);
        command.args(["-rA", "--tb=no", "--timeout", PATIENCE, "--timeout-method=signal"]);
        command.args(["-m", MARKS, "--redis-url"]);
        command.arg(format!("redis://127.0.0.1:{}/0", server.port));
        command.args(run.protocol.iter().flat_map(|version| ["--protocol", version]));
        for exception in EXCEPTIONS.iter().filter(|it| it.kind == Kind::Skipped) {
            command.arg(format!("--deselect={}/{}", run.directory, exception.name));
        }
        command.args(tests).current_dir(&self.sources).stdin(Stdio::null());
        // The width of a line, so that reasons are not cut.
        let output = command.env("COLUMNS", "400").output().context("run pytest")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let read = read(&text);
        // The status 1 means that tests have failed.
        ensure!(
            !read.0.is_empty() && matches!(output.status.code(), Some(0 | 1)),
            "pytest ended early:\n{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(read)
    }
}

/// Reads the summary of pytest: a line for each test. Returns the results, and the places of the
/// tests by name.
fn read(text: &str) -> (Results, BTreeMap<String, Vec<String>>) {
    let (mut results, mut places) = (Results::new(), BTreeMap::<_, Vec<String>>::new());
    for line in text.lines() {
        let Some((word, rest)) = line.split_once(' ') else { continue };
        let (id, reason) = rest.split_once(" - ").unwrap_or((rest, ""));
        let outcome = match word {
            "PASSED" | "XPASS" => Outcome::Good,
            "FAILED" | "ERROR" => Outcome::Bad(reason.to_owned()),
            "XFAIL" => Outcome::Skipped,
            "SKIPPED" => {
                // Skipped tests are counted by place: `[2] tests/test_lock.py:12: the reason`.
                let count = rest.strip_prefix('[').and_then(|it| it.split_once(']'));
                if let Some((count, rest)) = count
                    && let Ok(count) = count.parse::<usize>()
                {
                    let outcomes = results.entry(format!("skipped at{rest}")).or_default();
                    outcomes.extend(std::iter::repeat_n(Outcome::Skipped, count.min(10_000)));
                }
                continue;
            }
            _ => continue,
        };
        if !id.contains("::") {
            continue;
        }
        let place = id.split('[').next().unwrap_or_default();
        let name = place.trim_start_matches("tests/").trim_start_matches("test_asyncio/");
        results.entry(name.to_owned()).or_default().push(outcome);
        let own = places.entry(name.to_owned()).or_default();
        if !own.iter().any(|it| it == place) {
            own.push(place.to_owned());
        }
    }
    (results, places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_of_pytest_is_read() {
        let text = "..F\nPASSED tests/test_a.py::T::x[one two]\nPASSED tests/test_a.py::T::x[b]\n\
                    FAILED tests/test_asyncio/test_a.py::y[pool] - Error: why - so\n\
                    ERROR tests/test_a.py::z\nSKIPPED [2] tests/test_a.py:1: no\n\
                    ERROR in the log\n1 failed, 2 passed";
        let (results, places) = read(text);
        let bad = |text: &str| Outcome::Bad(text.to_owned());
        assert_eq!(results["test_a.py::T::x"], [Outcome::Good, Outcome::Good]);
        assert_eq!(results["test_a.py::y"], [bad("Error: why - so")]);
        assert_eq!(results["test_a.py::z"], [bad("")]);
        assert_eq!(
            results["skipped at tests/test_a.py:1: no"],
            [Outcome::Skipped, Outcome::Skipped]
        );
        assert_eq!(results.len(), 4);
        assert_eq!(places["test_a.py::y"], ["tests/test_asyncio/test_a.py::y"]);
    }

    #[test]
    fn files_are_listed_once_and_in_order() {
        assert!(FILES.is_sorted_by(|one, next| one.0 < next.0));
    }
}
