//! `thunderhead dev` as its users run it: started, killed, started again.
#![allow(clippy::disallowed_methods, reason = "the binary is run as a person runs it")]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;
use thunderhead_client::{Client, Condition, Error, Obstacle, Options, Status};

const PROGRAM: &str = env!("CARGO_BIN_EXE_thunderhead");

/// The time for an operation that must succeed, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A cluster in a process of its own.
struct Dev {
    process: Child,
    out: BufReader<ChildStdout>,
    coordinator: String,
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("THUNDERHEAD_")) {
        command.env_remove(name);
    }
    command.args(arguments);
    command
}

impl Dev {
    /// Starts a cluster, and waits until it serves.
    fn start(data: &Path, more: &[&str]) -> Dev {
        Dev::start_at("127.0.0.1:0", data, more)
    }

    fn start_at(listen: &str, data: &Path, more: &[&str]) -> Dev {
        let data = data.to_str().unwrap();
        let mut arguments = vec!["dev", "--listen", listen, "--data", data];
        arguments.extend(["--memory", "64MiB", "--segment-bytes", "1MiB", "--log-level", "warn"]);
        arguments.extend(more);
        Dev::begin(&mut command(&arguments))
    }

    fn begin(command: &mut Command) -> Dev {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let said =
            line.strip_prefix("Thunderhead serves at ").unwrap_or_else(|| panic!("{line:?}"));
        // The address ends with the second colon.
        let coordinator = said.splitn(3, ':').take(2).collect::<Vec<_>>().join(":");
        Dev { process, out, coordinator }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let output = command(arguments).args(["--coordinators", &self.coordinator]).output();
        output.unwrap()
    }

    /// Returns the output of a command that must succeed.
    fn says(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Ends it like a crash.
    fn kill(self) {}

    /// Asks it to end. Returns its status.
    fn end(self) -> Option<i32> {
        self.end_by("-INT")
    }

    fn end_by(mut self, signal: &str) -> Option<i32> {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        self.process.wait().unwrap().code()
    }
}

/// No process goes on after a test, even a failed one.
impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn directory(name: &str) -> std::path::PathBuf {
    let name = format!("thunderhead-dev-{}-{name}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&directory);
    directory
}

fn everything_acknowledged_is_there_again(name: &str, more: &[&str]) {
    let data = directory(name);
    let dev = Dev::start(&data, more);
    dev.says(&["table", "create", "users", "--span", "3"]);
    dev.says(&["put", "users", "ada", "first programmer"]);
    assert_eq!(dev.says(&["incr", "users", "visits", "41"]), "41");
    for key in 0..20 {
        dev.says(&["put", "users", &format!("key {key}"), "something"]);
    }
    dev.says(&["delete", "users", "key 7"]);
    dev.kill();
    for life in 1..4 {
        let dev = Dev::start(&data, more);
        assert_eq!(dev.says(&["get", "users", "ada"]), "first programmer");
        assert_eq!(dev.says(&["incr", "users", "visits"]), (41 + life).to_string());
        assert_eq!(dev.run(&["get", "users", "key 7"]).status.code(), Some(1));
        assert_eq!(dev.says(&["scan", "users", "--keys"]).lines().count(), 21);
        // Alternately ends it by a signal and kills it.
        if life % 2 == 0 { dev.kill() } else { assert_eq!(dev.end(), Some(0)) }
    }
    let _ = std::fs::remove_dir_all(&data);
}

#[test]
fn an_increment_of_text_is_refused_even_if_it_has_eight_bytes() {
    let data = directory("numbers");
    let dev = Dev::start(&data, &[]);
    dev.says(&["table", "create", "t"]);
    dev.says(&["put", "t", "text", "12345678"]);
    let refused = dev.run(&["incr", "t", "text", "--json"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(5), "{said}");
    assert!(said.contains("\"not_a_number\"") && said.contains("`put --number`"), "{said}");
    assert_eq!(dev.says(&["get", "t", "text"]), "12345678", "nothing was changed");
    dev.says(&["put", "t", "text", "41", "--number"]);
    dev.says(&["incr", "t", "half", "0.5", "--float"]);
    dev.kill();
    // The kind of a value outlasts the process.
    let dev = Dev::start(&data, &[]);
    assert_eq!(dev.says(&["incr", "t", "text"]), "42");
    assert_eq!(dev.says(&["get", "t", "text", "--number"]), "42");
    assert_eq!(dev.run(&["incr", "t", "half"]).status.code(), Some(5), "it has a fraction");
    assert_eq!(dev.says(&["incr", "t", "half", "--float"]), "1.5");
    let _ = std::fs::remove_dir_all(&data);
}

#[test]
fn the_options_of_a_table_outlast_the_process() {
    let data = directory("options");
    let dev = Dev::start(&data, &[]);
    let made = dev.says(&["table", "create", "t", "--ttl", "1h", "--policy", "cache"]);
    assert_eq!(made, "created table \"t\" with 1 tablet, ttl 1h, policy cache");
    let put = |dev: &Dev, key: &str, more: &[&str]| {
        dev.says(&[&["put", "t", key, "v"], more].concat());
        dev.says(&["ttl", "t", key])
    };
    let is_default = |left: &str| left.ends_with("ms") || left.ends_with('s') || left == "1h";
    assert!(is_default(&put(&dev, "a", &[])));
    assert_eq!(put(&dev, "b", &["--ttl", "never"]), "never");
    dev.says(&["put", "t", "short", "v", "--ttl", "1ms"]);
    while dev.run(&["get", "t", "short"]).status.success() {}
    let made = dev.says(&["table", "create", "small", "--max", "1KiB"]);
    assert_eq!(made, "created table \"small\" with 1 tablet, max 1KiB");
    let long = "v".repeat(1100);
    assert_eq!(dev.run(&["put", "small", "k", &long]).status.code(), Some(5), "it is too long");
    dev.says(&["put", "small", "k", "v"]);
    dev.kill();
    let dev = Dev::start(&data, &[]);
    assert_eq!(dev.run(&["put", "small", "l", &long]).status.code(), Some(5), "it is still");
    dev.says(&["put", "small", "k", "w"]);
    assert!(is_default(&dev.says(&["ttl", "t", "a"])));
    assert_eq!(dev.says(&["ttl", "t", "b"]), "never");
    assert!(is_default(&put(&dev, "c", &[])), "the options are still in force");
    assert_eq!(dev.run(&["get", "t", "short"]).status.code(), Some(1), "it is still gone");
    let list = dev.says(&["table", "list"]);
    assert!(list.contains("t, ttl 1h, policy cache"), "{list}");
    assert!(list.contains("small, max 1KiB"), "{list}");
    let _ = std::fs::remove_dir_all(&data);
}

#[test]
fn one_server_that_backs_itself_up() {
    everything_acknowledged_is_there_again("one", &[]);
}

#[test]
fn four_servers_that_keep_replicas_for_each_other() {
    everything_acknowledged_is_there_again("four", &["--servers", "4"]);
}

#[test]
fn two_shards_in_one_server() {
    everything_acknowledged_is_there_again("shards", &["--shards", "2"]);
}

#[test]
fn buffers_are_in_the_directory_of_the_setting_and_not_needed_after_sigterm() {
    let (data, buffers) = (directory("buffered"), directory("buffers"));
    std::fs::create_dir(&buffers).unwrap();
    let there = || std::fs::read_dir(&buffers).unwrap().count();
    let more = ["--buffer-directory", buffers.to_str().unwrap()];
    let dev = Dev::start(&data, &more);
    dev.says(&["table", "create", "users"]);
    dev.says(&["put", "users", "ada", "first programmer"]);
    assert_eq!(there(), 1, "the buffers of one server");
    assert_eq!(dev.end_by("-TERM"), Some(0));
    assert_eq!(there(), 0, "everything is on the disk");
    let dev = Dev::start(&data, &more);
    assert_eq!(dev.says(&["get", "users", "ada"]), "first programmer");
    dev.kill();
    let _ = [data, buffers].map(std::fs::remove_dir_all);
}

#[test]
fn the_limit_of_open_files_is_raised_to_what_the_system_allows() {
    let data = directory("limited");
    let begin = r#"ulimit -Sn 512 && exec "$0" "$@""#;
    let mut limited = Command::new("sh");
    limited.args(["-c", begin, PROGRAM, "dev", "--listen", "127.0.0.1:0", "--memory", "64MiB"]);
    limited.args(["--segment-bytes", "1MiB", "--data", data.to_str().unwrap()]);
    let dev = Dev::begin(&mut limited);
    let limits = format!("/proc/{}/limits", dev.process.id());
    let limits = std::fs::read_to_string(limits).unwrap();
    let files = limits.lines().find_map(|it| it.strip_prefix("Max open files")).unwrap();
    let numbers: Vec<&str> = files.split_whitespace().take(2).collect();
    assert_eq!(numbers[0], numbers[1], "the soft limit and the hard one");
    dev.kill();
    let _ = std::fs::remove_dir_all(&data);
}

/// Returns an address that several clusters use in turn. Its host belongs to this process alone,
/// and the system never hands out its port. So no other program takes it between two clusters.
fn own_address(number: u32) -> String {
    let id = std::process::id();
    let (high, middle, low) = (64 + (id >> 16 & 63), id >> 8 & 255, id & 255);
    format!("127.{high}.{middle}.{low}:{}", 7917 + 10 * number)
}

#[test]
fn an_open_client_does_not_mistake_another_cluster_at_the_same_ports_for_its_own() {
    let data = ["ours", "theirs"].map(directory);
    let at = own_address(0);
    let dev = Dev::start_at(&at, &data[0], &[]);
    dev.says(&["table", "create", "t"]);
    dev.says(&["put", "t", "key", "ours"]);
    let options = Options::new([at.parse().unwrap()]).deadline(Some(PATIENCE));
    let mut client = Client::connect(&options).unwrap();
    let table = client.table("t").unwrap();
    let cluster = client.status().unwrap().cluster;
    assert_eq!(client.get(table, b"key").unwrap().unwrap().1, b"ours");
    client.put(table, b"written", b"1", Condition::Always).unwrap();
    dev.kill();
    // The same ports, and a table with the same id.
    let dev = Dev::start_at(&at, &data[1], &[]);
    dev.says(&["table", "create", "t"]);
    dev.says(&["put", "t", "key", "theirs"]);
    // A read goes on until its deadline. On a busy machine even the first greeting may take that
    // long.
    client.set_deadline(Some(Duration::from_secs(3)));
    let read = client.get(table, b"key");
    let is_told = |it| matches!(it, Obstacle::OtherCluster | Obstacle::NoAnswer);
    assert!(matches!(read, Err(Error::TimedOut(it)) if is_told(it)), "{read:?}");
    let written = client.put(table, b"key", b"ours", Condition::Always);
    assert!(matches!(written, Err(error) if !error.is_unknown()), "{written:?}");
    client.set_deadline(Some(PATIENCE));
    assert_eq!(client.table("t"), Err(Error::Refused(Status::WrongCluster)));
    let demanding = Options::new([at.parse().unwrap()]).of_cluster(cluster);
    let refused = Client::connect(&demanding).err();
    assert_eq!(refused, Some(Error::Refused(Status::WrongCluster)));
    assert_eq!(dev.says(&["get", "t", "key"]), "theirs");
    dev.kill();
    let dev = Dev::start_at(&at, &data[0], &[]);
    assert_eq!(client.get(table, b"key").unwrap().unwrap().1, b"ours");
    assert_eq!(client.get(table, b"written").unwrap().unwrap().1, b"1");
    client.put(table, b"key", b"ours again", Condition::Always).unwrap();
    assert_eq!(dev.end(), Some(0));
    data.iter().for_each(|it| drop(std::fs::remove_dir_all(it)));
}

#[test]
fn a_workload_loads_a_running_cluster() {
    let data = directory("bench");
    let dev = Dev::start(&data, &[]);
    let small = ["--objects", "256", "--duration", "50ms", "--table", "loaded", "--json"];
    let report = dev.says(&[&["bench", "ycsb-a"][..], &small].concat());
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["settings"]["target"], &report["failed"]), (&"cluster".into(), &0.into()));
    assert!(report["objects_per_second"].as_f64().unwrap() > 0.0, "{report}");
    assert_eq!(dev.says(&["scan", "loaded", "--keys"]).lines().count(), 256);
    assert_eq!(dev.end(), Some(0));
    let _ = std::fs::remove_dir_all(&data);
}

/// A process that ends with its test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    fn start(arguments: &[&str]) -> Process {
        Process(command(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

/// Waits until the output of `thunderhead status` has these words, and returns it.
fn status_says(at: &str, words: &[&str]) -> String {
    let end = std::time::Instant::now() + 3 * PATIENCE;
    loop {
        let output =
            command(&["status", "--coordinators", at, "--deadline", "5s"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if words.iter().all(|it| said.contains(it)) {
            return said;
        }
        assert!(std::time::Instant::now() < end, "{words:?} did not appear: {said}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the names of the files and directories in a directory.
fn entries(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_killed_temporary_store_leaves_nothing() {
    let scratch = directory("ephemeral");
    std::fs::create_dir_all(&scratch).unwrap();
    let start = || {
        let mut command = command(&["dev", "--ephemeral", "true", "--json"]);
        command.env("TMPDIR", &scratch).current_dir(&scratch).stdout(Stdio::piped());
        Process(command.spawn().unwrap())
    };
    let mut process = start();
    let mut line = String::new();
    BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&ready["ephemeral"], &ready["data"]), (&true.into(), &serde_json::Value::Null));
    assert_eq!(ready["pid"], process.0.id());
    assert!(ready["memory_bytes"].as_u64().unwrap() <= 64 << 20, "{ready}");
    let at = ready["coordinators"][0].as_str().unwrap();
    let says = |arguments: &[&str]| {
        let output = command(arguments).args(["--coordinators", at]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    says(&["table", "create", "t"]);
    says(&["put", "t", "key", "value"]);
    assert_eq!(says(&["get", "t", "key"]).trim(), "value");
    // It has no file while it runs either, so the way in which it ends does not matter.
    let pid = process.0.id();
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let files = open.filter_map(|it| std::fs::read_link(it.unwrap().path()).ok());
    let named: Vec<_> = files.filter(|it| it.starts_with(&scratch)).collect();
    assert_eq!((entries(&scratch), named), (Vec::<String>::new(), Vec::new()));
    drop(process);
    assert_eq!(entries(&scratch), Vec::<String>::new());
    // Killed before it is ready, at different points of its start.
    for milliseconds in [0, 3, 10, 30, 100] {
        let process = start();
        std::thread::sleep(Duration::from_millis(milliseconds));
        drop(process);
        assert_eq!(entries(&scratch), Vec::<String>::new(), "after {milliseconds} ms");
    }
    std::fs::remove_dir(&scratch).unwrap();
}

#[test]
fn an_orderly_end_is_no_reason_for_a_warning() {
    let mut process = command(&["dev", "--ephemeral", "--json"]);
    let mut process = process.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = process.stderr.take().unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let process = Process(process);
    let id = process.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let mut said = String::new();
    errors.read_to_string(&mut said).unwrap();
    assert!(!said.contains("WARN") && !said.contains("ERROR"), "{said}");
}

#[test]
fn a_coordinator_whose_file_is_missing_refuses_or_asks_whether_its_disk_is_mounted() {
    let (directory, at) = (directory("missing"), own_address(1));
    let (data, storage) = (directory.join("coordinator"), directory.join("server"));
    let (data, storage) = (data.to_str().unwrap(), storage.to_str().unwrap());
    let coordinator = ["coordinator", "--listen", &at, "--data", data];
    let server = ["server", "--coordinators", &at, "--listen", "127.0.0.1:0", "--data", storage];
    let server = [&server[..], &["--memory", "64MiB", "--backup-bytes", "256MiB"]].concat();
    let running = [Process::start(&coordinator), Process::start(&server)];
    status_says(&at, &["1 server"]);
    drop(running);
    let file = directory.join("coordinator/metastore");
    std::fs::rename(&file, directory.join("unmounted")).unwrap();

    let existing = [&coordinator[..], &["--existing", "true"]].concat();
    let refused = command(&existing).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let words = String::from_utf8_lossy(&refused.stderr);
    let named = words.contains(file.to_str().unwrap()) && words.contains("mounted?");
    assert!(named && !file.exists(), "{words}");

    let running = [Process::start(&coordinator), Process::start(&server)];
    let mounted = format!("is the disk of {} mounted?", file.display());
    status_says(&at, &[&mounted]);
    drop(running);
    std::fs::rename(directory.join("unmounted"), &file).unwrap();
    let running = [Process::start(&existing), Process::start(&server)];
    assert!(!status_says(&at, &["1 server"]).contains("mounted?"));
    drop(running);
    let _ = std::fs::remove_dir_all(&directory);
}

#[test]
fn a_directory_that_is_in_use_is_refused() {
    let data = directory("twice");
    let dev = Dev::start(&data, &[]);
    let path = data.to_str().unwrap();
    let second = command(&["dev", "--listen", "127.0.0.1:0", "--data", path]).output().unwrap();
    assert_eq!(second.status.code(), Some(2), "{second:?}");
    let words = String::from_utf8_lossy(&second.stderr);
    assert!(words.contains("open already"), "{words}");
    let port = dev.coordinator.clone();
    let elsewhere = directory("elsewhere");
    let path = elsewhere.to_str().unwrap();
    let third = command(&["dev", "--listen", &port, "--data", path]).output().unwrap();
    assert_eq!(third.status.code(), Some(2), "{third:?}");
    assert!(String::from_utf8_lossy(&third.stderr).contains(&port), "{third:?}");
    assert_eq!(dev.says(&["table", "list"]).lines().count().min(1), 1);
    assert_eq!(dev.end(), Some(0));
    let _ = std::fs::remove_dir_all(&data);
    let _ = std::fs::remove_dir_all(&elsewhere);
}
