//! Programs of other authors that keep jobs, sessions and locks in Redis, on `thunderhead redis`,
//! whose process is killed while they work.
//!
//! Each is a short program beside this file, which begins its jobs or sessions one after the other.
//! A call that was not acknowledged is repeated. No acknowledged job may be lost or stuck.
//! docs/testing/applications.md lists the programs.

use super::python;
use super::redis_server::Server;
use crate::scratch::{Running, Scratch};
use crate::steps::{Extent, execute, install, program, target};
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The programs, as command-line arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The names of applications; all when none is given.
    names: Vec<String>,
    /// The number of jobs or sessions of each.
    #[arg(long, default_value_t = 1000)]
    count: u32,
    /// How often the server is killed.
    #[arg(long, default_value_t = 2)]
    kills: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Language {
    Java,
    Node,
    Python,
    Ruby,
}

struct Application {
    name: &'static str,
    file: &'static str,
    language: Language,
}

const fn application(name: &'static str, file: &'static str, language: Language) -> Application {
    Application { name, file, language }
}

const APPLICATIONS: [Application; 9] = [
    application("bullmq", "bullmq_jobs.mjs", Language::Node),
    application("celery", "celery_jobs.py", Language::Python),
    application("connect-redis", "connect_sessions.mjs", Language::Node),
    application("django-redis", "django_sessions.py", Language::Python),
    application("redisson", "RedissonLocks", Language::Java),
    application("redlock", "locks.mjs", Language::Node),
    application("rq", "rq_jobs.py", Language::Python),
    application("sidekiq", "sidekiq_jobs.rb", Language::Ruby),
    application("spring-session", "SpringSessions", Language::Java),
];

/// The packages for pip.
const PYTHON: [&str; 4] =
    ["celery[redis]==5.7.0", "django-redis==7.0.0", "django==5.2.19", "rq==3.0.0"];

/// The packages for npm.
const NODE: [&str; 7] = [
    "bullmq@6.7.0",
    "connect-redis@9.0.0",
    "express-session@1.19.0",
    "ioredis@6.0.0",
    "rate-limiter-flexible@11.4.0",
    "redis@6.3.1",
    "redlock@5.0.0-beta.2",
];

/// Runs applications, each with a server of its own.
pub(crate) fn applications(arguments: &Arguments) -> Result<()> {
    let is_known = |name: &&String| APPLICATIONS.iter().any(|it| it.name == **name);
    if let Some(name) = arguments.names.iter().find(|name| !is_known(name)) {
        let known: Vec<&str> = APPLICATIONS.iter().map(|it| it.name).collect();
        bail!("there is no application {name}; there are {}", known.join(", "));
    }
    crate::steps::build_programs()?;
    let thunderhead = program("thunderhead").canonicalize().context("find the program")?;
    let is_wanted = |it: &&Application| {
        arguments.names.is_empty() || arguments.names.iter().any(|name| it.name == name)
    };
    let place = Place::new()?;
    for application in APPLICATIONS.iter().filter(is_wanted) {
        run(application, &place, &thunderhead, arguments.count, arguments.kills)?;
    }
    Ok(())
}

/// Runs them as a part of the full test: all, or a sample.
pub(super) fn check(thunderhead: &Path, extent: Extent) -> Result<()> {
    let (names, count): (&[&str], _) = match extent {
        Extent::Whole => (&[], 1000),
        Extent::Sample => (&["celery", "bullmq"], 200),
    };
    let place = Place::new()?;
    let wanted = APPLICATIONS.iter().filter(|it| names.is_empty() || names.contains(&it.name));
    for application in wanted {
        run(application, &place, thunderhead, count, 2)?;
    }
    Ok(())
}

/// The directory with the programs and the packages that they use.
struct Place(PathBuf);

impl Place {
    fn new() -> Result<Place> {
        let to = std::path::absolute(target().join("doors/applications"))?;
        let from = Path::new("xtask/src/doors/applications");
        copy(from, &to)?;
        copy(&from.join("java"), &to.join("java"))?;
        Ok(Place(to))
    }

    /// Installs the packages of a language, once. Returns the program that runs it.
    fn prepare(&self, language: Language) -> Result<PathBuf> {
        let is_missing = |file: &str| !Path::new(file).exists();
        match language {
            Language::Python => {
                let environment = self.0.join("python");
                python::install(&environment, &PYTHON, "rq")?;
                Ok(environment.join("bin/python"))
            }
            Language::Node => {
                if is_missing("/usr/bin/npm")
                    && Command::new("npm").arg("--version").output().is_err()
                {
                    install(&["nodejs", "npm"])?;
                }
                if !self.0.join("node_modules/bullmq").exists() {
                    println!("installing {}", NODE.join(", "));
                    let mut npm = Command::new("npm");
                    npm.args(["install", "--no-save", "--silent", "--no-audit", "--no-fund"]);
                    npm.args(NODE).current_dir(&self.0);
                    execute(npm)?;
                }
                Ok("node".into())
            }
            Language::Java => {
                if is_missing("/usr/bin/mvn") {
                    install(&["default-jdk-headless", "maven"])?;
                }
                let project = self.0.join("java");
                println!("building the programs in Java");
                let mut maven = Command::new("mvn");
                maven.args(["--quiet", "--batch-mode", "package"]).current_dir(project);
                execute(maven)?;
                Ok("java".into())
            }
            Language::Ruby => {
                if is_missing("/usr/bin/sidekiq") {
                    install(&["ruby-sidekiq"])?;
                }
                Ok("/usr/bin/ruby".into())
            }
        }
    }
}

/// Copies the files of a directory.
fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("make {}", to.display()))?;
    for file in std::fs::read_dir(from).context("find the applications")? {
        let file = file?;
        if file.file_type()?.is_file() {
            std::fs::copy(file.path(), to.join(file.file_name())).context("copy a program")?;
        }
    }
    Ok(())
}

fn run(
    application: &Application,
    place: &Place,
    thunderhead: &Path,
    count: u32,
    kills: u32,
) -> Result<()> {
    let Application { name, file, language } = *application;
    let interpreter = place.prepare(language)?;
    let scratch = Scratch::new(name)?;
    let thunderhead = thunderhead.to_owned();
    let mut server = Server::new(thunderhead, "128mb", Some(scratch.path("data")));
    server.start()?;
    let mut command = Command::new(interpreter);
    if language == Language::Java {
        command.args(["-cp", "java/target/classes:java/target/dependency/*"]);
    }
    command.arg(file).args([&server.port, &count.to_string()]).arg(scratch.directory());
    command.current_dir(&place.0).stdin(Stdio::null()).stdout(Stdio::piped());
    let errors = scratch.path("errors");
    command.stderr(std::fs::File::create(&errors).context("make a file for its errors")?);
    let began = Instant::now();
    let mut process = Running::start(command, name)?;
    let output = process.0.stdout.take().context("take the output of the program")?;
    let (mut killed, mut latest) = (0, String::new());
    for line in BufReader::new(output).lines() {
        let line = line.context("read the output of the program")?;
        let progress = line.strip_prefix("begun ").or_else(|| line.strip_prefix("done "));
        let progress: Option<u32> = progress.and_then(|number| number.parse().ok());
        if killed < kills && progress.is_some_and(|it| it >= count * (killed + 1) / (kills + 1)) {
            server.kill_and_start()?;
            killed += 1;
        }
        latest = line;
    }
    let status = process.0.wait()?;
    if !status.success() {
        let text = std::fs::read(&errors).context("read its errors")?;
        let text = String::from_utf8_lossy(&text);
        bail!("{name} fails after {killed} kills; it says: {latest}\n{text}");
    }
    ensure!(killed == kills, "{name} ended before its server was killed {kills} times");
    println!("{name:22} {latest}; {killed} kills, {:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}
