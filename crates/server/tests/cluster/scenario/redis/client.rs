//! A client of the door: one connection after the other, and steps over them.

use super::records::{ACCOUNTS, Number, Records, Span};
use super::resp::{self, Reply, command, first_reply};
use super::step::{Effect, Own, Step, message_of};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use thunderhead_net::stream::{Opened, Taken};
use thunderhead_net::{Cause, ConnectionId};
use thunderhead_rpc::{Component, Context, OwnerId, Request, Service};
use thunderhead_runtime::sim::clock::TrueTime;
use thunderhead_runtime::{Random, Time};
use thunderhead_simulator::linearizability::{Action, Operation, Outcome, Version};

/// The counters, and the objects with versions.
pub(super) const COUNTERS: u64 = 3;
pub(super) const VERSIONED: u64 = 3;

/// The longest pipeline.
const PIPELINE_MAX: u64 = 12;

/// How long a client waits until a connection is open.
const OPENING: Duration = Duration::from_secs(3);

/// A client's work.
pub(super) enum Work {
    /// These steps, each until it is done.
    Steps(VecDeque<Step>),
    /// So many random steps.
    Random { user: u64, left: u64, thinks: Duration },
    /// It receives the messages of all channels, until all others have ended.
    Messages { last: BTreeMap<Number, u64>, since: u64 },
}

/// The state of a client that outlives its process.
pub(super) struct State {
    pub(super) work: Work,
    pub(super) records: Rc<RefCell<Records>>,
    pub(super) time: TrueTime,
    pub(super) random: Random,
    pub(super) queue: Option<Vec<Number>>,
    /// The steps in flight, each with the time of its call.
    flight: VecDeque<(Step, u64)>,
    watched: Option<(u64, Option<u64>)>,
    /// For each kind of own object: its last write, 0 if it does not exist.
    own: BTreeMap<u64, (u64, u64)>,
    next: u64,
    is_working: bool,
}

impl State {
    pub(super) fn new(
        work: Work,
        records: &Rc<RefCell<Records>>,
        time: TrueTime,
        random: Random,
    ) -> State {
        let is_working = !matches!(work, Work::Messages { .. });
        records.borrow_mut().working += u64::from(is_working);
        let (records, flight) = (Rc::clone(records), VecDeque::new());
        let (own, watched, next, queue) = (BTreeMap::new(), None, 0, None);
        State { work, records, time, random, queue, flight, watched, own, next, is_working }
    }

    /// Returns the next steps; none at the end.
    fn begin(&mut self) -> Vec<Step> {
        let steps = match &mut self.work {
            Work::Steps(steps) => steps.pop_front().into_iter().collect(),
            Work::Random { left: 0, .. } | Work::Messages { .. } => Vec::new(),
            Work::Random { user, left, .. } => {
                let user = *user;
                *left -= 1;
                if let Some((key, version)) = self.watched.take() {
                    let value = self.unique(user);
                    vec![Step::WriteWatched(key, value, version)]
                } else {
                    let most = if self.random.chance(0.5) { 2 } else { PIPELINE_MAX };
                    let count = self.random.within(1..most);
                    let mut steps = Vec::new();
                    for _ in 0..count {
                        steps.push(self.draw(user));
                        // It blocks, or the next step depends on it.
                        if let Some(Step::Pop(Some(_)) | Step::Watch(_)) = steps.last() {
                            break;
                        }
                    }
                    steps
                }
            }
        };
        let now = self.time.get();
        for step in &steps {
            // From now on the server may have done it.
            match step {
                Step::Push(number) => {
                    self.records.borrow_mut().items.entry(*number).or_default();
                }
                Step::WriteExpiring(number, _) => {
                    self.records.borrow_mut().expiring.entry(*number).or_default();
                }
                _ => {}
            }
            self.flight.push_back((step.clone(), now));
        }
        if steps.is_empty() && self.is_working {
            self.is_working = false;
            self.records.borrow_mut().working -= 1;
        }
        steps
    }

    fn unique(&mut self, user: u64) -> u64 {
        self.next += 1;
        user << 32 | self.next
    }

    fn draw(&mut self, user: u64) -> Step {
        let random = &mut self.random;
        match random.below(24) {
            0 | 1 => Step::Count(random.below(COUNTERS)),
            2 => Step::ReadCounters((0..random.within(1..COUNTERS + 1)).collect()),
            3 | 4 => Step::Write(random.below(VERSIONED), self.unique(user)),
            5 => Step::Delete(random.below(VERSIONED)),
            6 | 7 => Step::Read(random.below(VERSIONED), random.chance(0.5)),
            8 => Step::Watch(random.below(VERSIONED)),
            9..14 => self.write_own(user),
            14..17 => {
                let own = Own::ALL[random.below(4) as usize];
                let records = self.records.borrow();
                let all: Vec<u64> =
                    records.own.keys().filter(|it| it.1 == own as u64).map(|it| it.0).collect();
                let of = random.pick(&all).copied().unwrap_or(user);
                let last = records.own.get(&(of, own as u64)).copied().unwrap_or(0);
                Step::ReadOwn(own, (of, last.saturating_sub(random.below(10) / 9)))
            }
            17 => {
                let from = random.below(ACCOUNTS);
                let to = (from + random.within(1..ACCOUNTS)) % ACCOUNTS;
                Step::Transfer(from, to, random.within(1..MONEY_MOVED))
            }
            18 => Step::ReadMoney,
            19 => Step::Push((user, self.unique(user) & 0xffff_ffff)),
            20 => Step::Pop(random.chance(0.5).then(|| random.magnitude(1..400))),
            21 => {
                let number = (user, self.unique(user) & 0xffff_ffff);
                Step::WriteExpiring(number, self.random.magnitude(5..4000))
            }
            _ => {
                let records = self.records.borrow();
                // The newest ones are about to expire.
                let newest: Vec<Number> = records.expiring.keys().copied().collect();
                match random.pick(&newest) {
                    Some(number) => Step::ReadExpiring(*number, random.chance(0.7)),
                    None => Step::ReadMoney,
                }
            }
        }
    }

    /// Writes or deletes an own object.
    fn write_own(&mut self, user: u64) -> Step {
        let own = Own::ALL[self.random.below(4) as usize];
        let mut records = self.records.borrow_mut();
        let number = *records.own.entry((user, own as u64)).or_default();
        let (count, last) = self.own.entry(own as u64).or_default();
        if self.random.chance(0.15) && *last != 0 && own != Own::Channel {
            let before = std::mem::take(last);
            return Step::DeleteOwn(own, (user, number), before);
        }
        *count += 1;
        *last = *count;
        Step::WriteOwn(own, (user, number), *count)
    }

    /// Records that the steps in flight have no answer.
    fn broken(&mut self) {
        self.watched = None;
        for (step, called) in std::mem::take(&mut self.flight) {
            step.is_unanswered(called, &mut self.records.borrow_mut());
            self.forget(&step);
            if let Work::Steps(steps) = &mut self.work {
                steps.push_front(step);
            }
        }
    }

    /// Gives an own object up of which this client does not know the last write.
    fn forget(&mut self, step: &Step) {
        let (Step::WriteOwn(own, number, _) | Step::DeleteOwn(own, number, _)) = step else {
            return;
        };
        let mut records = self.records.borrow_mut();
        let present = records.own.entry((number.0, *own as u64)).or_default();
        if *present == number.1 {
            *present += 1;
            self.own.remove(&(*own as u64));
        }
    }

    /// Takes the first replies, if they complete a step. Returns whether they do.
    fn take(&mut self, replies: &mut VecDeque<Reply>) -> bool {
        let Some((step, called)) = self.flight.front() else { return false };
        let count = step.commands().len();
        if replies.len() < count {
            return false;
        }
        let replies: Vec<Reply> = replies.drain(..count).collect();
        let (step, called) = (step.clone(), *called);
        self.flight.pop_front();
        let span = Span { called, answered: self.time.get() };
        let effect = step.is_answered(span, &replies, &mut self.records.borrow_mut());
        match effect {
            // The step was not done, and the object is as before. The client takes another object,
            // because it does not keep the number of the write before.
            None => {
                self.forget(&step);
                self.flight.iter_mut().for_each(|(later, _)| later.lacks(&step));
                if let Work::Steps(steps) = &mut self.work {
                    steps.push_front(step);
                }
            }
            Some(Effect::None) => {}
            Some(Effect::Watches(key, version)) => self.watched = Some((key, version)),
            Some(Effect::Queue(items)) => self.queue = Some(items),
        }
        true
    }

    /// Takes a message.
    fn receive(&mut self, reply: &Reply) {
        let Work::Messages { last, since } = &mut self.work else { return };
        let Some((channel, message)) = message_of(reply) else { return };
        let mut records = self.records.borrow_mut();
        if let Some(before) = last.insert(channel, message) {
            records.received(channel, before, message);
        }
        // The message tells of a write, which no crash may undo.
        let (called, answered) = (*since, self.time.get());
        let key = (2 + Own::Channel as u64, channel.0 << 32 | channel.1);
        let outcome = Outcome::Found(Version(message), message);
        let action = Action::Read;
        records.history.push(Operation { key, called, answered, action, outcome });
    }
}

/// The most money that one transfer moves.
const MONEY_MOVED: u64 = 100;

/// The process of a client.
pub(super) struct Client {
    to: SocketAddr,
    state: Rc<RefCell<State>>,
    stream: Option<ConnectionId>,
    is_open: bool,
    replies: VecDeque<Reply>,
    /// The time at which the next steps begin, or at which the client waits no longer.
    acts_at: Time,
    waits: bool,
}

impl Client {
    pub(super) fn new(to: SocketAddr, state: &Rc<RefCell<State>>) -> Client {
        Client {
            to,
            state: Rc::clone(state),
            stream: None,
            is_open: false,
            replies: VecDeque::new(),
            acts_at: Time::default(),
            waits: false,
        }
    }

    fn act_at(&mut self, context: &mut Context<'_>, at: Time) {
        self.acts_at = at;
        context.set_timer(at, OwnerId::only(Component::Node));
    }

    /// Opens a stream to the door, and sets the time after which the client closes it unopened.
    fn connect(&mut self, context: &mut Context<'_>) {
        self.stream = Some(context.connect_stream(self.to));
        (self.is_open, self.waits) = (false, true);
        self.replies.clear();
        let at = context.now() + OPENING;
        self.act_at(context, at);
    }

    /// Gives the connection up, and connects again a little later.
    fn gives_up(&mut self, context: &mut Context<'_>) {
        if let Some(stream) = self.stream.take() {
            context.finish_stream(stream);
        }
        self.state.borrow_mut().broken();
        (self.is_open, self.waits) = (false, false);
        let pause = Duration::from_millis(self.state.borrow_mut().random.magnitude(1..300));
        let at = context.now() + pause;
        self.act_at(context, at);
    }

    /// Begins the next steps.
    fn begin(&mut self, context: &mut Context<'_>) {
        let Some(stream) = self.stream else { return };
        let steps = self.state.borrow_mut().begin();
        if steps.is_empty() {
            return;
        }
        let mut bytes = Vec::new();
        steps.iter().flat_map(Step::commands).for_each(|it| resp::put(&mut bytes, &it));
        let (cut, is_impatient, patience) = {
            let random = &mut self.state.borrow_mut().random;
            let cut = random.below(bytes.len() as u64) as usize;
            (cut, random.chance(0.01), Duration::from_millis(random.magnitude(100..8000)))
        };
        let (first, second) = bytes.split_at(cut);
        context.send_bytes(stream, &[first]);
        if is_impatient {
            // The server has a part of the last command only, or all of it.
            if self.state.borrow_mut().random.chance(0.5) {
                context.send_bytes(stream, &[second]);
            }
            return self.gives_up(context);
        }
        context.send_bytes(stream, &[second]);
        self.waits = true;
        let at = context.now() + patience;
        self.act_at(context, at);
    }

    fn listens(&self) -> bool {
        matches!(self.state.borrow().work, Work::Messages { .. })
    }
}

impl Service for Client {
    fn start(&mut self, context: &mut Context<'_>) {
        // The process has crashed. The outcome of its steps is unknown.
        self.state.borrow_mut().broken();
        self.connect(context);
    }

    fn request(&mut self, _: &mut Context<'_>, _: Request<'_>) {}

    fn timer(&mut self, context: &mut Context<'_>, _: OwnerId) {
        if context.now() < self.acts_at {
            return;
        }
        match (self.stream, self.waits) {
            (None, _) => self.connect(context),
            (Some(_), true) => self.gives_up(context),
            (Some(_), false) => self.begin(context),
        }
    }

    fn stream_opened(&mut self, context: &mut Context<'_>, stream: ConnectionId, _: Opened) {
        if self.stream != Some(stream) {
            return;
        }
        (self.is_open, self.waits) = (true, false);
        if self.listens() {
            let mut state = self.state.borrow_mut();
            let now = state.time.get();
            if let Work::Messages { last, since } = &mut state.work {
                last.clear();
                *since = now;
            }
            let mut bytes = Vec::new();
            resp::put(&mut bytes, &command(["PSUBSCRIBE", "p:*"]));
            context.send_bytes(stream, &[&bytes]);
            drop(state);
            self.acts_at = Time::NEVER;
        } else {
            self.begin(context);
        }
    }

    fn stream_bytes(
        &mut self,
        context: &mut Context<'_>,
        from: ConnectionId,
        bytes: &[u8],
    ) -> Taken {
        if self.stream != Some(from) {
            return Taken::read_on(bytes.len());
        }
        let mut used = 0;
        while let Some((reply, length)) = first_reply(&bytes[used..]) {
            used += length;
            if self.listens() {
                self.state.borrow_mut().receive(&reply);
            } else {
                self.replies.push_back(reply);
            }
        }
        let mut state = self.state.borrow_mut();
        while state.take(&mut self.replies) {}
        let is_done = self.waits && state.flight.is_empty() && self.replies.is_empty();
        if is_done {
            let pause = match &state.work {
                Work::Random { thinks, .. } => thinks.as_nanos() as f64,
                _ => 0.0,
            };
            let pause = Duration::from_nanos(state.random.exponential(pause) as u64);
            drop(state);
            self.waits = false;
            let at = context.now() + pause;
            self.act_at(context, at);
        }
        Taken::read_on(used)
    }

    fn stream_ended(&mut self, context: &mut Context<'_>, stream: ConnectionId) {
        if self.stream == Some(stream) {
            self.gives_up(context);
        }
    }

    fn stream_closed(&mut self, context: &mut Context<'_>, stream: ConnectionId, _: Cause) {
        if self.stream == Some(stream) {
            self.stream = None;
            self.gives_up(context);
        }
    }
}
