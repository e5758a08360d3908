//! memcached's own tests, from Debian's source package.

use super::files::{self, Expected, FILES, File};
use super::tap::Results;
use crate::doors::sources::Source;
use crate::scratch::{Running, Scratch};
use crate::steps::execute;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The version, for which the table of files is, and its sources.
const VERSION: &str = "1.6.18";
const SOURCE: Source =
    Source { debian: "bookworm", package: "memcached", file: "memcached_1.6.18.orig.tar.xz" };

/// The programs that the tests start, beside their directory.
const PROGRAMS: [(&str, &str); 2] =
    [("memcached-debug", include_str!("memcached-debug")), ("timedrun", include_str!("timedrun"))];

/// The module that all files use.
const MODULE: &str = "t/lib/MemcachedTest.pm";

/// Changes of that module: the text that is replaced, and its replacement.
const CHANGES: [(&str, &str); 3] = [
    // The clock of Thunderhead cannot be moved. The tests move it by a few seconds.
    (
        "print $sock \"debugtime $move\\r\\n\";\n    <$sock>;",
        "select(undef, undef, undef, $move + 0.1);",
    ),
    // These make each start of a server take a second or two.
    (
        "for (1..20) {\n            sleep 1;",
        "for (1..400) {\n            select(undef, undef, undef, 0.05);",
    ),
    ("unless is_running($childpid);\n                sleep 1;", "unless is_running($childpid);"),
];

/// Files that run at once. They mostly wait.
const AT_ONCE: usize = 4;

/// How long a file may take.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

/// Runs all files that have expected results. `thunderhead` is the program.
pub(super) fn run(scratch: &Scratch, thunderhead: &Path) -> Result<()> {
    let sources = prepare(scratch)?;
    let mut names = Vec::new();
    for entry in fs::read_dir(sources.join("t")).context("list the tests")? {
        let path = entry.context("list the tests")?.path();
        if path.extension().is_some_and(|it| it == "t") {
            names.extend(path.file_stem().map(|it| it.to_string_lossy().into_owned()));
        }
    }
    files::check_names(&names)?;
    let is_run = |file: &&File| !matches!(file.expected, Expected::Skipped(_));
    let (files, skipped): (Vec<&File>, Vec<&File>) = FILES.iter().partition(is_run);
    for file in skipped {
        println!("{:22} skipped: {}", file.name, file.expected.reason().unwrap_or_default());
    }
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let began = Instant::now();
                    let outcome = run_file(file, &sources, scratch, thunderhead);
                    let took = began.elapsed().as_secs_f64();
                    match outcome {
                        Ok(count) => {
                            let reason = file.expected.reason();
                            let but = reason.map_or(String::new(), |it| format!(", but: {it}"));
                            println!("{:22} {count:6} good {took:5.1} s{but}", file.name);
                        }
                        Err(error) => {
                            println!("{:22} FAILED: {error:#}", file.name);
                            failed.lock().unwrap_or_else(PoisonError::into_inner).push(file.name);
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    ensure!(failed.is_empty(), "files of memcached's tests fail: {}", failed.join(", "));
    Ok(())
}

/// Unpacks the sources, puts our programs there, and returns their directory.
fn prepare(scratch: &Scratch) -> Result<PathBuf> {
    let archive = archive()?;
    let mut unpack = Command::new("tar");
    unpack.arg("-xJf").arg(&archive).arg("-C").arg(scratch.directory());
    execute(unpack)?;
    let sources = scratch.path(&format!("memcached-{VERSION}"));
    for (name, text) in PROGRAMS {
        let path = sources.join(name);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .context("make it a program")?;
    }
    let module = sources.join(MODULE);
    let mut text = fs::read_to_string(&module).with_context(|| format!("read {MODULE}"))?;
    for (old, new) in CHANGES {
        ensure!(text.matches(old).count() == 1, "{MODULE} does not have once: {old}");
        text = text.replace(old, new);
    }
    fs::write(&module, text).with_context(|| format!("write {MODULE}"))?;
    Ok(sources)
}

/// Returns the path of the sources.
fn archive() -> Result<PathBuf> {
    let fetched = SOURCE.fetch()?;
    fetched.with_context(|| {
        format!(
            "Debian's memcached is not {VERSION} any more: look at its tests, and correct files.rs"
        )
    })
}

/// Runs a file, checks its results and returns how many were good.
fn run_file(file: &File, sources: &Path, scratch: &Scratch, thunderhead: &Path) -> Result<usize> {
    let (out, err) = (scratch.path(&format!("{}.out", file.name)), scratch.path("errors"));
    let create = |path: &Path| fs::File::options().create(true).append(true).open(path);
    let mut perl = Command::new("perl");
    perl.arg(format!("t/{}.t", file.name)).current_dir(sources).env("THUNDERHEAD", thunderhead);
    perl.stdin(Stdio::null()).stdout(create(&out).context("write the output")?);
    perl.stderr(create(&err).context("write the errors")?);
    let mut running = Running::start(perl, "perl")?;
    let began = Instant::now();
    // The results decide, not the status.
    while running.0.try_wait().context("wait for perl")?.is_none() {
        if began.elapsed() > PATIENCE {
            bail!("it has not ended after {} s", PATIENCE.as_secs());
        }
        std::thread::sleep(LOOK);
    }
    let text = fs::read(&out).context("read the output")?;
    let results = Results::of(&String::from_utf8_lossy(&text));
    file.expected.check(&results)?;
    Ok(results.good.len())
}
