//! The words that may come next in a line: commands, tables, options.

use super::{Line, WITH_TABLE, words};
use clap::{Command, CommandFactory};

/// Returns the begin of the word at the cursor, and the words that it may become.
pub(crate) fn complete(before: &str, tables: &[String], in_use: bool) -> (usize, Vec<String>) {
    let start = before.rfind([' ', '\t']).map_or(0, |at| at + 1);
    let (done, begun) = before.split_at(start);
    // Nothing is completed in an open quote.
    let Ok(done) = words::split(done.as_bytes()) else { return (before.len(), Vec::new()) };
    let done: Vec<String> =
        done.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    let mut root = Line::command();
    root.build();
    let mut candidates = candidates(&root, &done, begun, tables, in_use);
    candidates.retain(|candidate| candidate.starts_with(begun));
    candidates.sort();
    candidates.dedup();
    (start, candidates)
}

fn candidates(
    root: &Command,
    done: &[String],
    begun: &str,
    tables: &[String],
    in_use: bool,
) -> Vec<String> {
    let mut command = root;
    let mut depth = 0;
    for word in done {
        match command.find_subcommand(word) {
            Some(inner) => command = inner,
            None => break,
        }
        depth += 1;
    }
    if begun.starts_with('-') {
        let longs = command.get_arguments().filter_map(|argument| argument.get_long());
        return longs.map(|long| format!("--{long}")).collect();
    }
    if command.has_subcommands() {
        let visible = command.get_subcommands().filter(|it| !it.is_hide_set());
        return if done.len() == depth { names(visible) } else { Vec::new() };
    }
    // The first argument after the options.
    let positions = done.iter().skip(depth).filter(|word| !word.starts_with('-')).count();
    let first = done.first().map_or("", String::as_str);
    let takes_table = match first {
        "table" => done.get(1).is_some_and(|verb| verb != "create" && verb != "list"),
        "use" => true,
        other => WITH_TABLE.contains(&other) && !in_use,
    };
    match takes_table && positions == 0 {
        true => tables.iter().map(|table| words::quoted(table)).collect(),
        false => Vec::new(),
    }
}

fn names<'a>(commands: impl Iterator<Item = &'a Command>) -> Vec<String> {
    commands.map(|command| command.get_name().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_may_come_next_are_offered() {
        let tables = ["users".to_owned(), "two words".to_owned()];
        let cases: &[(&str, bool, usize, &[&str])] = &[
            ("de", false, 0, &["delete"]),
            ("table sp", false, 6, &["split"]),
            ("table drop ", false, 11, &["\"two words\"", "users"]),
            ("table create ", false, 13, &[]),
            ("get u", false, 4, &["users"]),
            ("get u", true, 4, &[]),
            ("get --ra", false, 4, &["--raw"]),
            ("get --raw u", false, 10, &["users"]),
            ("get users u", false, 10, &[]),
            ("use ", true, 4, &["\"two words\"", "users"]),
            ("help in", false, 5, &["incr"]),
            ("get \"open q", false, 11, &[]),
            ("nonsense x", false, 9, &[]),
        ];
        for (before, in_use, start, expected) in cases {
            let (found, candidates) = complete(before, &tables, *in_use);
            assert_eq!(
                (found, candidates.as_slice()),
                (*start, &expected.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>()[..]),
                "{before}"
            );
        }
        let (_, all) = complete("", &tables, false);
        for name in ["get", "use", "exit", "help", "status"] {
            assert!(all.contains(&name.to_owned()), "{name} is not in {all:?}");
        }
    }
}
