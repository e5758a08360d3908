//! The file of the embedded store: killed, opened twice, damaged, and foreign files.
#![allow(clippy::disallowed_methods, reason = "tests start processes and damage files")]
#![allow(clippy::print_stdout, reason = "a child reports answered writes to its parent")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use thunderhead_metastore::embedded::Embedded;
use thunderhead_metastore::{
    Answer, Change, Entry, Event, Holder, Key, LeaseName, Metastore, OpenError, Prefix, Request,
    Token,
};
use thunderhead_runtime::alarm::Alarm;
use thunderhead_runtime::sim::disk::{DiskModel, SimDisk};
use thunderhead_runtime::sim::workers::SimWorkers;
use thunderhead_runtime::{Random, Time};

/// The variable with the file to which a child process writes until it is killed.
const FILE: &str = "THUNDERHEAD_METASTORE_TEST_FILE";

struct Scrap(PathBuf);

impl Scrap {
    fn new(name: &str) -> Scrap {
        let name = format!("thunderhead-metastore-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a directory for the test");
        Scrap(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("metastore")
    }
}

impl Drop for Scrap {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Sends a request to a store and runs its worker until the answer comes.
fn ask(store: &Embedded, request: Request) -> Answer {
    let workers = SimWorkers::default();
    let disk = SimDisk::new(DiskModel::default(), Random::from_seed(1));
    let mut starter = workers.starter(move || Box::new(disk.files()));
    let mut client = store.client(&mut starter, Alarm::sim()).expect("a client");
    client.submit(Time(0), request);
    workers.step(0);
    match client.poll(Time(0)) {
        Some(Event::Done(_, Ok(answer))) => answer,
        other => panic!("{other:?}"),
    }
}

fn write(store: &Embedded, number: u32) {
    let key = Key::new(format!("k/{number}")).expect("a good key");
    let change = Change::Create(number.to_string().into_bytes());
    let answer = ask(store, Request::Write { key, change, fence: None });
    assert!(matches!(answer, Answer::Written(_)), "{answer:?}");
}

fn all(store: &Embedded) -> Vec<Entry> {
    match ask(store, Request::List { prefix: Prefix::all(), after: None }) {
        Answer::Page(page) => page.entries,
        other => panic!("{other:?}"),
    }
}

fn acquire(store: &Embedded, id: u64) -> Token {
    let lease = LeaseName::new("l").expect("a good name");
    let holder = Holder { id, description: String::new() };
    match ask(store, Request::Acquire { lease, holder, ttl: Duration::from_secs(20) }) {
        Answer::Acquired(token) => token,
        other => panic!("{other:?}"),
    }
}

fn opened(path: &Path) -> Embedded {
    Embedded::open(path).expect("it opens")
}

#[test]
fn other_users_have_no_right_to_the_file() {
    use std::os::unix::fs::PermissionsExt;
    let scrap = Scrap::new("rights");
    let _store = Embedded::open(&scrap.file()).expect("a new file");
    let mode = std::fs::metadata(scrap.file()).expect("the file").permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
}

/// A file of an earlier version, or of another user.
#[test]
fn a_file_that_other_users_could_write_is_refused_and_a_readable_one_is_closed_to_them() {
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
    let scrap = Scrap::new("others");
    let path = scrap.file();
    drop(opened(&path));
    let mode = |mode| {
        let rights = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, rights).expect("it is ours");
    };
    let refused = |why: &str| {
        let error = Embedded::open(&path).err().expect("it is not to be trusted").to_string();
        assert!(error.contains(why) && error.contains(path.to_str().expect("text")), "{error}");
    };
    mode(0o644);
    drop(opened(&path));
    let rights = std::fs::metadata(&path).expect("the file").permissions().mode();
    assert_eq!(rights & 0o7777, 0o600);
    mode(0o666);
    refused("mode 666");
    mode(0o600);
    if chown(&path, Some(65534), None).is_err() {
        let mut out = std::io::stderr();
        writeln!(out, "files of another user are skipped: only root makes them").expect("stderr");
        return;
    }
    refused("belongs to user 65534");
    chown(&path, Some(0), None).expect("as before");
    let target = path.with_extension("target");
    std::fs::rename(&path, &target).expect("a new name for the target");
    symlink(&target, &path).expect("a link");
    drop(opened(&path));
    let folder = path.parent().expect("a folder");
    let rights = std::fs::Permissions::from_mode(0o1777);
    std::fs::set_permissions(folder, rights).expect("every user may make names here");
    lchown(&path, Some(65534), None).expect("a link of another user");
    refused("belongs to user 65534");
}

#[test]
fn answered_writes_survive_a_kill() {
    if let Some(path) = std::env::var_os(FILE) {
        // This is the child.
        let store = opened(Path::new(&path));
        acquire(&store, 1);
        for number in 0.. {
            write(&store, number);
            println!("written {number}");
            std::io::stdout().flush().expect("its parent listens");
        }
    }
    let scrap = Scrap::new("kill");
    let me = std::env::current_exe().expect("this program");
    let mut child = Command::new(me)
        .args(["--exact", "answered_writes_survive_a_kill", "--nocapture"])
        .env(FILE, scrap.file())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let said = BufReader::new(child.stdout.take().expect("the child's output"));
    let mut numbers = said.lines().map_while(Result::ok).filter_map(|line| {
        line.split_once("written ").and_then(|(_, number)| number.parse::<u32>().ok())
    });
    let last = numbers.by_ref().find(|number| *number >= 40).expect("it writes");
    let refused = Embedded::open(&scrap.file()).err();
    assert!(matches!(refused, Some(OpenError::InUse { .. })), "{refused:?}");
    child.kill().expect("it runs");
    let last = numbers.last().unwrap_or(last);
    child.wait().expect("it ran");

    let store = opened(&scrap.file());
    let count = all(&store).len();
    assert!(count == last as usize + 1 || count == last as usize + 2, "{count} of {last}");
    write(&store, 1_000_000);
    assert_eq!(acquire(&store, 2), Token(2), "the first holder is dead");
}

#[test]
fn a_file_is_opened_once() {
    let scrap = Scrap::new("twice");
    let store = opened(&scrap.file());
    let error = Embedded::open(&scrap.file()).err().expect("it is refused");
    assert_eq!(error.code(), 101);
    assert!(error.to_string().contains("is open already"), "{error}");
    drop(store);
    opened(&scrap.file());
    let left: Vec<_> = std::fs::read_dir(&scrap.0).expect("it is there").collect();
    assert_eq!(left.len(), 1, "nothing unfinished is left: {left:?}");
}

#[test]
fn a_foreign_file_is_refused_and_left_unchanged() {
    let scrap = Scrap::new("foreign");
    let contents: [&[u8]; 3] = [b"", b"#!/bin/sh\n", &[0; 100_000]];
    for content in contents {
        std::fs::write(scrap.file(), content).expect("a file");
        let error = Embedded::open(&scrap.file()).err();
        assert!(matches!(error, Some(OpenError::Damaged { .. })), "{error:?}");
        assert_eq!(std::fs::read(scrap.file()).expect("it is there"), content);
    }
    let error = Embedded::open(&scrap.0.join("no/such/directory")).err();
    assert!(matches!(error, Some(OpenError::Machine(_))), "{error:?}");
}

#[test]
fn a_damaged_file_is_refused_or_reads_unchanged() {
    let scrap = Scrap::new("damage");
    let store = opened(&scrap.file());
    (0..60).for_each(|number| write(&store, number));
    let expected = all(&store);
    drop(store);
    let whole = std::fs::read(scrap.file()).expect("it is there");
    let mut random = Random::from_seed(5);
    let (mut refused, mut harmless) = (0, 0);
    for _ in 0..200 {
        let mut bytes = whole.clone();
        // Most of the file is empty: choose a byte that is not.
        let at = loop {
            let at = random.below(bytes.len() as u64) as usize;
            if bytes[at] != 0 {
                break at;
            }
        };
        bytes[at] ^= 1 << random.below(8);
        std::fs::write(scrap.file(), &bytes).expect("a file");
        match Embedded::open(&scrap.file()) {
            Ok(store) => {
                assert_eq!(all(&store), expected, "damage at {at}");
                harmless += 1;
            }
            Err(error) => {
                let known =
                    matches!(error, OpenError::Damaged { .. } | OpenError::NewerFormat { .. });
                assert!(known, "damage at {at}: {error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 20 && refused + harmless == 200, "{refused} {harmless}");
}
