//! `thunderhead shell`: runs commands one after the other.
//!
//! On a terminal it has a line editor, a history and completion, and goes on after errors.
//! Otherwise the standard input is a script: the shell asks no questions, and the first error ends
//! the script unless `--keep-going` is set. The shell connects to the cluster when the first
//! command needs it.

mod completion;
mod editor;
mod words;

use crate::arguments::{self, DataCommand};
use crate::exit::Failure;
use crate::session::Session;
use crate::store::Store;
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::io::{BufRead, Read};
use std::os::unix::ffi::OsStringExt;

/// The shell's arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Begin with this table in use.
    #[arg(long, value_name = "TABLE")]
    table: Option<String>,
    /// In a script, go on after errors. The status is that of the first one.
    #[arg(long, short)]
    keep_going: bool,
}

/// A line.
#[derive(Debug, Parser)]
#[command(
    name = "",
    no_binary_name = true,
    disable_version_flag = true,
    about = "Commands of the shell. After `use TABLE` they take no TABLE.",
    after_help = "Quotes: 'as it is', \"with \\n \\t \\\\ \\xNN\". A line that begins with # is a comment."
)]
struct Line {
    /// Print JSON, for programs.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: LineCommand,
}

#[derive(Debug, Subcommand)]
enum LineCommand {
    /// Leave TABLE out of the following commands. Without a name: take TABLE again.
    Use {
        /// The table's name.
        table: Option<String>,
    },
    #[command(flatten)]
    Data(DataCommand),
    /// Leave the shell.
    #[command(alias = "quit")]
    Exit,
}

/// Commands whose first argument is a table.
const WITH_TABLE: &[&str] = &["get", "put", "delete", "incr", "cas", "scan", "import", "export"];

/// Lines longer than this are refused: the longest value, escaped.
const LINE_BYTES_MAX: u64 = 8 << 20;

/// Connects to a cluster.
pub(crate) type Connect<'a> = &'a mut dyn FnMut() -> Result<Box<dyn Store>, Failure>;

/// The state of the shell.
struct Shell<'a> {
    connect: Connect<'a>,
    store: Option<Box<dyn Store>>,
    table: Option<String>,
    /// The tables' names when they were last read, for completion.
    tables: Vec<String>,
}

/// Whether the shell goes on.
#[derive(Debug, PartialEq, Eq)]
enum Flow {
    On,
    Leave,
}

/// Runs the shell, on a terminal or over a script.
pub(crate) fn run(
    arguments: Arguments,
    is_terminal: bool,
    connect: Connect<'_>,
    session: &mut Session<'_>,
) -> Result<(), Failure> {
    let table = arguments.table;
    let mut shell = Shell { connect, store: None, table, tables: Vec::new() };
    if is_terminal {
        return editor::run(&mut shell, session);
    }
    let Some(input) = session.input.take() else { return Ok(()) };
    script(&mut shell, input, arguments.keep_going, session)
}

/// Runs the lines of a script.
fn script(
    shell: &mut Shell<'_>,
    input: &mut dyn Read,
    keep_going: bool,
    session: &mut Session<'_>,
) -> Result<(), Failure> {
    let mut input = std::io::BufReader::new(input);
    let mut first: Option<Failure> = None;
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        let read = (&mut input).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        let read = read.map_err(|error| Failure::file("the standard input", &error))?;
        if read == 0 {
            break;
        }
        let done = match read as u64 == LINE_BYTES_MAX {
            true => return Err(Failure::usage(format!("line {number} is too long"))),
            false => shell.line(&line, session),
        };
        let failure = match done {
            Ok(Flow::On) => continue,
            Ok(Flow::Leave) => break,
            Err(failure) if failure.reader_is_gone => return Err(failure),
            Err(failure) => failure.within(format!("line {number}")),
        };
        if !keep_going {
            return Err(failure);
        }
        session.out.flush()?;
        let text = failure.text(session.json);
        session.note(text);
        first.get_or_insert(failure);
    }
    match first {
        // Its message is printed already.
        Some(failure) => Err(Failure { message: String::new(), ..failure }),
        None => Ok(()),
    }
}

impl Shell<'_> {
    /// Runs a line.
    fn line(&mut self, line: &[u8], session: &mut Session<'_>) -> Result<Flow, Failure> {
        let mut words = words::split(line).map_err(Failure::usage)?;
        let Some(first) = words.first() else { return Ok(Flow::On) };
        let takes_table = WITH_TABLE.iter().any(|name| name.as_bytes() == first);
        let asks_help = words.get(1).is_some_and(|it| it == b"--help" || it == b"-h");
        if let Some(table) = &self.table
            && takes_table
            && !asks_help
        {
            words.insert(1, table.clone().into_bytes());
        }
        let line = match Line::try_parse_from(words.into_iter().map(OsString::from_vec)) {
            Ok(line) => line,
            Err(error) => {
                let text = error.render().to_string();
                if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
                    writeln!(session.out, "{}", text.trim_end())?;
                    return Ok(Flow::On);
                }
                let text = text.trim_start_matches("error: ");
                let text = text.replace("For more information, try '--help'.", "");
                if error.kind() == ErrorKind::InvalidSubcommand {
                    let text = text.split("\n\nUsage:").next().unwrap_or_default();
                    return Err(Failure::usage(text).with("`help` lists the commands"));
                }
                return Err(Failure::usage(text.trim_end().to_owned()));
            }
        };
        let before = session.json;
        session.json |= line.json;
        let done = self.command(line.command, session);
        session.json = before;
        done
    }

    fn command(
        &mut self,
        command: LineCommand,
        session: &mut Session<'_>,
    ) -> Result<Flow, Failure> {
        match command {
            LineCommand::Exit => return Ok(Flow::Leave),
            LineCommand::Use { table: None } => self.table = None,
            LineCommand::Use { table: Some(table) } => {
                self.store()?.table(&table)?;
                self.table = Some(table);
            }
            LineCommand::Data(command) => {
                let is_about_tables = matches!(command, DataCommand::Table(_));
                arguments::run(command, self.store()?, session)?;
                if is_about_tables {
                    self.learn_tables();
                }
            }
        }
        Ok(Flow::On)
    }

    /// Returns the cluster. Connects to it first if necessary.
    fn store(&mut self) -> Result<&mut (dyn Store + 'static), Failure> {
        if self.store.is_none() {
            self.store = Some((self.connect)()?);
            self.learn_tables();
        }
        match &mut self.store {
            Some(store) => Ok(store.as_mut()),
            None => Err(Failure::usage("not connected")),
        }
    }

    /// Reads the tables' names. If it fails, no names are completed.
    fn learn_tables(&mut self) {
        if let Some(Ok(map)) = self.store.as_mut().map(|store| store.tables()) {
            self.tables = map.tables.into_iter().map(|table| table.name).collect();
        }
    }
}

#[cfg(test)]
mod tests;
