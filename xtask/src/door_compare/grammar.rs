//! The small language in which the commands are written that the tester generates.
//!
//! A row is one command, or some with ` ; ` between them, which stay together. Its words:
//!
//! | word | meaning |
//! |---|---|
//! | `GET` | itself: a word without small letters |
//! | `key`, `value` | a slot, filled by the generator |
//! | `[ … ]` | in half of the cases |
//! | `{ … }` | one to three times |
//! | `( … / … )` | one of these |
//! | `@1` | before a command: its connection |
//! | `@1?` | before a command: its connection, on which the command waits |
//! | `@1<` | instead of a command: the answer of the waiting command |
//! | `@0=` | before `DUMP key to`: each server restores the other one's payload as `to` |
//! | `!` | before a row: no noise, and no part is removed alone |

use super::random::Random;

/// A part of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(&'static str),
    Slot(&'static str),
    Maybe(Vec<Part>),
    Repeat(Vec<Part>),
    Choice(Vec<Vec<Part>>),
}

/// How a command and its connection are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// It is sent, and answered.
    Send,
    /// It is sent, and waits.
    Wait,
    /// The answer of the command that waits is read.
    Collect,
    /// Each server restores the payload that the other one returns.
    Exchange,
}

/// One command of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    pub(super) connection: usize,
    pub(super) usage: Use,
    parts: Vec<Part>,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) templates: Vec<Template>,
    /// Whether its commands are sent as they are written, and only together.
    pub(super) is_fixed: bool,
}

/// Fills slots with words.
pub(super) trait Fill {
    /// Appends the words of a slot. Returns whether it knows the slot.
    fn fill(&mut self, slot: &str, random: &mut Random, words: &mut Vec<Vec<u8>>) -> bool;
}

impl Row {
    /// Reads a row of a table in the sources. A wrong row is an error that names it.
    pub(super) fn read(text: &'static str) -> Result<Row, String> {
        let (text, is_fixed) = match text.strip_prefix('!') {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let templates = text.split(" ; ").map(Template::read).collect::<Result<_, _>>();
        templates
            .map(|templates| Row { templates, is_fixed })
            .map_err(|error| format!("{error} in the row {text}"))
    }
}

impl Template {
    fn read(text: &'static str) -> Result<Template, String> {
        let mut words = text.split_whitespace().peekable();
        let mut connection = 0;
        let mut usage = Use::Send;
        if let Some(prefix) = words.peek().and_then(|word| word.strip_prefix('@')) {
            let digits = prefix.trim_end_matches(['?', '<', '=']);
            connection = digits.parse().map_err(|_| format!("a wrong connection {prefix}"))?;
            usage = match &prefix[digits.len()..] {
                "?" => Use::Wait,
                "<" => Use::Collect,
                "=" => Use::Exchange,
                _ => Use::Send,
            };
            words.next();
        }
        let words: Vec<&'static str> = words.collect();
        let mut at = 0;
        let parts = parts(&words, &mut at, &[])?;
        Ok(Template { connection, usage, parts })
    }

    /// Returns the words of one command of this form.
    pub(super) fn words(&self, random: &mut Random, fill: &mut impl Fill) -> Vec<Vec<u8>> {
        let mut words = Vec::new();
        expand(&self.parts, random, fill, &mut words);
        words
    }
}

/// Reads parts up to one of some ends, which stays.
fn parts(words: &[&'static str], at: &mut usize, ends: &[&str]) -> Result<Vec<Part>, String> {
    let mut found = Vec::new();
    while let Some(word) = words.get(*at) {
        if ends.contains(word) {
            return Ok(found);
        }
        *at += 1;
        let part = match *word {
            "[" => Part::Maybe(closed(words, at, "]")?),
            "{" => Part::Repeat(closed(words, at, "}")?),
            "(" => {
                let mut choices = vec![parts(words, at, &["/", ")"])?];
                while words.get(*at) == Some(&"/") {
                    *at += 1;
                    choices.push(parts(words, at, &["/", ")"])?);
                }
                close(words, at, ")")?;
                Part::Choice(choices)
            }
            word if word.bytes().any(|byte| byte.is_ascii_lowercase()) => Part::Slot(word),
            word => Part::Literal(word),
        };
        found.push(part);
    }
    if ends.is_empty() { Ok(found) } else { Err(format!("{} is missing", ends.join(" or "))) }
}

fn closed(words: &[&'static str], at: &mut usize, end: &str) -> Result<Vec<Part>, String> {
    let inner = parts(words, at, &[end])?;
    close(words, at, end)?;
    Ok(inner)
}

fn close(words: &[&'static str], at: &mut usize, end: &str) -> Result<(), String> {
    match words.get(*at) {
        Some(word) if *word == end => {
            *at += 1;
            Ok(())
        }
        _ => Err(format!("{end} is missing")),
    }
}

fn expand(parts: &[Part], random: &mut Random, fill: &mut impl Fill, words: &mut Vec<Vec<u8>>) {
    for part in parts {
        match part {
            Part::Literal(word) => words.push(word.as_bytes().to_vec()),
            Part::Slot(slot) => {
                if !fill.fill(slot, random, words) {
                    words.push(slot.as_bytes().to_vec());
                }
            }
            Part::Maybe(inner) if random.one_in(2) => expand(inner, random, fill, words),
            Part::Maybe(_) => {}
            Part::Repeat(inner) => {
                for _ in 0..random.between(1, 3) {
                    expand(inner, random, fill, words);
                }
            }
            Part::Choice(choices) => {
                expand(&choices[random.below(choices.len())], random, fill, words);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Upper;

    impl Fill for Upper {
        fn fill(&mut self, slot: &str, _: &mut Random, words: &mut Vec<Vec<u8>>) -> bool {
            words.push(slot.to_ascii_uppercase().into_bytes());
            true
        }
    }

    fn all(row: &'static str) -> std::collections::BTreeSet<String> {
        let row = Row::read(row).unwrap();
        let mut random = Random::new(1, 1);
        let mut line = || {
            let words = row.templates[0].words(&mut random, &mut Upper);
            String::from_utf8(words.join(&b' ')).unwrap()
        };
        (0..200).map(|_| line()).collect()
    }

    #[test]
    fn a_row_stands_for_all_its_commands() {
        let lines = all("SET key [ ( EX seconds / PERSIST ) ] [ NX ]");
        let expected = [
            "SET KEY",
            "SET KEY EX SECONDS",
            "SET KEY EX SECONDS NX",
            "SET KEY NX",
            "SET KEY PERSIST",
            "SET KEY PERSIST NX",
        ];
        assert_eq!(lines.iter().map(String::as_str).collect::<Vec<_>>(), expected);
        assert_eq!(all("DEL { key }").len(), 3);
    }

    #[test]
    fn a_row_of_several_commands_names_their_connections() {
        let row = Row::read("!DEL key ; @1? BLPOP key 0 ; RPUSH key value ; @1<").unwrap();
        let uses: Vec<(usize, Use)> =
            row.templates.iter().map(|it| (it.connection, it.usage)).collect();
        assert!(row.is_fixed);
        assert_eq!(uses, [(0, Use::Send), (1, Use::Wait), (0, Use::Send), (1, Use::Collect)]);
    }

    #[test]
    fn a_wrong_row_is_an_error() {
        for wrong in ["GET [ key", "GET ( a / b", "GET { key ]", "@x GET key"] {
            assert!(Row::read(wrong).is_err(), "{wrong}");
        }
    }
}
