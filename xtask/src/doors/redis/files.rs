//! The files of Redis's own tests, and the tests that are skipped.
//!
//! Redis's own tags exclude further tests: tests of debugging, replication and files, and tests
//! that start servers.

use anyhow::{Result, ensure};
use std::collections::BTreeSet;

/// A version of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// The newest in Debian.
    New,
    /// The version of Debian's stable release, which stays there for years.
    Stable,
}

/// Tests that are skipped, and the reason.
#[derive(Debug)]
struct Skip {
    /// Each is a name, or `/` and a part of names.
    tests: &'static [&'static str],
    reason: &'static str,
}

/// A file of tests.
#[derive(Debug)]
pub(super) struct File {
    pub(super) name: &'static str,
    /// The number of tests that pass, in each version. In `None` no test runs.
    good: Option<[usize; 2]>,
    /// The time that the file takes.
    pub(super) seconds: u32,
    skipped: &'static [Skip],
    /// The reason why no test runs.
    reason: &'static str,
}

const fn file(
    name: &'static str,
    good: [usize; 2],
    seconds: u32,
    skipped: &'static [Skip],
) -> File {
    File { name, good: Some(good), seconds, skipped, reason: "" }
}

const fn not_run(name: &'static str, reason: &'static str) -> File {
    File { name, good: None, seconds: 0, skipped: &[], reason }
}

const fn skip(tests: &'static [&'static str], reason: &'static str) -> Skip {
    Skip { tests, reason }
}

const BLOCKS: &str = "`~` removes blocks of a hundred entries";
const BYTES: &str = "the bytes of a client are not counted";
const CHANGES: &str = "changes are not counted: everything is kept at once, or nothing";
const CLUSTER: &str = "the tested server is in no cluster";
const COUNTED: &str = "expired objects are counted until their memory is freed";
const ENDED: &str = "a script that takes too long is ended";
const FIXED: &str = "it is an option of the server";
const IDLE: &str = "objects have no idle time and no frequency";
const MEMORY: &str = "memory is freed by cleaners";
const NEW: &str = "Redis has it since 8.4 or 8.6";
const STARTS: &str = "its tests start servers of Redis";
const BUFFERS: &str = "the buffers of clients are not shown";

/// All files of both versions.
pub(super) const FILES: [File; 57] = [
    not_run("acl", STARTS),
    not_run("acl-v2", STARTS),
    not_run("aofrw", "there is no file of commands"),
    not_run("auth", STARTS),
    file("bitfield", [18, 18], 1, &[]),
    file(
        "bitops",
        [54, 48],
        6,
        &[skip(&["SETBIT/BITFIELD only increase dirty when the value changed"], CHANGES)],
    ),
    not_run("client-eviction", "the memory of clients has no limit of its own"),
    file(
        "dump",
        [9, 8],
        1,
        &[
            skip(&["RESTORE can set LRU", "RESTORE can set LFU"], IDLE),
            skip(&["RESTORE fail with invalid payload size"], NEW),
            skip(
                &["MIGRATE cached connections are released after some time"],
                "MIGRATE is refused",
            ),
        ],
    ),
    file(
        "expire",
        [58, 57],
        5,
        &[skip(
            &[
                "Redis should actively expire keys incrementally",
                "Active expire should increment both expired_keys and expired_keys_active",
            ],
            COUNTED,
        )],
    ),
    file(
        "functions",
        [84, 83],
        3,
        &[
            skip(
                &[
                    "FUNCTION - test function kill",
                    "FUNCTION - test script kill not working on function",
                    "FUNCTION - test function kill not working on eval",
                ],
                ENDED,
            ),
            skip(&["/async function flush rebuilds Lua VM"], "INFO has no memory of functions"),
            skip(
                &["LIBRARIES - malicious access test"],
                "the functions of registration are missing outside FUNCTION LOAD",
            ),
        ],
    ),
    file("geo", [64, 64], 63, &[]),
    not_run("hotkeys", NEW),
    file(
        "hyperloglog",
        [19, 19],
        61,
        &[skip(
            &["/Corrupted sparse HyperLogLogs doesn't", "PFMERGE results with simd"],
            "there is no PFDEBUG",
        )],
    ),
    not_run("info", STARTS),
    file("info-command", [3, 3], 1, &[]),
    not_run("info-keysizes", "INFO has no sizes of keys"),
    file(
        "introspection",
        [29, 29],
        1,
        &[
            skip(&["CLIENT LIST", "CLIENT INFO", "/cmds-processed stats"], BYTES),
            skip(
                &["CONFIG sanity", "CONFIG SET with multiple args", "/CONFIG SET rollback on"],
                FIXED,
            ),
            skip(&["CONFIG GET hidden configs"], "there are no hidden settings"),
        ],
    ),
    file(
        "introspection-2",
        [43, 43],
        3,
        &[
            skip(&["TTL, TYPE and EXISTS do not alter the last access time of a key"], IDLE),
            skip(&["COMMAND GETKEYSANDFLAGS", "COMMAND GETKEYSANDFLAGS MSETEX"], NEW),
            skip(&["COMMAND LIST FILTERBY PATTERN - list all commands/subcommands"], CLUSTER),
        ],
    ),
    file(
        "keyspace",
        [57, 57],
        1,
        &[skip(
            &["Regression for pattern matching very long nested loops"],
            "a pattern may be that deep here",
        )],
    ),
    file(
        "latency-monitor",
        [9, 9],
        1,
        &[skip(
            &[
                "LATENCY of expire events are correctly collected",
                "LATENCY RESET is able to reset events",
            ],
            "only commands have latencies",
        )],
    ),
    not_run("lazyfree", MEMORY),
    not_run("limits", STARTS),
    not_run("maxmemory", STARTS),
    not_run("memefficiency", MEMORY),
    file(
        "multi",
        [30, 30],
        1,
        &[
            skip(&["/and script timeout"], ENDED),
            skip(&["WATCH will consider touched expired keys"], COUNTED),
        ],
    ),
    file("networking", [1, 0], 1, &[]),
    not_run("obuf-limits", STARTS),
    not_run("oom-score-adj", "the server does not change its priority"),
    file(
        "other",
        [17, 17],
        4,
        &[skip(&["Coverage: HELP commands"], "there are no modules and no HOTKEYS")],
    ),
    file(
        "pause",
        [15, 14],
        1,
        &[skip(
            &[
                "Test both active and passive expires are skipped during client pause",
                "Test that client pause starts at the end of a transaction",
                "Test the randomkey command will not cause the server to get into an infinite loop during the client pause write",
            ],
            "CLIENT PAUSE is refused in a MULTI",
        )],
    ),
    not_run("printver", "it has no tests"),
    file("protocol", [21, 21], 4, &[]),
    file("pubsub", [41, 32], 1, &[skip(&["/OOM"], FIXED)]),
    not_run("pubsubshard", CLUSTER),
    not_run("querybuf", BUFFERS),
    file("quit", [3, 3], 1, &[]),
    not_run("replybufsize", BUFFERS),
    file("scan", [22, 22], 8, &[]),
    file(
        "scripting",
        [198, 191],
        6,
        &[
            skip(
                &["EVAL does not leak in the Lua stack"],
                "the garbage of scripts is collected later",
            ),
            skip(
                &[
                    "/JSON empty array decoding",
                    "EVAL - cjson array metatable modification should be readonly",
                ],
                NEW,
            ),
            skip(
                &["/Test script flush will not leak memory"],
                "INFO has no figures of an allocator",
            ),
            skip(
                &["Verify Lua performs GC correctly after script loading"],
                "the number of libraries is limited",
            ),
            skip(&["CLUSTER RESET can not be invoke from within a script"], CLUSTER),
            skip(&["EVAL - Scripts do not block on waitaof"], FIXED),
            skip(&["/Timedout "], ENDED),
            skip(&["not enough good replicas"], "there are no replicas"),
            skip(
                &["reject script do not cause a Lua stack leak", "Consistent eval error reporting"],
                FIXED,
            ),
        ],
    ),
    not_run("shutdown", STARTS),
    file("slowlog", [11, 11], 1, &[]),
    file("sort", [53, 53], 5, &[]),
    not_run("tls", "there is no TLS"),
    file(
        "tracking",
        [54, 54],
        2,
        &[skip(
            &["Tracking invalidation message of eviction keys should be before response"],
            FIXED,
        )],
    ),
    file(
        "type/hash",
        [77, 77],
        5,
        &[skip(&["/Hash ziplist of various encodings"], "a hash with long values has no order")],
    ),
    file(
        "type/hash-field-expire",
        [10, 0],
        1,
        &[skip(
            &[
                "/Flexible argument parsing",
                "/Field count validation",
                "/Error message consistency",
                "/Multiple condition flags",
                "/Multiple FIELDS",
                "/Field names that look like",
                "/Stress test - complex",
                "/Backward compatibility",
            ],
            NEW,
        )],
    ),
    file("type/incr", [32, 32], 1, &[]),
    file("type/list", [253, 251], 14, &[skip(&["BLPOP/BLMOVE should increase dirty"], CHANGES)]),
    file("type/list-2", [2, 2], 12, &[]),
    file("type/list-3", [11, 11], 53, &[]),
    file("type/set", [114, 114], 5, &[]),
    file(
        "type/stream",
        [82, 70],
        16,
        &[
            skip(&["/IDMP", "/XCFGSET", "/iids", "/pids", "/idmp"], NEW),
            skip(
                &[
                    "XTRIM with MAXLEN option basic test",
                    "XADD with LIMIT consecutive calls",
                    "XTRIM with LIMIT delete entries no more than limit",
                ],
                BLOCKS,
            ),
        ],
    ),
    file(
        "type/stream-cgroups",
        [78, 53],
        4,
        &[
            skip(&["/XREADGROUP CLAIM", "XREAD with CLAIM option", "XINFO FULL output"], NEW),
            skip(&["Consumer seen-time and active-time"], "it uses a stream of the test before"),
            skip(
                &[
                    "XREADGROUP of multiple entries changes dirty by one",
                    "XREADGROUP from PEL does not change dirty",
                ],
                CHANGES,
            ),
            skip(&["/Loading from legacy"], "RESTORE reads no streams"),
        ],
    ),
    file(
        "type/string",
        [80, 79],
        8,
        &[skip(
            &[
                "/MSETEX",
                "/DIGEST",
                "/DELEX",
                "/Extended SET with ",
                "/Extended SET digest",
                "/Extended SET case",
                "/IFDEQ",
            ],
            NEW,
        )],
    ),
    file("type/zset", [318, 318], 19, &[]),
    file("violations", [1, 1], 1, &[]),
    not_run("wait", STARTS),
];

/// The time that the quickest files take. A sample runs only these.
const QUICK_SECONDS: u32 = 20;

impl File {
    /// Whether tests of the file run.
    pub(super) fn is_run(&self) -> bool {
        self.good.is_some()
    }

    /// Whether the file belongs to the sample.
    pub(super) fn is_quick(&self) -> bool {
        self.seconds <= QUICK_SECONDS
    }

    /// Returns the number of tests that pass.
    pub(super) fn good(&self, version: Version) -> usize {
        let [new, stable] = self.good.unwrap_or_default();
        if version == Version::New { new } else { stable }
    }

    /// Returns the tests that are skipped.
    pub(super) fn patterns(&self) -> Vec<&'static str> {
        self.skipped.iter().flat_map(|skip| skip.tests).copied().collect()
    }

    /// Returns the reasons why tests do not run.
    pub(super) fn reasons(&self) -> String {
        if !self.is_run() {
            return self.reason.to_owned();
        }
        let reasons: Vec<&str> = self.skipped.iter().map(|skip| skip.reason).collect();
        reasons.join("; ")
    }
}

/// Checks that a file of the suite has a line, and that each line has a file in the new version.
pub(super) fn check_names(found: &[String], version: Version) -> Result<()> {
    let known: BTreeSet<&str> = FILES.iter().map(|file| file.name).collect();
    let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
    let list = |names: Vec<&&str>| names.iter().map(|it| **it).collect::<Vec<_>>().join(", ");
    let new = list(found.difference(&known).collect());
    ensure!(new.is_empty(), "files without a line in doors/redis/files.rs: {new}");
    let gone = list(known.difference(&found).collect());
    let is_new = version == Version::New;
    ensure!(!is_new || gone.is_empty(), "lines of doors/redis/files.rs without a file: {gone}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_line_is_refused() {
        let mut names: Vec<String> = FILES.iter().map(|file| file.name.to_owned()).collect();
        assert!(check_names(&names, Version::New).is_ok());
        names.push("brand-new".to_owned());
        for version in [Version::New, Version::Stable] {
            let refused = check_names(&names, version).unwrap_err().to_string();
            assert!(refused.contains("brand-new"), "{refused}");
        }
        names.truncate(3);
        assert!(check_names(&names, Version::New).unwrap_err().to_string().contains("without a"));
        assert!(check_names(&names, Version::Stable).is_ok());
    }

    #[test]
    fn files_are_listed_once_and_in_order() {
        assert!(FILES.iter().zip(&FILES[1..]).all(|(one, next)| one.name < next.name));
    }

    #[test]
    fn each_skipped_test_has_a_reason() {
        let has_reason = |file: &File| {
            let skipped =
                file.skipped.iter().all(|it| !it.reason.is_empty() && !it.tests.is_empty());
            skipped && (file.is_run() || !file.reason.is_empty())
        };
        assert!(FILES.iter().all(has_reason));
    }
}
