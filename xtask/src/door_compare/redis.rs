//! The contest of two servers of Redis's protocol.

use super::allowed::Rule;
use super::connection::Connection;
use super::contest::{Contest, TRIES, Verdict};
use super::execute::Duel;
use super::generate::{Generator, Known};
use super::reply::{Reply, read};
use super::sequence::{Manner, Sequence, write_words};
use super::shrink::shrink;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// Two servers, and the generator of their sequences.
pub(super) struct Redis {
    pub(super) generator: Generator,
    pub(super) duel: Duel,
}

impl Contest for Redis {
    type Sequence = Sequence;

    fn sequence(&self, number: u64) -> Sequence {
        self.generator.sequence(number)
    }

    fn run(&mut self, sequence: &Sequence) -> Result<Verdict> {
        let verdict = self.duel.run(sequence)?;
        let Manner { is_marked, is_stepwise, .. } = sequence.manner;
        if !is_marked || is_stepwise || !matches!(verdict, Verdict::Different(_)) {
            return Ok(verdict);
        }
        // Among many answers, one by one shows the command.
        let manner = Manner { is_stepwise: true, ..sequence.manner };
        let stepwise = Sequence { blocks: sequence.blocks.clone(), manner };
        match self.duel.run(&stepwise)? {
            Verdict::Different(difference) => Ok(Verdict::Different(difference)),
            _ => Ok(verdict),
        }
    }

    fn shrink(
        &mut self,
        sequence: &Sequence,
        fails: &mut dyn FnMut(&mut Redis, &Sequence) -> bool,
    ) -> Sequence {
        let manner = sequence.manner;
        let blocks = shrink(&sequence.blocks, TRIES, |kept| {
            fails(self, &Sequence { blocks: kept.to_vec(), manner })
        });
        let loose = Sequence { blocks, manner }.loosened();
        let blocks = shrink(&loose.blocks, TRIES, |kept| {
            fails(self, &Sequence { blocks: kept.to_vec(), manner })
        });
        let mut shrunk = Sequence { blocks, manner };
        // Version 2 is simpler to read.
        if manner.version == 3 {
            let mut other = shrunk.clone();
            other.manner.version = 2;
            if fails(self, &other) {
                shrunk = other;
            }
        }
        // The last run leaves the answers that are shown.
        fails(self, &shrunk);
        shrunk
    }

    fn lines(&self, sequence: &Sequence) -> Vec<String> {
        sequence.lines()
    }

    fn commands(&self) -> u64 {
        self.duel.commands
    }

    fn rules(&self) -> Vec<(Rule, u64)> {
        self.duel.judge.uses()
    }
}

/// Returns the commands of a server, by its own list.
pub(super) fn known(address: SocketAddr) -> Result<Vec<Known>> {
    let mut connection = Connection::open(address)?;
    let mut bytes = Vec::new();
    write_words(&[b"COMMAND".to_vec()], &mut bytes);
    connection.send(&bytes);
    let answer = connection.reply();
    let Some(Ok(reply)) = answer.bytes().map(read) else {
        bail!("the real server does not list its commands: {}", answer.text());
    };
    let mut all = Vec::new();
    for command in &reply.parts {
        let (one, subcommands) = one(command).context("read the list of commands")?;
        // A container alone has too few words.
        all.push(one);
        all.extend(subcommands.iter().filter_map(|it| self::one(it)).map(|(one, _)| one));
    }
    all.sort_by(|one, other| one.words.cmp(&other.words));
    Ok(all)
}

/// Reads a row of the list of commands, and its subcommands.
fn one<'a>(row: &'a Reply<'_>) -> Option<(Known, &'a [Reply<'a>])> {
    let text = String::from_utf8_lossy(row.parts.first()?.text).to_ascii_uppercase();
    let words = text.split('|').map(str::to_owned).collect();
    let arity = row.parts.get(1)?.number()?;
    let subcommands = row.parts.get(9).map_or(&[][..], |part| &part.parts[..]);
    Some((Known { words, arity }, subcommands))
}

/// Returns the commands that a server says it does not know.
pub(super) fn absent(address: SocketAddr, known: &[Known]) -> Result<BTreeSet<String>> {
    let mut absent = BTreeSet::new();
    for command in known {
        let name = command.words.join(" ");
        // Its container is absent, and named already.
        if command.words.len() > 1 && absent.contains(&command.words[0]) {
            continue;
        }
        let mut words: Vec<Vec<u8>> =
            command.words.iter().map(|word| word.clone().into_bytes()).collect();
        // With so many words no command does anything that matters here. But PSYNC would.
        if name != "PSYNC" {
            words.resize(words.len() + 7, b"x".to_vec());
        }
        let mut bytes = Vec::new();
        write_words(&words, &mut bytes);
        let mut connection = Connection::open(address)?;
        connection.send(&bytes);
        let answer = connection.reply().text().to_ascii_lowercase();
        let is_sub = command.words.len() > 1;
        let is_unknown = answer.starts_with("-err unknown command");
        if is_unknown || (is_sub && answer.starts_with("-err unknown subcommand '")) {
            absent.insert(name);
        }
    }
    Ok(absent)
}
