//! The shell on a terminal.

use super::completion::complete;
use super::{Flow, Shell};
use crate::exit::Failure;
use crate::session::Session;
use crate::settings::state_directory;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};
use std::path::PathBuf;

/// The number of lines in the history.
const HISTORY: usize = 10_000;

/// The editor's knowledge for completion.
#[derive(Default)]
struct Knowledge {
    tables: Vec<String>,
    in_use: bool,
}

impl Completer for Knowledge {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let before = line.get(..position).unwrap_or(line);
        Ok(complete(before, &self.tables, self.in_use))
    }
}

impl Hinter for Knowledge {
    type Hint = String;
}

impl Highlighter for Knowledge {}
impl Validator for Knowledge {}
impl Helper for Knowledge {}

/// Reads lines until the user leaves.
pub(super) fn run(shell: &mut Shell<'_>, session: &mut Session<'_>) -> Result<(), Failure> {
    let failed =
        |error: ReadlineError| Failure::usage(format!("cannot read the terminal: {error}"));
    let config = Config::builder()
        // A line that begins with a blank is not kept.
        .history_ignore_space(true)
        .history_ignore_dups(true)
        .and_then(|it| it.max_history_size(HISTORY))
        .map_err(failed)?
        .completion_type(CompletionType::List)
        .build();
    let mut editor: Editor<Knowledge, FileHistory> = Editor::with_config(config).map_err(failed)?;
    editor.set_helper(Some(Knowledge::default()));
    let history = history();
    if let Some(path) = &history {
        // The file is missing the first time.
        let _ = editor.load_history(path);
    }
    session.note("`help` lists the commands, `exit` or Ctrl-D leaves");
    if let Err(failure) = shell.store() {
        session.note(failure.text(session.json));
    }
    loop {
        if let Some(knowledge) = editor.helper_mut() {
            knowledge.tables.clone_from(&shell.tables);
            knowledge.in_use = shell.table.is_some();
        }
        let prompt = match &shell.table {
            Some(table) => format!("thunderhead:{}> ", crate::text::escape(table.as_bytes())),
            None => "thunderhead> ".to_owned(),
        };
        let line = match editor.readline(&prompt) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(failed(error)),
        };
        // The line runs even if the history cannot be kept.
        let _ = editor.add_history_entry(&line);
        if let Some(path) = &history {
            remember(&mut editor, path);
        }
        match shell.line(line.as_bytes(), session) {
            Ok(Flow::On) => session.out.flush()?,
            Ok(Flow::Leave) => break,
            Err(failure) if failure.reader_is_gone => return Err(failure),
            Err(failure) => {
                session.out.flush()?;
                session.note(failure.text(session.json));
            }
        }
    }
    Ok(())
}

/// Saves the history after each line, so that it has a line that ends the program too.
fn remember(editor: &mut Editor<Knowledge, FileHistory>, path: &PathBuf) {
    if let Some(directory) = path.parent() {
        let _ = std::fs::create_dir_all(directory);
    }
    let _ = editor.append_history(path);
}

/// Returns the path of the history.
fn history() -> Option<PathBuf> {
    let named = std::env::var_os("THUNDERHEAD_HISTORY").map(PathBuf::from);
    named.or_else(|| Some(state_directory()?.join("history")))
}
