//! Installs the built package of a client in an empty directory, with the ordinary installer of the
//! language, and runs the first example there. So a package that lacks a part is found, and so is a
//! page of the book with a wrong command.
//!
//! The package for C and C++ has such a test of its own: `clients/c/tests/install_test.sh`.

use crate::scratch::{Running, Scratch};
use crate::steps::{execute, program};
use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The crates that a program in Rust needs.
const CRATES: [&str; 5] = [
    "thunderhead-client",
    "thunderhead-net",
    "thunderhead-rpc",
    "thunderhead-runtime",
    "thunderhead-wire",
];

/// Packs the crates, and builds a program that depends on them.
pub(super) fn rust() -> Result<()> {
    let place = EmptyPlace::new("rust")?;
    let packed = place.path("packed");
    let mut pack = Command::new("cargo");
    pack.args(["package", "--quiet", "--no-verify", "--allow-dirty", "--target-dir"]).arg(&packed);
    pack.args(CRATES.iter().flat_map(|name| ["--package", name]));
    execute(pack)?;
    let mut manifest = String::from(
        "[package]\nname = \"hello\"\nedition = \"2024\"\n\n[dependencies]\n\
         thunderhead-client = \"0\"\n\n[patch.crates-io]\n",
    );
    for file in files_in(&packed.join("package"), "crate")? {
        place.run("tar", [OsStr::new("-xzf"), file.as_os_str()])?;
        let directory = file.file_stem().and_then(OsStr::to_str).context("a crate has a name")?;
        let (name, _) = directory.rsplit_once('-').context("a crate has a version")?;
        writeln!(manifest, "{name} = {{ path = \"{directory}\" }}")?;
    }
    std::fs::write(place.path("Cargo.toml"), manifest).context("write a manifest")?;
    let example = place.take_example("rust/hello.rs")?;
    std::fs::create_dir(place.path("src")).context("make a directory")?;
    std::fs::rename(example, place.path("src/main.rs")).context("move the example")?;
    place.says_hello("cargo", &[Path::new("run"), Path::new("--quiet")])
}

/// Packs the module and the module of its native part, and installs both with npm.
pub(super) fn node(sources: &Path) -> Result<()> {
    let place = EmptyPlace::new("node")?;
    let packed = place.path("packed");
    let pack = sources.join("scripts/pack.mjs");
    place.run("node", [pack.as_os_str(), packed.as_os_str()])?;
    let install = ["install", "--silent", "--no-audit", "--no-fund"].map(OsStr::new);
    let tarballs = files_in(&packed, "tgz")?;
    place.run("npm", install.into_iter().chain(tarballs.iter().map(|file| file.as_os_str())))?;
    let example = place.take_example("node/hello.mjs")?;
    place.says_hello("node", &[&example])
}

/// Builds a wheel, and installs it with pip in a new environment that has nothing else.
pub(super) fn python(sources: &Path, python: &Path) -> Result<()> {
    let place = EmptyPlace::new("python")?;
    let (wheels, environment) = (place.path("wheels"), place.path("environment"));
    let mut build = Command::new(python);
    build.args(["-m", "maturin", "build", "--release", "--quiet", "--out"]).arg(&wheels);
    execute_in(build, sources)?;
    place.run(python, [OsStr::new("-m"), OsStr::new("venv"), environment.as_os_str()])?;
    let python = environment.join("bin/python");
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"];
    let wheels = files_in(&wheels, "whl")?;
    let arguments =
        install.iter().map(OsStr::new).chain(wheels.iter().map(|file| file.as_os_str()));
    place.run(&python, arguments)?;
    let example = place.take_example("python/hello.py")?;
    place.says_hello(&python, &[&example])
}

/// Makes a module that names the client's module, as the page of the book says.
pub(super) fn go(sources: &Path, go: &Path) -> Result<()> {
    let place = EmptyPlace::new("go")?;
    let replaced = format!("thunderhead.dev/thunderhead={}", sources.display());
    place.run(go, ["mod", "init", "hello"])?;
    place.run(go, ["mod", "edit", "-require", "thunderhead.dev/thunderhead@v0.0.0"])?;
    place.run(go, ["mod", "edit", "-replace", &replaced])?;
    place.take_example("go/hello/main.go")?;
    place.says_hello(go, &[Path::new("run"), Path::new(".")])
}

/// Runs the example with the jar alone. The jar has the native library.
pub(crate) fn java(jar: &Path) -> Result<()> {
    let place = EmptyPlace::new("java")?;
    let jar = std::path::absolute(jar).context("find the jar")?;
    let example = place.take_example("java/Hello.java")?;
    place.says_hello("java", &[Path::new("-cp"), &jar, &example])
}

/// A directory without files, with a store for the program that is installed there.
struct EmptyPlace {
    /// The store at the URL. It ends before its directory is removed.
    _store: Running,
    scratch: Scratch,
    url: String,
    /// The examples of all languages.
    examples: PathBuf,
}

impl EmptyPlace {
    /// The directory is outside of the repository, because installers look for the project of a
    /// directory in the directories above it.
    fn new(language: &str) -> Result<EmptyPlace> {
        let scratch = Scratch::new(&format!("installed-{language}"))?;
        let mut command = Command::new(std::path::absolute(program("thunderhead"))?);
        command.args(["dev", "--ephemeral", "--json"]).stdout(Stdio::piped());
        command.current_dir(scratch.directory());
        let mut store = Running::start(command, "a store")?;
        let mut line = String::new();
        let output = store.0.stdout.take().context("the store has an output")?;
        BufReader::new(output).read_line(&mut line).context("read the store's address")?;
        let url = url_of(&line).with_context(|| format!("the store says no address: {line}"))?;
        let examples = std::path::absolute("examples")?;
        Ok(EmptyPlace { _store: store, scratch, url, examples })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path(name)
    }

    /// Copies an example here, as a user would.
    fn take_example(&self, file: &str) -> Result<PathBuf> {
        let from = self.examples.join(file);
        let name = from.file_name().context("an example is a file")?;
        let to = self.scratch.directory().join(name);
        std::fs::copy(&from, &to).with_context(|| format!("copy {}", from.display()))?;
        Ok(to)
    }

    fn run(
        &self,
        program: impl AsRef<OsStr>,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<()> {
        let mut command = Command::new(program);
        command.args(arguments).stdout(Stdio::null());
        execute_in(command, self.scratch.directory())
    }

    /// Runs the example, which must work and print the object that it wrote.
    fn says_hello(&self, program: impl AsRef<OsStr>, arguments: &[&Path]) -> Result<()> {
        let mut command = Command::new(program);
        command.args(arguments).arg(&self.url).current_dir(self.scratch.directory());
        let output = command.stderr(Stdio::inherit()).output().context("run the example")?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "the installed client fails:\n{text}");
        if !text.contains("countess") && !text.contains("analyst") {
            bail!("the example does not print the object:\n{text}");
        }
        Ok(())
    }
}

fn execute_in(mut command: Command, directory: &Path) -> Result<()> {
    command.current_dir(directory);
    execute(command)
}

/// Reads the first coordinator's address from the line that `thunderhead dev --json` prints.
fn url_of(line: &str) -> Option<String> {
    let ready: serde_json::Value = serde_json::from_str(line).ok()?;
    Some(format!("thunderhead://{}", ready["coordinators"][0].as_str()?))
}

/// Returns the files in a directory that end with this extension.
fn files_in(directory: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory)
        .with_context(|| format!("read the directory {}", directory.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let file = entry?.path();
        if file.extension() == Some(OsStr::new(extension)) {
            files.push(file);
        }
    }
    ensure!(!files.is_empty(), "{} has no file *.{extension}", directory.display());
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_of_a_store_is_in_its_first_line() {
        let line = r#"{"coordinators":["127.0.0.1:7070"],"data":null}"#;
        assert_eq!(url_of(line).as_deref(), Some("thunderhead://127.0.0.1:7070"));
        assert_eq!(url_of("thunderhead: the port is taken"), None);
        assert_eq!(url_of("{}"), None);
    }
}
