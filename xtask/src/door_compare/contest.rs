//! The loop over sequences: runs each, shrinks a sequence that differs, and collects the findings.

use super::allowed::Rule;
use super::connection::Answer;
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Two answers that do not agree.
#[derive(Clone, Debug)]
pub(super) struct Difference {
    /// The command, for a person.
    pub(super) command: String,
    /// The name of the command, by which differences are grouped.
    pub(super) name: String,
    pub(super) theirs: Answer,
    pub(super) ours: Answer,
    /// Whether the contents differ after the sequence, and not an answer.
    pub(super) is_of_contents: bool,
}

/// The result of a sequence.
#[derive(Debug)]
pub(super) enum Verdict {
    /// No answer differs.
    Same,
    Different(Box<Difference>),
    /// The real server does not answer: the sequence is no fair test.
    Stalled(String),
}

/// A way to end a sequence early.
#[derive(Debug)]
pub(super) enum End {
    Different(Box<Difference>),
    /// An allowed difference, after which the servers may differ in anything.
    Allowed,
    Stalled(String),
    Broken(anyhow::Error),
}

impl From<anyhow::Error> for End {
    fn from(error: anyhow::Error) -> End {
        End::Broken(error)
    }
}

/// Two servers, and sequences for them.
pub(super) trait Contest {
    type Sequence;

    /// Returns a sequence, by its number.
    fn sequence(&self, number: u64) -> Self::Sequence;

    /// Runs a sequence on two empty servers, which are empty again afterwards.
    fn run(&mut self, sequence: &Self::Sequence) -> Result<Verdict>;

    /// Returns a shorter sequence that still fails in the given way.
    fn shrink(
        &mut self,
        sequence: &Self::Sequence,
        fails: &mut dyn FnMut(&mut Self, &Self::Sequence) -> bool,
    ) -> Self::Sequence;

    /// Returns the sequence for a person.
    fn lines(&self, sequence: &Self::Sequence) -> Vec<String>;

    /// Returns the commands so far.
    fn commands(&self) -> u64;

    /// Returns the rules, and how often each was used.
    fn rules(&self) -> Vec<(Rule, u64)>;
}

/// The bounds of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) first: u64,
    pub(super) sequences: u64,
    /// Distinct differences after which the run ends.
    pub(super) stop_after: usize,
    pub(super) shows_progress: bool,
}

/// A distinct difference.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) difference: Difference,
    /// The number of the sequence in which it was first.
    pub(super) sequence: u64,
    pub(super) times: u64,
    /// Whether the sequence showed it again.
    pub(super) repeats: bool,
    pub(super) lines: Vec<String>,
}

/// A command that the real server did not answer.
#[derive(Clone, Debug)]
pub(super) struct Stall {
    pub(super) times: u64,
    /// The number of the first sequence.
    pub(super) sequence: u64,
    pub(super) lines: Vec<String>,
}

/// The results of a run.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub(super) findings: Vec<Finding>,
    pub(super) sequences: u64,
    pub(super) commands: u64,
    pub(super) took: Duration,
    /// The commands that the real server did not answer.
    pub(super) stalled: BTreeMap<String, Stall>,
    /// Why the run ended early: a server is gone, for example.
    pub(super) broken: Option<String>,
    /// The rules, and how often each was used.
    pub(super) allowed: Vec<(Rule, u64)>,
}

/// Returns the words by which differences count as one: the command and the kinds of the answers.
fn signature(difference: &Difference) -> (String, String, String, bool) {
    let kind = |answer: &Answer| match answer {
        Answer::Reply(bytes) if matches!(bytes.first(), Some(b'-')) => {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let words = text.split_whitespace().filter(|word| !word.contains('\'')).take(6);
            words.collect::<Vec<_>>().join(" ")
        }
        Answer::Reply(bytes) => {
            bytes.first().map(|byte| char::from(*byte).to_string()).unwrap_or_default()
        }
        Answer::Until(_) => "until".to_owned(),
        Answer::Malformed(_) => "malformed".to_owned(),
        other => other.text(),
    };
    let Difference { name, theirs, ours, is_of_contents, .. } = difference;
    (name.clone(), kind(theirs), kind(ours), *is_of_contents)
}

/// The most tries to shrink one sequence.
pub(super) const TRIES: usize = 400;

/// Runs all sequences.
pub(super) fn contest<C: Contest>(game: &mut C, bounds: Bounds) -> Results {
    let began = Instant::now();
    let mut results = Results::default();
    let mut known: BTreeMap<(String, String, String, bool), usize> = BTreeMap::new();
    let mut said = began;
    for number in bounds.first..bounds.first + bounds.sequences {
        let sequence = game.sequence(number);
        let verdict = match game.run(&sequence) {
            Ok(verdict) => verdict,
            Err(error) => {
                let lines = game.lines(&sequence).join("\n     ");
                results.broken = Some(format!("{error:#}, in sequence {number}:\n     {lines}"));
                break;
            }
        };
        results.sequences += 1;
        match verdict {
            Verdict::Same => {}
            Verdict::Stalled(command) => {
                let lines = || Stall { times: 0, sequence: number, lines: game.lines(&sequence) };
                results.stalled.entry(command).or_insert_with(lines).times += 1;
            }
            Verdict::Different(difference) => {
                let sign = signature(&difference);
                if let Some(finding) = known.get(&sign).and_then(|at| results.findings.get_mut(*at))
                {
                    finding.times += 1;
                } else {
                    known.insert(sign, results.findings.len());
                    results.findings.push(find(game, &sequence, number, *difference));
                    if bounds.shows_progress {
                        tell_last(&results);
                    }
                }
            }
        }
        if bounds.shows_progress && said.elapsed() > Duration::from_secs(2) {
            said = Instant::now();
            tell(&results, game.commands(), bounds, began.elapsed());
        }
        if results.findings.len() >= bounds.stop_after {
            break;
        }
    }
    results.commands = game.commands();
    results.took = began.elapsed();
    results.allowed = game.rules();
    results
}

/// Shows the last finding at once: the report comes after a long run.
fn tell_last(results: &Results) {
    let Some(Finding { difference, sequence, lines, .. }) = results.findings.last() else { return };
    let Difference { command, theirs, ours, .. } = difference;
    let (theirs, ours) = (theirs.text(), ours.text());
    eprintln!("  sequence {sequence}:\n     {}", lines.join("\n     "));
    eprintln!("   answers to {command}\n     {theirs}\n     {ours}");
}

fn tell(results: &Results, commands: u64, bounds: Bounds, took: Duration) {
    let rate = commands as f64 / took.as_secs_f64();
    let names: BTreeSet<&str> =
        results.findings.iter().map(|it| it.difference.name.as_str()).collect();
    eprintln!(
        "  {} of {} sequences, {rate:.0} commands a second, {} differences {}",
        results.sequences,
        bounds.sequences,
        results.findings.len(),
        names.into_iter().collect::<Vec<_>>().join(" ")
    );
}

/// Shrinks a sequence that differs.
fn find<C: Contest>(
    game: &mut C,
    sequence: &C::Sequence,
    number: u64,
    difference: Difference,
) -> Finding {
    let sign = signature(&difference);
    let mut last = difference;
    let mut fails = |game: &mut C, sequence: &C::Sequence| match game.run(sequence) {
        Ok(Verdict::Different(found)) if signature(&found) == sign => {
            last = *found;
            true
        }
        _ => false,
    };
    let repeats = fails(game, sequence);
    let lines = if repeats {
        let shrunk = game.shrink(sequence, &mut fails);
        game.lines(&shrunk)
    } else {
        game.lines(sequence)
    };
    Finding { difference: last, sequence: number, times: 1, repeats, lines }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::door_compare::shrink::shrink;

    /// Sequences of numbers; one of them and its double differ if both are there.
    struct Numbers {
        run: u64,
    }

    impl Contest for Numbers {
        type Sequence = Vec<u64>;

        fn sequence(&self, number: u64) -> Vec<u64> {
            (number..number + 10).collect()
        }

        fn run(&mut self, sequence: &Vec<u64>) -> Result<Verdict> {
            self.run += sequence.len() as u64;
            anyhow::ensure!(!sequence.contains(&100), "gone");
            let found = sequence.iter().find(|one| **one > 2 && sequence.contains(&(*one * 2)));
            Ok(found.map_or(Verdict::Same, |one| {
                Verdict::Different(Box::new(Difference {
                    command: one.to_string(),
                    name: "SAME".to_owned(),
                    theirs: Answer::Reply(b"+a\r\n".to_vec()),
                    ours: Answer::Reply(b"-b\r\n".to_vec()),
                    is_of_contents: false,
                }))
            }))
        }

        fn shrink(
            &mut self,
            sequence: &Vec<u64>,
            fails: &mut dyn FnMut(&mut Self, &Vec<u64>) -> bool,
        ) -> Vec<u64> {
            shrink(sequence, TRIES, |kept| fails(self, &kept.to_vec()))
        }

        fn lines(&self, sequence: &Vec<u64>) -> Vec<String> {
            sequence.iter().map(ToString::to_string).collect()
        }

        fn commands(&self) -> u64 {
            self.run
        }

        fn rules(&self) -> Vec<(Rule, u64)> {
            Vec::new()
        }
    }

    #[test]
    fn a_difference_is_shrunk_once_and_then_counted() {
        let bounds = Bounds { first: 1, sequences: 5, stop_after: 10, shows_progress: false };
        let results = contest(&mut Numbers { run: 0 }, bounds);
        assert_eq!(results.sequences, 5);
        let [finding] = &results.findings[..] else { panic!("{:?}", results.findings) };
        assert_eq!((finding.times, finding.repeats), (5, true));
        assert_eq!(finding.lines.len(), 2, "{:?}", finding.lines);
    }

    #[test]
    fn a_run_ends_after_the_wanted_differences() {
        let bounds = Bounds { first: 1, sequences: 5, stop_after: 1, shows_progress: false };
        let results = contest(&mut Numbers { run: 0 }, bounds);
        assert_eq!(results.sequences, 1);
    }

    #[test]
    fn a_server_that_is_gone_ends_the_run_and_keeps_the_findings() {
        let bounds = Bounds { first: 89, sequences: 5, stop_after: 9, shows_progress: false };
        let results = contest(&mut Numbers { run: 0 }, bounds);
        assert_eq!(results.sequences, 2);
        assert!(results.broken.is_some_and(|text| text.starts_with("gone, in sequence 91")));
    }
}
