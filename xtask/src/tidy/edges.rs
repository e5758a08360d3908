//! The check of the edges between our crates: arrows lead down only.
//!
//! A crate's tests may use more crates than its production code. So each crate has two lists here,
//! and an edge that only tests may have is a finding among the production dependencies.

use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// A crate, the crates that it may depend on, and the further crates that only its tests may use.
struct Edges {
    name: &'static str,
    production: &'static [&'static str],
    tests: &'static [&'static str],
}

/// The edges of all crates of the workspace. Their names begin with `thunderhead-`, which is left
/// out here.
const EDGES: &[Edges] = &[
    Edges { name: "wire", production: &[], tests: &[] },
    Edges { name: "runtime", production: &[], tests: &[] },
    Edges { name: "config", production: &[], tests: &[] },
    Edges { name: "doors", production: &[], tests: &[] },
    Edges { name: "log", production: &["wire"], tests: &[] },
    Edges { name: "net", production: &["runtime", "wire"], tests: &[] },
    Edges { name: "rpc", production: &["net", "runtime", "wire"], tests: &[] },
    Edges { name: "simulator", production: &["net", "rpc", "runtime", "wire"], tests: &[] },
    // Only tests use it.
    Edges {
        name: "testkit",
        production: &["log", "net", "rpc", "runtime", "simulator", "wire"],
        tests: &[],
    },
    Edges { name: "metastore", production: &["runtime"], tests: &["simulator"] },
    Edges {
        name: "backup",
        production: &["log", "rpc", "runtime", "wire"],
        tests: &["net", "simulator"],
    },
    Edges {
        name: "coordinator",
        production: &["metastore", "rpc", "runtime", "wire"],
        tests: &["net", "simulator", "testkit"],
    },
    Edges {
        name: "master",
        production: &["log", "rpc", "runtime", "wire"],
        tests: &["backup", "net", "simulator", "testkit"],
    },
    Edges {
        name: "client",
        production: &["net", "rpc", "runtime", "wire"],
        tests: &["coordinator", "log", "master", "metastore", "simulator", "testkit"],
    },
    Edges {
        name: "server",
        production: &[
            "backup",
            "config",
            "coordinator",
            "doors",
            "log",
            "master",
            "metastore",
            "net",
            "rpc",
            "runtime",
            "wire",
        ],
        tests: &["client", "simulator", "testkit"],
    },
    Edges { name: "bindings", production: &["client"], tests: &[] },
    Edges { name: "java", production: &["bindings", "client", "runtime"], tests: &[] },
    Edges { name: "node", production: &["bindings", "client", "runtime"], tests: &[] },
    Edges { name: "capi", production: &["client"], tests: &[] },
    Edges { name: "examples", production: &["client"], tests: &[] },
    Edges { name: "python", production: &["client"], tests: &[] },
    Edges {
        name: "load",
        production: &["backup", "client", "net", "rpc", "runtime", "wire"],
        tests: &["server"],
    },
    Edges {
        name: "bench",
        production: &[
            "backup",
            "client",
            "coordinator",
            "load",
            "log",
            "master",
            "net",
            "rpc",
            "runtime",
            "server",
            "simulator",
            "wire",
        ],
        tests: &[],
    },
    // The program.
    Edges {
        name: "thunderhead",
        production: &[
            "backup",
            "client",
            "config",
            "coordinator",
            "load",
            "metastore",
            "net",
            "runtime",
            "server",
            "wire",
        ],
        tests: &[],
    },
    Edges { name: "xtask", production: &[], tests: &[] },
];

/// Asks cargo for the edges and compares them with [`EDGES`].
pub(super) fn findings(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(root)
        .output()
        .context("tidy asks cargo for the crates")?;
    Ok(compare(&serde_json::from_slice(&output.stdout)?))
}

/// Returns the edges of some metadata that are not allowed.
fn compare(metadata: &serde_json::Value) -> Vec<String> {
    let short = |name: &str| name.strip_prefix("thunderhead-").unwrap_or(name).to_owned();
    let mut findings = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = short(package["name"].as_str().unwrap_or(""));
        let Some(edges) = EDGES.iter().find(|known| known.name == name) else {
            findings.push(format!(
                "xtask/src/tidy/edges.rs:1: list in EDGES the crates that {name} may depend on"
            ));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let other = short(dependency["name"].as_str().unwrap_or(""));
            // Build scripts count as production; there `kind` is "build", otherwise nothing.
            let only_tests = dependency["kind"].as_str() == Some("dev");
            let is_ours = EDGES.iter().any(|known| known.name == other);
            let in_production = edges.production.contains(&other.as_str());
            let in_tests = edges.tests.contains(&other.as_str());
            if !is_ours || in_production || (only_tests && in_tests) {
                continue;
            }
            let fault = if in_tests { "may use only in tests" } else { "must not depend on" };
            findings.push(format!("{}: {name} {fault} {other}", manifest(package)));
        }
    }
    findings
}

/// Returns the place of a crate's dependencies, for findings.
fn manifest(package: &serde_json::Value) -> String {
    let path = package["manifest_path"].as_str().unwrap_or("Cargo.toml");
    let below = path.rfind("/crates/").map_or("Cargo.toml", |at| &path[at + 1..]);
    format!("{below}:1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The findings about one crate with one dependency.
    fn found(name: &str, other: &str, kind: Option<&str>) -> Vec<String> {
        compare(&json!({"packages": [{
            "name": name,
            "manifest_path": "/somewhere/crates/x/Cargo.toml",
            "dependencies": [{"name": other, "kind": kind}, {"name": "anyhow", "kind": null}],
        }]}))
    }

    #[test]
    fn an_edge_is_allowed_by_its_kind() {
        let [log, net] = ["thunderhead-log", "thunderhead-net"];
        for (name, other, kind, expected) in [
            ("thunderhead-backup", log, None, None),
            ("thunderhead-backup", log, Some("dev"), None),
            ("thunderhead-backup", log, Some("build"), None),
            ("thunderhead-backup", net, Some("dev"), None),
            ("thunderhead-backup", net, None, Some("may use only in tests net")),
            ("thunderhead-backup", net, Some("build"), Some("may use only in tests net")),
            ("thunderhead-log", net, None, Some("must not depend on net")),
            ("thunderhead-log", net, Some("dev"), Some("must not depend on net")),
            ("thunderhead", "thunderhead-load", None, None),
            ("thunderhead", "thunderhead-bench", None, Some("must not depend on bench")),
        ] {
            let found = found(name, other, kind);
            let expected: Vec<String> = expected
                .into_iter()
                .map(|fault| {
                    let name = name.trim_start_matches("thunderhead-");
                    format!("crates/x/Cargo.toml:1: {name} {fault}")
                })
                .collect();
            assert_eq!(found, expected, "{name} {other} {kind:?}");
        }
    }

    #[test]
    fn a_new_crate_must_be_listed() {
        let found = found("thunderhead-new", "serde", None);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("list in EDGES the crates that new may depend on"), "{found:?}");
    }

    #[test]
    fn no_edge_leads_up_again() {
        let place = |name: &str| EDGES.iter().position(|it| it.name == name);
        for Edges { name, production, .. } in EDGES {
            for other in *production {
                assert!(place(other) < place(name), "list {other} before {name}");
            }
        }
    }
}
