//! Lines that run one after the other, over a cluster in memory.

use super::*;
use crate::exit::Exit;
use crate::fake::FakeStore;

/// Runs a script. Returns its output, its notes and its result.
fn run_script(script: &str, keep_going: bool) -> (String, String, Result<(), Failure>) {
    let mut connections = 0;
    let mut connect = || -> Result<Box<dyn Store>, Failure> {
        connections += 1;
        Ok(Box::new(FakeStore::default()))
    };
    let (mut out, mut notes) = (Vec::new(), Vec::new());
    let mut input = script.as_bytes();
    let mut session = Session {
        out: &mut out,
        notes: &mut notes,
        input: Some(&mut input),
        ask: None,
        json: false,
        progress: false,
    };
    let arguments = Arguments { table: None, keep_going };
    let done = super::run(arguments, false, &mut connect, &mut session);
    assert!(connections <= 1);
    let [out, notes] = [out, notes].map(|it| String::from_utf8(it).unwrap());
    (out, notes, done)
}

#[test]
fn lines_run_one_after_the_other() {
    let script = "# a remark\n\ntable create t\nput t 'a key' \"line\\n\\x00\"\nscan t\nuse t\n\
                  get 'a key' --hex\nscan --keys\nincr n 5 --json\nuse\nget t n --number\nexit\nget";
    let (out, _, done) = run_script(script, false);
    done.unwrap();
    let expected = "created table \"t\" with 1 tablet\nversion 1\na key\tline\\n\\x00\n\
                    6c696e650a00\na key\n{\"value\":5,\"version\":2}\n5\n";
    assert_eq!(out, expected);
}

#[test]
fn the_first_error_ends_a_script_and_is_named_by_its_line() {
    let script = "table create t\nget t missing\nput t a b\n";
    let (out, _, done) = run_script(script, false);
    let failure = done.unwrap_err();
    assert_eq!(failure.exit, Exit::Negative);
    assert!(failure.message.starts_with("line 2: there is no object"), "{failure}");
    assert!(!out.contains("version"), "{out}");
    let (out, notes, done) = run_script(script, true);
    assert!(out.contains("version 1"), "it goes on: {out}");
    assert!(notes.contains("line 2: there is no object"), "{notes}");
    assert_eq!(done.unwrap_err().exit, Exit::Negative, "the status is that of the first error");
}

#[test]
fn malformed_lines_are_explained() {
    let cases = [
        ("gte t k", "`help` lists"),
        ("delte t k", "'delete'"),
        ("get t", "<KEY>"),
        ("put t 'k", "a quote is open"),
        ("put t k -", "the shell reads"),
        ("import t -", "the shell reads"),
        ("use nowhere", "there is no table \"nowhere\""),
        ("table drop t", "--yes"),
    ];
    for (line, expected) in cases {
        let (_, _, done) = run_script(&format!("table create t\n{line}\n"), false);
        let failure = done.unwrap_err();
        assert!(failure.message.contains(expected), "{line}: {failure}");
    }
}

#[test]
fn help_is_not_an_error() {
    for line in ["help", "help get", "get --help", "use t\nget --help"] {
        let (out, _, done) = run_script(&format!("table create t\n{line}\n"), false);
        done.unwrap();
        assert!(out.contains("Usage:"), "{line}: {out}");
    }
    let (out, ..) = run_script("help", false);
    for word in ["use", "get", "scan", "exit", "Quotes"] {
        assert!(out.contains(word), "{word}: {out}");
    }
}
