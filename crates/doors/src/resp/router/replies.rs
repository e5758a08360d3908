//! The replies of the parts on their way to the client.
//!
//! Each command has an entry in a queue. The first entry alone takes frames from the legs that it
//! names, and makes the client's reply of them. Messages may come at any time. They go to the
//! client between two replies.

use super::super::number::integer_of;
use super::super::writer::{Version, Writer};
use super::commands::next_cursor;
use super::elements::Elements;
use super::frames::{Head, Word, first_word};
use super::routes::Merge;
use super::session::Change;
use super::{Barrier, Broken, DefaultUser, ENTRIES_MAX, Effects, Leg, Phase, Router, Wish};

/// The longest reply that is kept until those of other parts have arrived.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// The longest error.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// The most bytes of the number at the end of an answer about subscriptions.
const COUNT_BYTES: usize = 24;

/// The replies that a client gets: see `CLIENT REPLY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    All,
    None,
    /// The next command has no reply.
    NotNext,
}

/// The effects of the reply of one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Nothing,
    /// Later commands have waited for it.
    Blocks,
    /// The state of the connection changes.
    Change(Box<Change>),
    /// The client gets other replies from now on.
    Shows(Shown),
    /// It tells whether the user `default` needs a password. The client does not see it.
    Asks,
    /// A transaction has begun.
    Begins,
    /// A transaction has begun in another part than before. The client does not see it.
    Rebinds,
    /// The client does not see it.
    Dropped,
    /// Keys are watched, or no more.
    Watches,
    Unwatches,
    /// `EXEC` without a transaction.
    Executes,
    /// The transaction has ended.
    Discards,
    /// The part will not execute the transaction. The client does not see it.
    Breaks,
    /// The part has ended the transaction. The client does not see it.
    Aborts,
}

impl Then {
    /// Whether the reply is short and tells the state of a transaction.
    fn is_of_state(&self) -> bool {
        use Then::{Aborts, Breaks, Discards, Executes, Unwatches, Watches};
        matches!(self, Watches | Unwatches | Executes | Discards | Breaks | Aborts)
    }
}

/// The progress of a reply to `SCAN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Begin,
    Cursor,
    Keys,
}

/// The replies to a command about subscriptions, of one part after another. The client sees those
/// of part 0. Its replies are read first if the command begins to listen, and last otherwise. So no
/// message comes before the first reply to `SUBSCRIBE`, or behind the last reply to `UNSUBSCRIBE`.
///
/// Their number is not known: `UNSUBSCRIBE` has one for each channel. So a `PING` follows the
/// command, and its reply is the end. It also tells whether the connection is that of a subscriber.
#[derive(Debug)]
pub(super) struct Subscription {
    parts: Vec<u32>,
    /// The place of the part whose replies come now.
    at: usize,
    /// Whether the command begins to listen.
    begins: bool,
    /// Whether the present part has answered.
    has_answer: bool,
    /// Whether the first part has refused.
    is_refused: bool,
    /// The end of the first part's last answer, which is the number of channels.
    end: Vec<u8>,
}

impl Subscription {
    pub(super) fn new(parts: Vec<u32>, begins: bool) -> Subscription {
        Subscription { parts, at: 0, begins, has_answer: false, is_refused: false, end: Vec::new() }
    }

    /// Whether the client sees the replies of the present part.
    fn is_shown(&self) -> bool {
        self.at == if self.begins { 0 } else { self.parts.len().saturating_sub(1) }
    }
}

/// A command without its whole reply.
#[derive(Debug)]
pub(super) enum Entry {
    /// The router's own reply.
    Own(Vec<u8>),
    /// The connection ends.
    End,
    /// The reply of one part goes to the client.
    One {
        part: u32,
        then: Then,
        is_error: bool,
    },
    /// Short replies of some parts become one.
    Merged {
        merge: Merge,
        parts: Vec<u32>,
        replies: Vec<Option<Vec<u8>>>,
    },
    Elements(Elements),
    Scan {
        part: u32,
        stage: Stage,
    },
    Subscription(Subscription),
}

/// The kind of a frame that is no reply to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Message,
    /// A channel was added or removed, or the command was refused.
    Answer,
    /// The reply to the `PING` behind the command: `None` if it is an error.
    Last(Option<bool>),
}

/// A frame that has begun to arrive, and is no reply to a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passing {
    part: u32,
    kind: Kind,
    is_shown: bool,
}

/// The progress of the first entry.
pub(super) enum Progress {
    /// So many bytes were used.
    Used(usize),
    /// So many bytes were used, and the entry is done.
    Done(usize),
    /// No byte was used, and the next ones are passed now.
    Passes,
    /// The next bytes are of another entry or leg.
    NotNow,
}

fn is_message(word: &[u8]) -> bool {
    matches!(word, b"message" | b"pmessage" | b"smessage")
}

impl Router {
    /// Takes bytes of a part. Returns the number that it has used.
    ///
    /// # Errors
    /// If the client's connection must be closed.
    pub fn take_replies(
        &mut self,
        part: u32,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Result<(usize, Wish), Broken> {
        let mut used = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            if rest.is_empty() {
                return Ok((used, Wish::Read));
            }
            let progress = self.take_frame(part, rest, effects)?;
            match progress {
                Progress::Passes => {}
                Progress::Used(0) => return Ok((used, Wish::Read)),
                Progress::Used(taken) => used += taken,
                Progress::Done(taken) => {
                    used += taken;
                    self.after_entry(effects);
                }
                Progress::NotNow => {
                    let is_ready = self.legs.get_mut(part as usize).map(|leg| leg.waits = true);
                    return is_ready.map(|()| (used, Wish::Wait)).ok_or(Broken);
                }
            }
        }
    }

    /// Takes bytes of a frame of a part.
    fn take_frame(
        &mut self,
        part: u32,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Result<Progress, Broken> {
        if let Some(passing) = self.passing {
            return match passing.part == part {
                true => self.pass(passing, bytes, effects),
                false => Ok(Progress::NotNow),
            };
        }
        let leg = self.legs.get(part as usize).ok_or(Broken)?;
        let is_between = leg.frames.is_between();
        let is_learning = matches!(leg.phase, Phase::Learning(_));
        if let Some(Entry::Subscription(subscription)) = self.entries.front()
            && !is_learning
        {
            return match subscription.parts.get(subscription.at) == Some(&part) {
                true => self.begin_answer(part, bytes),
                false => Ok(Progress::NotNow),
            };
        }
        if is_between {
            let is_push = bytes.first() == Some(&b'>');
            let is_message = match self.is_subscriber && !is_push {
                true => match first_word(bytes)? {
                    Word::More => return Ok(Progress::Used(0)),
                    Word::Is(word) => is_message(word),
                    Word::None => false,
                },
                false => is_push,
            };
            if is_message {
                return Ok(match self.is_within {
                    true => Progress::NotNow,
                    false => self.begin_passing(part, Kind::Message, true),
                });
            }
        }
        if is_learning {
            return self.learn(part, bytes, effects);
        }
        let Some(mut entry) = self.entries.pop_front() else { return Err(Broken) };
        let progress = self.take_reply(&mut entry, part, bytes, effects);
        if !matches!(progress, Ok(Progress::Done(_))) {
            self.entries.push_front(entry);
        }
        progress
    }

    /// Begins to pass a frame.
    fn begin_passing(&mut self, part: u32, kind: Kind, is_shown: bool) -> Progress {
        self.passing = Some(Passing { part, kind, is_shown });
        Progress::Passes
    }

    /// Begins to pass a frame about subscriptions.
    fn begin_answer(&mut self, part: u32, bytes: &[u8]) -> Result<Progress, Broken> {
        let Some(Entry::Subscription(subscription)) = self.entries.front_mut() else {
            return Err(Broken);
        };
        let (is_first, is_own) = (subscription.at == 0, subscription.is_shown());
        let (kind, is_shown) = match (first_word(bytes)?, bytes.first()) {
            (Word::More, _) => return Ok(Progress::Used(0)),
            (Word::Is(word), _) if is_message(word) => (Kind::Message, true),
            (Word::Is(b"pong"), Some(b'*')) => (Kind::Last(Some(true)), false),
            (Word::Is(word), _) if word.ends_with(b"subscribe") => {
                if subscription.is_refused && !is_first {
                    return Err(Broken); // The parts do not agree.
                }
                (Kind::Answer, is_own)
            }
            (_, Some(b'>')) => (Kind::Message, true),
            (Word::None, Some(b'-')) if !subscription.has_answer => {
                if !subscription.is_refused && !is_first {
                    return Err(Broken);
                }
                subscription.is_refused = true;
                (Kind::Answer, is_own)
            }
            (Word::None, Some(b'-')) => (Kind::Last(None), false),
            (Word::None, Some(b'$')) => (Kind::Last(Some(false)), false),
            _ => return Err(Broken),
        };
        subscription.has_answer |= kind == Kind::Answer;
        Ok(self.begin_passing(part, kind, is_shown))
    }

    /// Passes bytes of a frame that has begun.
    fn pass(
        &mut self,
        passing: Passing,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Result<Progress, Broken> {
        let leg = self.legs.get_mut(passing.part as usize).ok_or(Broken)?;
        let (used, has_ended) = leg.frames.pass(bytes)?;
        let passed = bytes.get(..used).unwrap_or_default();
        if passing.is_shown {
            effects.replies.extend_from_slice(passed);
        }
        if let Some(Entry::Subscription(subscription)) = self.entries.front_mut()
            && (passing.kind, passing.is_shown) == (Kind::Answer, true)
        {
            let end = &mut subscription.end;
            end.extend_from_slice(passed.get(used.saturating_sub(COUNT_BYTES)..).unwrap_or(passed));
            end.drain(..end.len().saturating_sub(COUNT_BYTES));
        }
        if !has_ended {
            return Ok(Progress::Used(used));
        }
        self.passing = None;
        if let Kind::Last(is_subscriber) = passing.kind {
            self.end_part_of_subscription(is_subscriber);
        }
        Ok(Progress::Done(used))
    }

    /// Ends the replies of one part to a command about subscriptions.
    fn end_part_of_subscription(&mut self, is_subscriber: Option<bool>) {
        let Some(Entry::Subscription(subscription)) = self.entries.front_mut() else { return };
        if subscription.is_shown() && self.session.version == Version::Two {
            // The PING of a user without the right to send it tells nothing.
            let count = channels_of(&subscription.end).filter(|_| !subscription.is_refused);
            let is_known = is_subscriber.or(count.map(|count| count > 0));
            self.is_subscriber = is_known.unwrap_or(self.is_subscriber);
        }
        if subscription.at == 0 {
            self.listens |= subscription.begins && !subscription.is_refused;
        }
        let part = subscription.parts.get(subscription.at).copied();
        subscription.at += 1;
        subscription.has_answer = false;
        let is_done = subscription.at == subscription.parts.len();
        self.end_pending(part.as_slice());
        if is_done {
            self.entries.pop_front();
            self.barrier = Barrier::None;
        }
    }

    /// Takes the replies to the commands with which a part has learned the client's state.
    fn learn(
        &mut self,
        part: u32,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Result<Progress, Broken> {
        let leg = self.legs.get_mut(part as usize).ok_or(Broken)?;
        let (used, reply) = keep(leg, bytes)?;
        let Some(reply) = reply else { return Ok(Progress::Used(used)) };
        if reply.first() == Some(&b'-') {
            self.failed(part, &reply, effects);
            effects.closes.push(part);
            return Ok(Progress::Done(bytes.len()));
        }
        leg.phase = match leg.phase {
            Phase::Learning(count @ 2..) => Phase::Learning(count - 1),
            _ => Phase::Ready,
        };
        if leg.phase == Phase::Ready {
            self.resume_client(effects);
        }
        Ok(Progress::Done(used))
    }

    /// Gives bytes of a part to the first entry.
    fn take_reply(
        &mut self,
        entry: &mut Entry,
        part: u32,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Result<Progress, Broken> {
        match entry {
            Entry::One { part: own, .. } | Entry::Scan { part: own, .. } if *own != part => {
                Ok(Progress::NotNow)
            }
            Entry::One { then, is_error, .. } => {
                self.take_one(part, (then, is_error), bytes, effects)
            }
            Entry::Scan { stage, .. } => self.take_scan(part, stage, bytes, effects),
            Entry::Merged { merge, parts, replies } => {
                let place = parts.iter().position(|it| *it == part);
                let own = place.and_then(|place| replies.get_mut(place));
                let Some(own) = own.filter(|own| own.is_none()) else {
                    return Ok(Progress::NotNow);
                };
                let leg = self.legs.get_mut(part as usize).ok_or(Broken)?;
                let (used, reply) = keep(leg, bytes)?;
                if reply.is_none() {
                    return Ok(Progress::Used(used));
                }
                *own = reply;
                let Some(all) = replies.iter().cloned().collect::<Option<Vec<_>>>() else {
                    return Ok(Progress::Used(used));
                };
                let reply = self.merged(*merge, all)?;
                self.begin_reply();
                self.show(&reply, effects);
                self.end_reply();
                self.end_pending(parts);
                Ok(Progress::Done(used))
            }
            Entry::Elements(elements) => self.take_elements(elements, part, bytes, effects),
            Entry::Own(_) | Entry::End | Entry::Subscription(_) => Err(Broken),
        }
    }

    fn take_one(
        &mut self,
        part: u32,
        (then, is_error): (&mut Then, &mut bool),
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Result<Progress, Broken> {
        if then.is_of_state() {
            return self.take_state(part, then, bytes, effects);
        }
        let leg = self.legs.get_mut(part as usize).ok_or(Broken)?;
        if *then == Then::Asks {
            let (used, reply) = keep(leg, bytes)?;
            let Some(reply) = reply else { return Ok(Progress::Used(used)) };
            // A user without the right to send PING is one, too.
            let is_user = reply.starts_with(b"$") || reply.starts_with(b"-NOPERM");
            self.default_user = match is_user {
                true => DefaultUser::NeedsNone,
                false => DefaultUser::NeedsPassword,
            };
            self.end_pending(&[part]);
            return Ok(Progress::Done(used));
        }
        let begins = leg.frames.is_between();
        let (used, has_ended) = leg.frames.pass(bytes)?;
        let is_hidden = matches!(then, Then::Rebinds | Then::Dropped);
        if begins && used > 0 {
            *is_error = bytes.first() == Some(&b'-');
            if !is_hidden {
                self.begin_reply();
            }
            // As in Redis, RESET shows all replies again, and its own.
            if matches!(then, Then::Change(change) if **change == Change::Reset) {
                self.is_muted &= self.shown != Shown::None;
            }
        }
        let is_shown = match then {
            Then::Shows(_) => *is_error,
            _ => !is_hidden,
        };
        if is_shown {
            self.show(bytes.get(..used).unwrap_or_default(), effects);
        }
        self.is_within = !has_ended && (used > 0 || self.is_within);
        if !has_ended {
            return Ok(Progress::Used(used));
        }
        self.end_pending(&[part]);
        if !is_hidden {
            self.end_reply();
        }
        let is_error = *is_error;
        match then {
            Then::Blocks => {
                self.barrier = Barrier::None;
                if let Some(leg) = self.legs.get_mut(part as usize).filter(|leg| leg.has_ended) {
                    *leg = Leg::default();
                    effects.closes.push(part);
                }
            }
            Then::Change(change) => {
                self.barrier = Barrier::None;
                if !is_error {
                    self.change_session((**change).clone(), effects);
                }
            }
            Then::Shows(shown) if !is_error => self.change_shown(*shown, effects),
            Then::Shows(_) => {}
            Then::Begins => {
                self.barrier = Barrier::None;
                if !is_error {
                    self.begun(part);
                }
            }
            Then::Rebinds => {
                self.barrier = Barrier::None;
                self.rebound(is_error, effects);
            }
            _ => {}
        }
        Ok(Progress::Done(used))
    }

    fn take_scan(
        &mut self,
        part: u32,
        stage: &mut Stage,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Result<Progress, Broken> {
        if *stage == Stage::Begin {
            self.begin_reply();
            if bytes.first() == Some(&b'-') {
                *stage = Stage::Keys;
            } else {
                let Some(head) = Head::read(bytes)? else { return Ok(Progress::Used(0)) };
                if (head.kind, head.length) != (b'*', Some(2)) {
                    return Err(Broken);
                }
                *stage = Stage::Cursor;
                return Ok(Progress::Used(head.bytes));
            }
        }
        if *stage == Stage::Cursor {
            let Some(head) = Head::read(bytes)? else { return Ok(Progress::Used(0)) };
            let length = head.length.filter(|length| *length <= 20).ok_or(Broken)? as usize;
            let used = head.bytes + length + 2;
            let Some(text) = bytes.get(head.bytes..used) else { return Ok(Progress::Used(0)) };
            let digits = text.strip_suffix(b"\r\n").and_then(|text| std::str::from_utf8(text).ok());
            let next = digits.and_then(|digits| digits.parse().ok()).ok_or(Broken)?;
            let next = next_cursor(part, self.parts.count(), next).to_string();
            let mut out = Vec::new();
            let mut writer = Writer::new(&mut out, Version::Two);
            writer.array(2);
            writer.string(next.as_bytes());
            self.show(&out, effects);
            (*stage, self.is_within) = (Stage::Keys, true);
            return Ok(Progress::Used(used));
        }
        let leg = self.legs.get_mut(part as usize).ok_or(Broken)?;
        let (used, has_ended) = leg.frames.pass(bytes)?;
        self.show(bytes.get(..used).unwrap_or_default(), effects);
        self.is_within |= used > 0;
        if !has_ended {
            return Ok(Progress::Used(used));
        }
        self.is_within = false;
        self.end_reply();
        self.end_pending(&[part]);
        Ok(Progress::Done(used))
    }

    fn take_elements(
        &mut self,
        elements: &mut Elements,
        part: u32,
        bytes: &[u8],
        effects: &mut Effects,
    ) -> Result<Progress, Broken> {
        let used;
        if elements.is_begun {
            if elements.next() != Some(part) {
                return Ok(Progress::NotNow);
            }
            let leg = self.legs.get_mut(part as usize).ok_or(Broken)?;
            let (passed, has_ended) = leg.frames.pass(bytes)?;
            if !elements.is_dropped {
                self.show(bytes.get(..passed).unwrap_or_default(), effects);
            }
            used = passed;
            if has_ended
                && let Some((_, count)) = elements.order.as_mut().and_then(|it| it.front_mut())
            {
                *count -= 1;
            }
        } else {
            let place = elements.parts.iter().position(|it| *it == part);
            let own = place.and_then(|place| elements.heads.get_mut(place));
            let Some(own) = own.filter(|own| own.is_none()) else { return Ok(Progress::NotNow) };
            if bytes.first() == Some(&b'-') {
                let Some(end) = memchr::memchr(b'\n', bytes) else {
                    let is_long = bytes.len() > ERROR_BYTES_MAX;
                    return if is_long { Err(Broken) } else { Ok(Progress::Used(0)) };
                };
                used = end + 1;
                *own = Some(Err(bytes.get(..used).unwrap_or_default().to_vec()));
            } else {
                let Some(head) = Head::read(bytes)? else { return Ok(Progress::Used(0)) };
                let length = head.length.filter(|_| head.kind == b'*').ok_or(Broken)?;
                used = head.bytes;
                *own = Some(Ok(length));
            }
            if elements.heads.iter().all(Option::is_some) {
                let begin = elements.begin()?;
                self.begin_reply();
                self.show(&begin, effects);
                self.is_within = true;
            }
        }
        if !elements.is_begun || elements.next().is_some() {
            if elements.is_begun {
                // Another leg may be the next one.
                self.resume_legs(effects);
            }
            return Ok(Progress::Used(used));
        }
        self.is_within = false;
        self.end_reply();
        self.end_pending(&elements.parts);
        Ok(Progress::Done(used))
    }

    fn change_session(&mut self, change: Change, effects: &mut Effects) {
        let is_reset = change == Change::Reset;
        self.session.apply(change);
        self.generation += 1;
        if let Some(leg) = self.legs.first_mut() {
            (leg.session, leg.generation) = (self.session.clone(), self.generation);
        }
        if !is_reset {
            return;
        }
        (self.multi, self.watched, self.shown) = (None, None, Shown::All);
        (self.listens, self.is_subscriber) = (false, false);
        self.default_user = DefaultUser::Unknown;
        for (part, leg) in (0..).zip(&mut self.legs).skip(1) {
            if leg.phase != Phase::Closed {
                *leg = Leg::default();
                effects.closes.push(part);
            }
        }
    }

    fn change_shown(&mut self, shown: Shown, effects: &mut Effects) {
        match shown {
            Shown::All => {
                self.shown = Shown::All;
                effects.replies.extend_from_slice(b"+OK\r\n");
            }
            Shown::NotNext if self.shown == Shown::None => {}
            other => self.shown = other,
        }
    }

    /// Begins a reply to the client.
    pub(super) fn begin_reply(&mut self) {
        self.is_muted = self.shown != Shown::All;
    }

    /// Ends a reply to the client.
    pub(super) fn end_reply(&mut self) {
        if self.shown == Shown::NotNext {
            self.shown = Shown::All;
        }
    }

    /// Sends bytes of a reply, if the client gets it.
    pub(super) fn show(&self, bytes: &[u8], effects: &mut Effects) {
        if !self.is_muted {
            effects.replies.extend_from_slice(bytes);
        }
    }

    pub(super) fn end_pending(&mut self, parts: &[u32]) {
        for part in parts {
            if let Some(leg) = self.legs.get_mut(*part as usize) {
                leg.pending = leg.pending.saturating_sub(1);
            }
        }
    }

    /// Sends the router's own replies that are the next ones. They wait while the client has got
    /// only a part of a message: [`Router::pass`] goes on with them behind it.
    pub(super) fn answer_own(&mut self, effects: &mut Effects) {
        if self.passing.is_some_and(|passing| passing.is_shown) {
            return;
        }
        loop {
            match self.entries.front_mut() {
                Some(Entry::Own(bytes)) => {
                    let bytes = std::mem::take(bytes);
                    self.begin_reply();
                    self.show(&bytes, effects);
                    self.end_reply();
                }
                Some(Entry::End) => effects.ends = true,
                _ => return,
            }
            self.entries.pop_front();
        }
    }

    /// Goes on after an entry, or a message.
    fn after_entry(&mut self, effects: &mut Effects) {
        self.answer_own(effects);
        self.resume_legs(effects);
        if self.barrier == Barrier::None && self.entries.len() <= ENTRIES_MAX / 2 {
            self.resume_client(effects);
        }
    }

    fn resume_legs(&mut self, effects: &mut Effects) {
        for (part, leg) in (0..).zip(&mut self.legs) {
            if std::mem::take(&mut leg.waits) {
                effects.resumes.push(part);
            }
        }
    }
}

/// Keeps the bytes of a frame until it is whole. Returns the number of used bytes, and the frame if
/// it is whole.
pub(super) fn keep(leg: &mut Leg, bytes: &[u8]) -> Result<(usize, Option<Vec<u8>>), Broken> {
    let (used, has_ended) = leg.frames.pass(bytes)?;
    leg.kept.extend_from_slice(bytes.get(..used).unwrap_or_default());
    if leg.kept.len() > KEPT_BYTES_MAX {
        return Err(Broken);
    }
    Ok((used, has_ended.then(|| std::mem::take(&mut leg.kept))))
}

/// Returns the number of channels at the end of an answer about subscriptions.
fn channels_of(end: &[u8]) -> Option<i64> {
    let line = end.strip_suffix(b"\r\n")?;
    let colon = line.iter().rposition(|byte| *byte == b':')?;
    integer_of(line.get(colon + 1..)?)
}
