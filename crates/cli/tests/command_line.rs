//! The binary as a person or a script runs it, without a cluster: help, configuration, statuses,
//! the shell.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A test's own directory, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let name = format!("thunderhead-cli-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thunderhead"));
        command.args(arguments).current_dir(&self.0).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("THUNDERHEAD_") {
                command.env_remove(name);
            }
        }
        command
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        ended(self.command(arguments).output().unwrap())
    }

    fn run_with(&self, arguments: &[&str], input: &str) -> Ended {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        ended(child.wait_with_output().unwrap())
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).unwrap();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Ended {
    status: Option<i32>,
    out: String,
    err: String,
}

fn ended(Output { status, stdout, stderr }: Output) -> Ended {
    let [out, err] = [stdout, stderr].map(|it| String::from_utf8(it).unwrap());
    Ended { status: status.code(), out, err }
}

#[track_caller]
fn expect(ended: &Ended, status: i32, out: &str, err: &str) {
    let Ended { status: found, out: said, err: complained } = ended;
    assert_eq!(*found, Some(status), "{said}\n{complained}");
    assert!(said.contains(out), "{out:?} is not in {said}");
    assert!(complained.contains(err), "{err:?} is not in {complained}");
}

/// Arguments with an address on which no process listens.
const NOBODY: &[&str] = &["--coordinators", "127.0.0.1:1", "--deadline", "200ms"];

fn to_nobody<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [NOBODY, arguments].concat()
}

#[test]
fn wrong_arguments_are_reported_as_json_too() {
    let place = Place::new("wrong-arguments");
    for arguments in [&["--json", "get", "users"][..], &["no-such-command", "--json"]] {
        let ended = place.run(arguments);
        assert_eq!((ended.status, ended.out.as_str()), (Some(2), ""), "{}", ended.err);
        let said: serde_json::Value = serde_json::from_str(&ended.err).unwrap();
        assert_eq!(
            (&said["error"]["kind"], &said["error"]["status"]),
            (&"usage".into(), &2.into())
        );
        assert!(said["error"]["message"].as_str().unwrap().contains("Usage:"), "{said}");
    }
    // After `--` it is not an option, and a request for help is not a mistake.
    assert!(place.run(&["get", "--", "--json"]).err.starts_with("error: "));
    assert_eq!(place.run(&["--json", "--help"]).status, Some(0));
}

#[test]
fn every_command_has_help() {
    let place = Place::new("help");
    expect(&place.run(&["--help"]), 0, "thunderhead dev", "");
    expect(&place.run(&["--version"]), 0, env!("CARGO_PKG_VERSION"), "");
    expect(&place.run(&[]), 2, "", "Usage");
    let commands = [
        "dev",
        "server",
        "coordinator",
        "table",
        "table create",
        "table drop",
        "table list",
        "table show",
        "table split",
        "table migrate",
        "get",
        "put",
        "delete",
        "incr",
        "cas",
        "scan",
        "import",
        "export",
        "status",
        "shell",
        "config",
        "config check",
        "config show",
        "backup check",
        "bench",
        "bench mixed",
    ];
    for command in commands {
        let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let ended = place.run(&words);
        expect(&ended, 0, "Usage: thunderhead", "");
        assert!(ended.out.contains("--json"), "{command}");
    }
    expect(&place.run(&["server", "--help"]), 0, "--backup-bytes", "");
    expect(&place.run(&["coordinator", "--help"]), 0, "--metastore", "");
}

#[test]
fn the_generated_parts_of_the_documents_are_up_to_date() {
    let place = Place::new("reference");
    let commands = place.run(&["reference", "commands"]).out;
    let page = include_str!("../../../docs/cli.md");
    assert!(page.ends_with(&commands), "docs/cli.md is out of date: cargo xtask reference");
    let configuration = place.run(&["reference", "configuration"]).out;
    let page = include_str!("../../../docs/configuration.md");
    assert!(page == configuration, "docs/configuration.md is out of date: cargo xtask reference");
}

#[test]
fn wrong_arguments_end_with_status_2() {
    let place = Place::new("usage");
    let cases: &[(&[&str], &str)] = &[
        (&["delte", "t", "k"], "'delete'"),
        (&["get", "t"], "<KEY>"),
        (&["put", "t", "k"], "<VALUE>"),
        (&["put", "t", "k", "v", "--if-absent", "--if-present"], "cannot be used with"),
        (&["get", "t", "k", "--hex", "--raw"], "cannot be used with"),
        (&["table", "split", "t", "--at", "x"], "0x8000000000000000"),
        (&["table", "split", "t"], "--at"),
        (&["table", "create", "t", "--span", "0"], "0 is not in"),
        (&["server", "--memory", "8"], "--memory: server.memory = \"8\": add a unit"),
        (&["server", "--shards", "0"], "it must be from 1 to 128"),
        (&["--set", "server.memroy=1GiB", "config", "show"], "did you mean server.memory?"),
        (&["--set", "nonsense", "config", "show"], "KEY=VALUE"),
        (&["--deadline", "soon", "get", "t", "k"], "it must be a number with a unit"),
        (&["--config", "missing.toml", "get", "t", "k"], "missing.toml"),
        (&["backup", "check", "missing"], "not a directory"),
    ];
    for (arguments, expected) in cases {
        expect(&place.run(arguments), 2, "", expected);
    }
}

#[test]
fn an_unreachable_cluster_ends_with_status_3() {
    let place = Place::new("unreachable");
    place.write("objects.jsonl", "{\"key\":\"a\",\"value\":\"b\"}\n");
    let cases: &[&[&str]] = &[
        &["get", "t", "k"],
        &["put", "t", "k", "v"],
        &["delete", "t", "k"],
        &["incr", "t", "k", "-5"],
        &["cas", "t", "k", "1", "v"],
        &["scan", "t"],
        &["table", "list"],
        &["table", "create", "t"],
        &["import", "t", "objects.jsonl"],
        &["export", "t"],
        &["status"],
        &["bench", "read"],
    ];
    for arguments in cases {
        let ended = place.run(&to_nobody(arguments));
        expect(&ended, 3, "", "thunderhead: ");
        assert!(ended.err.contains("127.0.0.1:1"), "it is named: {}", ended.err);
        assert!(
            ended.err.contains("thunderhead dev"),
            "the message names the next step: {}",
            ended.err
        );
    }
    let ended = place.run(&to_nobody(&["status", "--json"]));
    let error: serde_json::Value = serde_json::from_str(&ended.err).unwrap();
    assert_eq!(error["error"]["kind"], "unreachable");
    assert_eq!(error["error"]["status"], 3);
}

#[test]
fn a_configuration_is_checked() {
    let place = Place::new("check");
    expect(&place.run(&["config", "check"]), 0, "there is no file", "");
    place.write("thunderhead.toml", "[server]\nmemory = \"8GiB\"\n");
    expect(&place.run(&["config", "check"]), 0, "thunderhead.toml is right", "");
    place.write("bad.toml", "[server]\nmemroy = \"8GiB\"\n\n[client]\ndeadline = 5\n");
    let ended = place.run(&["config", "check", "bad.toml"]);
    expect(
        &ended,
        1,
        "bad.toml:2: server.memroy: there is no such key; did you mean server.memory?",
        "2 mistakes",
    );
    expect(&ended, 1, "bad.toml:5: client.deadline = \"5\": add a unit", "");
    let ended = place.run(&["config", "check", "bad.toml", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(report["problems"][0]["nearest"], "server.memory");
    expect(&place.run(&["config", "check", "missing.toml"]), 2, "", "missing.toml");
    expect(&place.run(&["--config", "bad.toml", "get", "t", "k"]), 2, "", "bad.toml:2");
}

#[test]
fn the_shown_configuration_names_the_source_of_each_value() {
    let place = Place::new("show");
    place.write(
        "other.toml",
        "[server]\nmemory = \"8GiB\"\nshards = 2\n[client]\ndeadline = \"3s\"\n",
    );
    let mut command = place.command(&["config", "show", "--deadline", "7s", "--json"]);
    command.env("THUNDERHEAD_CONFIG", "other.toml").env("THUNDERHEAD_SERVER_SHARDS", "4");
    let shown = ended(command.output().unwrap());
    let keys: serde_json::Value = serde_json::from_str(&shown.out).unwrap();
    let cases = [
        ("server.memory", "8GiB", "other.toml:2"),
        ("server.shards", "4", "THUNDERHEAD_SERVER_SHARDS"),
        ("client.deadline", "7s", "--deadline"),
        ("log.format", "text", "default"),
    ];
    for (key, value, from) in cases {
        assert_eq!(
            (&keys[key]["value"], &keys[key]["from"]),
            (&value.into(), &from.into()),
            "{key}"
        );
    }
    // The output is a file with the same values.
    let first = place.run(&["--config", "other.toml", "config", "show"]);
    place.write("again.toml", &first.out);
    let second = place.run(&["--config", "again.toml", "config", "show"]);
    let values = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split(" #").next().unwrap().trim().to_owned()).collect()
    };
    assert_eq!(values(&first.out), values(&second.out));
}

#[test]
fn a_misspelled_variable_is_reported() {
    let place = Place::new("variable");
    let mut command = place.command(&["config", "show"]);
    command.env("THUNDERHEAD_SERVER_MEMROY", "8GiB").env("THUNDERHEAD_SERVICE_PORT", "1");
    let shown = ended(command.output().unwrap());
    expect(&shown, 0, "memory", "did you mean THUNDERHEAD_SERVER_MEMORY?");
    assert!(!shown.err.contains("SERVICE"), "{}", shown.err);
}

#[test]
fn a_shell_runs_a_script() {
    let place = Place::new("shell");
    let shell = |input: &str, more: &[&str]| {
        place.run_with(&to_nobody(&[&["shell"], more].concat()), input)
    };
    expect(&shell("help\nexit\nget t k\n", &[]), 0, "Commands:", "");
    expect(&shell("", &[]), 0, "", "");
    expect(&shell("help\n\nget t k\nhelp incr\n", &[]), 3, "Commands:", "line 3: no coordinator");
    let ended = shell("get t k\nhelp incr\n'open\n", &["-k"]);
    expect(&ended, 3, "The number to add", "line 1: no coordinator");
    expect(&ended, 3, "", "line 3: a quote is open");
    expect(&shell("nonsense\n", &[]), 2, "", "line 1: ");
}

#[test]
fn a_reader_that_leaves_ends_a_command_silently() {
    let place = Place::new("pipe");
    for arguments in [&["reference", "commands"][..], &["config", "show", "--json"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = place.command(arguments);
        let child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let ended = ended(child.wait_with_output().unwrap());
        assert_eq!((ended.status, ended.err.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn global_flags_stand_before_or_behind_a_command() {
    let place = Place::new("global");
    for arguments in
        [["--json", "config", "show"], ["config", "--json", "show"], ["config", "show", "--json"]]
    {
        assert!(place.run(&arguments).out.starts_with('{'), "{arguments:?}");
    }
}
