//! The contest of two servers of memcached's protocol.
//!
//! Commands are sent together, with a last one whose answer shows that all others are answered. If
//! the answers differ, the sequence runs again step by step, which shows the command.

mod answer;
mod commands;

use super::allowed::{MEMCACHED, Rule, allowed};
use super::connection::{Answer, Connection};
use super::contest::{Contest, Difference, End, TRIES, Verdict};
use super::grammar::Row;
use super::random::Random;
use super::sequence::for_printf;
use super::shrink::shrink;
use answer::{Versions, length, normal};
use anyhow::{Result, anyhow};
use commands::{CLASSIC, Filler, KEYS, META, SEEN};
use std::net::SocketAddr;

/// A command: its line, and the data behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    words: Vec<Vec<u8>>,
    data: Option<Vec<u8>>,
    /// Whether its bytes are a connection's first and last.
    is_raw: bool,
}

/// Two servers, and the generator of their sequences.
pub(super) struct Memcached {
    rows: [Vec<Row>; 2],
    seed: u64,
    commands_max: usize,
    addresses: [SocketAddr; 2],
    sides: Option<[Side; 2]>,
    marks: u64,
    commands: u64,
    used: Vec<u64>,
}

/// A server.
struct Side {
    connection: Connection,
    versions: Versions,
}

/// Bytes that are a connection's first and last. The beginning of the binary protocol, lines that
/// are too long, and lines without an end.
const RAW: &[&[u8]] = &[
    b"\x80\x01\x02\r\n",
    b"\x80",
    b"\r\n",
    b"\n",
    b" \r\n",
    b"get a\n",
    b"get a",
    b"set a 0 0 5\r\nab",
    b"quit\r\nget a\r\n",
    b"quit now\r\nversion\r\n",
    b"set a 0 0 1\r\nx\nget a\r\n",
    b"get a\0b\r\nversion\r\n",
    b"set a 0 0 2000000\r\n",
    b"set a 0 0 -1\r\nversion\r\n",
    b"set a 4294967296 0 1\r\nx\r\nget a\r\n",
    b"set a -1 0 1\r\nx\r\nget a\r\n",
    b"set a 0 0 4294967297\r\nx\r\nget a\r\n",
    b"set a 0 0 1\r\nx\r\nset a 0 0 2000000\r\n",
    b"  get   a  \r\n",
    b"get  a b\r\n",
    b"GET a\r\nversion\r\n",
    b"shutdown\r\nversion\r\n",
    b"flush_all\r\nversion\r\n",
    b"flush_all 0\r\nget a\r\n",
    b"flush_all noreply\r\nget a\r\n",
    b"flush_all x\r\n",
    b"verbosity\r\n",
    b"verbosity x\r\n",
    b"stats reset\r\n",
    b"stats nosuch\r\n",
    b"stats reset now\r\n",
    b"mn\r\nmn x\r\nmn q\r\n",
    b"mg a v k c t q v O1\r\nmn\r\n",
    b"ms a S1\r\nx\r\nmn\r\n",
    b"ms a 1 T0 F1 T0\r\nx\r\nmn\r\n",
    b"get 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27\r\n",
    b"set a 18446744073709551615 0 1\r\nx\r\n",
    b"set a 0 4294967295 1\r\nx\r\nget a\r\n",
    b"set a 0 0 1\r\n5\r\nincr a 18446744073709551615\r\n",
    b"set a 0 0 1\r\n5\r\ndecr a 18446744073709551615\r\n",
    b"ms a 1\r\n5\r\nma a D18446744073709551615\r\nma a D18446744073709551616\r\n",
    b"cache_memlimit\r\n",
    b"gat\r\ngat 0\r\ngats a\r\n",
    b"incr a 1 2 3\r\ndecr a\r\n",
    b"delete a 1\r\ndelete a 0\r\ndelete a noreply x\r\n",
    b"touch a\r\ntouch a x\r\ntouch a 0 noreply\r\nversion\r\n",
];

impl Memcached {
    pub(super) fn new(
        seed: u64,
        commands_max: usize,
        theirs: SocketAddr,
        ours: SocketAddr,
    ) -> Result<Memcached> {
        let read = |rows: &[&'static str]| {
            let rows = rows.iter().map(|row| Row::read(row)).collect::<Result<Vec<_>, _>>();
            rows.map_err(|error| anyhow!(error))
        };
        Ok(Memcached {
            rows: [read(CLASSIC)?, read(META)?],
            seed,
            commands_max,
            addresses: [theirs, ours],
            sides: None,
            marks: 0,
            commands: 0,
            used: vec![0; MEMCACHED.len()],
        })
    }

    fn sides(&mut self) -> Result<&mut [Side; 2]> {
        if self.sides.is_none() {
            let open = |address| {
                Connection::open(address)
                    .map(|connection| Side { connection, versions: Versions::default() })
            };
            self.sides = Some([open(self.addresses[0])?, open(self.addresses[1])?]);
        }
        self.sides.as_mut().ok_or_else(|| anyhow!("no connection"))
    }

    /// Runs the steps in groups, then compares the contents.
    fn all(&mut self, steps: &[Step], is_stepwise: bool) -> Result<(), End> {
        for side in self.sides()? {
            side.versions = Versions::default();
        }
        let mut at = 0;
        while at < steps.len() {
            let mut end = at + 1;
            // A step with a version needs the answers before it.
            let is_alone = |step: &Step| step.is_raw || step.needs_version();
            while !is_stepwise && !steps[at].is_raw && end < steps.len() && !is_alone(&steps[end]) {
                end += 1;
            }
            self.commands += (end - at) as u64;
            if steps[at].is_raw {
                self.raw(&steps[at])?;
            } else {
                self.run_of(&steps[at..end], false)?;
            }
            at = end;
        }
        let read = |key: &&str| Step::of(&["mg", key, "k", "s", "f", "t", "c", "v"]);
        let reads: Vec<Step> = KEYS.iter().map(read).collect();
        self.run_of(&reads, true)
    }

    /// Sends commands, and compares all answers. Versions are compared by their order.
    fn run_of(&mut self, steps: &[Step], is_of_contents: bool) -> Result<(), End> {
        self.marks += 1;
        let mark = format!("O{:07}", self.marks % 10_000_000);
        let end = format!("NF {mark}\r\n").into_bytes();
        for side in self.sides()? {
            let mut bytes = Vec::new();
            steps.iter().for_each(|step| step.write(side.versions.last, &mut bytes));
            bytes.extend_from_slice(format!("md no-such-key {mark}\r\n").as_bytes());
            side.connection.send(&bytes);
        }
        let [theirs, ours] = self.sides()?;
        loop {
            let part = |side: &mut Side| side.connection.next(|bytes| Ok(length(bytes)));
            let (one, other) = (part(theirs), part(ours));
            if one == Answer::Silence {
                return Err(End::Stalled(name_of(steps)));
            }
            let agree = match (&one, &other) {
                (Answer::Reply(one), Answer::Reply(other)) => {
                    let one = normal(one, &mut theirs.versions);
                    one.agrees(&normal(other, &mut ours.versions))
                }
                (one, other) => one == other,
            };
            if !agree {
                return Err(self.differ(steps, one, other, is_of_contents));
            }
            match one {
                Answer::Reply(bytes) if bytes == end => return Ok(()),
                Answer::Reply(_) => {}
                // Both have closed the connection.
                _ => {
                    self.sides = None;
                    return Ok(());
                }
            }
        }
    }

    /// Sends the only bytes of a new connection, and compares all bytes of the answer.
    fn raw(&mut self, step: &Step) -> Result<(), End> {
        let mut bytes = Vec::new();
        step.write(None, &mut bytes);
        let mut open = [Connection::open(self.addresses[0])?, Connection::open(self.addresses[1])?];
        for connection in &mut open {
            connection.send(&bytes);
            connection.finish();
        }
        let [theirs, ours] = open.map(|mut connection| connection.until_closed());
        if theirs == Answer::Silence {
            return Err(End::Stalled("(bytes)".to_owned()));
        }
        if theirs == ours {
            return Ok(());
        }
        Err(self.differ(std::slice::from_ref(step), theirs, ours, false))
    }

    fn differ(
        &mut self,
        steps: &[Step],
        theirs: Answer,
        ours: Answer,
        is_of_contents: bool,
    ) -> End {
        let name = name_of(steps);
        let command = steps.iter().map(Step::line).collect::<Vec<_>>().join(" ; ");
        if let Some(rule) = allowed(MEMCACHED, &name, &command, (&theirs, &ours), false) {
            self.used[rule] += 1;
            return End::Allowed;
        }
        End::Different(Box::new(Difference { command, name, theirs, ours, is_of_contents }))
    }

    /// Removes all objects of a sequence.
    fn clear(&mut self, is_anew: bool) -> Result<(), End> {
        if is_anew {
            self.sides = None;
        }
        let steps: Vec<Step> = commands::all_keys()
            .map(|key| Step {
                words: vec![b"delete".to_vec(), key, b"noreply".to_vec()],
                data: None,
                is_raw: false,
            })
            .collect();
        self.run_of(&steps, false)
    }

    fn verdict(&mut self, steps: &[Step], is_stepwise: bool) -> Result<Verdict> {
        let ended = self.all(steps, is_stepwise);
        let (verdict, is_anew) = match ended {
            Ok(()) => (Verdict::Same, false),
            Err(End::Allowed) => (Verdict::Same, true),
            Err(End::Different(difference)) => (Verdict::Different(difference), true),
            Err(End::Stalled(command)) => (Verdict::Stalled(command), true),
            Err(End::Broken(error)) => return Err(error),
        };
        match self.clear(is_anew) {
            Ok(()) => Ok(verdict),
            Err(End::Broken(error)) => Err(error),
            Err(other) => Err(anyhow!("the objects cannot be removed: {other:?}")),
        }
    }
}

impl Contest for Memcached {
    type Sequence = Vec<Step>;

    fn sequence(&self, number: u64) -> Vec<Step> {
        let random = &mut Random::new(self.seed, number);
        let count = random.between(self.commands_max.div_ceil(2), self.commands_max);
        let usual = random.below(3);
        let mut steps = Vec::new();
        for _ in 0..count {
            if random.one_in(400) {
                steps.push(Step {
                    words: Vec::new(),
                    data: Some(random.of(RAW).to_vec()),
                    is_raw: true,
                });
                continue;
            }
            let kind = if usual < 2 { usual } else { random.below(2) };
            let rows = &self.rows[kind];
            let row = &rows[random.below(rows.len())];
            let mut filler = Filler { is_noisy: random.one_in(4), data: None };
            let mut words = row.templates[0].words(random, &mut filler);
            if random.one_in(60) {
                match random.below(3) {
                    0 if words.len() > 1 => drop(words.pop()),
                    // A length without its value would take the last answers too.
                    0 | 1 if words[0] == b"ms" => {}
                    0 | 1 => words.push(random.of(&["x", "0", "noreply", "q", "1"]).into()),
                    _ => words[0].make_ascii_uppercase(),
                }
            }
            steps.push(Step { words, data: filler.data, is_raw: false });
        }
        steps
    }

    fn run(&mut self, steps: &Vec<Step>) -> Result<Verdict> {
        match self.verdict(steps, false)? {
            Verdict::Different(whole) => match self.verdict(steps, true)? {
                Verdict::Different(one) => Ok(Verdict::Different(one)),
                // Only the commands together show it.
                _ => Ok(Verdict::Different(whole)),
            },
            verdict => Ok(verdict),
        }
    }

    fn shrink(
        &mut self,
        steps: &Vec<Step>,
        fails: &mut dyn FnMut(&mut Memcached, &Vec<Step>) -> bool,
    ) -> Vec<Step> {
        let shrunk = shrink(steps, TRIES, |kept| fails(self, &kept.to_vec()));
        fails(self, &shrunk);
        shrunk
    }

    fn lines(&self, steps: &Vec<Step>) -> Vec<String> {
        steps.iter().map(Step::line).collect()
    }

    fn commands(&self) -> u64 {
        self.commands
    }

    fn rules(&self) -> Vec<(Rule, u64)> {
        MEMCACHED.iter().copied().zip(self.used.iter().copied()).collect()
    }
}

/// Returns the name of the commands of a run: of one, or of several together.
fn name_of(steps: &[Step]) -> String {
    match steps {
        [one] => match one.words.first() {
            Some(word) => word.escape_ascii().to_string(),
            None => "(bytes)".to_owned(),
        },
        _ => "(several)".to_owned(),
    }
}

impl Step {
    fn of(words: &[&str]) -> Step {
        let words = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        Step { words, data: None, is_raw: false }
    }

    fn needs_version(&self) -> bool {
        self.words.iter().any(|word| word.ends_with(SEEN))
    }

    /// Appends its bytes, with the version that the server has shown.
    fn write(&self, seen: Option<u64>, out: &mut Vec<u8>) {
        if self.is_raw {
            return out.extend_from_slice(self.data.as_deref().unwrap_or_default());
        }
        for (at, word) in self.words.iter().enumerate() {
            if at > 0 {
                out.push(b' ');
            }
            match word.strip_suffix(SEEN) {
                Some(before) => {
                    out.extend_from_slice(before);
                    let version = seen.unwrap_or(999_999_999);
                    out.extend_from_slice(version.to_string().as_bytes());
                }
                None => out.extend_from_slice(word),
            }
        }
        out.extend_from_slice(b"\r\n");
        if let Some(data) = &self.data {
            out.extend_from_slice(data);
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Returns the command as `printf` of a shell reads it.
    fn line(&self) -> String {
        if self.is_raw {
            let bytes = self.data.as_deref().unwrap_or_default();
            return format!("printf '{}' | nc -N HOST PORT", for_printf(bytes));
        }
        let mut bytes = self.words.join(&b' ');
        bytes.extend_from_slice(b"\r\n");
        if let Some(data) = &self.data {
            bytes.extend_from_slice(data);
            bytes.extend_from_slice(b"\r\n");
        }
        for_printf(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn a_seed_gives_the_same_sequence_again() {
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let game = Memcached::new(3, 20, nowhere, nowhere).unwrap();
        for number in 0..100 {
            assert_eq!(game.sequence(number), game.sequence(number));
        }
    }

    #[test]
    fn each_server_gets_the_version_that_it_has_shown() {
        let step = Step::of(&["ms", "a", "C@seen"]);
        assert!(step.needs_version());
        let bytes = |seen| {
            let mut out = Vec::new();
            step.write(seen, &mut out);
            out
        };
        assert_eq!(bytes(Some(7)), b"ms a C7\r\n");
        assert_eq!(bytes(None), b"ms a C999999999\r\n");
    }
}
