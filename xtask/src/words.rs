//! `cargo xtask words`: finds sentences that a reader must decode. The patterns come from the house
//! rules on plain words, and each one is counted in comments, documents, messages and the names of tests.
//!
//! `tidy` compares the counts with the limits in `xtask/words.txt`. A count above its limit is a finding, so a
//! count can only fall. `cargo xtask words --update` lowers the limits to the present counts.
//!
//! A pattern is a hint and no proof: "what" is also a good word in a question, so text before a question
//! mark does not count. The few other places with a good reason stay below the limit.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// The limits, one a line: a pattern and a count.
const LIMITS: &str = "xtask/words.txt";

/// The widest comment line, in characters, as `rustfmt.toml` has it for code.
const COLUMNS: usize = 100;

/// Phrases, by the pattern that they count for. An ending `*` stands for any rest of a word.
const PHRASES: [(&str, &[&str]); 5] = [
    ("what as a noun", &["what", "whatever"]),
    ("who as a noun", &["who", "whom", "whoever"]),
    ("nobody in particular", &["somebody", "someone", "nobody", "anybody", "everybody"]),
    (
        "a subject without a noun",
        &[
            "one that",
            "one who",
            "ones that",
            "those that",
            "those who",
            "those which",
            "that which",
        ],
    ),
    (
        "own words for known things",
        &[
            "given up",
            "overtak*",
            "in the midst",
            "come again",
            "comes again",
            "came again",
            "coming again",
            "is said",
            "are said",
            "was said",
            "to be had",
            "is had",
            "are had",
        ],
    ),
];

/// The pattern of test names without a noun as the subject.
const TEST_NAMES: &str = "names of tests";
const TEST_BEGINNINGS: [&str; 8] =
    ["what_", "who_", "whoever_", "where_", "somebody_", "nobody_", "one_that_", "those_"];

/// The pattern of comment lines that are too wide.
const WIDE: &str = "wide comments";

/// A place in a file, and the line's text.
struct Hit {
    pattern: &'static str,
    file: String,
    line: usize,
    text: String,
}

/// One word of a text, in lower case, with its line and the punctuation behind it.
struct Word {
    line: usize,
    word: String,
    end: Option<char>,
}

/// Lists the places below some paths, or writes the limits down.
pub(crate) fn words(root: &Path, files: &[PathBuf], only: &[String], update: bool) -> Result<()> {
    if update {
        let text = limits_text(&counts(&all(root, files)));
        return fs::write(root.join(LIMITS), text).with_context(|| format!("write {LIMITS}"));
    }
    let wanted =
        |file: &&PathBuf| only.is_empty() || only.iter().any(|path| file.starts_with(path));
    let files: Vec<PathBuf> = files.iter().filter(wanted).cloned().collect();
    let hits = all(root, &files);
    for Hit { pattern, file, line, text } in &hits {
        println!("{file}:{line}: {pattern}: {}", text.trim());
    }
    for (pattern, count) in counts(&hits) {
        println!("{count:6} {pattern}");
    }
    Ok(())
}

/// The findings for `tidy`: counts that are above their limits.
pub(crate) fn findings(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let text = fs::read_to_string(root.join(LIMITS)).with_context(|| format!("read {LIMITS}"))?;
    let limits = limits(&text);
    let above = counts(&all(root, files)).into_iter().filter_map(|(pattern, count)| {
        let limit = limits.get(pattern).copied().unwrap_or_default();
        let advice = "write it in plain words; cargo xtask words lists the places";
        (count > limit)
            .then(|| format!("{LIMITS}: {pattern}: {count} places, {limit} allowed: {advice}"))
    });
    Ok(above.collect())
}

fn limits(text: &str) -> BTreeMap<&str, usize> {
    let lines = text.lines().filter_map(|line| line.rsplit_once(": "));
    lines.filter_map(|(pattern, count)| Some((pattern, count.parse().ok()?))).collect()
}

fn limits_text(counts: &BTreeMap<&'static str, usize>) -> String {
    let mut text = "# Places at most; see xtask/src/words.rs\n".to_owned();
    for (pattern, count) in counts {
        let _ = writeln!(text, "{pattern}: {count}");
    }
    text
}

/// How often each pattern is there, also where it is not at all.
fn counts(hits: &[Hit]) -> BTreeMap<&'static str, usize> {
    let names = PHRASES.iter().map(|(pattern, _)| *pattern).chain([TEST_NAMES, WIDE]);
    let mut counts: BTreeMap<_, _> = names.map(|pattern| (pattern, 0)).collect();
    for hit in hits {
        *counts.entry(hit.pattern).or_default() += 1;
    }
    counts
}

/// All hits in the files that people read.
fn all(root: &Path, files: &[PathBuf]) -> Vec<Hit> {
    let mut hits = Vec::new();
    for path in files {
        let name = path.display().to_string();
        // This file spells the patterns out.
        if name == "xtask/src/words.rs" {
            continue;
        }
        let Ok(text) = fs::read_to_string(root.join(path)) else { continue };
        match path.extension().and_then(|it| it.to_str()) {
            Some("rs") => rust(&name, &text, &mut hits),
            Some("md") => document(&name, &text, &mut hits),
            Some("java") => prose(&name, &text, "//", &mut hits),
            Some("toml" | "yml") => prose(&name, &text, "#", &mut hits),
            _ if name.starts_with("scripts/") => prose(&name, &text, "#", &mut hits),
            _ => {}
        }
    }
    hits
}

/// Comments, messages and names of tests.
fn rust(name: &str, text: &str, hits: &mut Vec<Hit>) {
    prose(name, text, "//", hits);
    let mut is_test = false;
    for (number, line) in text.lines().enumerate() {
        let code = line.trim_start();
        let hit = |pattern| Hit {
            pattern,
            file: name.to_owned(),
            line: number + 1,
            text: line.to_owned(),
        };
        if code.starts_with("//") {
            if line.chars().count() > COLUMNS {
                hits.push(hit(WIDE));
            }
            continue;
        }
        is_test |= code.contains("#[test]");
        if let Some(function) = code.strip_prefix("fn ") {
            if is_test && TEST_BEGINNINGS.iter().any(|it| function.starts_with(it)) {
                hits.push(hit(TEST_NAMES));
            }
            is_test = false;
        }
        for message in strings(code).into_iter().filter(|it| it.contains(' ')) {
            let words = split(&[(number + 1, message)]);
            hits.extend(phrases(&words).into_iter().map(|(pattern, _)| hit(pattern)));
        }
    }
}

/// The texts between quotation marks of a line of code.
fn strings(code: &str) -> Vec<&str> {
    let mut strings = Vec::new();
    let mut rest = code;
    while let Some((_, behind)) = rest.split_once('"') {
        let mut escaped = false;
        let end = behind.find(|letter| {
            let is_end = letter == '"' && !escaped;
            escaped = letter == '\\' && !escaped;
            is_end
        });
        let Some(end) = end else { break };
        strings.push(&behind[..end]);
        rest = &behind[end + 1..];
    }
    strings
}

/// A document: all of it but what is between fences.
fn document(name: &str, text: &str, hits: &mut Vec<Hit>) {
    let mut is_code = false;
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            lines.push((number + 1, line));
        }
    }
    add(name, text, &lines, hits);
}

/// Comments that begin like this. What follows one another is one text.
fn prose(name: &str, text: &str, begins: &str, hits: &mut Vec<Hit>) {
    let mut block = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let comment = line.trim_start().strip_prefix(begins);
        match comment {
            Some(comment) => block.push((number + 1, comment.trim_start_matches(['/', '!', '#']))),
            None => add(name, text, &std::mem::take(&mut block), hits),
        }
    }
    add(name, text, &block, hits);
}

fn add(name: &str, text: &str, lines: &[(usize, &str)], hits: &mut Vec<Hit>) {
    let all: Vec<&str> = text.lines().collect();
    for (pattern, line) in phrases(&split(lines)) {
        let text = all.get(line - 1).map_or("", |line| line).to_owned();
        hits.push(Hit { pattern, file: name.to_owned(), line, text });
    }
}

/// Words without their punctuation. Code between backquotes is none.
fn split(lines: &[(usize, &str)]) -> Vec<Word> {
    let mut words = Vec::new();
    for (line, text) in lines {
        let mut is_code = false;
        for piece in text.split_whitespace() {
            let was_code = is_code || piece.starts_with('`');
            is_code ^= piece.matches('`').count() % 2 == 1;
            let word = piece.trim_matches(|letter: char| !letter.is_alphanumeric()).to_lowercase();
            if !was_code && !word.is_empty() {
                words.push(Word { line: *line, word, end: piece.chars().last() });
            } else if let Some(last) = words.last_mut()
                && piece.ends_with(['.', '?', '!', ':', ';'])
            {
                last.end = piece.chars().last();
            }
        }
    }
    words
}

/// The patterns that are in a text, with their lines.
fn phrases(words: &[Word]) -> Vec<(&'static str, usize)> {
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        for (pattern, all) in PHRASES {
            if all.iter().any(|phrase| begins_with(&words[at..], phrase)) && !asks(&words[at..]) {
                found.push((pattern, word.line));
            }
        }
    }
    found
}

fn begins_with(words: &[Word], phrase: &str) -> bool {
    let mut words = words.iter();
    phrase.split(' ').all(|wanted| match (words.next(), wanted.strip_suffix('*')) {
        (Some(word), Some(beginning)) => word.word.starts_with(beginning),
        (Some(word), None) => word.word == wanted,
        (None, _) => false,
    })
}

/// Whether the sentence is a question.
fn asks(words: &[Word]) -> bool {
    let end = words.iter().find_map(|word| word.end.filter(|it| ".?!:;".contains(*it)));
    end == Some('?')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(&'static str, usize)> {
        let mut hits = Vec::new();
        rust("a.rs", text, &mut hits);
        hits.into_iter().map(|hit| (hit.pattern, hit.line)).collect()
    }

    #[test]
    fn phrases_count_in_comments_messages_and_names_of_tests() {
        let source = "//! What it does is told.\n/// Those\n/// that come again.\nfn a() {}\n\
            bail!(\"nobody is there\");\n#[test]\nfn what_is_written_is_read() {}\n";
        let expected = [
            ("what as a noun", 1),
            ("a subject without a noun", 2),
            ("own words for known things", 3),
            ("nobody in particular", 5),
            (TEST_NAMES, 7),
        ];
        assert_eq!(found(source), expected);
    }

    #[test]
    fn questions_code_and_plain_sentences_do_not_count() {
        assert_eq!(
            found("// What is the limit? `what` is code, \"whatsoever\" another word.\n"),
            []
        );
        assert_eq!(found("fn what_now() { run(\"what\"); }\n"), []);
    }

    #[test]
    fn a_wide_comment_counts_and_wide_code_does_not() {
        let wide = "x".repeat(COLUMNS);
        assert_eq!(found(&format!("// {wide}\nlet {wide} = 1;\n")), [(WIDE, 1)]);
    }

    #[test]
    fn limits_are_read_as_they_are_written() {
        let written = limits_text(&counts(&[]));
        let read = limits(&written);
        assert_eq!(read.len(), PHRASES.len() + 2);
        assert!(read.values().all(|limit| *limit == 0));
    }
}
