//! Sequences of commands of Redis from a seed.

use super::allowed::is_skipped;
use super::commands::{
    CALL, GROUPS, Group, LISTENING, LISTENING_OLDER, NOT_LISTENING, ONE_OF_EACH, Style,
};
use super::fill::Filler;
use super::grammar::{Row, Use};
use super::random::Random;
use super::sequence::{Block, Manner, Sequence, Step, name};
use anyhow::{Result, anyhow, ensure};
use std::collections::BTreeSet;

/// A command of the real server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// Its name, or those of a container and its subcommand, in capital letters.
    pub(super) words: Vec<String>,
    /// The number of words; negative if there may be more.
    pub(super) arity: i64,
}

/// Makes sequences.
pub(super) struct Generator {
    groups: Vec<(&'static Group, Vec<Row>)>,
    /// Rows for transactions and wrong types: one command of a plain group each.
    simple: Vec<(&'static Group, Row)>,
    known: Vec<Known>,
    /// The names of these commands.
    named: BTreeSet<String>,
    /// Commands that the tested server does not have, and that are left out.
    absent: BTreeSet<String>,
    seed: u64,
    commands: usize,
    versions: Vec<u8>,
    /// Whether the real server is Redis 7.0.
    is_older: bool,
}

/// The options of a generator.
pub(super) struct Wanted {
    pub(super) groups: Vec<&'static Group>,
    pub(super) absent: BTreeSet<String>,
    pub(super) seed: u64,
    pub(super) commands: usize,
    pub(super) versions: Vec<u8>,
    pub(super) is_older: bool,
}

/// Commands that the generator writes itself.
const OF_TRANSACTIONS: [&str; 2] = ["MULTI", "EXEC"];

/// Commands that would wait if a word were added, and AUTH: Redis 8.2 does not answer it for an
/// unknown user.
const AS_WRITTEN: [&str; 11] = [
    "BLPOP",
    "BRPOP",
    "BLMOVE",
    "BRPOPLPUSH",
    "BLMPOP",
    "BZPOPMIN",
    "BZPOPMAX",
    "BZMPOP",
    "XREAD",
    "XREADGROUP",
    "AUTH",
];

impl Generator {
    pub(super) fn new(wanted: Wanted, known: Vec<Known>) -> Result<Generator> {
        let mut groups = Vec::new();
        for group in wanted.groups {
            let rows = group.rows.iter().map(|row| Row::read(row)).collect::<Result<Vec<_>, _>>();
            groups.push((group, rows.map_err(|error| anyhow!(error))?));
        }
        ensure!(!groups.is_empty(), "no groups are chosen");
        let mut simple = Vec::new();
        for group in GROUPS {
            let fits = group.style == Style::Plain && group.is_default && group.name != "scan";
            let is_chosen = groups.iter().any(|(chosen, _)| chosen.name == group.name);
            let has_plain = groups.iter().any(|(chosen, _)| chosen.style == Style::Plain);
            // Transactions alone are made of the commands of all groups.
            if !fits || (has_plain && !is_chosen) {
                continue;
            }
            let rows = group.rows.iter().filter_map(|row| Row::read(row).ok());
            let rows = rows.filter(|row| !row.is_fixed && row.templates.len() == 1);
            simple.extend(rows.map(|row| (group, row)));
        }
        Ok(Generator {
            groups,
            simple,
            named: known.iter().map(|it| it.words.join(" ")).collect(),
            known,
            absent: wanted.absent,
            seed: wanted.seed,
            commands: wanted.commands,
            versions: wanted.versions,
            is_older: wanted.is_older,
        })
    }

    /// Returns a sequence, by its number.
    pub(super) fn sequence(&self, number: u64) -> Sequence {
        let random = &mut Random::new(self.seed, number);
        let one = random.below(self.groups.len());
        let (first, rows) = (self.groups[one].0, &self.groups[one].1);
        let version = self.versions[random.below(self.versions.len())];
        let mut blocks = Vec::new();
        if first.style == Style::Types {
            let steps = ONE_OF_EACH.iter().map(|line| written(&(0, line))).collect();
            blocks.push(Block { steps, is_fixed: false });
        }
        if first.style == Style::Events {
            let lines = if self.is_older { LISTENING_OLDER } else { LISTENING };
            let steps = lines.iter().map(written).collect();
            blocks.push(Block { steps, is_fixed: true });
        }
        // A second group, so that its commands meet the first one's keys.
        let is_plain = |group: &Group| group.style == Style::Plain;
        let is_mixed = is_plain(first) && random.one_in(3);
        let other = if is_mixed { random.below(self.groups.len()) } else { one };
        let (second, more) = (self.groups[other].0, &self.groups[other].1);
        let mut count = 0;
        let most = random.between(self.commands.div_ceil(2), self.commands);
        while count < most {
            let use_second = is_plain(second) && random.one_in(3);
            let (group, rows) = if use_second { (second, more) } else { (first, rows) };
            let block = match group.style {
                Style::Plain | Style::Marked => self.row(group, rows, random),
                Style::Scripts if random.one_in(2) => Some(self.program(random)),
                Style::Scripts if random.one_in(2) => self.call(random),
                Style::Scripts => self.row(group, rows, random),
                Style::Transactions if random.one_in(2) => self.transaction(random),
                Style::Transactions => self.row(group, rows, random),
                Style::Types => self.crossed(random),
                // A PING would be queued.
                Style::Events if random.one_in(8) => {
                    self.transaction(random).map(|block| Block { is_fixed: true, ..block })
                }
                Style::Events if random.one_in(8) => self.call(random),
                Style::Events => self
                    .simple(random.one_in(4), random)
                    .map(|step| Block { steps: vec![step], is_fixed: false }),
                Style::Arity => self.wrong_arity(random),
                Style::Bytes => Some(super::bytes::block(random)),
            };
            // Absent commands make no progress, and that must end.
            // A connection for each of some bytes takes as long as some commands.
            let cost = if group.style == Style::Bytes { 4 } else { 1 };
            count += cost * block.as_ref().map_or(1, |block| block.steps.len());
            let is_present = |block: &Block| block.steps.iter().all(|step| self.has(step));
            blocks.extend(block.filter(is_present));
        }
        if first.style == Style::Events {
            blocks.push(Block { steps: vec![written(&NOT_LISTENING)], is_fixed: true });
        }
        let manner = Manner {
            version,
            is_stepwise: random.one_in(16),
            is_marked: matches!(first.style, Style::Marked | Style::Events),
            is_raw: first.style == Style::Bytes,
        };
        Sequence { blocks, manner }
    }

    /// Returns the commands of the real server that no row of all groups has. They are only sent
    /// with a wrong number of arguments.
    pub(super) fn without_rows(&self) -> Vec<String> {
        let mut named = BTreeSet::new();
        let random = &mut Random::new(0, 0);
        for group in GROUPS {
            for row in group.rows.iter().filter_map(|row| Row::read(row).ok()) {
                // A row may choose between some names.
                for _ in 0..40 {
                    let mut filler = Filler::new(group.keys, random);
                    let words = row.templates.iter().map(|it| it.words(random, &mut filler));
                    named.extend(words.map(|words| name(&words)));
                }
            }
        }
        let mut names: Vec<String> = self.known.iter().map(|it| it.words.join(" ")).collect();
        let is_container = |name: &String| {
            let begin = format!("{name} ");
            self.known.iter().any(|it| it.words.join(" ").starts_with(&begin))
        };
        names.retain(|name| {
            !named.contains(name)
                && !is_container(name)
                && !OF_TRANSACTIONS.contains(&name.as_str())
        });
        names
    }

    /// Whether both servers have the command of a step, or neither is meant to have it, and their
    /// effects must be the same.
    fn has(&self, step: &Step) -> bool {
        self.has_words(&step.words)
    }

    fn has_words(&self, words: &[Vec<u8>]) -> bool {
        let upper = |word: &Vec<u8>| word.escape_ascii().to_string().to_ascii_uppercase();
        let Some(first) = words.first().map(upper) else { return true };
        if is_skipped(words) {
            return false;
        }
        let full = name(words);
        if self.absent.contains(&first) || self.absent.contains(&full) {
            return false;
        }
        if first == "EVAL" && words.get(1).is_some_and(|script| script == CALL.as_bytes()) {
            return words.get(3..).is_none_or(|called| self.has_words(called));
        }
        // A command that only a newer server has is no difference.
        let is_meant = full.split(' ').any(|word| word.starts_with("NOSUCH"));
        let is_alone = full == first || words.len() < 2;
        is_meant || self.named.contains(if is_alone { &first } else { &full })
    }

    fn row(&self, group: &'static Group, rows: &[Row], random: &mut Random) -> Option<Block> {
        if rows.is_empty() {
            return None;
        }
        let row = &rows[random.below(rows.len())];
        let mut filler = Filler::new(group.keys, random);
        filler.is_noisy = !row.is_fixed;
        let mut steps: Vec<Step> = Vec::new();
        for template in &row.templates {
            let words = match template.usage {
                // An answer is known by its command.
                Use::Collect => {
                    let waits = |step: &&Step| {
                        step.usage == Use::Wait && step.connection == template.connection
                    };
                    steps.iter().rfind(waits).map(|step| step.words.clone()).unwrap_or_default()
                }
                _ => template.words(random, &mut filler),
            };
            let mut made =
                Step { connection: template.connection, usage: template.usage, words, bytes: None };
            if !row.is_fixed && template.usage == Use::Send {
                disturb(&mut made, random);
            }
            steps.push(made);
        }
        Some(Block { steps, is_fixed: row.is_fixed })
    }

    /// Returns one command of a plain group, on its usual keys or on any.
    fn simple(&self, is_crossed: bool, random: &mut Random) -> Option<Step> {
        if self.simple.is_empty() {
            return None;
        }
        let (group, row) = &self.simple[random.below(self.simple.len())];
        let mut filler = Filler::new(group.keys, random);
        filler.is_crossed = is_crossed;
        let mut made = step(row.templates[0].words(random, &mut filler));
        disturb(&mut made, random);
        Some(made).filter(|made| self.has(made))
    }

    fn crossed(&self, random: &mut Random) -> Option<Block> {
        let steps = vec![self.simple(true, random)?];
        Some(Block { steps, is_fixed: false })
    }

    /// Returns commands of plain groups between MULTI and EXEC.
    fn transaction(&self, random: &mut Random) -> Option<Block> {
        let mut steps = vec![step(vec![b"MULTI".to_vec()])];
        for _ in 0..random.between(1, 5) {
            steps.extend(self.simple(false, random));
        }
        let end: &[u8] = if random.one_in(8) { b"DISCARD" } else { b"EXEC" };
        steps.push(step(vec![end.to_vec()]));
        Some(Block { steps, is_fixed: false })
    }

    /// Returns a command of a plain group in a script.
    fn call(&self, random: &mut Random) -> Option<Block> {
        let called = self.simple(false, random)?;
        let mut words = [b"EVAL".as_slice(), CALL.as_bytes(), b"0"].map(<[u8]>::to_vec).to_vec();
        words.extend(called.words);
        Some(Block { steps: vec![step(words)], is_fixed: false })
    }

    /// Returns a random script.
    fn program(&self, random: &mut Random) -> Block {
        let script = super::programs::program(random).into_bytes();
        let words = vec![b"EVAL".to_vec(), script, b"0".to_vec()];
        Block { steps: vec![step(words)], is_fixed: false }
    }

    /// Returns a command of the real server with too few or too many words.
    fn wrong_arity(&self, random: &mut Random) -> Option<Block> {
        if self.known.is_empty() {
            return None;
        }
        let known = &self.known[random.below(self.known.len())];
        let least = known.words.len();
        let right = usize::try_from(known.arity.unsigned_abs()).ok()?;
        let count = match known.arity < 0 {
            true if right > least => random.between(least, right - 1),
            true => return None,
            false => match random.between(least, right + 2) {
                count if count == right && right > least => least,
                count if count == right => right + 1,
                count => count,
            },
        };
        let mut words: Vec<Vec<u8>> =
            known.words.iter().map(|it| it.clone().into_bytes()).collect();
        words.resize(count, b"x".to_vec());
        Some(Block { steps: vec![step(words)], is_fixed: false })
    }
}

/// Returns a step that is written in the tables.
fn written((connection, line): &(usize, &str)) -> Step {
    let words = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    Step { connection: *connection, ..step(words) }
}

fn step(words: Vec<Vec<u8>>) -> Step {
    Step { connection: 0, usage: Use::Send, words, bytes: None }
}

/// Adds noise: a missing or another word, a name in other letters, a line instead of an array.
fn disturb(step: &mut Step, random: &mut Random) {
    let Some(name) = step.words.first() else { return };
    let is_kept = AS_WRITTEN.iter().any(|kept| name.eq_ignore_ascii_case(kept.as_bytes()));
    match random.below(60) {
        0 if !is_kept && step.words.len() > 1 => {
            step.words.pop();
        }
        1 if !is_kept => step.words.push(random.of(&["x", "1", "", "NX", "COUNT"]).into()),
        2 | 3 => step.words[0].make_ascii_lowercase(),
        4 => {
            for byte in &mut step.words[0] {
                if random.one_in(2) {
                    byte.make_ascii_lowercase();
                }
            }
        }
        5 => {
            let is_plain = |word: &Vec<u8>| {
                let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-+.*".contains(byte);
                !word.is_empty() && word.iter().all(plain)
            };
            let begins = step.words[0].first().is_some_and(u8::is_ascii_alphabetic);
            if begins && step.words.iter().all(is_plain) {
                let mut line = step.words.join(&b' ');
                line.extend_from_slice(if random.one_in(2) { b"\r\n" } else { b"\n" });
                step.bytes = Some(line);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generator(groups: impl Fn(&Group) -> bool) -> Generator {
        let wanted = Wanted {
            groups: GROUPS.iter().filter(|group| groups(group)).collect(),
            absent: BTreeSet::new(),
            seed: 1,
            commands: 20,
            versions: vec![2, 3],
            is_older: false,
        };
        let mut known = vec![
            Known { words: vec!["GET".to_owned()], arity: 2 },
            Known { words: vec!["CLIENT".to_owned(), "ID".to_owned()], arity: 2 },
            Known { words: vec!["DEL".to_owned()], arity: -2 },
        ];
        let others = ["SET", "APPEND", "BLPOP", "RPUSH", "LRANGE", "ZADD", "MULTI", "EXEC"];
        known.extend(others.map(|name| Known { words: vec![name.to_owned()], arity: -1 }));
        Generator::new(wanted, known).unwrap()
    }

    #[test]
    fn every_row_is_read_and_a_seed_gives_the_same_sequence_again() {
        let (one, other) = (generator(|_| true), generator(|_| true));
        for number in 0..200 {
            assert_eq!(one.sequence(number), other.sequence(number));
        }
    }

    #[test]
    fn arguments_of_the_group_of_wrong_numbers_are_wrong() {
        let generator = generator(|group| group.name == "arity");
        let mut names = BTreeSet::new();
        for number in 0..50 {
            for step in generator.sequence(number).steps() {
                let words = step.words.len();
                let wrong = match step.words[0].as_slice() {
                    b"GET" => words != 2,
                    b"CLIENT" => words != 2 && step.words[1] == b"ID",
                    b"DEL" => words < 2,
                    _ => false,
                };
                assert!(wrong, "{:?}", step.words);
                names.insert(step.name());
            }
        }
        assert_eq!(names.len(), 3, "{names:?}");
    }

    #[test]
    fn commands_that_wait_are_sent_as_they_are_written() {
        let generator = generator(|group| group.name == "blocking");
        for number in 0..100 {
            let sequence = generator.sequence(number);
            let uses = |usage| sequence.steps().filter(|step| step.usage == usage).count();
            assert_eq!(uses(Use::Wait), uses(Use::Collect));
        }
    }

    #[test]
    fn absent_commands_are_left_out() {
        let mut generator = generator(|group| group.name == "strings");
        generator.absent.insert("GET".to_owned());
        let names: BTreeSet<String> = (0..50)
            .flat_map(|it| generator.sequence(it).steps().map(Step::name).collect::<Vec<_>>())
            .collect();
        assert!(!names.contains("GET") && names.contains("SET"));
        // The real server's own list does not have it.
        assert!(!names.contains("LCS"));
    }
}
