//! The execution of Redis's own tests.

use super::files::{self, File, Version};
use super::report::Report;
use crate::doors::redis_server::Server;
use crate::doors::sources::Source;
use crate::scratch::{Running, Scratch};
use crate::steps::execute;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The versions that the table of files is for, with their sources. Debian may replace a version by
/// a newer one: then the next one is used.
const SOURCES: [(Version, &str, Source); 2] = [
    (
        Version::New,
        "8.6.3",
        Source { debian: "experimental", package: "redis", file: "redis_8.6.3.orig.tar.gz" },
    ),
    (
        Version::Stable,
        "8.0.2",
        Source { debian: "trixie", package: "redis", file: "redis_8.0.2.orig.tar.gz" },
    ),
];

/// The properties of tests that Thunderhead cannot have: see docs/redis.md.
const TAGS: &str = "-needs:debug -needs:repl -needs:save -needs:pfdebug -needs:config-maxmemory";

/// Files that run at once. They mostly wait.
const AT_ONCE: usize = 4;

/// How long a file may take, and how long one of its tests may take. On a busy machine, some tests
/// with random numbers take more than a minute.
const PATIENCE: Duration = Duration::from_secs(600);
const SILENCE_SECONDS: &str = "300";
const LOOK: Duration = Duration::from_millis(20);

/// The ports that a file may try for its own communication.
const PORTS: u16 = 32;

/// See the module's documentation.
pub(super) struct Suite<'a> {
    scratch: &'a Scratch,
    thunderhead: &'a Path,
    sources: PathBuf,
    version: Version,
}

impl Suite<'_> {
    /// Fetches and unpacks the tests.
    pub(super) fn new<'a>(scratch: &'a Scratch, thunderhead: &'a Path) -> Result<Suite<'a>> {
        for (version, number, source) in SOURCES {
            let Some(archive) = source.fetch()? else {
                println!("{} has not Redis {number} any more", source.debian);
                continue;
            };
            let mut unpack = Command::new("tar");
            unpack.arg("-xzf").arg(&archive).arg("-C").arg(scratch.directory());
            execute(unpack)?;
            let sources = scratch.path(&format!("redis-{number}"));
            println!("the tests of Redis {number}");
            return Ok(Suite { scratch, thunderhead, sources, version });
        }
        bail!("Debian has other versions of Redis now: look at their tests, and correct files.rs")
    }

    /// Checks that each file of the suite has a line in the table, and each line a file.
    pub(super) fn check_names(&self) -> Result<()> {
        let mut names = Vec::new();
        for directory in ["", "type/"] {
            let path = self.sources.join("tests/unit").join(directory);
            for entry in fs::read_dir(path).context("list the tests")? {
                let path = entry.context("list the tests")?.path();
                if path.extension().is_some_and(|it| it == "tcl") {
                    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
                    names.push(format!("{directory}{stem}"));
                }
            }
        }
        files::check_names(&names, self.version)
    }

    /// Runs files. `keeps` says whether their servers keep data.
    pub(super) fn run(&self, files: &[&File], keeps: bool) -> Result<()> {
        let began = Instant::now();
        let mut runs: Vec<&File> = files.iter().filter(|it| it.is_run()).copied().collect();
        for file in files.iter().filter(|it| !it.is_run()) {
            println!("{:24} not run: {}", file.name, file.reasons());
        }
        // The longest first.
        runs.sort_by_key(|file| std::cmp::Reverse(file.seconds));
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let totals = Mutex::new((0, 0, 0));
        std::thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    while let Some(file) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let began = Instant::now();
                        let outcome = self.run_twice(file, keeps);
                        let took = began.elapsed().as_secs_f64();
                        let name = file.name;
                        match outcome {
                            Ok(report) => {
                                let good = report.good;
                                let mut totals =
                                    totals.lock().unwrap_or_else(PoisonError::into_inner);
                                totals.0 += good;
                                totals.1 += report.skipped();
                                totals.2 += report.excluded;
                                let but = match file.reasons() {
                                    reasons if reasons.is_empty() => reasons,
                                    reasons => format!(", but {}: {reasons}", report.skipped()),
                                };
                                println!("{name:24} {good:4} good {took:5.1} s{but}");
                            }
                            Err(error) => {
                                println!("{name:24} FAILED: {error:#}");
                                failed.lock().unwrap_or_else(PoisonError::into_inner).push(name);
                            }
                        }
                    }
                });
            }
        });
        let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        ensure!(failed.is_empty(), "files of Redis's tests fail: {}", failed.join(", "));
        let (good, skipped, excluded) = totals.into_inner().unwrap_or_else(PoisonError::into_inner);
        println!(
            "{} files: {good} tests pass, {skipped} are skipped by the table, {excluded} parts are \
             excluded by their tags, {:.1} s",
            runs.len(),
            began.elapsed().as_secs_f64()
        );
        Ok(())
    }

    /// Runs a file, and a second time if it fails: some tests have deadlines, which a busy machine
    /// misses.
    fn run_twice(&self, file: &File, keeps: bool) -> Result<Report> {
        self.run_file(file, keeps, 1).or_else(|error| {
            println!("{:24} is run again: {error:#}", file.name);
            self.run_file(file, keeps, 2)
        })
    }

    /// Runs a file with a server of its own, and checks its results.
    fn run_file(&self, file: &File, keeps: bool, attempt: u32) -> Result<Report> {
        let name = format!("{}-{keeps}-{attempt}", file.name.replace('/', "-"));
        let data = keeps.then(|| self.scratch.path(&format!("{name}.data")));
        let mut server = Server::new(self.thunderhead.to_owned(), "1gb", data.clone());
        server.start()?;
        let skipped = self.scratch.path(&format!("{name}.skipped"));
        fs::write(&skipped, file.patterns().join("\n")).context("write the skipped tests")?;
        let output = self.scratch.path(&format!("{name}.output"));
        let mut tcl = Command::new("tclsh");
        tcl.arg("tests/test_helper.tcl").args(["--host", "127.0.0.1", "--port", &server.port]);
        tcl.args(["--single", &format!("unit/{}", file.name), "--skipfile"]).arg(&skipped);
        tcl.args(["--baseport", &(free_port()? + PORTS).to_string(), "--durable"]);
        tcl.args(["--ignore-encoding", "--ignore-digest", "--dont-clean", "--dont-pre-clean"]);
        tcl.args(["--timeout", SILENCE_SECONDS, "--tags", TAGS]);
        tcl.current_dir(&self.sources).stdin(Stdio::null()).env("TERM", "dumb");
        let file_of = |path: &Path| fs::File::options().create(true).append(true).open(path);
        tcl.stdout(file_of(&output).context("write the output")?);
        tcl.stderr(file_of(&output).context("write the output")?);
        let mut running = Running::start(tcl, "tclsh")?;
        let began = Instant::now();
        // The output decides, not the status.
        while running.0.try_wait().context("wait for tclsh")?.is_none() {
            server.check_running()?;
            ensure!(began.elapsed() < PATIENCE, "no end after {} s", PATIENCE.as_secs());
            std::thread::sleep(LOOK);
        }
        server.check_running()?;
        drop(server);
        if let Some(data) = data {
            fs::remove_dir_all(data).context("remove the data")?;
        }
        let text = fs::read(&output).context("read the output")?;
        let report = Report::of(&String::from_utf8_lossy(&text));
        // Tests of a newer version need not exist in an older one.
        let patterns = if self.version == Version::New { file.patterns() } else { Vec::new() };
        report.check(file.good(self.version), &patterns)?;
        Ok(report)
    }
}

/// Returns a port that is free, with some behind it.
fn free_port() -> Result<u16> {
    loop {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("find a free port")?;
        let port = listener.local_addr().context("find a free port")?.port();
        if port < u16::MAX - 2 * PORTS {
            return Ok(port);
        }
    }
}
