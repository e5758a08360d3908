//! Runs a sequence on two servers of Redis's protocol, and compares each answer and the final
//! contents of both.
//!
//! Commands on one connection are sent together, and then all answers are read. If a sequence uses
//! several connections, the answers to one connection's commands are read before another
//! connection sends: so both servers see one order.

use super::allowed::Judge;
use super::connection::{Answer, Connection};
use super::contest::{Difference, End, Verdict};
use super::normalize::{
    Agreement, Comparison, GREETING, agree, agree_each, comparison, cursor_at, elements,
    is_drawn_from,
};
use super::reply::{Reply, read};
use super::sequence::{Block, CONNECTIONS, Sequence, Step, quoted, write_words};
use super::{commands::KEYS, grammar::Use};
use anyhow::{Result, ensure};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The connection that reads the contents and removes them.
const CONTROL: usize = CONNECTIONS;

/// The most pages of a scan. Generated collections have a few.
const PAGES_MAX: usize = 1000;

/// The longest wait until a server has closed a connection.
const PATIENCE: Duration = Duration::from_secs(30);

/// The most commands that are sent at once.
const RUN_MAX: usize = 256;

/// The two connections of one number.
struct Pair {
    theirs: Connection,
    ours: Connection,
    /// The commands since MULTI, with the ways to compare their replies.
    queued: Option<Vec<(Comparison, Step)>>,
    is_closed: bool,
    judge: Rc<Judge>,
}

/// Two servers.
pub(super) struct Duel {
    theirs: SocketAddr,
    ours: SocketAddr,
    pairs: Vec<Option<Pair>>,
    /// The connections that were greeted in this sequence.
    greeted: [bool; CONNECTIONS],
    marks: u64,
    /// The answers to the questions that went along with the last steps.
    answered: Option<Vec<Vec<u8>>>,
    pub(super) commands: u64,
    pub(super) judge: Rc<Judge>,
    /// Whether the real server is Redis 7.0.
    is_older: bool,
}

impl Duel {
    pub(super) fn new(theirs: SocketAddr, ours: SocketAddr, is_older: bool) -> Duel {
        let pairs = (0..=CONTROL).map(|_| None).collect();
        Duel {
            theirs,
            ours,
            pairs,
            greeted: [false; CONNECTIONS],
            marks: 0,
            answered: None,
            commands: 0,
            judge: Rc::new(Judge::of_redis(is_older)),
            is_older,
        }
    }

    /// Runs a sequence from empty servers, and leaves them empty.
    pub(super) fn run(&mut self, sequence: &Sequence) -> Result<Verdict> {
        self.greeted = [false; CONNECTIONS];
        self.judge.begin(sequence.steps().map(|step| &step.words[..]));
        let is_used = |key: &&&str| {
            let has = |step: &Step| step.words.iter().any(|word| word == key.as_bytes());
            sequence.manner.is_raw || sequence.steps().any(has)
        };
        let used: Vec<&str> = KEYS.iter().filter(is_used).copied().collect();
        let mut types = vec![question(&["KEYS", "*"])];
        types.extend(used.iter().map(|key| question(&["TYPE", key])));
        let ended = self.steps(sequence, &types).and_then(|()| self.contents(&used, &types));
        match ended {
            Ok(()) => Ok(Verdict::Same),
            Err(End::Broken(error)) => Err(error),
            Err(End::Allowed) => {
                self.restart()?;
                Ok(Verdict::Same)
            }
            Err(End::Different(difference)) => {
                self.restart()?;
                Ok(Verdict::Different(difference))
            }
            Err(End::Stalled(command)) => {
                self.restart()?;
                Ok(Verdict::Stalled(command))
            }
        }
    }

    /// Closes all connections, and removes the contents of both servers.
    pub(super) fn restart(&mut self) -> Result<()> {
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        for pair in self.pairs.iter_mut().filter_map(Option::take) {
            theirs.extend(pair.theirs.address());
            ours.extend(pair.ours.address());
        }
        let control = self.pair(CONTROL)?;
        for (connection, closed) in [(&mut control.theirs, theirs), (&mut control.ours, ours)] {
            await_end(connection, &closed)?;
            let answer = ask(connection, &["FLUSHALL"]);
            let is_done = answer.bytes() == Some(b"+OK\r\n");
            ensure!(is_done, "a server does not answer FLUSHALL: {}", answer.text());
        }
        Ok(())
    }

    fn pair(&mut self, number: usize) -> Result<&mut Pair> {
        let pair = &mut self.pairs[number];
        if pair.as_ref().is_some_and(|pair| pair.is_closed) {
            *pair = None;
        }
        if pair.is_none() {
            let (theirs, ours) = (Connection::open(self.theirs)?, Connection::open(self.ours)?);
            let judge = Rc::clone(&self.judge);
            *pair = Some(Pair { theirs, ours, queued: None, is_closed: false, judge });
        }
        pair.as_mut().ok_or_else(|| anyhow::anyhow!("no connection"))
    }

    /// Runs the steps of a sequence. If one connection was used in the simplest way, the questions
    /// for the contents go along with the last steps, and their answers are kept.
    fn steps(&mut self, sequence: &Sequence, questions: &[Step]) -> Result<(), End> {
        let steps: Vec<&Step> = sequence.steps().collect();
        let fixed = fixed_blocks(sequence);
        let is_marked = sequence.manner.is_marked;
        let is_simple = !is_marked && !sequence.manner.is_raw && !steps.iter().any(is_special);
        self.answered = None;
        let mut at = 0;
        while at < steps.len() {
            let first = steps[at];
            if sequence.manner.is_raw {
                self.raw(first)?;
                at += 1;
                continue;
            }
            let is_alone = |step: &Step| step.usage != Use::Send || is_scan(step);
            let mut end = at + 1;
            // A PING inside of a transaction would not be answered.
            let is_stepwise = sequence.manner.is_stepwise && fixed[at] == 0;
            let most = if is_stepwise { 1 } else { RUN_MAX };
            while !is_alone(first)
                && end < steps.len()
                && end - at < most
                && steps[end].connection == first.connection
                && !is_alone(steps[end])
                && (!is_marked || fixed[end] == fixed[at])
            {
                end += 1;
            }
            let connection = first.connection;
            let greeting = self.greeting(connection, sequence.manner.version)?;
            if is_alone(first) {
                self.counted(connection, &greeting.iter().collect::<Vec<_>>(), &[])?;
            }
            let run: Vec<&Step> = greeting.iter().chain(steps[at..end].iter().copied()).collect();
            let asks = is_simple && end == steps.len();
            match first.usage {
                Use::Wait => self.wait(first)?,
                Use::Collect => self.collect(first)?,
                Use::Exchange => self.exchange(first)?,
                Use::Send if is_scan(first) => self.scan(first, is_marked)?,
                Use::Send if is_marked => self.marked(connection, &run)?,
                Use::Send if asks => {
                    self.answered = Some(self.counted(connection, &run, questions)?);
                }
                Use::Send => drop(self.counted(connection, &run, &[])?),
            }
            self.commands += (end - at) as u64;
            at = end;
        }
        let is_used = |connection: &usize| is_marked && self.greeted[*connection];
        // Messages may have arrived since the last answer, and no more may come later.
        let used: Vec<usize> = (0..CONNECTIONS).filter(is_used).collect();
        used.into_iter().try_for_each(|connection| self.marked(connection, &[&reset(connection)]))
    }

    /// Returns the commands that bring a connection to the state of a new one, with a version of
    /// the protocol; none if that has happened in this sequence.
    fn greeting(&mut self, connection: usize, version: u8) -> Result<Vec<Step>, End> {
        if self.greeted.get_mut(connection).is_none_or(|it| std::mem::replace(it, true)) {
            return Ok(Vec::new());
        }
        self.pair(connection)?.queued = None;
        let mut greeting = vec![reset(connection)];
        if version != 2 {
            let words = vec![b"HELLO".to_vec(), version.to_string().into_bytes()];
            greeting.push(Step { words, ..reset(connection) });
        }
        Ok(greeting)
    }

    /// Sends commands that have one answer each, and questions for the contents. Compares the
    /// answers, and returns those of the real server to the questions.
    fn counted(
        &mut self,
        connection: usize,
        steps: &[&Step],
        questions: &[Step],
    ) -> Result<Vec<Vec<u8>>, End> {
        let mut bytes = Vec::new();
        steps.iter().copied().chain(questions).for_each(|step| step.write(&mut bytes));
        let pair = self.pair(connection)?;
        pair.theirs.send(&bytes);
        pair.ours.send(&bytes);
        let mut previous: Option<(&Step, Answer)> = None;
        for step in steps {
            let (theirs, ours) = pair.replies();
            pair.compare(step, &theirs, &ours)?;
            if theirs == Answer::Closed {
                pair.is_closed = true;
                return Ok(Vec::new());
            }
            if let (Some((whole, Answer::Reply(all))), Answer::Reply(drawn)) = (&previous, &ours)
                && draws_from(whole, step)
                && !is_drawn_from(all, drawn)
            {
                return Err(different(step, &theirs, &ours));
            }
            previous = Some((step, ours));
        }
        let mut answers = Vec::with_capacity(questions.len());
        for step in questions {
            let (theirs, ours) = pair.replies();
            if let Err(End::Different(mut difference)) = pair.compare(step, &theirs, &ours)
                && !(is_sketch(&theirs) && is_sketch(&ours))
            {
                difference.is_of_contents = true;
                return Err(End::Different(difference));
            }
            match theirs {
                Answer::Reply(bytes) => answers.push(bytes),
                _ => return Err(End::Stalled(step.name())),
            }
        }
        Ok(answers)
    }

    /// Sends commands and a PING, and compares all answers up to the PING's.
    fn marked(&mut self, connection: usize, steps: &[&Step]) -> Result<(), End> {
        if self.pairs[connection].as_ref().is_some_and(|pair| pair.is_closed) {
            return Ok(());
        }
        self.marks += 1;
        let mark = format!("mark-{:08}", self.marks);
        let mut bytes = Vec::new();
        steps.iter().for_each(|step| step.write(&mut bytes));
        let ping = Step {
            connection,
            usage: Use::Send,
            words: vec![b"PING".to_vec(), mark.clone().into_bytes()],
            bytes: None,
        };
        ping.write(&mut bytes);
        let pair = self.pair(connection)?;
        pair.theirs.send(&bytes);
        pair.ours.send(&bytes);
        let end = format!("{mark}\r\n").into_bytes();
        let mut theirs = up_to(&mut pair.theirs, &end);
        let mut ours = up_to(&mut pair.ours, &end);
        let name = steps.first().map_or_else(|| "(messages)".to_owned(), |step| step.name());
        if let Some(Answer::Silence) = theirs.last() {
            return Err(End::Stalled(name));
        }
        pair.is_closed = theirs.last() == Some(&Answer::Closed);
        let has_ended = pair.is_closed && theirs.len() <= steps.len();
        let is_one_each = theirs.len() == steps.len() + 1 || has_ended;
        if is_one_each && ours.len() == theirs.len() {
            let all = steps.iter().copied().chain([&ping]);
            let mut answers = theirs.iter().zip(&ours).zip(all);
            return answers.try_for_each(|((theirs, ours), step)| pair.compare(step, theirs, ours));
        }
        let ends_all =
            |step: &&&Step| step.words.len() == 1 && step.name().ends_with("UNSUBSCRIBE");
        let is_any_order = steps.iter().any(|step| ends_all(&step));
        for answers in [&mut theirs, &mut ours] {
            sort_messages(answers, is_any_order);
        }
        let most = theirs.len().max(ours.len());
        theirs.resize(most, Answer::Nothing);
        ours.resize(most, Answer::Nothing);
        let agrees = |theirs: &Answer, ours: &Answer| match (theirs, ours) {
            (Answer::Reply(theirs), Answer::Reply(ours)) => agree(GREETING, theirs, ours),
            (theirs, ours) => theirs == ours,
        };
        let Some((theirs, ours)) =
            theirs.into_iter().zip(ours).find(|(theirs, ours)| !agrees(theirs, ours))
        else {
            return Ok(());
        };
        let command = steps.iter().map(|step| text(step)).collect::<Vec<_>>().join(" ; ");
        let is_of_contents = false;
        pair.judge.judge(Difference { command, name, theirs, ours, is_of_contents })
    }

    /// Sends a command that waits. The answer to a PING before it shows that it has been read.
    fn wait(&mut self, step: &Step) -> Result<(), End> {
        let mut bytes = Vec::new();
        write_words(&[b"PING".to_vec()], &mut bytes);
        step.write(&mut bytes);
        let pair = self.pair(step.connection)?;
        pair.theirs.send(&bytes);
        pair.ours.send(&bytes);
        let (theirs, ours) = pair.replies();
        pair.compare(step, &theirs, &ours)
    }

    /// Reads the answer of the command that waits.
    fn collect(&mut self, step: &Step) -> Result<(), End> {
        let pair = self.pair(step.connection)?;
        let (theirs, ours) = pair.replies();
        pair.compare(step, &theirs, &ours)
    }

    /// Lets each server restore the payload of the other one, and compares the answers.
    fn exchange(&mut self, step: &Step) -> Result<(), End> {
        let (words, to) = match &step.words[..] {
            [function, dump] => (vec![function.clone(), dump.clone()], None),
            [dump, key, to] => (vec![dump.clone(), key.clone()], Some(to.clone())),
            _ => return Ok(()),
        };
        let pair = self.pair(step.connection)?;
        let mut bytes = Vec::new();
        write_words(&words, &mut bytes);
        pair.theirs.send(&bytes);
        pair.ours.send(&bytes);
        let dumped = Step { usage: Use::Send, words, ..step.clone() };
        let (theirs, ours) = pair.replies();
        pair.compare(&dumped, &theirs, &ours)?;
        let payload = |answer: &Answer| {
            let reply = answer.bytes().and_then(|bytes| read(bytes).ok());
            reply.filter(|reply| !reply.is_error() && !reply.is_null).map(|it| it.text.to_vec())
        };
        let (Some(of_theirs), Some(of_ours)) = (payload(&theirs), payload(&ours)) else {
            return Ok(());
        };
        let restore = |payload: Vec<u8>| {
            let text = |word: &str| word.as_bytes().to_vec();
            let words = match &to {
                Some(to) => {
                    vec![text("RESTORE"), to.clone(), text("0"), payload, text("REPLACE")]
                }
                None => vec![text("FUNCTION"), text("RESTORE"), payload, text("REPLACE")],
            };
            Step { usage: Use::Send, words, ..step.clone() }
        };
        let (to_theirs, to_ours) = (restore(of_ours), restore(of_theirs));
        let write = |step: &Step| {
            let mut bytes = Vec::new();
            step.write(&mut bytes);
            bytes
        };
        pair.theirs.send(&write(&to_theirs));
        pair.ours.send(&write(&to_ours));
        let (theirs, ours) = pair.replies();
        pair.compare(&to_theirs, &theirs, &ours)
    }

    /// Reads all pages of a scan from both servers, and compares the union of each.
    fn scan(&mut self, step: &Step, is_marked: bool) -> Result<(), End> {
        let pair = self.pair(step.connection)?;
        if pair.queued.is_some() || is_marked {
            return self.counted(step.connection, &[step], &[]).map(|_| ());
        }
        let way = comparison(&step.words);
        let theirs = pages(&mut pair.theirs, step, way);
        let ours = pages(&mut pair.ours, step, way);
        match (theirs, ours) {
            (Pages::All(theirs), Pages::All(ours)) if theirs == ours => Ok(()),
            (Pages::Other(theirs), Pages::Other(ours)) => pair.compare(step, &theirs, &ours),
            (theirs, ours) => self.judge.judge(difference(step, &theirs.answer(), &ours.answer())),
        }
    }

    /// Sends the only bytes of a new connection, and compares all bytes of the answer.
    fn raw(&mut self, step: &Step) -> Result<(), End> {
        let mut bytes = Vec::new();
        step.write(&mut bytes);
        let mut open = [Connection::open(self.theirs)?, Connection::open(self.ours)?];
        for connection in &mut open {
            connection.send(&bytes);
            connection.finish();
        }
        self.commands += 1;
        let [theirs, ours] = open.map(|mut connection| connection.until_closed());
        match theirs {
            Answer::Silence => Err(End::Stalled(step.name())),
            _ if theirs == ours => Ok(()),
            _ => self.judge.judge(difference(step, &theirs, &ours)),
        }
    }

    /// Compares the contents of both servers, and removes them.
    fn contents(&mut self, used: &[&str], questions: &[Step]) -> Result<(), End> {
        // The same connection is used on, so that nothing waits for another one.
        let (connection, types) = match self.answered.take() {
            Some(types) if types.len() == questions.len() => (0, types),
            _ => (CONTROL, self.counted(CONTROL, &[], questions)?),
        };
        let has_key = |(_, kind): &(&&str, &Vec<u8>)| kind.as_slice() != b"+none\r\n";
        let mut remove = vec!["DEL"];
        remove.extend(used.iter().zip(types.iter().skip(1)).filter(has_key).map(|(key, _)| *key));
        let keys = types.first().and_then(|keys| Some(read(keys).ok()?.parts.len()));
        // FLUSHALL starts a thread, so it is only sent if there may be other keys.
        if connection == CONTROL || keys != Some(remove.len() - 1) {
            remove = vec!["FLUSHALL"];
        } else if remove.len() == 1 {
            return Ok(());
        }
        let mut questions = Vec::new();
        for (key, kind) in used.iter().zip(types.iter().skip(1)) {
            let reads: &[&[&str]] = match kind.as_slice() {
                b"+string\r\n" => &[&["GET", key], &["PTTL", key]],
                b"+list\r\n" => &[&["LRANGE", key, "0", "-1"], &["PTTL", key]],
                b"+hash\r\n" => &[&["HGETALL", key], &["PTTL", key]],
                b"+set\r\n" => &[&["SMEMBERS", key], &["PTTL", key]],
                b"+zset\r\n" => &[&["ZRANGE", key, "0", "-1", "WITHSCORES"], &["PTTL", key]],
                b"+stream\r\n" => {
                    let reads: [&[&str]; 2] = match self.is_older {
                        true => [&["XRANGE", key, "-", "+"], &["PTTL", key]],
                        false => [&["XINFO", "STREAM", key, "FULL", "COUNT", "0"], &["PTTL", key]],
                    };
                    questions.extend(reads.iter().map(|words| question(words)));
                    &[]
                }
                _ => &[],
            };
            questions.extend(reads.iter().map(|words| question(words)));
        }
        questions.push(question(&remove));
        self.counted(connection, &[], &questions).map(|_| ())
    }
}

impl Pair {
    fn replies(&mut self) -> (Answer, Answer) {
        (self.theirs.reply(), self.ours.reply())
    }

    /// Compares the answers to one command.
    fn compare(&mut self, step: &Step, theirs: &Answer, ours: &Answer) -> Result<(), End> {
        if *theirs == Answer::Silence {
            return Err(End::Stalled(step.name()));
        }
        let (Answer::Reply(one), Answer::Reply(other)) = (theirs, ours) else {
            return if theirs == ours { Ok(()) } else { Err(different(step, theirs, ours)) };
        };
        let is =
            |word: &[u8]| step.words.first().is_some_and(|first| first.eq_ignore_ascii_case(word));
        // It takes longer than all else here, so equal answers do without it.
        let way = || match step.usage {
            Use::Send => comparison(&step.words),
            Use::Wait | Use::Collect | Use::Exchange => Comparison::Exact,
        };
        let same = match &mut self.queued {
            Some(queued) if is(b"EXEC") => {
                let whole = (theirs, ours);
                let (ways, steps): (Vec<_>, Vec<_>) = std::mem::take(queued).into_iter().unzip();
                self.queued = None;
                match agree_each(&ways, one, other) {
                    Agreement::Whole => true,
                    Agreement::None => false,
                    Agreement::Without { number, theirs, ours } => {
                        let (theirs, ours) = (&Answer::Reply(theirs), &Answer::Reply(ours));
                        let judged = self.judge.judge(difference(&steps[number], theirs, ours));
                        return match judged {
                            Err(End::Different(_)) => Err(different(step, whole.0, whole.1)),
                            // Further replies may differ.
                            _ => Err(End::Allowed),
                        };
                    }
                }
            }
            Some(queued) if one == b"+QUEUED\r\n" => {
                queued.push((way(), step.clone()));
                one == other
            }
            _ => one == other || agree(way(), one, other),
        };
        if one == b"+OK\r\n" {
            if is(b"MULTI") {
                self.queued = Some(Vec::new());
            } else if is(b"DISCARD") {
                self.queued = None;
            }
        }
        if one == b"+RESET\r\n" {
            self.queued = None;
        }
        if same {
            return Ok(());
        }
        self.judge.judge(difference(step, theirs, ours))
    }
}

/// Sends a command; returns the answer.
fn ask(connection: &mut Connection, words: &[&str]) -> Answer {
    let mut bytes = Vec::new();
    question(words).write(&mut bytes);
    connection.send(&bytes);
    connection.reply()
}

/// Waits until a server has closed the connections from these addresses: commands that it has
/// received on them may still run.
fn await_end(control: &mut Connection, closed: &[SocketAddr]) -> Result<()> {
    let own = control.address();
    let names = closed.iter().filter(|address| Some(**address) != own);
    let names: Vec<String> = names.map(|address| format!(" addr={address} ")).collect();
    let end = Instant::now() + PATIENCE;
    loop {
        let answer = ask(control, &["CLIENT", "LIST"]);
        let clients = String::from_utf8_lossy(answer.bytes().unwrap_or_default()).into_owned();
        if !names.iter().any(|name| clients.contains(name)) {
            return Ok(());
        }
        ensure!(Instant::now() < end, "a server still has connections that were closed: {clients}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns a question for the contents.
fn question(words: &[&str]) -> Step {
    let words = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    Step { connection: CONTROL, usage: Use::Send, words, bytes: None }
}

/// Whether an answer is the string of a HyperLogLog. Its bytes are the server's own, and PFCOUNT is
/// compared.
fn is_sketch(answer: &Answer) -> bool {
    answer.bytes().is_some_and(|it| it.windows(6).take(12).any(|it| it == b"\r\nHYLL"))
}

/// Whether a step uses another connection or database, or leaves its connection in another state.
fn is_special(step: &&Step) -> bool {
    step.connection != 0
        || step.usage != Use::Send
        || [&b"MULTI"[..], b"COPY", b"MOVE"].iter().any(|special| {
            step.words.first().is_some_and(|name| name.eq_ignore_ascii_case(special))
        })
}

fn reset(connection: usize) -> Step {
    Step { connection, usage: Use::Send, words: vec![b"RESET".to_vec()], bytes: None }
}

/// Returns a command for a person.
fn text(step: &Step) -> String {
    match &step.bytes {
        Some(bytes) => bytes.escape_ascii().to_string(),
        None => step.words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
    }
}

fn difference(step: &Step, theirs: &Answer, ours: &Answer) -> Difference {
    Difference {
        command: text(step),
        name: step.name(),
        theirs: theirs.clone(),
        ours: ours.clone(),
        is_of_contents: false,
    }
}

fn different(step: &Step, theirs: &Answer, ours: &Answer) -> End {
    End::Different(Box::new(difference(step, theirs, ours)))
}

/// Returns for each step the number of its block if that is fixed, and 0 for all others.
fn fixed_blocks(sequence: &Sequence) -> Vec<usize> {
    let numbered = sequence.blocks.iter().zip(1..);
    let of_block = |(block, number): (&Block, usize)| {
        vec![if block.is_fixed { number } else { 0 }; block.steps.len()]
    };
    numbered.flat_map(of_block).collect()
}

/// Whether a command is a scan from its beginning.
fn is_scan(step: &Step) -> bool {
    let name = step.words.first().map_or(&[][..], Vec::as_slice);
    let is_named = name.len() >= 4 && name[name.len() - 4..].eq_ignore_ascii_case(b"SCAN");
    is_named && step.words.get(cursor_at(&step.words)).is_some_and(|cursor| cursor == b"0")
}

/// The pages of a scan.
#[derive(PartialEq, Eq)]
enum Pages {
    /// The elements of all pages, once each.
    All(Vec<Vec<u8>>),
    /// An answer that is no page.
    Other(Answer),
}

impl Pages {
    fn answer(self) -> Answer {
        match self {
            Pages::All(elements) => Answer::Reply(elements.concat()),
            Pages::Other(answer) => answer,
        }
    }
}

fn pages(connection: &mut Connection, step: &Step, way: Comparison) -> Pages {
    let run = if way == Comparison::PageOfPairs { 2 } else { 1 };
    let mut words = step.words.clone();
    let mut all = Vec::new();
    for page in 0..PAGES_MAX {
        let mut bytes = Vec::new();
        match &step.bytes {
            Some(line) if page == 0 => bytes.extend_from_slice(line),
            _ => write_words(&words, &mut bytes),
        }
        connection.send(&bytes);
        let answer = connection.reply();
        let Some(Ok(reply)) = answer.bytes().map(read) else { return Pages::Other(answer) };
        let [cursor, page] = &reply.parts[..] else { return Pages::Other(answer.clone()) };
        all.extend(elements(page, run));
        if cursor.text == b"0" {
            all.sort();
            all.dedup();
            return Pages::All(all);
        }
        words[cursor_at(&step.words)] = cursor.text.to_vec();
    }
    Pages::Other(Answer::Nothing)
}

/// Whether the second command draws from the elements that the first one lists.
fn draws_from(whole: &Step, drawn: &Step) -> bool {
    let name = whole.words.first().map_or(&[][..], Vec::as_slice);
    let is_listed = [&b"SMEMBERS"[..], b"HGETALL", b"ZRANGE"].contains(&name);
    is_listed
        && whole.words.get(1) == drawn.words.get(1)
        && comparison(&drawn.words) == Comparison::Drawn
}

/// Reads answers up to an answer that ends with a mark.
fn up_to(connection: &mut Connection, mark: &[u8]) -> Vec<Answer> {
    let mut answers = Vec::new();
    loop {
        let answer = connection.reply();
        let is_last = answer.bytes().is_none_or(|bytes| bytes.ends_with(mark));
        answers.push(answer);
        if is_last {
            return answers;
        }
    }
}

/// Sorts answers that come in an order of the server's own: messages of several patterns, and the
/// names in the answers to UNSUBSCRIBE without a name. Events have one pattern, and an order.
fn sort_messages(answers: &mut [Answer], is_any_order: bool) {
    let kind = |answer: &Answer| {
        let read = answer.bytes().and_then(|bytes| read(bytes).ok());
        let is_event = |reply: &Reply<'_>| {
            reply.parts.get(1).is_some_and(|pattern| pattern.text.starts_with(b"__key"))
        };
        let read = read.filter(|reply| !is_event(reply));
        let text = read.and_then(|reply| reply.parts.first().map(|part| part.text.to_vec()));
        text.filter(|text| text == b"pmessage" || (is_any_order && text.ends_with(b"unsubscribe")))
    };
    let mut at = 0;
    while at < answers.len() {
        let first = kind(&answers[at]);
        let is_other = |end: &usize| kind(&answers[*end]) != first;
        let end = (at + 1..answers.len()).find(is_other).unwrap_or(answers.len());
        match first.as_deref() {
            None => {}
            Some(b"pmessage") => answers[at..end].sort(),
            Some(_) => sort_names(&mut answers[at..end]),
        }
        at = end;
    }
}

/// Sorts the names of answers that have a kind, a name and a count; the counts keep their places.
fn sort_names(answers: &mut [Answer]) {
    let parts = |answer: &Answer| {
        let reply = answer.bytes().and_then(|bytes| read(bytes).ok())?;
        let [kind, name, count] = &reply.parts[..] else { return None };
        Some((reply.kind, kind.raw.to_vec(), name.raw.to_vec(), count.raw.to_vec()))
    };
    let all: Option<Vec<_>> = answers.iter().map(parts).collect();
    let Some(all) = all else { return };
    let mut names: Vec<Vec<u8>> = all.iter().map(|(_, _, name, _)| name.clone()).collect();
    names.sort();
    for ((answer, (first, kind, _, count)), name) in answers.iter_mut().zip(all).zip(names) {
        let head = [first, b'3', b'\r', b'\n'];
        *answer = Answer::Reply([&head[..], &kind, &name, &count].concat());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(words: &[&str]) -> Answer {
        let words = words.iter().map(|word| format!("+{word}\r\n")).collect::<String>();
        Answer::Reply(format!(">3\r\n{words}").into_bytes())
    }

    #[test]
    fn only_messages_of_patterns_and_names_of_unsubscribe_are_sorted() {
        let mut answers = [
            push(&["message", "b", "1"]),
            push(&["message", "a", "1"]),
            push(&["pmessage", "b*", "1"]),
            push(&["pmessage", "a*", "1"]),
            push(&["unsubscribe", "b", "1"]),
            push(&["unsubscribe", "a", "0"]),
        ];
        let before = answers.clone();
        sort_messages(&mut answers, true);
        assert_eq!(answers[..2], before[..2]);
        assert_eq!(answers[2..4], [before[3].clone(), before[2].clone()]);
        assert_eq!(answers[4], push(&["unsubscribe", "a", "1"]));
        assert_eq!(answers[5], push(&["unsubscribe", "b", "0"]));
        let mut answers = before.clone();
        sort_messages(&mut answers, false);
        assert_eq!(answers[4..], before[4..]);
    }
}
