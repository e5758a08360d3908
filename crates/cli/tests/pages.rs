//! The console blocks of the pages, run as a reader would run them.
//!
//! A block that is marked `console` is run if one of its commands has the word `thunderhead`. All
//! blocks of one page use one `thunderhead dev --ephemeral`, in their order, in one empty
//! directory. A line after `$ ` is a command for the shell; the lines after it are its output, on
//! the standard output and the standard error.
//!
//! - `…` in a line of output stands for any text, for example a time. A line that is only `…`
//!   stands for any lines.
//! - A command without shown output may print anything, but it must succeed.
//! - A command of `cargo` is not run: it builds and starts the program, and the test has done both.
//! - A block that is marked `console,no-run` is not run: it needs several machines, or takes long.
#![allow(clippy::disallowed_methods, reason = "the binary is run as a person runs it")]

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_thunderhead");

/// The most seconds that a command may take, on a busy machine.
const SECONDS_MAX: &str = "60";

/// A command of a page, and the lines of output that the page shows.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    line: usize,
    command: String,
    output: Vec<String>,
}

/// Returns the commands of the blocks that can be run.
fn shown(page: &str) -> Vec<Shown> {
    let mut all = Vec::new();
    let mut block: Option<Vec<Shown>> = None;
    for (number, line) in page.lines().enumerate() {
        let line = line.trim_end();
        let fence = line.trim_start().strip_prefix("```");
        match (&mut block, fence) {
            (None, Some("console")) => block = Some(Vec::new()),
            (Some(_), Some(_)) => {
                let commands = block.take().unwrap_or_default();
                if commands.iter().any(runs_the_program) {
                    all.extend(commands);
                }
            }
            (Some(commands), None) => match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(command), _) => {
                    let (line, command) = (number + 1, command.to_owned());
                    commands.push(Shown { line, command, output: Vec::new() });
                }
                (None, Some(last)) => last.output.push(line.to_owned()),
                (None, None) => {}
            },
            (None, _) => {}
        }
    }
    for one in &mut all {
        while one.output.last().is_some_and(String::is_empty) {
            one.output.pop();
        }
    }
    all
}

fn runs_the_program(shown: &Shown) -> bool {
    shown.command.split_whitespace().any(|word| word == "thunderhead")
}

/// Whether lines of output are as they are shown.
fn is_as_shown(shown: &[String], lines: &[&str]) -> bool {
    match (shown.split_first(), lines.split_first()) {
        (None, None) => true,
        (Some((first, rest)), _) if first == "…" => {
            (0..=lines.len()).any(|skipped| is_as_shown(rest, &lines[skipped..]))
        }
        (Some((first, shown)), Some((line, lines))) => {
            is_line_as_shown(first, line) && is_as_shown(shown, lines)
        }
        _ => false,
    }
}

fn is_line_as_shown(shown: &str, line: &str) -> bool {
    let line = line.trim_end();
    let parts: Vec<&str> = shown.split('…').collect();
    let [first, middle @ .., last] = parts.as_slice() else { return shown == line };
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// A running `thunderhead dev --ephemeral`.
struct Dev {
    process: Child,
    coordinator: String,
    /// The commands run here.
    directory: PathBuf,
}

impl Dev {
    fn start(name: &str) -> Dev {
        let name = format!("thunderhead-pages-{}-{name}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let mut command = Command::new(PROGRAM);
        without_settings(&mut command);
        command.args(["dev", "--ephemeral", "--json"]).current_dir(&directory);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
        let coordinator = ready["coordinators"][0].as_str().unwrap().to_owned();
        Dev { process, coordinator, directory }
    }

    /// Runs a command by the shell. `before` is the status of the command before it. Returns its
    /// output and its status.
    fn run(&self, command: &str, before: i32) -> (String, i32) {
        let programs = Path::new(PROGRAM).parent().unwrap().display().to_string();
        let path = std::env::var("PATH").unwrap_or_default();
        // With the status of the last command a page can show `echo $?`.
        let script = format!("(exit {before}); {command}");
        let mut shell = Command::new("timeout");
        without_settings(&mut shell);
        shell.args([SECONDS_MAX, "sh", "-c", &script]).current_dir(&self.directory);
        shell.env("PATH", format!("{programs}:{path}"));
        shell.env("THUNDERHEAD_COORDINATORS", &self.coordinator);
        let (mut reader, writer) = std::io::pipe().unwrap();
        shell.stdin(Stdio::null()).stdout(writer.try_clone().unwrap()).stderr(writer);
        let mut child = shell.spawn().unwrap();
        // Otherwise this process would hold the pipe open.
        drop(shell);
        let mut output = String::new();
        reader.read_to_string(&mut output).unwrap();
        (output, child.wait().unwrap().code().unwrap_or(-1))
    }
}

fn without_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("THUNDERHEAD_") {
            command.env_remove(name);
        }
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Runs the commands of a page. Returns a text for each command that does not do as shown.
fn wrong(name: &str, page: &str) -> Vec<String> {
    let commands = shown(page);
    if commands.is_empty() {
        return Vec::new();
    }
    let dev = Dev::start(&name.replace('/', "-"));
    let mut wrong = Vec::new();
    let mut status = 0;
    for Shown { line, command, output } in &commands {
        if command.starts_with("cargo ") {
            continue;
        }
        let (printed, ended) = dev.run(command, status);
        status = ended;
        let lines: Vec<&str> = printed.trim_end().lines().collect();
        let is_right = match output.is_empty() {
            true => status == 0,
            false => is_as_shown(output, &lines),
        };
        if !is_right {
            let mut text = format!("{name}:{line}: $ {command}\nends with {status} and prints\n");
            // Writing to a string does not fail.
            let _ = write!(text, "{printed}but the page shows\n{}", output.join("\n"));
            wrong.push(text);
        }
    }
    wrong
}

/// Adds the pages of a directory and of all below it.
fn add_pages(directory: &Path, pages: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_pages(&path, pages);
        } else if path.extension().is_some_and(|it| it == "md") {
            pages.push(path);
        }
    }
}

#[test]
fn commands_in_the_pages_print_what_the_pages_show() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let mut pages = vec![root.join("README.md")];
    add_pages(&root.join("docs"), &mut pages);
    pages.sort();
    let wrong: Vec<String> = pages
        .iter()
        .flat_map(|path| {
            let name = path.strip_prefix(&root).unwrap().display().to_string();
            wrong(&name, &std::fs::read_to_string(path).unwrap())
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n\n"));
}

#[test]
fn only_blocks_that_can_run_are_run() {
    let page = "```console\n$ cargo build\n```\n```console,no-run\n$ thunderhead dev\n```\n\
                ```text\n$ thunderhead get\n```\n\
                ```console\n$ alias a=b\n$ thunderhead get t k\nvalue\n\n$ echo $?\n0\n\n```\n";
    let one = |line, command: &str, output: &[&str]| Shown {
        line,
        command: command.to_owned(),
        output: output.iter().map(|it| (*it).to_owned()).collect(),
    };
    let expected = [
        one(11, "alias a=b", &[]),
        one(12, "thunderhead get t k", &["value"]),
        one(15, "echo $?", &["0"]),
    ];
    assert_eq!(shown(page), expected);
}

#[test]
fn an_ellipsis_stands_for_any_text() {
    let is_right = |shown: &[&str], lines: &[&str]| {
        let shown: Vec<String> = shown.iter().map(|it| (*it).to_owned()).collect();
        is_as_shown(&shown, lines)
    };
    assert!(is_right(&["a", "in … s (… a second)"], &["a", "in 0.1 s (12 a second)"]));
    assert!(is_right(&["a", "…", "d"], &["a", "b", "c", "d"]));
    assert!(is_right(&["a", "…"], &["a"]));
    for (shown, lines) in [
        (&["a"][..], &["b"][..]),
        (&["a"], &["a", "b"]),
        (&["a", "b"], &["a"]),
        (&["a … c"], &["a b d"]),
        (&["…", "d"], &["a", "b"]),
    ] {
        assert!(!is_right(shown, lines), "{shown:?} {lines:?}");
    }
}

#[test]
fn a_command_that_does_something_else_is_named_with_its_line() {
    let page = "```console\n$ cargo no-such-command\n$ thunderhead table create t\ncreated table \"t\" with 2 tablets\n\
                $ thunderhead get t no\n```\n";
    let wrong = wrong("x.md", page);
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert!(wrong[0].starts_with("x.md:3: $ thunderhead table create t\nends with 0"), "{wrong:?}");
    assert!(wrong[0].contains("with 1 tablet\nbut the page shows\n"), "{wrong:?}");
    assert!(wrong[1].starts_with("x.md:5: $ thunderhead get t no\nends with 1"), "{wrong:?}");
}
