//! The tests of go-redis, from its module for Go.
//!
//! Its tests with a server are one suite (Ginkgo). The other tests test the client alone, and are
//! not run.

use super::results::{
    self, Counts, Exception, File, Kind, Outcome, Results, check_files, fails, skipped,
};
use crate::clients::go_programs;
use crate::scratch::Scratch;
use crate::steps::{Extent, execute, target};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf, absolute};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The module and its version. The lists of files and exceptions are for this version.
const MODULE: &str = "github.com/redis/go-redis/v9";
const VERSION: &str = "v9.23.0";

/// The version of Redis whose tests are run.
const REDIS_VERSION: &str = "8.2";

/// The file that all tests use.
const SHARED: &str = "main_test.go";

/// Changes of that file: the text that is replaced, and its replacement.
const CHANGES: [(&str, &str); 3] = [
    // The port is given, and not that of the containers of the project.
    ("\tredisPort = redisStackPort\n\tredisAddr = redisStackAddr\n", ""),
    // Only one server is there.
    ("\tif !RECluster {\n\t\tringShard1, err", "\tif false {\n\t\tringShard1, err"),
    ("\tif !RECluster {\n\t\tExpect(cluster.Close())", "\tif false {\n\t\tExpect(cluster.Close())"),
];

/// The name of the suite.
const SUITE: &str = "go-redis";

/// The text that only files of the suite have.
const DESCRIBES: &str = "Describe(";

/// Seconds that the suite may take.
const PATIENCE: &str = "600s";

const CLUSTER: &str = "this is no cluster";
const DEBUG_SLEEP: &str = "DEBUG SLEEP is refused";
const MODULES: &str = "there are no modules";
const NEWER: &str = "its commands are of a newer Redis";
const PORT: &str = "it uses port 6379";
const REPLICATION: &str = "the server is no replica";
const SENTINEL: &str = "there is no Sentinel";
const SERVERS: &str = "it needs several servers";
const TLS: &str = "there is no TLS";
const VECTORS: &str = "there are no vector sets";

/// The files of the suite.
const FILES: [File; 35] = [
    ("acl_commands_test", None),
    ("array_commands_test", Some(NEWER)),
    ("autopipeline_test", None),
    ("bitmap_commands_test", None),
    ("command_test", None),
    ("commands_test", None),
    ("csc_e2e_test", None),
    ("error_test", None),
    ("himport_commands_test", Some(NEWER)),
    ("hotkeys_commands_test", Some(NEWER)),
    ("internal_test", Some(PORT)),
    ("iterator_test", None),
    ("json_test", Some(MODULES)),
    ("monitor_test", None),
    ("osscluster_test", Some(CLUSTER)),
    ("pipeline_test", None),
    ("pool_test", None),
    ("probabilistic_test", Some(MODULES)),
    ("pubsub_test", None),
    ("race_test", None),
    ("redis_test", None),
    ("ring_test", Some(SERVERS)),
    ("script_server_sha_integration_test", None),
    ("search_aliaslist_integration_test", Some(MODULES)),
    ("search_builders_test", Some(MODULES)),
    ("search_test", Some(MODULES)),
    ("sentinel_test", Some(SENTINEL)),
    ("timeseries_commands_test", Some(MODULES)),
    ("timeseries_querylabels_integration_test", Some(MODULES)),
    ("tls_cluster_test", Some(TLS)),
    ("tls_test", Some(TLS)),
    ("tx_test", None),
    ("tx_unwatch_test", None),
    ("universal_test", None),
    ("vectorset_commands_integration_test", Some(VECTORS)),
];

/// Between the names of a group and of a test in it.
const BETWEEN: &str = " / ";

/// The exceptions.
const EXCEPTIONS: &[Exception] = &[
    fails("ACL Categories / lists acl categories and subcategories with Modules", MODULES),
    fails("ACL permissions / set permissions for module categories", MODULES),
    fails("ACL permissions / set permissions for module commands", MODULES),
    fails(
        "Commands / Functions / Shows function stats",
        "no other command is executed during a function",
    ),
    fails("Commands / Latency", DEBUG_SLEEP),
    fails("Commands / keys / should Migrate", "MIGRATE is refused"),
    fails("Commands / server / should ConfigGet Modules", MODULES),
    fails("Commands / server / should ConfigGet with Modules", MODULES),
    fails("Commands / server / should ConfigRewrite", "there is no file with settings"),
    fails("Commands / server / should ConfigSet FT DIALECT", MODULES),
    fails("Commands / server / should ConfigSet Modules", MODULES),
    fails("Commands / server / should Info Modules", MODULES),
    fails("Commands / server / should InfoMap Modules", MODULES),
    fails("Commands / server / should ReplicaOf", REPLICATION),
    fails("Commands / server / should SlaveOf", REPLICATION),
    fails("Commands / strings / should fail module loadex", MODULES),
    skipped("Credentials Provider Priority", PORT),
    skipped("UniversalClient / connect to clusters with ClusterClient and UnstableResp3", CLUSTER),
    skipped(
        "UniversalClient / connect to clusters with UniversalClient and UnstableResp3",
        CLUSTER,
    ),
    skipped("UniversalClient / should connect to failover servers", SENTINEL),
    skipped(
        "UniversalClient / should connect to failover servers on slaves when readonly Options is ok",
        SENTINEL,
    ),
    skipped("UniversalClient / should connect to clusters", CLUSTER),
    skipped(
        "UniversalClient / should return all slots after instantiating UniversalClient with \
         IsClusterMode",
        CLUSTER,
    ),
    skipped("cluster races", CLUSTER),
];

/// Runs the suite.
pub(super) fn check(thunderhead: &Path, _: Extent) -> Result<()> {
    let go = go_programs()?.join("go");
    let scratch = Scratch::new("go-redis")?;
    let sources = prepare(&scratch, &go)?;
    check_files(&FILES, &files_in(&sources)?, "go_redis.rs")?;
    results::print_reasons("go-redis", &FILES, EXCEPTIONS);
    let suite = scratch.path("suite");
    let mut compile = Command::new(&go);
    compile.args(["test", "-c", "-o"]).arg(&suite).arg(".").current_dir(&sources);
    execute(compile).context("compile the tests of go-redis")?;
    let began = Instant::now();
    let results = run(&suite, &sources, &scratch, thunderhead)?;
    let Counts { good, bad, skipped } = results::count(&results);
    println!(
        "{:22} {good:6} good {:5.1} s, {skipped} skip themselves, {bad} fail",
        "go-redis",
        began.elapsed().as_secs_f64()
    );
    results::check(&results, EXCEPTIONS, BETWEEN, false)
}

/// Returns the names of the files of the suite.
fn files_in(directory: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(directory).context("list the tests")? {
        let path = entry.context("list the tests")?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let is_test = path.extension().is_some_and(|it| it == "go") && name.ends_with("_test");
        if is_test && fs::read_to_string(&path).context("read a test")?.contains(DESCRIBES) {
            names.insert(name);
        }
    }
    Ok(names)
}

/// Fetches the module, copies its files, changes them, and returns their directory.
fn prepare(scratch: &Scratch, go: &Path) -> Result<PathBuf> {
    let fetched = absolute(target().join("doors/go")).context("find the builds")?;
    fs::create_dir_all(&fetched).context("make a directory")?;
    let mut download = Command::new(go);
    download.args(["mod", "download", "-json", &format!("{MODULE}@{VERSION}")]);
    // A module of its own: the modules of this repository do not need this one.
    let output = download.env("GO111MODULE", "on").current_dir(&fetched).output();
    let output = output.context("run go mod download")?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let module: serde_json::Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("fetch the module {MODULE}: {errors}"))?;
    let directory = module["Dir"].as_str().unwrap_or_default();
    ensure!(!directory.is_empty(), "cannot fetch the module {MODULE}: {module}");
    let sources = scratch.path("go-redis");
    let mut copy = Command::new("cp");
    // Files of modules are read-only.
    copy.args(["-r", "--no-preserve=mode", directory]).arg(&sources);
    execute(copy)?;
    let shared = sources.join(SHARED);
    let mut text = fs::read_to_string(&shared).with_context(|| format!("read {SHARED}"))?;
    for (old, new) in CHANGES {
        ensure!(text.matches(old).count() == 1, "{SHARED} does not have once: {old}");
        text = text.replace(old, new);
    }
    fs::write(&shared, text).with_context(|| format!("write {SHARED}"))?;
    Ok(sources)
}

/// Runs the suite on a server of its own. The suite repeats a test that fails.
fn run(suite: &Path, sources: &Path, scratch: &Scratch, thunderhead: &Path) -> Result<Results> {
    let server = super::start(thunderhead)?;
    let report = scratch.path("report.json");
    let mut command = Command::new(suite);
    command.args(["-test.run", "^TestGinkgoSuite$", "--ginkgo.no-color", "--ginkgo.succinct"]);
    command.args(["--ginkgo.flake-attempts", "2", "--ginkgo.timeout", PATIENCE]);
    command.arg(format!("--ginkgo.json-report={}", report.display()));
    for (name, _) in FILES.iter().filter(|file| file.1.is_none()) {
        command.arg(format!("--ginkgo.focus-file=/{name}.go$"));
    }
    for exception in EXCEPTIONS.iter().filter(|it| it.kind == Kind::Skipped) {
        command.arg(format!("--ginkgo.skip={}", pattern(exception.name)));
    }
    command.env("REDIS_PORT", &server.port).env("REDIS_VERSION", REDIS_VERSION);
    command.current_dir(sources).stdin(Stdio::null());
    let output = command.output().context("run the tests of go-redis")?;
    let text = fs::read_to_string(&report).with_context(|| {
        let end = String::from_utf8_lossy(&output.stdout).into_owned();
        format!("the tests of go-redis ended early:\n{end}")
    })?;
    let report = serde_json::from_str(&text).context("read the report of the suite")?;
    let results = read(&report);
    ensure!(!results.is_empty(), "the report of the suite has no tests");
    Ok(results)
}

/// Returns a regular expression for the tests with a name. The suite puts its own name before it,
/// and spaces between groups.
fn pattern(name: &str) -> String {
    let mut pattern = "^".to_owned();
    for letter in format!("{SUITE} {}", name.replace(BETWEEN, " ")).chars() {
        if !letter.is_alphanumeric() && letter != ' ' {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}

/// Reads a report of the suite.
fn read(report: &serde_json::Value) -> Results {
    let mut results = Results::new();
    let specs = report[0]["SpecReports"].as_array().into_iter().flatten();
    for spec in specs.filter(|spec| spec["LeafNodeType"] == "It") {
        let groups = spec["ContainerHierarchyTexts"].as_array().into_iter().flatten();
        let mut names: Vec<&str> = groups.filter_map(serde_json::Value::as_str).collect();
        names.extend(spec["LeafNodeText"].as_str());
        let reason = spec["Failure"]["Message"].as_str().unwrap_or_default();
        let outcome = match spec["State"].as_str().unwrap_or_default() {
            "passed" => Outcome::Good,
            // A test that was not to run has no message.
            "skipped" | "pending" if reason.is_empty() => continue,
            "skipped" | "pending" => Outcome::Skipped,
            _ => Outcome::Bad(reason.split_whitespace().collect::<Vec<_>>().join(" ")),
        };
        results.entry(names.join(BETWEEN)).or_default().push(outcome);
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_the_suite_is_read() {
        let spec = |groups: &[&str], text: &str, state: &str, message: &str| {
            serde_json::json!({
                "ContainerHierarchyTexts": groups, "LeafNodeType": "It", "LeafNodeText": text,
                "State": state, "Failure": { "Message": message },
            })
        };
        let suite = serde_json::json!({ "LeafNodeType": "BeforeSuite", "State": "passed" });
        let report = serde_json::json!([{ "SpecReports": [
            suite,
            spec(&["a", "b"], "c", "passed", ""),
            spec(&["a"], "d", "failed", "two\n lines"),
            spec(&[], "e", "panicked", ""),
            spec(&["a"], "f", "skipped", "(redis version < 9)"),
            spec(&["a"], "g", "skipped", ""),
        ]}]);
        let results = read(&report);
        assert_eq!(results["a / b / c"], [Outcome::Good]);
        assert_eq!(results["a / d"], [Outcome::Bad("two lines".to_owned())]);
        assert_eq!(results["e"], [Outcome::Bad(String::new())]);
        assert_eq!(results["a / f"], [Outcome::Skipped]);
        assert_eq!(results.len(), 4, "a test that was not to run has no result");
        assert!(read(&serde_json::json!({})).is_empty());
    }

    #[test]
    fn a_pattern_takes_names_as_they_are() {
        assert_eq!(pattern("a b / c (d)"), "^go\\-redis a b c \\(d\\)");
    }

    #[test]
    fn files_are_listed_once_and_in_order() {
        assert!(FILES.is_sorted_by(|one, next| one.0 < next.0));
    }
}
